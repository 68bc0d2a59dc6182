//! Promise P6 for disk, descriptors and mappings: little for an empty queue, given back after a
//! drain, flat for ever.

use std::path::Path;

use crate::support::{
    KIB, MIB, Messages, disk, eventually, fill_queue, mapped, names, open_files, rounds, sample,
    segments,
};
use mmq::{Options, Queue};

/// One active segment and the spares kept for use again.
const MOST_SEGMENTS: usize = 4;
/// Segment files while messages pass: those at the two ends, and up to six that are drained or
/// spare. How many at a moment depends on how far the storage worker's thread has come. A new file
/// is created only when there is no spare and fewer than six are drained.
const MOST_BUSY: usize = 9;

#[test]
fn an_empty_new_queue_takes_less_than_one_mib_of_disk() {
    for options in
        [Options::new(), Options::new().arena_size(4096), Options::new().arena_size(1 << 30)]
    {
        let dir = crate::support::tempdir().unwrap();
        let queue = options.open(dir.path()).unwrap();
        assert!(disk(dir.path()) < MIB as u64, "{} bytes while open", disk(dir.path()));
        queue.close().unwrap();
        assert!(disk(dir.path()) < MIB as u64, "{} bytes when closed", disk(dir.path()));
    }
}

#[test]
fn a_few_messages_take_a_few_mib_even_with_arenas_of_128_mib() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    for _ in 0..100 {
        queue.enqueue([7; 1000]).unwrap();
    }
    assert!(disk(dir.path()) < 16 * MIB as u64, "{} bytes", disk(dir.path()));
}

/// With the default options, whatever is sent.
#[test]
fn a_queue_that_is_nearly_empty_takes_little_disk_whatever_the_arena_size() {
    for (len, backlog) in [(128, 0), (KIB, 0), (16 * KIB, 0), (KIB, 1000)] {
        let dir = crate::support::tempdir().unwrap();
        let queue = Queue::open(dir.path()).unwrap();
        let (message, mut buffer) = (vec![7; len], Vec::new());
        (0..backlog).for_each(|_| _ = queue.enqueue(&message).unwrap());
        let (mut most, mut arenas) = (0, 0);
        for round in 0..(sample(160) as usize * MIB / len) {
            queue.enqueue(&message).unwrap();
            queue.dequeue_into(&mut buffer).unwrap().unwrap();
            if round % (MIB / len) == 0 {
                most = most.max(disk(dir.path()));
                arenas = arenas.max(queue.stats().mapped_arenas);
            }
        }
        let bound = ((MOST_BUSY * 2 + 1) * MIB) as u64;
        assert!(most <= bound && arenas == 1, "{most} bytes for {len}, {arenas} arenas");
    }
}

/// A backlog has few files, and the disk is small again soon after it was read, though nobody
/// writes. (The tail's segment is a long one then.)
#[test]
fn a_backlog_has_few_files_and_a_long_segment_that_was_read_is_given_back() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(16 << 20);
    let mut queue = options.clone().open(dir.path()).unwrap();
    for closed in [false, true] {
        for _ in 0..1280 {
            queue.enqueue(vec![7; 100 * KIB]).unwrap();
        }
        assert!(disk(dir.path()) >= 125 * MIB as u64);
        // 2, 2, 4, 8 MiB, and then 16 MiB each; and a spare.
        assert!(segments(dir.path()).len() <= 13, "{:?}", names(dir.path()));
        let mut buffer = Vec::new();
        while queue.dequeue_into(&mut buffer).unwrap().is_some() {}
        if closed {
            queue.close().unwrap();
            assert!(disk(dir.path()) <= 5 * MIB as u64, "{:?}", names(dir.path()));
            queue = options.clone().open(dir.path()).unwrap();
        } else {
            eventually("the long segments are given back", || disk(dir.path()) <= 5 * MIB as u64);
        }
        let seq = queue.enqueue("after").unwrap();
        assert_eq!(queue.dequeue().unwrap().unwrap().seq(), seq);
    }
}

/// A record that is longer than the segments are at present lies in one piece: a reader borrows it.
#[test]
fn a_record_longer_than_the_first_segments_lies_in_one_piece() {
    let dir = crate::support::tempdir().unwrap();
    let queue =
        Options::new().arena_size(16 << 20).max_mapped_arenas(None).open(dir.path()).unwrap();
    queue.enqueue("short").unwrap();
    queue.enqueue(vec![7; 9 * MIB]).unwrap();
    assert_eq!(&queue.dequeue().unwrap().unwrap()[..], b"short");
    assert_eq!(queue.dequeue().unwrap().unwrap().len(), 9 * MIB);
    let lengths: Vec<_> =
        segments(dir.path()).iter().map(|path| std::fs::metadata(path).unwrap().len()).collect();
    assert!(lengths.iter().any(|len| *len > 9 * MIB as u64), "{lengths:?}");
}

#[test]
fn a_drained_queue_gives_its_space_back() {
    for (arena, most) in [(4 * KIB, 4 * 4 * MIB), (4 * MIB, 4 * 4 * MIB), (8 * MIB, 4 * 8 * MIB)] {
        let dir = crate::support::tempdir().unwrap();
        let options = Options::new().arena_size(arena as u64);
        let messages = Messages::new(1, &[0..=20_000]);
        let queue = options.clone().open(dir.path()).unwrap();
        fill_queue(&queue, &messages, 0, 10_000);
        let full = disk(dir.path());
        assert!(full >= 80 * MIB as u64);
        for seq in 0..10_000 {
            assert_eq!(queue.skip().unwrap(), Some(seq));
        }
        eventually("drained space is given back while the queue is open", || {
            segments(dir.path()).len() <= MOST_SEGMENTS && disk(dir.path()) <= (most + MIB) as u64
        });
        queue.close().unwrap();
        assert!(segments(dir.path()).len() <= MOST_SEGMENTS, "{:?}", names(dir.path()));
        // Spares that survive a close are used, and not added to.
        for round in 0..5 {
            let queue = options.clone().open(dir.path()).unwrap();
            fill_queue(&queue, &messages, 10_000 + 1000 * round, 11_000 + 1000 * round);
            while queue.skip().unwrap().is_some() {}
            queue.close().unwrap();
        }
        assert!(segments(dir.path()).len() <= MOST_SEGMENTS, "{:?}", names(dir.path()));
        assert!(disk(dir.path()) <= (most + MIB) as u64);
    }
}

#[test]
fn space_is_given_back_as_the_reader_goes_and_not_only_at_the_end() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    fill_queue(&queue, &Messages::new(2, &[10_000..=10_000]), 0, 8000);
    let full = disk(dir.path());
    for _ in 0..6000 {
        queue.skip().unwrap();
    }
    eventually("a quarter of the messages takes about a quarter of the disk", || {
        disk(dir.path()) <= full / 4 + (MOST_SEGMENTS * 4 * MIB) as u64
    });
    assert_eq!(queue.len(), 2000);
}

/// The highest counts seen.
#[derive(Debug, Default, Clone, Copy)]
struct Most {
    descriptors: usize,
    mappings: usize,
    files: usize,
    disk: u64,
}

impl Most {
    fn sample(&mut self, dir: &Path) {
        self.descriptors = self.descriptors.max(open_files(dir));
        self.mappings = self.mappings.max(mapped(dir).count);
        self.files = self.files.max(names(dir).len());
        self.disk = self.disk.max(disk(dir));
    }
}

#[test]
fn cycling_thousands_of_segments_leaves_descriptors_mappings_and_files_flat() {
    let dir = crate::support::tempdir().unwrap();
    let limit = 64 << 10;
    // A segment is at most a quarter of `max_bytes`.
    let options = Options::new().arena_size(4096).max_bytes(limit);
    let messages = Messages::new(3, &[1400..=1800]);
    let (mut head, mut tail, mut bytes) = (0, 0, 0);
    let (mut first_half, mut second_half) = (Most::default(), Most::default());
    let mut queue = options.clone().open(dir.path()).unwrap();
    let total = rounds(1500, 2500).min(10_000) * (limit / 4);
    let mut reopened = 0;
    while bytes < total {
        // A few at a time, so that segments are filled and drained and never merely touched.
        for _ in 0..5 {
            let message = messages.bytes(tail);
            bytes += message.len() as u64;
            assert_eq!(queue.enqueue(message).unwrap(), tail);
            tail += 1;
        }
        for _ in 0..5 {
            assert_eq!(queue.skip().unwrap(), Some(head));
            head += 1;
        }
        if tail % 250 == 0 {
            match bytes < total / 2 {
                true => first_half.sample(dir.path()),
                false => second_half.sample(dir.path()),
            }
        }
        if bytes * 10 / total > reopened {
            reopened = bytes * 10 / total;
            queue.close().unwrap();
            queue = options.clone().open(dir.path()).unwrap();
        }
    }
    println!("first half {first_half:?}, second half {second_half:?}");
    // Bounds, not a comparison of the halves: within them the counts depend on how far the storage
    // worker's thread has come.
    for most in [first_half, second_half] {
        assert!(most.descriptors <= 12 && most.mappings <= 12 && most.files <= 12, "{most:?}");
    }
    assert!(first_half.disk.max(second_half.disk) <= limit);
}

#[test]
fn cycling_ordinary_segments_leaves_everything_flat_too() {
    for arena in [4 * KIB, 4 * MIB] {
        let dir = crate::support::tempdir().unwrap();
        let queue = Options::new().arena_size(arena as u64).open(dir.path()).unwrap();
        let mut most = Most::default();
        // 80 segments of 4 MiB, a little more than one at a time.
        for round in 0..320 {
            for _ in 0..21 {
                queue.enqueue(vec![round as u8; 50_000]).unwrap();
            }
            for _ in 0..21 {
                assert_eq!(queue.dequeue().unwrap().unwrap()[0], round as u8);
            }
            most.sample(dir.path());
        }
        println!("arenas of {arena}: {most:?}");
        assert!(
            most.descriptors <= 12 && most.mappings <= 12 && most.files <= MOST_BUSY + 1,
            "{most:?}"
        );
        assert!(most.disk <= (MOST_BUSY * 4 * MIB + MIB) as u64, "{most:?}");
    }
}

#[test]
fn a_backlog_of_many_segments_needs_no_more_descriptors_and_mappings() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    let mut most = Most::default();
    for seq in 0..60 * 40 {
        queue.enqueue(vec![seq as u8; 100_000]).unwrap();
        if seq % 40 == 0 {
            // Full segments that are not synced keep descriptors of their own.
            queue.flush().unwrap();
            most.sample(dir.path());
        }
    }
    queue.flush().unwrap();
    assert!(most.files > 40, "the backlog is one of many segments: {most:?}");
    while queue.dequeue().unwrap().is_some() {
        most.sample(dir.path());
    }
    assert!(most.descriptors <= 12 && most.mappings <= 12, "{most:?}");
}

#[test]
fn the_directory_never_takes_more_than_max_bytes() {
    for (arena, limit) in
        [(4 * KIB, 64 << 10), (4 * KIB, 1 << 20), (64 * KIB, 3 << 20), (4 * MIB, 20 << 20)]
    {
        let dir = crate::support::tempdir().unwrap();
        let queue =
            Options::new().arena_size(arena as u64).max_bytes(limit).open(dir.path()).unwrap();
        let messages = Messages::new(4, &[0..=2000]);
        let (mut head, mut tail) = (0, 0);
        for _ in 0..4 {
            let refused = loop {
                match queue.enqueue(messages.bytes(tail)) {
                    Ok(seq) => assert_eq!(seq, tail),
                    Err(error) => break error,
                }
                tail += 1;
                if tail % 16 == 0 {
                    assert!(disk(dir.path()) <= limit, "{} of {limit} bytes", disk(dir.path()));
                }
                assert!(tail < 1_000_000, "never full");
            };
            assert!(refused.is_full(), "{refused}");
            assert!(
                disk(dir.path()) <= limit,
                "{} of {limit} bytes: {:?}",
                disk(dir.path()),
                queue.stats()
            );
            assert_eq!(queue.len(), tail - head, "a refused message changes nothing");
            while let Some(message) = queue.dequeue().unwrap() {
                assert_eq!(message.seq(), head);
                messages.check(head, &message);
                head += 1;
            }
            assert_eq!(head, tail);
        }
    }
}
