//! Lanes with everything else at once: nothing is forgotten, and nothing comes twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::Rules;
use crate::consume::step::{DeliveryToken, Lane, Read};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::error::{Error, Result};
use crate::options::{OnFull, Options};
use crate::tests::effort::some_of;
use crate::tests::sim::{Rng, SimStorage};

type Queue = Arc<Engine<SimStorage>>;
type Link = Arc<ConsumerState<SimStorage>>;

fn disk(seed: u64) -> SimStorage {
    SimStorage::new(seed).with_file_capacity(256 << 10)
}

fn open(storage: SimStorage, options: &Options) -> Queue {
    Arc::new(Engine::open_without_workers(storage, options).unwrap())
}

fn put(queue: &Queue, count: u64) {
    for _ in 0..count {
        let seq = queue.core.visible_end().seq;
        queue.enqueue(&seq.to_le_bytes().repeat(40)).unwrap();
    }
}

fn received(
    queue: &Queue,
    link: &Link,
    only: Option<Lane>,
) -> Result<Option<(u64, DeliveryToken)>> {
    let received = queue.receive_in_lanes(link, reading::AsMessage, only, &mut None)?;
    Ok(received.map(|(message, handed)| {
        assert_eq!(message[..], message.seq().to_le_bytes().repeat(40));
        (message.seq(), handed)
    }))
}

/// A queue that is read in lanes, and what became of its messages.
struct Storm {
    seed: u64,
    options: Options,
    lanes: LaneRules,
    counts: Option<u32>,
    queue: Queue,
    link: Link,
    out: BTreeMap<u64, DeliveryToken>,
    /// Acknowledged, taken or reported, in earlier runs too.
    done: BTreeSet<u64>,
}

impl Storm {
    fn begin(seed: u64, rng: &mut Rng) -> Storm {
        let options = Options::new().arena_size(4096);
        let options = match rng.below(4) {
            1 => options.max_bytes(64 << 10).on_full(OnFull::DropOldest),
            2 => options.max_age(Duration::from_secs(20)),
            _ => options,
        };
        let within = [Within::Manual, Within::Last(1 + rng.below(30)), Within::Millis(4000)];
        let lanes = LaneRules {
            within: within[rng.below(3) as usize],
            share: [(4, 1), (1, 1), (1, 0), (0, 1)][rng.below(4) as usize],
            rate: None,
            youngest_first: rng.percent(50),
        };
        let counts = rng.percent(40).then_some(4);
        let queue = open(disk(seed), &options);
        let link = Storm::link(&queue, lanes, counts);
        let (out, done) = (BTreeMap::new(), BTreeSet::new());
        Storm { seed, options, lanes, counts, queue, link, out, done }
    }

    fn link(queue: &Queue, lanes: LaneRules, counts: Option<u32>) -> Link {
        let link = queue.consumer("link").unwrap();
        if counts.is_some() {
            let rules = Rules { max_attempts: counts, ..Rules::default() };
            queue.set_redelivery(&link, rules).unwrap();
        }
        queue.set_lanes(&link, lanes).unwrap();
        link
    }

    fn note(&mut self, seq: u64) {
        assert!(self.done.insert(seq), "seed {}: {seq} comes again", self.seed);
    }

    /// What a read returned; a gap is reported once.
    fn got<R>(&mut self, outcome: Result<R>) -> Option<R> {
        match outcome {
            Ok(got) => Some(got),
            Err(Error::Gap(gap)) => {
                (gap.first..=gap.last).for_each(|seq| self.note(seq));
                None
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn receive(&mut self, only: Option<Lane>) {
        let outcome = received(&self.queue, &self.link, only);
        if let Some((seq, handed)) = self.got(outcome).flatten() {
            assert!(only.is_none_or(|lane| (lane == Lane::Backlog) == handed.is_backlog()));
            assert!(!self.done.contains(&seq), "seed {}: {seq} comes again", self.seed);
            assert!(self.out.insert(seq, handed).is_none(), "seed {}: {seq} twice", self.seed);
        }
    }

    fn acknowledge_all(&mut self) {
        for (seq, handed) in std::mem::take(&mut self.out) {
            self.queue.ack(&self.link, seq, handed).unwrap();
            self.note(seq);
        }
    }

    /// Something becomes of a message that is in flight.
    fn answer(&mut self, rng: &mut Rng) {
        let at = rng.below(self.out.len() as u64) as usize;
        let (seq, handed) = self.out.iter().nth(at).map(|(a, b)| (*a, *b)).unwrap();
        self.out.remove(&seq);
        match rng.below(10) {
            0..6 => {
                self.queue.ack(&self.link, seq, handed).unwrap();
                self.note(seq);
            }
            6..9 => self.queue.nack(&self.link, seq, handed, None),
            _ => self.queue.reject(&self.link, seq, handed).unwrap(),
        }
    }

    fn act(&mut self, rng: &mut Rng) {
        match rng.below(28) {
            0..5 => {
                let most = if self.options.max_bytes.is_some() { 40 } else { 6 };
                put(&self.queue, rng.below(most));
            }
            5 => {
                self.queue.core.storage.advance_clock(rng.below(3000));
                self.queue.expire();
            }
            6 => drop(self.queue.jump(&self.link).unwrap()),
            7 if rng.percent(30) => {
                if rng.percent(50) {
                    self.queue.close().unwrap();
                }
                self.queue = open(self.queue.core.storage.process_kill(), &self.options);
                self.link = Storm::link(&self.queue, self.lanes, self.counts);
                self.out.clear();
            }
            8 => {
                let taken = if rng.percent(50) {
                    reading::skip(&self.queue, &self.link)
                } else {
                    reading::next(&self.queue, &self.link, Read::Take)
                        .map(|it| it.map(|message| message.seq()))
                };
                self.got(taken).flatten().into_iter().for_each(|seq| self.note(seq));
            }
            9 => {
                let batch = reading::batch(&self.queue, &self.link, 3);
                let batch = self.got(batch).unwrap_or_default();
                batch.iter().for_each(|message| self.note(message.seq()));
            }
            10 => {
                let look = reading::next(&self.queue, &self.link, Read::Look).map(drop);
                self.got(look);
            }
            11..15 if !self.out.is_empty() => self.answer(rng),
            _ => {
                let only = [None, None, Some(Lane::Fresh), Some(Lane::Backlog)];
                self.receive(only[rng.below(4) as usize]);
            }
        }
    }
}

/// Drops or ages, deliveries in flight, rejections, kills, all kinds of reads, jumps: each message
/// comes or is reported, once.
#[test]
fn each_message_comes_or_is_reported_once() {
    for seed in some_of(0..60, 3, 0) {
        let mut rng = Rng(seed.wrapping_mul(7919) + 17);
        let mut storm = Storm::begin(seed, &mut rng);
        for _ in 0..rng.below(300) {
            storm.act(&mut rng);
        }
        storm.acknowledge_all();
        let end = storm.queue.core.visible_end().seq;
        for _ in 0..3 * end + 10 {
            storm.receive(None);
            storm.acknowledge_all();
        }
        assert_eq!(storm.done, (0..end).collect(), "seed {seed}");
        assert_eq!(storm.link.len(&storm.queue.core), 0, "seed {seed}");
        assert_eq!(storm.link.seq(), end, "seed {seed}: the place");
        assert!(storm.link.backlog(&storm.queue.core).is_empty());
    }
}

/// What is durable and not acknowledged comes, or is reported.
#[test]
fn power_cuts_forget_nothing() {
    for seed in some_of(0..60, 3, 0) {
        let mut rng = Rng(seed.wrapping_mul(104_729) + 3);
        let options = Options::new().arena_size(4096);
        let lanes = LaneRules {
            within: if rng.percent(50) { Within::Manual } else { Within::Last(4) },
            share: [(1, 1), (1, 0)][rng.below(2) as usize],
            rate: None,
            youngest_first: false,
        };
        let mut queue = open(disk(seed), &options);
        let mut link = Storm::link(&queue, lanes, None);
        let (mut reported, mut out) = (Vec::new(), BTreeMap::new());
        for _ in 0..5 {
            for _ in 0..rng.below(120) {
                match rng.below(12) {
                    0..3 => put(&queue, 1 + rng.below(6)),
                    3 => drop(queue.jump(&link).unwrap()),
                    4 => queue.core.flush().unwrap(),
                    5..9 => match received(&queue, &link, None) {
                        Ok(received) => out.extend(received),
                        Err(Error::Gap(gap)) => reported.push(gap.first..=gap.last),
                        Err(error) => panic!("{error}"),
                    },
                    _ => {
                        let at = rng.below(out.len().max(1) as u64) as usize;
                        if let Some(seq) = out.keys().nth(at).copied() {
                            queue.ack(&link, seq, out[&seq]).unwrap();
                            out.remove(&seq);
                            reported.push(seq..=seq);
                        }
                    }
                }
            }
            queue = open(queue.core.storage.power_cut(rng.next()), &options);
            link = Storm::link(&queue, lanes, None);
            out.clear();
        }
        loop {
            match received(&queue, &link, None) {
                Ok(Some((seq, handed))) => {
                    queue.ack(&link, seq, handed).unwrap();
                    reported.push(seq..=seq);
                }
                Ok(None) => break,
                Err(Error::Gap(gap)) => reported.push(gap.first..=gap.last),
                Err(error) => panic!("{error}"),
            }
        }
        reported.sort_by_key(|range| *range.start());
        let reached = reported.into_iter().fold(0, |next, range| {
            assert!(*range.start() <= next, "seed {seed}: {next} was forgotten");
            next.max(range.end() + 1)
        });
        assert!(reached >= queue.core.visible_end().seq, "seed {seed}: {reached}");
        assert_eq!(link.len(&queue.core), 0, "seed {seed}");
    }
}
