//! Reads a record fragment by fragment, if it lies in several segments or the cursor has no window.
//! Reads by calls; copies a long piece through a window, if there is one, and computes the checksum
//! in the same pass.

use std::sync::Arc;

use crate::error::Result;
use crate::format::{
    FRAGMENT_HEADER_LEN, Fragment, Kind, ORIGIN_LEN, Origin, SEGMENT_HEADER_LEN, Spot, with_payload,
};
use crate::memory::Window;
use crate::memory::checksum;
use crate::read::found_record::{Check, Record};
use crate::read::view::failed;
use crate::segment::pool::User;
use crate::segment::scan::words;
use crate::segment::{Segment, present};
use crate::state::State;
use crate::storage::{Storage, read_full};

/// The scratch keeps at most this much memory for the next record: a few common lengths. (With new
/// memory for each, messages of 4 MiB took twice as long.)
pub(super) const TRIM_ABOVE: usize = 8 << 20;
/// A piece at least this long is copied from a window of its whole segment. A read call would copy
/// it too, and the checksum then load it once more.
const WINDOW_FROM: u64 = 64 << 10;

/// The payload of a record that does not lie in the cursor's window.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    /// The number of the record whose complete message is in `bytes`.
    seq: Option<u64>,
    /// That record's origin, if it is a dead letter.
    origin: Option<Origin>,
}

impl Scratch {
    /// Whether this is the payload of the record `seq`.
    #[inline(always)]
    pub(super) fn is_of(&self, seq: u64) -> bool {
        self.seq == Some(seq)
    }

    /// Marks the content as no record's payload. The next record overwrites its bytes.
    pub(super) fn forget(&mut self) {
        self.seq = None;
        self.origin = None;
    }

    /// Returns space for a piece of `len` bytes at `at`.
    fn piece(&mut self, at: usize, len: usize) -> &mut [u8] {
        // Bounded: the caller has verified that the segment has that many bytes allocated.
        if self.bytes.len() < at + len {
            self.bytes.resize(at + len, 0);
        }
        &mut self.bytes[at..at + len]
    }

    /// Marks the first `len` bytes as the payload of the record `seq`.
    fn complete(&mut self, len: usize, seq: u64) {
        holds!(len <= self.bytes.len(), "the message {seq}, of {len} bytes, was gathered whole");
        self.bytes.truncate(len);
        self.seq = Some(seq);
    }

    /// Appends a copy of the payload of `seq` to `out`. Returns false when the scratch does not
    /// have it.
    pub(super) fn append_to(&mut self, seq: u64, out: &mut Vec<u8>) -> bool {
        if !self.is_of(seq) {
            return false;
        }
        out.extend_from_slice(&self.bytes);
        self.trim();
        true
    }

    /// Copies the payload of `seq` into `out`, which has its length. Returns false when the scratch
    /// does not have it.
    #[cfg(feature = "capi")]
    pub(super) fn copy_into(&mut self, seq: u64, out: &mut [u8]) -> bool {
        if !self.is_of(seq) {
            return false;
        }
        out.copy_from_slice(&self.bytes);
        self.trim();
        true
    }

    /// Moves the payload of `seq` into `out` by exchanging the buffers, which avoids a copy.
    /// Returns false, with an empty `out`, when the scratch does not have it.
    pub(super) fn exchange(&mut self, seq: u64, out: &mut Vec<u8>) -> bool {
        if !self.is_of(seq) {
            out.clear();
            return false;
        }
        std::mem::swap(&mut self.bytes, out);
        self.forget();
        self.trim();
        true
    }

    /// Takes the payload of `seq`, with its memory and origin; `None` when the scratch does not
    /// have it.
    pub(super) fn take(&mut self, seq: u64) -> Option<(Vec<u8>, Option<Origin>)> {
        let origin = self.origin.take();
        (self.seq.take() == Some(seq)).then(|| (std::mem::take(&mut self.bytes), origin))
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees the memory of a long message, which would otherwise stay allocated.
    fn trim(&mut self) {
        if self.bytes.capacity() > TRIM_ABOVE {
            *self = Scratch::default();
        }
    }
}

/// Returns the record at `spot` in `segment`, all of which lies below `limit`. With [`Check::Now`]
/// verifies its payload and stores it in `scratch`. `None` when the record is damaged.
pub(super) fn gather<S: Storage>(
    state: &State<S>,
    segment: Arc<Segment<S::File>>,
    spot: Spot,
    limit: u64,
    check: Check,
    scratch: &mut Scratch,
) -> Result<Option<Record>> {
    let Spot { position, seq } = spot;
    let mut chain = Chain { state, segment, position, seq, limit, checksum: 0, len: 0 };
    let mut expected = [Kind::Whole, Kind::First];
    scratch.forget();
    loop {
        let into = (check == Check::Now).then_some(&mut *scratch);
        match chain.next_fragment(expected, into)? {
            None => return Ok(None),
            Some(Kind::Whole | Kind::Last) => break,
            Some(_) => {}
        }
        expected = [Kind::Middle, Kind::Last];
        if !chain.next_segment()? {
            return Ok(None);
        }
    }
    if check == Check::Now {
        scratch.complete(chain.len as usize, seq);
    }
    let (len, end) = (chain.len, chain.position);
    Ok(Some(Record { seq, len, in_window: None, end, header_sum: 0, sum: 0 }))
}

/// The fragments of one record; each checksum includes that of the fragment before.
struct Chain<'a, S: Storage> {
    state: &'a State<S>,
    /// The segment of the next fragment.
    segment: Arc<Segment<S::File>>,
    position: u64,
    seq: u64,
    limit: u64,
    /// The checksum of the fragment before.
    checksum: u32,
    /// Payload bytes of the fragments so far.
    len: u64,
}

impl<S: Storage> Chain<'_, S> {
    /// Steps over the next fragment and returns its kind, one of `expected`. With `into`, verifies
    /// its payload and appends it there. `None` when the fragment is damaged.
    fn next_fragment(
        &mut self,
        expected: [Kind; 2],
        into: Option<&mut Scratch>,
    ) -> Result<Option<Kind>> {
        let segment = &*self.segment;
        let io = |error| failed("read", self.state, segment, error);
        let limit = self.limit.min(segment.header.end()).min(segment.allocated_end());
        if self.position + FRAGMENT_HEADER_LEN > limit {
            return Ok(None);
        }
        let offset = segment.offset(self.position);
        let mut head = [0; FRAGMENT_HEADER_LEN as usize];
        read_full(&segment.file, &mut head, offset).map_err(io)?;
        let Some(words) = words(&head) else {
            return Ok(None);
        };
        let decoded = Fragment::decode(words, segment.seed, offset - SEGMENT_HEADER_LEN);
        let Some((fragment, header_sum)) = decoded else {
            return Ok(None);
        };
        let end = self.position + fragment.total_len();
        let fits = end <= limit && fragment.is_numbered(self.seq);
        if !fits || !expected.contains(&fragment.kind) {
            return Ok(None);
        }
        let len = fragment.message_len();
        if let Some(scratch) = into {
            let payload = offset + FRAGMENT_HEADER_LEN;
            let origin_len = if fragment.has_origin { ORIGIN_LEN } else { 0 };
            let piece = scratch.piece(self.len as usize, origin_len + len as usize);
            let sum = if let Some(window) = self.window(fragment.len.into()) {
                window.copy_out_summed(payload as usize, piece)
            } else {
                if read_full(&segment.file, piece, payload).map_err(io)? < piece.len() {
                    return Ok(None);
                }
                checksum::sum(0, piece)
            };
            if with_payload(header_sum ^ self.checksum, sum) != words.sum() {
                return Ok(None);
            }
            let origin = piece.first_chunk().filter(|_| fragment.has_origin).map(Origin::decode);
            if origin.is_some() {
                scratch.origin = origin;
                scratch.bytes.drain(..ORIGIN_LEN);
            }
        }
        self.checksum = words.sum();
        holds!(self.position < end, "a fragment at {} ends behind it, at {end}", self.position);
        self.len += len;
        self.position = end;
        Ok(Some(fragment.kind))
    }

    /// Returns a window of the whole segment, from which to copy a piece of `len` bytes. `None` if
    /// a call is as fast, or the pool grants no window.
    fn window(&self, len: u64) -> Option<Window> {
        let (file, header) = (&self.segment.file, &self.segment.header);
        // An older segment may be longer than this run's windows.
        if len < WINDOW_FROM || self.state.pool.geometry().window_len < header.length {
            return None;
        }
        let allocated = || self.segment.allocated();
        let granted =
            self.state.pool.get(file, header.life, 0, header.length, allocated, User::Copier);
        granted.map(|granted| granted.window)
    }

    /// Moves to the next segment. Returns false when it is lost, and with it a piece of the record.
    fn next_segment(&mut self) -> Result<bool> {
        let state = self.state;
        let end = self.segment.header.end();
        let mut list = state.segments.list();
        let Some(row) = list.at(self.position.max(end)).filter(|row| row.header.base == end) else {
            return Ok(false);
        };
        let opened = list.open_anywhere(&state.storage, &state.index, &row);
        let Some(segment) = present(&state.storage, row.slot, opened)? else {
            return Ok(false);
        };
        self.position = row.header.base;
        self.segment = segment;
        Ok(true)
    }
}
