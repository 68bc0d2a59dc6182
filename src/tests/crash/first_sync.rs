//! The first sync of a new queue waits for its first message, its first consumer, or a flush.

use super::directed::{Taken, disk, options, take_all};
use super::examine::{Queue, open};
use crate::error::GapCause;
use crate::options::Options;
use crate::tests::effort::some_of;
use crate::tests::sim::{Call, SimStorage};

/// Syncs so far.
fn syncs(storage: &SimStorage) -> u64 {
    storage.call_count(Call::SyncFile) + storage.call_count(Call::SyncDirectory)
}

/// What power cuts leave of the disk: at worst no name, at best every byte.
fn after_cuts(storage: &SimStorage) -> impl Iterator<Item = SimStorage> {
    let cuts = (0..30).map(|seed| storage.power_cut(seed));
    cuts.chain([storage.power_cut_losing_all()])
}

/// Opens and closes a queue that has no message, so many times.
fn opened_and_closed(seed: u64, times: u64) -> SimStorage {
    let storage = disk(seed);
    for _ in 0..times {
        open(storage.clone(), &options()).unwrap().close().unwrap();
    }
    assert_eq!(syncs(&storage), 0, "syncs of a queue that never had a message");
    storage
}

/// The first message comes, and nothing else but numbers that were reserved.
fn check_delivered(image: SimStorage) {
    let reported = take_all(&open(image, &options()).unwrap()).unwrap();
    let Some((Ok(first), gaps)) = reported.split_first() else {
        panic!("the first message is lost: {reported:?}");
    };
    assert_eq!(*first, (0, b"first".to_vec()));
    let are_reserved = |one: &Taken| one.as_ref().is_err_and(|gap| gap.cause == GapCause::Reserved);
    assert!(gaps.iter().all(are_reserved), "{gaps:?}");
}

/// Enqueues a message and makes it durable: it survives all power cuts from then on.
fn check_first_message(queue: &Queue, cuts: impl Iterator<Item = u64>) {
    assert_eq!(queue.enqueue(b"first").unwrap(), 0);
    queue.core.flush().unwrap();
    let storage = &queue.core.storage;
    cuts.for_each(|seed| check_delivered(storage.power_cut(seed)));
    check_delivered(storage.power_cut_losing_all());
}

#[test]
fn a_power_cut_leaves_a_queue_without_a_message_as_new() {
    for times in 1..=3 {
        let storage = opened_and_closed(times, times);
        for (image, shift) in after_cuts(&storage).zip(times..) {
            let queue = open(image, &options()).unwrap();
            assert_eq!(take_all(&queue).unwrap(), []);
            check_first_message(&queue, some_of(0..30, 6, shift));
        }
    }
}

/// An earlier run made the files and synced nothing: the sync of the first message is for them too.
#[test]
fn the_first_message_is_durable_whoever_made_the_files() {
    for each in [None, Some(1)] {
        for times in 1..=3 {
            let storage = opened_and_closed(times, times);
            let options = options().flush_every_ops(each);
            let queue = open(storage, &options).unwrap();
            check_first_message(&queue, 0..30);
        }
    }
}

/// At any call of the run that stores the first message power is cut: if its flush had returned by
/// then, the message is there.
#[test]
fn the_first_message_survives_a_power_cut_at_any_call_behind_its_flush() {
    for moment in 1.. {
        let storage = opened_and_closed(moment, 2);
        storage.freeze_at(moment);
        let queue = open(storage.clone(), &options()).unwrap();
        queue.enqueue(b"first").unwrap();
        queue.core.flush().unwrap();
        let is_flushed = storage.frozen().is_none();
        queue.close().unwrap();
        storage.disarm();
        let frozen = storage.frozen();
        let is_last = frozen.is_none();
        for image in after_cuts(&frozen.unwrap_or_else(|| storage.process_kill())) {
            if is_flushed {
                check_delivered(image);
            } else {
                let reported = take_all(&open(image, &options()).unwrap()).unwrap();
                assert!(reported.iter().flatten().count() <= 1, "at {moment}: {reported:?}");
            }
        }
        if is_last {
            break;
        }
    }
}

/// A caller that flushes an empty queue has its files on the disk then, also if an earlier run made
/// them. So has one that makes a consumer and closes the queue.
#[test]
fn a_flush_and_a_consumer_need_the_first_sync() {
    for times in 0..3 {
        let queue = open(opened_and_closed(1, times), &options()).unwrap();
        queue.core.flush().unwrap();
        let id = queue.core.index.queue_id;
        for image in after_cuts(&queue.core.storage) {
            let options = Options::new().create(false).arena_size(4096);
            assert_eq!(open(image, &options).unwrap().core.index.queue_id, id);
        }

        let queue = open(opened_and_closed(1, times), &options()).unwrap();
        queue.consumer("reports").unwrap();
        queue.close().unwrap();
        for image in after_cuts(&queue.core.storage) {
            assert_eq!(open(image, &options()).unwrap().consumer_names(), ["reports"]);
        }
    }
}
