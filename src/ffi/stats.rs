//! Figures of a queue.

use super::guard::{guard, invalid};
use super::handle::body;
use super::pointers::out_prefix;
use super::queue::mmq_queue;
use super::status::mmq_status;
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
    /// Messages that wait for the default consumer; before its first read, all messages held.
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
    /// Gaps told to consumers since the queue was opened.
    pub gaps: u64,
    /// Sequence numbers in those gaps, without those that were only reserved (reserved_numbers).
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
}

/// Larger than the struct will ever be: a larger struct_size is one that was not set.
const LARGEST: usize = 4096;

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
            flush_ns: u64::try_from(stats.flush_time.as_nanos()).unwrap_or(u64::MAX),
            poisoned: u64::from(stats.last_flush_error.is_some()),
            reserved_numbers: stats.reserved_numbers,
            oldest_age_ms: stats
                .oldest_age
                .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }
    }
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
        if out.is_null() || !out.is_aligned() {
            return Err(invalid("out", "NULL, or not aligned"));
        }
        // SAFETY: not NULL, aligned; the contract says that the caller has set this first field.
        let struct_size = unsafe { out.cast::<usize>().read() };
        if !(size_of::<usize>() + size_of::<u64>()..=LARGEST).contains(&struct_size) {
            return Err(invalid("out", "struct_size was not set to sizeof(mmq_stats)"));
        }
        let mut stats = mmq_stats::from(queue.reader.stats());
        stats.struct_size = struct_size.min(size_of::<mmq_stats>());
        // SAFETY: the caller's struct has that many bytes, as the caller says; so has this one, and
        // no padding.
        unsafe { out_prefix(out, &stats, stats.struct_size) };
        Ok(mmq_status::MMQ_OK)
    })
}
