//! The first phase: reads the index file, and creates a new one if it is unusable.

use std::io;

use crate::error::{Error, Result};
use crate::events;
use crate::format::{self, INDEX_NAME, INDEX_NEW_NAME, Invalid, SegmentHeader, Spot};
use crate::index::image::IndexImage;
use crate::index::run::Run;
use crate::index::{Index, IndexFile, write_index};
use crate::recovery::belief::{Belief, SinceRun};
use crate::recovery::foreign::{is_left, refuse_foreign, unsupported};
use crate::recovery::rows::{Gathered, Rows};
use crate::segment::{Opened, Row, quarantine, read_header};
use crate::storage::{Storage, StorageFile};

/// The index file and its content, before the opening writes anything.
pub(super) struct ReadIndex<S: Storage> {
    pub(super) file: Option<IndexFile<S>>,
    pub(super) image: IndexImage,
    /// The queue that the index names; `None` if there is no index or its header is damaged.
    pub(super) queue_id: Option<[u8; 16]>,
    /// The file was read whole, so this opening may continue to write to it.
    pub(super) may_adopt: bool,
    pub(super) since: SinceRun,
    /// Somebody may have written to a file of the queue since it was synced.
    pub(super) is_written_over: bool,
    pub(super) belief: Belief,
}

/// Reads the index file, whatever bytes it holds. Fails if the directory is not a queue's.
pub(super) fn read_index<S: Storage>(storage: &S) -> Result<ReadIndex<S>> {
    let mut found = IndexFile::read(storage);
    let is_in_doubt = match &found {
        Ok(file) => file.as_ref().is_none_or(|file| file.header == Err(Invalid::Damaged)),
        Err(error) => error.kind() == io::ErrorKind::InvalidData,
    };
    if is_in_doubt {
        refuse_foreign(storage)?;
    }
    if matches!(found, Ok(None)) && is_left(storage)? {
        // An earlier opening quarantined the damaged index and died before it renamed the new one.
        let renamed = storage.rename(INDEX_NEW_NAME, INDEX_NAME);
        renamed.map_err(|error| index_error(storage, "rename", error))?;
        found = IndexFile::read(storage);
    }
    let file = match found {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            // The name belongs to a directory or a device.
            let _ = quarantine(storage, INDEX_NAME);
            None
        }
        other => other.map_err(|error| index_error(storage, "open", error))?,
    };
    if let Some(IndexFile { header: Err(Invalid::Version(found)), .. }) = file {
        return Err(unsupported(storage, INDEX_NAME, found));
    }
    let bytes = file.as_ref().and_then(|file| file.bytes.first_chunk());
    if let Some(Ok(header)) = bytes.map(SegmentHeader::decode) {
        refuse_only_copy(storage, &header)?;
    }
    let known = file.as_ref().and_then(|file| Some((file, file.queue_id()?)));
    let Some((known, queue_id)) = known else {
        let (image, belief, since) = (IndexImage::default(), Belief::Disk, SinceRun::Copied);
        return Ok(ReadIndex {
            file,
            image,
            queue_id: None,
            may_adopt: false,
            since,
            is_written_over: false,
            belief,
        });
    };
    let image = IndexImage::read(&known.bytes, &queue_id);
    let may_adopt = !known.unreadable && image.lost.is_empty();
    let stat = known.file.stat().map_err(|error| index_error(storage, "open", error))?;
    let (since, is_written_over) = SinceRun::of(storage, &image, &storage.cache_token(stat));
    let belief = if may_adopt { Belief::in_index(&image, since) } else { Belief::Disk };
    let queue_id = Some(queue_id);
    Ok(ReadIndex { file, image, queue_id, may_adopt, since, is_written_over, belief })
}

/// Fails when the segment under the index's name lies under no other: a queue that begins without
/// it would assign its numbers again.
fn refuse_only_copy<S: Storage>(storage: &S, header: &SegmentHeader) -> Result<()> {
    let listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
    let mut slots = listed.iter().filter_map(|listed| format::segment_slot(&listed.name));
    if slots.any(|slot| read_header(storage, slot).is_ok_and(|other| other.begins_as(header))) {
        return Ok(());
    }
    let why = "it is a segment, put there by mistake, and nothing was changed; give it a name such \
        as segment-00000000 that no other file has, and the index its own";
    Err(index_error(storage, "open", io::Error::new(io::ErrorKind::InvalidData, why)))
}

/// The opening's knowledge once there is an index to write to.
pub(super) struct Known<S: Storage> {
    pub(super) index: Index<S>,
    pub(super) image: IndexImage,
    pub(super) since: SinceRun,
    /// Somebody may have written to a file of the queue since it was synced.
    pub(super) is_written_over: bool,
    pub(super) belief: Belief,
    /// The run record, if the opening believed it before the walk.
    pub(super) cached: Option<Run>,
    pub(super) rows: Rows,
    /// Live segments whose files are open already.
    pub(super) opened: Vec<Opened<S::File>>,
    pub(super) rows_from_index: bool,
    /// The index file was missing or unusable, so this opening created one.
    pub(super) made_anew: bool,
}

/// Adopts the index file if it is usable. Otherwise creates a new one and copies all that is valid
/// in the old one.
pub(super) fn take_up_index<S: Storage>(
    storage: &S,
    nonce: u64,
    read: ReadIndex<S>,
    gathered: Gathered<S::File>,
) -> Result<Known<S>> {
    let ReadIndex { file, mut image, may_adopt, since, is_written_over, belief, .. } = read;
    let known_id = read.queue_id;
    let Gathered { rows, from_index: rows_from_index, opened } = gathered;
    let queue_id = rows.queue_id.or(known_id).unwrap_or_else(|| storage.random());
    let made_anew = !may_adopt || known_id != Some(queue_id);
    let index = match file {
        Some(file) if !made_anew => {
            if !rows_from_index && is_left(storage)? {
                // A later opening must not use this file, outdated by then, if the index is lost.
                let removed = storage.remove(INDEX_NEW_NAME);
                removed.map_err(|error| index_error(storage, "remove", error))?;
            }
            let file = file.repaired(&queue_id, storage.now());
            Index::adopt(storage, file, queue_id, nonce, &image)
        }
        Some(old) => {
            // The file is damaged or another queue's. The new one copies the parts that this queue
            // wrote.
            let bytes = carried_over(storage, &old.bytes, &queue_id, &rows);
            image = IndexImage::read(&bytes, &queue_id);
            // A kill or a power cut left this file while the queue was being created. It holds
            // nothing of value, and in quarantine it would count in `max_bytes` for ever.
            let was_being_made = rows.is_empty() && old.was_being_made();
            drop(old);
            let file = if was_being_made {
                let removed = storage.remove(INDEX_NAME);
                let made = removed.and_then(|()| write_index(storage, INDEX_NAME, &bytes));
                made.map_err(|error| index_error(storage, "make", error))?
            } else {
                replace(storage, &bytes)?
            };
            Index::adopt(storage, file, queue_id, nonce, &image)
        }
        None => Index::create(storage, queue_id, nonce),
    }
    .map_err(|error| index_error(storage, "open", error))?;
    index.note_version(rows.version.max(image.version));
    let belief = if made_anew { Belief::Disk } else { belief };
    let cached = belief.of_cache(&image);
    Ok(Known {
        index,
        image,
        since,
        is_written_over,
        belief,
        cached,
        rows,
        opened,
        rows_from_index,
        made_anew,
    })
}

/// The bytes of a new index of the queue `queue_id`, with all that is valid in the `old` one,
/// except a clean end: this opening may change the segments and die.
fn carried_over<S: Storage>(storage: &S, old: &[u8], queue_id: &[u8; 16], rows: &Rows) -> Vec<u8> {
    let mut image = IndexImage::read(old, queue_id);
    if !image.lost.is_empty() {
        events::consumers_lost(storage.path(), image.lost.len());
        image.restore_lost(first_held(&image, rows));
    }
    if let Some(checkpoint) = &mut image.checkpoint {
        checkpoint.clean = false;
    }
    image.encode(queue_id, storage.now())
}

/// Where the first message begins that the queue may still retain.
fn first_held(image: &IndexImage, rows: &Rows) -> Spot {
    let retained_from =
        image.checkpoint.map_or(0, |checkpoint| checkpoint.retained_from).max(rows.retained_from);
    let is_before = |row: &&Row| row.header.first_seq <= retained_from;
    let first = rows.live.iter().rfind(is_before).or(rows.live.first());
    first.map_or(Spot { position: 0, seq: retained_from }, |first| Spot {
        position: first.header.base,
        seq: first.header.first_seq.min(retained_from),
    })
}

/// Quarantines the index file and replaces it by one with these bytes. The new file and its name
/// are durable before: whenever this opening dies or the power is cut, the next one finds an index
/// with every place.
fn replace<S: Storage>(storage: &S, bytes: &[u8]) -> Result<S::File> {
    let failed = |op| move |error| index_error(storage, op, error);
    // An earlier opening may have died before it renamed such a file.
    let _ = storage.remove(INDEX_NEW_NAME);
    let file = write_index(storage, INDEX_NEW_NAME, bytes).map_err(failed("make"))?;
    if !planted!(NewIndexNotSynced) {
        let path = || storage.path().join(INDEX_NEW_NAME);
        file.sync().map_err(|failed| failed.ends_opening(path()))?;
        storage.sync_directory().map_err(|failed| failed.ends_opening(storage.path()))?;
    }
    quarantine(storage, INDEX_NAME).map_err(failed("set aside"))?;
    storage.rename(INDEX_NEW_NAME, INDEX_NAME).map_err(failed("rename"))?;
    Ok(file)
}

pub(super) fn random_u64<S: Storage>(storage: &S) -> u64 {
    let random = storage.random();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&random[..8]);
    u64::from_le_bytes(bytes)
}

pub(super) fn index_error<S: Storage>(storage: &S, op: &'static str, error: io::Error) -> Error {
    Error::io(op, storage.path().join(INDEX_NAME), error)
}
