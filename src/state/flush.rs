//! What is durable: order, group commit, poison.
//!
//! A flush syncs the segments that were stored to, then the directory if files were made, and only
//! then moves the durable mark. Any number of threads that wait share one sync: the first becomes
//! the leader and takes along all that the others wait for, the others wait for the mark to pass
//! their record. Enqueues go on meanwhile.
//!
//! A segment is synced through the descriptor that was open since it was first stored to, and keeps
//! that descriptor until then, full or not: the system tells a failed write-back to the descriptors
//! that are open, and may have forgotten it when one is opened later. Descriptors are few, so full
//! segments that are not synced are few ([`most_unsynced`]): the keeper is asked to flush when
//! there are three quarters as many, and a producer that would make one more waits for the keeper,
//! with the producers' lock held. Nothing that the keeper, or the leader of a flush, does may wait
//! for that lock.
//!
//! The index is synced after the data it speaks of, and only when something is gained by it: when a
//! place moved, or when the checkpoint is more than [`CHECKPOINT_EVERY`] bytes behind, so that
//! recovery has little to walk over. So a durable enqueue costs one sync. Where nobody asks for a
//! flush, the keeper is asked for one when [`MOST_BEHIND`] bytes are held that are not durable: no
//! opening has more to look at than that and what one flush leaves.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::MutexGuard;

use crate::error::{Error, Result, SyncFailed};
use crate::format::{self, Checkpoint, Spot};
use crate::segment::{Lost, Unsynced, most_unsynced};
use crate::state::{Durable, MOST_BEHIND, State};
use crate::storage::store_again;
use crate::storage::{Storage, StorageFile};

/// Bytes after which a flush renews the checkpoint. (Few in the crash tests, whose disks are
/// small.)
const CHECKPOINT_EVERY: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };

/// What is asked of a flush of the places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointIs {
    /// A checkpoint is written when the last one is far behind.
    WrittenIfDue,
    /// A checkpoint is written.
    Written,
}

/// What one leader of a flush syncs.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: Spot,
    to: Spot,
    /// The page cache may show bytes there that the disk does not hold: they are stored again
    /// first.
    is_suspect: bool,
}

impl<S: Storage> State<S> {
    /// Returns once everything before that spot, which is committed, is on disk.
    pub(crate) fn flush_to(&self, spot: Spot) -> Result<()> {
        let mut durable = self.durable.lock();
        durable.want(spot);
        while durable.spot.position < spot.position {
            if self.has_run_ended() || self.is_poisoned() {
                drop(durable);
                return self.check_writable();
            }
            if durable.busy {
                self.flushed.wait(&mut durable);
                continue;
            }
            durable = self.lead(durable)?;
        }
        Ok(())
    }

    /// Syncs all that is wanted, and every full segment; nobody else does.
    fn lead<'a>(&'a self, mut durable: MutexGuard<'a, Durable>) -> Result<MutexGuard<'a, Durable>> {
        durable.busy = true;
        let stretch =
            Stretch { from: durable.spot, to: durable.wanted, is_suspect: durable.suspect };
        let target = stretch.to;
        drop(durable);
        let began = Instant::now();
        if planted!(CheckpointBeforeData) {
            let _ = self.write_checkpoint(target);
        }
        let synced = self.sync_data(&stretch);
        let result = synced.and_then(|()| self.checkpoint_if_overtaken(target));
        self.flush_totals.count.fetch_add(1, Ordering::Relaxed);
        self.flush_totals.nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let mut durable = self.durable.lock();
        durable.busy = false;
        let mut waiters = 0;
        // A failed sync has poisoned the queue; after another error the next leader tries again.
        if result.is_ok() {
            durable.spot = target;
            self.index.set_synced(target.position, target.seq);
            durable.suspect = false;
            if self.durable_only {
                self.visible.publish(target);
                waiters = self.message_waiters.load(Ordering::Relaxed);
            }
        }
        durable.given_up += u64::from(result.is_err());
        self.flushed.notify_all();
        self.segment_synced.notify_all();
        if waiters != 0 {
            // Who is woken may run code of the caller's.
            MutexGuard::unlocked(&mut durable, || self.wake_readers(u64::MAX));
        }
        result.map(|()| durable)
    }

    /// What producers asked for by [`sync_soon`](Self::sync_soon), and a checkpoint. Waits for
    /// nobody who waits for it.
    pub(crate) fn flush_behind(&self) -> Result<()> {
        let mut durable = self.durable.lock();
        while durable.busy {
            self.flushed.wait(&mut durable);
        }
        let is_done = durable.wanted.position <= durable.spot.position
            && self.segments.list().count_unsynced() < 2;
        if is_done || self.has_run_ended() || self.is_poisoned() {
            return Ok(());
        }
        drop(self.lead(durable)?);
        if self.is_checkpoint_due() { self.flush_places_and_checkpoint() } else { Ok(()) }
    }

    /// Waits for the flush that is under way, if there is one.
    pub(crate) fn wait_for_leader(&self) {
        let mut durable = self.durable.lock();
        if durable.busy {
            self.flushed.wait(&mut durable);
        }
    }

    /// Has the keeper flush what is committed and sync what is full, soon. Without a keeper it is
    /// done here and now.
    #[cold]
    fn sync_soon(&self, committed: Spot) -> Result<()> {
        self.durable.lock().want(committed);
        if self.bell.ring(|wishes| wishes.flush = true) { Ok(()) } else { self.flush_behind() }
    }

    /// A segment is about to begin. Sees to it that few are full and not synced: with many of them
    /// the keeper is asked to flush, and with as many as there may be it is waited for. The
    /// producers' lock is held, and `committed` is its tail.
    pub(crate) fn bound_unsynced(&self, committed: Spot) -> Result<()> {
        let most = most_unsynced(self.pool.geometry().segment_len);
        if self.segments.list().count_unsynced() < most - most / 4 {
            return Ok(());
        }
        let mut given_up = self.durable.lock().given_up;
        self.sync_soon(committed)?;
        let mut durable = self.durable.lock();
        // The tail's own segment is one of them.
        while self.segments.list().count_unsynced() >= most {
            self.index.poison.check()?;
            if self.bell.is_answered() && durable.given_up == given_up {
                self.segment_synced.wait(&mut durable);
            } else {
                // The queue is being closed, and its keeper gone; or the keeper could not, and
                // nobody would ask it again: whoever wants to write learns why.
                given_up = durable.given_up;
                drop(durable);
                self.flush_behind()?;
                durable = self.durable.lock();
            }
        }
        Ok(())
    }

    /// Asks the keeper for a flush when many bytes are held that are not durable. The producers'
    /// lock is held, and `committed` is its tail.
    pub(crate) fn bound_behind(&self, committed: Spot) -> Result<()> {
        let durable = self.durable.lock().spot;
        if committed.position.saturating_sub(durable.position) < MOST_BEHIND {
            return Ok(());
        }
        // What was consumed nobody will look at.
        let lowest = self.places.lowest().unwrap_or(0);
        if committed.position.saturating_sub(lowest) < MOST_BEHIND {
            return Ok(());
        }
        self.sync_soon(committed)
    }

    /// In a directory that was removed nothing can be made durable: nobody can open it again.
    pub(crate) fn check_directory(&self) -> Result<()> {
        let gone =
            || SyncFailed(io::Error::new(io::ErrorKind::NotFound, "the directory was removed"));
        self.index.heed("", || if self.storage.is_removed() { Err(gone()) } else { Ok(()) })
    }

    fn is_checkpoint_due(&self) -> bool {
        let spot = self.durable.lock().spot;
        spot.position.saturating_sub(self.index.checkpoint().position) >= CHECKPOINT_EVERY
    }

    /// Renews the checkpoint when it is far behind.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        if self.is_checkpoint_due() { self.flush_places_and_checkpoint() } else { Ok(()) }
    }

    /// What is held may begin in the middle of a batch when what came before was given back.
    /// Recovery keeps the rest of the batch when a checkpoint says that it is durable, so the
    /// checkpoint may not lie before what is held.
    fn checkpoint_if_overtaken(&self, durable: Spot) -> Result<()> {
        let held = self.segments.list().live.front().map(|row| row.header.base);
        if held.is_none_or(|base| base <= self.index.checkpoint().position) {
            return Ok(());
        }
        self.write_checkpoint(durable)
    }

    /// Makes every place stored so far durable. Whoever comes while another syncs is served by the
    /// next sync, with all others that came meanwhile.
    pub(crate) fn flush_places(&self) -> Result<()> {
        self.sync_places(CheckpointIs::WrittenIfDue)
    }

    /// As [`flush_places`](Self::flush_places), and renews the checkpoint.
    pub(crate) fn flush_places_and_checkpoint(&self) -> Result<()> {
        self.sync_places(CheckpointIs::Written)
    }

    fn sync_places(&self, checkpoint: CheckpointIs) -> Result<()> {
        let moves = self.places.moves();
        let mut synced = self.places.synced_moves.lock();
        if self.has_run_ended() {
            // The end of the run has made all durable.
            return Ok(());
        }
        let due = checkpoint == CheckpointIs::Written || self.is_checkpoint_due();
        if *synced >= moves && !due {
            return Ok(());
        }
        // Those that were made since are synced too.
        let moves = self.places.moves();
        self.sync_directory()?;
        if due {
            let spot = self.durable.lock().spot;
            self.write_checkpoint(spot)?;
        } else {
            self.index.sync()?;
        }
        *synced = moves;
        Ok(())
    }

    /// What is synced in a file is worth nothing while a power cut may take its name: the index has
    /// one before anything is promised that only it says.
    pub(crate) fn sync_directory(&self) -> Result<()> {
        self.segments.sync_directory(&self.storage, &self.index)
    }

    /// Everything before `spot` is on disk.
    pub(crate) fn write_checkpoint(&self, spot: Spot) -> Result<()> {
        self.renew_checkpoint(|checkpoint| {
            // Another thread may have written one since that spot was asked for.
            if spot.position >= checkpoint.position {
                (checkpoint.position, checkpoint.seq) = (spot.position, spot.seq);
            }
            checkpoint.clean = false;
        })
    }

    /// Everything is on disk, and the run ends at `spot`.
    pub(crate) fn write_clean_end(&self, spot: Spot) -> Result<()> {
        self.renew_checkpoint(|checkpoint| {
            (checkpoint.position, checkpoint.seq) = (spot.position, spot.seq);
            checkpoint.clean = true;
            // Every number that was given out is below.
            checkpoint.lease = spot.seq;
        })
    }

    fn renew_checkpoint(&self, change: impl FnOnce(&mut Checkpoint)) -> Result<()> {
        let next_life = self.segments.next_life();
        self.index.write_checkpoint(|checkpoint| {
            checkpoint.next_life = next_life;
            self.gaps.given_up.lock().write_to(checkpoint);
            change(checkpoint);
        })
    }

    /// The end of a run: whoever still flushes in the background of it finishes that, and nobody
    /// begins to.
    pub(crate) fn end_run(&self) {
        self.index.poison.end_run();
        drop(self.places.synced_moves.lock());
        self.segments.end_settling();
        let mut durable = self.durable.lock();
        while durable.busy {
            self.flushed.wait(&mut durable);
        }
    }

    fn has_run_ended(&self) -> bool {
        self.index.poison.has_run_ended()
    }

    /// Syncs every segment that was stored to, up to the tail's, and that one if it holds a byte
    /// before the stretch's end.
    fn sync_data(&self, stretch: &Stretch) -> Result<()> {
        let Stretch { from, to, is_suspect } = *stretch;
        self.check_directory()?;
        let (mut at, end) = {
            let list = self.segments.list();
            let last = list.live.back().map_or(0, |row| row.header.base);
            (list.first_unsynced(from.position), last.max(to.position))
        };
        loop {
            let found = self.segments.list().next_unsynced(&self.storage, at, end);
            let Some(found) = found else {
                break;
            };
            let Unsynced { row, is_full, opened } = found;
            at = row.header.base + 1;
            let segment = match opened {
                Ok(segment) => segment,
                // Lost to damage: nothing of it is there to be synced.
                Err(Lost::Gone) => continue,
                Err(Lost::Io(error)) => {
                    return Err(Error::io(
                        "open",
                        self.storage.path().join(format::segment_name(row.slot)),
                        error,
                    ));
                }
            };
            if is_suspect && !planted!(SuspectNotStoredAgain) {
                // What is stored to it from now on is stored behind what is stored again.
                let start =
                    segment.offset(from.position.clamp(segment.header.base, segment.header.end()));
                let end =
                    segment.offset(to.position.clamp(segment.header.base, segment.header.end()));
                store_again(&segment.file, start, end.min(segment.allocated())).map_err(
                    |error| Error::io("write", self.storage.path().join(segment.name()), error),
                )?;
            }
            self.index.heed(&segment.name(), || segment.file.sync())?;
            if is_full {
                self.segments.list().note_synced(&row);
            }
            let _durable = self.durable.lock();
            self.segment_synced.notify_all();
        }
        self.sync_directory()
    }
}
