//! Decides whether a directory may be a queue's. A directory that holds files, but none of mmq's,
//! is refused and not changed.
//!
//! An opening calls this only when the index has no valid header. A file is mmq's if it is a
//! regular file, has the name of the index or of a segment, and
//!
//! - begins with the magic number of such a file, of whatever version, even if damaged: at most two
//!   bytes have another value, the others are right or zero; or
//! - is empty, or its first sector is zero: a kill while mmq created the file leaves it so, and so
//!   does a lost sector; or
//! - has a length that mmq gives such files (whole pages of 4 KiB): every header in it may be
//!   damaged; or
//! - is an index of any length in which one row still describes a segment. (The test does not look
//!   at records in a segment: their checksums are seeded from the segment's header, and a valid
//!   header, in the file or in a row, is proof by itself.)
//!
//! A file under a name that mmq gives to quarantined files is mmq's, too: an opening that
//! quarantined everything may have died before it created a new index. Hidden files, `lost+found`
//! and the socket of an owner do not count: a directory that holds nothing else is empty.

use std::io;

use crate::error::{Error, Result};
use crate::format::{
    self, INDEX_MAGIC, INDEX_NAME, INDEX_NEW_NAME, MAX_SEGMENT_LEN, QUARANTINE_SUFFIX, SECTOR,
    SEGMENT_HEADER_LEN, SEGMENT_MAGIC, SOCKET_NAME, SegmentHeader, index_at,
};
use crate::storage::read_full;
use crate::storage::{Listed, Storage, StorageFile};

/// How many bytes of a damaged magic number may be neither right nor zero.
const OTHER_BYTES: usize = 2;

/// Every file that mmq creates has a multiple of this many bytes.
const PAGE: u64 = 4096;

/// Fails when the directory is not a queue's. The caller found no valid index header in it.
#[cold]
pub(crate) fn refuse_foreign<S: Storage>(storage: &S) -> Result<()> {
    let mut listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
    let is_socket = |listed: &Listed| listed.name == SOCKET_NAME && !listed.is_file;
    listed.retain(|listed| !listed.name.starts_with('.') && listed.name != "lost+found");
    listed.retain(|listed| !is_socket(listed));
    for listed in &listed {
        let is_ours = is_ours(storage, listed);
        let failed = |error| Error::io("open", storage.path().join(&listed.name), error);
        if is_ours.map_err(failed)? {
            return Ok(());
        }
    }
    // The error names the first file: one with a name of mmq's, if there is any.
    let first = listed
        .into_iter()
        .min_by_key(|listed| (Named::of(&listed.name) == Named::Otherwise, listed.name.clone()));
    match first {
        Some(first) => Err(Error::NotAQueue { path: storage.path().to_owned(), file: first.name }),
        None => Ok(()),
    }
}

/// Whether an earlier opening died while it was replacing a damaged index, and left the new one.
pub(super) fn is_left<S: Storage>(storage: &S) -> Result<bool> {
    let failed = |error| Error::io("open", storage.path().join(INDEX_NEW_NAME), error);
    is_new_index(storage).map_err(failed)
}

fn is_new_index<S: Storage>(storage: &S) -> io::Result<bool> {
    let file = match storage.open(INDEX_NEW_NAME) {
        Err(error) if is_none(&error) => return Ok(false),
        opened => opened?,
    };
    let mut bytes = [0; format::INDEX_HEADER_LEN];
    let read = read_full(&file, &mut bytes, 0)?;
    Ok(format::decode_index_header(&bytes[..read]).is_ok())
}

/// Whether the error means that no regular file has that name.
fn is_none(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}

/// The kind of file to which a name belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Index,
    Segment,
    Quarantined,
    NewIndex,
    Otherwise,
}

impl Named {
    fn of(name: &str) -> Named {
        let plain = |name: &str| match name {
            INDEX_NAME => Named::Index,
            INDEX_NEW_NAME => Named::NewIndex,
            _ if format::segment_slot(name).is_some() => Named::Segment,
            _ => Named::Otherwise,
        };
        let Some(quarantined) = name.strip_suffix(QUARANTINE_SUFFIX) else {
            return plain(name);
        };
        let numbered =
            quarantined.rsplit_once('.').filter(|(_, number)| number.parse::<u16>().is_ok());
        match plain(numbered.map_or(quarantined, |(name, _)| name)) {
            Named::Otherwise => Named::Otherwise,
            _ => Named::Quarantined,
        }
    }
}

/// Whether the file of this name is mmq's by the rules of this module.
fn is_ours<S: Storage>(storage: &S, listed: &Listed) -> io::Result<bool> {
    let name = &*listed.name;
    let (magic, lens) = match Named::of(name) {
        Named::Index => (INDEX_MAGIC, index_at::END as u64..=u64::MAX),
        Named::Segment => (SEGMENT_MAGIC, PAGE..=MAX_SEGMENT_LEN),
        Named::Quarantined => return Ok(listed.is_file),
        Named::NewIndex => return is_new_index(storage),
        Named::Otherwise => return Ok(false),
    };
    let file = match storage.open(name) {
        Err(error) if is_none(&error) => return Ok(false),
        opened => opened?,
    };
    let len = file.len()?;
    if len == 0 || (len.is_multiple_of(PAGE) && lens.contains(&len)) {
        return Ok(true);
    }
    let mut bytes = vec![0; index_at::END];
    let read = read_full(&file, &mut bytes, 0)?;
    let bytes = &bytes[..read];
    Ok(begins_with(bytes, magic)
        || (magic == INDEX_MAGIC && describes_a_segment(bytes))
        || bytes.iter().take(SECTOR).all(|byte| *byte == 0))
}

/// Whether these bytes begin with this magic number, even if damaged.
fn begins_with(bytes: &[u8], magic: u64) -> bool {
    let pairs = || bytes.iter().zip(magic.to_le_bytes());
    let other = pairs().filter(|&(&byte, magic)| byte != magic && byte != 0).count();
    other <= OTHER_BYTES && pairs().any(|(byte, magic)| *byte == magic)
}

/// Whether any row in these bytes of an index is the header of a segment.
fn describes_a_segment(index: &[u8]) -> bool {
    let (rows, _) = index.as_chunks::<{ SEGMENT_HEADER_LEN as usize }>();
    rows.iter().any(|row| SegmentHeader::decode(row).is_ok())
}

/// The error for a file of a later format, which this version neither reads nor writes.
pub(super) fn unsupported<S: Storage>(storage: &S, name: &str, found: u32) -> Error {
    Error::UnsupportedFormat {
        path: storage.path().join(name),
        found,
        supported: format::FORMAT_VERSION,
    }
}
