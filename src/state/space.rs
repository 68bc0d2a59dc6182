//! Disk space: reclaims drained segments, expires messages, and waits for space.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{AHEAD, Began, State};
use crate::error::Result;
use crate::format;

use crate::segment::{Plan, Reclaims, RoomAhead, Segment};
use crate::storage::Storage;
use crate::threads::requests::Request;
use crate::threads::{Condvar, Mutex, now};

/// A thread that waits for room tries again after this time: no signal arrives when other programs
/// free space on the same disk.
pub(crate) const LOOK_FOR_ROOM: Duration = Duration::from_millis(20);

/// Where producers wait when the queue is full.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// How often space was freed.
    pub(crate) gate: Mutex<u64>,
    freed: Condvar,
    /// Set by a test so that threads waiting for room retry only when woken: a thread that misses
    /// its wake then waits forever.
    #[cfg(test)]
    pub(crate) looks_only_when_woken: std::sync::atomic::AtomicBool,
}

impl Space {
    /// Returns whether threads that wait for room retry now and then without being woken.
    pub(crate) fn is_looked_for(&self) -> bool {
        #[cfg(test)]
        return !self.looks_only_when_woken.load(Ordering::SeqCst);
        #[cfg(not(test))]
        true
    }
}

impl<S: Storage> Reclaims for State<S> {
    /// Makes the storage worker reclaim drained segments and waits for it; without a storage
    /// worker, reclaims in this thread (see [`State::reclaim`]).
    fn have_reclaimed(&self) -> Result<()> {
        if !self.has_reclaimable() {
            return Ok(());
        }
        self.storage_worker.ask(Request::Reclaim).unwrap_or_else(|| self.reclaim())
    }
}

impl<S: Storage> State<S> {
    /// Evicts every segment whose messages are all too old, except the last one. Returns whether it
    /// evicted any.
    pub(crate) fn expire(&self) -> bool {
        let Some(ages) = self.ages else {
            return false;
        };
        let unread = self.unread();
        let expired = self.segments.expire(
            &self.context(),
            ages,
            self.committed().position.load(Ordering::Acquire),
        );
        expired.is_some_and(|retained_from| {
            self.note_expired(retained_from, unread);
            true
        })
    }

    /// Notes that the messages below `retained_from` expired: see
    /// [`note_evicted`](Self::note_evicted).
    pub(crate) fn note_expired(&self, retained_from: u64, unread: u64) {
        self.oldest_seq.fetch_max(retained_from, Ordering::AcqRel);
        self.note_evicted(unread);
    }

    /// Returns the first retained sequence number that some consumer has not finished.
    pub(crate) fn unread(&self) -> u64 {
        self.places.lowest_seq().max(self.oldest_seq.load(Ordering::Acquire))
    }

    /// Stores in the index, for the next opening, up to which number messages were evicted, and
    /// counts them. `unread` is the value of [`unread`](Self::unread) before the eviction.
    pub(crate) fn note_evicted(&self, unread: u64) {
        self.index.set_evicted(&self.gaps.evicted.lock());
        self.gaps.count_evicted(self.storage.path(), unread);
    }

    /// Reclaims drained segments. Does nothing after a failed sync, when no consumer position is
    /// known to be durable (R8).
    pub(crate) fn reclaim(&self) -> Result<()> {
        if !self.has_reclaimable() {
            return Ok(());
        }
        // Recovery keeps the rest of a batch without its beginning only by the durable mark, and
        // the mark of an earlier run's flush may be lost. So what the opening found is flushed
        // before any of it goes. A failed sync poisons the queue. After any other error, reclaim
        // all the same: the flush may lack the very space that this frees.
        let _ = self.flush_to(self.found_tail);
        if self.is_poisoned() {
            return Ok(());
        }
        self.segments.reclaim(&self.context())
    }

    fn has_reclaimable(&self) -> bool {
        !self.is_poisoned() && self.segments.list().has_drained()
    }

    /// Makes the next segment of the queue. A queue that drops its oldest messages lets the storage
    /// worker drop them ahead of need, and waits for it only when there is no room for the segment.
    pub(crate) fn append(&self, plan: Plan) -> Result<Arc<Segment<S::File>>> {
        let room = self.segments.room_ahead(&self.context(), &plan);
        if room == RoomAhead::Nothing
            && let Some(made) = self.storage_worker.ask(Request::Room)
        {
            // (Without a storage worker the segment is refused, and the engine looks for room.)
            made?;
        }
        let segment = self.segments.append(&self.context(), plan)?;
        self.store_figures();
        if room != RoomAhead::Enough {
            self.storage_worker.request(|wanted| wanted.room = true);
        }
        Ok(segment)
    }

    /// Allocates the segment's space up to offset `end` (see
    /// [`Segments::extend`](crate::segment::Segments::extend)).
    pub(crate) fn extend(&self, segment: &Segment<S::File>, end: u64) -> Result<()> {
        self.segments.extend(&self.context(), segment, end)
    }

    /// Returns whether `need` bytes go to a spare, before the tail's segment is full (see
    /// [`List::spare_in_need`](crate::segment::List::spare_in_need)).
    pub(crate) fn takes_spare(&self, need: u64) -> bool {
        let context = self.context();
        self.segments.list().spare_in_need(&context, need).is_some()
    }

    /// Reclaims drained segments. Returns whether a writer without room should try again (see
    /// [`Segments::regain`](crate::segment::Segments::regain)).
    pub(crate) fn regain(&self, seen: u64) -> Result<bool> {
        if self.is_poisoned() {
            return Ok(false);
        }
        self.segments.regain(&self.context(), seen)
    }

    /// Asks the storage worker for a spare for the next segment, unless there is one.
    pub(crate) fn ask_for_spare(&self) {
        let end = self.segments.list().live.back().map(|row| row.header.end());
        if end.is_some_and(|end| self.segments.lacks_spare(&self.context(), self.backlog(end))) {
            self.storage_worker.request(|wanted| wanted.ahead = true);
        }
    }

    /// Makes the next segment as a spare when the tail is near the end of its own, so that no
    /// producer waits for a new file.
    ///
    /// Having the storage worker fill the tail's segment with zeros was tried too. Zeros written by
    /// another processor are in the wrong cache: storing 128-byte messages took 1.5 times the
    /// processor time, with no gain in wall time on two processors.
    pub(crate) fn prepare_ahead(&self) {
        let Some(end) = self.segments.list().live.back().map(|row| row.header.end()) else {
            return;
        };
        if !self.is_poisoned()
            && end.saturating_sub(self.committed().position.load(Ordering::Acquire)) <= AHEAD
        {
            self.segments.prepare(&self.context(), self.backlog(end));
        }
    }

    pub(crate) fn has_long_tail(&self) -> bool {
        self.segments.list().has_long_tail(self.pool.geometry())
    }

    /// Returns how many retained bytes before `end` some consumer has still to read; without a
    /// consumer, all retained bytes.
    pub(crate) fn backlog(&self, end: u64) -> u64 {
        let oldest = self.segments.list().live.front().map_or(end, |row| row.header.base);
        holds!(oldest <= end, "the oldest segment begins at {oldest}, before the end, {end}");
        end.saturating_sub(self.places.lowest().unwrap_or(0).max(oldest))
    }

    /// Returns the length of the longest message that fits into the empty queue under its limits.
    pub(crate) fn max_message(&self) -> u64 {
        let Some(max_bytes) = self.limits.max_bytes else {
            return format::MAX_MESSAGE_LEN;
        };
        // Quarantined files do not count here: the user may remove them.
        let taken = self.index.len();
        let segment_len = self.pool.geometry().most_len;
        let segments =
            max_bytes.saturating_sub(taken) / (segment_len + crate::segment::overhead(segment_len));
        // One segment less: messages before this one may lie in the tail's segment.
        let each = segment_len - format::SEGMENT_HEADER_LEN - 2 * format::FRAGMENT_HEADER_LEN;
        (segments.saturating_sub(1) * each).clamp(1, format::MAX_MESSAGE_LEN)
    }

    /// Calls `grow` with the number of bytes by which the index file may grow. Holds the list's
    /// lock, so that no segment takes that space meanwhile.
    pub(crate) fn with_index_room<R>(&self, grow: impl FnOnce(u64) -> R) -> R {
        let context = self.context();
        let list = self.segments.list();
        grow(list.index_room(&context))
    }

    pub(crate) fn wake_writers(&self) {
        *self.space.gate.lock() += 1;
        self.space.freed.notify_all();
        self.wake_for_room_elsewhere();
    }

    /// Waits until another thread frees space after `seen` (a value of [`Space::gate`]), but at
    /// most 20 ms. Returns false when `deadline` has passed.
    ///
    /// # Errors
    ///
    /// After an interrupt since `began`.
    pub(crate) fn wait_for_space(
        &self,
        seen: u64,
        deadline: Option<Instant>,
        began: Began,
    ) -> Result<bool> {
        let mut gate = self.space.gate.lock();
        let soon = now() + LOOK_FOR_ROOM;
        let until = deadline.map_or(soon, |deadline| deadline.min(soon));
        if *gate == seen && !self.index.poison.is_closed() && !self.is_interrupted(began) {
            if self.space.is_looked_for() {
                self.space.freed.wait_until(&mut gate, until);
            } else {
                self.space.freed.wait(&mut gate);
            }
        }
        drop(gate);
        self.check_uninterrupted(began)?;
        Ok(deadline.is_none_or(|deadline| now() < deadline))
    }

    /// Drains the segments that every consumer has passed. Returns whether it drained any.
    pub(crate) fn drain_passed(&self) -> bool {
        let _giving_back = (!planted!(DrainedWhileChosen)).then(|| self.places.giving_back.read());
        let Some(lowest) = self.places.lowest() else {
            return false;
        };
        let drained = self.segments.drain(lowest);
        if drained {
            self.note_oldest();
        }
        drained
    }

    /// Moves `oldest_seq` to the first message of the first live segment.
    pub(crate) fn note_oldest(&self) {
        let first = self.segments.list().first_seq();
        if let Some(first) = first {
            self.oldest_seq.fetch_max(first, Ordering::AcqRel);
        }
    }
}
