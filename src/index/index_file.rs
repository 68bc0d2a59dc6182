//! An index file as an opening reads it, before it believes anything in it.

use std::io;

use crate::events;
use crate::format::{self, EXTENT_ROWS, Extent, INDEX_NAME, Invalid, Version, index_at};
use crate::index::image::{IndexImage, extent_row};
use crate::storage::{Storage, StorageFile, read_around};

/// Stands for each byte of an unreadable sector.
const UNREADABLE_BYTE: u8 = 0xff;

/// An opening does not read beyond this length: rows for 512 TiB of 4 MiB segments lie before it.
const MAX_INDEX_LEN: u64 = 16 << 30;

/// An index file and its bytes.
pub(crate) struct IndexFile<S: Storage> {
    pub(crate) file: S::File,
    pub(crate) bytes: Vec<u8>,
    pub(crate) header: Result<[u8; 16], Invalid>,
    /// The disk could not read some sectors. Their bytes in `bytes` do not validate, and do not
    /// look like free rows. The file must not be mapped.
    pub(crate) unreadable: bool,
}

impl<S: Storage> std::fmt::Debug for IndexFile<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexFile").finish_non_exhaustive()
    }
}

impl<S: Storage> IndexFile<S> {
    /// Reads the whole index file; `None` if it does not exist.
    pub(crate) fn read(storage: &S) -> io::Result<Option<IndexFile<S>>> {
        let file = match storage.open(INDEX_NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = file.found_len()?.min(MAX_INDEX_LEN);
        let mut unreadable = Vec::new();
        let mut bytes = file.read_first(index_at::END).unwrap_or_else(|_| {
            let mut bytes = vec![UNREADABLE_BYTE; index_at::END];
            let read = read_around(&file, &mut bytes, 0, &mut unreadable);
            bytes.truncate(read);
            bytes
        });
        let read = bytes.len();
        let header = format::decode_index_header(&bytes);
        if len > index_at::END as u64 {
            let end = match header {
                // The extents show how far the file is used.
                Ok(queue_id) => named_end(&bytes, &queue_id),
                // The queue's id, which seeds the checks of the extents, may be damaged.
                Err(_) => format::index_id(&bytes)
                    .map_or(0, |id| named_end(&bytes, &id))
                    .max(LARGEST_REST),
            };
            bytes.resize((end.min(len) as usize).max(index_at::END), UNREADABLE_BYTE);
            read_around(&file, &mut bytes[read..], read as u64, &mut unreadable);
        }
        if unreadable.len() > MOST_UNREADABLE {
            // So many failures mean an absent disk, not damage in one place. A new index would lose
            // every consumer, and this one may be whole.
            return Err(unreadable.swap_remove(0));
        }
        let unreadable = !unreadable.is_empty();
        if unreadable {
            events::unreadable(storage.path(), INDEX_NAME);
        }
        Ok(Some(IndexFile { file, bytes, header, unreadable }))
    }

    /// The id of the queue that owns the index. The id in a damaged header counts if any part with
    /// a checksum seeded from it validates.
    pub(crate) fn queue_id(&self) -> Option<[u8; 16]> {
        self.header.ok().or_else(|| {
            let id = format::index_id(&self.bytes)?;
            let image = IndexImage::read(&self.bytes, &id);
            (image.checkpoint.is_some() || image.live.run.is_some()).then_some(id)
        })
    }

    /// Whether the header is blank: it was never written or never reached the disk. It reaches the
    /// disk with the first sync of the file, so no other part of the file was ever synced either.
    pub(crate) fn was_being_made(&self) -> bool {
        self.bytes.iter().take(format::INDEX_HEADER_LEN).all(|byte| *byte == 0)
    }

    /// Returns the file, after writing the header again if it is damaged. The write may fail: the
    /// next opening finds the queue's id the same way. The caller
    /// [raises](super::Index::note_version) the version.
    pub(crate) fn repaired(self, queue_id: &[u8; 16], now: u64) -> S::File {
        if self.header.is_err() {
            let _ = self.file.write_at(
                &format::encode_index_header(queue_id, now, Version::default()),
                index_at::INDEX_HEADER as u64,
            );
        }
        self.file
    }
}

/// The end of the last extent that these bytes name.
fn named_end(bytes: &[u8], queue_id: &[u8; 16]) -> u64 {
    let rows = (0..EXTENT_ROWS).flat_map(extent_row);
    let extents = rows.filter_map(|at| Extent::decode(bytes.get(at..)?, queue_id));
    extents.map(|extent| extent.end()).max().unwrap_or(0)
}

/// Creates a file of that name with these bytes. Fails if it exists.
pub(crate) fn write_index<S: Storage>(
    storage: &S,
    name: &str,
    bytes: &[u8],
) -> io::Result<S::File> {
    let file = storage.create(name)?;
    // Written in one call: a contiguous file needs no block that lists its pieces.
    let made = file.allocate(0, bytes.len() as u64).and_then(|()| file.write_at(bytes, 0));
    if let Err(error) = made {
        // An unfinished index must not block the next attempt.
        let _ = storage.remove(name);
        return Err(error);
    }
    Ok(file)
}

/// The most unreadable sectors of an index with which an opening continues: one bad place of a
/// disk, which may be 4096 bytes long.
const MOST_UNREADABLE: usize = 8;

/// No queue leaves an index longer than twice its used bytes plus this.
pub(super) const LARGEST_REST: u64 = 16 << 20;
