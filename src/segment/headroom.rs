//! The headroom of a queue that drops its oldest messages: space for the next segments, freed
//! before a producer needs it, so that no producer waits for the syncs of an eviction.
//!
//! The headroom is one to four of the queue's sixteen segments. It grows each time a producer has
//! used it up and waits, and falls back to one when the queue is idle.

use super::Segments;
use super::context::{Context, Plan};
use super::files::{overhead, taken};
use super::list::List;
use crate::error::GapCause;
use crate::events;
use crate::storage::{Storage, StorageFile};

/// The longest headroom, in segments.
const MOST_HEADROOM: u64 = 4;

/// How much of the headroom is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomAhead {
    /// The headroom is whole; or the queue keeps none.
    Enough,
    /// There is room for the next segment, but not for the whole headroom.
    Little,
    /// There is no room for the next segment.
    Nothing,
}

impl<F: StorageFile> List<F> {
    /// Returns the disk bytes that are free, belong to spares, or are about to.
    fn room<S: Storage<File = F>>(&self, context: &Context<'_, S>) -> u64 {
        let live: u64 = self.live.iter().map(taken).sum();
        let limit = context.limits.max_bytes.unwrap_or(u64::MAX);
        limit.saturating_sub(live + self.names.other_bytes + context.index.len())
    }

    /// Returns how many segments of that length fit now.
    fn fitting<S: Storage<File = F>>(&self, context: &Context<'_, S>, length: u64) -> u64 {
        let limit = context.limits.max_bytes.unwrap_or(u64::MAX);
        let free = limit.saturating_sub(self.limited_bytes() + context.index.len());
        self.spares_of(length) as u64 + free / (length + overhead(length))
    }
}

impl<S: Storage> Segments<S> {
    /// Returns how much room there is for the segment of that plan and the next ones.
    pub(crate) fn room_ahead(&self, context: &Context<'_, S>, plan: &Plan) -> RoomAhead {
        let geometry = context.pool.geometry();
        let mut list = self.list();
        let length = list.next_len(geometry, plan);
        // Only one long record gets a longer segment; its producer makes the room when it needs it.
        if !geometry.drops_ahead || length > geometry.usual_len {
            return RoomAhead::Enough;
        }
        let fitting = list.fitting(context, length);
        if fitting > list.headroom {
            return RoomAhead::Enough;
        }
        // The producer reports this, because the storage worker cannot serve producers while it
        // reports.
        let (used, limit) = (list.limited_bytes(), context.limits.max_bytes.unwrap_or(0));
        events::full(context.storage.path(), &context.full(used, limit, length));
        if fitting > 0 {
            return RoomAhead::Little;
        }
        list.headroom = (list.headroom + 1).min(MOST_HEADROOM);
        check!(let headroom = list.headroom);
        holds!(headroom <= MOST_HEADROOM, "the headroom is of {headroom} segments, a few");
        RoomAhead::Nothing
    }

    /// Drops the oldest segments until the headroom is free. Drops only segments that end at or
    /// before `visible`, since others may hold the beginning of a record that is being written, and
    /// never the last one. Returns the first sequence number still in the queue, if it dropped any.
    pub(crate) fn drop_ahead(&self, context: &Context<'_, S>, visible: u64) -> Option<u64> {
        let geometry = context.pool.geometry();
        let mut list = self.list();
        let length = list.tail_len(geometry).min(geometry.usual_len);
        let beside = overhead(length);
        let wanted = list.headroom * (length + beside);
        let mut any = false;
        while geometry.drops_ahead
            && list.room(context) < wanted
            && list.live.len() > 1
            && (list.live[0].header.end() <= visible)
        {
            list.drain_front();
            any = true;
        }
        if !any {
            return None;
        }
        self.note_passed();
        let first_held = list.first_seq()?;
        context.evicted.lock().note(GapCause::Dropped, first_held);
        check!(list.check());
        Some(first_held)
    }
}
