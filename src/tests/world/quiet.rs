//! Nobody who waits for a message waits beside one, when nobody has anything else to do.

use std::collections::BTreeMap;

use super::acts::{Act, Answer, Event, NAMES};
use super::heard::{consumer_of, reader_of};
use super::told::{Check, ensure};

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
            range.clone().find(|seq| came.get(seq).is_none_or(|times| *times <= 0))
        });
        ensure!(waiting.is_none(), "{} waits for ever beside message {waiting:?}", event.thread);
    }
    Ok(())
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
            Answer::Gap(gap) => (gap.first..=gap.last).for_each(|seq| count(seq, 1)),
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
