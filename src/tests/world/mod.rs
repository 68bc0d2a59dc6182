//! The whole queue under one seed: threads, disk, clock and death.
//!
//! A **world** is one simulated disk and several lives on it, one after the other. In a life the
//! queue is opened, threads act on it (`acts`) as the schedule says, and it ends in order, by the
//! death of the process at any step, or with the power; opening may end so, too. After each life a
//! copy of the disk is opened, and what comes out is held against what the threads were told
//! (`known`, `heard`, `promised`). Everything is drawn from the seed, so a seed is a test.
//!
//! `MMQ_WORLDS` says how many worlds, `MMQ_FIRST_SEED` from which on, `MMQ_SEED` which one alone,
//! with its story.

mod actor;
mod acts;
mod heard;
mod known;
mod promised;
mod quiet;
mod script;
mod shown;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use self::acts::{Cast, Told};
use self::known::Known;
use self::script::Script;
use self::told::Death;
use crate::engine::Engine;
use crate::tests::schedule::{self, Plan};
use crate::tests::sim::{Mutant, Rng, SimStorage};

pub(super) type Queue = Arc<Engine<SimStorage>>;

/// A broken promise, with the story of the life that broke it.
#[derive(Debug)]
struct Broken {
    text: String,
}

/// Up to three lives on one disk; how many steps they took.
fn world(seed: u64) -> Result<u64, Broken> {
    let mut rng = Rng(seed);
    let mut storage = SimStorage::new(rng.next()).with_file_capacity(128 << 10);
    let mut known = Known::default();
    let mut steps = 0;
    let mut earlier = String::new();
    for number in 0..1 + rng.below(3) {
        let script = Script::draw(&mut rng);
        let (next, taken, story) = life(&script, storage, &mut known).map_err(|text| Broken {
            text: format!("seed {seed}, life {number}: {text}{earlier}"),
        })?;
        if std::env::var_os("MMQ_SEED").is_some() {
            earlier = format!("\nbefore that:\n{story}{earlier}");
        }
        storage = next;
        steps += taken;
    }
    Ok(steps)
}

/// One life; the disk as it leaves it, and how many steps it took.
fn life(
    script: &Script,
    storage: SimStorage,
    known: &mut Known,
) -> Result<(SimStorage, u64, String), String> {
    let mut steps = 0;
    let mut storage = storage;
    storage.set_stores(script.stores);
    storage.set_capacity(None);
    storage.clear_faults();
    for (number, (dies_at, death)) in script.deaths.iter().enumerate() {
        let seen = Told::default();
        let (left, outcome) = live(script, &storage, Some(*dies_at), *death, Vec::new(), &seen);
        steps += outcome.steps;
        if let Some(failure) = outcome.failure {
            return Err(format!("opening {number}: {failure}\n{}", seen.lock().in_words()));
        }
        let death = if outcome.died { *death } else { Death::Kill };
        known.after(&left, script, &seen, death).map_err(|broken| {
            format!(
                "after opening {number}, which ended by {death:?}: {broken}\n{}",
                seen.lock().in_words()
            )
        })?;
        storage = left;
    }
    storage.set_capacity(script.capacity.map(|capacity| capacity + storage.used()));
    for (call, nth, errno, sticky) in &script.faults {
        storage.fail_after(*call, *nth, *errno, *sticky);
    }
    let seen = Told::default();
    let (left, outcome) =
        live(script, &storage, script.dies_at, script.death, script.casts.clone(), &seen);
    steps += outcome.steps;
    let death = if outcome.died { script.death } else { Death::Kill };
    let told = |broken: String| {
        let story = if std::env::var_os("MMQ_SEED").is_some() {
            format!("{}\n{}", script.in_words(), seen.lock().in_words())
        } else {
            seen.lock().in_words()
        };
        format!(
            "{broken}\n(ended by {death:?}, died: {}, after {} steps)\n{story}",
            outcome.died, outcome.steps
        )
    };
    if let Some(failure) = &outcome.failure {
        return Err(told(failure.clone()));
    }
    left.clear_faults();
    left.set_capacity(None);
    known.after(&left, script, &seen, death).map_err(told)?;
    let story =
        if std::env::var_os("MMQ_SEED").is_some() { told(String::new()) } else { String::new() };
    Ok((left, steps, story))
}

/// Runs a life to its end; without casts the queue is opened and closed.
fn live(
    script: &Script,
    storage: &SimStorage,
    dies_at: Option<u64>,
    death: Death,
    casts: Vec<Cast>,
    told: &Told,
) -> (SimStorage, schedule::Outcome) {
    let left: Arc<Mutex<Option<SimStorage>>> = Arc::default();
    let (disk, into) = (storage.clone(), Arc::clone(&left));
    let on_death = move || {
        *into.lock() = Some(match death {
            Death::Kill => disk.process_kill(),
            Death::Cut(seed) => disk.power_cut(seed),
        });
    };
    let plan = Plan {
        seed: script.seed ^ dies_at.unwrap_or(0),
        switch_one_in: script.switch_one_in,
        by_rank: script.by_rank,
        dies_at,
        on_death: Box::new(on_death),
    };
    let (options, background, story, disk) =
        (script.options.clone(), script.background, Arc::clone(told), storage.clone());
    let may_fail = script.may_fail();
    let outcome = schedule::run(plan, move || {
        actor::play(disk, &options, background, casts, &story, may_fail)
    });
    let frozen = left.lock().take();
    let disk = frozen.unwrap_or_else(|| storage.process_kill());
    (disk, outcome)
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

#[test]
fn whatever_threads_disk_and_death_do_the_promises_hold() {
    if let Some(seed) = number_from("MMQ_SEED") {
        return world(seed).map(|_| ()).unwrap_or_else(|broken| panic!("{}", broken.text));
    }
    let (worlds, first) =
        (number_from("MMQ_WORLDS").unwrap_or(300), number_from("MMQ_FIRST_SEED").unwrap_or(0));
    let (next, steps, began) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(16));
    let mutant = Mutant::planted();
    let broken: Vec<Broken> = std::thread::scope(|scope| {
        let worker = || {
            Mutant::plant(mutant);
            let mut broken = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= worlds {
                    return broken;
                }
                let started = Instant::now();
                match world(first + number) {
                    Ok(taken) => {
                        steps.fetch_add(taken, Ordering::Relaxed);
                    }
                    Err(found) => broken.push(found),
                }
                // A thread that goes on for ever keeps a processor from the others.
                if broken.len() >= 5 || started.elapsed() > schedule::STILL {
                    next.store(worlds, Ordering::Relaxed);
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    let took = began.elapsed();
    let steps = steps.load(Ordering::Relaxed);
    println!(
        "{worlds} worlds, {steps} steps, {:.0} steps a second",
        steps as f64 / took.as_secs_f64()
    );
    for broken in broken.iter().skip(1) {
        println!("also: {}", broken.text.lines().next().unwrap_or_default());
    }
    assert!(broken.is_empty(), "{}", broken[0].text);
}
