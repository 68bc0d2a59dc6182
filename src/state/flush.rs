//! Flushes: their order, group commit, poisoning after a failed sync.
//!
//! A flush syncs the segments that writers stored to, then the directory if files were created or
//! renamed, and only then moves the durable mark. All threads that wait for a flush share one sync:
//! the first becomes the leader and syncs everything that the others want; the others wait until
//! the mark passes their record. Producers enqueue meanwhile.
//!
//! The list keeps the descriptor of a segment's first store open until a flush has synced the
//! segment through it, also when the segment is full. The reason: the kernel reports a failed
//! write-back to open descriptors, and may have forgotten it when one is opened later. Descriptors
//! are few, so the number of full, unsynced segments is bounded (`List::most_unsynced`). From
//! [`MOST_BEHIND`] bytes of them on, or three quarters of the bound, a producer asks the storage
//! worker for a flush; at the bound it waits for the storage worker, with the producers' lock held.
//! So the storage worker and the leader of a flush must never wait for that lock.
//!
//! A flush syncs the index after the data it describes, and only in two cases: a consumer's
//! position has moved, or the checkpoint is more than [`CHECKPOINT_EVERY`] bytes behind (recovery
//! walks from it). So a durable enqueue costs one sync. If the caller never flushes, the flushes
//! that producers ask for bound what recovery has to walk over. They ask when a segment is full,
//! and within a segment only where it is longer than [`MOST_BEHIND`]: a sync of the tail's segment
//! makes each page behind the tail fault again.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::format::{Checkpoint, Spot};
use crate::state::leading::{Leading, Led};
use crate::state::{Began, Durable, MOST_BEHIND, State};
use crate::storage::Storage;
use crate::threads::requests::Request;
use crate::threads::{MutexGuard, now};

/// Bytes after which a flush renews the checkpoint. (Fewer in the crash tests, whose disks are
/// small.)
const CHECKPOINT_EVERY: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };

/// What a flush of consumer positions does with the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointIs {
    /// It writes one when the last one is far behind.
    WrittenIfDue,
    /// It always writes one.
    Written,
}

/// The positions that one flush leader makes durable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) from: Spot,
    pub(super) to: Spot,
    /// See [`Led::end`].
    pub(super) end: u64,
}

impl<S: Storage> State<S> {
    fn begin_flush(&self, durable: &Durable) -> Led {
        let last = self.segments.list().live.back().map_or(0, |row| row.header.base);
        Led { to: durable.wanted, end: last.max(durable.wanted.position), began: now() }
    }

    /// Flushes everything before the committed `spot`, or waits for a flush that does.
    pub(crate) fn flush_to(&self, spot: Spot) -> Result<()> {
        self.flush_or_wait(spot, None, None)
    }

    /// Flushes everything before the committed `spot`, or waits for a flush that does. With
    /// `began`, an interrupt since then ends the wait for another thread's flush. The storage
    /// worker `serves` the producer that waits for it after each part.
    pub(crate) fn flush_or_wait(
        &self,
        spot: Spot,
        began: Option<Began>,
        serves: Option<&dyn Fn()>,
    ) -> Result<()> {
        let mut durable = self.durable.lock();
        durable.want(spot);
        check!(durable.check());
        let mut led = None;
        while durable.spot.position < spot.position || self.has_unsynced_files() {
            if self.has_run_ended() || self.is_poisoned() {
                drop(durable);
                return self.check_writable();
            }
            if let Some(began) = began.filter(|_| durable.has_leader) {
                self.check_uninterrupted(began)?;
            }
            let checkpoint = |target| self.checkpoint_if_overtaken(target);
            (durable, _) = self.lead_or_wait(durable, &mut led, checkpoint, serves)?;
        }
        Ok(())
    }

    /// Leads the next part of the flush that this thread has `led` so far, or waits for the end of
    /// another thread's part; then `serves`: a leader may go on before those that wait see its part
    /// end. Returns whether it led the last part.
    fn lead_or_wait<'a>(
        &'a self,
        mut durable: MutexGuard<'a, Durable>,
        led: &mut Option<Led>,
        checkpoint: impl FnOnce(Spot) -> Result<()>,
        serves: Option<&dyn Fn()>,
    ) -> Result<(MutexGuard<'a, Durable>, bool)> {
        let mut is_all = false;
        if durable.has_leader {
            self.flushed.wait(&mut durable);
        } else {
            // What others want meanwhile is left to them, or this flush might never end.
            let flush = *led.get_or_insert_with(|| self.begin_flush(&durable));
            (durable, is_all) = self.lead(durable, flush, checkpoint)?;
        }
        if let Some(serve) = serves {
            MutexGuard::unlocked(&mut durable, serve);
        }
        Ok((durable, is_all))
    }

    /// Flushes everything before the committed `spot`, and writes the checkpoint of a clean end:
    /// the last flush of a run.
    pub(crate) fn flush_and_end(&self, spot: Spot) -> Result<()> {
        let mut durable = self.durable.lock();
        durable.want(spot);
        let (mut led, mut is_all) = (None, false);
        while !is_all {
            let checkpoint = |target| self.write_clean_end(target);
            (durable, is_all) = self.lead_or_wait(durable, &mut led, checkpoint, None)?;
        }
        Ok(())
    }

    /// Leads a flush, or a part of it: syncs up to [`Led::to`]; then calls `checkpoint`. Ends
    /// before, leaves the mark, and returns false, where [`sync_data`](Self::sync_data) does. The
    /// caller has checked that there is no other leader.
    fn lead<'a>(
        &'a self,
        mut durable: MutexGuard<'a, Durable>,
        flush: Led,
        checkpoint: impl FnOnce(Spot) -> Result<()>,
    ) -> Result<(MutexGuard<'a, Durable>, bool)> {
        holds!(!durable.has_leader, "one thread leads a flush at a time");
        durable.has_leader = true;
        let leading = Leading(self);
        let target = flush.to.max(durable.spot);
        let stretch = Stretch { from: durable.spot, to: target, end: flush.end };
        drop(durable);
        reached!("while a thread leads a flush");
        if planted!(CheckpointBeforeData) {
            let _ = self.write_checkpoint(target);
        }
        if planted!(MarkBeforeSync) {
            self.durable.lock().spot = target;
        }
        let synced = self.sync_found_files().and(self.sync_data(&stretch));
        let result = synced.and_then(|is_all| {
            if is_all {
                self.sync_what_drained_rests_on()?;
                checkpoint(target)?;
            }
            Ok(is_all)
        });
        if !matches!(result, Ok(false)) {
            let took = now().saturating_duration_since(flush.began);
            self.count_flush(took, result.as_ref().err());
        }
        let mut durable = self.durable.lock();
        durable.has_leader = false;
        std::mem::forget(leading);
        let mut waiters = 0;
        // A failed sync has poisoned the queue; after any other error the next leader tries again.
        if matches!(result, Ok(true)) || planted!(FailedFlushIsDone) {
            check!(durable.check_move(target, self.committed().spot()));
            durable.spot = target;
            self.index.set_synced(target);
            if self.durable_only {
                self.visible.publish(target);
                waiters = self.message_waiters.load(Ordering::Relaxed);
            }
        }
        durable.failures += u64::from(result.is_err());
        check!(durable.check());
        check!(self.check_visible(durable.spot));
        if !planted!(FlushEndWakesNobody) {
            self.flushed.notify_all();
        }
        self.segment_synced.notify_all();
        if waiters != 0 {
            // A waker is the program's code and may run only without locks. This thread may hold
            // the producers' lock, or a thread that holds it may wait for this one.
            if planted!(WokenUnderTheFlushLock) {
                self.wake_readers(u64::MAX);
            }
            MutexGuard::unlocked(&mut durable, || self.wake_readers_elsewhere());
        }
        result.map(|is_all| (durable, is_all))
    }

    /// Runs the flush that producers requested by [`sync_soon`](Self::sync_soon), and renews a
    /// checkpoint that is far behind. Never waits for the producers' lock: a producer that holds it
    /// may wait for this flush; the storage worker `serves` it after each part.
    pub(crate) fn flush_behind(&self, serves: Option<&dyn Fn()>) -> Result<()> {
        let mut durable = self.durable.lock();
        let (mut led, mut is_all) = (None, false);
        while !is_all {
            let is_done = led.is_none()
                && durable.wanted.position <= durable.spot.position
                && self.segments.list().count_unsynced() < 2;
            let is_over = is_done || self.has_run_ended() || self.is_poisoned();
            if is_over && !durable.has_leader {
                // Another sync may have failed since a producer requested this flush: wake it to
                // see that.
                self.segment_synced.notify_all();
                return Ok(());
            }
            let checkpoint = |target| self.checkpoint_if_overtaken(target);
            (durable, is_all) = self.lead_or_wait(durable, &mut led, checkpoint, serves)?;
        }
        drop(durable);
        self.checkpoint_if_due()
    }

    /// Waits for the end of the current flush, if there is one.
    pub(crate) fn wait_for_leader(&self) {
        let mut durable = self.durable.lock();
        if durable.has_leader {
            self.flushed.wait(&mut durable);
        }
    }

    /// Asks the storage worker to flush up to `committed` and to sync every full segment. Without a
    /// storage worker the calling thread does it; only a failed sync is then an error.
    #[cold]
    fn sync_soon(&self, committed: Spot) -> Result<()> {
        self.durable.lock().want(committed);
        if self.storage_worker.request(|wanted| wanted.flush = true) {
            return Ok(());
        }
        let flushed = self.flush_behind(None);
        if self.is_poisoned() { flushed } else { Ok(()) }
    }

    /// Keeps the number of full, unsynced segments bounded, below `bound` as well; called before a
    /// segment begins. From [`MOST_BEHIND`] bytes on, or three quarters of the bound, it asks the
    /// storage worker for a flush; at the bound it waits for that flush. The caller holds the
    /// producers' lock; `committed` is the committed tail.
    pub(crate) fn bound_unsynced(&self, committed: Spot, bound: usize) -> Result<()> {
        let most = {
            let list = self.segments.list();
            let most = list.most_unsynced().min(bound);
            if list.count_unsynced() < most - most / 4 && list.unsynced_bytes() < MOST_BEHIND {
                return Ok(());
            }
            most
        };
        let mut failures = self.durable.lock().failures;
        self.sync_soon(committed)?;
        let mut durable = self.durable.lock();
        // The count includes the tail's segment, which is full once the next one begins.
        while self.segments.list().count_unsynced() >= most {
            self.index.poison.check()?;
            if self.storage_worker.is_running() && durable.failures == failures {
                self.segment_synced.wait(&mut durable);
            } else {
                // Either the storage worker has ended, because the queue is closing; or its flush
                // failed: no thread would ask it again. If that leaves too much, it is an error.
                failures = durable.failures;
                drop(durable);
                let flushed = self.flush_behind(None);
                if self.is_poisoned() || self.segments.list().count_unsynced() >= most {
                    flushed?;
                }
                durable = self.durable.lock();
            }
        }
        Ok(())
    }

    /// Asks the storage worker for a flush when many bytes in the tail's segment are not durable.
    /// The caller holds the producers' lock; `committed` is the committed tail.
    pub(crate) fn bound_behind(&self, committed: Spot) -> Result<()> {
        let durable = self.durable.lock().spot;
        let base = self.segments.list().live.back().map_or(0, |row| row.header.base);
        if committed.position.saturating_sub(durable.position.max(base)) < MOST_BEHIND {
            return Ok(());
        }
        // Recovery does not walk over messages that every consumer has passed, or that were
        // evicted.
        let walked = self.backlog(committed.position);
        if walked < MOST_BEHIND {
            return Ok(());
        }
        self.sync_soon(committed)
    }

    /// Syncs the index if unsynced segments were drained. No flush syncs those any more; the
    /// consumer positions in the index show that no consumer needs their messages, so these
    /// positions must be durable before the mark passes the segments.
    fn sync_what_drained_rests_on(&self) -> Result<()> {
        let drained = self.segments.list().drained_unsynced();
        if drained.is_empty() || planted!(MarkRestsOnPlaces) {
            return Ok(());
        }
        self.sync_directory()?;
        self.index.sync()?;
        self.segments.list().note_needless(&drained);
        Ok(())
    }

    fn is_checkpoint_due(&self) -> bool {
        let spot = self.durable.lock().spot;
        spot.position.saturating_sub(self.index.checkpoint().position) >= CHECKPOINT_EVERY
    }

    /// Renews the checkpoint if it is far behind.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        if self.is_checkpoint_due() { self.flush_places_and_checkpoint() } else { Ok(()) }
    }

    /// Renews a checkpoint that lies before the first segment. After segments were reclaimed, the
    /// first one left may begin in the middle of a batch. Recovery keeps the rest of such a batch
    /// only if a checkpoint says that it is durable, so the checkpoint must not lie before it.
    fn checkpoint_if_overtaken(&self, durable: Spot) -> Result<()> {
        let first = self.segments.list().live.front().map(|row| row.header.base);
        if first.is_none_or(|base| base <= self.index.checkpoint().position) {
            return Ok(());
        }
        self.write_checkpoint(durable)
    }

    /// Syncs every consumer position stored so far. Threads that call this during another one's
    /// sync share the next sync.
    pub(crate) fn flush_places(&self) -> Result<()> {
        self.sync_places(CheckpointIs::WrittenIfDue)
    }

    /// Syncs every consumer position stored so far, and renews the checkpoint.
    pub(crate) fn flush_places_and_checkpoint(&self) -> Result<()> {
        self.sync_places(CheckpointIs::Written)
    }

    fn sync_places(&self, checkpoint: CheckpointIs) -> Result<()> {
        let moves = self.places.moves();
        let mut synced = self.places.synced_moves.lock();
        if self.has_run_ended() && !planted!(PlacesFlushedAfterTheEnd) {
            // The last flush of the run has synced every position, if it did not fail.
            return Ok(());
        }
        let due = checkpoint == CheckpointIs::Written || self.is_checkpoint_due();
        if *synced >= moves && !due {
            return Ok(());
        }
        // Count again: the sync below also covers moves made while this thread waited.
        let moves = self.places.moves();
        self.sync_directory()?;
        if due {
            let spot = self.durable.lock().spot;
            self.write_checkpoint(spot)?;
        } else {
            self.index.sync()?;
        }
        holds!(*synced <= moves, "{moves} moves are on the disk, and were before: {}", *synced);
        *synced = if planted!(MovesCountedAfterSync) { self.places.moves() } else { moves };
        Ok(())
    }

    /// Writes a checkpoint at `spot`. Everything before `spot` is on disk.
    pub(crate) fn write_checkpoint(&self, spot: Spot) -> Result<()> {
        self.renew_checkpoint(|checkpoint| {
            // Another thread may have written a later checkpoint since the caller chose `spot`.
            if spot.position >= checkpoint.position {
                (checkpoint.position, checkpoint.seq) = (spot.position, spot.seq);
            }
            checkpoint.clean = false;
        })
    }

    /// Reserves the sequence numbers below `end` in the checkpoint on disk, which from then on
    /// shows no clean end.
    pub(crate) fn reserve(&self, end: u64) -> Result<()> {
        self.sync_directory()?;
        if planted!(ReservationSaidEarly) {
            self.reserved.fetch_max(end, Ordering::Release);
        }
        reached!("before a reservation is on the disk");
        let before = self.index.begin_reservation(end);
        let (next_life, mut reserved) = (self.segments.next_life(), end);
        let written = self.index.write_checkpoint(|checkpoint| {
            checkpoint.clean = false;
            // Never lower than before: the writer may have assigned those numbers, or a read
            // reported them missing.
            reserved = end.max(checkpoint.reservation);
            checkpoint.reservation = reserved;
            checkpoint.next_life = checkpoint.next_life.max(next_life);
        });
        // After an error the writer has assigned no number beyond the earlier reservation, and
        // never will.
        written.inspect_err(|_| self.index.take_reservation_back(before))?;
        check!(self.check_reserved(end, reserved));
        self.reserved.store(reserved, Ordering::Release);
        Ok(())
    }

    /// Makes the storage worker [`reserve`](Self::reserve) the numbers below `end`, and waits for
    /// it. Producers call this.
    pub(crate) fn have_reserved(&self, end: u64) -> Result<()> {
        self.storage_worker.ask(Request::Reserve(end)).unwrap_or_else(|| self.reserve(end))
    }

    /// Writes the checkpoint of a clean end: the run ended at `spot`, and everything is on disk.
    pub(crate) fn write_clean_end(&self, spot: Spot) -> Result<()> {
        self.renew_checkpoint(|checkpoint| {
            (checkpoint.position, checkpoint.seq) = (spot.position, spot.seq);
            checkpoint.clean = true;
            // The writer has assigned no number at or above it.
            checkpoint.reservation = spot.seq;
        })
    }

    fn renew_checkpoint(&self, change: impl FnOnce(&mut Checkpoint)) -> Result<()> {
        let next_life = self.segments.next_life();
        let unclaimed_from = self.segments.list().unclaimed_from.unwrap_or(0);
        self.index.write_checkpoint(|checkpoint| {
            checkpoint.next_life = next_life;
            checkpoint.retained_from = checkpoint.retained_from.max(unclaimed_from);
            self.gaps.evicted.lock().write_to(checkpoint);
            change(checkpoint);
        })
    }

    /// Ends the run: waits for flushes and reclaiming that are under way, and lets no other begin.
    pub(crate) fn end_run(&self) {
        self.index.poison.end_run();
        drop(self.places.synced_moves.lock());
        drop(self.figures.lock());
        self.segments.end_reclaiming();
        let mut durable = self.durable.lock();
        while durable.has_leader && !planted!(LeaderOutlivesTheRun) {
            self.flushed.wait(&mut durable);
        }
    }

    pub(crate) fn has_run_ended(&self) -> bool {
        self.index.poison.has_run_ended()
    }
}
