//! Reads fragments from a segment file by read calls: for recovery, behind damaged bytes, and where
//! a reader gets no window.
//!
//! This code trusts no byte that it has not checked, allocates at most [`BUFFER`] bytes, and makes
//! progress in every loop.

use std::io;
use std::ops::Range;

use crate::format::{
    ALIGN, FRAGMENT_HEADER_LEN, Fragment, FragmentWords, Kind, MAX_SEGMENT_LEN, SEAL_LEN,
    SEGMENT_HEADER_LEN, SegmentHeader, with_payload,
};
use crate::memory::checksum;
use crate::storage::{Readable, read_full};

/// Bytes read at a time.
const BUFFER: usize = 64 << 10;
/// Bytes that the first call reads: few, since after a clean close nothing follows and recovery is
/// short.
const FIRST: usize = 4 << 10;

/// A segment file seen as fragments.
pub(crate) struct Scan<'a, F: Readable> {
    file: &'a F,
    pub(super) seed: u32,
    /// The segment's positions.
    pub(super) positions: Range<u64>,
    ahead: ScanBuffer<'a>,
    /// The scan reads no position at or above it: the file or the messages end there.
    pub(super) limit: u64,
}

/// Bytes of a segment that a scan read ahead.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    buffer: Vec<u8>,
    /// Position of the first byte in the buffer.
    from: u64,
}

/// A scan's own buffer, or one that its caller lends.
enum ScanBuffer<'a> {
    Own(ReadAhead),
    Lent(&'a mut ReadAhead),
}

/// A fragment whose header is intact.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intact {
    pub(crate) fragment: Fragment,
    pub(crate) position: u64,
    words: FragmentWords,
    /// The checksum of the header.
    header_sum: u32,
}

impl Intact {
    /// Returns its checksum, which seeds the next fragment's in the same record.
    pub(crate) fn checksum(&self) -> u32 {
        self.words.sum()
    }

    /// Returns the position behind it.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.fragment.total_len()
    }
}

impl<'a, F: Readable> Scan<'a, F> {
    /// Returns a scan of the segment's positions below `limit`.
    pub(crate) fn new(file: &'a F, header: &SegmentHeader, limit: u64) -> Scan<'a, F> {
        Scan::seeded(file, header.seed(), header.base..header.end(), limit)
    }

    /// Returns a scan below `limit` of a segment with these `positions`, whose header may be lost.
    pub(crate) fn seeded(file: &'a F, seed: u32, positions: Range<u64>, limit: u64) -> Scan<'a, F> {
        let limit = limit.min(positions.end);
        Scan { file, seed, positions, ahead: ScanBuffer::Own(ReadAhead::default()), limit }
    }

    /// Makes this scan use the buffer of an earlier scan of the same segment with the same limit.
    pub(crate) fn reading_on(self, ahead: &'a mut ReadAhead) -> Scan<'a, F> {
        Scan { ahead: ScanBuffer::Lent(ahead), ..self }
    }

    /// Returns the bytes `position .. position + len` (`len` at most [`BUFFER`]); fewer at the end
    /// of the file.
    fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let ReadAhead { buffer, from } = match &mut self.ahead {
            ScanBuffer::Own(ahead) => ahead,
            ScanBuffer::Lent(ahead) => ahead,
        };
        let have = *from..*from + buffer.len() as u64;
        if !(have.contains(&position) && position + len as u64 <= have.end) {
            let most = if buffer.is_empty() { FIRST.max(len) } else { BUFFER };
            let room = (self.limit - position).min(most as u64) as usize;
            buffer.resize(room, 0);
            let offset = SEGMENT_HEADER_LEN + (position - self.positions.start);
            let read = read_full(self.file, buffer, offset);
            // After an error the buffer holds no bytes of the file.
            buffer.truncate(*read.as_ref().unwrap_or(&0));
            *from = position;
            read?;
        }
        let start = (position - *from) as usize;
        let end = (start + len).min(buffer.len());
        Ok(&buffer[start.min(end)..end])
    }

    /// The fragment at `position`, if its header is intact and it ends within the limit.
    pub(crate) fn header_at(&mut self, position: u64) -> io::Result<Option<Intact>> {
        let Some(words) = self.words_at(position)? else {
            return Ok(None);
        };
        let (seed, offset) = (self.seed, position - self.positions.start);
        Ok(Fragment::decode(words, seed, offset).and_then(|(fragment, header_sum)| {
            let seen = Intact { fragment, position, words, header_sum };
            self.is_room_for(&fragment, position).then_some(seen)
        }))
    }

    /// Returns whether the file has no room for a fragment at `position`.
    pub(crate) fn ends_before(&self, position: u64) -> bool {
        position + FRAGMENT_HEADER_LEN > self.limit
    }

    /// The words where the header of a fragment at `position` would stand.
    pub(super) fn words_at(&mut self, position: u64) -> io::Result<Option<FragmentWords>> {
        if position < self.positions.start || position + FRAGMENT_HEADER_LEN > self.limit {
            return Ok(None);
        }
        Ok(words(self.bytes(position, FRAGMENT_HEADER_LEN as usize)?))
    }

    /// Whether the fragment ends within the segment. One without payload may reach beyond the end
    /// of the file: a power cut may have undone the file's growth.
    pub(super) fn is_room_for(&self, fragment: &Fragment, position: u64) -> bool {
        let limit = if fragment.kind.is_empty() { self.positions.end } else { self.limit };
        position + fragment.total_len() <= limit
    }

    /// Returns whether the payload matches the header's checksum. Padding has no payload.
    pub(crate) fn payload_holds(&mut self, seen: &Intact) -> io::Result<bool> {
        self.continues(seen, 0)
    }

    /// Returns whether the payload matches the header's checksum, given the checksum `chain` of the
    /// fragment before it in the same record.
    fn continues(&mut self, seen: &Intact, chain: u32) -> io::Result<bool> {
        self.copy_to(seen, chain, None)
    }

    /// Appends the payload to `out` if it matches the header's checksum; otherwise leaves `out`
    /// unchanged. `chain` is the checksum of the fragment before it in the same record.
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

    /// Computes the payload's checksum and appends the payload to `out`. Returns whether the
    /// checksum is the header's.
    fn copy_to(
        &mut self,
        seen: &Intact,
        chain: u32,
        out: Option<&mut Vec<u8>>,
    ) -> io::Result<bool> {
        let within = matches!(seen.fragment.kind, Kind::Middle | Kind::Last);
        let header_sum = seen.header_sum ^ if within { chain } else { 0 };
        let summed = self.sum(&seen.fragment, seen.position, out)?;
        Ok(summed.is_some_and(|payload| with_payload(header_sum, payload) == seen.words.sum()))
    }

    /// Returns the sum of the payload of the fragment at `position`, or zero where the fragment
    /// has none by its kind; `None` when the file ends within the payload.
    pub(super) fn sum(
        &mut self,
        fragment: &Fragment,
        position: u64,
        mut out: Option<&mut Vec<u8>>,
    ) -> io::Result<Option<u64>> {
        if fragment.kind.is_empty() {
            return Ok(Some(0));
        }
        let (mut position, mut left) = (position + FRAGMENT_HEADER_LEN, fragment.len as usize);
        let mut sum = 0;
        loop {
            const { assert!((BUFFER / 2).is_multiple_of(checksum::PIECE)) };
            let part = left.min(BUFFER / 2);
            let bytes = self.bytes(position, part)?;
            if bytes.len() < part {
                return Ok(None);
            }
            sum = checksum::sum(sum, bytes);
            if let Some(out) = &mut out {
                out.extend_from_slice(bytes);
            }
            position += part as u64;
            left -= part;
            if left == 0 {
                return Ok(Some(sum));
            }
        }
    }

    /// Returns the seal behind the fragment `seen`, if it has one.
    pub(crate) fn seal(&mut self, seen: &Intact) -> io::Result<Option<u64>> {
        use byteorder::{ByteOrder, LittleEndian};
        let Some(at) = seen.fragment.seal_at() else {
            return Ok(None);
        };
        let bytes = self.bytes(seen.position + at, SEAL_LEN as usize)?;
        Ok((bytes.len() == SEAL_LEN as usize).then(|| LittleEndian::read_u64(bytes)))
    }

    /// Returns the fragment at `position`, if its header and payload are intact. `chain` is the
    /// checksum of the fragment before it in the same record.
    pub(crate) fn fragment_at(&mut self, position: u64, chain: u32) -> io::Result<Option<Intact>> {
        match self.header_at(position)? {
            Some(seen) => Ok(self.continues(&seen, chain)?.then_some(seen)),
            _ => Ok(None),
        }
    }

    /// Searches from position `from` on for the first intact fragment that begins a record or fills
    /// space, and whose sequence number is between `seq` and `below` and possible for the bytes
    /// skipped. Returns it with its full sequence number.
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
                // Each skipped message takes at least a header, which bounds their number.
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

/// Whether all of the file's `len` bytes are zero: an owner was creating it. It makes none that is
/// longer than a segment may be, so the rest of a longer one is not read.
pub(crate) fn is_blank<F: Readable>(file: &F, len: u64) -> io::Result<bool> {
    let (mut bytes, mut offset) = (vec![0; BUFFER], 0);
    loop {
        let read = read_full(file, &mut bytes, offset)?;
        let has_data = bytes[..read].iter().any(|byte| *byte != 0);
        if read == 0 || has_data || len > MAX_SEGMENT_LEN {
            return Ok(read == 0);
        }
        offset += read as u64;
    }
}

/// Returns the words of a fragment's header at the beginning of `bytes`; `None` if `bytes` is too
/// short.
pub(crate) fn words(bytes: &[u8]) -> Option<FragmentWords> {
    use byteorder::{ByteOrder, LittleEndian};
    let bytes = bytes.get(..FRAGMENT_HEADER_LEN as usize)?;
    Some(FragmentWords(LittleEndian::read_u64(bytes), LittleEndian::read_u64(&bytes[8..])))
}
