//! Gives the files new space on the disk that it may lack since a sync failed.
//!
//! ext4 leaves space unwritten whose first write-back failed. A store of the same bytes in the page
//! cache does not change that: the space reads as zeros after a power cut. A new file has new
//! space. Without room for one the bytes are stored again in place.

use std::io::ErrorKind::{InvalidData, NotFound};

use super::belief::SinceRun;
use super::read_index::{ReadIndex, index_error};
use crate::error::{Error, Result};
use crate::format::{
    FLAG_SYNC_FAILED, FLAG_UNSYNCED_FILES, INDEX_NAME, SegmentState, segment_slot,
};
use crate::index::IndexFile;
use crate::storage::{Listed, Storage};

/// Renews the index, and all segment files but those that lie before the durable mark. Returns why
/// the disk still refuses them, if it does: then the queue can be read, and not written.
pub(super) fn renew_files<S: Storage>(
    storage: &S,
    read: &mut ReadIndex<S>,
) -> Result<Option<Error>> {
    let ReadIndex { image, since, .. } = read;
    let flags = image.live.run.map_or(0, |run| run.flags);
    if flags & FLAG_SYNC_FAILED == 0 || planted!(SuspectNotStoredAgain) {
        return Ok(None);
    }
    let is_copied = flags & FLAG_UNSYNCED_FILES != 0 || *since == SinceRun::Copied;
    let is_copied = is_copied || read.is_written_over;
    // The rows name the files that were renewed.
    image.segments_damaged = true;
    let durable = image.live.synced.filter(|_| !is_copied).map_or(0, |spot| spot.position);
    let is_durable = |slot| {
        let mut rows = image.segments.iter().filter(|(of, _)| *of == slot);
        rows.any(|(_, row)| row.state == SegmentState::Live && row.end() <= durable)
    };
    let failed = |op, name: &str| {
        let path = storage.path().join(name);
        move |error| Error::io(op, path, error)
    };
    let listed = storage.list().map_err(failed("list", ""))?.into_iter();
    let names = listed.map(|Listed { name, .. }| name);
    let names = names.filter(|name| segment_slot(name).is_some_and(|slot| !is_durable(slot)));
    let renewed = names.chain([INDEX_NAME.to_owned()]).try_for_each(|name| {
        match storage.renew(&name) {
            // No file of the queue.
            Err(error) if matches!(error.kind(), NotFound | InvalidData) => Ok(()),
            renewed => renewed.map_err(failed("renew", &name)),
        }
    });
    let synced = storage.sync_directory().map_err(|failed| failed.ends_opening(storage.path()));
    read.file = IndexFile::read(storage).map_err(|error| index_error(storage, "open", error))?;
    Ok(renewed.and(synced).err())
}
