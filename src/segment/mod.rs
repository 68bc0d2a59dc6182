//! The segment allocator: makes segments, hands drained ones out again, removes the surplus.
//!
//! Invariants:
//!
//! - live segments are kept in the order of their positions; each message lies in exactly one;
//! - space is really allocated before anybody may store to it, in steps ahead of the tail;
//! - a drained segment waits in `drained` until a *synced* place of every consumer stands behind it
//!   (rule R8); only then may it be used again or removed;
//! - a segment that anybody still reads from is never used again: it is removed, and its bytes live
//!   until it is let go;
//! - taking space back never needs space.

pub(crate) mod ages;
mod files;
mod fill;
pub(crate) mod geometry;
mod grow;
mod list;
mod names;
mod open;
pub(crate) mod pool;
mod recycle;
pub(crate) mod scan;
mod settle;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, GapCause, Result};
use crate::format::{self, SegmentHeader, Spot};
use crate::index::Index;
use crate::index::losses::GivenUp;
use crate::segment::pool::Pool;
use crate::storage::Storage;

use files::Salts;
pub(crate) use files::{Segment, open_life, overhead, set_aside};
pub(crate) use fill::CALL_FROM;
pub(crate) use list::List;
use names::Names;
#[cfg(test)]
pub(crate) use open::MOST_UNSYNCED_HERE;
pub(crate) use open::{Unsynced, most_unsynced};
use recycle::Recycling;

/// Spare segments kept for reuse while nothing happens, when a segment is at most this long ...
const SMALL_SEGMENT: u64 = 16 << 20;
/// ... and when it is longer.
const SPARES_SMALL: usize = 2;
const SPARES_LARGE: usize = 1;
/// Short segments kept while messages pass: a drained one is free only after a sync, and what is
/// written meanwhile must find others. With fewer, new files are made and removed at full speed, at
/// ten times the cost.
const SPARES_BUSY: usize = 6;
const BUSY_SEGMENT: u64 = 4 << 20;

/// A live segment as the list keeps it: no file, no mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) slot: u32,
    /// `allocated` and `disk` (that and what the filesystem needs to find it) are kept up to date
    /// here.
    pub(crate) header: SegmentHeader,
    /// Zero when nothing was stored to it since it was last synced; else another number each time
    /// that a writer begins to.
    unsynced: u64,
}

impl Row {
    pub(crate) fn new(slot: u32, header: SegmentHeader) -> Row {
        Row { slot, header, unsynced: 0 }
    }
}

/// What the list is made from at opening.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) live: Vec<Row>,
    pub(crate) spares: Vec<Row>,
    /// Live by their headers but of no use: passed by everybody, or begun for a record that was
    /// never committed.
    pub(crate) drained: Vec<Row>,
    /// Slots whose names are taken by something else.
    pub(crate) foreign_slots: Vec<u32>,
    pub(crate) next_life: u64,
    /// Everything below that number was given back, and the disk knows.
    pub(crate) held: u64,
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
    /// As in the header.
    pub(crate) created: u64,
    pub(crate) until: u64,
}

/// Limits on disk space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_bytes: Option<u64>,
    pub(crate) min_free_bytes: u64,
}

impl Limits {
    /// Nobody counts the bytes.
    fn are_none(&self) -> bool {
        self.max_bytes.is_none() && self.min_free_bytes == 0
    }

    /// Where nobody counts the bytes spares are kept for busy times.
    fn pace(&self) -> Pace {
        if self.are_none() { Pace::Busy } else { Pace::Idle }
    }
}

/// Whether drained segments are about to give their space back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coming {
    Space,
    Nothing,
}

/// For which times spares are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Busy,
    Idle,
}

/// How many segments of that length are kept for reuse.
fn spares_wanted(length: u64, pace: Pace) -> usize {
    match length {
        0..=BUSY_SEGMENT if pace == Pace::Busy => SPARES_BUSY,
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
    /// What was given up and why. Noted before a segment with such messages can be seen to be
    /// drained, and known on disk before it goes.
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

    /// Before segments are changed.
    fn begin_changing(&self) -> Result<()> {
        let path = || self.storage.path().join(format::INDEX_NAME);
        self.index.begin_changing().map_err(|error| Error::io("write", path(), error))
    }
}

#[derive(Debug)]
pub(crate) struct Segments<S: Storage> {
    list: Mutex<List<S::File>>,
    /// One thread at a time hands drained segments on and makes spares; whoever needs their space
    /// waits for it. True once the files may be another owner's: then nothing is done to them any
    /// more.
    settling: Mutex<bool>,
    /// As many of the list's `directory_changes` are durable. Set when a sync has succeeded, never
    /// before.
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
                unsynced: Vec::new(),
                stores: 0,
                recycling: Recycling::new(found.drained, found.spares, found.held),
                drained_up_to: 0,
                seen: None,
                names: Names {
                    slots,
                    next_life: found.next_life,
                    salts: Salts::default(),
                    other_bytes: found.other_bytes,
                    changes: 1,
                    rows_complete: found.rows_complete,
                },
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
    pub(crate) fn append(
        &self,
        context: &Context<'_, S>,
        plan: Plan,
    ) -> Result<Arc<Segment<S::File>>> {
        let short = {
            let list = self.list();
            list.recycling.spares.is_empty()
                && !(context.limits.are_none()
                    && list.recycling.drained.len() + list.recycling.in_transit.len() < SPARES_BUSY)
        };
        if short {
            self.settle(context)?;
        }
        // Otherwise the keeper is about to settle: a new file now is another spare later, and waits
        // for no sync.
        self.with_room(context, |list, _| list.append(context, plan))
    }

    /// Tries until there is room or nothing is given back any more: what is drained gives its space
    /// back first. Whether there is any, which the attempt is told, is asked under the lock under
    /// which there is no room; else the keeper may have handed it on in between, and a queue that
    /// is empty by now would be called full.
    fn with_room<R>(
        &self,
        context: &Context<'_, S>,
        mut attempt: impl FnMut(&mut List<S::File>, Coming) -> Result<R>,
    ) -> Result<R> {
        let mut stuck = false;
        loop {
            let mut list = self.list();
            let coming = if !stuck && list.has_drained() { Coming::Space } else { Coming::Nothing };
            match attempt(&mut list, coming) {
                Err(error) if error.is_full() && coming == Coming::Space => {}
                done => return done,
            }
            let seen = list.recycling.given_back;
            drop(list);
            self.settle(context)?;
            stuck = self.list().recycling.given_back == seen;
        }
    }

    /// What the process before this one stored and did not sync, between two positions, is to be
    /// synced by the next flush, through descriptors that are open from now on: the system tells an
    /// error in writing it to one that is opened later only if nobody was told before, and if it
    /// still remembers the file.
    pub(crate) fn note_found_unsynced(&self, storage: &S, from: u64, to: u64) {
        let mut list = self.list();
        let first = list.live.partition_point(|row| row.header.end() <= from);
        for at in first..list.live.len() {
            if list.live[at].header.base >= to {
                break;
            }
            list.stores += 1;
            list.live[at].unsynced = list.stores;
            let row = list.live[at];
            if list.unsynced.len() < most_unsynced(row.header.length)
                && let Ok(segment) = list.open(storage, &row)
            {
                list.unsynced.push(segment);
            }
        }
    }

    /// Lets go of all descriptors, at the end of a run.
    pub(crate) fn close_unsynced(&self) {
        self.list().unsynced.clear();
    }

    /// How often readers or ages let go of segments; for [`regain`](Self::regain).
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    fn note_passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// Has drained segments give their space back. True when readers or ages let go of any since
    /// `seen`: a writer that found no room since looks again. What a refused record gave back
    /// itself is no reason to.
    pub(crate) fn regain(&self, context: &Context<'_, S>, seen: u64) -> Result<bool> {
        if self.list().has_drained() {
            self.settle(context)?;
        }
        Ok(self.passed() != seen)
    }

    /// Allocates space up to file offset `end`, and some ahead while there is room.
    pub(crate) fn extend(
        &self,
        context: &Context<'_, S>,
        segment: &Segment<S::File>,
        end: u64,
    ) -> Result<()> {
        if end.min(segment.header.length) <= segment.allocated() {
            return Ok(());
        }
        self.with_room(context, |list, coming| list.extend(context, segment, end, coming))
    }

    /// Lets go of every live segment that ends at or before `position`; the last one stays, it
    /// takes new records. True when there was any.
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

    /// Gives up the oldest live segment, if it is not the last one. Returns the first sequence
    /// number still held.
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

    /// Lets go of every live segment that begins behind `position`: a record was begun there and
    /// given up.
    pub(crate) fn drain_behind(&self, position: u64) -> bool {
        let mut list = self.list();
        let mut any = false;
        while list.live.back().is_some_and(|row| row.header.base > position) {
            let Some(row) = list.live.pop_back() else {
                break;
            };
            list.drain(row);
            any = true;
        }
        any
    }

    pub(crate) fn next_life(&self) -> u64 {
        self.list().names.next_life
    }

    /// Lets go of the only live segment, which holds records up to `tail`: its space may be all
    /// there is. Messages below `given_up` are given up with it, for that cause. Returns where it
    /// ends; `None`, and it stays, when it holds nothing and another would be as long.
    pub(crate) fn drain_tail(
        &self,
        context: &Context<'_, S>,
        tail: Spot,
        cause: GapCause,
        given_up: u64,
    ) -> Option<u64> {
        let mut list = self.list();
        let header = list.live.front()?.header;
        let is_idle =
            tail.position <= header.base && header.length <= context.pool.geometry().segment_len;
        if list.live.len() != 1 || is_idle {
            return None;
        }
        context.given_up.lock().note(cause, given_up);
        list.drained_up_to = tail.seq;
        if let Some(open) = list.opened(header.life) {
            // Whoever stands in it goes on behind it.
            open.end_at(tail.position);
        }
        list.drain_front();
        Some(header.end())
    }

    /// Whether the space of some that are removed is not free, for somebody has them open.
    pub(crate) fn has_removed_open(&self) -> bool {
        self.list().recycling.removed.iter().any(|(open, _)| open.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests;
