//! Which segments hold nothing but messages that are too old.
//!
//! A segment's header says when its first message was written (`created`), and before which time
//! its last one was (`until`). The writer keeps to that: with ages a segment takes messages for an
//! eighth of `max_age`, and what comes later begins another one. Once `max_age` has passed since
//! `until`, every message in the segment is too old.
//!
//! Where the header does not tell, what was begun behind the segment does, for all its messages
//! were written before that:
//!
//! - `until` is zero when messages were written without ages, and later than an eighth of `max_age`
//!   when that was longer then;
//! - a header whose `created` lies in the future is not believed: the clock was ahead then, or is
//!   behind now. Should the clock come to that time after all, it is believed again.
//!
//! Behind the tail there is nothing. Where its own header does not tell, its messages count as
//! written when they were first looked at in this run.

use std::time::Duration;

use super::list::List;
use super::{Context, Segments};
use crate::error::{GapCause, Result};
use crate::format::{SegmentHeader, Spot};
use crate::storage::{Storage, StorageFile};

use super::Segment;

/// How old messages may become, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    most: u64,
    /// A segment takes messages for so long: an eighth of that, and no longer than its header can
    /// say.
    span: u64,
}

impl Ages {
    pub(crate) fn new(max_age: Duration) -> Ages {
        let most = u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX);
        Ages { most, span: (most / 8).clamp(1, u32::MAX.into()) }
    }

    /// How often what is held is looked at: not so often that it costs anything.
    pub(crate) fn look_every(&self) -> Duration {
        Duration::from_millis(self.span.clamp(20, 30_000))
    }

    /// Until when a segment takes messages that is begun `now`.
    pub(crate) fn until(&self, now: u64) -> u64 {
        now.saturating_add(self.span)
    }

    /// Whether a segment's header tells how old its messages are `now`.
    pub(crate) fn tells(&self, created: u64, until: u64, now: u64) -> bool {
        created <= now && until != 0 && until.saturating_sub(created) <= self.span
    }

    /// Whether messages are too old `now` that were written before `until`.
    pub(crate) fn are_past(&self, until: u64, now: u64) -> bool {
        until.saturating_add(self.most) <= now
    }
}

/// What was given up.
#[derive(Debug)]
pub(crate) struct Expired {
    /// Where it began.
    pub(crate) from: Spot,
    /// The first number that is still held.
    pub(crate) held: u64,
}

impl<F: StorageFile> List<F> {
    /// How many segments, from the oldest on, hold nothing but messages that are too old.
    fn too_old(&mut self, ages: Ages, now: u64) -> usize {
        let Some(tail) = self.live.back().map(|row| row.header) else {
            return 0;
        };
        let seen =
            self.seen.filter(|(life, _)| *life == tail.life).map_or(now, |(_, seen)| seen.min(now));
        self.seen = (!ages.tells(tail.created, tail.until, now)).then_some((tail.life, seen));
        // What comes behind the first one goes after it.
        let first = self.live.front().map_or(tail, |row| row.header);
        if ages.tells(first.created, first.until, now) && !ages.are_past(first.until, now) {
            return 0;
        }
        let (mut count, mut behind) = (self.live.len(), seen);
        for (at, SegmentHeader { created, until, .. }) in
            self.live.iter().map(|row| row.header).enumerate().rev()
        {
            if !ages.are_past(if ages.tells(created, until, now) { until } else { behind }, now) {
                count = at;
            }
            if created <= now {
                behind = behind.min(created);
            }
        }
        count
    }
}

impl<S: Storage> Segments<S> {
    /// Lets go of the segments that hold nothing but messages that are too old, all of them before
    /// `tail`. The last one stays: see [`too_old_tail`](Self::too_old_tail).
    pub(crate) fn expire(
        &self,
        context: &Context<'_, S>,
        ages: Ages,
        tail: u64,
    ) -> Option<Expired> {
        let mut list = self.list();
        let most = list.live.len().saturating_sub(1).min(list.too_old(ages, context.storage.now()));
        let count = list.live.iter().take(most).take_while(|row| row.header.end() <= tail).count();
        let from = list.live.front().filter(|_| count > 0).map(|row| row.header.beginning())?;
        (0..count).for_each(|_| list.drain_front());
        self.note_passed();
        let held = list.first_whole(context.storage).map(|(_, seq)| seq)?;
        context.given_up.lock().note(GapCause::Expired, held);
        Some(Expired { from, held })
    }

    /// Where the tail's segment begins, when it is the only one and everything in it is too old.
    pub(crate) fn too_old_tail(&self, context: &Context<'_, S>, ages: Ages) -> Option<Spot> {
        let mut list = self.list();
        let is_too_old = list.live.len() == 1 && list.too_old(ages, context.storage.now()) == 1;
        list.live.front().filter(|_| is_too_old).map(|row| row.header.beginning())
    }

    /// Has the tail's segment say when its messages were written. The producers' lock is held.
    pub(crate) fn date_tail(
        &self,
        context: &Context<'_, S>,
        segment: &Segment<S::File>,
        created: u64,
        until: u64,
    ) -> Result<()> {
        let mut list = self.list();
        let Some(row) =
            list.live.iter_mut().rev().find(|row| row.header.life == segment.header.life)
        else {
            return Ok(());
        };
        let header = SegmentHeader { created, until, ..row.header };
        // It is synced with the messages that are written because of it.
        segment.file.write_at(&header.in_file().encode(), 0).map_err(|error| {
            crate::error::Error::io("write", context.storage.path().join(segment.name()), error)
        })?;
        row.header = header;
        let row = *row;
        list.write_row(context, &row);
        if !list.names.rows_complete {
            context.index.set_changing(true);
        }
        Ok(())
    }
}
