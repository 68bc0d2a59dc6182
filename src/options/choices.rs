//! What happens in a full queue, and where reading begins.

use std::time::Duration;

#[cfg(doc)]
use super::Options;
#[cfg(doc)]
use crate::error::Error;

/// What to do with a new message when the queue has reached [`Options::max_bytes`] or
/// [`Options::min_free_bytes`], or the disk is full.
///
/// ```
/// use mmq::{OnFull, Options};
/// use std::time::Duration;
///
/// let limited = Options::new().max_bytes(64 << 20); // refuses messages when it is full
/// let for_readings = limited.clone().on_full(OnFull::DropOldest);
/// let for_orders = limited.on_full(OnFull::Wait(Some(Duration::from_secs(5))));
/// # _ = (for_readings, for_orders);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFull {
    /// Refuse it with [`Error::Full`] (or [`Error::Io`] from a full disk).
    #[default]
    Reject,
    /// Wait until there is room, at most that long (`None`: for ever), then refuse it. In a waker,
    /// or a subscriber of events, on one of the queue's own threads: refuse it at once.
    Wait(Option<Duration>),
    /// Give up the oldest messages, a whole segment at a time; when there is only one segment, all
    /// that it holds. (A segment is at most as long as an arena, or 4 MiB where arenas are shorter,
    /// and at most a quarter of [`Options::max_bytes`].) Every consumer that had not read them
    /// gets a [`Gap`](crate::Gap) with [`GapCause::Dropped`](crate::GapCause::Dropped), and so does
    /// the queue's first consumer, if they went before it was made.
    ///
    /// From a [`Options::max_bytes`] of 16 MiB on, a segment is at most a sixteenth of it (but for
    /// a message that is longer), and the queue's own thread gives up the oldest ahead of need: one
    /// segment, and up to four while messages come faster than the disk syncs. So no `enqueue`
    /// waits for the syncs that this takes, as long as the thread keeps up; and the queue holds
    /// eleven sixteenths of its limit at least.
    ///
    /// Where the disk itself is full, a [`Message`](crate::Message), a
    /// [`Delivery`](crate::Delivery) or an [`Iter`](crate::Iter) keeps the space that it refers to
    /// until it is dropped: a new message may be refused although all older ones were given up.
    DropOldest,
}

/// Where reading begins: for a new consumer ([`Queue::consumer_at`](crate::Queue::consumer_at)),
/// and for a look from outside ([`Inspector::messages`](crate::Inspector::messages)).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// use mmq::Start;
///
/// queue.enqueue_batch(["a", "b", "c"])?;
/// let all = queue.consumer_at("all", Start::Oldest)?;
/// let new = queue.consumer_at("new", Start::End)?;
/// let tail = queue.consumer_at("tail", Start::Seq(2))?;
/// assert_eq!((all.len(), new.len(), tail.len()), (3, 0, 1));
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// At the oldest message held.
    Oldest,
    /// Behind the newest message.
    End,
    /// At the message with this sequence number; where it is not held any more, at the oldest one.
    Seq(u64),
}
