//! [`Inspector`]: a look at a queue from outside, while somebody else uses it.

mod owner;

pub use owner::OwnerFigures;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Gap, Result};
use crate::format::{ASIDE_SUFFIX, FORMAT_VERSION, Spot};
use crate::index::image::ConsumerRow;
use crate::inspect::{self, Condition, Depth, Finding, Kept, Onlooker, Picture, Told, Verified};
use crate::message::Message;
#[cfg(doc)]
use crate::queue::Queue;
use crate::recovery::Ended;
use crate::storage::overlay::{Overlay, OverlayFile};
use crate::storage::{FileStorage, Storage, StorageFile};

/// Looks at a queue from outside, whoever uses it meanwhile: what is in it, who has it, what its
/// consumers have yet to read.
///
/// An inspector takes no lock, maps nothing and writes nothing: read permission is enough. It may
/// look at a queue that another process uses at full speed, at one that is closed, and at one whose
/// process died or whose machine lost power; then it says what the next opening will find.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// let queue = mmq::Queue::open(dir)?;
/// queue.enqueue("a message")?;
///
/// let inspector = mmq::Inspector::open(dir)?;
/// let snapshot = inspector.snapshot()?;
/// assert_eq!((snapshot.state, snapshot.messages), (mmq::QueueState::Owned, 1));
/// for seen in inspector.messages(mmq::Start::Oldest) {
///     if let mmq::Seen::Message { message, .. } = seen? {
///         println!("{}: {:?}", message.seq(), message.as_str());
///     }
/// }
/// # queue.close()
/// # }
/// ```
///
/// Who has a queue is looked up in `/proc/locks`. Where that does not exist (on other systems than
/// Linux), and for a process of a container that this one cannot see, a queue in use looks like one
/// whose process died.
#[derive(Debug)]
pub struct Inspector {
    storage: Arc<FileStorage>,
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// At the oldest message held.
    Oldest,
    /// Behind the newest message.
    End,
    /// At the message with this sequence number; at the next one where it is not held.
    Seq(u64),
}

/// Who has a queue, or how its last owner left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueState {
    /// A process has it open.
    Owned,
    /// It was closed.
    Closed,
    /// Its process died. Nothing was lost, and the figures are exact.
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The queue's directory.
    pub path: PathBuf,
    /// Who has it, or how it was left.
    pub state: QueueState,
    /// The process that has it.
    pub owner_pid: Option<u32>,
    /// When that process opened it.
    pub owned_since: Option<SystemTime>,
    /// The queue's id, random, given when it was created.
    pub queue_id: [u8; 16],
    /// When it was created, if the index still says so.
    pub created: Option<SystemTime>,
    /// Version of the file format.
    pub format: u32,
    /// The sequence number the next message will get.
    pub next_seq: u64,
    /// The first sequence number still held.
    pub oldest_seq: u64,
    /// The first sequence number not yet known to be durable.
    pub durable_seq: u64,
    /// Messages that wait for the default consumer; before its first read, all messages held.
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
    /// What its owner counts and was told to do; of a queue that nobody has, what the last owner
    /// stored. `None` where it stored nothing: an earlier version of the library.
    pub owner: Option<OwnerFigures>,
    /// With [`QueueState::Cut`]: how many of the messages were found behind the last checkpoint.
    pub found_behind: Option<u64>,
    /// When this was read.
    pub taken_at: SystemTime,
}

/// A consumer at one moment.
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
    /// The numbers beyond its place that are done: acknowledged, or told in a gap. Ranges from the
    /// first to the last number, in order.
    pub done_ahead: Vec<(u64, u64)>,
    /// When the segment of its oldest message was begun: the message is no older. `None` when no
    /// message waits.
    pub oldest_time: Option<SystemTime>,
    /// As an age, at most.
    pub oldest_age: Option<Duration>,
}

/// What [`Inspector::messages`] meets.
#[derive(Debug)]
#[non_exhaustive]
pub enum Seen {
    /// A message.
    Message {
        /// Its number and a copy of its bytes.
        message: Message,
        /// When its segment was begun: the message is no older.
        segment_time: SystemTime,
    },
    /// Messages that will never come.
    Gap(Gap),
    /// Messages that the owner gave back before they could be read: consumers have taken them, or
    /// they were given up.
    Overtaken {
        /// The first number.
        first: u64,
        /// The last number.
        last: u64,
    },
}

impl Inspector {
    /// Looks at the queue in the directory `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such directory, and [`Error::Io`]. What is in the
    /// directory is read by the other methods.
    pub fn open(dir: impl AsRef<Path>) -> Result<Inspector> {
        let dir = dir.as_ref();
        let storage = FileStorage::open_to_look(dir).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::no_queue(dir),
            _ => Error::io("open", dir, error),
        })?;
        Ok(Inspector { storage: Arc::new(storage) })
    }

    /// The queue as it is now.
    ///
    /// Of a queue in use all figures are of one moment, but for `disk_bytes` and `free_bytes`. It
    /// takes some hundred microseconds; where power was cut, as long as the next opening will.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no queue, [`Error::NotAQueue`],
    /// [`Error::UnsupportedFormat`], and [`Error::Io`]; of the kind
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when the queue is being changed too quickly
    /// to be read.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let (picture, _) = Picture::take(&self.storage)?;
        let taken_at = SystemTime::now();
        let storage = &*self.storage;
        let default = picture.consumers.iter().find(|consumer| consumer.name.is_empty());
        let place = default.map_or(picture.oldest(), |consumer| consumer.place.spot());
        let messages = match default {
            Some(consumer) => picture.waiting_for(consumer).0,
            None => picture.messages_from(0),
        };
        let (disk_bytes, set_aside_files) = files(storage)?;
        let (state, owner_pid) = match picture.condition {
            Condition::Owned(pid) => (QueueState::Owned, Some(pid)),
            Condition::Left(Ended::InOrder) => (QueueState::Closed, None),
            Condition::Left(Ended::Killed) => (QueueState::Left, None),
            Condition::Left(Ended::Cut) => (QueueState::Cut, None),
            Condition::Empty => (QueueState::Empty, None),
        };
        Ok(Snapshot {
            path: storage.path().to_owned(),
            state,
            owner_pid,
            owned_since: picture.since.and_then(time),
            queue_id: picture.queue_id,
            created: time(picture.created),
            format: FORMAT_VERSION,
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
                .map(|consumer| ConsumerSnapshot::of(&picture, consumer, taken_at))
                .collect(),
            gaps: picture.gaps.known.lock().clone(),
            owner: picture.figures.as_deref().map(OwnerFigures::from),
            found_behind: picture.found_behind,
            taken_at,
        })
    }

    /// The messages from `from` on, oldest first, up to the newest one at this moment. Messages
    /// that consumers have taken come too, as long as their segment is there.
    ///
    /// Each message is copied and checked. The iterator returns `None` at the end, and goes on when
    /// asked again after new messages came. After an error it has ended for good.
    #[must_use]
    pub fn messages(&self, from: Start) -> InspectedMessages<'_> {
        InspectedMessages { inspector: self, at: At::Start(from), source: None, failed: false }
    }

    /// Checks every header, row, place, checksum, number and seal of the queue, and reads every
    /// message from the oldest held on. Hands all that is not as it was written to `each`, with the
    /// messages that it costs: those that a consumer who begins at the oldest message would be told
    /// as damaged. What a power cut took, or what was given up, is no damage: [`Snapshot::gaps`].
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot). Damage is no error: see [`Verified::findings`].
    pub fn verify(&self, each: impl FnMut(Finding)) -> Result<Verified> {
        inspect::verify(&self.storage, Depth::Messages, each)
    }

    /// As [`verify`](Self::verify), without reading the messages.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn verify_headers(&self, each: impl FnMut(Finding)) -> Result<Verified> {
        inspect::verify(&self.storage, Depth::Headers, each)
    }
}

/// The messages of a queue that is looked at from outside: [`Inspector::messages`].
#[derive(Debug)]
pub struct InspectedMessages<'a> {
    inspector: &'a Inspector,
    at: At,
    source: Option<Begun>,
    failed: bool,
}

/// Where the next look begins.
#[derive(Debug, Clone, Copy)]
enum At {
    Start(Start),
    /// Behind what was read.
    Spot(Spot),
}

#[derive(Debug)]
enum Begun {
    InFiles(Arc<FileStorage>, Onlooker<<FileStorage as Storage>::File>),
    InOverlay(Arc<Overlay<FileStorage>>, Onlooker<OverlayFile<<FileStorage as Storage>::File>>),
}

impl InspectedMessages<'_> {
    fn step(&mut self) -> Result<Option<Told>> {
        if self.source.is_none() {
            let (picture, kept) = Picture::take(&self.inspector.storage)?;
            self.source = Some(match kept {
                Kept::InFiles(files) => {
                    let reading = begin(&*files, picture, self.at)?;
                    Begun::InFiles(files, reading)
                }
                Kept::InOverlay(files) => {
                    let reading = begin(&*files, picture, self.at)?;
                    Begun::InOverlay(files, reading)
                }
            });
        }
        let (told, at) = match &mut self.source {
            None => return Ok(None),
            Some(Begun::InFiles(files, reading)) => (reading.next(&**files)?, reading.at()),
            Some(Begun::InOverlay(files, reading)) => (reading.next(&**files)?, reading.at()),
        };
        if told.is_none() {
            self.source = None;
            self.at = At::Spot(at);
        }
        Ok(told)
    }
}

fn begin<S: Storage>(storage: &S, picture: Picture, at: At) -> Result<Onlooker<S::File>> {
    match at {
        At::Start(Start::Oldest) => {
            let oldest = picture.oldest();
            Ok(Onlooker::new(picture, oldest))
        }
        At::Start(Start::End) => {
            let tail = picture.tail;
            Ok(Onlooker::new(picture, tail))
        }
        At::Start(Start::Seq(seq)) => Onlooker::from_number(storage, picture, seq),
        // The queue may have been emptied and begun anew meanwhile.
        At::Spot(spot) => Ok(Onlooker::new(picture, spot)),
    }
}

impl Iterator for InspectedMessages<'_> {
    type Item = Result<Seen>;

    fn next(&mut self) -> Option<Result<Seen>> {
        if self.failed {
            return None;
        }
        let told = self.step();
        self.failed = told.is_err();
        Some(Ok(match told {
            Err(error) => return Some(Err(error)),
            Ok(None) => return None,
            Ok(Some(Told::Gap(gap))) => Seen::Gap(gap),
            Ok(Some(Told::Overtaken { first, last })) => Seen::Overtaken { first, last },
            Ok(Some(Told::Message { seq, payload, created })) => Seen::Message {
                message: Message::owned(seq, payload),
                segment_time: time(created).unwrap_or(UNIX_EPOCH),
            },
        }))
    }
}

impl ConsumerSnapshot {
    fn of(picture: &Picture, consumer: &ConsumerRow, now: SystemTime) -> ConsumerSnapshot {
        let (messages, acknowledged_ahead) = picture.waiting_for(consumer);
        let place = consumer.place;
        let (bytes, begun) = picture.weigh(place.position);
        let oldest_time = begun.filter(|_| messages > 0).and_then(time);
        let ahead = consumer.acks.iter().filter(|acks| acks.last >= place.seq);
        ConsumerSnapshot {
            name: consumer.name.clone(),
            next_seq: place.seq,
            messages,
            bytes: if messages == 0 { 0 } else { bytes },
            acknowledged_ahead,
            done_ahead: ahead.map(|acks| (acks.first.max(place.seq), acks.last)).collect(),
            oldest_time,
            oldest_age: oldest_time.map(|time| now.duration_since(time).unwrap_or_default()),
        }
    }
}

/// A time in milliseconds since 1970; `None` for zero, which is no time.
fn time(milliseconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).filter(|_| milliseconds > 0)
}

/// Bytes of disk that the files take, and how many of them were set aside.
fn files(storage: &FileStorage) -> Result<(u64, u64)> {
    let listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
    let files = || listed.iter().filter(|listed| listed.is_file);
    // A file that goes meanwhile takes nothing any more.
    let bytes = files().filter_map(|listed| storage.open(&listed.name).ok()?.disk_bytes().ok());
    let aside = files().filter(|listed| listed.name.ends_with(ASIDE_SUFFIX));
    Ok((bytes.sum(), aside.count() as u64))
}
