//! A record that a cursor found, and when its payload is checked.

/// A record that was found at a cursor's spot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) seq: u64,
    /// Payload bytes, all fragments together.
    pub(crate) len: u64,
    /// Offset of the payload in the cursor's window, when it lies there in one piece.
    pub(crate) in_window: Option<usize>,
    /// The position behind the record.
    pub(super) end: u64,
    /// The CRC state before the payload, for a record in the window.
    pub(super) crc_before: u32,
    /// The CRC state behind an intact payload, for a record in the window.
    pub(super) crc_after: u32,
}

/// When the payload of a record is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// When it is found.
    Now,
    /// When a copy delivers it. A payload that must be read to find the record is checked at once.
    Later,
    /// Not at all: no caller gets it.
    Never,
}
