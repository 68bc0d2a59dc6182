//! What a look from outside says of a queue that nobody uses is what the next opening finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Queue, Shown, View, next_of, note_gap, oldest_of};
use crate::error::{Error, Gap};
use crate::format::NumberRange;
use crate::inspect::{self, Kept, Onlooker, Picture};
use crate::storage::Storage;
use crate::tests::crash::model::{Check, ensure};
use crate::tests::sim::SimStorage;

/// What was seen.
#[derive(Debug)]
pub(super) struct Outside {
    next: u64,
    oldest: u64,
    held: u64,
    consumers: BTreeMap<String, View>,
    waiting: BTreeMap<String, u64>,
}

/// `None` where there is no queue yet: an opening is to make it.
pub(super) fn look(image: &SimStorage) -> Check<Option<Outside>> {
    let image = Arc::new(image.clone());
    let take = || Picture::take(&image).map_err(|error| format!("from outside: {error}"));
    if matches!(Picture::take(&image), Err(Error::NotFound { .. })) {
        return Ok(None);
    }
    let (picture, _) = take()?;
    let mut seen = Outside {
        next: picture.tail.seq,
        oldest: picture.oldest_seq(),
        held: picture.messages_from(0),
        consumers: BTreeMap::new(),
        waiting: BTreeMap::new(),
    };
    for consumer in &picture.consumers {
        let place = consumer.place.spot();
        let (again, kept) = take()?;
        let Kept::InOverlay(overlay) = kept else {
            return Err("nobody has the queue, and from outside somebody does".to_owned());
        };
        let reported = walk(&*overlay, Onlooker::new(again, place), &consumer.acks)?;
        seen.waiting.insert(consumer.name.clone(), picture.waiting_for(consumer).0);
        seen.consumers.insert(consumer.name.clone(), View { place: place.seq, reported });
    }
    Ok(Some(seen))
}

fn walk<S: Storage>(
    storage: &S,
    mut walk: Onlooker<S::File>,
    done: &[NumberRange],
) -> Check<Vec<super::Reported>> {
    let is_done = |seq| done.iter().any(|done| (done.first..=done.last).contains(&seq));
    let mut reported = Vec::new();
    while let Some(next) = walk.next(storage).map_err(|error| error.to_string())? {
        match next {
            inspect::Reported::Message { seq, .. } if is_done(seq) => {}
            inspect::Reported::Message { seq, .. } => reported.push(super::Reported::Message(seq)),
            inspect::Reported::Gap(gap) => {
                not_done(gap, done).into_iter().for_each(|gap| note_gap(&mut reported, gap));
            }
            inspect::Reported::Overtaken { first, .. } => {
                return Err(format!("overtaken at {first}, and nobody has the queue"));
            }
        }
    }
    Ok(reported)
}

/// The parts of a gap that are not in the ranges, which ascend. (A power cut leaves thousands of
/// numbers unused, so they are not looked at one by one.)
fn not_done(gap: Gap, done: &[NumberRange]) -> Vec<Gap> {
    let (mut first, mut left) = (gap.first, Vec::new());
    for range in done.iter().take_while(|range| range.first <= gap.last) {
        if range.first > first {
            left.push(Gap { first, last: range.first - 1, ..gap });
        }
        first = first.max(range.last + 1);
    }
    if first <= gap.last {
        left.push(Gap { first, ..gap });
    }
    left
}

impl Outside {
    /// Holds what was seen against what the opening `shown`.
    pub(super) fn check(&self, queue: &Queue, shown: &Shown) -> Check {
        let next = next_of(queue);
        ensure!(self.next == next, "from outside the next number is {}, not {next}", self.next);
        let oldest = oldest_of(queue);
        ensure!(self.oldest == oldest, "from outside {} is the oldest, not {oldest}", self.oldest);
        let held = queue.core.len_from(0, std::iter::empty());
        ensure!(self.held == held, "from outside {} messages are held, not {held}", self.held);
        ensure!(
            self.consumers.keys().eq(shown.consumers.keys()),
            "from outside there are {:?}",
            self.consumers.keys()
        );
        for (name, view) in &shown.consumers {
            let seen = &self.consumers[name];
            ensure!(
                seen.place == view.place && seen.reported == view.reported,
                "from outside {name:?} would get {seen:?}, not {view:?}"
            );
            let waiting = super::consumer_of(queue, name)?.len(&queue.core);
            ensure!(
                self.waiting[name] == waiting,
                "from outside {} messages wait for {name:?}, not {waiting}",
                self.waiting[name]
            );
        }
        Ok(())
    }
}
