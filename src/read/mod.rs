//! The way out: find the next record, verify it, hand it on, step over it.
//!
//! A [`Cursor`] is a spot in the queue with what is at hand there: the open segment, a view of it,
//! the record that was found last. A consumer owns a cursor under its lock; an iterator owns one
//! that moves ahead of its consumer's.
//!
//! The quick way stands in this file: a whole record that lies in the [`View`]. The rest:
//!
//! - `search`: the spot may also be at the end of what is visible, the end of a segment, padding,
//!   or a recorded gap. Anything else there is damage: the cursor goes on at the next intact
//!   record, so damage costs no more than the messages it touched.
//! - `segments`: enters, crosses and releases segments.
//! - `view`: shows a stretch of a segment, mapped or read ahead.
//! - `gather`: reads a record in several pieces into the [`Scratch`], by calls.
//! - `gaps`: reports numbers that are passed over.
//! - `copy`: copies the payload to the caller.
//! - `pause`: how long a reader waits before it looks again.

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

/// A spot in the queue, and what is at hand there.
#[derive(Debug)]
pub(crate) struct Cursor<F> {
    spot: Spot,
    /// Positions below this one are known to be visible.
    limit: u64,
    /// The segment that is open, if any. It contains the spot, or ends there.
    segment: Option<Arc<Segment<F>>>,
    view: View,
    /// The record at the spot, when it was found before and is remembered.
    found: Option<Record>,
    /// The payload of the record that was met last was checked. (Not a field of [`Record`]: a byte
    /// among its words would be stored alone and then copied as part of a word, and that load waits
    /// for the store.)
    verified: bool,
    scratch: Scratch,
    /// The wait before the next look for messages.
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

    /// The record at the spot, checked and remembered; `None` when there is none yet.
    pub(crate) fn find<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<Option<Record>> {
        self.meet_and_remember(core, Check::Now)
    }

    /// As [`find`](Self::find), by the record's header alone.
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

    /// The record at the spot, its payload checked as `check` says. The caller steps over it or
    /// remembers it.
    ///
    /// The error is boxed so that the result fits registers: the quick way stores nothing to
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

    /// Whether the remembered record can be delivered as it is. A record outside the window is at
    /// hand while the scratch has its payload, even if its segments are gone meanwhile.
    #[inline(always)]
    fn is_at_hand(&self, record: Record, check: Check) -> bool {
        match check {
            Check::Never => true,
            _ if record.in_window.is_none() => self.scratch.is_of(record.seq),
            Check::Later => true,
            Check::Now => self.verified,
        }
    }

    /// A whole record that lies in the view; `None` for anything else, which
    /// [`find_slowly`](Self::find_slowly) deals with.
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

    /// Steps over the remembered record.
    pub(crate) fn advance(&mut self) {
        if let Some(record) = self.found {
            self.step_over(record);
        }
    }

    /// Steps over the record at the spot.
    #[inline(always)]
    pub(crate) fn step_over(&mut self, record: Record) {
        self.found = None;
        self.spot = Spot { position: record.end, seq: record.seq + 1 };
        let is_behind = |segment: &Arc<Segment<F>>| segment.header.end() <= record.end;
        if record.in_window.is_none() && self.segment.as_ref().is_some_and(is_behind) {
            // The record's first pieces lie in the open segment, its last one in another.
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

    /// Whether the payload of the record that was met last was checked.
    #[cfg(feature = "capi")]
    #[inline]
    pub(crate) fn is_verified(&self) -> bool {
        self.verified
    }

    /// Whether messages may be lent from the window.
    #[inline(always)]
    pub(crate) fn may_lend(&self) -> bool {
        self.view.may_lend()
    }

    /// The view's window, if it shows one.
    #[inline(always)]
    pub(crate) fn window(&mut self) -> Option<&mut Window> {
        self.view.window_mut()
    }
}

#[cfg(test)]
mod tests;
