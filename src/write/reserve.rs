//! Messages whose bytes a closure writes: directly into the window where it can, else to a buffer.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::call::{Marks, Piece, Why};
use super::need::{Need, Part};
use super::{Writer, check_fits};
use crate::error::Result;
use crate::format::{Batch, fragment_len};
use crate::memory::checksum::crc32c;
use crate::state::State;
use crate::storage::{Storage, StorageFile, Stores};

/// The space for a message that a closure will write.
#[derive(Debug)]
pub(crate) enum Room<F> {
    /// At the tail, in the window: the closure writes there.
    Here,
    /// In `pieces`; the tail stands behind them. The closure writes to `bytes`.
    Apart { pieces: Vec<Piece<F>>, bytes: Vec<u8> },
}

impl<F: StorageFile> Writer<F> {
    /// Makes room for a whole message of `len` bytes, before its closure runs.
    pub(crate) fn reserve<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        len: usize,
    ) -> Result<Room<F>> {
        let total = fragment_len(len as u64);
        if self.clock.is_needed() {
            self.look_at_clock(state);
        }
        if !self.has_quick_room(total) {
            check_fits(state, len as u64, 0)?;
            let segment =
                self.prepare(state, Need { total, whole: len as u64, part: Part::Beginning })?;
            self.tail.take_window(state, &segment, self.tail.at.position, total)?;
        }
        // Where the index is written by calls, the commit can fail after the closure has run. The
        // engine then stores the message again from `bytes`, which a rollback does not touch.
        if self.has_quick_room(total) && state.index.stores() == Stores::ByMap {
            return Ok(Room::Here);
        }
        let mut pieces = Vec::new();
        self.place(state, len, Batch::default(), |_, piece, _| {
            pieces.push(piece);
            Ok(())
        })?;
        Ok(Room::Apart { pieces, bytes: vec![0; len] })
    }

    fn has_quick_room(&self, total: u64) -> bool {
        self.tail.window_at(self.tail.at.position, total).is_some()
    }

    /// Has `fill` write a message of `len` bytes at the tail, where there is [room](Room::Here). A
    /// panic in `fill` leaves everything as it was.
    pub(crate) fn fill_here(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.tail.fill(len, fill);
    }

    /// Has `fill` write a message into `bytes`, then stores them in the [pieces](Room::Apart). A
    /// panic in `fill` gives the room back.
    #[cold]
    pub(crate) fn fill_apart<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        pieces: &[Piece<F>],
        bytes: &mut [u8],
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| fill(bytes))) {
            self.roll_back(state);
            resume_unwind(panic);
        }
        let whole = bytes.len() as u64;
        let (mut rest, mut chain) = (&*bytes, 0);
        for piece in pieces {
            let (payload, later) = rest.split_at(piece.header.len as usize);
            let seeded = piece.seeded();
            let words = piece.header.encode(seeded, crc32c(seeded ^ chain, payload));
            let why = piece.prefers_call(state, whole).unwrap_or(Why::NoWindow);
            piece.store_by_call(state, Marks { header: words, seal: None }, payload, why)?;
            // Since room was made, a flush may have synced the segment: it is not the tail's any
            // more and counts as full. So the store is noted again, after it: a flush between note
            // and store would take the note back.
            if !planted!(StoreNotNotedAgain) {
                state.segments.list().note_store(&piece.segment);
            }
            (rest, chain) = (later, words.crc());
        }
        Ok(())
    }
}
