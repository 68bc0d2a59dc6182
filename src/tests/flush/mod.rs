//! What a sync that fails, or is under way, means for other threads. On the simulated disk, in an
//! order that the test makes.

mod behind;
mod descriptors;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::consume::step::Read;
use crate::engine::reading;
use crate::engine::{Background, Engine};
use crate::error::Error;
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::sim::{Call, SimStorage, meanwhile};
use crate::threads::worker::NO_THREADS;

type Queue = Arc<Engine<SimStorage>>;

/// At most seven segments of 64 KiB.
fn options() -> Options {
    LENGTH_HERE.set(Some(64 << 10));
    Options::new().arena_size(4096).max_bytes(512 << 10)
}

/// Two and a piece fill a segment.
const LEN: usize = 24_000;

fn disk() -> SimStorage {
    SimStorage::new(5).with_file_capacity(64 << 10)
}

fn open(storage: &SimStorage, options: &Options, background: Background) -> Queue {
    Arc::new(Engine::open_with(storage.clone(), options, background).unwrap())
}

/// The numbers of the messages the default consumer is given, to the end, and how many gaps are
/// reported to it.
fn take_all(queue: &Queue) -> (Vec<u64>, usize) {
    let consumer = queue.consumer("").unwrap();
    let (mut seqs, mut gaps) = (Vec::new(), 0);
    loop {
        match reading::next(queue, &consumer, Read::Take) {
            Ok(Some(message)) => seqs.push(message.seq()),
            Ok(None) => return (seqs, gaps),
            Err(Error::Gap(_)) => gaps += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

fn is_failed_sync(error: &Error) -> bool {
    matches!(error, Error::Io { op: "flush", .. })
}

/// A bug must not keep who ends the queue waiting.
#[test]
fn a_flush_that_panics_poisons_the_queue_and_ends() {
    let queue = open(&disk(), &options(), Background::Calls);
    queue.enqueue(&[1; LEN]).unwrap();
    meanwhile("while a thread leads a flush", || panic!("a bug"));
    let panicked = catch_unwind(AssertUnwindSafe(|| queue.core.flush()));
    assert!(panicked.is_err());
    let error = queue.core.flush().unwrap_err().to_string();
    assert!(error.contains("a flush panicked"), "{error}");
    assert!(queue.close().is_err());
}

/// Two threads: one syncs the directory, the other must not take that for done.
#[test]
fn a_directory_sync_that_is_under_way_is_waited_for() {
    let storage = SimStorage::new(5).with_file_capacity(256 << 10);
    let options = Options::new().arena_size(16 << 10).max_bytes(256 << 10).flush_every_ops(1);
    let queue = open(&storage, &options, Background::Calls);
    let consumer = queue.consumer("").unwrap();
    for _ in 0..3 {
        queue.enqueue(&[1; 3000]).unwrap();
    }
    let in_file = storage.stop_next(Call::SyncFile);
    let producer = {
        let queue = queue.clone();
        // Begins a new segment.
        thread::spawn(move || queue.enqueue(&[2; 30_000]).unwrap())
    };
    in_file.wait_for_visitor();
    let in_directory = storage.stop_next(Call::SyncDirectory);
    let reader = {
        let queue = queue.clone();
        thread::spawn(move || reading::next(&queue, &consumer, Read::Take).unwrap().unwrap().seq())
    };
    in_directory.wait_for_visitor();
    in_file.open();
    // Whoever says that message 3 is durable while the directory is not would be found out by a
    // power cut now.
    for _ in 0..1000 {
        if queue.core.durable.lock().spot.seq > 3 {
            let cut = open(&storage.power_cut_losing_all(), &options, Background::Calls);
            assert_eq!(take_all(&cut).0.last(), Some(&3), "it was said to be durable");
        }
        thread::yield_now();
    }
    in_directory.open();
    assert_eq!((producer.join().unwrap(), reader.join().unwrap()), (3, 0));
    let cut = open(&storage.power_cut_losing_all(), &options, Background::Calls);
    assert_eq!(take_all(&cut).0.last(), Some(&3));
}

/// A new consumer's row goes to the disk before its place: a long name, and the row cleared of what
/// an earlier consumer has left there.
#[test]
fn nobody_else_waits_for_a_new_consumers_sync() {
    let long = "long".repeat(20);
    for (gone, name) in [(None, &*long), (Some(&*long), "short")] {
        let storage = SimStorage::new(5).with_file_capacity(256 << 10);
        let queue = open(&storage, &Options::new().arena_size(16 << 10), Background::Calls);
        let worker = queue.consumer("worker").unwrap();
        queue.enqueue_batch(&[b"one", b"two"]).unwrap();
        if let Some(gone) = gone {
            queue.consumer(gone).unwrap();
            queue.remove_consumer(gone).unwrap();
        }
        queue.core.flush().unwrap();
        let in_file = storage.stop_next(Call::SyncFile);
        let (creator, other) = (Arc::clone(&queue), Arc::clone(&queue));
        let name = name.to_owned();
        let creator = thread::spawn(move || creator.consumer(&name).map(drop));
        in_file.wait_for_visitor();
        let (done, heard) = mpsc::channel();
        let other = thread::spawn(move || {
            other.receive(&worker, reading::AsMessage).unwrap().unwrap();
            let (two, handed) = other.receive(&worker, reading::AsMessage).unwrap().unwrap();
            // The first one that is done out of order gets a row in the index.
            other.ack(&worker, two.seq(), handed).unwrap();
            // Begins a new segment.
            done.send(other.enqueue(&[2; 30_000]).unwrap()).unwrap();
        });
        let number = heard.recv_timeout(Duration::from_secs(60));
        in_file.open();
        creator.join().unwrap().unwrap();
        other.join().unwrap();
        assert_eq!(number, Ok(2), "after {gone:?}");
    }
}

/// Rule R6, also where the sync belongs to a seek or to the end of a consumer.
#[test]
fn a_failed_sync_in_seek_or_remove_consumer_poisons() {
    for remove in [false, true] {
        let storage = disk();
        let queue = open(&storage, &options(), Background::Calls);
        for _ in 0..10 {
            queue.enqueue(b"message").unwrap();
        }
        let worker = queue.consumer("worker").unwrap();
        queue.core.flush().unwrap();
        let mut handed: Vec<_> =
            (0..3).map(|_| queue.receive(&worker, reading::AsMessage).unwrap().unwrap()).collect();
        let (message, answer) = handed.swap_remove(1);
        queue.ack(&worker, message.seq(), answer).unwrap();
        let default = queue.consumer("").unwrap();
        for _ in 0..5 {
            reading::next(&queue, &default, Read::Take).unwrap().unwrap();
        }
        storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
        let answer = if remove { queue.remove_consumer("worker") } else { queue.seek(&worker, 0) };
        assert!(answer.as_ref().is_err_and(is_failed_sync), "{answer:?}");
        assert!(matches!(queue.core.flush(), Err(Error::Poisoned { .. })));
        assert!(queue.close().is_err());
        if !remove {
            // What was acknowledged stays so.
            let again = open(&storage.process_kill(), &options(), Background::Calls);
            let worker = again.consumer("worker").unwrap();
            let next = |_| again.receive(&worker, reading::AsMessage).unwrap().unwrap().0.seq();
            assert_eq!((0..2).map(next).collect::<Vec<_>>(), [0, 2]);
        }
    }
}

/// Pages that an earlier failure left off the disk are stored again, and no segment is used again
/// meanwhile.
#[test]
fn nothing_is_stored_again_in_a_segment_that_was_drained() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    queue.consumer("").unwrap();
    for _ in 0..6 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    queue.core.flush().unwrap_err();
    drop(queue);
    let storage = storage.process_kill();
    let queue = open(&storage, &options(), Background::Calls);
    let in_sync = storage.stop_next(Call::SyncFile);
    let flusher = {
        let queue = queue.clone();
        thread::spawn(move || queue.core.flush())
    };
    in_sync.wait_for_visitor();
    // The flush is in the first segment. Meanwhile all of them are read. A read that reclaims one
    // waits for the flush.
    let reader = {
        let queue = queue.clone();
        thread::spawn(move || {
            let consumer = queue.consumer("").unwrap();
            for seq in 0..6 {
                let read = reading::next(&queue, &consumer, Read::Take).unwrap().unwrap();
                assert_eq!(read.seq(), seq);
            }
        })
    };
    in_sync.open();
    reader.join().unwrap();
    for _ in 0..6 {
        queue.enqueue(&[3; LEN]).unwrap();
    }
    flusher.join().unwrap().unwrap();
    let consumer = queue.consumer("").unwrap();
    let reported: Vec<_> =
        std::iter::from_fn(|| reading::next(&queue, &consumer, Read::Take).unwrap())
            .map(|message| message[..] == [3; LEN])
            .collect();
    assert_eq!(reported, [true; 6]);
}

/// An opening with a timer or an age fails when the storage worker's thread cannot be started:
/// nobody would keep the promise.
#[test]
fn a_queue_whose_thread_cannot_be_started_does_not_open_with_a_timer() {
    NO_THREADS.set(true);
    let day = Duration::from_secs(86_400);
    for options in [options().flush_every(day), options().max_age(day)] {
        let storage = disk();
        let refused = Engine::open(storage.clone(), &options).map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::Io { op: "start a thread for", .. }), "{refused}");
        // The flush released the lock, and the queue is what it was.
        NO_THREADS.set(false);
        open(&storage, &options, Background::Workers).close().unwrap();
        NO_THREADS.set(true);
    }
    // Without either the calls do what the thread would do.
    let storage = disk();
    let queue = open(&storage, &options(), Background::Workers);
    queue.consumer("").unwrap();
    for _ in 0..100 {
        queue.enqueue(&[1; LEN]).unwrap();
        assert_eq!(take_all(&queue).0.len(), 1);
    }
    assert!(queue.core.segments.list().live.len() <= 2);
    queue.close().unwrap();
}

/// Where the index is written by calls a checkpoint may be refused behind a message that is in the
/// queue: that is no refusal of the message.
#[test]
fn a_message_that_is_in_the_queue_is_not_called_refused_for_want_of_space() {
    let mut seen = 0;
    for (every, nth) in [1, 2].into_iter().flat_map(|every| (1..40).map(move |nth| (every, nth))) {
        let storage = disk();
        storage.set_stores(crate::storage::Stores::ByCall);
        let queue = open(&storage, &options().flush_every_ops(every), Background::Calls);
        let reader = queue.consumer("").unwrap();
        for _ in 0..3 {
            queue.enqueue(&[1; 3000]).unwrap();
        }
        reading::next(&queue, &reader, Read::Take).unwrap();
        storage.fail_after(Call::Write, nth, Errno::NOSPC, true);
        for _ in 0..8 {
            let before = queue.core.committed_spot().seq;
            let answer = queue.enqueue(&[1; 20_000]);
            let is_in = queue.core.committed_spot().seq > before;
            if let Err(error) = answer {
                assert!(!(is_in && error.is_full()), "{error}");
                seen += u64::from(is_in);
                break;
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn nothing_counts_as_durable_before_its_sync_has_ended() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    queue.enqueue(&[1; LEN]).unwrap();
    let mark = || queue.core.durable.lock().spot;
    let (before, gate) = (mark(), storage.stop_next(Call::SyncFile));
    let flushing = {
        let queue = queue.clone();
        thread::spawn(move || queue.core.flush())
    };
    gate.wait_for_visitor();
    let during = mark();
    gate.open();
    flushing.join().unwrap().unwrap();
    assert_eq!((during, mark()), (before, queue.core.committed_spot()));
}

/// Two threads choose a spot each, and the later one may be the first to write it.
#[test]
fn a_checkpoint_never_goes_back() {
    let queue = open(&disk(), &options(), Background::Calls);
    queue.enqueue(&[1; LEN]).unwrap();
    let early = queue.core.committed_spot();
    queue.enqueue(&[1; LEN]).unwrap();
    queue.core.flush().unwrap();
    let late = queue.core.committed_spot();
    queue.core.write_checkpoint(late).unwrap();
    queue.core.write_checkpoint(early).unwrap();
    assert_eq!(queue.core.index.checkpoint().position, late.position);
}

/// No place can be known to be durable any more, so nothing that was drained is reclaimed.
#[test]
fn after_a_failed_sync_nothing_is_reclaimed_and_that_is_no_error() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    for _ in 0..4 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    queue.core.flush().unwrap_err();
    let end = queue.core.segments.list().live[0].header.end();
    assert!(queue.core.segments.drain(end));
    let calls = storage.calls();
    queue.core.reclaim().unwrap();
    assert_eq!(storage.calls(), calls);
}

/// A place that moves while the index is synced may have missed that sync.
#[test]
fn a_place_that_moves_during_a_sync_is_synced_by_the_next_flush() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    let consumer = queue.consumer("").unwrap();
    for _ in 0..3 {
        queue.enqueue(&[1; 10]).unwrap();
    }
    queue.core.flush().unwrap();
    let take = || reading::next(&queue, &consumer, Read::Take).unwrap().unwrap().seq();
    take();
    let gate = storage.stop_next(Call::SyncFile);
    let flushing = {
        let queue = queue.clone();
        thread::spawn(move || queue.core.flush())
    };
    gate.wait_for_visitor();
    take();
    gate.open();
    flushing.join().unwrap().unwrap();
    let syncs = storage.call_count(Call::SyncFile);
    queue.core.flush().unwrap();
    assert_eq!(storage.call_count(Call::SyncFile), syncs + 1);
}

/// A timeout around the future of a message tells apart what the message waits for.
#[cfg(feature = "async")]
#[test]
fn a_future_says_when_its_message_is_in_the_queue_and_only_its_flush_is_awaited() {
    use std::task::{Context, Poll, Waker};

    use crate::futures::Enqueuing;
    use crate::options::OnFull;
    use crate::tests::together::tasks::Task;

    let storage = disk();
    let options = options().flush_every_ops(1).on_full(OnFull::Wait(None));
    let queue = open(&storage, &options, Background::Workers);
    let consumer = queue.consumer("").unwrap();
    queue.enqueue(&[1; LEN]).unwrap();
    let context = Context::from_waker(Waker::noop());
    let gate = storage.stop_next(Call::SyncFile);
    let mut put = Enqueuing::new(&queue, [2; LEN], None);
    let before = put.stored;
    let polled = put.poll_enqueued(&context);
    gate.wait_for_visitor();
    // Here the timeout strikes.
    let seen = (before, polled.is_pending(), put.stored);
    gate.open();
    assert_eq!(seen, (None, true, Some(1)));
    assert_eq!(Task::of(put).end().unwrap(), 1);
    assert_eq!(queue.len(), 2);
    // Now one waits for room.
    loop {
        let mut put = Enqueuing::new(&queue, [3; LEN], None);
        match put.poll_enqueued(&context) {
            Poll::Ready(outcome) => drop(outcome.unwrap()),
            Poll::Pending if put.stored.is_none() => break,
            Poll::Pending => drop(Task::of(put).end().unwrap()),
        }
    }
    let len = queue.len();
    assert!(reading::next(&queue, &consumer, Read::Take).unwrap().is_some());
    assert_eq!(queue.len(), len - 1, "it was dropped, and put nothing in");
    queue.close().unwrap();
}
