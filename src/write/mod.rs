//! The way in: reserve, copy fragments, commit.
//!
//! One [`Writer`] per queue, under the producers' lock. A record is written behind the committed
//! tail, where nobody looks, and becomes visible by one release store of the tail. So a record is
//! either committed whole or was never there: whatever fails on the way leaves the tail where it
//! was.
//!
//! The quick path (`Tail::store_quickly`) is a copy and a checksum into a window that is mapped and
//! allocated. All else is cold: opening the tail's segment, allocating ahead, splitting a record.
//!
//! | File | Its data | What it does |
//! |---|---|---|
//! | `tail` | `Tail`: where the next record goes, and the window there | the quick path |
//! | `record` | | makes fragments of a record and stores them |
//! | `call` | `Piece`: room for a fragment | stores it by write calls |
//! | `reserve` | `Room`: where a message will lie | takes messages that a closure writes |
//! | `segments` | `Need`: what is written next | opens the tail's segment, begins the next one |
//! | `succession` | `Succession`: where that must begin, the tail's being given up | |
//! | `numbers` | `Numbers`: which may be given out, as the disk knows | the lease |
//! | `clock` | `Clock`: until when the tail's segment takes messages | |
//! | `asked` | `Asked`: what the keeper was asked for | |

mod asked;
mod call;
mod clock;
mod numbers;
mod record;
mod reserve;
mod segments;
mod succession;
mod tail;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::format::{self, Batch, FRAGMENT_HEADER_LEN, Seal, Spot};
use crate::index::run::Next;
use crate::segment::ages::Ages;
use crate::state::State;
use crate::storage::{Storage, StorageFile, Stores};

use asked::Asked;
use clock::Clock;
use numbers::Numbers;
pub(crate) use reserve::Room;
use segments::{Need, Part};
use succession::Succession;
use tail::Tail;

/// The producers' state.
#[derive(Debug)]
pub(crate) struct Writer<F> {
    tail: Tail<F>,
    /// Of the batch that is being pushed.
    seal: Seal,
    succession: Succession,
    numbers: Numbers,
    clock: Clock,
    asked: Asked,
    /// For the last record there was no room. Nothing goes the quick way then.
    refused: bool,
    /// What was rolled back may still begin at the tail: it could not be cleared.
    uncleared: bool,
}

impl<F: StorageFile> Writer<F> {
    pub(crate) fn new(
        tail: Spot,
        next: Option<Next>,
        lease: Option<u64>,
        ages: Option<Ages>,
    ) -> Writer<F> {
        Writer {
            tail: Tail::new(tail),
            seal: Seal::NEW,
            succession: Succession::new(next),
            numbers: Numbers::new(lease),
            clock: Clock::new(ages),
            asked: Asked::new(tail),
            refused: false,
            uncleared: false,
        }
    }

    pub(crate) fn committed(&self) -> Spot {
        self.tail.committed
    }

    /// The number behind the last one that the tail's segment holds. Behind it numbers may be
    /// missing that the next segment states.
    pub(crate) fn held_end(&self) -> u64 {
        self.succession.held_end(self.tail.committed)
    }

    /// Whether this run has stored anything that the next opening must know of.
    pub(crate) fn has_begun(&self) -> bool {
        self.numbers.have_begun()
    }

    /// Writes a record behind the tail; nobody sees it before [`commit`](Self::commit).
    #[inline]
    pub(crate) fn push<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        payload: &[u8],
        batch: Batch,
    ) -> Result<()> {
        if self.clock.counts() {
            self.look_at_clock(state);
        }
        if !batch.continues && batch.more {
            self.seal = Seal::NEW;
        }
        if self.tail.store_quickly(payload, batch, &mut self.seal) {
            return Ok(());
        }
        self.push_slow(state, payload, batch)
    }

    /// [`push`](Self::push) of a message on its own, where no more is to be done than to store it;
    /// false, and nothing done, where there is more to it.
    #[inline(always)]
    pub(crate) fn push_quickly(&mut self, payload: &[u8]) -> bool {
        !self.clock.counts() && self.tail.store_quickly(payload, Batch::default(), &mut self.seal)
    }

    #[cold]
    #[inline(never)]
    fn push_slow<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        payload: &[u8],
        batch: Batch,
    ) -> Result<()> {
        let whole = payload.len() as u64;
        check_fits(state, whole)?;
        let total = batch.record_len(whole);
        let segment = self.prepare(state, Need { total, whole, part: Part::Beginning })?;
        let position = self.tail.at.position;
        let offset = segment.offset(position);
        if call::prefers_call(state, &segment, offset, total - FRAGMENT_HEADER_LEN, whole) {
            self.asked.next_segment(state, &segment, offset, position + total);
        } else {
            self.tail.take_window(state, &segment, position, total)?;
        }
        let mut chain = 0;
        self.place(state, payload.len(), batch, |writer, piece, range| {
            chain = writer.store(state, &piece, &payload[range], chain, whole)?;
            Ok(())
        })
    }

    /// With ages: the quick way is closed when the tail's segment has taken messages for long
    /// enough.
    #[inline(never)]
    fn look_at_clock<S: Storage<File = F>>(&mut self, state: &State<S>) {
        self.clock.look(&state.storage);
        if self.clock.is_over() {
            self.tail.close();
        }
    }

    /// Makes everything pushed visible, at once. Returns the tail; or, where the index is written
    /// by calls, the error of one: then nothing has changed, and what was pushed is to be rolled
    /// back.
    #[inline(always)]
    pub(crate) fn commit<S: Storage<File = F>>(&mut self, state: &State<S>) -> Result<Spot> {
        let tail = self.tail.at;
        let before = (self.tail.committed.position, self.tail.committed.seq);
        // Before anybody takes from it: what a kill leaves must not say less than what was taken.
        if let Err(error) = state.index.move_tail(tail.position, tail.seq, before) {
            return Err(Error::io("write", state.storage.path().join(format::INDEX_NAME), error));
        }
        self.tail.committed = tail;
        state.committed.publish(tail);
        if !state.durable_only {
            state.visible.publish(tail);
        }
        Ok(tail)
    }

    /// Forgets everything pushed since the last commit.
    #[cold]
    pub(crate) fn roll_back<S: Storage<File = F>>(&mut self, state: &State<S>) {
        let committed = self.tail.committed.position;
        if self.tail.at.position == committed {
            return;
        }
        self.tail.go_back();
        if let Some(next) = self.succession.take_back(committed) {
            state.index.set_next(Some(next));
        }
        if state.segments.drain_behind(committed) {
            // Best effort: an unsettled segment is settled when the next one is wanted.
            let _ = state.settle();
        }
        // What was begun there has no end and would be cut off by any recovery; clear its beginning
        // all the same.
        self.uncleared = !self.clear_tail(state);
    }

    /// Whether nothing lies at the tail that a reader could take for a record, should it not be
    /// overwritten.
    pub(crate) fn is_cleared<S: Storage<File = F>>(&mut self, state: &State<S>) -> bool {
        self.uncleared = self.uncleared && !self.clear_tail(state);
        !self.uncleared
    }

    fn clear_tail<S: Storage<File = F>>(&self, state: &State<S>) -> bool {
        let position = self.tail.at.position;
        let opened = {
            let mut list = state.segments.list();
            let row = list.at(position).filter(|row| row.header.base <= position);
            let opened = row.and_then(|row| list.open(&state.storage, &row).ok());
            opened.inspect(|segment| list.note_store(segment))
        };
        if let Some(segment) = opened
            && position + FRAGMENT_HEADER_LEN <= segment.allocated_end()
        {
            let (offset, header) = (segment.offset(position), [0; FRAGMENT_HEADER_LEN as usize]);
            // The write that failed may have stored the whole record all the same, and this one may
            // fail like it.
            if segment.file.write_at(&header, offset).is_err() {
                let window = segment.file.map(offset, header.len()).ok();
                let Some(window) = window.filter(|_| segment.file.stores() == Stores::ByMap) else {
                    return false;
                };
                window.copy_in(0, &header);
            }
        }
        true
    }

    /// The next record begins a new segment, at that position: the segment the tail stood in is
    /// given up.
    pub(crate) fn begin_anew<S: Storage<File = F>>(&mut self, state: &State<S>, base: u64) {
        self.let_go();
        let next = Next { base, seq: self.tail.committed.seq, ..Next::default() };
        if let Some(next) = self.succession.begin(next) {
            state.index.set_next(Some(next));
        }
    }

    /// There was no room for what was rolled back.
    pub(crate) fn note_refused(&mut self) {
        self.let_go();
        self.refused = true;
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused
    }

    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Nothing more is written the quick way: whoever comes asks first whether the queue is open.
    pub(crate) fn stop(&mut self) {
        self.tail.close();
    }

    /// Lets go of the tail's segment and window.
    pub(crate) fn let_go(&mut self) {
        self.tail.let_go();
    }
}

/// Refuses at once what could never fit.
fn check_fits<S: Storage>(state: &State<S>, len: u64) -> Result<()> {
    let max = state.max_message();
    if len <= max {
        return Ok(());
    }
    let max_bytes = state.limits.max_bytes.filter(|_| max < format::MAX_MESSAGE_LEN);
    Err(Error::MessageTooLarge { path: state.storage.path().to_owned(), len, max, max_bytes })
}
