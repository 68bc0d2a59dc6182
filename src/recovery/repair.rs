//! Writes gap fragments, padding and segment headers during an opening, and discards segments.

use std::io;

use crate::error::{Error, GapCause, Result};
use crate::format::{self, Kind, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState, Spot, filler};
use crate::index::Index;
use crate::segment::{Opened, Row, open_life, present, quarantine};
use crate::storage::{Storage, StorageFile, Stores};

/// Writes gap fragments over a hole. So every later opening reports the same numbers with the same
/// cause, and no reader finds a piece of a discarded unit.
pub(super) fn repair<S: Storage>(storage: &S, rows: &[Row], from: Spot, to: Spot) -> Result<()> {
    let first = rows.partition_point(|row| row.header.end() <= from.position);
    for row in &rows[first..] {
        let start = from.position.max(row.header.base);
        let end = to.position.min(row.header.end());
        if start >= end {
            break;
        }
        fill(storage, row, Kind::Gap, Spot { position: start, seq: to.seq }, end)?;
    }
    Ok(())
}

/// Overwrites the bytes that a power cut left with a fragment without payload, in allocated space,
/// and syncs it: otherwise another power cut could restore the old bytes. A failed write ends the
/// opening, for then a reader could find pieces of a discarded unit; a full disk fails no write
/// where a store needs no space. Does nothing where the file is gone or ends before `at`: no reader
/// finds anything there.
pub(super) fn fill<S: Storage>(
    storage: &S,
    row: &Row,
    kind: Kind,
    at: Spot,
    end: u64,
) -> Result<()> {
    let Some(Opened { file, allocated, .. }) = open_row(storage, row)? else {
        return Ok(());
    };
    let offset = at.position - row.header.base + SEGMENT_HEADER_LEN;
    let Some(bytes) = filler(&row.header, kind, at.position, end, at.seq) else {
        return Ok(());
    };
    if offset + format::FRAGMENT_HEADER_LEN > allocated {
        return Ok(());
    }
    if planted!(TornRestKept) && file.write_at(&bytes, offset).is_err() {
        return Ok(());
    }
    overwrite(storage, row.slot, &file, &bytes, offset)
}

/// Opens the file of a segment; `None` if the file is gone.
pub(super) fn open_row<S: Storage>(storage: &S, row: &Row) -> Result<Option<Opened<S::File>>> {
    present(storage, row.slot, open_life(storage, row.slot, &row.header))
}

/// Stores into allocated space. If the call fails and a store through a mapping needs no space,
/// stores through a mapping.
pub(super) fn store<F: StorageFile>(file: &F, bytes: &[u8], offset: u64) -> io::Result<()> {
    let Err(error) = file.write_at(bytes, offset) else {
        return Ok(());
    };
    let window = if file.stores() == Stores::ByMap && !planted!(HeaderByCallAlone) {
        file.map(offset, bytes.len()).ok()
    } else {
        None
    };
    window.ok_or(error)?.copy_in(0, bytes);
    Ok(())
}

/// [Stores](store) into allocated space, and syncs it.
fn overwrite<S: Storage>(
    storage: &S,
    slot: u32,
    file: &S::File,
    bytes: &[u8],
    offset: u64,
) -> Result<()> {
    let path = || storage.path().join(format::segment_name(slot));
    store(file, bytes, offset).map_err(|error| Error::io("write", path(), error))?;
    if planted!(OverwrittenUnsynced) {
        return Ok(());
    }
    file.sync().map_err(|failed| failed.ends_opening(path()))
}

/// What a discarded segment contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Messages that were durable, all of which are damaged: its file is quarantined.
    Messages,
    Nothing,
}

/// Removes a segment's file, or quarantines it if it holds messages. The caller then syncs the
/// directory. A file that cannot be removed becomes a spare, which is returned: as a live segment a
/// later opening would deliver its messages, or it would overlap later records. Fails if the
/// spare's header cannot be written either.
pub(super) fn discard<S: Storage>(storage: &S, row: &Row, holds: Holds) -> Result<Option<Row>> {
    let name = format::segment_name(row.slot);
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    if holds == Holds::Messages {
        return match quarantine(storage, &name) {
            Err(error) if !gone(&error) => {
                Err(Error::io("set aside", storage.path().join(&name), error))
            }
            _ => Ok(None),
        };
    }
    match storage.remove(&name) {
        Err(error) if !gone(&error) => {
            let opened = open_life(storage, row.slot, &row.header)
                .map_err(|_| Error::io("remove", storage.path().join(&name), error))?;
            let header = SegmentHeader { state: SegmentState::Spare, ..row.header };
            overwrite(storage, row.slot, &opened.file, &header.in_file().encode(), 0)?;
            Ok(Some(Row::new(row.slot, header)))
        }
        _ => Ok(None),
    }
}

/// Has the header of each segment that begins within a hole, or at one of its ends, state the
/// numbers that are missing before it.
pub(super) fn restate<S: Storage>(
    storage: &S,
    index: &Index<S>,
    rows: &mut [Row],
    from: Spot,
    to: Spot,
) -> Result<()> {
    for row in rows {
        let within = from.position <= row.header.base && row.header.base <= to.position;
        if !within || row.header.missing_from() <= from.seq {
            continue;
        }
        let mut header = row.header;
        header.missing.gap = header.first_seq - from.seq;
        header.missing.cause = GapCause::Unflushed.number();
        write_header(storage, index, row, header)?;
    }
    Ok(())
}

/// Writes a segment's header into the file and into the row of the index. If the file cannot be
/// written the row counts, and the next opening that reads headers writes the file.
pub(super) fn write_header<S: Storage>(
    storage: &S,
    index: &Index<S>,
    row: &mut Row,
    header: SegmentHeader,
) -> Result<()> {
    let opened = open_life(storage, row.slot, &row.header);
    row.header = header;
    index.write_segment_row(row.slot, Some(&header), u64::MAX);
    if let Ok(Opened { file, .. }) = opened
        && store(&file, &header.in_file().encode(), 0).is_ok()
    {
        file.sync().map_err(|failed| {
            failed.ends_opening(storage.path().join(format::segment_name(row.slot)))
        })?;
    }
    Ok(())
}
