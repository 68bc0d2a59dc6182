//! Figures of a queue.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::GapCause;

/// Figures of a queue: [`Queue::stats`](crate::Queue::stats).
///
/// They are read one by one while other threads go on: each is right at a moment of its own, and no
/// message is counted as taken that is not counted as enqueued. While no thread puts in or takes
/// out, all are exact.
///
/// Counts are derived from sequence numbers and positions, never kept by adding and subtracting, so
/// they are right at once after reopening, also after a crash. Missing messages that no read has
/// met yet, damaged ones for instance, count as held: see [`Queue::len`](crate::Queue::len). Totals
/// count from this opening of the queue on.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// let mmq::Stats { messages, disk_bytes, lost_messages, .. } = queue.stats();
/// println!("{messages} wait in {disk_bytes} bytes, {lost_messages} lost");
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that wait for the default consumer; where there is none, those that wait for some
    /// consumer, each counted once; without any consumer, all messages held. Messages in flight
    /// wait until they are acknowledged.
    pub messages: u64,
    /// Bytes of the segments from the oldest of those messages on, headers and what is acknowledged
    /// between them included.
    pub bytes: u64,
    /// Segments that hold messages.
    pub segments: u64,
    /// Drained segments kept for reuse.
    pub spare_segments: u64,
    /// Arenas mapped now: the bytes mapped, in arenas, rounded up.
    pub mapped_arenas: u64,
    /// Bytes mapped now, without the index file.
    pub mapped_bytes: u64,
    /// Bytes of disk taken, every file counted, also removed files that a held message, an iterator
    /// or a consumer still reads from. So this may be above
    /// [`max_bytes`](crate::Options::max_bytes), which limits the files in the directory.
    pub disk_bytes: u64,
    /// The sequence number the next message will get.
    pub next_seq: u64,
    /// The first sequence number still held.
    pub oldest_seq: u64,
    /// The age of the oldest of the [`messages`](Self::messages) that wait, at most: the time since
    /// its segment was begun. `None` when no message waits.
    pub oldest_age: Option<Duration>,
    /// The first sequence number not yet known to be durable.
    pub durable_seq: u64,
    /// Messages enqueued since the queue was opened.
    pub enqueued: u64,
    /// Messages that all consumers have taken or skipped since the queue was opened.
    pub dequeued: u64,
    /// Consumers that exist, the default one included.
    pub consumers: u64,
    /// Gaps reported to consumers since the queue was opened.
    pub gaps: u64,
    /// Sequence numbers in those gaps, without those that were only
    /// [reserved](Self::reserved_numbers). Those may hold lost messages, too, which were not
    /// flushed before a power cut.
    pub lost_messages: u64,
    /// Lost messages whose bytes were damaged.
    pub lost_damaged: u64,
    /// Lost messages that a power cut took.
    pub lost_unflushed: u64,
    /// Numbers given up to make room.
    pub lost_dropped: u64,
    /// Numbers given up because they were too old.
    pub lost_expired: u64,
    /// Numbers that a consumer gave up because they were [rejected](crate::GapCause::Rejected).
    pub lost_rejected: u64,
    /// Sequence numbers in the gaps that were only reserved before a power cut: probably no message
    /// ever had them.
    pub reserved_numbers: u64,
    /// Flushes of messages since the queue was opened.
    pub flushes: u64,
    /// Time that those flushes took.
    pub flush_time: Duration,
    /// Time that the longest of them took.
    pub longest_flush: Duration,
    /// Calls that put messages in and were refused because the queue or the disk was full
    /// ([`Error::is_full`](crate::Error::is_full)).
    pub refused: u64,
    /// Time that such calls waited for room, all together ([`OnFull::Wait`](crate::OnFull::Wait)):
    /// those that then found some too.
    pub wait_time: Duration,
    /// Messages dropped to make room since the queue was opened that some consumer had yet to read:
    /// counted once each, when it happens, and not only when it is reported to a consumer. Those
    /// count too that all consumers had acknowledged ahead of an older message that waited.
    pub dropped: u64,
    /// Likewise, messages that were too old.
    pub expired: u64,
    /// Messages that were rejected since the queue was opened, by
    /// [`Delivery::reject`](crate::Delivery::reject) or because they were handed out in vain as
    /// often as they may be: for the dead letters, or given up. Each counts when it happens.
    pub rejected: u64,
    /// Messages given up since the queue was opened because the first consumer was made behind
    /// them, and no consumer had claimed them ([`Queue::consumer_at`](crate::Queue::consumer_at)).
    /// They count when that consumer is made; they go when their segments do.
    pub unclaimed: u64,
    /// The error of the flush that failed; writing has been refused since. `None` when none has
    /// failed.
    pub last_flush_error: Option<String>,
}

/// Figures of one consumer: [`Consumer::stats`](crate::Consumer::stats) and
/// [`Queue::consumer_stats`](crate::Queue::consumer_stats).
///
/// They are counted as those of [`Stats`] are: right at a moment of their own while other threads
/// go on, exact while none puts in or takes out, also at once after a reopening or a crash. Missing
/// messages that no read has met yet count as held.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// for mmq::ConsumerStats { name, messages, in_flight, .. } in queue.consumer_stats() {
///     println!("{name:?}: {messages} wait, {in_flight} in flight");
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// The consumer's name; empty for the queue's own (default) consumer.
    pub name: String,
    /// The consumer's place: every message below it is done (taken, acknowledged, reported as
    /// missing, or passed over by a seek). When messages were given up, it may be below
    /// [`Stats::oldest_seq`] until a read reports the gap.
    pub next_seq: u64,
    /// Messages that wait for the consumer: those it has neither taken nor acknowledged, messages
    /// in flight included.
    pub messages: u64,
    /// Bytes of the segments from the oldest of these messages on, headers and what is acknowledged
    /// between them included. For a forwarder they count from the beginning of that message's
    /// segment.
    pub bytes: u64,
    /// Messages received, neither acknowledged nor given back. A rejected message counts until it
    /// is in the queue for dead letters, or a read has reported it as a gap.
    pub in_flight: u64,
    /// The age of the oldest message that waits, at most: the time since its segment was begun.
    /// `None` when no message waits.
    pub oldest_age: Option<Duration>,
    /// Nobody's place is lower than this consumer's, and something lies behind it: the queue keeps
    /// its oldest segment for this consumer, and for others that say so.
    pub holds_oldest: bool,
    /// Numbers below [`next_seq`](Self::next_seq) that a forwarder reading as this consumer keeps,
    /// to send them again if the far side loses them.
    pub kept: u64,
    /// When the far side of such a forwarder last acknowledged a message; `None` when it never did,
    /// or no forwarder reads as this consumer.
    pub acknowledged_at: Option<SystemTime>,
}

impl Stats {
    pub(crate) fn set_lost(&mut self, cause: GapCause, count: u64) {
        match cause {
            GapCause::Damaged => self.lost_damaged = count,
            GapCause::Unflushed => self.lost_unflushed = count,
            GapCause::Dropped => self.lost_dropped = count,
            GapCause::Expired => self.lost_expired = count,
            GapCause::Rejected => self.lost_rejected = count,
            GapCause::Reserved => {
                self.reserved_numbers = count;
                return;
            }
        }
        self.lost_messages += count;
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages in {} bytes, oldest {}, next {}, durable below {}, {} segments and {} spare, {} bytes of disk, \
             {} arenas mapped ({} bytes), {} gaps ({} messages lost), {} flushes",
            self.messages,
            self.bytes,
            Age(self.oldest_age),
            self.next_seq,
            self.durable_seq,
            self.segments,
            self.spare_segments,
            self.disk_bytes,
            self.mapped_arenas,
            self.mapped_bytes,
            self.gaps,
            self.lost_messages,
            self.flushes
        )?;
        if self.reserved_numbers > 0 {
            write!(f, ", {} numbers that were only reserved left out", self.reserved_numbers)?;
        }
        match &self.last_flush_error {
            Some(error) => write!(f, ", last flush failed: {error}"),
            None => Ok(()),
        }
    }
}

/// An age in whole seconds, which is enough for a line that a person reads.
struct Age(Option<Duration>);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(age) => write!(f, "{} s", age.as_secs()),
            None => f.write_str("none"),
        }
    }
}
