//! Runs the worlds of one kind, one after the other on each processor.

use std::fmt::Display;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::Played;
use super::visitors::VISITED;
use crate::tests::effort::{alone, effort, first};
use crate::tests::schedule::{self, Line, Log};
use crate::tests::sim::Mutant;

/// A kind of worlds. A seed is a world.
pub(super) trait Kind: Sized + Send {
    /// A broken promise.
    type Broken: Display + Send;

    fn draw(seed: u64) -> Self;
    fn play(&self, log: Option<&Log>) -> Result<Played, Self::Broken>;
    /// What happened, by the log.
    fn story(&self, lines: &[Line]) -> String;
    /// The story of a smaller world that breaks the promise.
    fn report(self, seed: u64, broken: Self::Broken) -> String;
}

/// The command that runs a world alone.
fn replay(seed: u64) -> String {
    let set = |name| std::env::var(name).map_or(String::new(), |value| format!("{name}={value} "));
    let mutant = set("MMQ_MUTANT");
    format!("{mutant}MMQ_SEED={seed} cargo test --release --lib world:: -- --nocapture")
}

/// Runs one world, and tells its story.
fn run_alone<K: Kind>(seed: u64) {
    let world = K::draw(seed);
    let log = Log::default();
    match world.play(None) {
        Ok(_) => {
            let again = world.play(Some(&log));
            assert!(again.is_ok(), "seed {seed} is not the same twice");
            println!("{}", world.story(&log.take()));
        }
        Err(broken) => {
            println!("seed {seed} breaks a promise; replay it by\n    {}", replay(seed));
            println!("{}", world.report(seed, broken));
            panic!("seed {seed} breaks a promise: see above");
        }
    }
}

/// Keeps the calling thread, and those that it starts, on one processor. The threads of a world
/// take turns: a turn that goes to another processor costs several times as much.
fn stay_on_processor(number: usize) {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let processors = (0..CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at));
        if let Some(processor) = processors.cycle().nth(number) {
            let mut only = CpuSet::new();
            only.set(processor);
            let _ = sched_setaffinity(None, &only);
        }
    }
}

/// Runs the worlds that are asked for, by their numbers in that range of seeds.
pub(super) fn run<K: Kind>(seeds: Range<u64>) {
    if let Some(seed) = alone() {
        if seeds.contains(&seed) {
            run_alone::<K>(seed);
        }
        return;
    }
    let worlds = 300 * effort();
    let first = seeds.start + first().unwrap_or(0) % VISITED;
    let (next, began) = (AtomicU64::new(0), Instant::now());
    let all = Mutex::new(Played::default());
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(16));
    let mutant = Mutant::planted();
    let mut broken: Vec<(u64, K, K::Broken)> = std::thread::scope(|scope| {
        let worker = |number| {
            stay_on_processor(number);
            Mutant::plant(mutant);
            let mut broken = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= worlds {
                    return broken;
                }
                let (started, seed) = (Instant::now(), first + number);
                let world = K::draw(seed);
                match world.play(None) {
                    Ok(played) => *all.lock() += played,
                    Err(found) => {
                        println!(
                            "seed {seed} breaks a promise; replay it by\n    {}",
                            replay(seed)
                        );
                        broken.push((seed, world, found));
                    }
                }
                // A thread that goes on for ever keeps a processor from the others.
                let enough = if mutant.is_some() { 1 } else { 5 };
                let goes_on = !broken.is_empty() && started.elapsed() > schedule::STILL;
                if broken.len() >= enough || goes_on {
                    next.store(worlds, Ordering::Relaxed);
                }
            }
        };
        let workers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || worker(number))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    let took = began.elapsed();
    let Played { steps, schedules, died, died_at_work, worlds } = all.into_inner();
    println!(
        "{worlds} worlds, {schedules} schedules ({died} ended by a death, {died_at_work} of these \
         with threads at work), {steps} steps, {:.0} steps a second",
        steps as f64 / took.as_secs_f64()
    );
    broken.sort_by_key(|(seed, ..)| *seed);
    let mut broken = broken.into_iter();
    let Some((seed, world, first)) = broken.next() else { return };
    for (seed, _, broken) in broken {
        println!("also seed {seed}: {}", broken.to_string().lines().next().unwrap_or_default());
    }
    println!("{}", world.report(seed, first));
    panic!("seed {seed} breaks a promise: see above");
}
