//! The version in the index's header: an opening must know it to read all that the queue stores.
//!
//! It is synced before the first record that needs it, and never decreases. An opening may find it
//! in the page cache only; but each run syncs the index before its first record
//! (`write::begin_run`).

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::format::{self, INDEX_HEADER_LEN, INDEX_NAME, Version, index_at};
use crate::index::Index;
use crate::storage::Storage;

impl<S: Storage> Index<S> {
    /// The version of new segments.
    pub(crate) fn version(&self) -> Version {
        if self.has_origins.load(Ordering::Acquire) { Version::Origins } else { Version::Plain }
    }

    /// Raises the version to that of a segment that an opening found. The header may have a lower
    /// one because it was damaged, or belongs to an older copy of the file.
    pub(crate) fn note_version(&self, version: Version) {
        if version > self.version() {
            let (_, header) = self.headers(version);
            self.sheet.copy_in(index_at::INDEX_HEADER, &header);
            self.has_origins.store(true, Ordering::Release);
        }
    }

    /// Makes the higher version durable before the queue stores its first dead letter. After an
    /// error no segment has that version yet, and the next call tries again. The caller holds the
    /// producers' lock, so no other thread does this meanwhile.
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

    /// The present header, and the header with `version`.
    fn headers(&self, version: Version) -> ([u8; INDEX_HEADER_LEN], [u8; INDEX_HEADER_LEN]) {
        let mut header = [0; INDEX_HEADER_LEN];
        self.sheet.copy_out(index_at::INDEX_HEADER, &mut header);
        let created = format::index_created(&header);
        (header, format::encode_index_header(&self.queue_id, created, version))
    }
}
