//! Where the tail stands, how the next segment follows it, and what is told to be missing there.

use crate::error::{GapCause, Result};
use crate::format::{self, Kind, Spot};
use crate::index::Index;
use crate::index::image::{ConsumerRow, IndexImage};
use crate::index::run::{Next, Run};
use crate::recovery::belief::{Belief, given_up};
use crate::recovery::repair::{fill, write_header};
use crate::segment::Row;
use crate::storage::Storage;

/// The highest that any valid part of the index says of numbers given out, passed by a consumer, or
/// told to be missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stated {
    pub(super) position: u64,
    pub(super) seq: u64,
    /// What was said to be on the disk.
    pub(super) durable: Spot,
}

impl Stated {
    pub(super) fn by(image: &IndexImage) -> Stated {
        let checkpoint = image.checkpoint.map(|checkpoint| (checkpoint.position, checkpoint.seq));
        let durable = [checkpoint, image.live.synced].into_iter().flatten();
        // What was acknowledged: a number of it that was given again would be taken for done.
        let known = !planted!(AcknowledgedNumberGivenAgain);
        let acks = |consumer: &ConsumerRow| {
            consumer.acks.iter().filter(|_| known).map(|(_, last)| last + 1).max()
        };
        let done = |consumer: &ConsumerRow| acks(consumer).unwrap_or(0);
        let consumers = image.consumers.iter();
        let places = consumers
            .map(|consumer| (consumer.place.position, consumer.place.seq.max(done(consumer))));
        let spots = || durable.clone().chain(image.live.tail).chain(places.clone());
        Stated {
            position: spots().map(|(position, _)| position).max().unwrap_or(0),
            seq: spots().map(|(_, seq)| seq).max().unwrap_or(0),
            durable: durable
                .max()
                .map(|(position, seq)| Spot { position, seq })
                .unwrap_or_default(),
        }
    }

    /// What is missing behind what was found: the numbers known to have been given out, then those
    /// up to the lease, which were only reserved. With what was missing before anyway. What was
    /// given up needs no cause of its own, nor does what was given back.
    pub(super) fn missing_behind(
        &self,
        found: Spot,
        before: Option<Next>,
        lease: u64,
        given_up: u64,
    ) -> Next {
        let from = found.seq.max(given_up);
        let known_end = from.max(self.seq);
        let end = known_end.max(lease);
        let before = before.filter(|_| from == found.seq).unwrap_or_default();
        let cause = if self.durable.seq > from { GapCause::Damaged } else { GapCause::Unflushed };
        let missing = Next {
            base: 0,
            seq: end,
            gap: before.gap + (end - from),
            reserved: end - known_end,
            cause: cause.number(),
        };
        if known_end > from || before.gap == 0 {
            return missing;
        }
        Next { reserved: before.reserved + missing.reserved, cause: before.cause, ..missing }
    }
}

/// How the next segment was to begin when it is not there, and the tail with what it states: of the
/// run, or of the checkpoint that names the same position.
pub(super) fn pending(
    image: &IndexImage,
    live: &[Row],
    tail: Spot,
    belief: Belief,
) -> (Option<Next>, Spot) {
    // The checkpoint may lie within what is missing; and what was given up is not counted among it.
    let seq = tail.seq.max(given_up(image, belief).end());
    let follows =
        |next: &Next| (next.seq - next.gap..=next.seq).contains(&seq) && tail.position <= next.base;
    let is_there = |base: u64| live.iter().any(|row| row.header.base == base);
    let of_run = image
        .live
        .run
        .and_then(|run| run.next)
        .filter(|next| !is_there(next.base) && follows(next));
    let of_checkpoint = image.checkpoint.filter(|checkpoint| {
        let is_tail = tail.position == checkpoint.position && tail.seq == checkpoint.seq;
        // Where the live part is exact it says so itself.
        belief != Belief::Cache && is_tail && checkpoint.gap > 0 && !is_there(tail.position)
    });
    let of_checkpoint = of_checkpoint.map(|checkpoint| Next {
        base: checkpoint.position,
        seq: checkpoint.seq,
        gap: checkpoint.gap,
        reserved: checkpoint.reserved,
        cause: checkpoint.cause,
    });
    let next = of_run.or(of_checkpoint);
    (next, next.filter(|next| next.seq > tail.seq).map_or(tail, |next| spot_of(&next)))
}

/// Where the first record of the next segment lies.
pub(super) fn spot_of(next: &Next) -> Spot {
    Spot { position: next.base, seq: next.seq }
}

/// How the next segment is to begin, when it is not there yet.
pub(super) fn next_of_run(run: &Run, live: &[Row]) -> Option<Next> {
    run.next.filter(|next| live.last().is_none_or(|row| row.header.base < next.base))
}

/// Ends the last segment at the tail, and says how the next one follows it: behind every position
/// that was stated, and a word further where numbers are missing that were not before, so that a
/// reader who stands at the end has a way to go and is told of them.
pub(super) fn close_tail<S: Storage>(
    storage: &S,
    rows: &[Row],
    tail: Spot,
    stated: u64,
    pending: Option<Next>,
    missing: Next,
) -> Result<Option<Next>> {
    let at = rows.partition_point(|row| row.header.end() <= tail.position);
    let row = rows.get(at).filter(|row| row.header.base <= tail.position);
    if let Some(row) = row {
        fill(storage, row, Kind::Padding, tail, row.header.end())?;
    }
    if rows.is_empty() && missing.gap == 0 && missing.seq == tail.seq && stated <= tail.position {
        return Ok(None);
    }
    let reach =
        format::align_up(tail.position).max(row.map_or(0, |row| row.header.end())).max(stated);
    let base = match pending {
        Some(pending) if pending.seq == missing.seq && pending.base >= reach => pending.base,
        _ if missing.gap > 0 => {
            reach.max(pending.map_or(0, |pending| pending.base)) + format::ALIGN
        }
        // Never zero, which would say in the live part that there is no next segment.
        _ => reach.max(format::ALIGN),
    };
    Ok(Some(Next { base, ..missing }))
}

/// A place that reached the disk without the messages before it may lie in the middle of what is
/// empty now, and old bytes may stand there that look like a record: those of a unit that was given
/// up. So it goes where the emptiness begins, when that tells of missing numbers, or else to its
/// end; its number stays. Done before the live part is believed.
pub(super) fn leave_the_empty<S: Storage>(
    storage: &S,
    index: &Index<S>,
    consumers: &mut [ConsumerRow],
    empty: &[(Spot, Spot)],
) -> Result<()> {
    for consumer in consumers.iter_mut().filter(|consumer| consumer.row != u32::MAX) {
        let place = &mut consumer.place;
        let around = empty
            .iter()
            .find(|(from, to)| from.position < place.position && place.position < to.position);
        if let Some((from, to)) = around {
            let (_, mut slot) = index.add_consumer(
                storage,
                Some(consumer.row),
                &consumer.name,
                *place,
                u64::MAX,
            )?;
            // What is missing may have been told before it, in an earlier segment: the place's own
            // number counts.
            place.position = if place.seq < to.seq { from.position } else { to.position };
            place.number += 1;
            slot.store(place.position, place.seq);
        }
    }
    Ok(())
}

/// Nobody has read yet what was held from the number `held_from` on. The first segment there is
/// says what is missing before it, for whoever begins there; without any the next one does.
pub(super) fn state_lost_beginning<S: Storage>(
    storage: &S,
    index: &Index<S>,
    rows: &mut [Row],
    tail: Spot,
    next: Option<Next>,
    held_from: u64,
    cause: u8,
) -> Result<Option<Next>> {
    let Some(first) = rows.first_mut() else {
        let before = next.unwrap_or(Next {
            base: format::align_up(tail.position) + format::ALIGN,
            seq: tail.seq,
            ..Next::default()
        });
        let is_stated = held_from >= before.seq - before.gap;
        return Ok(if is_stated {
            next
        } else {
            Some(Next { gap: before.seq - held_from, cause, ..before })
        });
    };
    let mut header = first.header;
    if held_from < header.missing_from() {
        header.gap_before = header.first_seq - held_from;
        header.cause = cause;
        write_header(storage, index, first, header)?;
    }
    Ok(next)
}
