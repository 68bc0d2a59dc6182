//! The search for the next message of a lane.

use crate::commit::Core;
use crate::consume::consumer_state::LockedState;
use crate::consume::lane_choice::next_stretch;
use crate::consume::ledger::Ledger;
use crate::consume::step::{Lane, Read};
use crate::error::{Error, Gap, Result};
use crate::format::Spot;
use crate::read::{Cursor, Record};
use crate::storage::Storage;

/// The cursor that found a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundAt {
    /// The consumer's own cursor.
    Ahead,
    /// The lanes' cursor, in the stretch with this index.
    Behind(usize),
    /// The ledger's cursor, which reads returned messages.
    Again,
}

/// The outcome of reading a returned message again.
enum Returned {
    Found(Record),
    /// The message is lost, with those that follow in the gap.
    Lost(Gap),
}

/// The outcome of one search at a cursor's spot.
enum LookedAt {
    Found(Record),
    /// The consumer must not get the message there; the search continues after it.
    Passed,
    /// There is no message, or a gap that a later read reports.
    Nothing,
}

/// Finds the next message of the lane; `None` when there is none or the limits allow none. Reports
/// a gap as soon as it meets one, unless the caller must first deliver the messages that it has
/// ([`Read::has_some`]).
pub(super) fn find_in_lane<S: Storage>(
    locked: &mut LockedState<S>,
    core: &Core<S>,
    what: Read,
    lane: Lane,
) -> Result<Option<(FoundAt, Record)>> {
    let LockedState { cursor, ledger, lanes, .. } = locked;
    loop {
        let mut ledger = ledger.as_deref_mut();
        let mut stretch = None;
        if let Some(ledger) = &mut ledger {
            if !what.has_some()
                && let Some(gap) = ledger.report_rejected()
            {
                return Err(Error::Gap(gap));
            }
            stretch = next_stretch(ledger, lane, lanes.as_deref());
            if what.receives() && !ledger.is_below_limit() {
                return Ok(None);
            }
            match find_again(ledger, core, lane)? {
                Some(Returned::Found(record)) => return Ok(Some((FoundAt::Again, record))),
                Some(Returned::Lost(_)) if what.has_some() => return Ok(None),
                Some(Returned::Lost(gap)) => return Err(Error::Gap(ledger.lose_returned(&gap))),
                None => {}
            }
        }
        let (at, cursor, end) = match (stretch, lanes.as_deref_mut()) {
            (Some((at, stretch)), Some(lanes)) => {
                if lanes.cursor.spot() != stretch.spot {
                    lanes.cursor.move_to(stretch.spot);
                }
                (FoundAt::Behind(at), &mut lanes.cursor, stretch.end)
            }
            _ if lane == Lane::Backlog => return Ok(None),
            _ => (FoundAt::Ahead, &mut *cursor, u64::MAX),
        };
        let looked = look_at(cursor, ledger.as_deref_mut(), core, what, end);
        if let (FoundAt::Behind(at), Some(ledger)) = (at, ledger)
            && ledger.stretches.advance(at, cursor.spot(), cursor.segment_end())
        {
            looked?;
            continue;
        }
        match looked? {
            LookedAt::Found(record) => return Ok(Some((at, record))),
            LookedAt::Passed => {}
            LookedAt::Nothing => return Ok(None),
        }
    }
}

/// Looks for a message at `cursor`. `end`, which lies after the cursor, limits the search: numbers
/// from `end` on do not belong to the lane.
fn look_at<S: Storage>(
    cursor: &mut Cursor<S::File>,
    ledger: Option<&mut Ledger<S::File>>,
    core: &Core<S>,
    what: Read,
    end: u64,
) -> Result<LookedAt> {
    let before = cursor.spot();
    let found = match what {
        Read::Skip | Read::SkipMore => cursor.find_header(core),
        _ => cursor.find(core),
    };
    let gap = match found {
        Ok(Some(record)) if record.seq < end => {
            let (position, segment_end) = (cursor.spot().position, cursor.segment_end());
            let is_passed = ledger.is_some_and(|ledger| {
                ledger.is_passed(record.seq)
                    || ledger.keep_rejected(record.seq, position, segment_end)
            });
            if !is_passed {
                return Ok(LookedAt::Found(record));
            }
            cursor.advance();
            return Ok(LookedAt::Passed);
        }
        Ok(_) => return Ok(LookedAt::Nothing),
        Err(Error::Gap(gap)) => Gap { last: gap.last.min(end - 1), ..gap },
        Err(error) => return Err(error),
    };
    let (reported, is_all) = match &ledger {
        None => (gap, true),
        Some(ledger) => match ledger.unreported_of(gap).as_slice() {
            [] => return Ok(LookedAt::Passed),
            [first, rest @ ..] => (*first, rest.is_empty()),
        },
    };
    if (what.has_some() && !planted!(GapOfABatchNotReported)) || !is_all {
        // Rewinds, so that the next read meets the gap again.
        cursor.move_to(before);
    }
    if what.has_some() {
        return Ok(LookedAt::Nothing);
    }
    if let Some(ledger) = ledger {
        if is_all {
            ledger.note_done(reported.first, reported.last);
        } else {
            ledger.note_piece_reported(&reported);
        }
    }
    Err(Error::Gap(reported))
}

/// Reads the lane's oldest returned message again.
fn find_again<S: Storage>(
    ledger: &mut Ledger<S::File>,
    core: &Core<S>,
    lane: Lane,
) -> Result<Option<Returned>> {
    let Some((seq, open)) = ledger.first_returned(lane) else {
        return Ok(None);
    };
    let spot = Spot { position: open.position, seq };
    if ledger.again.spot() != spot {
        ledger.again.move_to(spot);
    }
    let gap = match ledger.again.find(core) {
        Ok(Some(record)) => return Ok(Some(Returned::Found(record))),
        Ok(None) => Gap { first: seq, last: seq, cause: core.gaps.cause_of(seq).0 },
        Err(Error::Gap(gap)) => gap,
        Err(error) => return Err(error),
    };
    ledger.again.release();
    Ok(Some(Returned::Lost(Gap { first: seq, ..gap })))
}
