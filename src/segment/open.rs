//! The open files of live segments. Readers share them; the list keeps each one open until a flush
//! has synced it.

use std::ops::Range;
use std::sync::Arc;

use super::Segments;
use super::context::Context;
use super::files::{Segment, open_life, quarantine, read_header, taken};
use super::list::List;
use super::row::{Lost, Row};
use crate::format;
use crate::index::Index;
use crate::index::RowsAre;
use crate::storage::{Storage, StorageFile, Stores};

/// The most full segments that may wait for their sync. (Each keeps its descriptor.)
const MOST_UNSYNCED: usize = 128;
/// The most bytes of such segments, if that allows [`LEAST_UNSYNCED`] of them: enough for a burst
/// that is over before the disk has written much of it.
const MOST_BYTES_UNSYNCED: u64 = 1 << 30;
/// At least this many full segments may wait for their sync, whatever their length.
const LEAST_UNSYNCED: usize = 8;

/// Returns how many full segments of that length may wait for their sync.
pub(crate) fn most_unsynced(length: u64) -> usize {
    #[cfg(test)]
    if let Some(most) = MOST_UNSYNCED_HERE.get() {
        return most;
    }
    usize::try_from(MOST_BYTES_UNSYNCED / length.max(1))
        .unwrap_or(MOST_UNSYNCED)
        .clamp(LEAST_UNSYNCED, MOST_UNSYNCED)
}

#[cfg(test)]
thread_local! {
    /// What [`most_unsynced`] answers on this thread.
    pub(crate) static MOST_UNSYNCED_HERE: std::cell::Cell<Option<usize>> =
        const { std::cell::Cell::new(None) };
}

/// A segment that a flush is to sync.
#[derive(Debug)]
pub(crate) struct Unsynced<F> {
    pub(crate) row: Row,
    /// It is not the tail's segment: no writer stores to it any more.
    pub(crate) is_full: bool,
    pub(crate) opened: Result<Arc<Segment<F>>, Lost>,
}

impl<S: Storage> Segments<S> {
    /// Makes the next flush sync the segments between two positions: the previous process may have
    /// stored to them without a sync. Opens them now, because the kernel reports an earlier failed
    /// write-back to a new descriptor only if it has reported it to no other, and only while it
    /// caches the file's inode.
    pub(crate) fn note_found_unsynced(&self, storage: &S, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let mut list = self.list();
        let first = list.live.partition_point(|row| row.header.end() <= from);
        for at in first..list.live.len() {
            if list.live[at].header.base >= to {
                break;
            }
            list.last_store += 1;
            list.live[at].unsynced_store = list.last_store;
            let row = list.live[at];
            if list.kept_open.len() < most_unsynced(row.header.length)
                && let Ok(segment) = list.open(storage, &row)
            {
                list.kept_open.push(segment);
            }
        }
        check!(list.check());
    }

    /// Closes the files that the list keeps open, when the queue closes.
    pub(crate) fn close_files(&self) {
        let mut list = self.list();
        list.kept_open.clear();
        list.handed_on.clear();
    }
}

impl<F: StorageFile> List<F> {
    /// Returns the sequence number of the first complete message in the queue, or `None` when there
    /// is no segment. (Before it there may be the rest of a message whose beginning was evicted;
    /// readers skip it.)
    pub(crate) fn first_seq(&self) -> Option<u64> {
        self.live.front().map(|row| row.header.first_seq)
    }

    /// Returns the segment with that life, if any thread has it open.
    pub(super) fn opened(&self, life: u64) -> Option<Arc<Segment<F>>> {
        self.open.iter().find(|(other, _)| *other == life).and_then(|(_, open)| open.upgrade())
    }

    /// Opens the live segment `row`; fails if the file is not the one in the row.
    pub(crate) fn open<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        row: &Row,
    ) -> Result<Arc<Segment<F>>, Lost> {
        let life = row.header.life;
        if let Some(open) = self.opened(life) {
            return Ok(open);
        }
        let segment = open_life(storage, row.slot, &row.header)?.segment_of(row);
        holds!(self.is_live(life), "the segment of life {life}, which is opened, is live");
        check!(let (allocated, length) = (segment.allocated(), segment.header.length));
        holds!(allocated <= length, "of the file {allocated} bytes are used, of {length} at most");
        self.open.retain(|(_, open)| open.strong_count() > 0);
        self.open.push((life, Arc::downgrade(&segment)));
        Ok(segment)
    }

    /// Notes that a writer is about to store to that live segment, and keeps the file open until
    /// its next sync.
    pub(crate) fn note_store(&mut self, segment: &Arc<Segment<F>>) {
        let life = segment.header.life;
        let Some(row) = self.live.iter_mut().rev().find(|row| row.header.life == life) else {
            return;
        };
        self.last_store += 1;
        row.unsynced_store = self.last_store;
        if !self.kept_open.iter().any(|open| open.header.life == life)
            && !planted!(DescriptorNotKept)
        {
            self.kept_open.push(Arc::clone(segment));
        }
        check!(self.check());
    }

    /// Returns the base of the first segment that a flush from `position` on must consider: the
    /// first one that is kept open, or the one that holds `position`.
    pub(crate) fn first_unsynced(&self, position: u64) -> u64 {
        let first = self.kept_open.iter().map(|open| open.header.base).min().unwrap_or(u64::MAX);
        self.at(position).map_or(first, |row| row.header.base.min(first))
    }

    /// Returns how many segments will be full and not synced when the next one begins.
    pub(crate) fn count_unsynced(&self) -> usize {
        self.kept_open.len()
    }

    /// Returns how many full segments may wait for their sync, by the mean length of those that
    /// wait.
    pub(crate) fn most_unsynced(&self) -> usize {
        most_unsynced(self.unsynced_bytes() / self.kept_open.len().max(1) as u64)
    }

    /// Returns how long the segments that wait for their sync are together.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.kept_open.iter().map(|open| open.header.length).sum()
    }

    /// Returns the first live segment with a base in `from .. to` that a writer stored to since its
    /// last sync. Opens it under the list's lock, while it is live; an open segment is never
    /// reused, so the descriptor stays valid.
    pub(crate) fn next_unsynced<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        from: u64,
        to: u64,
    ) -> Option<Unsynced<F>> {
        let first = self.live.partition_point(|row| row.header.base < from);
        let at = (first..self.live.len()).find(|at| self.live[*at].unsynced_store != 0)?;
        let row = self.live[at];
        (row.header.base < to).then(|| Unsynced {
            row,
            is_full: at + 1 < self.live.len(),
            opened: self.open(storage, &row),
        })
    }

    /// Notes that a flush synced a full segment that [`next_unsynced`](Self::next_unsynced)
    /// returned. If a writer stored to it in between, it stays unsynced.
    pub(crate) fn note_synced(&mut self, synced: &Row) {
        let life = synced.header.life;
        let at = self.live.partition_point(|row| row.header.base < synced.header.base);
        if let Some(row) = self.live.get_mut(at)
            && row.header.life == life
            && (row.unsynced_store == synced.unsynced_store || planted!(StoreDuringSyncForgotten))
        {
            row.unsynced_store = 0;
            self.kept_open.retain(|open| open.header.life != life);
        }
        check!(self.check());
    }

    /// Opens the live segment `row`, and searches the directory for its file if it is not under its
    /// own name (see [`open`](Self::open)).
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

    /// Searches all segment files for that of a live segment, since a user may have swapped files;
    /// called when its own name has no file or the wrong one. Returns whether it found the file.
    /// Otherwise the messages are lost: the segment leaves the list, and the file under its name is
    /// quarantined, never removed.
    pub(crate) fn look_for<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        index: &Index<S>,
        life: u64,
    ) -> bool {
        let mut files = Vec::new();
        for listed in storage.list().unwrap_or_default() {
            if let Some(slot) = format::segment_slot(&listed.name)
                && let Ok(header) = read_header(storage, slot)
            {
                files.push((slot, header.queue_id, header.life));
            }
        }
        index.set_rows_are(RowsAre::Changing);
        let mut found = false;
        for row in &mut self.live {
            // The queue's id too: another queue's segments may have the same lives.
            let is_its_file = |(_, queue, other): &&(u32, [u8; 16], u64)| {
                *queue == row.header.queue_id && *other == row.header.life
            };
            if let Some((slot, ..)) = files.iter().find(is_its_file) {
                row.slot = *slot;
                found |= row.header.life == life;
            }
        }
        if !found && let Some(at) = self.live.iter().position(|row| row.header.life == life) {
            let row = self.live.remove(at);
            self.kept_open.retain(|open| open.header.life != life);
            self.handed_on.retain(|open| open.header.life != life);
            if let Some(row) = row
                && !self.live.iter().any(|other| other.slot == row.slot)
            {
                let _ = quarantine(storage, &format::segment_name(row.slot));
                self.names.other_bytes += taken(&row);
                self.names.directory_changes += 1;
            }
        }
        // The index keeps its segment rows, marked as possibly wrong: the next opening reads the
        // headers instead.
        self.names.rows_complete = false;
        check!(self.names.are_doubtful = true);
        check!(self.check());
        holds!(
            found == self.live.iter().any(|row| row.header.life == life),
            "the segment of life {life} is live if its file was found, and it was not or was"
        );
        found
    }
}

/// From so many bytes on, the queue maps pages anew before the sync that writes them.
const MAPPED_CLEAN_FROM: u64 = 256 << 10;

impl<S: Storage> Context<'_, S> {
    /// Maps the pages of a segment that lie wholly between two positions anew, if they are many:
    /// called before a sync. The sync protects each page that it finds mapped and stored to, and
    /// for each the kernel interrupts the processors on which the process runs. (A consumer that
    /// read 1 KiB messages meanwhile took 345 ns for each, and takes 150.) The caller has the
    /// segment open.
    pub(crate) fn map_clean(&self, segment: &Segment<S::File>, stretch: Range<u64>) {
        let header = &segment.header;
        let offset = |position: u64| segment.offset(position.clamp(header.base, header.end()));
        let page = crate::memory::page_size();
        let from = offset(stretch.start).next_multiple_of(page);
        let to = offset(stretch.end) / page * page;
        if segment.file.stores() != Stores::ByCall && from + MAPPED_CLEAN_FROM <= to {
            self.pool.map_clean(header.life, from..to);
        }
    }
}
