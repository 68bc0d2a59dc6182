//! The producers' lock, under which records are committed; the flushes that begin with the
//! committed tail; and the storage worker, which flushes by time and reclaims segments.

mod reclaiming;
pub(crate) mod storage_worker;

use std::ops::Deref;
use std::sync::atomic::Ordering;

use crate::error::{GapCause, Result};
use crate::format::Spot;
use crate::state::State;
use crate::storage::Storage;
use crate::threads::Mutex;
use crate::threads::padded::Padded;
use crate::threads::ranks::{Rank, ranked};
use crate::write::Writer;

/// One open queue below its consumers: the [`State`], and the writer under the producers' lock.
#[derive(Debug)]
pub(crate) struct Core<S: Storage> {
    state: State<S>,
    pub(crate) writer: Padded<Mutex<Writer<S::File>>>,
}

impl<S: Storage> Deref for Core<S> {
    type Target = State<S>;

    #[inline(always)]
    fn deref(&self) -> &State<S> {
        &self.state
    }
}

impl<S: Storage> Core<S> {
    pub(crate) fn new(state: State<S>, writer: Writer<S::File>) -> Core<S> {
        Core { state, writer: Padded::new(ranked(Rank::Producers, writer)) }
    }

    /// The end of what consumers may read, with exactly its number.
    pub(crate) fn visible_end(&self) -> Spot {
        if self.durable_only { self.durable.lock().spot } else { self.committed_spot() }
    }

    /// The committed tail, with exactly its number.
    pub(crate) fn committed_spot(&self) -> Spot {
        self.writer.lock().committed()
    }

    /// As [`committed_spot`](Self::committed_spot), for the storage worker, which must not wait for
    /// the producers' lock. While a producer holds the lock, the spot comes from the tail in the
    /// index, which shows whether its two words belong together. The loop ends soon: a producer
    /// that holds the lock for long is not storing that tail.
    pub(crate) fn committed_spot_at_once(&self) -> Spot {
        loop {
            if let Some(writer) = self.writer.try_lock() {
                return writer.committed();
            }
            // A tail that is stored in the index and not published may still be rolled back.
            if let Some(tail) = self.index.tail()
                && (tail.position <= self.committed.position.load(Ordering::Acquire)
                    || planted!(UncommittedTailFlushed))
            {
                return tail;
            }
            reached!("between two looks at the committed tail");
            std::hint::spin_loop();
        }
    }

    /// Evicts segments whose messages are all too old; the tail's too, unless a producer holds
    /// the producers' lock. Returns whether there are segments to reclaim.
    pub(crate) fn expire(&self) -> bool {
        let expired = self.state.expire();
        self.writer.try_lock().is_some_and(|mut writer| self.expire_tail(&mut writer)) | expired
    }

    /// As [`expire`](Self::expire). The caller holds the producers' lock and has pushed nothing
    /// since the last commit.
    pub(crate) fn expire_for(&self, writer: &mut Writer<S::File>) -> bool {
        let expired = self.state.expire();
        self.expire_tail(writer) | expired
    }

    fn expire_tail(&self, writer: &mut Writer<S::File>) -> bool {
        let Some(ages) = self.ages.filter(|_| self.check_writable().is_ok()) else {
            return false;
        };
        let tail = writer.committed().position;
        let (retained_from, unread) = (writer.retained_end(), self.unread());
        if !self.segments.is_tail_too_old(&self.context(), ages, tail)
            || !self.drain_tail(writer, GapCause::Expired, retained_from)
        {
            return false;
        }
        self.note_expired(retained_from, unread);
        true
    }

    /// Drains the tail's segment, by
    /// [`Segments::drain_tail`](crate::segment::Segments::drain_tail), and has the next record
    /// begin another one. Returns whether it did.
    pub(crate) fn drain_tail(
        &self,
        writer: &mut Writer<S::File>,
        cause: GapCause,
        evicted: u64,
    ) -> bool {
        if !writer.is_cleared(self) {
            return false;
        }
        let tail = Spot { seq: writer.retained_end(), ..writer.committed() };
        let Some(end) = self.segments.drain_tail(&self.context(), tail, cause, evicted) else {
            return false;
        };
        writer.begin_anew(self, end);
        true
    }

    /// Drains the segments that every consumer has passed; the tail's too when all of it is read.
    /// Returns whether there are segments to reclaim. The caller holds the producers' lock.
    pub(crate) fn drain_read(&self, writer: &mut Writer<S::File>) -> bool {
        // Never waits for `giving_back`: who holds it to find a place may wait for the producers'
        // lock.
        if planted!(RoomWaitsForASeek) {
            drop(self.places.giving_back.read());
        }
        let Some(giving_back) = self.places.giving_back.try_read() else {
            return false;
        };
        let Some(lowest) = self.places.lowest() else {
            return false;
        };
        let tail = writer.committed();
        let drained = self.segments.drain(lowest);
        let drained_tail = lowest >= tail.position && self.drain_tail(writer, GapCause::Dropped, 0);
        drop(giving_back);
        if drained_tail {
            self.oldest_seq.fetch_max(tail.seq, Ordering::AcqRel);
        }
        if drained || drained_tail {
            self.note_oldest();
        }
        drained || drained_tail
    }

    /// As [`drain_read`](Self::drain_read), where the tail's segment is longer than a queue needs
    /// that is nearly empty.
    pub(crate) fn drain_long_tail(&self) -> bool {
        self.has_long_tail()
            && self.writer.try_lock().is_some_and(|mut writer| self.drain_read(&mut writer))
    }

    /// Makes everything durable: messages, then places.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.check_directory()?;
        let target = self.committed_spot();
        self.flush_to(target)?;
        self.wake_owed();
        reached!("behind a flush's messages");
        self.flush_places()?;
        if self.has_run_ended() {
            // Whether the last flush of the run failed this one cannot know.
            return self.check_writable();
        }
        Ok(())
    }

    /// As [`flush_on_time`](Self::flush_on_time), for futures that wait for it.
    pub(crate) fn flush_for_tasks(&self) -> Result<()> {
        self.check_directory()?;
        self.flush_on_time()
    }

    /// As [`flush`](Self::flush), for the storage worker: does not wait for the producers' lock,
    /// since a producer that holds it may be waiting for the worker.
    pub(crate) fn flush_on_time(&self) -> Result<()> {
        self.check_writable()?;
        if planted!(KeeperWaitsForProducers) {
            drop(self.writer.lock());
        }
        self.flush_to(self.committed_spot_at_once())?;
        self.flush_places()
    }

    /// The last flush of a run. Afterwards the checkpoint says that the run ended cleanly.
    pub(crate) fn flush_finally(&self) -> Result<()> {
        // The queue is closed, so `check_writable` would refuse this flush. A failed sync is still
        // reported.
        self.index.poison.check()?;
        self.check_directory()?;
        let target = self.committed_spot();
        if planted!(CheckpointBeforeData) {
            let _ = self.write_clean_end(target);
        }
        if !self.writer.lock().has_begun() && self.durable.lock().spot.position >= target.position {
            // This run stored no message, and its opening found none that may exist in the page
            // cache alone. At most, places have moved and segments were given back.
            return if *self.places.synced_moves.lock() < self.places.moves() {
                self.flush_places()
            } else {
                Ok(())
            };
        }
        self.flush_to(target)?;
        self.sync_directory()?;
        self.write_clean_end(target)
    }
}
