//! What lies at a spot of a segment, and where the next intact fragment does. Reads, recovery,
//! inspection and salvage all ask here, so that they agree.

use std::io;

use crate::format::{ALIGN, Kind, Spot};
use crate::segment::scan::{Intact, Scan};
use crate::storage::Readable;

/// What is at a spot of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lies {
    /// The first piece of the record with the spot's number. Its payload is not verified.
    Record(Intact),
    /// The middle or the end of a record that begins in another segment. Its payload is not
    /// verified.
    Rest(Intact),
    /// Padding.
    Padding(Intact),
    /// A gap fragment: no record has the numbers from the spot's to this one.
    Gap(Intact, u64),
    /// Nothing valid.
    Nothing,
}

impl<F: Readable> Scan<'_, F> {
    /// What lies at `spot`.
    pub(crate) fn lies_at(&mut self, spot: Spot) -> io::Result<Lies> {
        let Some(seen) = self.header_at(spot.position)? else {
            return Ok(Lies::Nothing);
        };
        let number = seen.fragment.seq_from(spot.seq);
        Ok(match seen.fragment.kind {
            Kind::Whole | Kind::First if number == spot.seq => Lies::Record(seen),
            Kind::Middle | Kind::Last if spot.position == self.positions.start => Lies::Rest(seen),
            Kind::Padding if number == spot.seq && self.payload_holds(&seen)? => {
                Lies::Padding(seen)
            }
            Kind::Gap if self.payload_holds(&seen)? => Lies::Gap(seen, number),
            _ => Lies::Nothing,
        })
    }

    /// Where the next intact record or filling lies behind the `damaged` spot, with a number of at
    /// most `below`. The segment's records have numbers below that from `end`, the next segment's
    /// first one; this asks for it behind the search, during which a writer may begin that segment.
    /// (Behind padding there may be records of a refused batch. The padding hides them, unless it
    /// is damaged.)
    pub(crate) fn next_intact(
        &mut self,
        damaged: Spot,
        below: u64,
        end: impl FnOnce() -> u64,
    ) -> io::Result<Option<Spot>> {
        let found = self.search(damaged.position + ALIGN, damaged.seq, below)?;
        let own = found.filter(|(seen, number)| {
            let end = end();
            *number < end || seen.fragment.kind.is_empty() && *number == end
        });
        Ok(own.map(|(seen, seq)| Spot { position: seen.position, seq }))
    }
}
