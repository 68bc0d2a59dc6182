//! The queue's own (default) consumer: looking does not make it, and it can be removed.

use std::time::Duration;

use crate::support::{Messages, eventually, fill_queue, readable};
use mmq::{Consumer, Error, Inspector, Options, Queue};

fn messages() -> Messages {
    Messages::new(11, &[0..=300, 0..=3000])
}

fn filled_of_short_segments(count: u64) -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = short_segments().open(dir.path()).unwrap();
    fill_queue(&queue, &messages(), 0, count);
    (dir, queue)
}

fn short_segments() -> Options {
    Options::new().arena_size(64 << 10).max_bytes(4 << 20)
}

#[track_caller]
fn take(consumer: &Consumer, from: u64, to: u64) {
    for seq in from..to {
        let message = consumer.dequeue().unwrap().expect("a message waits");
        assert_eq!(message.seq(), seq);
        messages().check(seq, &message);
    }
}

/// Looking at a queue, and waiting on its descriptor, keeps no message in it.
#[test]
fn looking_does_not_make_the_default_consumer() {
    let (dir, queue) = filled_of_short_segments(300);
    assert!(readable(queue.ready_fd().unwrap(), Duration::ZERO));
    let mut iter = queue.iter();
    for seq in 0..10 {
        assert_eq!(iter.next().unwrap().unwrap().seq(), seq);
    }
    assert_eq!((queue.len(), queue.stats().messages, queue.in_flight()), (300, 300, 0));
    assert!(queue.consumer_stats().is_empty(), "{:?}", queue.consumer_stats());
    let other = queue.consumer("other").unwrap();
    take(&other, 0, 300);
    // What nobody has yet to read does not count.
    assert_eq!((queue.len(), queue.stats().messages, queue.stats().bytes), (0, 0, 0));
    assert_eq!(Inspector::open(dir.path()).unwrap().snapshot().unwrap().messages, 0);
    fill_queue(&queue, &messages(), 300, 2000);
    take(&other, 300, 2000);
    eventually("space is given back", || queue.stats().oldest_seq > 300);
    // The look goes on at the oldest message.
    let oldest = queue.stats().oldest_seq;
    assert!(iter.next().unwrap().unwrap().seq() >= oldest);
    assert!(queue.consumer_stats().iter().all(|stats| stats.name == "other"));
    queue.close().unwrap();
    let queue = short_segments().open(dir.path()).unwrap();
    assert_eq!(queue.consumer_stats().len(), 1);
    // A read makes it, at the oldest message.
    let first = queue.peek().unwrap().map(|message| message.seq());
    assert_eq!(first, queue.iter().next().map(|message| message.unwrap().seq()));
    assert_eq!(queue.consumer_stats().len(), 2);
}

#[test]
fn the_default_consumer_is_removed_and_begins_again() {
    let (dir, queue) = filled_of_short_segments(300);
    assert!(matches!(queue.remove_consumer(""), Err(Error::NotFound { .. })));
    queue.dequeue().unwrap();
    queue.set_max_in_flight(3).unwrap();
    let (lost, acked) = (queue.receive().unwrap().unwrap(), queue.receive().unwrap().unwrap());
    acked.ack().unwrap();
    let other = queue.consumer("other").unwrap();
    take(&other, 0, 200);
    let ready = queue.ready_fd().unwrap();
    queue.remove_consumer("").unwrap();
    assert!(matches!(queue.remove_consumer(""), Err(Error::NotFound { .. })));
    assert_eq!((queue.in_flight(), queue.consumer_stats().len()), (0, 1));
    // A delivery of before changes nothing, and nothing counts as done.
    assert!(matches!(lost.ack(), Err(Error::NotFound { .. })));
    assert!(readable(ready, Duration::ZERO));
    let oldest = queue.stats().oldest_seq;
    // Nor does a limit of before hold.
    let held: Vec<_> = (0..5).map(|_| queue.receive().unwrap().expect("no limit")).collect();
    drop(held);
    for seq in oldest..300 {
        assert_eq!(queue.dequeue().unwrap().unwrap().seq(), seq);
    }
    assert!(queue.dequeue().unwrap().is_none() && !readable(ready, Duration::ZERO));
    queue.enqueue("wakes").unwrap();
    assert!(readable(ready, Duration::ZERO));
    queue.remove_consumer("").unwrap();
    queue.close().unwrap();
    // It stays removed.
    let queue = short_segments().open(dir.path()).unwrap();
    assert_eq!(queue.consumer_stats().len(), 1);
    take(&queue.consumer("other").unwrap(), 200, 300);
    fill_queue(&queue, &messages(), 301, 2000);
    queue.consumer("other").unwrap().seek(2000).unwrap();
    eventually("nothing is kept for it", || queue.stats().oldest_seq > 300);
}

#[test]
fn who_waits_for_the_default_consumer_learns_that_it_was_removed() {
    let (_dir, queue) = filled_of_short_segments(1);
    queue.dequeue().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| queue.dequeue_timeout(Duration::from_secs(600)));
        std::thread::sleep(Duration::from_millis(50));
        queue.remove_consumer("").unwrap();
        let answer = waiter.join().unwrap();
        // (A call that begins only now has the consumer begin again, at the message.)
        assert!(matches!(answer, Err(Error::NotFound { .. }) | Ok(Some(_))), "{answer:?}");
    });
}
