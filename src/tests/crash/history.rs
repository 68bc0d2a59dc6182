//! Random histories, with crashes at random moments of them.

use std::time::Duration;

use rustix::io::Errno;

use super::digests::digests_of;
use super::examine::{
    Bounds, Held, Queue, Told, check_accounts, dropped_of, durable_of, examine, look_at_all, next_of, open,
    prepare_ahead, standing_of,
};
use super::model::{Check, Fate, Finished, Model, Presence, ensure};
use crate::consume::standing::{Handed, Read};
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause, Result};
use crate::options::{OnFull, Options};
use crate::storage::Stores;
use crate::tests::sim::{Call, Rng, SimStorage};

/// Calls that an opening makes.
const IN_RECOVERY: [Call; 10] = [
    Call::Create,
    Call::Open,
    Call::Rename,
    Call::Remove,
    Call::SyncDirectory,
    Call::SyncFile,
    Call::Allocate,
    Call::Map,
    Call::Read,
    Call::Write,
];

const NAMES: [&str; 4] = ["", "audit", "mail", "a name of more than sixteen bytes"];

#[derive(Debug, Clone)]
enum Step {
    Enqueue(usize),
    Batch(Vec<usize>),
    With(usize),
    Read(&'static str, Read),
    Drain(&'static str, usize),
    Add(&'static str),
    Remove(&'static str),
    Fork(&'static str, &'static str),
    Seek(&'static str, u64),
    Receive(&'static str, usize),
    /// Acknowledges one that was handed out, or gives it back.
    Answer(&'static str, u64, bool),
    /// Turns the clock by so many milliseconds.
    Clock(i64),
    /// Gives up what is too old.
    Look,
    Flush,
    WaitDurable,
    Prepare,
    Close,
}

/// One queue on one simulated disk, and what it promised.
pub(super) struct History {
    rng: Rng,
    model: Model,
    /// None only while it is being opened.
    queue: Option<Queue>,
    options: Options,
    /// Operations since the queue was opened, as `flush_every_ops` counts them.
    operations: u64,
    /// The length that did not fit: tried again, over the leavings of the first try.
    refused: Option<Vec<usize>>,
    pub(super) images: u64,
    /// Where they are asked for.
    pub(super) digests: Option<Vec<String>>,
    pub(super) trace: Vec<String>,
}

impl History {
    pub(super) fn new(seed: u64) -> Check<History> {
        let mut rng = Rng(seed);
        let storage = SimStorage::new(rng.next()).with_file_capacity(128 << 10);
        let options = random_options(&mut rng);
        storage.set_stores(random_stores(&mut rng));
        let mut history = History {
            rng,
            model: Model::default(),
            queue: None,
            options,
            operations: 0,
            refused: None,
            images: 0,
            digests: None,
            trace: Vec::new(),
        };
        history.reopen(storage)?;
        Ok(history)
    }

    /// Goes on until so many images were examined.
    pub(super) fn run(&mut self, images: u64) -> Check {
        while self.images < images {
            self.step()?;
        }
        Ok(())
    }

    fn queue(&self) -> Check<&Queue> {
        self.queue.as_ref().ok_or_else(|| "no queue is open".to_owned())
    }

    fn storage(&self) -> Check<SimStorage> {
        Ok(self.queue()?.core.storage.clone())
    }

    fn reopen(&mut self, storage: SimStorage) -> Check {
        self.trace.push(format!("open {:?}", self.options));
        self.queue = None;
        let queue = open(storage, &self.options)?;
        self.operations = 0;
        self.model.claimed = self.model.claimed.max(durable_of(&queue));
        for standing in self.model.consumers.values_mut() {
            let finished = standing.finished.clone();
            standing.start_at(standing.place(), finished);
        }
        ensure!(next_of(&queue) >= self.model.next, "opened at {}, expected {}", next_of(&queue), self.model.next);
        self.queue = Some(queue);
        Ok(())
    }

    fn step(&mut self) -> Check {
        let step = self.choose()?;
        let storage = self.storage()?;
        let armed = self.rng.percent(30);
        if self.rng.percent(30) {
            storage.snapshot_at_store(1 + self.rng.below(40));
        }
        if armed {
            match self.rng.below(3) {
                0 => storage.freeze_at(1 + self.rng.below(4)),
                1 => storage.freeze_at(1 + self.rng.below(16)),
                _ => storage.freeze_at_store(1 + self.rng.below(40)),
            }
        }
        self.trace.push(format!("{step:?}"));
        self.model.note_old(age_of(&self.options));
        let before = armed.then(|| self.model.clone());
        let mut during = self.model.clone();
        self.perform(&step, &mut during)?;
        storage.disarm();
        if !matches!(step, Step::Close) {
            check_accounts(self.queue()?)?;
        }
        self.model.dropped = self.model.dropped.max(dropped_of(self.queue()?));
        if let (Some(before), Some(frozen)) = (before, storage.frozen()) {
            let after = self.model.clone();
            self.trace.push("  died in it".into());
            if self.crash(&frozen, &before, &during, &after)? {
                return Ok(());
            }
        }
        if matches!(step, Step::Close) {
            self.options = random_options(&mut self.rng);
            storage.set_stores(random_stores(&mut self.rng));
            return self.reopen(storage);
        }
        if self.rng.percent(15) {
            let model = self.model.clone();
            self.crash(&storage.process_kill(), &model, &model, &model)?;
        }
        Ok(())
    }

    fn choose(&mut self) -> Check<Step> {
        let next = next_of(self.queue()?);
        let rng = &mut self.rng;
        let name = NAMES[if rng.percent(60) { 0 } else { rng.below(4) as usize }];
        let backlog = next - self.model.place(name).unwrap_or(self.model.released);
        if let Some(lens) = self.refused.take_if(|_| rng.percent(50)) {
            return Ok(Step::Batch(lens));
        }
        let reading = rng.percent(if backlog > 40 { 60 } else { 40 });
        Ok(match rng.below(100) {
            0..62 if reading => match rng.below(10) {
                0..5 => Step::Read(name, Read::Take),
                5 => Step::Read(name, Read::Skip),
                6 => Step::Read(name, Read::Look),
                _ => Step::Drain(name, 1 + rng.below(20) as usize),
            },
            0..25 => Step::Enqueue(self.random_len()),
            25..30 => Step::With(self.random_len()),
            30..62 => {
                let most = 2 + self.rng.below(8);
                let lens = (0..1 + self.rng.below(most)).map(|_| self.random_len());
                Step::Batch(lens.collect())
            }
            62..67 => Step::Add(name),
            67..70 if !name.is_empty() => Step::Remove(name),
            70..72 if !name.is_empty() => Step::Fork(NAMES[rng.below(4) as usize], name),
            72..74 => {
                let from = self.model.released.max(next.saturating_sub(60));
                Step::Seek(name, from + rng.below(next - from + 1))
            }
            74..78 => Step::Receive(name, 1 + rng.below(6) as usize),
            78..84 if self.model.is_open(name) => Step::Answer(name, rng.next(), rng.percent(75)),
            78..80 => Step::Clock(match rng.below(6) {
                0..3 => rng.below(600) as i64,
                3 | 4 => rng.below(8000) as i64,
                _ => -(rng.below(4000) as i64),
            }),
            80..84 => Step::Flush,
            84..86 => Step::WaitDurable,
            86..88 => Step::Look,
            88..90 => Step::Prepare,
            90..94 => Step::Close,
            _ => Step::Drain(name, 200),
        })
    }

    /// From nothing to three segments.
    fn random_len(&mut self) -> usize {
        let segment = self.queue.as_ref().map_or(8192, |queue| queue.core.pool.geometry().segment_len);
        let rng = &mut self.rng;
        let below = match rng.below(20) {
            0..8 => 40,
            8..13 => 700,
            13..16 => 5000,
            16..18 => segment,
            18 => 2 * segment,
            _ => 3 * segment,
        };
        rng.below(below) as usize
    }

    fn perform(&mut self, step: &Step, during: &mut Model) -> Check {
        let queue = self.queue()?.clone();
        match step {
            Step::Enqueue(len) => {
                self.enqueue(&[*len], during, |bytes| queue.enqueue(&bytes[0]).map(|seq| seq..seq + 1))
            }
            Step::With(len) => self.enqueue(&[*len], during, |bytes| {
                let filled = queue.enqueue_with(*len, |room| room.copy_from_slice(&bytes[0]));
                filled.map(|seq| seq..seq + 1)
            }),
            Step::Batch(lens) => self.enqueue(lens, during, |messages| queue.enqueue_batch(messages)),
            Step::Read(name, what) => self.read(&queue, name, *what).map(|_| ()),
            Step::Drain(name, most) => {
                for _ in 0..*most {
                    if !self.read(&queue, name, Read::Take)? {
                        break;
                    }
                }
                Ok(())
            }
            Step::Add(name) => self.add(&queue, name),
            Step::Remove(name) => match queue.remove_consumer(name) {
                Ok(()) => {
                    self.model.remove_consumer(name);
                    Ok(())
                }
                Err(Error::NotFound { .. }) if self.model.place(name).is_none() => Ok(()),
                Err(error) => Err(format!("cannot remove {name:?}: {error}")),
            },
            Step::Fork(from, name) => self.fork(&queue, from, name),
            Step::Seek(name, seq) => self.seek(&queue, name, *seq),
            Step::Receive(name, most) => self.receive(&queue, name, *most),
            Step::Answer(name, which, done) => self.answer(&queue, name, *which, *done),
            Step::Clock(by) => {
                match u64::try_from(*by) {
                    Ok(by) => {
                        queue.core.storage.advance_clock(by);
                        self.model.elapsed += by;
                    }
                    Err(_) => queue.core.storage.set_back_clock(by.unsigned_abs()),
                }
                Ok(())
            }
            Step::Look => {
                queue.expire();
                Ok(())
            }
            Step::Flush => {
                queue.core.flush().map_err(|error| format!("does not flush: {error}"))?;
                self.flushed(&queue)
            }
            Step::WaitDurable => {
                let tail = queue.core.writer.lock().committed();
                queue.core.flush_to(tail).map_err(|error| format!("does not flush: {error}"))?;
                ensure!(durable_of(&queue) == tail.seq, "durable is {}, waited for {}", durable_of(&queue), tail.seq);
                self.claim(&queue);
                Ok(())
            }
            Step::Prepare => {
                prepare_ahead(&queue);
                check_accounts(&queue)
            }
            Step::Close => {
                queue.close().map_err(|error| format!("does not close: {error}"))?;
                self.model.claimed = self.model.claimed.max(next_of(&queue));
                self.model.flush_places();
                Ok(())
            }
        }
    }

    fn claim(&mut self, queue: &Queue) {
        self.model.claimed = self.model.claimed.max(durable_of(queue));
    }

    fn flushed(&mut self, queue: &Queue) -> Check {
        let (durable, next) = (durable_of(queue), next_of(queue));
        ensure!(durable == next, "flushed: durable is {durable} of {next}");
        self.claim(queue);
        self.model.flush_places();
        Ok(())
    }

    fn enqueue(
        &mut self,
        lens: &[usize],
        during: &mut Model,
        write: impl FnOnce(&[Vec<u8>]) -> Result<std::ops::Range<u64>>,
    ) -> Check {
        let queue = self.queue()?.clone();
        let first = next_of(&queue);
        let messages = self.model.try_messages(first, lens);
        during.clone_from(&self.model);
        let range = first..first + lens.len() as u64;
        match write(&messages) {
            Ok(got) => {
                ensure!(got == range, "got the numbers {got:?}, expected {range:?}");
                self.model.acknowledge(range.clone())?;
                self.counted(&queue, lens.len() as u64)?;
                let every = self.options.flush_every_ops;
                ensure!(every != Some(1) || durable_of(&queue) == range.end, "enqueued and not durable");
            }
            Err(Error::Full { .. } | Error::MessageTooLarge { .. }) => {
                self.model.dropped = self.model.dropped.max(dropped_of(&queue));
                self.trace.push("  refused".into());
                self.model.refuse(range);
                self.refused = Some(lens.to_vec());
            }
            Err(error) => return Err(format!("does not enqueue: {error}")),
        }
        Ok(())
    }

    /// So many operations were done: the one that makes the number has flushed.
    fn counted(&mut self, queue: &Queue, count: u64) -> Check {
        let before = self.operations;
        self.operations += count;
        match self.options.flush_every_ops {
            Some(1) => self.claim(queue),
            Some(every) if self.operations / every > before / every => self.flushed(queue)?,
            _ => {}
        }
        Ok(())
    }

    /// False when there was nothing to be read.
    fn read(&mut self, queue: &Queue, name: &str, what: Read) -> Check<bool> {
        self.add(queue, name)?;
        let standing = standing_of(queue, name)?;
        let found = match what {
            Read::Skip => reading::skip(queue, &standing),
            _ => reading::next(queue, &standing, what)
                .map(|message| message.map(|message| (message.seq(), self.model.check_read(message.seq(), &message))))
                .and_then(|found| match found {
                    Some((seq, Ok(()))) => Ok(Some(seq)),
                    Some((_, Err(broken))) => {
                        Err(Error::InvalidArgument { path: None, what: "message", reason: broken })
                    }
                    None => Ok(None),
                }),
        };
        let told = self.told(queue, name, found)?;
        if let Some(Some(seq)) = told
            && what != Read::Look
        {
            if let Some(standing) = self.model.consumers.get_mut(name) {
                standing.finish(seq..seq + 1);
            }
            self.model.note_place(name, standing.seq())?;
            self.counted(queue, 1)?;
            if self.options.flush_every_ops == Some(1) {
                self.model.flush_places();
            }
        } else {
            self.model.note_place(name, standing.seq())?;
        }
        Ok(told.is_some())
    }

    /// What a read answered is what comes next for the consumer. The message's number; nothing inside for a gap, nothing at all
    /// at the end.
    fn told(&mut self, queue: &Queue, name: &str, found: Result<Option<u64>>) -> Check<Option<Option<u64>>> {
        self.model.dropped = self.model.dropped.max(dropped_of(queue));
        let expected = self.model.consumers.get(name).map_or(0, |standing| standing.expected());
        match found {
            Ok(Some(seq)) => {
                ensure!(seq == expected, "{name:?} gets {seq}, and {expected} comes next");
                ensure!(self.model.messages.contains_key(&seq), "message {seq} was never enqueued");
                Ok(Some(Some(seq)))
            }
            Ok(None) => {
                let next = next_of(queue);
                ensure!(expected == next, "{name:?} at {expected} finds nothing below {next}");
                // What it has dealt with was passed over.
                self.model.note_place(name, standing_of(queue, name)?.seq())?;
                Ok(None)
            }
            Err(Error::Gap(gap)) => {
                ensure!(gap.first == expected, "{name:?} is told {gap:?}, and {expected} comes next");
                self.model.check_gap(&gap)?;
                if let Some(standing) = self.model.consumers.get_mut(name) {
                    standing.finish(gap.first..gap.last + 1);
                }
                self.model.note_place(name, standing_of(queue, name)?.seq())?;
                Ok(Some(None))
            }
            Err(error) => Err(format!("{name:?} at {expected} cannot read: {error}")),
        }
    }

    /// Has messages handed out.
    fn receive(&mut self, queue: &Queue, name: &str, most: usize) -> Check {
        self.add(queue, name)?;
        let standing = standing_of(queue, name)?;
        for _ in 0..most {
            let mut answer = Handed::default();
            let found = queue.receive(&standing, reading::AsMessage).map(|found| {
                found.map(|(message, handed)| {
                    answer = handed;
                    (message.seq(), self.model.check_read(message.seq(), &message))
                })
            });
            let broken = match &found {
                Ok(Some((_, broken))) => broken.clone(),
                _ => Ok(()),
            };
            broken?;
            let Some(told) = self.told(queue, name, found.map(|found| found.map(|(seq, _)| seq)))? else {
                break;
            };
            if let Some(seq) = told {
                if let Some(standing) = self.model.consumers.get_mut(name) {
                    standing.hand_out(seq, answer);
                }
                self.model.note_place(name, standing.seq())?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, queue: &Queue, name: &str, which: u64, done: bool) -> Check {
        let standing = standing_of(queue, name)?;
        let Some((seq, handed)) = self.model.in_flight(name, which) else {
            return Ok(());
        };
        if !done {
            queue.nack(&standing, seq, handed);
            if let Some(standing) = self.model.consumers.get_mut(name) {
                standing.returned.insert(seq);
            }
            return Ok(());
        }
        queue.ack(&standing, seq, handed).map_err(|error| format!("cannot acknowledge {seq}: {error}"))?;
        if let Some(standing) = self.model.consumers.get_mut(name) {
            standing.finish(seq..seq + 1);
        }
        self.model.note_place(name, standing.seq())?;
        self.counted(queue, 1)?;
        if self.options.flush_every_ops == Some(1) {
            self.model.flush_places();
        }
        Ok(())
    }

    fn add(&mut self, queue: &Queue, name: &str) -> Check {
        if self.model.place(name).is_none() {
            let place = standing_of(queue, name)?.seq();
            let needed = self.model.released;
            ensure!(self.model.is_gone(needed..place), "{name:?} begins at {place}, needed {needed}");
            self.model.add_consumer(name, place);
        }
        Ok(())
    }

    fn fork(&mut self, queue: &Queue, from: &str, name: &str) -> Check {
        self.add(queue, from)?;
        let place = self.model.place(from).unwrap_or(0);
        match queue.fork(&*standing_of(queue, from)?, name) {
            Ok(standing) => {
                ensure!(standing.seq() == place, "{name:?} begins at {}, not at {place}", standing.seq());
                self.model.add_consumer(name, place);
                self.model.copy_finished(from, name, place);
            }
            Err(Error::InvalidArgument { .. }) if self.model.place(name).is_some() => {}
            Err(error) => return Err(format!("cannot fork: {error}")),
        }
        Ok(())
    }

    fn seek(&mut self, queue: &Queue, name: &str, seq: u64) -> Check {
        self.add(queue, name)?;
        let standing = standing_of(queue, name)?;
        match queue.seek(&standing, seq) {
            Ok(()) => {
                let place = standing.seq();
                let gone = self.model.is_gone(seq..seq + 1);
                ensure!(place == seq || gone, "{name:?} was to go to {seq} and stands at {place}");
                self.model.move_to(name, place);
                Ok(())
            }
            Err(Error::NotFound { .. }) if self.model.is_gone(seq..seq + 1) => Ok(()),
            Err(error) => Err(format!("cannot seek {seq}, held from {}: {error}", self.model.released)),
        }
    }

    /// Examines what a crash leaves at this moment, which is given as the death of the process; and perhaps goes on there
    /// (true).
    fn crash(&mut self, dead: &SimStorage, before: &Model, during: &Model, after: &Model) -> Check<bool> {
        for _ in 0..1 + self.rng.below(3) {
            let cut = self.rng.percent(70);
            let mut image = if cut { dead.power_cut(self.rng.next()) } else { dead.process_kill() };
            let (mut cut, mut age) = (cut, None);
            if self.rng.percent(35) {
                let bounds = Bounds { before, during, after, cut, age: None };
                let (again, cut_again, age_again) = self.crash_in_recovery(&image, &bounds)?;
                (image, cut, age) = (again, cut | cut_again, age_again);
            }
            let options = random_options(&mut self.rng);
            // What either opening gave up is gone.
            let age = age.into_iter().chain(age_of(&options)).min();
            let bounds = Bounds { before, during, after, cut, age };
            self.trace.push(format!("  {} {options:?}", if cut { "power cut" } else { "kill" }));
            self.images += 1;
            if let Some(digests) = &mut self.digests {
                digests.push(digests_of(&image, &options, self.images));
            }
            let held = examine(image.process_kill(), &bounds, &options, &mut self.rng)?;
            self.trace.pop();
            if self.rng.percent(8) {
                self.trace.push(format!("  goes on after a {}", if cut { "power cut" } else { "kill" }));
                self.resume(&bounds, &held);
                self.options = random_options(&mut self.rng);
                self.reopen(image)?;
                let next = next_of(self.queue()?);
                ensure!(next == held.shown.next, "opened twice: next is {}, then {next}", held.shown.next);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The recovery from `image` dies, too, or a call fails in it: what it leaves, whether power was cut, and how old messages might
    /// become there.
    fn crash_in_recovery(&mut self, image: &SimStorage, bounds: &Bounds<'_>) -> Check<(SimStorage, bool, Option<u64>)> {
        let world = image.process_kill();
        let options = random_options(&mut self.rng);
        let fails = self.rng.percent(30);
        if fails {
            let call = IN_RECOVERY[self.rng.below(IN_RECOVERY.len() as u64) as usize];
            let errno = if self.rng.percent(50) { Errno::IO } else { Errno::NOSPC };
            let nth = 1 + self.rng.below(if call == Call::Read { 40 } else { 6 });
            world.fail_after(call, nth, errno, self.rng.percent(30));
            self.trace.push(format!("  {call:?} {nth} fails with {errno:?} in recovery, {options:?}"));
        } else if self.rng.percent(50) {
            world.freeze_at(1 + self.rng.below(20));
        } else {
            world.freeze_at_store(1 + self.rng.below(60));
        }
        let opened = Engine::open(world.clone(), &options, false).map(Queue::new);
        world.disarm();
        world.clear_faults();
        match &opened {
            // What it did without is nothing that it would tell of.
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
    fn resume(&mut self, bounds: &Bounds<'_>, held: &Held) {
        let mut model = bounds.after.clone();
        model.messages = bounds.during.messages.clone();
        model.claimed = bounds.before.claimed;
        model.missing.clone_from(&bounds.before.missing);
        let next = held.shown.next;
        let places = held.shown.consumers.values().map(|view| view.place);
        let needed = places.chain([model.released]).min().unwrap_or(0);
        for told in &held.told {
            match told {
                Told::Message(seq) => {
                    model.messages.entry(*seq).and_modify(|sent| sent.fate = Fate::Acknowledged);
                }
                // Who opens the queue with another age, or after the clock was set back, gets them.
                Told::Gap(Gap { first, last, cause: GapCause::Expired }) => {
                    model.messages.range_mut(first..=last).for_each(|(_, sent)| sent.old = true);
                }
                // A power cut may undo that they were dropped.
                Told::Gap(Gap { cause: GapCause::Dropped, .. }) => {}
                Told::Gap(gap) => {
                    model.missing.add(gap.first..gap.last + 1);
                    model.messages.range_mut(gap.first..=gap.last).for_each(|(_, sent)| sent.fate = Fate::Lost);
                }
            }
        }
        // What is held no longer was passed by everybody, given up, or is lost: it may be told so, also to somebody new, or come
        // back when that was not durable.
        model.missing.add(0..held.oldest);
        for (seq, sent) in model.messages.range_mut(..held.oldest) {
            let passed = *seq < needed || bounds.is_given_up(*seq, sent);
            (sent.fate, sent.old) = if passed { (Fate::Tried, true) } else { (Fate::Lost, sent.old) };
        }
        // What was being enqueued and is not there never was; of what was given up nobody can tell.
        model.messages.retain(|seq, sent| {
            (sent.fate != Fate::Tried || bounds.is_given_up(*seq, sent) || sent.old) && *seq < next
        });
        if bounds.cut {
            // What says how old it is was perhaps not synced either.
            model.messages.range_mut(bounds.before.claimed..).for_each(|(_, sent)| sent.written = 0);
        }
        model.next = next;
        for (name, standing) in &mut model.consumers {
            let before = bounds.before.consumers.get(name);
            let view = held.shown.consumers.get(name);
            let found = view.map(|view| view.place);
            standing.exists = found.is_some();
            if bounds.cut {
                standing.durable = if found.is_some() { Presence::Yes } else { Presence::No };
                standing.had = found.into_iter().collect();
                standing.flushed = 0;
            }
            // What it may have dealt with and is told again it has not dealt with.
            let mut dealt = bounds.perhaps_done(name);
            for told in view.iter().flat_map(|view| &view.told) {
                match told {
                    Told::Message(seq) => dealt.remove(*seq..*seq + 1),
                    Told::Gap(gap) => dealt.remove(gap.first..gap.last + 1),
                }
            }
            if bounds.cut {
                standing.kept = dealt.clone();
            }
            standing.start_at(found.unwrap_or(0), dealt);
            if bounds.cut {
                continue;
            }
            if before.is_none_or(|before| before.durable != standing.durable) {
                standing.durable = Presence::Perhaps;
            }
            standing.flushed = before.map_or(0, |before| before.flushed);
            // A seek forgets it on the disk first.
            standing.kept = before.map_or_else(Finished::default, |before| before.kept.common(&standing.finished));
            if let Some(at) = found.and_then(|place| standing.had.iter().rposition(|had| *had == place)) {
                standing.had.truncate(at + 1);
            }
        }
        self.model = model;
        self.refused = None;
    }
}

/// Most disks take stores through mappings.
fn random_stores(rng: &mut Rng) -> Stores {
    if rng.percent(10) { Stores::ByCall } else { Stores::ByMap }
}

/// Segments of 8 to 64 KiB.
fn random_options(rng: &mut Rng) -> Options {
    let arena = 4096 << rng.below(5);
    let most = (64 << 10) << rng.below(4);
    let mut options = Options::new().arena_size(arena).max_bytes(most + 8192 * rng.below(4));
    options = options.max_mapped_arenas([None, Some(3), Some(4)][rng.below(3) as usize]);
    options = options.flush_every_ops([None, None, Some(1), Some(7)][rng.below(4) as usize]);
    if rng.percent(25) {
        options = options.on_full(OnFull::DropOldest);
    }
    let ages = [None, None, None, Some(1), Some(5)];
    options.max_age(ages[rng.below(5) as usize].map(Duration::from_secs))
}

fn age_of(options: &Options) -> Option<u64> {
    options.max_age.map(|age| age.as_millis() as u64)
}
