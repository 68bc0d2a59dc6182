//! Reads a pack: several messages of the queue in one message of a stream.

use crate::memory::checksum::xxh3_64;

/// The first byte of a pack.
pub(super) const VERSION: u8 = 1;
/// The first byte of a compressed one.
pub(super) const COMPRESSED: u8 = 2;
/// The version and the checksum of all bytes behind it.
pub(super) const HEAD: usize = 5;

/// Returns the messages of a pack ([`OutgoingKind::Pack`](super::OutgoingKind::Pack)) with their
/// numbers, in order. It copies and allocates nothing.
///
/// A pack is byte 1, then the lower half of the XXH3-64 of all bytes behind these five (four bytes,
/// the lowest first), then the number of the first message; then of each message its length and its
/// bytes. Numbers and lengths have seven bits a byte, the lowest first; the highest bit says that
/// another byte follows. The messages have consecutive numbers.
///
/// ```
/// use mmq::forward::{PackError, unpack};
///
/// fn print(stored: &[u8]) -> Result<(), PackError> {
///     for (seq, message) in unpack(stored)? {
///         println!("{seq}: {}", message.escape_ascii());
///     }
///     Ok(())
/// }
///
/// let pack = b"\x01\xb8\x35\xcd\xdf\x07\x05seven\x00\x04nine";
/// let messages: Vec<_> = unpack(pack)?.collect();
/// assert_eq!(messages, [(7, &b"seven"[..]), (8, b""), (9, b"nine")]);
/// assert!(print(b"not a pack").is_err());
/// # Ok::<(), PackError>(())
/// ```
///
/// # Errors
///
/// [`PackError`] for damaged bytes, and for what is no pack.
pub fn unpack(pack: &[u8]) -> Result<Unpacked<'_>, PackError> {
    let wrong = |at, reason| PackError { at, len: pack.len(), reason };
    let mut rest = body(pack, VERSION)?;
    // Only a faulty writer gives the right checksum to what follows.
    let first = take_number(&mut rest).ok_or_else(|| wrong(HEAD, "no number"))?;
    let unpacked = Unpacked { next: first, rest };
    let mut walked = unpacked.clone();
    while !walked.rest.is_empty() {
        let at = pack.len() - walked.rest.len();
        walked.next().ok_or_else(|| wrong(at, "no message of a length and a number"))?;
    }
    Ok(unpacked)
}

/// Returns what such a pack has behind its checksum.
pub(super) fn body(pack: &[u8], version: u8) -> Result<&[u8], PackError> {
    let wrong = |at, reason| PackError { at, len: pack.len(), reason };
    match pack.first() {
        Some(first) if *first == version => {}
        Some(&COMPRESSED) => {
            return Err(wrong(0, "it is compressed: `decompress` it first (feature zstd)"));
        }
        _ => {
            let what = "it does not begin with 1: it is no pack, or one of a later release";
            return Err(wrong(0, what));
        }
    }
    let Some((head, body)) = pack.split_first_chunk::<HEAD>() else {
        return Err(wrong(pack.len(), "it is cut off"));
    };
    let [_, sum @ ..] = *head;
    if u32::from_le_bytes(sum) != xxh3_64(0, body) as u32 {
        return Err(wrong(1, "its bytes do not have this checksum: it is damaged or cut off"));
    }
    Ok(body)
}

/// The messages of a pack, with their numbers: [`unpack`].
///
/// ```
/// use mmq::forward::Unpacked;
///
/// fn longest(messages: Unpacked<'_>) -> usize {
///     messages.map(|(_, message)| message.len()).max().unwrap_or_default()
/// }
/// # longest(mmq::forward::unpack(b"\x01\xb8\x35\xcd\xdf\x07\x05seven\x00\x04nine").unwrap());
/// ```
#[derive(Debug, Clone)]
pub struct Unpacked<'a> {
    /// The number of the next message.
    next: u64,
    rest: &'a [u8],
}

impl<'a> Iterator for Unpacked<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let mut rest = self.rest;
        let len = usize::try_from(take_number(&mut rest)?).ok()?;
        let (message, rest) = rest.split_at_checked(len)?;
        let seq = self.next;
        (self.next, self.rest) = (seq.checked_add(1)?, rest);
        Some((seq, message))
    }
}

/// Takes a number from the front of the bytes.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let digit = u64::from(byte & 0x7f);
        number |= digit << shift;
        if number >> shift != digit {
            return None;
        }
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Why bytes are no pack: [`unpack`].
///
/// ```
/// let error = mmq::forward::unpack(b"{\"a\":1}").unwrap_err();
/// assert!(error.to_string().starts_with("a pack of 7 bytes, at byte 0: it does not begin with 1"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a pack of {len} bytes, at byte {at}: {reason}")]
pub struct PackError {
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::pack::Pack;
    use crate::tests::sim::Rng;

    fn packed(first: u64, messages: &[Vec<u8>]) -> Vec<u8> {
        let mut pack = Pack::new(first);
        let mut longest = Pack::longest(0);
        for message in messages {
            longest = pack.longest_with(message.len() as u64);
            pack.push(message);
        }
        pack.seal(None);
        assert!(pack.bytes().len() as u64 <= longest);
        pack.bytes().to_vec()
    }

    /// What another writer gives the right checksum.
    fn sealed(body: &[u8]) -> Vec<u8> {
        let sum = xxh3_64(0, body) as u32;
        [&[VERSION][..], &sum.to_le_bytes(), body].concat()
    }

    #[test]
    fn a_pack_reads_as_it_was_written() {
        for first in [0, 127, 128, u64::MAX - 4] {
            let messages = [vec![], vec![7; 127], vec![0; 128], vec![255; 20_000]];
            let pack = packed(first, &messages);
            let there: Vec<_> = unpack(&pack).unwrap().collect();
            let there_too = messages.iter().map(Vec::as_slice);
            assert_eq!(there, (first..).zip(there_too).collect::<Vec<_>>());
            let head = HEAD + 1 + first.checked_ilog2().unwrap_or(0) as usize / 7;
            assert_eq!(pack.len(), head + 1 + 128 + 130 + 20_003);
        }
    }

    #[test]
    fn any_damage_is_an_error() {
        let pack = packed(1_000, &[b"one".to_vec(), vec![], b"three".to_vec()]);
        for len in 0..pack.len() {
            let error = unpack(&pack[..len]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("a pack of {len} bytes, at byte ")), "{error}");
        }
        for bit in 0..pack.len() * 8 {
            let mut damaged = pack.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            unpack(&damaged).unwrap_err();
        }
        unpack(&[&pack[..], &[0]].concat()).unwrap_err();
    }

    /// Whatever a writer says of lengths and numbers, nothing is read beyond the bytes, nothing
    /// allocated, and what is read is all there is.
    #[test]
    fn a_faulty_writers_pack_is_an_error_or_ends_where_it_ends() {
        let endless = [0xff; 11];
        let bodies: [&[u8]; 6] =
            [b"", &endless, b"\x07\x05four", b"\x07\xff\xff\xff\xff\x0f", b"\x07\x80", &{
                let mut last = [0xff; 11];
                (last[9], last[10]) = (1, 0);
                last
            }];
        for body in bodies {
            let error = unpack(&sealed(body)).unwrap_err();
            assert!(error.at >= HEAD, "{error}");
        }
        let mut rng = Rng(7);
        for _ in 0..20_000 {
            let len = rng.below(20) as usize;
            let body: Vec<u8> = (0..len).map(|_| rng.below(256) as u8 & rng.next() as u8).collect();
            if let Ok(messages) = unpack(&sealed(&body)) {
                let read: usize = messages.map(|(_, message)| message.len() + 1).sum();
                assert!(read < body.len(), "{body:?}");
            }
        }
    }
}
