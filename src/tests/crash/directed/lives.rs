//! What the checkpoint says of segments of which nothing else is left.

use super::{disk, options, take_all};
use crate::error::GapCause;
use crate::format::{INDEX_NAME, RUN_LEN, index_at, live_at, segment_slot};
use crate::tests::crash::examine::{Queue, open};
use crate::tests::crash::model::content;
use crate::tests::sim::SimStorage;

/// A run that has begun and used up lives, with a consumer that has read all.
fn used() -> Queue {
    let queue = open(disk(1), &options()).unwrap();
    queue.default_consumer().unwrap();
    for number in 0..20 {
        queue.enqueue(&content(number, 700)).unwrap();
        take_all(&queue).unwrap();
    }
    queue
}

/// All segment files are lost, and of the index the run record and the rows of segments.
fn without_segments(queue: &Queue) -> SimStorage {
    let left = queue.core.storage.process_kill();
    let names = left.file_names().into_iter().filter(|name| segment_slot(name).is_some());
    names.for_each(|name| left.remove_file(&name));
    for at in [live_at::RUN_A, live_at::RUN_B] {
        left.corrupt(INDEX_NAME, index_at::LIVE + at, &[0xa5; RUN_LEN]);
    }
    let rows = left.read_file(INDEX_NAME).len().min(index_at::END) - index_at::SEGMENTS;
    left.corrupt(INDEX_NAME, index_at::SEGMENTS, &vec![0; rows]);
    left
}

#[test]
fn a_life_that_the_checkpoint_alone_knows_is_not_used_again() {
    let closed = || {
        let queue = used();
        let next = queue.core.segments.next_life();
        queue.close().unwrap();
        let again = open(without_segments(&queue), &options()).unwrap();
        assert!(next > 1 && again.core.segments.next_life() >= next);
    };
    closed();
    // A run wrote no checkpoint but that of its reservation.
    let queue = open(used().core.storage.process_kill(), &options()).unwrap();
    let next = queue.core.segments.next_life();
    queue.enqueue(b"reserves").unwrap();
    let again = open(without_segments(&queue), &options()).unwrap();
    assert!(next > 1 && again.core.segments.next_life() >= next);
}

/// What every consumer had passed durably is lost in a power cut: nobody misses it.
#[test]
fn what_all_had_passed_is_not_called_damaged() {
    let queue = open(disk(2), &options()).unwrap();
    queue.default_consumer().unwrap();
    (0..5).for_each(|number| assert_eq!(queue.enqueue(&content(number, 100)).unwrap(), number));
    queue.core.flush().unwrap();
    take_all(&queue).unwrap();
    queue.core.flush_places().unwrap();
    let left = queue.core.storage.power_cut_losing_all();
    let names = left.file_names().into_iter().filter(|name| segment_slot(name).is_some());
    names.for_each(|name| left.remove_file(&name));
    let again = open(left, &options()).unwrap();
    let known = again.core.gaps.known.lock().clone();
    assert!(known.iter().all(|gap| gap.cause != GapCause::Damaged), "{known:?}");
    assert!(known.iter().any(|gap| gap.first < 5), "{known:?}");
}

/// A file that held messages before the checkpoint reads as zeros.
#[test]
fn a_blank_file_that_held_messages_is_quarantined() {
    let queue = open(disk(3), &options()).unwrap();
    queue.default_consumer().unwrap();
    (0..20).for_each(|number| assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number));
    queue.core.flush().unwrap();
    queue.core.flush_places_and_checkpoint().unwrap();
    let left = queue.core.storage.power_cut_losing_all();
    let slot = queue.core.segments.list().live.front().unwrap().slot;
    let name = crate::format::segment_name(slot);
    left.write_file(&name, &vec![0; left.read_file(&name).len()]);
    let queue = open(left, &options()).unwrap();
    let names = queue.core.storage.file_names();
    assert!(names.iter().any(|name| name.ends_with(".damaged")), "{names:?}");
    let reported = take_all(&queue).unwrap();
    let gap = reported.first().unwrap().as_ref().unwrap_err();
    assert_eq!((gap.first, gap.cause), (0, GapCause::Damaged));
}
