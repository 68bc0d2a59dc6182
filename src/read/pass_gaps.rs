//! Passes numbers that no record will ever have. Each function here reports the gap that it passes,
//! as the error of the read that meets it.

use crate::error::{Error, Gap, GapCause, Result};
use crate::format::{SegmentHeader, Spot};
use crate::state::Gaps;

/// Moves `spot` to the number `seq`, and reports the numbers between as a gap. `stated` is their
/// cause by a segment header. Without it, the marks of evicted messages or the gaps that recovery
/// found have the cause; numbers in neither are damaged. When the cause changes within the range,
/// the next read reports the rest.
pub(super) fn pass_to(
    spot: &mut Spot,
    gaps: &Gaps,
    seq: u64,
    stated: Option<GapCause>,
) -> Result<()> {
    if seq <= spot.seq {
        return Ok(());
    }
    let known = || gaps.cause_of(spot.seq);
    let (cause, below) = stated.map_or_else(known, |cause| (cause, u64::MAX));
    let next = seq.min(below);
    let gap = Gap { first: spot.seq, last: next - 1, cause };
    holds!(spot.seq < next && next <= seq, "a gap to {seq} begins with {gap:?}");
    spot.seq = next;
    Err(Error::Gap(gap))
}

/// Moves `spot` to the first number of a segment. The numbers between were lost with the segments
/// before, or this segment's header states them as missing.
pub(super) fn pass_to_first(spot: &mut Spot, gaps: &Gaps, header: &SegmentHeader) -> Result<()> {
    // When this passes less than all of them, `spot` is still before the segment, and the next read
    // meets the rest.
    let (end, cause) = header.missing.next_end(header.first_seq, spot.seq);
    pass_to(spot, gaps, end, cause)
}

/// Moves `spot` to `end`, the visible end: no message is left between. When numbers are missing for
/// more than one cause, the position stays before the end until all are reported.
pub(super) fn pass_to_end(spot: &mut Spot, gaps: &Gaps, end: Spot) -> Result<()> {
    let reported = pass_to(spot, gaps, end.seq, None);
    if spot.seq >= end.seq {
        spot.position = spot.position.max(end.position);
    }
    reported
}
