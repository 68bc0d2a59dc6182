//! Creates and removes a consumer.
//!
//! The default consumer has a state as long as the queue is open: a program may look at its
//! messages, and ask for its descriptor, before it reads anything. The first call that reads gives
//! it a place in the index; from then until its removal it keeps messages in the queue.

use std::sync::atomic::Ordering;

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::consume::ledger::Ledger;
use crate::consume::redelivery_state::Rules;
use crate::consume::step::Existence;
use crate::error::Result;
use crate::format::Spot;
use crate::index::{AcksRowIs, PlaceRow};
use crate::storage::Storage;

impl<S: Storage> ConsumerState<S> {
    /// Whether the consumer has a place in the index.
    #[inline]
    pub(crate) fn exists(&self) -> bool {
        self.exists.load(Ordering::Acquire)
    }

    /// How often the consumer was removed. A waiting call notes the count when it begins, and ends
    /// when the count has changed. A removal raises the count before it wakes the waiters.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    /// Sets where the index stores the default consumer's place, before that consumer begins.
    pub(crate) fn set_row(&self, place_row: PlaceRow<S::File>) {
        self.locked.lock().place_row = place_row;
    }

    /// Makes the consumer exist at `spot`, which the index has. `moves` is 1 when the index did not
    /// have that place before.
    pub(crate) fn begin(&self, spot: Spot, moves: u64, ledger: Option<Ledger<S::File>>) {
        let mut locked = self.locked.lock();
        self.cell.begin(spot, moves);
        locked.cursor.move_to(spot);
        locked.stored = spot;
        locked.existence = Existence::Exists;
        if let Some(ledger) = ledger {
            self.has_ledger.store(true, Ordering::Release);
            locked.ledger = Some(Box::new(ledger));
        }
        locked.special = locked.ledger.is_some() || locked.ready.is_some();
        check!(let place = self.cell.spot());
        holds!(place == spot, "a consumer begins at {spot:?}, and others see it at {place:?}");
        self.exists.store(true, Ordering::Release);
    }

    /// Removes the consumer from the queue: its place keeps no segment any more, even after an
    /// error. Returns its rules too, which may hold another queue: the caller drops them without
    /// holding a lock, for that may close the other queue.
    pub(crate) fn remove(&self, core: &Core<S>) -> (Result<()>, Option<Rules>) {
        let rules = {
            let mut locked = self.locked.lock();
            self.exists.store(false, Ordering::Release);
            self.removals.fetch_add(1, Ordering::SeqCst);
            locked.existence =
                if self.is_default() { Existence::NotYet } else { Existence::Removed };
            locked.special = true;
            locked.release();
            locked.lanes = None;
            let redelivery = locked.ledger.as_mut().and_then(|ledger| ledger.release());
            self.count_in_flight(&locked);
            locked.note_ready(core);
            redelivery.map(|redelivery| redelivery.rules)
        };
        let cleared = core.index.clear_acks(self.row, AcksRowIs::Free);
        core.index.remove_consumer(self.row, self.name());
        core.places.remove(&self.cell);
        (cleared, rules)
    }
}

impl<S: Storage> LockedState<S> {
    pub(crate) fn exists(&self) -> bool {
        self.existence == Existence::Exists
    }

    /// Fails when the consumer was removed or the queue is closed, for a call that only looks: the
    /// default consumer need not exist.
    pub(crate) fn check_not_removed(
        &self,
        core: &Core<S>,
        consumer: &ConsumerState<S>,
    ) -> Result<()> {
        match self.existence {
            Existence::NotYet => core.check_readable(),
            _ => self.check(core, consumer),
        }
    }

    /// Whether the default consumer would find a message if it began now.
    pub(super) fn would_find(&self, core: &Core<S>) -> bool {
        let end = core.visible.spot();
        core.oldest(end).seq < end.seq
    }
}
