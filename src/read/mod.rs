//! The way out: find the next record, verify it, hand it on, step over it.
//!
//! A [`Cursor`] is a spot in the queue with what is at hand there: the open segment, a view of it,
//! the record that was found last. A consumer owns a cursor under its lock; an iterator owns one
//! that moves ahead of its consumer's.
//!
//! The quick way stands in this file: a whole record that lies in the [`View`]. For all else:
//!
//! - `search`: what lies at the spot may also be the end of what is visible, the end of a segment,
//!   padding, a recorded gap, or something that is none of these. Then the bytes are damaged, and
//!   the cursor goes on at the next intact record: damage costs what it touched.
//! - `segments`: the segment that is entered, crossed, let go of.
//! - `gather`: a record in several pieces comes into the [`Scratch`] by calls.
//! - `gaps`: numbers that are passed over are told.
//! - `copy`: the payload leaves the cursor.

mod copy;
mod gaps;
mod gather;
mod pause;
mod search;
mod segments;
mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use copy::Then;

use crate::commit::Core;
use crate::error::{Error, Result};
use crate::format::Spot;
use crate::memory::Window;
use crate::segment::Segment;
use crate::storage::{Storage, StorageFile};
use gather::Scratch;
use pause::Pause;
use view::{Needs, View};

/// A record that was found at a cursor's spot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) seq: u64,
    /// Payload bytes, all fragments together.
    pub(crate) len: u64,
    /// Offset of the payload in the cursor's window, when it lies there in one piece.
    pub(crate) in_window: Option<usize>,
    /// The position behind the record.
    end: u64,
    /// For a record that lies in the window: the state its payload's checksum continues from ...
    begins: u32,
    /// ... and the state in which the checksum has to end.
    ends: u32,
}

/// When the payload of a record is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// When it is found.
    Now,
    /// By the copy that delivers it, unless it had to be read to be found.
    Later,
    /// Nobody reads it.
    Never,
}

/// A spot in the queue, and what is at hand there.
#[derive(Debug)]
pub(crate) struct Cursor<F> {
    spot: Spot,
    /// Positions below it are known to be visible.
    limit: u64,
    segment: Option<Arc<Segment<F>>>,
    view: View,
    /// The record at the spot, as it was found and not stepped over.
    found: Option<Record>,
    /// The payload of the record that was met last was checked. (Not a part of [`Record`], whose
    /// fields all are words: copying bytes that were just stored as others waits for the store.)
    verified: bool,
    scratch: Scratch,
    /// For the next time that nothing has come yet.
    pause: Pause,
    /// The engine has something to do: see [`take_crossed`](Self::take_crossed).
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

    #[inline(always)]
    pub(crate) fn spot(&self) -> Spot {
        self.spot
    }

    /// The record at the spot, checked; `None` when there is none yet.
    pub(crate) fn find<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<Option<Record>> {
        self.meet_and_remember(core, Check::Now)
    }

    /// The record at the spot by its header alone.
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

    /// The record at the spot, its payload checked as `check` says. To be stepped over or
    /// remembered.
    ///
    /// The error is boxed: a result that fits registers spares the quick way a detour through
    /// memory.
    #[inline(always)]
    pub(crate) fn meet<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Result<Option<Record>, Box<Error>> {
        if let Some(record) = self.found
            && self.is_at_hand(&record, check)
        {
            return Ok(Some(record));
        }
        if let Some(record) = self.find_quickly(core, check) {
            return Ok(Some(record));
        }
        let found = self.find_slowly(core, check)?;
        Ok(if found { self.found } else { None })
    }

    /// Whether the record that was found can be delivered without being looked for again. The
    /// pieces of one that does not lie in the window are at hand until they are given away; they
    /// may be gone from the queue since.
    #[inline(always)]
    fn is_at_hand(&self, record: &Record, check: Check) -> bool {
        match check {
            Check::Never => true,
            _ if record.in_window.is_none() => self.scratch.is_of(record.seq),
            Check::Later => true,
            Check::Now => self.verified,
        }
    }

    /// A whole record that lies in the view. Anything else is left to
    /// [`find_slowly`](Self::find_slowly).
    #[inline(always)]
    fn find_quickly<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Option<Record> {
        if self.spot.position >= self.limit {
            self.limit = core.visible.position.load(Ordering::Acquire);
            if self.spot.position >= self.limit {
                return None;
            }
        }
        let segment = self.segment.as_ref()?;
        let record = self.view.whole_record(segment, self.spot, self.limit, check)?;
        self.verified = check == Check::Now;
        Some(record)
    }

    /// Steps over the record that was found.
    pub(crate) fn advance(&mut self) {
        if let Some(record) = self.found {
            self.step_over(&record);
        }
    }

    /// Steps over the record at the spot.
    #[inline(always)]
    pub(crate) fn step_over(&mut self, record: &Record) {
        self.found = None;
        self.spot = Spot { position: record.end, seq: record.seq + 1 };
        let is_behind = |segment: &Arc<Segment<F>>| segment.header.end() <= record.end;
        if record.in_window.is_none() && self.segment.as_ref().is_some_and(is_behind) {
            // A record in several pieces: the segments of the first ones are behind.
            self.cross(record.end);
        }
    }

    /// Remembers the record at the spot for the next read.
    #[inline(always)]
    pub(crate) fn remember(&mut self, record: &Record) {
        if self.found.is_none() {
            self.found = Some(*record);
        }
    }

    /// The payload of the record that was met last was checked.
    #[cfg(feature = "capi")]
    #[inline]
    pub(crate) fn is_verified(&self) -> bool {
        self.verified
    }

    /// Messages may be lent from the window.
    #[inline(always)]
    pub(crate) fn may_lend(&self) -> bool {
        self.view.may_lend()
    }

    /// The window the record lies in.
    #[inline(always)]
    pub(crate) fn window(&mut self) -> Option<&mut Window> {
        self.view.window_mut()
    }
}

#[cfg(test)]
mod tests;
