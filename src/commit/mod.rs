//! The producers' lock, and the work of the storage worker.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `mod` | [`Core`]: the shared state, the writer under the producers' lock | flushes to the committed tail; evicts or drains the tail's segment |
//! | `reclaiming` | | reclaims segments, evicts old messages, in the storage worker |
//! | `storage_worker` | when its work is due | the storage worker's thread |

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

    /// Returns the end of what consumers may read, with exactly its sequence number.
    pub(crate) fn visible_end(&self) -> Spot {
        if self.durable_only { self.durable.lock().spot } else { self.committed_spot() }
    }

    /// Returns the committed tail, with exactly its sequence number, without waiting for the
    /// producers' lock. While a producer holds the lock, takes the tail from the index, which shows
    /// whether its two words belong together. The loop ends soon: a producer that holds the lock
    /// for long is not storing that tail.
    pub(crate) fn committed_spot(&self) -> Spot {
        loop {
            if let Some(_no_producer) = self.writer.try_lock() {
                return self.committed().spot();
            }
            // A producer may still roll back a tail that is in the index but not yet published.
            if let Some(tail) = self.index.tail()
                && (tail.position <= self.committed().position.load(Ordering::Acquire)
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

    /// Evicts segments whose messages are all too old, including the tail's. The caller holds the
    /// producers' lock and has pushed nothing since the last commit.
    pub(crate) fn expire_for(&self, writer: &mut Writer<S::File>) -> bool {
        let expired = self.state.expire();
        self.expire_tail(writer) | expired
    }

    fn expire_tail(&self, writer: &mut Writer<S::File>) -> bool {
        let Some(ages) = self.ages.filter(|_| self.check_writable().is_ok()) else {
            return false;
        };
        let tail = self.committed().spot().position;
        let (end, unread) = (writer.messages_end(self), self.unread());
        if !self.segments.is_tail_too_old(&self.context(), ages, tail)
            || !self.drain_tail(writer, GapCause::Expired, end)
        {
            return false;
        }
        self.note_expired(end, unread);
        true
    }

    /// Drains the tail's segment, by
    /// [`Segments::drain_tail`](crate::segment::Segments::drain_tail), and makes the next record
    /// begin another one. Returns whether it drained the segment.
    pub(crate) fn drain_tail(
        &self,
        writer: &mut Writer<S::File>,
        cause: GapCause,
        evicted: u64,
    ) -> bool {
        if !writer.is_cleared(self) {
            return false;
        }
        let tail = Spot { seq: writer.messages_end(self), ..self.committed().spot() };
        let Some(end) = self.segments.drain_tail(&self.context(), tail, cause, evicted) else {
            return false;
        };
        writer.begin_anew(self, end);
        true
    }

    /// Drains the segments that every consumer has passed, including the tail's when all of it is
    /// read. Returns whether it drained any. The caller holds the producers' lock.
    pub(crate) fn drain_read(&self, writer: &mut Writer<S::File>) -> bool {
        // Never waits for `giving_back`: a thread that holds it to choose a position may wait for
        // the producers' lock.
        if planted!(RoomWaitsForASeek) {
            drop(self.places.giving_back.read());
        }
        let Some(giving_back) = self.places.giving_back.try_read() else {
            return false;
        };
        let Some(lowest) = self.places.lowest() else {
            return false;
        };
        let tail = self.committed().spot();
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

    /// Drains the segments that every consumer has passed, if the tail's segment is longer than
    /// that of a nearly empty queue (see [`drain_read`](Self::drain_read)).
    pub(crate) fn drain_long_tail(&self) -> bool {
        self.has_long_tail()
            && self.writer.try_lock().is_some_and(|mut writer| self.drain_read(&mut writer))
    }

    /// Makes everything durable: messages, then consumer positions.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.check_names()?;
        let target = self.committed_spot();
        self.flush_to(target)?;
        self.wake_owed();
        reached!("behind a flush's messages");
        self.flush_places()?;
        if self.has_run_ended() {
            // This flush cannot know whether the last flush of the run failed.
            return self.check_writable();
        }
        Ok(())
    }

    /// Flushes for futures that wait for it, in the storage worker.
    pub(crate) fn flush_for_tasks(&self, serves: Option<&dyn Fn()>) -> Result<()> {
        self.check_names()?;
        self.flush_on_time(serves)
    }

    /// Makes messages, then positions durable, in the storage worker. Does not wait for the
    /// producers' lock, since a producer that holds it may wait for the worker, which `serves` it.
    pub(crate) fn flush_on_time(&self, serves: Option<&dyn Fn()>) -> Result<()> {
        self.check_writable()?;
        if planted!(KeeperWaitsForProducers) {
            drop(self.writer.lock());
        }
        self.flush_or_wait(self.committed_spot(), None, serves)?;
        self.flush_places()
    }

    /// Whether the queue is still as new after a run with so many `moves`: then its first sync is
    /// left to the run that stores its first message. (Recovery counts one move, so that a caller's
    /// flush makes the index and its names durable.)
    fn stays_untouched(&self, moves: u64) -> bool {
        self.is_untouched && moves == 1 && !self.storage.has_made_parents()
    }

    /// Performs the last flush of a run and writes the checkpoint of a clean end.
    pub(crate) fn flush_finally(&self) -> Result<()> {
        // The queue is closed, so `check_writable` would reject this flush. Still report a failed
        // sync.
        self.index.poison.check()?;
        self.check_names()?;
        let target = self.committed_spot();
        if planted!(CheckpointBeforeData) {
            let _ = self.write_clean_end(target);
        }
        let is_durable = self.durable.lock().spot.position >= target.position;
        let is_durable = is_durable && !self.has_unsynced_files();
        if is_durable && !self.writer.lock().has_begun() {
            // This run stored no message, and recovery found none that may exist only in the page
            // cache. At most, consumers have moved and segments were reclaimed.
            let moves = self.places.moves();
            return if *self.places.synced_moves.lock() < moves && !self.stays_untouched(moves) {
                self.flush_places()
            } else {
                Ok(())
            };
        }
        if is_durable {
            self.sync_directory()?;
            return self.write_clean_end(target);
        }
        self.flush_and_end(target)
    }
}
