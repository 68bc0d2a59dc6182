//! Named consumers: each has its own place, which outlives the process; space is given back when
//! the slowest one has passed it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{MIB, Messages, eventually, fill_queue, within};
use mmq::{Consumer, Error, Options, Queue, Start};

fn messages() -> Messages {
    Messages::new(11, &[0..=300, 0..=3000])
}

fn options() -> Options {
    Options::new().arena_size(64 << 10)
}

fn filled(count: u64) -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = options().open(dir.path()).unwrap();
    fill_queue(&queue, &messages(), 0, count);
    (dir, queue)
}

/// As [`filled`], with short segments.
fn filled_of_short_segments(count: u64) -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = short_segments().open(dir.path()).unwrap();
    fill_queue(&queue, &messages(), 0, count);
    (dir, queue)
}

fn short_segments() -> Options {
    options().max_bytes(4 << 20)
}

#[track_caller]
fn take(consumer: &Consumer, from: u64, to: u64) {
    for seq in from..to {
        let message = consumer.dequeue().unwrap().expect("a message waits");
        assert_eq!(message.seq(), seq);
        messages().check(seq, &message);
    }
}

#[test]
fn each_consumer_has_its_own_place_and_it_survives() {
    let (dir, queue) = filled(100);
    let (a, b) = (queue.consumer("a").unwrap(), queue.consumer("b").unwrap());
    take(&a, 0, 30);
    take(&b, 0, 70);
    assert_eq!((a.len(), b.len(), queue.len()), (70, 30, 70));
    drop((a, b, queue));
    let queue = options().open(dir.path()).unwrap();
    assert_eq!(queue.consumers(), ["a", "b"]);
    let (a, b) = (queue.consumer("a").unwrap(), queue.consumer("b").unwrap());
    assert_eq!((a.len(), b.len(), a.name()), (70, 30, "a"));
    take(&a, 30, 100);
    take(&b, 70, 100);
    assert!(a.dequeue().unwrap().is_none() && b.is_empty());
    assert_eq!(queue.stats().dequeued, 100);
}

#[test]
fn any_name_of_1_to_255_bytes_is_kept_apart() {
    let (dir, queue) = filled(3);
    let long = "x".repeat(255);
    let names =
        ["a", "A", " ", "a/b", "..", "\0", "ä", "a\u{308}", "消费者", "🦀", &long, &long[..254]];
    for (n, name) in names.iter().enumerate() {
        take(&queue.consumer(name).unwrap(), 0, n as u64 % 4);
    }
    for bad in [String::new(), "x".repeat(256), "ä".repeat(128)] {
        assert!(matches!(queue.consumer(&bad), Err(Error::InvalidArgument { .. })));
        assert!(queue.remove_consumer(&bad).is_err());
    }
    drop(queue);
    let queue = options().open(dir.path()).unwrap();
    let mut wanted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    wanted.sort();
    assert_eq!(queue.consumers(), wanted);
    for (n, name) in names.iter().enumerate() {
        assert_eq!(queue.consumer(name).unwrap().len(), 3 - n as u64 % 4, "{name:?}");
    }
}

#[test]
fn more_consumers_than_the_index_begins_with() {
    let (dir, queue) = filled(10);
    for n in 0..300 {
        take(&queue.consumer(&format!("consumer {n}")).unwrap(), 0, n % 10);
    }
    drop(queue);
    let queue = options().open(dir.path()).unwrap();
    assert_eq!(queue.consumers().len(), 300);
    for n in 0..300 {
        take(&queue.consumer(&format!("consumer {n}")).unwrap(), n % 10, 10);
    }
}

#[test]
fn a_fork_goes_on_from_the_same_place_and_seek_moves_within_what_is_held() {
    let (_dir, queue) = filled(50);
    let a = queue.consumer("a").unwrap();
    take(&a, 0, 20);
    let fork = a.fork("fork").unwrap();
    assert!(matches!(a.fork("fork"), Err(Error::InvalidArgument { .. })));
    take(&fork, 20, 25);
    take(&a, 20, 21);
    a.seek(5).unwrap();
    take(&a, 5, 8);
    a.seek(50).unwrap();
    assert!(a.dequeue().unwrap().is_none());
    assert!(matches!(a.seek(51), Err(Error::NotFound { .. })));
    assert!(a.is_empty());
    a.seek(0).unwrap();
    take(&a, 0, 50);
    take(&fork, 25, 50);
}

#[test]
fn seek_finds_every_message_also_those_that_run_over_segments() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(4096).max_bytes(2 << 20).open(dir.path()).unwrap();
    let made = Messages::new(1, &[0..=100, 30_000..=60_000, 90_000..=200_000]);
    let mut tail = 0;
    while queue.enqueue(made.bytes(tail)).is_ok() {
        tail += 1;
    }
    assert!(tail > 10, "{tail}");
    let holder = queue.consumer("holds everything").unwrap();
    let consumer = queue.consumer("c").unwrap();
    for seq in (0..tail).rev() {
        consumer.seek(seq).unwrap();
        let message = consumer.dequeue().unwrap().unwrap();
        assert_eq!(message.seq(), seq);
        made.check(seq, &message);
        assert_eq!(consumer.len(), tail - seq - 1);
    }
    assert_eq!(queue.stats().gaps, 0);
    // What is given back is not found any more, also when its end is still there.
    while holder.len() > 3 {
        holder.skip().unwrap();
    }
    consumer.seek(tail).unwrap();
    eventually("the rest is given back", || queue.stats().oldest_seq > 0);
    let oldest = queue.stats().oldest_seq;
    for seq in 0..tail {
        assert_eq!(consumer.seek(seq).is_ok(), seq >= oldest, "{seq} of {oldest}");
        if seq >= oldest {
            assert_eq!(consumer.dequeue().unwrap().unwrap().seq(), seq);
        }
    }
    assert_eq!(queue.stats().gaps, 0);
}

#[test]
fn a_new_consumer_begins_at_the_first_whole_message() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(4096).max_bytes(2 << 20).open(dir.path()).unwrap();
    let made = Messages::new(2, &[0..=100, 100_000..=300_000]);
    let first = queue.consumer("first").unwrap();
    for seq in 0..200 {
        while queue.enqueue(made.bytes(seq)).is_err() {
            made.check(first.peek().unwrap().unwrap().seq(), &first.dequeue().unwrap().unwrap());
        }
        // Whatever is given back, no gap is reported to one that comes now.
        let name = format!("at {seq}");
        let now = queue.consumer(&name).unwrap();
        let message = now.dequeue().unwrap().expect("one is held at least");
        made.check(message.seq(), &message);
        drop(message);
        queue.remove_consumer(&name).unwrap();
    }
    assert_eq!(queue.stats().gaps, 0);
}

#[test]
fn space_is_held_by_the_slowest_and_by_no_removed_one() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(1 << 20).open(dir.path()).unwrap();
    let (slow, fast) = (queue.consumer("slow").unwrap(), queue.consumer("fast").unwrap());
    let big = vec![5; MIB];
    for _ in 0..40 {
        queue.enqueue(&big).unwrap();
    }
    while fast.skip().unwrap().is_some() {}
    let full = queue.stats().segments;
    assert!(full >= 10, "{full}");
    for _ in 0..20 {
        slow.skip().unwrap();
    }
    eventually("what both have passed goes", || queue.stats().segments < full);
    assert!(queue.stats().segments >= 5);
    queue.remove_consumer("slow").unwrap();
    eventually("nobody holds the rest", || queue.stats().segments == 1);
    assert!(matches!(slow.dequeue(), Err(Error::NotFound { .. })));
    assert!(matches!(slow.peek(), Err(Error::NotFound { .. })));
    assert!(matches!(slow.seek(0), Err(Error::NotFound { .. })));
    assert!(matches!(queue.remove_consumer("slow"), Err(Error::NotFound { .. })));
    assert_eq!(queue.consumers(), ["fast"]);
}

#[test]
fn several_threads_share_one_consumer_and_each_message_goes_to_one() {
    let (_dir, queue) = filled(5000);
    let consumer = queue.consumer("shared").unwrap();
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let consumer = consumer.clone();
                scope.spawn(move || {
                    let mut seqs = Vec::new();
                    while let Some(message) = consumer.dequeue().unwrap() {
                        messages().check(message.seq(), &message);
                        assert!(
                            seqs.last().is_none_or(|last| *last < message.seq()),
                            "in order for each"
                        );
                        seqs.push(message.seq());
                    }
                    seqs
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert!(all.into_iter().eq(0..5000));
}

#[test]
fn consumers_come_go_fork_and_seek_while_messages_flow() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = Options::new().arena_size(4096).max_bytes(8 << 20).open(dir.path()).unwrap();
        let stop = AtomicBool::new(false);
        let made = messages();
        let steady = queue.consumer("steady").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (queue, stop, made, steady) = (&queue, &stop, &made, &steady);
                scope.spawn(move || {
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        n += 1;
                        let name = format!("{thread} {}", n % 5);
                        let consumer = if n % 3 == 0 {
                            match steady.fork(&name) {
                                Ok(consumer) => consumer,
                                Err(_) => queue.consumer(&name).unwrap(),
                            }
                        } else {
                            queue.consumer(&name).unwrap()
                        };
                        for _ in 0..5 {
                            if let Some(message) = consumer.dequeue().unwrap() {
                                made.check(message.seq(), &message);
                                let _ = consumer.seek(message.seq());
                                let _ = steady.seek(message.seq());
                            }
                        }
                        if n % 2 == 0 {
                            queue.remove_consumer(&name).unwrap();
                        }
                    }
                });
            }
            let mut tail = 0;
            while tail < 4000 {
                match queue.enqueue(made.bytes(tail)) {
                    Ok(_) => tail += 1,
                    Err(error) => {
                        assert!(error.is_full(), "{error}");
                        let end = queue.stats().next_seq;
                        for name in queue.consumers() {
                            // Gone meanwhile is fine.
                            if let Ok(consumer) = queue.consumer(&name) {
                                let _ = consumer.seek(end);
                            }
                        }
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(queue.stats().gaps, 0);
    });
}

#[test]
fn the_handle_and_the_iterator_of_a_removed_consumer_say_so_once_and_take_nothing() {
    let (_dir, queue) = filled(20);
    let gone = queue.consumer("gone").unwrap();
    let mut ahead = gone.iter();
    assert_eq!(ahead.next().unwrap().unwrap().seq(), 0);
    queue.remove_consumer("gone").unwrap();
    assert!(
        matches!(ahead.next(), Some(Err(Error::NotFound { what: "consumer", name, .. })) if name == "gone")
    );
    assert!(ahead.next().is_none() && ahead.next().is_none(), "an iterator ends after an error");
    assert!(matches!(gone.iter().next(), Some(Err(Error::NotFound { .. }))));
    assert!(matches!(gone.dequeue(), Err(Error::NotFound { what: "consumer", .. })));
    // One of that name made anew is another.
    let anew = queue.consumer("gone").unwrap();
    assert!(matches!(gone.peek(), Err(Error::NotFound { .. })));
    assert_eq!(anew.dequeue().unwrap().unwrap().seq(), 0);
    assert_eq!(queue.len(), 19, "nobody else has anything to read");
}

#[test]
fn figures_agree_whatever_was_done() {
    let (dir, queue) = filled(200);
    let a = queue.consumer("a").unwrap();
    take(&a, 0, 50);
    let held = a.receive().unwrap().unwrap();
    a.receive().unwrap().unwrap().ack().unwrap();
    let stats = queue.stats();
    assert_eq!(
        (stats.messages, stats.enqueued, stats.dequeued, stats.next_seq),
        (149, 200, 51, 200)
    );
    assert_eq!((a.len(), stats.consumers, stats.oldest_seq), (149, 1, 0));
    assert!(stats.oldest_age.is_some_and(|age| age < Duration::from_secs(60)));
    assert_eq!(stats.to_string().lines().count(), 1);
    drop(held);
    drop((a, queue));
    let queue = options().open(dir.path()).unwrap();
    let stats = queue.stats();
    assert_eq!((stats.messages, stats.enqueued, stats.dequeued, stats.next_seq), (149, 0, 0, 200));
    assert_eq!(queue.consumer("a").unwrap().len(), 149);
    while queue.dequeue().unwrap().is_some() {}
    assert_eq!((queue.stats().messages, queue.stats().oldest_age), (0, None));
    assert_eq!(queue.stats().dequeued, 200);
    queue.remove_consumer("a").unwrap();
    assert_eq!(queue.stats().dequeued, 200, "what a removed one took still counts");
}

#[test]
fn the_queues_own_consumer_is_moved_and_forked_like_any_other() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 0);
    let second = queue.fork("second").unwrap();
    assert_eq!(second.dequeue().unwrap().unwrap().seq(), 1);
    assert!(matches!(queue.fork("second"), Err(Error::InvalidArgument { .. })));
    assert!(matches!(queue.fork(""), Err(Error::InvalidArgument { .. })));
    queue.seek(3).unwrap();
    assert!(queue.dequeue().unwrap().is_none());
    queue.seek(1).unwrap();
    assert!(matches!(queue.seek(4), Err(Error::NotFound { .. })));
    assert_eq!((queue.dequeue().unwrap().unwrap().seq(), queue.len()), (1, 1));
}

#[test]
fn a_consumer_begins_where_it_is_asked_to() {
    let (_dir, queue) = filled_of_short_segments(100);
    let named = |name, start| queue.consumer_at(name, start);
    assert_eq!(named("oldest", Start::Oldest).unwrap().len(), 100);
    take(&named("seq", Start::Seq(40)).unwrap(), 40, 50);
    let end = named("end", Start::End).unwrap();
    assert!(end.dequeue().unwrap().is_none());
    fill_queue(&queue, &messages(), 100, 120);
    take(&end, 100, 120);
    // One that exists stays where it is.
    take(&named("seq", Start::End).unwrap(), 50, 60);
    let beyond = named("beyond", Start::Seq(121));
    assert!(matches!(beyond, Err(Error::NotFound { what: "message", .. })), "{beyond:?}");
    assert_eq!(queue.consumers(), ["end", "oldest", "seq"]);
    take(&named("beyond", Start::Seq(119)).unwrap(), 119, 120);
    // At the next one that is held.
    for name in ["oldest", "seq", "end", "beyond"] {
        queue.consumer(name).unwrap().seek(120).unwrap();
    }
    fill_queue(&queue, &messages(), 120, 1000);
    for name in ["oldest", "seq", "end", "beyond"] {
        queue.consumer(name).unwrap().seek(900).unwrap();
    }
    eventually("space is given back", || queue.stats().oldest_seq > 120);
    let oldest = queue.stats().oldest_seq;
    let late = named("late", Start::Seq(5)).unwrap();
    assert_eq!(late.dequeue().unwrap().unwrap().seq(), oldest);
}

#[test]
fn what_the_first_consumer_is_made_behind_is_counted_once() {
    let (_dir, queue) = filled_of_short_segments(100);
    assert!(queue.consumer_at("beyond", Start::Seq(101)).is_err());
    assert_eq!(queue.stats().unclaimed, 0, "no consumer was made");
    queue.consumer_at("first", Start::Seq(40)).unwrap();
    queue.consumer_at("first", Start::End).unwrap();
    queue.consumer_at("second", Start::End).unwrap();
    assert_eq!(queue.stats().unclaimed, 40, "the first consumer has claimed the others");
    queue.remove_consumer("first").unwrap();
    queue.remove_consumer("second").unwrap();
    queue.consumer_at("again", Start::Seq(70)).unwrap();
    assert_eq!(queue.stats().unclaimed, 70, "those before 40 count once");

    let (dir, queue) = filled_of_short_segments(100);
    queue.consumer("first").unwrap();
    queue.consumer_at("second", Start::End).unwrap();
    assert_eq!(queue.stats().unclaimed, 0, "the first consumer has claimed all");
    queue.close().unwrap();
    let queue = short_segments().open(dir.path()).unwrap();
    queue.consumer_at("third", Start::End).unwrap();
    assert_eq!(queue.stats().unclaimed, 0, "after a reopening too");
}

#[test]
fn threads_that_make_the_first_consumer_at_once_count_what_it_gives_up_once() {
    for _ in 0..20 {
        let (_dir, queue) = filled_of_short_segments(20);
        let starts = [Start::End, Start::Seq(15), Start::Seq(5), Start::End];
        let barrier = std::sync::Barrier::new(starts.len());
        let places: Vec<u64> = std::thread::scope(|scope| {
            let threads = starts.into_iter().zip(["a", "b", "c", "d"]).map(|(start, name)| {
                let (queue, barrier) = (&queue, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    queue.consumer_at(name, start).unwrap().stats().next_seq
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let unclaimed = queue.stats().unclaimed;
        assert!(places.contains(&unclaimed), "{unclaimed} is the place of none of {places:?}");
    }
}
