//! Gaps: messages that will never be delivered.

use std::fmt;

use crate::error::{Error, Result};

/// Reads past gaps: calls `read` until it returns something else than [`Error::Gap`], and passes
/// each gap to `on_gap`.
///
/// A read reports a gap once, in the place of the missing messages, and later reads return the
/// messages behind it. A loop that ends with `?` at the first gap leaves them all unread; this one
/// continues:
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// # queue.enqueue("a message")?;
/// while let Some(message) = mmq::past_gaps(|| queue.dequeue(), |gap| eprintln!("{gap}"))? {
///     println!("{}: {:?}", message.seq(), message.as_str());
/// }
/// # Ok(())
/// # }
/// ```
///
/// `read` may be any call that reads: [`receive`](crate::Consumer::receive),
/// [`dequeue_into`](crate::Queue::dequeue_into), [`dequeue_batch`](crate::Queue::dequeue_batch), or
/// [`dequeue_timeout`](crate::Queue::dequeue_timeout), which waits its whole time anew behind a
/// gap. See also [`Consumer::for_each`](crate::Consumer::for_each) and
/// [`Iter::past_gaps`](crate::Iter::past_gaps).
///
/// # Errors
///
/// Those of `read`, except [`Error::Gap`].
#[inline]
pub fn past_gaps<T>(mut read: impl FnMut() -> Result<T>, mut on_gap: impl FnMut(Gap)) -> Result<T> {
    loop {
        match read() {
            Err(Error::Gap(gap)) => on_gap(gap),
            answer => return answer,
        }
    }
}

/// A range of sequence numbers that will never be delivered, and the reason.
///
/// The read that reaches it returns [`Error::Gap`] once, and the next read continues behind it: see
/// [`past_gaps`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// match queue.dequeue() {
///     Ok(message) => println!("{message:?}"),
///     Err(mmq::Error::Gap(mmq::Gap { first, last, cause })) => {
///         eprintln!("messages {first} to {last} are missing: {cause}");
///     }
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The first missing sequence number.
    pub first: u64,
    /// The last missing sequence number.
    pub last: u64,
    /// Why they are missing.
    pub cause: GapCause,
}

impl Gap {
    /// Returns how many messages are missing.
    ///
    /// With [`GapCause::Reserved`] it counts sequence numbers that probably no message ever had:
    /// the queue reserves numbers ahead so that it never uses one twice, and after a power cut
    /// leaves those unused that no known message had.
    ///
    /// ```
    /// use mmq::{Gap, GapCause};
    ///
    /// let gap = Gap { first: 7, last: 9, cause: GapCause::Damaged };
    /// assert_eq!(gap.count(), 3);
    /// assert_eq!(gap.to_string(), "messages 7 to 9 will never come: damaged");
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cause == GapCause::Reserved {
            return write!(
                f,
                "numbers {} to {} will never come: {}",
                self.first, self.last, self.cause
            );
        }
        if self.first == self.last {
            write!(f, "message {} will never come: {}", self.first, self.cause)
        } else {
            write!(f, "messages {} to {} will never come: {}", self.first, self.last, self.cause)
        }
    }
}

/// Why messages are missing.
///
/// ```
/// use mmq::{Gap, GapCause};
///
/// /// Whether somebody should look at the disk.
/// fn is_alarming(gap: &Gap) -> bool {
///     matches!(gap.cause, GapCause::Damaged | GapCause::Unflushed)
/// }
/// # assert!(!is_alarming(&Gap { first: 0, last: 0, cause: GapCause::Expired }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GapCause {
    /// Their bytes are not the ones written: a file was damaged, replaced or removed.
    Damaged,
    /// They had not been flushed when the machine lost power.
    Unflushed,
    /// The queue dropped them to make room ([`OnFull::DropOldest`](crate::OnFull::DropOldest)). The
    /// gap counts all dropped numbers, including those that were already lost or only reserved.
    Dropped,
    /// They were older than [`Options::max_age`](crate::Options::max_age). The gap counts all
    /// expired numbers, including those that were already lost or only reserved.
    Expired,
    /// The queue had reserved these numbers for future messages when the machine lost power, or
    /// when the process died and the queue is now opened through another mount. Probably no message
    /// is missing, because none is known to have had one of the numbers; but unflushed messages may
    /// have been lost together with that knowledge. The numbers stay unused, so that no number
    /// names two messages.
    Reserved,
    /// This consumer used up the message's delivery attempts, or
    /// [rejected](crate::Delivery::reject) it, and has no [dead-letter
    /// queue](crate::Redelivery::dead_letters).
    Rejected,
}

impl GapCause {
    /// Every cause, in the order of its number in the files and in the C header.
    pub(crate) const ALL: [GapCause; 6] = [
        GapCause::Damaged,
        GapCause::Unflushed,
        GapCause::Dropped,
        GapCause::Expired,
        GapCause::Reserved,
        GapCause::Rejected,
    ];

    pub(crate) fn number(self) -> u8 {
        match self {
            GapCause::Damaged => 1,
            GapCause::Unflushed => 2,
            GapCause::Dropped => 3,
            GapCause::Expired => 4,
            GapCause::Rejected => 5,
            GapCause::Reserved => 6,
        }
    }

    /// Returns the cause with that number in a file. An unknown number means damage: this format
    /// version has no others there. (Segments do not record what one consumer rejects.)
    pub(crate) fn from_number(number: u8) -> GapCause {
        GapCause::ALL
            .into_iter()
            .find(|cause| cause.number() == number && *cause != GapCause::Rejected)
            .unwrap_or(GapCause::Damaged)
    }
}

impl fmt::Display for GapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GapCause::Damaged => "damaged",
            GapCause::Unflushed => "not flushed before a power cut",
            GapCause::Dropped => "dropped to make room",
            GapCause::Expired => "older than the maximum age",
            GapCause::Rejected => "rejected, or delivered as often as the limit allows",
            GapCause::Reserved => {
                "only reserved before a power cut, and probably never given to a message"
            }
        })
    }
}
