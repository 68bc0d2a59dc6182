//! Several messages of the queue in one message of a stream.

use crate::forward::unpacked::{COMPRESSED, HEAD, VERSION};
use crate::memory::checksum::xxh3_64;

/// The bytes of a number at the most.
const NUMBER: u64 = 10;

/// A pack that is being made. Its messages have consecutive numbers.
#[derive(Debug)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    /// The bytes at the most of a pack with one message of `len` bytes.
    pub(super) const fn longest(len: u64) -> u64 {
        HEAD as u64 + 2 * NUMBER + len
    }

    /// Begins a pack whose first message has the number `first`.
    pub(super) fn new(first: u64) -> Pack {
        let mut bytes = vec![0; HEAD];
        push_number(&mut bytes, first);
        Pack(bytes)
    }

    /// The bytes at the most with one more message of `len` bytes.
    pub(super) fn longest_with(&self, len: u64) -> u64 {
        self.0.len() as u64 + NUMBER + len
    }

    pub(super) fn push(&mut self, message: &[u8]) {
        push_number(&mut self.0, message.len() as u64);
        self.0.extend_from_slice(message);
    }

    /// Returns a whole pack with what stands behind the checksum.
    #[cfg(feature = "zstd")]
    pub(super) fn of_body(body: &[u8]) -> Vec<u8> {
        let mut pack = Pack([&[0; HEAD], body].concat());
        pack.seal(None);
        pack.0
    }

    /// Compresses it, with a level of zstd, if that makes it shorter, and writes what stands before
    /// the first number. The pack is whole then.
    pub(super) fn seal(&mut self, zstd: Option<i32>) {
        let mut version = VERSION;
        if let Some(shorter) = self.0.get(HEAD..).and_then(|body| compress(body, zstd?)) {
            (self.0, version) = (shorter, COMPRESSED);
        }
        if let Some((head, body)) = self.0.split_first_chunk_mut::<HEAD>() {
            let [a, b, c, d] = (xxh3_64(0, body) as u32).to_le_bytes();
            *head = [version, a, b, c, d];
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the compressed pack with this body, if it is shorter.
#[cfg(feature = "zstd")]
fn compress(body: &[u8], level: i32) -> Option<Vec<u8>> {
    let frame = zstd::bulk::compress(body, level).ok()?;
    (frame.len() < body.len()).then(|| [&[0; HEAD], &*frame].concat())
}

#[cfg(not(feature = "zstd"))]
fn compress(_: &[u8], _: i32) -> Option<Vec<u8>> {
    None
}

/// Appends a number, seven bits a byte, the lowest first.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
