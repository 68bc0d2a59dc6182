//! Passing over numbers that will never come. Whoever passes over some tells of them: the gap is
//! the error of the read that meets it.

use crate::error::{Error, Gap, GapCause, Result};
use crate::format::{SegmentHeader, Spot};
use crate::state::Gaps;

/// Moves `spot` to the number `seq`, telling of those between. Where no bytes state their cause,
/// the marks of what was given up and the gaps that recovery found do; numbers that neither knows
/// are damaged. Where the cause changes, the rest is told by the next read.
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
    spot.seq = next;
    Err(Error::Gap(gap))
}

/// Moves `spot` to the first number of a segment. The numbers before it were lost with what was
/// before them, or the segment itself states that they were never to come.
pub(super) fn pass_to_first(spot: &mut Spot, gaps: &Gaps, header: &SegmentHeader) -> Result<()> {
    let stated_from = header.first_seq - header.gap_before;
    if spot.seq < stated_from {
        // The next read meets the rest, still before the segment.
        return pass_to(spot, gaps, stated_from, None);
    }
    let reserved_from = header.first_seq - header.reserved;
    if spot.seq < reserved_from {
        return pass_to(spot, gaps, reserved_from, Some(GapCause::from_number(header.cause)));
    }
    pass_to(spot, gaps, header.first_seq, Some(GapCause::Reserved))
}

/// Moves `spot` to the end of what is visible: nothing is left between. Where numbers are missing
/// for more than one cause, the position stays before the end until all are told.
pub(super) fn pass_to_end(spot: &mut Spot, gaps: &Gaps, end: Spot) -> Result<()> {
    let told = pass_to(spot, gaps, end.seq, None);
    if spot.seq >= end.seq {
        spot.position = spot.position.max(end.position);
    }
    told
}
