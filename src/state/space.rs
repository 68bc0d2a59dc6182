//! Disk space: giving drained segments back, expiring messages, and waiting for space.

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

/// Who waits for room looks again after this time: nobody signals space that other programs free
/// on the same disk.
pub(crate) const LOOK_FOR_ROOM: Duration = Duration::from_millis(20);

/// Where producers wait when the queue is full.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Counts how often space was given back.
    pub(crate) gate: Mutex<u64>,
    freed: Condvar,
    /// A test has those who wait for room look only when they are woken: one that is not woken
    /// waits for ever.
    #[cfg(test)]
    pub(crate) looks_only_when_woken: std::sync::atomic::AtomicBool,
}

impl Space {
    /// Whether those who wait for room look for it now and then, woken or not.
    pub(crate) fn is_looked_for(&self) -> bool {
        #[cfg(test)]
        return !self.looks_only_when_woken.load(Ordering::SeqCst);
        #[cfg(not(test))]
        true
    }
}

impl<S: Storage> Reclaims for State<S> {
    /// As [`State::reclaim`]. The storage worker does it; without one, the calling thread.
    fn have_reclaimed(&self) -> Result<()> {
        if !self.has_reclaimable() {
            return Ok(());
        }
        self.storage_worker.ask(Request::Reclaim).unwrap_or_else(|| self.reclaim())
    }
}

impl<S: Storage> State<S> {
    /// Evicts every segment whose messages are all too old, except the last one. Returns whether
    /// there are segments to reclaim.
    pub(crate) fn expire(&self) -> bool {
        let Some(ages) = self.ages else {
            return false;
        };
        let unread = self.unread();
        let expired = self.segments.expire(
            &self.context(),
            ages,
            self.committed.position.load(Ordering::Acquire),
        );
        expired.is_some_and(|held| {
            self.note_expired(held, unread);
            true
        })
    }

    /// As [`note_evicted`](Self::note_evicted), of messages below `held` that expired.
    pub(crate) fn note_expired(&self, held: u64, unread: u64) {
        self.oldest_seq.fetch_max(held, Ordering::AcqRel);
        self.note_evicted(unread);
    }

    /// The first number held that some consumer has yet to deal with.
    pub(crate) fn unread(&self) -> u64 {
        self.places.lowest_seq().max(self.oldest_seq.load(Ordering::Acquire))
    }

    /// Stores in the index, for the next opening, up to which number messages were evicted, and
    /// counts them. `unread` is [`unread`](Self::unread) of before that.
    pub(crate) fn note_evicted(&self, unread: u64) {
        self.index.set_evicted(&self.gaps.evicted.lock());
        self.gaps.count_evicted(self.storage.path(), unread);
    }

    /// Reclaims drained segments. After a failed sync it does nothing: no place can be known to be
    /// durable (R8).
    pub(crate) fn reclaim(&self) -> Result<()> {
        if !self.has_reclaimable() {
            return Ok(());
        }
        // A failed sync poisons the queue. After another error reclaiming goes on: the flush may
        // lack the very room that reclaiming gives.
        let _ = self.flush_to(self.flush_before_reclaim);
        if self.is_poisoned() {
            return Ok(());
        }
        self.segments.reclaim(&self.context())
    }

    fn has_reclaimable(&self) -> bool {
        !self.is_poisoned() && self.segments.list().has_drained()
    }

    /// Makes the next segment of the queue. One that drops its oldest messages has the storage
    /// worker do so ahead of need, and waits for it only when there is no room for the segment.
    pub(crate) fn append(&self, plan: Plan) -> Result<Arc<Segment<S::File>>> {
        let room = self.segments.room_ahead(&self.context(), &plan);
        if room == RoomAhead::Nothing
            && let Some(made) = self.storage_worker.ask(Request::Room)
        {
            // (Without one the segment is refused, and the engine looks for room.)
            made?;
        }
        let segment = self.segments.append(&self.context(), plan)?;
        self.store_figures();
        if room != RoomAhead::Enough {
            self.storage_worker.request(|wanted| wanted.room = true);
        }
        Ok(segment)
    }

    /// As [`Segments::extend`](crate::segment::Segments::extend).
    pub(crate) fn extend(&self, segment: &Segment<S::File>, end: u64) -> Result<()> {
        self.segments.extend(&self.context(), segment, end)
    }

    /// As [`Segments::regain`](crate::segment::Segments::regain).
    pub(crate) fn regain(&self, seen: u64) -> Result<bool> {
        if self.is_poisoned() {
            return Ok(false);
        }
        self.segments.regain(&self.context(), seen)
    }

    /// Makes the next segment when the tail is near the end of its own, so that no producer waits
    /// for a new file.
    ///
    /// Having the storage worker fill the tail's segment with zeros was tried too. Zeros written by
    /// another processor are in the wrong cache: storing 128-byte messages took 1.5 times the
    /// processor time, with no gain in wall time on two processors.
    pub(crate) fn prepare_ahead(&self) {
        let Some(end) = self.segments.list().live.back().map(|row| row.header.end()) else {
            return;
        };
        if !self.is_poisoned()
            && end.saturating_sub(self.committed.position.load(Ordering::Acquire)) <= AHEAD
        {
            self.segments.prepare(&self.context(), self.backlog(end));
        }
    }

    pub(crate) fn has_long_tail(&self) -> bool {
        self.segments.list().has_long_tail(self.pool.geometry())
    }

    /// How many bytes before `end` are held, and some consumer has still to read them. Without a
    /// consumer, all that are held.
    pub(crate) fn backlog(&self, end: u64) -> u64 {
        let held = self.segments.list().live.front().map_or(end, |row| row.header.base);
        end.saturating_sub(self.places.lowest().unwrap_or(0).max(held))
    }

    /// The longest message, in bytes, that fits into the queue under its limits when it is empty.
    pub(crate) fn max_message(&self) -> u64 {
        let Some(max_bytes) = self.limits.max_bytes else {
            return format::MAX_MESSAGE_LEN;
        };
        // Without quarantined files: the user may remove them, and until then the queue is full.
        let taken = self.index.len();
        let segment_len = self.pool.geometry().most_len;
        let segments =
            max_bytes.saturating_sub(taken) / (segment_len + crate::segment::overhead(segment_len));
        // One segment less: messages before this one may lie in the tail's segment.
        let each = segment_len - format::SEGMENT_HEADER_LEN - 2 * format::FRAGMENT_HEADER_LEN;
        (segments.saturating_sub(1) * each).clamp(1, format::MAX_MESSAGE_LEN)
    }

    /// Calls `grow` with the bytes by which the index file may grow. Holds the list's lock, so no
    /// segment takes that space meanwhile.
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

    /// Waits until space was given back after `seen` (a value of [`Space::gate`]), but for 20 ms at
    /// most. Returns false when `deadline` has passed.
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

    /// Drains the segments that every consumer has passed. Returns whether there were any.
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
