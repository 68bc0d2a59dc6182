//! Places the tail, and decides how the next segment begins and which numbers it states as missing.

use std::ops::Range;

use crate::error::{GapCause, Result};
use crate::format::{
    self, FRAGMENT_HEADER_LEN, Kind, MissingBefore, Place, SEGMENT_HEADER_LEN, Spot,
};
use crate::index::Index;
use crate::index::image::{ConsumerRow, IndexImage};
use crate::index::run::Next;
use crate::recovery::belief::{Belief, evicted};
use crate::recovery::read_index::Known;
use crate::recovery::repair::{fill, open_row, write_header};
use crate::recovery::rows::{Rows, all_before_was_given_back};
use crate::recovery::walked::Walked;
use crate::segment::{Opened, Row};
use crate::storage::{Storage, StorageFile};

/// The highest position and number that any valid part of the index states as given out, passed by
/// a consumer, or reported in a gap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stated {
    pub(super) position: u64,
    pub(super) seq: u64,
    /// The spot up to which, by the index, every record is on the disk.
    pub(super) durable: Spot,
    /// Every consumer has passed all messages below this number, so their segments may be gone.
    pub(super) passed: u64,
}

impl Stated {
    pub(super) fn by(image: &IndexImage) -> Stated {
        let checkpoint = image.checkpoint.map(|checkpoint| checkpoint.spot());
        // The mark moves past evicted messages, whether the disk has them or not.
        let evicted = image.live.run.map_or(0, |run| run.evicted.end());
        let synced = image.live.synced.filter(|spot| spot.seq > evicted);
        let durable = [checkpoint, synced].into_iter().flatten();
        // An acknowledged number must not be given out again: the new message would count as done.
        let known = !planted!(AcknowledgedNumberGivenAgain);
        let acks = |consumer: &ConsumerRow| {
            consumer.acks.iter().filter(|_| known).map(|acks| acks.last + 1).max()
        };
        let done = |consumer: &ConsumerRow| acks(consumer).unwrap_or(0);
        let consumers = image.consumers.iter();
        let places = consumers.clone().map(|consumer| {
            let Place { position, seq, .. } = consumer.place;
            Spot { position, seq: seq.max(done(consumer)) }
        });
        let spots = || {
            durable.clone().chain(image.live.synced).chain(image.live.tail).chain(places.clone())
        };
        Stated {
            position: spots().map(|spot| spot.position).max().unwrap_or(0),
            seq: spots().map(|spot| spot.seq).max().unwrap_or(0),
            durable: durable.max().unwrap_or_default(),
            passed: consumers.map(|consumer| consumer.place.seq).min().unwrap_or(0),
        }
    }

    /// How the next segment begins after the spot `found`: after the stated numbers that the walk
    /// did not find, and after those up to the end of the reservation, which were only reserved.
    /// `before` has what the next segment was to state already. Numbers below `evicted` do not
    /// count: they have a cause of their own, or nobody gets them reported.
    pub(super) fn missing_behind(
        &self,
        found: Spot,
        before: Option<Next>,
        reservation: u64,
        evicted: u64,
    ) -> Next {
        let from = found.seq.max(evicted);
        let known_end = from.max(self.seq);
        let end = known_end.max(reservation);
        let before = before.filter(|_| from == found.seq).unwrap_or_default();
        let passed = self.passed;
        let is_damage = self.durable.seq > from.max(passed);
        let cause = if is_damage { GapCause::Damaged } else { GapCause::Unflushed };
        let missing = Next {
            base: 0,
            seq: end,
            missing: MissingBefore {
                gap: before.missing.gap + (end - from),
                reserved: end - known_end,
                cause: cause.number(),
            },
        };
        if known_end > from || before.missing.gap == 0 {
            return missing;
        }
        let MissingBefore { reserved, cause, .. } = before.missing;
        let of_both = missing.missing;
        let of_both = MissingBefore { reserved: reserved + of_both.reserved, cause, ..of_both };
        Next { missing: of_both, ..missing }
    }
}

/// Whether the walk found all that the index states. With another mount it also checks that no sign
/// shows a loss of bytes with the mount before: a kill leaves no hole and at most one unit after
/// the published tail, and every missing segment was reclaimed.
pub(super) fn is_met(
    belief: Belief,
    image: &IndexImage,
    rows: &Rows,
    walked: &Walked,
    reached: Spot,
    stated: &Stated,
) -> bool {
    let all_there = reached.seq >= stated.seq && reached.position >= stated.position;
    match belief {
        Belief::Disk => true,
        Belief::Cache | Belief::CleanEnd => all_there,
        Belief::Mount => {
            all_there
                && all_before_was_given_back(image, belief, rows)
                && (image.live.tail.is_some() || states_tail(image, reached))
                && walked.holes.is_empty()
                && walked.units_behind <= 1
        }
    }
}

/// Whether the run record has the tail at this spot, after the numbers that the next segment is to
/// state. An opening stores this before the tail, so a kill between the two stores leaves it.
fn states_tail(image: &IndexImage, spot: Spot) -> bool {
    let next = image.live.run.and_then(|run| run.next);
    next.is_some_and(|next| next.base == spot.position && next.seq == spot.seq)
}

/// How the next segment begins if it does not exist yet, and the tail after the numbers that it is
/// to state. The run record has it, or the checkpoint at the tail's position.
pub(super) fn pending(
    image: &IndexImage,
    live: &[Row],
    tail: Spot,
    belief: Belief,
) -> (Option<Next>, Spot) {
    // The tail may lie within the missing numbers. Evicted numbers do not count among them.
    let seq = tail.seq.max(evicted(image, belief).end());
    let follows = |next: &Next| {
        (next.missing.first(next.seq)..=next.seq).contains(&seq) && tail.position <= next.base
    };
    let is_there =
        |base: u64| live.iter().any(|row| row.header.base == base && !begins_behind(row, tail));
    let of_run = image
        .live
        .run
        .and_then(|run| run.next)
        .filter(|next| !is_there(next.base) && follows(next));
    let of_checkpoint = image.checkpoint.filter(|checkpoint| {
        let is_tail = tail.position == checkpoint.position && tail.seq == checkpoint.seq;
        // If the live part is exact, the run record has it instead.
        belief != Belief::Cache && is_tail && checkpoint.missing.gap > 0 && !is_there(tail.position)
    });
    let of_checkpoint = of_checkpoint.map(|checkpoint| Next {
        base: checkpoint.position,
        seq: checkpoint.seq,
        missing: checkpoint.missing,
    });
    let next = of_run.or(of_checkpoint);
    (next, next.filter(|next| next.seq > tail.seq).map_or(tail, |next| next.spot()))
}

/// Whether a segment begins after the tail, or at the tail with another number. The writer then
/// began it for a record that was never completed.
pub(super) fn begins_behind(row: &Row, tail: Spot) -> bool {
    let base = Spot { position: row.header.base, seq: row.header.first_seq };
    base.position > tail.position || base.position == tail.position && base.seq != tail.seq
}

/// Closes the last segment at the tail and returns how the next one begins: after every stated
/// position, and one word further where more numbers are missing than before. So a reader at the
/// closed end has bytes to pass and reports the gap.
pub(super) fn close_tail<S: Storage>(
    storage: &S,
    rows: &[Row],
    tail: Spot,
    stated: u64,
    pending: Option<Next>,
    begins: Next,
) -> Result<Option<Next>> {
    let at = rows.partition_point(|row| row.header.end() <= tail.position);
    let row = rows.get(at).filter(|row| row.header.base <= tail.position);
    if let Some(row) = row {
        fill(storage, row, Kind::Padding, tail, row.header.end())?;
    }
    if (rows.is_empty() || planted!(TailWrittenOn))
        && begins.missing.gap == 0
        && begins.seq == tail.seq
        && stated <= tail.position
    {
        return Ok(None);
    }
    let reach =
        format::align_up(tail.position).max(row.map_or(0, |row| row.header.end())).max(stated);
    let base = match pending {
        Some(pending) if pending.seq == begins.seq && pending.base >= reach => pending.base,
        _ if begins.missing.gap > 0 => {
            reach.max(pending.map_or(0, |pending| pending.base)) + format::ALIGN
        }
        // Never zero: in the run record, base zero means that there is no next segment.
        _ => reach.max(format::ALIGN),
    };
    Ok(Some(Next { base, ..begins }))
}

/// Truncates the file of the segment that was closed at the `tail` to its records. Each start of a
/// process that is killed, seen from another mount, and each power cut closes a segment: without
/// the cut, segments of a few messages each would fill the limit. The caller knows that nothing
/// durable was lost after the tail, where `mmq salvage` could look for it.
pub(super) fn cut_closed<S: Storage>(
    storage: &S,
    index: &Index<S>,
    rows: &mut [Row],
    opened: &mut [Opened<S::File>],
    tail: Spot,
) -> Result<()> {
    let is_closed = |row: &&mut Row| (row.header.base..row.header.end()).contains(&tail.position);
    let Some(row) = rows.iter_mut().find(is_closed) else {
        return Ok(());
    };
    let Some(Opened { file, allocated, life }) = open_row(storage, row)? else {
        return Ok(());
    };
    let padded = tail.position - row.header.base + SEGMENT_HEADER_LEN + FRAGMENT_HEADER_LEN;
    let cut = padded.next_multiple_of(crate::memory::page_size());
    if cut >= allocated {
        return Ok(());
    }
    // A row never promises bytes that the file does not have.
    row.header.allocated = cut;
    index.write_segment_row(row.slot, Some(&row.header), u64::MAX);
    opened.iter_mut().filter(|known| known.life == life).for_each(|known| known.allocated = cut);
    if file.set_len(cut).is_ok() {
        let path = || storage.path().join(format::segment_name(row.slot));
        file.sync().map_err(|failed| failed.ends_opening(path()))?;
        row.header.disk = file.disk_bytes().unwrap_or(row.header.disk).max(cut);
        index.write_segment_row(row.slot, Some(&row.header), u64::MAX);
    }
    Ok(())
}

/// Moves each place that lies within an `empty` range (a hole, padding, the closed end of a
/// segment) to one end of that range. Such a place reached the disk without the messages before it,
/// and old bytes of a discarded unit may look like a record there. The place moves to the beginning
/// of the range when numbers are missing between it and the range's end, else to the end. Its own
/// number stays. The caller has not yet published the live part.
pub(super) fn move_places_out_of_holes<S: Storage>(
    index: &Index<S>,
    consumers: &mut [ConsumerRow],
    empty: &[Range<Spot>],
) -> Result<()> {
    for consumer in consumers {
        let place = &mut consumer.place;
        let around = empty.iter().find(|range| {
            range.start.position < place.position && place.position < range.end.position
        });
        if let Some(Range { start: from, end: to }) = around {
            let (_, mut place_row) =
                index.add_consumer(Some(consumer.row), &consumer.name, *place, |take| take(0))?;
            // A read may have reported the missing numbers to the consumer in an earlier segment
            // already, so the place's own number decides.
            place.position = if place.seq < to.seq { from.position } else { to.position };
            place.number += 1;
            place_row.store(place.spot());
        }
    }
    Ok(())
}

/// Moves places that lie in an empty range, where appends continue at the spot that the walk found.
/// An earlier opening may have filled a hole, durably, and moved the places in it. Another mount
/// may show the page of such a place in its old state: the place moves again.
pub(super) fn move_places_out_of_mended<S: Storage>(
    known: &mut Known<S>,
    walked: &Walked,
) -> Result<()> {
    let Known { index, image, belief, .. } = known;
    if *belief != Belief::Mount {
        return Ok(());
    }
    move_places_out_of_holes(index, &mut image.consumers, &walked.empty)
}

/// Has the first segment state the numbers from `retained_from` to its beginning as missing, for a
/// consumer that begins there; with no segment left, the next one states them. The caller knows
/// that no consumer has read any of them.
pub(super) fn state_lost_beginning<S: Storage>(
    storage: &S,
    index: &Index<S>,
    rows: &mut [Row],
    tail: Spot,
    next: Option<Next>,
    retained_from: u64,
    cause: u8,
) -> Result<Option<Next>> {
    let Some(first) = rows.first_mut() else {
        let before = next.unwrap_or(Next {
            base: format::align_up(tail.position) + format::ALIGN,
            seq: tail.seq,
            ..Next::default()
        });
        let is_stated = retained_from >= before.missing.first(before.seq);
        return Ok(if is_stated {
            next
        } else {
            let gap = before.seq - retained_from;
            Some(Next { missing: MissingBefore { gap, cause, ..before.missing }, ..before })
        });
    };
    let mut header = first.header;
    if retained_from < header.missing_from() {
        (header.missing.gap, header.missing.cause) = (header.first_seq - retained_from, cause);
        write_header(storage, index, first, header)?;
    }
    Ok(next)
}
