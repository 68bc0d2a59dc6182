//! Cuts a record into fragments at segment ends, and stores each.

use std::ops::Range;

use super::Writer;
use super::call::{Marks, Piece, Why};
use super::need::{Need, Part};
use crate::error::Result;
use crate::format::{Batch, FRAGMENT_HEADER_LEN, Fragment, Kind, with_payload};
use crate::memory::checksum;
use crate::state::State;
use crate::storage::{Storage, StorageFile};

impl<F: StorageFile> Writer<F> {
    /// Makes room behind the tail for a record with a payload of `len` bytes: one piece where it
    /// fits the segment, several otherwise. Calls `put` with each piece and the range of the
    /// payload that it takes. The tail is in an open segment.
    pub(super) fn place<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        len: usize,
        batch: Batch,
        mut put: impl FnMut(&mut Self, Piece<F>, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        if self.tail.at.position + batch.record_len(len as u64)
            <= self.tail.opened(state)?.header.end()
        {
            let piece =
                self.make_room(state, Fragment::whole(self.tail.at.seq, len as u32, batch))?;
            put(self, piece, 0..len)?;
        } else {
            self.split(state, len, batch, put)?;
        }
        self.tail.at.seq += 1;
        Ok(())
    }

    /// Makes room for a record that does not fit the tail's segment, in several pieces (see
    /// [`place`](Self::place)).
    fn split<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        len: usize,
        batch: Batch,
        mut put: impl FnMut(&mut Self, Piece<F>, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let (mut from, mut part) = (0, Part::Beginning);
        while from < len {
            let room = self.tail.opened(state)?.header.end() - self.tail.at.position;
            let rest = batch.record_len((len - from) as u64);
            if room <= FRAGMENT_HEADER_LEN {
                self.next_segment(state, Need { total: rest, whole: len as u64, part })?;
                continue;
            }
            let mut to = len.min(from + (room - FRAGMENT_HEADER_LEN) as usize);
            if to == len && rest > room {
                // The seal would not fit behind the last byte: both go to the next segment.
                to -= 1;
            }
            let mut whole = Fragment::whole(self.tail.at.seq, (to - from) as u32, batch);
            // An origin lies in the first piece as a whole: `prepare` begins another segment rather
            // than leave so little room.
            whole.has_origin &= part == Part::Beginning;
            let kind = match (part, to == len) {
                (Part::Beginning, true) => Kind::Whole,
                (Part::Beginning, false) => Kind::First,
                (Part::Rest, false) => Kind::Middle,
                (Part::Rest, true) => Kind::Last,
            };
            let piece = self
                .make_room(state, Fragment { kind, sealed: whole.sealed && to == len, ..whole })?;
            holds!(from < to && to <= len, "a piece of {len} bytes, {from} to {to}, is not empty");
            put(self, piece, from..to)?;
            (from, part) = (to, Part::Rest);
        }
        Ok(())
    }

    /// Allocates space at the tail for a fragment that fits the segment, and moves the tail behind
    /// it.
    fn make_room<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        header: Fragment,
    ) -> Result<Piece<F>> {
        let piece =
            Piece { segment: self.tail.opened(state)?, position: self.tail.at.position, header };
        let total = header.total_len();
        state.extend(&piece.segment, piece.offset() + total)?;
        holds!(
            piece.offset() + total <= piece.segment.allocated(),
            "there is space for {total} bytes at {}, where {} are allocated",
            piece.offset(),
            piece.segment.allocated()
        );
        // The tail moves before the store: a call that fails may have stored everything, and a
        // rollback clears it only if the tail has moved.
        self.tail.at.position += total;
        Ok(piece)
    }

    /// Stores a fragment of a record with a payload of `whole` bytes. `chain` is the checksum of
    /// the fragment before it in the same record, or zero. Returns the fragment's own checksum.
    pub(super) fn store<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        piece: &Piece<F>,
        payload: &[u8],
        chain: u32,
        whole: u64,
    ) -> Result<u32> {
        let Piece { segment, position, header } = piece;
        let total = header.total_len();
        let preferred = piece.prefers_call(state, whole);
        if preferred.is_none() && self.tail.window_at(*position, total).is_none() {
            self.tail.take_window(state, segment, *position, total);
        }
        let seeded = piece.seeded();
        let seal = &mut self.seal;
        // The header comes last: a valid header proves that payload and seal were stored.
        let mut finish = |payload| {
            let words = header.encode(seeded, with_payload(seeded ^ chain, payload));
            if header.more || header.continues {
                seal.add(words.sum());
            }
            Marks { header: words, seal: header.seal_at().map(|at| (at, seal.word())) }
        };
        let Some((window, offset)) =
            self.tail.window_at(*position, total).filter(|_| preferred.is_none())
        else {
            let marks = finish(checksum::sum(0, payload));
            piece.store_by_call(state, marks, payload, preferred.unwrap_or(Why::NoWindow))?;
            return Ok(marks.header.sum());
        };
        let mut sum = 0;
        window.put_fragment(offset, payload, |payload| {
            let marks = finish(payload);
            if let Some((at, word)) = marks.seal {
                window.store_u64(offset + at as usize, word);
            }
            sum = marks.header.sum();
            marks.header.both()
        });
        Ok(sum)
    }
}
