//! Which numbers are missing right before a number, and why: segment headers, checkpoints and the
//! run record state it in the same three fields.

use crate::error::GapCause;

/// The numbers missing right before `end`, a number that stands beside this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MissingBefore {
    /// How many numbers are missing.
    pub(crate) gap: u64,
    /// How many of them, at their end, were only reserved.
    pub(crate) reserved: u64,
    /// The `GapCause` number of the others; meaningful when there are any.
    pub(crate) cause: u8,
}

impl MissingBefore {
    /// The first missing number, or `end` when none is missing.
    pub(crate) fn first(self, end: u64) -> u64 {
        end.saturating_sub(self.gap)
    }

    /// Whether all missing numbers were only reserved.
    pub(crate) fn is_reserved(self) -> bool {
        self.gap <= self.reserved
    }

    /// The part of them before a number that lies `behind` numbers before `end`.
    pub(crate) fn without_last(self, behind: u64) -> MissingBefore {
        MissingBefore {
            gap: self.gap - behind,
            reserved: self.reserved.saturating_sub(behind),
            ..self
        }
    }

    /// At most two pieces, each with its first number, the number behind its last one, and its
    /// cause.
    pub(crate) fn pieces(self, end: u64) -> impl Iterator<Item = (u64, u64, GapCause)> {
        let between = end.saturating_sub(self.reserved);
        let cause = GapCause::from_number(self.cause);
        let pieces = [(self.first(end), between, cause), (between, end, GapCause::Reserved)];
        pieces.into_iter().filter(|(first, end, _)| first < end)
    }

    /// Where a reader at `seq` goes next on its way to `end`: the end of the piece that `seq` lies
    /// in, with its cause; or the first missing number, when `seq` lies before it.
    pub(crate) fn next_end(self, end: u64, seq: u64) -> (u64, Option<GapCause>) {
        if seq < self.first(end) {
            return (self.first(end), None);
        }
        let piece = self.pieces(end).find(|(_, end, _)| seq < *end);
        piece.map_or((end, Some(GapCause::Reserved)), |(_, end, cause)| (end, Some(cause)))
    }

    /// Whether they can lie before `end`.
    pub(crate) fn is_sound(self, end: u64) -> bool {
        self.gap <= end && self.reserved <= self.gap
    }
}
