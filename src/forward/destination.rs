//! The trait that a far engine implements, and the types that driver and engine exchange.

use std::fmt;
use std::time::Duration;

use crate::error::{Gap, GapCause};
use crate::forward::far_side::{Held, Mark, Position};

/// An error of the far side's client.
///
/// ```
/// use mmq::forward::{FarError, Trouble};
///
/// let error: FarError = "no such stream: EVENTS".into();
/// let trouble = Trouble::Lost(error);
/// # drop(trouble);
/// ```
pub type FarError = Box<dyn std::error::Error + Send + Sync>;

/// One engine to which a forwarder sends messages. All calls block; an asynchronous client needs a
/// thread of its own behind them.
///
/// A far side that stores messages in memory:
///
/// ```
/// use mmq::forward::{Destination, Held, Limits, Mark, Outgoing, Source, Trouble};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct InMemory(Vec<(u64, u32, Vec<u8>)>);
///
/// impl Destination for InMemory {
///     fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
///         Ok(match self.0.last() {
///             Some((seq, sum, _)) => Held::Until { seq: *seq, sum: Some(*sum) },
///             None => Held::Nothing,
///         })
///     }
///     fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
///         let stored = messages.iter().map(|it| (it.seq, it.sum, it.bytes.to_vec()));
///         self.0.extend(stored);
///         Ok(())
///     }
///     fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
///         Ok(self.0.last().map_or(0, |(seq, ..)| seq + 1))
///     }
///     fn limits(&self) -> Limits {
///         Limits::default()
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue("to be sent on")?;
/// let mut far = InMemory::default();
/// mmq::forward::Forwarder::new(&queue, "forward", &mut far)?.once()?;
/// assert_eq!(far.0[0].2, b"to be sent on");
/// assert!(queue.consumer("forward")?.is_empty());
/// # Ok(())
/// # }
/// ```
pub trait Destination: Send {
    /// Ends the previous session, if there is one, connects if needed, and returns what the far
    /// side holds of `source`. The forwarder calls it before the first send, and after every
    /// trouble. `mark` is the newest [position](Self::position) that the forwarder stored; `None`
    /// when it knows none. With it a far side that removes messages on its own (by age, by limits,
    /// by a purge) answers [`Held::Removed`] or [`Held::SetBack`].
    ///
    /// # Errors
    ///
    /// [`Trouble`].
    fn resume(&mut self, source: &Source, mark: Option<Mark>) -> Result<Held, Trouble>;

    /// Sends messages with rising numbers, which follow the messages sent since
    /// [`resume`](Self::resume), or else the last one that `resume` returned. It may return before
    /// they are acknowledged.
    ///
    /// **The far side stores each message right behind the one before, or not at all.** Identify
    /// that one by its number and its sum, not only by its position at the far side: a write of an
    /// earlier session that arrives late must succeed only behind the very message that it was sent
    /// after. (An earlier session may have counted positions differently, and may have sent that
    /// message in another chain: a number that it sent may be missing by now.) A far side that
    /// stores whole calls or nothing, one call at a time, needs only the position.
    ///
    /// # Errors
    ///
    /// [`Trouble`]. Some of the messages may be stored, but none unless all before it are.
    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble>;

    /// Returns the first unacknowledged number: one more than that of the last acknowledged
    /// message. Waits up to `wait` for it to change.
    ///
    /// # Errors
    ///
    /// [`Trouble`].
    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble>;

    /// Returns what the far side accepts. The forwarder calls it after each
    /// [`resume`](Self::resume).
    fn limits(&self) -> Limits;

    /// Returns where the far side's store ends behind the last acknowledged message; after
    /// [`resume`](Self::resume), where it ended then. The forwarder stores it and passes it to
    /// later sessions, of later processes too. `None`, as by default: this far side counts no
    /// positions.
    fn position(&self) -> Option<Position> {
        None
    }

    /// Returns what a person should know of the far side although it takes messages, in one
    /// sentence; after [`resume`](Self::resume). `None`, as by default: nothing.
    fn warning(&self) -> Option<String> {
        None
    }
}

impl<D: Destination + ?Sized> Destination for &mut D {
    fn resume(&mut self, source: &Source, mark: Option<Mark>) -> Result<Held, Trouble> {
        (**self).resume(source, mark)
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        (**self).send(messages)
    }

    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        (**self).acknowledged(wait)
    }

    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn position(&self) -> Option<Position> {
        (**self).position()
    }

    fn warning(&self) -> Option<String> {
        (**self).warning()
    }
}

impl<D: Destination + ?Sized> Destination for Box<D> {
    fn resume(&mut self, source: &Source, mark: Option<Mark>) -> Result<Held, Trouble> {
        (**self).resume(source, mark)
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        (**self).send(messages)
    }

    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        (**self).acknowledged(wait)
    }

    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn position(&self) -> Option<Position> {
        (**self).position()
    }

    fn warning(&self) -> Option<String> {
        (**self).warning()
    }
}

/// The queue and lane that messages come from. Each source has its own chain of numbers at the far
/// side.
///
/// ```
/// use mmq::forward::{Source, SourceLane};
///
/// let mut source = Source::new([7; 16], "agent");
/// assert_eq!(source.key(), "agent");
/// assert_eq!(source.queue_hex(), "07070707070707070707070707070707");
/// source.lane = SourceLane::Backlog;
/// assert_eq!(source.key(), "agent.backfill");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// [`Queue::id`](crate::Queue::id).
    pub queue_id: [u8; 16],
    /// The name for it at the far side, as in a subject: by default the directory's name.
    pub name: String,
    /// The name of the consumer that the forwarder reads as.
    pub consumer: String,
    /// Which messages of the queue.
    pub lane: SourceLane,
}

impl Source {
    /// All messages of the queue with that id, under this name, read by the consumer `forward`.
    #[must_use]
    pub fn new(queue_id: [u8; 16], name: impl Into<String>) -> Source {
        Source { queue_id, name: name.into(), consumer: "forward".into(), lane: SourceLane::All }
    }

    /// Returns a subject or a key by its template, with the lane's suffix behind it. `{dir}` in the
    /// template is the [name](Self::name), `{consumer}` the consumer's and `{host}` the machine's,
    /// each as `spell` writes it. `None`: the template has braces without one of these names.
    ///
    /// ```
    /// use mmq::forward::Source;
    ///
    /// let source = Source::new([7; 16], "edge 1");
    /// let subject = source.filled("plant.{dir}.{consumer}", |name| name.replace(' ', "_"));
    /// assert_eq!(subject.as_deref(), Some("plant.edge_1.forward"));
    /// assert_eq!(source.filled("{tag}", str::to_owned), None);
    /// ```
    #[must_use]
    pub fn filled(&self, template: &str, spell: impl Fn(&str) -> String) -> Option<String> {
        let (mut filled, mut rest) = (String::new(), template);
        // (In one pass: what is filled in may have braces of its own.)
        while let Some((before, named)) = rest.split_once('{') {
            let (name, behind) = named.split_once('}')?;
            let name = match name {
                "dir" => spell(&self.name),
                "consumer" => spell(&self.consumer),
                "host" => spell(&rustix::system::uname().nodename().to_string_lossy()),
                _ => return None,
            };
            if before.contains('}') {
                return None;
            }
            filled = filled + before + &name;
            rest = behind;
        }
        (!rest.contains('}')).then(|| filled + rest + self.lane.suffix())
    }

    /// Returns the name with the lane behind it: a subject, a stream or a key for only this source.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}{}", self.name, self.lane.suffix())
    }

    /// Returns the queue's id in 32 hexadecimal digits.
    #[must_use]
    pub fn queue_hex(&self) -> String {
        self.queue_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Which messages of a queue belong to a source. Numbers rise within each lane, but not over both,
/// so each lane is a separate source.
///
/// ```
/// use mmq::forward::SourceLane;
///
/// assert_eq!(SourceLane::All.suffix(), "");
/// assert_eq!(SourceLane::Fresh.suffix(), ".live");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceLane {
    /// All of them, in order.
    All,
    /// The messages of the fresh lane.
    Fresh,
    /// The messages of the backlog, which waited during an outage.
    Backlog,
}

impl SourceLane {
    /// Returns the suffix that a destination appends to the name of its stream, so that each lane
    /// has its own.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            SourceLane::All => "",
            SourceLane::Fresh => ".live",
            SourceLane::Backlog => ".backfill",
        }
    }
}

/// One message to send.
///
/// ```
/// use mmq::forward::Outgoing;
///
/// fn headers(message: &Outgoing<'_>) -> [String; 3] {
///     let missing: Vec<_> = message.missing_before.iter().map(|it| it.to_string()).collect();
///     [message.seq.to_string(), format!("{:08x}", message.sum), missing.join(", ")]
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Its number.
    pub seq: u64,
    /// The lower half of the XXH3-64 of its bytes, seeded with the sum of the message before it. So
    /// it differs in two queues whose messages differed at any earlier number. The far side stores
    /// it with the message and returns it in [`Held::Until`].
    pub sum: u32,
    /// The message.
    pub bytes: &'a [u8],
    /// Numbers between the previous message and this one that will never be sent, in order.
    pub missing_before: &'a [MissingNumbers],
    /// Whether it is a message of the queue.
    pub kind: OutgoingKind,
}

/// The kind of an [`Outgoing`].
///
/// ```
/// use mmq::forward::{Outgoing, OutgoingKind};
///
/// fn body<'a>(message: &Outgoing<'a>) -> Option<&'a [u8]> {
///     (message.kind == OutgoingKind::Message).then_some(message.bytes)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutgoingKind {
    /// A message of the queue.
    Message,
    /// A report of [missing numbers](Outgoing::missing_before), without bytes
    /// ([`TellGaps::Message`](super::TellGaps)). It has the number and the checksum of the last
    /// real message, so that [`Destination::resume`] may return them from it. The forwarder may
    /// send it more than once.
    Gap,
}

/// Numbers that will never reach the far side, and the reason.
///
/// ```
/// use mmq::GapCause;
/// use mmq::forward::{MissingCause, MissingNumbers};
///
/// let missing = MissingNumbers { first: 7, last: 9, cause: MissingCause::Gap(GapCause::Damaged) };
/// assert_eq!(missing.to_string(), "7-9 damaged");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MissingNumbers {
    /// The first one.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Why they are missing.
    pub cause: MissingCause,
}

impl MissingNumbers {
    pub(crate) fn of(gap: Gap) -> MissingNumbers {
        let Gap { first, last, cause } = gap;
        MissingNumbers { first, last, cause: MissingCause::Gap(cause) }
    }
}

/// The form in a header: `7-9 damaged`.
impl fmt::Display for MissingNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} {}", self.first, self.last, self.cause.word())
    }
}

/// Why numbers are missing at the far side.
///
/// ```
/// use mmq::forward::MissingCause;
///
/// assert_eq!(MissingCause::LostThere.word(), "lost-there");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingCause {
    /// The queue has lost them.
    Gap(GapCause),
    /// The far side acknowledged and then lost them, and the forwarder had not kept them.
    LostThere,
    /// The far side rejects the message for good.
    Refused,
}

impl MissingCause {
    /// Returns the cause in a word, for a header.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            MissingCause::Gap(GapCause::Damaged) => "damaged",
            MissingCause::Gap(GapCause::Unflushed) => "unflushed",
            MissingCause::Gap(GapCause::Dropped) => "dropped",
            MissingCause::Gap(GapCause::Expired) => "expired",
            MissingCause::Gap(GapCause::Reserved) => "reserved",
            MissingCause::Gap(GapCause::Rejected) => "rejected",
            MissingCause::LostThere => "lost-there",
            MissingCause::Refused => "refused",
        }
    }
}

/// What went wrong. Each ends the session; the next one begins with [`Destination::resume`].
///
/// ```
/// use mmq::forward::Trouble;
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// fn trouble(error: Error) -> Trouble {
///     match error.kind() {
///         ErrorKind::PermissionDenied => Trouble::Lost(error.into()),
///         _ => Trouble::Again(error.into(), Duration::from_secs(1)),
///     }
/// }
/// # trouble(Error::other("down"));
/// ```
#[derive(Debug)]
pub enum Trouble {
    /// A later try may succeed, but not before this time has passed (at least the forwarder's own
    /// pause).
    Again(FarError, Duration),
    /// The far side rejects this message. After five times in a row for the same number it counts
    /// as rejected for good: [`OnRefused`](super::OnRefused).
    Refused {
        /// The message's number.
        seq: u64,
        /// The far side's reason.
        why: String,
    },
    /// A person must act: wrong credentials, no such stream. It ends a forwarder that had no
    /// session yet. Later the forwarder waits for the person.
    Lost(FarError),
}

/// What the far side accepts.
///
/// ```
/// use mmq::forward::Limits;
///
/// let limits = Limits { longest: 1 << 20, ..Limits::default() };
/// assert_eq!(limits.send_messages, 500);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest message, in bytes. Longer ones count as rejected for good without being sent.
    pub longest: u64,
    /// Messages in one [`send`](Destination::send).
    pub send_messages: usize,
    /// Bytes in one [`send`](Destination::send), except for a single longer message.
    pub send_bytes: u64,
    /// Messages that are sent and unacknowledged.
    pub in_flight_messages: usize,
    /// Bytes that are sent and unacknowledged, except for a single longer message.
    pub in_flight_bytes: u64,
}

/// Sends of 500 messages or 1 MiB, four of them at a time, of any length.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            longest: u64::MAX,
            send_messages: 500,
            send_bytes: 1 << 20,
            in_flight_messages: 2_000,
            in_flight_bytes: 4 << 20,
        }
    }
}
