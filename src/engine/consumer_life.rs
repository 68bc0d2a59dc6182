//! Creates, moves and removes consumers.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::consumer_table::DEFAULT;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::ledger::Ledger;
use crate::consume::step::BeginsDefault;
use crate::error::{Error, Result};
use crate::events;
use crate::format::{MAX_NAME_LEN, NumberRange, Place, Spot};
use crate::options::Start;
use crate::read::Cursor;
use crate::state::PlaceCell;
use crate::storage::Storage;
use crate::threads::MutexGuard;

/// Where a new consumer begins.
#[derive(Debug, Clone, Copy)]
enum Begins {
    Start(Start),
    /// Another consumer's position, which keeps the segments meanwhile.
    Spot(Spot),
}

impl<S: Storage> Engine<S> {
    /// Returns the default consumer for a call that needs it to exist; the first one creates it.
    pub(crate) fn default_consumer(&self) -> Result<&Arc<ConsumerState<S>>> {
        let default = &self.consumers.default;
        if !default.exists() {
            self.begin_default()?;
        }
        Ok(default)
    }

    /// Returns the default consumer, which may not exist, for a call that only looks, or for a read
    /// that creates it by [`BeginsDefault`].
    #[inline]
    pub(crate) fn default_consumer_state(&self) -> &Arc<ConsumerState<S>> {
        &self.consumers.default
    }

    /// Takes the registry's lock, which a thread holds while it creates, moves or removes a
    /// consumer.
    ///
    /// Checks the queue's status twice. Before the lock: in a forked child, a lock that another
    /// thread held at the fork stays locked forever. After it: another thread may have closed the
    /// queue while this one waited, and another process may own the files.
    pub(super) fn registry(&self) -> Result<MutexGuard<'_, ()>> {
        self.core.check_readable()?;
        #[cfg(test)]
        self.came.fetch_add(1, Ordering::SeqCst);
        let registry = self.consumers.registry.lock();
        if planted!(RegistryAfterClose) {
            return Ok(registry);
        }
        self.core.check_readable()?;
        Ok(registry)
    }

    /// Returns the default consumer, if it exists.
    pub(crate) fn existing_default(&self) -> Option<&Arc<ConsumerState<S>>> {
        Some(&self.consumers.default).filter(|default| default.exists())
    }

    /// Returns the consumer `name`; creates a missing one at the oldest message in the queue.
    pub(crate) fn consumer(&self, name: &str) -> Result<Arc<ConsumerState<S>>> {
        self.consumer_at(name, Start::Oldest)
    }

    /// Returns the consumer `name`; creates a missing one at `start`.
    pub(crate) fn consumer_at(&self, name: &str, start: Start) -> Result<Arc<ConsumerState<S>>> {
        self.core.check_readable()?;
        let consumers = self.consumers.by_name.lock();
        if let Some(consumer) = consumers.get(name) {
            return Ok(Arc::clone(consumer));
        }
        drop(consumers);
        self.begin_consumer(name, start)
    }

    /// Creates the consumer `name` at `start`. An existing one is unchanged.
    pub(crate) fn begin_consumer(&self, name: &str, start: Start) -> Result<Arc<ConsumerState<S>>> {
        let _events = events::at_end();
        let _one_at_a_time = self.registry()?;
        if let Some(consumer) = self.consumers.by_name.lock().get(name) {
            return Ok(Arc::clone(consumer));
        }
        self.add_consumer(name, Begins::Start(start), &[])
    }

    /// Creates the consumer `name` with the messages `done` already acknowledged. The caller holds
    /// the registry's lock.
    fn add_consumer(
        &self,
        name: &str,
        at: Begins,
        done: &[NumberRange],
    ) -> Result<Arc<ConsumerState<S>>> {
        let end = self.core.visible_end();
        let (spot, unclaimed, stand_in) = {
            let _nothing_goes = self.core.places.giving_back.write();
            let spot = match at {
                Begins::Spot(spot) => spot,
                Begins::Start(Start::Oldest) => self.core.unclaimed(end),
                Begins::Start(Start::End) => Cursor::spot_of(&self.core, end.seq, end)?,
                Begins::Start(Start::Seq(seq)) => loop {
                    // Another thread may evict the oldest messages between the two looks.
                    let oldest = self.core.oldest(end).seq;
                    match Cursor::spot_of(&self.core, seq.max(oldest), end) {
                        Err(Error::NotFound { .. }) if self.core.oldest(end).seq != oldest => {}
                        found => break found?,
                    }
                },
            };
            let unclaimed = self.unclaimed_before(at, spot, end);
            // The stand-in keeps unclaimed messages until the consumer exists and they are counted.
            let from = if unclaimed.is_empty() { spot } else { Spot::default() };
            (spot, unclaimed, self.stand_in(from))
        };
        reached!("before a consumer has its place");
        let place = Place { number: 0, position: spot.position, seq: spot.seq };
        let taken = self.take_up(None, name, place, done);
        if taken.is_ok() && !unclaimed.is_empty() {
            self.core.count_unclaimed(name, unclaimed);
        }
        self.end_stand_in(&stand_in);
        taken
    }

    /// Adds a position that keeps the segments from `from` on until a consumer's own does. The
    /// caller holds `giving_back` for writing.
    fn stand_in(&self, from: Spot) -> Arc<PlaceCell> {
        let stand_in = Arc::new(PlaceCell { is_stand_in: true, ..PlaceCell::default() });
        stand_in.begin(from, 0);
        if !planted!(NoStandIn) {
            self.core.places.cells.write().push(Arc::clone(&stand_in));
        }
        stand_in
    }

    fn end_stand_in(&self, stand_in: &Arc<PlaceCell>) {
        self.core.places.cells.write().retain(|place| !Arc::ptr_eq(place, stand_in));
    }

    /// Returns the retained numbers before `spot`, if the first consumer is to begin there: no
    /// other consumer needs them. The caller holds the registry's lock, and `giving_back`.
    fn unclaimed_before(&self, at: Begins, spot: Spot, end: Spot) -> Range<u64> {
        let is_behind = matches!(at, Begins::Start(Start::End | Start::Seq(_)));
        if !is_behind || !self.core.places.cells.read().is_empty() {
            return 0..0;
        }
        let oldest = self.core.oldest_seq.load(Ordering::Acquire);
        oldest.max(self.core.oldest(end).seq)..spot.seq
    }

    /// Creates the consumer `name` at the position of `from`, with the same messages acknowledged.
    pub(crate) fn fork(
        &self,
        from: &ConsumerState<S>,
        name: &str,
    ) -> Result<Arc<ConsumerState<S>>> {
        let _events = events::at_end();
        let _one_at_a_time = self.registry()?;
        if self.consumers.by_name.lock().contains_key(name) {
            let path = self.core.storage.path();
            return Err(Error::invalid_argument(
                path,
                "consumer name",
                format!("{name:?} exists already"),
            ));
        }
        // While this thread holds the lock of `from`, its position keeps the segments.
        from.with_locked(|locked| {
            locked.check(&self.core, from)?;
            let done = locked.ledger.iter().flat_map(|ledger| ledger.done()).collect::<Vec<_>>();
            self.add_consumer(name, Begins::Spot(from.cell.spot()), &done)
        })
    }

    /// Moves a consumer to the message `seq`.
    pub(crate) fn seek(&self, consumer: &ConsumerState<S>, seq: u64) -> Result<()> {
        let _events = events::at_end();
        let core = &*self.core;
        let one_at_a_time = self.registry()?;
        consumer.with_locked(|locked| locked.check(core, consumer))?;
        let end = core.visible_end();
        // The search walks over a segment, and the move may sync the index: do not make other
        // threads wait for that. The stand-in keeps the segment until the consumer is at its new
        // position.
        let stand_in = {
            let _nothing_goes = core.places.giving_back.write();
            let rows: Vec<_> = core.segments.list().live.iter().copied().collect();
            self.stand_in(Cursor::<S::File>::segment_of(&rows, seq).unwrap_or(end))
        };
        reached!("before a seek looks for its message");
        let moved = Cursor::spot_of(core, seq, end).and_then(|spot| consumer.move_to(core, spot));
        self.end_stand_in(&stand_in);
        drop(one_at_a_time);
        // Also after a failed seek: other consumers may have passed the segments kept for it.
        self.give_space_back();
        moved?;
        core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Returns the names of all consumers except the default one, in order.
    pub(crate) fn consumer_names(&self) -> Vec<String> {
        if self.core.forked() {
            return Vec::new();
        }
        self.consumers.by_name.lock().keys().filter(|name| *name != DEFAULT).cloned().collect()
    }

    /// Removes the consumer `name`, even if the index returns an error.
    pub(crate) fn remove_consumer(&self, name: &str) -> Result<()> {
        let _events = events::at_end();
        let one_at_a_time = self.registry()?;
        let Some(consumer) = self.consumers.by_name.lock().remove(name) else {
            return Err(Error::no_consumer(self.core.storage.path(), name));
        };
        let is_last = self.consumers.by_name.lock().is_empty();
        if is_last {
            // The next consumer gets a gap for messages that are evicted from here on.
            let mut list = self.core.segments.list();
            list.unclaimed_from = Some(list.retained_from());
        }
        let (mut removed, rules) = consumer.remove(&self.core);
        let noted = self.core.index.checkpoint().retained_from;
        if is_last && noted < self.core.gaps.evicted.lock().end() {
            // The next opening is to know that, too.
            removed = removed.and(self.core.flush_places_and_checkpoint());
        }
        // The default consumer's descriptor still becomes readable for messages, since the next
        // read creates that consumer again.
        if !consumer.is_default() && self.core.waiters.remove_ready(consumer.row) {
            self.core.message_waiters.fetch_sub(1, Ordering::SeqCst);
        }
        drop(one_at_a_time);
        drop(rules);
        self.give_space_back();
        self.core.wake_readers(u64::MAX);
        removed
    }

    /// Adds a consumer with the row `known` in the index, or else a new row, for which the index
    /// file may grow within the limits.
    pub(super) fn take_up(
        &self,
        known: Option<u32>,
        name: &str,
        place: Place,
        acks: &[NumberRange],
    ) -> Result<Arc<ConsumerState<S>>> {
        let core = &self.core;
        let (row, place_row) =
            core.index.add_consumer(known, name, place, |take| core.with_index_room(take))?;
        let spot = Spot { position: place.position, seq: place.seq };
        // Messages acknowledged beyond the position stay acknowledged.
        let beyond: Vec<_> = acks.iter().copied().filter(|acks| acks.last >= place.seq).collect();
        let mut ledger =
            (!beyond.is_empty()).then(|| Ledger::new(&beyond, core.acks_row(row, name)));
        if known.is_none()
            && let Some(ledger) = &mut ledger
        {
            // The row is new: it has no acknowledgements yet.
            ledger.store(spot, || None);
        }
        let consumer = if name == DEFAULT {
            self.consumers.default.set_row(place_row);
            Arc::clone(&self.consumers.default)
        } else {
            Arc::new(ConsumerState::new(name, row, place_row))
        };
        consumer.begin(spot, u64::from(known.is_none()), ledger);
        let mut cells = core.places.cells.write();
        holds!(
            !cells.iter().any(|cell| Arc::ptr_eq(cell, &consumer.cell)),
            "the consumer {name:?} is listed once"
        );
        cells.push(Arc::clone(&consumer.cell));
        drop(cells);
        // Only now does an opening find the place in the index.
        core.segments.list().unclaimed_from = None;
        self.consumers.by_name.lock().insert(name.to_owned(), Arc::clone(&consumer));
        Ok(consumer)
    }
}

impl<S: Storage> BeginsDefault for Engine<S> {
    #[cold]
    fn begin_default(&self) -> Result<()> {
        self.consumer(DEFAULT).map(drop)
    }
}

/// Refuses a name that is not 1 to 255 bytes of UTF-8.
pub(crate) fn check_name(queue: &Path, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        let reason = format!("{} bytes long: 1 to {MAX_NAME_LEN} are allowed", name.len());
        return Err(Error::invalid_argument(queue, "consumer name", reason));
    }
    Ok(())
}
