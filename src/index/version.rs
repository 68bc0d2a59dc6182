//! The version in the index's header: what an opening has to know of all that is stored in the
//! queue.
//!
//! It is on the disk before anything is stored that takes it, and it never falls. What an opening
//! finds may be in the page cache alone; but each run syncs the index before its first record
//! (`write::begin_run`).

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::format::{self, INDEX_HEADER_LEN, INDEX_NAME, Version, index_at};
use crate::index::Index;
use crate::storage::Storage;

impl<S: Storage> Index<S> {
    /// The version that new segments bear.
    pub(crate) fn version(&self) -> Version {
        if self.has_origins.load(Ordering::Acquire) { Version::Origins } else { Version::Plain }
    }

    /// An opening found a segment of this version. The header may say less: it was damaged, or is
    /// that of an older copy of the file.
    pub(crate) fn note_version(&self, version: Version) {
        if version > self.version() {
            let (_, header) = self.headers(version);
            self.sheet.copy_in(index_at::INDEX_HEADER, &header);
            self.has_origins.store(true, Ordering::Release);
        }
    }

    /// Makes durable that the queue may hold dead letters; called before one is stored. After an
    /// error no segment bears that version yet, and the next call tries again. The caller holds the
    /// producers' lock, so nobody else does this meanwhile.
    pub(crate) fn state_origins(&self) -> Result<()> {
        if self.version() >= Version::Origins {
            return Ok(());
        }
        let (before, header) = self.headers(Version::Origins);
        let stored = self.sheet.try_copy_in(index_at::INDEX_HEADER, &header, &before);
        stored.map_err(|error| Error::io("write", self.directory.join(INDEX_NAME), error))?;
        reached!("before a version is synced");
        self.sync()?;
        self.has_origins.store(true, Ordering::Release);
        Ok(())
    }

    /// The header as it is, and with that version.
    fn headers(&self, version: Version) -> ([u8; INDEX_HEADER_LEN], [u8; INDEX_HEADER_LEN]) {
        let mut header = [0; INDEX_HEADER_LEN];
        self.sheet.copy_out(index_at::INDEX_HEADER, &mut header);
        let created = format::index_created(&header);
        (header, format::encode_index_header(&self.queue_id, created, version))
    }
}
