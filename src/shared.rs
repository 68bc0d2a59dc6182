//! What every part of one queue works on: the files, the pool, the tail, and what producers and consumers tell each other.
//!
//! # Locks
//!
//! Taken in this order, never the other way round: the registry, a consumer's lock, the producers' lock
//! ([`Shared::writer`]), the list of places, the flush lock, the settling of segments, their list, the pool, the index's own.
//! Whoever changes the list of places waits for nothing meanwhile. The locks of several consumers are taken only by who holds
//! the registry.
//!
//! [`Shared::giving_back`] is held for reading with no other lock held, and for writing only by who holds the registry, before
//! or after a consumer's lock, and before all others. A thread that holds the producers' lock reaches for it, and for a
//! consumer's lock, only by `try_`.
//!
//! The closure of `enqueue_with` is a caller's code that runs under the producers' lock. So every call that its thread makes
//! on the queue meanwhile is refused at the door ([`Shared::check_may_wait`], which the other checks include), or, where it has
//! no error to return, does without locks that others hold while they wait, or is done right after ([`Shared::is_filling`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::arena::ForkGuard;
use crate::bell::Bell;
use crate::error::{Error, Gap, GapCause, Result};
use crate::events;
use crate::given_up::GivenUp;
use crate::index::{AcksSlot, Index};
use crate::layout;
use crate::poison::Poison;
use crate::pool::Pool;
use crate::segment::{Context, Limits, Segment, Segments};
use crate::storage::Storage;
use crate::waiting::Waiters;
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

/// The keeper is asked for a flush when so many bytes are held that are not durable. (Few in the crash tests.)
pub(crate) const MOST_BEHIND: u64 = if cfg!(test) { 256 << 10 } else { 256 << 20 };

/// So many bytes before the end of a segment the keeper makes the next one ready.
pub(crate) const AHEAD: u64 = 4 << 20;

/// Totals of one run, by cause where they have one.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) gaps: AtomicU64,
    pub(crate) lost: [AtomicU64; GapCause::ALL.len()],
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_nanos: AtomicU64,
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
    /// A child of a fork is not the owner.
    pub(crate) fork_guard: ForkGuard,
    /// The thread that fills a message in place while the status says that one does; it holds the producers' lock.
    filler: AtomicUsize,
    /// Up to where consumers may read.
    pub(crate) visible: Padded<Tail>,
    /// Up to where messages are written.
    pub(crate) committed: Padded<Tail>,
    pub(crate) writer: Padded<Mutex<Writer<S::File>>>,
    /// Up to where everything is on disk. Only the flush leader moves it.
    pub(crate) durable: Padded<Mutex<Durable>>,
    pub(crate) flushed: Condvar,
    /// Tells the producer that waits for it that a full segment was synced, or that the keeper is gone. With the flush lock.
    pub(crate) segment_synced: Condvar,
    /// Moves of all consumers that the index on disk knows of.
    pub(crate) synced_moves: Mutex<u64>,
    /// The first sequence number still held.
    pub(crate) oldest_seq: AtomicU64,
    pub(crate) places: RwLock<Vec<Arc<PlaceCell>>>,
    /// Held for reading by who gives back what every place has passed, for writing by who looks for a new place: nothing is
    /// given back meanwhile.
    pub(crate) giving_back: RwLock<()>,
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
    /// More segments are open than a queue may have: consumers are to let go of those they stand in.
    pub(crate) many_open: AtomicBool,
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
            fork_guard: ForkGuard::new(),
            filler: AtomicUsize::new(0),
            visible: Padded::default(),
            committed: Padded::default(),
            writer: Padded(Mutex::new(parts.writer)),
            durable: Padded(Mutex::new(Durable {
                spot: parts.durable,
                busy: false,
                suspect: parts.suspect,
                wanted: parts.durable,
                given_up: 0,
            })),
            flushed: Condvar::new(),
            segment_synced: Condvar::new(),
            synced_moves: Mutex::new(0),
            oldest_seq: AtomicU64::new(parts.oldest_seq),
            places: RwLock::new(Vec::new()),
            giving_back: RwLock::new(()),
            // Moves of an earlier run, which the next flush has to sync.
            retired_moves: AtomicU64::new(u64::from(parts.places_cached)),
            retired_taken: AtomicU64::new(0),
            message_waiters: AtomicUsize::new(0),
            waiters: Waiters::default(),
            bell: Arc::default(),
            window_wanted: AtomicBool::new(false),
            many_open: AtomicBool::new(false),
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

    /// Refuses a call that might wait for ever for a lock: in a child of a fork, where the thread that held it is not, and
    /// from within the closure of `enqueue_with`.
    #[inline]
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        if self.index.poison.is_filling() || self.fork_guard.forked() { self.refuse_waiting() } else { Ok(()) }
    }

    /// Refuses a call that reads when the queue is closed, and one that might [wait for ever](Self::check_may_wait).
    #[inline]
    pub(crate) fn check_readable(&self) -> Result<()> {
        if !self.index.poison.takes_reads() || self.fork_guard.forked() {
            return self.refuse_reading();
        }
        #[cfg(test)]
        crate::sim::reached("found open");
        Ok(())
    }

    /// As [`check_readable`](Self::check_readable) for a call that writes, which is refused also once a flush has failed.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.index.poison.takes_all_calls() || self.fork_guard.forked() { self.refuse_writing() } else { Ok(()) }
    }

    #[cold]
    fn refuse_waiting(&self) -> Result<()> {
        if self.fork_guard.forked() {
            return Err(Error::forked(self.storage.path()));
        }
        if self.is_filling() {
            let reason = "its closure called the queue whose message it fills; call before or after";
            return Err(Error::invalid_argument(self.storage.path(), "enqueue_with", reason));
        }
        Ok(())
    }

    #[cold]
    fn refuse_reading(&self) -> Result<()> {
        self.refuse_waiting()?;
        if self.index.poison.is_closed() { Err(Error::closed(self.storage.path())) } else { Ok(()) }
    }

    #[cold]
    fn refuse_writing(&self) -> Result<()> {
        self.refuse_reading()?;
        self.index.poison.check()
    }

    /// Whether the calling thread is within the closure of `enqueue_with`.
    #[inline]
    pub(crate) fn is_filling(&self) -> bool {
        // Relaxed: a thread is named by itself; whom else it names does not matter.
        self.index.poison.is_filling() && self.filler.load(Ordering::Relaxed) == this_thread()
    }

    /// Until the guard is dropped the calling thread, which holds the producers' lock, is within the closure of `enqueue_with`.
    pub(crate) fn filling(&self) -> Filling<'_> {
        self.filler.store(this_thread(), Ordering::Relaxed);
        self.index.poison.set_filling(true);
        Filling { poison: &self.index.poison, filler: &self.filler, _untold: events::hold() }
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
        self.segments.settle(&self.context())
    }

    /// As [`Segments::extend`].
    pub(crate) fn extend(&self, segment: &Segment<S::File>, end: u64) -> Result<()> {
        self.segments.extend(&self.context(), segment, end)
    }

    /// As [`Segments::regain`].
    pub(crate) fn regain(&self, seen: u64) -> Result<bool> {
        if self.is_poisoned() {
            return Ok(false);
        }
        self.segments.regain(&self.context(), seen)
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

    pub(crate) fn is_poisoned(&self) -> bool {
        self.index.poison.is_poisoned()
    }

    /// Where consumers' view ends: the position and exactly its number.
    pub(crate) fn visible_end(&self) -> Spot {
        if self.durable_only { self.durable.0.lock().spot } else { self.committed_spot() }
    }

    /// The tail and exactly its number.
    pub(crate) fn committed_spot(&self) -> Spot {
        self.writer.0.lock().committed()
    }

    /// As [`committed_spot`](Self::committed_spot), for who may not wait for the producers' lock. The tail that is stored for
    /// the next opening says of itself whether its words belong together; a producer that holds the lock for long is not
    /// storing it.
    pub(crate) fn committed_spot_at_once(&self) -> Spot {
        loop {
            if let Some(writer) = self.writer.0.try_lock() {
                return writer.committed();
            }
            // One that is stored and not published may yet be taken back.
            if let Some((position, seq)) = self.index.tail()
                && position <= self.committed.0.position.load(Ordering::Acquire)
            {
                return Spot { position, seq };
            }
            std::hint::spin_loop();
        }
    }

    /// Wakes readers that wait for so many messages. Called after they became visible, when `message_waiters` was seen above
    /// zero under the lock that made them so.
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

    pub(crate) fn acks_slot(&self, row: u32, name: &str) -> Option<AcksSlot<S::File>> {
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
        if *gate == seen && !self.index.poison.is_closed() {
            self.space_freed.wait_until(&mut gate, until);
        }
        deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Lets go of segments that every consumer has passed. True when there are some to settle.
    pub(crate) fn reclaim(&self) -> bool {
        let _giving_back = self.giving_back.read();
        let Some(lowest) = self.lowest_place() else {
            return false;
        };
        let drained = self.segments.drain(lowest);
        if drained {
            self.note_oldest();
        }
        drained
    }

    /// The position that every consumer has reached; `None` when there is no consumer.
    pub(crate) fn lowest_place(&self) -> Option<u64> {
        self.places.read().iter().map(|place| place.position.load(Ordering::Acquire)).min()
    }

    pub(crate) fn note_oldest(&self) {
        let first = self.segments.list().first_whole(&self.storage);
        if let Some((_, seq)) = first {
            self.oldest_seq.fetch_max(seq, Ordering::AcqRel);
        }
    }

    /// Where a new consumer begins: the oldest message still held. `end` is the [end](Self::visible_end) as it was before:
    /// a segment is listed before its first message is committed, so when there is none now there was no message then.
    pub(crate) fn oldest(&self, end: Spot) -> Spot {
        let mut list = self.segments.list();
        if let Some(row) = list.live.front()
            && row.header.gap_before > row.header.reserved
        {
            // The beginning was lost: whoever begins now is told.
            return Spot { position: row.header.base, seq: row.header.first_seq - row.header.gap_before };
        }
        let first = list.first_whole(&self.storage);
        drop(list);
        first.map_or_else(|| self.before_lost_tail(end), |(position, seq)| Spot { position, seq })
    }

    /// The end, or where the numbers begin that are known to be missing right before it: messages that were lost, and behind
    /// them perhaps what was only reserved.
    fn before_lost_tail(&self, end: Spot) -> Spot {
        let gaps = self.known_gaps.lock();
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
        // The segment that is to state them begins a word behind what was there before.
        let position = if lost < end.seq { end.position.saturating_sub(layout::ALIGN) } else { end.position };
        Spot { position, seq: lost }
    }

    /// Counts a gap that a consumer is told of, while its place moves.
    #[cold]
    pub(crate) fn count_gap(&self, gap: &Gap) {
        events::gap(self.storage.path(), gap);
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

/// The calling thread fills a message in place while this lives.
#[must_use]
pub(crate) struct Filling<'a> {
    poison: &'a Poison,
    filler: &'a AtomicUsize,
    /// The end of a call on another queue is not the end of this one.
    _untold: events::Held,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.filler.store(0, Ordering::Relaxed);
        self.poison.set_filling(false);
    }
}

/// A number of the calling thread that no other living thread has; never zero.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
