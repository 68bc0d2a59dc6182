//! Figures of a queue and of its consumers, and its id.

use std::time::Duration;

use super::guard::guard;
use super::handle::body;
use super::mmq_consumer::mmq_consumer;
use super::mmq_status::mmq_status;
use super::pointers::{out, out_sized};
use super::queue::mmq_queue;
use crate::state::nanos;
use crate::stats::Stats;

/// Figures of a queue. They are read one by one while other threads go on: each is right at a
/// moment of its own, and no message is counted as taken that is not counted as enqueued. Totals
/// count from this opening of the queue on. Later versions append fields: set struct_size to
/// sizeof(mmq_stats) before every call of mmq_read_stats.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_stats {
    /// In: the caller's sizeof(mmq_stats). Out: how many bytes were filled; fields behind them are
    /// as they were.
    pub struct_size: usize,
    /// Messages that wait for the default consumer; where there is none, those that any consumer
    /// has yet to deal with; without any consumer, all messages held.
    pub messages: u64,
    /// Bytes of the segments that those messages take, headers included.
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
    /// or a consumer still reads from. So this may be above max_bytes, which limits the files in
    /// the directory.
    pub disk_bytes: u64,
    /// The sequence number the next message will get.
    pub next_seq: u64,
    /// The first sequence number still held.
    pub oldest_seq: u64,
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
    /// Sequence numbers in those gaps, without those that were only reserved (reserved_numbers).
    /// Those may hold lost messages, too, which were not flushed before a power cut.
    pub lost_messages: u64,
    /// Lost messages whose bytes were damaged.
    pub lost_damaged: u64,
    /// Lost messages that a power cut took.
    pub lost_unflushed: u64,
    /// Numbers given up to make room.
    pub lost_dropped: u64,
    /// Numbers given up because they were too old.
    pub lost_expired: u64,
    /// Flushes of messages since the queue was opened.
    pub flushes: u64,
    /// Time that those flushes took, in nanoseconds.
    pub flush_ns: u64,
    /// 1 when a flush has failed and writing is refused (mmq_flush then answers MMQ_POISONED, and
    /// mmq_last_error has the reason); else 0.
    pub poisoned: u64,
    /// The age of the oldest message that waits for the default consumer, at most, in milliseconds;
    /// 0 when no message waits.
    pub oldest_age_ms: u64,
    /// Sequence numbers in the gaps that were only reserved before a power cut: probably no message
    /// ever had them.
    pub reserved_numbers: u64,
    /// Time that the longest flush took, in nanoseconds.
    pub longest_flush_ns: u64,
    /// Calls that put messages in and were refused because the queue or the disk was full.
    pub refused: u64,
    /// Time that such calls waited for room, all together, in nanoseconds (MMQ_WAIT): those that
    /// then found some too.
    pub wait_ns: u64,
    /// Messages dropped to make room since the queue was opened that some consumer had yet to read:
    /// counted once each, when it happens, and not only when it is reported to a consumer.
    pub dropped: u64,
    /// Likewise, messages that were too old.
    pub expired: u64,
    /// Messages that were rejected since the queue was opened (mmq_delivery_reject, and the most
    /// attempts of mmq_set_redelivery): for the dead letters, or given up. Each counts when it
    /// happens.
    pub rejected: u64,
    /// Lost messages that were given up because they were rejected.
    pub lost_rejected: u64,
    /// Messages given up since the queue was opened because the first consumer was made behind
    /// them, and no consumer had claimed them (mmq_consumer_open_at). They count when that consumer
    /// is made; they go when their segments do.
    pub unclaimed: u64,
}

impl From<Stats> for mmq_stats {
    fn from(stats: Stats) -> mmq_stats {
        mmq_stats {
            struct_size: size_of::<mmq_stats>(),
            messages: stats.messages,
            bytes: stats.bytes,
            segments: stats.segments,
            spare_segments: stats.spare_segments,
            mapped_arenas: stats.mapped_arenas,
            mapped_bytes: stats.mapped_bytes,
            disk_bytes: stats.disk_bytes,
            next_seq: stats.next_seq,
            oldest_seq: stats.oldest_seq,
            durable_seq: stats.durable_seq,
            enqueued: stats.enqueued,
            dequeued: stats.dequeued,
            consumers: stats.consumers,
            gaps: stats.gaps,
            lost_messages: stats.lost_messages,
            lost_damaged: stats.lost_damaged,
            lost_unflushed: stats.lost_unflushed,
            lost_dropped: stats.lost_dropped,
            lost_expired: stats.lost_expired,
            flushes: stats.flushes,
            flush_ns: nanos(stats.flush_time),
            longest_flush_ns: nanos(stats.longest_flush),
            refused: stats.refused,
            wait_ns: nanos(stats.wait_time),
            dropped: stats.dropped,
            expired: stats.expired,
            rejected: stats.rejected,
            lost_rejected: stats.lost_rejected,
            unclaimed: stats.unclaimed,
            poisoned: u64::from(stats.last_flush_error.is_some()),
            reserved_numbers: stats.reserved_numbers,
            oldest_age_ms: milliseconds(stats.oldest_age),
        }
    }
}

/// Figures of one consumer, counted as those of mmq_stats. Later versions append fields: set
/// struct_size to sizeof(mmq_consumer_stats) before every call of mmq_consumer_read_stats.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_consumer_stats {
    /// In: the caller's sizeof(mmq_consumer_stats). Out: how many bytes were filled; fields behind
    /// them are as they were.
    pub struct_size: usize,
    /// The consumer's place: every message below it is done (taken, acknowledged, reported as
    /// missing, or passed over by a seek).
    pub next_seq: u64,
    /// Messages that wait for the consumer: those it has neither taken nor acknowledged, messages
    /// in flight included.
    pub messages: u64,
    /// Bytes of the segments from the oldest of these messages on, headers and what is acknowledged
    /// between them included.
    pub bytes: u64,
    /// Messages received, neither acknowledged nor given back.
    pub in_flight: u64,
    /// The age of the oldest message that waits, at most, in milliseconds: the time since its
    /// segment was begun. 0 when no message waits.
    pub oldest_age_ms: u64,
}

fn milliseconds(age: Option<Duration>) -> u64 {
    age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the figures of a queue.
///
/// @param queue Not NULL.
/// @param out Where they go; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_read_stats(
    queue: *const mmq_queue,
    out: *mut mmq_stats,
) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out.
        let queue = unsafe { body(queue) }?;
        let unset = "struct_size was not set to sizeof(mmq_stats)";
        let figures =
            |struct_size| Ok(mmq_stats { struct_size, ..mmq_stats::from(queue.reader.stats()) });
        // SAFETY: the contract: NULL, or the caller has set the first field. All fields take eight
        // bytes.
        unsafe { out_sized(out, unset, figures) }
    })
}

/// Reads the figures of a consumer.
///
/// @param consumer Not NULL.
/// @param out Where they go; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_read_stats(
    consumer: *const mmq_consumer,
    out: *mut mmq_consumer_stats,
) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out.
        let consumer = unsafe { body(consumer) }?;
        let unset = "struct_size was not set to sizeof(mmq_consumer_stats)";
        let figures = |struct_size| {
            let stats = consumer.reader.stats();
            Ok(mmq_consumer_stats {
                struct_size,
                next_seq: stats.next_seq,
                messages: stats.messages,
                bytes: stats.bytes,
                in_flight: stats.in_flight,
                oldest_age_ms: milliseconds(stats.oldest_age),
            })
        };
        // SAFETY: the contract: NULL, or the caller has set the first field. All fields take eight
        // bytes.
        unsafe { out_sized(out, unset, figures) }
    })
}

/// The queue's id: 16 random bytes, given when the queue was created, the same at every opening.
/// With a sequence number it names one message among those of all queues. A copy of the directory
/// has the same id.
/// cbindgen:ptrs-as-arrays=[[out;16]]
///
/// @param queue Not NULL.
/// @param out Where the 16 bytes go. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[allow(rustdoc::broken_intra_doc_links, reason = "the line for cbindgen is no link")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_queue_id(queue: *const mmq_queue, out: *mut u8) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says; bytes need no alignment.
        let (queue, out) = unsafe { (body(queue)?, self::out(out.cast::<[u8; 16]>(), "out")?) };
        out.write(queue.reader.id());
        Ok(mmq_status::MMQ_OK)
    })
}
