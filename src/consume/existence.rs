//! How a consumer begins to exist, and how it is removed.
//!
//! The default consumer has a state as long as the queue is open: a program may look at its
//! messages, and ask for its descriptor, before it has read anything. It gets its place in the
//! index, and keeps messages in the queue, from the first call that reads, and until it is removed.

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

    /// How often the consumer was removed. A call that waits notes the count when it begins, and
    /// ends when the count has changed. A removal raises the count before it wakes the waiters.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    /// Before the default consumer begins: where the index stores its place.
    pub(crate) fn set_row(&self, place_row: PlaceRow<S::File>) {
        self.locked.lock().place_row = place_row;
    }

    /// The consumer begins to exist at `spot`, which the index has. `moves` is 1 when that is new
    /// to the index.
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
        self.exists.store(true, Ordering::Release);
    }

    /// Takes the consumer out of the queue: its place keeps no segment any more. After an error it
    /// is gone all the same. Returns its rules too, which may hold another queue: the caller lets
    /// go of them without a lock, for that queue may be closed by it.
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

    /// As [`check`](Self::check), for a call that looks: the default consumer may not exist.
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

    /// Whether the default consumer, if it began now, would find something.
    pub(super) fn would_find(&self, core: &Core<S>) -> bool {
        let end = core.visible.spot();
        core.oldest(end).seq < end.seq
    }
}
