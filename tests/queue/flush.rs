//! What is durable and when: `flush`, `flush_every_ops`, `flush_every`, `durable_seq`,
//! `wait_durable`. These tests show on a real disk that the calls flush when they say. The tests on
//! the simulated disk (`src/tests/crash`) show that flushed bytes survive a power cut.

use std::sync::Barrier;
use std::time::Duration;

use crate::support::{Messages, eventually, in_parts, within};
use mmq::{Options, Queue};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

fn small() -> Options {
    Options::new().arena_size(64 << 10)
}

fn new_queue(options: Options) -> (TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = options.open(dir.path()).unwrap();
    (dir, queue)
}

#[test]
fn nothing_is_durable_before_a_flush_and_everything_is_after_it() {
    let (_dir, queue) = new_queue(small());
    assert_eq!(queue.durable_seq(), 0);
    for seq in 0..10 {
        queue.enqueue("a few bytes").unwrap();
        assert_eq!(queue.durable_seq(), 0, "after message {seq}");
    }
    queue.flush().unwrap();
    assert_eq!(queue.durable_seq(), 10);
    queue.enqueue("one more").unwrap();
    assert_eq!(queue.durable_seq(), 10);
    queue.flush().unwrap();
    assert_eq!(queue.durable_seq(), 11);
}

#[test]
fn flushing_an_empty_or_clean_queue_is_no_error() {
    let (_dir, queue) = new_queue(Options::new());
    for _ in 0..3 {
        queue.flush().unwrap();
        assert_eq!(queue.durable_seq(), 0);
    }
    queue.enqueue("a").unwrap();
    queue.dequeue().unwrap().unwrap();
    for _ in 0..3 {
        queue.flush().unwrap();
        assert_eq!(queue.durable_seq(), 1);
    }
}

#[test]
fn flushes_cover_every_arena_and_segment_since_the_last_one() {
    for options in [small(), Options::new().arena_size(4096), Options::new().arena_size(4 << 20)] {
        let (dir, queue) = new_queue(options.clone());
        let messages = Messages::new(1, &[0..=100, 0..=50_000, 0..=6_000_000]);
        crate::support::fill_queue(&queue, &messages, 0, 20);
        queue.flush().unwrap();
        assert_eq!(queue.durable_seq(), 20);
        for _ in 0..15 {
            queue.skip().unwrap();
        }
        crate::support::fill_queue(&queue, &messages, 20, 30);
        queue.flush().unwrap();
        assert_eq!(queue.durable_seq(), 30);
        drop(queue);
        crate::support::drain_exactly(&options.open(dir.path()).unwrap(), &messages, 15, 30);
    }
}

#[test]
fn after_a_close_or_a_drop_everything_is_durable() {
    for close in [true, false] {
        let (dir, queue) = new_queue(small());
        for _ in 0..10 {
            queue.enqueue("a").unwrap();
        }
        if close {
            queue.close().unwrap();
        } else {
            drop(queue);
        }
        assert_eq!(small().open(dir.path()).unwrap().durable_seq(), 10);
    }
}

#[test]
fn the_operation_that_makes_n_flushes_and_the_ones_before_do_not() {
    for n in [2, 5, 100] {
        let (_dir, queue) = new_queue(small().flush_every_ops(n));
        for round in 0..3 {
            for one in 1..=n {
                queue.enqueue("a").unwrap();
                let flushed = if one == n { (round + 1) * n } else { round * n };
                assert_eq!(queue.durable_seq(), flushed, "after operation {one} of {n}");
            }
        }
    }
}

#[test]
fn messages_taken_out_count_as_operations_too() {
    let (_dir, queue) = new_queue(small().flush_every_ops(6));
    for _ in 0..4 {
        queue.enqueue("a").unwrap();
    }
    queue.dequeue().unwrap().unwrap();
    assert_eq!(queue.durable_seq(), 0);
    queue.skip().unwrap().unwrap();
    assert_eq!(queue.durable_seq(), 4, "the sixth operation");
    // Looking takes nothing out, and an empty queue gives nothing out.
    let flushes = queue.stats().flushes;
    while queue.skip().unwrap().is_some() {}
    for _ in 0..20 {
        assert!(queue.peek().unwrap().is_none() && queue.dequeue().unwrap().is_none());
    }
    assert_eq!(queue.stats().flushes, flushes);
}

#[test]
fn a_batch_counts_its_messages() {
    let (_dir, queue) = new_queue(small().flush_every_ops(5));
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    assert_eq!(queue.durable_seq(), 0);
    queue.enqueue_batch(["d", "e", "f"]).unwrap();
    assert_eq!(queue.durable_seq(), 6, "the batch that passes n is flushed whole");
}

#[test]
fn with_one_operation_every_message_is_durable_when_enqueue_returns() {
    let (_dir, queue) = new_queue(small().flush_every_ops(1));
    let messages = Messages::new(2, &[0..=100, 0..=9000, 100_000..=300_000]);
    for seq in 0..100 {
        match seq % 3 {
            0 => queue.enqueue_batch([messages.bytes(seq)]).map(|range| range.start),
            1 => queue.enqueue_parts(&in_parts(&messages.bytes(seq))),
            _ => queue.enqueue(messages.bytes(seq)),
        }
        .unwrap();
        assert_eq!(queue.durable_seq(), seq + 1);
        assert_eq!(queue.len(), seq + 1, "what is durable is visible");
    }
    crate::support::drain_exactly(&queue, &messages, 0, 100);
}

#[test]
fn many_threads_with_a_flush_at_every_operation_are_each_durable_on_return() {
    within(LIMIT, || {
        let (dir, queue) = new_queue(small().flush_every_ops(1));
        let (threads, each) = (8, 40);
        let together = Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    together.wait();
                    for _ in 0..each {
                        let seq = queue.enqueue([7; 300]).unwrap();
                        assert!(
                            queue.durable_seq() > seq,
                            "{seq} was acknowledged before it was durable"
                        );
                    }
                });
            }
        });
        let total = threads as u64 * each;
        let flushes = queue.stats().flushes;
        assert_eq!((queue.len(), queue.durable_seq()), (total, total));
        assert!((1..=total).contains(&flushes), "{flushes} flushes for {total} messages");
        println!("{flushes} flushes for {total} durable messages of {threads} threads");
        drop(queue);
        assert_eq!(small().open(dir.path()).unwrap().len(), total);
    });
}

#[test]
fn what_a_reader_sees_with_a_flush_at_every_operation_is_durable() {
    within(LIMIT, || {
        let (_dir, queue) = new_queue(small().flush_every_ops(1));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..60 {
                        queue.enqueue([1; 100]).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                let mut next = 0;
                while next < 120 {
                    if let Some(message) = queue.peek().unwrap() {
                        assert!(queue.durable_seq() > message.seq());
                        queue.skip().unwrap();
                        next = message.seq() + 1;
                    }
                }
            });
        });
    });
}

#[test]
fn waiting_for_a_message_makes_it_durable_without_any_policy() {
    within(LIMIT, || {
        let (_dir, queue) = new_queue(small());
        for _ in 0..10 {
            queue.enqueue("a").unwrap();
        }
        queue.wait_durable(3).unwrap();
        assert!(queue.durable_seq() > 3);
        queue.wait_durable(9).unwrap();
        assert_eq!(queue.durable_seq(), 10);
        let flushes = queue.stats().flushes;
        queue.wait_durable(0).unwrap();
        queue.wait_durable(9).unwrap();
        assert_eq!(queue.stats().flushes, flushes, "what is durable already needs no flush");
    });
}

#[test]
fn many_threads_may_wait_at_once_while_others_enqueue() {
    within(LIMIT, || {
        let (_dir, queue) = new_queue(small());
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for n in 0..40 {
                        let seq = queue.enqueue([2; 200]).unwrap();
                        if n % 4 == 0 {
                            queue.wait_durable(seq).unwrap();
                            assert!(queue.durable_seq() > seq);
                        }
                    }
                });
            }
            scope.spawn(|| (0..20).for_each(|_| queue.flush().unwrap()));
        });
        queue.flush().unwrap();
        assert_eq!(queue.durable_seq(), 240);
    });
}

#[test]
fn the_timer_flushes_without_any_operation() {
    let (_dir, queue) = new_queue(small().flush_every(Duration::from_millis(30)));
    for round in 1..=5 {
        queue.enqueue("a").unwrap();
        queue.enqueue("b").unwrap();
        eventually("the timer flushed", || queue.durable_seq() == 2 * round);
    }
    assert!(queue.stats().flushes >= 5);
    assert!(queue.stats().last_flush_error.is_none());
}

#[test]
fn the_timer_of_an_hour_delays_neither_close_nor_drop() {
    within(Duration::from_secs(60), || {
        for close in [true, false] {
            let (_dir, queue) = new_queue(small().flush_every(Duration::from_secs(3600)));
            queue.enqueue("a").unwrap();
            assert_eq!(queue.durable_seq(), 0);
            if close {
                queue.close().unwrap();
            }
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_timer_thread_is_there_only_when_asked_for_and_gone_after_close() {
    // A process of its own: other tests start and end threads too.
    if std::env::var_os("MMQ_TIMER_CHILD").is_none() {
        let mut child = crate::support::itself(
            "flush::a_timer_thread_is_there_only_when_asked_for_and_gone_after_close",
        );
        assert!(
            child
                .env("MMQ_TIMER_CHILD", "1")
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let (_dir, queue) = new_queue(small().flush_every_ops(10));
    assert_eq!(threads(), before, "opening starts no thread");
    drop(queue);
    let (_dir, queue) = new_queue(small().flush_every(Duration::from_millis(10)));
    assert!(threads() > before);
    queue.enqueue("a").unwrap();
    queue.close().unwrap();
    eventually("the timer thread is gone", || threads() == before);
}

#[test]
fn a_flush_or_a_close_in_a_directory_that_was_removed_is_an_error() {
    for close in [false, true] {
        let (dir, queue) = new_queue(small());
        queue.enqueue("in a file that nobody can open again").unwrap();
        std::fs::remove_dir_all(dir.path()).unwrap();
        let answer = if close { queue.close() } else { queue.flush() };
        let Err(mmq::Error::Io { op: "flush", source, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    }
}

/// How many page faults this thread has had.
#[cfg(target_os = "linux")]
fn faults() -> u64 {
    let figures = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let behind_name = figures.rsplit(')').next().unwrap();
    behind_name.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// A flush maps the pages that it is about to write anew. A reader must not have to: it could wait
/// for a page that is being written.
#[cfg(target_os = "linux")]
#[test]
fn who_reads_after_a_flush_finds_the_pages_mapped() {
    for arena in [4 << 20, 64 << 20] {
        let (_dir, queue) = new_queue(Options::new().arena_size(arena).max_mapped_arenas(None));
        let (messages, mut taken) = (Messages::new(3, &[500..=1500]), Vec::with_capacity(2000));
        let mut most = 0;
        for _ in 0..3 {
            for key in 0..8 << 10 {
                queue.enqueue(messages.bytes(key)).unwrap();
            }
            queue.flush().unwrap();
            let expected: Vec<_> = (0..8 << 10).map(|key| messages.bytes(key)).collect();
            let before = faults();
            for message in &expected {
                queue.dequeue_into(&mut taken).unwrap().unwrap();
                assert_eq!(taken, *message);
            }
            most = most.max(faults() - before);
        }
        println!("{most} page faults for 2,000 pages of messages");
        assert!(most < 100, "{most}");
    }
}

/// A refused message is cleared from the tail's file after the last sync: no sign of a copy.
#[test]
fn after_a_refused_message_and_a_close_everything_is_durable() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096).max_bytes(64 << 10);
    let queue = options.clone().open(dir.path()).unwrap();
    while queue.enqueue([1; 3000]).is_ok() {}
    queue.flush().unwrap();
    assert!(queue.enqueue([2; 9000]).unwrap_err().is_full());
    let stored = queue.len();
    queue.close().unwrap();
    assert_eq!(options.open(dir.path()).unwrap().durable_seq(), stored);
}
