//! Room for a message whose bytes a closure writes: in place where it can, else in pieces.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::call::{Marks, Piece, Why};
use super::segments::{Need, Part};
use super::{Writer, check_fits};
use crate::error::Result;
use crate::format::{Batch, fragment_len};
use crate::memory::checksum::crc32c;
use crate::state::State;
use crate::storage::{Storage, StorageFile, Stores};

/// Where a message will lie that is still to be written.
#[derive(Debug)]
pub(crate) enum Room<F> {
    /// At the tail, in the window.
    Here,
    /// In these pieces, behind which the tail stands; it is written to a buffer first.
    Apart { pieces: Vec<Piece<F>>, bytes: Vec<u8> },
}

impl<F: StorageFile> Writer<F> {
    /// Makes room for all of a message of `len` bytes that is still to be written.
    pub(crate) fn reserve<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        len: usize,
    ) -> Result<Room<F>> {
        let total = fragment_len(len as u64);
        if self.clock.counts() {
            self.look_at_clock(state);
        }
        if !self.has_quick_room(total) {
            check_fits(state, len as u64)?;
            let segment =
                self.prepare(state, Need { total, whole: len as u64, part: Part::Beginning })?;
            self.tail.take_window(state, &segment, self.tail.at.position, total)?;
        }
        // Where the commit is a call that can fail, what was written must outlive that.
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

    /// Has `fill` write a message of `len` bytes for which there is room [here](Room::Here). A
    /// panic in it leaves everything as it was.
    pub(crate) fn fill_here(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.tail.fill(len, fill);
    }

    /// Has `fill` write a message into `bytes`, and stores those in the [pieces](Room::Apart) that
    /// there is room for. A panic in it gives the room back.
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
            // A flush that came since there was room may have synced the segment, which is full but
            // for this piece. Said behind the store: one that comes between the two would take it
            // back.
            state.segments.list().note_store(&piece.segment);
            (rest, chain) = (later, words.crc());
        }
        Ok(())
    }
}
