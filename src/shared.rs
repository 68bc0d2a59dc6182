//! What every part of one queue works on: the files, the pool, the tail, and what producers and consumers tell each other.
//!
//! # Locks
//!
//! Taken in this order, never the other way round: a consumer's lock, the producers' lock ([`Shared::writer`]), the flush
//! lock, the settling of segments, their list, the pool, the index's own. A thread that holds the producers' lock reaches
//! for a consumer's only by `try_lock`. The list of places is taken before the flush lock, and together with a consumer's
//! lock, in either order, only by who holds the registry (which comes before all of these); so are the locks of several
//! consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};

use crate::arena::ForkGuard;
use crate::bell::Bell;
use crate::error::{Error, Gap, GapCause, Result};
use crate::events;
use crate::given_up::GivenUp;
use crate::index::{AcksSlot, Index};
use crate::layout;
use crate::lock::{Guard, Lock, thread_number};
use crate::pool::Pool;
use crate::segment::{Context, FLUSH, Limits, Segment, Segments};
use crate::storage::Storage;
use crate::waiting::{Ticket, Waiters};
use crate::writer::Writer;

/// Keeps its content on cache lines of its own (two, for the processor that fetches pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// A position and the sequence number that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Spot {
    pub(crate) position: u64,
    pub(crate) seq: u64,
}

/// The tail as others see it. `seq` is stored first, so whoever reads the position and then the number gets a number
/// that is at least the position's.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    pub(crate) position: AtomicU64,
    pub(crate) seq: AtomicU64,
}

impl Tail {
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
    /// The page cache shows what an earlier, failed sync left off the disk: to be stored again before the next sync (R4).
    pub(crate) suspect: bool,
}

/// A consumer's place as others see it, and what it has taken.
///
/// `begun` is counted before the others change and `moves` after: whoever finds the two equal before and after reading the
/// others has read what belongs together.
#[derive(Debug, Default)]
pub(crate) struct PlaceCell {
    pub(crate) begun: AtomicU64,
    pub(crate) position: AtomicU64,
    pub(crate) seq: AtomicU64,
    /// Moves made in this run, changes of what is acknowledged included.
    pub(crate) moves: AtomicU64,
    /// Messages taken in this run.
    pub(crate) taken: AtomicU64,
}

impl PlaceCell {
    /// Something is about to change. The consumer's lock is held: nobody else counts.
    #[inline(always)]
    pub(crate) fn begin_move(&self) {
        self.begun.store(self.moves.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // On the processors there are this costs nothing where stores keep their order.
        fence(Ordering::Release);
    }

    /// It has changed.
    #[inline(always)]
    pub(crate) fn end_move(&self) {
        self.moves.store(self.begun.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Between [`begin_move`](Self::begin_move) and [`end_move`](Self::end_move).
    #[inline(always)]
    pub(crate) fn count_taken(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// So many bytes before the end of a segment the keeper makes the next one ready.
pub(crate) const AHEAD: u64 = 4 << 20;

/// Bits of [`Shared::status`]; zero is the only value the quick path looks for.
pub(crate) const CLOSED: u32 = 1;
pub(crate) const POISONED: u32 = 2;

/// Totals of one run, by cause where they have one.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) gaps: AtomicU64,
    pub(crate) lost: [AtomicU64; 4],
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_nanos: AtomicU64,
    pub(crate) last_flush_error: Mutex<Option<String>>,
}

#[derive(Debug)]
pub(crate) struct Shared<S: Storage> {
    pub(crate) storage: S,
    pub(crate) index: Index<S>,
    pub(crate) segments: Segments<S>,
    pub(crate) pool: Pool,
    pub(crate) limits: Limits,
    /// With `flush_every_ops(1)` consumers see what is durable, not what is committed.
    pub(crate) durable_only: bool,
    /// Fresh space may be filled ahead: no flush of a few bytes will write it out.
    pub(crate) fills: bool,
    /// Milliseconds after which a message is passed over.
    pub(crate) max_age: Option<u64>,
    /// A segment made before that time is followed by another one; nothing expires as a whole before that is too old.
    expiry: AtomicU64,
    pub(crate) status: AtomicU32,
    poison: Mutex<String>,
    /// A child of a fork is not the owner.
    pub(crate) fork_guard: ForkGuard,
    /// The thread that fills a message in place holds the producers' lock: its own calls must not wait for it.
    pub(crate) filler: AtomicU64,
    /// Up to where consumers may read.
    pub(crate) visible: Padded<Tail>,
    /// Up to where messages are written.
    pub(crate) committed: Padded<Tail>,
    pub(crate) writer: Padded<Lock<Writer<S::File>>>,
    /// Up to where everything is on disk. Only the flush leader moves it.
    pub(crate) durable: Padded<Mutex<Durable>>,
    pub(crate) flushed: Condvar,
    /// Moves of all consumers that the index on disk knows of.
    pub(crate) synced_moves: Mutex<u64>,
    /// The first sequence number still held.
    pub(crate) oldest_seq: AtomicU64,
    pub(crate) places: RwLock<Vec<Arc<PlaceCell>>>,
    /// Moves of consumers that were removed, and messages they took.
    pub(crate) retired_moves: AtomicU64,
    pub(crate) retired_taken: AtomicU64,
    /// Consumers that wait for a message. Changed under the producers' lock (and the flush lock when only durable messages
    /// are visible), so that a producer learns of a waiter with one relaxed load.
    pub(crate) message_waiters: AtomicUsize,
    pub(crate) waiters: Waiters,
    pub(crate) bell: Arc<Bell>,
    /// A consumer had to do without a window that it may lend from, for others have theirs open.
    pub(crate) window_wanted: AtomicBool,
    pub(crate) space_gate: Mutex<u64>,
    pub(crate) space_freed: Condvar,
    /// Numbers known to be missing, in order, no two overlapping: what `len` subtracts.
    pub(crate) known_gaps: Mutex<Vec<Gap>>,
    pub(crate) has_known_gaps: AtomicU32,
    /// Which of the missing numbers were dropped, or had expired. Taken last of all locks.
    pub(crate) given_up: Mutex<GivenUp>,
    pub(crate) totals: Totals,
    /// The first number this run gives out.
    pub(crate) first_seq_of_run: u64,
}

/// What [`Shared`] is made from.
pub(crate) struct Parts<S: Storage> {
    pub(crate) storage: S,
    pub(crate) index: Index<S>,
    pub(crate) segments: Segments<S>,
    pub(crate) pool: Pool,
    pub(crate) limits: Limits,
    pub(crate) durable_only: bool,
    pub(crate) fills: bool,
    pub(crate) max_age: Option<u64>,
    pub(crate) writer: Writer<S::File>,
    pub(crate) tail: Spot,
    pub(crate) durable: Spot,
    pub(crate) suspect: bool,
    pub(crate) places_cached: bool,
    pub(crate) oldest_seq: u64,
    pub(crate) known_gaps: Vec<Gap>,
    pub(crate) given_up: GivenUp,
}

impl<S: Storage> Shared<S> {
    pub(crate) fn new(parts: Parts<S>) -> Shared<S> {
        let shared = Shared {
            storage: parts.storage,
            index: parts.index,
            segments: parts.segments,
            pool: parts.pool,
            limits: parts.limits,
            durable_only: parts.durable_only,
            fills: parts.fills,
            max_age: parts.max_age,
            expiry: AtomicU64::new(0),
            status: AtomicU32::new(0),
            poison: Mutex::new(String::new()),
            fork_guard: ForkGuard::new(),
            filler: AtomicU64::new(0),
            visible: Padded::default(),
            committed: Padded::default(),
            writer: Padded(Lock::new(parts.writer)),
            durable: Padded(Mutex::new(Durable { spot: parts.durable, busy: false, suspect: parts.suspect })),
            flushed: Condvar::new(),
            synced_moves: Mutex::new(0),
            oldest_seq: AtomicU64::new(parts.oldest_seq),
            places: RwLock::new(Vec::new()),
            // Moves of an earlier run, which the next flush has to sync.
            retired_moves: AtomicU64::new(u64::from(parts.places_cached)),
            retired_taken: AtomicU64::new(0),
            message_waiters: AtomicUsize::new(0),
            waiters: Waiters::default(),
            bell: Arc::default(),
            window_wanted: AtomicBool::new(false),
            space_gate: Mutex::new(0),
            space_freed: Condvar::new(),
            has_known_gaps: AtomicU32::new(u32::from(!parts.known_gaps.is_empty())),
            known_gaps: Mutex::new(parts.known_gaps),
            given_up: Mutex::new(parts.given_up),
            totals: Totals::default(),
            first_seq_of_run: parts.tail.seq,
        };
        shared.committed.0.publish(parts.tail);
        shared.visible.0.publish(parts.tail);
        shared
    }

    pub(crate) fn context(&self) -> Context<'_, S> {
        let durable = self.durable.0.lock().spot;
        Context {
            storage: &self.storage,
            index: &self.index,
            pool: &self.pool,
            limits: self.limits,
            durable: (durable.position, durable.seq),
            given_up: &self.given_up,
            fills: self.fills,
        }
    }

    /// This process is a forked child of the one that opened the queue: its files, locks and threads are not here.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.fork_guard.forked()
    }

    /// Refuses a call that reads when the queue is closed. Whether this process was forked was asked before.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.status.load(Ordering::Relaxed) & CLOSED != 0 { Err(self.refusal()) } else { Ok(()) }
    }

    /// Refuses a call that reads when the queue is closed or belongs to another process.
    #[inline]
    pub(crate) fn check_readable(&self) -> Result<()> {
        if self.status.load(Ordering::Relaxed) & CLOSED != 0 || self.fork_guard.forked() {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Refuses a call that writes, also once a flush has failed.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.status.load(Ordering::Relaxed) != 0 || self.fork_guard.forked() {
            return Err(self.refusal());
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self) -> Error {
        if self.fork_guard.forked() {
            Error::Forked
        } else if self.status.load(Ordering::Acquire) & CLOSED != 0 {
            Error::Closed
        } else {
            self.poisoned()
        }
    }

    /// Why writing is refused since a flush failed.
    #[cold]
    pub(crate) fn poisoned(&self) -> Error {
        Error::Poisoned { reason: self.poison.lock().clone() }
    }

    /// Refuses all writing from now on: what the page cache shows may never reach the disk (rule R6).
    #[cold]
    pub(crate) fn poison(&self, error: &Error) {
        events::flush_failed(error);
        let mut reason = self.poison.lock();
        if reason.is_empty() {
            *reason = error.to_string();
        }
        self.index.set_poisoned(true);
        self.status.fetch_or(POISONED, Ordering::Release);
        *self.totals.last_flush_error.lock() = Some(error.to_string());
    }

    /// Milliseconds since 1970 before which messages are too old; zero when they have no age.
    pub(crate) fn expired_before(&self) -> u64 {
        self.max_age.map_or(0, |age| self.storage.now().saturating_sub(age))
    }

    /// Lets go of segments that hold nothing but messages made before `time`. True when there are some to settle.
    pub(crate) fn expire(&self, time: u64) -> bool {
        if time <= self.expiry.load(Ordering::Relaxed) {
            return false;
        }
        let (first_held, next) = self.segments.expire(&self.context(), time);
        // With no segment behind the tail's the next look is due when there is one; see `begin_segment`.
        self.expiry.store(if next == u64::MAX { time } else { next }, Ordering::Relaxed);
        let Some(first_held) = first_held else {
            return false;
        };
        self.oldest_seq.fetch_max(first_held, Ordering::AcqRel);
        self.note_given_up();
        true
    }

    /// Notes for the next opening what was given up.
    pub(crate) fn note_given_up(&self) {
        self.index.set_given_up(&self.given_up.lock());
    }

    /// Hands drained segments on. After a failed sync nothing is given back: no place can be known to be durable.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.is_poisoned() {
            return Ok(());
        }
        self.segments.settle(&self.context()).inspect_err(|error| self.poison_by(error))
    }

    /// As [`Segments::extend`]; a sync that failed on the way poisons the queue.
    pub(crate) fn extend(&self, segment: &Segment<S::File>, end: u64) -> Result<()> {
        self.segments.extend(&self.context(), segment, end).inspect_err(|error| self.poison_by(error))
    }

    /// As [`Segments::regain`].
    pub(crate) fn regain(&self, seen: u64) -> Result<bool> {
        if self.is_poisoned() {
            return Ok(false);
        }
        self.segments.regain(&self.context(), seen).inspect_err(|error| self.poison_by(error))
    }

    /// Makes the next segment ready when the tail comes near the end of its own, so that no producer waits for a file to be
    /// made.
    ///
    /// Filling the space there ahead of the tail was tried too: zeros written by another processor are in the wrong cache,
    /// and storing 128-byte messages took 1.5 times the processor time, with no gain in wall time on two processors.
    pub(crate) fn prepare_ahead(&self) {
        let Some(end) = self.segments.list().live.back().map(|row| row.header.end()) else {
            return;
        };
        if !self.is_poisoned() && end.saturating_sub(self.committed.0.position.load(Ordering::Acquire)) <= AHEAD {
            self.segments.prepare(&self.context());
        }
    }

    /// Poisons the queue when the error is that of a failed sync.
    pub(crate) fn poison_by(&self, error: &Error) {
        if matches!(error, Error::Io { op: FLUSH, .. }) {
            self.poison(error);
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.status.load(Ordering::Acquire) & POISONED != 0
    }

    /// Where consumers' view ends: the position and exactly its number.
    pub(crate) fn visible_end(&self) -> Spot {
        if self.durable_only { self.durable.0.lock().spot } else { self.committed_spot() }
    }

    /// The producers' lock; `None` for the thread that holds it already because it fills a message in place.
    pub(crate) fn lock_writer(&self) -> Option<Guard<'_, Writer<S::File>>> {
        match self.writer.0.try_lock() {
            Some(writer) => Some(writer),
            None if self.filler.load(Ordering::Relaxed) == thread_number() => None,
            None => Some(self.writer.0.lock()),
        }
    }

    /// The tail and exactly its number.
    pub(crate) fn committed_spot(&self) -> Spot {
        match self.lock_writer() {
            Some(writer) => writer.committed(),
            // Nobody else can commit meanwhile.
            None => Spot {
                position: self.committed.0.position.load(Ordering::Acquire),
                seq: self.committed.0.seq.load(Ordering::Acquire),
            },
        }
    }

    /// Wakes readers that wait for so many messages. Called after they became visible, when `message_waiters` was seen above
    /// zero under the lock that made them so.
    #[cold]
    pub(crate) fn wake_readers(&self, count: u64) {
        self.waiters.wake(count);
    }

    /// One reader of the consumer in that row may go on; `after`: one that came later than that.
    #[inline]
    pub(crate) fn wake_reader(&self, row: u32, after: Option<Ticket>) {
        if self.message_waiters.load(Ordering::Relaxed) != 0 {
            self.waiters.wake_one(row, after);
        }
    }

    /// The longest message in bytes that a queue so limited can ever hold.
    pub(crate) fn max_message(&self) -> u64 {
        let Some(max_bytes) = self.limits.max_bytes else {
            return layout::MAX_MESSAGE_LEN;
        };
        // Files set aside are not counted here: they may be taken away, and until then the queue is full.
        let taken = self.index.len();
        let segment_len = self.pool.geometry().segment_len;
        let segments = max_bytes.saturating_sub(taken) / (segment_len + crate::segment::overhead(segment_len));
        // The segment the tail stands in may be taken by messages before it.
        let each = segment_len - layout::SEGMENT_HEADER_LEN - 2 * layout::FRAGMENT_HEADER_LEN;
        (segments.saturating_sub(1) * each).clamp(1, layout::MAX_MESSAGE_LEN)
    }

    /// Runs `grow` with the bytes by which the index file may grow; nothing else takes space meanwhile.
    pub(crate) fn with_index_room<R>(&self, grow: impl FnOnce(u64) -> R) -> R {
        let context = self.context();
        let list = self.segments.list();
        grow(list.index_room(&context))
    }

    pub(crate) fn acks_slot(&self, row: u32, name: &str) -> Option<AcksSlot> {
        self.with_index_room(|room| self.index.acks_slot(row, name, room))
    }

    pub(crate) fn wake_writers(&self) {
        *self.space_gate.lock() += 1;
        self.space_freed.notify_all();
    }

    /// Waits until space was given back after `seen` (a value of `space_gate`), or until `deadline`.
    pub(crate) fn wait_for_space(&self, seen: u64, deadline: Option<Instant>) -> bool {
        let mut gate = self.space_gate.lock();
        // Space that others give back on the same disk announces itself to nobody: look again now and then.
        let soon = Instant::now() + Duration::from_millis(20);
        let until = deadline.map_or(soon, |deadline| deadline.min(soon));
        if *gate == seen && self.status.load(Ordering::Acquire) & CLOSED == 0 {
            self.space_freed.wait_until(&mut gate, until);
        }
        deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Lets go of segments that every consumer has passed. True when there are some to settle.
    pub(crate) fn reclaim(&self) -> bool {
        let Some(places) = self.places() else {
            // Whoever crosses the next segment sees to it.
            return false;
        };
        let lowest = places.iter().map(|place| place.position.load(Ordering::Acquire)).min();
        let Some(lowest) = lowest else {
            return false;
        };
        let drained = self.segments.drain(lowest);
        if drained {
            self.note_oldest();
        }
        drop(places);
        drained
    }

    /// All places. The thread that fills a message in place does not wait for them long: their holder may want the
    /// producers' lock to get around damage.
    pub(crate) fn places(&self) -> Option<RwLockReadGuard<'_, Vec<Arc<PlaceCell>>>> {
        if self.filler.load(Ordering::Relaxed) == thread_number() {
            return self.places.try_read_for(Duration::from_millis(100));
        }
        Some(self.places.read())
    }

    pub(crate) fn note_oldest(&self) {
        let first = self.segments.list().first_whole(&self.storage);
        if let Some((_, seq)) = first {
            self.oldest_seq.fetch_max(seq, Ordering::AcqRel);
        }
    }

    /// Where a new consumer begins: the oldest message still held. `end` is the [end](Self::visible_end) as it was before:
    /// a segment is listed before its first message is committed, so when there is none now there was no message then.
    ///
    /// It is asked for beforehand, not here: whoever holds the places may not wait for the producers' lock, for its holder may
    /// be filling a message in place and want the places.
    pub(crate) fn oldest(&self, end: Spot) -> Spot {
        let mut list = self.segments.list();
        if let Some(row) = list.live.front()
            && row.header.gap_before > 0
            && row.header.cause == GapCause::Damaged.number()
        {
            // The beginning was lost before anybody had read it: whoever begins now is told.
            return Spot { position: row.header.base, seq: row.header.first_seq - row.header.gap_before };
        }
        let first = list.first_whole(&self.storage);
        first.map_or(end, |(position, seq)| Spot { position, seq })
    }

    /// Counts a gap that a consumer is told of, while its place moves.
    #[cold]
    pub(crate) fn count_gap(&self, gap: &Gap) {
        events::gap(gap);
        self.totals.gaps.fetch_add(1, Ordering::Relaxed);
        let cause = GapCause::ALL.iter().position(|cause| *cause == gap.cause).unwrap_or(0);
        self.totals.lost[cause].fetch_add(gap.count(), Ordering::Relaxed);
    }

    /// Why numbers that no segment states a cause for are missing, and the first one that may have another.
    pub(crate) fn cause_of(&self, seq: u64) -> (GapCause, u64) {
        if let Some(given_up) = self.given_up.lock().cause_of(seq) {
            return given_up;
        }
        // What recovery found to be missing behind the last segment is stated by the next one, which may not be made yet.
        let gaps = self.known_gaps.lock();
        match gaps.iter().find(|gap| seq <= gap.last) {
            Some(gap) if gap.first <= seq => (gap.cause, gap.last + 1),
            Some(gap) => (GapCause::Damaged, gap.first),
            None => (GapCause::Damaged, u64::MAX),
        }
    }

    /// Messages from the number `place` on (`None`: all) up to the end of what is visible, those known to be missing left out.
    pub(crate) fn len_from(&self, place: Option<u64>) -> u64 {
        let from = place.unwrap_or(0).max(self.oldest_seq.load(Ordering::Acquire));
        let end = self.visible.0.seq.load(Ordering::Acquire);
        let span = end.saturating_sub(from);
        if span == 0 { 0 } else { span.saturating_sub(self.known_missing(from, end)) }
    }

    /// How many of the numbers `from .. to` are known to be missing.
    pub(crate) fn known_missing(&self, from: u64, to: u64) -> u64 {
        if self.has_known_gaps.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let gaps = self.known_gaps.lock();
        let overlap = |gap: &Gap| (gap.last + 1).min(to).saturating_sub(gap.first.max(from));
        gaps.iter().map(overlap).sum()
    }
}

/// How exactly the age of a message is known, in milliseconds: a 64th of the age at which it expires, 1 s at most.
pub(crate) fn grain_of(max_age: u64) -> u64 {
    (max_age / 64).clamp(1, 1000)
}
