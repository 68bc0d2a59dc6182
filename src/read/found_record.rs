//! A record that a cursor found, and when a read verifies its payload.

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
    /// The CRC state before the payload, for a record in the window.
    pub(super) crc_before: u32,
    /// The CRC state after an intact payload, for a record in the window.
    pub(super) crc_after: u32,
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
