//! Who calls in worlds from [`VISITED`] on, besides all others: one that interrupts whoever waits,
//! and one that removes the default consumer; and what holds then.

use std::time::Duration;

use super::World;
use super::acts::{Act, Answer, Cast, Event};
use super::heard::{consumer_of, reader_of};
use super::reported::{Check, ensure};
use super::script::Script;
use crate::options::OnFull;
use crate::tests::sim::{Mutant, Rng};

/// The first seed of a world with visitors. (Worlds below are what they were before there were
/// any.)
pub(super) const VISITED: u64 = 1 << 40;

/// Which consumer is removed.
const DEFAULT: usize = 0;

/// Adds visitors to a life.
pub(super) fn join(script: &mut Script, rng: &mut Rng) {
    let casts = &mut script.casts;
    if rng.percent(60) {
        let acts = (0..1 + rng.below(8)).flat_map(|_| [Act::Sleep(rng.below(12)), Act::Interrupt]);
        casts.push(Cast { name: "interrupter".into(), acts: acts.collect() });
        if rng.percent(50) {
            // Producers wait.
            let limit = Duration::from_millis(20 + rng.below(200));
            script.options = script.options.clone().on_full(OnFull::Wait(Some(limit)));
            let most = script.options.arena_size;
            let acts = (0..8 + rng.below(16)).map(|_| Act::Enqueue(8 + rng.below(most) as usize));
            casts.push(Cast { name: "producer of much".into(), acts: acts.collect() });
        }
        if rng.percent(50) {
            let acts = (0..1 + rng.below(4)).flat_map(|_| [Act::Sleep(rng.below(6)), Act::Durably]);
            casts.push(Cast { name: "waits for flushes".into(), acts: acts.collect() });
        }
    }
    if rng.percent(50) {
        let acts = (0..1 + rng.below(3)).flat_map(|_| [Act::Sleep(rng.below(12)), Act::Remove]);
        let mut acts: Vec<Act> = acts.collect();
        if rng.percent(50) {
            // When most of the others have ended, or wait.
            acts.extend([Act::Sleep(60 + rng.below(100)), Act::Remove]);
        }
        casts.push(Cast { name: "remover".into(), acts });
    }
}

/// The default consumer was removed, or may have been.
fn removals(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.act == Act::Remove && event.answer != Answer::Nothing)
}

/// Whether the consumer `which` was removed in this life.
pub(super) fn is_removed(events: &[Event], which: usize) -> bool {
    which == DEFAULT && removals(events).next().is_some()
}

/// Whether the default consumer may have been removed between the begin of one act and the end of
/// another.
pub(super) fn is_removed_between(events: &[Event], one: u64, other: u64) -> bool {
    removals(events).any(|removal| removal.ended >= one && removal.began <= other)
}

/// Whether the act has the default consumer made again if it is gone.
fn may_make_default(event: &Event) -> bool {
    consumer_of(event) == Some(DEFAULT)
        || matches!(event.act, Act::Guest(_))
        || matches!(event.act, Act::Ack | Act::Nack) && reader_of(event) == Some("")
}

/// Whether the default consumer was removed for good: nobody has made it again, and whoever cuts
/// the power cannot bring it back.
pub(super) fn is_gone_for_good(events: &[Event], is_cut: bool, closed: bool) -> bool {
    let done = events.iter().filter(|event| event.act == Act::Remove);
    let done = done.filter(|event| event.answer == Answer::Done).max_by_key(|event| event.began);
    let Some(removal) = done else { return false };
    let is_made_again =
        events.iter().any(|event| may_make_default(event) && event.ended > removal.began);
    let mut flushes =
        events.iter().filter(|event| event.act == Act::Flush && event.answer == Answer::Done);
    let is_durable = closed || flushes.any(|flush| flush.began > removal.ended);
    !is_made_again && (!is_cut || is_durable)
}

/// Whether an act may wait in a way that an interrupt ends.
fn may_be_interrupted(act: Act) -> bool {
    matches!(
        act,
        Act::Enqueue(_)
            | Act::Parts(_)
            | Act::Batch(..)
            | Act::Wait(..)
            | Act::WaitForever(_)
            | Act::ReceiveForever(_)
            | Act::Durably
    )
}

/// Only who waits is interrupted, and only when somebody interrupts; a consumer is gone only when
/// somebody removed it.
pub(super) fn check_visits(events: &[Event]) -> Check {
    for event in events {
        match event.answer {
            Answer::Interrupted => {
                let mut others = events.iter().filter(|other| other.act == Act::Interrupt);
                let is_meant =
                    others.any(|other| other.began <= event.ended && other.ended >= event.began);
                let Event { thread, act, .. } = event;
                ensure!(is_meant && may_be_interrupted(*act), "{act:?} of {thread} is interrupted");
            }
            Answer::Gone => {
                let is_gone = is_removed_between(events, 0, event.ended);
                let of_it = may_make_default(event);
                let Event { thread, act, .. } = event;
                ensure!(is_gone && of_it, "{act:?} of {thread} finds no consumer");
            }
            _ => {}
        }
    }
    Ok(())
}

/// When the world was quiet, at step `quiet`, nobody waited on who was to be told to stop.
pub(super) fn check_woken(events: &[Event], quiet: u64) -> Check {
    for event in events.iter().filter(|event| event.ended > quiet) {
        let Some(waits) = event.waits else { continue };
        let mut ended = events.iter().filter(|other| other.ended <= quiet && other.began > waits);
        let stop = ended.find(|other| match other.act {
            Act::Interrupt => true,
            // Also when somebody has made it again before the one that waits looked.
            Act::Remove => other.answer == Answer::Done && consumer_of(event) == Some(DEFAULT),
            _ => false,
        });
        let Event { thread, act, .. } = event;
        ensure!(stop.is_none(), "{thread} waits on in {act:?}, in spite of {stop:?}");
    }
    Ok(())
}

#[test]
fn bugs_that_are_planted_for_visitors_are_found() {
    let bugs = [Mutant::InterruptedThoughDone, Mutant::InterruptedHavingTaken];
    for mutant in bugs {
        Mutant::plant(Some(mutant));
        let broken = (VISITED..VISITED + 3000)
            .find_map(|seed| Some((seed, World::draw(seed).play(None).err()?)));
        Mutant::plant(None);
        let Some((seed, broken)) = broken else { panic!("{mutant:?} is not found") };
        println!("{mutant:?} is found by world {seed}: {}", broken.text);
    }
}
