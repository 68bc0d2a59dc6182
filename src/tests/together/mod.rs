//! A few threads under many schedules: what one of them waits for, the others bring.
//!
//! Each program is run by as many schedules as a test says. A schedule in which nobody can go on,
//! or in which a thread panics, is a failure. `MMQ_SEED` is the schedule that runs alone, and
//! `MMQ_EFFORT` how many times as many run. (`world` draws whole lives; here the program is
//! given, and the order of its steps is drawn.)

mod batches;
mod closes;
mod cuts;
mod failing;
mod forks;
mod interrupts;
mod made;
mod parts;
mod places;
#[cfg(feature = "async")]
pub(in crate::tests) mod tasks;
mod workers;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::commit::storage_worker::Leaving;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{DeliveryToken, Lane, Read};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::reading::{self, AsMessage};
use crate::engine::{Background, Engine};
use crate::error::Error;
use crate::options::{OnFull, Options};
use crate::segment::MOST_UNSYNCED_HERE;
use crate::tests::effort::{alone, effort, first};
use crate::tests::schedule::{self, Plan};
use crate::tests::sim::SimStorage;
use crate::threads::waiting::Signal;
use crate::threads::{self, JoinHandle};

type Queue = Arc<Engine<SimStorage>>;
type Consumer = Arc<ConsumerState<SimStorage>>;

/// The seeds of that many schedules.
fn seeds(schedules: u64) -> Range<u64> {
    let schedules = (schedules * effort()).div_ceil(4);
    let first = first().unwrap_or(0);
    alone().map_or(first..first + schedules, |seed| seed..seed + 1)
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        switch_one_in: [2, 4, 16, 64, 256][(seed % 5) as usize],
        by_rank: seed / 5 % 2 == 1,
        slow: [0, 100_000][(seed / 10 % 2) as usize],
        dies_at: None,
        on_death: Box::new(|| ()),
        most_steps: schedule::MOST_STEPS,
        log: None,
    }
}

/// Runs the program by that many schedules.
fn under(schedules: u64, program: impl Fn() + Copy + Send + 'static) {
    for seed in seeds(schedules) {
        let outcome = schedule::run(plan(seed), program);
        assert_eq!(outcome.failure, None, "MMQ_SEED={seed} is the schedule");
    }
}

fn open(options: &Options, background: Background) -> Queue {
    let storage = SimStorage::new(7).with_file_capacity(128 << 10);
    Arc::new(Engine::open_with(storage, options, background).unwrap())
}

/// Segments of 8 KiB, and room for so many.
fn small(segments: u64) -> Options {
    let index = crate::format::index_at::END as u64;
    Options::new().arena_size(8192).max_bytes(index + segments * 8192 + 4096)
}

fn go(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle {
    threads::spawn(name, work).unwrap()
}

/// Waits until a message comes; its number.
fn take_next(queue: &Queue, consumer: &Consumer) -> u64 {
    let take = || reading::take_awaited(queue, consumer);
    queue.wait(consumer, None, take).unwrap().unwrap().seq()
}

/// Waits until a message comes, and does not acknowledge it.
fn receive_next(queue: &Queue, consumer: &Consumer) -> (u64, DeliveryToken) {
    let receive = || queue.receive(consumer, AsMessage);
    let (message, handed) = queue.wait(consumer, None, receive).unwrap().unwrap();
    (message.seq(), handed)
}

/// A thread that takes the next message.
fn taker(name: &str, queue: &Queue, consumer: &str) -> JoinHandle {
    let (queue, consumer) = (Arc::clone(queue), queue.consumer(consumer).unwrap());
    go(name, move || {
        take_next(&queue, &consumer);
    })
}

#[test]
fn a_message_wakes_a_waiter_of_every_consumer() {
    under(20, || {
        let queue = open(&small(4), Background::Calls);
        let takers = ["a", "b", "c"].map(|name| taker(name, &queue, name));
        schedule::wait_until_quiet();
        queue.enqueue(b"one").unwrap();
        takers.into_iter().for_each(JoinHandle::join);
    });
}

/// Who is woken may find two messages, and takes one.
#[test]
fn who_leaves_the_line_wakes_the_next_for_what_is_left() {
    under(300, || {
        let queue = open(&small(4), Background::Calls);
        let takers = ["1", "2"].map(|name| taker(name, &queue, "c"));
        let producer = Arc::clone(&queue);
        let producer = go("producer", move || {
            producer.enqueue(b"one").unwrap();
            producer.enqueue(b"two").unwrap();
        });
        producer.join();
        takers.into_iter().for_each(JoinHandle::join);
    });
}

/// The first in line may have no more deliveries, and the second needs none.
#[test]
fn who_cannot_use_a_message_passes_the_news_on() {
    under(20, || {
        let queue = open(&small(4), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        queue.set_max_in_flight(&consumer, Some(1)).unwrap();
        queue.enqueue(b"one").unwrap();
        let (seq, handed) = receive_next(&queue, &consumer);
        let receiver = {
            let (queue, consumer) = (Arc::clone(&queue), Arc::clone(&consumer));
            go("receiver", move || assert_eq!(receive_next(&queue, &consumer).0, 2))
        };
        schedule::wait_until_quiet();
        let taker = taker("taker", &queue, "c");
        schedule::wait_until_quiet();
        queue.enqueue(b"two").unwrap();
        taker.join();
        queue.enqueue(b"three").unwrap();
        queue.ack(&consumer, seq, handed).unwrap();
        receiver.join();
    });
}

/// A delivery that is acknowledged leaves an allowance; one that is given back leaves its message,
/// too; and a seek brings all of them back.
#[test]
fn what_leaves_an_allowance_wakes_who_waits_for_one() {
    type Leave = fn(&Queue, &Consumer, u64, DeliveryToken);
    let ways: [(u64, Leave); 3] = [
        (1, |queue, consumer, seq, handed| queue.ack(consumer, seq, handed).unwrap()),
        (0, |queue, consumer, seq, handed| queue.nack(consumer, seq, handed, None)),
        (0, |queue, consumer, _, _| queue.seek(consumer, 0).unwrap()),
    ];
    for (expected, leave) in ways {
        under(20, move || {
            let queue = open(&small(4), Background::Calls);
            let consumer = queue.consumer("c").unwrap();
            queue.set_max_in_flight(&consumer, Some(1)).unwrap();
            queue.enqueue_batch(&[b"one", b"two"]).unwrap();
            let (seq, handed) = receive_next(&queue, &consumer);
            let receiver = {
                let (queue, consumer) = (Arc::clone(&queue), Arc::clone(&consumer));
                go("receiver", move || assert_eq!(receive_next(&queue, &consumer).0, expected))
            };
            schedule::wait_until_quiet();
            leave(&queue, &consumer, seq, handed);
            receiver.join();
        });
    }
}

/// Calls `work` while a producer holds its lock, as it does while it waits for a sync.
fn beside_a_producer_with_its_lock<R>(queue: &Queue, work: impl FnOnce() -> R) -> R {
    let holds = Arc::clone(queue);
    let producer = go("producer", move || {
        let _writer = holds.core.writer.lock();
        threads::park();
    });
    schedule::wait_until_quiet();
    let done = work();
    let JoinHandle::Scheduled(thread) = &producer else { panic!("no schedule runs it") };
    thread.unpark();
    producer.join();
    done
}

/// The thread that polls a future has others to poll.
#[test]
fn who_begins_to_wait_for_a_message_waits_for_no_producer() {
    under(20, || {
        let queue = open(&small(4), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        let end = queue.core.visible_end();
        let ticket = beside_a_producer_with_its_lock(&queue, || {
            queue.ready_fd(&consumer).unwrap();
            assert_eq!(queue.core.visible_end(), end, "what a read behind damage looks at");
            queue.join(&consumer, Signal::Thread(threads::current()))
        });
        queue.enqueue(b"one").unwrap();
        assert!(queue.core.waiters.is_woken(ticket));
        queue.leave(&consumer, ticket);
    });
}

#[test]
fn a_wait_ends_in_time_while_a_producer_holds_its_lock() {
    under(20, || {
        let queue = open(&small(4), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        let take = || reading::take_awaited(&queue, &consumer);
        let until = threads::now() + Duration::from_millis(1);
        beside_a_producer_with_its_lock(&queue, || {
            assert!(queue.wait(&consumer, Some(until), take).unwrap().is_none());
        });
        assert_eq!(queue.core.message_waiters.load(Ordering::SeqCst), 0);
    });
}

/// Somebody wakes the thread for a reason of its own, before it waits or while it does.
#[test]
fn a_wait_keeps_no_wake_up_that_is_for_its_caller() {
    under(40, || {
        let queue = open(&small(4), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        let caller = threads::current();
        let other = go("other", move || caller.unpark());
        let take = || reading::take_awaited(&queue, &consumer);
        let until = threads::now() + Duration::from_millis(1);
        assert!(queue.wait(&consumer, Some(until), take).unwrap().is_none());
        threads::park();
        other.join();
    });
}

/// A message that comes is nobody's backlog until the fresh lane leaves it behind.
#[test]
fn the_fresh_lane_wakes_who_waits_for_what_it_leaves_behind() {
    under(20, || {
        let queue = open(&small(4), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        let within = Within::Last(1);
        let rules = LaneRules { within, share: (1, 1), rate: None, youngest_first: false };
        queue.set_lanes(&consumer, rules).unwrap();
        let receive = |queue: &Queue, consumer: &Consumer, lane| {
            queue.receive_in_lanes(consumer, AsMessage, Some(lane), &mut None).unwrap()
        };
        let waiter = {
            let (queue, consumer) = (Arc::clone(&queue), Arc::clone(&consumer));
            go("waiter", move || {
                let attempt = || Ok(receive(&queue, &consumer, Lane::Backlog));
                let (message, _) = queue.wait(&consumer, None, attempt).unwrap().unwrap();
                assert_eq!(message.seq(), 0);
            })
        };
        for message in [b"one", b"two", b"six"] {
            queue.enqueue(message).unwrap();
        }
        schedule::wait_until_quiet();
        let fresh = receive(&queue, &consumer, Lane::Fresh);
        assert!(fresh.is_none_or(|(message, _)| message.seq() > 0));
        waiter.join();
    });
}

/// A seek may bring a message to who waits at the end.
#[test]
fn a_seek_wakes_who_waits() {
    under(20, || {
        let queue = open(&small(4), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        queue.enqueue(b"one").unwrap();
        take_next(&queue, &consumer);
        let taker = taker("taker", &queue, "c");
        schedule::wait_until_quiet();
        queue.seek(&consumer, 0).unwrap();
        taker.join();
    });
}

/// Whoever waits for the default consumer learns that it was removed; others wait on.
#[test]
fn a_removal_wakes_who_waits() {
    under(40, || {
        let queue = open(&small(4), Background::Calls);
        let other = taker("other", &queue, "c");
        let waiter = {
            let (queue, consumer) = (Arc::clone(&queue), queue.consumer("").unwrap());
            go("waiter", move || {
                let take = || reading::take_awaited(&queue, &consumer);
                let outcome = queue.wait(&consumer, None, take);
                assert!(matches!(outcome, Err(Error::NotFound { .. })), "{outcome:?}");
            })
        };
        queue.remove_consumer("").unwrap();
        waiter.join();
        assert!(queue.existing_default().is_none());
        queue.enqueue(b"one").unwrap();
        other.join();
    });
}

/// The producer holds its lock while it waits for the storage worker, whose timer flushes
/// meanwhile.
#[test]
fn a_producer_that_waits_for_the_workers_sync_goes_on() {
    for every in [None, Some(Duration::from_micros(100))] {
        under(100, move || {
            let queue = open(&small(9).flush_every(every), Background::Workers);
            let producer = {
                let queue = Arc::clone(&queue);
                go("producer", move || {
                    MOST_UNSYNCED_HERE.set(Some(2));
                    for _ in 0..6 {
                        queue.enqueue(&[1; 6000]).unwrap();
                    }
                })
            };
            producer.join();
            queue.close().unwrap();
        });
    }
}

/// The thread may end at any time, by a panic.
#[test]
fn a_producer_whose_worker_ends_goes_on_by_itself() {
    under(50, || {
        let queue = open(&small(9), Background::Calls);
        // Its numbers are reserved: it does not wait for that.
        queue.enqueue(&[1; 6000]).unwrap();
        // As if a worker ran that never comes to its work.
        queue.core.storage_worker.note_begin();
        let producer = {
            let queue = Arc::clone(&queue);
            go("producer", move || {
                MOST_UNSYNCED_HERE.set(Some(2));
                for _ in 0..6 {
                    queue.enqueue(&[1; 6000]).unwrap();
                }
            })
        };
        schedule::wait_until_quiet();
        drop(Leaving(&queue.core));
        producer.join();
    });
}

/// The storage worker flushes by its timer while a producer is about to publish what it has stored.
#[test]
fn the_durable_mark_never_passes_the_committed_tail() {
    under(100, || {
        let queue = open(&small(9).flush_every(Duration::from_micros(50)), Background::Workers);
        let producer = {
            let queue = Arc::clone(&queue);
            go("producer", move || {
                for _ in 0..20 {
                    queue.enqueue(&[1; 600]).unwrap();
                }
            })
        };
        for _ in 0..200 {
            let durable = queue.core.durable.lock().spot;
            let committed = queue.core.committed().spot();
            assert!(durable.position <= committed.position, "{durable:?} {committed:?}");
        }
        producer.join();
    });
}

/// Who waits for room is woken when a consumer leaves some, and does not sleep until its time is
/// over.
#[test]
fn room_that_comes_in_time_is_used() {
    const LIMIT: Duration = Duration::from_millis(10);
    under(60, || {
        let options = small(4).on_full(OnFull::Wait(Some(LIMIT)));
        let queue = open(&options, Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        while queue.enqueue(&[1; 6000]).is_ok() {}
        let reported = Arc::new(Mutex::new(None));
        let producer = {
            let (queue, reported) = (Arc::clone(&queue), Arc::clone(&reported));
            go("producer", move || {
                let began = threads::now();
                let answer = queue.enqueue(&[1; 6000]).is_ok();
                *reported.lock().unwrap() = Some((began, answer));
            })
        };
        threads::park_timeout(LIMIT / 10);
        while reading::next(&queue, &consumer, Read::Take).unwrap().is_some() {}
        let freed = threads::now();
        producer.join();
        let (began, is_sent) = reported.lock().unwrap().unwrap();
        assert!(is_sent || freed + LIMIT / 2 >= began + LIMIT, "there was room, and time");
    });
}
