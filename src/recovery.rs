//! After a crash: what an opening finds, what it believes, and why every state recovers.
//!
//! # What the medium is assumed to do
//!
//! - After a process death the page cache holds every store made, in program order.
//! - After a power cut each 512-byte sector of a file is either as it was at some moment since it was last synced, or as it
//!   was then; sectors are independent of each other. Creations, renames and removals since the last directory sync
//!   happened or did not, independently.
//! - A sync that returned success made everything before it durable. One that failed proves nothing, nor does any later
//!   one (rule R6): the queue refuses to write until it is opened again.
//!
//! # What is believed
//!
//! The index carries a *life token*: boot, device, directory and mount. While the storage still answers with the same one,
//! no cached byte can have been lost, so the live part of the index is exact up to the store that was cut short. Three
//! cases, from best to worst:
//!
//! | found | segments from | tail from | appends go on |
//! |---|---|---|---|
//! | clean end (a durable checkpoint says so) | index rows | checkpoint | in the last segment |
//! | same life token | index rows; headers, when a change of segments was cut short | live part, then forward over what validates | in the last segment |
//! | anything else | headers of all segment files | checkpoint, then a search through everything behind it | in a new segment |
//!
//! # Why each state recovers
//!
//! - **Killed between storing a record and publishing the tail**: the record is whole, the walk forward finds it; it was
//!   never acknowledged, and is delivered. Killed before its header was whole: the walk ends in front of it.
//! - **Killed between the stores of the live tail**: their check word does not match; the last segment is walked from its
//!   base. The kill came in a commit, so what was pushed is whole: the walk may begin in the middle of a unit.
//! - **Killed within a batch, or between the fragments of a record**: a unit counts only when its last fragment validates;
//!   the walk ends in front of the unit. Segments begun for it lie behind the tail and are let go.
//! - **A record or a batch refused or cut short, then tried again in the same place with the same lengths**: pieces of the two
//!   tries may lie beside each other, each of them whole. Fragments of a record are bound to the one before, and the
//!   records of a batch to each other by its seal, which only recovery needs to look at.
//! - **Old bytes behind the tail**: a checksum is seeded with queue, life, base and salt of the segment and runs over
//!   offset and number, so nothing written before this use of the file, or elsewhere, validates (R5). Units that failed
//!   half way are never completed by later ones: whatever lies behind the tail lacks its end.
//! - **Power cut**: what is behind the durable checkpoint may have any holes. Each unit that validates stays; the numbers
//!   between are told as [`GapCause::Unflushed`](crate::GapCause::Unflushed), and a gap fragment is written over the hole so
//!   that every later reading says the same. Batches with a hole go as a whole: a record says whether its batch began
//!   before it. The last segment is sealed there and the next message begins a new one with a new salt, so that nothing
//!   behind the cut can ever stand up again (this takes the place of clearing the space, R3).
//! - **Numbers**: before the first enqueue of a run a lease is made durable, at or above which no number was given out. A
//!   power cut starts at the lease, and the numbers between are a gap. With `flush_every_ops(1)` nobody saw a number that
//!   is not durable, and no lease is needed; but what a kill left there is made durable by an opening that lets it be read
//!   at once. A checkpoint found in the page cache may be all there is of it: the first write of a run does not rely on it.
//! - **A consumer's place ahead of the tail** (its place reached the disk, the messages did not): the tail starts there. A
//!   place within a hole or within the sealed rest of a segment leaves it (`leave_the_empty`): old bytes of a unit that was
//!   given up may look like a record there.
//! - **A segment lost whole**: no unit reaches over it, here or in the reader. The segment behind it states in its header what
//!   is missing (`restate`), so that it is told alike by every later opening.
//! - **Numbers missing before a segment that is not made yet**: the live part says so, and the checkpoint that names the
//!   same position (`DURABLE_GAP`).
//! - **Power cut after a kill**: opening after the kill believed the page cache; nothing it did made that durable by itself,
//!   and nothing claims so: `durable` is what the checkpoint and the flushes before the kill said, until the next flush; which,
//!   as closing does, makes durable what the kill left, messages and places. The checkpoint slot that won is
//!   stored again and synced before the other one is touched (R1).
//! - **After a power cut** what was found behind the checkpoint was found on the disk, and what was flushed is among it; nothing says
//!   how much. So opening makes all of it durable before it returns: what comes to depend on how much is durable (the next
//!   rule does) does not count it for lost when power is cut again.
//! - **Segments used again or removed**: only after a sync of the directory, of the places that stand behind them (R8), and of a
//!   checkpoint that says what was dropped or had expired, and how much of the rest is durable: what is held may begin in the middle of a batch then, of which
//!   recovery keeps what lies behind the checkpoint alone. A removal that comes back after a power cut brings a segment that
//!   every place has passed: it is let go again. What a power cut leaves behind the tail is removed, durably, before
//!   anything is appended (R2). Lives, positions and numbers grow together: of segments that contradict that the one with the
//!   highest life counts (R9), and no life is used again that a row of the index names.
//! - **Opening is killed**: before the live part is believed it changes nothing but gap fragments, gaps in headers, places in
//!   what is empty, and files that count for nothing; done again, all of it says the same. Where the live part was believed
//!   before, it stays so throughout.
//!
//! # Damage
//!
//! Before the durable checkpoint nothing is searched at opening: whatever is damaged there is met, told and stepped over
//! by the reader that comes to it. So opening takes no longer for a longer backlog. A segment file that is not what the index
//! says (gone, replaced, another queue's) is looked for under the other names, and set aside as `*.damaged` when it is
//! nowhere. One whose header is damaged is what the row of the index says, when anything in it was written for that segment:
//! else it is a new file in the place of one that was removed, and the row is older (a power cut left both). The header is
//! written again before the rows are.
//!
//! A file of zeros alone under a segment's name, where the index knows of no live segment that begins before the durable
//! checkpoint, is one that was being made: a kill between its creation and its header leaves it, or a power cut that kept its
//! name and its length. It is removed: set aside, it would count in `max_bytes` for ever, and there is nothing in it to be looked
//! at. With any other byte in it, or with a row that says messages were there, it is kept aside. A removal that a power cut
//! undoes brings the same zeros. Nor are the rows of a clean end believed after a power cut when there is a segment file without
//! a row, or a spare's row without a file: it was made since, its bytes count, and its life is not used again.
//!
//! A damaged or foreign index is set aside and made anew from the segments; the places in it that still validate are
//! carried over.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::error::{Error, Gap, GapCause, Result};
use crate::given_up::GivenUp;
use crate::image::{ConsumerRow, IndexImage, Live};
use crate::index::{Index, IndexFile};
use crate::layout::{
    self, FLAG_CHANGING, FLAG_POISONED, INDEX_NAME, Invalid, Kind, SEGMENT_HEADER_LEN, Seal, SegmentHeader,
    SegmentState,
};
use crate::scan::{Scan, Seen};
use crate::segment::{FLUSH, Found, Lost, Row, open_life, set_aside};
use crate::shared::Spot;
use crate::storage::{Storage, StorageFile};
use crate::writer::{Next, fill};

/// What an opening found.
pub(crate) struct Recovered<S: Storage> {
    pub(crate) index: Index<S>,
    pub(crate) found: Found,
    pub(crate) tail: Spot,
    pub(crate) next: Option<Next>,
    pub(crate) durable: Spot,
    pub(crate) lease: u64,
    pub(crate) consumers: Vec<ConsumerRow>,
    pub(crate) known_gaps: Vec<Gap>,
    pub(crate) given_up: GivenUp,
    /// No segment and no record says a later time.
    pub(crate) latest: u64,
    /// The page cache may show what the disk does not hold.
    pub(crate) suspect: bool,
    /// Cached bytes may have been lost since the queue was used last, and more is there than the checkpoint says.
    pub(crate) found_anew: bool,
    /// The queue was closed in order, or is new.
    pub(crate) clean: bool,
    /// The places may exist in the page cache alone.
    pub(crate) places_cached: bool,
}

/// What the walk over the records behind a known place found.
#[derive(Debug)]
struct Walked {
    tail: Spot,
    holes: Vec<(Spot, Spot)>,
    /// Padding and recorded gaps.
    empty: Vec<(Spot, Spot)>,
}

/// Opens the files of the queue in `storage`, whose lock is held.
pub(crate) fn recover<S: Storage>(storage: &S, create: bool, count_others: bool) -> Result<Recovered<S>> {
    let io = |op, name: &str, error| Error::io(op, storage.path().join(name), error);
    let nonce = random_u64(storage);
    let file = match IndexFile::read(storage) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            // A directory, a link or a device of that name.
            set_aside(storage, INDEX_NAME);
            None
        }
        other => other.map_err(|error| io("open", INDEX_NAME, error))?,
    };
    if let Some(IndexFile { header: Err(Invalid::Version(found)), .. }) = file {
        return Err(unsupported(storage, INDEX_NAME, found));
    }
    let token = storage.life();
    let (mut image, mut known_id) = (IndexImage::default(), None);
    if let Some(file) = &file
        && let Ok(queue_id) = file.header
    {
        image = IndexImage::read(&file.bytes, &queue_id);
        known_id = Some(queue_id);
    }
    let cache_intact = known_id.is_some() && image.live.token == token;
    let clean = image.checkpoint.is_some_and(|checkpoint| checkpoint.clean);
    let rows_are_told = known_id.is_some()
        && !image.segments.is_empty()
        && (clean || cache_intact)
        && !(cache_intact && image.live.flags & FLAG_CHANGING != 0)
        && !image.segments_damaged
        && rows_are_complete(&image, cache_intact);
    let rows_believed = rows_are_told
        && ends_are_in_place(storage, &image.segments)
        && (cache_intact || rows_match_files(storage, &image.segments));
    let mut rows = Rows::default();
    if rows_believed {
        rows.take(&image.segments);
    } else {
        let durable = image.checkpoint.map_or(u64::MAX, |checkpoint| checkpoint.position);
        rows.read_all(storage, known_id, &image.segments, durable)?;
    }
    if count_others || !rows_believed {
        rows.other_bytes = other_bytes(storage);
    }
    if !rows_believed {
        // What the rows say of each file they said when it was last made longer.
        rows.measure(storage);
    }
    let queue_id = match (known_id, rows.queue_id) {
        (_, Some(id)) => id,
        (Some(id), None) => id,
        (None, None) => storage.random(),
    };
    if file.is_none() && rows.is_empty() && !create {
        return Err(Error::NotFound { what: "queue", name: storage.path().display().to_string() });
    }
    let index = match file {
        Some(file) if known_id == Some(queue_id) => Index::adopt(file.file, queue_id, nonce, &image),
        Some(file) => {
            // Damaged, or another queue's: out of the way, and whatever in it is still ours is carried over.
            image = IndexImage::read(&file.bytes, &queue_id);
            image.extents.clear();
            drop(file);
            set_aside(storage, INDEX_NAME);
            Index::create(storage, queue_id, nonce)
        }
        None => Index::create(storage, queue_id, nonce),
    }
    .map_err(|error| io("open", INDEX_NAME, error))?;
    let made_anew = known_id != Some(queue_id);
    let cache_intact = cache_intact && !made_anew;
    let clean = clean && !made_anew;

    rows.live.sort_by_key(|row| (row.header.base, row.header.life));
    let mut stale = rows.drop_outlived();
    let start = start_of_walk(&image, &rows.live, cache_intact);
    let trusted = cache_intact || clean;
    // Numbers never fall: what begins behind the start with a lower one was let go of before.
    let known = |row: &Row| row.header.base < start.position || row.header.first_seq >= start.seq;
    let (live, outlived) = rows.live.drain(..).partition(known);
    rows.live = live;
    stale.extend(outlived);
    let checkpoint = image.checkpoint;
    // A kill between the stores of the tail: it came in a commit, so everything that was pushed is whole.
    let committing = cache_intact && image.live.tail.is_none();
    let walked =
        walk(storage, &rows.live, start, !trusted, committing).map_err(|(name, error)| io("read", &name, error))?;
    let mut tail = walked.tail;
    let mut next = None;
    // What begins behind the tail, or at it with another number, was begun for a record that never was.
    let behind = |row: &Row| {
        let base = Spot { position: row.header.base, seq: row.header.first_seq };
        base.position > tail.position || base.position == tail.position && base.seq != tail.seq
    };
    let kept = rows.live.iter().position(behind).unwrap_or(rows.live.len());
    stale.extend(rows.live.drain(kept..));
    if cache_intact
        && image.live.next_base != 0
        && tail == start
        && rows.live.last().is_none_or(|row| row.header.base < image.live.next_base)
    {
        next = Some(Next { base: image.live.next_base, gap: image.live.next_gap, cause: GapCause::Unflushed.number() });
    }
    // The numbers missing before the checkpoint, when the segment that was to state them is not there.
    let unstated = match checkpoint {
        Some(checkpoint) if !cache_intact && tail == start && tail.position == checkpoint.position => {
            let stated = rows.live.iter().any(|row| row.header.base == tail.position);
            if stated { 0 } else { checkpoint.gap.min(tail.seq) }
        }
        _ => 0,
    };
    if trusted && unstated > 0 {
        next = Some(Next { base: tail.position, gap: unstated, cause: GapCause::Unflushed.number() });
    }
    if !trusted {
        if let Some(checkpoint) = checkpoint {
            let stated = rows.live.iter().any(|row| row.header.base == checkpoint.position);
            let gap = if stated { 0 } else { checkpoint.gap.min(checkpoint.seq) };
            let mark = Spot { position: checkpoint.position, seq: checkpoint.seq - gap };
            let waiting = image.consumers.iter().any(|consumer| consumer.place.position < start.position);
            if mark.position < start.position && mark.seq < start.seq && waiting {
                // Segments lost behind the checkpoint, before the first one there is: told to whoever has not passed them.
                restate(storage, &mut rows.live, mark, start)?;
            } else if gap > 0 && mark.position == start.position && walked.tail != start {
                // The segment that was to say what is missing is lost: the next one says it.
                let next = rows.live.iter().map(|row| row.header.base).find(|base| *base > mark.position);
                let next = next.unwrap_or(mark.position);
                restate(storage, &mut rows.live, mark, Spot { position: next, seq: start.seq })?;
            }
            for (from, to) in &walked.holes {
                repair(storage, &rows.live, *from, *to)?;
                restate(storage, &mut rows.live, *from, *to)?;
            }
        }
        let lease = checkpoint.map_or(0, |checkpoint| checkpoint.lease);
        next = seal_tail(storage, &rows.live, &mut tail, lease, unstated)?;
        let sealed = (walked.tail, Spot { position: tail.position, seq: walked.tail.seq });
        let empty: Vec<_> = walked.holes.iter().chain(&walked.empty).copied().chain([sealed]).collect();
        leave_the_empty(storage, &index, &mut image.consumers, &empty)?;
    }
    if let Some(next) = next {
        // So was one that begins where the next is to begin.
        let kept = rows.live.partition_point(|row| row.header.base < next.base);
        stale.extend(rows.live.drain(kept..));
    }
    if !trusted && !stale.is_empty() {
        // They must not come back behind what is written from now on (R2): gone before the first append.
        stale.retain(|row| {
            let removed = storage.remove(&layout::segment_name(row.slot)).is_ok();
            if removed {
                index.write_segment_row(row.slot, None, u64::MAX);
            }
            !removed
        });
        storage.sync_directory().map_err(|error| Error::io(FLUSH, storage.path(), error))?;
    }
    // Places beyond the tail: consumed, but the messages did not reach the disk. And what was acknowledged: a number of it that
    // was given again would be taken for done.
    for consumer in &image.consumers {
        let place = consumer.place;
        let done = consumer.acks.iter().map(|(_, last)| last.saturating_add(1)).max().unwrap_or(0);
        let seq = place.seq.max(tail.seq).max(done);
        if seq > tail.seq || place.position > tail.position {
            let base = layout::align_up(place.position.max(tail.position).max(end_of(&rows.live)));
            let gap = next.map_or(0, |next: Next| next.gap) + (seq - tail.seq);
            tail = Spot { position: base, seq };
            next = Some(Next { base, gap, cause: GapCause::Unflushed.number() });
        }
    }
    let lowest = image.consumers.iter().map(|consumer| consumer.place.position).min();
    if let Some(lowest) = lowest {
        let passed = rows.live.iter().take_while(|row| row.header.end() <= lowest).count();
        let passed = passed.min(rows.live.len().saturating_sub(usize::from(next.is_none())));
        stale.extend(rows.live.drain(..passed));
    }
    // Segments that were given up, and not yet removed: they are not told of as missing and then delivered.
    let given_up = given_up(&image, cache_intact);
    let is_given_up = |at: usize| match rows.live.get(at + 1) {
        Some(behind) => behind.header.first_seq - behind.header.gap_before <= given_up.end(),
        None => next.is_some() && walked.tail.seq <= given_up.end(),
    };
    let count = (0..rows.live.len()).take_while(|at| is_given_up(*at)).count();
    stale.extend(rows.live.drain(..count));
    if !rows_believed && rows_are_told && image.consumers.is_empty() && known_id == Some(queue_id) {
        state_lost_beginning(storage, &mut rows.live, &image.segments);
    }
    let mut known_gaps: Vec<Gap> = rows.live.iter().filter_map(|row| gap_before(&row.header)).collect();
    if let Some(next) = next
        && next.gap > 0
    {
        known_gaps.push(Gap {
            first: tail.seq - next.gap,
            last: tail.seq - 1,
            cause: GapCause::from_number(next.cause),
        });
    }
    // A row may have reached the disk without its file.
    let noted_life = image.segments.iter().map(|(_, header)| header.life).max();
    let highest_life = rows.highest_life.max(noted_life).map_or(0, |life| life + 1);
    let next_life = highest_life.max(checkpoint.map_or(0, |checkpoint| checkpoint.next_life)).max(if cache_intact {
        image.live.next_life
    } else {
        0
    });
    let made = rows.live.iter().map(|row| row.header.created).max().unwrap_or(0);
    let latest = checkpoint.map_or(0, |c| c.latest).max(if cache_intact { image.live.latest } else { 0 }).max(made);
    let lease = checkpoint.map_or(0, |c| c.lease).max(if cache_intact { image.live.lease } else { 0 });
    let oldest = rows.live.first().map_or(tail, |row| Spot { position: row.header.base, seq: row.header.first_seq });
    let durable = if clean && !cache_intact {
        tail
    } else {
        checkpoint.map_or(oldest, |c| Spot { position: c.position, seq: c.seq })
    };
    // A flush may have said more than the checkpoint.
    let synced = image.live.synced.filter(|_| cache_intact).map(|(position, seq)| Spot { position, seq });
    let durable = synced.filter(|synced| synced.position > durable.position).unwrap_or(durable);
    // At the same position they differ by numbers that will never come.
    let durable = if durable.position >= tail.position || durable.seq > tail.seq { tail } else { durable };
    let live = Live {
        token,
        pid: std::process::id(),
        flags: if rows_believed { 0 } else { FLAG_CHANGING },
        next_life,
        lease,
        given_up: Some(given_up),
        latest,
        tail: Some((tail.position, tail.seq)),
        next_base: next.map_or(0, |next| next.base),
        next_gap: next.map_or(0, |next| next.gap),
        synced: Some((durable.position, durable.seq)),
    };
    let suspect = image.live.flags & FLAG_POISONED != 0 && cache_intact;
    // Who closes in order has synced the places, and says so by taking the process id out.
    let places_cached = cache_intact && (image.live.pid != 0 || suspect);
    if suspect {
        // As with the segments: pages that a failed sync left clean are stored again before the next one.
        index.store_again().map_err(|error| io("write", INDEX_NAME, error))?;
    }
    index.begin_life(&live);
    let mut complete = true;
    if !rows_believed {
        for (slot, _) in &image.segments {
            index.write_segment_row(*slot, None, u64::MAX);
        }
        for row in rows.live.iter().chain(&rows.spares).chain(&stale) {
            complete &= index.write_segment_row(row.slot, Some(&row.header), u64::MAX);
        }
        if complete {
            index.set_changing(false);
        }
    }
    if suspect {
        index.set_poisoned(true);
    }
    if made_anew {
        for consumer in &mut image.consumers {
            consumer.row = u32::MAX;
        }
    }
    Ok(Recovered {
        index,
        found: Found {
            live: rows.live,
            spares: rows.spares,
            drained: stale,
            foreign_slots: rows.foreign_slots,
            next_life,
            other_bytes: rows.other_bytes,
            rows_complete: complete,
        },
        tail,
        next,
        durable,
        lease,
        consumers: image.consumers,
        known_gaps,
        given_up,
        latest,
        suspect,
        found_anew: !trusted,
        clean: clean || made_anew,
        places_cached,
    })
}

fn random_u64<S: Storage>(storage: &S) -> u64 {
    let random = storage.random();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&random[..8]);
    u64::from_le_bytes(bytes)
}

fn unsupported<S: Storage>(storage: &S, name: &str, found: u32) -> Error {
    Error::UnsupportedFormat { path: storage.path().join(name), found, supported: layout::FORMAT_VERSION }
}

fn gap_before(header: &SegmentHeader) -> Option<Gap> {
    (header.gap_before > 0).then(|| Gap {
        first: header.first_seq - header.gap_before,
        last: header.first_seq - 1,
        cause: GapCause::from_number(header.cause),
    })
}

/// What was given up: the live part says it before the checkpoint does.
fn given_up(image: &IndexImage, cache_intact: bool) -> GivenUp {
    let noted = image.checkpoint.as_ref().map(GivenUp::of).unwrap_or_default();
    image.live.given_up.filter(|live| cache_intact && live.end() >= noted.end()).unwrap_or(noted)
}

fn end_of(rows: &[Row]) -> u64 {
    rows.last().map_or(0, |row| row.header.end())
}

/// No row is missing: the live segments follow each other without a break, and reach from the lowest place to the tail.
/// Where they rightly do not (the positions leap after a power cut), the headers are read; that is slower, never wrong.
fn rows_are_complete(image: &IndexImage, cache_intact: bool) -> bool {
    let live = image.segments.iter().map(|(_, header)| header).filter(|header| header.state == SegmentState::Live);
    let mut live: Vec<&SegmentHeader> = live.collect();
    live.sort_unstable_by_key(|header| header.base);
    let (Some(first), Some(last)) = (live.first(), live.last()) else {
        return false;
    };
    let unbroken = live.windows(2).all(|pair| pair[0].end() == pair[1].base);
    let tail = match (cache_intact, image.live.tail, image.checkpoint) {
        (true, Some((position, _)), _) => position,
        // The store of the live tail was cut short: the walk begins at the last segment, whichever that is.
        (true, None, _) => last.end(),
        (false, _, checkpoint) => checkpoint.map_or(0, |checkpoint| checkpoint.position),
    };
    let lowest = image.consumers.iter().map(|consumer| consumer.place.position).min().unwrap_or(0);
    let given_up = given_up(image, cache_intact).end();
    let from_the_lowest = first.base <= lowest || first.first_seq <= given_up;
    unbroken && from_the_lowest && (last.base..=last.end()).contains(&tail)
}

/// The first and the last live segment are where the index says. An index of another queue, or of another time, fails here.
fn ends_are_in_place<S: Storage>(storage: &S, segments: &[(u32, SegmentHeader)]) -> bool {
    let live = || segments.iter().filter(|(_, header)| header.state == SegmentState::Live);
    let ends = [live().min_by_key(|(_, header)| header.base), live().max_by_key(|(_, header)| header.base)];
    ends.into_iter()
        .flatten()
        .all(|(slot, header)| matches!(open_life(storage, *slot, header), Ok((_, len)) if len >= header.allocated))
}

/// After a clean end the queue may have been opened again and power cut: of a segment made then the file may be there and the
/// row not, or the other way round. A live one that is gone is found to be so by who reads.
fn rows_match_files<S: Storage>(storage: &S, segments: &[(u32, SegmentHeader)]) -> bool {
    let listed = storage.list().unwrap_or_default();
    let files: HashSet<u32> = listed.iter().filter_map(|listed| layout::segment_slot(&listed.name)).collect();
    let rows: HashSet<u32> = segments.iter().map(|(slot, _)| *slot).collect();
    let spares = segments.iter().filter(|(_, header)| header.state == SegmentState::Spare);
    files.is_subset(&rows) && spares.into_iter().all(|(slot, _)| files.contains(slot))
}

/// Bytes of disk that files take which are neither the index nor a segment.
fn other_bytes<S: Storage>(storage: &S) -> u64 {
    let listed = storage.list().unwrap_or_default();
    let others = listed
        .iter()
        .filter(|listed| listed.is_file && listed.name != INDEX_NAME && layout::segment_slot(&listed.name).is_none());
    others.filter_map(|listed| storage.open(&listed.name).and_then(|file| file.disk_bytes()).ok()).sum()
}

#[derive(Debug, Default)]
struct Rows {
    live: Vec<Row>,
    spares: Vec<Row>,
    foreign_slots: Vec<u32>,
    queue_id: Option<[u8; 16]>,
    highest_life: Option<u64>,
    other_bytes: u64,
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.live.is_empty() && self.spares.is_empty()
    }

    fn take(&mut self, segments: &[(u32, SegmentHeader)]) {
        for (slot, header) in segments {
            self.add(*slot, *header);
        }
    }

    /// Asks the filesystem what each segment really takes.
    fn measure<S: Storage>(&mut self, storage: &S) {
        for row in self.live.iter_mut().chain(&mut self.spares) {
            let taken = storage.open(&layout::segment_name(row.slot)).and_then(|file| file.disk_bytes());
            row.header.disk = taken.unwrap_or(0).max(row.header.allocated);
        }
    }

    fn add(&mut self, slot: u32, header: SegmentHeader) {
        self.highest_life = self.highest_life.max(Some(header.life));
        let row = Row::new(slot, header);
        match header.state {
            SegmentState::Live => self.live.push(row),
            SegmentState::Spare => self.spares.push(row),
        }
    }

    /// Reads the header of every segment file there is. Those of another queue, and what is no segment at all, are set
    /// aside; which queue this is, the index says when any segment agrees with it, else most segments do. From the position
    /// `durable` on nothing is known to be on the disk.
    fn read_all<S: Storage>(
        &mut self,
        storage: &S,
        known_id: Option<[u8; 16]>,
        noted: &[(u32, SegmentHeader)],
        durable: u64,
    ) -> Result<()> {
        let listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
        let mut headers: Vec<(u32, SegmentHeader)> = Vec::new();
        let mut damaged = Vec::new();
        for listed in &listed {
            let Some(slot) = layout::segment_slot(&listed.name) else {
                continue;
            };
            match read_segment(storage, slot) {
                Ok(header) => headers.push((slot, header)),
                Err(Unread::Version(found)) => return Err(unsupported(storage, &listed.name, found)),
                Err(Unread::Damaged(len)) => damaged.push((slot, len)),
                Err(Unread::Lost(Lost::Gone)) => damaged.push((slot, 0)),
                Err(Unread::Lost(Lost::Io(error))) => {
                    return Err(Error::io("open", storage.path().join(&listed.name), error));
                }
            }
        }
        let mut votes: HashMap<[u8; 16], usize> = HashMap::new();
        for (_, header) in &headers {
            *votes.entry(header.queue_id).or_default() += 1;
        }
        self.queue_id = match known_id {
            Some(id) if votes.contains_key(&id) || votes.is_empty() => Some(id),
            _ => votes.iter().max_by_key(|(_, votes)| **votes).map(|(id, _)| *id),
        };
        for (slot, header) in headers {
            if Some(header.queue_id) == self.queue_id {
                self.add(slot, header);
            } else {
                damaged.push((slot, 0));
            }
        }
        for (slot, len) in damaged {
            let known = noted.iter().find(|(other, header)| {
                *other == slot && header.state == SegmentState::Live && len > SEGMENT_HEADER_LEN
            });
            match known {
                Some((_, header)) if known_id == self.queue_id && put_header_back(storage, slot, header, len)? => {
                    let mut header = *header;
                    header.allocated = len.min(header.length);
                    self.add(slot, header);
                }
                // Where the checkpoint says that messages were, they are missed.
                known
                    if known.is_none_or(|(_, header)| header.base >= durable)
                        && is_blank(storage, slot)
                        && storage.remove(&layout::segment_name(slot)).is_ok() => {}
                _ => {
                    set_aside(storage, &layout::segment_name(slot));
                    self.foreign_slots.push(slot);
                }
            }
        }
        Ok(())
    }

    /// Lives and positions grow together: a segment that lies behind, or in the place of, one used later was let go of
    /// before that one was made, and its removal did not reach the disk. Those are returned.
    fn drop_outlived(&mut self) -> Vec<Row> {
        let mut dropped = Vec::new();
        let mut kept: Vec<Row> = Vec::with_capacity(self.live.len());
        for row in self.live.drain(..) {
            while let Some(last) = kept.last()
                && last.header.end() > row.header.base
                && last.header.life < row.header.life
            {
                dropped.extend(kept.pop());
            }
            if kept.last().is_some_and(|last| last.header.life > row.header.life) {
                dropped.push(row);
            } else {
                kept.push(row);
            }
        }
        self.live = kept;
        dropped
    }
}

enum Unread {
    Lost(Lost),
    Version(u32),
    /// With the length of the file.
    Damaged(u64),
}

fn read_segment<S: Storage>(storage: &S, slot: u32) -> Result<SegmentHeader, Unread> {
    let file = storage.open(&layout::segment_name(slot)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Unread::Lost(Lost::Gone),
        _ => Unread::Lost(Lost::Io(error)),
    })?;
    let io = |error| Unread::Lost(Lost::Io(error));
    let len = file.len().map_err(io)?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    crate::index::read_full(&file, &mut bytes, 0).map_err(io)?;
    match SegmentHeader::decode(&bytes) {
        Ok(mut header) => {
            header.allocated = len.min(header.length);
            Ok(header)
        }
        Err(Invalid::Version(found)) => Err(Unread::Version(found)),
        Err(Invalid::Damaged) => Err(Unread::Damaged(len)),
    }
}

/// The header of the file in `slot` is damaged. When it is the segment that the index knows there, which what it holds says
/// (the file may be a new one in the place of one that was removed, and the row older), the header is written again, and
/// durably: the rows are about to be written anew, and another crash could leave neither.
fn put_header_back<S: Storage>(storage: &S, slot: u32, header: &SegmentHeader, len: u64) -> Result<bool> {
    let name = layout::segment_name(slot);
    let io = |op, error| Error::io(op, storage.path().join(&name), error);
    let file = storage.open(&name).map_err(|error| io("open", error))?;
    if !holds_any_of(&file, header, len).map_err(|error| io("read", error))? {
        return Ok(false);
    }
    // Best effort, as long as the disk does not claim what it did not do.
    if file.write_at(&header.in_file().encode(), 0).is_ok() {
        file.sync().map_err(|error| io(FLUSH, error))?;
    }
    Ok(true)
}

/// Whether the file holds nothing at all: it was being made, and its header was never written or did not reach the disk.
fn is_blank<S: Storage>(storage: &S, slot: u32) -> bool {
    let read = || {
        let file = storage.open(&layout::segment_name(slot))?;
        let (mut bytes, mut offset) = (vec![0; 64 << 10], 0);
        loop {
            let read = crate::index::read_full(&file, &mut bytes, offset)?;
            if read == 0 || bytes[..read].iter().any(|byte| *byte != 0) {
                return Ok::<_, io::Error>(read == 0);
            }
            offset += read as u64;
        }
    };
    read().unwrap_or(false)
}

/// Whether anything in the file was written for that segment.
fn holds_any_of<F: StorageFile>(file: &F, header: &SegmentHeader, len: u64) -> io::Result<bool> {
    let mut scan = Scan::new(file, header, header.base + len.saturating_sub(SEGMENT_HEADER_LEN));
    let continues = scan.header_at(header.base)?.is_some_and(|seen| {
        // The rest of a record that began before, bound to what is not here.
        let numbers = [header.first_seq, header.first_seq.wrapping_sub(1)];
        matches!(seen.fragment.kind, Kind::Middle | Kind::Last)
            && numbers.into_iter().any(|number| seen.fragment.is_numbered(number))
    });
    Ok(continues || scan.search(header.base, header.first_seq, u64::MAX >> 2)?.is_some())
}

/// Where the walk begins: the best place that is known to lie at or before the tail.
fn start_of_walk(image: &IndexImage, live: &[Row], cache_intact: bool) -> Spot {
    let base_of = |row: &Row| Spot { position: row.header.base, seq: row.header.first_seq };
    let known = match (cache_intact, image.checkpoint) {
        (true, _) => match image.live.tail {
            Some((position, seq)) => Some(Spot { position, seq }),
            None => live.last().map(base_of),
        },
        (false, Some(checkpoint)) => Some(Spot { position: checkpoint.position, seq: checkpoint.seq }),
        (false, None) => None,
    };
    match (known, live.first()) {
        // Everything that is still held lies behind it.
        (Some(known), Some(first)) if known.position < first.header.base => base_of(first),
        (Some(known), _) => known,
        (None, Some(first)) => base_of(first),
        (None, None) => Spot::default(),
    }
}

/// Goes over whole units (records with all their fragments, batches with all their records) from `start` on. Stops at the
/// first place that does not validate; with `search` looks behind it for more.
/// With `committing` the segment that begins at `start` may begin in the middle of a unit, of which nothing is missing.
fn walk<S: Storage>(
    storage: &S,
    rows: &[Row],
    start: Spot,
    search: bool,
    committing: bool,
) -> Result<Walked, (String, io::Error)> {
    let mut walked = Walked { tail: start, holes: Vec::new(), empty: Vec::new() };
    let mut at = start;
    let mut unit = Unit::new(start);
    let mut end = start.position;
    // Binds the fragments of a record to each other.
    let mut chain = 0;
    let first = rows.partition_point(|row| row.header.end() <= start.position);
    for row in &rows[first..] {
        let name = layout::segment_name(row.slot);
        let fail = |error| (name.clone(), error);
        let (file, len) = match open_life(storage, row.slot, &row.header) {
            Ok(opened) => opened,
            Err(Lost::Gone) if search => {
                unit.broken();
                continue;
            }
            Err(Lost::Gone) => break,
            Err(Lost::Io(error)) => return Err(fail(error)),
        };
        if unit.inside() && end != row.header.base {
            // A segment is missing, and with it a piece of the unit.
            unit.broken();
        }
        end = row.header.end();
        at.position = at.position.max(row.header.base);
        if at.position == row.header.base && at.seq != row.header.first_seq {
            let continues = unit.in_record && row.header.first_seq == at.seq + 1;
            if !search && row.header.first_seq.saturating_sub(row.header.gap_before) != at.seq && !continues {
                break;
            }
            // Known gaps and lost segments: the numbers go on with the segment's own, unless a recorded gap reaches into it.
            if !continues && row.header.first_seq > at.seq {
                if unit.inside() || at.seq < row.header.first_seq.saturating_sub(row.header.gap_before) {
                    unit.broken();
                }
                at.seq = row.header.first_seq;
                unit.begin(at);
                if !unit.hole {
                    // The segment itself says what is missing: the tail may stand at its beginning.
                    walked.tail = at;
                }
            }
        }
        let limit = row.header.base + len.saturating_sub(SEGMENT_HEADER_LEN);
        let mut scan = Scan::new(&file, &row.header, limit);
        // What is left at the end may be too short for a fragment.
        while at.position + layout::FRAGMENT_HEADER_LEN <= row.header.end() {
            if committing
                && at.position == start.position
                && let Some(seen) = scan.header_at(at.position).map_err(fail)?
            {
                match seen.fragment.kind {
                    Kind::Middle | Kind::Last => {
                        // It goes on with what is behind it, whether that is of the same batch or not.
                        at.position = seen.end();
                        unit.in_batch = seen.fragment.more;
                        walked.tail = at;
                        continue;
                    }
                    _ => unit.in_batch = seen.fragment.continues,
                }
            }
            match scan.fragment_at(at.position, chain).map_err(fail)? {
                Some(seen)
                    if unit.accepts(&seen.fragment, at.seq) && unit.seal_holds(&seen, &mut scan).map_err(fail)? =>
                {
                    let end = Spot { position: seen.end(), seq: at.seq };
                    unit.add_to_seal(&seen);
                    at = unit.add(&seen.fragment, at, end, &mut walked);
                    chain = seen.checksum();
                }
                _ if !search => break,
                _ => {
                    unit.broken();
                    let from = at.position + layout::ALIGN;
                    let Some((seen, number)) = scan.search(from, at.seq, u64::MAX >> 2).map_err(fail)? else {
                        break;
                    };
                    at = Spot { position: seen.position, seq: number };
                    chain = 0;
                    unit.begin(at);
                }
            }
        }
    }
    Ok(walked)
}

/// What is being put together: a record of several fragments, a batch of several records.
#[derive(Debug)]
struct Unit {
    start: Spot,
    /// Fragments of an unfinished record came before.
    in_record: bool,
    /// Records of an unfinished batch came before.
    in_batch: bool,
    /// Something before `start` did not validate.
    hole: bool,
    /// Of the batch; none when its beginning is not at hand.
    seal: Option<Seal>,
}

impl Unit {
    fn new(start: Spot) -> Unit {
        Unit { start, in_record: false, in_batch: false, hole: false, seal: None }
    }

    fn inside(&self) -> bool {
        self.in_record || self.in_batch
    }

    fn begin(&mut self, at: Spot) {
        self.start = at;
        self.in_record = false;
        self.in_batch = false;
        self.seal = None;
    }

    fn broken(&mut self) {
        self.begin(self.start);
        self.hole = true;
    }

    fn accepts(&self, fragment: &layout::Fragment, seq: u64) -> bool {
        match fragment.kind {
            Kind::Padding => fragment.is_numbered(seq),
            Kind::Time => fragment.is_numbered(seq) && !self.in_record,
            Kind::Gap => !self.inside(),
            #[cfg(test)]
            Kind::Whole | Kind::First if crate::sim::Mutant::TornBatchAccepted.is_planted() => {
                fragment.is_numbered(seq) && !self.in_record
            }
            Kind::Whole | Kind::First => {
                fragment.is_numbered(seq) && !self.in_record && (fragment.continues == self.in_batch || self.hole)
            }
            Kind::Middle | Kind::Last => fragment.is_numbered(seq) && self.in_record,
        }
    }

    /// Whether the records before this one in its batch are those that it was written with. Asked of the last one; where
    /// the beginning of the batch is not at hand, it goes with the hole it lies in, or is known to be whole.
    fn seal_holds<F: StorageFile>(&self, seen: &Seen, scan: &mut Scan<'_, F>) -> io::Result<bool> {
        #[cfg(test)]
        if crate::sim::Mutant::SealNotChecked.is_planted() || crate::sim::Mutant::TornBatchAccepted.is_planted() {
            return Ok(true);
        }
        let fragment = &seen.fragment;
        if !matches!(fragment.kind, Kind::Whole | Kind::Last) || !fragment.continues || fragment.more {
            return Ok(true);
        }
        match self.seal {
            Some(mut seal) if self.in_batch => {
                seal.add(seen.checksum());
                Ok(scan.seal(seen)? == Some(seal.word()))
            }
            _ => Ok(true),
        }
    }

    fn add_to_seal(&mut self, seen: &Seen) {
        if matches!(seen.fragment.kind, Kind::Whole | Kind::First) && seen.fragment.more && !seen.fragment.continues {
            self.seal = Some(Seal::NEW);
        }
        if !seen.fragment.kind.is_empty()
            && let Some(seal) = &mut self.seal
        {
            seal.add(seen.checksum());
        }
    }

    /// Takes a fragment in and returns where the next one is.
    fn add(&mut self, fragment: &layout::Fragment, at: Spot, end: Spot, walked: &mut Walked) -> Spot {
        let mut next = end;
        match fragment.kind {
            Kind::Padding | Kind::Time => {
                walked.empty.push((at, next));
                if !self.inside() && !self.hole {
                    // Nothing lies between: the tail may stand behind it.
                    walked.tail = next;
                    self.start = next;
                }
                return next;
            }
            Kind::Gap => {
                next.seq = fragment.seq_from(at.seq);
                walked.empty.push((at, next));
                self.finish(at, next, walked);
                return next;
            }
            Kind::First => {
                self.open(at, fragment);
                self.in_record = true;
                return next;
            }
            Kind::Middle => return next,
            Kind::Whole => self.open(at, fragment),
            Kind::Last => self.in_record = false,
        }
        next.seq = at.seq + 1;
        if fragment.continues && self.hole && !self.in_batch {
            // Its batch began in the hole: it goes with it.
            self.start = next;
            return next;
        }
        #[cfg(test)]
        let more = fragment.more && !crate::sim::Mutant::TornBatchAccepted.is_planted();
        #[cfg(not(test))]
        let more = fragment.more;
        if more {
            self.in_batch = true;
        } else {
            self.finish(self.start, next, walked);
        }
        next
    }

    fn open(&mut self, at: Spot, fragment: &layout::Fragment) {
        if !self.in_batch && !fragment.continues {
            self.start = at;
        }
    }

    fn finish(&mut self, start: Spot, end: Spot, walked: &mut Walked) {
        if self.hole {
            walked.holes.push((walked.tail, start));
            self.hole = false;
        }
        self.begin(end);
        walked.tail = end;
    }
}

/// Writes a gap fragment over a hole, so that it is told with its cause however often the queue is opened. Best effort:
/// without it the reader finds the hole by itself and calls it damage.
fn repair<S: Storage>(storage: &S, rows: &[Row], from: Spot, to: Spot) -> Result<()> {
    let first = rows.partition_point(|row| row.header.end() <= from.position);
    for row in &rows[first..] {
        let start = from.position.max(row.header.base);
        let end = to.position.min(row.header.end());
        if start >= end {
            break;
        }
        if let Ok((file, len)) = open_life(storage, row.slot, &row.header)
            && start - row.header.base + SEGMENT_HEADER_LEN + layout::FRAGMENT_HEADER_LEN <= len
        {
            let filled = fill(&file, &row.header, Kind::Gap, start, end, to.seq);
            keep(storage, row.slot, &file, filled)?;
        }
    }
    Ok(())
}

/// What was written over the traces of a power cut is made durable before anything is claimed that lies beyond it: another cut
/// would bring them back.
fn keep<S: Storage>(storage: &S, slot: u32, file: &S::File, written: io::Result<()>) -> Result<()> {
    match written {
        Ok(()) => file.sync().map_err(|error| Error::io(FLUSH, storage.path().join(layout::segment_name(slot)), error)),
        Err(_) => Ok(()),
    }
}

/// Where a segment begins within a hole, or at one of its ends, its header says what is missing before it. Best effort.
fn restate<S: Storage>(storage: &S, rows: &mut [Row], from: Spot, to: Spot) -> Result<()> {
    for row in rows {
        let within = from.position <= row.header.base && row.header.base <= to.position;
        if !within || row.header.first_seq - row.header.gap_before <= from.seq {
            continue;
        }
        let mut header = row.header;
        header.gap_before = header.first_seq - from.seq;
        header.cause = GapCause::Unflushed.number();
        if let Ok((file, _)) = open_life(storage, row.slot, &row.header)
            && file.write_at(&header.in_file().encode(), 0).is_ok()
        {
            row.header = header;
            keep(storage, row.slot, &file, Ok(()))?;
        }
    }
    Ok(())
}

/// With no consumer yet everything is held, from the first segment that the index knows. When that one is lost, the first there
/// is says what is missing before it, for whoever begins there.
fn state_lost_beginning<S: Storage>(storage: &S, rows: &mut [Row], noted: &[(u32, SegmentHeader)]) {
    let live = noted.iter().map(|(_, header)| header).filter(|header| header.state == SegmentState::Live);
    let (Some(known), Some(first)) = (live.min_by_key(|header| header.base), rows.first_mut()) else {
        return;
    };
    let mut header = first.header;
    if known.base >= header.base || known.first_seq >= header.first_seq - header.gap_before {
        return;
    }
    header.gap_before = header.first_seq - known.first_seq;
    header.cause = GapCause::Damaged.number();
    if let Ok((file, _)) = open_life(storage, first.slot, &first.header)
        && file.write_at(&header.in_file().encode(), 0).is_ok()
    {
        first.header = header;
    }
}

/// A place that reached the disk without the messages before it may lie in the middle of what is empty now, and old bytes
/// may stand there that look like a record: those of a unit that was given up. So it goes where the emptiness begins, when
/// that tells of missing numbers, or else to its end; its number stays. Done before the live part is believed.
fn leave_the_empty<S: Storage>(
    storage: &S,
    index: &Index<S>,
    consumers: &mut [ConsumerRow],
    empty: &[(Spot, Spot)],
) -> Result<()> {
    for consumer in consumers.iter_mut().filter(|consumer| consumer.row != u32::MAX) {
        let place = &mut consumer.place;
        let around = empty.iter().find(|(from, to)| from.position < place.position && place.position < to.position);
        if let Some((from, to)) = around {
            let (_, mut slot) = index.add_consumer(storage, Some(consumer.row), &consumer.name, *place, u64::MAX)?;
            place.position = if from.seq == to.seq { to.position } else { from.position };
            place.number += 1;
            slot.store(place.position, place.seq);
        }
    }
    Ok(())
}

/// Ends the last segment at the tail, and says how the next one follows it.
fn seal_tail<S: Storage>(
    storage: &S,
    rows: &[Row],
    tail: &mut Spot,
    lease: u64,
    unstated: u64,
) -> Result<Option<Next>> {
    let at = rows.partition_point(|row| row.header.end() <= tail.position);
    let row = rows.get(at).filter(|row| row.header.base <= tail.position);
    if let Some(row) = row
        && let Ok((file, len)) = open_life(storage, row.slot, &row.header)
        && tail.position - row.header.base + SEGMENT_HEADER_LEN + layout::FRAGMENT_HEADER_LEN <= len
    {
        let filled = fill(&file, &row.header, Kind::Padding, tail.position, row.header.end(), tail.seq);
        keep(storage, row.slot, &file, filled)?;
    }
    let gap = lease.saturating_sub(tail.seq);
    if rows.is_empty() && gap + unstated == 0 {
        return Ok(None);
    }
    // Never zero, which would say in the live part that there is no next segment to state the gap.
    let base = layout::align_up(tail.position).max(row.map_or(0, |row| row.header.end())).max(layout::ALIGN);
    *tail = Spot { position: base, seq: tail.seq + gap };
    Ok(Some(Next { base, gap: gap + unstated, cause: GapCause::Unflushed.number() }))
}
