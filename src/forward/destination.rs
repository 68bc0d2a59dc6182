//! The trait that a far engine implements, and the types that driver and engine exchange.

use std::fmt;
use std::ops::DerefMut;
use std::time::{Duration, SystemTime};

use crate::error::{Gap, GapCause};
use crate::forward::far_side::{Held, Mark, Position};
use crate::forward::source::Source;

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

impl<P: DerefMut<Target: Destination> + Send> Destination for P {
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
    /// Its number; of a pack, that of its last message, and so for the sum.
    pub seq: u64,
    /// The lower half of the XXH3-64 of its bytes, seeded with the sum of the message before it. So
    /// it differs in two queues whose messages differed at any earlier number. The far side stores
    /// it with the message and returns it in [`Held::Until`].
    pub sum: u32,
    /// The message, or the pack.
    pub bytes: &'a [u8],
    /// Numbers between the previous message and this one that will never be sent, in order.
    pub missing_before: &'a [MissingNumbers],
    /// With [`times`](super::ForwardOptions::times): a moment before which it was not enqueued. It
    /// is the [time of the segment](crate::Queue::segment_time) of this send's first message, of
    /// the machine's clock.
    pub segment_time: Option<SystemTime>,
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
    /// Several messages of the queue in one, which [`unpack`](super::unpack) reads. Only a
    /// destination gets it whose [limits](Limits::pack_messages) ask for it. It tells its readers
    /// that it is a pack.
    Pack {
        /// How many messages: they end in [`Outgoing::seq`], and no number between is missing.
        messages: u64,
    },
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
    /// The far side answered that it stores neither this message nor those sent behind it, because
    /// the one before it is no longer the last: somebody else wrote there. A later try may succeed.
    NotStored {
        /// Its number, as in [`Outgoing::seq`].
        seq: u64,
        /// What the far side answered.
        why: FarError,
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
    /// Messages in one [`send`](Destination::send), which takes at most half of what may be in
    /// flight, so that one is ready while the far side stores the other.
    pub send_messages: usize,
    /// Bytes in one [`send`](Destination::send), likewise, except for a single longer message.
    pub send_bytes: u64,
    /// Messages that are sent and unacknowledged.
    pub in_flight_messages: usize,
    /// Bytes that are sent and unacknowledged, except for a single longer message.
    pub in_flight_bytes: u64,
    /// Messages of the queue in one message of the far side, which counts as one for the limits
    /// above. With more than 1 a message may be a [pack](OutgoingKind::Pack); no message waits for
    /// others to fill it.
    pub pack_messages: u64,
    /// Bytes of a pack. A message that does not fit into one goes by itself.
    pub pack_bytes: u64,
}

/// Sends of 500 messages or 1 MiB, four of them at a time, of any length, none packed.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            longest: u64::MAX,
            send_messages: 500,
            send_bytes: 1 << 20,
            in_flight_messages: 2_000,
            in_flight_bytes: 4 << 20,
            pack_messages: 1,
            pack_bytes: 1 << 20,
        }
    }
}
