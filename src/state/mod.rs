//! What every part of one queue works on: the files, the pool, the tail, and what producers and
//! consumers tell each other.
//!
//! # Locks
//!
//! Taken in this order, never the other way round: the registry, a consumer's lock, the producers'
//! lock (`Core::writer`), the list of places, the flush lock, the settling of segments, their list,
//! the pool, the index's own. Whoever changes the list of places waits for nothing meanwhile. The
//! locks of several consumers are taken only by who holds the registry.
//!
//! [`Places::giving_back`] is held for reading with no other lock held, and for writing only by who
//! holds the registry, before or after a consumer's lock, and before all others. A thread that
//! holds the producers' lock reaches for it, and for a consumer's lock, only by `try_`.
//!
//! The closure of `enqueue_with` is a caller's code that runs under the producers' lock. So every
//! call that its thread makes on the queue meanwhile is refused at the door
//! ([`State::check_may_wait`], which the other checks include), or, where it has no error to
//! return, does without locks that others hold while they wait, or is done right after
//! ([`State::is_filling`]).

mod flush;
mod gaps;
mod places;
mod space;
mod status;

pub(crate) use gaps::Gaps;
pub(crate) use places::{PlaceCell, Places};
pub(crate) use space::Space;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::Gap;
use crate::format::Spot;
use crate::index::losses::GivenUp;
use crate::index::{AcksRow, Index};
use crate::memory::ForkGuard;
use crate::segment::ages::Ages;
use crate::segment::pool::Pool;
use crate::segment::{Context, Limits, Segments};
use crate::storage::Storage;
use crate::threads::bell::Bell;
use crate::threads::padded::Padded;
use crate::threads::waiting::Waiters;

/// The tail as others see it. `seq` is stored first, so whoever reads the position and then the
/// number gets a number that is at least the position's.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    pub(crate) position: AtomicU64,
    pub(crate) seq: AtomicU64,
}

impl Tail {
    pub(crate) fn spot(&self) -> Spot {
        Spot {
            position: self.position.load(Ordering::Acquire),
            seq: self.seq.load(Ordering::Acquire),
        }
    }

    #[inline]
    pub(crate) fn publish(&self, spot: Spot) {
        self.seq.store(spot.seq, Ordering::Relaxed);
        self.position.store(spot.position, Ordering::Release);
    }
}

/// How far the flush leaders have come.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) spot: Spot,
    /// A leader is syncing.
    pub(crate) busy: bool,
    /// The page cache shows what an earlier, failed sync left off the disk: to be stored again
    /// before the next sync (R4).
    pub(crate) suspect: bool,
    /// Committed, and to be taken along by the next leader.
    pub(crate) wanted: Spot,
    /// Leaders that had to give up, for an error that may pass: the queue is not poisoned.
    pub(crate) given_up: u64,
}

impl Durable {
    /// The next leader takes that along.
    pub(crate) fn want(&mut self, spot: Spot) {
        if spot.position > self.wanted.position {
            self.wanted = spot;
        }
    }
}

/// The keeper is asked for a flush when so many bytes are held that are not durable. (Few in the
/// crash tests.)
pub(crate) const MOST_BEHIND: u64 = if cfg!(test) { 256 << 10 } else { 256 << 20 };

/// So many bytes before the end of a segment the keeper makes the next one ready.
pub(crate) const AHEAD: u64 = 4 << 20;

/// Flushes of this run.
#[derive(Debug, Default)]
pub(crate) struct FlushTotals {
    pub(crate) count: AtomicU64,
    pub(crate) nanos: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct State<S: Storage> {
    pub(crate) storage: S,
    pub(crate) index: Index<S>,
    pub(crate) segments: Segments<S>,
    pub(crate) pool: Pool,
    pub(crate) limits: Limits,
    /// With `flush_every_ops(1)` consumers see what is durable, not what is committed.
    pub(crate) durable_only: bool,
    /// Fresh space may be filled ahead: no flush of a few bytes will write it out.
    pub(crate) fills: bool,
    pub(crate) ages: Option<Ages>,
    /// A child of a fork is not the owner.
    pub(crate) fork_guard: ForkGuard,
    /// The thread that fills a message in place while the status says that one does; it holds the
    /// producers' lock.
    filler: AtomicUsize,
    /// Up to where consumers may read.
    pub(crate) visible: Padded<Tail>,
    /// Up to where messages are written.
    pub(crate) committed: Padded<Tail>,
    /// Up to where everything is on disk. Only the flush leader moves it.
    pub(crate) durable: Padded<Mutex<Durable>>,
    pub(crate) flushed: Condvar,
    /// Tells the producer that waits for it that a full segment was synced, or that the keeper is
    /// gone. With the flush lock.
    pub(crate) segment_synced: Condvar,
    /// The first sequence number still held.
    pub(crate) oldest_seq: AtomicU64,
    pub(crate) places: Places,
    /// Consumers that wait for a message. Changed under the producers' lock (and the flush lock
    /// when only durable messages are visible), so that a producer learns of a waiter with one
    /// relaxed load.
    pub(crate) message_waiters: AtomicUsize,
    pub(crate) waiters: Waiters,
    pub(crate) bell: Arc<Bell>,
    /// A consumer had to do without a window that it may lend from, for others have theirs open.
    pub(crate) window_wanted: AtomicBool,
    /// More segments are open than a queue may have: consumers are to let go of those they stand
    /// in.
    pub(crate) many_open: AtomicBool,
    pub(crate) space: Space,
    pub(crate) gaps: Gaps,
    pub(crate) flush_totals: FlushTotals,
    /// The first number this run gives out.
    pub(crate) first_seq_of_run: u64,
}

/// What [`State`] is made from.
pub(crate) struct Parts<S: Storage> {
    pub(crate) storage: S,
    pub(crate) index: Index<S>,
    pub(crate) segments: Segments<S>,
    pub(crate) pool: Pool,
    pub(crate) limits: Limits,
    pub(crate) durable_only: bool,
    pub(crate) fills: bool,
    pub(crate) ages: Option<Ages>,
    pub(crate) tail: Spot,
    pub(crate) durable: Spot,
    pub(crate) suspect: bool,
    pub(crate) places_cached: bool,
    pub(crate) oldest_seq: u64,
    pub(crate) known_gaps: Vec<Gap>,
    pub(crate) given_up: GivenUp,
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
            filler: AtomicUsize::new(0),
            visible: Padded::default(),
            committed: Padded::default(),
            durable: Padded::new(Mutex::new(Durable {
                spot: parts.durable,
                busy: false,
                suspect: parts.suspect,
                wanted: parts.durable,
                given_up: 0,
            })),
            flushed: Condvar::new(),
            segment_synced: Condvar::new(),
            oldest_seq: AtomicU64::new(parts.oldest_seq),
            places: Places::new(u64::from(parts.places_cached)),
            message_waiters: AtomicUsize::new(0),
            waiters: Waiters::default(),
            bell: Arc::default(),
            window_wanted: AtomicBool::new(false),
            many_open: AtomicBool::new(false),
            space: Space::default(),
            gaps: Gaps::new(parts.known_gaps, parts.given_up),
            flush_totals: FlushTotals::default(),
            first_seq_of_run: parts.tail.seq,
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
            durable: (durable.position, durable.seq),
            given_up: &self.gaps.given_up,
            fills: self.fills,
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.index.poison.is_poisoned()
    }

    /// Wakes readers that wait for so many messages. Called after they became visible, when
    /// `message_waiters` was seen above zero under the lock that made them so.
    #[cold]
    pub(crate) fn wake_readers(&self, count: u64) {
        self.waiters.wake(count);
    }

    /// One reader of the consumer in that row may go on.
    #[inline]
    pub(crate) fn wake_reader(&self, row: u32) {
        if self.message_waiters.load(Ordering::Relaxed) != 0 {
            self.waiters.wake_one(row, None);
        }
    }

    pub(crate) fn acks_row(&self, row: u32, name: &str) -> Option<AcksRow<S::File>> {
        self.with_index_room(|room| self.index.acks_row(row, name, room))
    }

    /// Where a new consumer begins: the oldest message still held. `end` is the
    /// [end](Self::visible_end) as it was before: a segment is listed before its first message is
    /// committed, so when there is none now there was no message then.
    pub(crate) fn oldest(&self, end: Spot) -> Spot {
        let mut list = self.segments.list();
        if let Some(row) = list.live.front()
            && row.header.gap_before > row.header.reserved
        {
            // The beginning was lost: whoever begins now is told.
            return Spot {
                position: row.header.base,
                seq: row.header.first_seq - row.header.gap_before,
            };
        }
        let first = list.first_whole(&self.storage);
        drop(list);
        first.map_or_else(
            || self.gaps.before_lost_tail(end),
            |(position, seq)| Spot { position, seq },
        )
    }

    /// Messages from the number `place` on (`None`: all) up to the end of what is visible, those
    /// known to be missing left out.
    pub(crate) fn len_from(&self, place: Option<u64>) -> u64 {
        let from = place.unwrap_or(0).max(self.oldest_seq.load(Ordering::Acquire));
        let end = self.visible.seq.load(Ordering::Acquire);
        let span = end.saturating_sub(from);
        if span == 0 { 0 } else { span.saturating_sub(self.gaps.known_missing(from, end)) }
    }
}
