//! What a bigqueue says of itself: `index.dat`, later `metadata.dat`.

use std::io::Read;

use byteorder::{ByteOrder, LittleEndian};

use crate::detect::{Listing, SourceKind};
use crate::encoded;
use crate::error::{ImportError, ImportErrorKind, Result};
use crate::walk::Stored;
use crate::{Finding, Severity, damaged};

/// The arenas of 0.1, which are not stored.
const SIZE_OF_1: u64 = 128 << 20;
/// The smallest arena of any release.
const SMALLEST: u64 = 4096;
/// More than a file of all consumers that anybody has.
const LONGEST: u64 = 1 << 20;
const VERSION: u64 = 1;
const ROWS_AT: usize = 56;
const NAME_AT: usize = 24;

/// A consumer: the place of its next record.
#[derive(Debug, Clone)]
pub(crate) struct HeadRow {
    /// `None` where the queue has one place alone.
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) stored: Stored,
}

impl HeadRow {
    /// As a report calls it.
    pub(crate) fn text(&self) -> String {
        match &self.name {
            None => "the head".to_owned(),
            Some(name) => format!("the head of consumer {:?}", encoded(name)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) tail: Stored,
    /// 0: no arena was ever made.
    pub(crate) size: u64,
    pub(crate) heads: Vec<HeadRow>,
}

impl Metadata {
    pub(crate) fn read(
        listing: &Listing,
        kind: SourceKind,
        findings: &mut Vec<Finding>,
    ) -> Result<Metadata> {
        let is_early = matches!(kind, SourceKind::Bigqueue1 | SourceKind::Bigqueue2);
        let name = if is_early { "index.dat" } else { "metadata.dat" };
        let path = listing.dir.join(name);
        let mut bytes = Vec::new();
        let file = crate::open(&path)?;
        let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| ImportError::io(path.display(), &error))?;
        let path = path.display();
        if bytes.len() as u64 > LONGEST {
            return Err(damaged(format!(
                "{path} is not a metadata file: it has more than {LONGEST} bytes"
            )));
        }
        let metadata = match kind {
            SourceKind::Bigqueue1 | SourceKind::Bigqueue2 => early(&bytes, kind),
            _ => later(&bytes, findings)?,
        };
        let Some(metadata) = metadata else {
            let message = format!("{path} is cut off: it has {} bytes", bytes.len());
            return Err(damaged(message));
        };
        let places = metadata.heads.iter().map(|head| head.stored).chain([metadata.tail]);
        let is_new = places.into_iter().all(|place| place == Stored { id: 0, offset: 0 });
        match metadata.size {
            SMALLEST.. => Ok(metadata),
            0 if is_new => Ok(metadata),
            size => Err(damaged(format!(
                "{path} is damaged: it says that an arena has {size} bytes, but the smallest has {SMALLEST}"
            ))),
        }
    }
}

/// `index.dat` of 0.1, and of 0.2 and 0.3, which has the size as well.
fn early(bytes: &[u8], kind: SourceKind) -> Option<Metadata> {
    let stored = place(bytes, 0)?;
    let tail = place(bytes, 16)?;
    let size = if kind == SourceKind::Bigqueue1 { SIZE_OF_1 } else { word(bytes, 32)? };
    Some(Metadata { tail, size, heads: vec![HeadRow { name: None, stored }] })
}

fn later(bytes: &[u8], findings: &mut Vec<Finding>) -> Result<Option<Metadata>> {
    if bytes.iter().all(|byte| *byte == 0) {
        let text = "the metadata were never written: the queue was being made, and is empty";
        findings.push(Finding::new(Severity::Torn, "metadata", text));
        let tail = Stored { id: 0, offset: 0 };
        return Ok(Some(Metadata { tail, size: 0, heads: Vec::new() }));
    }
    let fields = || {
        let words = [word(bytes, 0)?, word(bytes, 40)?, word(bytes, 48)?];
        Some((words, place(bytes, 8)?, place(bytes, 24)?))
    };
    let Some(([version, size, count], first, tail)) = fields() else { return Ok(None) };
    if version != VERSION {
        let message = format!(
            "the metadata have format version {version}, and this mmq reads version {VERSION}"
        );
        return Err(ImportError::new(ImportErrorKind::LaterFormat, message));
    }
    if first != (Stored { id: 0, offset: 0 }) {
        let text = format!(
            "the metadata say that the first message is in arena {} at {}; every release says arena 0 at 0, where the walk begins",
            first.id, first.offset
        );
        findings.push(Finding::new(Severity::Torn, "metadata", text));
    }
    let (heads, end) = rows(bytes, count);
    if (heads.len() as u64) < count {
        let text = format!(
            "the metadata say that there are {count} consumers, and hold {}: rows end where the file ends",
            heads.len()
        );
        findings.push(Finding::new(Severity::Torn, "metadata", text));
    } else if end < bytes.len() {
        let text = format!(
            "{} bytes after the last consumer are ignored: a consumer was being added, and was not counted yet",
            bytes.len() - end
        );
        findings.push(Finding::new(Severity::Torn, "metadata", text));
    }
    Ok(Some(Metadata { tail, size, heads }))
}

/// The consumers whose rows are there, and where the last row ends.
fn rows(bytes: &[u8], count: u64) -> (Vec<HeadRow>, usize) {
    let (mut heads, mut at) = (Vec::new(), ROWS_AT);
    while (heads.len() as u64) < count {
        let row = || {
            let rest = bytes.get(at..)?;
            let len = usize::try_from(word(rest, 0)?).ok()?;
            let end = len.checked_add(NAME_AT)?;
            Some((rest.get(NAME_AT..end)?.to_vec(), place(rest, 8)?, end))
        };
        let Some((name, stored, len)) = row() else { break };
        heads.push(HeadRow { name: Some(name), stored });
        at += len;
    }
    (heads, at)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| LittleEndian::read_u64(word))
}

fn place(bytes: &[u8], at: usize) -> Option<Stored> {
    Some(Stored { id: word(bytes, at)?, offset: word(bytes, at + 8)? })
}
