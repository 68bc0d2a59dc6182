//! What the owner of a queue counts, as it stands in the index.

use std::time::{Duration, SystemTime};

use super::time;
use crate::format::Figures;

/// What the owner of a queue counts: [`Snapshot::owner`].
///
/// The owner stores it when something happens that is not an ordinary call: at opening and closing,
/// at the end of a flush, with a gap, a new segment, a refused call, and work in the background. So
/// totals are those of [`stored_at`](Self::stored_at).
///
/// [`Snapshot::owner`]: crate::Snapshot::owner
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// if let Some(owner) = inspector.snapshot()?.owner {
///     println!("{} put in, {} refused", owner.enqueued, owner.refused);
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerFigures {
    /// When this was stored.
    pub stored_at: Option<SystemTime>,
    /// When the owner opened the queue. Totals count from there.
    pub opened_at: Option<SystemTime>,
    /// The version of the owner's library.
    pub library: String,
    /// Messages enqueued.
    pub enqueued: u64,
    /// Messages taken or skipped, by all consumers.
    pub taken: u64,
    /// Flushes of messages.
    pub flushes: u64,
    /// Time that the longest of them took.
    pub longest_flush: Duration,
    /// Messages in the gaps reported to consumers that were damaged, or that a power cut took.
    pub lost: u64,
    /// Messages dropped to make room or because they were too old, which some consumer had yet to
    /// read, counted when it happened.
    pub dropped: u64,
    /// Calls that were refused because the queue or the disk was full.
    pub refused: u64,
    /// The beginning of the last failed flush's error, at most 64 bytes; `None` when none has
    /// failed.
    pub last_flush_error: Option<String>,
    /// When that flush failed.
    pub flush_failed_at: Option<SystemTime>,
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl From<&Figures> for OwnerFigures {
    fn from(figures: &Figures) -> OwnerFigures {
        OwnerFigures {
            stored_at: time(figures.stored_at),
            opened_at: time(figures.opened_at),
            library: text(&figures.library),
            enqueued: figures.enqueued,
            taken: figures.taken,
            flushes: figures.flushes,
            longest_flush: Duration::from_nanos(figures.longest_flush),
            lost: figures.lost,
            dropped: figures.dropped,
            refused: figures.refused,
            last_flush_error: (figures.error_at > 0).then(|| text(&figures.error_text)),
            flush_failed_at: time(figures.error_at),
        }
    }
}
