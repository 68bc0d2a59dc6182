//! Promise P5 on a full disk that holds one segment: the space of messages that were read or
//! dropped takes new ones, whoever wrote, read or lent them. On a simulated disk, in an order that
//! the test makes.

mod ahead;
mod free_space;
mod refused;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::consume::step::Read;
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause, Result};
use crate::message::Message;
use crate::options::{OnFull, Options};
use crate::storage::Stores;
use crate::tests::in_parts;
use crate::tests::sim::{Call, SimStorage, meanwhile};

type Queue = Arc<Engine<SimStorage>>;

/// A segment could be ten times as long as the disk is large.
fn options() -> Options {
    Options::new().arena_size(4 << 20)
}

const DISK: u64 = 400 << 10;
const LEN: usize = 3000;

fn disk(seed: u64) -> SimStorage {
    let storage = SimStorage::new(seed).with_file_capacity(4 << 20);
    storage.set_capacity(Some(DISK));
    storage
}

fn open(storage: &SimStorage, options: &Options) -> Queue {
    Arc::new(Engine::open_without_workers(storage.clone(), options).unwrap())
}

fn content(seq: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![seq as u8; len];
    bytes[..8].copy_from_slice(&seq.to_le_bytes());
    bytes
}

/// How a message is put in.
#[derive(Debug, Clone, Copy)]
enum Way {
    Alone,
    Batch,
    Parts,
}

const WAYS: [Way; 3] = [Way::Alone, Way::Batch, Way::Parts];

fn put(queue: &Queue, way: Way, seq: u64) -> Result<u64> {
    let bytes = content(seq, LEN);
    match way {
        Way::Alone => queue.enqueue(&bytes),
        Way::Batch => {
            queue.enqueue_batch(&bytes.chunks(1000).collect::<Vec<_>>()).map(|given| given.start)
        }
        Way::Parts => queue.enqueue_parts(&in_parts(&bytes)),
    }
}

/// Puts messages in until the disk is full. Returns the number behind the last one.
#[track_caller]
fn until_full(queue: &Queue, way: Way) -> u64 {
    loop {
        let next = queue.core.committed_spot().seq;
        match put(queue, way, next) {
            Ok(given) => assert_eq!(given, next),
            Err(error) => {
                assert!(error.is_full(), "{error}");
                return next;
            }
        }
    }
}

/// So many messages fill the disk.
fn most() -> u64 {
    until_full(&open(&disk(1), &options()), Way::Alone)
}

fn look(queue: &Queue, name: &str, what: Read) -> Result<Option<Message>> {
    reading::next(queue, &queue.consumer(name).unwrap(), what)
}

/// Everything a consumer gets, to the end: the first and the last number of each row of messages
/// that came, and of each gap.
fn take_all(queue: &Queue, name: &str) -> (Vec<(u64, u64)>, Vec<Gap>) {
    let (mut came, mut gaps): (Vec<(u64, u64)>, Vec<Gap>) = (Vec::new(), Vec::new());
    let mut next = queue.consumer(name).unwrap().seq();
    loop {
        match look(queue, name, Read::Take) {
            Ok(Some(message)) => {
                assert_eq!(message.seq(), next);
                match came.last_mut().filter(|(_, last)| *last + 1 == next) {
                    Some((_, last)) => *last = next,
                    None => came.push((next, next)),
                }
                next += 1;
            }
            Ok(None) => return (came, gaps),
            Err(Error::Gap(gap)) => {
                assert_eq!(gap.first, next);
                next = gap.last + 1;
                gaps.push(gap);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_was_read_makes_room_also_where_one_segment_is_all_there_is() {
    for way in WAYS {
        for (every, stores) in
            [(None, Stores::ByMap), (None, Stores::ByCall), (Some(1), Stores::ByMap)]
        {
            let storage = disk(1);
            storage.set_stores(stores);
            let queue = open(&storage, &options().flush_every_ops(every));
            for name in ["a", "b"] {
                queue.consumer(name).unwrap();
            }
            let first = until_full(&queue, way);
            assert!(first > 50, "{first}");
            let mut tail = first;
            for round in 0..5 {
                take_all(&queue, "a");
                assert_eq!(until_full(&queue, way), tail, "the other one has not read them");
                assert_eq!(take_all(&queue, "b").1, []);
                let next = until_full(&queue, way);
                assert!(
                    next - tail + 9 >= first,
                    "{way:?}, {every:?}, {stores:?}, {round}: {} of {first}",
                    next - tail
                );
                tail = next;
            }
            assert!(queue.core.segments.list().live.len() == 1);
        }
    }
}

/// A short message would fit behind all that was read, and the longer ones after it would not.
#[test]
fn what_still_fits_behind_what_was_read_keeps_no_room_from_what_follows() {
    let queue = open(&disk(1), &options());
    queue.consumer("c").unwrap();
    let first = until_full(&queue, Way::Alone);
    take_all(&queue, "c");
    assert_eq!(queue.enqueue(b"a short one").unwrap(), first);
    assert!(until_full(&queue, Way::Alone) >= 2 * first - 1);
}

#[test]
fn what_was_acknowledged_in_any_order_makes_room() {
    let queue = open(&disk(1), &options());
    let consumer = queue.consumer("c").unwrap();
    let first = until_full(&queue, Way::Alone);
    let mut handed = Vec::new();
    while let Some((message, handed_out)) = queue.receive(&consumer, reading::AsMessage).unwrap() {
        handed.push((message.seq(), handed_out));
    }
    let last = handed.remove(0);
    for (seq, handed_out) in handed.into_iter().rev() {
        queue.ack(&consumer, seq, handed_out).unwrap();
    }
    assert_eq!(until_full(&queue, Way::Alone), first, "one is in flight");
    queue.ack(&consumer, last.0, last.1).unwrap();
    assert!(until_full(&queue, Way::Alone) >= 2 * first - 9);
}

/// A message that fits the disk, and not what is left of it.
#[test]
fn a_long_message_finds_the_room_of_short_ones_that_were_read() {
    let queue = open(&disk(1), &options());
    queue.consumer("c").unwrap();
    for seq in 0..40 {
        put(&queue, Way::Alone, seq).unwrap();
    }
    let long = vec![7; 250_000];
    assert!(queue.enqueue(&long).unwrap_err().is_full());
    take_all(&queue, "c");
    assert_eq!(queue.enqueue(&long).unwrap(), 40);
    assert_eq!(look(&queue, "c", Read::Take).unwrap().unwrap()[..], long[..]);
    // What never fits is refused, again and again, and nothing changes.
    for _ in 0..3 {
        assert!(queue.enqueue(&vec![7; 500_000]).unwrap_err().is_full());
        put(&queue, Way::Alone, queue.core.committed_spot().seq).unwrap();
    }
    assert_eq!(take_all(&queue, "c"), (vec![(41, 43)], vec![]));
}

#[test]
fn the_oldest_are_dropped_for_ever_also_where_one_segment_is_all_there_is() {
    for way in WAYS {
        for every in [None, Some(1)] {
            let queue =
                open(&disk(1), &options().on_full(OnFull::DropOldest).flush_every_ops(every));
            queue.consumer("c").unwrap();
            for _ in 0..1000 {
                let next = queue.core.committed_spot().seq;
                assert_eq!(put(&queue, way, next).unwrap(), next, "{way:?}, {every:?}");
            }
            let tail = queue.core.committed_spot().seq;
            let (came, gaps) = take_all(&queue, "c");
            assert_eq!(came, [(queue.core.oldest_seq.load(Ordering::Relaxed), tail - 1)]);
            assert_eq!(gaps, [Gap { first: 0, last: came[0].0 - 1, cause: GapCause::Dropped }]);
        }
    }
}

/// A message that is lent keeps its bytes, and their space, until the reader releases it.
#[test]
fn a_segment_is_not_used_again_while_a_message_of_it_is_lent() {
    for on_full in [OnFull::Reject, OnFull::DropOldest] {
        let queue = open(&disk(1), &options().on_full(on_full));
        queue.consumer("c").unwrap();
        put(&queue, Way::Alone, 0).unwrap();
        let lent = look(&queue, "c", Read::Take).unwrap().unwrap();
        assert!(lent.is_lent());
        let full = until_full(&queue, Way::Alone);
        take_all(&queue, "c");
        assert_eq!(until_full(&queue, Way::Alone), full, "no disk is as large as two of it");
        assert!(lent[..] == content(0, LEN)[..]);
        drop(lent);
        for next in full..full + 50 {
            assert_eq!(put(&queue, Way::Alone, next).unwrap(), next);
        }
        assert_eq!(take_all(&queue, "c").0, [(full, full + 49)]);
    }
}

/// A consumer is within a read at the moment at which everybody is asked to release what is gone.
#[test]
fn a_consumer_that_is_busy_keeps_no_space_for_itself() {
    for on_full in [OnFull::Reject, OnFull::DropOldest] {
        let queue = open(&disk(1), &options().on_full(on_full));
        let consumer = queue.consumer("c").unwrap();
        let full = most();
        for seq in 0..full {
            assert_eq!(put(&queue, Way::Alone, seq).unwrap(), seq);
        }
        take_all(&queue, "c");
        assert!(consumer.with_locked(|state| state.cursor.segment_life().is_some()));
        let (busy, is_busy) = mpsc::channel();
        let (release, may_go) = mpsc::channel::<()>();
        let reader = thread::spawn(move || {
            consumer.with_locked(|_| {
                busy.send(()).unwrap();
                let _ = may_go.recv();
            });
        });
        is_busy.recv().unwrap();
        meanwhile("between the looks at a drained segment", move || {
            release.send(()).unwrap();
            reader.join().unwrap();
        });
        let given: Vec<_> = (full..full + 50).map(|next| put(&queue, Way::Alone, next)).collect();
        // Whoever was not met goes on.
        meanwhile("nowhere", || ());
        for (next, given) in (full..).zip(given) {
            assert_eq!(given.unwrap(), next, "{on_full:?}");
        }
        assert_eq!(take_all(&queue, "c"), (vec![(full, full + 49)], vec![]));
    }
}

/// A flush that syncs the segment has its file open: its space comes back when the flush is
/// through, which is waited for.
#[test]
fn a_flush_that_is_under_way_keeps_no_space_for_itself() {
    for on_full in [OnFull::Reject, OnFull::DropOldest] {
        let storage = disk(1);
        let queue = open(&storage, &options().on_full(on_full));
        queue.consumer("c").unwrap();
        let full = most();
        for seq in 0..full {
            put(&queue, Way::Alone, seq).unwrap();
        }
        take_all(&queue, "c");
        let in_file = storage.stop_next(Call::SyncFile);
        let flushing = {
            let queue = queue.clone();
            thread::spawn(move || queue.core.flush())
        };
        in_file.wait_for_visitor();
        meanwhile("between the looks at a drained segment", move || in_file.open());
        let given: Vec<_> = (full..full + 50).map(|next| put(&queue, Way::Alone, next)).collect();
        meanwhile("nowhere", || ());
        flushing.join().unwrap().unwrap();
        for (next, given) in (full..).zip(given) {
            assert_eq!(given.unwrap(), next, "{on_full:?}");
        }
        assert_eq!(take_all(&queue, "c"), (vec![(full, full + 49)], vec![]));
    }
}

/// Wherever the process or the power dies: numbers are reported once, in order, and for the right
/// reason.
#[test]
fn a_death_while_the_only_segment_is_evicted_loses_nothing_else() {
    let (mut met, full) = ([0; 2], most());
    for (on_full, in_store) in
        [OnFull::Reject, OnFull::DropOldest].into_iter().flat_map(|on| [(on, 0), (on, 1)])
    {
        for nth in (1..).step_by([1, 37][in_store]) {
            let storage = disk(nth);
            let options = options().on_full(on_full);
            let queue = open(&storage, &options);
            queue.consumer("c").unwrap();
            for seq in 0..full {
                put(&queue, Way::Alone, seq).unwrap();
            }
            queue.core.flush().unwrap();
            if on_full == OnFull::Reject {
                take_all(&queue, "c");
            }
            if in_store == 1 {
                storage.freeze_at_store(nth);
            } else {
                storage.freeze_at(nth);
            }
            for seq in full..full + 80 {
                put(&queue, Way::Alone, seq).unwrap();
            }
            queue.core.flush().unwrap();
            let Some(dead) = storage.frozen() else { break };
            met[in_store] += 1;
            for dead in [dead.power_cut(nth), dead.power_cut_losing_all(), dead.process_kill()] {
                let queue = open(&dead, &options);
                let begin = queue.consumer("c").unwrap().seq();
                let (mut came, mut gaps) = take_all(&queue, "c");
                let next = queue.core.committed_spot().seq;
                assert!(next >= full, "{on_full:?}, {nth}: numbers are given again from {next} on");
                let next = put(&queue, Way::Alone, next).unwrap();
                let behind = take_all(&queue, "c");
                came.extend(behind.0);
                gaps.extend(behind.1);
                let reported: u64 = came.iter().map(|(first, last)| last + 1 - first).sum();
                let missing: u64 = gaps.iter().map(Gap::count).sum();
                assert_eq!(reported + missing, next + 1 - begin);
                let fine = |gap: &Gap| match gap.cause {
                    GapCause::Dropped => on_full == OnFull::DropOldest && gap.last < full + 80,
                    GapCause::Unflushed | GapCause::Reserved => gap.first >= full,
                    _ => false,
                };
                assert!(gaps.iter().all(fine), "{on_full:?}, {nth}: {came:?}, {gaps:?}");
            }
        }
    }
    assert!(met.iter().all(|met| *met > 15), "{met:?}");
}

/// What was read is reported missing to nobody, also when those who read it are no more.
#[test]
fn what_was_read_and_gave_its_room_back_is_no_loss_to_who_comes_later() {
    for is_cut in [false, true] {
        let storage = disk(1);
        let queue = open(&storage, &options());
        queue.consumer("c").unwrap();
        let first = until_full(&queue, Way::Alone);
        take_all(&queue, "c");
        put(&queue, Way::Alone, first).unwrap();
        take_all(&queue, "c");
        queue.remove_consumer("c").unwrap();
        queue.core.flush().unwrap();
        let storage = if is_cut { storage.power_cut_losing_all() } else { storage };
        queue.close().unwrap();
        let (came, gaps) = take_all(&open(&storage, &options()), "d");
        let lost: Vec<_> = gaps.iter().filter(|gap| gap.cause != GapCause::Reserved).collect();
        assert_eq!((came, lost), (vec![(first, first)], vec![]), "{is_cut}");
    }
}

/// A power cut left numbers missing, and then the segments on both sides of them are evicted: the
/// numbers between are reported with their own cause, and count as no message.
#[test]
fn numbers_that_were_missing_already_are_neither_dropped_nor_expired() {
    let age = Duration::from_secs(10);
    let cases = [(GapCause::Dropped, 0), (GapCause::Dropped, 1), (GapCause::Expired, 1)];
    for (cause, behind) in cases {
        let options = Options::new().arena_size(4096).max_bytes(100_000).max_age(age);
        let options = options.on_full(OnFull::DropOldest);
        let storage = SimStorage::new(1).with_file_capacity(4 << 20);
        let queue = open(&storage, &options);
        queue.consumer("c").unwrap();
        (0..10).for_each(|seq| assert_eq!(put(&queue, Way::Alone, seq).unwrap(), seq));
        queue.core.flush().unwrap();
        put(&queue, Way::Alone, 10).unwrap();
        let storage = storage.power_cut_losing_all();
        let queue = open(&storage, &options);
        let first = put(&queue, Way::Alone, queue.core.committed_spot().seq).unwrap();
        let missing = Gap { first: 10, last: first - 1, cause: GapCause::Reserved };
        assert_eq!(*queue.core.gaps.known.lock(), [missing]);
        let oldest = || queue.core.oldest_seq.load(Ordering::Relaxed);
        while oldest() < first + behind {
            put(&queue, Way::Alone, queue.core.committed_spot().seq).unwrap();
            if cause == GapCause::Expired && queue.core.segments.list().live.len() > 2 {
                storage.advance_clock(2 * age.as_millis() as u64);
                queue.expire();
            }
        }
        let evicted = |first, end| (first < end).then(|| Gap { first, last: end - 1, cause });
        let reported = [evicted(0, 10), Some(missing), evicted(first, oldest())];
        let gone = oldest() - missing.count();
        assert_eq!(take_all(&queue, "c").1, reported.into_iter().flatten().collect::<Vec<_>>());
        let stats = queue.stats();
        let counts = [stats.dropped, stats.expired, stats.lost_dropped, stats.lost_expired];
        let wanted =
            if cause == GapCause::Dropped { [gone, 0, gone, 0] } else { [0, gone, 0, gone] };
        assert_eq!((counts, stats.reserved_numbers), (wanted, missing.count()), "{cause}");
    }
}
