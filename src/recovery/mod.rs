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
//! no cached byte can have been lost, so the live part of the index is exact up to the store that was cut short. Its bytes may
//! be damaged all the same, as any other: each part of it has a check of its own, seeded with the queue's id. The tail and
//! the marks of flushes are stored for themselves; everything else of the run is one record, stored twice, one copy after the
//! other, so that neither a kill nor a damaged byte costs it. (Two slots in turn with a number, as for checkpoints, would
//! outlive the kill alone: with the newer one damaged, the older would be believed.) Without a valid record of the run the
//! checkpoint counts, as after a power cut. A number, position, life or time of 2^62 or more is refused wherever it is read.
//! Four cases, from best to worst:
//!
//! | found | segments from | tail from | appends go on |
//! |---|---|---|---|
//! | same life token | index rows; headers, when a change of segments was cut short | live part, then forward over what validates | in the last segment |
//! | clean end (a durable checkpoint says so) | index rows | checkpoint | in the last segment |
//! | same boot and directory, another mount | index rows | checkpoint, then a search; the live part says how far it must come | in the last segment when all is there, else in a new one |
//! | anything else | headers of all segment files | checkpoint, then a search through everything behind it | in a new segment |
//!
//! The rows are held against the files in every case: the listing, the headers of the spares, and of the first and the last live
//! segment. A file that bears a life which the index does not know of was written by a run of which this index knows nothing:
//! it is an **older copy, put back**. The next life is stored before any header bears the one before it, and a mark of a
//! clean end is taken back, durably, before a segment is begun: so this is exact. Nothing of such an index is believed but what
//! stays true for ever: its marks are lower bounds, and what is found behind them wins. (A copy so young that no segment
//! was begun since is as good as the index itself: the walk goes on from its tail.)
//!
//! **Another mount in the same boot** is a container, a mount namespace of a sandboxed service, or a file system that failed and was
//! mounted anew: the first two lost no byte, the third any that was not synced. The walk tells them apart as far as that can
//! be told. A kill leaves no hole, at most one unit behind the published tail, and nothing of what the index states missing: then the
//! queue goes on right behind what was found, without a gap, and nothing is synced for it; durable is what was synced before,
//! and a promise of durability to come (`flush_every_ops(1)`) makes what was found durable as after any kill (R4). Otherwise it is
//! a power cut. What cannot be told: a failed file system that lost the index's last page and all of the segments' pages as
//! old as it; numbers given out since may be given out again then. The cost is bounded by the bytes since the checkpoint. Before Linux
//! 6.8 no mount can be known to be the same, and every kill is met this way.
//!
//! # What is stated binds
//!
//! Whatever valid part of the index names a number as given out, synced, passed or acknowledged (the live tail also in a copy,
//! where the token differs; the marks of flushes, the checkpoint, places, acknowledgements), that number is told: by its message
//! or in a gap, and without waiting for a later message. What the walk does not find of it is `Damaged` when it was said to
//! be on the disk, else `Unflushed`; behind it the numbers up to the lease are `Reserved`. The gap is stated by the segment that
//! begins next, whose base lies a word behind every position a reader may have come to: so a reader at the end of what is there
//! finds that nothing holds its place, and is told at once. A trusted opening that does not find what is stated is not trusted: it
//! searches, as after a power cut. With no consumer everything is held from the mark on that the checkpoint keeps (`HELD_SEQ`,
//! durable before a passed segment goes): whoever comes first is told of a beginning, or a whole queue, that is lost.
//!
//! A gap says how many of its numbers, at its end, were only reserved. Two power cuts with nothing durable between, and something given
//! out, make one gap of lost, reserved and again lost numbers: told as lost up to the last of these. One segment's header states
//! all of it, for the one that was to state the first part never came to be, and has one such count; any number of cuts would take a
//! list. So numbers that nobody ever got may be told as lost.
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
//! - **A consumer's place ahead of the tail** (its place reached the disk, the messages did not): it is stated, and the tail starts
//!   there. A place within a hole or within the sealed rest of a segment leaves it (`leave_the_empty`): old bytes of a unit that was
//!   given up may look like a record there.
//! - **A segment lost whole**: no unit reaches over it, here or in the reader. The segment behind it states in its header what
//!   is missing (`restate`), so that it is told alike by every later opening.
//! - **Numbers missing before a segment that is not made yet**: the live part says so, and goes on saying so when it is made,
//!   for it may be lost again; and so does the checkpoint that names the same position (`DURABLE_GAP`).
//! - **A piece of a unit that was given up cannot be overwritten** (padding at the tail, a gap over a hole): the opening fails. It is
//!   tried by a call and, where a store needs no space, through a mapping, so that a full disk is no reason. A header that cannot be
//!   made to state a gap is no reason either: the segment's row in the index states it, and counts for a file of the same life.
//! - **Power cut after a kill**: opening after the kill believed the page cache; nothing it did made that durable by itself,
//!   and nothing claims so: `durable` is what the checkpoint and the flushes before the kill said, until the next flush; which,
//!   as closing does, makes durable what the kill left, messages and places. The checkpoint slot that won is
//!   stored again and synced before the other one is touched (R1).
//! - **After a power cut** what was found behind the checkpoint was found on the disk, and what was flushed is among it; nothing says
//!   how much. So opening makes all of it durable before it returns: what comes to depend on how much is durable (the next
//!   rule does) does not count it for lost when power is cut again.
//! - **Segments used again or removed**: only after a sync of the directory, of the places that stand behind them (R8), and of a
//!   checkpoint that says what was dropped or had expired, from where on messages are held, and how much of the rest is durable: what is held may begin in the middle of a batch then, of which
//!   recovery keeps what lies behind the checkpoint alone. A removal that comes back after a power cut, or an old header over newer bytes,
//!   brings a segment that every place has passed: it is let go again, by its numbers. What a power cut leaves behind the tail is
//!   removed, durably, before anything is appended (R2); where it cannot be removed its header says that it is a spare. Lives, positions and numbers grow together: of segments that contradict that the one with the
//!   highest life counts (R9), and no life is used again that a row of the index names.
//! - **A consumer's row that a power cut left in part** (a place without its name): what is left in it is forgotten, durably, before
//!   another consumer has the row, or a second cut could bring the new name and the old place.
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
//! A directory without a valid index may be somebody else's: see `foreign`. Else a damaged or foreign index is set aside and
//! made anew from the segments; the places in it that still validate are carried over. Where its header alone is damaged, and what stands in it for the queue's id makes other parts valid, the
//! header is written again and nothing is lost. An index of which a sector cannot be read is made anew, too: mapped, it
//! would kill the process. What is set aside counts in `max_bytes`.
//!
//! **What an index that is lost altogether takes with it.** The segments do not say what was read: a file that is not there may have
//! been given back, or a power cut that took the index's name, too, never let it come to be (both names are made durable by
//! the first flush, not before the first message). So, where neither a checkpoint nor a place is left:
//!
//! - the numbers before the first segment are told as `Unflushed` to whoever comes first, though they may have been read, dropped or
//!   expired;
//! - where the first segment begins within a batch, the rest of that batch goes, and is told as `Unflushed`, flushed or not: a part of a
//!   batch is never delivered for a whole one. (With a checkpoint it is known that what begins behind it is whole.)
//!
//! Of holes before the durable mark nothing is overwritten: it is damage, and whoever reads there says so (R7).

mod foreign;

use std::collections::{HashMap, HashSet};
use std::io;

use crate::error::{Error, Gap, GapCause, Result};
use crate::events;
use crate::format::Spot;
use crate::format::filler;
use crate::format::{
    self, FLAG_CHANGING, FLAG_POISONED, INDEX_NAME, Invalid, Kind, SEGMENT_HEADER_LEN, Seal, SegmentHeader,
    SegmentState,
};
use crate::index::image::{ConsumerRow, IndexImage, Live};
use crate::index::losses::GivenUp;
use crate::index::run::{Next, Run};
use crate::index::{Index, IndexFile};
use crate::recovery::foreign::refuse_foreign;
use crate::segment::scan::{Scan, Seen};
use crate::segment::{Found, Lost, Row, open_life, set_aside};
use crate::storage::{Storage, StorageFile, Stores};

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
    /// Whole units that end behind this position.
    mark: u64,
    units_behind: u64,
}

/// How the walk goes.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// Behind what does not validate it looks for more.
    search: bool,
    /// The segment that begins at the start may begin in the middle of a unit, of which nothing is missing.
    committing: bool,
    /// Units behind that position are counted.
    mark: u64,
}

/// So many bytes are looked through between two events.
const PROGRESS: u64 = 64 << 20;

/// Opens the files of the queue in `storage`, whose lock is held.
pub(crate) fn recover<S: Storage>(storage: &S, create: bool, count_others: bool) -> Result<Recovered<S>> {
    let io = |op, name: &str, error| Error::io(op, storage.path().join(name), error);
    let nonce = random_u64(storage);
    let found = IndexFile::read(storage);
    let is_in_doubt = match &found {
        Ok(file) => file.as_ref().is_none_or(|file| file.header == Err(Invalid::Damaged)),
        Err(error) => error.kind() == io::ErrorKind::InvalidData,
    };
    if is_in_doubt {
        refuse_foreign(storage)?;
    }
    let file = match found {
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
    let life = storage.life();
    let (mut image, mut known_id) = (IndexImage::default(), None);
    if let Some(file) = &file
        && let Some(queue_id) = file.queue_id()
    {
        image = IndexImage::read(&file.bytes, &queue_id);
        known_id = Some(queue_id);
    }
    let may_adopt = known_id.is_some() && file.as_ref().is_some_and(|file| !file.unreadable);
    let same_place = may_adopt && image.live.run.is_some() && image.live.life.place == life.place;
    let mut belief = match image.checkpoint {
        _ if same_place && image.live.life.is(&life) => Belief::Cache,
        Some(checkpoint) if may_adopt && checkpoint.clean => Belief::CleanEnd,
        _ if same_place => Belief::Mount,
        _ => Belief::Disk,
    };
    let rows_are_told = !image.segments.is_empty()
        && belief != Belief::Disk
        && belief.of_cache(&image).is_none_or(|run| run.flags & FLAG_CHANGING == 0)
        && !image.segments_damaged
        && rows_are_complete(&image, belief);
    let rows_believed =
        rows_are_told && ends_are_in_place(storage, &image.segments) && rows_match_files(storage, &image.segments);
    let mut rows = Rows::default();
    if rows_believed {
        rows.take(&image.segments);
    } else {
        let durable = image.checkpoint.map_or(u64::MAX, |checkpoint| checkpoint.position);
        rows.read_all(storage, known_id, &image.segments, durable)?;
    }
    if !rows_believed {
        // What the rows say of each file they said when it was last made longer.
        rows.measure(storage);
    }
    if belief.is_outdated(&image, &rows) {
        belief = Belief::Disk;
    }
    let queue_id = match (known_id, rows.queue_id) {
        (_, Some(id)) => id,
        (Some(id), None) => id,
        (None, None) => storage.random(),
    };
    if file.is_none() && rows.is_empty() && !create {
        return Err(Error::no_queue(storage.path()));
    }
    let made_anew = !may_adopt || known_id != Some(queue_id);
    let index = match file {
        Some(file) if !made_anew => {
            Index::adopt(storage.path(), file.repaired(&queue_id, storage.now()), queue_id, nonce, &image)
        }
        Some(file) => {
            // Damaged, or another queue's: out of the way, and whatever in it is still ours is carried over.
            image = IndexImage::read(&file.bytes, &queue_id);
            image.extents.clear();
            // Of a queue that never had a segment, what a kill or a power cut left of its making: there is nothing to be looked at, and
            // set aside it would count in `max_bytes` for ever.
            let was_being_made = rows.is_empty() && file.was_being_made();
            drop(file);
            if !was_being_made || storage.remove(INDEX_NAME).is_err() {
                set_aside(storage, INDEX_NAME);
            }
            Index::create(storage, queue_id, nonce)
        }
        None => Index::create(storage, queue_id, nonce),
    }
    .map_err(|error| io("open", INDEX_NAME, error))?;
    if made_anew {
        belief = Belief::Disk;
    }
    rows.live.sort_by_key(|row| (row.header.base, row.header.life));
    let mut stale = rows.drop_outlived();
    let start = start_of_walk(&image, &rows.live, belief);
    // Numbers never fall: what begins behind the start with a lower one was let go of before.
    let known = |row: &Row| row.header.base < start.position || row.header.first_seq >= start.seq;
    let (live, outlived) = rows.live.drain(..).partition(known);
    rows.live = live;
    stale.extend(outlived);
    let checkpoint = image.checkpoint;
    // A kill between the stores of the tail: it came in a commit, so everything that was pushed is whole.
    let committing = belief == Belief::Cache && image.live.tail.is_none();
    let read = |(name, error): (String, _)| io("read", &name, error);
    let searches = matches!(belief, Belief::Mount | Belief::Disk);
    let look = Look { search: searches, committing, mark: image.live.tail.map_or(u64::MAX, |(position, _)| position) };
    let mut walked = walk(storage, &rows.live, start, look).map_err(read)?;
    let cached = belief.of_cache(&image);
    let stated = Stated::by(&image);
    let (mut next, mut reached) = pending(&image, &rows.live, walked.tail, belief);
    if !belief.is_met(&image, &walked, reached, &stated) {
        // Something is damaged, or was lost with the mount: all that is left is looked for.
        if !searches {
            walked = walk(storage, &rows.live, start, Look { search: true, ..look }).map_err(read)?;
            (next, reached) = pending(&image, &rows.live, walked.tail, belief);
        }
        belief = Belief::Disk;
    }
    let trusted = belief != Belief::Disk;
    let mut tail = walked.tail;
    // What begins behind the tail, or at it with another number, was begun for a record that never was.
    let behind = |row: &Row| {
        let base = Spot { position: row.header.base, seq: row.header.first_seq };
        base.position > tail.position || base.position == tail.position && base.seq != tail.seq
    };
    let kept = rows.live.iter().position(behind).unwrap_or(rows.live.len());
    stale.extend(rows.live.drain(kept..));
    let given_up = given_up(&image, belief);
    // Whatever it was true for, no life, number or time was used that this does not say.
    let run = image.live.run.unwrap_or_default();
    let lease = run.lease.max(checkpoint.map_or(0, |checkpoint| checkpoint.lease));
    if trusted {
        tail = reached;
    } else {
        if let Some(checkpoint) = checkpoint {
            let stated = rows.live.iter().any(|row| row.header.base == checkpoint.position);
            let gap = if stated { 0 } else { checkpoint.gap.min(checkpoint.seq) };
            let mark = Spot { position: checkpoint.position, seq: checkpoint.seq - gap };
            let waiting = image.consumers.iter().any(|consumer| consumer.place.position < start.position);
            if mark.position < start.position && mark.seq < start.seq && waiting {
                // Segments lost behind the checkpoint, before the first one there is: told to whoever has not passed them.
                restate(storage, &index, &mut rows.live, mark, start)?;
            } else if gap > 0 && mark.position == start.position && walked.tail != start {
                // The segment that was to say what is missing is lost: the next one says it.
                let next = rows.live.iter().map(|row| row.header.base).find(|base| *base > mark.position);
                let next = next.unwrap_or(mark.position);
                restate(storage, &index, &mut rows.live, mark, Spot { position: next, seq: start.seq })?;
            }
        }
        // What was on the disk and does not validate is damaged: whoever reads there finds that, and tells it as such (R7).
        walked.holes.retain(|(_, to)| to.position > stated.durable.position || to.seq > stated.durable.seq);
        for (from, to) in &walked.holes {
            repair(storage, &rows.live, *from, *to)?;
            restate(storage, &index, &mut rows.live, *from, *to)?;
        }
        let missing = stated.missing_behind(reached, next, lease, given_up.end());
        next = seal_tail(storage, &rows.live, tail, stated.position, next, missing)?;
        tail = next.map_or(tail, |next| spot_of(&next));
        // Who stands there has yet to be told of what is missing.
        let sealed_end = tail.position - if tail.seq > walked.tail.seq { format::ALIGN } else { 0 };
        let sealed = (walked.tail, Spot { position: sealed_end, seq: walked.tail.seq });
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
        for row in stale.drain(..) {
            let kept = let_go(storage, &row, row.header.base < stated.durable.position)?;
            index.write_segment_row(row.slot, kept.as_ref().map(|spare| &spare.header), u64::MAX);
            rows.spares.extend(kept);
        }
        storage.sync_directory().map_err(|failed| failed.ends_opening(storage.path()))?;
    }
    // Segments that were given up or passed by everybody, and not yet removed, or are back since: what is left in them is not delivered
    // to somebody new. Of consumers that were removed the checkpoint says how far they came.
    let held_from = held_from(&image, belief);
    let is_let_go = |at: usize| match rows.live.get(at + 1) {
        Some(behind) => behind.header.missing_from() <= held_from,
        None => next.is_some_and(|next| next.seq - next.gap <= held_from),
    };
    let count = (0..rows.live.len()).take_while(|at| is_let_go(*at)).count();
    stale.extend(rows.live.drain(..count));
    if image.consumers.is_empty() {
        // Everything is held from there on: passed by consumers that were removed since is what lies before.
        let cause = if held_from < stated.durable.seq { GapCause::Damaged } else { GapCause::Unflushed };
        next = state_lost_beginning(storage, &index, &mut rows.live, tail, next, held_from, cause.number())?;
        tail = next.map_or(tail, |next| spot_of(&next));
    }
    let mut known_gaps: Vec<Gap> = rows.live.iter().flat_map(|row| gaps_before(&row.header)).collect();
    if let Some(next) = next {
        known_gaps.extend(gaps_of(next.seq, next.gap, next.reserved, next.cause));
    }
    // A row may have reached the disk without its file.
    let noted_life = image.segments.iter().map(|(_, header)| header.life).max();
    let highest_life = rows.highest_life.max(noted_life).map_or(0, |life| life + 1);
    let next_life = highest_life.max(checkpoint.map_or(0, |checkpoint| checkpoint.next_life)).max(run.next_life);
    let made = rows.live.iter().map(|row| row.header.created).max().unwrap_or(0);
    let latest = checkpoint.map_or(0, |c| c.latest).max(run.latest).max(made);
    let oldest = rows.live.first().map_or(tail, |row| Spot { position: row.header.base, seq: row.header.first_seq });
    let durable = if belief == Belief::CleanEnd {
        tail
    } else {
        checkpoint.map_or(oldest, |c| Spot { position: c.position, seq: c.seq })
    };
    // A flush may have said more than the checkpoint.
    let synced = image.live.synced.map(|(position, seq)| Spot { position, seq });
    let durable = synced.filter(|synced| synced.position > durable.position).unwrap_or(durable);
    // At the same position they differ by numbers that will never come.
    let durable = if durable.position >= tail.position || durable.seq > tail.seq { tail } else { durable };
    let flags = if rows_believed { 0 } else { FLAG_CHANGING };
    let live = Live {
        life,
        pid: std::process::id(),
        // What was said of a segment that is there stays said until it is durable.
        run: Some(Run { flags, next_life, lease, given_up, latest, next: next.or(run.next) }),
        tail: Some((tail.position, tail.seq)),
        synced: Some((durable.position, durable.seq)),
    };
    let suspect = cached.is_some_and(|run| run.flags & FLAG_POISONED != 0);
    // Who closes in order has synced the places, and says so by taking the process id out.
    let places_cached = cached.is_some() && (image.live.pid != 0 || suspect);
    let clean = checkpoint.is_some_and(|c| c.clean) && matches!(belief, Belief::Cache | Belief::CleanEnd);
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
        index.stay_suspect();
    }
    if made_anew {
        for consumer in &mut image.consumers {
            consumer.row = u32::MAX;
        }
    }
    // Counted last: what was set aside above is among them.
    let other_bytes = if count_others || !rows_believed || made_anew || !trusted { other_bytes(storage) } else { 0 };
    Ok(Recovered {
        index,
        found: Found {
            live: rows.live,
            spares: rows.spares,
            drained: stale,
            foreign_slots: rows.foreign_slots,
            next_life,
            other_bytes,
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
    Error::UnsupportedFormat { path: storage.path().join(name), found, supported: format::FORMAT_VERSION }
}

fn gaps_before(header: &SegmentHeader) -> impl Iterator<Item = Gap> + use<> {
    gaps_of(header.first_seq, header.gap_before, header.reserved, header.cause)
}

/// The `gap` numbers before `end`, of which the last were only reserved.
fn gaps_of(end: u64, gap: u64, reserved: u64, cause: u8) -> impl Iterator<Item = Gap> + use<> {
    let (first, between) = (end - gap, end - reserved);
    let gaps = [(first, between, GapCause::from_number(cause)), (between, end, GapCause::Reserved)];
    gaps.into_iter().filter(|(first, end, _)| first < end).map(|(first, end, cause)| Gap {
        first,
        last: end - 1,
        cause,
    })
}

/// What was given up: the live part says it before the checkpoint does.
fn given_up(image: &IndexImage, belief: Belief) -> GivenUp {
    let noted = image.checkpoint.as_ref().map(GivenUp::of).unwrap_or_default();
    let live = belief.of_cache(image).map(|run| run.given_up);
    live.filter(|live| live.end() >= noted.end()).unwrap_or(noted)
}

/// From that number on messages are held: those before were given up, or passed by every consumer. Of consumers that were removed the
/// checkpoint says how far they came.
fn held_from(image: &IndexImage, belief: Belief) -> u64 {
    let lowest = image.consumers.iter().map(|consumer| consumer.place.seq).min();
    let passed = lowest.or(image.checkpoint.map(|checkpoint| checkpoint.held));
    given_up(image, belief).end().max(passed.unwrap_or(0))
}

/// What of the index is believed, beyond what a power cut leaves true of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belief {
    /// No cached byte can have been lost: the live part is exact.
    Cache,
    /// The queue was closed in order and nothing was done to it since.
    CleanEnd,
    /// The boot and the directory are the same, the mount is another one or not known. In a container or another mount namespace
    /// no byte was lost; if the file system failed and was mounted anew, any that was not synced.
    Mount,
    /// What is on the disk.
    Disk,
}

impl Belief {
    /// What the live part says of the run, where it is believed.
    fn of_cache(self, image: &IndexImage) -> Option<Run> {
        image.live.run.filter(|_| matches!(self, Belief::Cache | Belief::Mount))
    }

    /// A file bears a life that the index does not know of: an older copy of the index was put back, and nothing of it is exact.
    /// The next life is stored before a header bears the one before it, and the mark of a clean end is taken back before
    /// a segment is begun (a spare may be made without that).
    fn is_outdated(self, image: &IndexImage, rows: &Rows) -> bool {
        let made_since = |rows: &[Row], next_life: u64| rows.iter().any(|row| row.header.life >= next_life);
        match self {
            Belief::Cache | Belief::Mount => image
                .live
                .run
                .is_some_and(|run| made_since(&rows.live, run.next_life) || made_since(&rows.spares, run.next_life)),
            Belief::CleanEnd => image.checkpoint.is_some_and(|checkpoint| made_since(&rows.live, checkpoint.next_life)),
            Belief::Disk => false,
        }
    }

    /// Whether what the walk found is what the index says is there. With another mount also whether nothing shows that bytes
    /// were lost with the one before: a kill leaves no hole, and at most one unit behind the tail that was published.
    fn is_met(self, image: &IndexImage, walked: &Walked, reached: Spot, stated: &Stated) -> bool {
        let all_there = reached.seq >= stated.seq && reached.position >= stated.position;
        match self {
            Belief::Disk => true,
            Belief::Cache | Belief::CleanEnd => all_there,
            Belief::Mount => {
                all_there && image.live.tail.is_some() && walked.holes.is_empty() && walked.units_behind <= 1
            }
        }
    }
}

/// The highest that any valid part of the index says of numbers given out, passed by a consumer, or told to be missing.
#[derive(Debug, Clone, Copy)]
struct Stated {
    position: u64,
    seq: u64,
    /// What was said to be on the disk.
    durable: Spot,
}

impl Stated {
    fn by(image: &IndexImage) -> Stated {
        let checkpoint = image.checkpoint.map(|checkpoint| (checkpoint.position, checkpoint.seq));
        let durable = [checkpoint, image.live.synced].into_iter().flatten();
        // What was acknowledged: a number of it that was given again would be taken for done.
        let done = |consumer: &ConsumerRow| consumer.acks.iter().map(|(_, last)| last + 1).max().unwrap_or(0);
        #[cfg(test)]
        let forgotten = crate::tests::sim::Mutant::AcknowledgedNumberGivenAgain.is_planted();
        #[cfg(test)]
        let done = |consumer: &ConsumerRow| if forgotten { 0 } else { done(consumer) };
        let consumers = image.consumers.iter();
        let places = consumers.map(|consumer| (consumer.place.position, consumer.place.seq.max(done(consumer))));
        let spots = || durable.clone().chain(image.live.tail).chain(places.clone());
        Stated {
            position: spots().map(|(position, _)| position).max().unwrap_or(0),
            seq: spots().map(|(_, seq)| seq).max().unwrap_or(0),
            durable: durable.max().map(|(position, seq)| Spot { position, seq }).unwrap_or_default(),
        }
    }

    /// What is missing behind what was found: the numbers known to have been given out, then those up to the lease, which
    /// were only reserved. With what was missing before anyway. What was given up needs no cause of its own.
    fn missing_behind(&self, found: Spot, before: Option<Next>, lease: u64, given_up: u64) -> Next {
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

/// How the next segment was to begin when it is not there, and the tail with what it states: of the run, or of the
/// checkpoint that names the same position.
fn pending(image: &IndexImage, live: &[Row], tail: Spot, belief: Belief) -> (Option<Next>, Spot) {
    // The checkpoint may lie within what is missing; and what was given up is not counted among it.
    let seq = tail.seq.max(given_up(image, belief).end());
    let follows = |next: &Next| (next.seq - next.gap..=next.seq).contains(&seq) && tail.position <= next.base;
    let is_there = |base: u64| live.iter().any(|row| row.header.base == base);
    let of_run = image.live.run.and_then(|run| run.next).filter(|next| !is_there(next.base) && follows(next));
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

/// No row is missing: the live segments follow each other without a break, and reach from the lowest place to the tail.
/// Where numbers are missing the positions leap by one word, so that a reader at the end of the segment before has a way to go and
/// is told of them; where they leap by more, the headers are read; that is slower, never wrong.
fn rows_are_complete(image: &IndexImage, belief: Belief) -> bool {
    let live = image.segments.iter().map(|(_, header)| header).filter(|header| header.state == SegmentState::Live);
    let mut live: Vec<&SegmentHeader> = live.collect();
    live.sort_unstable_by_key(|header| header.base);
    let (Some(first), Some(last)) = (live.first(), live.last()) else {
        return false;
    };
    let follows = |end: u64, next: u64| (end..=end + format::ALIGN).contains(&next);
    let unbroken = live.windows(2).all(|pair| follows(pair[0].end(), pair[1].base));
    let tail = match (belief.of_cache(image).is_some(), image.live.tail, image.checkpoint) {
        (true, Some((position, _)), _) => position,
        // The store of the live tail was cut short: the walk begins at the last segment, whichever that is.
        (true, None, _) => last.end(),
        (false, _, checkpoint) => checkpoint.map_or(0, |checkpoint| checkpoint.position),
    };
    unbroken
        && first.missing_from() <= held_from(image, belief)
        && (last.base..=last.end() + format::ALIGN).contains(&tail)
}

/// The first and the last live segment are where the index says. An index of another queue, or of another time, fails here.
fn ends_are_in_place<S: Storage>(storage: &S, segments: &[(u32, SegmentHeader)]) -> bool {
    #[cfg(test)]
    if crate::tests::sim::Mutant::EndsNotLookedAt.is_planted() {
        return true;
    }
    let live = || segments.iter().filter(|(_, header)| header.state == SegmentState::Live);
    let ends = [live().min_by_key(|(_, header)| header.base), live().max_by_key(|(_, header)| header.base)];
    ends.into_iter()
        .flatten()
        .all(|(slot, header)| matches!(open_life(storage, *slot, header), Ok((_, len)) if len >= header.allocated))
}

/// There is a row for each segment file, and each spare is what its row says. After a clean end the queue may have been opened
/// again and power cut: of a segment made then the file may be there and the row not, or the other way round. Or the index
/// is an older copy, put back: what was made since has no row, or took a spare's file. A live one that is gone is found to be
/// so by who reads.
fn rows_match_files<S: Storage>(storage: &S, segments: &[(u32, SegmentHeader)]) -> bool {
    let listed = storage.list().unwrap_or_default();
    let files: HashSet<u32> = listed.iter().filter_map(|listed| format::segment_slot(&listed.name)).collect();
    let rows: HashSet<u32> = segments.iter().map(|(slot, _)| *slot).collect();
    let mut spares = segments.iter().filter(|(_, header)| header.state == SegmentState::Spare);
    let is_it = |slot: u32, noted: &SegmentHeader| {
        let found = read_segment(storage, slot);
        found.is_ok_and(|found| found.life == noted.life && found.queue_id == noted.queue_id)
    };
    files.is_subset(&rows) && spares.all(|(slot, header)| is_it(*slot, header))
}

/// Bytes of disk that files take which are neither the index nor a segment.
fn other_bytes<S: Storage>(storage: &S) -> u64 {
    let listed = storage.list().unwrap_or_default();
    let others = listed
        .iter()
        .filter(|listed| listed.is_file && listed.name != INDEX_NAME && format::segment_slot(&listed.name).is_none());
    others.filter_map(|listed| storage.open(&listed.name).and_then(|file| file.disk_bytes()).ok()).sum()
}

#[derive(Debug, Default)]
struct Rows {
    live: Vec<Row>,
    spares: Vec<Row>,
    foreign_slots: Vec<u32>,
    queue_id: Option<[u8; 16]>,
    highest_life: Option<u64>,
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
            let taken = storage.open(&format::segment_name(row.slot)).and_then(|file| file.disk_bytes());
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
            let Some(slot) = format::segment_slot(&listed.name) else {
                continue;
            };
            match read_segment(storage, slot) {
                Ok(header) => {
                    let row = noted.iter().find(|(other, row)| *other == slot && row.life == header.life);
                    headers.push((slot, row.map_or(header, |(_, row)| header.with_more_missing(row))));
                }
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
                        && storage.remove(&format::segment_name(slot)).is_ok() => {}
                _ => {
                    set_aside(storage, &format::segment_name(slot));
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
    let file = storage.open(&format::segment_name(slot)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Unread::Lost(Lost::Gone),
        _ => Unread::Lost(Lost::Io(error)),
    })?;
    let io = |error| Unread::Lost(Lost::Io(error));
    let len = file.len().map_err(io)?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    crate::storage::read_full(&file, &mut bytes, 0).map_err(io)?;
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
    let name = format::segment_name(slot);
    let io = |op, error| Error::io(op, storage.path().join(&name), error);
    let file = storage.open(&name).map_err(|error| io("open", error))?;
    if !holds_any_of(&file, header, len).map_err(|error| io("read", error))? {
        return Ok(false);
    }
    // Best effort, as long as the disk does not claim what it did not do.
    if file.write_at(&header.in_file().encode(), 0).is_ok() {
        file.sync().map_err(|failed| failed.ends_opening(storage.path().join(&name)))?;
    }
    Ok(true)
}

/// Whether the file holds nothing at all: it was being made, and its header was never written or did not reach the disk.
fn is_blank<S: Storage>(storage: &S, slot: u32) -> bool {
    let read = || {
        let file = storage.open(&format::segment_name(slot))?;
        let (mut bytes, mut offset) = (vec![0; 64 << 10], 0);
        loop {
            let read = crate::storage::read_full(&file, &mut bytes, offset)?;
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

/// Where the first record of the next segment lies.
fn spot_of(next: &Next) -> Spot {
    Spot { position: next.base, seq: next.seq }
}

/// How the next segment is to begin, when it is not there yet.
fn next_of_run(run: &Run, live: &[Row]) -> Option<Next> {
    run.next.filter(|next| live.last().is_none_or(|row| row.header.base < next.base))
}

/// Where the walk begins: the best place that is known to lie at or before the tail.
fn start_of_walk(image: &IndexImage, live: &[Row], belief: Belief) -> Spot {
    let base_of = |row: &Row| Spot { position: row.header.base, seq: row.header.first_seq };
    let known = match (belief == Belief::Cache, image.checkpoint) {
        (true, _) => {
            let next = image.live.run.and_then(|run| next_of_run(&run, live));
            let next = next.map(|next| spot_of(&next));
            match image.live.tail.map(|(position, seq)| Spot { position, seq }) {
                // Both are stored anew when the queue is opened, the tail later.
                Some(tail) => next.filter(|next| next.seq > tail.seq).or(Some(tail)),
                None => next.or(live.last().map(base_of)),
            }
        }
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
/// first place that does not validate, unless it is to search.
fn walk<S: Storage>(storage: &S, rows: &[Row], start: Spot, look: Look) -> Result<Walked, (String, io::Error)> {
    let Look { search, committing, mark } = look;
    let mut walked = Walked { tail: start, holes: Vec::new(), empty: Vec::new(), mark, units_behind: 0 };
    let mut told = start.position;
    let mut at = start;
    let mut unit = Unit::new(start);
    let mut end = start.position;
    // Binds the fragments of a record to each other.
    let mut chain = 0;
    let first = rows.partition_point(|row| row.header.end() <= start.position);
    for row in &rows[first..] {
        let name = format::segment_name(row.slot);
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
            if !search && row.header.missing_from() != at.seq && !continues {
                break;
            }
            // Known gaps and lost segments: the numbers go on with the segment's own, unless a recorded gap reaches into it.
            if !continues && row.header.first_seq > at.seq {
                if unit.inside() || at.seq < row.header.missing_from() {
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
        while at.position + format::FRAGMENT_HEADER_LEN <= row.header.end() {
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
            if at.position - told >= PROGRESS {
                told = at.position;
                events::recovering(storage.path(), told - start.position);
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
                    let from = at.position + format::ALIGN;
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

    fn accepts(&self, fragment: &format::Fragment, seq: u64) -> bool {
        match fragment.kind {
            Kind::Padding => fragment.is_numbered(seq),
            Kind::Time => fragment.is_numbered(seq) && !self.in_record,
            Kind::Gap => !self.inside(),
            #[cfg(test)]
            Kind::Whole | Kind::First if crate::tests::sim::Mutant::TornBatchAccepted.is_planted() => {
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
        if crate::tests::sim::Mutant::SealNotChecked.is_planted()
            || crate::tests::sim::Mutant::TornBatchAccepted.is_planted()
        {
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
    fn add(&mut self, fragment: &format::Fragment, at: Spot, end: Spot, walked: &mut Walked) -> Spot {
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
        let more = fragment.more && !crate::tests::sim::Mutant::TornBatchAccepted.is_planted();
        #[cfg(not(test))]
        let more = fragment.more;
        if more {
            self.in_batch = true;
        } else {
            self.finish(self.start, next, walked);
        }
        next
    }

    fn open(&mut self, at: Spot, fragment: &format::Fragment) {
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
        walked.units_behind += u64::from(end.position > walked.mark);
    }
}

/// Writes a gap fragment over a hole, so that it is told with its cause however often the queue is opened, and that no piece of
/// a unit that was given up is read there.
fn repair<S: Storage>(storage: &S, rows: &[Row], from: Spot, to: Spot) -> Result<()> {
    let first = rows.partition_point(|row| row.header.end() <= from.position);
    for row in &rows[first..] {
        let start = from.position.max(row.header.base);
        let end = to.position.min(row.header.end());
        if start >= end {
            break;
        }
        fill(storage, row, Kind::Gap, Spot { position: start, seq: to.seq }, end)?;
    }
    Ok(())
}

/// Writes a fragment that holds nothing over the traces of a power cut, in space that is there, and makes it durable before anything is
/// claimed that lies beyond it: another cut would bring them back. What cannot be overwritten would be read again, pieces of
/// a unit that was given up among it: so the opening fails then. A full disk is no reason: where a store needs no space, it is
/// stored. Where the file is gone, or ends, nothing is read.
fn fill<S: Storage>(storage: &S, row: &Row, kind: Kind, at: Spot, end: u64) -> Result<()> {
    let path = || storage.path().join(format::segment_name(row.slot));
    let (file, len) = match open_life(storage, row.slot, &row.header) {
        Ok(opened) => opened,
        Err(Lost::Gone) => return Ok(()),
        Err(Lost::Io(error)) => return Err(Error::io("open", path(), error)),
    };
    let offset = at.position - row.header.base + SEGMENT_HEADER_LEN;
    let Some(bytes) = filler(&row.header, kind, at.position, end, at.seq) else {
        return Ok(());
    };
    if offset + format::FRAGMENT_HEADER_LEN > len {
        return Ok(());
    }
    #[cfg(test)]
    if crate::tests::sim::Mutant::TornRestKept.is_planted() && file.write_at(&bytes, offset).is_err() {
        return Ok(());
    }
    overwrite(storage, row.slot, &file, &bytes, offset)
}

/// Writes in space that is there, and makes it durable. Where a store needs no space a full disk is no reason to fail.
fn overwrite<S: Storage>(storage: &S, slot: u32, file: &S::File, bytes: &[u8], offset: u64) -> Result<()> {
    let path = || storage.path().join(format::segment_name(slot));
    if let Err(error) = file.write_at(bytes, offset) {
        let window = if file.stores() == Stores::ByMap { file.map(offset, bytes.len()).ok() } else { None };
        window.ok_or_else(|| Error::io("write", path(), error))?.copy_in(0, bytes);
    }
    file.sync().map_err(|failed| failed.ends_opening(path()))
}

/// Removes a segment that is none any more, or sets it aside, durably once the directory is synced. Where it cannot be removed it
/// becomes a spare, which is returned: as a segment it would be delivered by an opening that finds its header, or stand in the way
/// of what is written behind the tail. Where that cannot be either, the opening fails.
fn let_go<S: Storage>(storage: &S, row: &Row, held_messages: bool) -> Result<Option<Row>> {
    let name = format::segment_name(row.slot);
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    if held_messages {
        // They are damaged all.
        set_aside(storage, &name);
        let still_there = storage.open(&name).err().is_none_or(|error| !gone(&error));
        let failed = || Error::io("set aside", storage.path().join(&name), io::ErrorKind::PermissionDenied.into());
        return if still_there { Err(failed()) } else { Ok(None) };
    }
    match storage.remove(&name) {
        Err(error) if !gone(&error) => {
            let (file, _) = open_life(storage, row.slot, &row.header)
                .map_err(|_| Error::io("remove", storage.path().join(&name), error))?;
            let header = SegmentHeader { state: SegmentState::Spare, ..row.header };
            overwrite(storage, row.slot, &file, &header.in_file().encode(), 0)?;
            Ok(Some(Row::new(row.slot, header)))
        }
        _ => Ok(None),
    }
}

/// Where a segment begins within a hole, or at one of its ends, its header says what is missing before it.
fn restate<S: Storage>(storage: &S, index: &Index<S>, rows: &mut [Row], from: Spot, to: Spot) -> Result<()> {
    for row in rows {
        let within = from.position <= row.header.base && row.header.base <= to.position;
        if !within || row.header.missing_from() <= from.seq {
            continue;
        }
        let mut header = row.header;
        header.gap_before = header.first_seq - from.seq;
        header.cause = GapCause::Unflushed.number();
        state(storage, index, row, header)?;
    }
    Ok(())
}

/// Has a segment say in its header what is missing before it, and in its row: that counts where the header cannot be written.
fn state<S: Storage>(storage: &S, index: &Index<S>, row: &mut Row, header: SegmentHeader) -> Result<()> {
    let opened = open_life(storage, row.slot, &row.header);
    row.header = header;
    index.write_segment_row(row.slot, Some(&header), u64::MAX);
    if let Ok((file, _)) = opened
        && file.write_at(&header.in_file().encode(), 0).is_ok()
    {
        file.sync().map_err(|failed| failed.ends_opening(storage.path().join(format::segment_name(row.slot))))?;
    }
    Ok(())
}

/// Nobody has read yet what was held from the number `held_from` on. The first segment there is says what is missing before it, for
/// whoever begins there; without any the next one does.
fn state_lost_beginning<S: Storage>(
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
        return Ok(if is_stated { next } else { Some(Next { gap: before.seq - held_from, cause, ..before }) });
    };
    let mut header = first.header;
    if held_from < header.missing_from() {
        header.gap_before = header.first_seq - held_from;
        header.cause = cause;
        state(storage, index, first, header)?;
    }
    Ok(next)
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
            // What is missing may have been told before it, in an earlier segment: the place's own number counts.
            place.position = if place.seq < to.seq { from.position } else { to.position };
            place.number += 1;
            slot.store(place.position, place.seq);
        }
    }
    Ok(())
}

/// Ends the last segment at the tail, and says how the next one follows it: behind every position that was stated, and a word
/// further where numbers are missing that were not before, so that a reader who stands at the end has a way to go and is told
/// of them.
fn seal_tail<S: Storage>(
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
    if rows.is_empty() && missing.gap == 0 && stated <= tail.position {
        return Ok(None);
    }
    let reach = format::align_up(tail.position).max(row.map_or(0, |row| row.header.end())).max(stated);
    let base = match pending {
        Some(pending) if pending.seq == missing.seq && pending.base >= reach => pending.base,
        _ if missing.gap > 0 => reach.max(pending.map_or(0, |pending| pending.base)) + format::ALIGN,
        // Never zero, which would say in the live part that there is no next segment.
        _ => reach.max(format::ALIGN),
    };
    Ok(Some(Next { base, ..missing }))
}
