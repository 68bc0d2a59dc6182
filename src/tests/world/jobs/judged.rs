//! What is known of both queues between two lives, and what a life may not change: no job is lost,
//! comes again when it is done, or is out twice; dead letters say the truth, and are there.

use std::collections::{BTreeMap, BTreeSet};

use super::Disks;
use super::actor::{Answer, Event, JOBS, Story, dead_letter_of};
use super::script::{Act, Life};
use super::within::{
    State, check_deliveries, check_last_dead_letters, is_of_jobs, is_unended, state,
};
use crate::consume::step::Read;
use crate::engine::{Engine, reading};
use crate::error::{Error, Gap, GapCause};
use crate::options::{OnFull, Options};
use crate::tests::sim::SimStorage;
use crate::tests::world::acts::identity;
use crate::tests::world::promised::holds;
use crate::tests::world::reported::{Check, ensure};

#[derive(Debug, Default)]
pub(super) struct Known {
    /// Who has that number, of all messages that are somewhere.
    ids: BTreeMap<u64, u64>,
    /// Put in or not: no call said so.
    open: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    /// Acknowledged, taken or reported as missing; and whether a power cut cannot take that back.
    done: BTreeMap<u64, bool>,
    /// An acknowledgement did not end, or a power cut has perhaps taken it back.
    perhaps_done: BTreeSet<u64>,
    /// How often each was handed out, and how many calls to that end had no end.
    handed: BTreeMap<u64, u32>,
    unended: u32,
    rejected: BTreeSet<u64>,
    /// The least number of attempts after which any life rejects.
    least_attempts: Option<u32>,
    /// The number of each dead letter, and that of its message.
    dead_letters: BTreeSet<(u64, u64)>,
    /// The acts without an end that take a dead letter. Each may have taken one that nobody has
    /// seen, until a power cut brings it back.
    unseen: usize,
    /// Each may have sent a dead letter once more.
    troubles: usize,
    drops: bool,
    /// Everything below is on the disk.
    durable: u64,
    /// What comes next, and the number of the next message.
    upcoming: BTreeMap<u64, u64>,
    next: u64,
}

/// What an opening of a copy shows.
struct Shown {
    messages: BTreeMap<u64, u64>,
    gaps: Vec<Gap>,
    next: u64,
    dead_letters: Vec<Answer>,
}

impl Known {
    pub(super) fn after(&mut self, left: &Disks, life: &Life, story: &Story, died: bool) -> Check {
        let is_cut = life.death.is_cut();
        if story.flushed {
            // The flush before the threads began.
            self.durable = self.durable.max(self.next);
            self.done.values_mut().for_each(|durable| *durable = true);
        }
        self.drops |= life.options.on_full == OnFull::DropOldest;
        let attempts = self.least_attempts.into_iter().chain(life.wishes.max_attempts);
        self.least_attempts = attempts.min();
        self.troubles += usize::from(died || is_cut || !life.dead_letters_go());
        self.hear(life, story)?;
        check_deliveries(life, &story.events)?;
        if let Some(quiet) = story.quiet_at {
            self.check_quiet(life, &story.events, quiet)?;
        }
        let shown = show(left, life)?;
        self.check_dead_letters(&shown)?;
        self.check_messages(&shown)?;
        self.check_gaps(&shown, is_cut)?;
        if !died && life.dead_letters_go() {
            check_last_dead_letters(life, story, &shown.messages)?;
        }
        self.check_missing(&shown, life, story, is_cut)?;
        self.take_up(shown, story, is_cut);
        Ok(())
    }

    /// What the threads' calls returned.
    fn hear(&mut self, life: &Life, story: &Story) -> Check {
        let events = &story.events;
        let takes = events.iter().filter(|event| event.act == Act::TakeDeadLetter);
        self.unseen += takes.filter(|event| is_unended(event)).count();
        let flushes = events.iter().filter(|event| event.act == Act::Flush);
        let flushes = flushes.filter(|event| event.answer == Answer::Done);
        let flushed = flushes.map(|event| event.began).max().unwrap_or(0);
        let is_durable = |event: &Event| story.closed || event.ended < flushed;
        for event in events {
            if event.act == Act::AwaitByWaker {
                self.open.insert(event.id | 1);
            }
            let is_put = matches!(event.act, Act::Put(_) | Act::PutLater(_));
            match &event.answer {
                Answer::Put(seq) => {
                    let other = self.ids.insert(*seq, event.id);
                    let is_new = other.is_none() && *seq >= self.next;
                    ensure!(is_new, "{seq} is {other:x?} and is given to {:x}", event.id);
                    if is_durable(event) || life.options.flush_every_ops == Some(1) {
                        self.durable = self.durable.max(seq + 1);
                    }
                }
                Answer::Refused | Answer::Interrupted if is_put => {
                    self.refused.insert(event.id);
                }
                _ if is_put => {
                    self.open.insert(event.id);
                }
                _ => {}
            }
        }
        for event in events {
            match (&event.answer, event.act, event.seq) {
                (Answer::Job { seq, .. }, ..) => {
                    ensure!(!self.done.contains_key(seq), "{seq} is handed out, and was done");
                    *self.handed.entry(*seq).or_default() += 1;
                }
                (Answer::Expired, ..) => {}
                (_, Act::Reject, Some(seq)) => {
                    self.rejected.insert(seq);
                }
                (_, _, None) if is_unended(event) => self.unended += 1,
                _ => {}
            }
        }
        for event in events {
            self.hear_answer(event, is_durable(event))?;
        }
        Ok(())
    }

    fn hear_answer(&mut self, event: &Event, is_durable: bool) -> Check {
        match &event.answer {
            Answer::Job { seq, id, attempts } => {
                self.check_identity(*seq, *id)?;
                let handed = self.handed[seq] + self.unended;
                ensure!(*attempts <= handed, "{seq} counts {attempts} attempts, and had {handed}");
            }
            Answer::Taken { seq, id } => {
                self.check_identity(*seq, *id)?;
                let before = self.done.insert(*seq, is_durable);
                ensure!(before.is_none(), "{seq} is taken, and was done");
            }
            Answer::Gap(_) if !is_of_jobs(event) => {}
            Answer::Gap(gap) => {
                for seq in gap.first..=gap.last.min(gap.first + 5000) {
                    self.done.insert(seq, is_durable);
                }
                self.check_cause(gap)?;
            }
            Answer::DeadLetter { at, seq, .. } => {
                self.dead_letters.insert((*at, *seq));
            }
            _ => {}
        }
        match (event.act, event.seq) {
            (Act::Ack, Some(seq)) if event.answer == Answer::Done => {
                // With a lease another worker may have acknowledged it meanwhile.
                let durable = self.done.entry(seq).or_default();
                *durable |= is_durable;
            }
            (Act::Ack, Some(seq)) if is_unended(event) || event.answer == Answer::Refused => {
                self.perhaps_done.insert(seq);
            }
            _ => {}
        }
        Ok(())
    }

    fn check_identity(&mut self, seq: u64, id: u64) -> Check {
        let known = self.ids.get(&seq).copied();
        ensure!(known.is_none_or(|known| known == id), "{seq} is {known:x?} and comes as {id:x}");
        ensure!(!self.refused.contains(&id), "{id:x} was refused and comes as {seq}");
        ensure!(
            known.is_some() || self.open.contains(&id),
            "{id:x} comes as {seq}, and nobody put it in"
        );
        self.ids.insert(seq, id);
        Ok(())
    }

    fn check_cause(&self, gap: &Gap) -> Check {
        let may = match gap.cause {
            GapCause::Dropped => self.drops,
            GapCause::Unflushed | GapCause::Reserved => true,
            GapCause::Rejected => (gap.first..=gap.last).all(|seq| self.may_be_rejected(seq)),
            _ => false,
        };
        ensure!(may, "{gap:?}");
        Ok(())
    }

    /// Somebody rejected it, or it was handed out often enough.
    fn may_be_rejected(&self, seq: u64) -> bool {
        let handed = self.handed.get(&seq).copied().unwrap_or(0) + self.unended;
        self.rejected.contains(&seq) || self.least_attempts.is_some_and(|least| handed >= least)
    }

    fn check_dead_letters(&mut self, shown: &Shown) -> Check {
        for dead_letter in &shown.dead_letters {
            let Answer::DeadLetter { at, seq, id, attempts } = *dead_letter else { continue };
            self.check_identity(seq, id)?;
            let is_new = !self.dead_letters.contains(&(at, seq));
            if is_new && self.done.contains_key(&seq) {
                ensure!(self.unseen > 0, "{seq} is a new dead letter, and was done");
                self.unseen -= 1;
            }
            ensure!(self.may_be_rejected(seq), "{seq} is a dead letter, and nobody rejected it");
            let handed = self.handed.get(&seq).copied().unwrap_or(0) + self.unended;
            ensure!(
                attempts <= handed,
                "the dead letter of {seq} says {attempts} attempts of {handed}"
            );
            self.dead_letters.insert((at, seq));
        }
        let mut copies: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, seq) in &self.dead_letters {
            *copies.entry(*seq).or_default() += 1;
        }
        let often = copies.iter().find(|(_, count)| **count > 1 + self.troubles);
        ensure!(often.is_none(), "{often:?}: the number of a message and of its letters");
        Ok(())
    }

    /// What comes was put in, under that number, and is not done.
    fn check_messages(&mut self, shown: &Shown) -> Check {
        for (seq, id) in &shown.messages {
            self.check_identity(*seq, *id)?;
        }
        Ok(())
    }

    fn check_gaps(&self, shown: &Shown, is_cut: bool) -> Check {
        for gap in &shown.gaps {
            self.check_cause(gap)?;
            if matches!(gap.cause, GapCause::Unflushed | GapCause::Reserved) {
                let lost = self.ids.range(gap.first..=gap.last).map(|(seq, _)| *seq);
                let lost = lost.filter(|seq| !self.done.contains_key(seq));
                let mut lost = lost.filter(|seq| !is_cut || *seq < self.durable);
                let lost = lost.next();
                ensure!(lost.is_none(), "{lost:?} was put in and is in {gap:?}");
            }
        }
        Ok(())
    }

    /// Each message is somewhere: it comes, is done, is reported as missing, or is a dead letter.
    fn check_missing(&self, shown: &Shown, life: &Life, story: &Story, is_cut: bool) -> Check {
        let is_dead_letter = |seq: u64| self.dead_letters.iter().any(|(_, of)| *of == seq);
        let is_reported = |seq: u64| shown.gaps.iter().any(|gap| holds(gap, seq));
        let unended = story.events.iter().filter(|event| {
            let puts = matches!(event.act, Act::Put(_) | Act::PutLater(_));
            event.seq.is_none() && !puts && is_unended(event)
        });
        let unended: Vec<_> = unended.collect();
        // One that had not ended may have got a gap.
        let may_be_reported = |seq: u64| {
            let is_spent = !life.wishes.dead_letters && self.may_be_rejected(seq);
            !unended.is_empty() && (self.drops || is_spent)
        };
        let takes = |event: &&&Event| matches!(event.act, Act::Take | Act::TakeDeadLetter);
        let takes = unended.iter().filter(takes).count();
        let missing = self.ids.keys().filter(|seq| {
            !shown.messages.contains_key(seq)
                && !self.done.contains_key(seq)
                && !self.perhaps_done.contains(seq)
                && !is_dead_letter(**seq)
                && !is_reported(**seq)
                && !may_be_reported(**seq)
                && (!is_cut || **seq < self.durable)
        });
        let missing: Vec<_> = missing.collect();
        ensure!(missing.len() <= takes, "{missing:?} are gone; {takes} acts may have taken one");
        let again = shown
            .messages
            .keys()
            .find(|seq| self.done.get(seq).is_some_and(|durable| !is_cut || *durable));
        ensure!(again.is_none(), "{again:?} was done and comes again");
        Ok(())
    }

    fn take_up(&mut self, shown: Shown, story: &Story, is_cut: bool) {
        let is_somewhere = |seq: &u64| {
            shown.messages.contains_key(seq) || self.dead_letters.iter().any(|(_, of)| of == seq)
        };
        if is_cut {
            let (done, perhaps) = (&mut self.done, &mut self.perhaps_done);
            done.retain(|seq, durable| {
                let goes = !*durable;
                if goes {
                    perhaps.insert(*seq);
                }
                !goes
            });
            self.ids.retain(|seq, _| is_somewhere(seq) || self.done.contains_key(seq));
            self.durable = shown.next;
        } else if story.closed {
            self.durable = shown.next;
            self.done.values_mut().for_each(|durable| *durable = true);
        }
        // A message that this opening did not show may not come later.
        for seq in self.ids.keys().filter(|seq| !shown.messages.contains_key(seq)) {
            self.done.entry(*seq).or_default();
        }
        // So of each known message it is certain now whether it is done.
        self.perhaps_done.retain(|seq| !self.ids.contains_key(seq));
        self.upcoming = shown.messages;
        self.next = shown.next;
    }

    /// When nobody had anything to do any more, at step `quiet`, nobody waited beside a job.
    fn check_quiet(&self, life: &Life, events: &[Event], quiet: u64) -> Check {
        let has_rate = life.lanes.is_some_and(|lanes| lanes.rate.is_some());
        if life.limit.is_some() || has_rate {
            return Ok(());
        }
        let ended: Vec<&Event> = events.iter().filter(|event| event.ended <= quiet).collect();
        let waits = events.iter().find(|event| {
            let is_wait = matches!(event.act, Act::AwaitForever | Act::AwaitByWaker);
            is_wait && event.began <= quiet && event.ended > quiet
        });
        let Some(waits) = waits else { return Ok(()) };
        let put = ended.iter().filter_map(|event| match event.answer {
            Answer::Put(seq) => Some(seq),
            _ => None,
        });
        let states: Vec<_> = self
            .upcoming
            .keys()
            .copied()
            .chain(put)
            .map(|seq| (seq, state(life, &ended, seq)))
            .collect();
        let waiting = states
            .iter()
            .find(|(seq, state)| *state == State::Waits && !self.may_be_rejected(*seq));
        let Event { thread, act, .. } = waits;
        ensure!(waiting.is_none(), "{thread} waits in {act:?} beside {waiting:?}");
        Ok(())
    }
}

/// What copies of both disks show.
fn show(left: &Disks, life: &Life) -> Check<Shown> {
    let open = |disk: &SimStorage, options: &Options| {
        let opened = Engine::open_without_workers(disk.process_kill(), options);
        opened.map_err(|error| format!("does not open: {error}"))
    };
    let mut shown =
        Shown { messages: BTreeMap::new(), gaps: Vec::new(), next: 0, dead_letters: Vec::new() };
    let queue = open(&left.0, &life.options)?;
    let link = queue.consumer(JOBS).map_err(|error| format!("no consumer: {error}"))?;
    loop {
        match reading::next(&queue, &link, Read::Take) {
            Ok(Some(message)) => {
                let seq = message.seq();
                let id = identity(&message);
                let id = id.ok_or_else(|| format!("message {seq} is not what anybody sent"))?;
                let last = shown.messages.insert(seq, id);
                ensure!(last.is_none(), "{seq} comes twice");
            }
            Ok(None) => break,
            Err(Error::Gap(gap)) => shown.gaps.push(gap),
            Err(error) => return Err(format!("cannot read: {error}")),
        }
    }
    shown.next = queue.core.committed_spot().seq;
    let other = open(&left.1, &life.other_options)?;
    let default = other.default_consumer().map_err(|error| format!("no consumer: {error}"))?;
    loop {
        match reading::next(&other, default, Read::Take) {
            Ok(Some(dead_letter)) => shown.dead_letters.push(dead_letter_of(&dead_letter)),
            Ok(None) => break,
            Err(Error::Gap(_)) => {}
            Err(error) => return Err(format!("cannot read dead letters: {error}")),
        }
    }
    Ok(shown)
}
