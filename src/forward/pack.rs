//! Several messages of the queue in one message of a stream.

use crate::forward::unpacked::{HEAD, VERSION};
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

    /// Writes what stands before the first number. The pack is whole then.
    pub(super) fn seal(&mut self) {
        if let Some((head, body)) = self.0.split_first_chunk_mut::<HEAD>() {
            let [a, b, c, d] = (xxh3_64(0, body) as u32).to_le_bytes();
            *head = [VERSION, a, b, c, d];
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends a number, seven bits a byte, the lowest first.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
