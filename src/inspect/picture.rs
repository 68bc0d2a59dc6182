//! Reads the state of a queue from its files, at one moment.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::format::{
    self, Attempts, Figures, IN_FLIGHT, INDEX_NAME, Invalid, LIVE_LEN, NumberRange, REJECTED, Spot,
    Version, done_by_all, index_at,
};
use crate::index::image::{ConsumerRow, IndexImage};
use crate::index::{IndexFile, holder};
use crate::options::Options;
use crate::recovery::look::{self, InUse};
use crate::recovery::{Ended, recover};
use crate::segment::Row;
use crate::state::Gaps;
use crate::storage::overlay::Overlay;
use crate::storage::{Storage, StorageFile, read_full};
use crate::threads::{now, park_timeout};

/// How long a reader of a queue in use retries when the parts of the index do not fit together.
const PATIENCE: Duration = Duration::from_millis(50);
/// The pause before the first retry; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// How often the holder may change during a look at the queue.
const CHANGES_OF_HANDS: usize = 5;

/// The holder of the queue, or how its last run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The process with this id uses the queue; 0 if it has none here.
    Owned(u32),
    Left(Ended),
    /// The queue never held anything: the process that created the directory got no further.
    Empty,
}

/// Tells whether a process has used the queue since a moment. The live part of the index then, or
/// `None` if one used it.
#[derive(Debug)]
pub(super) struct Users(Option<Vec<u8>>);

impl Users {
    pub(super) fn came<S: Storage>(&self, storage: &S) -> bool {
        let changed = |before: &Vec<u8>| live_part(storage).is_ok_and(|now| now != *before);
        self.0.as_ref().is_none_or(changed)
    }
}

/// The state in the files at one moment.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) condition: Condition,
    /// Whether a process uses it, or came since.
    pub(super) users: Users,
    /// When the holder opened the queue.
    pub(crate) since: Option<SystemTime>,
    pub(crate) queue_id: [u8; 16],
    pub(crate) version: Version,
    /// Milliseconds since 1970; 0: not known.
    pub(crate) created: u64,
    /// Sorted by position.
    pub(crate) live: Vec<Row>,
    pub(crate) spares: usize,
    pub(crate) tail: Spot,
    pub(crate) durable: Spot,
    /// The first message that is retained completely.
    pub(crate) first: Spot,
    pub(crate) gaps: Gaps,
    pub(crate) consumers: Vec<ConsumerRow>,
    /// The attempts that the holder stores; empty if no process uses the queue.
    pub(crate) attempts: Vec<Attempts>,
    /// Messages after the last checkpoint, if power may have been cut.
    pub(crate) found_behind: Option<u64>,
    /// See `List::unclaimed_from`.
    unclaimed_from: u64,
    /// The figures of the holder, or of the last one.
    pub(crate) figures: Option<Box<Figures>>,
}

/// Where a reader finds the bytes of the messages.
#[derive(Debug)]
pub(crate) enum Kept<S: Storage> {
    /// In the files, which their holder may change.
    InFiles(Arc<S>),
    /// In the files, with the changes of a recovery kept in memory.
    InOverlay(Arc<Overlay<S>>),
}

impl Picture {
    /// Takes a picture of the queue in `storage`.
    pub(crate) fn take<S: Storage>(storage: &Arc<S>) -> Result<(Picture, Kept<S>)> {
        for _ in 0..CHANGES_OF_HANDS {
            if let Some(pid) = storage.holder() {
                if let Some(picture) = in_use(storage, pid)? {
                    return Ok((picture, Kept::InFiles(Arc::clone(storage))));
                }
                continue;
            }
            let before = live_part(&**storage)?;
            let taken = left(storage, Users(Some(before.clone())));
            // A process may have opened the queue meanwhile, or opened and closed it.
            if storage.holder().is_none() && live_part(&**storage)? == before {
                let (picture, overlay) = taken?;
                return Ok((picture, Kept::InOverlay(overlay)));
            }
        }
        Err(changed_too_quickly(&**storage))
    }

    /// Where a new consumer would begin, if there is another one.
    pub(crate) fn oldest(&self) -> Spot {
        let first = self.live.first().map(|row| row.header.beginning());
        first.unwrap_or_else(|| self.gaps.before_lost_tail(self.tail))
    }

    /// Where the first consumer would begin, as `State::unclaimed` says.
    pub(crate) fn unclaimed(&self) -> Spot {
        if self.unclaimed_from < self.gaps.evicted.lock().end() {
            return Spot { position: 0, seq: self.unclaimed_from };
        }
        self.oldest()
    }

    /// The first number that the queue still retains.
    pub(crate) fn oldest_seq(&self) -> u64 {
        let evicted = self.gaps.evicted.lock().end();
        self.first.seq.max(evicted).min(self.tail.seq)
    }

    /// The number of messages from the number `seq` on.
    pub(crate) fn messages_from(&self, seq: u64) -> u64 {
        let (from, end) = (seq.max(self.oldest_seq()), self.tail.seq);
        end.saturating_sub(from).saturating_sub(self.gaps.known_missing(from, end))
    }

    /// The number of messages that wait for this consumer, and of those after its place that it has
    /// done.
    pub(crate) fn waiting_for(&self, consumer: &ConsumerRow) -> (u64, u64) {
        let from = consumer.waits_from().max(self.oldest_seq());
        let done = self.done_between(&consumer.acks, from, self.tail.seq);
        (self.messages_from(from).saturating_sub(done), done)
    }

    /// Where the oldest message lies that waits for this consumer, or the segment of it begins.
    pub(crate) fn position_of_waiting(&self, consumer: &ConsumerRow) -> u64 {
        let (place, waits_from) = (consumer.place, consumer.waits_from());
        if waits_from == place.seq {
            return place.position;
        }
        let behind = self.live.partition_point(|row| row.header.first_seq <= waits_from);
        let row = behind.checked_sub(1).and_then(|at| self.live.get(at));
        row.map_or(place.position, |row| row.header.base.max(place.position))
    }

    /// The number of messages that wait for some consumer; all messages when there is none.
    pub(crate) fn waiting_for_some(&self) -> u64 {
        let consumers = self.consumers.iter();
        let done = done_by_all(consumers.map(|it| (it.waits_from(), it.acks.iter().copied())));
        let from = self.oldest_seq();
        self.messages_from(from).saturating_sub(self.done_between(&done, from, self.tail.seq))
    }

    /// The number of messages from `from` on and before `end` that are in the ranges.
    fn done_between(&self, done: &[NumberRange], from: u64, end: u64) -> u64 {
        let done = done.iter().map(|range| {
            let (first, end) = (range.first.max(from), (range.last + 1).min(end));
            end.saturating_sub(first).saturating_sub(self.gaps.known_missing(first, end))
        });
        done.sum()
    }

    /// The number of the consumer's delivered messages that are not done, the first of them, and
    /// how often that one was delivered without an acknowledgement. `None` where the index has no
    /// attempts of it, and when there are no such messages.
    pub(crate) fn handed_out(&self, consumer: &ConsumerRow) -> Option<(u64, u64, u32)> {
        let stored = self.attempts.iter().find(|stored| stored.owner == consumer.row)?;
        let from = consumer.waits_from().max(self.oldest_seq());
        let below = stored.below.min(self.tail.seq);
        let counted = |seq: u64| {
            let count = stored.counts.iter().find(|(counted, _)| *counted == seq);
            count.map_or(0, |(_, count)| *count)
        };
        // No worker has a rejected message.
        let is_open = |seq: u64| {
            let is_done = |acks: &NumberRange| (acks.first..=acks.last).contains(&seq);
            seq >= from && !consumer.acks.iter().any(is_done) && counted(seq) & REJECTED == 0
        };
        let beyond = stored.counts.iter().filter(|(_, count)| count & IN_FLIGHT != 0);
        let beyond = beyond.map(|(seq, _)| *seq).filter(|seq| *seq >= below && is_open(*seq));
        let beyond: Vec<u64> = beyond.collect();
        let first = (from..below).find(|seq| is_open(*seq)).or(beyond.first().copied())?;
        let is_rejected =
            |(seq, count): &&(u64, u32)| (first..below).contains(seq) && count & REJECTED != 0;
        let not_out = self.gaps.known_missing(first, below)
            + self.done_between(&consumer.acks, first, below)
            + stored.counts.iter().filter(is_rejected).count() as u64;
        let messages = below.saturating_sub(first).saturating_sub(not_out) + beyond.len() as u64;
        Some((messages, first, counted(first) & !(REJECTED | IN_FLIGHT)))
    }

    /// The bytes of the segments from `position` to the tail, and when the segment there was begun,
    /// in milliseconds since 1970.
    pub(crate) fn weigh(&self, position: u64) -> (u64, Option<u64>) {
        let base = self.live.first().map_or(self.tail.position, |row| row.header.base);
        let from = position.max(base);
        let row = self.live.iter().find(|row| row.header.end() > from);
        (self.tail.position.saturating_sub(from), row.map(|row| row.header.created))
    }
}

fn changed_too_quickly<S: Storage>(storage: &S) -> Error {
    let why = "the queue is being changed too quickly to be read; try again";
    Error::io("inspect", storage.path(), io::Error::new(ErrorKind::WouldBlock, why))
}

fn index_error<S: Storage>(storage: &S, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::no_queue(storage.path()),
        _ => Error::io("read", storage.path().join(INDEX_NAME), error),
    }
}

/// Reads the part of the index that every opening, death and close changes. Empty when there is no
/// index.
fn live_part<S: Storage>(storage: &S) -> Result<Vec<u8>> {
    let mut live = vec![0; LIVE_LEN];
    match storage.read_stored(INDEX_NAME, &mut live, index_at::LIVE as u64) {
        Ok(read) => live.truncate(read),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
            live.clear();
        }
        Err(error) => return Err(index_error(storage, error)),
    }
    Ok(live)
}

/// The picture of a queue that the process `pid` uses; `None` when it has released the queue
/// meanwhile.
fn in_use<S: Storage>(storage: &Arc<S>, pid: u32) -> Result<Option<Picture>> {
    let (until, mut pause) = (now() + PATIENCE, FIRST_PAUSE);
    loop {
        if let Some(picture) = try_in_use(storage, pid, SegmentsBy::Rows)? {
            return Ok(Some(picture));
        }
        if storage.holder() != Some(pid) {
            return Ok(None);
        }
        if now() > until {
            // The index has no complete rows, the holder changes them all the time, or has
            // another boot.
            for _ in 0..CHANGES_OF_HANDS {
                if let Some(picture) = try_in_use(storage, pid, SegmentsBy::Headers)? {
                    return Ok(Some(picture));
                }
            }
            return Err(changed_too_quickly(&**storage));
        }
        park_timeout(pause);
        pause *= 2;
    }
}

/// Where the segments are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentsBy {
    /// The rows of the index.
    Rows,
    /// The headers of the files.
    Headers,
}

fn try_in_use<S: Storage>(
    storage: &Arc<S>,
    pid: u32,
    belief: SegmentsBy,
) -> Result<Option<Picture>> {
    let below = storage;
    let storage = &**storage;
    let read = IndexFile::read(storage).map_err(|error| index_error(storage, error))?;
    let Some(file) = read else {
        // The holder is about to create it.
        return Ok(None);
    };
    if let Err(Invalid::Version(found)) = file.header {
        let (path, supported) = (storage.path().join(INDEX_NAME), format::FORMAT_VERSION);
        return Err(Error::UnsupportedFormat { path, found, supported });
    }
    let Ok(queue_id) = file.header else {
        return Ok(None);
    };
    let mut image = IndexImage::read(&file.bytes, &queue_id);
    let found = (belief == SegmentsBy::Headers).then(|| {
        // The overlay keeps in memory the repairs that a pass over the headers makes.
        let overlay = Overlay::over(Arc::clone(below));
        look::by_headers(&overlay, &image, queue_id)
    });
    // The places were read before this tail, so none lies after it.
    let mut bytes = file.bytes;
    let part = &mut bytes[index_at::LIVE..][..LIVE_LEN];
    let again = read_full(&file.file, part, index_at::LIVE as u64);
    if again.map_err(|error| index_error(storage, error))? < LIVE_LEN {
        return Ok(None);
    }
    let behind = IndexImage::read(&bytes, &queue_id);
    // An opening stores the token last: until then the live part belongs to the run before.
    let stat = file.file.stat().map_err(|error| index_error(storage, error))?;
    let token = storage.cache_token(stat);
    let stored = &image.live.token;
    // One of the two processes may see another boot or none, as in a container. A holder that this
    // process cannot see, and that still opens the queue after a power cut, looks the same.
    let is_boot = stored.boot == token.boot || stored.boot == 0 || token.boot == 0;
    let is_holders = pid == 0 || pid == image.live.pid;
    let is_true = is_boot || belief == SegmentsBy::Headers && is_holders;
    if !is_true
        || stored.file != token.file
        || behind.live.run != image.live.run
        || behind.live.token != image.live.token
    {
        return Ok(None);
    }
    image.live = behind.live;
    let found = found.unwrap_or_else(|| Ok(look::by_rows(&image)))?;
    Ok(found.map(|found| picture_in_use(storage, pid, queue_id, &bytes, image, found)))
}

fn picture_in_use<S: Storage>(
    storage: &S,
    pid: u32,
    queue_id: [u8; 16],
    bytes: &[u8],
    image: IndexImage,
    found: InUse,
) -> Picture {
    let InUse { live, spares, tail, durable, known_gaps, evicted } = found;
    Picture {
        condition: Condition::Owned(pid),
        users: Users(None),
        since: holder(storage).1,
        queue_id,
        version: image.version,
        created: format::index_created(bytes),
        first: first_whole(&live, tail),
        live,
        spares,
        tail,
        durable,
        gaps: Gaps::new(known_gaps, evicted),
        unclaimed_from: image.checkpoint.map_or(0, |checkpoint| checkpoint.retained_from),
        consumers: image.consumers,
        attempts: image.attempts_rows.into_iter().flatten().collect(),
        found_behind: None,
        figures: Figures::decode(bytes, &queue_id).map(Box::new),
    }
}

/// Where the first message begins that the queue retains completely.
fn first_whole(live: &[Row], tail: Spot) -> Spot {
    let first = live.first();
    let first = first.map(|row| Spot { position: row.header.base, seq: row.header.first_seq });
    first.filter(|first| first.position < tail.position).unwrap_or(tail)
}

/// The picture of a queue that no process uses: the result of an opening whose changes stay in
/// memory.
fn left<S: Storage>(storage: &Arc<S>, users: Users) -> Result<(Picture, Arc<Overlay<S>>)> {
    let found = IndexFile::read(&**storage);
    let file = found.unwrap_or(None);
    let created = file.as_ref().map_or(0, |file| format::index_created(&file.bytes));
    let was_being_made = file.as_ref().is_some_and(IndexFile::was_being_made);
    let known_id = file.as_ref().and_then(IndexFile::queue_id);
    let counted = file.as_ref().zip(known_id);
    let figures = counted.and_then(|(file, id)| Figures::decode(&file.bytes, &id)).map(Box::new);
    let image = file.zip(known_id).map(|(file, id)| IndexImage::read(&file.bytes, &id));
    let image = image.unwrap_or_default();
    let overlay = Arc::new(Overlay::over(Arc::clone(storage)));
    let recovered = recover(&*overlay, &Options::new().create(false))?;
    let found = recovered.found;
    let is_bare = found.live.is_empty() && found.spares.is_empty() && found.drained.is_empty();
    let condition = match recovered.ended {
        _ if was_being_made && is_bare => Condition::Empty,
        ended => Condition::Left(ended),
    };
    let durable_seq = image.checkpoint.map_or(0, |checkpoint| checkpoint.seq);
    // `copy_to` has synced a copy in which there was no run yet.
    let is_unsynced = recovered.files_unsynced && image.live.run.is_some();
    let first = first_whole(&found.live, recovered.tail);
    let cut = matches!(recovered.ended, Ended::Cut | Ended::Unknown);
    let picture = Picture {
        condition,
        users,
        since: None,
        queue_id: recovered.index.queue_id,
        version: recovered.index.version(),
        created,
        first,
        live: found.live,
        spares: found.spares.len() + found.drained.len(),
        tail: recovered.tail,
        durable: if is_unsynced { first } else { recovered.durable },
        gaps: Gaps::new(recovered.known_gaps, recovered.evicted),
        consumers: recovered.consumers,
        attempts: Vec::new(),
        found_behind: None,
        unclaimed_from: found.unclaimed_from,
        figures,
    };
    let found_behind = cut.then(|| picture.messages_from(durable_seq));
    Ok((Picture { found_behind, ..picture }, overlay))
}
