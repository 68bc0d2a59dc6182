//! Worlds of jobs: the messages of a queue are handed out with leases, delays and counts of
//! attempts, in lanes too, and rejected ones go to a second queue, which may be full, closed or
//! refuse to write.
//!
//! As in other worlds there are up to three lives, and a death takes both disks at the same step.
//! After each life copies of both are opened, and what comes out is held against what the threads'
//! calls returned (`judged`).

mod actor;
mod judged;
mod script;
mod within;

use std::sync::Arc;

use parking_lot::Mutex;

use self::actor::Reported;
use self::judged::Known;
use self::script::Life;
use super::runs::Kind;
use super::{Played, reported::Check};
use crate::tests::effort::alone;
use crate::tests::schedule::{self, Line, Log, Plan};
use crate::tests::sim::{Call, Mutant, Rng, SimStorage};

/// The first seed of a world of jobs.
pub(super) const JOBS: u64 = 1 << 41;

/// The queue with the jobs, and the one for dead letters.
type Disks = (SimStorage, SimStorage);

#[derive(Debug, Clone)]
pub(super) struct Jobs {
    disks: (u64, u64),
    lives: Vec<Life>,
}

impl Jobs {
    fn draw(seed: u64) -> Jobs {
        let mut rng = Rng(seed);
        let disks = (rng.next(), rng.next());
        let lives = (0..1 + rng.below(3)).map(|_| Life::draw(&mut rng)).collect();
        Jobs { disks, lives }
    }

    /// Lives all lives.
    fn play(&self, log: Option<&Log>) -> Result<Played, String> {
        let disk = |seed| SimStorage::new(seed).with_file_capacity(128 << 10);
        let mut disks = (disk(self.disks.0), disk(self.disks.1));
        let mut known = Known::default();
        let mut played = Played { worlds: 1, ..Played::default() };
        for (number, life) in self.lives.iter().enumerate() {
            if let Some(log) = log {
                log.add(0, "", format!("Life {number}: {life:?}"));
            }
            let (run, left) = life.play(number as u64, &disks, &mut known, log);
            played += run;
            disks = left.map_err(|text| format!("life {number}: {text}"))?;
        }
        Ok(played)
    }

    /// The same world without what it does not need to break a promise.
    fn shrunk(mut self) -> Jobs {
        let breaks = |world: &Jobs| world.play(None).is_err();
        loop {
            let size = self.size();
            for life in (0..self.lives.len()).rev() {
                for cast in (0..self.lives[life].casts.len()).rev() {
                    let mut other = self.clone();
                    other.lives[life].casts.remove(cast);
                    if breaks(&other) {
                        self = other;
                        continue;
                    }
                    for act in (0..self.lives[life].casts[cast].acts.len()).rev() {
                        let mut other = self.clone();
                        other.lives[life].casts[cast].acts.remove(act);
                        if breaks(&other) {
                            self = other;
                        }
                    }
                }
            }
            if self.size() == size {
                return self;
            }
        }
    }

    fn size(&self) -> usize {
        let casts = self.lives.iter().flat_map(|life| &life.casts);
        casts.map(|cast| 1 + cast.acts.len()).sum()
    }
}

impl Kind for Jobs {
    type Broken = String;

    fn draw(seed: u64) -> Jobs {
        Jobs::draw(seed)
    }

    fn play(&self, log: Option<&Log>) -> Result<Played, String> {
        self.play(log)
    }

    fn story(&self, lines: &[Line]) -> String {
        let line = |line: &Line| format!("{:>7} {:<22} {}", line.step, line.thread, line.text);
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn report(self, seed: u64, broken: String) -> String {
        if broken.contains(schedule::FOR_EVER) {
            return format!("seed {seed}: {broken}");
        }
        // With a planted bug it is enough that a world fails, unless it is the one asked for.
        let shrinks = Mutant::planted().is_none() || alone().is_some();
        let world = if shrinks { self.shrunk() } else { self };
        let log = Log::default();
        let broken = world.play(Some(&log)).err().unwrap_or_default();
        format!(
            "seed {seed}:\n{}\n\nThe promise that is broken:\n{broken}",
            world.story(&log.take())
        )
    }
}

impl Life {
    /// What there was of it, and the disks as it leaves them or the promise that it broke.
    fn play(
        &self,
        number: u64,
        disks: &Disks,
        known: &mut Known,
        log: Option<&Log>,
    ) -> (Played, Check<Disks>) {
        for disk in [&disks.0, &disks.1] {
            disk.clear_faults();
        }
        disks.0.set_most(self.options.max_bytes.map(|most| most.max(disks.0.named_bytes())));
        if let Some((call, nth)) = self.other_fails {
            disks.1.fail_after(call, nth, rustix::io::Errno::IO, true);
        }
        let reported = Reported::default();
        let left: Arc<Mutex<Option<Disks>>> = Arc::default();
        let death = self.death;
        let (into, of) = (Arc::clone(&left), disks.clone());
        let plan = Plan {
            seed: self.seed,
            switch_one_in: self.switch_one_in,
            by_rank: self.by_rank,
            slow: self.slow,
            dies_at: self.dies_at,
            on_death: Box::new(move || *into.lock() = Some((death.of(&of.0), death.of(&of.1)))),
            most_steps: schedule::MOST_STEPS,
            log: log.cloned(),
        };
        let (life, of, story) = (self.clone(), disks.clone(), Arc::clone(&reported));
        let outcome = schedule::run(plan, move || actor::play(&of, number, &life, &story));
        let played = Played {
            worlds: 0,
            steps: outcome.steps,
            schedules: 1,
            died: u64::from(outcome.died),
            died_at_work: u64::from(outcome.died && reported.lock().flushed),
        };
        if let Some(failure) = outcome.failure {
            return (played, Err(failure));
        }
        if outcome.leaked > 0 {
            return (played, Err(format!("{} threads are left", outcome.leaked)));
        }
        let left = left.lock().take();
        let left = left.unwrap_or_else(|| (death.of(&disks.0), death.of(&disks.1)));
        for disk in [&left.0, &left.1] {
            disk.clear_faults();
        }
        let judged = known.after(&left, self, &reported.lock(), outcome.died);
        (played, judged.map(|()| left))
    }
}

#[test]
fn bugs_that_are_planted_for_jobs_are_found() {
    let bugs = [
        (Mutant::DeliveriesByProducers, 4),
        (Mutant::StorageWorkerCallsWakers, 1),
        (Mutant::DeadLettersNotFlushed, 267),
        (Mutant::CloseNotWaitedFor, 470),
    ];
    let mut missed = Vec::new();
    for (mutant, known) in bugs {
        Mutant::plant(Some(mutant));
        let finds = |number: u64| Some((number, Jobs::draw(JOBS + number).play(None).err()?));
        let broken = std::iter::once(known).chain(0..6000).find_map(finds);
        Mutant::plant(None);
        match broken {
            Some((number, broken)) => println!("{mutant:?} is found by world {number}: {broken}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
