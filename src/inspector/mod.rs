//! [`Inspector`]: a look at a queue from outside, while somebody else uses it.

mod owner;
mod snapshot;

pub use owner::OwnerFigures;
pub use snapshot::{AsOpened, ConsumerSnapshot, HandedOut, QueueState, Snapshot};

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Gap, Result};
use crate::format::Spot;
use crate::inspect::{
    self, Condition, Depth, Finding, Kept, OnStep, Onlooker, Picture, Reported, Verified,
    VerifyStep,
};
use crate::message::Message;
use crate::options::Start;
#[cfg(doc)]
use crate::queue::Queue;
use crate::storage::overlay::{Overlay, OverlayFile};
use crate::storage::{FileStorage, Storage};

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
/// Who has a queue is looked up in `/proc/locks`. A process of a container that this one cannot see
/// has the id 0. On other systems than Linux a queue in use looks like one whose process died.
#[derive(Debug)]
pub struct Inspector {
    storage: Arc<FileStorage>,
}

/// What [`Inspector::messages`] meets.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// for seen in inspector.messages(mmq::Start::Oldest) {
///     match seen? {
///         mmq::Seen::Message { message, segment_time } => println!("{message:?} {segment_time:?}"),
///         mmq::Seen::Gap(gap) => println!("{gap}"),
///         _ => {}
///     }
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
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
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # let inspector = mmq::Inspector::open(dir)?;
    /// # drop(inspector);
    /// let inspector = mmq::Inspector::open(dir)?; // takes no lock: the queue is open beside it
    /// println!("{} messages wait", inspector.snapshot()?.messages);
    /// # Ok::<(), mmq::Error>(())
    /// ```
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

    /// Returns the queue as it is now.
    ///
    /// Of a queue in use all figures are of one moment, but for `disk_bytes` and `free_bytes`. It
    /// takes some hundred microseconds; where power was cut, as long as the next opening will.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # let inspector = mmq::Inspector::open(dir)?;
    /// let snapshot = inspector.snapshot()?;
    /// assert_eq!((snapshot.messages, snapshot.owner_pid), (1, Some(std::process::id())));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no queue, [`Error::NotAQueue`],
    /// [`Error::UnsupportedFormat`], and [`Error::Io`]; of the kind
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when the queue is being changed too quickly
    /// to be read.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let (picture, _) = Picture::take(&self.storage)?;
        Snapshot::of(&self.storage, &picture)
    }

    /// Returns what an opening would make of the queue, with nothing changed on the disk: the
    /// figures that it would begin with, and what would become of the files. It takes as long as
    /// that opening, and the memory of what it would write.
    ///
    /// [`messages`](Self::messages) and [`verify`](Self::verify) read a queue that nobody has in
    /// the same state.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let queue = mmq::Queue::open(dir)?;
    /// queue.enqueue("a message")?;
    /// let inspector = mmq::Inspector::open(dir)?;
    /// assert!(matches!(inspector.as_opened(), Err(mmq::Error::Locked { .. })));
    /// queue.close()?;
    /// let opened = inspector.as_opened()?;
    /// assert_eq!((opened.snapshot.messages, opened.set_aside), (1, vec![]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] when a process has the queue, and as [`snapshot`](Self::snapshot).
    pub fn as_opened(&self) -> Result<AsOpened> {
        let (picture, kept) = Picture::take(&self.storage)?;
        let Kept::InOverlay(overlay) = kept else {
            return Err(self.locked(&picture));
        };
        let listed = overlay.changes();
        let changes = listed.map_err(|error| Error::io("list", self.storage.path(), error))?;
        Ok(AsOpened {
            snapshot: Snapshot::of(&self.storage, &picture)?,
            set_aside: changes.renamed,
            created: changes.created,
            removed: changes.removed,
        })
    }

    fn locked(&self, picture: &Picture) -> Error {
        let pid = match picture.condition {
            Condition::Owned(pid) => pid,
            _ => 0,
        };
        Error::Locked {
            path: self.storage.path().to_owned(),
            pid,
            here: pid == std::process::id(),
            since: picture.since,
        }
    }

    /// Returns the messages from `from` on, oldest first, up to the newest one at this moment.
    /// Messages that consumers have taken come too, as long as their segment is there.
    ///
    /// Each message is copied and checked. The iterator returns `None` at the end, and goes on when
    /// asked again after new messages came. After an error it has ended for good.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # let inspector = mmq::Inspector::open(dir)?;
    /// let newest = inspector.messages(mmq::Start::Seq(0)).last().expect("there is one")?;
    /// assert!(matches!(newest, mmq::Seen::Message { message, .. } if message.seq() == 0));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn messages(&self, from: Start) -> InspectedMessages<'_> {
        InspectedMessages { inspector: self, at: At::Start(from), source: None, failed: false }
    }

    /// Returns the [messages](Self::messages) from where the consumer stood in a [`Snapshot`]: all
    /// that its reads will report, and messages that it has acknowledged ahead. What was given up
    /// before it could read it comes as the gaps that its reads will report.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # let inspector = mmq::Inspector::open(dir)?;
    /// queue.consumer("mail")?;
    /// let snapshot = inspector.snapshot()?;
    /// let mail = snapshot.consumers.iter().find(|it| it.name == "mail").expect("it is there");
    /// assert_eq!(inspector.messages_for(mail).count(), 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn messages_for(&self, consumer: &ConsumerSnapshot) -> InspectedMessages<'_> {
        let ConsumerSnapshot { position, next_seq: seq, .. } = *consumer;
        let at = At::Spot(Spot { position, seq });
        InspectedMessages { inspector: self, at, source: None, failed: false }
    }

    /// Checks every header, row, place, checksum, number and seal of the queue, and reads every
    /// message from the oldest held on. Hands all that is not as it was written to `each`, with the
    /// messages that it costs: those that would be reported as damaged to a consumer who begins
    /// at the oldest message. What a power cut took, or what was given up, is no damage:
    /// [`Snapshot::gaps`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # let inspector = mmq::Inspector::open(dir)?;
    /// let verified = inspector.verify(|finding| println!("{finding}"))?;
    /// assert_eq!((verified.messages, verified.findings), (1, 0));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot). Damage is no error: see [`Verified::findings`].
    pub fn verify(&self, mut each: impl FnMut(Finding)) -> Result<Verified> {
        self.verify_to(Depth::Messages, &mut inspect::findings_alone(&mut each))
    }

    /// Checks as [`verify`](Self::verify) does, for a program that shows how far it has come, or
    /// ends it: every message that was read is a step as well. When `each` answers
    /// [`Break`](ControlFlow::Break) it ends, and returns what was verified until then.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// use std::ops::ControlFlow;
    /// # mmq::Queue::open(dir)?.close()?;
    ///
    /// let verified = mmq::Inspector::open(dir)?.verify_while(|step| {
    ///     match step {
    ///         mmq::VerifyStep::Finding(finding) => println!("{finding}"),
    ///         mmq::VerifyStep::Read { bytes, total } => eprint!("{bytes} of {total} bytes\r"),
    ///         _ => {}
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(verified.findings, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn verify_while(
        &self,
        mut each: impl FnMut(VerifyStep) -> ControlFlow<()>,
    ) -> Result<Verified> {
        self.verify_to(Depth::Messages, &mut each)
    }

    /// Checks as [`verify`](Self::verify) does, without reading the messages.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # let inspector = mmq::Inspector::open(dir)?;
    /// let verified = inspector.verify_headers(|finding| println!("{finding}"))?;
    /// assert_eq!(verified.findings, 0);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn verify_headers(&self, mut each: impl FnMut(Finding)) -> Result<Verified> {
        self.verify_to(Depth::Headers, &mut inspect::findings_alone(&mut each))
    }

    /// Not generic: else each crate that verifies would compile the reading of all files once more.
    fn verify_to(&self, depth: Depth, each: OnStep<'_>) -> Result<Verified> {
        inspect::verify(&self.storage, depth, each)
    }
}

/// The messages of a queue that is looked at from outside: [`Inspector::messages`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// let mut messages: mmq::InspectedMessages<'_> = inspector.messages(mmq::Start::Oldest);
/// assert!(messages.next().is_some());
/// assert!(messages.next().is_none());
/// queue.enqueue("another message")?;
/// assert!(messages.next().is_some());
/// # Ok::<(), mmq::Error>(())
/// ```
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
    fn step(&mut self) -> Result<Option<Reported>> {
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
        let (reported, at) = match &mut self.source {
            None => return Ok(None),
            Some(Begun::InFiles(files, reading)) => (reading.next(&**files)?, reading.at()),
            Some(Begun::InOverlay(files, reading)) => (reading.next(&**files)?, reading.at()),
        };
        if reported.is_none() {
            self.source = None;
            self.at = At::Spot(at);
        }
        Ok(reported)
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
        let reported = self.step();
        self.failed = reported.is_err();
        Some(Ok(match reported {
            Err(error) => return Some(Err(error)),
            Ok(None) => return None,
            Ok(Some(Reported::Gap(gap))) => Seen::Gap(gap),
            Ok(Some(Reported::Overtaken { first, last })) => Seen::Overtaken { first, last },
            Ok(Some(Reported::Message { seq, payload, origin, created })) => Seen::Message {
                message: Message::owned(seq, payload).with_origin(origin),
                segment_time: time(created).unwrap_or(UNIX_EPOCH),
            },
        }))
    }
}

/// A time in milliseconds since 1970; `None` for zero, which is no time.
fn time(milliseconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).filter(|_| milliseconds > 0)
}
