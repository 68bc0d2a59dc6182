//! How long segments are, and what is left of long ones, on a simulated disk.

use crate::engine::{Background, Engine};
use crate::options::Options;
use crate::tests::sim::SimStorage;

const MESSAGE: usize = 10_000;

/// Segments of 124 to 496 KiB.
fn open(storage: &SimStorage) -> Engine<SimStorage> {
    let options = Options::new().arena_size(4096).max_bytes(2 << 20);
    Engine::open_with(storage.clone(), &options, Background::Calls).unwrap()
}

fn lengths(queue: &Engine<SimStorage>) -> Vec<u64> {
    queue.core.segments.list().live.iter().map(|row| row.header.length).collect()
}

/// What the segments take, spares among them: a few of the shortest ones.
#[track_caller]
fn is_small(queue: &Engine<SimStorage>) {
    let (list, least) = (queue.core.segments.list(), queue.core.pool.geometry().least_len);
    assert_eq!(list.spares_of(least), list.spares());
    assert!(list.disk_bytes() <= 5 * least, "{} bytes", list.disk_bytes());
}

/// Puts in 1.5 MB and takes all of it.
fn grow_and_drain(queue: &Engine<SimStorage>) {
    let consumer = queue.default_consumer().unwrap().clone();
    for _ in 0..150 {
        queue.enqueue(&[7; MESSAGE]).unwrap();
    }
    let lengths = lengths(queue);
    assert!(lengths.is_sorted() && lengths.last() > lengths.first(), "{lengths:?}");
    while crate::engine::reading::skip(queue, &consumer).unwrap().is_some() {}
}

#[test]
fn a_backlog_that_was_read_leaves_short_segments_when_the_queue_is_idle() {
    let storage = SimStorage::new(7).with_file_capacity(4 << 20);
    let queue = open(&storage);
    let least = queue.core.pool.geometry().least_len;
    for _ in 0..3 {
        grow_and_drain(&queue);
        // As the storage worker does when nothing was drained for a while.
        assert!(queue.core.drain_long_tail() && lengths(&queue).is_empty());
        queue.core.reclaim().unwrap();
        queue.core.segments.trim_spares(&queue.core.context());
        is_small(&queue);
        assert!(!queue.core.drain_long_tail(), "there is none");
        queue.enqueue(b"after").unwrap();
        assert_eq!(lengths(&queue), [least]);
    }
}

#[test]
fn a_close_leaves_no_long_segment_behind_that_was_read() {
    let storage = SimStorage::new(7).with_file_capacity(4 << 20);
    let queue = open(&storage);
    grow_and_drain(&queue);
    queue.close().unwrap();
    let queue = open(&storage);
    is_small(&queue);
    assert_eq!(queue.enqueue(b"after").unwrap(), 150);
}

/// Spares of the length that segments had before are no use: they go as soon as others drain.
#[test]
fn spares_are_as_long_as_the_tails_segment() {
    let storage = SimStorage::new(7).with_file_capacity(4 << 20);
    let queue = open(&storage);
    let consumer = queue.default_consumer().unwrap().clone();
    for round in 0..3 {
        grow_and_drain(&queue);
        for _ in 0..100 {
            queue.enqueue(&[7; MESSAGE]).unwrap();
            assert!(crate::engine::reading::skip(&queue, &consumer).unwrap().is_some());
        }
        let list = queue.core.segments.list();
        let tail = list.live.back().unwrap().header.length;
        assert_eq!(list.spares_of(tail), list.spares(), "round {round}");
    }
}
