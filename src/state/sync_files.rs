//! Syncs the files of a flush: the segments and the directory, and once all files of a queue that
//! somebody copied.

use std::io::{
    self,
    ErrorKind::{InvalidData, NotFound},
};
use std::sync::atomic::Ordering;

use crate::error::{Error, Result, SyncFailed};
use crate::format::{FLAG_UNSYNCED_FILES, INDEX_NAME, segment_name, segment_slot};
use crate::segment::{Segment, Unsynced, present};
use crate::state::State;
use crate::state::flush::Stretch;
use crate::storage::{FileStat, Listed, Storage, StorageFile, store_again};

fn gone(why: &'static str) -> Result<(), SyncFailed> {
    Err(SyncFailed(io::Error::new(io::ErrorKind::NotFound, why)))
}

/// Whether the file of a name is not the one that had it.
fn is_another(stat: &io::Result<FileStat>, identity: u32) -> bool {
    match stat {
        Ok(stat) => stat.identity != identity,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

impl<S: Storage> State<S> {
    /// Rejects a flush, and poisons the queue, when somebody removed its directory or its index: no
    /// later process could open the queue, so nothing in it can become durable.
    pub(crate) fn check_names(&self) -> Result<()> {
        if self.storage.is_removed() {
            return self.index.heed("", || gone("the directory was removed"));
        }
        if is_another(&self.storage.stat(INDEX_NAME), self.index.stat.identity) {
            return self.index.heed(INDEX_NAME, || gone("the file was removed"));
        }
        Ok(())
    }

    /// Syncs the file of a segment. Fails, and poisons the queue, if the file has lost its name
    /// while the segment holds messages.
    fn sync_file(&self, segment: &Segment<S::File>) -> Result<()> {
        let name = segment.name();
        self.index.heed(&name, || {
            segment.file.sync()?;
            // Not the row's number: FUSE gives a file that nobody had open another one.
            let (stat, own) = (self.storage.stat(&name), segment.file.stat());
            // The queue itself removes a file only once its segment is not live any more.
            if own.is_ok_and(|own| is_another(&stat, own.identity))
                && self.segments.list().is_live(segment.header.life)
            {
                return gone("the file was removed");
            }
            self.index.note_changed(stat);
            Ok(())
        })
    }

    /// Notes when the tail's file changed. After its last sync a refused record may have been
    /// cleared from it, behind the messages.
    pub(crate) fn note_tail_changed(&self) {
        let tail = self.segments.list().live.back().map(|row| segment_name(row.slot));
        tail.iter().for_each(|name| self.index.note_changed(self.storage.stat(name)));
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

    /// Returns the first number that is not known to be durable: the oldest one of unsynced files.
    pub(crate) fn durable_seq(&self) -> u64 {
        let spot = self.durable.lock().spot;
        if self.has_unsynced_files() { self.oldest(spot).seq.min(spot.seq) } else { spot.seq }
    }

    /// Syncs every file that recovery found, if no run has done so in this place. The leader of a
    /// flush calls this: what the flush covers includes messages that came here by a copy.
    pub(super) fn sync_found_files(&self) -> Result<()> {
        if !self.has_unsynced_files() {
            return Ok(());
        }
        let failed = |op, name: &str| {
            let path = self.storage.path().join(name);
            move |error| Error::io(op, path, error)
        };
        let mut synced = Ok(());
        // Spares, too: after a power cut they could be live segments of an earlier life.
        for Listed { name, .. } in self.storage.list().map_err(failed("list", ""))? {
            match segment_slot(&name).map(|_| self.storage.open(&name)) {
                Some(Ok(file)) => {
                    self.index.heed(&name, || file.sync())?;
                    self.index.note_changed(file.stat());
                }
                Some(Err(error)) if !matches!(error.kind(), NotFound | InvalidData) => {
                    synced = synced.and(Err(failed("open", &name)(error)));
                }
                _ => {}
            }
        }
        synced?;
        self.index.heed("", || self.storage.sync_directory())?;
        self.index.sync()?;
        self.files_unsynced.store(false, Ordering::Release);
        self.index.clear_flag(FLAG_UNSYNCED_FILES);
        Ok(())
    }

    /// Syncs every segment before the tail's that was stored to, and the tail's if the stretch
    /// reaches into it; then the directory. One that cannot be opened or stored again fails the
    /// flush, and keeps no other from the disk. Returns false, and leaves the rest, when a producer
    /// waits for the storage worker, which may be this thread: that request comes first.
    pub(super) fn sync_data(&self, stretch: &Stretch) -> Result<bool> {
        let Stretch { from, end, .. } = *stretch;
        self.check_names()?;
        let mut at = {
            let list = self.segments.list();
            if planted!(OlderSegmentNotSynced) {
                list.at(from.position).map_or(0, |row| row.header.base)
            } else {
                list.first_unsynced(from.position)
            }
        };
        let mut synced = Ok(());
        while !self.is_poisoned() {
            let found = self.segments.list().next_unsynced(&self.storage, at, end);
            let Some(found) = found else { break };
            let is_last_time = found.is_full && found.opened.is_ok();
            at = found.row.header.base + 1;
            synced = synced.and(self.sync_segment(found, stretch));
            reached!("between the syncs of two segments");
            let _durable = self.durable.lock();
            self.segment_synced.notify_all();
            // Only behind a full segment, which no flush syncs again: each turn gets further.
            let is_asked = self.storage_worker.requests().wanted.is_asked();
            if is_last_time && synced.is_ok() && is_asked {
                return Ok(false);
            }
        }
        let synced = synced.and(self.index.poison.check());
        let named = if planted!(FlushWithoutNames) { Ok(()) } else { self.sync_directory() };
        synced.and(named).map(|()| true)
    }

    fn sync_segment(&self, found: Unsynced<S::File>, stretch: &Stretch) -> Result<()> {
        let Unsynced { row, is_full, opened } = found;
        let Some(segment) = present(&self.storage, row.slot, opened)? else { return Ok(()) };
        self.store_found_again(&segment, stretch)?;
        if !self.durable_only {
            // Not what an earlier flush has synced, which may have to be read from the disk.
            let to = if is_full { segment.header.end() } else { stretch.to.position };
            self.context().map_clean(&segment, stretch.from.position..to);
        }
        if planted!(SegmentSyncNotHeeded) {
            let _ = segment.file.sync();
        } else {
            self.sync_file(&segment)?;
        }
        if is_full {
            let context = self.context();
            let mut list = self.segments.list();
            list.note_synced(&row);
            list.note_cut(&context, &segment);
        }
        Ok(())
    }

    /// Stores the segment's records within the stretch again that recovery found: they may exist
    /// only in the page cache, and the previous process may have died after a failed sync, which
    /// leaves their pages clean (R4). This overwrites no producer's store: producers store behind
    /// the tail that recovery found.
    fn store_found_again(&self, segment: &Segment<S::File>, stretch: &Stretch) -> Result<()> {
        let found_to = self.found_tail.position.min(stretch.to.position);
        if stretch.from.position >= found_to || planted!(SuspectNotStoredAgain) {
            return Ok(());
        }
        let header = &segment.header;
        let offset = |position: u64| segment.offset(position.clamp(header.base, header.end()));
        let (start, end) = (offset(stretch.from.position), offset(found_to));
        holds!(start <= end, "what was found in a segment is stored again, {start} to {end}");
        store_again(&segment.file, &segment.file, start, end.min(segment.allocated()))
            .map_err(|error| Error::io("write", self.storage.path().join(segment.name()), error))
            .map(drop)
    }
}
