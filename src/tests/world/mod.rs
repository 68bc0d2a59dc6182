//! The whole queue under one seed: threads, disk, clock and death.
//!
//! A **world** is one simulated disk and several lives on it, one after the other. In a life the
//! queue is opened, threads act on it (`acts`) as the schedule says, and it ends in order, by the
//! death of the process at any step, or with the power; opening may end so, too. After each life a
//! copy of the disk is opened, and what comes out is held against what the threads'
//! calls returned (`known`, `heard`, `promised`). Everything is drawn from the seed, so a seed is a
//! test.
//!
//! A world that breaks a promise is shrunk (`shrink`): threads, acts, faults and deaths that it
//! does not need for that go, and what is left is reported as a story (`story`).
//!
//! Worlds from seed 2^40 on have visitors besides (`visitors`): one interrupts whoever waits, one
//! removes the default consumer. Those from 2^41 on are of another kind (`jobs`): leases, delays,
//! attempts, lanes, and a second queue for dead letters.
//!
//! There are 300 worlds times `MMQ_EFFORT`. `MMQ_SEED=N..` says from which on, `MMQ_SEED=N` which
//! one alone, with its story.

mod actor;
mod acts;
mod guest;
mod heard;
mod jobs;
mod known;
mod promised;
mod quiet;
mod reads;
mod reported;
mod runs;
mod script;
mod shown;
mod shrink;
mod story;
mod visitors;

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use self::acts::Reported;
use self::jobs::{JOBS, Jobs};
use self::known::Known;
use self::runs::{Kind, run};
use self::script::Script;
use self::shrink::Failing;
use self::visitors::VISITED;
use crate::engine::Engine;
use crate::format::segment_slot;
use crate::tests::effort::alone;
use crate::tests::schedule::{self, Line, Log, Plan};
use crate::tests::sim::{Mutant, Rng, SimStorage};

pub(super) type Queue = Arc<Engine<SimStorage>>;

/// Everything that happens in a world, before it happens.
#[derive(Debug, Clone)]
struct World {
    /// Of the disk.
    disk: u64,
    /// Up to three, on one disk.
    lives: Vec<Script>,
    /// Of one schedule.
    most_steps: u64,
}

/// A broken promise.
#[derive(Debug)]
struct Broken {
    text: String,
    /// The life in which it was broken.
    life: usize,
    /// Of the schedule that broke it, and of all of the world.
    steps: u64,
    all_steps: u64,
}

impl Broken {
    /// A thread of it goes on for ever, and cannot be ended.
    fn never_ends(&self) -> bool {
        self.text.starts_with(schedule::FOR_EVER)
    }
}

impl World {
    fn draw(seed: u64) -> World {
        let mut rng = Rng(seed);
        let disk = rng.next();
        let mut lives: Vec<_> = (0..1 + rng.below(3)).map(|_| Script::draw(&mut rng)).collect();
        if seed >= VISITED {
            lives.iter_mut().for_each(|script| visitors::join(script, &mut rng));
        }
        World { disk, lives, most_steps: schedule::MOST_STEPS }
    }

    /// Lives all lives.
    fn play(&self, log: Option<&Log>) -> Result<Played, Broken> {
        let mut storage = SimStorage::new(self.disk).with_file_capacity(128 << 10);
        let mut known = Known::default();
        let mut played = Played { worlds: 1, ..Played::default() };
        for (life, script) in self.lives.iter().enumerate() {
            storage.set_stores(script.stores);
            for opening in 0..=script.openings.len() {
                let stage = Stage { script, life, opening, most_steps: self.most_steps, log };
                let (run, left) = stage.play(&storage, &mut known);
                played += run;
                let (steps, all_steps) = (run.steps, played.steps);
                storage = left.map_err(|text| Broken { text, life, steps, all_steps })?;
            }
        }
        Ok(played)
    }
}

/// What was played, in numbers.
#[derive(Debug, Default, Clone, Copy)]
struct Played {
    worlds: u64,
    steps: u64,
    /// Processes, one after the other: those that only open the queue, too.
    schedules: u64,
    /// How many of them ended by a death, and how many of these with threads at work.
    died: u64,
    died_at_work: u64,
}

impl AddAssign for Played {
    fn add_assign(&mut self, other: Played) {
        self.worlds += other.worlds;
        self.steps += other.steps;
        self.schedules += other.schedules;
        self.died += other.died;
        self.died_at_work += other.died_at_work;
    }
}

/// One run of a process: an opening that dies, or the life itself, which is the last one.
struct Stage<'a> {
    script: &'a Script,
    /// By its number.
    life: usize,
    opening: usize,
    most_steps: u64,
    log: Option<&'a Log>,
}

impl Stage<'_> {
    /// What there was of it, and the disk as it leaves it or the promise that it broke.
    fn play(
        &self,
        storage: &SimStorage,
        known: &mut Known,
    ) -> (Played, Result<SimStorage, String>) {
        let opening = self.script.openings.get(self.opening);
        let opening = opening.map(|opening| self.script.of(opening));
        let script = opening.as_ref().unwrap_or(self.script);
        let Script { dies_at, death, capacity, .. } = *script;
        storage.set_capacity(None);
        storage.set_capacity(capacity.map(|capacity| capacity + storage.used()));
        storage.clear_faults();
        storage.set_most(script.options.max_bytes.map(|most| most.max(storage.named_bytes())));
        for (call, nth, errno, sticky) in &script.faults {
            storage.fail_after(*call, *nth, *errno, *sticky);
        }
        if let Some(which) = script.unreadable {
            make_unreadable(storage, which);
        }
        self.log(|| format!("Life {}: {}", self.life, script.in_words(dies_at, death)));
        let seen = Reported::default();
        let (left, outcome) = self.live(script, storage, &seen);
        let played = Played {
            worlds: 0,
            steps: outcome.steps,
            schedules: 1,
            died: u64::from(outcome.died),
            died_at_work: u64::from(outcome.died && seen.lock().flushed),
        };
        if let Some(failure) = outcome.failure {
            return (played, Err(failure));
        }
        if outcome.leaked > 0 {
            return (played, Err(format!("{} threads are left", outcome.leaked)));
        }
        // (Who died as he waited by a waker is left with it: the waker has the queue.)
        if !outcome.died && storage.open_files() > 0 {
            return (played, Err(format!("{} descriptors are left", storage.open_files())));
        }
        left.clear_faults();
        left.set_capacity(None);
        if !outcome.died {
            self.log(|| format!("The process has ended by itself. {}", death.then_in_words()));
        }
        let judged = known.after(&left, script, &seen, death);
        if judged.is_ok() {
            self.log(|| format!("What an opening shows then: {}", known.in_words()));
        }
        (played, judged.map(|()| left))
    }

    /// Runs it to its end; without casts the queue is opened and closed.
    fn live(
        &self,
        script: &Script,
        storage: &SimStorage,
        reported: &Reported,
    ) -> (SimStorage, schedule::Outcome) {
        let Script { dies_at, death, .. } = *script;
        let left: Arc<Mutex<Option<SimStorage>>> = Arc::default();
        let (disk, into, log) = (storage.clone(), Arc::clone(&left), self.log.cloned());
        let on_death = move || {
            if let Some(log) = log {
                let thread = std::thread::current();
                let what = death.in_words();
                log.add(dies_at.unwrap_or(0), thread.name().unwrap_or(""), what);
            }
            *into.lock() = Some(death.of(&disk));
        };
        let plan = Plan {
            seed: script.life(dies_at),
            switch_one_in: script.switch_one_in,
            by_rank: script.by_rank,
            slow: script.slow,
            dies_at,
            on_death: Box::new(on_death),
            most_steps: self.most_steps,
            log: self.log.cloned(),
        };
        let (script, story, disk) = (script.clone(), Arc::clone(reported), storage.clone());
        let outcome = schedule::run(plan, move || actor::play(disk, script, &story));
        let frozen = left.lock().take();
        let disk = frozen.unwrap_or_else(|| death.of(storage));
        (disk, outcome)
    }

    /// Adds to the story what no thread does.
    fn log(&self, words: impl FnOnce() -> String) {
        if let Some(log) = self.log {
            log.add(0, "", words());
        }
    }
}

/// One sector of one segment cannot be read.
fn make_unreadable(storage: &SimStorage, which: u64) {
    let names: Vec<String> =
        storage.file_names().into_iter().filter(|name| segment_slot(name).is_some()).collect();
    let mut rng = Rng(which);
    if !names.is_empty() {
        let name = &names[rng.below(names.len() as u64) as usize];
        let sectors = storage.read_file(name).len().div_ceil(512).max(1);
        // The first ones matter more often than others.
        let end = 1 + rng.below(sectors as u64);
        let sector = rng.below(end) as usize;
        if storage.is_on_disk(name, sector / 8) {
            storage.make_unreadable(name, sector * 512..(sector + 1) * 512);
        }
    }
}

/// Steps that are taken to shrink a failing world.
const MOST_TO_SHRINK: u64 = 3_000_000;

/// Shrinks a failing world and tells its story.
fn report(seed: u64, world: World, broken: Broken) -> String {
    let before = story::size(&world);
    let began = Instant::now();
    // With a planted bug it is enough that a world fails, unless it is the one asked for.
    let shrinks = Mutant::planted().is_none() || alone().is_some();
    let mut failing = Failing::new(world, broken, if shrinks { MOST_TO_SHRINK } else { 0 });
    failing.shrink();
    let text = story::rename(&failing.world, &failing.broken.text);
    if failing.broken.never_ends() {
        return format!("seed {seed}: {text}\n(not shrunk: it would go on in the background)");
    }
    let (tries, took) = (failing.tries, began.elapsed().as_secs_f64());
    let log = Log::default();
    let again = failing.world.play(Some(&log)).err().map(|broken| broken.text);
    let is_same = again.is_some_and(|again| again == failing.broken.text);
    let warning =
        if is_same { "" } else { "\n(The story is of another run: it is not the same twice!)" };
    format!(
        "seed {seed} drew {before}.\n\
         Shrunk to {} in {tries} tries and {took:.1} s; the same command \
         shrinks it in the same way.{warning}\n\n{}\nThe promise that is broken:\n{text}",
        story::size(&failing.world),
        story::reported(&failing.world, &log.take()),
    )
}

impl Kind for World {
    type Broken = Broken;

    fn draw(seed: u64) -> World {
        World::draw(seed)
    }

    fn play(&self, log: Option<&Log>) -> Result<Played, Broken> {
        self.play(log)
    }

    fn story(&self, lines: &[Line]) -> String {
        story::reported(self, lines)
    }

    fn report(self, seed: u64, broken: Broken) -> String {
        report(seed, self, broken)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[test]
fn whatever_threads_disk_and_death_do_the_promises_hold() {
    run::<World>(0..VISITED);
}

#[test]
fn whatever_interrupts_and_removals_do_the_promises_hold() {
    run::<World>(VISITED..JOBS);
}

/// Each flush by time fails, and the workers wait for the disk again and again.
#[test]
fn a_world_is_quiet_when_its_workers_only_fail() {
    let played = World::draw(1_099_511_629_070).play(None);
    assert!(played.is_ok(), "{}", played.err().map_or(String::new(), |broken| broken.text));
}

#[test]
fn whatever_becomes_of_jobs_the_promises_hold() {
    run::<Jobs>(JOBS..u64::MAX);
}
