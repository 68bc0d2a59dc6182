//! The state that all parts of one open queue share: files, pool, tail, places, gaps, and how
//! producers and consumers wake each other.
//!
//! # Locks
//!
//! Every thread takes locks in this order, never the other way round: the registry, a consumer's
//! lock, the producers' lock (`Core::writer`), the lock for syncing places
//! ([`Places::synced_moves`]), that of the figures, the list of places, the flush lock, the
//! reclaiming of segments, the list of segments, the pool, the index's own, what was evicted. A
//! thread waits for nothing while it changes the list of places. Only a thread that holds the
//! registry takes the locks of several consumers. The locks of `threads` and [`Space::gate`] are
//! taken last and held for a moment.
//!
//! A thread takes [`Places::giving_back`] for reading when it holds no other lock; and for writing
//! only when it holds the registry, before or after a consumer's lock, and before all other locks.
//! A thread that holds the producers' lock takes `giving_back`, and a consumer's lock, only by
//! `try_`.
//!
//! No lock is held while a caller's code runs.

mod checks;
mod committed_tail;
mod flush;
mod interrupt;
mod known_gaps;
mod places;
mod run_counts;
mod space;
mod tasks;
mod wakes;
mod write_times;

use committed_tail::SharedTail;
pub(crate) use interrupt::Began;
pub(crate) use known_gaps::Gaps;
pub(crate) use places::{PlaceCell, PlaceCounts, Places};
#[cfg(feature = "capi")]
pub(crate) use run_counts::nanos;
pub(crate) use run_counts::{FlushTotals, FullTotals};
pub(crate) use space::{LOOK_FOR_ROOM, Space};
use tasks::Tasks;
pub(crate) use tasks::flush_failed;
pub(crate) use write_times::WriteTimes;

use std::sync::atomic::Ordering;

use crate::error::Gap;
use crate::format::{Figures, NumberRange, Spot};
use crate::index::losses::Evicted;
use crate::index::{AcksRow, Index};
use crate::memory::ForkGuard;
use crate::segment::ages::Ages;
use crate::segment::pool::Pool;
use crate::segment::{Context, DiskLimits, Segments};
use crate::storage::Storage;
use crate::threads::padded::Padded;
use crate::threads::ranks::{Rank, ranked};
use crate::threads::requests::{DeliveryRequests, StorageRequests};
use crate::threads::waiting::Waiters;
use crate::threads::worker::Worker;
use crate::threads::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex};

/// The durable mark, and the flush under way.
#[derive(Debug)]
pub(crate) struct Durable {
    /// The durable mark: everything before it is on disk.
    pub(crate) spot: Spot,
    /// A thread leads a flush.
    pub(crate) has_leader: bool,
    /// The committed spot up to which the next leader makes everything durable.
    pub(crate) wanted: Spot,
    /// Flushes that failed, in this run. (After an error that may pass the queue is not poisoned.)
    pub(crate) failures: u64,
}

impl Durable {
    /// Has the next leader make everything before `spot` durable.
    pub(crate) fn want(&mut self, spot: Spot) {
        if spot.position > self.wanted.position {
            self.wanted = spot;
        }
    }
}

/// A producer asks the storage worker for a flush when this many bytes in the queue are not
/// durable. (Fewer in the crash tests.)
pub(crate) const MOST_BEHIND: u64 = if cfg!(test) { 256 << 10 } else { 256 << 20 };

/// The storage worker makes the next segment when the tail is within this many bytes of its
/// segment's end.
pub(crate) const AHEAD: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct State<S: Storage> {
    pub(crate) storage: S,
    pub(crate) index: Index<S>,
    pub(crate) segments: Segments<S>,
    pub(crate) pool: Pool,
    pub(crate) limits: DiskLimits,
    /// Consumers see only durable messages (`flush_every_ops(1)`), not every committed one.
    pub(crate) durable_only: bool,
    /// Fresh space is filled with zeros ahead of its use: no flush comes after every few bytes,
    /// which would write the zeros out.
    pub(crate) fills: bool,
    pub(crate) ages: Option<Ages>,
    /// Tells a forked child, which does not own the queue.
    pub(crate) fork_guard: ForkGuard,
    /// The end of what consumers may read.
    pub(crate) visible: Padded<SharedTail>,
    /// The end of the last committed record.
    pub(crate) committed: Padded<SharedTail>,
    /// The flush lock. Only the leader of a flush moves the mark.
    pub(crate) durable: Padded<Mutex<Durable>>,
    /// Signalled with the flush lock when a flush has ended.
    pub(crate) flushed: Condvar,
    /// Signalled with the flush lock when a segment was synced, or when the storage worker has
    /// ended. A producer waits for it in `bound_unsynced`.
    pub(crate) segment_synced: Condvar,
    /// The first sequence number that is still in the queue.
    pub(crate) oldest_seq: AtomicU64,
    pub(crate) places: Places,
    /// How many consumers wait for a message. Changed under the producers' lock (and under the
    /// flush lock when only durable messages are visible), so one relaxed load tells a producer
    /// whether anybody waits.
    pub(crate) message_waiters: AtomicUsize,
    pub(crate) waiters: Waiters,
    /// Counts interrupts.
    interrupts: AtomicU64,
    pub(crate) tasks: Tasks,
    pub(crate) storage_worker: Worker<StorageRequests>,
    pub(crate) delivery_worker: Worker<DeliveryRequests>,
    /// Futures of readers are to be woken, and there was no thread to do it.
    wakes_owed: AtomicBool,
    /// A consumer got no window to lend from, because other consumers have theirs open.
    pub(crate) window_wanted: AtomicBool,
    /// More segments are open than a queue may have: consumers are to release theirs.
    pub(crate) many_open: AtomicBool,
    pub(crate) space: Space,
    pub(crate) gaps: Gaps,
    pub(crate) flush_totals: FlushTotals,
    pub(crate) full_totals: FullTotals,
    /// The figures as last stored in the index. Its holder waits for no lock that is held for long.
    figures: Mutex<Figures>,
    /// No number at or above it may be given out: the checkpoint on disk reserves those below.
    pub(crate) reserved: AtomicU64,
    /// When messages were written. Its lock is taken last, and held for a moment.
    pub(crate) write_times: Mutex<WriteTimes>,
    /// The tail that the opening found. What lies between the durable mark and it is suspect (R4).
    pub(crate) found_tail: Spot,
    /// What a flush before the opening may have made durable, with no mark left that says so. A
    /// batch whose beginning is given back rests on the mark, so reclaiming flushes up to here.
    flush_before_reclaim: Spot,
}

/// What an opening makes the [`State`] from.
pub(crate) struct Parts<S: Storage> {
    pub(crate) storage: S,
    pub(crate) index: Index<S>,
    pub(crate) segments: Segments<S>,
    pub(crate) pool: Pool,
    pub(crate) limits: DiskLimits,
    pub(crate) durable_only: bool,
    pub(crate) fills: bool,
    pub(crate) ages: Option<Ages>,
    pub(crate) tail: Spot,
    pub(crate) durable: Spot,
    pub(crate) places_cached: bool,
    pub(crate) mark_may_be_lost: bool,
    pub(crate) oldest_seq: u64,
    pub(crate) known_gaps: Vec<Gap>,
    pub(crate) evicted: Evicted,
    /// When the queue was opened, with which options, and by which version.
    pub(crate) figures: Figures,
}

impl<S: Storage> State<S> {
    pub(crate) fn new(parts: Parts<S>) -> State<S> {
        let state = State {
            storage: parts.storage,
            index: parts.index,
            segments: parts.segments,
            pool: parts.pool,
            limits: parts.limits,
            durable_only: parts.durable_only,
            fills: parts.fills,
            ages: parts.ages,
            fork_guard: ForkGuard::new(),
            visible: Padded::default(),
            committed: Padded::default(),
            durable: Padded::new(ranked(
                Rank::Flush,
                Durable {
                    spot: parts.durable,
                    has_leader: false,
                    wanted: parts.durable,
                    failures: 0,
                },
            )),
            flushed: Condvar::new(),
            segment_synced: Condvar::new(),
            oldest_seq: AtomicU64::new(parts.oldest_seq),
            places: Places::new(u64::from(parts.places_cached)),
            message_waiters: AtomicUsize::new(0),
            waiters: Waiters::default(),
            interrupts: AtomicU64::new(0),
            tasks: Tasks::default(),
            storage_worker: Worker::default(),
            delivery_worker: Worker::default(),
            wakes_owed: AtomicBool::new(false),
            window_wanted: AtomicBool::new(false),
            many_open: AtomicBool::new(false),
            space: Space::default(),
            gaps: Gaps::new(parts.known_gaps, parts.evicted),
            flush_totals: FlushTotals::default(),
            full_totals: FullTotals::default(),
            figures: ranked(Rank::Figures, parts.figures),
            reserved: AtomicU64::new(0),
            write_times: Mutex::default(),
            found_tail: parts.tail,
            flush_before_reclaim: if parts.mark_may_be_lost { parts.tail } else { Spot::default() },
        };
        state.committed.publish(parts.tail);
        state.visible.publish(parts.tail);
        state
    }

    pub(crate) fn context(&self) -> Context<'_, S> {
        let durable = self.durable.lock().spot;
        Context {
            storage: &self.storage,
            index: &self.index,
            pool: &self.pool,
            limits: self.limits,
            durable,
            evicted: &self.gaps.evicted,
            fills: self.fills,
            reclaims: self,
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.index.poison.is_poisoned()
    }

    pub(crate) fn acks_row(&self, row: u32, name: &str) -> Option<AcksRow<S::File>> {
        self.with_index_room(|room| self.index.acks_row(row, name, room))
    }

    /// Where a new consumer begins: the oldest message in the queue. `end` is the visible end, read
    /// before the call. A segment is listed before its first message is committed, so if no segment
    /// is listed now, the queue was empty when `end` was read.
    pub(crate) fn oldest(&self, end: Spot) -> Spot {
        // When messages before the first segment were lost, a new consumer gets a gap.
        let first = self.segments.list().live.front().map(|row| row.header.beginning());
        first.unwrap_or_else(|| self.gaps.before_lost_tail(end))
    }

    /// How many visible messages there are from the number `seq` on, without those in the ranges
    /// `done` and those known to be missing.
    pub(crate) fn len_from(&self, seq: u64, done: impl Iterator<Item = NumberRange>) -> u64 {
        let from = seq.max(self.oldest_seq.load(Ordering::Acquire));
        self.count_waiting(from, self.visible.seq.load(Ordering::Acquire), done)
    }

    /// How many of the numbers `from .. end` belong to messages that wait for a consumer with these
    /// ranges `done`.
    pub(crate) fn count_waiting(
        &self,
        from: u64,
        end: u64,
        done: impl Iterator<Item = NumberRange>,
    ) -> u64 {
        let there = |from: u64, end: u64| match end.saturating_sub(from) {
            0 => 0,
            span => span.saturating_sub(self.gaps.known_missing(from, end)),
        };
        let done = done.map(|range| there(range.first.max(from), (range.last + 1).min(end)));
        there(from, end).saturating_sub(done.sum())
    }
}
