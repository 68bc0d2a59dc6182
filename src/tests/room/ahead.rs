//! Room that is made ahead of need, by the storage worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Queue, content};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::error::Error;
use crate::options::{OnFull, Options};
use crate::segment::geometry::LENGTH_HERE;
use crate::segment::{Plan, RoomAhead};
use crate::state::MOST_BEHIND;
use crate::tests::sim::{Call, SYNCS, SimStorage, meanwhile};
use crate::threads::requests::{Awaited, Request};

const LEN: usize = 1000;

fn open(storage: &SimStorage, options: &Options, background: Background) -> Queue {
    Arc::new(Engine::open_with(storage.clone(), options, background).unwrap())
}

/// A queue may have so many bytes: with the second it drops ahead of need.
const LIMITS: [u64; 2] = [100_000, 256 << 10];

fn dropping(max_bytes: u64) -> Options {
    Options::new().arena_size(4096).max_bytes(max_bytes).on_full(OnFull::DropOldest)
}

/// Bytes of the segments that hold messages.
fn held(queue: &Queue) -> u64 {
    queue.core.segments.list().live.iter().map(|row| row.header.allocated).sum()
}

/// The first reservation, room at the limit, segments that consumers have read: the storage worker
/// does every sync that these take.
#[test]
fn who_puts_in_without_a_flush_never_syncs() {
    for max_bytes in LIMITS {
        for on_full in [OnFull::DropOldest, OnFull::Wait(None)] {
            let storage = SimStorage::new(3).with_file_capacity(256 << 10);
            storage.set_most(Some(max_bytes));
            let queue = open(&storage, &dropping(max_bytes).on_full(on_full), Background::Workers);
            let consumer = queue.consumer("").unwrap();
            let before = SYNCS.get();
            for seq in 0..1500 {
                assert_eq!(queue.enqueue(&content(seq, LEN)).unwrap(), seq);
                if on_full == OnFull::DropOldest {
                    continue;
                }
                assert!(reading::next(&queue, &consumer, Read::Take).unwrap().is_some());
            }
            assert_eq!(SYNCS.get(), before, "{max_bytes} {on_full:?}");
            assert!(storage.call_count(Call::SyncFile) > 2);
            queue.close().unwrap();
        }
    }
}

/// What is kept free is a small part of the queue, and what is held comes.
#[test]
fn a_queue_that_drops_ahead_of_need_is_nearly_full() {
    let [_, max_bytes] = LIMITS;
    let storage = SimStorage::new(3).with_file_capacity(256 << 10);
    let queue = open(&storage, &dropping(max_bytes), Background::Workers);
    assert!(queue.core.pool.geometry().drops_ahead);
    let room = max_bytes - queue.core.index.len();
    let consumer = queue.consumer("").unwrap();
    for seq in 0..1500 {
        queue.enqueue(&content(seq, LEN)).unwrap();
        if seq > room / LEN as u64 {
            assert!(held(&queue) > room * 5 / 8, "{} of {room} bytes", held(&queue));
        }
    }
    let mut next = 0;
    loop {
        match reading::next(&queue, &consumer, Read::Take) {
            Ok(Some(message)) => assert_eq!(*message, content(next, LEN)),
            Ok(None) => break,
            Err(Error::Gap(gap)) => next = gap.last,
            Err(error) => panic!("{error}"),
        }
        next += 1;
    }
    assert_eq!(next, 1500);
}

/// The storage worker makes room while a producer writes a record that begins in the oldest
/// segment.
#[test]
fn a_record_that_is_being_written_is_not_dropped_for_the_next_one() {
    let [_, max_bytes] = LIMITS;
    let storage = SimStorage::new(3).with_file_capacity(256 << 10);
    let queue = open(&storage, &dropping(max_bytes), Background::Calls);
    for seq in 0..400 {
        queue.enqueue(&content(seq, LEN)).unwrap();
    }
    let long = content(400, queue.core.max_message() as usize);
    let keeper = Arc::clone(&queue);
    meanwhile("before a tail is published", move || {
        // It wants more than there is.
        keeper.core.segments.list().headroom = 100;
        keeper.core.make_room(&keeper.consumers.release()).unwrap();
    });
    assert_eq!(queue.enqueue(&long).unwrap(), 400);
    let consumer = queue.consumer("").unwrap();
    let last = loop {
        match reading::next(&queue, &consumer, Read::Take) {
            Ok(Some(message)) if message.seq() == 400 => break message,
            Ok(Some(_)) | Err(Error::Gap(_)) => {}
            read => panic!("{read:?}"),
        }
    };
    assert_eq!(*last, long);
}

/// A producer that was refused tries again when the storage worker has made room meanwhile, and
/// drops nothing more.
#[test]
fn who_found_no_room_tries_again_when_the_keeper_has_made_some() {
    let storage = SimStorage::new(3).with_file_capacity(256 << 10);
    let queue = open(&storage, &dropping(LIMITS[1]), Background::Calls);
    for seq in 0..400 {
        queue.enqueue(&content(seq, LEN)).unwrap();
    }
    let (core, before) = (&queue.core, queue.core.segments.passed());
    assert!(!core.regain(before).unwrap());
    core.segments.list().headroom = 2;
    core.make_room(&queue.consumers.release()).unwrap();
    assert!(core.regain(before).unwrap());
    // There is room now: nothing more is dropped.
    let before = core.segments.passed();
    core.make_room(&queue.consumers.release()).unwrap();
    assert!(!core.regain(before).unwrap());
}

/// Little is held, so an opening has little to walk over, however much was dropped: nothing is
/// flushed for it.
#[test]
fn what_was_dropped_is_not_flushed() {
    let storage = SimStorage::new(3).with_file_capacity(256 << 10);
    let queue = open(&storage, &dropping(LIMITS[0]), Background::Calls);
    for seq in 0..2 * MOST_BEHIND / LEN as u64 {
        queue.enqueue(&content(seq, LEN)).unwrap();
    }
    assert_eq!(queue.core.flush_totals.count.load(Ordering::Relaxed), 0);
}

/// A file grows in large steps to the last byte that the limit leaves.
#[test]
fn space_comes_in_large_steps_near_the_limit_too() {
    let storage = SimStorage::new(3).with_file_capacity(4 << 20);
    let options = Options::new().arena_size(4096).max_bytes((2 << 20) - 100_000);
    let queue = open(&storage, &options, Background::Calls);
    while queue.enqueue(&[1; LEN]).is_ok() {}
    let (segments, steps) =
        (queue.core.segments.list().live.len() as u64, storage.call_count(Call::Allocate));
    assert!(steps <= 4 * segments, "{steps} steps for {segments} segments");
}

/// Room that was made ahead of need is enough for the next segment, whatever the limit is.
#[test]
fn room_ahead_of_need_is_room_for_the_next_segment() {
    LENGTH_HERE.set(Some(64 << 10));
    for more in 0..20 {
        let storage = SimStorage::new(3).with_file_capacity(256 << 10);
        let queue = open(&storage, &dropping((1 << 20) + more * 3500), Background::Calls);
        assert!(queue.core.pool.geometry().drops_ahead);
        for seq in 0..1150 {
            queue.enqueue(&content(seq, LEN)).unwrap();
            if seq > 750 {
                queue.core.make_room(&queue.consumers.release()).unwrap();
                let plan = Plan::default();
                let room = queue.core.segments.room_ahead(&queue.core.context(), &plan);
                assert_ne!(room, RoomAhead::Nothing, "{more} {seq}");
            }
        }
    }
}

/// Passes so many segments of 16 KiB, a message at a time, and returns how many syncs that took.
fn syncs_while_passing(segments: u64, queue: &Queue, storage: &SimStorage) -> u64 {
    let consumer = queue.consumer("").unwrap();
    let before = storage.call_count(Call::SyncFile);
    for seq in 0..segments * 16 {
        queue.enqueue(&content(seq, LEN)).unwrap();
        assert!(reading::next(queue, &consumer, Read::Take).unwrap().is_some());
    }
    storage.call_count(Call::SyncFile) - before
}

/// Fills six segments of 16 KiB and takes everything out.
fn make_spares(queue: &Queue) {
    (0..6 * 16).for_each(|seq| assert!(queue.enqueue(&content(seq, LEN)).is_ok()));
    let consumer = queue.consumer("").unwrap();
    while reading::next(queue, &consumer, Read::Take).unwrap().is_some() {}
}

/// A queue with segments of 16 KiB, some of them drained: a storage worker is to reclaim them.
fn with_drained_segments() -> (SimStorage, Queue) {
    LENGTH_HERE.set(Some(16 << 10));
    let storage = SimStorage::new(3);
    let queue = open(&storage, &Options::new(), Background::Calls);
    queue.core.segments.list().is_watched = true;
    make_spares(&queue);
    syncs_while_passing(5, &queue, &storage);
    assert!(queue.core.segments.list().has_drained());
    (storage, queue)
}

/// Each segment that is reclaimed alone takes a sync, which slows down every thread. A worker that
/// does not come by itself, and a queue with a limit, do not wait.
#[test]
fn a_busy_queue_reclaims_several_segments_with_one_sync() {
    LENGTH_HERE.set(Some(16 << 10));
    for (is_watched, max_bytes, most) in
        [(true, None, 30), (false, None, 110), (true, Some(1 << 20), 110)]
    {
        let storage = SimStorage::new(3);
        let options = Options { max_bytes, ..Options::new() };
        let queue = open(&storage, &options, Background::Calls);
        queue.core.segments.list().is_watched = is_watched;
        make_spares(&queue);
        let syncs = syncs_while_passing(100, &queue, &storage);
        println!("{is_watched} {max_bytes:?}: {syncs} syncs for 100 segments");
        assert!((most - 15..=most).contains(&syncs), "{is_watched} {max_bytes:?}: {syncs}");
        let files = storage.file_names().len();
        assert!(files < 10, "{files} files");
    }
    LENGTH_HERE.set(None);
}

/// What a busy queue has not reclaimed yet, the storage worker reclaims when the queue is idle.
#[test]
fn an_idle_queue_has_no_drained_segments() {
    LENGTH_HERE.set(Some(16 << 10));
    let storage = SimStorage::new(3);
    let queue = open(&storage, &Options::new(), Background::Workers);
    for segments in [3, 7, 1, 2, 12, 5] {
        syncs_while_passing(segments, &queue, &storage);
        while queue.core.segments.list().has_drained() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    queue.close().unwrap();
    LENGTH_HERE.set(None);
}

/// A flush syncs the index for drained segments that it does not sync; the next one need not.
#[test]
fn drained_segments_cost_a_flush_one_sync_of_the_index() {
    let (_, queue) = with_drained_segments();
    assert!(!queue.core.segments.list().drained_unsynced().is_empty());
    queue.core.flush_to(queue.core.committed_spot()).unwrap();
    assert!(queue.core.segments.list().has_drained());
    assert!(queue.core.segments.list().drained_unsynced().is_empty());
    LENGTH_HERE.set(None);
}

/// A producer waits for room while the storage worker flushes many segments: the oldest are dropped
/// behind the sync that is under way, not behind all of them. The flush goes on afterwards.
#[test]
fn room_does_not_wait_for_a_flush_of_many_segments() {
    LENGTH_HERE.set(Some(16 << 10));
    let storage = SimStorage::new(3);
    let queue = open(&storage, &dropping(LIMITS[1]), Background::Calls);
    while queue.core.segments.list().count_unsynced() < 6 {
        queue.enqueue(&content(queue.core.committed_spot().seq, LEN)).unwrap();
    }
    let (core, end) = (&queue.core, queue.core.committed_spot());
    let mut durable = core.durable.lock();
    let before = durable.spot;
    durable.want(end);
    drop(durable);
    let asking = Arc::clone(&queue);
    meanwhile("between the syncs of two segments", move || {
        asking.core.storage_worker.requests().wanted.asked = Awaited::For(Request::Room);
    });
    let syncs = || storage.call_count(Call::SyncFile) + storage.call_count(Call::SyncDirectory);
    let (from, served) = (syncs(), std::cell::Cell::new(false));
    let serve = || {
        let asked = core.storage_worker.requests().wanted.take_request();
        if served.replace(true) {
            return assert_eq!(asked, None);
        }
        assert_eq!((syncs() - from, core.durable.lock().spot), (1, before));
        assert_eq!(asked, Some(Request::Room));
        core.segments.list().headroom = 100;
        core.make_room(&queue.consumers.release()).unwrap();
        assert!(syncs() - from <= 3, "{} syncs", syncs() - from);
        assert!(queue.stats().dropped > 0);
    };
    core.flush_behind(Some(&serve)).unwrap();
    assert!(served.get());
    assert_eq!(core.durable.lock().spot, end);
    LENGTH_HERE.set(None);
}

/// The names, the places for the segments that go, the tail's segment, and the clean end.
#[test]
fn a_close_waits_for_four_syncs() {
    let (storage, queue) = with_drained_segments();
    queue.enqueue(&content(0, LEN)).unwrap();
    let files = storage.file_names().len();
    let syncs = || storage.call_count(Call::SyncFile) + storage.call_count(Call::SyncDirectory);
    let before = syncs();
    queue.close().unwrap();
    assert!(storage.file_names().len() < files, "segments were removed");
    assert!(syncs() - before <= 4, "{} syncs", syncs() - before);
    LENGTH_HERE.set(None);
}

/// A producer that goes on fills segments as fast as the flush syncs them. Each time the flush lets
/// a request for room in between, and it ends with what was there when it began.
#[test]
fn a_flush_ends_while_a_producer_goes_on() {
    LENGTH_HERE.set(Some(16 << 10));
    let storage = SimStorage::new(3);
    let queue = open(&storage, &Options::new(), Background::Calls);
    let core = &queue.core;
    let unsynced = || core.segments.list().count_unsynced();
    let put = || queue.enqueue(&content(core.committed_spot().seq, LEN)).unwrap();
    while unsynced() < 5 {
        put();
    }
    let ask = || core.storage_worker.requests().wanted.asked = Awaited::For(Request::Room);
    let served = std::cell::Cell::new(0);
    let serve = || {
        core.storage_worker.requests().wanted.take_request();
        let before = unsynced();
        served.set(served.get() + 1);
        while served.get() < 50 && unsynced() <= before {
            put();
        }
        ask();
    };
    ask();
    core.flush_on_time(Some(&serve)).unwrap();
    assert!(served.get() <= 6, "{} parts of a flush of six segments", served.get());
    assert_eq!(queue.stats().flushes, 1);
    served.set(0);
    let end = queue.core.committed_spot();
    core.durable.lock().want(end);
    core.flush_behind(Some(&serve)).unwrap();
    assert!(served.get() < 20, "{} parts of a flush of some segments", served.get());
    LENGTH_HERE.set(None);
}
