#![doc = include_str!("../../docs/recovery.md")]

mod belief;
mod foreign;
mod publish;
mod repair;
mod rows;
mod tail;
mod unit;
mod walk;

use std::io;

use crate::error::{Error, Gap, GapCause, Result};
use crate::format::{self, INDEX_NAME, Invalid, Spot};
use crate::index::image::{ConsumerRow, IndexImage};
use crate::index::losses::GivenUp;
use crate::index::run::{Next, Run};
use crate::index::{Index, IndexFile};
use crate::options::Options;
use crate::recovery::belief::{Belief, given_up, held_from};
use crate::recovery::foreign::refuse_foreign;
use crate::recovery::repair::{Holds, discard, repair, restate};
use crate::recovery::rows::{Gathered, Rows, believe_rows_or_gather_headers};
use crate::recovery::tail::{
    Stated, close_tail, leave_the_empty, pending, spot_of, state_lost_beginning,
};
use crate::recovery::walk::{Look, Walked, start_of_walk, walk};
use crate::segment::{Found, Row, set_aside};
use crate::storage::{CacheToken, Storage};

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
    /// The page cache may show what the disk does not hold.
    pub(crate) suspect: bool,
    /// Cached bytes may have been lost since the queue was used last, and more is there than the
    /// checkpoint says.
    pub(crate) found_anew: bool,
    /// The queue was closed in order, or is new.
    pub(crate) clean: bool,
    /// The places may exist in the page cache alone.
    pub(crate) places_cached: bool,
}

/// Opens the files of the queue in `storage`, whose lock is held.
pub(crate) fn recover<S: Storage>(storage: &S, options: &Options) -> Result<Recovered<S>> {
    let nonce = random_u64(storage);
    let mut read = read_index(storage)?;
    let gathered =
        believe_rows_or_gather_headers(storage, &read.image, read.queue_id, read.belief)?;
    if read.belief.is_outdated(&read.image, &gathered.rows) {
        read.belief = Belief::Disk;
    }
    if read.file.is_none() && gathered.rows.is_empty() && !options.create {
        return Err(Error::no_queue(storage.path()));
    }
    let mut known = take_up_index(storage, nonce, read, gathered)?;
    let mut end = find_end(storage, &mut known)?;
    let tail = if known.belief.is_trusted() {
        Tail { spot: end.reached, next: end.next }
    } else {
        mend(storage, &mut known, &mut end)?;
        place_tail(storage, &mut known, &end)?
    };
    let tail = discard_unused(storage, &mut known, &end.stated, tail)?;
    publish::publish(storage, known, tail, options)
}

/// What is known when the index was read.
struct ReadIndex<S: Storage> {
    file: Option<IndexFile<S>>,
    image: IndexImage,
    /// Whose index it is.
    queue_id: Option<[u8; 16]>,
    /// Its file may go on as the index.
    may_adopt: bool,
    token: CacheToken,
    belief: Belief,
}

/// Reads the index file, whatever it holds. Refuses a directory that is not a queue's.
fn read_index<S: Storage>(storage: &S) -> Result<ReadIndex<S>> {
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
        other => other.map_err(|error| index_error(storage, "open", error))?,
    };
    if let Some(IndexFile { header: Err(Invalid::Version(found)), .. }) = file {
        return Err(unsupported(storage, INDEX_NAME, found));
    }
    let token = storage.cache_token();
    let known = file.as_ref().and_then(|file| Some((file, file.queue_id()?)));
    let Some((known, queue_id)) = known else {
        let (image, belief) = (IndexImage::default(), Belief::Disk);
        return Ok(ReadIndex { file, image, queue_id: None, may_adopt: false, token, belief });
    };
    let image = IndexImage::read(&known.bytes, &queue_id);
    let may_adopt = !known.unreadable;
    let belief = if may_adopt { Belief::in_index(&image, &token) } else { Belief::Disk };
    Ok(ReadIndex { file, image, queue_id: Some(queue_id), may_adopt, token, belief })
}

/// What is known from the moment on that there is an index to write to. `belief` falls when what
/// follows contradicts it.
struct Known<S: Storage> {
    index: Index<S>,
    image: IndexImage,
    token: CacheToken,
    belief: Belief,
    /// The live part as it was believed before the walk.
    cached: Option<Run>,
    rows: Rows,
    rows_from_index: bool,
    /// The index was not there, or not to be used.
    made_anew: bool,
}

/// Goes on with the index file, or makes a new one: then what is still valid in the old one is
/// carried over.
fn take_up_index<S: Storage>(
    storage: &S,
    nonce: u64,
    read: ReadIndex<S>,
    gathered: Gathered,
) -> Result<Known<S>> {
    let ReadIndex { file, mut image, queue_id: known_id, may_adopt, token, belief } = read;
    let Gathered { rows, from_index: rows_from_index } = gathered;
    let queue_id = rows.queue_id.or(known_id).unwrap_or_else(|| storage.random());
    let made_anew = !may_adopt || known_id != Some(queue_id);
    let index = match file {
        Some(file) if !made_anew => Index::adopt(
            storage.path(),
            file.repaired(&queue_id, storage.now()),
            queue_id,
            nonce,
            &image,
        ),
        Some(file) => {
            // Damaged, or another queue's: out of the way, and whatever in it is still ours is
            // carried over.
            image = IndexImage::read(&file.bytes, &queue_id);
            image.extents.clear();
            // Of a queue that never had a segment, what a kill or a power cut left of its making:
            // there is nothing to be looked at, and set aside it would count in `max_bytes` for
            // ever.
            let was_being_made = rows.is_empty() && file.was_being_made();
            drop(file);
            if !was_being_made || storage.remove(INDEX_NAME).is_err() {
                set_aside(storage, INDEX_NAME);
            }
            Index::create(storage, queue_id, nonce)
        }
        None => Index::create(storage, queue_id, nonce),
    }
    .map_err(|error| index_error(storage, "open", error))?;
    let belief = if made_anew { Belief::Disk } else { belief };
    let cached = belief.of_cache(&image);
    Ok(Known { index, image, token, belief, cached, rows, rows_from_index, made_anew })
}

/// Where what is there ends, and what should be there.
struct End {
    start: Spot,
    walked: Walked,
    stated: Stated,
    /// How the next segment was to begin, where it is not there.
    next: Option<Next>,
    /// The tail, with what that segment was to state.
    reached: Spot,
}

/// Walks from the best place that is known to the end of what is there. Where that is not what the
/// index states, the belief in it ends, and the rest is searched.
fn find_end<S: Storage>(storage: &S, known: &mut Known<S>) -> Result<End> {
    let Known { image, rows, belief, .. } = known;
    rows.drop_outlived();
    let start = start_of_walk(image, &rows.live, *belief);
    // Numbers never fall: what begins behind the start with a lower one was let go of before.
    rows.retain_live(|row| row.header.base < start.position || row.header.first_seq >= start.seq);
    let read = |(name, error): (String, _)| Error::io("read", storage.path().join(name), error);
    let look = Look::with(*belief, image, rows);
    let mut walked = walk(storage, &rows.live, start, look).map_err(read)?;
    let stated = Stated::by(image);
    let (mut next, mut reached) = pending(image, &rows.live, walked.tail, *belief);
    if !belief.is_met(image, &walked, reached, &stated) {
        // Something is damaged, or was lost with the mount: all that is left is looked for.
        if !look.search {
            walked =
                walk(storage, &rows.live, start, Look { search: true, ..look }).map_err(read)?;
            (next, reached) = pending(image, &rows.live, walked.tail, *belief);
        }
        *belief = Belief::Disk;
    }
    // What begins behind the tail, or at it with another number, was begun for a record that never
    // was.
    let tail = walked.tail;
    let is_behind = |row: &Row| {
        let base = Spot { position: row.header.base, seq: row.header.first_seq };
        base.position > tail.position || base.position == tail.position && base.seq != tail.seq
    };
    let kept = rows.live.iter().position(is_behind).unwrap_or(rows.live.len());
    rows.stale.extend(rows.live.drain(kept..));
    Ok(End { start, walked, stated, next, reached })
}

/// Power may have been cut: segments say what is missing before them, and holes are overwritten.
fn mend<S: Storage>(storage: &S, known: &mut Known<S>, end: &mut End) -> Result<()> {
    let Known { index, image, rows, .. } = known;
    let End { start, walked, stated, .. } = end;
    if let Some(checkpoint) = image.checkpoint {
        let is_stated = rows.live.iter().any(|row| row.header.base == checkpoint.position);
        let gap = if is_stated { 0 } else { checkpoint.gap.min(checkpoint.seq) };
        let mark = Spot { position: checkpoint.position, seq: checkpoint.seq - gap };
        let waiting =
            image.consumers.iter().any(|consumer| consumer.place.position < start.position);
        if mark.position < start.position && mark.seq < start.seq && waiting {
            // Segments lost behind the checkpoint, before the first one there is: told to whoever
            // has not passed them.
            restate(storage, index, &mut rows.live, mark, *start)?;
        } else if gap > 0 && mark.position == start.position && walked.tail != *start {
            // The segment that was to say what is missing is lost: the next one says it.
            let next =
                rows.live.iter().map(|row| row.header.base).find(|base| *base > mark.position);
            let next = next.unwrap_or(mark.position);
            restate(storage, index, &mut rows.live, mark, Spot { position: next, seq: start.seq })?;
        }
    }
    // What was on the disk and does not validate is damaged: whoever reads there finds that, and
    // tells it as such (R7).
    walked
        .holes
        .retain(|(_, to)| to.position > stated.durable.position || to.seq > stated.durable.seq);
    for (from, to) in &walked.holes {
        repair(storage, &rows.live, *from, *to)?;
        restate(storage, index, &mut rows.live, *from, *to)?;
    }
    Ok(())
}

/// Where the tail stands, and how the next segment begins where the last one takes no more records.
#[derive(Clone, Copy)]
struct Tail {
    spot: Spot,
    next: Option<Next>,
}

impl Tail {
    /// With the next segment as it is to begin: behind what it states to be missing.
    fn with(self, next: Option<Next>) -> Tail {
        Tail { spot: next.map_or(self.spot, |next| spot_of(&next)), next }
    }
}

/// Power may have been cut: the last segment ends at the tail, and the next one states what is
/// missing behind it.
fn place_tail<S: Storage>(storage: &S, known: &mut Known<S>, end: &End) -> Result<Tail> {
    let Known { index, image, rows, belief, .. } = known;
    let End { walked, stated, reached, .. } = end;
    let gone = given_up(image, *belief).end().max(held_by_segments(image, rows));
    let missing = stated.missing_behind(*reached, end.next, lease(image, *belief), gone);
    let next = close_tail(storage, &rows.live, walked.tail, stated.position, end.next, missing)?;
    let tail = Tail { spot: walked.tail, next: None }.with(next);
    // Who stands there has yet to be told of what is missing.
    let closed_end =
        tail.spot.position - if tail.spot.seq > walked.tail.seq { format::ALIGN } else { 0 };
    let closed = (walked.tail, Spot { position: closed_end, seq: walked.tail.seq });
    let empty: Vec<_> = walked.holes.iter().chain(&walked.empty).copied().chain([closed]).collect();
    leave_the_empty(storage, index, &mut image.consumers, &empty)?;
    Ok(tail)
}

/// Lets go of the segments that hold nothing for anybody. What comes before the first one that
/// stays is stated.
fn discard_unused<S: Storage>(
    storage: &S,
    known: &mut Known<S>,
    stated: &Stated,
    mut tail: Tail,
) -> Result<Tail> {
    let Known { index, image, rows, belief, .. } = known;
    if let Some(next) = tail.next {
        // One that begins where the next is to begin was begun for a record that never was, too.
        let kept = rows.live.partition_point(|row| row.header.base < next.base);
        rows.stale.extend(rows.live.drain(kept..));
    }
    if !belief.is_trusted() && !rows.stale.is_empty() {
        // They must not come back behind what is written from now on (R2): gone before the first
        // append.
        for row in rows.stale.drain(..) {
            let kept = {
                let holds = if row.header.base < stated.durable.position {
                    Holds::Messages
                } else {
                    Holds::Nothing
                };
                discard(storage, &row, holds)?
            };
            index.write_segment_row(row.slot, kept.as_ref().map(|spare| &spare.header), u64::MAX);
            rows.spares.extend(kept);
        }
        storage.sync_directory().map_err(|failed| failed.ends_opening(storage.path()))?;
    }
    // Segments that were given up or passed by everybody, and not yet removed, or are back since:
    // what is left in them is not delivered to somebody new. Of consumers that were removed the
    // checkpoint says how far they came.
    let held_from = held_from(image, *belief, rows.held);
    let is_unused = |at: usize| match rows.live.get(at + 1) {
        Some(behind) => behind.header.missing_from() <= held_from,
        None => tail.next.is_some_and(|next| next.seq - next.gap <= held_from),
    };
    let count = (0..rows.live.len()).take_while(|at| is_unused(*at)).count();
    rows.stale.extend(rows.live.drain(..count));
    if image.consumers.is_empty() {
        // Everything is held from there on: passed by consumers that were removed since is what
        // lies before.
        let is_damage = held_from < stated.durable.seq;
        let cause = if is_damage { GapCause::Damaged } else { GapCause::Unflushed };
        let live = &mut rows.live;
        tail = tail.with(state_lost_beginning(
            storage,
            index,
            live,
            tail.spot,
            tail.next,
            held_from,
            cause.number(),
        )?);
    }
    Ok(tail)
}

/// What the segments say of how far everything was given back, where the index says nothing.
fn held_by_segments(image: &IndexImage, rows: &Rows) -> u64 {
    if image.checkpoint.is_none() && image.consumers.is_empty() { rows.held } else { 0 }
}

/// At or above that number none was given out.
fn lease(image: &IndexImage, belief: Belief) -> u64 {
    // Whatever the run is believed to be, it says no less than what was used; one that was closed
    // in order gave its lease back.
    let run = image.live.run.filter(|_| belief != Belief::CleanEnd).unwrap_or_default();
    run.lease.max(image.checkpoint.map_or(0, |checkpoint| checkpoint.lease))
}

fn random_u64<S: Storage>(storage: &S) -> u64 {
    let random = storage.random();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&random[..8]);
    u64::from_le_bytes(bytes)
}

fn index_error<S: Storage>(storage: &S, op: &'static str, error: io::Error) -> Error {
    Error::io(op, storage.path().join(INDEX_NAME), error)
}

fn unsupported<S: Storage>(storage: &S, name: &str, found: u32) -> Error {
    Error::UnsupportedFormat {
        path: storage.path().join(name),
        found,
        supported: format::FORMAT_VERSION,
    }
}

#[cfg(test)]
mod tests;
