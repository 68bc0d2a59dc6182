//! The bytes of a bigqueue's arenas, as one row.
//!
//! A place of bigqueue is (arena, offset). Here it is one number, `arena * size + offset`, so that
//! the end of an arena is the beginning of the next.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use byteorder::{ByteOrder, LittleEndian};

use crate::detect::Numbered;
use crate::error::{ImportError, Result};

/// A place, as one number: below 2^128 for any two of 64 bits.
pub(crate) type RowPlace = u128;

const LENGTH: u64 = 8;
/// How much of a file is read by one call, at least.
const AHEAD: u64 = 64 << 10;

/// Why there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It would end behind the last place that it may end at. With its length, when that was read.
    Beyond(Option<u64>),
    /// That arena is missing.
    Missing(u64),
    /// That arena is shorter than it says.
    Short(u64),
}

/// A record whose bytes are all there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArenaRecord {
    pub(crate) payload: RowPlace,
    pub(crate) len: u64,
    /// The place behind it.
    pub(crate) next: RowPlace,
}

/// The arenas.
#[derive(Debug)]
pub(crate) struct Arenas {
    size: u64,
    /// How many bytes of each are there; never more than the size.
    lengths: BTreeMap<u64, u64>,
    paths: BTreeMap<u64, PathBuf>,
    open: Option<(u64, File)>,
    /// Bytes that were read, and the place of the first.
    buffer: Vec<u8>,
    buffered: RowPlace,
}

impl Arenas {
    /// `size` is above zero.
    pub(crate) fn new(files: Numbered, size: u64) -> Arenas {
        let lengths = files.iter().map(|(id, found)| (*id, found.len.min(size))).collect();
        let paths = files.into_iter().map(|(id, found)| (id, found.path)).collect();
        Arenas { size, lengths, paths, open: None, buffer: Vec::new(), buffered: 0 }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn place(&self, id: u64, offset: u64) -> RowPlace {
        RowPlace::from(id) * RowPlace::from(self.size) + RowPlace::from(offset)
    }

    pub(crate) fn id(&self, at: RowPlace) -> u64 {
        u64::try_from(at / RowPlace::from(self.size)).unwrap_or(u64::MAX)
    }

    pub(crate) fn offset(&self, at: RowPlace) -> u64 {
        (at % RowPlace::from(self.size)) as u64
    }

    pub(crate) fn exists(&self, id: u64) -> bool {
        self.lengths.contains_key(&id)
    }

    /// As a report writes it.
    pub(crate) fn text(&self, at: RowPlace) -> String {
        format!("arena {} offset {}", self.id(at), self.offset(at))
    }

    /// Whether these bytes are there.
    fn there(&self, at: RowPlace, len: u64) -> Result<(), Fault> {
        let (mut at, end) = (at, at.saturating_add(RowPlace::from(len)));
        // Each turn is another arena of the listing, or the last.
        while at < end {
            let (id, offset) = (self.id(at), self.offset(at));
            let held = *self.lengths.get(&id).ok_or(Fault::Missing(id))?;
            let wanted = RowPlace::from(self.size - offset).min(end - at);
            if RowPlace::from(offset) + wanted > RowPlace::from(held) {
                return Err(Fault::Short(id));
            }
            at += wanted;
        }
        Ok(())
    }

    /// The record at this boundary. It ends at `limit` or before.
    pub(crate) fn record(
        &mut self,
        at: RowPlace,
        limit: RowPlace,
    ) -> Result<Result<ArenaRecord, Fault>> {
        let left = self.size - self.offset(at);
        // A length lies in one piece.
        let head = if left < LENGTH { at.saturating_add(RowPlace::from(left)) } else { at };
        let payload = head.saturating_add(RowPlace::from(LENGTH));
        if payload > limit {
            return Ok(Err(Fault::Beyond(None)));
        }
        if let Err(fault) = self.there(head, LENGTH) {
            return Ok(Err(fault));
        }
        let mut bytes = [0; LENGTH as usize];
        self.read(head, &mut bytes)?;
        let len = LittleEndian::read_u64(&bytes);
        let next = payload.saturating_add(RowPlace::from(len));
        if next > limit {
            return Ok(Err(Fault::Beyond(Some(len))));
        }
        Ok(self.there(payload, len).map(|()| ArenaRecord { payload, len, next }))
    }

    /// Whether all bytes from `at` to `end` are there, and zero.
    pub(crate) fn are_zero(&mut self, mut at: RowPlace, end: RowPlace) -> Result<bool> {
        let mut bytes = [0; 4096];
        while at < end {
            let len = (end - at).min(bytes.len() as RowPlace) as usize;
            let part = bytes.get_mut(..len).unwrap_or_default();
            if self.there(at, len as u64).is_err() {
                return Ok(false);
            }
            self.read(at, part)?;
            if part.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += len as RowPlace;
        }
        Ok(true)
    }

    /// Reads bytes that are there.
    pub(crate) fn read(&mut self, mut at: RowPlace, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            let skip = at.checked_sub(self.buffered).and_then(|skip| usize::try_from(skip).ok());
            let held = skip.and_then(|skip| self.buffer.get(skip..)).unwrap_or_default();
            if held.is_empty() {
                self.fill(at)?;
                continue;
            }
            let len = held.len().min(into.len());
            let (now, later) = into.split_at_mut(len);
            now.copy_from_slice(held.get(..len).unwrap_or_default());
            (into, at) = (later, at + len as RowPlace);
        }
        Ok(())
    }

    /// Reads ahead from there, within one arena.
    fn fill(&mut self, at: RowPlace) -> Result<()> {
        let (id, offset) = (self.id(at), self.offset(at));
        let path = self.paths.get(&id).cloned().unwrap_or_default();
        if self.open.as_ref().is_none_or(|(open, _)| *open != id) {
            self.open = Some((id, crate::open(&path)?));
        }
        let held = self.lengths.get(&id).copied().unwrap_or_default();
        self.buffer.clear();
        self.buffer.resize(held.saturating_sub(offset).min(AHEAD) as usize, 0);
        self.buffered = at;
        let result = match &self.open {
            Some((_, file)) if !self.buffer.is_empty() => {
                file.read_exact_at(&mut self.buffer, offset)
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        result.map_err(|error| {
            self.buffer.clear();
            match error.kind() {
                io::ErrorKind::UnexpectedEof => crate::changed(path.parent().unwrap_or(&path)),
                _ => ImportError::io(path.display(), &error),
            }
        })
    }
}
