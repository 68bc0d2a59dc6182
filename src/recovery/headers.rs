//! Reads the headers of all segment files, and writes headers again.

use std::io;

use crate::error::{Error, Result};
use crate::format::{self, Invalid, Kind, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::recovery::foreign::unsupported;
use crate::recovery::repair::store;
use crate::segment::scan::{self, Scan};
use crate::segment::{Lost, header_in, lost};
use crate::storage::{Storage, StorageFile};

/// The headers of all segment files.
#[derive(Default)]
pub(super) struct Headers {
    pub(super) whole: Vec<(u32, SegmentHeader)>,
    /// Files with a damaged header, with the length of each.
    pub(super) damaged: Vec<(u32, u64)>,
    /// Those of `whole` whose file states less than the index row: which numbers are missing, or
    /// that the segment is a spare.
    pub(super) stated_by_rows: Vec<(u32, SegmentHeader)>,
}

impl Headers {
    pub(super) fn read<S: Storage>(storage: &S, noted: &[(u32, SegmentHeader)]) -> Result<Headers> {
        let listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
        let mut headers = Headers::default();
        for listed in &listed {
            let Some(slot) = format::segment_slot(&listed.name) else {
                continue;
            };
            match read_segment(storage, slot) {
                Ok(header) => {
                    let row =
                        noted.iter().find(|(other, row)| *other == slot && row.life == header.life);
                    let known = row.map_or(header, |(_, row)| header.corrected_by(row));
                    if known != header {
                        headers.stated_by_rows.push((slot, known));
                    }
                    headers.whole.push((slot, known));
                }
                Err(Unread::Version(found)) => {
                    return Err(unsupported(storage, &listed.name, found));
                }
                Err(Unread::Damaged(len)) => headers.damaged.push((slot, len)),
                Err(Unread::Lost(Lost::Gone)) => headers.damaged.push((slot, 0)),
                Err(Unread::Lost(Lost::Io(error))) => {
                    return Err(Error::io("open", storage.path().join(&listed.name), error));
                }
            }
        }
        Ok(headers)
    }
}

/// Why a segment's header could not be read.
enum Unread {
    Lost(Lost),
    Version(u32),
    /// The header is damaged; with the length of the file.
    Damaged(u64),
}

fn read_segment<S: Storage>(storage: &S, slot: u32) -> Result<SegmentHeader, Unread> {
    let file = storage.open(&format::segment_name(slot));
    let file = file.map_err(|error| Unread::Lost(lost(error)))?;
    let io = |error| Unread::Lost(Lost::Io(error));
    let len = file.found_len().map_err(io)?;
    match header_in(&file).map_err(io)? {
        Ok(mut header) => {
            header.allocated = len.min(header.length);
            Ok(header)
        }
        Err(Invalid::Version(found)) => Err(Unread::Version(found)),
        Err(Invalid::Damaged) => Err(Unread::Damaged(len)),
    }
}

/// Writes the damaged header of the file in `slot` again, from the index's row, if the file is the
/// segment that the row describes. The file's records decide that, because the row may be older: of
/// a segment that was removed before this file took its slot. Syncs the header, because the caller
/// rewrites the rows next, and another crash could leave neither. Returns whether the file is that
/// segment.
pub(super) fn put_header_back<S: Storage>(
    storage: &S,
    slot: u32,
    header: &SegmentHeader,
    len: u64,
) -> Result<bool> {
    let name = format::segment_name(slot);
    let io = |op, error| Error::io(op, storage.path().join(&name), error);
    let file = storage.open(&name).map_err(|error| io("open", error))?;
    if !holds_any_of(&file, header, len).map_err(|error| io("read", error))? {
        return Ok(false);
    }
    write_header(storage, slot, &file, header)?;
    Ok(true)
}

/// Writes a header into its file. Ignores a failed write: the index still has the header. A failed
/// sync ends the opening.
fn write_header<S: Storage>(
    storage: &S,
    slot: u32,
    file: &S::File,
    header: &SegmentHeader,
) -> Result<()> {
    if store(file, &header.in_file().encode(), 0).is_ok() {
        let path = || storage.path().join(format::segment_name(slot));
        file.sync().map_err(|failed| failed.ends_opening(path()))?;
    }
    Ok(())
}

/// Writes the headers of segments whose index rows state more. (An opening wrote the row but could
/// not write the header, or a power cut lost the header or the mark of a spare.) The caller
/// rewrites the rows next, and a kill may interrupt it, so the headers must state it first.
pub(super) fn state_in_files<S: Storage>(storage: &S, rows: &[(u32, SegmentHeader)]) -> Result<()> {
    if planted!(StatedByTheRowAlone) {
        return Ok(());
    }
    for (slot, header) in rows {
        let name = format::segment_name(*slot);
        let file = storage.open(&name);
        let file = file.map_err(|error| Error::io("open", storage.path().join(&name), error))?;
        write_header(storage, *slot, &file, header)?;
    }
    Ok(())
}

/// Whether the file is empty or all zero: its header was never written, or did not reach the disk.
pub(super) fn is_blank<S: Storage>(storage: &S, slot: u32, len: u64) -> bool {
    let file = storage.open(&format::segment_name(slot));
    file.and_then(|file| scan::is_blank(&file, len)).unwrap_or(false)
}

/// Whether the file holds a record that was written for the segment with that header.
fn holds_any_of<F: StorageFile>(file: &F, header: &SegmentHeader, len: u64) -> io::Result<bool> {
    let mut scan = Scan::new(file, header, header.base + len.saturating_sub(SEGMENT_HEADER_LEN));
    let continues = scan.header_at(header.base)?.is_some_and(|seen| {
        // The first fragment may continue a record of the segment before, which this scan does not
        // see.
        let numbers = [header.first_seq, header.first_seq.wrapping_sub(1)];
        matches!(seen.fragment.kind, Kind::Middle | Kind::Last)
            && numbers.into_iter().any(|number| seen.fragment.is_numbered(number))
    });
    Ok(continues || scan.search(header.base, header.first_seq, u64::MAX >> 2)?.is_some())
}
