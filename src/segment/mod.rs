//! The segment allocator: creates segment files, reuses drained ones, removes surplus ones.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `list` | every segment of the queue, under one lock | finds a segment, counts disk bytes |
//! | `row`, `files` | a segment without its file; an open segment file | reads headers, quarantines files |
//! | `names` | file names in use, the next life, random salts | counts changes of the directory |
//! | `geometry` | lengths of segments and windows | chooses the next segment's length |
//! | `context` | limits and settings for one call | says how many spares to keep |
//! | `grow`, `fill` | | creates files, allocates space, fills it with zeros |
//! | `open` | open files of live segments | tells a flush which segments to sync |
//! | `recycling`, `recycle` | drained and spare segments, transfers | turns drained segments into spares |
//! | `reclaim` | | carries transfers out, makes spares ahead, syncs the directory |
//! | `headroom` | | evicts the oldest segments before their space is needed |
//! | `ages`, `undated` | message ages | evicts segments whose messages all expired |
//! | `early` | | shortens the files of segments that `max_age` closed early |
//! | `pool` | mapped windows of segment files | maps, shares and unmaps windows |
//! | `scan`, `seed` | a read buffer | checks fragments by read calls; recomputes a lost checksum seed |
//! | `lies` | | says what lies at a spot, and where the next intact fragment does |
//!
//! Invariants:
//!
//! - Live segments are listed in the order of their positions. They do not overlap.
//! - A producer stores only to space that the file system has allocated; it is allocated in steps
//!   ahead of the tail.
//! - A drained segment stays in `drained` until every consumer's *synced* position is past it (rule
//!   R8). Only then may the storage worker reuse or remove it.
//! - A segment that a reader still has open is never reused: its file is removed, and its bytes
//!   stay on the disk until the reader closes it.
//! - Freeing space never needs space.

pub(crate) mod ages;
mod context;
mod early;
mod files;
mod fill;
pub(crate) mod geometry;
mod grow;
mod headroom;
pub(crate) mod lies;
pub(crate) mod list;
mod names;
mod open;
pub(crate) mod pool;
mod reclaim;
mod recycle;
mod recycling;
mod row;
pub(crate) mod scan;
pub(crate) mod seed;
mod undated;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{GapCause, Result};
use crate::format::Spot;
use crate::storage::Storage;
use crate::threads::ranks::{Rank, ranked};
use crate::threads::{AtomicU64, Mutex, MutexGuard};

use context::SPARES_BUSY;
pub(crate) use context::{Context, DiskLimits, Plan, Reclaims};
pub(crate) use files::{
    Opened, Segment, header_in, lost, open_and_compare, open_life, overhead, quarantine,
    read_header,
};
use files::{Salts, handed_on};
pub(crate) use fill::CALL_FROM;
pub(crate) use headroom::RoomAhead;
pub(crate) use list::List;
use names::Names;
#[cfg(test)]
pub(crate) use open::MOST_UNSYNCED_HERE;
pub(crate) use open::Unsynced;
use recycling::Recycling;
pub(crate) use row::{Found, Lost, Row, present};

/// Whether drained segments are about to free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coming {
    Space,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Segments<S: Storage> {
    list: Mutex<List<S::File>>,
    /// Held by the one thread that reclaims or makes spares; a thread that needs the space waits
    /// for it. True after the queue was closed: another process may own the files by then, so this
    /// queue changes them no more.
    reclaiming: Mutex<bool>,
    /// How many of the `directory_changes` are durable. Stored after a sync has succeeded.
    synced_changes: AtomicU64,
    syncing_directory: Mutex<()>,
    /// How often segments were drained because consumers passed them, their messages expired, or
    /// the storage worker made room ahead of need. Changed under the list's lock.
    passed: AtomicU64,
}

impl<S: Storage> Segments<S> {
    /// Builds the list from the segments that recovery `found`. Live segments that recovery
    /// `opened` stay open.
    pub(crate) fn new(found: Found, opened: Vec<Opened<S::File>>) -> Segments<S> {
        let handed_on = handed_on(&found.live, opened);
        let rows = found.live.iter().chain(&found.spares).chain(&found.drained);
        let slots = rows.map(|row| row.slot).chain(found.foreign_slots.iter().copied()).collect();
        Segments {
            list: ranked(
                Rank::Segments,
                List {
                    live: found.live.into(),
                    open: handed_on
                        .iter()
                        .map(|open| (open.header.life, Arc::downgrade(open)))
                        .collect(),
                    kept_open: Vec::new(),
                    handed_on,
                    last_store: 0,
                    recycling: Recycling::new(found.drained, found.spares, found.retained_from),
                    drained_up_to: found.end,
                    unclaimed_from: Some(found.unclaimed_from),
                    undated_tail: None,
                    headroom: 1,
                    is_watched: false,
                    names: Names {
                        slots,
                        next_life: found.next_life,
                        salts: Salts::default(),
                        other_bytes: found.other_bytes,
                        directory_changes: 1,
                        rows_complete: found.rows_complete,
                        #[cfg(any(test, fuzzing, mmq_holds))]
                        are_doubtful: false,
                    },
                },
            ),
            reclaiming: ranked(Rank::Reclaiming, false),
            synced_changes: AtomicU64::new(0),
            syncing_directory: Mutex::new(()),
            passed: AtomicU64::new(0),
        }
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, List<S::File>> {
        self.list.lock()
    }

    /// Makes the next segment of the queue from a spare, or else from a new file.
    pub(crate) fn append(
        &self,
        context: &Context<'_, S>,
        plan: Plan,
    ) -> Result<Arc<Segment<S::File>>> {
        let short = {
            let list = self.list();
            list.spares_of(list.next_len(context.pool.geometry(), &plan)) == 0
                && !(context.limits.are_none()
                    && list.recycling.drained.len() + list.recycling.in_transit.len() < SPARES_BUSY)
        };
        if short {
            context.reclaims.have_reclaimed()?;
        }
        // Otherwise the storage worker reclaims soon. A new file saves the producer that sync, and
        // becomes one more spare later.
        self.with_room(context, |list, _| list.append(context, plan))
    }

    /// Calls `attempt` until it finds room, or until reclaiming frees no more space. Reads the
    /// argument of `attempt` (whether space is coming) under the same lock as the attempt.
    fn with_room<R>(
        &self,
        context: &Context<'_, S>,
        mut attempt: impl FnMut(&mut List<S::File>, Coming) -> Result<R>,
    ) -> Result<R> {
        let mut stuck = false;
        loop {
            let mut list = self.list();
            let coming = if !stuck && list.has_drained() { Coming::Space } else { Coming::Nothing };
            if planted!(ComingAskedApart) {
                drop(list);
                list = self.list();
            }
            match attempt(&mut list, coming) {
                Err(error) if error.is_full() && coming == Coming::Space => {}
                done => return done,
            }
            let seen = list.recycling.given_back;
            drop(list);
            context.reclaims.have_reclaimed()?;
            stuck = self.list().recycling.given_back == seen;
        }
    }

    /// Returns how often segments were drained by consumers, by age, or ahead of need (for
    /// [`regain`](Self::regain)).
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    fn note_passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// Reclaims drained segments. Returns whether consumers, ages or the storage worker drained any
    /// since [`passed`](Self::passed) returned `seen`: then a writer that found no room tries
    /// again. Space that a rejected record itself frees is no reason to try again.
    pub(crate) fn regain(&self, context: &Context<'_, S>, seen: u64) -> Result<bool> {
        context.reclaims.have_reclaimed()?;
        Ok(self.passed() != seen)
    }

    /// Allocates the file's space up to offset `end`, and some beyond it while there is room.
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

    /// Drains every live segment that ends at or before `position`, except the last one, which
    /// takes new records. Returns whether it drained any.
    pub(crate) fn drain(&self, position: u64) -> bool {
        let mut list = self.list();
        let mut any = false;
        while list.live.len() > 1 && list.live[0].header.end() <= position {
            list.drain_front();
            any = true;
        }
        self.passed.fetch_add(u64::from(any), Ordering::Relaxed);
        check!(list.check());
        any
    }

    /// Evicts the oldest live segment, unless it is the last one. Returns the first sequence
    /// number that is still in the queue.
    pub(crate) fn drop_oldest(&self, context: &Context<'_, S>) -> Option<u64> {
        let mut list = self.list();
        if list.live.len() < 2 {
            return None;
        }
        list.drain_front();
        let first_held = list.first_seq()?;
        context.evicted.lock().note(GapCause::Dropped, first_held);
        check!(list.check());
        Some(first_held)
    }

    /// Drains every live segment that begins behind `position`: a writer began it for a record that
    /// was rolled back. Returns whether it drained any.
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
        check!(list.check());
        any
    }

    pub(crate) fn next_life(&self) -> u64 {
        self.list().names.next_life
    }

    /// Drains the only live segment, whose records end at `tail`: no other space may be left. Notes
    /// that messages below `evicted` were evicted for `cause`. Returns the position where the
    /// segment ends. Returns `None` and drains nothing when other segments are live, or when the
    /// segment is empty and the next one would not be shorter.
    pub(crate) fn drain_tail(
        &self,
        context: &Context<'_, S>,
        tail: Spot,
        cause: GapCause,
        evicted: u64,
    ) -> Option<u64> {
        let mut list = self.list();
        let header = list.live.front()?.header;
        let is_idle =
            tail.position <= header.base && header.length <= context.pool.geometry().least_len;
        if list.live.len() != 1 || is_idle {
            return None;
        }
        context.evicted.lock().note(cause, evicted);
        list.drained_up_to = tail.seq;
        if let Some(open) = list.opened(header.life) {
            // A consumer whose position is in this segment continues behind it.
            open.end_at(tail.position);
        }
        list.drain_front();
        check!(let (base, end) = (header.base, header.end()));
        holds!(
            base <= tail.position,
            "the tail {tail:?} lies in the only segment, which goes, or behind it: {base} to {end}"
        );
        check!(list.check());
        Some(header.end())
    }

    /// Returns whether a reader has a removed segment open, so that its space is not free yet.
    pub(crate) fn has_removed_open(&self) -> bool {
        self.list().recycling.removed.iter().any(|(open, _)| open.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests;
