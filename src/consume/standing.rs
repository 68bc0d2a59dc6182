//! A consumer's standing in the queue: its cursor and its stored place, under its own lock.
//!
//! As long as nothing else is asked of it, the place follows the cursor. A consumer with deliveries
//! has a [`Ledger`] besides, and its place stays behind what is not acknowledged: see
//! `deliveries.rs` for how such a one reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::commit::Core;
use crate::consume::ledger::Ledger;
use crate::error::{Error, Gap, Result};
use crate::format::Spot;
use crate::index::{AcksRowIs, PlaceRow};
use crate::read::{Check, Cursor, Record};
use crate::state::PlaceCell;
use crate::storage::Storage;
use crate::threads::padded::Padded;
use crate::threads::ready::Ready;

/// What a read does with the message it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// Looks at it.
    Look,
    /// Takes it.
    Take,
    /// Takes it, to be handed over with others that were taken before it: stops in front of a gap
    /// as at the end of the queue, and a later read tells of it.
    TakeMore,
    /// Steps over it, unseen.
    Skip,
    /// Takes it, to be acknowledged.
    Receive,
}

/// What a delivery needs to know of its being handed out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Handed {
    pub(crate) attempts: u32,
    pub(crate) epoch: u64,
}

/// Hands the message that was found over to whoever reads. (Closures cannot be made to be compiled
/// into the quick way.)
pub(crate) trait Deliver<S: Storage> {
    type Delivered;

    /// `None` when the payload was not checked and does not hold what was written, or when this
    /// would rather know: it is looked for again, and checked.
    fn deliver(
        &mut self,
        cursor: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<Self::Delivered>, Box<Error>>;

    /// Whether the message was handed over. One that was not stays where it is, whatever the read.
    #[inline(always)]
    fn took(_: &Self::Delivered) -> bool {
        true
    }
}

/// The outcome of a read, and what the caller has to follow up.
#[derive(Debug)]
pub(crate) struct Step<R> {
    pub(crate) outcome: Result<Option<R>, Box<Error>>,
    /// A segment was left behind: it may be given back.
    pub(crate) crossed: bool,
    /// The place moved over a message.
    pub(crate) moved: bool,
}

#[derive(Debug)]
pub(crate) struct Progress<S: Storage> {
    pub(crate) cursor: Cursor<S::File>,
    slot: PlaceRow<S::File>,
    pub(crate) stored: Spot,
    /// There is one of the things below: reading takes the long way.
    pub(crate) special: bool,
    pub(crate) removed: bool,
    pub(crate) ledger: Option<Box<Ledger<S::File>>>,
    pub(crate) ready: Option<Arc<Ready>>,
}

#[derive(Debug)]
pub(crate) struct Standing<S: Storage> {
    name: String,
    pub(crate) row: u32,
    pub(crate) cell: Arc<PlaceCell>,
    /// There is a ledger: the number of messages does not follow from the place alone.
    pub(crate) has_ledger: AtomicBool,
    /// Messages handed out, neither acknowledged nor given back. Stored under the consumer's lock.
    pub(crate) in_flight: AtomicU64,
    /// Moves it had made when another consumer last looked for one that only stands there.
    looked_at: AtomicU64,
    /// The descriptor that was asked for; the state has it too.
    pub(crate) ready: OnceLock<Arc<Ready>>,
    pub(crate) progress: Padded<Mutex<Progress<S>>>,
}

impl<S: Storage> Standing<S> {
    pub(crate) fn new(
        name: &str,
        row: u32,
        spot: Spot,
        slot: PlaceRow<S::File>,
        cell: Arc<PlaceCell>,
        ledger: Option<Ledger<S::File>>,
    ) -> Standing<S> {
        Standing {
            name: name.to_owned(),
            row,
            cell,
            has_ledger: AtomicBool::new(ledger.is_some()),
            in_flight: AtomicU64::new(0),
            looked_at: AtomicU64::new(u64::MAX),
            ready: OnceLock::new(),
            progress: Padded::new(Mutex::new(Progress {
                cursor: Cursor::new(spot),
                slot,
                stored: spot,
                special: ledger.is_some(),
                removed: false,
                ledger: ledger.map(Box::new),
                ready: None,
            })),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[cold]
    pub(crate) fn unknown(&self, core: &Core<S>) -> Error {
        Error::no_consumer(core.storage.path(), &self.name)
    }

    /// The place as last stored.
    pub(crate) fn seq(&self) -> u64 {
        self.cell.seq.load(Ordering::Acquire)
    }

    /// Finds the next message and hands it to `delivery`; then steps over it if that is what is
    /// wanted and it succeeded. With [`Check::Later`] its payload was not checked then, unless the
    /// cursor says so.
    #[inline(always)]
    pub(crate) fn step<D: Deliver<S>>(
        &self,
        core: &Core<S>,
        what: Read,
        mut check: Check,
        mut delivery: D,
    ) -> Step<D::Delivered> {
        if let Err(error) = core.check_readable() {
            return Step { outcome: Err(error.into()), crossed: false, moved: false };
        }
        let mut progress = self.progress.lock();
        let progress = &mut *progress;
        if progress.special {
            return self.step_specially(progress, core, what, delivery).0;
        }
        let mut moved = false;
        // No closure: it would be compiled on its own, and hand its result over through memory.
        let outcome = 'outcome: {
            loop {
                let record = match progress.cursor.meet(core, check) {
                    Ok(Some(record)) => record,
                    Ok(None) => break 'outcome Ok(None),
                    Err(error) if what == Read::TakeMore && matches!(*error, Error::Gap(_)) => {
                        // It is met again where the cursor was: at the place.
                        progress.cursor.move_to(progress.stored);
                        break 'outcome Ok(None);
                    }
                    Err(error) => break 'outcome Err(error),
                };
                match delivery.deliver(&mut progress.cursor, &record) {
                    Ok(Some(delivered)) => {
                        if what == Read::Look {
                            progress.cursor.remember(&record);
                        } else if D::took(&delivered) {
                            progress.cursor.step_over(&record);
                            moved = true;
                        }
                        break 'outcome Ok(Some(delivered));
                    }
                    Ok(None) => check = Check::Now,
                    Err(error) => break 'outcome Err(error),
                }
            }
        };
        let spot = progress.cursor.spot();
        if moved || spot.position != progress.stored.position || spot.seq != progress.stored.seq {
            let cell = &*self.cell;
            progress.store(cell, spot);
            cell.count_move();
            if moved {
                cell.count_taken();
            } else if let Some(gap) = told(&outcome) {
                core.gaps.count(core.storage.path(), &gap);
            }
        }
        Step { outcome, crossed: progress.cursor.take_crossed(), moved }
    }

    /// Runs `look` under the lock, so that nothing it looks at is given back meanwhile.
    pub(crate) fn with_progress<R>(&self, look: impl FnOnce(&Progress<S>) -> R) -> R {
        look(&self.progress.lock())
    }

    /// Goes to another place; what is in flight is called off.
    pub(crate) fn move_to(&self, core: &Core<S>, spot: Spot) -> Result<()> {
        core.check_readable()?;
        let mut progress = self.progress.lock();
        progress.check(core, self)?;
        // Before the place moves: the ranges that are done, of this run or of one before it, must
        // not be believed of what comes again.
        if let Err(error) = core.index.clear_acks(self.row, AcksRowIs::Kept) {
            let place = progress.stored;
            if let Some(ledger) = &mut progress.ledger {
                // The place stays, and what was acknowledged behind it.
                ledger.store(place, || None);
            }
            return Err(error);
        }
        if let Some(ledger) = &mut progress.ledger {
            ledger.clear();
        }
        progress.cursor.move_to(spot);
        progress.store(&self.cell, spot);
        self.cell.count_move();
        self.count_in_flight(&progress);
        progress.note_ready(core);
        Ok(())
    }

    /// Lets go of what is mapped and open for it when its segment is no longer part of the queue,
    /// unless the consumer is busy.
    pub(crate) fn let_go_if_drained(&self, core: &Core<S>) {
        if let Some(mut progress) = self.progress.try_lock() {
            progress.let_go_if_drained(core);
        }
    }

    /// As [`let_go_if_drained`](Self::let_go_if_drained), and waits for a consumer that is busy.
    pub(crate) fn wait_and_let_go_if_drained(&self, core: &Core<S>) {
        self.progress.lock().let_go_if_drained(core);
    }

    /// Lets go of the window when it has not moved since this was last asked of it. Never waits for
    /// a consumer that is busy.
    pub(crate) fn let_go_if_idle(&self) {
        let moves = self.cell.moves.load(Ordering::Acquire);
        if self.looked_at.swap(moves, Ordering::AcqRel) == moves
            && let Some(mut progress) = self.progress.try_lock()
        {
            progress.cursor.let_go();
        }
    }

    /// Lets go of all that is open for it. Never waits for a consumer that is busy.
    pub(crate) fn let_go(&self) {
        if let Some(mut progress) = self.progress.try_lock() {
            progress.cursor.let_go();
            if let Some(ledger) = &mut progress.ledger {
                ledger.again.let_go();
            }
        }
    }

    /// Others may have let go of a window meanwhile.
    pub(crate) fn reconsider_window(&self) {
        self.progress.lock().cursor.reconsider_window();
    }

    /// Lets go of everything, at the end of a run. Whoever waits on its descriptor learns of it.
    pub(crate) fn end_run(&self, core: &Core<S>) {
        let mut progress = self.progress.lock();
        // Whoever found the queue open and then waited for the lock looks once more.
        progress.special = true;
        progress.cursor.let_go();
        if let Some(ledger) = &mut progress.ledger {
            ledger.again.let_go();
        }
        progress.note_ready(core);
    }

    /// Takes the consumer out of the queue: its place holds nothing back any more. After an error
    /// it is gone all the same.
    pub(crate) fn remove(&self, core: &Core<S>) -> Result<()> {
        {
            let mut progress = self.progress.lock();
            progress.removed = true;
            progress.special = true;
            progress.cursor.let_go();
            if let Some(ledger) = &mut progress.ledger {
                ledger.clear();
            }
            self.count_in_flight(&progress);
            progress.note_ready(core);
        }
        let cleared = core.index.clear_acks(self.row, AcksRowIs::Free);
        core.index.remove_consumer(self.row, &self.name);
        core.places.remove(&self.cell);
        cleared
    }
}

/// The gap that a read tells of.
#[inline]
pub(crate) fn told<R>(outcome: &Result<Option<R>, Box<Error>>) -> Option<Gap> {
    match outcome {
        Err(error) => match **error {
            Error::Gap(gap) => Some(gap),
            _ => None,
        },
        Ok(_) => None,
    }
}

impl<S: Storage> Progress<S> {
    /// Lets go of what is mapped and open when its segment is no longer part of the queue.
    fn let_go_if_drained(&mut self, core: &Core<S>) {
        if let Some(life) = self.cursor.segment_life()
            && !core.segments.list().live.iter().any(|row| row.header.life == life)
        {
            self.cursor.let_go();
        }
    }

    /// Publishes the place: in the index for the next opening, in the cell for everybody in this
    /// one.
    #[inline(always)]
    pub(crate) fn store(&mut self, cell: &PlaceCell, spot: Spot) {
        self.slot.store(spot.position, spot.seq);
        self.stored = spot;
        cell.seq.store(spot.seq, Ordering::Release);
        cell.position.store(spot.position, Ordering::Release);
    }

    /// Refuses a read or a change of the place: what is stored in the files is no longer this
    /// consumer's to change.
    pub(crate) fn check(&self, core: &Core<S>, standing: &Standing<S>) -> Result<()> {
        core.check_readable()?;
        if self.removed { Err(standing.unknown(core)) } else { Ok(()) }
    }

    /// Whether a read that needs no allowance has something to tell.
    pub(crate) fn has_waiting(&self, core: &Core<S>) -> bool {
        let spot = self.cursor.spot();
        self.is_over(core)
            || spot.position < core.visible.position.load(Ordering::Acquire)
            // Numbers may be missing right before the end.
            || spot.seq < core.visible.seq.load(Ordering::Acquire)
            || self.ledger.as_ref().is_some_and(|ledger| ledger.first_returned().is_some())
    }

    /// Whether any read has something to tell.
    pub(crate) fn has_news(&self, core: &Core<S>) -> bool {
        self.is_over(core)
            || self.ledger.as_ref().is_none_or(|ledger| ledger.may_hand_out())
                && self.has_waiting(core)
    }

    /// Every read is refused.
    fn is_over(&self, core: &Core<S>) -> bool {
        self.removed || core.check_readable().is_err()
    }

    /// Sets the descriptor, if there is one, to what it should tell.
    #[inline]
    pub(crate) fn note_ready(&self, core: &Core<S>) {
        if let Some(ready) = &self.ready {
            ready.tell(|| self.has_news(core));
        }
    }
}
