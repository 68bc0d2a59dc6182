//! Segments whose messages no consumer needs, and the steps by which one becomes a spare or is
//! removed.

use std::io;
use std::sync::{Arc, Weak};

use super::context::Context;
use super::files::{Segment, disk_bytes, open_life};
use super::row::Row;
use crate::format::{self, SegmentHeader, SegmentState};
use crate::storage::{Storage, StorageFile};

/// A segment that no consumer needs any more. Only `reclaim` makes it free for reuse.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(super) row: Row,
}

/// A segment file that waits for reuse.
#[derive(Debug)]
pub(super) struct Spare<F> {
    pub(super) row: Row,
    /// Its open file, if the segment became a spare in this run.
    pub(super) file: Option<F>,
    /// Whether it was made ahead and never used.
    pub(super) is_fresh: bool,
}

/// A drained segment that is about to become a spare or be removed. Its row is `in_transit`
/// meanwhile, so its bytes count. Three steps: the list begins it, the reclaiming thread carries it
/// out without the list's lock, the list finishes it.
#[derive(Debug)]
pub(super) struct Transfer<F> {
    pub(super) row: Row,
    /// The file, if it is open and no other thread shares it.
    pub(super) file: Option<F>,
    /// The segment, as long as a reader has it open.
    pub(super) open: Weak<Segment<F>>,
    /// Whether it becomes a spare; otherwise its file is removed.
    pub(super) becomes_spare: bool,
    /// Whether it was a spare before: then the transfer frees no space.
    pub(super) was_spare: bool,
    /// Whether its file was removed.
    pub(super) is_removed: bool,
}

impl<F: StorageFile> Transfer<F> {
    /// Returns the removal of a segment. Its bytes stay on the disk while a reader holds `open`.
    pub(super) fn removal(row: Row, open: Weak<Segment<F>>) -> Transfer<F> {
        Transfer {
            row,
            file: None,
            open,
            becomes_spare: false,
            was_spare: false,
            is_removed: false,
        }
    }

    /// Marks the file as a spare, or removes it. The caller does not hold the list's lock.
    pub(super) fn carry_out<S: Storage<File = F>>(&mut self, context: &Context<'_, S>) {
        if self.becomes_spare {
            let file = self.file.take();
            let file = file.or_else(|| {
                open_life(context.storage, self.row.slot, &self.row.header)
                    .ok()
                    .map(|opened| opened.file)
            });
            let mut header =
                SegmentHeader { state: SegmentState::Spare, ..self.row.header.in_file() };
            if planted!(SpareLeftLive) {
                (header.state, header.retained_from) = (SegmentState::Live, 0);
            }
            // A spare without the mark would count as live if the index were lost, so it is removed
            // instead.
            self.file = file.filter(|file| file.write_at(&header.encode(), 0).is_ok());
            self.becomes_spare = self.file.is_some();
            if let Some(file) = &self.file {
                // Measure here, so that the producer that takes the spare need not.
                let header = &mut self.row.header;
                let measured = disk_bytes(file, header.disk, header.allocated);
                // Until a cut is synced a power cut may undo it.
                let is_sure = !self.row.is_cut;
                header.disk = if is_sure { measured } else { measured.max(header.disk) };
            }
        }
        if !self.becomes_spare {
            context.pool.unmap_segment(self.row.header.life);
            let removed = context.storage.remove(&format::segment_name(self.row.slot));
            self.is_removed = match removed {
                Ok(()) => true,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
        }
    }
}

/// Segments whose messages no consumer needs: drained, spare, and in between.
#[derive(Debug)]
pub(crate) struct Recycling<F> {
    /// Files of drained segments, kept open until these are reclaimed.
    pub(super) drained_files: Vec<Arc<Segment<F>>>,
    pub(super) drained: Vec<Drained>,
    pub(super) spares: Vec<Spare<F>>,
    /// Segments of unfinished [`Transfer`]s, and a spare that is being made.
    pub(super) in_transit: Vec<Row>,
    /// Removed segments that a reader may still have open, and their bytes, which are free once the
    /// reader closes them.
    pub(super) removed: Vec<(Weak<Segment<F>>, u64)>,
    /// How many transfers freed space, plus how many spares were made.
    pub(super) given_back: u64,
    /// The first sequence number that may still be in the queue: the disk says that all below were
    /// evicted or consumed. Each new header repeats it, for an opening that finds no index.
    pub(super) retained_from: u64,
}

impl<F> Recycling<F> {
    /// Files that are kept open are those of drained segments.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check(&self) {
        let is_drained = |life| self.drained.iter().any(|drained| drained.row.header.life == life);
        for life in self.drained_files.iter().map(|open| open.header.life) {
            holds!(is_drained(life), "the file of life {life}, which is kept open, is drained");
        }
        for Spare { row, is_fresh, .. } in &self.spares {
            let store = row.unsynced_store;
            holds!(
                store == 0 || !is_fresh,
                "a spare that was never used has no store, nor {store}"
            );
        }
    }

    pub(super) fn new(drained: Vec<Row>, spares: Vec<Row>, retained_from: u64) -> Recycling<F> {
        Recycling {
            drained_files: Vec::new(),
            drained: drained.into_iter().map(|row| Drained { row }).collect(),
            spares: spares
                .into_iter()
                .map(|row| Spare { row, file: None, is_fresh: false })
                .collect(),
            in_transit: Vec::new(),
            removed: Vec::new(),
            given_back: 0,
            retained_from,
        }
    }

    /// Returns every segment file in the directory that is not live.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        let drained = self.drained.iter().map(|drained| &drained.row);
        let in_transit = self.in_transit.iter();
        drained.chain(self.spares.iter().map(|spare| &spare.row)).chain(in_transit)
    }
}
