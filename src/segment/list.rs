//! The list of a queue's segments, live, drained and spare, under one lock.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::context::{Context, Plan, spares_wanted};
use super::files::{Segment, overhead, taken};
use super::geometry::Geometry;
use super::names::Names;
use super::recycling::Recycling;
use super::row::Row;
use super::undated::Undated;
#[cfg(test)]
use crate::format;
use crate::format::Spot;
use crate::index::RowsAre;
use crate::storage::{Storage, StorageFile};

/// With more open segments than this, consumers are asked to release theirs.
const MANY_OPEN: usize = 32;

#[derive(Debug)]
pub(crate) struct List<F> {
    pub(crate) live: VecDeque<Row>,
    /// Segments that somebody has open, by life.
    pub(super) open: Vec<(u64, Weak<Segment<F>>)>,
    /// Live segments that were stored to and not synced since: they stay open, and the flush syncs
    /// each through this descriptor. The kernel reports a failed write-back once to each open
    /// descriptor; one that is opened later may never learn of it.
    pub(super) kept_open: Vec<Arc<Segment<F>>>,
    /// Live segments that the opening opened. They stay open until they are drained: the oldest one
    /// for its first reader, the last one for the first writer.
    pub(super) handed_on: Vec<Arc<Segment<F>>>,
    /// Counts how often a writer began to store to a segment: numbers each such store.
    pub(super) last_store: u64,
    pub(super) recycling: Recycling<F>,
    pub(super) names: Names,
    /// The first number behind the only segment, when that segment was drained, or behind all that
    /// the opening found: as long as no segment is live, no lower number is in the queue.
    pub(super) drained_up_to: u64,
    /// The first message that expired since the last consumer was removed: the next one that is to
    /// begin at the oldest message begins there, with a gap. While there are consumers it means
    /// nothing. Under the list's lock, so that whoever sees that messages are gone sees it.
    pub(crate) expired_from: Option<Spot>,
    /// The tail's segment, when its header does not date its messages.
    pub(super) undated_tail: Option<Undated>,
    /// For how many segments room is kept free, in a queue that drops its oldest messages.
    pub(crate) headroom: u64,
}

impl<F: StorageFile> List<F> {
    /// All bytes of disk but the index's: [`limited_bytes`](Self::limited_bytes) and those of
    /// removed files that readers still have open.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let removed = self
            .recycling
            .removed
            .iter()
            .filter(|(open, _)| open.strong_count() > 0)
            .map(|(_, bytes)| *bytes);
        self.limited_bytes() + removed.sum::<u64>()
    }

    /// Bytes of disk of the files in the directory without the index: `max_bytes` limits these.
    /// Removed files that a reader has open do not count: a reader that pauses within a segment
    /// must not make the queue evict more than that segment.
    pub(crate) fn limited_bytes(&self) -> u64 {
        self.live.iter().chain(self.recycling.rows()).map(taken).sum::<u64>()
            + self.names.other_bytes
    }

    /// Whether there are segments whose space may soon be free.
    pub(crate) fn has_drained(&self) -> bool {
        !self.recycling.drained.is_empty() || !self.recycling.in_transit.is_empty()
    }

    /// Whether a drained segment was stored to since it was last synced.
    pub(crate) fn has_drained_unsynced(&self) -> bool {
        self.recycling.drained.iter().any(|drained| drained.row.unsynced_store != 0)
    }

    /// How the index's rows of segments are to be taken.
    pub(super) fn rows_are(&self) -> RowsAre {
        if self.names.rows_complete && self.recycling.in_transit.is_empty() {
            RowsAre::Right
        } else {
            RowsAre::Changing
        }
    }

    /// Bytes by which the index file may grow: those that `min_free_bytes` and `max_bytes` leave
    /// when there is room for three segments.
    pub(crate) fn index_room<S: Storage<File = F>>(&self, context: &Context<'_, S>) -> u64 {
        let free = match context.limits.min_free_bytes {
            0 => u64::MAX,
            // If the free space cannot be found out, there is none.
            least => context.storage.free_bytes().unwrap_or(0).saturating_sub(least),
        };
        let Some(limit) = context.limits.max_bytes else {
            return free;
        };
        let index = context.index.len();
        let length = context.pool.geometry().most_len;
        let least = 3 * (length + overhead(length)) + self.names.other_bytes;
        limit.saturating_sub(index + self.limited_bytes().max(least)).min(free)
    }

    /// Whether more than [`MANY_OPEN`] segments are open.
    pub(crate) fn has_many_open(&self) -> bool {
        self.open.len() > MANY_OPEN
            && self.open.iter().filter(|(_, open)| open.strong_count() > 0).count() > MANY_OPEN
    }

    /// The length of the tail's segment: while the backlog stays about the same, also that of the
    /// next one.
    pub(super) fn tail_len(&self, geometry: &Geometry) -> u64 {
        self.live.back().map_or(geometry.least_len, |row| row.header.length)
    }

    /// Whether the tail's segment is longer than that of a queue that is nearly empty.
    pub(crate) fn has_long_tail(&self, geometry: &Geometry) -> bool {
        self.tail_len(geometry) > geometry.least_len
    }

    /// The length of the next segment.
    pub(super) fn next_len(&self, geometry: &Geometry, plan: &Plan) -> u64 {
        geometry.next_len(self.tail_len(geometry), plan.backlog, plan.need)
    }

    pub(crate) fn spares(&self) -> usize {
        self.recycling.spares.len()
    }

    /// How many spares of that length there are.
    pub(crate) fn spares_of(&self, length: u64) -> usize {
        self.recycling.spares.iter().filter(|spare| spare.row.header.length == length).count()
    }

    /// How many spares of that length are kept while the queue is busy.
    pub(super) fn spares_wanted<S: Storage>(&self, context: &Context<'_, S>, length: u64) -> usize {
        spares_wanted(length, context.limits.pace()).max(self.headroom as usize)
    }

    /// Checks that each segment file in the directory is counted once, and that each slot taken has
    /// a file.
    #[cfg(test)]
    pub(crate) fn check_accounts(&self, names: &[String]) -> Result<(), String> {
        let kept = self.live.iter().chain(self.recycling.rows());
        let mut counted: Vec<u32> = kept.map(|row| row.slot).collect();
        counted.sort_unstable();
        let mut there: Vec<u32> =
            names.iter().filter_map(|name| format::segment_slot(name)).collect();
        there.sort_unstable();
        if counted != there {
            return Err(format!("counted are the segments {counted:?}, and there are {there:?}"));
        }
        let taken =
            (0..self.names.slots.0.len() as u32).filter(|slot| self.names.slots.0[*slot as usize]);
        // A quarantined file keeps its slot: a power cut may bring its name back.
        let mut leaked = taken.filter(|slot| {
            !names.iter().any(|name| name.starts_with(&format::segment_name(*slot)))
        });
        match leaked.next() {
            Some(leaked) => {
                Err(format!("the name of segment {leaked} is taken, and it is not there"))
            }
            None => Ok(()),
        }
    }

    /// The live segment that holds `position`, or the first one behind it.
    pub(crate) fn at(&self, position: u64) -> Option<Row> {
        let index = self.live.partition_point(|row| row.header.end() <= position);
        self.live.get(index).copied()
    }
}
