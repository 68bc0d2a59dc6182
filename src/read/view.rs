//! The bytes of a segment that a cursor reads without a call: mapped, or read ahead.

use crate::error::{Error, Result};
use crate::format::{FRAGMENT_HEADER_LEN, Fragment, FragmentWords, SEGMENT_HEADER_LEN, Spot};
use crate::memory::Window;
use crate::read::found_record::{Check, Record};
use crate::segment::Segment;
use crate::segment::pool::User;
use crate::state::State;
use crate::storage::{Storage, StorageFile};

/// The bytes of one read-ahead.
const READ_AHEAD: usize = 64 << 10;

/// A view of one range of a segment. With an empty view the cursor reads records by calls.
#[derive(Debug)]
pub(super) struct View {
    window: Option<Window>,
    /// The position of the window's first byte.
    base: u64,
    /// The end of the view: a record that ends here or before lies in the window. 0 without a
    /// window.
    end: u64,
    backing: Backing,
    /// The base of the window for which the engine last asked idle consumers to release theirs.
    asked_at: u64,
    /// The buffer for reading ahead, while the view does not use it.
    buffer: Option<Window>,
}

/// The source of a view's bytes, which decides what a read may do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backing {
    Nothing,
    /// A window of the pool from which messages may be lent.
    Lendable,
    /// A window of the pool from which no message may be lent: the pool has too few.
    CopyOnly,
    /// The cursor's own buffer, read ahead.
    ReadAhead,
}

/// What a view needs to improve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// That idle consumers release their windows. Requested once for each window.
    Window,
}

impl View {
    /// What is seen lies in the window, of which there is one if anything is seen.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check(&self) {
        let has_window = self.window.is_some();
        holds!(
            has_window == (self.backing != Backing::Nothing),
            "a view of {:?} has a window or none: {has_window}",
            self.backing
        );
        let (len, seen) = (self.window.as_ref().map_or(0, Window::len) as u64, self.end);
        let bytes = seen.wrapping_sub(self.base);
        holds!(
            seen == 0 || bytes <= len,
            "what is seen, from {} to {seen}, lies in a window of {len} bytes",
            self.base
        );
    }

    pub(super) fn new() -> View {
        View {
            window: None,
            base: 0,
            end: 0,
            backing: Backing::Nothing,
            asked_at: u64::MAX,
            buffer: None,
        }
    }

    #[inline(always)]
    pub(super) fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    #[inline(always)]
    pub(super) fn window_mut(&mut self) -> Option<&mut Window> {
        self.window.as_mut()
    }

    #[inline(always)]
    pub(super) fn may_lend(&self) -> bool {
        self.backing == Backing::Lendable
    }

    #[cfg(test)]
    pub(super) fn is_ahead(&self) -> bool {
        self.backing == Backing::ReadAhead
    }

    #[cfg(test)]
    pub(super) fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Whether a lendable window would be better than the present view.
    pub(super) fn may_improve(&self) -> bool {
        matches!(self.backing, Backing::Nothing | Backing::CopyOnly)
    }

    /// A whole record of `segment` that begins at `spot`, ends at or below `limit`, and lies in the
    /// view. `None` for anything else, even if intact.
    #[inline(always)]
    pub(super) fn whole_record<F: StorageFile>(
        &self,
        segment: &Segment<F>,
        spot: Spot,
        limit: u64,
        check: Check,
    ) -> Option<Record> {
        let limit = limit.min(self.end);
        if spot.position + FRAGMENT_HEADER_LEN > limit {
            return None;
        }
        let window = self.window.as_ref()?;
        let offset = spot.position.wrapping_sub(self.base) as usize;
        let [first, second] = window.load_pair(offset);
        let words = FragmentWords(first, second);
        let in_segment = spot.position - segment.header.base;
        let (len, total, header_sum) =
            Fragment::decode_whole(words, segment.seed, in_segment, spot.seq)?;
        let end = spot.position + total;
        if end > limit {
            return None;
        }
        let payload = offset + FRAGMENT_HEADER_LEN as usize;
        let record = Record {
            seq: spot.seq,
            len: len.into(),
            in_window: Some(payload),
            end,
            header_sum,
            sum: words.sum(),
        };
        let holds = check != Check::Now || record.has(window.sum(payload, len as usize));
        holds.then_some(record)
    }

    /// Shows the bytes at `position` of `segment`, which are visible up to `limit`: a window of the
    /// pool, or nothing if the pool grants none. If windows are shorter than a segment and at least
    /// a whole one is visible ahead, reads ahead instead.
    pub(super) fn show<S: Storage>(
        &mut self,
        state: &State<S>,
        segment: &Segment<S::File>,
        position: u64,
        limit: u64,
    ) -> Result<Needs> {
        let geometry = state.pool.geometry();
        if geometry.window_len < geometry.most_len && limit - position >= geometry.window_len {
            return self.read_ahead(state, segment, position, limit).map(|()| Needs::Nothing);
        }
        let offset = segment.offset(position);
        let zero = segment.header.base.wrapping_sub(SEGMENT_HEADER_LEN);
        let end = |window: &Window, base: u64| {
            let start = base.wrapping_sub(zero);
            let valid = (start + window.len() as u64).min(segment.allocated()).max(start) - start;
            base.wrapping_add(valid).min(segment.header.end())
        };
        if let Some(window) = &self.window
            && self.backing != Backing::ReadAhead
            && position.wrapping_sub(self.base) < window.len() as u64
        {
            // The same window, but more of it may be allocated by now.
            self.end = end(window, self.base);
            return Ok(Needs::Nothing);
        }
        self.clear();
        let arena = offset / geometry.window_len * geometry.window_len;
        if arena >= segment.allocated() {
            return Ok(Needs::Nothing);
        }
        let (life, length) = (segment.header.life, segment.header.length);
        let allocated = || segment.allocated();
        let pool = &state.pool;
        if let Some(granted) =
            pool.get(&segment.file, life, offset, length, allocated, User::Reader)
        {
            self.base = zero.wrapping_add(granted.start);
            self.end = end(&granted.window, self.base);
            self.backing = if granted.lending { Backing::Lendable } else { Backing::CopyOnly };
            self.window = Some(granted.window);
        }
        let base = zero.wrapping_add(arena);
        if self.may_lend() || self.asked_at == base {
            return Ok(Needs::Nothing);
        }
        self.asked_at = base;
        Ok(Needs::Window)
    }

    /// Reads the visible bytes at `position` into the cursor's own buffer. Mapping and unmapping
    /// short windows would cost ten times as much. Without memory for the buffer, shows nothing.
    fn read_ahead<S: Storage>(
        &mut self,
        state: &State<S>,
        segment: &Segment<S::File>,
        position: u64,
        limit: u64,
    ) -> Result<()> {
        self.clear();
        let end = segment.header.end().min(limit).min(segment.allocated_end());
        let Some(buffer) = self.buffer.take().or_else(|| Window::private(READ_AHEAD).ok()) else {
            return Ok(());
        };
        let len = end.saturating_sub(position).min(buffer.len() as u64) as usize;
        let offset = segment.offset(position);
        let read = buffer
            .with_mut(0, len, |bytes| crate::storage::read_full(&segment.file, bytes, offset))
            .map_err(|error| failed("read", state, segment, error))?;
        self.base = position;
        self.end = position + read as u64;
        self.backing = Backing::ReadAhead;
        self.window = Some(buffer);
        Ok(())
    }

    /// Empties the view. Keeps the buffer for reading ahead for the next time.
    pub(super) fn clear(&mut self) {
        let window = self.window.take();
        if self.backing == Backing::ReadAhead {
            self.buffer = window;
        }
        self.backing = Backing::Nothing;
        self.end = 0;
    }
}

/// The error of a system call on a segment's file.
pub(super) fn failed<S: Storage>(
    operation: &'static str,
    state: &State<S>,
    segment: &Segment<S::File>,
    error: std::io::Error,
) -> Error {
    Error::io(operation, state.storage.path().join(segment.name()), error)
}
