//! Messages that come again where something is full, far away, or of an earlier run.

mod another_queue;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::{DeliveryToken, Read};
use crate::engine::{Engine, reading};
use crate::error::{Error, GapCause, Result};
use crate::format::{INDEX_NAME, Origin};
use crate::index::image::IndexImage;
use crate::options::{OnFull, Options};
use crate::tests::schedule::threads::stop_clock;
use crate::tests::sim::SimStorage;

const LONG: Duration = Duration::from_secs(600);
/// As many counts fill a row whose messages follow each other.
const FULL: u64 = 110;

fn open(storage: SimStorage) -> Engine<SimStorage> {
    let options = Options::new().arena_size(4096).max_bytes(64 << 10);
    Engine::open_without_workers(storage, &options).unwrap()
}

fn filled(count: u64) -> Engine<SimStorage> {
    let queue = open(SimStorage::new(1).with_file_capacity(64 << 10));
    for seq in 0..count {
        queue.enqueue(&[seq as u8; 8]).unwrap();
    }
    queue
}

fn workers(queue: &Engine<SimStorage>, rules: Rules) -> Arc<ConsumerState<SimStorage>> {
    let workers = queue.consumer("workers").unwrap();
    queue.set_redelivery(&workers, rules).unwrap();
    workers
}

type Received = Option<(u64, DeliveryToken)>;

fn receive(queue: &Engine<SimStorage>, workers: &ConsumerState<SimStorage>) -> Received {
    let received = queue.receive(workers, reading::AsMessage).unwrap();
    received.map(|(message, handed)| (message.seq(), handed))
}

/// Receives the next message and gives it back, to come again after a long time.
fn put_off(queue: &Engine<SimStorage>, workers: &ConsumerState<SimStorage>) {
    let (seq, handed) = receive(queue, workers).unwrap();
    queue.nack(workers, seq, handed, Some(LONG));
}

/// More messages were given back than the row has room for. The others come all the same, after a
/// death too: a message whose count was not stored counts as one that was in flight.
#[test]
fn a_full_row_of_attempts_holds_nothing_back() {
    const MORE: u64 = FULL + 20;
    let queue = filled(MORE);
    let consumer = workers(&queue, Rules::default());
    for _ in 0..MORE - 1 {
        put_off(&queue, &consumer);
    }
    assert_eq!(receive(&queue, &consumer).unwrap().0, MORE - 1);
    let queue = open(queue.core.storage.process_kill());
    let consumer = workers(&queue, Rules::default());
    for seq in 0..MORE {
        let (came, handed) = receive(&queue, &consumer).unwrap();
        assert_eq!((came, handed.attempts), (seq, 2));
        queue.ack(&consumer, came, handed).unwrap();
    }
}

/// A death counts for each message in flight; for the lowest, if there are more than are counted.
#[test]
fn a_death_counts_for_as_many_messages_in_flight_as_the_row_has_room_for() {
    let queue = filled(2 * FULL);
    let consumer = workers(&queue, Rules::default());
    put_off(&queue, &consumer);
    for _ in 1..2 * FULL {
        receive(&queue, &consumer).unwrap();
    }
    let queue = open(queue.core.storage.process_kill());
    let consumer = workers(&queue, Rules::default());
    for seq in 0..2 * FULL {
        let (came, handed) = receive(&queue, &consumer).unwrap();
        // (The first one has a count without the death.)
        assert_eq!((came, handed.attempts), (seq, if seq <= FULL { 2 } else { 1 }));
    }
}

/// Messages that an earlier run gave back are taken, and need no room in the row any more.
#[test]
fn messages_that_are_taken_leave_the_row_of_attempts() {
    let queue = filled(FULL + 3);
    let consumer = workers(&queue, Rules::default());
    for _ in 0..FULL {
        put_off(&queue, &consumer);
    }
    queue.close().unwrap();
    let queue = open(queue.core.storage.process_kill());
    let consumer = workers(&queue, Rules::default());
    for _ in 0..FULL {
        reading::next(&queue, &consumer, Read::Take).unwrap().unwrap();
    }
    put_off(&queue, &consumer);
    let queue = open(queue.core.storage.process_kill());
    let consumer = workers(&queue, Rules::default());
    let (seq, handed) = receive(&queue, &consumer).unwrap();
    assert_eq!((seq, handed.attempts), (FULL, 2));
}

/// A message that is given back very often is not taken for a rejected one.
#[test]
fn any_number_of_attempts_rejects_no_message() {
    let queue = filled(1);
    let consumer = workers(&queue, Rules::default());
    let (seq, _) = receive(&queue, &consumer).unwrap();
    let mut locked = consumer.locked.lock();
    let redelivery = locked.ledger.as_mut().unwrap().redelivery();
    for attempts in [(1 << 31) - 1, 1 << 31, u32::MAX] {
        redelivery.note_back(seq, attempts);
        assert!(!redelivery.is_spent(seq), "{attempts}");
    }
}

/// A delay that overflows the clock is long, not none.
#[test]
fn a_delay_without_end_does_not_end_at_once() {
    let queue = filled(1);
    let consumer = workers(&queue, Rules::default());
    let (seq, handed) = receive(&queue, &consumer).unwrap();
    queue.nack(&consumer, seq, handed, Some(Duration::MAX));
    assert!(receive(&queue, &consumer).is_none());
}

/// A gap that waits to be reported is news, also where no message may be handed out.
#[test]
fn a_rejected_message_is_news_where_the_limit_holds_the_others_back() {
    let queue = filled(2);
    let consumer = workers(&queue, Rules::default());
    queue.set_max_in_flight(&consumer, Some(1)).unwrap();
    let (seq, handed) = receive(&queue, &consumer).unwrap();
    queue.reject(&consumer, seq, handed).unwrap();
    assert!(consumer.with_locked(|locked| locked.has_news(&queue.core)));
    let reported = queue.receive(&consumer, reading::AsMessage).map(drop);
    assert!(matches!(reported, Err(Error::Gap(gap)) if gap.cause == GapCause::Rejected));
    assert_eq!(receive(&queue, &consumer).unwrap().0, 1);
}

/// A death counts also when another run ended in order before the consumer got its rules again.
#[test]
fn a_death_counts_though_another_run_comes_between() {
    let queue = filled(1);
    let consumer = workers(&queue, Rules::default());
    receive(&queue, &consumer).unwrap();
    let queue = open(queue.core.storage.process_kill());
    queue.enqueue(b"another").unwrap();
    queue.close().unwrap();
    let queue = open(queue.core.storage.process_kill());
    let consumer = workers(&queue, Rules::default());
    assert_eq!(receive(&queue, &consumer).unwrap().1.attempts, 2);
}

/// A power cut counts against no message, also when a later run dies that had handed out none.
#[test]
fn the_death_of_a_run_that_handed_out_nothing_counts_against_no_message() {
    let queue = filled(1);
    queue.core.flush().unwrap();
    let consumer = workers(&queue, Rules::default());
    receive(&queue, &consumer).unwrap();
    queue.core.flush().unwrap();
    let queue = open(queue.core.storage.power_cut(1));
    let queue = open(queue.core.storage.process_kill());
    let consumer = workers(&queue, Rules::default());
    assert_eq!(receive(&queue, &consumer).unwrap().1.attempts, 1);
}

/// The opening behind a power cut dies, at any store of it: it had handed out nothing.
#[test]
fn a_power_cut_counts_against_no_message_though_the_opening_behind_it_dies() {
    let queue = filled(1);
    let consumer = workers(&queue, Rules::default());
    receive(&queue, &consumer).unwrap();
    queue.core.flush().unwrap();
    let cut = queue.core.storage.power_cut(1);
    let mut deaths = 0;
    loop {
        let opening = cut.process_kill();
        opening.freeze_at_store(1 + deaths);
        drop(open(opening.clone()));
        let Some(dead) = opening.frozen() else { break };
        let queue = open(dead);
        let consumer = workers(&queue, Rules::default());
        assert_eq!(receive(&queue, &consumer).unwrap().1.attempts, 1, "dead at store {deaths}");
        deaths += 1;
    }
    assert!(deaths > 10, "{deaths}");
}

/// Rules that come later hold for messages that were given back before.
#[test]
fn fewer_attempts_reject_what_was_given_back_more_often() {
    let queue = filled(3);
    let consumer = workers(&queue, Rules::default());
    put_off(&queue, &consumer);
    for _ in 0..2 {
        let (seq, handed) = receive(&queue, &consumer).unwrap();
        queue.nack(&consumer, seq, handed, None);
    }
    workers(&queue, Rules { max_attempts: Some(2), ..Rules::default() });
    let reported = queue.receive(&consumer, reading::AsMessage).map(drop);
    assert!(matches!(reported, Err(Error::Gap(gap)) if (gap.first, gap.last) == (1, 1)));
    assert_eq!(receive(&queue, &consumer).unwrap().0, 2);
    workers(&queue, Rules { max_attempts: Some(1), ..Rules::default() });
    let reported = queue.receive(&consumer, reading::AsMessage).map(drop);
    assert!(matches!(reported, Err(Error::Gap(gap)) if (gap.first, gap.last) == (0, 0)));
}

/// An answer that comes too late finds that a lease has ended. What follows from that is seen at
/// once, not only after a later read.
#[test]
fn a_late_answer_leaves_no_message_in_flight_whose_lease_has_ended() {
    type Answer = fn(&Engine<SimStorage>, &ConsumerState<SimStorage>, u64, DeliveryToken);
    let answers: [Answer; 4] = [
        |queue, workers, seq, handed| assert!(queue.ack(workers, seq, handed).is_err()),
        |queue, workers, seq, handed| assert!(queue.reject(workers, seq, handed).is_err()),
        |queue, workers, seq, handed| assert!(queue.extend(workers, seq, handed, LONG).is_err()),
        |queue, workers, seq, handed| queue.nack(workers, seq, handed, None),
    ];
    for (answer, most) in answers.iter().flat_map(|answer| [(answer, None), (answer, Some(1))]) {
        let began = Instant::now();
        stop_clock(Some(began));
        let queue = filled(1);
        let rules =
            Rules { lease: Some(Duration::from_millis(5)), max_attempts: most, ..Rules::default() };
        let consumer = workers(&queue, rules);
        let (seq, handed) = receive(&queue, &consumer).unwrap();
        stop_clock(Some(began + Duration::from_millis(5)));
        answer(&queue, &consumer, seq, handed);
        // (A rejected message stays in flight until it is reported.)
        let rejected = u64::from(most.is_some());
        assert_eq!((consumer.in_flight(&queue.core), queue.stats().rejected), (rejected, rejected));
    }
    stop_clock(None);
}

/// A run that asks for no redelivery comes between the death and the next workers; a power cut
/// comes in place of the death.
#[test]
fn a_death_counts_whoever_opens_the_queue_next_and_a_power_cut_never() {
    for is_killed in [true, false] {
        let queue = filled(2);
        let consumer = workers(&queue, Rules::default());
        assert_eq!(receive(&queue, &consumer).unwrap().0, 0);
        queue.core.flush().unwrap();
        let storage = &queue.core.storage;
        let between = open(if is_killed { storage.process_kill() } else { storage.power_cut(7) });
        between.enqueue(b"a producer").unwrap();
        // That run ends by a death as well, or in order.
        if !is_killed {
            between.close().unwrap();
        }
        let queue = open(between.core.storage.process_kill());
        let consumer = workers(&queue, Rules::default());
        let (seq, handed) = receive(&queue, &consumer).unwrap();
        assert_eq!((seq, handed.attempts), (0, 1 + u32::from(is_killed)));
    }
}

/// A look ends a part of them, so that others get the consumer's lock, and stores the row of
/// attempts once. What it leaves has ended all the same.
#[test]
fn many_leases_that_end_at_one_moment_keep_nobody_for_long() {
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    let queue = Engine::open_without_workers(storage.clone(), &Options::new()).unwrap();
    queue.enqueue_batch(&[[7; 8]; 600]).unwrap();
    let begun = Instant::now();
    stop_clock(Some(begun));
    let consumer = workers(&queue, Rules { lease: Some(LONG), ..Rules::default() });
    let out: Vec<_> = std::iter::from_fn(|| receive(&queue, &consumer)).collect();
    let stored = || {
        let index = IndexImage::read(&storage.read_file(INDEX_NAME), &queue.core.index.queue_id);
        index.attempts_rows[0].as_ref().map_or(0, |row| row.number)
    };
    let before = stored();
    stop_clock(Some(begun + LONG));
    let (seq, handed) = *out.last().unwrap();
    assert!(matches!(queue.ack(&consumer, seq, handed), Err(Error::Expired)));
    for (looks, left) in [(2, 349), (3, 99), (4, 0)] {
        consumer.look_at_deliveries(&queue.core);
        assert_eq!((consumer.in_flight(&queue.core), stored() - before), (left, looks));
    }
    let again = receive(&queue, &consumer).unwrap();
    assert_eq!((again.0, again.1.attempts), (0, 2));
    stop_clock(None);
}
