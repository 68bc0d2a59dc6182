//! Deliveries that are received and acknowledged many at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{drain, filled, reopen};
use mmq::{Delivery, Error, Options, Redelivery};

fn seqs(jobs: &[Delivery]) -> Vec<u64> {
    jobs.iter().map(Delivery::seq).collect()
}

#[test]
fn a_batch_is_received_and_acknowledged_in_one_step() {
    let (dir, queue) = filled(500);
    let consumer = queue.consumer("w").unwrap();
    let first = consumer.receive_batch(200).unwrap();
    let second = consumer.receive_batch(1000).unwrap();
    assert_eq!(seqs(&first), (0..200).collect::<Vec<_>>());
    assert_eq!(seqs(&second), (200..500).collect::<Vec<_>>());
    assert!(consumer.receive_batch(9).unwrap().is_empty());
    assert_eq!(consumer.in_flight(), 500);
    // In any order, and some come again.
    let (odd, even): (Vec<_>, Vec<_>) = second.into_iter().partition(|job| job.seq() % 2 == 1);
    Delivery::ack_batch(even).unwrap();
    drop(odd);
    Delivery::ack_batch(first).unwrap();
    assert_eq!((consumer.len(), consumer.in_flight()), (150, 0));
    let again = consumer.receive_batch(2).unwrap();
    assert_eq!(seqs(&again), [201, 203]);
    assert!(again.iter().all(|job| job.attempts() == 2));
    drop((again, consumer));
    let queue = reopen(&dir, queue);
    let left = drain(&queue.consumer("w").unwrap());
    assert!(left.iter().take(100).all(|seq| seq % 2 == 1) && left.len() >= 150, "{left:?}");
}

#[test]
fn a_batch_heeds_the_limit_of_messages_in_flight() {
    let (_dir, queue) = filled(50);
    let consumer = queue.consumer("w").unwrap();
    consumer.set_max_in_flight(7).unwrap();
    let jobs = consumer.receive_batch(20).unwrap();
    assert_eq!(jobs.len(), 7);
    assert!(consumer.receive_batch(20).unwrap().is_empty());
    Delivery::ack_batch(jobs).unwrap();
    assert_eq!(seqs(&consumer.receive_batch(20).unwrap()), (7..14).collect::<Vec<_>>());
}

#[test]
fn one_call_acknowledges_deliveries_of_several_consumers_and_goes_on_behind_a_refused_one() {
    let (_dir, queue) = filled(6);
    let consumers = ["a", "b"].map(|name| queue.consumer(name).unwrap());
    let rules = Redelivery::new().lease(Duration::from_millis(1));
    consumers[0].set_redelivery(rules).unwrap();
    let mut jobs = consumers[0].receive_batch(2).unwrap();
    consumers[0].set_redelivery(Redelivery::new()).unwrap();
    std::thread::sleep(Duration::from_millis(20)); // The lease ends.
    jobs.extend(consumers[1].receive_batch(3).unwrap());
    jobs.extend(consumers[0].receive_batch(6).unwrap());
    let refused = Delivery::ack_batch(jobs);
    assert!(matches!(refused, Err(Error::Expired)), "{refused:?}");
    assert_eq!(consumers[1].len(), 3);
    assert_eq!(consumers[0].in_flight(), 0);
}

/// The work may be done within the iterator, as each delivery is asked for.
#[test]
fn a_panic_while_deliveries_are_acknowledged_gives_all_of_them_back() {
    let (_dir, queue) = filled(5);
    let jobs = queue.receive_batch(4).unwrap();
    let worked = jobs.into_iter().inspect(|job| assert!(job.seq() != 2, "the work failed"));
    let outcome = catch_unwind(AssertUnwindSafe(|| Delivery::ack_batch(worked)));
    assert!(outcome.is_err());
    assert_eq!((queue.in_flight(), queue.len()), (0, 5));
    assert_eq!(seqs(&queue.receive_batch(9).unwrap()), [0, 1, 2, 3, 4]);
}

#[test]
fn a_damaged_message_ends_a_batch_and_the_next_call_reports_it() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    for number in 0..10 {
        queue.enqueue(format!("the message {number}")).unwrap();
    }
    queue.close().unwrap();
    let segment = dir.path().join("segment-00000000");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(13).position(|window| window == b"the message 4").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let queue = mmq::Queue::open(dir.path()).unwrap();
    assert_eq!(seqs(&queue.receive_batch(10).unwrap()), [0, 1, 2, 3]);
    let jobs = queue.receive_batch(10).unwrap();
    assert_eq!(seqs(&jobs), [0, 1, 2, 3], "they were given back");
    let gap = queue.receive_batch(10);
    assert!(matches!(&gap, Err(Error::Gap(gap)) if (gap.first, gap.last) == (4, 4)), "{gap:?}");
    assert_eq!(seqs(&queue.receive_batch(10).unwrap()), [5, 6, 7, 8, 9]);
    Delivery::ack_batch(jobs).unwrap();
}
