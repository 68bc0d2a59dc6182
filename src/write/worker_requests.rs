//! Sends requests to the storage worker as the tail advances, but not with every record.

use crate::error::Result;
use crate::format::Spot;
use crate::segment::Segment;
use crate::state::{AHEAD, MOST_BEHIND, State};
use crate::storage::Storage;

#[derive(Debug)]
pub(super) struct WorkerRequests {
    /// The tail's position when the writer last checked how many bytes are not durable.
    bounded: u64,
    /// The life of the segment at whose end [`next_segment`](Self::next_segment) has asked for the
    /// next.
    next_after: Option<u64>,
}

impl WorkerRequests {
    pub(super) fn new(tail: Spot) -> WorkerRequests {
        WorkerRequests { bounded: tail.position, next_after: None }
    }

    /// Checks now and then whether too many bytes in the queue are not durable, and then asks the
    /// storage worker for a flush. The tail is at `position`.
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

    /// Asks the storage worker, once, for the next segment when `segment` is nearly full; called
    /// for a record that is written by calls and ends at position `end`.
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
            state.ask_for_spare();
        }
    }
}
