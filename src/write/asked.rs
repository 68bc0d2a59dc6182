//! What the keeper was asked for as the tail moved on, so that it is not asked with every record.

use crate::error::Result;
use crate::format::Spot;
use crate::segment::Segment;
use crate::state::{AHEAD, MOST_BEHIND, State};
use crate::storage::Storage;

#[derive(Debug)]
pub(super) struct Asked {
    /// Up to that position it was seen to that few bytes are held that are not durable.
    bounded: u64,
    /// The life of the segment that is being filled by calls, if the one behind it was asked for.
    next_after: Option<u64>,
}

impl Asked {
    pub(super) fn new(tail: Spot) -> Asked {
        Asked { bounded: tail.position, next_after: None }
    }

    /// Sees to it that few bytes are held that are not durable. The tail stands at `position`.
    pub(super) fn bound_behind<S: Storage>(
        &mut self,
        state: &State<S>,
        position: u64,
        committed: Spot,
    ) -> Result<()> {
        if position.saturating_sub(self.bounded) < MOST_BEHIND / 16 {
            return Ok(());
        }
        self.bounded = position;
        state.bound_behind(committed)
    }

    /// A record that ends at `end` goes by calls. Has the segment behind this one made ready when
    /// this one is nearly full.
    pub(super) fn next_segment<S: Storage>(
        &mut self,
        state: &State<S>,
        segment: &Segment<S::File>,
        offset: u64,
        end: u64,
    ) {
        let header = &segment.header;
        let is_near = end + AHEAD >= header.end() && (header.base != 0 || offset > AHEAD / 2);
        if is_near && self.next_after != Some(header.life) {
            self.next_after = Some(header.life);
            state.bell.ring(|wishes| wishes.ahead = true);
        }
    }
}
