//! The state that all parts of one open queue share.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `mod` | [`State`]: files, pool, tail, options | opens the shared state, counts messages |
//! | `checks` | | rejects calls on a closed or poisoned queue and in a forked child |
//! | `committed_tail` | the end of committed records | lets readers see it without a lock |
//! | `sync_files` | | syncs the segments, the directory, and the files of a copied queue |
//! | `flush` | | syncs data, moves the durable mark, writes checkpoints |
//! | `interrupt` | a count of interrupts | ends every wait without closing the queue |
//! | `known_gaps` | missing sequence numbers and their causes | counts lost messages |
//! | `leading` | what a leader makes durable | ends a flush whose leader panics |
//! | `places` | every consumer's position and counts | finds the lowest position |
//! | `run_counts` | counters of this run | stores them in the index |
//! | `space` | | reclaims and expires segments, waits for room |
//! | `tasks` | futures that wait for room or a flush | tells them how their flush ended |
//! | `wakes` | | wakes waiting threads and futures |
//! | `write_times` | when messages were written | finds messages older than a given age |
//!
//! # Locks
//!
//! Every thread takes locks in this order only: the registry, a consumer's lock, the producers'
//! lock (`Core::writer`), the lock for syncing places ([`Places::synced_moves`]), the figures, the
//! list of places, the flush lock, the lock for reclaiming segments, the list of segments, the
//! pool, the index's own, [`Gaps::evicted`]. A thread that changes the list of places waits for
//! nothing meanwhile. Only a thread that holds the registry takes the locks of several consumers.
//! The locks of `threads` and [`Space::gate`] are taken last and held for a moment.
//!
//! A thread takes [`Places::giving_back`] for reading when it holds no other lock; and for writing
//! only when it holds the registry, before or after a consumer's lock, and before all other locks.
//! A thread that holds the producers' lock takes `giving_back`, and a consumer's lock, only by
//! `try_`.
//!
//! No thread holds a lock while it runs a caller's code.

mod checks;
mod committed_tail;
mod flush;
mod interrupt;
mod known_gaps;
mod leading;
mod places;
mod run_counts;
mod space;
mod sync_files;
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

/// The durable mark, and the state of the current flush.
#[derive(Debug)]
pub(crate) struct Durable {
    /// The durable mark: everything before it is on disk.
    pub(crate) spot: Spot,
    /// Whether a thread leads a flush.
    pub(crate) has_leader: bool,
    /// The committed spot up to which the next flush leader makes everything durable.
    pub(crate) wanted: Spot,
    /// How many flushes failed in this run. (A temporary error does not poison the queue.)
    pub(crate) failures: u64,
}

impl Durable {
    /// Everything that is durable was wanted.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check(&self) {
        let Durable { spot, wanted, .. } = self;
        holds!(
            spot.position <= wanted.position && spot.seq <= wanted.seq,
            "the durable mark, {spot:?}, does not pass what is wanted, {wanted:?}"
        );
    }

    /// The mark moves ahead to a spot that is committed.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check_move(&self, to: Spot, committed: Spot) {
        holds!(
            self.spot.position <= to.position && self.spot.seq <= to.seq,
            "the durable mark does not go back, from {:?} to {to:?}",
            self.spot
        );
        holds!(
            to.position <= committed.position && to.seq <= committed.seq,
            "what is durable, {to:?}, does not pass what is committed, {committed:?}"
        );
    }

    /// Asks the next flush leader to make everything before `spot` durable.
    pub(crate) fn want(&mut self, spot: Spot) {
        if spot.position > self.wanted.position {
            holds!(
                spot.seq >= self.wanted.seq,
                "positions and numbers grow together, from {:?} to {spot:?}",
                self.wanted
            );
            self.wanted = spot;
        }
    }
}

/// A producer asks the storage worker for a flush when full segments of this many bytes are not
/// synced, or this many bytes of the tail's. (Fewer in the crash tests.)
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
    /// Whether consumers see only durable messages (`flush_every_ops(1)`), not every committed one.
    pub(crate) durable_only: bool,
    /// Whether the writer fills fresh space with zeros ahead of its use. Off with frequent small
    /// flushes, since each would write the zeros out.
    pub(crate) fills: bool,
    pub(crate) ages: Option<Ages>,
    /// The end of what consumers may read.
    pub(crate) visible: Padded<SharedTail>,
    /// The end of the last committed record where that is not visible yet: with `durable_only`. See
    /// [`committed`](Self::committed).
    unseen: Padded<SharedTail>,
    /// The flush lock. Only the flush leader moves the mark.
    pub(crate) durable: Padded<Mutex<Durable>>,
    /// Signalled with the flush lock when a flush has ended.
    pub(crate) flushed: Condvar,
    /// Signalled with the flush lock after a segment's sync, or when the storage worker has ended.
    /// A producer waits for it in `bound_unsynced`.
    pub(crate) segment_synced: Condvar,
    /// The first sequence number that is still in the queue.
    pub(crate) oldest_seq: AtomicU64,
    pub(crate) places: Places,
    /// How many consumers wait for a message. Changed under the producers' lock (and under the
    /// flush lock when only durable messages are visible), so one relaxed load tells a producer
    /// whether a consumer waits.
    pub(crate) message_waiters: AtomicUsize,
    pub(crate) waiters: Waiters,
    /// How many interrupts this run has had.
    interrupts: AtomicU64,
    pub(crate) tasks: Tasks,
    pub(crate) storage_worker: Worker<StorageRequests>,
    pub(crate) delivery_worker: Worker<DeliveryRequests>,
    /// Carries dead letters.
    pub(crate) carrier: Worker<DeliveryRequests>,
    /// Whether readers' futures still have to be woken, because no thread could do it.
    wakes_owed: AtomicBool,
    /// Whether a consumer got no window to lend from, because other consumers keep theirs open.
    pub(crate) window_wanted: AtomicBool,
    /// Whether more segments are open than a queue may have, so that consumers must release theirs.
    pub(crate) many_open: AtomicBool,
    pub(crate) space: Space,
    pub(crate) gaps: Gaps,
    pub(crate) flush_totals: FlushTotals,
    pub(crate) full_totals: FullTotals,
    /// The figures as last stored in the index. A thread that holds this lock waits for no lock
    /// that another thread holds for long.
    figures: Mutex<Figures>,
    /// The writer may not assign a sequence number at or above it: the checkpoint on disk reserves
    /// those below.
    pub(crate) reserved: AtomicU64,
    /// When messages were written. Threads take this lock last and hold it for a moment.
    pub(crate) write_times: Mutex<WriteTimes>,
    /// The tail that recovery found. Bytes between the durable mark and this tail are suspect (R4).
    pub(crate) found_tail: Spot,
    /// No run has synced the files that recovery found. The next flush does, whatever the mark
    /// says.
    pub(super) files_unsynced: AtomicBool,
    /// Recovery found the queue as new: without a sign of a message or a consumer. Nobody may have
    /// synced its index and its names so far, because a close that leaves it so does not.
    pub(crate) is_untouched: bool,
}

/// The parts from which an opening builds the [`State`].
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
    pub(crate) is_untouched: bool,
    pub(crate) files_unsynced: bool,
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
            visible: Padded::default(),
            unseen: Padded::default(),
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
            carrier: Worker::default(),
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
            files_unsynced: AtomicBool::new(parts.files_unsynced),
            is_untouched: parts.is_untouched,
        };
        check!(let (tail, durable) = (parts.tail, parts.durable));
        holds!(
            durable.position <= tail.position && durable.seq <= tail.seq,
            "what is durable, {durable:?}, does not pass what was found, {tail:?}"
        );
        holds!(parts.oldest_seq <= tail.seq, "the oldest number does not pass the tail, {tail:?}");
        state.unseen.publish(parts.tail);
        state.visible.publish(parts.tail);
        state
    }

    /// The end of the last committed record.
    pub(crate) fn committed(&self) -> &SharedTail {
        if self.durable_only { &self.unseen } else { &self.visible }
    }

    /// Publishes the end of the last committed record, for readers too where they need not wait for
    /// a sync.
    #[inline(always)]
    pub(crate) fn publish_committed(&self, tail: Spot) {
        if self.durable_only {
            return self.publish_unseen(tail);
        }
        self.visible.publish(tail);
        reached!("published");
    }

    #[cold]
    fn publish_unseen(&self, tail: Spot) {
        self.unseen.publish(tail);
    }

    /// Numbers to `reserved` are reserved on the disk now, as was asked for those below `end`.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check_reserved(&self, end: u64, reserved: u64) {
        let (before, next) = (self.reserved.load(Ordering::Acquire), self.committed().spot());
        holds!(before <= reserved, "a reservation to {before} is not cut to {reserved}");
        holds!(
            end == 0 || next.seq <= reserved,
            "numbers to {reserved} are reserved, and the next one is not above: {next:?}"
        );
    }

    /// What is visible is committed, and durable where only that is to be seen.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(crate) fn check_visible(&self, durable: Spot) {
        let (visible, committed) = (self.visible.spot(), self.committed().spot());
        holds!(
            visible.position <= committed.position && visible.seq <= committed.seq,
            "what is visible, {visible:?}, does not pass what is committed, {committed:?}"
        );
        let most = durable.max(self.found_tail);
        holds!(
            !self.durable_only || visible.position <= most.position,
            "what is visible, {visible:?}, is durable or was found: {most:?}"
        );
        let oldest = self.oldest_seq.load(Ordering::Acquire);
        let end = self.committed().seq.load(Ordering::Acquire);
        holds!(oldest <= end, "the oldest number, {oldest}, does not pass the next one, {end}");
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

    /// Returns where a new consumer begins: at the oldest message in the queue. `end` is the
    /// visible end, read before the call. The writer lists a segment before it commits the first
    /// message in it, so if no segment is listed now, the queue was empty when `end` was read.
    pub(crate) fn oldest(&self, end: Spot) -> Spot {
        // When messages before the first segment were lost, a new consumer gets a gap.
        let first = self.segments.list().live.front().map(|row| row.header.beginning());
        first.unwrap_or_else(|| self.gaps.before_lost_tail(end))
    }

    /// Returns where the first consumer begins: before the messages that were evicted while there
    /// was none, which it gets as a gap, else at the oldest one. `end` is as in
    /// [`oldest`](Self::oldest).
    pub(crate) fn unclaimed(&self, end: Spot) -> Spot {
        let oldest = self.oldest(end);
        // Read last, to cover a message at `oldest` that was evicted since.
        let from = self.segments.list().unclaimed_from;
        let gone = from.filter(|seq| *seq < self.gaps.evicted.lock().end());
        // The numbers begin a segment. A power cut may bring it back, and no earlier one.
        gone.map_or(oldest, |seq| Spot { position: 0, seq })
    }

    /// Returns how many visible messages there are from `seq` on, without those in the ranges
    /// `done` and those known to be missing.
    pub(crate) fn len_from(&self, seq: u64, done: impl Iterator<Item = NumberRange>) -> u64 {
        let from = seq.max(self.oldest_seq.load(Ordering::Acquire));
        self.count_waiting(from, self.visible.seq.load(Ordering::Acquire), done)
    }

    /// Returns how many of the sequence numbers `from .. end` belong to messages that a consumer
    /// with these ranges `done` has still to receive.
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
        let (all, done): (u64, u64) = (there(from, end), done.sum());
        holds!(all <= end.saturating_sub(from), "of the numbers {from} to {end} {all} are there");
        all.saturating_sub(done)
    }
}
