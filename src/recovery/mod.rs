#![doc = include_str!("../../docs/recovery.md")]

mod belief;
mod copies;
mod foreign;
mod headers;
pub(crate) mod look;
mod place_tail;
mod publish;
mod read_index;
mod repair;
mod rows;
mod unit;
mod walk;
mod walked;

use std::ops::Range;

use crate::error::{Error, Gap, GapCause, Result};
use crate::format::{self, MissingBefore, Spot};
use crate::index::Index;
use crate::index::image::{ConsumerRow, IndexImage};
use crate::index::losses::Evicted;
use crate::index::run::Next;
use crate::options::Options;
pub(crate) use crate::recovery::belief::Ended;
use crate::recovery::belief::{Belief, evicted, first_retained, reservation};
use crate::recovery::copies::leave_one_file_of_each;
use crate::recovery::place_tail::{
    Stated, begins_behind, close_tail, cut_closed, is_met, move_places_out_of_holes,
    move_places_out_of_mended, pending, state_lost_beginning,
};
use crate::recovery::read_index::{Known, ReadIndex, random_u64, read_index, take_up_index};
use crate::recovery::repair::{Holds, discard, repair, restate};
use crate::recovery::rows::{Rows, is_outdated, load_rows};
use crate::recovery::walk::{WalkRules, start_of_walk, walk};
use crate::recovery::walked::Walked;
use crate::segment::{Found, Opened, Row};
use crate::storage::Storage;

/// What an opening found.
pub(crate) struct Recovered<S: Storage> {
    pub(crate) index: Index<S>,
    pub(crate) found: Found,
    /// Live segments that are open already.
    pub(crate) opened: Vec<Opened<S::File>>,
    pub(crate) tail: Spot,
    pub(crate) next: Option<Next>,
    pub(crate) durable: Spot,
    pub(crate) reservation: u64,
    pub(crate) consumers: Vec<ConsumerRow>,
    pub(crate) known_gaps: Vec<Gap>,
    pub(crate) evicted: Evicted,
    /// The queue was closed in order, or its index is new.
    pub(crate) clean: bool,
    pub(crate) ended: Ended,
    /// The stored places may exist in the page cache alone.
    pub(crate) places_cached: bool,
    /// A flush may have moved the mark beyond `durable`, and that mark was lost.
    pub(crate) mark_may_be_lost: bool,
}

/// Opens the files of the queue in `storage`. The caller holds the storage's lock.
pub(crate) fn recover<S: Storage>(storage: &S, options: &Options) -> Result<Recovered<S>> {
    let mut read = read_index(storage)?;
    loop {
        if let Some(recovered) = recover_by(storage, read, options)? {
            return Ok(recovered);
        }
        // What was taken from the index is in doubt, the rows of the segments too. Without belief
        // no walk is too short.
        read = ReadIndex { belief: Belief::Disk, ..read_index(storage)? };
    }
}

/// Opens the files by the index that was read. `None` when the walk does not find what the index
/// states, although the index is believed.
fn recover_by<S: Storage>(
    storage: &S,
    mut read: ReadIndex<S>,
    options: &Options,
) -> Result<Option<Recovered<S>>> {
    let nonce = random_u64(storage);
    let mut gathered = load_rows(storage, &read.image, read.queue_id, read.belief)?;
    if !gathered.from_index {
        leave_one_file_of_each(storage, &mut gathered.rows)?;
    }
    if is_outdated(&read.image, read.belief, &gathered.rows) {
        read.belief = Belief::Disk;
    }
    if read.file.is_none() && gathered.rows.is_empty() && !options.create {
        return Err(Error::no_queue(storage.path()));
    }
    let mut known = take_up_index(storage, nonce, read, gathered)?;
    let Some(mut end) = find_end(storage, &mut known)? else {
        return Ok(None);
    };
    if !known.belief.is_trusted() {
        mend(storage, &mut known, &mut end)?;
    }
    let tail = if known.belief.goes_on_at(&known.image, end.reached) {
        move_places_out_of_mended(&mut known, &end.walked)?;
        PlacedTail { spot: end.reached, next: end.next }
    } else {
        place_tail(storage, &mut known, &end)?
    };
    let tail = discard_unused(storage, &mut known, &end, tail)?;
    publish::publish(storage, known, tail, &end.walked, options).map(Some)
}

/// Where the records end that the walk found, and where the index says that they end.
struct End {
    start: Spot,
    walked: Walked,
    stated: Stated,
    /// How the next segment was to begin, if that segment does not exist.
    next: Option<Next>,
    /// The tail, behind the numbers that the next segment was to state as missing.
    reached: Spot,
}

/// Walks from the best known spot to the end of what validates. `None` when the index is believed
/// and the walk does not find what it states: bytes are damaged, or were lost with the mount.
fn find_end<S: Storage>(storage: &S, known: &mut Known<S>) -> Result<Option<End>> {
    let Known { index, image, rows, opened, belief, .. } = known;
    rows.drop_outlived();
    if let Some(end) = belief.clean_end(image) {
        // A segment behind a clean end was begun for a record that was refused, and had become a
        // spare before that end. A power cut may show its header as it was; and the opening after
        // that may have died while the mark of the clean end stood.
        rows.retain_live(|row| row.header.base <= end.position);
    }
    let start = start_of_walk(image, &rows.live, *belief);
    // Numbers grow with positions: a segment that begins behind the start with a lower number was
    // given back before.
    rows.retain_live(|row| row.header.base < start.position || row.header.first_seq >= start.seq);
    let read = |(name, error): (String, _)| Error::io("read", storage.path().join(name), error);
    let rules = WalkRules::with(*belief, image, rows);
    let walked = walk(storage, &rows.live, opened, start, rules).map_err(read)?;
    let stated = Stated::by(image);
    let (next, reached) = pending(image, &rows.live, walked.tail, *belief);
    if !is_met(*belief, image, rows, &walked, reached, &stated) {
        if *belief == Belief::Mount {
            index.forget_token();
        }
        return Ok(None);
    }
    let is_behind = |row: &Row| begins_behind(row, walked.tail);
    let kept = rows.live.iter().position(is_behind).unwrap_or(rows.live.len());
    rows.stale.extend(rows.live.drain(kept..));
    Ok(Some(End { start, walked, stated, next, reached }))
}

/// Power may have been cut: the headers of segments state what is missing before them, and gap
/// fragments are written over holes.
fn mend<S: Storage>(storage: &S, known: &mut Known<S>, end: &mut End) -> Result<()> {
    let Known { index, image, rows, belief, .. } = known;
    let End { start, walked, stated, .. } = end;
    // Numbers that were evicted have their own cause, which no header states.
    let evicted = evicted(image, *belief).end();
    let behind_evicted = |spot: Spot| Spot { seq: spot.seq.max(evicted), ..spot };
    if let Some(checkpoint) = image.checkpoint {
        let is_stated = rows.live.iter().any(|row| row.header.base == checkpoint.position);
        let missing = if is_stated { MissingBefore::default() } else { checkpoint.missing };
        let seq = missing.first(checkpoint.seq);
        let lost_from = Spot { position: checkpoint.position, seq };
        let waiting =
            image.consumers.iter().any(|consumer| consumer.place.position < start.position);
        if lost_from.position < start.position && lost_from.seq < start.seq && waiting {
            // The segments between the checkpoint and the first one that exists are lost. A
            // consumer that has not passed them must get them as a gap.
            restate(storage, index, &mut rows.live, behind_evicted(lost_from), *start)?;
        } else if missing.gap > 0 && lost_from.position == start.position && walked.tail != *start {
            // The segment that was to state what is missing is lost: the next one states it.
            let next =
                rows.live.iter().map(|row| row.header.base).find(|base| *base > lost_from.position);
            let next = next.unwrap_or(lost_from.position);
            let to = Spot { position: next, seq: start.seq };
            restate(storage, index, &mut rows.live, behind_evicted(lost_from), to)?;
        }
    }
    // A hole before the durable mark is damage: the reader that comes to it says so (R7).
    walked.holes.retain(|hole| {
        let (end, durable) = (hole.end, stated.durable);
        end.position > durable.position || end.seq > durable.seq
    });
    for hole in &walked.holes {
        if planted!(FilledBeforeStated) {
            repair(storage, &rows.live, hole.start, hole.end)?;
        }
        // The headers come first. Where the hole is filled the next opening finds no hole, so it
        // would not write into a header what this opening, killed between, did not.
        restate(storage, index, &mut rows.live, behind_evicted(hole.start), hole.end)?;
        repair(storage, &rows.live, hole.start, hole.end)?;
    }
    Ok(())
}

/// Where the tail stands, and how the next segment begins where the last one takes no more records.
#[derive(Clone, Copy)]
struct PlacedTail {
    spot: Spot,
    next: Option<Next>,
}

impl PlacedTail {
    /// The tail when the next segment begins as `next` says: behind the numbers that are missing
    /// there.
    fn with(self, next: Option<Next>) -> PlacedTail {
        PlacedTail { spot: next.map_or(self.spot, |next| next.spot()), next }
    }
}

/// Power may have been cut: closes the last segment at the tail, and has the next one state what is
/// missing behind the tail.
fn place_tail<S: Storage>(storage: &S, known: &mut Known<S>, end: &End) -> Result<PlacedTail> {
    let Known { index, image, rows, opened, belief, .. } = known;
    let End { walked, stated, reached, .. } = end;
    let gone = evicted(image, *belief).end().max(held_by_segments(image, rows));
    let missing = stated.missing_behind(*reached, end.next, reservation(image, *belief), gone);
    let next = close_tail(storage, &rows.live, walked.tail, stated.position, end.next, missing)?;
    if stated.durable.position <= walked.tail.position {
        cut_closed(storage, index, &mut rows.live, opened, walked.tail)?;
    }
    let tail = PlacedTail { spot: walked.tail, next: None }.with(next);
    // What is missing behind the closed end is yet to be reported to a consumer there.
    let closed_end =
        tail.spot.position - if tail.spot.seq > walked.tail.seq { format::ALIGN } else { 0 };
    let closed = walked.tail..Spot { position: closed_end, seq: walked.tail.seq };
    // Padding that was found behind the tail goes with its segment, or is closed over.
    let is_before = |range: &&Range<Spot>| range.start.position < walked.tail.position;
    let empty = walked.empty.iter().filter(is_before);
    let empty: Vec<_> = walked.holes.iter().chain(empty).cloned().chain([closed]).collect();
    move_places_out_of_holes(index, &mut image.consumers, &empty)?;
    Ok(tail)
}

/// Discards the segments that hold nothing for any consumer. The first segment that stays states
/// what is missing before it.
fn discard_unused<S: Storage>(
    storage: &S,
    known: &mut Known<S>,
    end: &End,
    mut tail: PlacedTail,
) -> Result<PlacedTail> {
    let Known { index, image, rows, belief, .. } = known;
    let End { stated, reached, .. } = end;
    if let Some(next) = tail.next {
        // A segment that begins where the next one is to begin was begun for a record that was
        // never completed, too.
        let kept = rows.live.partition_point(|row| row.header.base < next.base);
        rows.stale.extend(rows.live.drain(kept..));
    }
    let may_stay = belief.goes_on_at(image, *reached);
    if !may_stay && !rows.stale.is_empty() {
        // They must not come back behind what is written from now on, or before it where the tail
        // was placed beyond them, so they are gone, durably, before the first append (R2).
        for row in rows.stale.drain(..) {
            let kept = {
                let is_outlived = rows.live.iter().any(|live| live.header.outlives(&row.header));
                let holds = if row.header.base < stated.durable.position && !is_outlived {
                    Holds::Messages
                } else {
                    Holds::Nothing
                };
                discard(storage, &row, holds)?
            };
            index.write_segment_row(row.slot, kept.as_ref().map(|spare| &spare.header), u64::MAX);
            rows.spares.extend(kept);
        }
        if !planted!(DiscardedUnsynced) {
            storage.sync_directory().map_err(|failed| failed.ends_opening(storage.path()))?;
        }
    }
    // Every message in the first `count` segments was evicted, or every consumer has passed it.
    // Such a segment was not removed yet, or a power cut undid its removal. What is left in it must
    // not be delivered to a new consumer.
    let retained_from = first_retained(image, *belief, rows.retained_from);
    let is_unused = |at: usize| match rows.live.get(at + 1) {
        Some(behind) => behind.header.missing_from() <= retained_from,
        None => tail.next.is_some_and(|next| next.missing.first(next.seq) <= retained_from),
    };
    let count = (0..rows.live.len()).take_while(|at| is_unused(*at)).count();
    rows.stale.extend(rows.live.drain(..count));
    if image.consumers.is_empty() {
        // Without a consumer all messages from `held_from` on are held. Those before were passed by
        // consumers that were removed since.
        let is_damage = retained_from < stated.durable.seq;
        let cause = if is_damage { GapCause::Damaged } else { GapCause::Unflushed };
        let live = &mut rows.live;
        tail = tail.with(state_lost_beginning(
            storage,
            index,
            live,
            tail.spot,
            tail.next,
            retained_from,
            cause.number(),
        )?);
    }
    Ok(tail)
}

/// The number below which the segments say that everything was given back; 0 when the index knows
/// better.
fn held_by_segments(image: &IndexImage, rows: &Rows) -> u64 {
    if image.checkpoint.is_none() && image.consumers.is_empty() { rows.retained_from } else { 0 }
}

#[cfg(test)]
mod tests;
