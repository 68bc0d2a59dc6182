//! Counters of this run that do not follow from sequence numbers and positions, and how they are
//! stored in the index for other processes that inspect the queue.
//!
//! The figures are stored only on slow paths: when the queue opens or closes, a flush ends, a read
//! reports a gap, a segment begins or a call is rejected, and after each job of the storage worker.
//! If the disk refuses a store, it is skipped, and nothing else changes.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::State;
use crate::error::{Error, Gap};
use crate::format::Figures;
use crate::storage::Storage;
use crate::threads::AtomicU64;

/// Flushes of this run.
#[derive(Debug, Default)]
pub(crate) struct FlushTotals {
    pub(crate) count: AtomicU64,
    pub(crate) nanos: AtomicU64,
    pub(crate) longest: AtomicU64,
}

/// Calls of this run that found the queue or the disk full.
#[derive(Debug, Default)]
pub(crate) struct FullTotals {
    /// Calls that were rejected in the end.
    pub(crate) refused: AtomicU64,
    /// Time that calls waited for room.
    pub(crate) waited_nanos: AtomicU64,
}

impl<S: Storage> State<S> {
    /// Counts a flush that took this long, and notes its error.
    pub(super) fn count_flush(&self, took: Duration, error: Option<&Error>) {
        let nanos = nanos(took);
        self.flush_totals.count.fetch_add(1, Ordering::Relaxed);
        self.flush_totals.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.flush_totals.longest.fetch_max(nanos, Ordering::Relaxed);
        if let Some(error) = error {
            let (now, text) = (self.storage.now(), error.to_string());
            self.figures.lock().set_error(now, error.system_number(), &text);
        }
        self.store_figures();
    }

    /// Counts a gap that a read reports to a consumer.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_gap(&self, gap: &Gap) {
        self.gaps.count(self.storage.path(), gap);
        self.store_figures();
    }

    /// Counts a message that a consumer will never receive again.
    #[cold]
    pub(crate) fn count_rejected(&self, gap: &Gap) {
        self.gaps.count_rejected(self.storage.path(), gap);
    }

    /// Counts messages before the start of the first consumer.
    #[cold]
    pub(crate) fn count_unclaimed(&self, consumer: &str, unclaimed: Range<u64>) {
        self.gaps.count_unclaimed(self.storage.path(), consumer, unclaimed);
    }

    /// Counts a call that is rejected because the queue or the disk is full.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_refused(&self) {
        reached!("before a refused call is counted");
        self.full_totals.refused.fetch_add(1, Ordering::Relaxed);
        self.store_figures();
    }

    /// Counts the time that a call waited for room.
    pub(crate) fn count_waited(&self, waited: Duration) {
        self.full_totals.waited_nanos.fetch_add(nanos(waited), Ordering::Relaxed);
    }

    /// Stores the figures in the index if they changed. Does nothing while another thread stores
    /// them, or after the run has ended, when another process may own the file.
    #[cold]
    #[inline(never)]
    pub(crate) fn store_figures(&self) {
        let Some(mut last) = self.figures.try_lock() else {
            return;
        };
        if self.has_run_ended() || self.forked() {
            return;
        }
        let now = self.count_figures(&last);
        if now == *last && last.number > 0 {
            return;
        }
        let now = Figures { number: last.number + 1, stored_at: self.storage.now(), ..now };
        holds!(now.number > last.number, "figures are numbered upwards, from {}", last.number);
        if self.index.offer_figures(&now) {
            *last = now;
        }
    }

    /// Returns the present figures; takes those that never change from `last`.
    fn count_figures(&self, last: &Figures) -> Figures {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [damaged, unflushed, ..] = &self.gaps.lost;
        let mut now = Figures {
            enqueued: load(&self.committed().seq).saturating_sub(self.found_tail.seq),
            taken: self.places.count().taken,
            flushes: load(&self.flush_totals.count),
            longest_flush: load(&self.flush_totals.longest),
            lost: load(damaged) + load(unflushed),
            dropped: load(&self.gaps.dropped) + load(&self.gaps.expired),
            refused: load(&self.full_totals.refused),
            ..*last
        };
        // A failed sync need not have been a flush of messages.
        if now.error_at == 0
            && let Some(error) = self.index.poison.failure()
        {
            now.set_error(self.storage.now(), error.number, &error.text);
        }
        now
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
