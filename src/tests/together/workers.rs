//! Producers at the limit, the storage worker that makes room for them, and the delivery worker
//! that runs the program's code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::{Queue, go, open, small, under};
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::Read;
use crate::engine::reading::{self, AsMessage};
use crate::engine::{Background, Engine};
use crate::error::{Error, GapCause, Result};
use crate::format::Origin;
use crate::options::{OnFull, Options};
use crate::redelivery::OtherQueue;
use crate::tests::schedule;
use crate::threads::waiting::Signal;
use crate::threads::worker::NO_THREADS;
use crate::threads::{JoinHandle, now, park_timeout};

const MESSAGES: u64 = 40;

fn producer(name: &str, queue: &Queue) -> JoinHandle {
    let queue = Queue::clone(queue);
    go(name, move || {
        for _ in 0..MESSAGES {
            queue.enqueue(&[1; 2000]).unwrap();
        }
    })
}

/// What a producer waits for the storage worker does, and every message comes or is reported as
/// dropped.
#[test]
fn producers_at_the_limit_wait_for_the_storage_worker_and_go_on() {
    let ahead = || Options::new().arena_size(8192).max_bytes(140 << 10);
    for limit in [|| small(4), ahead] {
        under(60, move || {
            let queue = open(&limit().on_full(OnFull::DropOldest), Background::Workers);
            let consumer = queue.consumer("").unwrap();
            let producers = ["1", "2"].map(|name| producer(name, &queue));
            producers.into_iter().for_each(JoinHandle::join);
            let mut next = 0;
            loop {
                match reading::next(&queue, &consumer, Read::Take) {
                    Ok(Some(message)) => assert_eq!(message.seq(), next),
                    Ok(None) => break,
                    Err(Error::Gap(gap)) => {
                        assert_eq!((gap.first, gap.cause), (next, GapCause::Dropped));
                        next = gap.last;
                    }
                    Err(error) => panic!("{error}"),
                }
                next += 1;
            }
            assert_eq!(next, 2 * MESSAGES);
            queue.close().unwrap();
        });
    }
}

/// A waker that enqueues, as it may.
struct Enqueues {
    queue: Queue,
    woken: AtomicU64,
}

impl Wake for Enqueues {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.queue.enqueue(&[2; 2000]).unwrap();
    }
}

/// Where only durable messages are visible a flush wakes readers. The storage worker leads it for
/// a future, while a producer that holds the producers' lock waits for the storage worker, and the
/// waker waits for that lock.
#[test]
fn a_waker_may_enqueue_while_producers_wait_for_the_storage_worker() {
    under(60, || {
        let limit = small(4).on_full(OnFull::DropOldest).flush_every_ops(1);
        let queue = open(&limit, Background::Workers);
        let consumer = queue.consumer("").unwrap();
        let waking = Enqueues { queue: Queue::clone(&queue), woken: AtomicU64::new(0) };
        let waking = Arc::new(waking);
        let ticket = {
            let signal = Signal::Task(Waker::from(Arc::clone(&waking)));
            queue.join(&consumer, signal)
        };
        let producer = producer("producer", &queue);
        for _ in 0..8 {
            // What a future of a flush asks for.
            queue.core.storage_worker.request(|wanted| wanted.flush_for_tasks = true);
            let signal = Signal::Task(Waker::from(Arc::clone(&waking)));
            queue.core.waiters.rearm(ticket, signal);
        }
        producer.join();
        queue.leave(&consumer, ticket);
        queue.close().unwrap();
        assert!(waking.woken.load(Ordering::SeqCst) > 0);
    });
}

/// A waker that enqueues, and notes what came of it.
struct Notes(Queue, Mutex<Option<Result<u64>>>);

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        let outcome = self.0.enqueue(&[2; 2000]);
        *self.1.lock().unwrap() = Some(outcome);
    }
}

/// Only its worker could end the leases whose messages keep the room.
#[test]
fn a_waker_on_the_delivery_worker_does_not_wait_for_room() {
    under(20, || {
        let queue = open(&small(4), Background::Workers);
        while queue.enqueue(&[1; 2000]).is_ok() {}
        let queue = {
            let storage = queue.core.storage.clone();
            queue.close().unwrap();
            let waits = small(4).on_full(OnFull::Wait(None));
            Arc::new(Engine::open(storage, &waits).unwrap())
        };
        let notes = Arc::new(Notes(Arc::clone(&queue), Mutex::default()));
        let consumer = queue.consumer("").unwrap();
        let waker = Waker::from(Arc::clone(&notes));
        let ticket = queue.join(&consumer, Signal::Task(waker));
        queue.core.delivery_worker.request(|wanted| wanted.wake_readers = true);
        schedule::wait_until_quiet();
        let outcome = notes.1.lock().unwrap().take();
        assert!(matches!(outcome, Some(Err(Error::Full { .. }))), "{outcome:?}");
        queue.leave(&consumer, ticket);
        queue.close().unwrap();
    });
}

/// A waker that closes another queue.
struct Closes(Queue);

impl Wake for Closes {
    fn wake(self: Arc<Self>) {
        self.0.close().unwrap();
    }
}

/// The delivery workers of queues in a circle each call a waker that closes the next queue: a close
/// waits for the other worker's end.
#[test]
fn workers_that_close_each_others_queues_do_not_wait_for_each_other() {
    for count in [2, 3] {
        under(200, move || workers_close_each_others_queues(count));
    }
}

fn workers_close_each_others_queues(count: usize) {
    let queues: Vec<Queue> = (0..count).map(|_| open(&small(4), Background::Workers)).collect();
    for (at, queue) in queues.iter().enumerate() {
        let next = Arc::clone(&queues[(at + 1) % count]);
        let consumer = queue.consumer("").unwrap();
        queue.enqueue(b"message").unwrap();
        queue.join(&consumer, Signal::Task(Waker::from(Arc::new(Closes(next)))));
    }
    for queue in &queues {
        queue.core.delivery_worker.request(|wanted| wanted.wake_readers = true);
    }
    let close = |queue: &Queue| {
        queue.close().unwrap();
        queue.core.storage.contents()
    };
    let closed: Vec<_> = queues.iter().map(close).collect();
    schedule::wait_until_quiet();
    for (queue, contents) in queues.iter().zip(closed) {
        assert!(queue.core.storage.contents() == contents, "the files changed after the close");
        assert!(!queue.core.delivery_worker.is_running());
    }
}

/// Another queue, which takes its time.
#[derive(Default)]
struct DeadLetterQueue(Mutex<Vec<u64>>);

impl DeadLetters for DeadLetterQueue {
    fn put(&self, _: &[u8], origin: &Origin) -> Result<()> {
        now();
        self.0.lock().unwrap().push(origin.seq);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        park_timeout(Duration::from_millis(1));
        Ok(())
    }

    fn id(&self) -> usize {
        0
    }

    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        Vec::new()
    }
}

/// Another queue, whose disk writes only when the reader in the test has its message.
#[derive(Default)]
struct SlowDisk(AtomicBool);

impl DeadLetters for SlowDisk {
    fn put(&self, _: &[u8], _: &Origin) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        while !self.0.load(Ordering::SeqCst) {
            park_timeout(Duration::from_secs(1));
        }
        Ok(())
    }

    fn id(&self) -> usize {
        0
    }

    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        Vec::new()
    }
}

/// One consumer's dead letter is on its way when another consumer's lease ends.
fn a_lease_ends_beside_a_dead_letter() {
    let disk = Arc::new(SlowDisk::default());
    let queue = open(&small(4), Background::Workers);
    let [rejects, waits] = ["a", "b"].map(|name| queue.consumer(name).unwrap());
    let dead = Rules { dead_letters: Some(Arc::clone(&disk) as _), ..Rules::default() };
    queue.set_redelivery(&rejects, dead).unwrap();
    let lease = Some(Duration::from_millis(100));
    queue.set_redelivery(&waits, Rules { lease, ..Rules::default() }).unwrap();
    queue.enqueue(b"job").unwrap();
    let _out = queue.receive(&waits, AsMessage).unwrap().unwrap();
    let (message, handed) = queue.receive(&rejects, AsMessage).unwrap().unwrap();
    queue.reject(&rejects, message.seq(), handed).unwrap();
    let again = queue.wait(&waits, None, || queue.receive_awaited(&waits, AsMessage));
    disk.0.store(true, Ordering::SeqCst);
    assert!(again.unwrap().is_some());
    queue.close().unwrap();
}

#[test]
fn a_lease_ends_though_a_dead_letter_waits_for_the_other_queues_disk() {
    under(60, a_lease_ends_beside_a_dead_letter);
}

/// Workers reject everything, and the queue is closed at once: each message is a dead letter once.
fn dead_letters_go_before(close: impl FnOnce(&Queue)) {
    let dead_letters = Arc::new(DeadLetterQueue::default());
    let rules = || Rules { dead_letters: Some(Arc::clone(&dead_letters) as _), ..Rules::default() };
    let queue = open(&small(4), Background::Workers);
    let consumer = queue.consumer("").unwrap();
    queue.set_redelivery(&consumer, rules()).unwrap();
    for _ in 0..6 {
        queue.enqueue(b"job").unwrap();
    }
    while let Some((message, handed)) = queue.receive(&consumer, AsMessage).unwrap() {
        queue.reject(&consumer, message.seq(), handed).unwrap();
    }
    close(&queue);
    let mut sent = dead_letters.0.lock().unwrap().clone();
    sent.sort_unstable();
    assert_eq!(sent, [0, 1, 2, 3, 4, 5]);
    let storage = queue.core.storage.process_kill();
    let queue = Engine::open_without_workers(storage, &small(4)).unwrap();
    assert_eq!(queue.consumer("").unwrap().len(&queue.core), 0, "messages that went wait here");
}

fn dead_letters_go_before_the_close() {
    dead_letters_go_before(|queue| queue.close().unwrap());
}

fn dead_letters_go_before_two_closes() {
    fn close(queue: &Queue) -> BTreeMap<String, Vec<u8>> {
        queue.close().unwrap();
        queue.core.storage.contents()
    }
    dead_letters_go_before(|queue| {
        let (other, left) = (Arc::clone(queue), Arc::new(Mutex::new(None)));
        let into = Arc::clone(&left);
        let other = go("other", move || *into.lock().unwrap() = Some(close(&other)));
        let closed = close(queue);
        other.join();
        let contents = queue.core.storage.contents();
        let other = left.lock().unwrap().take();
        assert!(closed == contents && other == Some(contents), "the files changed after a close");
    });
}

#[test]
fn an_orderly_close_sends_each_dead_letter_once() {
    under(100, dead_letters_go_before_the_close);
    under(100, dead_letters_go_before_two_closes);
}

/// The call that rejects carries the dead letter, and another thread closes the queue meanwhile:
/// what went is done, and a power cut does not bring it back.
fn a_call_carries_a_dead_letter_beside_the_close() {
    let dead_letters = Arc::new(DeadLetterQueue::default());
    let rules = Rules { dead_letters: Some(Arc::clone(&dead_letters) as _), ..Rules::default() };
    let queue = open(&small(4), Background::Calls);
    let consumer = queue.consumer("").unwrap();
    queue.set_redelivery(&consumer, rules).unwrap();
    queue.enqueue(b"job").unwrap();
    let (message, handed) = queue.receive(&consumer, AsMessage).unwrap().unwrap();
    let worker = {
        let queue = Arc::clone(&queue);
        go("worker", move || {
            queue.reject(&consumer, message.seq(), handed).unwrap();
        })
    };
    while dead_letters.0.lock().unwrap().is_empty() {
        park_timeout(Duration::from_micros(50));
    }
    queue.close().unwrap();
    worker.join();
    assert_eq!(*dead_letters.0.lock().unwrap(), [0]);
    for seed in 0..4 {
        let storage = queue.core.storage.power_cut(seed);
        let again = Engine::open_without_workers(storage, &small(4)).unwrap();
        let left = again.consumer("").unwrap().len(&again.core);
        assert_eq!(left, 0, "the message whose dead letter went comes again");
    }
}

#[test]
fn a_close_waits_for_the_call_that_carries_a_dead_letter() {
    under(60, a_call_carries_a_dead_letter_beside_the_close);
}

/// A thread reads by the default consumer, and another one removes it.
fn the_default_consumer_is_removed_meanwhile() {
    let queue = open(&small(4), Background::Calls);
    for _ in 0..4 {
        queue.enqueue(b"message").unwrap();
    }
    let reader = {
        let queue = Arc::clone(&queue);
        go("reader", move || {
            let consumer = || queue.default_consumer().unwrap();
            for _ in 0..2 {
                assert!(reading::next(&queue, consumer(), Read::Look).unwrap().is_some());
                let received = queue.receive(consumer(), AsMessage).unwrap();
                let (message, handed) = received.unwrap();
                queue.nack(consumer(), message.seq(), handed, None);
            }
        })
    };
    for _ in 0..2 {
        let _ = queue.remove_consumer("");
    }
    reader.join();
}

#[test]
fn a_read_by_the_default_consumer_has_it_begin_also_when_it_was_just_removed() {
    under(100, the_default_consumer_is_removed_meanwhile);
}

/// A lease ends while a reader waits, and the worker that would look at it cannot start.
#[test]
fn a_reader_sees_a_lease_end_where_no_worker_can_start() {
    under(20, || {
        NO_THREADS.set(true);
        let queue = open(&small(6), Background::Workers);
        let consumer = queue.consumer("a").unwrap();
        let rules = Rules { lease: Some(Duration::from_millis(10)), ..Rules::default() };
        queue.set_redelivery(&consumer, rules).unwrap();
        queue.enqueue(b"job").unwrap();
        let _out = queue.receive(&consumer, AsMessage).unwrap().unwrap();
        let deadline = Some(now() + Duration::from_secs(5));
        let again = queue.wait(&consumer, deadline, || queue.receive_awaited(&consumer, AsMessage));
        NO_THREADS.set(false);
        assert!(again.unwrap().is_some());
    });
}

/// Who waits in the queue for dead letters has a waker that closes the queue that the dead letters
/// come from, by itself or by another queue's worker: each dead letter goes once.
#[test]
fn a_dead_letter_goes_once_though_a_waker_of_its_queue_closes_where_it_comes_from() {
    for through_another in [false, true] {
        under(if through_another { 200 } else { 20 }, move || {
            a_dead_letter_goes_once(through_another);
        });
    }
}

fn a_dead_letter_goes_once(through_another: bool) {
    let [jobs, dead, other] = [(); 3].map(|()| open(&small(6), Background::Workers));
    let rules = || Rules {
        dead_letters: Some(Arc::new(OtherQueue::of(&dead)) as Arc<dyn DeadLetters>),
        ..Rules::default()
    };
    let closes = |queue: &Queue| Signal::Task(Waker::from(Arc::new(Closes(Arc::clone(queue)))));
    let consumer = jobs.consumer("a").unwrap();
    jobs.set_redelivery(&consumer, rules()).unwrap();
    if through_another {
        other.enqueue(b"message").unwrap();
        other.join(&other.consumer("").unwrap(), closes(&jobs));
    }
    let first = if through_another { &other } else { &jobs };
    dead.join(&dead.consumer("").unwrap(), closes(first));
    jobs.enqueue(b"job").unwrap();
    if let Ok(Some((message, handed))) = jobs.receive(&consumer, AsMessage) {
        let _ = jobs.reject(&consumer, message.seq(), handed);
    }
    if through_another {
        other.core.delivery_worker.request(|wanted| wanted.wake_readers = true);
    }
    schedule::wait_until_quiet();
    jobs.close().unwrap();
    schedule::wait_until_quiet();
    let again =
        Arc::new(Engine::open_without_workers(jobs.core.storage.clone(), &small(6)).unwrap());
    let consumer = again.consumer("a").unwrap();
    again.set_redelivery(&consumer, rules()).unwrap();
    let _ = again.receive(&consumer, AsMessage);
    again.close().unwrap();
    assert!(dead.core.visible.spot().seq <= 1);
}
