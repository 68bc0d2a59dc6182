//! The tail: where the next record goes, and the window for the fast path.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{
    Batch, Fragment, FragmentWords, MAX_MESSAGE_LEN, SEGMENT_HEADER_LEN, Seal, Spot, fragment_len,
    with_payload,
};
use crate::memory::{Payload, Window};
use crate::segment::pool::{Granted, User};
use crate::segment::{CALL_FROM, Segment};
use crate::state::State;
use crate::storage::{Storage, StorageFile, Stores};

/// The most bytes that take the fast path before the slow path runs again, which keeps space and
/// reserved numbers ahead of the tail.
pub(super) const STRIDE: u64 = 8 << 20;
/// Bytes behind the tail that one call faults in, where fresh space is not filled ahead. That is
/// cheaper than a fault for each page.
const POPULATE: u64 = 256 << 10;
/// In shorter windows each store faults its page in.
const POPULATE_FROM: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Tail<F> {
    /// Where the next record begins, and its number.
    pub(super) at: Spot,
    segment: Option<Arc<Segment<F>>>,
    quick: Option<Quick>,
}

/// The range behind the tail where a copy alone stores a record: mapped, allocated, and at most a
/// [`STRIDE`] long.
#[derive(Debug)]
struct Quick {
    window: Window,
    /// Position of the window's first byte (wrapping: the segment's header lies before its base).
    start: u64,
    /// Position where the range ends. A record that ends behind it takes the slow path.
    end: u64,
    /// Payload bytes of the longest record that takes the fast path: at most [`MAX_MESSAGE_LEN`].
    longest: u64,
    /// Seed of the segment's checksums.
    seed: u32,
    /// Position of the segment's first fragment.
    base: u64,
}

impl Quick {
    #[inline(always)]
    fn offset(&self, position: u64) -> usize {
        position.wrapping_sub(self.start) as usize
    }

    /// Stores a record at `at`, and moves `at` behind it, if it fits the range. Otherwise does
    /// nothing and returns false.
    #[inline(always)]
    fn store<P: Payload + ?Sized>(
        &self,
        at: &mut Spot,
        payload: &P,
        batch: Batch,
        seal: &mut Seal,
    ) -> bool {
        let len = payload.len() as u64;
        let total = batch.record_len(len);
        if at.position + total > self.end || len > self.longest {
            return false;
        }
        let header = Fragment::whole(at.seq, payload.len() as u32, batch);
        let seeded = header.header_sum(self.seed, at.position - self.base);
        let offset = self.offset(at.position);
        self.window.put_fragment(offset, payload, |payload| {
            let words = header.encode(seeded, with_payload(seeded, payload));
            if batch.is_sealed() {
                self.seal(seal, words, offset + fragment_len(len) as usize);
            } else if !batch.is_single() {
                seal.add(words.sum());
            }
            words.both()
        });
        *at = Spot { position: at.position + total, seq: at.seq + 1 };
        holds!(
            at.position <= self.end,
            "a record that is stored quickly ends before {}, and not at {at:?}",
            self.end
        );
        true
    }

    /// Adds the last record of a batch to its seal, and stores the seal, at `offset`. (Not inline:
    /// a closure that is larger by it is not inlined into the fast path.)
    #[inline(never)]
    fn seal(&self, seal: &mut Seal, words: FragmentWords, offset: usize) {
        seal.add(words.sum());
        self.window.store_u64(offset, seal.word());
    }
}

impl<F: StorageFile> Tail<F> {
    /// The tail stands in its open segment, and what may be stored quickly lies there too.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check(&self, committed: Spot) {
        let at = self.at;
        holds!(
            committed.position <= at.position && committed.seq <= at.seq,
            "what is committed, {committed:?}, does not pass what is written, {at:?}"
        );
        let Some(segment) = &self.segment else {
            holds!(self.quick.is_none(), "nothing is stored quickly where no segment is open");
            return;
        };
        let (base, end) = (segment.header.base, segment.header.end());
        holds!(
            base <= at.position && at.position <= end,
            "the tail {at:?} lies in the open segment, from {base} to {end}"
        );
        if let Some(quick) = &self.quick {
            let (from, to) = (quick.start, quick.end);
            holds!(to <= end, "records are stored quickly to {to}, in a segment to {end}");
            holds!(quick.base == base, "checksums are of the segment at {base}: {quick:?}");
            let len = quick.window.len() as u64;
            holds!(
                to.wrapping_sub(from) <= len,
                "records that are stored quickly, {from} to {to}, lie in a window of {len} bytes"
            );
            let (needed, allocated) = (segment.offset(to), segment.allocated());
            holds!(needed <= allocated, "there is space for records to {needed} of {allocated}");
        }
    }

    pub(super) fn new(at: Spot) -> Tail<F> {
        Tail { at, segment: None, quick: None }
    }

    /// Goes back to the end of the last committed record, `committed`.
    pub(super) fn go_back(&mut self, committed: Spot) {
        self.at = committed;
        self.release();
    }

    /// Closes the fast path until [`take_window`](Self::take_window).
    pub(super) fn close(&mut self) {
        self.quick = None;
    }

    /// Releases the segment and the window.
    pub(super) fn release(&mut self) {
        self.segment = None;
        self.quick = None;
    }

    /// Notes that the tail is in `segment`.
    pub(super) fn enter(&mut self, segment: Arc<Segment<F>>) {
        self.quick = None;
        self.segment = Some(segment);
    }

    pub(super) fn is_open(&self) -> bool {
        self.segment.is_some()
    }

    /// Returns the tail's segment, which [`prepare`](super::Writer::prepare) has opened.
    pub(super) fn opened<S: Storage<File = F>>(&self, state: &State<S>) -> Result<Arc<Segment<F>>> {
        let missing = || {
            Error::internal(
                state.storage.path(),
                "a record is written, and no segment is open for it",
            )
        };
        self.segment.clone().ok_or_else(missing)
    }

    /// Returns the window and the offset of `position` in it, if `total` bytes from there on lie in
    /// the fast path's range.
    #[inline]
    pub(super) fn window_at(&self, position: u64, total: u64) -> Option<(&Window, usize)> {
        let quick = self.quick.as_ref().filter(|quick| position + total <= quick.end)?;
        Some((&quick.window, quick.offset(position)))
    }

    /// Stores a record at the tail if it fits the fast path's range. Otherwise does nothing and
    /// returns false.
    #[inline(always)]
    pub(super) fn store_quickly<P: Payload + ?Sized>(
        &mut self,
        payload: &P,
        batch: Batch,
        seal: &mut Seal,
    ) -> bool {
        let Some(quick) = &self.quick else {
            return false;
        };
        quick.store(&mut self.at, payload, batch, seal)
    }

    /// Stores messages from the middle of a batch, as many as fit the fast path's range. Returns
    /// how many.
    pub(super) fn store_middle<M: AsRef<[u8]>>(&mut self, middle: &[M], seal: &mut Seal) -> usize {
        const MIDDLE: Batch = Batch { more: true, continues: true, has_origin: false };
        let Some(quick) = &self.quick else { return 0 };
        // In locals, which stay in registers.
        let (mut at, mut sum, mut stored) = (self.at, *seal, 0);
        for message in middle {
            if !quick.store(&mut at, message.as_ref(), MIDDLE, &mut sum) {
                break;
            }
            stored += 1;
        }
        (self.at, *seal) = (at, sum);
        stored
    }

    /// Takes the window that covers `position`, ready for a fragment of `total` bytes there.
    /// Without a window, the writer stores records by write calls.
    pub(super) fn take_window<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        segment: &Arc<Segment<F>>,
        position: u64,
        total: u64,
    ) {
        self.quick = None;
        // Where every record is synced, a write call is faster than a store. The sync then writes
        // the bytes of the call, not each large folio that a store made dirty; and the store would
        // fault in again each page that the last sync cleaned.
        if state.durable_only || segment.file.stores() == Stores::ByCall {
            return;
        }
        let offset = segment.offset(position);
        let granted = state.pool.get(
            &segment.file,
            segment.header.life,
            offset,
            segment.header.length,
            || segment.allocated(),
            User::Writer,
        );
        let Some(Granted { window, start: first, .. }) = granted else {
            return;
        };
        let end = (first + window.len() as u64).min(segment.allocated());
        let mut usable = end.min(offset + STRIDE);
        let mut longest = MAX_MESSAGE_LEN;
        match state.context().fill_step() {
            Some(step) if usable > segment.filled() => {
                // Up to the next multiple of the step; to the one behind it when that is near.
                let wanted = (offset + total.max(step / 4)).next_multiple_of(step);
                segment.fill(wanted.min(segment.allocated()));
                usable = usable.min(segment.filled());
                // Ask for the next segment in good time, but not within the first step of the
                // queue's first segment: a queue of a few messages needs no worker. (A record may
                // begin within that step and end behind it: its end counts.)
                if offset + total > step || segment.header.base != 0 {
                    state.ask_for_spare();
                }
            }
            None if segment.is_fresh(offset) => {
                longest = CALL_FROM - 1;
                if window.len() as u64 >= POPULATE_FROM {
                    usable = end.min((offset + total.max(POPULATE / 4)).next_multiple_of(POPULATE));
                    let _ = window
                        .populate_write((offset - first) as usize, (usable - offset) as usize);
                }
            }
            _ => {}
        }
        let header = &segment.header;
        let start = header.base.wrapping_sub(SEGMENT_HEADER_LEN).wrapping_add(first);
        let end = start.wrapping_add(usable - first).min(header.end());
        holds!(
            window.len() as u64 >= usable - first && usable <= segment.allocated(),
            "a window at {first}, of {} bytes, may be stored to up to {usable}",
            window.len()
        );
        self.quick =
            Some(Quick { window, start, end, longest, seed: segment.seed, base: header.base });
        check!(self.check(state.committed().spot()));
    }
}
