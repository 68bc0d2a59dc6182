//! The order in which a commit becomes known: to the index, to the keeper, to consumers. On a
//! simulated disk, in an order that the test makes.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use rustix::io::Errno;

use crate::consume::standing::Read;
use crate::engine::Engine;
use crate::engine::reading;
use crate::options::Options;
use crate::storage::Stores;
use crate::tests::sim::{Call, SimStorage, forget_meanwhile, meanwhile};

type Queue = Arc<Engine<SimStorage>>;

fn open(storage: &SimStorage) -> Queue {
    let options = Options::new().arena_size(4096).max_bytes(512 << 10);
    Arc::new(Engine::open_without_keeper(storage.clone(), &options).unwrap())
}

fn disk() -> SimStorage {
    SimStorage::new(5).with_file_capacity(64 << 10)
}

fn take(queue: &Queue) -> Option<u64> {
    let standing = queue.consumer("c").unwrap();
    reading::next(queue, &standing, Read::Take).unwrap().map(|message| message.seq())
}

/// Any write of an enqueue is refused, where stores are calls. Nobody has taken a message whose
/// enqueue is refused, though somebody reads as soon as it is visible: its number is given again.
#[test]
fn a_message_that_somebody_took_is_not_taken_back() {
    let mut refusals = 0;
    for nth in 1.. {
        let storage = disk();
        storage.set_stores(Stores::ByCall);
        let queue = open(&storage);
        queue.enqueue(b"one").unwrap();
        assert_eq!(take(&queue), Some(0));
        let (other, taken) = (Arc::clone(&queue), Rc::new(Cell::new(None)));
        let (into, faults) = (Rc::clone(&taken), storage.clone());
        meanwhile("published", move || {
            faults.clear_faults();
            into.set(take(&other));
            faults.fail_after(Call::Write, 1, Errno::IO, false);
        });
        storage.fail_after(Call::Write, nth, Errno::IO, false);
        let answer = queue.enqueue(b"two");
        let was_refused = forget_meanwhile();
        assert_eq!(taken.get(), answer.ok(), "write {nth}");
        storage.clear_faults();
        if !was_refused {
            assert!(taken.get().is_some());
            break;
        }
        refusals += 1;
        assert_eq!((queue.enqueue(b"three").unwrap(), take(&queue)), (1, Some(1)), "write {nth}");
    }
    assert!(refusals > 1, "{refusals}");
}

/// The keeper flushes while a producer has stored its tail in the index and not yet published it.
/// It goes by what is published: the rest may still be rolled back.
#[test]
fn the_keeper_flushes_up_to_what_is_published() {
    let storage = disk();
    let queue = open(&storage);
    queue.enqueue(b"one").unwrap();
    let (keeper, published) = (Arc::clone(&queue), queue.core.committed_spot());
    let (say, heard) = mpsc::channel();
    meanwhile("before a tail is published", move || {
        assert_ne!(keeper.core.index.tail(), Some(published), "the tail is in the index");
        let (say_so, core) = (say.clone(), Arc::clone(&keeper.core));
        let looking = thread::spawn(move || {
            // It found nothing at its first look, and looks again.
            meanwhile("between two looks at the committed tail", move || {
                say_so.send(None).unwrap();
            });
            let spot = core.committed_spot_at_once();
            say.send(Some((spot, core.committed.position.load(Ordering::Acquire)))).unwrap();
        });
        // Until it has looked, nothing is published.
        match heard.recv().unwrap() {
            None => drop(looking),
            found => assert_eq!(found, Some((published, published.position))),
        }
    });
    queue.enqueue(b"two").unwrap();
}
