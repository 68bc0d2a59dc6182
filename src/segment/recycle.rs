//! Turns drained segments into spares, or removes their files.

use std::io;
use std::sync::{Arc, Weak};

use super::context::Context;
use super::files::{Opened, Segment, disk_bytes, open_life, quarantine, taken};
use super::list::List;
use super::recycling::{Drained, Spare, Transfer};
use super::row::{Lost, Row};
use crate::format::{self, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState};
use crate::storage::{Storage, StorageFile};
use crate::threads::AtomicU64;

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
        check!(let is_live = self.live.iter().any(|row| row.header.life == life));
        holds!(!is_live, "the segment of life {life}, which is drained, is live no more");
        check!(let is_open = self.kept_open.iter().any(|open| open.header.life == life));
        holds!(!is_open, "a drained segment, of life {life}, is not synced any more");
    }

    /// Begins the transfer of a drained segment. It becomes a spare, unless there are enough spares
    /// (`coming` of them in transfer), its length differs from the tail's segment, or a reader has
    /// it open.
    pub(super) fn begin_transfer<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        drained: Drained,
        coming: usize,
    ) -> Transfer<F> {
        let mut row = drained.row;
        row.header.retained_from = self.recycling.retained_from;
        let life = row.header.life;
        self.recycling.in_transit.push(row);
        let kept_open = self
            .recycling
            .drained_files
            .iter()
            .position(|open| open.header.life == life)
            .map(|at| self.recycling.drained_files.swap_remove(at));
        let length = row.header.length;
        let has_use = length == self.tail_len(context.pool.geometry()) || context.lacks_free();
        let becomes_spare =
            has_use && self.spares_of(length) + coming < self.spares_wanted(context, length);
        // Two checks, in this order. A reader that has the segment open may still take one of its
        // windows and lend from it, so check the windows only once no reader has the segment open.
        // No reader opens it again: readers open only live segments, under the list's lock, which
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

    /// Begins the removal of the spares for which `goes` returns true.
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

    /// Begins to write `retained_from` to the header of a spare, when no drained segment becomes
    /// one: some remaining file must say which sequence numbers are no longer in the queue.
    pub(super) fn take_spare_to_mark(&mut self) -> Option<Transfer<F>> {
        let at = self
            .recycling
            .spares
            .iter()
            .rposition(|spare| spare.file.is_some() && !spare.is_fresh)?;
        let Spare { mut row, file, .. } = self.recycling.spares.remove(at);
        row.header.retained_from = self.recycling.retained_from;
        self.recycling.in_transit.push(row);
        Some(Transfer {
            file,
            becomes_spare: true,
            was_spare: true,
            ..Transfer::removal(row, Weak::new())
        })
    }

    /// Enters the result of a transfer in the list and the index.
    pub(super) fn finish_transfer<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        transfer: Transfer<F>,
    ) {
        let mut row = transfer.row;
        let life = row.header.life;
        check!(let count = self.recycling.in_transit.len());
        self.recycling.in_transit.retain(|other| other.header.life != life);
        check!(let left = count - self.recycling.in_transit.len());
        holds!(left == 1, "the segment of life {life} was in transit once, and not {left} times");
        let gives_back = transfer.becomes_spare && !transfer.was_spare || transfer.is_removed;
        self.recycling.given_back += u64::from(gives_back);
        if transfer.becomes_spare {
            row.header.state = SegmentState::Spare;
            self.write_row(context, &row);
            self.recycling.spares.push(Spare { row, file: transfer.file, is_fresh: false });
        } else if transfer.is_removed {
            self.names.slots.remove(&row.slot);
            self.recycling.removed.retain(|(open, _)| open.strong_count() > 0);
            self.recycling.removed.push((transfer.open, taken(&row)));
            context.index.write_segment_row(row.slot, None, 0);
        } else {
            // The removal failed: the segment still counts, and the next `reclaim` tries again.
            self.recycling.drained.push(Drained { row });
        }
        check!(self.check());
    }

    /// Removes a spare to free its space. Returns false when there is none, or the removal failed.
    pub(super) fn discard_spare<S: Storage<File = F>>(&mut self, context: &Context<'_, S>) -> bool {
        let Some(spare) = self.recycling.spares.pop() else {
            return false;
        };
        context.pool.unmap_segment(spare.row.header.life);
        let removed = context.storage.remove(&format::segment_name(spare.row.slot));
        if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            // The spare stays, and counts. (As a drained segment it would become a spare again in
            // the next `reclaim`, which would count as freed space.)
            self.recycling.spares.push(Spare { file: None, ..spare });
            return false;
        }
        self.names.slots.remove(&spare.row.slot);
        context.index.write_segment_row(spare.row.slot, None, 0);
        check!(self.check());
        true
    }

    /// Returns a spare of the length in `header`, with `header` as its new one, and the disk bytes
    /// it takes. Drops spares from the list whose file is missing or is another one.
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
            if is_unknown {
                // An I/O error hides its state. Its bytes count until it is removed.
                self.recycling.drained.push(Drained { row });
                continue;
            }
            let Ok(Opened { file, allocated, .. }) = opened else {
                // The file is not the row's spare: quarantine and count it.
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
            context.pool.renew(row.header.life, header.life);
            file.find_stores(0);
            let fresh_from = if spare.is_fresh { SEGMENT_HEADER_LEN } else { allocated };
            let filled = if spare.is_fresh { crate::memory::page_size() } else { allocated };
            let disk = known.map_or_else(
                || disk_bytes(&file, row.header.disk, allocated),
                |known| known.max(allocated),
            );
            holds!(
                allocated <= header.length && fresh_from <= allocated.max(SEGMENT_HEADER_LEN),
                "a spare has {allocated} bytes of {}, fresh from {fresh_from}",
                header.length
            );
            let segment = Segment {
                slot: row.slot,
                seed: header.seed(),
                header: SegmentHeader { file: row.header.file, ..*header },
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
