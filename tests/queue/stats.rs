//! Figures that are right: possible at any moment while other threads work, exact when none does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{in_parts, sample, within};
use mmq::{Error, Inspector, OnFull, Options, Queue, Stats};

/// Two producers and `consume`, which ends when it is asked to; two threads that look at the
/// figures until all is done. Returns how often they looked.
fn looked_at(
    queue: &Queue,
    each: u64,
    consume: impl Fn(&AtomicBool) + Sync,
    judge: impl Fn(&Stats) + Sync,
) -> u64 {
    /// Says so also when it panics: nobody waits for what does not come.
    struct AtLast<'a>(&'a AtomicBool);
    impl Drop for AtLast<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let (produced, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..each {
                        queue.enqueue([1; 100]).unwrap();
                    }
                })
            })
            .collect();
        let consumer = scope.spawn(|| consume(&produced));
        let lookers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut looks, mut last) = (0u64, Stats::default());
                    while !done.load(Ordering::Relaxed) {
                        let stats = queue.stats();
                        judge(&stats);
                        assert_eq!(stats.next_seq, stats.enqueued, "{stats:?}");
                        assert!(
                            stats.enqueued >= last.enqueued && stats.dequeued >= last.dequeued,
                            "{last} then {stats}"
                        );
                        assert!(
                            stats.lost_messages >= last.lost_messages && stats.gaps >= last.gaps
                        );
                        assert!(
                            stats.oldest_seq <= stats.next_seq
                                && stats.durable_seq <= stats.next_seq,
                            "{stats:?}"
                        );
                        assert_eq!(stats.messages == 0, stats.oldest_age.is_none(), "{stats:?}");
                        assert!(stats.messages > 0 || stats.bytes == 0, "{stats:?}");
                        (looks, last) = (looks + 1, stats);
                    }
                    looks
                })
            })
            .collect();
        let all_done = AtLast(&done);
        let all_produced = AtLast(&produced);
        for producer in producers {
            producer.join().unwrap();
        }
        drop(all_produced);
        consumer.join().unwrap();
        drop(all_done);
        lookers.into_iter().map(|looker| looker.join().unwrap()).sum()
    })
}

#[test]
fn no_message_is_both_waiting_and_taken_at_any_look() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = Options::new().arena_size(256 << 10).open(dir.path()).unwrap();
        queue.peek().unwrap();
        let consume = |produced: &AtomicBool| {
            let mut buffer = Vec::new();
            loop {
                let ending = produced.load(Ordering::Acquire);
                if queue.dequeue_into(&mut buffer).unwrap().is_none() && ending {
                    break;
                }
            }
        };
        let looks = looked_at(&queue, sample(150_000), consume, |stats| {
            assert!(stats.messages + stats.dequeued <= stats.enqueued, "{stats:?}");
            assert_eq!((stats.gaps, stats.consumers), (0, 1));
        });
        println!("{looks} looks");
        let stats = queue.stats();
        assert_eq!(
            (stats.messages, stats.enqueued, stats.dequeued, stats.bytes),
            (0, 2 * sample(150_000), 2 * sample(150_000), 0)
        );
    });
}

#[test]
fn deliveries_out_of_order_are_counted_once_at_any_look() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = Options::new().arena_size(256 << 10).open(dir.path()).unwrap();
        queue.peek().unwrap();
        // It holds everything, and says that deliveries are made.
        let holder = queue.consumer("deliveries").unwrap();
        let consume = |produced: &AtomicBool| {
            let mut held = Vec::new();
            loop {
                let ending = produced.load(Ordering::Acquire);
                match queue.receive().unwrap() {
                    Some(delivery) => held.push(delivery),
                    None if ending && held.is_empty() => break,
                    None => {}
                }
                if held.len() == 20 || (ending && !held.is_empty()) {
                    let at = held.len() / 2;
                    held.swap_remove(at).ack().unwrap();
                }
            }
        };
        looked_at(&queue, 30_000, consume, |stats| {
            assert!(stats.messages + stats.dequeued <= stats.enqueued, "{stats:?}");
        });
        assert_eq!((queue.stats().messages, queue.stats().dequeued), (0, 60_000));
        assert_eq!(holder.len(), 60_000);
    });
}

/// What was taken, what was reported missing and what still waits add up, with drops all the
/// time.
#[test]
fn what_was_dropped_is_lost_or_not_yet_reported() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let options =
            Options::new().arena_size(4096).max_bytes(128 << 10).on_full(OnFull::DropOldest);
        let queue = options.open(dir.path()).unwrap();
        queue.peek().unwrap();
        let consume = |produced: &AtomicBool| {
            let mut buffer = Vec::new();
            loop {
                let ending = produced.load(Ordering::Acquire);
                match queue.dequeue_into(&mut buffer) {
                    Ok(None) if ending => break,
                    Ok(_) | Err(Error::Gap(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        looked_at(&queue, sample(40_000), consume, |stats| {
            assert!(stats.dequeued + stats.lost_messages <= stats.next_seq, "{stats:?}");
            assert!(stats.messages <= stats.next_seq - stats.oldest_seq, "{stats:?}");
        });
        let stats = queue.stats();
        assert_eq!(stats.dequeued + stats.lost_dropped, 2 * sample(40_000), "{stats}");
    });
}

#[test]
fn several_consumers_are_counted_together() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = Options::new().arena_size(256 << 10).open(dir.path()).unwrap();
        queue.peek().unwrap();
        let named: Vec<_> = (0..2).map(|n| queue.consumer(&format!("{n}")).unwrap()).collect();
        let consume = |produced: &AtomicBool| {
            std::thread::scope(|scope| {
                for consumer in &named {
                    scope.spawn(|| {
                        loop {
                            let ending = produced.load(Ordering::Acquire);
                            if consumer.skip().unwrap().is_none() && ending {
                                break;
                            }
                        }
                    });
                }
                // The default one follows the others: of all that was taken a third at most is its
                // own.
                loop {
                    let ending = produced.load(Ordering::Acquire)
                        && named.iter().all(|consumer| consumer.is_empty());
                    // Looked at before theirs: what is put in between the looks makes theirs
                    // longer, never its own.
                    let behind = |own: u64| named.iter().all(|consumer| consumer.len() < own);
                    while behind(queue.len()) {
                        queue.skip().unwrap();
                    }
                    if ending && queue.is_empty() {
                        break;
                    }
                }
            });
        };
        looked_at(&queue, 15_000, consume, |stats| {
            assert!(stats.dequeued <= 3 * stats.enqueued, "{stats:?}");
            assert_eq!(stats.consumers, 3);
        });
        assert_eq!((queue.stats().dequeued, queue.stats().messages), (90_000, 0));
    });
}

#[test]
fn with_every_message_durable_those_that_are_wait() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let queue =
            Options::new().arena_size(256 << 10).flush_every_ops(1).open(dir.path()).unwrap();
        queue.peek().unwrap();
        let consume = |_: &AtomicBool| {};
        looked_at(&queue, 150, consume, |stats| {
            assert!(stats.durable_seq <= stats.messages + stats.dequeued, "{stats:?}");
        });
    });
}

/// Damage is counted until a read meets it: never fewer messages than come, and exact from the gap
/// on.
#[test]
fn what_no_read_has_met_is_counted_until_its_gap_is_reported() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(64 << 10);
    let queue = options.open(dir.path()).unwrap();
    for seq in 0..100u8 {
        queue.enqueue([seq; 100]).unwrap();
    }
    queue.close().unwrap();
    let path = crate::support::segments(dir.path()).pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    for seq in [40u8, 41, 70] {
        let at = bytes.windows(100).position(|window| window == [seq; 100]).unwrap();
        bytes[at + 50] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    for _ in 0..2 {
        // However often it is opened, as long as nobody reads.
        let queue = options.open(dir.path()).unwrap();
        assert_eq!((queue.len(), queue.stats().messages), (100, 100));
        queue.close().unwrap();
    }
    let queue = options.open(dir.path()).unwrap();
    let (mut gaps, mut came) = (Vec::new(), 0);
    loop {
        let left = 97 - came;
        let unmet = [3, 1, 0][gaps.len()];
        assert_eq!(
            (queue.len(), queue.stats().messages),
            (left + unmet, left + unmet),
            "after {came} and {gaps:?}"
        );
        match queue.dequeue() {
            Ok(Some(_)) => came += 1,
            Ok(None) => break,
            Err(Error::Gap(gap)) => gaps.push((gap.first, gap.last)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((came, gaps), (97, vec![(40, 41), (70, 70)]));
}

/// Each call that finds no room counts once, however often it has tried.
#[test]
fn refused_calls_and_waits_for_room_are_counted() {
    within(Duration::from_secs(60), || {
        let dir = crate::support::tempdir().unwrap();
        let options = Options::new().arena_size(4096).max_bytes(128 << 10);
        let queue = options.clone().open(dir.path()).unwrap();
        let refused = (0..100).filter(|_| queue.enqueue([1; 3000]).is_err()).count() as u64;
        assert!(refused > 50);
        assert!(queue.enqueue_batch([[1; 3000]; 3]).is_err());
        assert!(queue.enqueue_parts(&in_parts(&[1; 3000])).is_err());
        let stats = queue.stats();
        assert_eq!((stats.refused, stats.wait_time), (refused + 2, Duration::ZERO));
        queue.close().unwrap();

        let wait = options.on_full(OnFull::Wait(Some(Duration::from_millis(1))));
        let queue = wait.clone().open(dir.path()).unwrap();
        assert_eq!(queue.stats().refused, 0);
        assert!(queue.enqueue([1; 5000]).is_err());
        let stats = queue.stats();
        assert!(stats.refused == 1 && stats.wait_time > Duration::ZERO, "{stats:?}");
        queue.close().unwrap();

        let queue = wait.on_full(OnFull::Wait(None)).open(dir.path()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.enqueue([1; 5000]).unwrap());
            while queue.skip().unwrap().is_some() {}
        });
        assert_eq!((queue.stats().refused, queue.stats().enqueued), (0, 1));
        queue.flush().unwrap();
        let stats = queue.stats();
        assert!(stats.flushes > 0 && stats.longest_flush > Duration::ZERO);
        assert!(stats.longest_flush <= stats.flush_time, "{stats:?}");
    });
}

#[test]
fn a_file_that_is_removed_while_it_is_read_is_counted_until_it_is_released() {
    let dir = crate::support::tempdir().unwrap();
    let limit = 1 << 20;
    let options = Options::new().arena_size(4096).max_bytes(limit).on_full(OnFull::DropOldest);
    let queue = options.open(dir.path()).unwrap();
    let fill = || (0..120).for_each(|_| assert!(queue.enqueue([1; 10_000]).is_ok()));
    fill();
    // Each iterator pauses in a segment that is dropped behind it.
    let paused: Vec<_> = (0..4)
        .map(|_| {
            let mut iter = queue.iter();
            assert!(iter.by_ref().any(|message| message.is_ok()));
            fill();
            iter
        })
        .collect();
    let in_the_directory =
        || std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap());
    let taken = || {
        in_the_directory()
            .map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512)
            .sum::<u64>()
    };
    let counted = queue.stats().disk_bytes;
    assert!(
        counted > limit && taken() <= limit,
        "{counted} are counted, {} of them in the directory",
        taken()
    );
    drop(paused);
    let counted = queue.stats().disk_bytes;
    assert!(counted <= limit, "{counted} are counted");
}

/// What is dropped counts at once, and once, whoever reads it and when.
#[test]
fn what_is_dropped_counts_when_it_is_dropped() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096).max_bytes(65536).on_full(OnFull::DropOldest);
    let queue = options.open(dir.path()).unwrap();
    let fill = |count| (0..count).for_each(|_| assert!(queue.enqueue([1; 1000]).is_ok()));
    fill(200);
    let stats = queue.stats();
    assert!(stats.oldest_seq > 0);
    assert_eq!((stats.dropped, stats.lost_dropped), (stats.oldest_seq, 0));
    // What all consumers had read is not lost.
    let (first, second) = (queue.consumer("1").unwrap(), queue.consumer("2").unwrap());
    match first.skip() {
        Err(mmq::Error::Gap(gap)) => assert_eq!((gap.first, gap.last), (0, stats.oldest_seq - 1)),
        other => panic!("{other:?}"),
    }
    let read = stats.oldest_seq + 5;
    for consumer in [&first, &second] {
        (stats.oldest_seq..read).for_each(|_| assert!(consumer.skip().unwrap().is_some()));
    }
    second.skip().unwrap().unwrap();
    fill(200);
    let now = queue.stats();
    assert_eq!(now.dropped, stats.dropped + now.oldest_seq - read);
    // What a consumer had not read is reported to it.
    for (consumer, place) in [(&first, read), (&second, read + 1)] {
        match consumer.dequeue() {
            Err(mmq::Error::Gap(gap)) => {
                assert_eq!((gap.first, gap.last), (place, now.oldest_seq - 1))
            }
            other => panic!("{other:?}"),
        }
    }
    let reported = queue.stats();
    assert_eq!(reported.lost_dropped, stats.oldest_seq + 2 * (now.oldest_seq - read) - 1);
    assert_eq!((reported.dropped, reported.expired), (now.dropped, 0));
}

/// Without the queue's own consumer its length is the number of messages that some consumer has to
/// do, also where consumers acknowledged ahead of their places.
#[test]
fn a_message_that_all_consumers_acknowledged_does_not_count_where_an_older_one_waits() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let consumers = [queue.consumer("a").unwrap(), queue.consumer("b").unwrap()];
    queue.enqueue_batch(["a job"; 10]).unwrap();
    let acknowledge = |who: usize, seqs: &[u64]| {
        let jobs = consumers[who].receive_batch(10).unwrap();
        for job in jobs.into_iter().filter(|job| seqs.contains(&job.seq())) {
            job.ack().unwrap();
        }
    };
    let shows = |queue: &Queue, waiting: u64| {
        let inspected = Inspector::open(dir.path()).unwrap().snapshot().unwrap().messages;
        assert_eq!((queue.len(), queue.stats().messages, inspected), (waiting, waiting, waiting));
        assert_eq!(queue.stats().oldest_age.is_some(), waiting > 0);
    };
    shows(&queue, 10);
    acknowledge(0, &[1, 2, 3, 5, 6, 9]);
    shows(&queue, 10);
    acknowledge(1, &[0, 1, 2, 5, 7, 8, 9]);
    shows(&queue, 6); // 1, 2, 5 and 9 are done
    queue.remove_consumer("a").unwrap();
    shows(&queue, 3);
    queue.close().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    shows(&queue, 3);
    queue.remove_consumer("b").unwrap();
    queue.consumer("c").unwrap().dequeue_batch(10).unwrap();
    shows(&queue, 0);
}
