//! Crashes of every kind: random histories on the simulated disk, cut short at random moments.
//!
//! A **history** is one queue with everything that was done to it, and beside it a model of what
//! the queue promised. An **image** is what is left of the disk by a power cut, by the death of the
//! process, or by one after the other (the second perhaps within the recovery from the first, in
//! which calls may fail, too). Each image is opened and compared with the model (`examine`):
//!
//! - every durable message that was not consumed is delivered, byte for byte; after a mere kill
//!   every acknowledged one;
//! - no message comes that was never enqueued, none comes twice, all come in order; a batch is
//!   whole or absent;
//! - every missing number is reported once, in a gap, before the queue says that it is empty; a
//!   kill makes no gap;
//! - messages are dropped or expire only when they may, and are reported so;
//! - a message whose acknowledgement was flushed does not come again; after a kill no acknowledged
//!   message does;
//! - after a kill it is known how often each message was handed out in vain, and which are handed
//!   out no more; a power cut may take counts back, and adds to none;
//! - a consumer stands at a place it once had, at or behind the last flushed one; after a kill
//!   exactly at its last place;
//! - no number is used twice; the queue goes on working; opening it twice gives the same.
//!
//! `MMQ_EFFORT` multiplies the number of images, `MMQ_SEED=N..` sets the first history; `MMQ_SEED`
//! runs one history alone. Histories made for one danger each are in `directed`.

mod acks;
mod attempts;
pub(crate) mod chosen;
mod copies;
mod digests;
mod directed;
mod examine;
mod faults;
mod first_sync;
mod headers;
mod held;
mod history;
mod model;
mod rows;
mod stated;
mod what_goes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::tests::effort::{alone, effort, first, sample};
use crate::tests::sim::Mutant;
pub(crate) use directed::holds_but_for;
use history::{History, Work};

/// Images of one history.
const EACH: u64 = 40;
/// A planted bug that so many histories do not find counts as overlooked.
const MOST_HISTORIES: u64 = 3000;

/// Histories that broke a promise once, each by a fault of its own, as they were drawn then.
const BROKE_ONCE: [(Work, &[u64]); 2] = [
    (Work::Fewer, &[266, 739, 882, 1040, 1616, 1691, 2179, 2607]),
    (
        Work::Everything,
        &[1113, 1426, 90_000_059, 795_578_380_074, 795_578_380_683, 795_578_381_951],
    ),
];

#[derive(Debug)]
struct Violation {
    seed: u64,
    images: u64,
    text: String,
}

/// Runs one history. Returns the promise that it broke, or how many images were examined.
fn explore(seed: u64, images: u64) -> Result<u64, Violation> {
    explore_with(Work::Everything, seed, images)
}

fn explore_with(work: Work, seed: u64, images: u64) -> Result<u64, Violation> {
    let mut seen = 0;
    let mut trace = Vec::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut history = History::new(seed, work)?;
        // What is under way when something panics is reported, too.
        let done = catch_unwind(AssertUnwindSafe(|| history.run(images)));
        (seen, trace) = (history.images, std::mem::take(&mut history.trace));
        done.unwrap_or_else(|panic| Err(words_of(&*panic)))
    }));
    match done.unwrap_or_else(|panic| Err(words_of(&*panic))) {
        Ok(()) => Ok(seen),
        Err(broken) => {
            let last = trace.len().saturating_sub(if alone().is_some() { 1000 } else { 12 });
            Err(Violation {
                seed,
                images: seen,
                text: format!("{}\n{broken}", trace[last..].join("\n")),
            })
        }
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    format!(
        "panicked: {}",
        words
            .or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()))
            .unwrap_or_default()
    )
}

/// From this effort on the slow searches run too.
const MANY: u64 = 30;

fn asked_for_many() -> bool {
    effort() >= MANY
}

#[test]
fn whatever_a_crash_leaves_keeps_the_promises() {
    if let Some(seed) = alone() {
        return explore(seed, EACH).map(|_| ()).unwrap_or_else(|broken| panic!("{}", broken.text));
    }
    let images = sample(300) * effort();
    let (next, done, began) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(16));
    let first = first().unwrap_or(0);
    let broken: Vec<Violation> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    while done.load(Ordering::Relaxed) < images {
                        let seed = first + next.fetch_add(1, Ordering::Relaxed);
                        match explore(seed, EACH.min(images)) {
                            Ok(seen) => done.fetch_add(seen, Ordering::Relaxed),
                            Err(broken) => {
                                done.fetch_add(images, Ordering::Relaxed);
                                return Some(broken);
                            }
                        };
                    }
                    None
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok().flatten()).collect()
    });
    if let Some(first) = broken.iter().min_by_key(|broken| broken.seed) {
        panic!(
            "history {} broke a promise at image {} (MMQ_SEED={} replays it):\n{}",
            first.seed, first.images, first.seed, first.text
        );
    }
    println!(
        "{} images of {} histories in {:.1?}: no promise broken",
        done.into_inner(),
        next.into_inner(),
        began.elapsed()
    );
}

/// How random histories find a planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Within a few hundred images.
    Soon,
    /// When many images are asked for.
    Late,
    /// Never: chance does not produce what the bug needs (numbers, places and lengths that
    /// coincide, calls that fail, damage).
    Never,
}

/// For each bug that can be planted the rule that it breaks (R0 to R9 as in docs/recovery.md), the
/// directed test that finds it in every run, and when random histories find it.
const PLANTED: [(Mutant, &str, &str, Found); 22] = [
    (
        Mutant::CheckpointBeforeData,
        "R0: a checkpoint names only what is on the disk",
        "a_checkpoint_never_speaks_of_messages_that_are_not_on_the_disk",
        Found::Soon,
    ),
    (
        Mutant::ChecksumNotSeeded,
        "R5: a record counts in its place and its life alone",
        "what_a_segment_held_before_it_was_used_again_never_counts",
        Found::Never,
    ),
    (
        Mutant::DirectoryNotSynced,
        "R2: names are on the disk before anything rests on them",
        "what_was_flushed_has_its_name_on_the_disk",
        Found::Soon,
    ),
    (
        Mutant::TornBatchAccepted,
        "a batch is whole or absent",
        "a_torn_batch_is_absent",
        Found::Soon,
    ),
    (
        Mutant::SealNotChecked,
        "a batch is of one try",
        "records_of_two_tries_at_a_batch_never_make_one",
        Found::Never,
    ),
    (
        Mutant::RecycledBeforePlacesAreSynced,
        "R8: a segment goes when the disk knows of a place behind it",
        "the_rest_of_a_flushed_batch_outlives_two_power_cuts",
        Found::Late,
    ),
    (
        Mutant::SlotOverwrittenWithoutR1,
        "R1: the slot that counts is on the disk before the other one is written",
        "a_checkpoint_that_may_be_the_only_one_is_durable_before_the_other_is_written",
        Found::Never,
    ),
    (
        Mutant::SuspectNotStoredAgain,
        "R4: what a failed sync left off the disk is stored again",
        "what_is_flushed_after_a_failed_sync_is_on_the_disk",
        Found::Never,
    ),
    (
        Mutant::IndexNotStoredAgain,
        "R4: the next sync of the index takes its pages, too",
        "places_that_a_failed_sync_left_off_the_disk_are_stored_again",
        Found::Never,
    ),
    (
        Mutant::LossesOfTheRunForgotten,
        "what was evicted stays so",
        "what_expired_before_a_kill_does_not_come_again",
        Found::Never,
    ),
    (
        Mutant::CauseNotDurable,
        "the disk knows why a segment was evicted before it goes",
        "why_a_segment_was_evicted_is_known_before_it_goes",
        Found::Never,
    ),
    (
        Mutant::ChangingNotSaid,
        "rows are not believed while segments are changed",
        "a_death_in_a_change_of_segments_leaves_no_file_that_is_not_known",
        Found::Never,
    ),
    (
        Mutant::CleanMarkKept,
        "segments that go end the clean end",
        "segments_that_go_end_the_clean_end",
        Found::Never,
    ),
    (
        Mutant::SpareLeftLive,
        "a spare says that it is one",
        "a_spare_does_not_rise_again_when_the_index_is_lost",
        Found::Never,
    ),
    (
        Mutant::SeekNotSynced,
        "what a seek forgets is forgotten on the disk first",
        "a_seek_backwards_is_not_undone_by_older_acknowledgements",
        Found::Never,
    ),
    (
        Mutant::AcknowledgedNumberGivenAgain,
        "no number is given out twice, whoever alone speaks of it",
        "an_acknowledged_number_is_not_given_again",
        Found::Never,
    ),
    (
        Mutant::TornRestKept,
        "what recovery gives up is overwritten, or the opening fails",
        "a_torn_batch_that_cannot_be_overwritten_is_not_delivered",
        Found::Never,
    ),
    (
        Mutant::HeaderByCallAlone,
        "P4: a power cut's loss is reported as that",
        "a_header_that_no_call_can_write_states_what_is_missing",
        Found::Never,
    ),
    (
        Mutant::StatedByTheRowAlone,
        "P4: a power cut's loss is reported as that",
        "what_a_row_alone_states_outlives_the_opening_that_writes_the_rows_anew",
        Found::Never,
    ),
    (
        Mutant::FilledBeforeStated,
        "P4: a power cut's loss is reported as that",
        "a_death_in_an_opening_that_fills_a_hole_changes_no_cause",
        Found::Never,
    ),
    (
        Mutant::StatedAtTheBaseAlone,
        "P4: a power cut's loss is reported as that",
        "a_checkpoint_within_missing_numbers_states_those_before_it",
        Found::Never,
    ),
    (
        Mutant::EndsNotLookedAt,
        "rows are held against the files",
        "the_ends_of_the_list_are_looked_at",
        Found::Never,
    ),
];

/// Each planted bug is in the table, with a test that plants the bug and fails if it does not find
/// it (`kept_but_for`, `holds_but_for`).
#[test]
fn each_planted_bug_has_a_test_that_finds_it() {
    let sources = [
        include_str!("acks.rs"),
        include_str!("directed/mod.rs"),
        include_str!("directed/batches.rs"),
        include_str!("directed/refused.rs"),
        include_str!("directed/suspect.rs"),
        include_str!("rows.rs"),
        include_str!("stated/mod.rs"),
        include_str!("stated/between.rs"),
        include_str!("stated/index.rs"),
        include_str!("what_goes.rs"),
    ];
    for (mutant, rule, test, _) in PLANTED {
        let body = sources
            .iter()
            .find_map(|source| source.split_once(&format!("#[test]\nfn {test}() {{")));
        let (_, body) =
            body.unwrap_or_else(|| panic!("{mutant:?} ({rule}): there is no test {test}"));
        let body = body.split("\n}\n").next().unwrap();
        let ways =
            [format!("_but_for(Mutant::{mutant:?}, "), format!("plant(Some(Mutant::{mutant:?}))")];
        let plants = ways.iter().any(|way| body.contains(way));
        assert!(plants, "{mutant:?} ({rule}) is not planted by {test}");
    }
}

/// A test of the test: random histories find the planted bugs, too.
#[test]
fn random_histories_find_planted_bugs() {
    let many = asked_for_many();
    let wanted = |found: Found| found == Found::Soon || many && found == Found::Late;
    for (mutant, rule, ..) in PLANTED.into_iter().filter(|(.., found)| wanted(*found)) {
        Mutant::plant(Some(mutant));
        let mut images = 0;
        let found = (0..MOST_HISTORIES).find_map(|seed| match explore(seed, EACH) {
            Ok(seen) => {
                images += seen;
                None
            }
            Err(broken) => Some(broken),
        });
        Mutant::plant(None);
        let broken =
            found.unwrap_or_else(|| panic!("{mutant:?} ({rule}) was not found in {images} images"));
        let words = broken.text.lines().last().unwrap_or_default();
        println!("{mutant:?} was found at image {}: {words:.160}", images + broken.images);
    }
}

#[test]
fn the_histories_that_broke_a_promise_once_keep_them() {
    for (work, seeds) in BROKE_ONCE {
        for seed in seeds {
            explore_with(work, *seed, EACH)
                .unwrap_or_else(|broken| panic!("history {seed}: {}", broken.text));
        }
    }
}
