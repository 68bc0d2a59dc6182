//! Missing sequence numbers: which are known, why they are missing, how many gaps reads reported.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::error::{Gap, GapCause};
use crate::events;
use crate::format::{self, Spot};
use crate::index::losses::Evicted;
use crate::threads::ranks::{Rank, ranked};
use crate::threads::{AtomicU32, AtomicU64, Mutex};

#[derive(Debug)]
pub(crate) struct Gaps {
    /// Ranges of sequence numbers known to be missing, in order, without overlap. `len` subtracts
    /// them.
    pub(crate) known: Mutex<Vec<Gap>>,
    /// Nonzero when `known` is not empty: spares `len` the lock.
    has_known: AtomicU32,
    /// Up to which sequence number messages were dropped or expired. The last lock in the order.
    pub(crate) evicted: Mutex<Evicted>,
    /// Gaps that reads reported to consumers in this run.
    pub(crate) reported: AtomicU64,
    /// The missing numbers in those gaps, by cause.
    pub(crate) lost: [AtomicU64; GapCause::ALL.len()],
    /// Evicted messages below this sequence number are counted.
    counted: Mutex<u64>,
    /// Messages dropped in this run before every consumer had read them.
    pub(crate) dropped: AtomicU64,
    /// Messages that expired in this run before every consumer had read them.
    pub(crate) expired: AtomicU64,
    /// Messages that were rejected in this run.
    pub(crate) rejected: AtomicU64,
    /// Messages before the start of the first consumer, made in this run, which no consumer will
    /// read.
    pub(crate) unclaimed: AtomicU64,
}

impl Gaps {
    pub(crate) fn new(known: Vec<Gap>, evicted: Evicted) -> Gaps {
        holds!(
            known.iter().all(|gap| gap.first <= gap.last),
            "each gap that is known has a number: {known:?}"
        );
        holds!(
            known.windows(2).all(|gaps| gaps[0].last < gaps[1].first),
            "known gaps are in order and do not overlap: {known:?}"
        );
        Gaps {
            has_known: AtomicU32::new(u32::from(!known.is_empty())),
            known: Mutex::new(known),
            evicted: ranked(Rank::Evicted, evicted),
            reported: AtomicU64::new(0),
            lost: Default::default(),
            counted: Mutex::new(evicted.end()),
            dropped: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            unclaimed: AtomicU64::new(0),
        }
    }

    /// Returns why `seq` is missing when no segment states a cause, and the first number behind it
    /// that may have another cause.
    pub(crate) fn cause_of(&self, seq: u64) -> (GapCause, u64) {
        let evicted = self.evicted.lock().cause_of(seq);
        // Numbers that recovery found missing keep their cause when the segment that states them is
        // evicted. For numbers behind the last segment, the next segment states the cause, but it
        // may not exist yet.
        let gaps = self.known.lock();
        let known = gaps.iter().find(|gap| seq <= gap.last);
        match known.filter(|gap| gap.first <= seq) {
            Some(gap) => (gap.cause, gap.last + 1),
            None => {
                let (cause, end) = evicted.unwrap_or((GapCause::Damaged, u64::MAX));
                (cause, known.map_or(end, |gap| end.min(gap.first)))
            }
        }
    }

    /// Returns how many of the numbers `from .. to` are known to be missing.
    pub(crate) fn known_missing(&self, from: u64, to: u64) -> u64 {
        if self.has_known.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let gaps = self.known.lock();
        let overlap = |gap: &Gap| (gap.last + 1).min(to).saturating_sub(gap.first.max(from));
        let missing = gaps.iter().map(overlap).sum();
        holds!(
            missing <= to.saturating_sub(from),
            "of the numbers {from} to {to} no more are missing than there are, as {missing} are"
        );
        missing
    }

    /// Returns where a new consumer begins when there is no segment: at `end`, or at the first lost
    /// message when the messages right before `end` are known to be lost. (Reserved numbers may lie
    /// between these and `end`.)
    pub(crate) fn before_lost_tail(&self, end: Spot) -> Spot {
        let gaps = self.known.lock();
        let mut first = end.seq;
        let mut lost = end.seq;
        for gap in gaps.iter().rev().skip_while(|gap| gap.first >= end.seq) {
            if gap.last + 1 != first {
                break;
            }
            first = gap.first;
            if gap.cause != GapCause::Reserved {
                lost = first;
            }
        }
        // The segment that will state this gap begins one word behind the lost bytes.
        let position =
            if lost < end.seq { end.position.saturating_sub(format::ALIGN) } else { end.position };
        holds!(
            position <= end.position && lost <= end.seq,
            "what was lost at the tail, from {lost} on, lies before {end:?}"
        );
        Spot { position, seq: lost }
    }

    /// Counts the messages evicted since the last call. Every consumer had read those below
    /// `unread`.
    #[cold]
    pub(crate) fn count_evicted(&self, path: &Path, unread: u64) {
        let evicted = *self.evicted.lock();
        let mut counted = self.counted.lock();
        *counted = unread.max(*counted);
        while let Some((cause, end)) = evicted.cause_of(*counted) {
            let count = end - *counted - self.known_missing(*counted, end);
            let total = if cause == GapCause::Expired { &self.expired } else { &self.dropped };
            holds!(count <= end, "of the messages below {end} {count} were evicted");
            total.fetch_add(count, Ordering::Relaxed);
            events::evicted(path, *counted, end - 1, cause);
            *counted = end;
        }
    }

    /// Counts the messages `unclaimed`, which lie before the start of the first consumer. Each
    /// message counts once, as unclaimed or as evicted: threads may drop some of them meanwhile.
    #[cold]
    pub(crate) fn count_unclaimed(&self, path: &Path, consumer: &str, unclaimed: Range<u64>) {
        let Range { start, end } = unclaimed;
        let mut counted = self.counted.lock();
        let evicted = self.evicted.lock().end();
        let from = start.max(*counted).max(evicted);
        holds!(start <= end, "the messages {start} to {end} were not claimed");
        // A thread that has dropped some messages but not counted them yet will start at `counted`.
        if evicted <= *counted {
            *counted = end.max(*counted);
        }
        drop(counted);
        if from >= end {
            return;
        }
        let count = end - from - self.known_missing(from, end);
        self.unclaimed.fetch_add(count, Ordering::Relaxed);
        events::unclaimed(path, consumer, from, end - 1);
    }

    /// Counts messages that a consumer of the queue in `path` will never receive again.
    #[cold]
    pub(crate) fn count_rejected(&self, path: &Path, gap: &Gap) {
        self.rejected.fetch_add(gap.count(), Ordering::Relaxed);
        events::evicted(path, gap.first, gap.last, gap.cause);
    }

    /// Counts a gap that a read reports to a consumer of the queue in `path`.
    #[cold]
    pub(crate) fn count(&self, path: &Path, gap: &Gap) {
        events::gap(path, gap.first, gap.last, gap.cause);
        self.reported.fetch_add(1, Ordering::Relaxed);
        let cause = GapCause::ALL.iter().position(|cause| *cause == gap.cause).unwrap_or(0);
        self.lost[cause].fetch_add(gap.count(), Ordering::Relaxed);
    }
}
