//! Finds and evicts the segments in which every message is older than `max_age`.
//!
//! A segment's header says when its first message was written (`created`), and before which time
//! its last one was (`until`). The writer keeps that promise: with `max_age` a segment takes
//! messages for an eighth of `max_age`, and a later message begins another segment. Once `max_age`
//! has passed since `until`, every message in the segment is too old.
//!
//! A header does not date its messages in two cases:
//!
//! - `until` is zero, because messages were written without `max_age`, or more than an eighth of
//!   today's `max_age` behind `created`, because `max_age` was longer then.
//! - `created` lies in the future: the clock was ahead then, or is behind now. When the clock
//!   reaches that time, the header dates its messages again.
//!
//! In these cases the code uses the `created` of the segments behind it: all its messages were
//! written before those segments began. The tail's segment has none behind it: its messages count
//! as written when this run first looked at the last of them. (Where there is no room for another
//! segment, the writer also appends to one whose `created` lies in the future.)

use std::time::Duration;

use super::Segments;
use super::context::Context;
use super::list::List;
use super::undated::Undated;
use crate::error::{GapCause, Result};
use crate::format::SegmentHeader;
use crate::storage::{Storage, StorageFile};

use super::Segment;

/// How old messages may become and how long a segment takes messages, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    most: u64,
    /// How long a segment takes messages: an eighth of `most`, at most what its header can store.
    span: u64,
}

impl Ages {
    pub(crate) fn new(max_age: Duration) -> Ages {
        let most = u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX);
        Ages { most, span: (most / 8).clamp(1, u32::MAX.into()) }
    }

    /// Returns the time between two checks of the segments' ages.
    pub(crate) fn look_every(&self) -> Duration {
        Duration::from_millis(self.span.clamp(20, 30_000))
    }

    /// Returns until when a segment that begins `now` takes messages.
    pub(crate) fn until(&self, now: u64) -> u64 {
        now.saturating_add(self.span)
    }

    /// Returns whether a segment's header tells how old its messages are `now`.
    pub(crate) fn is_dated(&self, created: u64, until: u64, now: u64) -> bool {
        created <= now && until != 0 && until.saturating_sub(created) <= self.span
    }

    /// Returns whether all messages written before `until` are too old `now`.
    pub(crate) fn are_past(&self, until: u64, now: u64) -> bool {
        until.saturating_add(self.most) <= now
    }
}

impl<F: StorageFile> List<F> {
    /// Returns how many segments, from the oldest on, hold only messages that are too old. The last
    /// message ends at position `tail`.
    fn too_old(&mut self, ages: Ages, tail: u64, now: u64) -> usize {
        let Some(last) = self.live.back().map(|row| row.header) else {
            return 0;
        };
        let known = self.undated_tail.filter(|known| known.life == last.life);
        let known = known.unwrap_or(Undated::at(last.life, tail, now)).look(tail, now);
        self.undated_tail = (!ages.is_dated(last.created, last.until, now)).then_some(known);
        // Segments go in order: if the first one stays, all do.
        let first = self.live.front().map_or(last, |row| row.header);
        if ages.is_dated(first.created, first.until, now) && !ages.are_past(first.until, now) {
            return 0;
        }
        let (mut count, mut behind) = (self.live.len(), known.until);
        for (at, SegmentHeader { created, until, life, .. }) in
            self.live.iter().map(|row| row.header).enumerate().rev()
        {
            if !ages.are_past(if ages.is_dated(created, until, now) { until } else { behind }, now)
            {
                count = at;
            }
            if life == last.life {
                behind = known.begun;
            }
            if created <= now {
                behind = behind.min(created);
            }
        }
        holds!(count <= self.live.len(), "of {} segments {count} are too old", self.live.len());
        count
    }
}

impl<S: Storage> Segments<S> {
    /// Evicts the segments before the committed `tail` that hold only messages that are too old.
    /// Returns the first sequence number still in the queue, or `None` when it evicted nothing.
    /// Never evicts the last segment (see [`is_tail_too_old`](Self::is_tail_too_old)).
    pub(crate) fn expire(&self, context: &Context<'_, S>, ages: Ages, tail: u64) -> Option<u64> {
        let mut list = self.list();
        let too_old = list.too_old(ages, tail, context.storage.now());
        let most = list.live.len().saturating_sub(1).min(too_old);
        let count = list.live.iter().take(most).take_while(|row| row.header.end() <= tail).count();
        if count == 0 {
            return None;
        }
        (0..count).for_each(|_| list.drain_front());
        self.note_passed();
        check!(list.check());
        let retained_from = list.first_seq()?;
        context.evicted.lock().note(GapCause::Expired, retained_from);
        Some(retained_from)
    }

    /// Returns whether the tail's segment is the only one, and all its messages before the
    /// committed `tail` are too old. The caller holds the producers' lock.
    pub(crate) fn is_tail_too_old(&self, context: &Context<'_, S>, ages: Ages, tail: u64) -> bool {
        let mut list = self.list();
        list.live.len() == 1 && list.too_old(ages, tail, context.storage.now()) == 1
    }

    /// Stores in the header of the tail's segment from when and until when it takes messages. The
    /// caller holds the producers' lock.
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
        // The flush that syncs the messages of the new time span syncs this header, too.
        segment.file.write_at(&header.in_file().encode(), 0).map_err(|error| {
            crate::error::Error::io("write", context.storage.path().join(segment.name()), error)
        })?;
        row.header = header;
        let row = *row;
        list.write_row(context, &row);
        holds!(created <= until || until == 0, "messages are written from {created} to {until}");
        Ok(())
    }
}
