//! The bytes of a message that the caller lends: in one piece, or in several.

use std::io::IoSlice;

/// The bytes of a message.
///
/// # Safety
///
/// [`pieces`](Self::pieces) have [`len`](Self::len) bytes together at every call.
pub(crate) unsafe trait Payload {
    fn len(&self) -> usize;

    /// Returns the bytes, in pieces in the order of the message.
    fn pieces(&self) -> impl Iterator<Item = &[u8]>;

    /// Returns the bytes, if they lie in one piece.
    fn whole(&self) -> Option<&[u8]>;

    /// Returns a copy of the bytes in one piece.
    #[cold]
    fn joined(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}

// SAFETY: the one piece is the slice, whose length is known.
unsafe impl Payload for [u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self)
    }

    #[inline(always)]
    fn whole(&self) -> Option<&[u8]> {
        Some(self)
    }
}

// SAFETY: a shared `IoSlice` always lends the same bytes, and the sum of their lengths is exact: it
// stops at the greatest `usize`, and so many bytes fit no window.
unsafe impl Payload for [IoSlice<'_>] {
    #[inline]
    fn len(&self) -> usize {
        self.iter().fold(0, |sum, part| sum.saturating_add(part.len()))
    }

    #[inline]
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|part| &**part)
    }

    #[inline]
    fn whole(&self) -> Option<&[u8]> {
        if let [part] = self { Some(part) } else { None }
    }
}
