//! The index file: it makes an opening fast and keeps the consumers' places.
//!
//! The file is mapped as a whole, or kept in memory and written by calls (`sheet`). Each part of it
//! has a checksum or two slots that are written in turn. An opening believes the live part only
//! while the storage reports that no cached byte can have been lost. The index is a hint: when it
//! is lost or damaged, an opening creates a new one from the segments and copies what is valid in
//! the old one, places above all.
//!
//! | File | What it holds | What it does |
//! |---|---|---|
//! | `index_file` | `IndexFile`: a file before the opening believes it | reads, creates it |
//! | `image` | `IndexImage`: all valid parts of the bytes | decodes them |
//! | `encode` | | encodes an image into a new file |
//! | `version` | | raises the version in the header |
//! | `live` | the live part | stores tail, durable mark, token, figures |
//! | `run` | `Run`, `Next`: the run record | encodes and decodes it |
//! | `checkpoints` | | writes checkpoints |
//! | `newest`, `checkpoint_slot` | the newest checkpoint, its slot | |
//! | `losses` | `Evicted`: why messages were evicted | answers the cause of a number |
//! | `index_extents` | `Extents`: the ranges of rows | finds a row, clears a consumer |
//! | `segment_rows` | | writes rows of segments, adds extents |
//! | `consumer_rows` | `PlaceRow`: a consumer's place | stores places, adds and removes consumers |
//! | `acks` | `AcksRow`: a consumer's acknowledged ranges | stores and clears them |
//! | `attempts_rows` | `AttemptsRow`: a consumer's attempts | stores and clears them |
//! | `forward_rows` | `ForwardRow`: what a forwarder knows of the far side | stores and clears it |
//! | `syncs` | `Syncs`: numbers of syncs | shows whether a store is on the disk |

mod acks;
mod attempts_rows;
mod checkpoint_slot;
mod checkpoints;
mod consumer_rows;
mod encode;
mod forward_rows;
pub(crate) mod image;
mod index_extents;
mod index_file;
mod live;
pub(crate) mod losses;
mod newest;
pub(crate) mod run;
mod segment_rows;
mod syncs;
mod version;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use acks::{AcksRow, AcksRowIs};
pub(crate) use attempts_rows::AttemptsRow;
pub(crate) use consumer_rows::{DEFAULT_ROW, PlaceRow};
#[cfg(feature = "forward")]
pub(crate) use forward_rows::ForwardRow;
use index_extents::{Extents, clear_consumer};
use index_file::LARGEST_REST;
pub(crate) use index_file::{IndexFile, write_index};
pub(crate) use live::{RowsAre, StoredOver, holder};
use newest::Checkpoints;
use syncs::Syncs;

use crate::error::{Error, Result, SyncFailed};
use crate::events;
use crate::format::{
    self, EXTENT_ROW_LEN, EXTENT_ROWS, Extent, FLAG_SYNC_FAILED, INDEX_NAME, Version, index_at,
};
use crate::index::image::{IndexImage, extent_row, first_extents};
use crate::index::run::Run;
use crate::storage::poison::Poison;
use crate::storage::sheet::{Sheet, Sheets};
use crate::storage::{FileStat, Storage, StorageFile};
use crate::threads::{AtomicBool, AtomicU64, Mutex};

/// The index file of an open queue.
#[derive(Debug)]
pub(crate) struct Index<S: Storage> {
    sheets: Sheets<S::File>,
    /// What the file system said of the file when it was opened.
    pub(crate) stat: FileStat,
    pub(crate) queue_id: [u8; 16],
    /// Random number of this opening.
    nonce: u64,
    /// The first `index_at::END` bytes of the file: header, checkpoints, live part, first extents.
    sheet: Sheet<S::File>,
    checkpoints: Mutex<Checkpoints>,
    run: Mutex<Run>,
    /// The queue's key for [`format::tail_check`].
    key: u64,
    /// The version is [`Version::Origins`].
    has_origins: AtomicBool,
    extents: Mutex<Extents<S::File>>,
    syncs: Arc<Syncs>,
    /// The file's length in bytes, which counts as disk space.
    len: AtomicU64,
    /// The queue's directory, for error messages.
    directory: PathBuf,
    pub(crate) poison: Poison,
    /// Held during a sync of the index: the thread notes a failure before another sync can succeed.
    syncing: Mutex<()>,
}

impl<S: Storage> Index<S> {
    /// Creates the index file of the queue `queue_id`. Fails when a file of that name exists.
    pub(crate) fn create(storage: &S, queue_id: [u8; 16], nonce: u64) -> io::Result<Index<S>> {
        let bytes = IndexImage::default().encode(&queue_id, storage.now());
        let file = write_index(storage, INDEX_NAME, &bytes)?;
        let image = IndexImage { extents: first_extents().to_vec(), ..IndexImage::default() };
        Index::adopt(storage, file, queue_id, nonce, &image)
    }

    /// Adopts an index file whose header is valid. `image` is the decoded content of the file.
    pub(crate) fn adopt(
        storage: &S,
        file: S::File,
        queue_id: [u8; 16],
        nonce: u64,
        image: &IndexImage,
    ) -> io::Result<Index<S>> {
        let (stat, mut len) = (file.stat()?, file.found_len()?);
        if len < index_at::END as u64 {
            file.allocate(0, index_at::END as u64)?;
        }
        let used = image.used();
        if len > 2 * used + LARGEST_REST && file.set_len(used).is_ok() {
            // No queue creates such a long index, and the rest would count in `max_bytes` for ever.
            len = used;
        }
        storage.fill_holes(&file)?;
        let whole = Sheets::new(storage.path(), file, len.max(index_at::END as u64));
        let sheet = whole.sheet(0, index_at::END)?;
        let mut sheets = Vec::with_capacity(image.extents.len());
        for extent in &image.extents {
            if (extent.offset as usize) < index_at::END {
                sheets.push((*extent, sheet.share()));
            } else {
                let len = extent.rows as usize * extent.row_len();
                sheets.push((*extent, whole.sheet(u64::from(extent.offset), len)?));
            }
        }
        for added in 0..EXTENT_ROWS {
            // A row may be damaged; its copy is whole then. And a power cut may have left rows that
            // name extents beyond the file's end.
            let extent = image.extents.get(first_extents().len() + added);
            let row = extent.map_or([0; EXTENT_ROW_LEN], |extent| extent.encode(&queue_id));
            for at in extent_row(added) {
                let mut found = [0; EXTENT_ROW_LEN];
                sheet.copy_out(at, &mut found);
                if found != row {
                    sheet.copy_in(at, &row);
                }
            }
        }
        for row in &image.double_rows {
            clear_consumer(&sheets, *row);
        }
        let file_len = len.max(index_at::END as u64);
        holds!(
            image.extents.iter().all(|extent| extent.end() <= file_len),
            "the extents lie in the index file, of {file_len} bytes: {:?}",
            image.extents
        );
        Ok(Index {
            sheets: whole,
            stat,
            queue_id,
            nonce,
            sheet,
            checkpoints: Mutex::new(Checkpoints::of(image)),
            run: Mutex::default(),
            key: format::tail_key(&queue_id),
            has_origins: AtomicBool::new(image.version >= Version::Origins),
            extents: Mutex::new(Extents::of(image, sheets, file_len)),
            syncs: Arc::default(),
            len: AtomicU64::new(file_len),
            directory: storage.path().to_owned(),
            poison: Poison::new(),
            syncing: Mutex::default(),
        })
    }

    /// Length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Rewrites every page in use with its own bytes, which marks it dirty. No other thread stores
    /// meanwhile.
    pub(crate) fn store_again(&self) {
        self.sheet.store_again();
        let extents = self.extents.lock();
        let later = |extent: &Extent| extent.offset as usize >= index_at::END;
        extents.sheets.iter().filter(|(extent, _)| later(extent)).for_each(|(_, sheet)| {
            sheet.store_again();
        });
    }

    /// Calls `sync`, and poisons the queue when it fails. No sync is made after the first failure.
    /// Every sync of an open queue goes through here. The caller makes sure that no other thread
    /// syncs the file `name` until this returns; an empty name means the directory.
    pub(crate) fn heed(
        &self,
        name: &str,
        sync: impl FnOnce() -> Result<(), SyncFailed>,
    ) -> Result<()> {
        self.poison.check()?;
        sync().map_err(|failed| {
            reached!("before a failed sync is noted");
            let error = failed.heeded(if name.is_empty() {
                self.directory.clone()
            } else {
                self.directory.join(name)
            });
            self.set_poisoned(&error);
            error
        })
    }

    /// Poisons the queue: from now on it refuses all writing, because the disk may never get what
    /// the page cache shows.
    #[cold]
    pub(crate) fn set_poisoned(&self, error: &Error) {
        if self.poison.set(error) {
            self.set_flag(FLAG_SYNC_FAILED);
            events::flush_failed(&self.directory, error);
        }
    }

    /// Writes late bytes at the end of a run, if the disk accepts them now. No later call does it.
    pub(crate) fn write_late(&self) {
        let _ = self.sheets.write_late();
    }

    /// Makes every earlier store in the index durable. If late bytes cannot be written now, returns
    /// an error without a sync, and the bytes stay late.
    pub(crate) fn sync(&self) -> Result<()> {
        let _one_at_a_time = (!planted!(TwoSyncsAtOnce)).then(|| self.syncing.lock());
        let number = self.syncs.begin();
        let path = || self.directory.join(INDEX_NAME);
        let late = self.sheets.write_late();
        late.map_err(|error| Error::io("write", path(), error))?;
        if planted!(IndexSyncNotHeeded) && !self.poison.is_poisoned() {
            let failed = self.sheets.file().sync();
            return failed.map_err(|failed| failed.heeded(path()));
        }
        self.heed(INDEX_NAME, || self.sheets.file().sync())?;
        self.syncs.end(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
