//! Drained segments become spares, or their files are removed.

use std::io;
use std::sync::{Arc, Weak};

use super::files::{Opened, Segment, disk_bytes, open_life, quarantine, taken};
use super::list::List;
use super::{Context, Lost, Row};
use crate::format::{self, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState};
use crate::storage::{Storage, StorageFile};
use crate::threads::AtomicU64;

/// A segment that no consumer needs any more. It is not free to be used again before it is
/// reclaimed.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(super) row: Row,
}

/// A segment file that waits to be used again.
#[derive(Debug)]
pub(super) struct Spare<F> {
    pub(super) row: Row,
    /// Its open file, if the segment became a spare in this run.
    pub(super) file: Option<F>,
    /// It was made ahead and never used.
    pub(super) is_fresh: bool,
}

/// A segment on its way from the drained ones to the spares, or out of the directory. Its row is
/// `in_transit` meanwhile, so its bytes count. Three steps: the list begins it, the thread that
/// reclaims carries it out without the list's lock, the list finishes it.
#[derive(Debug)]
pub(super) struct Transfer<F> {
    pub(super) row: Row,
    /// The file, if it is open and nobody else has it.
    pub(super) file: Option<F>,
    /// The segment, as long as a reader has it open.
    pub(super) open: Weak<Segment<F>>,
    /// It becomes a spare; otherwise its file is removed.
    pub(super) becomes_spare: bool,
    /// It was one before: no space is given back.
    pub(super) was_spare: bool,
    /// Its file was removed.
    pub(super) is_removed: bool,
}

impl<F: StorageFile> Transfer<F> {
    /// The removal of a segment. Its bytes stay on the disk while anybody has `open`.
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
                (header.state, header.held) = (SegmentState::Live, 0);
            }
            // A spare that could not be marked would count as live if the index were lost: it is
            // removed instead.
            self.file = file.filter(|file| file.write_at(&header.encode(), 0).is_ok());
            self.becomes_spare = self.file.is_some();
            if let Some(file) = &self.file {
                // Measured here, so that the producer that takes the spare need not.
                let header = &mut self.row.header;
                let measured = disk_bytes(file, header.disk, header.allocated);
                // Until a cut is synced a power cut may undo it.
                let is_sure = !self.row.is_cut || planted!(CutSpareCountsAtOnce);
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

/// Segments without messages that are needed: drained, spare, and between the two.
#[derive(Debug)]
pub(crate) struct Recycling<F> {
    /// Keeps the files of drained segments open until they are reclaimed.
    pub(super) drained_files: Vec<Arc<Segment<F>>>,
    pub(super) drained: Vec<Drained>,
    pub(super) spares: Vec<Spare<F>>,
    /// Segments of a [`Transfer`] that is not finished, and a spare that is being made.
    pub(super) in_transit: Vec<Row>,
    /// Removed segments that a reader may still have open, and their bytes, which are free when it
    /// releases them.
    pub(super) removed: Vec<(Weak<Segment<F>>, u64)>,
    /// Counts the transfers that gave space back, and the spares that were made.
    pub(super) given_back: u64,
    /// The first number that may still be in the queue: the disk says that all below were given
    /// back. Each header that is written repeats it, for an opening that finds no index.
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

    /// Every segment file in the directory that is not live.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        let drained = self.drained.iter().map(|drained| &drained.row);
        let in_transit = self.in_transit.iter().filter(|_| !planted!(TransitNotCounted));
        drained.chain(self.spares.iter().map(|spare| &spare.row)).chain(in_transit)
    }
}

impl<F: StorageFile> List<F> {
    /// Drains the first live segment.
    pub(super) fn drain_front(&mut self) {
        if let Some(row) = self.live.pop_front() {
            self.drain(row);
        }
    }

    /// Drains a segment that has just left the live ones.
    pub(super) fn drain(&mut self, row: Row) {
        let life = row.header.life;
        if let Some(open) = self.opened(life) {
            self.recycling.drained_files.push(open);
        }
        self.kept_open.retain(|open| open.header.life != life);
        self.handed_on.retain(|open| open.header.life != life);
        self.recycling.drained.push(Drained { row });
    }

    /// Begins the transfer of a drained segment. It becomes a spare, unless there are enough
    /// (`coming` are on their way), its length is not that of the tail's segment, or a reader has
    /// it open.
    pub(super) fn begin_transfer<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        drained: Drained,
        coming: usize,
    ) -> Transfer<F> {
        let mut row = drained.row;
        row.header.held = self.recycling.held;
        let life = row.header.life;
        self.recycling.in_transit.push(row);
        let kept_open = self
            .recycling
            .drained_files
            .iter()
            .position(|open| open.header.life == life)
            .map(|at| self.recycling.drained_files.swap_remove(at));
        let length = row.header.length;
        let becomes_spare = length == self.tail_len(context.pool.geometry())
            && self.spares_of(length) + coming < self.spares_wanted(context, length);
        // Two looks, in this order. A reader that has the segment open may still take one of its
        // windows and lend from it, so the windows are looked at when nobody else has the segment
        // open. Nobody opens it again: only live segments are opened, under the list's lock, which
        // the caller holds.
        let is_idle = planted!(WindowsLookedAtFirst) && context.pool.is_idle(life);
        reached!("before a drained segment's readers are looked at");
        let alone = kept_open.or_else(|| self.opened(life)).map(Arc::try_unwrap);
        reached!("between the looks at a drained segment");
        match alone {
            Some(Err(shared)) if !planted!(SharedSegmentUsedAgain) => {
                Transfer::removal(row, Arc::downgrade(&shared))
            }
            Some(Err(_)) => Transfer { becomes_spare, ..Transfer::removal(row, Weak::new()) },
            _ if !becomes_spare
                || !is_idle && !context.pool.is_idle(life) && !planted!(LentSegmentUsedAgain) =>
            {
                Transfer::removal(row, Weak::new())
            }
            Some(Ok(segment)) => Transfer {
                file: Some(segment.file),
                becomes_spare,
                ..Transfer::removal(row, Weak::new())
            },
            None => Transfer { becomes_spare, ..Transfer::removal(row, Weak::new()) },
        }
    }

    /// Begins the removal of spares: of those that `goes` says.
    pub(super) fn take_spares_to_remove(
        &mut self,
        goes: impl FnMut(&mut Spare<F>) -> bool,
    ) -> Vec<Transfer<F>> {
        let going = self.recycling.spares.extract_if(.., goes);
        let transfers: Vec<_> =
            going.map(|spare| Transfer::removal(spare.row, Weak::new())).collect();
        self.recycling.in_transit.extend(transfers.iter().map(|transfer| transfer.row));
        transfers
    }

    /// Begins to write `held` to the header of a spare, when no drained segment becomes one: a file
    /// that stays has to say which numbers were given back.
    pub(super) fn take_spare_to_mark(&mut self) -> Option<Transfer<F>> {
        let at = self
            .recycling
            .spares
            .iter()
            .rposition(|spare| spare.file.is_some() && !spare.is_fresh)?;
        let Spare { mut row, file, .. } = self.recycling.spares.remove(at);
        row.header.held = self.recycling.held;
        self.recycling.in_transit.push(row);
        Some(Transfer {
            file,
            becomes_spare: true,
            was_spare: true,
            ..Transfer::removal(row, Weak::new())
        })
    }

    /// Finishes a transfer that was carried out.
    pub(super) fn finish_transfer<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        transfer: Transfer<F>,
    ) {
        let mut row = transfer.row;
        let life = row.header.life;
        self.recycling.in_transit.retain(|other| other.header.life != life);
        let gives_back = transfer.becomes_spare && !transfer.was_spare || transfer.is_removed;
        self.recycling.given_back += u64::from(gives_back);
        if transfer.becomes_spare {
            row.header.state = SegmentState::Spare;
            self.write_row(context, &row);
            self.recycling.spares.push(Spare { row, file: transfer.file, is_fresh: false });
        } else if transfer.is_removed {
            self.names.directory_changes += 1;
            self.names.slots.remove(&row.slot);
            self.recycling.removed.retain(|(open, _)| open.strong_count() > 0);
            self.recycling.removed.push((transfer.open, taken(&row)));
            context.index.write_segment_row(row.slot, None, 0);
        } else {
            // The removal failed: the segment still counts, and the next reclaiming tries again.
            self.recycling.drained.push(Drained { row });
        }
    }

    /// Removes a spare for its space. Returns false when there is none, or the removal failed.
    pub(super) fn discard_spare<S: Storage<File = F>>(&mut self, context: &Context<'_, S>) -> bool {
        let Some(spare) = self.recycling.spares.pop() else {
            return false;
        };
        context.pool.unmap_segment(spare.row.header.life);
        let removed = context.storage.remove(&format::segment_name(spare.row.slot));
        if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            // It stays, and counts. (As a drained segment it would be a spare again after the next
            // reclaiming, which would count as space given back.)
            if planted!(SpareGoesRound) {
                self.recycling.drained.push(Drained { row: spare.row });
            } else {
                self.recycling.spares.push(Spare { file: None, ..spare });
            }
            return false;
        }
        self.names.directory_changes += 1;
        self.names.slots.remove(&spare.row.slot);
        context.index.write_segment_row(spare.row.slot, None, 0);
        true
    }

    /// A spare of the right length, with `header` as its new one, and the bytes of disk it takes. A
    /// spare whose file is gone, or is another one, leaves the list.
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
            let opened = match spare.file {
                Some(file) => match file.len() {
                    Ok(len) => {
                        let allocated = len.min(row.header.length);
                        Ok(Opened { life: row.header.life, file, allocated })
                    }
                    Err(error) => Err(Lost::Io(error)),
                },
                None => open_life(context.storage, row.slot, &row.header),
            };
            let is_unknown = matches!(opened, Err(Lost::Io(_)));
            if is_unknown && !planted!(SpareQuarantined) {
                // It cannot be looked at now. Its bytes count until it is removed.
                self.recycling.drained.push(Drained { row });
                continue;
            }
            let Ok(Opened { file, allocated, .. }) = opened else {
                // The file is not the spare of the row: it is quarantined, and counted.
                let name = format::segment_name(row.slot);
                let opened = context.storage.open(&name);
                let is_gone = opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
                if !is_gone {
                    let _ = quarantine(context.storage, &name);
                    self.names.other_bytes += row.header.disk.max(row.header.allocated);
                    self.names.directory_changes += 1;
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
            if !planted!(WindowsNotRenewed) {
                context.pool.renew(row.header.life, header.life);
            }
            file.find_stores(0);
            let fresh_from = if spare.is_fresh { SEGMENT_HEADER_LEN } else { allocated };
            let filled = if spare.is_fresh { crate::memory::page_size() } else { allocated };
            let disk = known.map_or_else(
                || disk_bytes(&file, row.header.disk, allocated),
                |known| known.max(allocated),
            );
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
