//! The crash: images of it are examined, and the history goes on from one.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::{History, IN_RECOVERY, age_of};
use crate::engine::Engine;
use crate::error::{Gap, GapCause};
use crate::tests::crash::attempts::{Blame, Stored, attempts_of};
use crate::tests::crash::digests::digests_of;
use crate::tests::crash::examine::{Bounds, Held, Queue, Reported, examine, look_at_all, next_of};
use crate::tests::crash::held::{Finished, Presence};
use crate::tests::crash::model::{Check, Fate, Model, ensure};
use crate::tests::sim::{Call, SimStorage};

impl History {
    /// Examines what a crash leaves at this moment, which is given as the death of the process; and
    /// perhaps goes on there (true).
    pub(super) fn crash(
        &mut self,
        dead: &SimStorage,
        before: &Model,
        during: &Model,
        after: &Model,
    ) -> Check<bool> {
        for _ in 0..1 + self.rng.below(3) {
            let cut = self.rng.percent(70);
            let mut image = if cut { dead.power_cut(self.rng.next()) } else { dead.process_kill() };
            let (mut cut, mut age) = (cut, None);
            let is_whole = std::ptr::eq(before, after);
            let mut blame = if cut { Blame::Never } else { Blame::Surely };
            if self.rng.percent(35) {
                let bounds = Bounds { before, during, after, cut, age: None };
                let (again, cut_again, age_again) = self.crash_in_recovery(&image, &bounds)?;
                (image, cut, age) = (again, cut | cut_again, age_again);
            }
            if blame == Blame::Surely && (cut || !is_whole) {
                blame = Blame::Perhaps;
            }
            let options = self.random_options();
            // What either opening gave up is gone.
            let age = age.into_iter().chain(age_of(&options)).min();
            let bounds = Bounds { before, during, after, cut, age };
            self.trace.push(format!("  {} {options:?}", if cut { "power cut" } else { "kill" }));
            self.images += 1;
            if let Some(digests) = &mut self.digests {
                digests.push(digests_of(&image, &options, self.images));
            }
            let attempts = if before.has_counted() || after.has_counted() {
                attempts_of(image.process_kill(), &bounds, &options, blame)?
            } else {
                BTreeMap::new()
            };
            let held = examine(image.process_kill(), &bounds, &options, &mut self.rng.rng)?;
            self.trace.pop();
            if self.rng.percent(8) {
                self.trace
                    .push(format!("  goes on after a {}", if cut { "power cut" } else { "kill" }));
                self.resume(&bounds, &held, attempts);
                self.options = self.random_options();
                self.reopen(image)?;
                let next = next_of(self.queue()?);
                ensure!(
                    next == held.shown.next,
                    "opened twice: next is {}, then {next}",
                    held.shown.next
                );
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The recovery from `image` dies, too, or a call fails in it: what it leaves, whether power
    /// was cut, and how old messages might become there.
    fn crash_in_recovery(
        &mut self,
        image: &SimStorage,
        bounds: &Bounds<'_>,
    ) -> Check<(SimStorage, bool, Option<u64>)> {
        let world = image.process_kill();
        let options = self.random_options();
        let fails = self.rng.percent(30);
        if fails {
            let call = IN_RECOVERY[self.rng.below(IN_RECOVERY.len() as u64) as usize];
            let errno = if self.rng.percent(50) { Errno::IO } else { Errno::NOSPC };
            let nth = 1 + self.rng.below(if call == Call::Read { 40 } else { 6 });
            world.fail_after(call, nth, errno, self.rng.percent(30));
            self.trace
                .push(format!("  {call:?} {nth} fails with {errno:?} in recovery, {options:?}"));
        } else if self.rng.percent(50) {
            world.freeze_at(1 + self.rng.below(20));
        } else {
            world.freeze_at_store(1 + self.rng.below(60));
        }
        let opened = Engine::open_without_workers(world.clone(), &options).map(Queue::new);
        world.disarm();
        world.clear_faults();
        match &opened {
            // What it did without is nothing that it would report.
            Ok(queue) if fails => {
                let bounds = Bounds { age: age_of(&options), ..*bounds };
                look_at_all(queue, &bounds)?;
            }
            Err(error) if !fails => return Err(format!("does not open: {error}")),
            _ => {}
        }
        let dead = world.frozen().unwrap_or_else(|| world.process_kill());
        drop(opened);
        let cut = self.rng.percent(50);
        self.trace.push(format!("  {} in recovery", if cut { "power cut" } else { "kill" }));
        Ok((if cut { dead.power_cut(self.rng.next()) } else { dead }, cut, age_of(&options)))
    }

    /// What was open when the crash came is decided by what was found after it.
    fn resume(&mut self, bounds: &Bounds<'_>, held: &Held, mut attempts: BTreeMap<String, Stored>) {
        let mut model = bounds.after.clone();
        model.messages = bounds.during.messages.clone();
        model.claimed = bounds.before.claimed;
        model.missing.clone_from(&bounds.before.missing);
        let next = held.shown.next;
        let places = held.shown.consumers.values().map(|view| view.place);
        let needed = places.chain([model.released]).min().unwrap_or(0);
        model.note_reported(&held.reported);
        // What is held no longer was passed by everybody, evicted, or is lost: it may be
        // reported so, also to somebody new, or come back when that was not durable.
        model.missing.add(0..held.oldest);
        for (seq, sent) in model.messages.range_mut(..held.oldest) {
            let passed = *seq < needed || bounds.is_evicted(*seq, sent);
            (sent.fate, sent.old) =
                if passed { (Fate::Tried, true) } else { (Fate::Lost, sent.old) };
        }
        // What was being enqueued and is not there never was; of what was evicted nobody can tell.
        model.messages.retain(|seq, sent| {
            (sent.fate != Fate::Tried || bounds.is_evicted(*seq, sent) || sent.old) && *seq < next
        });
        if bounds.cut {
            // What says how old it is was perhaps not synced either.
            model
                .messages
                .range_mut(bounds.before.claimed..)
                .for_each(|(_, sent)| (sent.written, sent.dated) = (0, None));
        }
        model.next = next;
        for (name, consumer) in &mut model.consumers {
            let before = bounds.before.consumers.get(name);
            let view = held.shown.consumers.get(name);
            let found = view.map(|view| view.place);
            consumer.exists = found.is_some();
            if bounds.cut {
                consumer.durable = if found.is_some() { Presence::Yes } else { Presence::No };
                consumer.had = found.into_iter().collect();
                consumer.flushed = 0;
            }
            // What it may have dealt with and is reported again it has not dealt with.
            let mut dealt = bounds.perhaps_done(name);
            for reported in view.iter().flat_map(|view| &view.reported) {
                match reported {
                    Reported::Message(seq) => dealt.remove(*seq..*seq + 1),
                    Reported::Gap(gap) => dealt.remove(gap.first..gap.last + 1),
                }
            }
            if bounds.cut {
                consumer.kept = dealt.clone();
            }
            consumer.start_at(found.unwrap_or(0), dealt);
            let stored = attempts.remove(name).unwrap_or_default();
            consumer.attempts.resume(stored);
            if bounds.cut {
                continue;
            }
            if before.is_none_or(|before| before.durable != consumer.durable) {
                consumer.durable = Presence::Perhaps;
            }
            consumer.flushed = before.map_or(0, |before| before.flushed);
            // A seek forgets it on the disk first.
            consumer.kept = before
                .map_or_else(Finished::default, |before| before.kept.common(&consumer.finished));
            if let Some(at) =
                found.and_then(|place| consumer.had.iter().rposition(|had| *had == place))
            {
                consumer.had.truncate(at + 1);
            }
        }
        self.model = model;
        self.refused = None;
    }
}

impl Model {
    /// What reads reported to a new consumer after a crash.
    fn note_reported(&mut self, reported_by_all: &[Reported]) {
        for reported in reported_by_all {
            match reported {
                Reported::Message(seq) => {
                    self.messages.entry(*seq).and_modify(|sent| sent.fate = Fate::Acknowledged);
                }
                // Who opens the queue with another age, or after the clock was set back, gets them.
                Reported::Gap(Gap { first, last, cause: GapCause::Expired }) => {
                    self.messages.range_mut(first..=last).for_each(|(_, sent)| sent.old = true);
                }
                // A power cut may undo that they were dropped.
                Reported::Gap(Gap { cause: GapCause::Dropped, .. }) => {}
                Reported::Gap(gap) => {
                    self.missing.add(gap.first..gap.last + 1);
                    self.messages
                        .range_mut(gap.first..=gap.last)
                        .for_each(|(_, sent)| sent.fate = Fate::Lost);
                }
            }
        }
    }
}
