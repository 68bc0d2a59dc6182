//! Whether a directory may be a queue's. One that holds something and nothing of mmq's is refused
//! and left as it is.
//!
//! Asked where the index has no valid header, which is what an ordinary opening begins with and
//! ends this question. Of mmq's is a regular file that has the index's or a segment's name and
//!
//! - begins with the magic number of such a file, of whatever version; or
//! - is empty, or all zero: a kill in the middle of its making leaves it so; or
//! - has a length that mmq makes such files in (whole pages of 4 KiB): every header in it may be
//!   damaged; or
//! - is an index of any length, one row of which still describes a segment. (A record in a segment
//!   proves nothing by itself: its checksum is seeded with the segment's header, and where that is
//!   at hand, in the file or in such a row, it is proof enough.)
//!
//! So is a file that was set aside under the name that mmq gives it: an opening that set aside all
//! there was may have been killed before it made a new index. Hidden files and `lost+found` are
//! nobody's: a directory that holds nothing else is empty.

use std::io;

use crate::error::{Error, Result};
use crate::format::{
    self, ASIDE_SUFFIX, INDEX_MAGIC, INDEX_NAME, MAX_SEGMENT_LEN, SEGMENT_HEADER_LEN,
    SEGMENT_MAGIC, SegmentHeader, index_at,
};
use crate::storage::read_full;
use crate::storage::{Storage, StorageFile};

/// Every file that mmq makes takes whole pages of this length, or larger ones.
const PAGE: u64 = 4096;

/// The index has no valid header. Refuses the directory when it is not a queue's.
#[cold]
pub(crate) fn refuse_foreign<S: Storage>(storage: &S) -> Result<()> {
    let mut listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
    listed.retain(|listed| !listed.name.starts_with('.') && listed.name != "lost+found");
    // The error names what has a name of mmq's, if anything has.
    listed.sort_by_key(|listed| (Named::of(&listed.name) == Named::Otherwise, listed.name.clone()));
    for listed in &listed {
        let is_ours = listed.is_file
            && is_ours(storage, &listed.name)
                .map_err(|error| Error::io("open", storage.path().join(&listed.name), error))?;
        if is_ours {
            return Ok(());
        }
    }
    match listed.into_iter().next() {
        Some(first) => Err(Error::NotAQueue { path: storage.path().to_owned(), file: first.name }),
        None => Ok(()),
    }
}

/// What a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Index,
    Segment,
    Aside,
    Otherwise,
}

impl Named {
    fn of(name: &str) -> Named {
        let plain = |name: &str| match name {
            INDEX_NAME => Named::Index,
            _ if format::segment_slot(name).is_some() => Named::Segment,
            _ => Named::Otherwise,
        };
        let Some(aside) = name.strip_suffix(ASIDE_SUFFIX) else {
            return plain(name);
        };
        let numbered = aside.rsplit_once('.').filter(|(_, number)| number.parse::<u16>().is_ok());
        match plain(numbered.map_or(aside, |(name, _)| name)) {
            Named::Otherwise => Named::Otherwise,
            _ => Named::Aside,
        }
    }
}

fn is_ours<S: Storage>(storage: &S, name: &str) -> io::Result<bool> {
    let (magic, lens) = match Named::of(name) {
        Named::Index => (INDEX_MAGIC, index_at::END as u64..=u64::MAX),
        Named::Segment => (SEGMENT_MAGIC, PAGE..=MAX_SEGMENT_LEN),
        Named::Aside => return Ok(true),
        Named::Otherwise => return Ok(false),
    };
    let file = match storage.open(name) {
        Ok(file) => file,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let len = file.len()?;
    if len == 0 || (len.is_multiple_of(PAGE) && lens.contains(&len)) {
        return Ok(true);
    }
    let mut bytes = vec![0; index_at::END];
    let read = read_full(&file, &mut bytes, 0)?;
    let bytes = &bytes[..read];
    Ok(bytes.starts_with(&magic.to_le_bytes())
        || (magic == INDEX_MAGIC && describes_a_segment(bytes))
        || is_zero(&file, len)?)
}

/// Whether a row of the index, wherever it lies, is the header of a segment.
fn describes_a_segment(index: &[u8]) -> bool {
    let (rows, _) = index.as_chunks::<{ SEGMENT_HEADER_LEN as usize }>();
    rows.iter().any(|row| SegmentHeader::decode(row).is_ok())
}

fn is_zero<F: StorageFile>(file: &F, len: u64) -> io::Result<bool> {
    let (mut bytes, mut offset) = (vec![0; 64 << 10], 0);
    while offset < len {
        let read = read_full(file, &mut bytes, offset)?;
        if read == 0 || bytes[..read].iter().any(|byte| *byte != 0) {
            return Ok(read == 0);
        }
        offset += read as u64;
    }
    Ok(true)
}
