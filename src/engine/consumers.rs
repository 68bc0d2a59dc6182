//! Consumers come, move and go.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::Engine;
use crate::consume::ledger::Ledger;
use crate::consume::standing::Standing;
use crate::error::{Error, Result};
use crate::events;
use crate::format::{Place, Spot};
use crate::read::Cursor;
use crate::state::PlaceCell;
use crate::storage::Storage;

/// The name under which the default consumer is kept; no user's name is empty.
const DEFAULT: &str = "";

/// The consumers that exist.
#[derive(Debug)]
pub(crate) struct Consumers<S: Storage> {
    pub(crate) by_name: Mutex<BTreeMap<String, Arc<Standing<S>>>>,
    default: OnceLock<Arc<Standing<S>>>,
    /// Consumers come and go one at a time: see [`Engine::registry`].
    pub(crate) registry: Mutex<()>,
}

impl<S: Storage> Consumers<S> {
    pub(super) fn new() -> Consumers<S> {
        Consumers {
            by_name: Mutex::default(),
            default: OnceLock::new(),
            registry: Mutex::default(),
        }
    }
}

impl<S: Storage> Engine<S> {
    /// The default consumer, which comes into being here when it never was.
    #[inline]
    pub(crate) fn default_consumer(&self) -> Result<&Arc<Standing<S>>> {
        match self.consumers.default.get() {
            Some(standing) => Ok(standing),
            None => self.begin_default(),
        }
    }

    /// The lock of whoever makes, moves or removes a consumer.
    ///
    /// Asked before, for a lock that another thread held when this process was forked off is held
    /// for ever; and after, for the queue may have been closed, and the files be another owner's,
    /// while this was waited for.
    pub(super) fn registry(&self) -> Result<MutexGuard<'_, ()>> {
        self.core.check_readable()?;
        #[cfg(test)]
        self.came.fetch_add(1, Ordering::SeqCst);
        let registry = self.consumers.registry.lock();
        self.core.check_readable()?;
        Ok(registry)
    }

    #[cold]
    fn begin_default(&self) -> Result<&Arc<Standing<S>>> {
        self.consumer(DEFAULT)?;
        let missing = || {
            Error::internal(
                self.core.storage.path(),
                "the default consumer was made and is not there",
            )
        };
        self.consumers.default.get().ok_or_else(missing)
    }

    /// The default consumer, if it ever read.
    pub(crate) fn existing_default(&self) -> Option<&Arc<Standing<S>>> {
        self.consumers.default.get()
    }

    /// The consumer of that name, which comes into being at the oldest message held.
    pub(crate) fn consumer(&self, name: &str) -> Result<Arc<Standing<S>>> {
        self.core.check_readable()?;
        let consumers = self.consumers.by_name.lock();
        if let Some(standing) = consumers.get(name) {
            return Ok(Arc::clone(standing));
        }
        drop(consumers);
        self.begin_consumer(name, None)
    }

    /// A new consumer at that place, or at the oldest message held.
    pub(crate) fn begin_consumer(
        &self,
        name: &str,
        spot: Option<Spot>,
    ) -> Result<Arc<Standing<S>>> {
        let _told = events::at_end();
        let _one_at_a_time = self.registry()?;
        if let Some(standing) = self.consumers.by_name.lock().get(name) {
            return Ok(Arc::clone(standing));
        }
        self.add_consumer(name, spot)
    }

    /// The registry's lock is held.
    fn add_consumer(&self, name: &str, spot: Option<Spot>) -> Result<Arc<Standing<S>>> {
        // A stand-in keeps the segments from the place on until the consumer itself does.
        let stand_in = Arc::new(PlaceCell::default());
        let end = self.core.visible_end();
        let spot = {
            let _nothing_goes = self.core.places.giving_back.write();
            // What expired while there was nobody, the first one is told of.
            let unread = self.core.places.unread.lock().take();
            let spot = spot.or(unread).unwrap_or_else(|| self.core.oldest(end));
            stand_in.position.store(spot.position, Ordering::Release);
            self.core.places.cells.write().push(Arc::clone(&stand_in));
            spot
        };
        let place = Place { number: 0, position: spot.position, seq: spot.seq };
        let taken = self.take_up(None, name, place, &[], 0);
        self.core.places.cells.write().retain(|place| !Arc::ptr_eq(place, &stand_in));
        taken
    }

    pub(crate) fn fork(&self, from: &Standing<S>, name: &str) -> Result<Arc<Standing<S>>> {
        let _told = events::at_end();
        let _one_at_a_time = self.registry()?;
        if self.consumers.by_name.lock().contains_key(name) {
            let path = self.core.storage.path();
            return Err(Error::invalid_argument(
                path,
                "consumer name",
                format!("{name:?} exists already"),
            ));
        }
        // Under the lock of the other one its place holds the segments.
        let (made, done) = from.with_progress(|progress| {
            progress.check(&self.core, from)?;
            let made = self.add_consumer(name, Some(progress.stored))?;
            let done = progress.ledger.as_ref().map(|ledger| ledger.ranges()).unwrap_or_default();
            Ok::<_, Error>((made, done))
        })?;
        if !done.is_empty() {
            made.adopt(&self.core, &done);
        }
        Ok(made)
    }

    /// Moves a consumer to the message `seq`.
    pub(crate) fn seek(&self, standing: &Standing<S>, seq: u64) -> Result<()> {
        let _told = events::at_end();
        let core = &*self.core;
        // A fork takes the same locks in another order.
        let one_at_a_time = self.registry()?;
        standing.with_progress(|progress| progress.check(core, standing))?;
        let end = core.visible_end();
        let not_found =
            || Error::no_message(core.storage.path(), seq, core.oldest(end).seq..end.seq);
        {
            // While the place is looked for and taken.
            let _nothing_goes = core.places.giving_back.write();
            let rows: Vec<_> = core.segments.list().live.iter().copied().collect();
            let spot = match seq.cmp(&end.seq) {
                std::cmp::Ordering::Greater => return Err(not_found()),
                // What came behind it since may be gone already.
                std::cmp::Ordering::Equal => Spot::max(end, core.oldest(end)),
                // The end of one whose beginning is gone is not held.
                std::cmp::Ordering::Less if seq < core.oldest(end).seq => return Err(not_found()),
                std::cmp::Ordering::Less => {
                    Cursor::seek(core, &rows, seq)?.ok_or_else(not_found)?
                }
            };
            standing.move_to(core, spot)?;
        }
        drop(one_at_a_time);
        self.give_space_back();
        core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Names of the consumers that exist, the default one left out, in order.
    pub(crate) fn consumer_names(&self) -> Vec<String> {
        if self.core.forked() {
            return Vec::new();
        }
        self.consumers.by_name.lock().keys().filter(|name| *name != DEFAULT).cloned().collect()
    }

    pub(crate) fn remove_consumer(&self, name: &str) -> Result<()> {
        let _told = events::at_end();
        let one_at_a_time = self.registry()?;
        let removed =
            if name == DEFAULT { None } else { self.consumers.by_name.lock().remove(name) };
        let Some(standing) = removed else {
            return Err(Error::no_consumer(self.core.storage.path(), name));
        };
        let removed = standing.remove(&self.core);
        if self.core.waiters.remove_ready(standing.row) {
            self.core.message_waiters.fetch_sub(1, Ordering::SeqCst);
        }
        drop(one_at_a_time);
        self.give_space_back();
        self.core.wake_readers(u64::MAX);
        removed
    }

    /// The index file may grow for it by `room` bytes, or by what the limits leave.
    pub(super) fn take_up(
        &self,
        known: Option<u32>,
        name: &str,
        place: Place,
        acks: &[(u64, u64)],
        room: u64,
    ) -> Result<Arc<Standing<S>>> {
        let core = &self.core;
        let (row, slot) = core.with_index_room(|left| {
            core.index.add_consumer(&core.storage, known, name, place, left.max(room))
        })?;
        let cell = Arc::new(PlaceCell::default());
        cell.position.store(place.position, Ordering::Release);
        cell.seq.store(place.seq, Ordering::Release);
        cell.moves.store(u64::from(known.is_none()), Ordering::Release);
        let spot = Spot { position: place.position, seq: place.seq };
        // With ranges beyond its place the consumer goes on where it was.
        let beyond: Vec<_> = acks.iter().copied().filter(|(_, last)| *last >= place.seq).collect();
        let mut ledger =
            (!beyond.is_empty()).then(|| Ledger::new(&beyond, core.acks_row(row, name)));
        if known.is_none()
            && let Some(ledger) = &mut ledger
        {
            // The index was made anew.
            ledger.store(spot, || None);
        }
        let standing = Arc::new(Standing::new(name, row, spot, slot, Arc::clone(&cell), ledger));
        core.places.cells.write().push(cell);
        self.consumers.by_name.lock().insert(name.to_owned(), Arc::clone(&standing));
        if name == DEFAULT {
            let _ = self.consumers.default.set(Arc::clone(&standing));
        }
        Ok(standing)
    }
}
