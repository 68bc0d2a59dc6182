//! Producers that are ahead of the storage worker: full segments that are not synced, and the
//! threads that wait for the sync.

use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::{LEN, Queue, disk, open, options, take_all};
use crate::engine::Background;
use crate::error::Error;
use crate::options::Options;
use crate::segment::MOST_UNSYNCED_HERE;
use crate::tests::sim::{Call, SYNCS, SimStorage, meanwhile};

/// Without a thread the producer does the syncs; within a record that is longer than all of them
/// together too.
#[test]
fn few_full_segments_wait_for_their_sync() {
    MOST_UNSYNCED_HERE.set(Some(3));
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    for len in [3000, 3000, 3000, 3000, 3000, 3000, 300_000, 3000, LEN] {
        queue.enqueue(&vec![1; len]).unwrap();
        assert!(queue.core.segments.list().count_unsynced() <= 3);
    }
    // All of the long record was synced but its end, though nobody had flushed what was committed
    // behind it.
    assert!(queue.core.durable.lock().spot.seq >= 6);
    let cut = open(&storage.power_cut_losing_all(), &options(), Background::Calls);
    assert!(take_all(&cut).0.len() >= 6);
}

/// The producer waits for the storage worker, and syncs nothing itself.
#[test]
fn a_producer_waits_for_the_keeper_when_too_many_segments_are_not_synced() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Workers);
    queue.enqueue(&[1; LEN]).unwrap();
    let gate = storage.stop_next(Call::SyncFile);
    let producer = {
        let queue = queue.clone();
        thread::spawn(move || {
            MOST_UNSYNCED_HERE.set(Some(2));
            let before = SYNCS.get();
            let mut most = 0;
            for _ in 0..13 {
                queue.enqueue(&[1; LEN]).unwrap();
                most = most.max(queue.core.segments.list().count_unsynced());
            }
            (SYNCS.get() - before, most)
        })
    };
    gate.wait_for_visitor();
    // The storage worker stands in its first sync: nothing is durable, and the producer can go on
    // only so far.
    assert!(queue.core.segments.list().count_unsynced() <= 2);
    gate.open();
    let (syncs, most) = producer.join().unwrap();
    assert_eq!((syncs, most <= 2), (0, true), "{most}");
    let (seqs, gaps) = take_all(&queue);
    assert_eq!((seqs.len(), gaps), (14, 0));
    queue.close().unwrap();
}

/// A queue is closed, or flushed by its timer, by whoever waits for the producers' lock, whose
/// holder waits for the storage worker.
#[test]
fn a_producer_that_waits_for_the_keeper_hangs_neither_its_timer_nor_a_close() {
    for close in [false, true] {
        let storage = disk();
        let options = options().flush_every(Duration::from_millis(1));
        let queue = open(&storage, &options, Background::Workers);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || {
                MOST_UNSYNCED_HERE.set(Some(2));
                let mut stored = 0;
                while stored < 14 && queue.enqueue(&[1; LEN]).is_ok() {
                    stored += 1;
                }
                stored
            })
        };
        if close {
            while queue.core.segments.list().live.len() < 3 {
                thread::yield_now();
            }
            queue.close().unwrap();
        }
        let stored: usize = producer.join().unwrap();
        queue.close().unwrap();
        let again = open(&storage, &options, Background::Calls);
        assert_eq!(take_all(&again), ((0..stored as u64).collect(), 0));
    }
}

/// A failure while a producer waits reaches it.
#[test]
fn a_producer_that_waits_for_a_sync_that_fails_is_refused() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Workers);
    queue.enqueue(&[1; LEN]).unwrap();
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    MOST_UNSYNCED_HERE.set(Some(2));
    let refused = (0..13).find_map(|_| queue.enqueue(&[1; LEN]).err());
    assert!(matches!(refused, Some(Error::Poisoned { .. })), "{refused:?}");
}

/// Many messages are held that are not durable, and nobody asks for a flush: a checkpoint is
/// written all the same.
#[test]
fn a_checkpoint_is_never_far_behind_what_is_held() {
    let storage = SimStorage::new(5).with_file_capacity(1 << 20);
    let options = Options::new().arena_size(16 << 10).max_bytes(8 << 20);
    let queue = open(&storage, &options, Background::Calls);
    for _ in 0..600 {
        queue.enqueue(&[1; 4000]).unwrap();
        let behind = queue.core.committed_spot().position - queue.core.index.checkpoint().position;
        assert!(behind < 2 * crate::state::MOST_BEHIND, "{behind}");
    }
    // Nearly empty, it is left alone.
    take_all(&queue);
    queue.core.flush().unwrap();
    let syncs = storage.call_count(Call::SyncFile);
    let segments = queue.core.segments.list().live.len();
    for _ in 0..20 {
        queue.enqueue(&[1; 4000]).unwrap();
        take_all(&queue);
    }
    assert_eq!(queue.core.segments.list().live.len(), segments);
    assert_eq!(storage.call_count(Call::SyncFile), syncs);
}

/// A producer stores and wants more while the flush behind it is under way: the checkpoint moves to
/// what that flush was to make durable.
#[test]
fn a_checkpoint_is_renewed_though_more_is_wanted_meanwhile() {
    let queue = open(&disk(), &options(), Background::Calls);
    for _ in 0..4 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    let want_all = |queue: &Queue| {
        let all = queue.core.committed_spot();
        queue.core.durable.lock().want(all);
        all
    };
    let wanted = want_all(&queue);
    let producer = queue.clone();
    meanwhile("while a thread leads a flush", move || {
        producer.enqueue(&[1; LEN]).unwrap();
        want_all(&producer);
    });
    assert_eq!(queue.core.index.checkpoint().position, 0);
    queue.core.flush_behind(None).unwrap();
    assert_eq!((queue.len(), queue.core.index.checkpoint().position), (5, wanted.position));
}

/// The storage worker cannot flush, for a reason that may pass: the producer that waits for it
/// learns the reason, and goes on later.
#[test]
fn a_flush_that_cannot_be_made_now_is_reported_to_a_producer_that_waits_and_may_try_again() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    for _ in 0..2 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    queue.core.flush().unwrap_err();
    drop(queue);
    // What a failed sync left is stored again before the next one, and that is refused.
    let storage = storage.process_kill();
    let queue = open(&storage, &options(), Background::Workers);
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    // Each try is answered before the next one: none is spent while nobody looks.
    let (send, answers) = std::sync::mpsc::sync_channel(0);
    let producer = queue.clone();
    thread::spawn(move || {
        MOST_UNSYNCED_HERE.set(Some(2));
        let enqueue = || producer.enqueue(&[1; LEN]).map_err(|error| error.to_string());
        while send.send(enqueue()).is_ok() {}
    });
    let answer = || {
        answers.recv_timeout(Duration::from_secs(60)).expect("the producer does not wait for ever")
    };
    let refused = (0..20).find_map(|_| answer().err()).expect("a refusal");
    // Of a segment that the opening found; the others are made later.
    assert!(refused.contains("write simulated/segment-00000000"), "{refused}");
    assert!(!queue.core.is_poisoned());
    storage.clear_faults();
    while answer().is_err() {}
}

/// A subscriber's panic ends the storage worker's thread: what it would have done the calls do.
#[test]
fn when_the_thread_has_ended_nobody_waits_for_what_it_would_have_done() {
    let _ = options();
    let options = Options::new().arena_size(4096).flush_every(Duration::from_secs(3600));
    let queue = open(&disk(), &options, Background::Workers);
    queue.consumer("").unwrap();
    assert!(queue.core.storage_worker.request(|_| {}));
    queue.core.segments.list().is_watched = true;
    drop(crate::commit::storage_worker::Leaving(&queue.core));
    assert!(
        !queue.core.storage_worker.request(|wanted| wanted.flush = true)
            && !queue.core.storage_worker.is_running()
    );
    for _ in 0..8 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    take_all(&queue);
    assert!(!queue.core.segments.list().has_drained(), "what was read is reclaimed at once");
    queue.close().unwrap();
}
