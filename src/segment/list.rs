//! The list of a queue's segments: which are live, which are drained, which wait to be used again. All under one lock.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::files::{Salts, Segment, disk_bytes, open_life, overhead, read_header, set_aside, taken};
use super::{Context, FIRST_STEP, LARGEST_STEP, Lost, Plan, Row, Unsynced, spares_wanted};
use crate::error::{Error, Result};
use crate::events;
use crate::format::{self, Fragment, Kind, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState};
use crate::index::Index;
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

/// A segment that was drained, or a spare that is one too many, on its way to the spares or out of the directory. Its bytes
/// count meanwhile.
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

/// The set of slots whose names are taken.
#[derive(Debug, Default)]
pub(super) struct Slots(Vec<bool>);

impl Slots {
    pub(super) fn insert(&mut self, slot: u32) {
        let slot = slot as usize;
        if slot >= self.0.len() {
            self.0.resize(slot + 1, false);
        }
        self.0[slot] = true;
    }

    pub(super) fn remove(&mut self, slot: &u32) {
        if let Some(taken) = self.0.get_mut(*slot as usize) {
            *taken = false;
        }
    }

    pub(super) fn lowest_free(&self) -> u32 {
        self.0.iter().position(|taken| !taken).unwrap_or(self.0.len()) as u32
    }
}

impl FromIterator<u32> for Slots {
    fn from_iter<I: IntoIterator<Item = u32>>(slots: I) -> Self {
        let mut set = Slots::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
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
            let file =
                file.or_else(|| open_life(context.storage, self.row.slot, &self.row.header).ok().map(|(file, _)| file));
            let header = SegmentHeader { state: SegmentState::Spare, ..self.row.header.in_file() };
            #[cfg(test)]
            let header =
                if crate::tests::sim::Mutant::SpareLeftLive.is_planted() { self.row.header.in_file() } else { header };
            // A spare whose header could not be marked would rise again if the index were lost: remove it.
            self.file = file.filter(|file| file.write_at(&header.encode(), 0).is_ok());
            self.keep = self.file.is_some();
            if let Some(file) = &self.file {
                // Who begins a segment with it need not ask.
                self.row.header.disk = disk_bytes(file, self.row.header.allocated);
            }
        }
        if !self.keep {
            context.pool.forget(self.row.header.life);
            let removed = context.storage.remove(&format::segment_name(self.row.slot));
            self.removed = match removed {
                Ok(()) => true,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
        }
    }
}

/// With more segments open than this, consumers that have one open are asked to let go.
const MANY_OPEN: usize = 32;

#[derive(Debug)]
pub(crate) struct List<F> {
    pub(crate) live: VecDeque<Row>,
    pub(super) open: Vec<(u64, Weak<Segment<F>>)>,
    /// Live segments that were stored to and not synced since: a flush syncs each through the descriptor that was open all
    /// that time. The system tells a failed write-back once to each open descriptor; one that is opened afterwards may never
    /// be told.
    pub(super) held: Vec<Arc<Segment<F>>>,
    /// Counts how often a writer began to store to a segment.
    pub(super) stores: u64,
    /// Keeps the files of drained segments open until it is decided what becomes of them.
    pub(super) drained_files: Vec<Arc<Segment<F>>>,
    pub(super) drained: Vec<Drained>,
    pub(super) spares: Vec<Spare<F>>,
    /// Being handed on just now.
    pub(super) in_transit: Vec<Row>,
    /// Removed from the directory but still referred to: their bytes are not free yet.
    pub(super) removed: Vec<(Weak<Segment<F>>, u64)>,
    /// Names that are taken.
    pub(super) slots: Slots,
    pub(super) next_life: u64,
    pub(super) salts: Salts,
    /// Bytes of disk that files other than live segments and the index take.
    pub(super) other_bytes: u64,
    /// Counts what was handed on and found its place.
    pub(super) given_back: u64,
    /// Counts creations, renamings and removals in the directory that are done.
    pub(super) directory_changes: u64,
    /// Every segment has its row in the index.
    pub(super) rows_complete: bool,
    /// The number behind the last one of the only segment, when that was let go of: with no live segment nothing before it is
    /// held.
    pub(super) retired: u64,
}

impl<F: StorageFile> List<F> {
    /// All bytes of disk, those included of files that are removed and still read.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let removed = self.removed.iter().filter(|(open, _)| open.strong_count() > 0).map(|(_, bytes)| *bytes);
        self.limited_bytes() + removed.sum::<u64>()
    }

    /// Bytes of disk of the files in the directory, the index left out: what `max_bytes` is about. A reader that pauses
    /// within a segment must not make the queue give up more than that segment.
    pub(crate) fn limited_bytes(&self) -> u64 {
        let live = self.live.iter().map(taken);
        let drained = self.drained.iter().map(|drained| taken(&drained.row));
        let spares = self.spares.iter().map(|spare| taken(&spare.row));
        let in_transit = self.in_transit.iter().map(taken);
        live.chain(drained).chain(spares).chain(in_transit).sum::<u64>() + self.other_bytes
    }

    /// There are segments whose space may soon be free.
    pub(crate) fn has_drained(&self) -> bool {
        !self.drained.is_empty() || !self.in_transit.is_empty()
    }

    /// The rows of the index do not say what is there.
    pub(super) fn is_changing(&self) -> bool {
        !self.rows_complete || !self.in_transit.is_empty()
    }

    /// Bytes by which the index file may grow: what `min_free_bytes` and `max_bytes` leave, with three segments kept possible.
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
        let least = 3 * (length + overhead(length)) + self.other_bytes;
        limit.saturating_sub(index + self.limited_bytes().max(least)).min(free)
    }

    /// Where the first message begins that is held as a whole: the first segment may begin with the end of one whose
    /// beginning is gone. With its number; `None` when there is no segment.
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
                Some(fragment) if fragment.kind == Kind::Middle && fragment.is_numbered(base.1) => {}
                Some(fragment) if fragment.kind == Kind::Last && fragment.is_numbered(base.1) => {
                    return Some((base.0 + fragment.total_len(), base.1 + 1));
                }
                _ => return Some(base),
            }
        }
        Some((first.base, first.first_seq))
    }

    /// Whether more segments are open than a queue with many consumers may have.
    pub(crate) fn has_many_open(&self) -> bool {
        self.open.len() > MANY_OPEN && self.open.iter().filter(|(_, open)| open.strong_count() > 0).count() > MANY_OPEN
    }

    pub(crate) fn spares(&self) -> usize {
        self.spares.len()
    }

    /// Each of the directory's segment files is counted once, and no name is taken for nothing.
    #[cfg(test)]
    pub(crate) fn check_accounts(&self, names: &[String]) -> Result<(), String> {
        let kept = self.live.iter().chain(self.drained.iter().map(|drained| &drained.row));
        let kept = kept.chain(self.spares.iter().map(|spare| &spare.row)).chain(&self.in_transit);
        let mut counted: Vec<u32> = kept.map(|row| row.slot).collect();
        counted.sort_unstable();
        let mut there: Vec<u32> = names.iter().filter_map(|name| format::segment_slot(name)).collect();
        there.sort_unstable();
        if counted != there {
            return Err(format!("counted are the segments {counted:?}, and there are {there:?}"));
        }
        let taken = (0..self.slots.0.len() as u32).filter(|slot| self.slots.0[*slot as usize]);
        // What was set aside keeps the name that it had, should a power cut bring it back.
        let mut leaked = taken.filter(|slot| !names.iter().any(|name| name.starts_with(&format::segment_name(*slot))));
        match leaked.next() {
            Some(leaked) => Err(format!("the name of segment {leaked} is taken, and it is not there")),
            None => Ok(()),
        }
    }

    /// The live segment that holds `position`, or the first one behind it.
    pub(crate) fn at(&self, position: u64) -> Option<Row> {
        let index = self.live.partition_point(|row| row.header.end() <= position);
        self.live.get(index).copied()
    }

    /// The segment of that life, if somebody has it open.
    fn opened(&self, life: u64) -> Option<Arc<Segment<F>>> {
        self.open.iter().find(|(other, _)| *other == life).and_then(|(_, open)| open.upgrade())
    }

    /// Opens the live segment `row`; its file must still be what the row says.
    pub(crate) fn open<S: Storage<File = F>>(&mut self, storage: &S, row: &Row) -> Result<Arc<Segment<F>>, Lost> {
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
    pub(crate) fn hold(&mut self, segment: &Arc<Segment<F>>) {
        let life = segment.header.life;
        let Some(row) = self.live.iter_mut().rev().find(|row| row.header.life == life) else {
            return;
        };
        self.stores += 1;
        row.unsynced = self.stores;
        if !self.held.iter().any(|held| held.header.life == life) {
            self.held.push(Arc::clone(segment));
        }
    }

    /// The base of a live segment: no other that is not synced begins before it, or ends behind `position`.
    pub(crate) fn first_unsynced(&self, position: u64) -> u64 {
        let held = self.held.iter().map(|held| held.header.base).min().unwrap_or(u64::MAX);
        self.at(position).map_or(held, |row| row.header.base.min(held))
    }

    /// How many segments will be full and not synced when the next one begins.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// The first live segment at or behind `from`, and before `to`, that was stored to and not synced. It is opened while it
    /// is known to be live, and is not used again before its descriptor is let go.
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

    /// The segment was synced as it was when [`next_unsynced`](Self::next_unsynced) gave it.
    pub(crate) fn note_synced(&mut self, synced: &Row, is_full: bool) {
        let life = synced.header.life;
        let at = self.live.partition_point(|row| row.header.base < synced.header.base);
        if is_full
            && let Some(row) = self.live.get_mut(at)
            && row.header.life == life
            && row.unsynced == synced.unsynced
        {
            row.unsynced = 0;
            self.held.retain(|held| held.header.life != life);
        }
    }

    /// As [`open`](Self::open), and looks for the segment under the other names when it is not under its own.
    pub(crate) fn open_anywhere<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        index: &Index<S>,
        row: &Row,
    ) -> Result<Arc<Segment<F>>, Lost> {
        match self.open(storage, row) {
            Err(Lost::Gone) if self.look_for(storage, index, row.header.life) => {
                let found = self.live.iter().find(|other| other.header.life == row.header.life).copied();
                self.open(storage, &found.ok_or(Lost::Gone)?)
            }
            opened => opened,
        }
    }

    /// A live segment's file is gone or is something else. Looks for it under the other names (files may have been
    /// swapped); if it is nowhere, its messages are lost: what stands in its place is set aside, never removed. True
    /// when the segment was found again.
    pub(crate) fn look_for<S: Storage<File = F>>(&mut self, storage: &S, index: &Index<S>, life: u64) -> bool {
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
            let is_home =
                |(_, queue, other): &&(u32, [u8; 16], u64)| *queue == row.header.queue_id && *other == row.header.life;
            if let Some((slot, ..)) = homes.iter().find(is_home) {
                row.slot = *slot;
                found |= row.header.life == life;
            }
        }
        if !found && let Some(at) = self.live.iter().position(|row| row.header.life == life) {
            let row = self.live.remove(at);
            self.held.retain(|held| held.header.life != life);
            if let Some(row) = row
                && !self.live.iter().any(|other| other.slot == row.slot)
            {
                set_aside(storage, &format::segment_name(row.slot));
                self.other_bytes += taken(&row);
                self.directory_changes += 1;
            }
        }
        // The rows of the index are left as they are and marked as not to be believed: the next opening reads headers.
        self.rows_complete = false;
        found
    }

    pub(super) fn drain_front(&mut self) {
        if let Some(row) = self.live.pop_front() {
            self.let_go(row);
        }
    }

    pub(super) fn let_go(&mut self, row: Row) {
        let life = row.header.life;
        let held = self.held.iter().position(|held| held.header.life == life).map(|at| self.held.swap_remove(at));
        if let Some(open) = held.or_else(|| self.opened(life)) {
            self.drained_files.push(open);
        }
        self.drained.push(Drained { row });
    }

    /// A drained segment becomes a spare, or is removed: when there are enough spares (`kept` are on their way), when its
    /// length is not today's, or when somebody still reads from it.
    pub(super) fn take_drained<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        drained: Drained,
        kept: usize,
    ) -> Handing<F> {
        let row = drained.row;
        let life = row.header.life;
        self.in_transit.push(row);
        let held = self
            .drained_files
            .iter()
            .position(|open| open.header.life == life)
            .map(|at| self.drained_files.swap_remove(at));
        let keep = self.spares.len() + kept < spares_wanted(row.header.length, context.limits.none())
            && row.header.length == context.pool.geometry().segment_len;
        // Two looks, in this order: whoever has the segment open may still take a window of it and lend from that, so the
        // windows are looked at once nobody else has it open. Nobody
        // opens it anew: only live segments are opened, under the list's lock, which is held.
        let alone = held.or_else(|| self.opened(life)).map(Arc::try_unwrap);
        #[cfg(test)]
        crate::tests::sim::reached("between the looks at a drained segment");
        match alone {
            Some(Err(core)) => Handing::out(row, Arc::downgrade(&core)),
            _ if !keep || !context.pool.is_idle(life) => Handing::out(row, Weak::new()),
            Some(Ok(segment)) => Handing { file: Some(segment.file), keep, ..Handing::out(row, Weak::new()) },
            None => Handing { keep, ..Handing::out(row, Weak::new()) },
        }
    }

    /// What was handed on has arrived.
    pub(super) fn put_down<S: Storage<File = F>>(&mut self, context: &Context<'_, S>, handing: Handing<F>) {
        let mut row = handing.row;
        let life = row.header.life;
        self.in_transit.retain(|other| other.header.life != life);
        self.given_back += u64::from(handing.keep || handing.removed);
        if handing.keep {
            row.header.state = SegmentState::Spare;
            self.write_row(context, &row);
            self.spares.push(Spare { row, file: handing.file, is_fresh: false });
        } else if handing.removed {
            self.directory_changes += 1;
            self.slots.remove(&row.slot);
            self.removed.retain(|(open, _)| open.strong_count() > 0);
            self.removed.push((handing.open, taken(&row)));
            context.index.write_segment_row(row.slot, None, 0);
        } else {
            // Still counted, tried again the next time.
            self.drained.push(Drained { row });
        }
    }

    /// Removes a spare for the space it holds; false when there is none.
    pub(super) fn discard_spare<S: Storage<File = F>>(&mut self, context: &Context<'_, S>) -> bool {
        let Some(spare) = self.spares.pop() else {
            return false;
        };
        context.pool.forget(spare.row.header.life);
        let removed = context.storage.remove(&format::segment_name(spare.row.slot));
        if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            // Its bytes count until it is removed.
            self.drained.push(Drained { row: spare.row });
            return false;
        }
        self.directory_changes += 1;
        self.slots.remove(&spare.row.slot);
        context.index.write_segment_row(spare.row.slot, None, 0);
        true
    }

    /// A spare of the right length under its new header, and the bytes it takes. What turns out not to be ours any more is
    /// forgotten.
    pub(super) fn take_spare<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        header: &SegmentHeader,
    ) -> Option<(Arc<Segment<F>>, u64)> {
        while let Some(at) = self.spares.iter().rposition(|spare| spare.row.header.length == header.length) {
            let spare = self.spares.remove(at);
            let row = spare.row;
            let known = spare.file.is_some().then_some(row.header.disk);
            let file = match spare.file {
                Some(file) => file.len().ok().map(|len| (file, len.min(row.header.length))),
                None => open_life(context.storage, row.slot, &row.header).ok(),
            };
            let Some((file, allocated)) = file else {
                // Not what its row says: out of the way, and counted.
                let name = format::segment_name(row.slot);
                let is_gone =
                    matches!(context.storage.open(&name), Err(error) if error.kind() == io::ErrorKind::NotFound);
                if !is_gone {
                    set_aside(context.storage, &name);
                    self.other_bytes += row.header.disk.max(row.header.allocated);
                    self.directory_changes += 1;
                }
                self.slots.remove(&row.slot);
                context.index.write_segment_row(row.slot, None, 0);
                continue;
            };
            if file.write_at(&header.encode(), 0).is_err() {
                // Its bytes count until it is removed.
                self.drained.push(Drained { row });
                continue;
            }
            context.pool.renew(row.header.life, header.life);
            file.find_stores(0);
            let fresh_from = if spare.is_fresh { SEGMENT_HEADER_LEN } else { allocated };
            let filled = if spare.is_fresh { crate::memory::page_size() } else { allocated };
            let disk = known.map_or_else(|| disk_bytes(&file, allocated), |known| known.max(allocated));
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

    pub(super) fn create<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        header: SegmentHeader,
        need: u64,
        whole: u64,
    ) -> Result<Arc<Segment<F>>> {
        let (slot, file) = loop {
            let free = self.slots.lowest_free();
            let name = format::segment_name(free);
            self.slots.insert(free);
            match context.storage.create(&name) {
                Ok(file) => break (free, file),
                // Something foreign stands there: it keeps its name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    self.slots.remove(&free);
                    return Err(Error::io("create", context.storage.path().join(name), error));
                }
            }
        };
        let name = format::segment_name(slot);
        let page = crate::memory::page_size();
        let exact = (SEGMENT_HEADER_LEN + need).next_multiple_of(page).min(header.length);
        // A queue's first segment may be its only one; where others were filled before, this one will be too.
        let first_step = context.fill_step().unwrap_or(0).max(FIRST_STEP);
        let step = if self.live.is_empty() { first_step } else { LARGEST_STEP };
        let generous = exact.max(step).min(header.length);
        let mut made = self.allocate(context, &file, &name, 0, generous);
        while matches!(&made, Err(error) if error.is_full()) {
            made = self.allocate(context, &file, &name, 0, exact);
            if matches!(&made, Err(error) if error.is_full()) && !self.discard_spare(context) {
                break;
            }
        }
        let made = made.and_then(|allocated| {
            let filled = context.begin_filled(&file, allocated, whole);
            file.write_at(&header.encode(), 0)
                .map_err(|error| Error::io("write", context.storage.path().join(&name), error))?;
            Ok((allocated, filled))
        });
        match made {
            Ok((allocated, filled)) => {
                self.directory_changes += 1;
                Ok(Arc::new(Segment {
                    slot,
                    seed: header.seed(),
                    header,
                    file,
                    allocated: AtomicU64::new(allocated),
                    fresh_from: SEGMENT_HEADER_LEN,
                    filled: AtomicU64::new(filled.max(page)),
                }))
            }
            Err(error) => {
                // Nothing was stored in it; it must not hold space on a disk that is full.
                if context.storage.remove(&name).is_ok() {
                    self.slots.remove(&slot);
                }
                Err(error)
            }
        }
    }

    /// The next segment of the queue: a spare, or else a new file.
    pub(super) fn append<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        plan: Plan,
    ) -> Result<Arc<Segment<F>>> {
        let header = self.begin_life(context, SegmentState::Live, plan)?;
        let made = match self.take_spare(context, &header) {
            Some(made) => Ok(made),
            None => self.create(context, header, plan.need, plan.whole).map(|segment| {
                let disk = disk_bytes(&segment.file, segment.allocated());
                (segment, disk)
            }),
        };
        if let Ok((segment, disk)) = &made {
            let reused = !segment.is_fresh(SEGMENT_HEADER_LEN);
            events::segment_begun(context.storage.path(), segment.slot, header.first_seq, reused);
            let mut row = Row::new(segment.slot, segment.header);
            row.header.disk = *disk;
            row.header.allocated = segment.allocated();
            self.live.push_back(row);
            self.open.retain(|(_, open)| open.strong_count() > 0);
            self.open.push((row.header.life, Arc::downgrade(segment)));
            self.hold(segment);
            self.write_row(context, &row);
        }
        context.index.set_changing(self.is_changing());
        made.map(|(segment, _)| segment)
    }

    /// The header of a life that begins now; from here on the rows of the index do not say what is there.
    pub(super) fn begin_life<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        state: SegmentState,
        plan: Plan,
    ) -> Result<SegmentHeader> {
        context.begin_changing()?;
        let life = self.next_life;
        self.next_life += 1;
        context.index.set_next_life(self.next_life);
        let created = if state == SegmentState::Live { context.storage.now().max(plan.not_before) } else { 0 };
        Ok(SegmentHeader {
            state,
            cause: plan.cause,
            queue_id: context.index.queue_id,
            life,
            base: plan.base,
            first_seq: plan.first_seq,
            gap_before: plan.gap_before,
            reserved: plan.reserved,
            created,
            length: context.pool.geometry().segment_len,
            allocated: 0,
            disk: 0,
            salt: self.salts.draw(context.storage),
        })
    }

    pub(super) fn write_row<S: Storage<File = F>>(&mut self, context: &Context<'_, S>, row: &Row) {
        let room = self.index_room(context);
        self.rows_complete &= context.index.write_segment_row(row.slot, Some(&row.header), room);
    }

    /// Allocates space for a segment up to file offset `end`, and some ahead while there is room. When `more_comes` it
    /// does not make do with less.
    pub(super) fn extend<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        segment: &Segment<F>,
        end: u64,
        more_comes: bool,
    ) -> Result<()> {
        let (have, length) = (segment.allocated(), segment.header.length);
        let end = end.min(length);
        if end <= have {
            return Ok(());
        }
        let exact = end.next_multiple_of(crate::memory::page_size()).min(length);
        let generous = exact.max((4 * have).clamp(FIRST_STEP, have + LARGEST_STEP)).min(length);
        let full = |got: &Result<u64>| matches!(got, Err(error) if error.is_full());
        let mut got = self.allocate(context, &segment.file, &segment.name(), have, generous);
        if full(&got) && !more_comes {
            context.begin_changing()?;
            while full(&got) {
                got = self.allocate(context, &segment.file, &segment.name(), have, exact);
                if full(&got) && !self.discard_spare(context) {
                    break;
                }
            }
            context.index.set_changing(self.is_changing());
        }
        let allocated = got?;
        segment.allocated.store(allocated, Ordering::Release);
        context.pool.grown(segment.header.life, allocated);
        if let Some(row) = self.live.iter_mut().rev().find(|row| row.header.life == segment.header.life) {
            row.header.allocated = allocated;
            row.header.disk = disk_bytes(&segment.file, allocated);
            let row = *row;
            self.write_row(context, &row);
            if !self.rows_complete {
                context.index.set_changing(true);
            }
        }
        Ok(())
    }

    /// Really allocates the file up to `end` when the limits allow; returns `end`.
    pub(super) fn allocate<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        file: &F,
        name: &str,
        have: u64,
        end: u64,
    ) -> Result<u64> {
        // A file that is being made is not in the list yet.
        let first = if have == 0 { overhead(context.pool.geometry().segment_len) } else { 0 };
        let needed = end - have + first;
        let used = self.limited_bytes() + context.index.len();
        if let Some(limit) = context.limits.max_bytes
            && used + needed > limit
        {
            return Err(context.full(used, limit, needed));
        }
        let path = || context.storage.path().join(name);
        if context.limits.min_free_bytes > 0 {
            let free = context.storage.free_bytes().map_err(|error| Error::io("measure", path(), error))?;
            if free < context.limits.min_free_bytes.saturating_add(needed) {
                let limit = context.limits.min_free_bytes;
                let path = context.storage.path().to_owned();
                return Err(Error::Full { path, option: "min_free_bytes", used, limit, needed, free: Some(free) });
            }
        }
        let before = disk_bytes(file, have);
        file.allocate(have, end - have).map_err(|error| Error::io("allocate", path(), error))?;
        if let Some(limit) = context.limits.max_bytes {
            // The filesystem may need blocks of its own to find so many pieces.
            let needed = disk_bytes(file, end).saturating_sub(before).max(needed);
            if used + needed > limit {
                file.set_len(have).map_err(|error| Error::io("truncate", path(), error))?;
                return Err(context.full(used, limit, needed));
            }
        }
        Ok(end)
    }
}
