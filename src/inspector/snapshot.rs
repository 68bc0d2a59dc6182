//! A queue at one moment, and what an opening would make of it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::{OwnerFigures, time};
use crate::error::{Error, Gap, Result};
use crate::format::{Place, QUARANTINE_SUFFIX, Spot};
use crate::index::DEFAULT_ROW;
use crate::index::image::ConsumerRow;
use crate::inspect::{Condition, Picture};
use crate::recovery::Ended;
use crate::storage::{FileStorage, Storage, StorageFile};

/// Who has a queue, or how its last owner left it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// use mmq::QueueState;
///
/// match inspector.snapshot()?.state {
///     QueueState::Owned => println!("a process has it"),
///     QueueState::Left | QueueState::Cut => println!("its process did not close it"),
///     _ => println!("nobody has it"),
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueState {
    /// A process has it open.
    Owned,
    /// It was closed.
    Closed,
    /// Its process died. The figures are exact, and nothing was lost unless a flush had failed
    /// before ([`OwnerFigures::last_flush_error`]).
    Left,
    /// The machine lost power, or its index is lost: the figures are those of what the next opening
    /// will find.
    Cut,
    /// Nothing was ever put in: the process that made the directory came no further.
    Empty,
}

/// A queue at one moment: [`Inspector::snapshot`].
///
/// Numbers are sequence numbers, times are those of this machine's clock, and sizes are bytes.
///
/// [`Inspector::snapshot`]: crate::Inspector::snapshot
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// let mmq::Snapshot { messages, disk_bytes, state, .. } = inspector.snapshot()?;
/// println!("{messages} wait in {disk_bytes} bytes; {state:?}");
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The queue's directory.
    pub path: PathBuf,
    /// Who has it, or how it was left.
    pub state: QueueState,
    /// The process that has it; 0 for one that this process cannot see, as in another container.
    pub owner_pid: Option<u32>,
    /// When that process opened it.
    pub owned_since: Option<SystemTime>,
    /// The queue's id, random, given when it was created.
    pub queue_id: [u8; 16],
    /// When it was created, if the index still says so.
    pub created: Option<SystemTime>,
    /// Version of the file format: 3, or 4 once a dead letter was put in.
    pub format: u32,
    /// The sequence number the next message will get.
    pub next_seq: u64,
    /// The first sequence number still held.
    pub oldest_seq: u64,
    /// The first sequence number not yet known to be durable.
    pub durable_seq: u64,
    /// Messages that wait for the default consumer; where there is none, those that any consumer
    /// has yet to deal with, each counted once; without any consumer, all messages held.
    pub messages: u64,
    /// Bytes of the segments that those messages take, headers included.
    pub bytes: u64,
    /// Bytes of disk that all files in the directory take.
    pub disk_bytes: u64,
    /// Segments that hold messages.
    pub segments: u64,
    /// Drained segments kept for reuse.
    pub spare_segments: u64,
    /// A flush of the process that has the queue has failed, and writing is refused.
    pub poisoned: bool,
    /// Files that an opening set aside because they were damaged or another queue's.
    pub set_aside_files: u64,
    /// Bytes of disk that are free for this user. `None` where the file system does not say.
    pub free_bytes: Option<u64>,
    /// The consumers, the default one (its name is empty) among them once it has read.
    pub consumers: Vec<ConsumerSnapshot>,
    /// Numbers that are known to be missing, in order.
    pub gaps: Vec<Gap>,
    /// What its owner counts; of a queue that nobody has, what the last owner stored. `None` where
    /// it stored nothing: an earlier version of the library.
    pub owner: Option<OwnerFigures>,
    /// With [`QueueState::Cut`]: how many of the messages were found behind the last checkpoint.
    pub found_behind: Option<u64>,
    /// When this was read.
    pub taken_at: SystemTime,
    /// The default consumer as its first read would make it, while there is no consumer.
    pub(super) to_come: Option<ConsumerSnapshot>,
}

/// What an opening would make of a queue that nobody has: [`Inspector::as_opened`].
///
/// [`Inspector::as_opened`]: crate::Inspector::as_opened
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// queue.close()?;
/// let mmq::AsOpened { set_aside, removed, .. } = inspector.as_opened()?;
/// assert!(set_aside.is_empty() && removed.is_empty());
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsOpened {
    /// The queue as it would find it, the gaps that it would state among it.
    pub snapshot: Snapshot,
    /// Files that it would set aside, because they are damaged or another queue's: the name that
    /// each has, and the name that it would get.
    pub set_aside: Vec<(String, String)>,
    /// Files that it would make.
    pub created: Vec<String>,
    /// Files that it would remove.
    pub removed: Vec<String>,
}

/// A consumer at one moment.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// queue.consumer("mail")?;
/// for consumer in inspector.snapshot()?.consumers {
///     let mmq::ConsumerSnapshot { name, messages, oldest_age, .. } = consumer;
///     println!("{name:?}: {messages} wait, the oldest for {oldest_age:?} at most");
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerSnapshot {
    /// Its name; empty for the default consumer.
    pub name: String,
    /// The sequence number at its place: it has dealt with every message below it.
    pub next_seq: u64,
    /// Messages that wait for it.
    pub messages: u64,
    /// Bytes of the segments from its place to the tail, headers included.
    pub bytes: u64,
    /// Messages beyond its place that it has acknowledged already.
    pub acknowledged_ahead: u64,
    /// The numbers beyond its place that are done: acknowledged, or reported in a gap. Ranges
    /// from the first to the last number, in order.
    pub done_ahead: Vec<(u64, u64)>,
    /// When the segment of its oldest message was begun: the message is no older. `None` when no
    /// message waits.
    pub oldest_time: Option<SystemTime>,
    /// As an age, at most.
    pub oldest_age: Option<Duration>,
    /// What was handed out to its workers. `None` when nothing is out, and where the process that
    /// has the queue does not store it: it does for four consumers with a
    /// [redelivery](crate::Redelivery).
    pub handed_out: Option<HandedOut>,
    /// Numbers below [`next_seq`](Self::next_seq) that a forwarder reading as this consumer keeps.
    pub kept: u64,
    /// When the far side of such a forwarder last acknowledged a message.
    pub acknowledged_at: Option<SystemTime>,
    /// Where it reads on.
    pub(super) position: u64,
}

/// Messages that a consumer's workers were handed and that are not done: each is with a worker, or
/// was given back and comes again. [`ConsumerSnapshot::handed_out`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// for consumer in inspector.snapshot()?.consumers {
///     if let Some(mmq::HandedOut { messages, first_seq, .. }) = consumer.handed_out {
///         println!("{}: {messages} are out, from message {first_seq} on", consumer.name);
///     }
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedOut {
    /// How many.
    pub messages: u64,
    /// The sequence number of the first one.
    pub first_seq: u64,
    /// How often the first one was given back, or was in flight when the process died.
    pub first_in_vain: u32,
}

impl Snapshot {
    /// Returns the consumers, and where there is none the default one as its first read would make
    /// it: then every message held waits for it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # let inspector = mmq::Inspector::open(dir)?;
    /// for reader in inspector.snapshot()?.readers() {
    ///     println!("{:?}: {} messages wait", reader.name, reader.messages);
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn readers(&self) -> &[ConsumerSnapshot] {
        if self.consumers.is_empty() { self.to_come.as_slice() } else { &self.consumers }
    }

    pub(super) fn of(storage: &FileStorage, picture: &Picture) -> Result<Snapshot> {
        let taken_at = SystemTime::now();
        let default = picture.consumers.iter().find(|consumer| consumer.name.is_empty());
        let places = picture.consumers.iter().map(|consumer| consumer.place.spot());
        let lowest = places.min().unwrap_or(picture.oldest());
        let place = default.map_or(lowest, |consumer| consumer.place.spot());
        let messages = match default {
            Some(consumer) => picture.waiting_for(consumer).0,
            None => picture.waiting_for_some(),
        };
        let to_come =
            picture.consumers.is_empty().then(|| ConsumerSnapshot::to_come(picture, taken_at));
        let (disk_bytes, set_aside_files) = files(storage)?;
        let (state, owner_pid) = match picture.condition {
            Condition::Owned(pid) => (QueueState::Owned, Some(pid)),
            Condition::Left(Ended::InOrder) => (QueueState::Closed, None),
            Condition::Left(Ended::Killed) => (QueueState::Left, None),
            Condition::Left(Ended::Cut | Ended::Unknown) => (QueueState::Cut, None),
            Condition::Empty => (QueueState::Empty, None),
        };
        Ok(Snapshot {
            path: storage.path().to_owned(),
            state,
            owner_pid,
            owned_since: picture.since,
            queue_id: picture.queue_id,
            created: time(picture.created),
            format: picture.version as u32,
            next_seq: picture.tail.seq,
            oldest_seq: picture.oldest_seq(),
            durable_seq: picture.durable.seq,
            messages,
            bytes: if messages == 0 { 0 } else { picture.weigh(place.position).0 },
            disk_bytes,
            segments: picture.live.len() as u64,
            spare_segments: picture.spares as u64,
            poisoned: owner_pid.is_some()
                && picture.figures.as_ref().is_some_and(|figures| figures.error_at > 0),
            set_aside_files,
            free_bytes: storage.free_bytes().ok(),
            consumers: picture
                .consumers
                .iter()
                .map(|consumer| ConsumerSnapshot::of(picture, consumer, taken_at))
                .collect(),
            gaps: picture.gaps.known.lock().clone(),
            owner: picture.figures.as_deref().map(OwnerFigures::from),
            found_behind: picture.found_behind,
            to_come,
            taken_at,
        })
    }
}

impl ConsumerSnapshot {
    /// The default consumer before its first read.
    fn to_come(picture: &Picture, now: SystemTime) -> ConsumerSnapshot {
        let Spot { position, seq } = picture.unclaimed();
        let place = Place { number: 0, position, seq };
        let row = ConsumerRow {
            row: DEFAULT_ROW,
            name: String::new(),
            place,
            acks: Vec::new(),
            forward: None,
        };
        ConsumerSnapshot::of(picture, &row, now)
    }

    fn of(picture: &Picture, consumer: &ConsumerRow, now: SystemTime) -> ConsumerSnapshot {
        let (messages, acknowledged_ahead) = picture.waiting_for(consumer);
        let place = consumer.place;
        let waits_from = consumer.waits_from();
        let (bytes, begun) = picture.weigh(picture.position_of_waiting(consumer));
        let acknowledged = consumer.forward.map_or(0, |forward| forward.time);
        let oldest_time = begun.filter(|_| messages > 0).and_then(time);
        let ahead = consumer.acks.iter().filter(|acks| acks.last >= place.seq);
        ConsumerSnapshot {
            name: consumer.name.clone(),
            next_seq: waits_from,
            messages,
            bytes: if messages == 0 { 0 } else { bytes },
            acknowledged_ahead,
            done_ahead: ahead.map(|acks| (acks.first.max(place.seq), acks.last)).collect(),
            oldest_time,
            oldest_age: oldest_time.map(|time| now.duration_since(time).unwrap_or_default()),
            handed_out: picture.handed_out(consumer).map(|(messages, first_seq, first_in_vain)| {
                HandedOut { messages, first_seq, first_in_vain }
            }),
            kept: waits_from - place.seq,
            acknowledged_at: Some(acknowledged).filter(|at| *at > 0).and_then(time),
            position: place.position,
        }
    }
}

/// Bytes of disk that the files take, and how many of them were set aside.
fn files(storage: &FileStorage) -> Result<(u64, u64)> {
    let listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
    let files = || listed.iter().filter(|listed| listed.is_file);
    // A file that goes meanwhile takes nothing any more.
    let bytes = files().filter_map(|listed| storage.open(&listed.name).ok()?.disk_bytes().ok());
    let quarantined = files().filter(|listed| listed.name.ends_with(QUARANTINE_SUFFIX));
    Ok((bytes.sum(), quarantined.count() as u64))
}
