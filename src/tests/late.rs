//! Calls that come too late: the queue was closed, poisoned or synced since they looked. On a
//! simulated disk, in an order that the test makes.

use std::sync::Arc;

use rustix::io::Errno;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{DeliveryToken, Read};
use crate::engine::Engine;
use crate::engine::ahead::Ahead;
use crate::engine::reading::{self, AsMessage};
use crate::error::Error;
use crate::format::INDEX_NAME;
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::sim::{Call, SimStorage, meanwhile};

pub(super) type Queue = Arc<Engine<SimStorage>>;

/// At most seven segments of 64 KiB.
pub(super) fn open(storage: &SimStorage) -> Queue {
    LENGTH_HERE.set(Some(64 << 10));
    let options = Options::new().arena_size(4096).max_bytes(512 << 10);
    Arc::new(Engine::open_without_workers(storage.clone(), &options).unwrap())
}

pub(super) fn disk() -> SimStorage {
    SimStorage::new(5).with_file_capacity(64 << 10)
}

/// A call is told the queue is open, and then waits: for a lock, or because another thread has its
/// processor. Meanwhile the queue is closed, and another owner opens it.
#[test]
fn a_call_that_found_the_queue_open_and_went_on_when_it_was_closed_is_refused() {
    type Late = fn(
        &Queue,
        &ConsumerState<SimStorage>,
        &mut Ahead<SimStorage>,
        DeliveryToken,
    ) -> Result<(), Error>;
    let read: [Late; 8] = [
        |queue, consumer, _, _| reading::next(queue, consumer, Read::Take).map(drop),
        |queue, consumer, _, _| reading::next(queue, consumer, Read::Look).map(drop),
        |queue, consumer, _, _| reading::skip(queue, consumer).map(drop),
        |queue, consumer, _, _| reading::batch(queue, consumer, 3).map(drop),
        |queue, consumer, _, _| {
            reading::next_into(queue, consumer, Read::Take, &mut Vec::new()).map(drop)
        },
        |queue, consumer, _, _| queue.receive(consumer, AsMessage).map(drop),
        |queue, consumer, _, handed| queue.ack(consumer, 0, handed),
        |_, _, ahead, _| ahead.next().transpose().map(drop),
    ];
    for (nth, call) in read.into_iter().enumerate() {
        let storage = disk();
        let queue = open(&storage);
        for number in 0..9u8 {
            queue.enqueue(&[number; 100]).unwrap();
        }
        let consumer = queue.consumer("c").unwrap();
        let handed = match nth {
            6 => queue.receive(&consumer, AsMessage).unwrap().unwrap().1,
            _ => DeliveryToken::default(),
        };
        let mut ahead = Ahead::new(&queue, &consumer).unwrap();
        let (closing, disk) = (Arc::clone(&queue), storage.clone());
        let (send, other) = std::sync::mpsc::channel();
        meanwhile("found open", move || {
            closing.close().unwrap();
            let other = open(&disk);
            let taken = reading::next(&other, &other.consumer("c").unwrap(), Read::Take)
                .unwrap()
                .unwrap()
                .seq();
            send.send((disk.read_file(INDEX_NAME), taken, other)).unwrap();
        });
        let answer = call(&queue, &consumer, &mut ahead, handed);
        let (index, taken, other) = other.try_recv().expect("the queue was closed meanwhile");
        assert!(matches!(answer, Err(Error::Closed)), "call {nth}: {answer:?}");
        assert!(
            storage.read_file(INDEX_NAME) == index,
            "call {nth} changed the index of another owner"
        );
        let next =
            reading::next(&other, &other.consumer("c").unwrap(), Read::Take).unwrap().unwrap();
        assert_eq!((taken, next.seq()), (0, 1), "call {nth}");
    }
}

/// The queue is closed while a flush is between the messages and the places, and the close fails:
/// the places are not durable, and the flush says so.
#[test]
fn a_flush_during_which_a_close_failed_fails() {
    let storage = disk();
    let queue = open(&storage);
    queue.enqueue(b"a message").unwrap();
    let (closing, disk) = (Arc::clone(&queue), storage.clone());
    meanwhile("behind a flush's messages", move || {
        let consumer = closing.consumer("c").unwrap();
        assert!(reading::next(&closing, &consumer, Read::Take).unwrap().is_some());
        disk.fail_after(Call::SyncFile, 1, Errno::IO, true);
        closing.close().unwrap_err();
        disk.clear_faults();
    });
    let flushed = queue.core.flush();
    assert!(flushed.is_err(), "the place of the message that was taken is not durable");
}

/// No sync can make it durable that what was acknowledged comes again: at no moment does the index
/// say so.
#[test]
fn a_seek_on_a_poisoned_queue_forgets_nothing_that_was_acknowledged() {
    let mut met = 0;
    for nth in 1.. {
        let storage = disk();
        let queue = open(&storage);
        for _ in 0..4 {
            queue.enqueue(b"a message").unwrap();
        }
        let consumer = queue.consumer("c").unwrap();
        let handed: Vec<_> =
            (0..3).map(|_| queue.receive(&consumer, AsMessage).unwrap().unwrap().1).collect();
        queue.ack(&consumer, 1, handed[1]).unwrap();
        queue.core.flush().unwrap();
        queue.enqueue(b"another").unwrap();
        storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
        queue.core.flush().unwrap_err();
        storage.freeze_at_store(nth);
        assert!(matches!(queue.seek(&consumer, 0), Err(Error::Poisoned { .. })));
        storage.disarm();
        let frozen = storage.frozen();
        met += u32::from(frozen.is_some());
        let again = open(&frozen.clone().unwrap_or_else(|| storage.process_kill()));
        let consumer = again.consumer("c").unwrap();
        let next = |_| again.receive(&consumer, AsMessage).unwrap().unwrap().0.seq();
        assert_eq!((0..3).map(next).collect::<Vec<_>>(), [0, 2, 3], "store {nth}");
        if frozen.is_none() {
            break;
        }
    }
    assert!(met > 0);
}
