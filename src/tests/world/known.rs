//! What is known of the disk between two lives, and how a life changes it.

use std::collections::{BTreeMap, BTreeSet};

use super::acts::{Act, Answer, Event, NAMES, Reported, Story};
use super::heard::heard;
use super::promised::{Losses, Promised};
use super::quiet::{check_nothing, check_quiet};
use super::reported::{Check, Death, ensure};
use super::script::Script;
use super::shown::{Next, Shown, show};
use super::story::in_words;
use super::visitors::{check_visits, check_woken, is_gone_for_good, is_removed};
use crate::error::GapCause;
use crate::stats::Stats;
use crate::tests::sim::SimStorage;

/// What is known of the disk between two lives.
#[derive(Debug, Default, Clone)]
pub(super) struct Known {
    upcoming: BTreeMap<&'static str, Vec<Next>>,
    /// Who has that number, of all that were ever seen.
    ids: BTreeMap<u64, u64>,
    /// Put in by acts that had not ended: a power cut may show one that was reported only to a
    /// process that died.
    open: BTreeSet<u64>,
    /// No number below is given out again: a call reported one of them.
    next: u64,
    /// Everything below is on disk.
    durable: u64,
    /// Everything below was found on the disk by an opening behind a power cut.
    on_disk: u64,
    /// A power cut leaves the consumers there.
    has_durable_consumers: bool,
    /// But perhaps not the default one, which was removed.
    may_lack_default: bool,
    /// By identity: batches of which all or nothing is there.
    batches: BTreeMap<u64, Vec<u64>>,
    /// By consumer: numbers that it has dealt with, durably.
    dealt: BTreeMap<&'static str, BTreeSet<u64>>,
    pub(super) losses: Losses,
}

impl Known {
    /// Opens a copy of what a life left and compares; from then on that is what is known.
    pub(super) fn after(
        &mut self,
        left: &SimStorage,
        script: &Script,
        reported: &Reported,
        death: Death,
    ) -> Check {
        let story = reported.lock();
        let events = &story.events;
        self.losses.allow(&script.options);
        check_visits(events)?;
        let shown = show(left, script)?;
        let is_remount = matches!(death, Death::Remount(_));
        let is_cut = death.is_cut();
        let Shown { evicted, retained_from, next: shown_next, .. } = shown;
        let sent = self.sent(events)?;
        let durable = self.durable_after(&story, script);
        let closed_well = story.closed && !death.is_cut();
        self.next = self.next.max(reported_below(events, &sent));
        for (which, name) in NAMES.into_iter().enumerate() {
            let upcoming = self.upcoming.get(name).cloned().unwrap_or_default();
            let is_removed = is_removed(events, which);
            let is_anew = is_removed || name.is_empty() && self.may_lack_default;
            let mut heard = heard(self, name, &story, &sent, script)?;
            if is_removed {
                heard.durable.clear();
                self.dealt.remove(name);
            } else {
                check_nothing(events, which, &upcoming)?;
                heard.durable.extend(self.dealt.get(name).into_iter().flatten());
            }
            let Some(shown) = shown.consumers.get(name) else {
                let has_come = has_come(&story, script, is_cut);
                let may_be_gone = !has_come && !self.was_there(name, is_cut, is_anew);
                ensure!(is_removed || may_be_gone, "consumer {name:?} is gone");
                continue;
            };
            ensure!(
                script.may_fail() || which > 0 || !is_gone_for_good(events, is_cut, story.closed),
                "the default consumer was removed and is there"
            );
            let promised = Promised {
                sent: &sent,
                upcoming: &upcoming,
                heard: &heard,
                is_cut,
                evicted,
                retained_from,
                durable,
                on_disk: self.on_disk,
                batches: &self.batches,
                next: self.next.min(if is_remount { shown_next } else { u64::MAX }),
                script,
                ids: &self.ids,
                losses: self.losses,
                is_removed,
                is_anew,
            };
            promised.check(shown).map_err(|broken| {
                let (shown, before) = (in_words(shown), in_words(&upcoming));
                format!(
                    "{name:?}: {broken}\n  what an opening shows to it: {shown}\n  \
                     what came next before: {before}\n  what was reported: {heard:?}\n  \
                     durable below {durable}"
                )
            })?;
            // Reported numbers of which nobody has a message are many.
            let (ids, acknowledged) = (&self.ids, &sent.acknowledged);
            heard.durable.retain(|seq| ids.contains_key(seq) || acknowledged.contains_key(seq));
            self.dealt.insert(name, heard.durable);
            let is_out = heard.receiving > 0 || !heard.open.is_empty();
            let may_change = is_out || script.may_fail() || script.options.max_age.is_some();
            let of_default = story.figures.as_ref().filter(|_| story.closed && name.is_empty());
            if let Some(figures) = of_default.filter(|_| !may_change) {
                // Who sees another mount goes on behind the reserved numbers.
                let goes_on = is_cut || death == Death::KillElsewhere;
                check_figures(figures, shown, shown_next, goes_on)?;
            }
        }
        if let Some(quiet_at) = story.quiet_at.filter(|_| !is_cut) {
            check_quiet(events, quiet_at)?;
            check_woken(events, quiet_at)?;
        }
        self.check_next(shown.next, is_remount)?;
        self.has_durable_consumers |=
            story.flushed || is_cut && shown.consumers.len() == NAMES.len() || closed_well;
        self.may_lack_default = is_removed(events, 0) || self.may_lack_default && !story.flushed;
        self.take_up(shown, events, &sent, durable, is_cut, closed_well);
        Ok(())
    }

    fn check_next(&mut self, next: u64, is_remount: bool) -> Check {
        if is_remount && next < self.next {
            // The one case in which numbers are given out again (`recovery`).
            self.forget_from(next);
        }
        ensure!(next >= self.next, "next is {next}, and {} was given out", self.next);
        Ok(())
    }

    /// Whether the consumer was there when the life began, and a death leaves it.
    fn was_there(&self, name: &str, is_cut: bool, is_anew: bool) -> bool {
        if is_cut {
            self.has_durable_consumers && !is_anew
        } else {
            self.upcoming.contains_key(name)
        }
    }

    /// Nobody knows of that number any more, nor of any above it.
    fn forget_from(&mut self, next: u64) {
        self.next = next;
        self.ids.retain(|seq, _| *seq < next);
        self.dealt.values_mut().for_each(|dealt| dealt.retain(|seq| *seq < next));
    }

    /// What an opening shows, and the lowest number that may be given out.
    pub(super) fn shown(&self) -> (&BTreeMap<&'static str, Vec<Next>>, u64) {
        (&self.upcoming, self.next)
    }

    /// Everything below is durable: what was so before, and what a call said to be so.
    fn durable_after(&self, story: &Story, script: &Script) -> u64 {
        let mut durable = self.durable.max(story.durable);
        for event in &story.events {
            let said = match (&event.act, &event.answer) {
                (_, Answer::Numbers(range)) if story.closed => range.end,
                (Act::Flush, Answer::Done) => acknowledged_before(&story.events, event.began),
                (Act::WaitDurable | Act::Durably, Answer::Numbers(range)) => range.end,
                (_, Answer::Numbers(range)) if script.options.flush_every_ops == Some(1) => {
                    range.end
                }
                _ => 0,
            };
            durable = durable.max(said);
        }
        durable
    }

    /// From now on that is what is known.
    fn take_up(
        &mut self,
        shown: Shown,
        events: &[Event],
        sent: &Sent,
        durable: u64,
        is_cut: bool,
        closed_well: bool,
    ) {
        for upcoming in shown.consumers.values() {
            for next in upcoming {
                self.ids.extend(next.message());
            }
        }
        self.ids.extend(&sent.acknowledged);
        for event in events {
            if let Answer::Messages(messages) = &event.answer {
                self.ids.extend(messages.iter().copied());
            }
        }
        self.batches.extend(sent.batches.clone());
        self.open.extend(&sent.open);
        self.durable = if closed_well { shown.next.max(durable) } else { durable };
        if is_cut {
            // What the cut left was on the disk; what comes of it stays so.
            self.on_disk = shown.next;
        }
        if is_cut {
            // What was reported to nobody may never have been.
            let shown: BTreeSet<u64> = shown
                .consumers
                .values()
                .flatten()
                .filter_map(Next::message)
                .map(|(seq, _)| seq)
                .collect();
            self.ids.retain(|seq, _| *seq < self.next || shown.contains(seq));
        }
        self.upcoming = shown.consumers;
    }

    /// Everything that was put in.
    fn sent(&self, events: &[Event]) -> Check<Sent> {
        let mut sent = Sent { open: self.open.clone(), ..Sent::default() };
        let mut puts: Vec<&Event> = Vec::new();
        for event in events.iter().filter(|event| !event.ids.is_empty()) {
            for id in &event.ids {
                sent.batches.insert(*id, event.ids.clone());
            }
            match &event.answer {
                Answer::Numbers(range) => {
                    for (seq, id) in range.clone().zip(&event.ids) {
                        ensure!(
                            seq >= self.next,
                            "number {seq} was given out again (next was {})",
                            self.next
                        );
                        let other = sent.acknowledged.insert(seq, *id);
                        ensure!(
                            other.is_none(),
                            "number {seq} was given to {other:x?} and to {id:x}"
                        );
                    }
                    puts.push(event);
                }
                Answer::Refused | Answer::Interrupted => sent.refused.extend(&event.ids),
                _ => sent.open.extend(&event.ids),
            }
        }
        for one in &puts {
            for other in &puts {
                if let (Answer::Numbers(first), Answer::Numbers(second)) =
                    (&one.answer, &other.answer)
                {
                    ensure!(
                        one.ended > other.began || first.start < second.start,
                        "{} got {first:?} before {} asked, which got {second:?}",
                        one.thread,
                        other.thread
                    );
                }
            }
        }
        Ok(sent)
    }

    /// That number is that message, and somebody put it in.
    pub(super) fn check_identity(&self, seq: u64, id: u64, sent: &Sent) -> Check {
        let known = self.ids.get(&seq).or(sent.acknowledged.get(&seq));
        ensure!(
            known.is_none_or(|known| *known == id),
            "number {seq} is {known:x?} and came as {id:x}"
        );
        ensure!(!sent.refused.contains(&id), "{id:x} was refused and came as {seq}");
        ensure!(
            known.is_some() || sent.open.contains(&id),
            "{id:x} came as {seq}, and nobody put it in"
        );
        Ok(())
    }
}

/// What was put in, in one life.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Number and identity.
    pub(super) acknowledged: BTreeMap<u64, u64>,
    pub(super) refused: BTreeSet<u64>,
    /// There or not.
    pub(super) open: BTreeSet<u64>,
    /// By identity: all of the batch that it belongs to.
    pub(super) batches: BTreeMap<u64, Vec<u64>>,
}

/// Nobody had anything to do, and then the queue was closed: it said how much there is.
fn check_figures(figures: &Stats, shown: &[Next], next: u64, goes_on: bool) -> Check {
    let messages = shown.iter().filter(|next| next.message().is_some()).count() as u64;
    let Stats { messages: said, next_seq, .. } = *figures;
    // Missing ones that no read has met count as held.
    let lost = shown.iter().filter_map(Next::gap).filter(|gap| gap.cause != GapCause::Reserved);
    let most = messages + lost.map(|gap| gap.count()).sum::<u64>();
    ensure!(
        (messages..=most).contains(&said),
        "the figures say {said} messages, and there are {messages}"
    );
    // (A run that only looked leaves the reservation of one that died, and a cut the numbers in
    // it.)
    ensure!(next_seq == next || goes_on, "the figures say that {next_seq} is next, and {next} is");
    Ok(())
}

/// A call reported a number right below it, and none reported one at or above it.
fn reported_below(events: &[Event], sent: &Sent) -> u64 {
    let highest = sent.acknowledged.keys().next_back().map_or(0, |seq| seq + 1);
    let reported = events.iter().filter_map(|event| match &event.answer {
        Answer::Messages(messages) => messages.iter().map(|(seq, _)| seq + 1).max(),
        Answer::Skipped(seq) => Some(seq + 1),
        _ => None,
    });
    highest.max(reported.max().unwrap_or(0))
}

fn acknowledged_before(events: &[Event], step: u64) -> u64 {
    let ends = events.iter().filter(|event| !event.ids.is_empty() && event.ended < step);
    let ends = ends.filter_map(|event| match &event.answer {
        Answer::Numbers(range) => Some(range.end),
        _ => None,
    });
    ends.max().unwrap_or(0)
}

/// Whether the life has made its consumers, as far as its death lets one say.
fn has_come(story: &Story, script: &Script, is_cut: bool) -> bool {
    story.flushed || !is_cut && !script.may_fail() && !story.events.is_empty()
}
