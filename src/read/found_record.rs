//! A record that a cursor found, and when a read verifies its payload.

use crate::format::with_payload;

/// A record at a cursor's spot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) seq: u64,
    /// Payload bytes of all fragments together.
    pub(crate) len: u64,
    /// Offset of the payload in the cursor's window, if all of it lies there.
    pub(crate) in_window: Option<usize>,
    /// The position after the record.
    pub(super) end: u64,
    /// The checksum of the header, for a record in the window.
    pub(super) header_sum: u32,
    /// The checksum of header and payload that the header has, for a record in the window.
    pub(super) sum: u32,
}

impl Record {
    /// Whether its payload, with this sum, is the one that was written. The record is in the
    /// window.
    #[inline(always)]
    pub(super) fn has(&self, payload: u64) -> bool {
        with_payload(self.header_sum, payload) == self.sum
    }
}

/// When a read verifies the payload of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// When it finds the record.
    Now,
    /// When it copies the payload for the caller. A payload that it must read to find the record is
    /// verified at once.
    Later,
    /// Never: no caller gets the payload.
    Never,
}
