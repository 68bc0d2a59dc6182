//! Promise P6 for memory: the mapped bytes stay within `max_mapped_arenas * arena_size`, as the
//! kernel counts them, for any length of messages, any backlog and any number of messages held.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{KIB, MIB, Messages, in_parts, itself, mapped, mapped_beside, open_files};
use mmq::{Options, Queue};

/// Descriptors a queue may hold: the directory, the index, the two ends' segments, and the spares
/// kept while messages pass (how many there are at a moment depends on how far the storage worker's
/// thread has come).
const MOST_OPEN: usize = 12;

/// Holds a queue's mappings to its cap, sample by sample.
struct Cap<'a> {
    dir: &'a Path,
    bytes: u64,
    most: u64,
    samples: u64,
}

impl<'a> Cap<'a> {
    fn new(dir: &'a Path, arena: usize) -> Self {
        Cap { dir, bytes: 3 * arena as u64, most: 0, samples: 0 }
    }

    #[track_caller]
    fn sample(&mut self) {
        let mut now = mapped(self.dir);
        if now.bytes > self.bytes {
            // The allocator's own thread may have moved a mapping while the kernel told of it.
            now = mapped_beside(self.dir);
        }
        self.most = self.most.max(now.bytes);
        self.samples += 1;
        assert!(
            now.bytes <= self.bytes,
            "{now:?} after {} samples: more than {} bytes",
            self.samples,
            self.bytes
        );
    }
}

fn capped(arena: usize, dir: &Path) -> Queue {
    Options::new().arena_size(arena as u64).max_mapped_arenas(3).open(dir).unwrap()
}

/// Sends messages of about 1 MB through arenas of `arena` bytes: a backlog, then alternately, then
/// the rest, by every method, sampling between any two calls and inside the writing closure.
fn large_messages_through(arena: usize) {
    let dir = crate::support::tempdir().unwrap();
    let messages =
        Messages::new(arena as u64, &[1_000_000..=1_000_000, MIB..=MIB, 900_000..=1_100_000]);
    let queue = capped(arena, dir.path());
    let mut cap = Cap::new(dir.path(), arena);
    cap.sample();
    let mut buffer = Vec::new();
    let mut tail = 0;
    let mut put = |cap: &mut Cap<'_>| {
        let given = match tail % 3 {
            0 => queue.enqueue(messages.bytes(tail)),
            1 => queue.enqueue_parts(&in_parts(&messages.bytes(tail))),
            _ => queue.enqueue_batch([messages.bytes(tail)]).map(|given| given.start),
        };
        assert_eq!(given.unwrap(), tail);
        tail += 1;
        cap.sample();
    };
    let mut head = 0;
    let mut take = |cap: &mut Cap<'_>| {
        if head % 2 == 0 {
            let message = queue.dequeue().unwrap().unwrap();
            cap.sample();
            assert_eq!(message.seq(), head);
            messages.check(head, &message);
        } else {
            let message = queue.peek().unwrap().unwrap();
            cap.sample();
            messages.check(head, &message);
            assert_eq!(queue.dequeue_into(&mut buffer).unwrap(), Some(head));
            messages.check(head, &buffer);
        }
        head += 1;
        cap.sample();
    };
    (0..24).for_each(|_| put(&mut cap));
    for _ in 0..60 {
        put(&mut cap);
        take(&mut cap);
        // Full segments that are not synced keep descriptors of their own.
        queue.flush().unwrap();
        let now = open_files(dir.path());
        assert!(now <= MOST_OPEN, "{now} descriptors");
    }
    (0..24).for_each(|_| take(&mut cap));
    assert!(queue.is_empty());
    println!(
        "arenas of {arena}: {} samples, at most {} of {} bytes mapped",
        cap.samples, cap.most, cap.bytes
    );
    queue.close().unwrap();
    assert_eq!(mapped(dir.path()).count, 0, "close leaves nothing mapped");
    assert_eq!(open_files(dir.path()), 0, "close leaves nothing open");
}

#[test]
fn messages_of_one_mb_pass_through_three_arenas_of_4_kib() {
    large_messages_through(4 * KIB);
}

#[test]
fn messages_of_one_mb_pass_through_three_arenas_of_128_kib() {
    large_messages_through(128 * KIB);
}

#[test]
fn messages_of_one_mb_pass_through_three_arenas_of_4_mib() {
    large_messages_through(4 * MIB);
}

#[test]
fn the_cap_holds_while_many_messages_are_held() {
    for arena in [4 * KIB, 128 * KIB, 4 * MIB] {
        for len in [100, 2000, 100_000, 1_000_000] {
            let dir = crate::support::tempdir().unwrap();
            let messages = Messages::new(1, &[len / 2..=len]);
            let queue = capped(arena, dir.path());
            let mut cap = Cap::new(dir.path(), arena);
            let total = (24 * MIB / len).min(3000) as u64;
            crate::support::fill_queue(&queue, &messages, 0, total);
            cap.sample();
            // Held ones reach over far more than three arenas.
            let mut held = VecDeque::new();
            for seq in 0..total {
                let message = queue.dequeue().unwrap().unwrap();
                assert_eq!(message.seq(), seq);
                held.push_back(message);
                if held.len() > 20 && seq % 3 > 0 {
                    held.pop_front();
                }
                if total < 100 || seq % 16 == 0 {
                    cap.sample();
                }
                if seq % 7 == 0 {
                    queue.enqueue(messages.bytes(total + seq / 7)).unwrap();
                }
            }
            for message in held {
                messages.check(message.seq(), &message);
            }
            cap.sample();
        }
    }
}

#[test]
fn held_messages_of_a_closed_queue_keep_no_more_than_the_cap() {
    let dir = crate::support::tempdir().unwrap();
    let messages = Messages::new(2, &[3000..=3000]);
    let queue = capped(4096, dir.path());
    crate::support::fill_queue(&queue, &messages, 0, 100);
    let held = queue.dequeue_batch(100).unwrap();
    drop(queue);
    Cap::new(dir.path(), 4096).sample();
    for message in &held {
        messages.check(message.seq(), message);
    }
    drop(held);
    assert_eq!(mapped(dir.path()).count, 0);
}

#[test]
fn the_cap_holds_at_any_moment_among_threads() {
    let dir = crate::support::tempdir().unwrap();
    let arena = 8 * KIB;
    let queue = capped(arena, dir.path());
    let messages = Messages::new(3, &[0..=100, 0..=20_000, 100_000..=400_000]);
    let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (queue, messages) = (&queue, &messages);
            scope.spawn(move || {
                for n in 0..200 {
                    queue.enqueue(messages.bytes(thread << 32 | n)).unwrap();
                }
            });
        }
        let reader = scope.spawn(|| {
            let mut taken = 0;
            while taken < 400 {
                taken += queue.dequeue_batch(3).unwrap().len();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(mapped_beside(dir.path()).bytes, Ordering::Relaxed);
            }
        });
        reader.join().unwrap();
        done.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner();
    assert!(most <= 3 * arena as u64, "{most} bytes were mapped");
}

#[test]
fn figures_agree_with_the_kernel() {
    let dir = crate::support::tempdir().unwrap();
    let queue = capped(64 * KIB, dir.path());
    let messages = Messages::new(4, &[0..=50_000]);
    for seq in 0..200 {
        queue.enqueue(messages.bytes(seq)).unwrap();
        if seq % 2 == 0 {
            queue.skip().unwrap();
        }
        let stats = queue.stats();
        assert!(stats.mapped_bytes <= 3 * 64 * KIB as u64, "{stats:?}");
    }
    crate::support::eventually("mapped_bytes is what /proc/self/maps says", || {
        queue.stats().mapped_bytes == mapped(dir.path()).bytes
    });
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line =
        text.lines().find(|line| line.starts_with(field)).expect("a line of /proc/self/status");
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// 4 GiB on disk under a cap of 12 MiB, in a process of its own, so that the peak is this queue's
/// alone.
#[test]
#[ignore = "takes 4 GiB of disk and a minute: run with --ignored"]
fn a_backlog_of_4_gib_takes_constant_memory() {
    if std::env::var_os("MMQ_BACKLOG_CHILD").is_none() {
        let mut again = itself("memory_cap::a_backlog_of_4_gib_takes_constant_memory");
        let status = again.env("MMQ_BACKLOG_CHILD", "1").stdout(Stdio::inherit()).status().unwrap();
        assert!(status.success());
        return;
    }
    let dir = crate::support::tempdir().unwrap();
    let len = 64 * KIB;
    let total = (4 << 30) / len as u64;
    let messages = Messages::new(5, &[len..=len]);
    let before = status("VmHWM:");
    let queue = capped(4 * MIB, dir.path());
    let mut cap = Cap::new(dir.path(), 4 * MIB);
    let mut buffer = vec![0; len];
    for seq in 0..total {
        messages.write(seq, &mut buffer);
        assert_eq!(queue.enqueue(&buffer).unwrap(), seq);
        if seq % 256 == 0 {
            cap.sample();
        }
    }
    assert!(crate::support::disk(dir.path()) >= 4 << 30);
    let queue = {
        queue.close().unwrap();
        capped(4 * MIB, dir.path())
    };
    assert_eq!(queue.len(), total);
    for seq in 0..total {
        assert_eq!(queue.dequeue_into(&mut buffer).unwrap(), Some(seq));
        messages.check(seq, &buffer);
        if seq % 256 == 0 {
            cap.sample();
        }
    }
    let grown = status("VmHWM:") - before;
    println!(
        "peak resident memory grew by {} KiB, mapped at most {} KiB",
        grown >> 10,
        cap.most >> 10
    );
    assert!(grown <= (12 + 8) << 20, "peak resident memory grew by {grown} bytes");
}
