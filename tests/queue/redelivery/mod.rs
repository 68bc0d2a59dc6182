//! Messages that come again: leases, delays, counts of attempts, dead letters; and what a job that
//! ends its process comes to.

mod deaths;
mod other_queues;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::eventually;
use mmq::{Consumer, Delivery, Error, GapCause, OnFull, Options, Queue, Redelivery};

const LONG: Duration = Duration::from_secs(600);
const MS: Duration = Duration::from_millis(1);

fn filled(count: u64) -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path().join("q")).unwrap();
    for seq in 0..count {
        queue.enqueue(seq.to_string()).unwrap();
    }
    (dir, queue)
}

fn next(consumer: &Consumer) -> Delivery {
    let delivery = consumer.receive_timeout(LONG).unwrap().expect("a message comes");
    assert_eq!(delivery.as_str().unwrap(), delivery.seq().to_string());
    delivery
}

fn nothing(consumer: &Consumer) {
    assert_eq!(consumer.receive().unwrap().map(|delivery| delivery.seq()), None);
}

/// The next delivery, under a lease that ends soon. Later ones have a long lease.
fn next_under_a_short_lease(workers: &Consumer) -> Delivery {
    workers.set_redelivery(Redelivery::new().lease(30 * MS)).unwrap();
    let delivery = next(workers);
    workers.set_redelivery(Redelivery::new().lease(LONG)).unwrap();
    delivery
}

#[test]
fn a_delivery_whose_lease_ends_goes_to_another_worker_and_its_own_comes_too_late() {
    let (_dir, queue) = filled(2);
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(Redelivery::new().lease(LONG)).unwrap();
    let held = next(&workers);
    let slow = next_under_a_short_lease(&workers);
    // The worker that waits is woken when the lease ends.
    let again = next(&workers);
    assert_eq!((again.seq(), again.attempts()), (1, 2));
    assert!(matches!(slow.extend(LONG), Err(Error::Expired)));
    assert!(matches!(slow.ack(), Err(Error::Expired)));
    again.ack().unwrap();
    nothing(&workers);
    held.ack().unwrap();
    assert_eq!((workers.len(), workers.in_flight()), (0, 0));
    // The one that comes too late gets the error also once the message is done.
    queue.enqueue("2").unwrap();
    let late = next_under_a_short_lease(&workers);
    next(&workers).ack().unwrap();
    assert!(matches!(late.reject(), Err(Error::Expired)));
    // Given back too late: no attempt, and nothing comes twice.
    queue.enqueue("3").unwrap();
    let late = next_under_a_short_lease(&workers);
    let again = next(&workers);
    late.nack();
    nothing(&workers);
    again.ack().unwrap();
    assert!(workers.is_empty());
    // A lease that is extended ends when the extension does.
    queue.enqueue("4").unwrap();
    let extended = next(&workers);
    extended.extend(30 * MS).unwrap();
    assert_eq!(next(&workers).attempts(), 2);
    assert!(matches!(extended.ack(), Err(Error::Expired)));
}

#[test]
fn others_pass_what_is_given_back_for_later() {
    let (_dir, queue) = filled(4);
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(Redelivery::new().backoff(LONG, LONG)).unwrap();
    next(&workers).nack();
    drop(next(&workers));
    // Others pass them, in order.
    assert_eq!((next(&workers).seq(), workers.len()), (2, 4));
    assert_eq!(next(&workers).seq(), 3);
    nothing(&workers);
    // A delay of its own, without any rule, also for the queue's own consumer.
    queue.receive().unwrap().unwrap().nack_after(LONG);
    assert_eq!(queue.receive().unwrap().unwrap().seq(), 1);
    assert_eq!(queue.receive_timeout(LONG).unwrap().unwrap().seq(), 1);
}

#[test]
fn what_is_given_back_comes_after_a_growing_delay() {
    let (_dir, queue) = filled(1);
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(Redelivery::new().backoff(40 * MS, 100 * MS)).unwrap();
    let mut delivery = next(&workers);
    for (attempts, delay) in [(2, 40), (3, 80), (4, 100)] {
        let began = Instant::now();
        delivery.nack();
        delivery = next(&workers);
        assert!(began.elapsed() >= delay * MS);
        assert_eq!(delivery.attempts(), attempts);
    }
    assert_eq!(queue.stats().rejected, 0);
    let delivery = queue.receive().unwrap().unwrap();
    let began = Instant::now();
    delivery.nack_after(50 * MS);
    assert_eq!(queue.receive_timeout(LONG).unwrap().unwrap().seq(), 0);
    assert!(began.elapsed() >= 50 * MS);
}

#[test]
fn attempts_are_counted_over_openings() {
    let (dir, queue) = filled(3);
    let rules = || Redelivery::new().max_attempts(9);
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(rules()).unwrap();
    for attempt in 1..5 {
        let delivery = next(&workers);
        assert_eq!((delivery.seq(), delivery.attempts()), (0, attempt));
        delivery.nack();
    }
    let in_flight = next(&workers);
    drop(queue);
    drop(in_flight);
    let queue = Queue::open(dir.path().join("q")).unwrap();
    let workers = queue.consumer("workers").unwrap();
    // What was with a worker at the end of the run is not held against it.
    workers.set_redelivery(rules()).unwrap();
    assert_eq!(next(&workers).attempts(), 5);
    // A seek forgets all of it.
    workers.seek(0).unwrap();
    assert_eq!(next(&workers).attempts(), 1);
    drop(queue);
    let queue = Queue::open(dir.path().join("q")).unwrap();
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(rules()).unwrap();
    assert_eq!(next(&workers).attempts(), 2);
    // So does another consumer of the name.
    queue.remove_consumer("workers").unwrap();
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(rules()).unwrap();
    assert_eq!(next(&workers).attempts(), 1);
}

#[test]
fn after_the_last_attempt_a_message_is_a_dead_letter() {
    let (dir, queue) = filled(3);
    let dead = Arc::new(Queue::open(dir.path().join("dead")).unwrap());
    let workers = queue.consumer("workers").unwrap();
    let rules = Redelivery::new().max_attempts(2).dead_letters(Arc::clone(&dead));
    workers.set_redelivery(rules).unwrap();
    next(&workers).nack();
    next(&workers).nack();
    let dead_letter = dead.dequeue_timeout(LONG).unwrap().unwrap();
    assert_eq!(dead_letter.as_str(), Ok("0"));
    let origin = dead_letter.origin().expect("a dead letter says where it comes from");
    assert_eq!((origin.queue_id, origin.seq, origin.attempts), (queue.id(), 0, 2));
    eventually("it is durable", || dead.durable_seq() > dead_letter.seq());
    next(&workers).reject().unwrap();
    let dead_letter = dead.receive_timeout(LONG).unwrap().unwrap();
    assert_eq!((dead_letter.as_str(), dead_letter.origin().unwrap().attempts), (Ok("1"), 1));
    dead_letter.ack().unwrap();
    eventually("they are done", || workers.len() == 1 && workers.in_flight() == 0);
    assert_eq!(queue.stats().rejected, 2);
    assert_eq!(next(&workers).seq(), 2);
    assert_eq!(queue.stats().lost_rejected, 0);
    // The queue for dead letters lives as long as it is asked for.
    drop(dead);
    assert!(matches!(Queue::open(dir.path().join("dead")), Err(Error::Locked { .. })));
    queue.close().unwrap();
    Queue::open(dir.path().join("dead")).unwrap();
}

#[test]
fn a_dead_letter_that_cannot_go_stays_and_is_tried_again() {
    let (dir, queue) = filled(3);
    let options = || Options::new().arena_size(4096).max_bytes(64 << 10);
    let full =
        Arc::new(options().on_full(OnFull::Wait(None)).open(dir.path().join("dead")).unwrap());
    while full.stats().disk_bytes < 60 << 10 {
        full.enqueue([7; 1000]).unwrap();
    }
    let workers = queue.consumer("workers").unwrap();
    let rules = || {
        Redelivery::new().max_attempts(1).backoff(10 * MS, 10 * MS).dead_letters(Arc::clone(&full))
    };
    workers.set_redelivery(rules()).unwrap();
    // Together they are longer than the room that is left.
    for _ in 0..10 {
        queue.enqueue([1; 3000]).unwrap();
    }
    workers.seek(3).unwrap();
    for _ in 0..10 {
        workers.receive().unwrap().unwrap().nack();
    }
    std::thread::sleep(100 * MS);
    let left = workers.len();
    assert!(left >= 1, "they are not lost while there is no room");
    // The queue goes on meanwhile.
    queue.enqueue("another").unwrap();
    queue.flush().unwrap();
    let mut dead_letters = 0;
    eventually("room is made and they go", || {
        dead_letters += u64::from(full.dequeue().unwrap().is_some_and(|it| *it == [1; 3000]));
        workers.len() == 1
    });
    while let Some(message) = full.dequeue().unwrap() {
        dead_letters += u64::from(*message == [1; 3000]);
    }
    assert_eq!(dead_letters, 10);
}

#[test]
fn dead_letters_may_not_come_back() {
    let dir = crate::support::tempdir().unwrap();
    let [a, b, c] =
        ["a", "b", "c"].map(|name| Arc::new(Queue::open(dir.path().join(name)).unwrap()));
    let to = |queue: &Arc<Queue>| Redelivery::new().dead_letters(Arc::clone(queue));
    assert!(matches!(a.set_redelivery(to(&a)), Err(Error::InvalidArgument { .. })));
    a.set_redelivery(to(&b)).unwrap();
    b.consumer("w").unwrap().set_redelivery(to(&c)).unwrap();
    for queue in [&a, &b] {
        let error = c.set_redelivery(to(queue)).unwrap_err();
        assert!(error.to_string().contains("circle"), "{error}");
    }
    // Once the way ends earlier there is none.
    b.remove_consumer("w").unwrap();
    c.set_redelivery(to(&a)).unwrap();
    for bad in [
        Redelivery::new().lease(Duration::ZERO),
        Redelivery::new().backoff(2 * MS, MS),
        Redelivery::new().max_attempts(0),
    ] {
        assert!(matches!(a.set_redelivery(bad), Err(Error::InvalidArgument { .. })));
    }
}

#[test]
fn what_is_rejected_without_a_queue_for_it_is_reported_once_as_a_gap() {
    let (dir, queue) = filled(4);
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(Redelivery::new().max_attempts(1)).unwrap();
    let reported = |workers: &Consumer, first| match workers.receive() {
        Err(Error::Gap(gap)) => {
            assert_eq!((gap.first, gap.last, gap.cause), (first, first, GapCause::Rejected));
        }
        other => panic!("{other:?}"),
    };
    let first = next(&workers);
    next(&workers).nack();
    reported(&workers, 1);
    assert_eq!(queue.stats().lost_rejected, 1);
    next(&workers).reject().unwrap();
    assert_eq!(queue.stats().rejected, 2);
    drop(queue);
    drop(first);
    // It was stored that it is given up.
    let queue = Queue::open(dir.path().join("q")).unwrap();
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(Redelivery::new().max_attempts(7)).unwrap();
    next(&workers).ack().unwrap();
    reported(&workers, 2);
    assert_eq!(next(&workers).seq(), 3);
    assert_eq!(queue.stats().rejected, 0);
}

#[test]
fn a_full_row_of_counts_holds_no_message_back() {
    let (_dir, queue) = filled(2000);
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(Redelivery::new().backoff(LONG, LONG)).unwrap();
    let mut in_flight = Vec::new();
    for seq in 0..2000 {
        let delivery = next(&workers);
        assert_eq!(delivery.seq(), seq);
        match seq {
            0..3 => in_flight.push(delivery),
            _ => delivery.nack(),
        }
    }
    nothing(&workers);
    assert_eq!(workers.stats().in_flight, 3);
}

#[test]
fn a_fifth_consumer_is_not_counted_over_openings() {
    let (dir, queue) = filled(2);
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        let consumer = queue.consumer(name).unwrap();
        consumer.set_redelivery(Redelivery::new()).unwrap();
        next(&consumer).nack();
        assert_eq!(next(&consumer).attempts(), 2);
    }
    drop(queue);
    let queue = Queue::open(dir.path().join("q")).unwrap();
    let attempts = names.map(|name| {
        let consumer = queue.consumer(name).unwrap();
        consumer.set_redelivery(Redelivery::new()).unwrap();
        next(&consumer).attempts()
    });
    assert_eq!(attempts, [3, 3, 3, 3, 1]);
}

/// A future waits for a delay, and its waker, which the storage worker calls, needs the storage
/// worker.
#[cfg(feature = "async")]
#[test]
fn a_waker_that_the_keeper_calls_may_enqueue() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    struct Enqueues(Arc<Queue>, AtomicBool);
    impl Wake for Enqueues {
        fn wake(self: Arc<Self>) {
            for _ in 0..2000 {
                self.0.enqueue([7; 1000]).unwrap();
            }
            self.1.store(true, Ordering::SeqCst);
        }
    }

    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(64 << 10).max_bytes(1 << 20);
    let queue = Arc::new(options.on_full(OnFull::DropOldest).open(dir.path()).unwrap());
    let workers = queue.consumer("workers").unwrap();
    queue.enqueue("0").unwrap();
    next(&workers).nack_after(50 * MS);
    let waker = Arc::new(Enqueues(Arc::clone(&queue), AtomicBool::new(false)));
    let mut future = std::pin::pin!(workers.recv_delivery());
    let task = Waker::from(Arc::clone(&waker));
    assert!(future.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
    eventually("the waker returns", || waker.1.load(Ordering::SeqCst));
}
