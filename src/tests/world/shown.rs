//! What an opening of what a life left shows to each consumer.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::Queue;
use super::acts::{NAMES, identity};
use super::reported::{Check, ensure};
use super::script::Script;
use crate::consume::step::Read;
use crate::engine::{Engine, reading};
use crate::error::{Error, Gap};
use crate::tests::sim::SimStorage;

/// What comes next for a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Number and identity.
    Message(u64, u64),
    Gap(Gap),
}

impl Next {
    pub(super) fn message(&self) -> Option<(u64, u64)> {
        match self {
            Next::Message(seq, id) => Some((*seq, *id)),
            Next::Gap(_) => None,
        }
    }

    pub(super) fn gap(&self) -> Option<Gap> {
        match self {
            Next::Message(..) => None,
            Next::Gap(gap) => Some(*gap),
        }
    }

    fn numbers(&self) -> RangeInclusive<u64> {
        match self {
            Next::Message(seq, _) => *seq..=*seq,
            Next::Gap(gap) => gap.first..=gap.last,
        }
    }
}

#[derive(Debug)]
pub(super) struct Shown {
    pub(super) consumers: BTreeMap<&'static str, Vec<Next>>,
    /// The number that the next message gets.
    pub(super) next: u64,
    /// Below it every number was evicted.
    pub(super) evicted: u64,
    /// The first segment that is left begins with it.
    pub(super) retained_from: u64,
}

/// What a copy of the disk shows to each consumer.
pub(super) fn show(left: &SimStorage, script: &Script) -> Check<Shown> {
    let copy = left.process_kill();
    copy.clear_faults();
    copy.set_capacity(None);
    let opened = Engine::open_without_workers(copy, &script.options);
    let queue: Queue = Arc::new(opened.map_err(|error| format!("does not open: {error}"))?);
    let names = queue.consumer_names();
    let mut consumers = BTreeMap::new();
    let is_there = |name: &str| match name {
        "" => queue.existing_default().is_some(),
        _ => names.iter().any(|other| other == name),
    };
    for name in NAMES.into_iter().filter(|name| is_there(name)) {
        let consumer =
            queue.consumer(name).map_err(|error| format!("no consumer {name:?}: {error}"))?;
        let mut upcoming = Vec::new();
        loop {
            match reading::next(&queue, &consumer, Read::Take) {
                Ok(Some(message)) => {
                    let id = identity(&message);
                    let id = id.ok_or_else(|| {
                        format!("message {} is not what anybody sent", message.seq())
                    })?;
                    upcoming.push(Next::Message(message.seq(), id));
                }
                Ok(None) => break,
                Err(Error::Gap(gap)) => upcoming.push(Next::Gap(gap)),
                Err(error) => return Err(format!("{name:?} cannot read: {error}")),
            }
        }
        let end = consumer.with_locked(|locked| locked.cursor.spot().seq);
        let next = queue.core.committed_spot().seq;
        ensure!(end >= next, "nothing is reported to {name:?} of the numbers from {end} to {next}");
        let numbers: Vec<_> = upcoming.iter().map(Next::numbers).collect();
        let is_once = numbers.is_sorted_by(|one, other| one.end() < other.start());
        ensure!(is_once, "{numbers:?} is reported to {name:?}");
        consumers.insert(name, upcoming);
    }
    let next = queue.core.committed_spot().seq;
    let evicted = queue.core.gaps.evicted.lock().end();
    let retained_from = queue.core.segments.list().retained_from();
    queue.close().map_err(|error| format!("does not close: {error}"))?;
    Ok(Shown { consumers, next, evicted, retained_from })
}
