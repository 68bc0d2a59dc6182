//! Nobody who waits for a message waits beside one, when nobody has anything else to do.

use std::collections::BTreeMap;

use super::acts::{Act, Answer, Event, NAMES};
use super::heard::{consumer_of, numbers_of, reader_of};
use super::promised::holds;
use super::reported::{Check, ensure};
use super::shown::Next;
use super::visitors::is_removed;

/// Holds what waited when the world was quiet, at step `quiet`, against what was there.
pub(super) fn check_quiet(events: &[Event], quiet: u64) -> Check {
    let ended: Vec<&Event> = events.iter().filter(|event| event.ended <= quiet).collect();
    // Ended by the close, or not at all.
    for event in events.iter().filter(|event| event.ended > quiet && event.began <= quiet) {
        let which = match event.act {
            Act::WaitForever(which) | Act::Task(which) => which,
            Act::ReceiveForever(which) if may_receive(&ended, which) => which,
            _ => continue,
        };
        let came = came(&ended, which);
        let mut puts = ended.iter().filter(|other| !other.ids.is_empty());
        let waiting = puts.find_map(|other| {
            let Answer::Numbers(range) = &other.answer else { return None };
            // What came while there was no consumer may be gone.
            if is_removed(events, which) && event.waits.is_none_or(|waits| other.began <= waits) {
                return None;
            }
            let is_there = |seq: &u64| came.get(seq).is_none_or(|times| *times <= 0);
            range.clone().find(|seq| is_there(seq) && !is_reported(&ended, which, *seq))
        });
        ensure!(waiting.is_none(), "{} waits for ever beside message {waiting:?}", event.thread);
    }
    Ok(())
}

/// No read reports that there is nothing while a message is there: one of `upcoming`, or one that
/// was acknowledged before that act began. (Whether one is there that is given back, or that an
/// unended act may have, cannot be told from outside.)
pub(super) fn check_nothing(events: &[Event], which: usize, upcoming: &[Next]) -> Check {
    let is_nothing = |event: &Event| {
        let may_be_limited = matches!(event.act, Act::Receive(_))
            && events.iter().any(|other| matches!(other.act, Act::Limit(of, _) if of == which));
        event.answer == Answer::Nothing && consumer_of(event) == Some(which) && !may_be_limited
    };
    for event in events.iter().filter(|event| is_nothing(event)) {
        let before = events.iter().filter(|other| other.began < event.ended);
        let before: Vec<&Event> = before.collect();
        let is_in_doubt = |other: &&Event| {
            let of_it = consumer_of(other).or(reader_of(other).and_then(number_of)) == Some(which);
            let unended = matches!(other.answer, Answer::Pending | Answer::Failed(_));
            of_it && (unended || other.ended > event.ended || other.act == Act::Nack)
        };
        if before.iter().any(is_in_doubt) {
            continue;
        }
        let came = came(&before, which);
        let puts = before.iter().filter(|other| !other.ids.is_empty() && other.ended < event.began);
        let put = puts.filter_map(|other| match &other.answer {
            Answer::Numbers(range) => Some(range.clone()),
            _ => None,
        });
        let of_before = upcoming.iter().filter_map(Next::message).map(|(seq, _)| seq);
        let mut there = of_before.chain(put.flatten());
        let beside =
            there.find(|seq| !came.contains_key(seq) && !is_reported(&before, which, *seq));
        ensure!(beside.is_none(), "{} gets nothing beside message {beside:?}", event.thread);
    }
    Ok(())
}

/// Whether a read reported to the consumer that this number is missing.
fn is_reported(events: &[&Event], which: usize, seq: u64) -> bool {
    events.iter().any(|event| match &event.answer {
        Answer::Gap(gap) => consumer_of(event) == Some(which) && holds(gap, seq),
        _ => false,
    })
}

fn number_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|other| *other == name)
}

/// How often each number came to the consumer and was not given back since.
fn came(ended: &[&Event], which: usize) -> BTreeMap<u64, i64> {
    let mut came = BTreeMap::new();
    for event in ended {
        let mut count = |seq: u64, times: i64| *came.entry(seq).or_default() += times;
        match (event.act, event.seq) {
            (Act::Peek(_), _) if matches!(event.answer, Answer::Messages(_)) => continue,
            (Act::Nack, Some(seq)) if reader_of(event) == Some(NAMES[which]) => count(seq, -1),
            _ if consumer_of(event) != Some(which) => continue,
            _ => {}
        }
        match &event.answer {
            Answer::Messages(messages) => messages.iter().for_each(|(seq, _)| count(*seq, 1)),
            Answer::Skipped(seq) => count(*seq, 1),
            Answer::Gap(gap) => numbers_of(gap).for_each(|seq| count(seq, 1)),
            _ => {}
        }
    }
    came
}

/// Whether the consumer may have one more delivery, whichever of its limits holds.
fn may_receive(ended: &[&Event], which: usize) -> bool {
    let limits = ended.iter().filter_map(|event| match event.act {
        Act::Limit(other, Some(most)) if other == which => Some(most as usize),
        _ => None,
    });
    let handed_out = ended.iter().filter(|event| {
        matches!(event.act, Act::Receive(other) | Act::ReceiveForever(other) if other == which)
            && matches!(event.answer, Answer::Messages(_))
    });
    let answered = ended.iter().filter(|event| {
        matches!(event.act, Act::Ack | Act::Nack)
            && event.answer == Answer::Done
            && reader_of(event) == Some(NAMES[which])
    });
    let in_flight = handed_out.count().saturating_sub(answered.count());
    limits.min().is_none_or(|least| in_flight < least)
}
