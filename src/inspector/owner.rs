//! What the owner of a queue counts, as it stands in the index.

use std::time::{Duration, SystemTime};

use super::time;
use crate::format::Figures;
use crate::options::OnFull;

/// What the owner of a queue counts, and the options in force: [`Snapshot::owner`].
///
/// The owner stores it when something happens that is not an ordinary call: at opening and closing,
/// at the end of a flush, with a gap, a new segment, a refused call, and work in the background. So
/// totals are those of [`stored_at`](Self::stored_at).
///
/// [`Snapshot::owner`]: crate::Snapshot::owner
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerFigures {
    /// When this was stored.
    pub stored_at: Option<SystemTime>,
    /// When the owner opened the queue. Totals count from there.
    pub opened_at: Option<SystemTime>,
    /// The version of the owner's library.
    pub library: String,
    /// [`arena_size`](crate::Options::arena_size), bytes.
    pub arena_size: u64,
    /// [`max_bytes`](crate::Options::max_bytes).
    pub max_bytes: Option<u64>,
    /// [`min_free_bytes`](crate::Options::min_free_bytes).
    pub min_free_bytes: u64,
    /// [`max_mapped_arenas`](crate::Options::max_mapped_arenas).
    pub max_mapped_arenas: Option<u64>,
    /// [`flush_every_ops`](crate::Options::flush_every_ops).
    pub flush_every_ops: Option<u64>,
    /// [`flush_every`](crate::Options::flush_every).
    pub flush_every: Option<Duration>,
    /// [`max_age`](crate::Options::max_age).
    pub max_age: Option<Duration>,
    /// [`on_full`](crate::Options::on_full); `None` when a later library stored a policy that is
    /// not known here.
    pub on_full: Option<OnFull>,
    /// Messages enqueued.
    pub enqueued: u64,
    /// Messages taken or skipped, by all consumers.
    pub taken: u64,
    /// Messages handed out, neither acknowledged nor given back, of all consumers.
    pub in_flight: u64,
    /// Flushes of messages.
    pub flushes: u64,
    /// Time that those flushes took.
    pub flush_time: Duration,
    /// The longest of them.
    pub longest_flush: Duration,
    /// Gaps reported to consumers.
    pub gaps: u64,
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
    /// Messages dropped to make room that some consumer had yet to read, counted when it happened.
    pub dropped: u64,
    /// Likewise, messages that were too old.
    pub expired: u64,
    /// Messages that were [rejected](crate::GapCause::Rejected), counted when it happened: for the
    /// dead letters, or given up.
    pub rejected: u64,
    /// Messages that no consumer had claimed when the first one was made behind them.
    pub unclaimed: u64,
    /// Numbers in the gaps that were only reserved before a power cut.
    pub reserved_numbers: u64,
    /// Calls that were refused because the queue or the disk was full.
    pub refused: u64,
    /// How long calls waited for room, all together.
    pub wait_time: Duration,
    /// Bytes mapped, without the index file.
    pub mapped_bytes: u64,
    /// The beginning of the last failed flush's error, at most 64 bytes; `None` when none has
    /// failed.
    pub last_flush_error: Option<String>,
    /// When that flush failed.
    pub flush_failed_at: Option<SystemTime>,
}

/// Zero says that there is none.
fn some(number: u64) -> Option<u64> {
    Some(number).filter(|number| *number > 0)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl From<&Figures> for OwnerFigures {
    fn from(figures: &Figures) -> OwnerFigures {
        let duration = |stored: u64| some(stored).map(Duration::from_nanos);
        let wait = Duration::from_nanos(figures.full_wait);
        OwnerFigures {
            stored_at: time(figures.stored_at),
            opened_at: time(figures.opened_at),
            library: text(&figures.library),
            arena_size: figures.arena_size,
            max_bytes: some(figures.max_bytes),
            min_free_bytes: figures.min_free_bytes,
            max_mapped_arenas: some(figures.max_mapped_arenas),
            flush_every_ops: some(figures.flush_every_ops),
            flush_every: duration(figures.flush_every),
            max_age: duration(figures.max_age),
            on_full: match figures.on_full {
                1 => Some(OnFull::Reject),
                2 => Some(OnFull::Wait((figures.full_wait != u64::MAX).then_some(wait))),
                3 => Some(OnFull::DropOldest),
                _ => None,
            },
            enqueued: figures.enqueued,
            taken: figures.taken,
            in_flight: figures.in_flight,
            flushes: figures.flushes,
            flush_time: Duration::from_nanos(figures.flush_time),
            longest_flush: Duration::from_nanos(figures.longest_flush),
            gaps: figures.gaps_reported,
            lost_damaged: figures.lost_damaged,
            lost_unflushed: figures.lost_unflushed,
            lost_dropped: figures.lost_dropped,
            lost_expired: figures.lost_expired,
            lost_rejected: figures.lost_rejected,
            dropped: figures.dropped,
            expired: figures.expired,
            rejected: figures.rejected,
            unclaimed: figures.unclaimed,
            reserved_numbers: figures.reserved_numbers,
            refused: figures.refused,
            wait_time: Duration::from_nanos(figures.wait_time),
            mapped_bytes: figures.mapped_bytes,
            last_flush_error: (figures.error_at > 0).then(|| text(&figures.error_text)),
            flush_failed_at: time(figures.error_at),
        }
    }
}
