//! What a far engine implements, and the words in which driver and engine speak.

use std::fmt;
use std::time::Duration;

use crate::error::{Gap, GapCause};

/// An error of the far side, of whatever client.
pub type FarError = Box<dyn std::error::Error + Send + Sync>;

/// Where messages go: one engine. All calls block; a client that does not lives behind a thread of
/// its own.
///
/// A far side that stores what it gets, in memory:
///
/// ```
/// use mmq::forward::{Destination, Held, Limits, Outgoing, Source, Trouble};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct InMemory(Vec<(u64, u32, Vec<u8>)>);
///
/// impl Destination for InMemory {
///     fn resume(&mut self, _: &Source) -> Result<Held, Trouble> {
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
    /// Ends the session before, if there is one, connects if need be, and answers what the far side
    /// holds of `source`. Called before anything is sent, and after every trouble.
    ///
    /// # Errors
    ///
    /// [`Trouble`].
    fn resume(&mut self, source: &Source) -> Result<Held, Trouble>;

    /// Sends messages of rising numbers, which follow what was sent since [`resume`](Self::resume),
    /// or else what `resume` answered. It may return before they are acknowledged.
    ///
    /// **The far side stores each message right behind the one before, or not at all.** That one is
    /// named by its number, not by its position at the far side alone: a write of an earlier
    /// session that arrives late must find the very message before it that it was sent behind. (An
    /// earlier session may have counted positions otherwise: a number that it sent may be missing
    /// by now.) A far side that stores whole calls or nothing, one call at a time, needs the
    /// position alone.
    ///
    /// # Errors
    ///
    /// [`Trouble`]. Some of the messages may be stored, but none unless all before it are.
    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble>;

    /// The first number that is not acknowledged: one more than that of the last message that is.
    /// Waits up to `wait` for it to move.
    ///
    /// # Errors
    ///
    /// [`Trouble`].
    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble>;

    /// What the far side takes. Asked after each [`resume`](Self::resume).
    fn limits(&self) -> Limits;
}

impl<D: Destination + ?Sized> Destination for &mut D {
    fn resume(&mut self, source: &Source) -> Result<Held, Trouble> {
        (**self).resume(source)
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
}

impl<D: Destination + ?Sized> Destination for Box<D> {
    fn resume(&mut self, source: &Source) -> Result<Held, Trouble> {
        (**self).resume(source)
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
}

/// Whose messages they are. Each source has a chain of numbers of its own at the far side.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// [`Queue::id`](crate::Queue::id).
    pub queue_id: [u8; 16],
    /// What the far side may call it, as in a subject: unless said otherwise the directory's name.
    pub name: String,
    /// Which messages of the queue.
    pub lane: SourceLane,
}

impl Source {
    /// The name with the lane behind it: a subject, a stream or a key for this source alone.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}{}", self.name, self.lane.suffix())
    }

    /// The queue's id in 32 hexadecimal digits.
    #[must_use]
    pub fn queue_hex(&self) -> String {
        self.queue_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Which messages of a queue a source has. Numbers rise within each lane, not over both, so each
/// lane is a source of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceLane {
    /// All of them, in order.
    All,
    /// The fresh ones.
    Fresh,
    /// What an outage left behind.
    Backlog,
}

impl SourceLane {
    /// What a destination appends to the name of its stream, so that each lane has one of its own.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            SourceLane::All => "",
            SourceLane::Fresh => ".live",
            SourceLane::Backlog => ".backfill",
        }
    }
}

/// What the far side holds of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Nothing, as if there had never been anything.
    Nothing,
    /// Messages up to this one.
    Until {
        /// The last one's number.
        seq: u64,
        /// Its checksum ([`Outgoing::sum`]); `None` where the number alone outlives the message.
        sum: Option<u32>,
    },
    /// Nothing, and that is no wonder: this far side gives messages up once they are consumed.
    Forgotten,
}

/// One message on its way.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Its number.
    pub seq: u64,
    /// The CRC32C of its bytes, to be stored with it: [`Held::Until`] gives it back.
    pub sum: u32,
    /// The message.
    pub bytes: &'a [u8],
    /// Numbers between the message before and this one that will never come, in order.
    pub missing_before: &'a [MissingNumbers],
    /// Whether it is a message of the queue.
    pub kind: OutgoingKind,
}

/// What an [`Outgoing`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutgoingKind {
    /// A message of the queue.
    Message,
    /// Word of [missing numbers](Outgoing::missing_before), without bytes
    /// ([`TellGaps::Message`](super::TellGaps)). It has the number and the checksum of the last
    /// real message, so that [`Destination::resume`] may answer from it. It may come more than
    /// once.
    Gap,
}

/// Numbers that will never come to the far side, and why.
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

/// As it stands in a header: `7-9 damaged`.
impl fmt::Display for MissingNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} {}", self.first, self.last, self.cause.word())
    }
}

/// Why numbers are missing at the far side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingCause {
    /// The queue has lost them.
    Gap(GapCause),
    /// The far side had acknowledged them and lost them, and they were not kept here.
    LostThere,
    /// The far side refuses the message for good.
    Refused,
}

impl MissingCause {
    /// In a word, for a header.
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
#[derive(Debug)]
pub enum Trouble {
    /// It may go better next time, not before this time has passed (at least the forwarder's own
    /// pause).
    Again(FarError, Duration),
    /// The far side refuses this message. After the fifth time in a row for the same number it is
    /// refused for good: [`OnRefused`](super::OnRefused).
    Refused {
        /// The message's number.
        seq: u64,
        /// What the far side says.
        why: String,
    },
    /// Nothing will get better by itself: wrong credentials, no such stream.
    Lost(FarError),
}

/// What the far side takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest message, in bytes. Longer ones are refused for good without being sent.
    pub longest: u64,
    /// Messages in one [`send`](Destination::send).
    pub send_messages: usize,
    /// Bytes in one [`send`](Destination::send), but for a single longer message.
    pub send_bytes: u64,
    /// Messages that are sent and not acknowledged.
    pub in_flight_messages: usize,
    /// Bytes that are sent and not acknowledged, but for a single longer message.
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
