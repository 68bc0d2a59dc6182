//! Deliveries against a model: leases, delays, attempts, rejections and dead letters, under a clock
//! that the test turns, over deaths of the process and orderly ends.
//!
//! After each step the queue and a naive oracle agree on what is handed out, in which order and
//! with which attempts, what is reported as a gap, which dead letters went, and which answers came
//! too late. A difference is shrunk: steps go for as long as there is one.
//!
//! `MMQ_EFFORT` multiplies the number of sequences, `MMQ_SEED` says which one alone.

mod oracle;
mod run;
mod steps;

use self::run::{Check, Run};
use self::steps::Step;
use crate::tests::effort::{alone, effort, first, sample};
use crate::tests::sim::Mutant;

/// A planted bug that so many sequences do not find counts as overlooked.
const MOST: u64 = 2000;

/// Takes the steps, and what comes at the end. Says how many were taken before a difference.
fn play(steps: &[Step]) -> Result<(), (usize, String)> {
    let mut run = Run::new(1);
    for (taken, step) in steps.iter().enumerate() {
        run.step(*step).map_err(|text| (taken + 1, text))?;
    }
    run.end().map_err(|text| (steps.len(), text))
}

/// Leaves out every step that the difference does not need.
fn shrink(mut steps: Vec<Step>) -> Vec<Step> {
    if let Err((taken, _)) = play(&steps) {
        steps.truncate(taken);
    }
    // The first one opens the queue.
    let mut at = steps.len();
    while at > 1 {
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        if let Err((taken, _)) = play(&fewer) {
            fewer.truncate(taken);
            steps = fewer;
            at = at.min(steps.len());
        }
    }
    steps
}

fn agrees(seed: u64) -> Check {
    let steps = steps::draw(seed);
    play(&steps).map_err(|(taken, text)| format!("step {taken}: {text}"))
}

#[test]
fn deliveries_are_what_a_naive_model_says() {
    let first = first().unwrap_or(0);
    let seeds = alone().map_or(first..first + sample(300) * effort(), |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(text) = agrees(seed) {
            let left = shrink(steps::draw(seed));
            let ends = play(&left).err().map_or(String::new(), |(_, text)| text);
            let story: Vec<String> = left.iter().map(|step| format!("  {step:?}")).collect();
            let story = story.join("\n");
            panic!("MMQ_SEED={seed}: {text}\nas little as this is enough:\n{story}\n{ends}");
        }
    }
}

/// A test of the test: each of these bugs makes a difference.
#[test]
fn planted_bugs_of_redelivery_are_found() {
    for mutant in FOUND {
        Mutant::plant(Some(mutant));
        let found = (0..MOST).find_map(|seed| Some((seed, agrees(seed).err()?)));
        Mutant::plant(None);
        let (seed, text) = found.unwrap_or_else(|| panic!("{mutant:?} makes no difference"));
        println!("{mutant:?} was found by sequence {seed}: {text}");
    }
}

/// What the comparison finds.
const FOUND: [Mutant; 3] =
    [Mutant::InFlightNotStored, Mutant::RejectionNotStored, Mutant::EpochNotAsked];
