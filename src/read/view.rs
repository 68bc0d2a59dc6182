//! What a cursor sees of its segment without a call: mapped bytes, or bytes that were read ahead.

use crate::error::{Error, Result};
use crate::format::{FRAGMENT_HEADER_LEN, Fragment, FragmentWords, Kind, SEGMENT_HEADER_LEN, Spot};
use crate::memory::Window;
use crate::read::{Check, Record};
use crate::segment::Segment;
use crate::segment::pool::User;
use crate::state::State;
use crate::storage::{Storage, StorageFile};

/// Bytes that are read ahead at a time.
const READ_AHEAD: usize = 64 << 10;

/// A view of one stretch of a segment. It may be empty: then records are read by calls.
#[derive(Debug)]
pub(super) struct View {
    window: Option<Window>,
    /// The position of the window's first byte.
    base: u64,
    /// A record that ends at or below this position lies in the window; 0 where there is none.
    end: u64,
    source: Source,
    /// The base of the window for which others were last asked to let go of theirs.
    asked_at: u64,
    /// The buffer that is read ahead into, while the view shows something else.
    buffer: Option<Window>,
}

/// Where the bytes of a view come from, and so what may be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Nothing,
    /// A window of the pool that messages may be lent from.
    Lendable,
    /// A window of the pool, which has too few of them to lend from this one.
    CopyOnly,
    /// The cursor's own buffer.
    ReadAhead,
}

/// What a view would need to be as good as it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// That consumers that only stand there let go of their windows. Said once for each window.
    Window,
}

impl View {
    pub(super) fn new() -> View {
        View {
            window: None,
            base: 0,
            end: 0,
            source: Source::Nothing,
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
        self.source == Source::Lendable
    }

    #[cfg(test)]
    pub(super) fn is_ahead(&self) -> bool {
        self.source == Source::ReadAhead
    }

    #[cfg(test)]
    pub(super) fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Another window, if it can be had, would serve better.
    pub(super) fn may_improve(&self) -> bool {
        matches!(self.source, Source::Nothing | Source::CopyOnly)
    }

    /// A whole record of `segment` that begins at `spot`, ends at or below `limit`, and lies in
    /// the view. `None` for anything else, however intact.
    #[inline(always)]
    pub(super) fn whole_record<F: StorageFile>(
        &self,
        segment: &Segment<F>,
        spot: Spot,
        limit: u64,
        check: Check,
    ) -> Option<Record> {
        if spot.position + FRAGMENT_HEADER_LEN > self.end {
            return None;
        }
        let window = self.window.as_ref()?;
        let offset = spot.position.wrapping_sub(self.base) as usize;
        let [first, second] = window.load_pair(offset);
        let words = FragmentWords(first, second);
        let place = spot.position - segment.header.base;
        let (fragment, begins) = Fragment::decode(words, segment.seed, place)?;
        let end = spot.position + fragment.total_len();
        let fits = end <= self.end && end <= limit;
        if fragment.kind != Kind::Whole || !fits || !fragment.is_numbered(spot.seq) {
            return None;
        }
        let payload = offset + FRAGMENT_HEADER_LEN as usize;
        let ends = words.payload_state();
        let len = fragment.len as usize;
        if check == Check::Now && window.crc32c(begins, payload, len) != ends {
            return None;
        }
        let (seq, len) = (spot.seq, u64::from(fragment.len));
        Some(Record { seq, len, in_window: Some(payload), end, begins, ends })
    }

    /// Shows what lies at `position` of `segment`, of which all below `limit` is visible: a window
    /// of the pool, or nothing where none can be had.
    pub(super) fn show<S: Storage>(
        &mut self,
        state: &State<S>,
        segment: &Segment<S::File>,
        position: u64,
        limit: u64,
    ) -> Result<Needs> {
        let geometry = state.pool.geometry();
        if geometry.window_len < geometry.segment_len && limit - position >= geometry.window_len {
            return self.read_ahead(state, segment, position, limit).map(|()| Needs::Nothing);
        }
        let window_len = geometry.window_len;
        let number = segment.offset(position) / window_len;
        let start = number * window_len;
        let base = segment.header.base.wrapping_sub(SEGMENT_HEADER_LEN).wrapping_add(start);
        let end = |window: &Window| {
            let valid = (start + window.len() as u64).min(segment.allocated()) - start;
            base.wrapping_add(valid).min(segment.header.end())
        };
        if let Some(window) = &self.window
            && self.source != Source::ReadAhead
            && self.base == base
        {
            // The same window: only more of it may be allocated by now.
            self.end = end(window);
            return Ok(Needs::Nothing);
        }
        self.clear();
        if start >= segment.allocated() {
            return Ok(Needs::Nothing);
        }
        let (life, length) = (segment.header.life, segment.header.length);
        let granted = state
            .pool
            .get(&segment.file, life, number, length, || segment.allocated(), User::Reader)
            .map_err(|error| failed("map", state, segment, error))?;
        if let Some(granted) = granted {
            self.base = base;
            self.end = end(&granted.window);
            self.source = if granted.lending { Source::Lendable } else { Source::CopyOnly };
            self.window = Some(granted.window);
        }
        if self.may_lend() || self.asked_at == base {
            return Ok(Needs::Nothing);
        }
        self.asked_at = base;
        Ok(Needs::Window)
    }

    /// Reads what comes next, which is all committed, into the cursor's own buffer. Mapping and
    /// unmapping a short window at a time costs ten times as much.
    fn read_ahead<S: Storage>(
        &mut self,
        state: &State<S>,
        segment: &Segment<S::File>,
        position: u64,
        limit: u64,
    ) -> Result<()> {
        self.clear();
        let end = segment.header.end().min(limit).min(segment.allocated_end());
        let buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => Window::private(READ_AHEAD)
                .map_err(|error| Error::io("map", state.storage.path(), error))?,
        };
        let len = end.saturating_sub(position).min(buffer.len() as u64) as usize;
        let offset = segment.offset(position);
        let read = buffer
            .with_mut(0, len, |bytes| crate::storage::read_full(&segment.file, bytes, offset))
            .map_err(|error| failed("read", state, segment, error))?;
        self.base = position;
        self.end = position + read as u64;
        self.source = Source::ReadAhead;
        self.window = Some(buffer);
        Ok(())
    }

    /// Shows nothing any more. The buffer that is read ahead into stays for the next time.
    pub(super) fn clear(&mut self) {
        let window = self.window.take();
        if self.source == Source::ReadAhead {
            self.buffer = window;
        }
        self.source = Source::Nothing;
        self.end = 0;
    }
}

/// What the system answered about a file of a segment.
pub(super) fn failed<S: Storage>(
    operation: &'static str,
    state: &State<S>,
    segment: &Segment<S::File>,
    error: std::io::Error,
) -> Error {
    Error::io(operation, state.storage.path().join(segment.name()), error)
}
