//! What is durable: order, group commit, poison.
//!
//! A flush syncs the segments between the durable mark and the tail, then the directory if files were made, and only then
//! moves the mark. Any number of threads that wait share one sync: the first becomes the leader and takes along all that was
//! committed before it began, the others wait for the mark to pass their record. Enqueues go on meanwhile.
//!
//! The index is synced after the data it speaks of, and only when something is gained by it: when a place moved, or when
//! the checkpoint is more than [`CHECKPOINT_EVERY`] bytes behind, so that recovery has little to walk over. So a durable
//! enqueue costs one sync.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::index::store_again;
use crate::layout::{self, INDEX_NAME};
use crate::segment::Lost;
use crate::shared::{Shared, Spot};
use crate::storage::{Storage, StorageFile};

/// Bytes after which a flush renews the checkpoint. (Few in the crash tests, whose disks are small.)
const CHECKPOINT_EVERY: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };

impl<S: Storage> Shared<S> {
    /// Returns once everything before `position` is on disk.
    pub(crate) fn flush_to(&self, position: u64) -> Result<()> {
        let mut durable = self.durable.0.lock();
        loop {
            if durable.spot.position >= position {
                return Ok(());
            }
            if self.is_poisoned() {
                drop(durable);
                return self.check_writable();
            }
            if durable.busy {
                self.flushed.wait(&mut durable);
                continue;
            }
            durable.busy = true;
            let (from, suspect) = (durable.spot, durable.suspect);
            drop(durable);
            let target = self.committed_spot();
            let began = Instant::now();
            #[cfg(test)]
            if crate::sim::Mutant::CheckpointBeforeData.is_planted() {
                let _ = self.write_checkpoint(target, false);
            }
            let synced = self.sync_data(from, target, suspect);
            let result = synced.and_then(|()| self.checkpoint_if_overtaken(target));
            self.totals.flushes.fetch_add(1, Ordering::Relaxed);
            self.totals.flush_nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
            durable = self.durable.0.lock();
            durable.busy = false;
            match result {
                Ok(()) => {
                    durable.spot = target;
                    self.index.set_synced(target.position, target.seq);
                    durable.suspect = false;
                    if self.durable_only {
                        self.visible.0.publish(target);
                        if self.message_waiters.load(Ordering::Relaxed) != 0 {
                            self.wake_readers(u64::MAX);
                        }
                    }
                    self.flushed.notify_all();
                }
                Err(error) => {
                    self.poison(&error);
                    self.flushed.notify_all();
                    return Err(error);
                }
            }
        }
    }

    /// Makes everything durable: messages, then places.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        let target = self.committed_spot();
        self.flush_to(target.position)?;
        self.flush_places(false)
    }

    /// Renews the checkpoint when it is far behind.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        let spot = self.durable.0.lock().spot;
        if spot.position.saturating_sub(self.index.checkpoint().position) < CHECKPOINT_EVERY {
            return Ok(());
        }
        self.flush_places(true)
    }

    /// What is held may begin in the middle of a batch when what came before was given back. Recovery keeps the rest of the
    /// batch when a checkpoint says that it is durable, so the checkpoint may not lie before what is held.
    fn checkpoint_if_overtaken(&self, durable: Spot) -> Result<()> {
        let held = self.segments.list().live.front().map(|row| row.header.base);
        if held.is_none_or(|base| base <= self.index.checkpoint().position) {
            return Ok(());
        }
        self.write_checkpoint(durable, false)
            .map_err(|error| Error::io("flush", self.storage.path().join(INDEX_NAME), error))
    }

    /// Makes every place stored so far durable. Whoever comes while another syncs is served by the next sync, with all
    /// others that came meanwhile.
    pub(crate) fn flush_places(&self, checkpoint: bool) -> Result<()> {
        let moves = self.moves();
        let mut synced = self.synced_moves.lock();
        let spot = self.durable.0.lock().spot;
        let due = checkpoint || spot.position.saturating_sub(self.index.checkpoint().position) >= CHECKPOINT_EVERY;
        if *synced >= moves && !due {
            return Ok(());
        }
        let moves = self.moves();
        self.sync_directory()?;
        let result = if due { self.write_checkpoint(spot, false) } else { self.index.sync() };
        match result {
            Ok(()) => {
                *synced = moves;
                Ok(())
            }
            Err(error) => {
                let error = Error::io("flush", self.storage.path().join(INDEX_NAME), error);
                self.poison(&error);
                Err(error)
            }
        }
    }

    /// What is synced in a file is worth nothing while a power cut may take its name: the index has one before anything
    /// is promised that only it says.
    pub(crate) fn sync_directory(&self) -> Result<()> {
        self.segments.sync_directory(&self.storage).map_err(|error| {
            let error = Error::io("flush", self.storage.path(), error);
            self.poison(&error);
            error
        })
    }

    fn write_checkpoint(&self, spot: Spot, clean: bool) -> std::io::Result<()> {
        let next_life = self.segments.next_life();
        self.index.write_checkpoint(|checkpoint| {
            checkpoint.position = spot.position;
            checkpoint.seq = spot.seq;
            checkpoint.next_life = next_life;
            self.given_up.lock().state_in(checkpoint);
            checkpoint.clean = clean;
            if clean {
                // Every number that was given out is below.
                checkpoint.lease = spot.seq;
            }
        })
    }

    /// The last flush of a run: afterwards the files say that nothing is missing.
    pub(crate) fn flush_finally(&self, begun: bool) -> Result<()> {
        if self.is_poisoned() {
            // Nobody can write any more, but that is not why.
            return Err(self.poisoned());
        }
        let target = self.committed_spot();
        #[cfg(test)]
        if crate::sim::Mutant::CheckpointBeforeData.is_planted() {
            let _ = self.write_checkpoint(target, true);
        }
        if !begun && self.durable.0.lock().spot.position >= target.position {
            // No message came in, or was found that may exist in the page cache alone. Only places may have moved, and
            // segments been given back.
            return if *self.synced_moves.lock() < self.moves() { self.flush_places(false) } else { Ok(()) };
        }
        self.flush_to(target.position)?;
        self.sync_directory()?;
        let written = self.write_checkpoint(target, true);
        written.map_err(|error| {
            let error = Error::io("flush", self.storage.path().join(INDEX_NAME), error);
            self.poison(&error);
            error
        })
    }

    /// Moves all consumers have made in this run.
    fn moves(&self) -> u64 {
        let places = self.places.read();
        places.iter().map(|place| place.moves.load(Ordering::Acquire)).sum::<u64>()
            + self.retired_moves.load(Ordering::Acquire)
    }

    /// Syncs every segment that holds a byte of `from .. to`.
    fn sync_data(&self, from: Spot, to: Spot, suspect: bool) -> Result<()> {
        let rows: Vec<_> = {
            let list = self.segments.list();
            let reach = |row: &&crate::segment::Row| row.header.end() > from.position && row.header.base < to.position;
            list.live.iter().filter(reach).copied().collect()
        };
        for row in rows {
            let opened = self.segments.list().open(&self.storage, &row);
            let path = || self.storage.path().join(layout::segment_name(row.slot));
            let segment = match opened {
                Ok(segment) => segment,
                // Lost to damage or given back since: nothing of it is there to be synced.
                Err(Lost::Gone) => continue,
                Err(Lost::Io(error)) => return Err(Error::io("open", path(), error)),
            };
            if suspect {
                let start = segment.offset(from.position.max(row.header.base));
                let end = segment.offset(to.position.min(row.header.end())).min(segment.allocated());
                store_again(&segment.file, start, end).map_err(|error| Error::io("write", path(), error))?;
            }
            segment.file.sync().map_err(|error| Error::io("flush", path(), error))?;
        }
        self.sync_directory()
    }
}
