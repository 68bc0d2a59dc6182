//! The open files of live segments: shared by those who read, held by the flush until they are
//! synced.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::files::{Segment, open_life, read_header, set_aside, taken};
use super::list::List;
use super::{Lost, Row};
use crate::format::{self, Fragment, Kind, SEGMENT_HEADER_LEN};
use crate::index::Index;
use crate::storage::{Storage, StorageFile};

/// Segments that are full and not synced keep their descriptors: at most so many ...
const MOST_UNSYNCED: usize = 64;
/// ... and where that would be more bytes than these, fewer ...
const MOST_BYTES_UNSYNCED: u64 = 256 << 20;
/// ... but not fewer than that.
const LEAST_UNSYNCED: usize = 8;

/// How many full segments of that length may wait for their sync.
pub(crate) fn most_unsynced(length: u64) -> usize {
    #[cfg(test)]
    if let Some(most) = MOST_UNSYNCED_HERE.get() {
        return most;
    }
    usize::try_from(MOST_BYTES_UNSYNCED / length)
        .unwrap_or(MOST_UNSYNCED)
        .clamp(LEAST_UNSYNCED, MOST_UNSYNCED)
}

#[cfg(test)]
thread_local! {
    /// How many full segments may wait for their sync where this thread stores.
    pub(crate) static MOST_UNSYNCED_HERE: std::cell::Cell<Option<usize>> =
        const { std::cell::Cell::new(None) };
}

/// A segment that a flush is to sync.
#[derive(Debug)]
pub(crate) struct Unsynced<F> {
    pub(crate) row: Row,
    /// Nothing is stored to it any more.
    pub(crate) is_full: bool,
    pub(crate) opened: Result<Arc<Segment<F>>, Lost>,
}

impl<F: StorageFile> List<F> {
    /// Where the first message begins that is held as a whole: the first segment may begin with the
    /// end of one whose beginning is gone. With its number; `None` when there is no segment.
    pub(crate) fn first_whole<S: Storage<File = F>>(&mut self, storage: &S) -> Option<(u64, u64)> {
        let first = self.live.front()?.header;
        for at in 0..self.live.len() {
            let row = self.live[at];
            let base = (row.header.base, row.header.first_seq);
            let Ok(segment) = self.open(storage, &row) else {
                return Some(base);
            };
            let mut bytes = [0; format::FRAGMENT_HEADER_LEN as usize];
            let read = crate::storage::read_full(&segment.file, &mut bytes, SEGMENT_HEADER_LEN);
            let fragment = read.ok().and_then(|_| crate::segment::scan::words(&bytes));
            let fragment = fragment.and_then(|words| Fragment::decode(words, segment.seed, 0));
            match fragment.map(|(fragment, _)| fragment) {
                Some(fragment) if fragment.kind == Kind::Middle && fragment.is_numbered(base.1) => {
                }
                Some(fragment) if fragment.kind == Kind::Last && fragment.is_numbered(base.1) => {
                    return Some((base.0 + fragment.total_len(), base.1 + 1));
                }
                _ => return Some(base),
            }
        }
        Some((first.base, first.first_seq))
    }

    /// The segment of that life, if somebody has it open.
    pub(super) fn opened(&self, life: u64) -> Option<Arc<Segment<F>>> {
        self.open.iter().find(|(other, _)| *other == life).and_then(|(_, open)| open.upgrade())
    }

    /// Opens the live segment `row`; its file must still be what the row says.
    pub(crate) fn open<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        row: &Row,
    ) -> Result<Arc<Segment<F>>, Lost> {
        let life = row.header.life;
        if let Some(open) = self.opened(life) {
            return Ok(open);
        }
        let (file, allocated) = open_life(storage, row.slot, &row.header)?;
        let segment = Arc::new(Segment {
            slot: row.slot,
            header: row.header,
            seed: row.header.seed(),
            file,
            allocated: AtomicU64::new(allocated),
            fresh_from: allocated,
            filled: AtomicU64::new(allocated),
        });
        self.open.retain(|(_, open)| open.strong_count() > 0);
        self.open.push((life, Arc::downgrade(&segment)));
        Ok(segment)
    }

    /// A writer is about to store to that live segment.
    pub(crate) fn note_store(&mut self, segment: &Arc<Segment<F>>) {
        let life = segment.header.life;
        let Some(row) = self.live.iter_mut().rev().find(|row| row.header.life == life) else {
            return;
        };
        self.stores += 1;
        row.unsynced = self.stores;
        if !self.unsynced.iter().any(|open| open.header.life == life) {
            self.unsynced.push(Arc::clone(segment));
        }
    }

    /// The base of a live segment: no other that is not synced begins before it, or ends behind
    /// `position`.
    pub(crate) fn first_unsynced(&self, position: u64) -> u64 {
        let first = self.unsynced.iter().map(|open| open.header.base).min().unwrap_or(u64::MAX);
        self.at(position).map_or(first, |row| row.header.base.min(first))
    }

    /// How many segments will be full and not synced when the next one begins.
    pub(crate) fn count_unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// The first live segment at or behind `from`, and before `to`, that was stored to and not
    /// synced. It is opened while it is known to be live, and is not used again before its
    /// descriptor is let go.
    pub(crate) fn next_unsynced<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        from: u64,
        to: u64,
    ) -> Option<Unsynced<F>> {
        let first = self.live.partition_point(|row| row.header.base < from);
        let at = (first..self.live.len()).find(|at| self.live[*at].unsynced != 0)?;
        let row = self.live[at];
        (row.header.base < to).then(|| Unsynced {
            row,
            is_full: at + 1 < self.live.len(),
            opened: self.open(storage, &row),
        })
    }

    /// The segment, which is full, was synced as it was when [`next_unsynced`](Self::next_unsynced)
    /// gave it.
    pub(crate) fn note_synced(&mut self, synced: &Row) {
        let life = synced.header.life;
        let at = self.live.partition_point(|row| row.header.base < synced.header.base);
        if let Some(row) = self.live.get_mut(at)
            && row.header.life == life
            && row.unsynced == synced.unsynced
        {
            row.unsynced = 0;
            self.unsynced.retain(|open| open.header.life != life);
        }
    }

    /// As [`open`](Self::open), and looks for the segment under the other names when it is not
    /// under its own.
    pub(crate) fn open_anywhere<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        index: &Index<S>,
        row: &Row,
    ) -> Result<Arc<Segment<F>>, Lost> {
        match self.open(storage, row) {
            Err(Lost::Gone) if self.look_for(storage, index, row.header.life) => {
                let found =
                    self.live.iter().find(|other| other.header.life == row.header.life).copied();
                self.open(storage, &found.ok_or(Lost::Gone)?)
            }
            opened => opened,
        }
    }

    /// A live segment's file is gone or is something else. Looks for it under the other names
    /// (files may have been swapped); if it is nowhere, its messages are lost: what stands in its
    /// place is set aside, never removed. True when the segment was found again.
    pub(crate) fn look_for<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        index: &Index<S>,
        life: u64,
    ) -> bool {
        let mut homes = Vec::new();
        for listed in storage.list().unwrap_or_default() {
            if let Some(slot) = format::segment_slot(&listed.name)
                && let Ok(header) = read_header(storage, slot)
            {
                homes.push((slot, header.queue_id, header.life));
            }
        }
        index.set_changing(true);
        let mut found = false;
        for row in &mut self.live {
            // Another queue's segments count their lives from the same number.
            let is_home = |(_, queue, other): &&(u32, [u8; 16], u64)| {
                *queue == row.header.queue_id && *other == row.header.life
            };
            if let Some((slot, ..)) = homes.iter().find(is_home) {
                row.slot = *slot;
                found |= row.header.life == life;
            }
        }
        if !found && let Some(at) = self.live.iter().position(|row| row.header.life == life) {
            let row = self.live.remove(at);
            self.unsynced.retain(|open| open.header.life != life);
            if let Some(row) = row
                && !self.live.iter().any(|other| other.slot == row.slot)
            {
                set_aside(storage, &format::segment_name(row.slot));
                self.names.other_bytes += taken(&row);
                self.names.changes += 1;
            }
        }
        // The rows of the index are left as they are and marked as not to be believed: the next
        // opening reads headers.
        self.names.rows_complete = false;
        found
    }
}
