//! The order in which a commit becomes known: to the index, to the storage worker, to consumers. On
//! a simulated disk, in an order that the test makes.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use rustix::io::Errno;

use crate::consume::step::Read;
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::Error;
use crate::options::Options;
use crate::storage::Stores;
use crate::tests::late::{Queue, disk, open};
use crate::tests::sim::{Call, forget_meanwhile, meanwhile};

fn take(queue: &Queue) -> Option<u64> {
    let consumer = queue.consumer("c").unwrap();
    reading::next(queue, &consumer, Read::Take).unwrap().map(|message| message.seq())
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

/// The storage worker flushes while a producer has stored its tail in the index and not yet
/// published it. It goes by what is published: the rest may still be rolled back.
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
            let spot = core.committed_spot();
            say.send(Some((spot, core.committed().position.load(Ordering::Acquire)))).unwrap();
        });
        // Until it has looked, nothing is published.
        match heard.recv().unwrap() {
            None => drop(looking),
            found => assert_eq!(found, Some((published, published.position))),
        }
    });
    queue.enqueue(b"two").unwrap();
}

/// Each sync and write of an enqueue fails in turn, the first of a run among them. What the caller
/// is told says whether the message is in the queue.
#[test]
fn an_error_says_whether_the_message_is_in_the_queue() {
    let (mut flushes, mut refusals) = (0, 0);
    for (call, every) in [Call::SyncFile, Call::SyncDirectory, Call::Write]
        .into_iter()
        .flat_map(|call| [(call, None), (call, Some(1)), (call, Some(2))])
    {
        for nth in 1.. {
            let storage = disk();
            let options = Options::new().arena_size(4096).max_bytes(512 << 10);
            let options = options.flush_every_ops(every);
            let queue = Engine::open_without_workers(storage.clone(), &options).unwrap();
            storage.fail_after(call, nth, Errno::IO, false);
            let mut expected = 0;
            for _ in 0..4 {
                match queue.enqueue(b"a message") {
                    Ok(_) => expected += 1,
                    Err(Error::Io { op: "flush", .. }) => {
                        (expected, flushes) = (expected + 1, flushes + 1)
                    }
                    Err(_) => refusals += 1,
                }
            }
            let is_met = storage.failed(call) > 0;
            storage.clear_faults();
            let again = Engine::open_without_workers(storage.process_kill(), &options).unwrap();
            assert_eq!(again.core.found_tail.seq, expected, "{call:?} {nth}, every {every:?}");
            if !is_met {
                break;
            }
        }
    }
    assert!(flushes > 3 && refusals > 3, "{flushes} {refusals}");
}

/// Another thread's flush fails while this one waits for its own: the message is in the queue, and
/// the call does not report that it was refused.
#[test]
fn a_message_in_the_queue_is_not_called_refused_when_the_flush_of_another_fails() {
    let storage = disk();
    let options = Options::new().arena_size(4096).max_bytes(512 << 10).flush_every_ops(1);
    let queue = Arc::new(Engine::open_without_workers(storage.clone(), &options).unwrap());
    queue.enqueue(b"one").unwrap();
    let other = Arc::clone(&queue);
    meanwhile("before a tail is published", move || {
        other.core.index.set_poisoned(&Error::Closed);
    });
    let answer = queue.enqueue(b"two");
    assert!(matches!(answer, Err(Error::Io { op: "flush", .. })), "{answer:?}");
    assert!(matches!(queue.enqueue(b"three"), Err(Error::Poisoned { .. })));
    let again = Engine::open_without_workers(storage.process_kill(), &options).unwrap();
    assert_eq!(again.core.found_tail.seq, 2);
}
