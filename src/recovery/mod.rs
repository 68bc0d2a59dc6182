#![doc = include_str!("../../docs/recovery.md")]
//!
//! # Files
//!
//! | File | What it holds | What it does |
//! |---|---|---|
//! | `read_index` | `ReadIndex`, `Known`: the index and its content | reads it, or creates one |
//! | `renew` | | gives files new space after a sync failed |
//! | `belief` | `Belief`: how much of the index may be true | decides what to believe |
//! | `foreign` | | refuses a directory that is not a queue's |
//! | `rows` | `Rows`: the segments | takes them from the index or the headers |
//! | `headers` | `Headers` of all segment files | reads headers, writes damaged ones again |
//! | `copies` | | quarantines copies of a segment file |
//! | `walk`, `walked` | `Walked`: the walk's result | walks over the records to their end |
//! | `unit` | `Unit`: a record or a batch | joins fragments, checks the seal |
//! | `repair` | | fills holes, discards segments |
//! | `place_tail` | `Stated`: what the index states | places the tail, moves places |
//! | `publish` | | stores the live part and the rows |
//! | `look` | `InUse`: the segments of a queue in use | reads them without a write |

mod belief;
mod copies;
mod foreign;
mod headers;
pub(crate) mod look;
mod place_tail;
mod publish;
mod read_index;
mod renew;
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
use crate::recovery::renew::renew_files;
use crate::recovery::repair::{Holds, discard, repair, restate};
use crate::recovery::rows::{Rows, is_outdated, load_rows};
use crate::recovery::walk::{WalkRules, start_of_walk, walk};
use crate::recovery::walked::Walked;
use crate::segment::{Found, Opened, Row};
use crate::storage::Storage;

/// The result of an opening.
pub(crate) struct Recovered<S: Storage> {
    pub(crate) index: Index<S>,
    pub(crate) found: Found,
    /// Live segments whose files are open already.
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
    /// The disk may lack the stored places: only the page cache is known to have them.
    pub(crate) places_cached: bool,
    /// See [`State::is_untouched`](crate::state::State::is_untouched).
    pub(crate) is_untouched: bool,
    /// The disk may lack any of the files that were found: no run has synced them in this place.
    pub(crate) files_unsynced: bool,
}

/// Recovers the queue in `storage`. The caller holds the storage's lock.
pub(crate) fn recover<S: Storage>(storage: &S, options: &Options) -> Result<Recovered<S>> {
    let mut read = read_index(storage)?;
    // Renewed files look like a copy's.
    let ReadIndex { since, is_written_over, .. } = read;
    let refused = renew_files(storage, &mut read)?;
    loop {
        if let Some(recovered) = recover_by(storage, read, options, refused.as_ref())? {
            return Ok(recovered);
        }
        // Everything from the index is in doubt, the rows of the segments too. The second pass
        // believes only what was synced, and its walk searches to the end.
        let belief = Belief::Disk;
        read = ReadIndex { belief, since, is_written_over, ..read_index(storage)? };
    }
}

/// Recovers by the index in `read`. `None` when the opening believes the index but the walk does
/// not find all that it states.
fn recover_by<S: Storage>(
    storage: &S,
    mut read: ReadIndex<S>,
    options: &Options,
    refused: Option<&Error>,
) -> Result<Option<Recovered<S>>> {
    let nonce = random_u64(storage);
    let mut gathered = load_rows(storage, &read.image, read.queue_id, read.since, read.belief)?;
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
    publish::publish(storage, known, tail, options, refused).map(Some)
}

/// Where the walk found the end of the records, and what the index states about it.
struct End {
    start: Spot,
    walked: Walked,
    stated: Stated,
    /// How the index says that the next segment begins, if that segment does not exist.
    next: Option<Next>,
    /// The tail, after the numbers that the next segment was to state as missing.
    reached: Spot,
}

/// Walks from the best known spot to the end of the valid records. `None` when the opening believes
/// the index and the walk does not find all that it states: bytes are damaged, or were lost with
/// the mount.
fn find_end<S: Storage>(storage: &S, known: &mut Known<S>) -> Result<Option<End>> {
    let Known { index, image, rows, opened, belief, .. } = known;
    rows.drop_outlived();
    if let Some(end) = belief.clean_end(image) {
        // A segment after a clean end was begun for a record that was refused, and was made a spare
        // before that end. A power cut may restore its old header; and the opening after that cut
        // may have died while the mark of the clean end was still valid.
        rows.retain_live(|row| row.header.base <= end.position);
    }
    let start = start_of_walk(image, &rows.live, *belief);
    // Numbers grow with positions: a segment that begins after the start with a lower number was
    // reclaimed before.
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

/// After a possible power cut: has the headers of segments state what is missing before them, and
/// writes gap fragments over holes.
fn mend<S: Storage>(storage: &S, known: &mut Known<S>, end: &mut End) -> Result<()> {
    let Known { index, image, rows, belief, .. } = known;
    let End { start, walked, stated, .. } = end;
    // Evicted numbers have a cause of their own, which no header states.
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
            // The segments between the checkpoint and the first existing one are lost. A consumer
            // that has not passed them must get them as a gap.
            restate(storage, index, &mut rows.live, behind_evicted(lost_from), *start)?;
        } else if missing.gap > 0 && lost_from.position == start.position && walked.tail != *start {
            // The segment that was to state the missing numbers is lost: the next one states them.
            let next =
                rows.live.iter().map(|row| row.header.base).find(|base| *base > lost_from.position);
            let next = next.unwrap_or(lost_from.position);
            let to = Spot { position: next, seq: start.seq };
            restate(storage, index, &mut rows.live, behind_evicted(lost_from), to)?;
        }
    }
    // A hole before the durable mark is damage: the reader that meets it reports that (R7).
    walked.holes.retain(|hole| {
        let (end, durable) = (hole.end, stated.durable);
        end.position > durable.position || end.seq > durable.seq
    });
    for hole in &walked.holes {
        if planted!(FilledBeforeStated) {
            repair(storage, &rows.live, hole.start, hole.end)?;
        }
        // The headers come first. If this opening filled the hole and then died, the next one would
        // find no hole, and would not write the headers.
        restate(storage, index, &mut rows.live, behind_evicted(hole.start), hole.end)?;
        repair(storage, &rows.live, hole.start, hole.end)?;
    }
    Ok(())
}

/// The tail, and how the next segment begins if the last one is closed.
#[derive(Clone, Copy)]
struct PlacedTail {
    spot: Spot,
    next: Option<Next>,
}

impl PlacedTail {
    /// Moves the tail to where `next` begins: after the numbers that are missing there.
    fn with(self, next: Option<Next>) -> PlacedTail {
        PlacedTail { spot: next.map_or(self.spot, |next| next.spot()), next }
    }
}

/// After a possible power cut: closes the last segment at the tail, and has the next segment state
/// the numbers that are missing after the tail.
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
    // A consumer at the closed end is yet to get the missing numbers as a gap.
    let closed_end =
        tail.spot.position - if tail.spot.seq > walked.tail.seq { format::ALIGN } else { 0 };
    let closed = walked.tail..Spot { position: closed_end, seq: walked.tail.seq };
    // Padding after the tail is removed with its segment or overwritten.
    let is_before = |range: &&Range<Spot>| range.start.position < walked.tail.position;
    let empty = walked.empty.iter().filter(is_before);
    let empty: Vec<_> = walked.holes.iter().chain(empty).cloned().chain([closed]).collect();
    move_places_out_of_holes(index, &mut image.consumers, &empty)?;
    Ok(tail)
}

/// Discards the segments that no consumer needs. The first remaining segment states what is missing
/// before it.
fn discard_unused<S: Storage>(
    storage: &S,
    known: &mut Known<S>,
    end: &End,
    mut tail: PlacedTail,
) -> Result<PlacedTail> {
    let Known { index, image, rows, belief, .. } = known;
    let End { stated, reached, .. } = end;
    if let Some(next) = tail.next {
        // A segment that begins where the next one is to begin, or later, was also begun for a
        // record that was never completed.
        let kept = rows.live.partition_point(|row| row.header.base < next.base);
        rows.stale.extend(rows.live.drain(kept..));
    }
    let may_stay = belief.goes_on_at(image, *reached);
    if !may_stay && !rows.stale.is_empty() {
        // Stale segments must not reappear after later records, or before them where the tail lies
        // beyond the segments. So they are gone, durably, before the first append (R2).
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
    // Every message in the first `count` segments was evicted, or every consumer has passed it. No
    // run has removed such a segment yet, or a power cut undid its removal. A new consumer must not
    // get the messages in it.
    let retained_from = first_retained(image, *belief, rows.retained_from);
    let is_unused = |at: usize| match rows.live.get(at + 1) {
        Some(behind) => behind.header.missing_from() <= retained_from,
        None => tail.next.is_some_and(|next| next.missing.first(next.seq) <= retained_from),
    };
    let count = (0..rows.live.len()).take_while(|at| is_unused(*at)).count();
    rows.stale.extend(rows.live.drain(..count));
    if image.consumers.is_empty() {
        // Without a consumer the queue retains all messages from `retained_from` on. Consumers that
        // were removed since have passed the earlier ones.
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

/// The number below which, by the segment headers, all messages were reclaimed; 0 when the index
/// has a checkpoint or a consumer, which are more exact.
fn held_by_segments(image: &IndexImage, rows: &Rows) -> u64 {
    if image.checkpoint.is_none() && image.consumers.is_empty() { rows.retained_from } else { 0 }
}

#[cfg(test)]
mod tests;
