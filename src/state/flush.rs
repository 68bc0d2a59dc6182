//! Flushes: their order, group commit, and the poison after a failed sync.
//!
//! A flush syncs the segments that were stored to, then the directory if files were made or
//! removed, and only then moves the durable mark. All threads that wait for a flush share one sync:
//! the first becomes the leader and syncs everything that the others want; the others wait until
//! the mark passes their record. Enqueues go on meanwhile.
//!
//! A segment keeps the descriptor through which it was first stored to until it is synced through
//! that descriptor, also when it is full. The reason: the kernel reports a failed write-back to the
//! descriptors that are open, and may have forgotten it when one is opened later. Descriptors are
//! few, so the number of full, unsynced segments is bounded (`List::most_unsynced`). At three
//! quarters of the bound a producer asks the storage worker for a flush; at the bound it waits for
//! the storage worker, with the producers' lock held. So the storage worker and the leader of a
//! flush must never wait for that lock.
//!
//! The index is synced after the data it describes, and only in two cases: a place has moved, or
//! the checkpoint is more than [`CHECKPOINT_EVERY`] bytes behind (recovery walks from it). So a
//! durable enqueue costs one sync. Without any flush by the caller, a producer asks the storage
//! worker for one when [`MOST_BEHIND`] bytes in the queue are not durable. This bounds what an
//! opening has to walk over.

use std::io;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result, SyncFailed};
use crate::format::{self, Checkpoint, Spot};
use crate::segment::{Lost, Segment, Unsynced};
use crate::state::{Began, Durable, MOST_BEHIND, State};
use crate::storage::store_again;
use crate::storage::{Storage, StorageFile};
use crate::threads::requests::Request;
use crate::threads::{MutexGuard, now};

/// Bytes after which a flush renews the checkpoint. (Fewer in the crash tests, whose disks are
/// small.)
const CHECKPOINT_EVERY: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };

/// What a flush of the places does with the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointIs {
    /// Writes one when the last one is far behind.
    WrittenIfDue,
    /// Writes one.
    Written,
}

/// The positions that one leader of a flush makes durable.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: Spot,
    to: Spot,
}

impl<S: Storage> State<S> {
    /// Returns once everything before `spot` is on disk. `spot` is committed.
    pub(crate) fn flush_to(&self, spot: Spot) -> Result<()> {
        self.flush_or_wait(spot, None)
    }

    /// As [`flush_to`](Self::flush_to). With `began`, an interrupt since then ends a wait for
    /// another thread's flush.
    pub(crate) fn flush_or_wait(&self, spot: Spot, began: Option<Began>) -> Result<()> {
        let mut durable = self.durable.lock();
        durable.want(spot);
        while durable.spot.position < spot.position {
            if self.has_run_ended() || self.is_poisoned() {
                drop(durable);
                return self.check_writable();
            }
            if durable.has_leader {
                if let Some(began) = began {
                    self.check_uninterrupted(began)?;
                }
                self.flushed.wait(&mut durable);
                continue;
            }
            durable = self.lead(durable)?;
        }
        Ok(())
    }

    /// Syncs up to the spot that is wanted, and every full segment. The caller has checked that
    /// there is no other leader.
    fn lead<'a>(&'a self, mut durable: MutexGuard<'a, Durable>) -> Result<MutexGuard<'a, Durable>> {
        durable.has_leader = true;
        let stretch = Stretch { from: durable.spot, to: durable.wanted };
        let target = stretch.to;
        drop(durable);
        reached!("while a thread leads a flush");
        let began = now();
        if planted!(CheckpointBeforeData) {
            let _ = self.write_checkpoint(target);
        }
        if planted!(MarkBeforeSync) {
            self.durable.lock().spot = target;
        }
        let synced = self.sync_data(&stretch);
        let synced = synced.and_then(|()| self.sync_what_drained_rests_on());
        let result = synced.and_then(|()| self.checkpoint_if_overtaken(target));
        self.count_flush(now().saturating_duration_since(began), result.as_ref().err());
        let mut durable = self.durable.lock();
        durable.has_leader = false;
        let mut waiters = 0;
        // A failed sync has poisoned the queue; after another error the next leader tries again.
        if result.is_ok() || planted!(FailedFlushIsDone) {
            durable.spot = target;
            self.index.set_synced(target);
            if self.durable_only {
                self.visible.publish(target);
                waiters = self.message_waiters.load(Ordering::Relaxed);
            }
        }
        durable.failures += u64::from(result.is_err());
        if !planted!(FlushEndWakesNobody) {
            self.flushed.notify_all();
        }
        self.segment_synced.notify_all();
        if waiters != 0 {
            // A waker is the program's code: no lock may be held. This thread may hold the
            // producers' lock, or be the one that its holder waits for.
            if planted!(WokenUnderTheFlushLock) {
                self.wake_readers(u64::MAX);
            }
            MutexGuard::unlocked(&mut durable, || self.wake_readers_elsewhere());
        }
        result.map(|()| durable)
    }

    /// Does the flush that producers asked for by [`sync_soon`](Self::sync_soon), and renews a
    /// checkpoint that is far behind. Does not wait for the producers' lock: a producer may wait
    /// for this flush with it held.
    pub(crate) fn flush_behind(&self) -> Result<()> {
        let mut durable = self.durable.lock();
        while durable.has_leader {
            self.flushed.wait(&mut durable);
        }
        let is_done = durable.wanted.position <= durable.spot.position
            && self.segments.list().count_unsynced() < 2;
        if is_done || self.has_run_ended() || self.is_poisoned() {
            // Another sync may have failed since a producer asked for this flush: it waits to hear.
            self.segment_synced.notify_all();
            return Ok(());
        }
        drop(self.lead(durable)?);
        if self.is_checkpoint_due() { self.flush_places_and_checkpoint() } else { Ok(()) }
    }

    /// Waits for the end of the flush under way, if there is one.
    pub(crate) fn wait_for_leader(&self) {
        let mut durable = self.durable.lock();
        if durable.has_leader {
            self.flushed.wait(&mut durable);
        }
    }

    /// Asks the storage worker to flush up to `committed` and to sync every full segment. Without
    /// one the calling thread does it before it returns.
    #[cold]
    fn sync_soon(&self, committed: Spot) -> Result<()> {
        self.durable.lock().want(committed);
        if self.storage_worker.request(|wanted| wanted.flush = true) {
            Ok(())
        } else {
            self.flush_behind()
        }
    }

    /// Keeps the number of full, unsynced segments bounded; called before a segment begins. From
    /// three quarters of the bound on it asks the storage worker for a flush; at the bound it waits
    /// for that flush. The caller holds the producers' lock; `committed` is the committed tail.
    pub(crate) fn bound_unsynced(&self, committed: Spot) -> Result<()> {
        let most = {
            let list = self.segments.list();
            let most = list.most_unsynced();
            if list.count_unsynced() < most - most / 4 {
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
                // Either the storage worker has ended, because the queue is being closed. Or its
                // flush failed: nobody would ask it again, and the producer is to get the error.
                failures = durable.failures;
                drop(durable);
                self.flush_behind()?;
                durable = self.durable.lock();
            }
        }
        Ok(())
    }

    /// Asks the storage worker for a flush when many bytes in the queue are not durable. The caller
    /// holds the producers' lock; `committed` is the committed tail.
    pub(crate) fn bound_behind(&self, committed: Spot) -> Result<()> {
        let durable = self.durable.lock().spot;
        if committed.position.saturating_sub(durable.position) < MOST_BEHIND {
            return Ok(());
        }
        // No opening walks over messages that every consumer has passed, or that were evicted.
        let walked = self.backlog(committed.position);
        if walked < MOST_BEHIND {
            return Ok(());
        }
        self.sync_soon(committed)
    }

    /// Refuses a flush, and poisons the queue, when its directory was removed: no later process
    /// could open the queue, so nothing in it can be made durable.
    pub(crate) fn check_directory(&self) -> Result<()> {
        let gone =
            || SyncFailed(io::Error::new(io::ErrorKind::NotFound, "the directory was removed"));
        self.index.heed("", || if self.storage.is_removed() { Err(gone()) } else { Ok(()) })
    }

    /// A drained segment is not synced any more. That nothing of it is missing is said by places in
    /// the index: they are durable before the mark passes it.
    fn sync_what_drained_rests_on(&self) -> Result<()> {
        if !self.segments.list().has_drained_unsynced() || planted!(MarkRestsOnPlaces) {
            return Ok(());
        }
        self.sync_directory()?;
        self.index.sync()
    }

    fn is_checkpoint_due(&self) -> bool {
        let spot = self.durable.lock().spot;
        spot.position.saturating_sub(self.index.checkpoint().position) >= CHECKPOINT_EVERY
    }

    /// Renews the checkpoint when it is far behind.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        if self.is_checkpoint_due() { self.flush_places_and_checkpoint() } else { Ok(()) }
    }

    /// Renews a checkpoint that lies before the first segment. When segments were given back, the
    /// first one left may begin in the middle of a batch. Recovery keeps the rest of such a batch
    /// only if a checkpoint says that it is durable, so the checkpoint must not lie before it.
    fn checkpoint_if_overtaken(&self, durable: Spot) -> Result<()> {
        let first = self.segments.list().live.front().map(|row| row.header.base);
        if first.is_none_or(|base| base <= self.index.checkpoint().position) {
            return Ok(());
        }
        self.write_checkpoint(durable)
    }

    /// Makes every place stored so far durable. Callers that come while another one syncs share the
    /// next sync.
    pub(crate) fn flush_places(&self) -> Result<()> {
        self.sync_places(CheckpointIs::WrittenIfDue)
    }

    /// As [`flush_places`](Self::flush_places), but always renews the checkpoint.
    pub(crate) fn flush_places_and_checkpoint(&self) -> Result<()> {
        self.sync_places(CheckpointIs::Written)
    }

    fn sync_places(&self, checkpoint: CheckpointIs) -> Result<()> {
        let moves = self.places.moves();
        let mut synced = self.places.synced_moves.lock();
        if self.has_run_ended() && !planted!(PlacesFlushedAfterTheEnd) {
            // The last flush of the run has made every place durable, if it did not fail.
            return Ok(());
        }
        let due = checkpoint == CheckpointIs::Written || self.is_checkpoint_due();
        if *synced >= moves && !due {
            return Ok(());
        }
        // Counted again: the sync below covers the moves made while this thread waited, too.
        let moves = self.places.moves();
        self.sync_directory()?;
        if due {
            let spot = self.durable.lock().spot;
            self.write_checkpoint(spot)?;
        } else {
            self.index.sync()?;
        }
        *synced = if planted!(MovesCountedAfterSync) { self.places.moves() } else { moves };
        Ok(())
    }

    /// Makes the names of files durable. A synced file is worth nothing as long as a power cut may
    /// take its name. So the index's name is durable before anything is promised that stands in the
    /// index alone.
    pub(crate) fn sync_directory(&self) -> Result<()> {
        self.segments.sync_directory(&self.storage, &self.index)
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

    /// Reserves the numbers below `end`: the checkpoint on disk says so, and claims no clean end.
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
            // Never lower than before: those numbers may have been given out or reported missing.
            reserved = end.max(checkpoint.reservation);
            checkpoint.reservation = reserved;
            checkpoint.next_life = checkpoint.next_life.max(next_life);
        });
        // After an error no number beyond the reservation before was given out, and none will be.
        written.inspect_err(|_| self.index.take_reservation_back(before))?;
        self.reserved.store(reserved, Ordering::Release);
        Ok(())
    }

    /// Has the storage worker [`reserve`](Self::reserve) them, and waits for it: for producers.
    pub(crate) fn have_reserved(&self, end: u64) -> Result<()> {
        self.storage_worker.ask(Request::Reserve(end)).unwrap_or_else(|| self.reserve(end))
    }

    /// Writes the checkpoint of a clean end: the run ends at `spot`, and everything is on disk.
    pub(crate) fn write_clean_end(&self, spot: Spot) -> Result<()> {
        self.renew_checkpoint(|checkpoint| {
            (checkpoint.position, checkpoint.seq) = (spot.position, spot.seq);
            checkpoint.clean = true;
            // No number at or above it was given out.
            checkpoint.reservation = spot.seq;
        })
    }

    fn renew_checkpoint(&self, change: impl FnOnce(&mut Checkpoint)) -> Result<()> {
        let next_life = self.segments.next_life();
        self.index.write_checkpoint(|checkpoint| {
            checkpoint.next_life = next_life;
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

    /// Syncs every segment before the tail's that was stored to, and the tail's if the stretch
    /// reaches into it; then the directory.
    fn sync_data(&self, stretch: &Stretch) -> Result<()> {
        let Stretch { from, to } = *stretch;
        self.check_directory()?;
        let (mut at, end) = {
            let list = self.segments.list();
            let last = list.live.back().map_or(0, |row| row.header.base);
            if planted!(OlderSegmentNotSynced) {
                (list.at(from.position).map_or(0, |row| row.header.base), to.position)
            } else {
                (list.first_unsynced(from.position), last.max(to.position))
            }
        };
        loop {
            let found = self.segments.list().next_unsynced(&self.storage, at, end);
            let Some(found) = found else {
                break;
            };
            let Unsynced { row, is_full, mut opened } = found;
            if planted!(SyncedWithoutBeingLive) {
                drop(opened);
                reached!("between a row and its file");
                opened = self.segments.list().open(&self.storage, &row);
            }
            at = row.header.base + 1;
            let segment = match opened {
                Ok(segment) => segment,
                // The file was lost to damage: there is nothing to sync.
                Err(Lost::Gone) => continue,
                Err(Lost::Io(error)) => {
                    return Err(Error::io(
                        "open",
                        self.storage.path().join(format::segment_name(row.slot)),
                        error,
                    ));
                }
            };
            self.store_found_again(&segment, stretch)?;
            if planted!(SegmentSyncNotHeeded) {
                let _ = segment.file.sync();
            } else {
                self.index.heed(&segment.name(), || segment.file.sync())?;
            }
            if is_full {
                let context = self.context();
                let mut list = self.segments.list();
                list.note_synced(&row);
                list.note_cut(&context, &segment);
            }
            let _durable = self.durable.lock();
            self.segment_synced.notify_all();
        }
        if planted!(FlushWithoutNames) { Ok(()) } else { self.sync_directory() }
    }

    /// Stores again what the opening found in the segment within the stretch: it may exist in the
    /// page cache alone, and the process before may have died of a sync that failed, which leaves
    /// its pages clean (R4). This does not undo a producer's store: those are behind what was
    /// found.
    fn store_found_again(&self, segment: &Segment<S::File>, stretch: &Stretch) -> Result<()> {
        let found_to = self.found_tail.position.min(stretch.to.position);
        if stretch.from.position >= found_to || planted!(SuspectNotStoredAgain) {
            return Ok(());
        }
        let header = &segment.header;
        let offset = |position: u64| segment.offset(position.clamp(header.base, header.end()));
        let (start, end) = (offset(stretch.from.position), offset(found_to));
        store_again(&segment.file, start, end.min(segment.allocated()))
            .map_err(|error| Error::io("write", self.storage.path().join(segment.name()), error))
    }
}
