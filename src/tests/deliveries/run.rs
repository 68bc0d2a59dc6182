//! The queue and the oracles of its consumers, step by step.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::oracle::{Answered, Given, Mood, Oracle, Ticket, Want, Wishes};
use super::steps::{CONSUMERS, End, Keeper, Step};
use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::{DeliveryToken, Read};
use crate::engine::{Engine, reading};
use crate::error::{Error, Gap, GapCause, Result};
use crate::format::Origin;
use crate::message::Message;
use crate::options::Options;
use crate::tests::schedule::threads::stop_clock;
use crate::tests::sim::SimStorage;

type Queue = Arc<Engine<SimStorage>>;

/// A difference between queue and oracle, in words.
pub(super) type Check<T = ()> = std::result::Result<T, String>;

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

/// Another queue, as far as its dead letters go. It outlives every death.
#[derive(Debug, Default)]
struct OtherQueue {
    mood: Mutex<Mood>,
    dead_letters: Mutex<Vec<(Vec<u8>, Origin)>>,
}

impl DeadLetters for OtherQueue {
    fn put(&self, payload: &[u8], origin: &Origin) -> Result<()> {
        let mood = *self.mood.lock().unwrap();
        if mood == Mood::Refuses {
            return Err(Error::Closed);
        }
        if mood == Mood::OddTooLarge && origin.seq % 2 == 1 {
            let path = "dead".into();
            return Err(Error::MessageTooLarge { path, len: 8, max: 7, max_bytes: None });
        }
        self.dead_letters.lock().unwrap().push((payload.to_vec(), *origin));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let cannot = *self.mood.lock().unwrap() == Mood::CannotFlush;
        if cannot { Err(Error::Closed) } else { Ok(()) }
    }

    fn id(&self) -> usize {
        0
    }

    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        Vec::new()
    }
}

/// A consumer in the queue and in the oracle, with what its workers have.
struct Side {
    consumer: Option<Arc<ConsumerState<SimStorage>>>,
    oracle: Oracle,
    other: Arc<OtherQueue>,
    tickets: Vec<(Ticket, DeliveryToken)>,
}

impl Side {
    fn rules(&self, wishes: Wishes) -> Rules {
        let millis = Duration::from_millis;
        let other: Arc<dyn DeadLetters> = Arc::clone(&self.other) as _;
        Rules {
            lease: wishes.lease.map(millis),
            backoff: wishes.backoff.map(|(first, longest)| (millis(first), millis(longest))),
            max_attempts: wishes.most,
            dead_letters: wishes.has_dead_letters.then_some(other),
        }
    }

    fn consumer(&self) -> &ConsumerState<SimStorage> {
        self.consumer.as_ref().expect("set by each opening")
    }
}

/// One comparison.
pub(super) struct Run {
    queue: Queue,
    sides: Vec<Side>,
    began: Instant,
    now: u64,
    end: u64,
}

const NAMES: [&str; CONSUMERS] = ["workers", "others"];

fn open(storage: SimStorage) -> Queue {
    let options = Options::new().arena_size(4096).max_bytes(256 << 10);
    Arc::new(Engine::open_without_workers(storage, &options).unwrap())
}

fn payload(seq: u64) -> Vec<u8> {
    vec![seq as u8; 40 + seq as usize % 60]
}

impl Run {
    /// An empty queue.
    pub(super) fn new(seed: u64) -> Run {
        let began = Instant::now();
        stop_clock(Some(began));
        let queue = open(SimStorage::new(seed).with_file_capacity(256 << 10));
        // It stays behind, so that every message is there to be gone back to.
        queue.consumer("last").unwrap();
        let side = |_| Side {
            consumer: None,
            oracle: Oracle::default(),
            other: Arc::default(),
            tickets: Vec::new(),
        };
        Run { queue, sides: (0..CONSUMERS).map(side).collect(), began, now: 0, end: 0 }
    }

    pub(super) fn step(&mut self, step: Step) -> Check {
        match step {
            Step::Enqueue(count) => {
                for _ in 0..count {
                    self.queue.enqueue(&payload(self.end)).map_err(|error| error.to_string())?;
                    self.end += 1;
                }
                self.sides.iter_mut().for_each(|side| side.oracle.end = self.end);
            }
            Step::Receive { who } => self.receive(who)?,
            Step::Take { who } => self.read(who, Want::Take)?,
            Step::Look { who } => self.read(who, Want::Look)?,
            Step::Ack { who, which }
            | Step::Nack { who, which, .. }
            | Step::Reject { who, which }
            | Step::Extend { who, which, .. } => self.answer(who, which, step)?,
            Step::Clock(by, keeper) => {
                self.now += by;
                stop_clock(Some(self.began + Duration::from_millis(self.now)));
                self.sides.iter_mut().for_each(|side| side.oracle.now = self.now);
                if keeper == Keeper::Looks {
                    self.queue.consumers.look_at_deliveries(&self.queue.core);
                    self.sides.iter_mut().for_each(|side| side.oracle.look());
                }
            }
            Step::Limit { who, limit } => {
                let side = &mut self.sides[who];
                self.queue.set_max_in_flight(side.consumer(), limit).unwrap();
                side.oracle.limit = limit;
            }
            // Rules come with the opening, or not at all: counts begin with them.
            Step::Rules { who, wishes } if self.sides[who].oracle.wishes.is_some() => {
                self.set_rules(who, wishes);
            }
            Step::Rules { .. } => {}
            Step::Seek { who, back } => {
                let side = &mut self.sides[who];
                let seq = self.end.saturating_sub(back);
                self.queue.seek(side.consumer(), seq).map_err(|error| error.to_string())?;
                side.oracle.seek(seq);
            }
            Step::DeadLetters { who, mood } => {
                *self.sides[who].other.mood.lock().unwrap() = mood;
                self.sides[who].oracle.mood = mood;
            }
            Step::Reopen(end, wishes) => self.reopen(end, wishes),
        }
        self.compare()
    }

    fn set_rules(&mut self, who: usize, wishes: Wishes) {
        let side = &mut self.sides[who];
        self.queue.set_redelivery(side.consumer(), side.rules(wishes)).unwrap();
        side.oracle.set_wishes(wishes);
        self.attend(who);
    }

    fn reopen(&mut self, end: End, wishes: [Option<Wishes>; CONSUMERS]) {
        if end == End::InOrder {
            self.sides.iter_mut().for_each(|side| side.oracle.before_a_close());
            self.queue.close().unwrap();
        } else {
            // A dead process sends no dead letters.
            self.queue.core.index.poison.close();
        }
        self.queue = open(self.queue.core.storage.process_kill());
        for who in 0..CONSUMERS {
            let consumer = self.queue.consumer(NAMES[who]).unwrap();
            let side = &mut self.sides[who];
            side.tickets.clear();
            side.oracle.reopen(wishes[who], end == End::Killed);
            if let Some(wishes) = wishes[who] {
                self.queue.set_redelivery(&consumer, side.rules(wishes)).unwrap();
            }
            side.consumer = Some(consumer);
        }
    }

    /// After a call that may leave the storage worker something to do: there is none, and the call
    /// does it.
    fn attend(&mut self, who: usize) {
        if self.sides[who].oracle.is_due() {
            self.sides.iter_mut().for_each(|side| side.oracle.look());
        }
    }

    fn receive(&mut self, who: usize) -> Check {
        let side = &mut self.sides[who];
        let received = self.queue.receive(side.consumer(), reading::AsMessage);
        let (given, ticket) = side.oracle.read(Want::Receive);
        let (found, handed) = match received {
            Ok(Some((message, handed))) => (Ok(Some(message)), Some(handed)),
            Ok(None) => (Ok(None), None),
            Err(error) => (Err(error), None),
        };
        let is_ok = found.is_ok();
        same(found, given)?;
        if let (Some(handed), Some(ticket)) = (handed, ticket) {
            let reported = (handed.attempts, handed.is_leased());
            let expected = (ticket.attempts, ticket.is_leased);
            ensure!(
                reported == expected,
                "{}: attempts {reported:?}, not {expected:?}",
                ticket.seq
            );
            side.tickets.push((ticket, handed));
        }
        if is_ok || side.oracle.has_dead_letters_to_post() {
            self.attend(who);
        }
        Ok(())
    }

    fn read(&mut self, who: usize, want: Want) -> Check {
        let side = &mut self.sides[who];
        let what = if want == Want::Take { Read::Take } else { Read::Look };
        let found = reading::next(&self.queue, side.consumer(), what);
        same(found, side.oracle.read(want).0)?;
        if side.oracle.has_dead_letters_to_post() {
            self.attend(who);
        }
        Ok(())
    }

    fn answer(&mut self, who: usize, which: usize, step: Step) -> Check {
        let side = &mut self.sides[who];
        // A run that asks for no redelivery has no attempts to be stored with a rejection.
        let is_rejected = matches!(step, Step::Reject { .. });
        if side.tickets.is_empty() || is_rejected && side.oracle.wishes.is_none() {
            return Ok(());
        }
        let at = which % side.tickets.len();
        let (ticket, handed) = side.tickets[at];
        if !matches!(step, Step::Extend { .. }) {
            side.tickets.swap_remove(at);
        }
        let (queue, consumer, seq) = (&self.queue, side.consumer(), ticket.seq);
        let answer = match step {
            Step::Ack { .. } => queue.ack(consumer, seq, handed),
            Step::Reject { .. } => queue.reject(consumer, seq, handed),
            Step::Extend { by, .. } => {
                queue.extend(consumer, seq, handed, Duration::from_millis(by))
            }
            Step::Nack { delay, .. } => {
                queue.nack(consumer, seq, handed, delay.map(Duration::from_millis));
                Ok(())
            }
            _ => return Ok(()),
        };
        let oracle = &mut side.oracle;
        let answered = match step {
            Step::Ack { .. } => oracle.ack(ticket),
            Step::Reject { .. } => oracle.reject(ticket),
            Step::Extend { by, .. } => oracle.extend(ticket, by),
            Step::Nack { delay, .. } => oracle.nack(ticket, delay),
            _ => return Ok(()),
        };
        let is_late = answered == Answered::Expired && !matches!(step, Step::Nack { .. });
        match answer {
            Ok(()) => ensure!(!is_late, "{seq} was answered after its lease, and is heard"),
            Err(Error::Expired) => ensure!(is_late, "the lease of {seq} has not ended"),
            Err(error) => return Err(format!("cannot answer {seq}: {error}")),
        }
        // An extension lets the storage worker know also where it changes nothing.
        let is_reported = match step {
            Step::Ack { .. } => false,
            Step::Extend { .. } => answered != Answered::Expired,
            _ => answered == Answered::Heard,
        };
        if is_reported {
            self.attend(who);
        }
        Ok(())
    }

    /// What can be seen of both at any time.
    fn compare(&self) -> Check {
        for (side, name) in self.sides.iter().zip(NAMES) {
            let waiting = side.consumer().len(&self.queue.core);
            let expected = side.oracle.waiting();
            ensure!(waiting == expected, "{waiting} wait for {name}, not {expected}");
            let dead_letters = side.other.dead_letters.lock().unwrap();
            let went: Vec<_> = dead_letters.iter().map(|(_, it)| (it.seq, it.attempts)).collect();
            let expected = &side.oracle.dead_letters;
            ensure!(went == *expected, "the dead letters of {name} are {went:?}, not {expected:?}");
            let id = self.queue.core.index.queue_id;
            let is_own = dead_letters
                .iter()
                .all(|(bytes, it)| *bytes == payload(it.seq) && it.queue_id == id);
            ensure!(is_own, "a dead letter of {name} has other bytes, or another origin");
        }
        let rejected = self.queue.stats().rejected;
        let expected: u64 = self.sides.iter().map(|side| side.oracle.rejections).sum();
        ensure!(rejected == expected, "{rejected} are said to be rejected, not {expected}");
        Ok(())
    }

    /// What is in flight, once a call has looked at leases.
    pub(super) fn end(mut self) -> Check {
        self.step(Step::Clock(1, Keeper::Looks))?;
        for (side, name) in self.sides.iter().zip(NAMES) {
            let in_flight = side.consumer().in_flight(&self.queue.core);
            let expected = side.oracle.in_flight();
            ensure!(in_flight == expected, "{name} has {in_flight} in flight, not {expected}");
        }
        // Whatever was held back comes in the end.
        for who in 0..CONSUMERS {
            self.step(Step::DeadLetters { who, mood: Mood::Takes })?;
        }
        self.step(Step::Reopen(End::InOrder, [Some(Wishes::default()); CONSUMERS]))?;
        for (who, name) in NAMES.into_iter().enumerate() {
            for _ in 0..=self.end {
                self.step(Step::Receive { who })?;
                self.step(Step::Ack { who, which: 0 })?;
            }
            let left = self.sides[who].consumer().len(&self.queue.core);
            ensure!(left == 0, "{left} wait for {name}, and do not come");
        }
        Ok(())
    }
}

/// What a read gave is what the oracle says.
fn same(found: Result<Option<Message>>, given: Given) -> Check {
    let found = match found {
        Ok(Some(message)) => {
            let seq = message.seq();
            ensure!(message[..] == payload(seq)[..], "{seq} has other bytes than were put in");
            Given::Message(seq)
        }
        Ok(None) => Given::Nothing,
        Err(Error::Gap(Gap { first, last, cause: GapCause::Rejected })) if first == last => {
            Given::Rejected(first)
        }
        Err(error) => return Err(format!("cannot read, and {given:?} is next: {error}")),
    };
    ensure!(found == given, "{found:?} comes, and {given:?} is next");
    Ok(())
}

impl Drop for Run {
    fn drop(&mut self) {
        stop_clock(None);
    }
}
