//! The segment allocator: makes segments, hands drained ones out again, removes the surplus.
//!
//! Invariants:
//!
//! - live segments are kept in the order of their positions; each message lies in exactly one;
//! - space is really allocated before anybody may store to it, in steps ahead of the tail;
//! - a drained segment waits in `drained` until a *synced* place of every consumer stands behind it (rule R8); only then
//!   may it be used again or removed;
//! - a segment that anybody still reads from is never used again: it is removed, and its bytes live until it is let go;
//! - taking space back never needs space.

mod files;
pub(crate) mod geometry;
mod list;
pub(crate) mod pool;
pub(crate) mod scan;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, GapCause, Result};
use crate::format::{self, SegmentHeader, SegmentState, Spot};
use crate::index::Index;
use crate::index::losses::GivenUp;
use crate::segment::pool::Pool;
use crate::storage::{Storage, StorageFile, Stores};

use files::{Salts, disk_bytes};
pub(crate) use files::{Segment, open_life, overhead, set_aside};
pub(crate) use list::List;
use list::{Drained, Handing, Spare};

/// Spare segments kept for reuse while nothing happens, when a segment is at most this long ...
const SMALL_SEGMENT: u64 = 16 << 20;
/// ... and when it is longer.
const SPARES_SMALL: usize = 2;
const SPARES_LARGE: usize = 1;
/// Short segments kept while messages pass: a drained one is free only after a sync, and what is written meanwhile must find
/// others. With fewer, new files are made and removed at full speed, at ten times the cost.
const SPARES_BUSY: usize = 6;
const BUSY_SEGMENT: u64 = 4 << 20;

/// A live segment as the list keeps it: no file, no mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) slot: u32,
    /// `allocated` and `disk` (that and what the filesystem needs to find it) are kept up to date here.
    pub(crate) header: SegmentHeader,
    /// Zero when nothing was stored to it since it was last synced; else another number each time that a writer begins to.
    unsynced: u64,
}

impl Row {
    pub(crate) fn new(slot: u32, header: SegmentHeader) -> Row {
        Row { slot, header, unsynced: 0 }
    }
}

/// Segments that are full and not synced keep their descriptors: at most so many ...
const MOST_HELD: usize = 64;
/// ... and where that would be more bytes than these, fewer ...
const MOST_BYTES_HELD: u64 = 256 << 20;
/// ... but not fewer than that.
const LEAST_HELD: usize = 8;

/// How many full segments of that length may wait for their sync.
pub(crate) fn most_held(length: u64) -> usize {
    #[cfg(test)]
    if let Some(most) = MOST_HELD_HERE.get() {
        return most;
    }
    usize::try_from(MOST_BYTES_HELD / length).unwrap_or(MOST_HELD).clamp(LEAST_HELD, MOST_HELD)
}

#[cfg(test)]
thread_local! {
    /// How many full segments may wait for their sync where this thread stores.
    pub(crate) static MOST_HELD_HERE: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// A segment that a flush is to sync.
#[derive(Debug)]
pub(crate) struct Unsynced<F> {
    pub(crate) row: Row,
    /// Nothing is stored to it any more.
    pub(crate) is_full: bool,
    pub(crate) opened: Result<Arc<Segment<F>>, Lost>,
}

/// What the list is made from at opening.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) live: Vec<Row>,
    pub(crate) spares: Vec<Row>,
    /// Live by their headers but of no use: passed by everybody, or begun for a record that was never committed.
    pub(crate) drained: Vec<Row>,
    /// Slots whose names are taken by something else.
    pub(crate) foreign_slots: Vec<u32>,
    pub(crate) next_life: u64,
    pub(crate) other_bytes: u64,
    /// Every one of them has its row in the index.
    pub(crate) rows_complete: bool,
}

/// Why a live segment cannot be opened.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Its file is gone, or is not that segment any more.
    Gone,
    Io(io::Error),
}

/// What a new segment begins with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) base: u64,
    pub(crate) first_seq: u64,
    pub(crate) gap_before: u64,
    pub(crate) reserved: u64,
    pub(crate) cause: u8,
    /// Bytes behind the header that are wanted at once.
    pub(crate) need: u64,
    /// Payload bytes of the record that begins the segment, or goes on in it.
    pub(crate) whole: u64,
    /// The segment says that it was made no earlier, whatever the clock says: milliseconds since 1970.
    pub(crate) not_before: u64,
}

/// Limits on disk space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_bytes: Option<u64>,
    pub(crate) min_free_bytes: u64,
}

impl Limits {
    /// Whether nobody counts the bytes.
    fn none(&self) -> bool {
        self.max_bytes.is_none() && self.min_free_bytes == 0
    }
}

/// How many segments of that length are kept for reuse.
fn spares_wanted(length: u64, busy: bool) -> usize {
    match length {
        0..=BUSY_SEGMENT if busy => SPARES_BUSY,
        0..=SMALL_SEGMENT => SPARES_SMALL,
        _ => SPARES_LARGE,
    }
}

/// What the allocator works with.
#[derive(Debug)]
pub(crate) struct Context<'a, S: Storage> {
    pub(crate) storage: &'a S,
    pub(crate) index: &'a Index<S>,
    pub(crate) pool: &'a Pool,
    pub(crate) limits: Limits,
    /// Position and sequence number up to which everything is on disk.
    pub(crate) durable: (u64, u64),
    /// What was given up and why. Noted before a segment with such messages can be seen to be drained, and known on disk before
    /// it goes.
    pub(crate) given_up: &'a Mutex<GivenUp>,
    /// Fresh space may be filled ahead: no flush of a few bytes will write it out.
    pub(crate) fills: bool,
}

impl<S: Storage> Context<'_, S> {
    /// The queue takes `used` bytes, and may not take `needed` more.
    #[cold]
    fn full(&self, used: u64, limit: u64, needed: u64) -> Error {
        let path = self.storage.path().to_owned();
        Error::Full { path, option: "max_bytes", used, limit, needed, free: None }
    }

    /// Fresh space is filled with zeros in pieces of so many bytes before records are stored in it; `None` when it is not:
    /// where a few bytes are flushed often, a sync would write the zeros too.
    ///
    /// A write call of that length has the kernel allocate one folio for it, and the first store into a window at least
    /// as long maps the whole folio. Measured on ext4 (Linux 6.18), for each 4 KiB: stores into fresh space 4.1 us,
    /// `MADV_POPULATE_WRITE` 4.0, with huge pages 0.73; zeros first 0.57 (pieces of 2 MiB) to 0.95 (of 128 KiB). A
    /// folio longer than the window is mapped page by page, at 3 to 13 us: so a piece is no longer than a window.
    pub(crate) fn fill_step(&self) -> Option<u64> {
        let window = self.pool.geometry().window_len;
        (self.fills && window >= FILL_FROM).then(|| window.min(HUGE_PAGE))
    }

    /// Before segments are changed.
    fn begin_changing(&self) -> Result<()> {
        let path = || self.storage.path().join(format::INDEX_NAME);
        self.index.begin_changing().map_err(|error| Error::io("write", path(), error))
    }

    /// Whether a payload of `len` bytes goes into fresh space by a write call: the kernel then clears nothing that is
    /// overwritten whole, and is called no more often than for each piece.
    pub(crate) fn prefers_call(&self, len: u64) -> bool {
        let least = match self.fill_step() {
            Some(HUGE_PAGE) => CALL_FROM_HUGE,
            Some(_) => CALL_FROM_FILLED,
            None => CALL_FROM,
        };
        len >= least
    }

    /// Fills the beginning of a new file. Returns up to where. The page of the header is left out: a write call into a long
    /// folio looks at all of it (100 us), and the header is written anew in every life.
    fn begin_filled(&self, file: &S::File, allocated: u64, whole: u64) -> u64 {
        let Some(step) = self.fill_step() else {
            return 0;
        };
        let (page, end) = (crate::memory::page_size(), step.min(allocated));
        if self.prefers_call(whole)
            || file.stores() == Stores::ByCall
            || end <= page
            || file.write_zeros_at(page, end - page).is_err()
        {
            return 0;
        }
        end
    }
}

#[derive(Debug)]
pub(crate) struct Segments<S: Storage> {
    list: Mutex<List<S::File>>,
    /// One thread at a time hands drained segments on and makes spares; whoever needs their space waits for it. True once
    /// the files may be another owner's: then nothing is done to them any more.
    settling: Mutex<bool>,
    /// As many of the list's `directory_changes` are durable. Set when a sync has succeeded, never before.
    synced_changes: AtomicU64,
    syncing_directory: Mutex<()>,
    /// Counts how often readers or ages let go of segments. Changed under the list's lock.
    passed: AtomicU64,
}

impl<S: Storage> Segments<S> {
    pub(crate) fn new(found: Found) -> Segments<S> {
        let rows = found.live.iter().chain(&found.spares).chain(&found.drained);
        let slots = rows.map(|row| row.slot).chain(found.foreign_slots.iter().copied()).collect();
        Segments {
            list: Mutex::new(List {
                live: found.live.into(),
                open: Vec::new(),
                held: Vec::new(),
                stores: 0,
                drained_files: Vec::new(),
                drained: found.drained.into_iter().map(|row| Drained { row }).collect(),
                spares: found.spares.into_iter().map(|row| Spare { row, file: None, is_fresh: false }).collect(),
                in_transit: Vec::new(),
                removed: Vec::new(),
                slots,
                next_life: found.next_life,
                salts: Salts::default(),
                other_bytes: found.other_bytes,
                given_back: 0,
                directory_changes: 1,
                rows_complete: found.rows_complete,
                retired: 0,
            }),
            settling: Mutex::new(false),
            synced_changes: AtomicU64::new(0),
            syncing_directory: Mutex::new(()),
            passed: AtomicU64::new(0),
        }
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, List<S::File>> {
        self.list.lock()
    }

    /// Makes the next segment of the queue: from a spare when there is one, else as a new file.
    pub(crate) fn append(&self, context: &Context<'_, S>, plan: Plan) -> Result<Arc<Segment<S::File>>> {
        let short = {
            let list = self.list();
            list.spares.is_empty()
                && !(context.limits.none() && list.drained.len() + list.in_transit.len() < SPARES_BUSY)
        };
        if short {
            self.settle(context)?;
        }
        // Otherwise the keeper is about to settle: a new file now is another spare later, and waits for no sync.
        self.with_room(context, |list, _| list.append(context, plan))
    }

    /// Tries until there is room or nothing is given back any more: what is drained gives its space back first. Whether
    /// there is any, which the attempt is told, is asked under the lock under which there is no room; else the keeper may
    /// have handed it on in between, and a queue that is empty by now would be called full.
    fn with_room<R>(
        &self,
        context: &Context<'_, S>,
        mut attempt: impl FnMut(&mut List<S::File>, bool) -> Result<R>,
    ) -> Result<R> {
        let mut stuck = false;
        loop {
            let mut list = self.list();
            let more_comes = !stuck && list.has_drained();
            match attempt(&mut list, more_comes) {
                Err(error) if error.is_full() && more_comes => {}
                done => return done,
            }
            let seen = list.given_back;
            drop(list);
            self.settle(context)?;
            stuck = self.list().given_back == seen;
        }
    }

    /// What the process before this one stored and did not sync, between two positions, is to be synced by the next flush,
    /// through descriptors that are open from now on: the system tells an error in writing it to one that is opened later only
    /// if nobody was told before, and if it still remembers the file.
    pub(crate) fn hold_found(&self, storage: &S, from: u64, to: u64) {
        let mut list = self.list();
        let first = list.live.partition_point(|row| row.header.end() <= from);
        for at in first..list.live.len() {
            if list.live[at].header.base >= to {
                break;
            }
            list.stores += 1;
            list.live[at].unsynced = list.stores;
            let row = list.live[at];
            if list.held.len() < most_held(row.header.length)
                && let Ok(segment) = list.open(storage, &row)
            {
                list.held.push(segment);
            }
        }
    }

    /// Lets go of all descriptors, at the end of a run.
    pub(crate) fn release(&self) {
        self.list().held.clear();
    }

    /// How often readers or ages let go of segments; for [`regain`](Self::regain).
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Has drained segments give their space back. True when readers or ages let go of any since `seen`: a writer that
    /// found no room since looks again. What a refused record gave back itself is no reason to.
    pub(crate) fn regain(&self, context: &Context<'_, S>, seen: u64) -> Result<bool> {
        if self.list().has_drained() {
            self.settle(context)?;
        }
        Ok(self.passed() != seen)
    }

    /// Allocates space up to file offset `end`, and some ahead while there is room.
    pub(crate) fn extend(&self, context: &Context<'_, S>, segment: &Segment<S::File>, end: u64) -> Result<()> {
        if end.min(segment.header.length) <= segment.allocated() {
            return Ok(());
        }
        self.with_room(context, |list, more_comes| list.extend(context, segment, end, more_comes))
    }

    /// Lets go of every live segment that ends at or before `position`; the last one stays, it takes new records. True
    /// when there was any.
    pub(crate) fn drain(&self, position: u64) -> bool {
        let mut list = self.list();
        let mut any = false;
        while list.live.len() > 1 && list.live[0].header.end() <= position {
            list.drain_front();
            any = true;
        }
        self.passed.fetch_add(u64::from(any), Ordering::Relaxed);
        any
    }

    /// Gives up the oldest live segment, if it is not the last one. Returns the first sequence number still held.
    pub(crate) fn drop_oldest(&self, context: &Context<'_, S>) -> Option<u64> {
        let mut list = self.list();
        if list.live.len() < 2 {
            return None;
        }
        list.drain_front();
        let first_held = list.first_whole(context.storage).map(|(_, seq)| seq)?;
        context.given_up.lock().note(GapCause::Dropped, first_held);
        Some(first_held)
    }

    /// Makes every place stored so far durable, then hands the drained segments on: to the spares, or out of the
    /// directory.
    pub(crate) fn settle(&self, context: &Context<'_, S>) -> Result<()> {
        let settling = self.settling.lock();
        if *settling {
            return Ok(());
        }
        // They stay in the list meanwhile: their bytes count.
        let (lives, held): (Vec<u64>, _) = {
            let list = self.list();
            let lives = list.drained.iter().map(|drained| drained.row.header.life).collect();
            (lives, list.live.front().map_or(list.retired, |row| row.header.first_seq))
        };
        if lives.is_empty() {
            return Ok(());
        }
        self.sync_directory(context.storage, context.index)?;
        context.index.sync_for_change(context.durable, context.given_up, held)?;
        let mut list = self.list();
        context.begin_changing()?;
        let mut handing: Vec<Handing<S::File>> = Vec::with_capacity(lives.len());
        for life in lives {
            let at = list.drained.iter().position(|drained| drained.row.header.life == life);
            if let Some(at) = at {
                let drained = list.drained.swap_remove(at);
                let kept = handing.iter().filter(|handing| handing.keep).count();
                handing.push(list.take_drained(context, drained, kept));
            }
        }
        drop(list);
        self.hand_on(context, handing);
        Ok(())
    }

    /// Gives back the spares that were kept for busy times only.
    pub(crate) fn trim(&self, context: &Context<'_, S>) {
        let settling = self.settling.lock();
        if *settling {
            return;
        }
        let mut list = self.list();
        let surplus = list.spares.len().saturating_sub(spares_wanted(context.pool.geometry().segment_len, false));
        if surplus == 0 || context.begin_changing().is_err() {
            return;
        }
        // Those that were used the longest time ago.
        let handing: Vec<_> = list.spares.drain(..surplus).map(|spare| Handing::out(spare.row, Weak::new())).collect();
        list.in_transit.extend(handing.iter().map(|handing| handing.row));
        drop(list);
        self.hand_on(context, handing);
    }

    /// The files are let go of, at the end of a run.
    pub(crate) fn let_go(&self) {
        *self.settling.lock() = true;
    }

    /// What is done to the files is done without the list's lock: a producer that begins a segment does not wait for it.
    fn hand_on(&self, context: &Context<'_, S>, mut handing: Vec<Handing<S::File>>) {
        for handing in &mut handing {
            handing.work(context);
        }
        let mut list = self.list();
        for handing in handing {
            list.put_down(context, handing);
        }
        context.index.set_changing(list.is_changing());
    }

    /// Makes a spare ahead of need, when there is none and nobody counts the bytes. Best effort.
    pub(crate) fn prepare(&self, context: &Context<'_, S>) {
        let settling = self.settling.lock();
        if *settling {
            return;
        }
        let mut list = self.list();
        if !context.limits.none() || !list.spares.is_empty() || list.has_drained() || list.live.is_empty() {
            return;
        }
        let Ok(header) = list.begin_life(context, SegmentState::Spare, Plan::default()) else {
            return;
        };
        let slot = list.slots.lowest_free();
        list.slots.insert(slot);
        // Its bytes are not known yet, and counted by nobody.
        let mut row = Row::new(slot, header);
        list.in_transit.push(row);
        drop(list);

        let name = format::segment_name(slot);
        let length = LARGEST_STEP.min(header.length);
        let created = context.storage.create(&name);
        // What nobody could remove again keeps its name, as something foreign does.
        let mut name_is_free = !matches!(&created, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
        let made = created.and_then(|file| {
            file.allocate(0, length)
                .and_then(|()| file.write_at(&header.encode(), 0))
                .map(|()| file)
                .inspect_err(|_| name_is_free = context.storage.remove(&name).is_ok())
        });

        let mut list = self.list();
        list.in_transit.retain(|other| other.header.life != header.life);
        match made {
            Ok(file) => {
                row.header.allocated = length;
                row.header.disk = disk_bytes(&file, length);
                list.directory_changes += 1;
                list.write_row(context, &row);
                list.given_back += 1;
                list.spares.push(Spare { row, file: Some(file), is_fresh: true });
            }
            Err(_) if name_is_free => list.slots.remove(&slot),
            Err(_) => {}
        }
        context.index.set_changing(list.is_changing());
    }

    /// Lets go of every live segment that begins behind `position`: a record was begun there and given up.
    pub(crate) fn cut(&self, position: u64) -> bool {
        let mut list = self.list();
        let mut any = false;
        while list.live.back().is_some_and(|row| row.header.base > position) {
            let Some(row) = list.live.pop_back() else {
                break;
            };
            list.let_go(row);
            any = true;
        }
        any
    }

    pub(crate) fn next_life(&self) -> u64 {
        self.list().next_life
    }

    /// Lets go of every live segment that was followed by another before `time`: what it holds was written earlier. Returns
    /// the first sequence number still held, when there was any, and when to look again.
    pub(crate) fn expire(&self, context: &Context<'_, S>, time: u64) -> (Option<u64>, u64) {
        let mut list = self.list();
        let mut any = false;
        while list.live.len() > 1 && list.live[1].header.created < time {
            list.drain_front();
            any = true;
        }
        self.passed.fetch_add(u64::from(any), Ordering::Relaxed);
        let next = list.live.get(1).map_or(u64::MAX, |row| row.header.created);
        let first_held = if any { list.first_whole(context.storage).map(|(_, seq)| seq) } else { None };
        if let Some(first_held) = first_held {
            context.given_up.lock().note(GapCause::Expired, first_held);
        }
        (first_held, next)
    }

    /// Lets go of the only live segment, which holds records up to `tail`: its space may be all there is. Messages below
    /// `dropped` are given up with it. Returns where it ends; `None`, and it stays, when it holds nothing and another would be
    /// as long.
    pub(crate) fn retire_tail(&self, context: &Context<'_, S>, tail: Spot, dropped: u64) -> Option<u64> {
        let mut list = self.list();
        let header = list.live.front()?.header;
        let is_idle = tail.position <= header.base && header.length <= context.pool.geometry().segment_len;
        if list.live.len() != 1 || is_idle {
            return None;
        }
        context.given_up.lock().note(GapCause::Dropped, dropped);
        list.retired = tail.seq;
        list.drain_front();
        Some(header.end())
    }

    /// Whether the space of some that are removed is not free, for somebody has them open.
    pub(crate) fn has_removed_open(&self) -> bool {
        self.list().removed.iter().any(|(open, _)| open.strong_count() > 0)
    }

    /// Makes the creations and removals so far durable. Whoever comes while another syncs waits for that: what it needs may
    /// be among what is not durable yet.
    pub(crate) fn sync_directory(&self, storage: &S, index: &Index<S>) -> Result<()> {
        #[cfg(test)]
        if crate::tests::sim::Mutant::DirectoryNotSynced.is_planted() {
            return Ok(());
        }
        let needed = self.list().directory_changes;
        if self.synced_changes.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        let _one_at_a_time = self.syncing_directory.lock();
        if self.synced_changes.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        let changes = self.list().directory_changes;
        index.heed("", || storage.sync_directory())?;
        self.synced_changes.store(changes, Ordering::Release);
        Ok(())
    }
}

/// What one huge page covers where there are any, and the longest folio.
const HUGE_PAGE: u64 = 2 << 20;
/// Windows shorter than that are faulted in by being used.
const FILL_FROM: u64 = 64 << 10;
/// A payload at least that long goes into fresh space by a call: where nothing is filled, ...
pub(crate) const CALL_FROM: u64 = 64 << 10;
/// ... where it would be filled in short pieces, ...
const CALL_FROM_FILLED: u64 = 96 << 10;
/// ... and in long ones.
const CALL_FROM_HUGE: u64 = 256 << 10;
/// Bytes a new segment file is given at first ...
const FIRST_STEP: u64 = 256 << 10;
/// ... and at most at a time, when it grows.
const LARGEST_STEP: u64 = 8 << 20;
