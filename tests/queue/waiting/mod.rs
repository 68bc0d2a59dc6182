//! Waiting readers: woken by any enqueue, by the end of the queue, in turn; futures under two
//! executors; a descriptor that says whether a message waits.

#[cfg(feature = "async")]
mod asynchronous;
#[cfg(feature = "async")]
#[path = "writing.rs"]
mod writing;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{in_parts, readable, within};
use mmq::{Error, OnFull, Options, Queue};

fn open() -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    (dir, queue)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_timeout_that_passes_is_none_and_takes_its_time() {
    let (_dir, queue) = open();
    let begin = Instant::now();
    assert!(queue.dequeue_timeout(Duration::from_millis(60)).unwrap().is_none());
    assert!(queue.receive_timeout(Duration::from_millis(60)).unwrap().is_none());
    let waited = begin.elapsed();
    assert!((Duration::from_millis(115)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
    assert!(queue.dequeue_timeout(Duration::ZERO).unwrap().is_none());
}

/// The one in front may not take anything: what wakes it is for the one behind it.
#[test]
fn a_waiter_that_may_have_no_more_does_not_keep_the_news_from_the_one_behind_it() {
    let (_dir, queue) = open();
    let consumer = queue.consumer("c").unwrap();
    consumer.set_max_in_flight(1).unwrap();
    queue.enqueue("in flight").unwrap();
    let held = consumer.receive().unwrap();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            consumer.receive_timeout(Duration::from_secs(600)).unwrap().map(|it| it.seq())
        });
        std::thread::sleep(Duration::from_millis(100));
        let waiter = scope.spawn(|| {
            consumer.dequeue_timeout(Duration::from_secs(20)).unwrap().map(|it| it.seq())
        });
        std::thread::sleep(Duration::from_millis(100));
        queue.enqueue("next").unwrap();
        assert_eq!(waiter.join().unwrap(), Some(1));
        // The receiver's turn.
        queue.enqueue("the receiver's").unwrap();
        held.unwrap().ack().unwrap();
        assert_eq!(receiver.join().unwrap(), Some(2));
    });
}

#[test]
fn every_waiter_of_every_consumer_is_woken_by_any_kind_of_enqueue() {
    within(Duration::from_secs(120), || {
        for flush in [None, Some(1)] {
            let dir = crate::support::tempdir().unwrap();
            let queue = Options::new()
                .arena_size(64 << 10)
                .flush_every_ops(flush)
                .open(dir.path())
                .unwrap();
            let total = 300u64;
            std::thread::scope(|scope| {
                let counts: Vec<_> = (0..9)
                    .map(|waiter| {
                        let consumer = queue.consumer(&format!("c{}", waiter % 3)).unwrap();
                        scope.spawn(move || {
                            let mut count = 0;
                            loop {
                                let came = match waiter % 2 {
                                    0 => consumer
                                        .dequeue_timeout(LONG)
                                        .unwrap()
                                        .map(|m| m.into_vec()),
                                    _ => consumer.receive_timeout(LONG).unwrap().map(|d| {
                                        let bytes = d.to_vec();
                                        d.ack().unwrap();
                                        bytes
                                    }),
                                };
                                match came.as_deref() {
                                    Some(b"end") => return count,
                                    Some(_) => count += 1,
                                    None => panic!("nothing came"),
                                }
                            }
                        })
                    })
                    .collect();
                let mut sent = 0;
                while sent < total {
                    match sent % 3 {
                        0 => drop(queue.enqueue("one").unwrap()),
                        1 => drop(queue.enqueue_parts(&in_parts(b"xxx")).unwrap()),
                        _ => {
                            queue.enqueue_batch(["a", "b", "c", "d"]).unwrap();
                            sent += 3;
                        }
                    }
                    sent += 1;
                    if sent % 20 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                queue.enqueue_batch(["end", "end", "end"]).unwrap();
                let counts: Vec<u64> =
                    counts.into_iter().map(|waiter| waiter.join().unwrap()).collect();
                for consumer in 0..3 {
                    let of: u64 = (0..9).filter(|n| n % 3 == consumer).map(|n| counts[n]).sum();
                    assert_eq!(of, sent, "{counts:?}");
                }
            });
        }
    });
}

#[test]
fn waiters_are_served_in_turn() {
    within(Duration::from_secs(60), || {
        let (_dir, queue) = open();
        let consumer = queue.consumer("w").unwrap();
        let waiters = 6;
        let counts: Vec<AtomicU64> = (0..waiters).map(|_| AtomicU64::new(0)).collect();
        let (total, stop) = (600, AtomicBool::new(false));
        std::thread::scope(|scope| {
            for count in &counts {
                let (consumer, stop) = (consumer.clone(), &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if consumer.dequeue_timeout(Duration::from_millis(500)).unwrap().is_some() {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            // One message at a time: whoever has waited longest gets it.
            for sent in 0..total {
                queue.enqueue("m").unwrap();
                while counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>() <= sent
                {
                    std::thread::yield_now();
                }
                if sent % 10 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let counts: Vec<u64> = counts.into_iter().map(AtomicU64::into_inner).collect();
        let fair = total / waiters;
        assert!(counts.iter().all(|count| *count > fair / 3), "{counts:?}");
    });
}

#[test]
fn closing_wakes_everybody_with_closed() {
    within(Duration::from_secs(30), || {
        let (_dir, queue) = open();
        let consumers: Vec<_> = (0..3).map(|n| queue.consumer(&format!("{n}")).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = consumers
                .iter()
                .flat_map(|consumer| [consumer.clone(), consumer.clone()])
                .map(|consumer| scope.spawn(move || consumer.dequeue_timeout(Duration::MAX)))
                .collect();
            std::thread::sleep(Duration::from_millis(100));
            queue.close().unwrap();
            for waiter in waiters {
                assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
            }
        });
    });
}

/// Neither a consumer's handle nor a future keeps the queue open. A reader that waits on one is
/// woken when the queue closes.
#[test]
fn dropping_the_queue_is_the_end_of_its_consumers() {
    within(Duration::from_secs(30), || {
        let (dir, queue) = open();
        let consumer = queue.consumer("c").unwrap();
        let waiter = consumer.clone();
        let waiter = std::thread::spawn(move || waiter.receive_timeout(Duration::MAX));
        drop(queue);
        assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
        assert!(matches!(consumer.peek(), Err(Error::Closed)));
        assert!(matches!(consumer.set_max_in_flight(1), Err(Error::Closed)));
        assert!(matches!(consumer.iter().next(), Some(Err(Error::Closed))));
        Queue::open(dir.path()).unwrap().close().unwrap();
    });
}

#[test]
fn the_descriptor_is_readable_after_a_close_also_when_no_more_may_be_in_flight() {
    for limit in [None, Some(1)] {
        let (_dir, queue) = open();
        let consumer = queue.consumer("c").unwrap();
        consumer.set_max_in_flight(limit).unwrap();
        queue.enqueue("a").unwrap();
        let held = consumer.receive().unwrap();
        let ready = consumer.ready_fd().unwrap();
        assert!(!readable(ready, Duration::ZERO));
        queue.close().unwrap();
        assert!(readable(ready, LONG));
        drop(held);
    }
}

#[test]
fn removing_a_consumer_wakes_who_waits_for_it() {
    within(Duration::from_secs(30), || {
        let (_dir, queue) = open();
        let consumer = queue.consumer("gone").unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| consumer.dequeue_timeout(Duration::MAX));
            std::thread::sleep(Duration::from_millis(60));
            queue.remove_consumer("gone").unwrap();
            assert!(matches!(waiter.join().unwrap(), Err(Error::NotFound { .. })));
        });
    });
}

#[test]
fn seeking_back_wakes_who_waits() {
    within(Duration::from_secs(30), || {
        let (_dir, queue) = open();
        queue.enqueue("again").unwrap();
        let consumer = queue.consumer("w").unwrap();
        assert_eq!(consumer.skip().unwrap(), Some(0));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| consumer.dequeue_timeout(LONG).unwrap().unwrap().seq());
            std::thread::sleep(Duration::from_millis(60));
            consumer.seek(0).unwrap();
            assert_eq!(waiter.join().unwrap(), 0);
        });
    });
}

#[test]
fn a_waiter_that_gives_up_passes_its_news_on() {
    within(Duration::from_secs(60), || {
        let (_dir, queue) = open();
        let consumer = queue.consumer("w").unwrap();
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            // Short waits that end while messages come, beside one long wait that must not starve.
            for _ in 0..3 {
                let (consumer, taken) = (consumer.clone(), &taken);
                scope.spawn(move || {
                    for _ in 0..400 {
                        let wait = Duration::from_micros(50);
                        taken.fetch_add(
                            consumer.dequeue_timeout(wait).unwrap().is_some().into(),
                            Ordering::Relaxed,
                        );
                    }
                });
            }
            let long = scope.spawn(|| {
                while taken.load(Ordering::Relaxed) < 1000 {
                    let came = consumer.dequeue_timeout(LONG).unwrap();
                    taken.fetch_add(came.is_some().into(), Ordering::Relaxed);
                    assert!(came.is_some(), "a message was lost sight of");
                }
            });
            for sent in 0..1100 {
                queue.enqueue("m").unwrap();
                if sent % 3 == 0 {
                    std::thread::sleep(Duration::from_micros(30));
                }
            }
            long.join().unwrap();
        });
    });
}

#[test]
fn the_descriptor_is_readable_exactly_while_messages_wait() {
    let (_dir, queue) = open();
    let fd = queue.ready_fd().unwrap();
    let other = queue.consumer("other").unwrap();
    assert!(!readable(fd, Duration::ZERO));
    queue.enqueue("a").unwrap();
    queue.enqueue("b").unwrap();
    assert!(readable(fd, Duration::ZERO));
    assert!(
        readable(other.ready_fd().unwrap(), Duration::ZERO),
        "asked for when messages wait already"
    );
    queue.dequeue().unwrap().unwrap();
    assert!(readable(fd, Duration::ZERO), "level-triggered: one still waits");
    queue.peek().unwrap().unwrap();
    assert!(readable(fd, Duration::ZERO));
    let mut buffer = Vec::new();
    queue.dequeue_into(&mut buffer).unwrap();
    assert!(!readable(fd, Duration::ZERO), "none waits");
    assert!(readable(other.ready_fd().unwrap(), Duration::ZERO));
    queue.enqueue("c").unwrap();
    let delivery = queue.receive().unwrap().unwrap();
    assert!(!readable(fd, Duration::ZERO), "in flight is not waiting");
    delivery.nack();
    assert!(readable(fd, Duration::ZERO), "given back is");
    queue.receive().unwrap().unwrap().ack().unwrap();
    assert!(!readable(fd, Duration::ZERO));
    queue.dequeue_batch(10).unwrap();
    // From another thread, while it is polled.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            queue.enqueue("d").unwrap();
        });
        assert!(readable(fd, LONG));
    });
    assert_eq!(queue.dequeue().unwrap().unwrap().as_str(), Ok("d"));
    other.seek(0).unwrap();
    while other.dequeue().unwrap().is_some() {}
    assert!(!readable(other.ready_fd().unwrap(), Duration::ZERO));
    other.seek(1).unwrap();
    assert!(readable(other.ready_fd().unwrap(), Duration::ZERO), "a seek makes messages wait");
    queue.close().unwrap();
    assert!(readable(other.ready_fd().unwrap(), Duration::ZERO), "the end is news");
}

#[test]
fn a_poll_loop_misses_nothing() {
    within(Duration::from_secs(60), || {
        let (_dir, queue) = open();
        let total = 20_000u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for sent in 0..total {
                    queue.enqueue(sent.to_le_bytes()).unwrap();
                    if sent % 50 == 0 {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                }
            });
            let fd = queue.ready_fd().unwrap();
            let mut next = 0;
            while next < total {
                assert!(readable(fd, LONG), "nothing wakes for message {next}");
                // One at a time, so that the descriptor is set and cleared often.
                if let Some(message) = queue.dequeue().unwrap() {
                    assert_eq!(message.seq(), next);
                    next += 1;
                }
            }
            assert!(!readable(fd, Duration::ZERO));
        });
    });
}

/// A figure, not a promise: how long after the enqueue a waiting reader has its message.
#[test]
#[ignore = "measures"]
fn measure_wake_up_latency() {
    let (_dir, queue) = open();
    let total = 3000;
    let begin = Instant::now();
    let mut taken: Vec<u64> = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..total {
                std::thread::sleep(Duration::from_micros(300));
                queue.enqueue((begin.elapsed().as_nanos() as u64).to_le_bytes()).unwrap();
            }
        });
        for _ in 0..total {
            let message = queue.dequeue_timeout(LONG).unwrap().unwrap();
            let sent = u64::from_le_bytes(message[..].try_into().unwrap());
            taken.push(begin.elapsed().as_nanos() as u64 - sent);
        }
    });
    taken.sort_unstable();
    println!("wake-up: median {} ns, p99 {} ns", taken[total / 2], taken[total * 99 / 100]);
}

/// Every wait that has begun ends, and messages stay.
#[test]
fn an_interrupt_ends_every_wait_and_loses_nothing() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096).max_bytes(65536).on_full(OnFull::Wait(None));
    let queue = options.open(dir.path()).unwrap();
    // It has read everything there is, and keeps nothing.
    let at_end = queue.consumer("at end").unwrap();
    let slow = queue.consumer("slow").unwrap();
    slow.set_max_in_flight(1).unwrap();
    queue.enqueue("in flight").unwrap();
    let held = slow.receive().unwrap().unwrap();
    while at_end.skip().unwrap().is_some() {}
    let ended = AtomicU64::new(0);
    let until_interrupted = |wait: &(dyn Fn() -> mmq::Result<()> + Sync)| {
        while wait().map_or_else(|error| !matches!(error, Error::Interrupted), |()| true) {}
        ended.fetch_add(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| until_interrupted(&|| queue.enqueue([1; 1000]).map(drop)));
        scope.spawn(|| until_interrupted(&|| slow.receive_timeout(Duration::MAX).map(drop)));
        while queue.stats().wait_time.is_zero() {
            std::thread::sleep(Duration::from_millis(1));
        }
        while at_end.skip().unwrap().is_some() {}
        scope.spawn(|| until_interrupted(&|| at_end.dequeue_timeout(Duration::MAX).map(drop)));
        while ended.load(Ordering::SeqCst) < 3 {
            queue.interrupt();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let enqueued = queue.stats().next_seq;
    held.ack().unwrap();
    for seq in 1..enqueued {
        assert_eq!(slow.dequeue_timeout(Duration::ZERO).unwrap().unwrap().seq(), seq);
    }
    // A wait that begins later is not interrupted.
    assert!(slow.dequeue_timeout(Duration::from_millis(5)).unwrap().is_none());
    queue.interrupt();
    assert!(slow.dequeue_timeout(Duration::from_millis(5)).unwrap().is_none());
}
