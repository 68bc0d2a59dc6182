//! Opens what a crash left and holds it against what the queue had promised.

mod bounds;
mod outside;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::model::{Check, Model, ensure};
use crate::consume::consumer_state;
use crate::consume::step::Read;
use crate::engine::Engine;
use crate::engine::ahead::Ahead;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::format::QUARANTINE_SUFFIX;
use crate::options::Options;
use crate::segment::{Context, DiskLimits};
use crate::tests::sim::{Rng, SimStorage};

pub(super) type Queue = Arc<Engine<SimStorage>>;

/// Where nobody else reads.
pub(super) const PROBE: &str = "probe";

/// What may be found after a crash that came somewhere between two moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub(super) before: &'a Model,
    /// The model, with the calls that were under way.
    pub(super) during: &'a Model,
    pub(super) after: &'a Model,
    /// The machine lost power; else only the process died.
    pub(super) cut: bool,
    /// How old messages may become where it is opened.
    pub(super) age: Option<u64>,
}

/// What a read reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reported {
    Message(u64),
    Gap(Gap),
}

impl Reported {
    pub(super) fn message(&self) -> Option<u64> {
        match self {
            Reported::Message(seq) => Some(*seq),
            Reported::Gap(_) => None,
        }
    }
}

/// What is yet to be reported to a consumer.
#[derive(Debug)]
pub(super) struct View {
    pub(super) place: u64,
    /// What comes from there on.
    pub(super) reported: Vec<Reported>,
}

/// What an opening showed.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) next: u64,
    pub(super) consumers: BTreeMap<String, View>,
}

/// What everything that is still held looks like, from the oldest on.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) shown: Shown,
    pub(super) oldest: u64,
    pub(super) reported: Vec<Reported>,
}

pub(super) fn open(storage: SimStorage, options: &Options) -> Check<Queue> {
    let opened = Engine::open_without_workers(storage, options);
    opened.map(Arc::new).map_err(|error| format!("does not open: {error}"))
}

/// Makes a spare as the storage worker does when the tail comes near its segment's end, and nobody
/// counts the bytes. Here they are counted: segments are 4 MiB long without a limit.
pub(super) fn prepare_ahead(queue: &Queue) {
    let unlimited = DiskLimits { max_bytes: None, min_free_bytes: 0 };
    if !queue.core.is_poisoned() {
        let end = queue.core.committed_spot().position;
        let context = Context { limits: unlimited, ..queue.core.context() };
        queue.core.segments.prepare(&context, queue.core.backlog(end));
    }
}

/// Each segment file is counted once, and no name is taken for nothing.
pub(super) fn check_accounts(queue: &Queue) -> Check {
    queue.core.segments.list().check_accounts(&queue.core.storage.file_names())
}

pub(super) fn next_of(queue: &Queue) -> u64 {
    queue.core.committed_spot().seq
}

pub(super) fn durable_of(queue: &Queue) -> u64 {
    queue.core.durable.lock().spot.seq
}

/// The first number that is held.
pub(super) fn oldest_of(queue: &Queue) -> u64 {
    queue.core.oldest_seq.load(Ordering::Acquire)
}

/// Numbers below it that are missing were dropped.
pub(super) fn dropped_of(queue: &Queue) -> u64 {
    queue.core.gaps.evicted.lock().dropped
}

pub(super) fn consumer_of(
    queue: &Queue,
    name: &str,
) -> Check<Arc<consumer_state::ConsumerState<SimStorage>>> {
    let consumer =
        if name.is_empty() { queue.default_consumer().cloned() } else { queue.consumer(name) };
    consumer.map_err(|error| format!("no consumer {name:?}: {error}"))
}

/// All from the consumer's place on, none of it consumed. What is reported must have no hole in it.
fn look_ahead(queue: &Queue, name: &str, bounds: &Bounds<'_>) -> Check<View> {
    let consumer = consumer_of(queue, name)?;
    let place = consumer.seq();
    let (mut at, mut reported) = (place, Vec::new());
    let mut ahead = Ahead::new(queue, &consumer).map_err(|error| error.to_string())?;
    while let Some(found) = ahead.next() {
        // What it has acknowledged already may be passed over.
        let reported_at = match &found {
            Ok(message) => message.seq(),
            Err(Error::Gap(gap)) => gap.first,
            Err(_) => at,
        };
        bounds
            .check_passed(name, at, reported_at)
            .map_err(|broken| format!("{broken}, after {reported:?} ahead of {place}"))?;
        at = at.max(reported_at);
        match found {
            Ok(message) => {
                ensure!(
                    message.seq() == at,
                    "{name:?} gets message {} where {at} comes next",
                    message.seq()
                );
                ensure!(
                    !bounds.is_done(name, at),
                    "{name:?} gets message {at} again, which it had dealt with"
                );
                bounds.check_message(at, &message).map_err(|broken| {
                    format!("{broken}; {name:?} at {place} was told {reported:?}")
                })?;
                reported.push(Reported::Message(at));
                at += 1;
            }
            Err(Error::Gap(gap)) => {
                ensure!(
                    gap.first == at && gap.last >= at,
                    "{gap:?} is reported to {name:?} where {at} comes next"
                );
                bounds.check_gap(&gap).map_err(|broken| {
                    format!("{broken}; {name:?} at {place} was told {reported:?}")
                })?;
                note_gap(&mut reported, gap);
                at = gap.last + 1;
            }
            Err(error) => return Err(format!("{name:?} cannot read: {error}")),
        }
    }
    let next = next_of(queue);
    ensure!(at <= next, "numbers up to {at} are reported to {name:?}, and the next is {next}");
    // What is missing before the tail is reported without waiting for the next message.
    let at = bounds.perhaps_done(name).next_open(at).min(next);
    ensure!(
        at == next,
        "{name:?} at {place} gets nothing from {at} on, and {next} is the next number: {reported:?}"
    );
    Ok(View { place, reported })
}

/// One gap may be reported in pieces. How much of what a power cut took is known to have been given
/// out is another matter.
fn note_gap(reported: &mut Vec<Reported>, gap: Gap) {
    let cause = if gap.cause == GapCause::Reserved { GapCause::Unflushed } else { gap.cause };
    let gap = Gap { cause, ..gap };
    match reported.last_mut() {
        Some(Reported::Gap(before))
            if before.cause == gap.cause && before.last + 1 == gap.first =>
        {
            before.last = gap.last
        }
        _ => reported.push(Reported::Gap(gap)),
    }
}

/// The names that exist in the queue, the default consumer's (empty) among them if it ever read.
pub(super) fn names_of(queue: &Queue) -> Vec<String> {
    let default = queue.existing_default().map(|_| String::new());
    default.into_iter().chain(queue.consumer_names()).collect()
}

fn show(queue: &Queue, bounds: &Bounds<'_>) -> Check<Shown> {
    let reported = names_of(queue)
        .into_iter()
        .map(|name| Ok((name.clone(), look_ahead(queue, &name, bounds)?)));
    Ok(Shown { next: next_of(queue), consumers: reported.collect::<Check<_>>()? })
}

/// Every consumer, and a new one, gets what is left, and nothing else.
pub(super) fn look_at_all(queue: &Queue, bounds: &Bounds<'_>) -> Check {
    let shown = show(queue, bounds)?;
    bounds.check_consumers(&shown)?;
    for (name, view) in &shown.consumers {
        bounds.check_batches(name, view.place, &view.reported)?;
    }
    Ok(())
}

/// Opens the image and checks everything that was promised. The image itself is used up.
pub(super) fn examine(
    image: SimStorage,
    bounds: &Bounds<'_>,
    options: &Options,
    rng: &mut Rng,
) -> Check<Held> {
    // (Each look takes as long as the rest.)
    let look = image.calls().is_multiple_of(3);
    let outside = look.then(|| outside::look(&image.process_kill())).transpose()?;
    let queue = open(image, options)?;
    ensure!(
        queue.core.pool.mapped_bytes().div_ceil(options.arena_size)
            <= 4 + u64::from(options.max_mapped_arenas.unwrap_or(u32::MAX - 4)),
        "opening maps too much"
    );
    let shown = show(&queue, bounds)?;
    let promised = bounds.before.next;
    ensure!(
        shown.next >= promised,
        "the next number is {}, and {promised} was given out",
        shown.next
    );
    bounds.check_consumers(&shown)?;
    match outside {
        None => {}
        Some(None) => ensure!(shown.next == 0, "from outside there is no queue"),
        // An opening that limits ages evicts what is too old.
        Some(_) if options.max_age.is_some() => {}
        Some(Some(outside)) => outside.check(&queue, &shown)?,
    }
    if rng.percent(40) {
        // A second opening, before and after the first one was closed in order, finds the same.
        let storage = &queue.core.storage;
        let again = match rng.below(3) {
            0 => storage.process_kill(),
            1 if bounds.cut => storage.power_cut(rng.next()),
            _ => {
                queue.close().map_err(|error| format!("does not close: {error}"))?;
                storage.process_kill()
            }
        };
        let second = show(&open(again, options)?, bounds)?;
        for name in shown.consumers.keys().chain(second.consumers.keys()) {
            let both = shown.consumers.get(name).zip(second.consumers.get(name));
            let same = both.is_some_and(|(a, b)| {
                a.place == b.place && bounds.agree(&queue, &a.reported, &b.reported)
            });
            ensure!(same, "opened twice, {name:?} is shown first and then {both:?}");
        }
        ensure!(
            second.next == shown.next,
            "opened twice: next is {}, then {}",
            shown.next,
            second.next
        );
        if queue.core.check_readable().is_err() {
            return examine_held(
                open(queue.core.storage.process_kill(), options)?,
                bounds,
                shown,
                options,
                rng,
            );
        }
    }
    examine_held(queue, bounds, shown, options, rng)
}

fn examine_held(
    queue: Queue,
    bounds: &Bounds<'_>,
    shown: Shown,
    options: &Options,
    rng: &mut Rng,
) -> Check<Held> {
    let View { place: oldest, reported } = look_ahead(&queue, PROBE, bounds)?;
    queue.remove_consumer(PROBE).map_err(|error| format!("cannot remove the probe: {error}"))?;
    let needed =
        shown.consumers.values().map(|view| view.place).min().unwrap_or(bounds.after.released);
    let needed = needed.max(bounds.after.released);
    // Where nothing is held a new consumer begins behind what is missing.
    bounds
        .check_tail_gap(needed, oldest)
        .map_err(|broken| format!("held from {oldest}, not {needed}: {broken}"))?;
    bounds.check_batches(PROBE, oldest, &reported)?;
    for (name, view) in &shown.consumers {
        bounds.check_batches(name, view.place, &view.reported)?;
    }
    let held = Held { shown, oldest, reported };
    go_on(queue, bounds, &held, options, rng)?;
    Ok(held)
}

/// The queue works: what is there is taken, new messages come in and out, and a clean end keeps it
/// so.
fn go_on(
    queue: Queue,
    bounds: &Bounds<'_>,
    held: &Held,
    options: &Options,
    rng: &mut Rng,
) -> Check {
    let mut after = bounds.during.clone();
    let early =
        rng.percent(50).then(|| enqueue_one(&queue, &mut after, rng)).transpose()?.flatten();
    for (name, view) in &held.shown.consumers {
        let consumer = consumer_of(&queue, name)?;
        let (mut at, mut got) = (view.place, Vec::new());
        loop {
            match reading::next(&queue, &consumer, Read::Take) {
                Ok(Some(message)) if message.seq() >= at => {
                    bounds.check_passed(name, at, message.seq())?;
                    after.check_new(message.seq(), &message)?;
                    got.push(Reported::Message(message.seq()));
                    at = message.seq() + 1;
                }
                Err(Error::Gap(gap)) if gap.first >= at => {
                    bounds.check_passed(name, at, gap.first)?;
                    bounds.check_gap_in(&gap, Some(&queue))?;
                    note_gap(&mut got, gap);
                    at = gap.last + 1;
                }
                Ok(None) => break,
                found => return Err(format!("{name:?} gets {found:?} at {at}")),
            }
        }
        // Where what is missing at the tail begins depends on how much of it was reported before.
        let mut expected = view.reported.clone();
        let is_lost = |gap: &Gap| gap.cause == GapCause::Unflushed;
        let unflushed = |last: &mut Reported| matches!(last, Reported::Gap(gap) if is_lost(gap));
        if let Some(seq) = early {
            ensure!(
                got.pop() == Some(Reported::Message(seq)),
                "{name:?} does not get the new message {seq} after {got:?}"
            );
        }
        while expected.pop_if(unflushed).is_some() {}
        while got.pop_if(unflushed).is_some() {}
        ensure!(
            bounds.agree(&queue, &expected, &got),
            "{name:?} saw {expected:?} ahead, and got {got:?}"
        );
    }
    let late = enqueue_one(&queue, &mut after, rng)?;
    // A smaller limit than before may be taken by one segment of the old length, which stays until
    // the tail leaves it; and what was quarantined counts.
    let roomy = options.max_bytes.is_none_or(|most| most >= 256 << 10)
        && !queue.core.storage.file_names().iter().any(|name| name.ends_with(QUARANTINE_SUFFIX));
    ensure!(late.is_some() || held.shown.consumers.is_empty() || !roomy, "a drained queue is full");
    for name in held.shown.consumers.keys() {
        if let Some(seq) = late {
            let consumer = consumer_of(&queue, name)?;
            let mut found = reading::next(&queue, &consumer, Read::Take);
            while let Err(Error::Gap(gap)) = &found {
                bounds.check_gap_in(gap, Some(&queue))?;
                found = reading::next(&queue, &consumer, Read::Take);
            }
            let found =
                found.map_err(|error| format!("{name:?} cannot read the new message: {error}"))?;
            let message =
                found.ok_or_else(|| format!("{name:?} does not get the new message {seq}"))?;
            ensure!(
                message.seq() == seq,
                "{name:?} gets {} instead of the new message {seq}",
                message.seq()
            );
            after.check_new(seq, &message)?;
        }
    }
    end_cleanly(&queue, held, late, options, rng)
}

/// A clean end keeps what there is, also when the power goes after it.
fn end_cleanly(
    queue: &Queue,
    held: &Held,
    late: Option<u64>,
    options: &Options,
    rng: &mut Rng,
) -> Check {
    let next = next_of(queue);
    queue.close().map_err(|error| format!("does not close: {error}"))?;
    let queue = open(queue.core.storage.power_cut(rng.next()), options)?;
    ensure!(
        next_of(&queue) == next,
        "after a clean end the next number is {}, not {next}",
        next_of(&queue)
    );
    for name in held.shown.consumers.keys() {
        let consumer = consumer_of(&queue, name)?;
        ensure!(
            late.is_none() || consumer.seq() == next,
            "after a clean end {name:?} stands at {}, not {next}",
            consumer.seq()
        );
    }
    Ok(())
}

/// The number the message got; none when there was no room.
fn enqueue_one(queue: &Queue, after: &mut Model, rng: &mut Rng) -> Check<Option<u64>> {
    let next = next_of(queue);
    let bytes = after.try_messages(next, &[rng.below(300) as usize]);
    match queue.enqueue(&bytes[0]) {
        Ok(seq) => {
            ensure!(seq == next, "the new message got {seq} where {next} was next");
            Ok(Some(seq))
        }
        // Of the smallest limits the index may leave next to nothing.
        Err(error) if error.is_full() || matches!(error, Error::MessageTooLarge { .. }) => Ok(None),
        Err(error) => Err(format!("does not take a new message: {error}")),
    }
}
