//! The list of a queue's segments: which are live, which are drained, which wait to be used again.
//! All under one lock.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::files::{Segment, overhead, taken};
use super::names::Names;
use super::recycle::Recycling;
use super::{Context, Row};
#[cfg(test)]
use crate::format;
use crate::storage::{Storage, StorageFile};

/// With more segments open than this, consumers that have one open are asked to let go.
const MANY_OPEN: usize = 32;

#[derive(Debug)]
pub(crate) struct List<F> {
    pub(crate) live: VecDeque<Row>,
    pub(super) open: Vec<(u64, Weak<Segment<F>>)>,
    /// Live segments that were stored to and not synced since: a flush syncs each through the
    /// descriptor that was open all that time. The system tells a failed write-back once to each
    /// open descriptor; one that is opened afterwards may never be told.
    pub(super) unsynced: Vec<Arc<Segment<F>>>,
    /// Counts how often a writer began to store to a segment.
    pub(super) stores: u64,
    pub(super) recycling: Recycling<F>,
    pub(super) names: Names,
    /// The number behind the last one of the only segment, when that was let go of: with no live
    /// segment nothing before it is held.
    pub(super) drained_up_to: u64,
    /// The life of the tail's segment, and when its messages were first looked at, where its header
    /// does not tell their age.
    pub(super) seen: Option<(u64, u64)>,
}

impl<F: StorageFile> List<F> {
    /// All bytes of disk, those included of files that are removed and still read.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let removed = self
            .recycling
            .removed
            .iter()
            .filter(|(open, _)| open.strong_count() > 0)
            .map(|(_, bytes)| *bytes);
        self.limited_bytes() + removed.sum::<u64>()
    }

    /// Bytes of disk of the files in the directory, the index left out: what `max_bytes` is about.
    /// A reader that pauses within a segment must not make the queue give up more than that
    /// segment.
    pub(crate) fn limited_bytes(&self) -> u64 {
        self.live.iter().chain(self.recycling.rows()).map(taken).sum::<u64>()
            + self.names.other_bytes
    }

    /// There are segments whose space may soon be free.
    pub(crate) fn has_drained(&self) -> bool {
        !self.recycling.drained.is_empty() || !self.recycling.in_transit.is_empty()
    }

    /// The rows of the index do not say what is there.
    pub(super) fn is_changing(&self) -> bool {
        !self.names.rows_complete || !self.recycling.in_transit.is_empty()
    }

    /// Bytes by which the index file may grow: what `min_free_bytes` and `max_bytes` leave, with
    /// three segments kept possible.
    pub(crate) fn index_room<S: Storage<File = F>>(&self, context: &Context<'_, S>) -> u64 {
        let free = match context.limits.min_free_bytes {
            0 => u64::MAX,
            // Where it cannot be known there is none.
            least => context.storage.free_bytes().unwrap_or(0).saturating_sub(least),
        };
        let Some(limit) = context.limits.max_bytes else {
            return free;
        };
        let index = context.index.len();
        let length = context.pool.geometry().segment_len;
        let least = 3 * (length + overhead(length)) + self.names.other_bytes;
        limit.saturating_sub(index + self.limited_bytes().max(least)).min(free)
    }

    /// Whether more segments are open than a queue with many consumers may have.
    pub(crate) fn has_many_open(&self) -> bool {
        self.open.len() > MANY_OPEN
            && self.open.iter().filter(|(_, open)| open.strong_count() > 0).count() > MANY_OPEN
    }

    pub(crate) fn spares(&self) -> usize {
        self.recycling.spares.len()
    }

    /// Each of the directory's segment files is counted once, and no name is taken for nothing.
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
        // What was set aside keeps the name that it had, should a power cut bring it back.
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
