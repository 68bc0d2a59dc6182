//! Opens the segment that contains a cursor's spot, and leaves it at its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pass_gaps::pass_to_first;
use super::{Cursor, Needs};
use crate::commit::Core;
use crate::error::Result;
use crate::format::Spot;
use crate::segment::{Row, Segment, present};
use crate::storage::{Storage, StorageFile};

impl<F: StorageFile> Cursor<F> {
    /// Opens the segment that contains the spot, or else the next one after it, and reports numbers
    /// missing before it as a gap. `None` when there is no such segment.
    pub(super) fn enter_segment<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
    ) -> Result<Option<Arc<Segment<F>>>> {
        if let Some(segment) = &self.segment {
            let end = segment.header.end();
            if self.spot.position < end {
                return Ok(Some(Arc::clone(segment)));
            }
            self.cross(end);
        }
        let Some((row, segment)) = self.open_segment(core)? else {
            return Ok(None);
        };
        let before = self.spot.position;
        self.segment = Some(Arc::clone(&segment));
        self.spot.position = before.max(row.header.base);
        if self.spot.position == row.header.base && self.spot.seq < row.header.first_seq {
            let reported = pass_to_first(&mut self.spot, &core.gaps, &row.header);
            if self.spot.seq < row.header.first_seq {
                // More numbers are missing, for another cause. The position stays before the
                // segment: after a power cut some of them may exist again.
                self.release();
                self.spot.position = before;
            }
            reported?;
        }
        Ok(Some(segment))
    }

    /// Opens the segment that contains the spot, or else the next one.
    fn open_segment<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
    ) -> Result<Option<(Row, Arc<Segment<F>>)>> {
        let Spot { position, .. } = self.spot;
        loop {
            let mut list = core.segments.list();
            // A segment that begins after the visible end may have no committed record: the writer
            // may discard it, and begin another one there.
            let is_visible = |row: &Row| row.header.base < self.limit;
            let Some(row) = list.at(position).filter(is_visible) else {
                return Ok(None);
            };
            let opened = list.open(&core.storage, &row);
            let Some(segment) = present(&core.storage, row.slot, opened)? else {
                list.look_for(&core.storage, &core.index, row.header.life);
                continue;
            };
            if list.has_many_open() {
                // The engine has the other consumers release their segments.
                core.many_open.store(true, Ordering::Relaxed);
                self.crossed = true;
            }
            return Ok(Some((row, segment)));
        }
    }

    /// Has the view show the bytes at the spot, if the pool allows.
    pub(super) fn look<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        segment: &Segment<F>,
    ) -> Result<()> {
        reached!("between a segment and its window");
        if self.view.show(core, segment, self.spot.position, self.limit)? == Needs::Window {
            // The engine has idle consumers release their windows.
            core.window_wanted.store(true, Ordering::Relaxed);
            self.crossed = true;
        }
        Ok(())
    }

    /// Leaves the segment that ends at `end`.
    pub(super) fn cross(&mut self, end: u64) {
        holds!(
            self.segment.as_ref().is_none_or(|segment| segment.header.end() <= end),
            "the cursor leaves a segment that ends at {end} or before"
        );
        self.spot.position = self.spot.position.max(end);
        self.crossed = true;
        self.release();
    }

    /// Whether the engine must act: this cursor crossed the end of a segment, or needs a window or
    /// a descriptor. Clears the flag.
    #[inline]
    pub(crate) fn take_crossed(&mut self) -> bool {
        std::mem::take(&mut self.crossed)
    }

    /// The end of the open segment; the spot's position if none is open.
    pub(crate) fn segment_end(&self) -> u64 {
        self.segment.as_ref().map_or(self.spot.position, |segment| segment.header.end())
    }

    /// The life of the open segment.
    pub(crate) fn segment_life(&self) -> Option<u64> {
        self.segment.as_ref().map(|segment| segment.header.life)
    }

    /// Clears a view without a window, or with one from which no message may be lent: the next read
    /// asks for a better one.
    pub(crate) fn reconsider_window(&mut self) {
        if self.view.may_improve() {
            self.view.clear();
            self.found = None;
        }
    }

    /// Releases the segment and the view; keeps the spot.
    pub(crate) fn release(&mut self) {
        self.view.clear();
        self.segment = None;
        self.found = None;
    }

    /// Moves to `spot`.
    pub(crate) fn move_to(&mut self, spot: Spot) {
        self.release();
        self.spot = spot;
        self.limit = 0;
        self.scratch.forget();
    }
}
