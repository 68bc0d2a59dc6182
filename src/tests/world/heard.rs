//! What reads reported to one consumer in a life, held against what was sent as it is gathered.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::acts::{Act, Answer, Event, NAMES, Story};
use super::known::{Known, Sent};
use super::promised::{check_cause, holds};
use super::reported::{Check, ensure};
use super::script::Script;
use super::visitors::{is_removed, is_removed_between};
use crate::error::Gap;

/// What reads reported to one consumer in a life.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// By number: the act that reported it last.
    pub(super) taken: BTreeMap<u64, usize>,
    /// DeliveryToken out and not acknowledged.
    pub(super) open: BTreeSet<u64>,
    pub(super) gaps: Vec<Gap>,
    /// Deliveries that had not ended: one may be out, and others behind it may be taken.
    pub(super) receiving: usize,
    /// Acts that had not ended: one may have got a gap.
    pub(super) unended: usize,
    /// How many messages acts may have taken that had not ended.
    pub(super) pending: usize,
    /// Numbers whose acknowledgement had not ended.
    pub(super) answered: BTreeSet<u64>,
    /// Numbers dealt with by acts that ended before the last flush began, in this life or before.
    pub(super) durable: BTreeSet<u64>,
}

/// Goes through a life's events for one consumer.
struct Listener<'a> {
    known: &'a Known,
    name: &'a str,
    events: &'a [Event],
    sent: &'a Sent,
    script: &'a Script,
    /// What is given back comes again, before or behind others.
    gives_back: bool,
    /// It was removed in this life.
    is_removed: bool,
    heard: Heard,
    /// The end of each act that took something, with the number.
    taken: Vec<(u64, u64)>,
    /// The end of each act that got a gap.
    reported_at: Vec<u64>,
}

/// What reads reported to that consumer, if nothing of it breaks a promise.
pub(super) fn heard(
    known: &Known,
    name: &str,
    story: &Story,
    sent: &Sent,
    script: &Script,
) -> Check<Heard> {
    let events = &story.events[..];
    let gives_back =
        events.iter().any(|event| event.act == Act::Nack && reader_of(event) == Some(name));
    let mut listener = Listener {
        known,
        name,
        events,
        sent,
        script,
        gives_back,
        is_removed: name.is_empty() && is_removed(events, 0),
        heard: Heard::default(),
        taken: Vec::new(),
        reported_at: Vec::new(),
    };
    let flushes =
        events.iter().filter(|event| event.act == Act::Flush && event.answer == Answer::Done);
    let flushed = flushes.map(|event| event.began).max().unwrap_or(0);
    // Closing flushes, too.
    let flushed = if story.closed { u64::MAX } else { flushed };
    for (at, event) in events.iter().enumerate() {
        if consumer_of(event).is_some_and(|which| NAMES[which] == name) {
            listener.hear(at, event)?;
            listener.keep_durable(event, flushed);
        }
    }
    listener.hear_acknowledgements(flushed)?;
    Ok(listener.heard)
}

impl Listener<'_> {
    fn hear(&mut self, at: usize, event: &Event) -> Check {
        let name = self.name;
        match &event.answer {
            Answer::Messages(messages) => {
                for (seq, id) in messages {
                    self.known.check_identity(*seq, *id, self.sent)?;
                    if !matches!(event.act, Act::Peek(_)) {
                        self.hear_message(at, event, *seq)?;
                    }
                }
                if takes(event) {
                    self.taken.extend(messages.iter().map(|(seq, _)| (event.ended, *seq)));
                }
            }
            Answer::Pending | Answer::Failed(_) => {
                // A look, too: it may have got a gap.
                self.heard.unended += 1;
                let receives = matches!(event.act, Act::Receive(_) | Act::ReceiveForever(_));
                self.heard.receiving += usize::from(receives);
                self.heard.pending += match event.act {
                    Act::TakeBatch(_, most) => most,
                    Act::Receive(_) | Act::ReceiveForever(_) | Act::Limit(..) | Act::Peek(_) => 0,
                    _ => 1,
                };
            }
            Answer::Skipped(seq) => {
                let before = self.heard.taken.insert(*seq, at);
                ensure!(!self.is_again(before, event), "{name:?} skipped {seq}, which it got");
            }
            Answer::Gap(gap) => {
                check_cause(gap, self.script, self.known.losses)?;
                let again = self
                    .heard
                    .gaps
                    .iter()
                    .find(|other| other.first <= gap.last && gap.first <= other.last);
                let is_removed = self.is_removed;
                ensure!(
                    again.is_none() || is_removed,
                    "{gap:?} is reported to {name:?} after {again:?}"
                );
                let came = self.heard.taken.range(gap.first..=gap.last).next();
                ensure!(
                    came.is_none() || is_removed,
                    "{gap:?} is reported to {name:?}, which got {came:?}"
                );
                self.heard.gaps.push(*gap);
                self.reported_at.push(event.ended);
            }
            _ => {}
        }
        Ok(())
    }

    /// A message comes once, unless it is given back, and never after its gap was reported.
    fn hear_message(&mut self, at: usize, event: &Event, seq: u64) -> Check {
        let name = self.name;
        let mut gaps = self.heard.gaps.iter().zip(&self.reported_at);
        let reported = gaps.find(|(gap, _)| holds(gap, seq));
        ensure!(
            self.is_removed || reported.is_none_or(|(_, ended)| *ended >= event.began),
            "{seq} was reported missing and came"
        );
        if !takes(event) {
            let before = self.heard.taken.get(&seq);
            let before = before.filter(|at| self.events[**at].ended < event.began);
            ensure!(
                !self.is_again(before.copied(), event),
                "{name:?} got {seq} again after it was taken"
            );
            self.heard.open.insert(seq);
            return Ok(());
        }
        let before = self.heard.taken.insert(seq, at);
        ensure!(!self.is_again(before, event), "{name:?} got {seq} twice");
        if !self.gives_back && !self.is_removed {
            let before =
                self.taken.iter().find(|(ended, before)| *ended < event.began && *before > seq);
            ensure!(before.is_none(), "{name:?} got {seq} after {before:?}");
        }
        Ok(())
    }

    /// Whether an act before got what this one gets, and the consumer was not removed between.
    fn is_again(&self, before: Option<usize>, event: &Event) -> bool {
        before.map(|at| &self.events[at]).is_some_and(|before| {
            let began = before.began.min(event.began);
            let ended = before.ended.max(event.ended);
            !(self.is_removed && is_removed_between(self.events, began, ended))
        })
    }

    /// Whether the consumer may have been removed since the thread received what it acknowledges.
    /// That answers then as one that is done already does, and does nothing.
    fn is_called_off(&self, acknowledged: &Event, seq: u64) -> bool {
        let has_it = |messages: &[(u64, _)]| messages.iter().any(|(other, _)| *other == seq);
        let received = self.events.iter().rev().find(|event| {
            event.thread == acknowledged.thread
                && event.ended <= acknowledged.began
                && !takes(event)
                && matches!(&event.answer, Answer::Messages(messages) if has_it(messages))
        });
        self.is_removed
            && received.is_some_and(|received| {
                is_removed_between(self.events, received.began, acknowledged.ended)
            })
    }

    fn keep_durable(&mut self, event: &Event, flushed: u64) {
        if event.ended >= flushed {
            return;
        }
        match &event.answer {
            Answer::Messages(messages) if takes(event) => {
                self.heard.durable.extend(messages.iter().map(|(seq, _)| *seq));
            }
            Answer::Skipped(seq) => {
                self.heard.durable.insert(*seq);
            }
            Answer::Gap(gap) => self.heard.durable.extend(numbers_of(gap)),
            _ => {}
        }
    }

    /// Acknowledgements name the number alone, and belong to whoever has it open.
    fn hear_acknowledgements(&mut self, flushed: u64) -> Check {
        for (at, event) in self.events.iter().enumerate() {
            let (Act::Ack, Some(seq)) = (event.act, event.seq) else { continue };
            if !self.heard.open.contains(&seq) || reader_of(event) != Some(self.name) {
                continue;
            }
            match &event.answer {
                Answer::Done if self.is_called_off(event, seq) => {
                    self.heard.answered.insert(seq);
                }
                Answer::Done => {
                    self.heard.open.remove(&seq);
                    let before = self.heard.taken.insert(seq, at);
                    ensure!(!self.is_again(before, event), "{seq} was acknowledged twice");
                    if event.ended < flushed {
                        self.heard.durable.insert(seq);
                    }
                }
                // The flush that `flush_every_ops` asks for may find no room: the message is
                // acknowledged all the same.
                Answer::Pending | Answer::Failed(_) | Answer::Refused => {
                    self.heard.answered.insert(seq);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The numbers of a gap that messages may have had. A reservation has a million others.
pub(super) fn numbers_of(gap: &Gap) -> RangeInclusive<u64> {
    gap.first..=gap.last.min(gap.first + 5000)
}

/// Whether what the act gets is dealt with by that.
fn takes(event: &Event) -> bool {
    !matches!(event.act, Act::Receive(_) | Act::ReceiveForever(_) | Act::Peek(_))
}

/// Which consumer reads.
pub(super) fn consumer_of(event: &Event) -> Option<usize> {
    match event.act {
        Act::Take(which)
        | Act::TakeBatch(which, _)
        | Act::Skip(which)
        | Act::Peek(which)
        | Act::Wait(which, _)
        | Act::WaitForever(which)
        | Act::Task(which)
        | Act::Limit(which, _)
        | Act::ReceiveForever(which)
        | Act::Receive(which) => Some(which),
        _ => None,
    }
}

/// The consumer whose reader this thread is, by its name.
pub(super) fn reader_of(event: &Event) -> Option<&'static str> {
    NAMES.into_iter().find(|name| event.thread.ends_with(&format!(" of {name:?}")))
}
