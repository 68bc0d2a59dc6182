//! The last phase: stores the result of the opening for the next one, and returns it to the queue.

use std::io;
use std::iter::Empty;

use crate::error::{Error, Gap, Result};
use crate::format::{
    self, FLAG_BEGUN, FLAG_CHANGING, FLAG_SYNC_FAILED, FLAG_UNSYNCED_FILES, INDEX_NAME,
    MissingBefore, SegmentHeader, Spot,
};
use crate::index::image::Live;
use crate::index::run::{Next, Run};
use crate::index::{RowsAre, StoredOver};
use crate::options::Options;
use crate::recovery::belief::{Belief, SinceRun, clean_end, evicted, reservation, unclaimed_from};
use crate::recovery::read_index::Known;
use crate::recovery::{PlacedTail, Recovered};
use crate::segment::{Found, Row};
use crate::storage::{Storage, StorageFile};

/// Stores the live part and the rows of the segments, and returns the result of the opening. `tail`
/// may lie after numbers that no segment will ever have.
pub(super) fn publish<S: Storage>(
    storage: &S,
    known: Known<S>,
    tail: PlacedTail,
    options: &Options,
    refused: Option<&Error>,
) -> Result<Recovered<S>> {
    let PlacedTail { spot, next } = tail;
    let (durable, next_life) = (durable(&known, spot), next_life(&known));
    let (reservation, evicted) =
        (reservation(&known.image, known.belief), evicted(&known.image, known.belief));
    let known_gaps = missing_numbers(&known.rows.live, next);
    check!(check_end(&known.rows.live, tail, durable, next_life));
    let retained_from = known
        .image
        .checkpoint
        .map_or(0, |checkpoint| checkpoint.retained_from)
        .max(known.rows.retained_from);
    let unclaimed_from = unclaimed_from(&known.image, known.belief, known.rows.retained_from);
    // A holder that closes in order clears its process id after its last sync. After any other end
    // a sync may have failed and left pages marked clean that the disk does not have. Storing them
    // again makes the next sync write them. (No sync of an index that this opening made failed.)
    let was_closed = known.cached.is_some() && known.image.live.pid == 0;
    if !was_closed && !known.made_anew && !planted!(IndexNotStoredAgain) {
        known.index.store_again();
    }
    let is_untouched = is_untouched(&known, spot, reservation);
    let flags = flags(&known);
    let is_unsynced = flags & FLAG_UNSYNCED_FILES != 0;
    // The run record keeps its statement about a segment until that segment is durable.
    let stated_next = next.or(known.image.live.run.and_then(|run| run.next));
    if let (Some(_), Some(stated)) = (next, known.image.live.run.and_then(|run| run.next)) {
        keep_statement(storage, &known.rows.live, stated)?;
    }
    let is_believed = matches!(known.belief, Belief::Cache | Belief::Mount);
    let live = Live {
        token: storage.cache_token(known.index.stat),
        changed: known.image.live.changed,
        pid: std::process::id(),
        run: Some(Run { flags, next_life, reservation, evicted, next: stated_next }),
        tail: Some(spot),
        synced: Some(mark_at(durable, next)),
    };
    let over = if is_believed { StoredOver::Believed } else { StoredOver::Doubted };
    let ended = known.belief.ended(&known.image, known.since);
    if !ended.counts_attempts() && !planted!(CutTakenForDeath) {
        // Done before this opening's end can look to the next one like the crash of a run with
        // messages in flight.
        for consumer in &known.image.consumers {
            known.index.end_attempts(consumer.row, &consumer.name, None::<Empty<_>>);
        }
    }
    known.index.begin_run(&live, over);
    if let Some(error) = refused {
        known.index.set_poisoned(error);
    } else if flags & FLAG_SYNC_FAILED != 0 {
        known.index.clear_flag(FLAG_SYNC_FAILED);
    }
    let rows_complete = known.rows_from_index || write_rows(&known);
    let trusted = known.belief.is_trusted();
    // Counted last, to include the files that this opening quarantined.
    let is_other =
        options.max_bytes.is_some() || !known.rows_from_index || known.made_anew || !trusted;
    let other_bytes = if is_other { other_bytes(storage)? } else { 0 };
    let is_clean = clean_end(&known.image).is_some()
        && matches!(known.belief, Belief::Cache | Belief::CleanEnd);
    Ok(Recovered {
        found: Found {
            live: known.rows.live,
            spares: known.rows.spares,
            drained: known.rows.stale,
            foreign_slots: known.rows.foreign_slots,
            next_life,
            retained_from,
            unclaimed_from,
            end: spot.seq,
            other_bytes,
            rows_complete,
        },
        opened: known.opened,
        tail: spot,
        next,
        durable,
        reservation,
        known_gaps,
        evicted,
        clean: is_clean || known.made_anew,
        ended,
        places_cached: !was_closed || is_untouched,
        is_untouched,
        files_unsynced: is_unsynced,
        consumers: known.image.consumers,
        index: known.index,
    })
}

/// What an opening found agrees with itself.
#[cfg(any(test, fuzzing, mmq_holds))]
fn check_end(live: &[Row], tail: PlacedTail, durable: Spot, next_life: u64) {
    let PlacedTail { spot, next } = tail;
    holds!(
        durable.position <= spot.position && durable.seq <= spot.seq,
        "the durable mark, {durable:?}, does not pass the tail, {spot:?}"
    );
    holds!(
        live.iter().all(|row| row.header.life < next_life),
        "the next life, {next_life}, was never used: {live:?}"
    );
    holds!(
        live.last().is_none_or(|row| row.header.base <= spot.position),
        "the last segment begins before the tail, {spot:?}: {:?}",
        live.last()
    );
    holds!(
        next.is_none_or(|next| next.missing.is_sound(next.seq)),
        "the numbers that the next segment is to state are numbers: {next:?}"
    );
    holds!(
        next.is_none_or(|next| next.seq == spot.seq && spot.position <= next.base),
        "the next segment, {next:?}, begins at the tail or behind it: {spot:?}"
    );
}

/// The durable mark to store. It stays before the numbers that are missing before the `next`
/// segment: the mark is stored before the run record that states them, and without that record it
/// would declare them damaged.
fn mark_at(durable: Spot, next: Option<Next>) -> Spot {
    let stated_from = next.map_or(u64::MAX, |next| next.missing.first(next.seq));
    Spot { seq: durable.seq.min(stated_from), ..durable }
}

/// Makes the segment at `stated` durable, if it exists: the run record is about to replace the
/// statement that this segment's header has too.
fn keep_statement<S: Storage>(storage: &S, live: &[Row], stated: Next) -> Result<()> {
    let Some(row) = live.iter().find(|row| row.header.base == stated.base) else {
        return Ok(());
    };
    if planted!(StatementMayBeLost) {
        return Ok(());
    }
    let path = storage.path().join(format::segment_name(row.slot));
    let file = storage.open(&format::segment_name(row.slot));
    let file = file.map_err(|error| Error::io("open", path.clone(), error))?;
    file.sync().map_err(|failed| failed.ends_opening(path))?;
    storage.sync_directory().map_err(|failed| failed.ends_opening(storage.path()))
}

/// Rewrites the rows of all segments. Returns false when the index has no room for all of them.
fn write_rows<S: Storage>(known: &Known<S>) -> bool {
    let Known { index, image, rows, .. } = known;
    for (slot, _) in &image.segments {
        index.write_segment_row(*slot, None, u64::MAX);
    }
    let mut complete = true;
    for row in rows.live.iter().chain(&rows.spares).chain(&rows.stale) {
        complete &= index.write_segment_row(row.slot, Some(&row.header), u64::MAX);
    }
    if complete {
        index.set_rows_are(RowsAre::Right);
    }
    complete
}

/// Whether the queue is as new: it has no sign of a message or a consumer, ever.
fn is_untouched<S: Storage>(known: &Known<S>, tail: Spot, reservation: u64) -> bool {
    let Known { image, rows, .. } = known;
    let has_segments = !(rows.is_empty() && rows.stale.is_empty() && rows.foreign_slots.is_empty());
    let has_consumers = !(image.consumers.is_empty() && image.lost.is_empty());
    image.checkpoint.is_none()
        && !has_segments
        && !has_consumers
        && (tail, reservation) == (Spot::default(), 0)
}

/// The flags of the run that begins. What the run before says of the page cache counts in another
/// boot, too: each start of a container may have an id of its own.
fn flags<S: Storage>(known: &Known<S>) -> u32 {
    let before = known.image.live.run.map_or(0, |run| run.flags);
    let is_new = known.made_anew && known.rows.is_empty();
    // The durable mark says what was on the disk where it was stored: a copy may exist only in the
    // page cache.
    let is_copied = !is_new && (known.since == SinceRun::Copied || known.is_written_over);
    let begins = [
        (FLAG_CHANGING, !known.rows_from_index),
        (FLAG_BEGUN, clean_end(&known.image).is_none()),
        (FLAG_UNSYNCED_FILES, is_copied),
    ];
    let begins = begins.into_iter().filter(|(_, is_set)| *is_set);
    begins.fold(before & (FLAG_UNSYNCED_FILES | FLAG_SYNC_FAILED), |flags, (flag, _)| flags | flag)
}

/// The spot up to which every record is known to be on the disk.
fn durable<S: Storage>(known: &Known<S>, tail: Spot) -> Spot {
    let Known { image, rows, belief, .. } = known;
    let oldest = rows
        .live
        .first()
        .map_or(tail, |row| Spot { position: row.header.base, seq: row.header.first_seq });
    let durable = match image.checkpoint {
        _ if *belief == Belief::CleanEnd => tail,
        Some(checkpoint) => checkpoint.spot(),
        None => oldest,
    };
    // A flush moves the live part's mark more often than the checkpoint.
    let durable =
        image.live.synced.filter(|synced| synced.position > durable.position).unwrap_or(durable);
    // At the same position the two numbers differ by numbers that no record will ever have.
    if durable.position >= tail.position || durable.seq > tail.seq { tail } else { durable }
}

/// Returns a life above that of every segment that ever existed.
fn next_life<S: Storage>(known: &Known<S>) -> u64 {
    let image = &known.image;
    // A row may have reached the disk when its file did not.
    let noted = image.segments.iter().map(|(_, header)| header.life).max();
    let highest = known.rows.highest_life.max(noted).map_or(0, |life| life + 1);
    if planted!(LifeUsedAgain) {
        return known.rows.highest_life.map_or(0, |life| life + 1);
    }
    let checkpoint = image.checkpoint;
    let by_checkpoint = checkpoint.map_or(0, |checkpoint| checkpoint.next_life);
    highest.max(by_checkpoint).max(image.live.run.map_or(0, |run| run.next_life))
}

/// The gaps that the headers of the `live` segments state, and those before the `next` segment.
pub(super) fn missing_numbers(live: &[Row], next: Option<Next>) -> Vec<Gap> {
    let before_next = next.map(|next| gaps_of(next.missing, next.seq));
    let headers = live.iter().flat_map(|row| gaps_before(&row.header));
    without_overlap(headers.chain(before_next.into_iter().flatten()))
}

/// Removes overlaps, so that each number is in one gap only: every segment that begins within a
/// hole states all of the hole before its first number.
fn without_overlap(stated: impl Iterator<Item = Gap>) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    for gap in stated {
        let reported = gaps.last().map_or(0, |last| last.last + 1);
        let first = gap.first.max(reported);
        if first <= gap.last {
            gaps.push(Gap { first, ..gap });
        }
    }
    holds!(
        gaps.windows(2).all(|gaps| gaps[0].last < gaps[1].first),
        "gaps are in order and do not overlap: {gaps:?}"
    );
    gaps
}

fn gaps_before(header: &SegmentHeader) -> impl Iterator<Item = Gap> + use<> {
    gaps_of(header.missing, header.first_seq)
}

fn gaps_of(missing: MissingBefore, end: u64) -> impl Iterator<Item = Gap> {
    missing.pieces(end).map(|(first, end, cause)| Gap { first, last: end - 1, cause })
}

/// The disk space of all files that are neither the index nor a segment.
fn other_bytes<S: Storage>(storage: &S) -> Result<u64> {
    let error = |name: &str, error| Error::io("measure", storage.path().join(name), error);
    let mut bytes = 0;
    for listed in storage.list().map_err(|failed| error("", failed))? {
        let name = &*listed.name;
        if name == format::RENEWED_NAME && storage.remove(name).is_ok() {
            continue;
        }
        if !listed.is_file || name == INDEX_NAME || format::segment_slot(name).is_some() {
            continue;
        }
        match storage.open(name).and_then(|file| file.disk_bytes()) {
            Ok(taken) => bytes += taken,
            // Not a regular file after all, or one that may not be opened: it is not this queue's.
            Err(failed) if is_foreign(&failed) => {}
            Err(failed) => return Err(error(name, failed)),
        }
    }
    Ok(bytes)
}

fn is_foreign(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, NotFound, PermissionDenied};
    matches!(error.kind(), InvalidData | NotFound | PermissionDenied)
}
