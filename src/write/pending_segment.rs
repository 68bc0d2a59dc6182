//! Where the next segment must begin after the tail's segment was evicted.

use crate::format::Spot;
use crate::index::run::Next;

#[derive(Debug)]
pub(super) struct PendingSegment {
    /// Where the next segment must begin, which numbers are missing before it, and why. `None` when
    /// the last segment still takes records.
    next: Option<Next>,
    /// The `next` with which the latest segment began, kept in case that segment is rolled back.
    followed: Option<Next>,
}

impl PendingSegment {
    pub(super) fn new(next: Option<Next>) -> PendingSegment {
        PendingSegment { next, followed: None }
    }

    pub(super) fn next(&self) -> Option<Next> {
        self.next
    }

    /// Returns the sequence number behind the last message in the tail's segment. Numbers from it
    /// on may be missing; the next segment's header will list them.
    pub(super) fn messages_end(&self, committed: Spot) -> u64 {
        let end = self.next.map_or(committed.seq, |next| next.missing.first(next.seq));
        holds!(
            end <= committed.seq,
            "the end of the messages, {end}, does not pass the tail, {committed:?}"
        );
        end
    }

    /// Notes that the tail's segment was evicted and that the one behind it must begin as in
    /// `next`. Returns the value to store in the index: `None` when the segment had been evicted
    /// before.
    pub(super) fn begin(&mut self, next: Next) -> Option<Next> {
        if self.next.is_some() {
            return None;
        }
        self.next = Some(next);
        self.next
    }

    /// Notes that the writer began the next segment. The index keeps its `next`, since the segment
    /// may be rolled back or lost.
    pub(super) fn follow(&mut self) {
        if let Some(next) = self.next.take() {
            self.followed = Some(next);
        }
    }

    /// Notes that segments begun behind position `committed` were rolled back. The next one must
    /// begin where the first of them did, since the segment before it was evicted. Returns the
    /// value to store in the index.
    pub(super) fn take_back(&mut self, committed: u64) -> Option<Next> {
        let next = self.followed.take_if(|next| next.base > committed)?;
        holds!(self.next.is_none(), "one segment is to follow, {next:?} or {:?}", self.next);
        self.next = Some(next);
        self.next
    }
}
