//! Figures of a queue and of its consumers, and the queue's id.

use std::time::Duration;

use super::c_handle::body;
use super::guard::guard;
use super::mmq_consumer::mmq_consumer;
use super::mmq_status::mmq_status;
use super::pointers::out_sized;
use super::queue::mmq_queue;
use super::reads;
use crate::queue::Queue;
use crate::state::nanos;
use crate::stats::Stats;

/// Figures of a queue. They are read one by one while other threads work: each is right at its own
/// moment, and every message counted as taken is also counted as enqueued. Totals count from this
/// opening of the queue on. Later versions append fields: set struct_size to sizeof(mmq_stats)
/// before every call of mmq_read_stats.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_stats {
    /// In: the caller's sizeof(mmq_stats). Out: how many bytes were filled; fields behind them are
    /// as they were.
    pub struct_size: usize,
    /// Messages that wait for the default consumer. Without a default consumer: messages that some
    /// consumer has not finished. Without any consumer: all messages in the queue.
    pub messages: u64,
    /// Bytes of the segments that those messages take, headers included.
    pub bytes: u64,
    /// Segments that hold messages.
    pub segments: u64,
    /// Drained segments kept for reuse.
    pub spare_segments: u64,
    /// Mapped bytes, in arenas, rounded up.
    pub mapped_arenas: u64,
    /// Bytes mapped now, without the index file.
    pub mapped_bytes: u64,
    /// Disk bytes of all files, including removed files that a message, an iterator or a consumer
    /// still reads from. So this may be above max_bytes, which limits the files in the directory.
    pub disk_bytes: u64,
    /// The sequence number the next message will get.
    pub next_seq: u64,
    /// The first sequence number still in the queue.
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
    /// The reserved ones may include lost messages, too, which were not flushed before a power cut.
    pub lost_messages: u64,
    /// Lost messages whose bytes were damaged.
    pub lost_damaged: u64,
    /// Messages lost in a power cut because they were not flushed.
    pub lost_unflushed: u64,
    /// Sequence numbers dropped to make room.
    pub lost_dropped: u64,
    /// Sequence numbers evicted because they were too old.
    pub lost_expired: u64,
    /// Flushes of messages since the queue was opened.
    pub flushes: u64,
    /// Time that those flushes took, in nanoseconds.
    pub flush_ns: u64,
    /// 1 when a flush has failed and the queue rejects writes (mmq_flush then returns MMQ_POISONED,
    /// and mmq_last_error has the reason); else 0.
    pub poisoned: u64,
    /// An upper bound for the age of the oldest message that waits for the default consumer, in
    /// milliseconds; 0 when no message waits.
    pub oldest_age_ms: u64,
    /// Sequence numbers in the gaps that the queue had only reserved before a power cut: probably
    /// no message ever had them.
    pub reserved_numbers: u64,
    /// Time that the longest flush took, in nanoseconds.
    pub longest_flush_ns: u64,
    /// Enqueueing calls that failed because the queue or the disk was full.
    pub refused: u64,
    /// Total time that enqueueing calls waited for room, in nanoseconds (MMQ_WAIT), including calls
    /// that then succeeded.
    pub wait_ns: u64,
    /// Messages dropped to make room since the queue was opened, before every consumer had read
    /// them: each is counted once, when it is dropped, not when a read reports it.
    pub dropped: u64,
    /// Messages evicted as too old since the queue was opened, before every consumer had read them.
    pub expired: u64,
    /// Messages rejected since the queue was opened (by mmq_delivery_reject, or after the
    /// max_attempts of mmq_set_redelivery), whether they became dead letters or were discarded.
    /// Each is counted when it is rejected.
    pub rejected: u64,
    /// Messages discarded because a consumer rejected them.
    pub lost_rejected: u64,
    /// Messages discarded since the queue was opened because the first consumer started behind them
    /// (mmq_consumer_open_at). They are counted when that consumer is created, and removed with
    /// their segments.
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

/// Figures of one consumer, read one by one like those of mmq_stats. Later versions append fields:
/// set struct_size to sizeof(mmq_consumer_stats) before every call of mmq_consumer_read_stats.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_consumer_stats {
    /// In: the caller's sizeof(mmq_consumer_stats). Out: how many bytes were filled; fields behind
    /// them are as they were.
    pub struct_size: usize,
    /// The consumer's position: every message below it is done (taken, acknowledged, reported as
    /// missing, or skipped by a seek).
    pub next_seq: u64,
    /// Messages that the consumer has neither taken nor acknowledged, including messages in flight.
    pub messages: u64,
    /// Bytes of the segments from the oldest of these messages on, including headers and
    /// acknowledged messages between them.
    pub bytes: u64,
    /// Messages received, but neither acknowledged nor returned.
    pub in_flight: u64,
    /// An upper bound for the age of the oldest message that waits, in milliseconds: the time since
    /// its segment was begun. 0 when no message waits.
    pub oldest_age_ms: u64,
}

fn milliseconds(age: Option<Duration>) -> u64 {
    age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the figures of a queue.
///
/// @param queue Not NULL.
/// @param out Receives the figures; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_read_stats(
    queue: *const mmq_queue,
    out: *mut mmq_stats,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle of this library.
        let queue = unsafe { body(queue) }?;
        let unset = "struct_size was not set to sizeof(mmq_stats)";
        let figures =
            |struct_size| Ok(mmq_stats { struct_size, ..mmq_stats::from(queue.reader.stats()) });
        // SAFETY: the header's contract: NULL, or the caller has set the first field. All fields
        // take eight bytes.
        unsafe { out_sized(out, unset, figures) }
    })
}

/// Reads the figures of a consumer.
///
/// @param consumer Not NULL.
/// @param out Receives the figures; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_read_stats(
    consumer: *const mmq_consumer,
    out: *mut mmq_consumer_stats,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle of this library.
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
        // SAFETY: the header's contract: NULL, or the caller has set the first field. All fields
        // take eight bytes.
        unsafe { out_sized(out, unset, figures) }
    })
}

/// Returns the queue's id: 16 random bytes, chosen when the queue was created, the same at every
/// opening. Together with a sequence number it identifies one message among those of all queues. A
/// copy of the directory has the same id.
/// cbindgen:ptrs-as-arrays=[[out;16]]
///
/// @param queue Not NULL.
/// @param out Receives the 16 bytes. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[allow(rustdoc::broken_intra_doc_links, reason = "the line for cbindgen is no link")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_queue_id(queue: *const mmq_queue, out: *mut u8) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid; bytes need no alignment.
    guard(|| unsafe { reads::tell(queue, out.cast::<[u8; 16]>(), Queue::id) })
}
