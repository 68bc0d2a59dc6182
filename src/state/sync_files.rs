//! Syncs the directory, and once all files of a queue that somebody copied.

use std::io;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result, SyncFailed};
use crate::format::{INDEX_NAME, Spot, segment_name};
use crate::segment::{Lost, Segment, Unsynced};
use crate::state::State;
use crate::storage::{Storage, StorageFile, store_again};

fn gone(why: &'static str) -> Result<(), SyncFailed> {
    Err(SyncFailed(io::Error::new(io::ErrorKind::NotFound, why)))
}

impl<S: Storage> State<S> {
    /// Rejects a flush, and poisons the queue, when somebody removed its directory or its index: no
    /// later process could open the queue, so nothing in it can become durable.
    pub(crate) fn check_names(&self) -> Result<()> {
        if self.storage.is_removed() {
            return self.index.heed("", || gone("the directory was removed"));
        }
        if self.index.file().is_removed() {
            return self.index.heed(INDEX_NAME, || gone("the file was removed"));
        }
        Ok(())
    }

    /// Syncs the file of a segment. Fails, and poisons the queue, if the file has lost its name
    /// while the segment holds messages.
    pub(super) fn sync_file(&self, segment: &Segment<S::File>) -> Result<()> {
        self.index.heed(&segment.name(), || {
            segment.file.sync()?;
            // The queue itself removes a file only once its segment is not live any more.
            if segment.file.is_removed() && self.segments.list().is_live(segment.header.life) {
                return gone("the file was removed");
            }
            Ok(())
        })
    }

    /// Syncs the directory, so that file names are durable: a power cut could otherwise remove a
    /// synced file's name. So the index's name is durable before the queue relies on anything that
    /// only the index says.
    pub(crate) fn sync_directory(&self) -> Result<()> {
        self.segments.sync_directory(&self.storage, &self.index)
    }

    /// Whether no run has synced the files that recovery found.
    pub(crate) fn has_unsynced_files(&self) -> bool {
        self.files_unsynced.load(Ordering::Acquire)
    }

    /// Syncs every file that recovery found, if no run has done so in this place. The leader of a
    /// flush calls this: what the flush covers includes messages that came here by a copy.
    pub(super) fn sync_found_files(&self) -> Result<()> {
        if !self.has_unsynced_files() {
            return Ok(());
        }
        let (mut from, mut synced) = (0, Ok(()));
        loop {
            let found = self.segments.list().next_live(&self.storage, from);
            let Some(Unsynced { row, opened, .. }) = found else {
                break;
            };
            // This run began the segments behind the tail: each has its own sync.
            if row.header.base >= self.found_tail.position {
                break;
            }
            from = row.header.base + 1;
            match opened {
                Ok(segment) => {
                    if self.sync_may_have_failed {
                        self.store_again_up_to(&segment, 0, self.found_tail.position)?;
                    }
                    self.sync_file(&segment)?;
                }
                // Damage has lost the file, or it was reclaimed: there is nothing to sync.
                Err(Lost::Gone) => {}
                Err(Lost::Io(error)) => {
                    let path = self.storage.path().join(segment_name(row.slot));
                    synced = synced.and(Err(Error::io("open", path, error)));
                }
            }
        }
        synced?;
        self.index.heed("", || self.storage.sync_directory())?;
        self.index.sync()?;
        self.files_unsynced.store(false, Ordering::Release);
        self.index.note_files_synced();
        Ok(())
    }

    /// Stores the segment's records within the stretch again that recovery found: they may exist
    /// only in the page cache, and the previous process may have died after a failed sync, which
    /// leaves their pages clean (R4). This overwrites no producer's store: producers store behind
    /// the tail that recovery found.
    pub(super) fn store_found_again(
        &self,
        segment: &Segment<S::File>,
        from: Spot,
        to: Spot,
    ) -> Result<()> {
        let found_to = self.found_tail.position.min(to.position);
        if from.position >= found_to || planted!(SuspectNotStoredAgain) {
            return Ok(());
        }
        let header = &segment.header;
        let from = from.position.clamp(header.base, header.end());
        self.store_again_up_to(segment, segment.offset(from), found_to)
    }

    /// Stores a segment's bytes again from a file offset up to a position.
    fn store_again_up_to(
        &self,
        segment: &Segment<S::File>,
        start: u64,
        position: u64,
    ) -> Result<()> {
        let header = &segment.header;
        let end = segment.offset(position.clamp(header.base, header.end()));
        holds!(start <= end, "what was found in a segment is stored again, {start} to {end}");
        store_again(&segment.file, start, end.min(segment.allocated()))
            .map_err(|error| Error::io("write", self.storage.path().join(segment.name()), error))
    }
}
