//! Reads fragments from a segment file by calls: for recovery, behind damaged bytes, and where a
//! reader gets no window.
//!
//! The code here believes no byte that it has not checked, allocates [`BUFFER`] bytes at most, and
//! makes progress in every loop.

use std::io;

use crate::format::{
    ALIGN, FRAGMENT_HEADER_LEN, Fragment, FragmentWords, Kind, SEAL_LEN, SEGMENT_HEADER_LEN,
    SegmentHeader,
};
use crate::memory::checksum::crc32c;
use crate::storage::StorageFile;

/// Bytes read at a time.
const BUFFER: usize = 64 << 10;
/// Bytes that the first call reads: behind a clean end there is nothing, and an opening is short.
const FIRST: usize = 4 << 10;

/// A segment file seen as fragments.
pub(crate) struct Scan<'a, F: StorageFile> {
    file: &'a F,
    header: &'a SegmentHeader,
    seed: u32,
    buffer: Vec<u8>,
    /// Position of the first byte in the buffer.
    from: u64,
    /// No position at or above it is looked at: the file or the messages end there.
    limit: u64,
}

/// A fragment whose header is intact.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intact {
    pub(crate) fragment: Fragment,
    pub(crate) position: u64,
    words: FragmentWords,
    /// The running CRC behind the header, from which the payload's continues.
    crc_state: u32,
}

impl Intact {
    /// Its checksum, which seeds that of the next fragment of the same record.
    pub(crate) fn checksum(&self) -> u32 {
        self.words.crc()
    }

    /// The position behind it.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.fragment.total_len()
    }
}

impl<'a, F: StorageFile> Scan<'a, F> {
    /// A scan of the segment's positions below `limit`.
    pub(crate) fn new(file: &'a F, header: &'a SegmentHeader, limit: u64) -> Scan<'a, F> {
        Scan {
            file,
            header,
            seed: header.seed(),
            buffer: Vec::new(),
            from: 0,
            limit: limit.min(header.end()),
        }
    }

    /// The bytes `position .. position + len` (`len` at most [`BUFFER`]); fewer at the end of the
    /// file.
    fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let have = self.from..self.from + self.buffer.len() as u64;
        if !(have.contains(&position) && position + len as u64 <= have.end) {
            let most = if self.buffer.is_empty() { FIRST.max(len) } else { BUFFER };
            let room = (self.limit - position).min(most as u64) as usize;
            self.buffer.resize(room, 0);
            let offset = SEGMENT_HEADER_LEN + (position - self.header.base);
            let read = crate::storage::read_full(self.file, &mut self.buffer, offset)?;
            self.buffer.truncate(read);
            self.from = position;
        }
        let start = (position - self.from) as usize;
        let end = (start + len).min(self.buffer.len());
        Ok(&self.buffer[start.min(end)..end])
    }

    /// The fragment at `position`, if its header is intact and it ends within the limit.
    pub(crate) fn header_at(&mut self, position: u64) -> io::Result<Option<Intact>> {
        if position < self.header.base || position + FRAGMENT_HEADER_LEN > self.limit {
            return Ok(None);
        }
        let (seed, offset) = (self.seed, position - self.header.base);
        let bytes = self.bytes(position, FRAGMENT_HEADER_LEN as usize)?;
        let Some(words) = words(bytes) else {
            return Ok(None);
        };
        Ok(Fragment::decode(words, seed, offset).and_then(|(fragment, crc_state)| {
            let seen = Intact { fragment, position, words, crc_state };
            // A fragment without payload may reach beyond the end of the file: a power cut may have
            // undone the file's growth.
            let empty = matches!(fragment.kind, Kind::Padding | Kind::Gap);
            let limit = if empty { self.header.end() } else { self.limit };
            (seen.end() <= limit).then_some(seen)
        }))
    }

    /// Whether the payload matches the header's checksum. Padding has none.
    pub(crate) fn payload_holds(&mut self, seen: &Intact) -> io::Result<bool> {
        self.continues(seen, 0)
    }

    /// As [`payload_holds`](Self::payload_holds), for a fragment that continues a record: `chain`
    /// is the checksum of the fragment before it.
    fn continues(&mut self, seen: &Intact, chain: u32) -> io::Result<bool> {
        self.copy_to(seen, chain, None)
    }

    /// Appends the payload to `out`, if it matches the header's checksum; else leaves `out` as it
    /// is. `chain` is the checksum of the fragment before it in the same record.
    pub(crate) fn copy(
        &mut self,
        seen: &Intact,
        chain: u32,
        out: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let before = out.len();
        let holds = self.copy_to(seen, chain, Some(out))?;
        if !holds {
            out.truncate(before);
        }
        Ok(holds)
    }

    /// Sums the payload up, and appends it to `out`. Whether the sum is the header's.
    fn copy_to(
        &mut self,
        seen: &Intact,
        chain: u32,
        mut out: Option<&mut Vec<u8>>,
    ) -> io::Result<bool> {
        let within = matches!(seen.fragment.kind, Kind::Middle | Kind::Last);
        let mut crc_state = seen.crc_state ^ if within { chain } else { 0 };
        if !matches!(seen.fragment.kind, Kind::Padding | Kind::Gap) {
            let mut position = seen.position + FRAGMENT_HEADER_LEN;
            let mut left = seen.fragment.len as usize;
            while left > 0 {
                let piece = left.min(BUFFER / 2);
                let bytes = self.bytes(position, piece)?;
                if bytes.len() < piece {
                    return Ok(false);
                }
                crc_state = crc32c(crc_state, bytes);
                if let Some(out) = &mut out {
                    out.extend_from_slice(bytes);
                }
                position += piece as u64;
                left -= piece;
            }
        }
        Ok(Fragment::holds(seen.words, crc_state))
    }

    /// The seal behind the fragment `seen`, if it has one.
    pub(crate) fn seal(&mut self, seen: &Intact) -> io::Result<Option<u64>> {
        use byteorder::{ByteOrder, LittleEndian};
        let Some(at) = seen.fragment.seal_at() else {
            return Ok(None);
        };
        let bytes = self.bytes(seen.position + at, SEAL_LEN as usize)?;
        Ok((bytes.len() == SEAL_LEN as usize).then(|| LittleEndian::read_u64(bytes)))
    }

    /// The fragment at `position`, if its header and payload are intact. `chain` is the checksum of
    /// the fragment before it in the same record.
    pub(crate) fn fragment_at(&mut self, position: u64, chain: u32) -> io::Result<Option<Intact>> {
        match self.header_at(position)? {
            Some(seen) => Ok(self.continues(&seen, chain)?.then_some(seen)),
            _ => Ok(None),
        }
    }

    /// Searches from position `from` on for the first intact fragment that begins a record or fills
    /// space, with a number from `seq` up to `below` for which the bytes between leave room.
    /// Returns it with its full number.
    pub(crate) fn search(
        &mut self,
        from: u64,
        seq: u64,
        below: u64,
    ) -> io::Result<Option<(Intact, u64)>> {
        let mut position = from;
        while position + FRAGMENT_HEADER_LEN <= self.limit {
            if let Some(seen) = self.header_at(position)? {
                let begins = !matches!(seen.fragment.kind, Kind::Middle | Kind::Last);
                let number = seen.fragment.seq_from(seq);
                // Each message between takes at least a header: this bounds how many there are.
                let room = (position - from) / FRAGMENT_HEADER_LEN + 1;
                if begins && number <= below && number - seq <= room && self.payload_holds(&seen)? {
                    return Ok(Some((seen, number)));
                }
            }
            position += ALIGN;
        }
        Ok(None)
    }
}

/// The words of a fragment's header at the beginning of `bytes`; `None` if these are too few.
pub(crate) fn words(bytes: &[u8]) -> Option<FragmentWords> {
    use byteorder::{ByteOrder, LittleEndian};
    let bytes = bytes.get(..FRAGMENT_HEADER_LEN as usize)?;
    Some(FragmentWords(LittleEndian::read_u64(bytes), LittleEndian::read_u64(&bytes[8..])))
}
