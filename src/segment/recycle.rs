//! From drained to free: a segment that nobody needs becomes a spare or leaves the directory.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use super::files::{Segment, disk_bytes, open_life, set_aside, taken};
use super::list::List;
use super::{Context, Row, spares_wanted};
use crate::format::{self, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState};
use crate::storage::{Storage, StorageFile};

/// A segment no consumer needs any more, not yet free to be used again.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(super) row: Row,
}

/// A segment file that waits to be used again.
#[derive(Debug)]
pub(super) struct Spare<F> {
    pub(super) row: Row,
    /// Open when it was drained or made in this run.
    pub(super) file: Option<F>,
    /// It was made ahead and never used.
    pub(super) is_fresh: bool,
}

/// A segment that was drained, or a spare that is one too many, on its way to the spares or out of
/// the directory. Its bytes count meanwhile.
#[derive(Debug)]
pub(super) struct Handing<F> {
    pub(super) row: Row,
    /// The file when it is open and nobody else has it.
    pub(super) file: Option<F>,
    /// Somebody still reads from it.
    pub(super) open: Weak<Segment<F>>,
    pub(super) keep: bool,
    pub(super) removed: bool,
}

impl<F: StorageFile> Handing<F> {
    /// Out of the directory; its bytes live on while `open` does.
    pub(super) fn out(row: Row, open: Weak<Segment<F>>) -> Handing<F> {
        Handing { row, file: None, open, keep: false, removed: false }
    }

    /// Marks the file as a spare, or removes it.
    pub(super) fn work<S: Storage<File = F>>(&mut self, context: &Context<'_, S>) {
        if self.keep {
            let file = self.file.take();
            let file = file.or_else(|| {
                open_life(context.storage, self.row.slot, &self.row.header)
                    .ok()
                    .map(|(file, _)| file)
            });
            let mut header =
                SegmentHeader { state: SegmentState::Spare, ..self.row.header.in_file() };
            if planted!(SpareLeftLive) {
                (header.state, header.held) = (SegmentState::Live, 0);
            }
            // A spare whose header could not be marked would rise again if the index were lost:
            // remove it.
            self.file = file.filter(|file| file.write_at(&header.encode(), 0).is_ok());
            self.keep = self.file.is_some();
            if let Some(file) = &self.file {
                // Who begins a segment with it need not ask.
                self.row.header.disk = disk_bytes(file, self.row.header.allocated);
            }
        }
        if !self.keep {
            context.pool.unmap_segment(self.row.header.life);
            let removed = context.storage.remove(&format::segment_name(self.row.slot));
            self.removed = match removed {
                Ok(()) => true,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
        }
    }
}

/// Segments that hold nothing any more.
#[derive(Debug)]
pub(crate) struct Recycling<F> {
    /// Keeps the files of drained segments open until it is decided what becomes of them.
    pub(super) drained_files: Vec<Arc<Segment<F>>>,
    pub(super) drained: Vec<Drained>,
    pub(super) spares: Vec<Spare<F>>,
    /// Being handed on just now.
    pub(super) in_transit: Vec<Row>,
    /// Removed from the directory but still referred to: their bytes are not free yet.
    pub(super) removed: Vec<(Weak<Segment<F>>, u64)>,
    /// Counts what was handed on and found its place.
    pub(super) given_back: u64,
    /// Everything below this number was given back, and the disk knows. Each header that is written
    /// says so, for an opening that finds no index.
    pub(super) held: u64,
}

impl<F> Recycling<F> {
    pub(super) fn new(drained: Vec<Row>, spares: Vec<Row>, held: u64) -> Recycling<F> {
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
            held,
        }
    }

    /// Every file that is in the directory.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        let drained = self.drained.iter().map(|drained| &drained.row);
        drained.chain(self.spares.iter().map(|spare| &spare.row)).chain(&self.in_transit)
    }
}

impl<F: StorageFile> List<F> {
    pub(super) fn drain_front(&mut self) {
        if let Some(row) = self.live.pop_front() {
            self.drain(row);
        }
    }

    pub(super) fn drain(&mut self, row: Row) {
        let life = row.header.life;
        let stored_to = self
            .unsynced
            .iter()
            .position(|open| open.header.life == life)
            .map(|at| self.unsynced.swap_remove(at));
        if let Some(open) = stored_to.or_else(|| self.opened(life)) {
            self.recycling.drained_files.push(open);
        }
        self.recycling.drained.push(Drained { row });
    }

    /// A drained segment becomes a spare, or is removed: when there are enough spares (`kept` are
    /// on their way), when its length is not today's, or when somebody still reads from it.
    pub(super) fn take_drained<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        drained: Drained,
        kept: usize,
    ) -> Handing<F> {
        let mut row = drained.row;
        row.header.held = self.recycling.held;
        let life = row.header.life;
        self.recycling.in_transit.push(row);
        let held = self
            .recycling
            .drained_files
            .iter()
            .position(|open| open.header.life == life)
            .map(|at| self.recycling.drained_files.swap_remove(at));
        let keep = self.recycling.spares.len() + kept
            < spares_wanted(row.header.length, context.limits.pace())
            && row.header.length == context.pool.geometry().segment_len;
        // Two looks, in this order: whoever has the segment open may still take a window of it and
        // lend from that, so the windows are looked at once nobody else has it open. Nobody opens
        // it anew: only live segments are opened, under the list's lock, which is held.
        let alone = held.or_else(|| self.opened(life)).map(Arc::try_unwrap);
        reached!("between the looks at a drained segment");
        match alone {
            Some(Err(core)) => Handing::out(row, Arc::downgrade(&core)),
            _ if !keep || !context.pool.is_idle(life) => Handing::out(row, Weak::new()),
            Some(Ok(segment)) => {
                Handing { file: Some(segment.file), keep, ..Handing::out(row, Weak::new()) }
            }
            None => Handing { keep, ..Handing::out(row, Weak::new()) },
        }
    }

    /// All that is drained leaves the directory: a spare is to say how far that goes.
    pub(super) fn take_spare_to_mark(&mut self) -> Option<Handing<F>> {
        let at = self
            .recycling
            .spares
            .iter()
            .rposition(|spare| spare.file.is_some() && !spare.is_fresh)?;
        let Spare { mut row, file, .. } = self.recycling.spares.remove(at);
        row.header.held = self.recycling.held;
        self.recycling.in_transit.push(row);
        Some(Handing { file, keep: true, ..Handing::out(row, Weak::new()) })
    }

    /// What was handed on has arrived.
    pub(super) fn put_down<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        handing: Handing<F>,
    ) {
        let mut row = handing.row;
        let life = row.header.life;
        self.recycling.in_transit.retain(|other| other.header.life != life);
        self.recycling.given_back += u64::from(handing.keep || handing.removed);
        if handing.keep {
            row.header.state = SegmentState::Spare;
            self.write_row(context, &row);
            self.recycling.spares.push(Spare { row, file: handing.file, is_fresh: false });
        } else if handing.removed {
            self.names.changes += 1;
            self.names.slots.remove(&row.slot);
            self.recycling.removed.retain(|(open, _)| open.strong_count() > 0);
            self.recycling.removed.push((handing.open, taken(&row)));
            context.index.write_segment_row(row.slot, None, 0);
        } else {
            // Still counted, tried again the next time.
            self.recycling.drained.push(Drained { row });
        }
    }

    /// Removes a spare for the space it holds; false when there is none.
    pub(super) fn discard_spare<S: Storage<File = F>>(&mut self, context: &Context<'_, S>) -> bool {
        let Some(spare) = self.recycling.spares.pop() else {
            return false;
        };
        context.pool.unmap_segment(spare.row.header.life);
        let removed = context.storage.remove(&format::segment_name(spare.row.slot));
        if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            // Its bytes count until it is removed.
            self.recycling.drained.push(Drained { row: spare.row });
            return false;
        }
        self.names.changes += 1;
        self.names.slots.remove(&spare.row.slot);
        context.index.write_segment_row(spare.row.slot, None, 0);
        true
    }

    /// A spare of the right length under its new header, and the bytes it takes. What turns out not
    /// to be ours any more is forgotten.
    pub(super) fn take_spare<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        header: &SegmentHeader,
    ) -> Option<(Arc<Segment<F>>, u64)> {
        while let Some(at) =
            self.recycling.spares.iter().rposition(|spare| spare.row.header.length == header.length)
        {
            let spare = self.recycling.spares.remove(at);
            let row = spare.row;
            let known = spare.file.is_some().then_some(row.header.disk);
            let file = match spare.file {
                Some(file) => file.len().ok().map(|len| (file, len.min(row.header.length))),
                None => open_life(context.storage, row.slot, &row.header).ok(),
            };
            let Some((file, allocated)) = file else {
                // Not what its row says: out of the way, and counted.
                let name = format::segment_name(row.slot);
                let opened = context.storage.open(&name);
                let is_gone = opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
                if !is_gone {
                    set_aside(context.storage, &name);
                    self.names.other_bytes += row.header.disk.max(row.header.allocated);
                    self.names.changes += 1;
                }
                self.names.slots.remove(&row.slot);
                context.index.write_segment_row(row.slot, None, 0);
                continue;
            };
            if file.write_at(&header.encode(), 0).is_err() {
                // Its bytes count until it is removed.
                self.recycling.drained.push(Drained { row });
                continue;
            }
            context.pool.renew(row.header.life, header.life);
            file.find_stores(0);
            let fresh_from = if spare.is_fresh { SEGMENT_HEADER_LEN } else { allocated };
            let filled = if spare.is_fresh { crate::memory::page_size() } else { allocated };
            let disk =
                known.map_or_else(|| disk_bytes(&file, allocated), |known| known.max(allocated));
            let segment = Segment {
                slot: row.slot,
                seed: header.seed(),
                header: *header,
                file,
                allocated: AtomicU64::new(allocated),
                fresh_from,
                filled: AtomicU64::new(filled),
            };
            return Some((Arc::new(segment), disk));
        }
        None
    }
}
