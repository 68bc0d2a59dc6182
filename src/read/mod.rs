//! Reads records: finds the next one, verifies it, delivers it, steps over it.
//!
//! A [`Cursor`] is a spot in the queue with the open segment there, a view of it, and the last
//! record that it found. A consumer owns a cursor under its lock; an iterator owns one that moves
//! ahead of its consumer's.
//!
//! This file has the fast path: a whole record in the [`View`].
//!
//! | File | What it holds | What it does |
//! |---|---|---|
//! | `search` | | finds the next record at segment ends, padding, gaps and damage |
//! | `open_segment` | | enters, crosses and releases segments |
//! | `view` | `View`: a visible range of a segment | maps it, or reads ahead |
//! | `gather` | `Scratch`: a payload outside the view | reads a record in several pieces |
//! | `found_record` | `Record`, `Check` | |
//! | `pass_gaps` | | reports missing numbers as a gap |
//! | `copy_out` | | copies the payload to the caller |
//! | `pause` | `Pause`: the length of the next wait | waits before another look |
//!
//! Bytes that are neither a record, padding nor a gap fragment are damage: the cursor continues at
//! the next intact record, so damage costs only the messages that it touched.

mod copy_out;
mod found_record;
mod gather;
mod open_segment;
mod pass_gaps;
mod pause;
mod search;
mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use copy_out::Then;

use crate::commit::Core;
use crate::error::{Error, Result};
use crate::format::Spot;
use crate::memory::Window;
use crate::segment::Segment;
use crate::storage::{Storage, StorageFile};
pub(crate) use found_record::{Check, Record};
use gather::Scratch;
use pause::Pause;
use view::{Needs, View};

/// A spot in the queue, and the open segment, view and record there.
#[derive(Debug)]
pub(crate) struct Cursor<F> {
    spot: Spot,
    /// Positions below this one are visible.
    limit: u64,
    /// The open segment, if any. It contains the spot, or ends there.
    segment: Option<Arc<Segment<F>>>,
    view: View,
    /// The record at the spot, if an earlier read found and remembered it.
    found: Option<Record>,
    /// The payload of the last record was verified. (Not a field of [`Record`]: a byte among its
    /// words would be stored alone and then copied as part of a word, and that load waits for the
    /// store.)
    verified: bool,
    scratch: Scratch,
    /// The wait before the next look for messages.
    pause: Pause,
    /// The engine must act: see [`take_crossed`](Self::take_crossed).
    crossed: bool,
}

impl<F: StorageFile> Cursor<F> {
    pub(crate) fn new(spot: Spot) -> Cursor<F> {
        Cursor {
            spot,
            limit: 0,
            segment: None,
            view: View::new(),
            found: None,
            verified: false,
            scratch: Scratch::default(),
            pause: Pause::new(),
            crossed: false,
        }
    }

    /// The cursor stands in its open segment, and sees no more than is visible.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check<S: Storage<File = F>>(&self, core: &Core<S>) {
        let end = core.committed().spot();
        let (limit, spot) = (self.limit, self.spot);
        holds!(limit <= end.position, "what is read, to {limit}, is committed, to {end:?}");
        holds!(spot.seq <= end.seq, "the cursor at {spot:?} does not pass the end, {end:?}");
        if let Some(segment) = &self.segment {
            let (base, end) = (segment.header.base, segment.header.end());
            holds!(
                base <= spot.position && spot.position <= end,
                "the cursor at {spot:?} stands in its segment, from {base} to {end}"
            );
        }
        if let Some(record) = &self.found {
            let (seq, end) = (record.seq, record.end);
            holds!(seq == spot.seq, "the record at the cursor, {spot:?}, has the number {seq}");
            holds!(spot.position < end, "the record at {spot:?} ends behind it, at {end}");
            holds!(end <= limit, "the record at {spot:?} ends at {end}, before {limit}");
        }
        self.view.check();
    }

    #[inline(always)]
    pub(crate) fn spot(&self) -> Spot {
        self.spot
    }

    /// Returns the record at the spot, verified and remembered; `None` when there is none yet.
    pub(crate) fn find<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<Option<Record>> {
        self.meet_and_remember(core, Check::Now)
    }

    /// Returns the record at the spot by its header only, and remembers it.
    pub(crate) fn find_header<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
    ) -> Result<Option<Record>> {
        self.meet_and_remember(core, Check::Never)
    }

    fn meet_and_remember<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Result<Option<Record>> {
        let met = self.meet(core, check).map_err(|error| *error)?;
        self.found = met;
        Ok(met)
    }

    /// Returns the record at the spot, its payload verified as `check` says. The caller steps over
    /// it or remembers it.
    ///
    /// The error is boxed so that the result fits registers: the fast path stores nothing to
    /// memory.
    #[inline(always)]
    pub(crate) fn meet<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Result<Option<Record>, Box<Error>> {
        if let Some(record) = self.found
            && self.is_at_hand(record, check)
        {
            return Ok(Some(record));
        }
        if let Some(record) = self.find_quickly(core, check) {
            return Ok(Some(record));
        }
        let found = self.find_slowly(core, check)?;
        Ok(if found { self.found } else { None })
    }

    /// Returns a record that the view alone shows; `None` when the caller must
    /// [`meet`](Self::meet) it, as one that an earlier read remembered.
    #[inline(always)]
    pub(crate) fn meet_quickly<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Option<Record> {
        if self.found.is_some() { None } else { self.find_quickly(core, check) }
    }

    /// As [`meet_quickly`](Self::meet_quickly), and also returns a record that an earlier read
    /// remembered.
    #[inline(always)]
    pub(crate) fn look_quickly<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Option<Record> {
        match self.found {
            None => self.find_quickly(core, check),
            found => found.filter(|record| self.is_at_hand(*record, check)),
        }
    }

    /// Whether the remembered record can be delivered at once. A record outside the window can as
    /// long as the scratch has its payload, even if its segments have been reclaimed.
    #[inline(always)]
    fn is_at_hand(&self, record: Record, check: Check) -> bool {
        match check {
            Check::Never => true,
            _ if record.in_window.is_none() => self.scratch.is_of(record.seq),
            Check::Later => true,
            Check::Now => self.verified,
        }
    }

    /// Whether a visible record begins at the spot. Loads the limit when the spot has reached it.
    #[inline(always)]
    fn look_for_more<S: Storage<File = F>>(&mut self, core: &Core<S>) -> bool {
        if self.spot.position >= self.limit {
            self.limit = core.visible.position.load(Ordering::Acquire);
        }
        self.spot.position < self.limit
    }

    /// Returns a whole record in the view; `None` for anything else, which
    /// [`find_slowly`](Self::find_slowly) handles.
    #[inline(always)]
    fn find_quickly<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Option<Record> {
        if !self.look_for_more(core) {
            return None;
        }
        let segment = self.segment.as_ref()?;
        let record = self.view.whole_record(segment, self.spot, self.limit, check)?;
        self.verified = check == Check::Now;
        Some(record)
    }

    /// Steps over the remembered record.
    pub(crate) fn advance(&mut self) {
        if let Some(record) = self.found {
            self.step_over(record);
        }
    }

    /// Steps over the record at the spot.
    #[inline(always)]
    pub(crate) fn step_over(&mut self, record: Record) {
        holds!(
            record.seq == self.spot.seq && record.end > self.spot.position,
            "the cursor at {:?} steps over the record there: {record:?}",
            self.spot
        );
        self.found = None;
        self.spot = Spot { position: record.end, seq: record.seq + 1 };
        let is_behind = |segment: &Arc<Segment<F>>| segment.header.end() <= record.end;
        if record.in_window.is_none() && self.segment.as_ref().is_some_and(is_behind) {
            // The record's first pieces lie in the open segment, the last one in another.
            self.cross(record.end);
        }
    }

    /// Remembers the record at the spot for the next read.
    #[inline(always)]
    pub(crate) fn remember(&mut self, record: Record) {
        if self.found.is_none() {
            self.found = Some(record);
        }
    }

    /// Whether the payload of the last record was verified.
    #[cfg(feature = "capi")]
    #[inline]
    pub(crate) fn is_verified(&self) -> bool {
        self.verified
    }

    /// Whether a read may lend messages from the window.
    #[inline(always)]
    pub(crate) fn may_lend(&self) -> bool {
        self.view.may_lend()
    }

    /// The view's window, if it has one.
    #[inline(always)]
    pub(crate) fn window(&mut self) -> Option<&mut Window> {
        self.view.window_mut()
    }
}

#[cfg(test)]
mod tests;
