//! At-least-once work: received messages are acknowledged in any order, come again when they are
//! not, and a crash brings back exactly what was not acknowledged.

mod batches;
mod processes;
mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::{Messages, Random, count, fill_queue, itself, seed, within};
use mmq::{Consumer, Delivery, Error, GapCause, OnFull, Options, Queue};

fn messages() -> Messages {
    Messages::new(7, &[0..=200])
}

fn filled(count: u64) -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    fill_queue(&queue, &messages(), 0, count);
    (dir, queue)
}

fn reopen(dir: &tempfile::TempDir, queue: Queue) -> Queue {
    drop(queue);
    Options::new().arena_size(64 << 10).open(dir.path()).unwrap()
}

#[track_caller]
fn next(consumer: &Consumer) -> Delivery {
    let delivery = consumer.receive().unwrap().expect("a message waits");
    messages().check(delivery.seq(), &delivery);
    delivery
}

/// Receives and acknowledges all that waits; their numbers.
fn drain(consumer: &Consumer) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(delivery) = consumer.receive().unwrap() {
        messages().check(delivery.seq(), &delivery);
        seqs.push(delivery.seq());
        delivery.ack().unwrap();
    }
    seqs
}

#[test]
fn each_message_is_handed_out_once_and_the_place_follows_the_acknowledged_prefix() {
    let (dir, queue) = filled(10);
    let consumer = queue.consumer("w").unwrap();
    let mut deliveries: Vec<_> = (0..10).map(|_| next(&consumer)).collect();
    assert!(consumer.receive().unwrap().is_none());
    assert_eq!(
        deliveries.iter().map(Delivery::seq).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>()
    );
    assert_eq!((consumer.len(), consumer.in_flight()), (10, 10), "nothing is done yet");
    deliveries.remove(9).ack().unwrap();
    deliveries.remove(0).ack().unwrap();
    deliveries.remove(0).ack().unwrap();
    assert_eq!((consumer.len(), consumer.in_flight()), (7, 7));
    let queue = {
        drop(consumer);
        // Dropping the queue first is fine; the deliveries learn of it.
        let queue = reopen(&dir, queue);
        for delivery in deliveries {
            assert!(matches!(delivery.ack(), Err(Error::Closed)));
        }
        queue
    };
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(consumer.len(), 7);
    assert_eq!(
        consumer.iter().map(|message| message.unwrap().seq()).collect::<Vec<_>>(),
        (2..9).collect::<Vec<_>>()
    );
    assert_eq!(drain(&consumer), (2..9).collect::<Vec<_>>());
    assert_eq!((consumer.len(), queue.len()), (0, 0), "there is no other consumer");
}

#[test]
fn what_is_given_back_comes_first_and_counts_its_attempts() {
    let (_dir, queue) = filled(6);
    let consumer = queue.consumer("w").unwrap();
    let (a, b, c) = (next(&consumer), next(&consumer), next(&consumer));
    assert_eq!((a.attempts(), b.attempts(), c.attempts()), (1, 1, 1));
    c.nack();
    drop(a);
    let again = next(&consumer);
    assert_eq!((again.seq(), again.attempts()), (0, 2), "the oldest first");
    let other = next(&consumer);
    assert_eq!((other.seq(), other.attempts()), (2, 2));
    assert_eq!(next(&consumer).seq(), 3, "then what was never handed out; it goes back at once");
    again.nack();
    let third = next(&consumer);
    assert_eq!((third.seq(), third.attempts()), (0, 3));
    third.ack().unwrap();
    b.ack().unwrap();
    other.ack().unwrap();
    assert_eq!(drain(&consumer), [3, 4, 5]);
}

#[test]
fn a_panic_gives_the_message_back() {
    let (_dir, queue) = filled(2);
    let consumer = queue.consumer("w").unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _job = next(&consumer);
        std::panic::resume_unwind(Box::new("part of the test"));
    }));
    assert!(panic.is_err());
    assert_eq!(consumer.in_flight(), 0);
    let job = next(&consumer);
    assert_eq!((job.seq(), job.attempts()), (0, 2));
    job.ack().unwrap();
    assert_eq!(drain(&consumer), [1]);
}

#[test]
fn dequeue_peek_and_skip_mix_with_deliveries() {
    let (dir, queue) = filled(8);
    let consumer = queue.consumer("w").unwrap();
    let zero = next(&consumer);
    assert_eq!(consumer.peek().unwrap().unwrap().seq(), 1, "what is in flight is passed over");
    assert_eq!(consumer.dequeue().unwrap().unwrap().seq(), 1);
    assert_eq!(consumer.skip().unwrap(), Some(2));
    let three = next(&consumer);
    zero.nack();
    assert_eq!(consumer.peek().unwrap().unwrap().seq(), 0, "what was given back comes first");
    let mut buffer = Vec::new();
    assert_eq!(consumer.dequeue_into(&mut buffer).unwrap(), Some(0));
    assert_eq!(
        consumer.dequeue_batch(2).unwrap().iter().map(|m| m.seq()).collect::<Vec<_>>(),
        [4, 5]
    );
    assert_eq!(consumer.len(), 3);
    three.nack();
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(consumer.len(), 3);
    assert_eq!(drain(&consumer), [3, 6, 7]);
}

#[test]
fn none_in_flight_is_no_limit_and_is_refused() {
    let (_dir, queue) = filled(2);
    assert_eq!(queue.in_flight(), 0, "it never read");
    let consumer = queue.consumer("w").unwrap();
    for refused in [queue.set_max_in_flight(0), consumer.set_max_in_flight(Some(0))] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    }
    let held = queue.receive().unwrap();
    assert_eq!((queue.in_flight(), consumer.in_flight()), (1, 0));
    queue.remove_consumer("w").unwrap();
    assert!(matches!(consumer.set_max_in_flight(1), Err(Error::NotFound { .. })));
    drop(held);
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn the_queue_itself_hands_out_too() {
    let (dir, queue) = filled(3);
    queue.set_max_in_flight(2).unwrap();
    let first = queue.receive().unwrap().unwrap();
    let second = queue.receive().unwrap().unwrap();
    assert!(queue.receive().unwrap().is_none(), "two are allowed");
    second.ack().unwrap();
    assert_eq!(queue.len(), 2);
    drop(first);
    let queue = reopen(&dir, queue);
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 0);
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 2);
    assert!(queue.dequeue().unwrap().is_none());
}

#[test]
fn no_more_are_in_flight_than_allowed() {
    let (_dir, queue) = filled(5);
    let consumer = queue.consumer("w").unwrap();
    consumer.set_max_in_flight(2).unwrap();
    let (a, b) = (next(&consumer), next(&consumer));
    assert!(consumer.receive().unwrap().is_none());
    assert!(consumer.receive_timeout(Duration::from_millis(20)).unwrap().is_none());
    assert_eq!(consumer.dequeue().unwrap().unwrap().seq(), 2, "dequeue needs no allowance");
    b.ack().unwrap();
    let c = next(&consumer);
    assert!(consumer.receive().unwrap().is_none());
    a.nack();
    let again = next(&consumer);
    assert_eq!(again.seq(), 0);
    consumer.set_max_in_flight(None).unwrap();
    let d = next(&consumer);
    assert_eq!((c.seq(), d.seq(), consumer.in_flight()), (3, 4, 3));
    // Whoever waits for an allowance is woken when one comes.
    consumer.set_max_in_flight(3).unwrap();
    queue.enqueue(messages().bytes(5)).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope
            .spawn(|| consumer.receive_timeout(Duration::from_secs(20)).unwrap().map(|d| d.seq()));
        std::thread::sleep(Duration::from_millis(50));
        c.ack().unwrap();
        assert_eq!(waiter.join().unwrap(), Some(5));
    });
}

#[test]
fn a_seek_calls_off_what_is_in_flight() {
    let (dir, queue) = filled(20);
    let consumer = queue.consumer("w").unwrap();
    let held: Vec<_> = (0..10).map(|_| next(&consumer)).collect();
    let mut held = held.into_iter();
    let zero = held.next().unwrap();
    held.nth(3).unwrap().ack().unwrap();
    consumer.seek(2).unwrap();
    assert_eq!((consumer.len(), consumer.in_flight()), (18, 0));
    zero.ack().unwrap();
    drop(held);
    assert_eq!(consumer.len(), 18, "acknowledging what was called off changes nothing");
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(
        drain(&consumer),
        (2..20).collect::<Vec<_>>(),
        "4 was acknowledged before the seek, and comes again"
    );
}

#[test]
fn a_fork_gets_what_is_not_acknowledged() {
    let (dir, queue) = filled(10);
    let consumer = queue.consumer("w").unwrap();
    let held: Vec<_> = (0..6).map(|_| next(&consumer)).collect();
    let keep: Vec<_> = held
        .into_iter()
        .filter_map(|delivery| match delivery.seq() {
            0 | 3 | 4 => {
                delivery.ack().unwrap();
                None
            }
            _ => Some(delivery),
        })
        .collect();
    let fork = consumer.fork("f").unwrap();
    assert_eq!((fork.len(), consumer.len()), (7, 7));
    drop(keep);
    drop((consumer, fork));
    let queue = reopen(&dir, queue);
    assert_eq!(drain(&queue.consumer("f").unwrap()), [1, 2, 5, 6, 7, 8, 9]);
    assert_eq!(drain(&queue.consumer("w").unwrap()), [1, 2, 5, 6, 7, 8, 9]);
}

#[test]
fn a_removed_consumer_and_one_made_anew_under_its_name_share_nothing() {
    let (_dir, queue) = filled(6);
    let consumer = queue.consumer("w").unwrap();
    let (a, b) = (next(&consumer), next(&consumer));
    b.ack().unwrap();
    queue.remove_consumer("w").unwrap();
    assert!(matches!(a.ack(), Err(Error::NotFound { .. })));
    assert!(matches!(consumer.receive(), Err(Error::NotFound { .. })));
    let anew = queue.consumer("w").unwrap();
    assert_eq!(drain(&anew), (0..6).collect::<Vec<_>>());
}

#[test]
fn deliveries_go_to_other_threads_and_outlive_the_queue() {
    let (_dir, queue) = filled(3);
    let delivery = queue.receive().unwrap().unwrap();
    let text = delivery.to_vec();
    let thread = std::thread::spawn(move || {
        drop(queue);
        delivery
    });
    let delivery = thread.join().unwrap();
    assert_eq!(&delivery[..], &text[..]);
    assert!(matches!(delivery.ack(), Err(Error::Closed)));
}

#[test]
fn every_operation_count_flushes_acks_too() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).flush_every_ops(1).open(dir.path()).unwrap();
    queue.enqueue("a").unwrap();
    queue.enqueue("b").unwrap();
    let (a, b) = (queue.receive().unwrap().unwrap(), queue.receive().unwrap().unwrap());
    b.ack().unwrap();
    a.ack().unwrap();
    assert_eq!(queue.stats().dequeued, 2);
    assert!(queue.is_empty());
}

#[test]
fn a_waiting_receiver_is_woken_by_a_message_given_back() {
    let (_dir, queue) = filled(1);
    within(Duration::from_secs(30), move || {
        let consumer = queue.consumer("w").unwrap();
        let held = next(&consumer);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let delivery = consumer.receive_timeout(Duration::from_secs(20)).unwrap().unwrap();
                (delivery.seq(), delivery.attempts())
            });
            std::thread::sleep(Duration::from_millis(30));
            held.nack();
            assert_eq!(waiter.join().unwrap(), (0, 2));
        });
    });
}
