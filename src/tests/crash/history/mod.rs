//! Random histories, with crashes at random moments of them.

mod choices;
mod crash;
mod deliveries;
mod steps;

use std::time::Duration;

use self::choices::Choices;
use super::examine::{Queue, check_accounts, dropped_of, durable_of, next_of, oldest_of, open};
use super::model::{Check, Model, ensure};
use crate::consume::step::Read;
use crate::options::{OnFull, Options};
use crate::storage::{Storage, Stores};
use crate::tests::sim::{Call, Rng, SimStorage};

/// Calls that an opening makes.
const IN_RECOVERY: [Call; 10] = [
    Call::Create,
    Call::Open,
    Call::Rename,
    Call::Remove,
    Call::SyncDirectory,
    Call::SyncFile,
    Call::Allocate,
    Call::Map,
    Call::Read,
    Call::Write,
];

const NAMES: [&str; 4] = ["", "audit", "mail", "a name of more than sixteen bytes"];

#[derive(Debug, Clone)]
enum Step {
    Enqueue(usize),
    Batch(Vec<usize>),
    Parts(usize),
    Read(&'static str, Read),
    Drain(&'static str, usize),
    Add(&'static str),
    Remove(&'static str),
    Fork(&'static str, &'static str),
    Seek(&'static str, u64),
    Receive(&'static str, usize),
    /// Acknowledges one that was handed out, or gives it back.
    Answer(&'static str, u64, bool),
    /// Turns the clock by so many milliseconds.
    Clock(i64),
    /// Evicts what is too old.
    Look,
    Flush,
    WaitDurable,
    Prepare,
    Close,
}

/// What random histories are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Deliveries, drops and ages in most of them, redelivery in many.
    Everything,
    /// Less of that, and no redelivery: older seeds, and bytes, keep their meaning.
    Fewer,
}

/// One queue on one simulated disk, and what it promised.
pub(super) struct History {
    work: Work,
    rng: Choices,
    /// For what `Fewer` does without.
    more: Rng,
    model: Model,
    /// None only while it is being opened.
    queue: Option<Queue>,
    options: Options,
    /// Operations since the queue was opened, as `flush_every_ops` counts them.
    operations: u64,
    /// The length that did not fit: tried again, over the leavings of the first try.
    refused: Option<Vec<usize>>,
    pub(super) images: u64,
    /// Where they are asked for.
    pub(super) digests: Option<Vec<String>>,
    pub(super) trace: Vec<String>,
}

impl History {
    pub(super) fn new(seed: u64, work: Work) -> Check<History> {
        History::made_of(Choices::new(seed, &[]), Rng(!seed), work)
    }

    pub(super) fn chosen_by(bytes: &[u8]) -> Check<History> {
        History::made_of(Choices::new(0, bytes), Rng(0), Work::Fewer)
    }

    fn made_of(mut rng: Choices, mut more: Rng, work: Work) -> Check<History> {
        let storage = SimStorage::new(rng.next()).with_file_capacity(128 << 10);
        let options = random_options(&mut rng, &mut more, work);
        storage.set_stores(random_stores(&mut rng));
        let mut history = History {
            work,
            rng,
            more,
            model: Model::default(),
            queue: None,
            options,
            operations: 0,
            refused: None,
            images: 0,
            digests: None,
            trace: Vec::new(),
        };
        history.reopen(storage)?;
        Ok(history)
    }

    /// Goes on until so many images were examined.
    pub(super) fn run(&mut self, images: u64) -> Check {
        while self.images < images {
            self.step()?;
        }
        Ok(())
    }

    /// Goes on for as long as bytes choose.
    pub(super) fn run_out(&mut self) -> Check {
        while self.rng.has_bytes() {
            self.step()?;
        }
        Ok(())
    }

    fn queue(&self) -> Check<&Queue> {
        self.queue.as_ref().ok_or_else(|| "no queue is open".to_owned())
    }

    fn storage(&self) -> Check<SimStorage> {
        Ok(self.queue()?.core.storage.clone())
    }

    /// What the death of the process would leave now.
    pub(super) fn disk(&self) -> Check<SimStorage> {
        Ok(self.storage()?.process_kill())
    }

    fn reopen(&mut self, storage: SimStorage) -> Check {
        self.trace.push(format!("open {:?}", self.options));
        self.queue = None;
        let queue = open(storage, &self.options)?;
        self.operations = 0;
        self.model.claimed = self.model.claimed.max(durable_of(&queue));
        for consumer in self.model.consumers.values_mut() {
            let finished = consumer.finished.clone();
            consumer.start_at(consumer.place(), finished);
        }
        ensure!(
            next_of(&queue) >= self.model.next,
            "opened at {}, expected {}",
            next_of(&queue),
            self.model.next
        );
        self.model.note_clock(queue.core.storage.now());
        self.model.begin_run(age_of(&self.options));
        self.model.check_expired(oldest_of(&queue), self.model.clock)?;
        self.queue = Some(queue);
        Ok(())
    }

    fn step(&mut self) -> Check {
        let step = self.choose()?;
        let storage = self.storage()?;
        let armed = self.rng.percent(30);
        if self.rng.percent(30) {
            storage.snapshot_at_store(1 + self.rng.below(40));
        }
        if armed {
            match self.rng.below(3) {
                0 => storage.freeze_at(1 + self.rng.below(4)),
                1 => storage.freeze_at(1 + self.rng.below(16)),
                _ => storage.freeze_at_store(1 + self.rng.below(40)),
            }
        }
        self.trace.push(format!("{step:?}"));
        self.model.note_old(age_of(&self.options));
        let before = armed.then(|| self.model.clone());
        let mut during = self.model.clone();
        self.perform(&step, &mut during)?;
        storage.disarm();
        if !matches!(step, Step::Close) {
            check_accounts(self.queue()?)?;
        }
        self.model.dropped = self.model.dropped.max(dropped_of(self.queue()?));
        if let (Some(before), Some(frozen)) = (before, storage.frozen()) {
            let after = self.model.clone();
            self.trace.push("  died in it".into());
            if self.crash(&frozen, &before, &during, &after)? {
                return Ok(());
            }
        }
        if matches!(step, Step::Close) {
            self.options = self.random_options();
            storage.set_stores(random_stores(&mut self.rng));
            return self.reopen(storage);
        }
        if self.rng.percent(15) {
            let model = self.model.clone();
            self.crash(&storage.process_kill(), &model, &model, &model)?;
        }
        Ok(())
    }

    fn random_options(&mut self) -> Options {
        random_options(&mut self.rng, &mut self.more, self.work)
    }

    fn choose(&mut self) -> Check<Step> {
        if self.work == Work::Everything && self.more.percent(20) {
            let more = &mut self.more;
            let name = NAMES[if more.percent(60) { 0 } else { more.below(4) as usize }];
            return Ok(match more.below(10) {
                0..5 if self.model.is_open(name) => {
                    Step::Answer(name, more.next(), more.percent(50))
                }
                _ => Step::Receive(name, 1 + more.below(4) as usize),
            });
        }
        let next = next_of(self.queue()?);
        let rng = &mut self.rng;
        let name = NAMES[if rng.percent(60) { 0 } else { rng.below(4) as usize }];
        let backlog = next - self.model.place(name).unwrap_or(self.model.released);
        if let Some(lens) = self.refused.take_if(|_| rng.percent(50)) {
            return Ok(Step::Batch(lens));
        }
        let reading = rng.percent(if backlog > 40 { 60 } else { 40 });
        Ok(match rng.below(100) {
            0..62 if reading => match rng.below(10) {
                0..5 => Step::Read(name, Read::Take),
                5 => Step::Read(name, Read::Skip),
                6 => Step::Read(name, Read::Look),
                _ => Step::Drain(name, 1 + rng.below(20) as usize),
            },
            0..25 => Step::Enqueue(self.random_len()),
            25..30 => Step::Parts(self.random_len()),
            30..62 => {
                let most = 2 + self.rng.below(8);
                let lens = (0..1 + self.rng.below(most)).map(|_| self.random_len());
                Step::Batch(lens.collect())
            }
            62..67 => Step::Add(name),
            67..70 if !name.is_empty() => Step::Remove(name),
            70..72 if !name.is_empty() => Step::Fork(NAMES[rng.below(4) as usize], name),
            72..74 => {
                let from = self.model.released.max(next.saturating_sub(60));
                Step::Seek(name, from + rng.below(next - from + 1))
            }
            74..78 => Step::Receive(name, 1 + rng.below(6) as usize),
            78..84 if self.model.is_open(name) => Step::Answer(name, rng.next(), rng.percent(75)),
            78..80 => Step::Clock(match rng.below(6) {
                0..3 => rng.below(600) as i64,
                3 | 4 => rng.below(8000) as i64,
                _ => -(rng.below(4000) as i64),
            }),
            80..84 => Step::Flush,
            84..86 => Step::WaitDurable,
            86..88 => Step::Look,
            88..90 => Step::Prepare,
            90..94 => Step::Close,
            _ => Step::Drain(name, 200),
        })
    }

    /// From nothing to three segments.
    fn random_len(&mut self) -> usize {
        let segment = self.queue.as_ref().map_or(8192, |queue| queue.core.pool.geometry().most_len);
        let rng = &mut self.rng;
        let below = match rng.below(20) {
            0..8 => 40,
            8..13 => 700,
            13..16 => 5000,
            16..18 => segment,
            18 => 2 * segment,
            _ => 3 * segment,
        };
        rng.below(below) as usize
    }
}

/// Most disks take stores through mappings.
fn random_stores(rng: &mut Choices) -> Stores {
    if rng.percent(10) { Stores::ByCall } else { Stores::ByMap }
}

/// The shortest segments take 8 to 36 KiB, the longest 8 to 120 KiB.
fn random_options(rng: &mut Choices, more: &mut Rng, work: Work) -> Options {
    let arena = 4096 << rng.below(5);
    let most = (64 << 10) << rng.below(4);
    let mut options = Options::new().arena_size(arena).max_bytes(most + 8192 * rng.below(4));
    options = options.max_mapped_arenas([None, Some(3), Some(4)][rng.below(3) as usize]);
    options = options.flush_every_ops([None, None, Some(1), Some(7)][rng.below(4) as usize]);
    if rng.percent(25) {
        options = options.on_full(OnFull::DropOldest);
    }
    let ages = [None, None, None, Some(1), Some(5)];
    options = options.max_age(ages[rng.below(5) as usize].map(Duration::from_secs));
    if work == Work::Fewer {
        return options;
    }
    if more.percent(50) {
        options = options.on_full(OnFull::DropOldest);
    }
    if options.max_age.is_none() && more.percent(50) {
        options = options.max_age(Duration::from_secs([1, 5][more.below(2) as usize]));
    }
    options
}

fn age_of(options: &Options) -> Option<u64> {
    options.max_age.map(|age| age.as_millis() as u64)
}
