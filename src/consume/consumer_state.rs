//! A consumer's state in the queue: its cursor and its stored place, under its own lock.
//!
//! The place of a consumer without deliveries follows its cursor. A consumer with deliveries has a
//! [`Ledger`] too, and its place stays at the lowest message that is not acknowledged (`slow.rs`
//! has its reads).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::commit::Core;
use crate::consume::ledger::Ledger;
use crate::consume::redelivery_state::DeadLetters;
use crate::consume::step::{BeginsDefault, Deliver, Existence, Offered, Read, Step};
use crate::consume::two_lanes::TwoLanes;
use crate::error::{Error, Gap, Result};
use crate::format::{ForwardSlot, NumberRange, Spot};
use crate::index::{AcksRowIs, PlaceRow};
use crate::read::{Check, Cursor};
use crate::state::PlaceCell;
use crate::storage::Storage;
use crate::threads::padded::Padded;
use crate::threads::ranks::{Rank, ranked};
use crate::threads::ready::Ready;
use crate::threads::{AtomicBool, AtomicU64, Mutex, MutexGuard, OnceLock};

/// A consumer's data under its lock.
#[derive(Debug)]
pub(crate) struct LockedState<S: Storage> {
    pub(crate) cursor: Cursor<S::File>,
    /// Where the index stores the place.
    pub(super) place_row: PlaceRow<S::File>,
    /// Reads take the slow path: there is a ledger or a descriptor, or the consumer does not exist,
    /// or the run has ended.
    pub(crate) special: bool,
    pub(crate) existence: Existence,
    /// `None` until the consumer has deliveries or a limit on them.
    pub(crate) ledger: Option<Box<Ledger<S::File>>>,
    /// `None` until the consumer is read in lanes.
    pub(super) lanes: Option<Box<TwoLanes<S::File>>>,
    pub(crate) ready: Option<Arc<Ready>>,
}

/// One consumer of an open queue.
#[derive(Debug)]
pub(crate) struct ConsumerState<S: Storage> {
    name: String,
    /// The number of its row in the index.
    pub(crate) row: u32,
    pub(crate) cell: Arc<PlaceCell>,
    /// Whether [`LockedState::existence`] is `Exists`, readable without the lock.
    pub(super) exists: AtomicBool,
    /// A forwarder that reads as this consumer has every message below this number acknowledged,
    /// and keeps those from the place on; 0 without a forwarder.
    forwarded: AtomicU64,
    /// When its far side last acknowledged a message, in milliseconds since 1970; 0 for never.
    forwarded_at: AtomicU64,
    /// A forwarder reads as this consumer now.
    #[cfg(feature = "forward")]
    is_forwarding: AtomicBool,
    /// How often this consumer was removed. Only the default consumer can be created again.
    pub(super) removals: AtomicU64,
    /// There is a ledger: the number of messages does not follow from the place alone.
    pub(crate) has_ledger: AtomicBool,
    /// The delivery worker must wake for this consumer's leases, delays and dead letters.
    pub(crate) has_redelivery: AtomicBool,
    /// The queues that take, or are about to take, the rejected messages. A check for cycles of
    /// dead-letter queues reads this without taking `locked`.
    pub(super) leads_to: Mutex<Vec<Weak<dyn DeadLetters>>>,
    /// The move count that the last search for idle consumers saw.
    pub(super) moves_seen: AtomicU64,
    /// The descriptor, once a caller asked for it; `locked` has it too.
    pub(crate) ready: OnceLock<Arc<Ready>>,
    pub(crate) locked: Padded<Mutex<LockedState<S>>>,
}

/// A snapshot of a consumer.
#[derive(Debug, Default)]
pub(crate) struct Stand {
    pub(crate) place: Spot,
    /// The first number that waits: the place's, or a higher one for a forwarder.
    pub(crate) waits_from: u64,
    /// When the far side of a forwarder last acknowledged a message.
    pub(crate) forwarded_at: Option<SystemTime>,
    /// The numbers that are done beyond the place, and perhaps some before it.
    pub(crate) done: Vec<NumberRange>,
    pub(crate) in_flight: u64,
}

impl<S: Storage> ConsumerState<S> {
    /// A consumer that does not exist yet; [`begin`](Self::begin) makes it exist.
    pub(crate) fn new(name: &str, row: u32, place_row: PlaceRow<S::File>) -> ConsumerState<S> {
        ConsumerState {
            name: name.to_owned(),
            row,
            cell: Arc::default(),
            exists: AtomicBool::new(false),
            forwarded: AtomicU64::new(0),
            forwarded_at: AtomicU64::new(0),
            #[cfg(feature = "forward")]
            is_forwarding: AtomicBool::new(false),
            removals: AtomicU64::new(0),
            has_ledger: AtomicBool::new(false),
            has_redelivery: AtomicBool::new(false),
            leads_to: Mutex::default(),
            moves_seen: AtomicU64::new(u64::MAX),
            ready: OnceLock::new(),
            locked: Padded::new(ranked(
                Rank::Consumer,
                LockedState {
                    cursor: Cursor::new(Spot::default()),
                    place_row,
                    special: true,
                    existence: Existence::NotYet,
                    ledger: None,
                    lanes: None,
                    ready: None,
                },
            )),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_default(&self) -> bool {
        self.name.is_empty()
    }

    /// The error that says that this consumer does not exist.
    #[cold]
    pub(crate) fn unknown(&self, core: &Core<S>) -> Error {
        Error::no_consumer(core.storage.path(), &self.name)
    }

    /// The number of the stored place.
    pub(crate) fn seq(&self) -> u64 {
        self.cell.seq.load(Ordering::Acquire)
    }

    /// The first number that waits for this consumer.
    pub(crate) fn waits_from(&self) -> u64 {
        self.seq().max(self.forwarded.load(Ordering::Acquire))
    }

    /// Notes how far a forwarder that reads as this consumer has come, and when.
    pub(crate) fn note_forwarded(&self, slot: &ForwardSlot) {
        self.forwarded_at.store(slot.time, Ordering::Relaxed);
        self.forwarded.store(slot.until, Ordering::Release);
    }

    /// Notes that a forwarder begins to read as this consumer; `false` when another one does.
    #[cfg(feature = "forward")]
    pub(crate) fn begin_forwarding(&self) -> bool {
        !self.is_forwarding.swap(true, Ordering::AcqRel)
    }

    /// Notes that the forwarder that reads as this consumer has ended.
    #[cfg(feature = "forward")]
    pub(crate) fn end_forwarding(&self) {
        self.is_forwarding.store(false, Ordering::Release);
    }

    /// Returns when the far side of a forwarder last acknowledged a message.
    pub(crate) fn forwarded_at(&self) -> Option<SystemTime> {
        let at = Some(self.forwarded_at.load(Ordering::Relaxed)).filter(|at| *at > 0);
        at.map(|at| UNIX_EPOCH + Duration::from_millis(at))
    }

    /// Delivers the next message if the view alone shows it: the fast path of [`step`](Self::step).
    /// Returns what was delivered, and whether the place moved over the message. `None` for
    /// anything else: then nothing was delivered, and the caller goes on with `step`.
    #[inline(always)]
    pub(crate) fn step_quickly<D: Deliver<S>>(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        what: Read,
        check: Check,
        delivery: &mut D,
    ) -> Option<(D::Delivered, bool)> {
        if locked.special {
            return None;
        }
        let delivered = locked.offer_quickly(core, what, check, delivery)?;
        let moved = what != Read::Look && D::took(&delivered);
        if moved {
            self.store_taken(locked, 1);
        }
        check!(locked.check_place(core, &self.cell));
        Some((delivered, moved))
    }

    /// Finds the next message and passes it to `delivery`. Steps over the message if `delivery`
    /// took it, unless `what` is [`Read::Look`]. With [`Check::Later`], `delivery` may get a
    /// payload whose checksum is not verified yet. `if_gone` creates the default consumer if it
    /// does not exist. The caller has checked that the queue is open, and passes the lock.
    #[inline]
    pub(crate) fn step<D: Deliver<S>>(
        &self,
        mut locked: MutexGuard<'_, LockedState<S>>,
        core: &Core<S>,
        what: Read,
        check: Check,
        mut delivery: D,
        if_gone: Option<&dyn BeginsDefault>,
    ) -> Step<D::Delivered> {
        if locked.special {
            return self.step_slowly(locked, core, what, delivery, if_gone);
        }
        let locked = &mut *locked;
        let mut moved = false;
        let outcome = match locked.offer(core, what, check, &mut delivery) {
            Ok(Offered::Delivered(delivered)) => {
                moved = what != Read::Look && D::took(&delivered);
                Ok(Some(delivered))
            }
            Ok(Offered::Nothing) => Ok(None),
            Ok(Offered::Unchecked) => {
                let outcome = locked.offer_checked(core, what, &mut delivery);
                moved = what != Read::Look && matches!(&outcome, Ok(Some(it)) if D::took(it));
                outcome
            }
            Err(error) => Err(error),
        };
        if moved {
            self.store_taken(locked, 1);
        } else if locked.cursor.spot() != self.cell.spot() {
            self.pass_over(locked, core, &outcome);
        }
        check!(locked.check_place(core, &self.cell));
        Step { outcome, crossed: locked.cursor.take_crossed(), moved }
    }

    /// Stores the cursor's spot as the place, behind so many messages that were taken.
    #[inline(always)]
    pub(super) fn store_taken(&self, locked: &mut LockedState<S>, count: u64) {
        let cell = &*self.cell;
        locked.store(cell, locked.cursor.spot());
        cell.count_taken(count);
    }

    /// Runs `look` under the lock: meanwhile no segment from the place on is reclaimed.
    pub(crate) fn with_locked<R>(&self, look: impl FnOnce(&LockedState<S>) -> R) -> R {
        look(&self.locked.lock())
    }

    /// Moves the consumer to `spot`, and cancels its deliveries.
    pub(crate) fn move_to(&self, core: &Core<S>, spot: Spot) -> Result<()> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        locked.check(core, self)?;
        let place = self.cell.spot();
        // Cleared before the place moves: ranges stored by this or an earlier run must not make
        // messages count as done that the consumer gets again.
        if let Err(error) = core.index.clear_acks(self.row, AcksRowIs::Kept) {
            if let Some(ledger) = &mut locked.ledger {
                // The place did not move, so the acknowledgements beyond it are stored again.
                ledger.store(place, || None);
            }
            return Err(error);
        }
        if let Some(ledger) = &mut locked.ledger {
            ledger.clear(spot.seq);
        }
        locked.release();
        locked.cursor.move_to(spot);
        locked.store(&self.cell, spot);
        reached!("before a seek is counted");
        self.cell.count_change();
        self.count_in_flight(&locked);
        locked.note_ready(core);
        check!(locked.check_place(core, &self.cell));
        Ok(())
    }

    /// Returns the ledger; the first call creates it.
    pub(super) fn ledger<'a>(&self, locked: &'a mut LockedState<S>) -> &'a mut Ledger<S::File> {
        locked.special = true;
        self.has_ledger.store(true, Ordering::Release);
        locked.ledger.get_or_insert_with(|| Box::new(Ledger::new(&[], None)))
    }

    /// The number of messages in flight, read without the lock.
    pub(crate) fn in_flight(&self, core: &Core<S>) -> u64 {
        if core.forked() { 0 } else { self.cell.in_flight.load(Ordering::Relaxed) }
    }

    /// Publishes the number of messages in flight.
    pub(crate) fn count_in_flight(&self, locked: &LockedState<S>) {
        let in_flight = locked.ledger.as_ref().map_or(0, |ledger| ledger.in_flight() as u64);
        self.cell.in_flight.store(in_flight, Ordering::Relaxed);
    }

    /// The number of visible messages from the place on, without those that are done or known to be
    /// missing.
    pub(crate) fn len(&self, core: &Core<S>) -> u64 {
        if core.forked() {
            return 0;
        }
        let counted = self.glance(|locked| {
            let done = locked.ledger.iter().flat_map(|ledger| ledger.done());
            core.len_from(self.waits_from(), done)
        });
        counted.unwrap_or_else(|| core.len_from(self.waits_from(), std::iter::empty()))
    }

    /// Takes a snapshot of the consumer.
    pub(crate) fn stand(&self, core: &Core<S>) -> Stand {
        let stand = self.glance(|locked| Stand {
            place: self.cell.spot(),
            waits_from: self.waits_from(),
            forwarded_at: self.forwarded_at(),
            done: locked.ledger.iter().flat_map(|ledger| ledger.done()).collect(),
            in_flight: locked.ledger.as_ref().map_or(0, |ledger| ledger.in_flight() as u64),
        });
        stand.unwrap_or_else(|| Stand {
            place: self.cell.spot(),
            waits_from: self.waits_from(),
            forwarded_at: self.forwarded_at(),
            done: Vec::new(),
            in_flight: self.in_flight(core),
        })
    }

    /// Runs `look` under the lock if there is a ledger: the number of messages does not follow from
    /// the place alone then.
    fn glance<R>(&self, look: impl FnOnce(&LockedState<S>) -> R) -> Option<R> {
        self.has_ledger.load(Ordering::Acquire).then(|| look(&self.locked.lock()))
    }

    /// Stores the descriptor, which reads and producers keep up to date from now on.
    pub(crate) fn set_ready(&self, core: &Core<S>, ready: Arc<Ready>) {
        let _ = self.ready.set(Arc::clone(&ready));
        let mut locked = self.locked.lock();
        locked.ready = Some(ready);
        locked.special = true;
        locked.note_ready(core);
    }
}

/// Returns the gap if the read's outcome is one.
#[inline]
pub(crate) fn reported<R>(outcome: &Result<Option<R>, Box<Error>>) -> Option<Gap> {
    match outcome {
        Err(error) => match **error {
            Error::Gap(gap) => Some(gap),
            _ => None,
        },
        Ok(_) => None,
    }
}

impl<S: Storage> LockedState<S> {
    /// The spot of the next message that was never delivered: in the oldest stretch, or at the
    /// cursor.
    pub(crate) fn next_spot(&self) -> Spot {
        let left = self.ledger.as_ref().and_then(|ledger| ledger.stretches.first());
        left.map_or(self.cursor.spot(), |left| left.spot)
    }

    /// Stores the place in the index for the next opening, and in the cell for this run's threads.
    #[inline(always)]
    pub(crate) fn store(&mut self, cell: &PlaceCell, spot: Spot) {
        if planted!(PlacePublishedBeforeStored) {
            cell.position.store(spot.position, Ordering::Release);
        }
        reached!("before a place is stored");
        self.place_row.store(spot);
        cell.seq.store(spot.seq, Ordering::Release);
        cell.position.store(spot.position, Ordering::Release);
    }

    /// The place does not pass the cursor, nor any message that is in flight or was skipped.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check_place(&self, core: &Core<S>, cell: &PlaceCell) {
        let (place, at) = (cell.spot(), self.cursor.spot());
        holds!(
            place.position <= at.position && place.seq <= at.seq,
            "the place {place:?} is not behind the cursor, which is at {at:?}"
        );
        // The end moves on meanwhile, so it is loaded last.
        let oldest = core.oldest_seq.load(Ordering::Acquire);
        let end = core.committed().seq.load(Ordering::Acquire);
        holds!(at.seq <= end, "the cursor at {at:?} does not pass {end}, the end of the queue");
        holds!(oldest <= end, "the oldest number, {oldest}, does not pass {end}, the next one");
        let Some(ledger) = &self.ledger else {
            holds!(self.lanes.is_none(), "a consumer that is read in lanes has a ledger");
            return;
        };
        holds!(self.special, "a consumer with a ledger takes the slow path");
        let lowest = ledger.lowest();
        holds!(
            lowest.is_none_or(|lowest| place.seq <= lowest.seq),
            "the place {place:?} does not pass the first open or skipped message, {lowest:?}"
        );
        let left = ledger.stretches.last_end();
        holds!(left <= at.seq, "the skipped ranges, to {left}, end before the cursor at {at:?}");
    }

    /// Fails when the consumer does not exist or the queue is closed: its row in the index may then
    /// belong to another consumer.
    pub(crate) fn check(&self, core: &Core<S>, consumer: &ConsumerState<S>) -> Result<()> {
        core.check_readable()?;
        if !self.exists() { Err(consumer.unknown(core)) } else { Ok(()) }
    }

    /// Whether a read that takes or looks would return a message, a gap or an error.
    pub(crate) fn has_waiting(&self, core: &Core<S>) -> bool {
        if self.existence == Existence::NotYet {
            return self.would_find(core) || core.check_readable().is_err();
        }
        let spot = self.cursor.spot();
        self.is_over(core)
            || spot.position < core.visible.position.load(Ordering::Acquire)
            // The last numbers before the end may be missing: a gap to report.
            || spot.seq < core.visible.seq.load(Ordering::Acquire)
            || self.ledger.as_ref().is_some_and(|ledger| ledger.has_something())
    }

    /// Whether every kind of read would return something, also one that receives, which the limit
    /// on messages in flight may prevent.
    pub(crate) fn has_news(&self, core: &Core<S>) -> bool {
        let is_allowed =
            |ledger: &Ledger<S::File>| ledger.has_rejected_to_report() || ledger.is_below_limit();
        self.is_over(core)
            || self.ledger.as_deref().is_none_or(is_allowed) && self.has_waiting(core)
    }

    /// Whether every read fails.
    fn is_over(&self, core: &Core<S>) -> bool {
        self.existence == Existence::Removed || core.check_readable().is_err()
    }

    /// Makes the descriptor, if there is one, readable if [`has_news`](Self::has_news), else not
    /// readable.
    #[inline]
    pub(crate) fn note_ready(&self, core: &Core<S>) {
        if let Some(ready) = &self.ready {
            ready.notify(|| self.has_news(core));
        }
    }
}
