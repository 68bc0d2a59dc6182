//! Writes records: makes room for a record, stores its fragments, commits it.
//!
//! A queue has one [`Writer`], under the producers' lock. It writes a record behind the committed
//! tail, where no consumer reads, and makes it visible by one release store of the tail. So a
//! record is either committed whole or not at all: a failure before that leaves the committed tail
//! unchanged.
//!
//! The fast path (`Tail::store_quickly`) is a copy with a checksum into a mapped window over
//! allocated space. All other code is the slow path: opening the tail's segment, allocating ahead,
//! cutting a record.
//!
//! | File | Its data | What it does |
//! |---|---|---|
//! | `tail` | `Tail`: where the next record goes, and the window there | the fast path |
//! | `store_record` | | cuts a record into fragments and stores them |
//! | `call` | `Piece`: a fragment and its space | stores it by write calls |
//! | `need` | `Need`: the record to be written next | |
//! | `next_segment` | | opens the tail's segment, begins the next one |
//! | `pending_segment` | `PendingSegment`: where the next segment must begin after the tail's was evicted | |
//! | `numbers` | `Numbers`: which numbers the writer may assign | reserves more |
//! | `clock` | `Clock`: from when until when the tail's segment takes messages | |
//! | `worker_requests` | `WorkerRequests`: the latest requests to the storage worker | asks it |

mod call;
mod clock;
mod need;
mod next_segment;
mod numbers;
mod pending_segment;
mod store_record;
mod tail;
#[cfg(test)]
mod tests;
mod worker_requests;

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::{self, Batch, FRAGMENT_HEADER_LEN, Seal, Spot, Version};
use crate::index::run::Next;
use crate::memory::Payload;
use crate::segment::ages::Ages;
use crate::segment::{Reclaims, Segment};
use crate::state::State;
use crate::storage::{Storage, StorageFile, Stores};

use clock::Clock;
use need::{Need, Part};
use numbers::Numbers;
use pending_segment::PendingSegment;
use tail::Tail;
use worker_requests::WorkerRequests;

/// What the producers' lock protects.
#[derive(Debug)]
pub(crate) struct Writer<F> {
    tail: Tail<F>,
    /// The seal of the pushed part of the present batch.
    seal: Seal,
    pending_segment: PendingSegment,
    numbers: Numbers,
    clock: Clock,
    requests: WorkerRequests,
    /// Bytes of the last record that did not take the fast path, as one fragment.
    pub(crate) need: u64,
    /// Whether there was no room for the last record. While set, no record takes the fast path.
    refused: bool,
    /// Whether the header of a rolled-back record may still be at the tail, because clearing it
    /// failed.
    uncleared: bool,
}

impl<F: StorageFile> Writer<F> {
    /// What is written lies behind what is committed. The caller holds the producers' lock.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check<S: Storage<File = F>>(&self, state: &State<S>) {
        let own = state.committed().spot();
        self.tail.check(own);
        let next = self.pending_segment.next();
        holds!(
            next.is_none_or(|next| own.position <= next.base && own.seq <= next.seq),
            "the next segment, {next:?}, begins behind what is committed: {own:?}"
        );
        holds!(
            next.is_none_or(|next| next.missing.is_sound(next.seq)),
            "the numbers that the next segment is to state are numbers: {next:?}"
        );
        let reserved = self.numbers.reservation().filter(|_| self.numbers.have_begun());
        holds!(
            reserved.is_none_or(|end| self.tail.at.seq <= end),
            "the next number, in {:?}, is not above those reserved, {reserved:?}",
            self.tail.at
        );
    }

    pub(crate) fn new(
        tail: Spot,
        next: Option<Next>,
        reservation: Option<u64>,
        ages: Option<Ages>,
    ) -> Writer<F> {
        Writer {
            tail: Tail::new(tail),
            seal: Seal::NEW,
            pending_segment: PendingSegment::new(next),
            numbers: Numbers::new(reservation),
            clock: Clock::new(ages),
            requests: WorkerRequests::new(tail),
            need: 0,
            refused: false,
            uncleared: false,
        }
    }

    /// Makes the queue remember when messages are written from now on, to an eighth of `fresh`.
    pub(crate) fn mark_write_times<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        fresh: Duration,
    ) {
        self.clock.mark_often(fresh);
        self.look_at_clock(state);
    }

    /// Returns the sequence number behind the last message in the tail's segment. Numbers from it
    /// on may be missing; the next segment's header will list them.
    pub(crate) fn messages_end<S: Storage<File = F>>(&self, state: &State<S>) -> u64 {
        self.pending_segment.messages_end(state.committed().spot())
    }

    /// Returns whether this run has stored a message, or tried to.
    pub(crate) fn has_begun(&self) -> bool {
        self.numbers.have_begun()
    }

    /// Writes a record behind the tail. No consumer sees it before [`commit`](Self::commit).
    #[inline]
    pub(crate) fn push<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        payload: &[u8],
        batch: Batch,
    ) -> Result<()> {
        if self.clock.is_needed() {
            self.look_at_clock(state);
        }
        if planted!(BatchVisibleInParts) && batch.continues {
            self.commit(state)?;
        }
        if !batch.continues && batch.more {
            self.seal = Seal::NEW;
        }
        if self.tail.store_quickly(payload, batch, &mut self.seal) {
            return Ok(());
        }
        self.push_slow(state, payload, batch)
    }

    /// Writes the records of a batch behind the tail (see [`push`](Self::push)).
    pub(crate) fn push_batch<S: Storage<File = F>, M: AsRef<[u8]>>(
        &mut self,
        state: &State<S>,
        messages: &[M],
    ) -> Result<()> {
        let mut pushed = 0;
        while let Some(message) = messages.get(pushed) {
            self.push(state, message.as_ref(), Batch::of(pushed, messages.len()))?;
            pushed += 1;
            let middle = messages.get(pushed..messages.len() - 1).unwrap_or_default();
            if !self.clock.is_needed() && !planted!(BatchVisibleInParts) {
                pushed += self.tail.store_middle(middle, &mut self.seal);
            }
        }
        Ok(())
    }

    /// Writes a single message by the fast path. Returns false, and does nothing, where that is not
    /// possible.
    #[inline(always)]
    pub(crate) fn push_quickly<P: Payload + ?Sized>(&mut self, payload: &P) -> bool {
        !self.clock.is_needed()
            && self.tail.store_quickly(payload, Batch::default(), &mut self.seal)
    }

    /// Writes a dead letter behind the tail: the `payload` begins with its origin. The first one of
    /// a run syncs the index.
    pub(crate) fn push_dead_letter<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        payload: &[u8],
    ) -> Result<()> {
        state.index.state_origins()?;
        if self.clock.is_needed() {
            self.look_at_clock(state);
        }
        self.push_slow(state, payload, Batch::DEAD_LETTER)
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
        check_fits(state, whole, 0)?;
        let total = batch.record_len(whole);
        let need = Need { total, whole, part: Part::Beginning };
        let mut segment = self.prepare(state, need)?;
        let is_older = segment.header.version < Version::Origins;
        if batch.has_origin && is_older {
            // An older version wrote its header, before the queue's first dead letter.
            self.next_segment(state, need)?;
            segment = self.prepare(state, need)?;
        }
        let position = self.tail.at.position;
        let offset = segment.offset(position);
        if call::prefers_call(state, &segment, offset, total - FRAGMENT_HEADER_LEN, whole) {
            self.requests.next_segment(state, &segment, offset, position + total);
        } else {
            self.tail.take_window(state, &segment, position, total);
        }
        let mut chain = 0;
        self.place(state, payload.len(), batch, |writer, piece, range| {
            chain = writer.store(state, &piece, &payload[range], chain, whole)?;
            Ok(())
        })?;
        check!(self.check(state));
        Ok(())
    }

    /// Reads the clock. Closes the fast path when the tail's segment takes no more messages, and
    /// marks when the next ones are written.
    #[inline(never)]
    fn look_at_clock<S: Storage<File = F>>(&mut self, state: &State<S>) {
        self.clock.look(&state.storage);
        if let Some((begun, until)) = self.clock.next_mark() {
            state.write_times.lock().mark(self.tail.at.seq, begun, until);
        }
        if self.clock.is_over() {
            self.tail.close();
        }
    }

    /// Makes all pushed records visible at once, and returns the tail. Where the index is written
    /// by calls, a call may fail: then nothing has changed, and the caller rolls back. (If the
    /// record cannot be cleared either, it is committed all the same: see [`stays`](Self::stays).)
    #[inline(always)]
    pub(crate) fn commit<S: Storage<File = F>>(&mut self, state: &State<S>) -> Result<Spot> {
        let tail = self.tail.at;
        // Another thread cannot move it meanwhile: this one holds the producers' lock.
        let before = || state.committed().spot();
        if planted!(PublishedBeforeTheIndex) && !state.durable_only {
            state.visible.publish(tail);
            reached!("published");
        }
        // Store the index's tail before publishing: after a kill, it must not lie before a message
        // that a consumer took.
        if let Err(error) = state.index.move_tail(tail, before)
            && !self.stays(state, before())
        {
            return Err(Error::io("write", state.storage.path().join(format::INDEX_NAME), error));
        }
        reached!("before a tail is published");
        state.publish_committed(tail);
        check!(self.check(state));
        Ok(tail)
    }

    /// Handles a failed store of the index's tail behind a whole record, which begins at `before`
    /// or in a segment of its own. Clears the record's header and returns false. If that fails too,
    /// recovery would find the record after the death of this process: so commits it, leaves the
    /// index's tail late, and returns true.
    #[cold]
    fn stays<S: Storage<File = F>>(&self, state: &State<S>, before: Spot) -> bool {
        let own = {
            let list = state.segments.list();
            let own = list.live.iter().find(|row| row.header.base > before.position).copied();
            // In a segment that begins with the rest of a record, the first new record has the next
            // number.
            own.filter(|row| row.header.first_seq == before.seq)
        };
        let begins = own.map_or(before.position, |row| row.header.base);
        if self.clear_header(state, begins) {
            return false;
        }
        state.index.set_tail(self.tail.at);
        true
    }

    /// Rolls back everything pushed since the last commit.
    #[cold]
    pub(crate) fn roll_back<S: Storage<File = F>>(&mut self, state: &State<S>) {
        let committed = state.committed().spot();
        if self.tail.at.position == committed.position {
            return;
        }
        self.tail.go_back(committed);
        let committed = committed.position;
        if let Some(next) = self.pending_segment.take_back(committed) {
            state.index.set_next(Some(next));
        }
        if state.segments.drain_behind(committed) {
            // Best effort: the queue reclaims a drained segment at the latest when it needs the
            // next one.
            let _ = state.have_reclaimed();
        }
        // Recovery would cut off an incomplete record at the tail. Clear its header all the same.
        self.uncleared = !planted!(RefusedHeaderStays) && !self.clear_tail(state);
        check!(self.check(state));
    }

    /// Returns whether the tail has no bytes that a reader could take for a record. Tries again to
    /// clear them.
    pub(crate) fn is_cleared<S: Storage<File = F>>(&mut self, state: &State<S>) -> bool {
        self.uncleared = self.uncleared && !self.clear_tail(state);
        !self.uncleared
    }

    /// Overwrites the header at the tail with zeros. Returns false when that failed.
    fn clear_tail<S: Storage<File = F>>(&self, state: &State<S>) -> bool {
        self.clear_header(state, self.tail.at.position)
    }

    /// Opens the live segment that holds `position`, to store to it.
    fn segment_at<S: Storage<File = F>>(
        state: &State<S>,
        position: u64,
    ) -> Option<Arc<Segment<F>>> {
        let mut list = state.segments.list();
        let row = list.at(position).filter(|row| row.header.base <= position);
        let opened = row.and_then(|row| list.open(&state.storage, &row).ok());
        opened.inspect(|segment| list.note_store(segment))
    }

    fn clear_header<S: Storage<File = F>>(&self, state: &State<S>, position: u64) -> bool {
        if let Some(segment) = Self::segment_at(state, position)
            && position + FRAGMENT_HEADER_LEN <= segment.allocated_end()
        {
            let (offset, header) = (segment.offset(position), [0; FRAGMENT_HEADER_LEN as usize]);
            // The call that failed may have stored the whole record all the same. The clearing call
            // may fail too: then a store through a mapping does it.
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

    /// Makes the next record begin a new segment, after the last one was evicted, which ends at
    /// `end`. The tail lies behind that end when the tail's own segment was lost.
    pub(crate) fn begin_anew<S: Storage<File = F>>(&mut self, state: &State<S>, end: u64) {
        self.release();
        if let Some(next) = self.pending_segment.begin(self.follow(Some(end))) {
            state.index.set_next(Some(next));
        }
    }

    /// Notes that there was no room for the record that was rolled back.
    pub(crate) fn note_refused(&mut self) {
        self.release();
        self.refused = true;
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused
    }

    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Closes the fast path at the end of a run: each later call first checks whether the queue is
    /// open.
    pub(crate) fn stop(&mut self) {
        self.tail.close();
    }

    /// Releases the tail's segment and window.
    pub(crate) fn release(&mut self) {
        self.tail.release();
    }
}

/// Returns an error for a message that could not fit into an empty queue, with `before` bytes
/// before it in its record.
pub(crate) fn check_fits<S: Storage>(state: &State<S>, len: u64, before: u64) -> Result<()> {
    let max = state.max_message().saturating_sub(before);
    if len <= max {
        return Ok(());
    }
    let max_bytes = state.limits.max_bytes.filter(|_| max + before < format::MAX_MESSAGE_LEN);
    Err(Error::MessageTooLarge { path: state.storage.path().to_owned(), len, max, max_bytes })
}
