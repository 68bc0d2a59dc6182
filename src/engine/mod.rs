//! One open queue, whatever its files live in: what [`Queue`](crate::Queue) and [`Consumer`](crate::Consumer) call.

pub(crate) mod ahead;
mod figures;
pub(crate) mod reading;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};

use crate::commit::Core;
use crate::commit::keeper::Keeper;
use crate::consume::ledger::Ledger;
use crate::consume::standing::{Deliver, Handed, Read, Standing};
use crate::error::{Error, Result};
use crate::events;
use crate::format::Spot;
use crate::format::{Batch, Place};
use crate::memory::page_size;
use crate::options::{OnFull, Options};
use crate::read::{Check, Cursor};
use crate::recovery::{Recovered, recover};
use crate::segment::geometry::Geometry;
use crate::segment::pool::Pool;
use crate::segment::{Limits, Segments};
use crate::state::{Parts, PlaceCell, State, grain_of};
use crate::storage::Storage;
use crate::threads::ready::Ready;
use crate::threads::waiting::{Signal, Ticket};
use crate::write::{Room, Writer};

/// The name under which the default consumer is kept; no user's name is empty.
pub(crate) const DEFAULT: &str = "";

#[derive(Debug)]
pub(crate) struct Engine<S: Storage> {
    pub(crate) core: Arc<Core<S>>,
    pub(crate) options: Options,
    pub(crate) consumers: Mutex<BTreeMap<String, Arc<Standing<S>>>>,
    default: OnceLock<Arc<Standing<S>>>,
    operations: AtomicU64,
    keeper: Keeper<S>,
    /// Consumers come and go one at a time: see [`registry`](Self::registry).
    pub(crate) registry: Mutex<()>,
    later: Later<S>,
    /// Until the queue is closed.
    held: Mutex<Option<HeldHere>>,
    /// Calls that found the queue open and went on to wait for the registry's lock or the producers'.
    #[cfg(test)]
    pub(crate) came: AtomicU64,
}

/// When the queues were opened that this process has open: the pid alone does not say that a holder is this process, for in
/// a container another one may have the same.
static HELD_HERE: Mutex<Vec<SystemTime>> = Mutex::new(Vec::new());

/// An entry in [`HELD_HERE`]: the milliseconds since 1970.
#[derive(Debug)]
struct HeldHere(u64);

impl HeldHere {
    fn new(since: u64) -> HeldHere {
        HELD_HERE.lock().push(UNIX_EPOCH + Duration::from_millis(since));
        HeldHere(since)
    }
}

impl Drop for HeldHere {
    fn drop(&mut self) {
        let since = UNIX_EPOCH + Duration::from_millis(self.0);
        let mut held = HELD_HERE.lock();
        if let Some(at) = held.iter().position(|held| *held == since) {
            held.swap_remove(at);
        }
    }
}

/// What threads wanted while they were filling a message in place.
struct Later<S: Storage>(Mutex<Vec<Deferred<S>>>);

type Deferred<S> = Box<dyn FnOnce(&Engine<S>) + Send>;

impl<S: Storage> fmt::Debug for Later<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Later").field(&self.0.lock().len()).finish()
    }
}

/// Does it when dropped: the closure has run, or panicked, and the producers' lock is free again.
struct DoLater<'a, S: Storage>(&'a Engine<S>);

impl<S: Storage> Drop for DoLater<'_, S> {
    fn drop(&mut self) {
        let deferred = std::mem::take(&mut *self.0.later.0.lock());
        deferred.into_iter().for_each(|what| what(self.0));
    }
}

impl<S: Storage> Engine<S> {
    /// Opens the queue in `storage`. Without `threads` all that a thread would do in the background is done by the calls.
    pub(crate) fn open(storage: S, options: &Options, threads: bool) -> Result<Engine<S>> {
        let _told = events::at_end();
        let path = storage.path().to_path_buf();
        options.validate(&path)?;
        if !storage.try_lock().map_err(|error| Error::io("lock", &path, error))? {
            let (pid, since) = crate::index::holder(&storage);
            let here = pid == std::process::id() && since.is_some_and(|since| HELD_HERE.lock().contains(&since));
            return Err(Error::Locked { path, pid, here, since });
        }
        let recovered = recover(&storage, options.create, options.max_bytes.is_some());
        let recovered = recovered.inspect_err(|_| storage.unlock())?;
        let held = HeldHere::new(storage.now());
        recovered.index.set_since(held.0);
        Engine::start(storage, options, threads, recovered, held)
    }

    fn start(
        storage: S,
        options: &Options,
        threads: bool,
        recovered: Recovered<S>,
        held: HeldHere,
    ) -> Result<Engine<S>> {
        let geometry = Geometry::new(options.arena_size, options.max_mapped_arenas, options.max_bytes, page_size());
        let durable_only = options.flush_every_ops == Some(1);
        let small_flushes = options.flush_every_ops.is_some_and(|operations| operations < 10_000)
            || options.flush_every.is_some_and(|period| period.as_millis() < 100);
        let lease = (!durable_only).then_some(recovered.lease);
        // What recovery found may be read at once. It must not be undone by a power cut where that was promised, nor may its
        // numbers be given out again, which no lease keeps from it when the run before needed none (R4). After a power cut it
        // holds what was flushed before.
        let undurable = durable_only || recovered.found_anew || recovered.tail.seq > recovered.lease;
        let oldest_seq = recovered.found.live.first().map_or(recovered.tail.seq, |row| row.header.first_seq);
        let oldest_seq = oldest_seq.max(recovered.given_up.end()).min(recovered.tail.seq);
        let max_age = options.max_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let grain = max_age.map(grain_of);
        let writer = Writer::new(recovered.tail, recovered.next, lease, grain.map(|grain| (grain, recovered.latest)));
        let state = State::new(Parts {
            segments: Segments::new(recovered.found),
            pool: Pool::new(geometry),
            limits: Limits { max_bytes: options.max_bytes, min_free_bytes: options.min_free_bytes },
            durable_only,
            fills: !small_flushes,
            max_age,
            tail: recovered.tail,
            durable: recovered.durable,
            // Only where there is such a thing: what this run writes need not be stored twice.
            suspect: recovered.suspect || (undurable && recovered.durable.position < recovered.tail.position),
            places_cached: recovered.places_cached,
            oldest_seq,
            known_gaps: recovered.known_gaps,
            given_up: recovered.given_up,
            index: recovered.index,
            storage,
        });
        let core = Arc::new(Core::new(state, writer));
        core.segments.hold_found(&core.storage, recovered.durable.position, recovered.tail.position);
        core.note_oldest();
        let engine = Engine {
            keeper: Keeper::new(&core, options.flush_every),
            core,
            options: options.clone(),
            consumers: Mutex::new(BTreeMap::new()),
            default: OnceLock::new(),
            operations: AtomicU64::new(0),
            registry: Mutex::new(()),
            held: Mutex::new(Some(held)),
            later: Later(Mutex::default()),
            #[cfg(test)]
            came: AtomicU64::new(0),
        };
        events::opened(
            engine.core.storage.path(),
            recovered.tail.seq,
            engine.core.oldest_seq.load(Ordering::Relaxed),
            engine.core.segments.list().live.len(),
            recovered.clean,
            engine.core.gaps.known.lock().len(),
        );
        for row in recovered.consumers {
            let known = (row.row != u32::MAX).then_some(row.row);
            // Its place was in an index that was set aside: it is kept, also where the limit leaves no room for another row.
            let room = if known.is_none() { u64::MAX } else { 0 };
            engine.take_up(known, &row.name, row.place, &row.acks, room)?;
        }
        if undurable {
            engine.core.flush_to(recovered.tail)?;
        }
        if threads {
            engine.keeper.allow(&engine.core)?;
        }
        Ok(engine)
    }

    /// The index file may grow for it by `room` bytes, or by what the limits leave.
    fn take_up(
        &self,
        known: Option<u32>,
        name: &str,
        place: Place,
        acks: &[(u64, u64)],
        room: u64,
    ) -> Result<Arc<Standing<S>>> {
        let core = &self.core;
        let (row, slot) =
            core.with_index_room(|left| core.index.add_consumer(&core.storage, known, name, place, left.max(room)))?;
        let cell = Arc::new(PlaceCell::default());
        cell.position.store(place.position, Ordering::Release);
        cell.seq.store(place.seq, Ordering::Release);
        cell.moves.store(u64::from(known.is_none()), Ordering::Release);
        let spot = Spot { position: place.position, seq: place.seq };
        // With ranges beyond its place the consumer goes on where it was.
        let beyond: Vec<_> = acks.iter().copied().filter(|(_, last)| *last >= place.seq).collect();
        let mut ledger = (!beyond.is_empty()).then(|| Ledger::new(&beyond, core.acks_slot(row, name)));
        if known.is_none()
            && let Some(ledger) = &mut ledger
        {
            // The index was made anew.
            ledger.store(spot, || None);
        }
        let ages = core.max_age.is_some();
        let standing = Arc::new(Standing::new(name, row, spot, slot, Arc::clone(&cell), ledger, ages));
        core.places.cells.write().push(cell);
        self.consumers.lock().insert(name.to_owned(), Arc::clone(&standing));
        if name == DEFAULT {
            let _ = self.default.set(Arc::clone(&standing));
        }
        Ok(standing)
    }

    /// The default consumer, which comes into being here when it never was.
    #[inline]
    pub(crate) fn default_consumer(&self) -> Result<&Arc<Standing<S>>> {
        match self.default.get() {
            Some(standing) => Ok(standing),
            None => self.begin_default(),
        }
    }

    /// The lock of whoever makes, moves or removes a consumer.
    ///
    /// Asked before, for a lock that another thread held when this process was forked off is held for ever; and after, for
    /// the queue may have been closed, and the files be another owner's, while this was waited for.
    fn registry(&self) -> Result<MutexGuard<'_, ()>> {
        self.core.check_readable()?;
        #[cfg(test)]
        self.came.fetch_add(1, Ordering::SeqCst);
        let registry = self.registry.lock();
        self.core.check_readable()?;
        Ok(registry)
    }

    #[cold]
    fn begin_default(&self) -> Result<&Arc<Standing<S>>> {
        self.consumer(DEFAULT)?;
        let missing = || Error::internal(self.core.storage.path(), "the default consumer was made and is not there");
        self.default.get().ok_or_else(missing)
    }

    /// The default consumer, if it ever read.
    pub(crate) fn existing_default(&self) -> Option<&Arc<Standing<S>>> {
        self.default.get()
    }

    /// The consumer of that name, which comes into being at the oldest message held.
    pub(crate) fn consumer(&self, name: &str) -> Result<Arc<Standing<S>>> {
        self.core.check_readable()?;
        let consumers = self.consumers.lock();
        if let Some(standing) = consumers.get(name) {
            return Ok(Arc::clone(standing));
        }
        drop(consumers);
        self.begin_consumer(name, None)
    }

    /// A new consumer at that place, or at the oldest message held.
    pub(crate) fn begin_consumer(&self, name: &str, spot: Option<Spot>) -> Result<Arc<Standing<S>>> {
        let _told = events::at_end();
        let _one_at_a_time = self.registry()?;
        if let Some(standing) = self.consumers.lock().get(name) {
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
            let spot = spot.unwrap_or_else(|| self.core.oldest(end));
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
        if self.consumers.lock().contains_key(name) {
            let path = self.core.storage.path();
            return Err(Error::invalid_argument(path, "consumer name", format!("{name:?} exists already")));
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
        let not_found = || Error::no_message(core.storage.path(), seq, core.oldest(end).seq..end.seq);
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
                std::cmp::Ordering::Less => Cursor::seek(core, &rows, seq)?.ok_or_else(not_found)?,
            };
            standing.move_to(core, spot)?;
        }
        drop(one_at_a_time);
        self.give_back();
        core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Names of the consumers that exist, the default one left out, in order.
    pub(crate) fn consumer_names(&self) -> Vec<String> {
        if self.core.forked() {
            return Vec::new();
        }
        self.consumers.lock().keys().filter(|name| *name != DEFAULT).cloned().collect()
    }

    pub(crate) fn remove_consumer(&self, name: &str) -> Result<()> {
        let _told = events::at_end();
        let one_at_a_time = self.registry()?;
        let removed = if name == DEFAULT { None } else { self.consumers.lock().remove(name) };
        let Some(standing) = removed else {
            return Err(Error::no_consumer(self.core.storage.path(), name));
        };
        let removed = standing.remove(&self.core);
        if self.core.waiters.remove_ready(standing.row) {
            self.core.message_waiters.fetch_sub(1, Ordering::SeqCst);
        }
        drop(one_at_a_time);
        self.give_back();
        self.core.wake_readers(u64::MAX);
        removed
    }

    /// What follows when a consumer has left a segment behind, or had to do without a window.
    #[cold]
    fn crossed(&self, standing: &Standing<S>) {
        self.give_back();
        if self.core.window_wanted.swap(false, Ordering::Relaxed) {
            // Under a tight cap, one that only stands there must not make the others copy.
            for other in self.consumers.lock().values() {
                if !std::ptr::eq(&**other, standing) {
                    other.let_go_if_idle();
                }
            }
            standing.reconsider_window();
        }
        if self.core.many_open.swap(false, Ordering::Relaxed) {
            // Descriptors stay few, however many consumers stand in segments of their own.
            for other in self.consumers.lock().values() {
                if !std::ptr::eq(&**other, standing) {
                    other.let_go();
                }
            }
        }
    }

    /// Hands segments that everybody has passed to the keeper.
    #[cold]
    pub(crate) fn give_back(&self) {
        if self.core.reclaim() {
            self.settle_soon();
        }
    }

    pub(crate) fn settle_soon(&self) {
        if !self.core.bell.ring(|wishes| wishes.settle = true) {
            // No thread: here and now. A failed sync poisons the queue: the next call that writes is told.
            let _ = self.core.settle();
            self.core.wake_writers();
        }
    }

    /// The producers' lock. Refused to who waited for it while the queue was closed.
    #[inline]
    fn writer(&self) -> Result<MutexGuard<'_, Writer<S::File>>> {
        self.core.check_may_wait()?;
        #[cfg(test)]
        self.came.fetch_add(1, Ordering::SeqCst);
        let writer = self.core.writer.lock();
        self.core.check_writable()?;
        Ok(writer)
    }

    #[inline]
    pub(crate) fn enqueue(&self, payload: &[u8]) -> Result<u64> {
        let _told = events::at_end();
        let core = &*self.core;
        let mut writer = self.writer()?;
        if writer.push_quickly(payload) {
            let spot = match writer.commit(core) {
                Ok(spot) => spot,
                Err(error) => {
                    writer.roll_back(core);
                    drop(writer);
                    return self.enqueue_again(error, payload);
                }
            };
            let waiters = core.message_waiters.load(Ordering::Relaxed);
            drop(writer);
            if waiters != 0 || self.options.flush_every_ops.is_some() {
                self.written(spot, 1, waiters)?;
            }
            return Ok(spot.seq - 1);
        }
        self.enqueue_slowly(writer, payload)
    }

    #[inline(never)]
    fn enqueue_slowly(&self, mut writer: MutexGuard<'_, Writer<S::File>>, payload: &[u8]) -> Result<u64> {
        if writer.was_refused() {
            drop(writer);
            return self.enqueue_looking(payload);
        }
        let seq = writer.committed().seq;
        let pushed = writer.push(&self.core, payload, Batch::default());
        let end = match pushed.and_then(|()| writer.commit(&self.core)) {
            Ok(spot) => spot,
            Err(error) => {
                writer.roll_back(&self.core);
                drop(writer);
                return self.enqueue_again(error, payload);
            }
        };
        let waiters = self.core.message_waiters.load(Ordering::Relaxed);
        drop(writer);
        if waiters != 0 || self.options.flush_every_ops.is_some() {
            self.written(end, 1, waiters)?;
        }
        Ok(seq)
    }

    #[cold]
    fn enqueue_again(&self, error: Error, payload: &[u8]) -> Result<u64> {
        if !error.is_full() {
            return Err(error);
        }
        self.enqueue_looking(payload)
    }

    /// Looks for room where there is none.
    #[cold]
    fn enqueue_looking(&self, payload: &[u8]) -> Result<u64> {
        let range = self.write(1, |writer, core| writer.push(core, payload, Batch::default()))?;
        Ok(range.0.start)
    }

    /// Writes by `push` under the producers' lock and commits; when there is no room does what the options say.
    pub(crate) fn write<R>(
        &self,
        count: u64,
        mut push: impl FnMut(&mut Writer<S::File>, &Core<S>) -> Result<R>,
    ) -> Result<(Range<u64>, R)> {
        let _told = events::at_end();
        let core = &*self.core;
        let (mut deadline, mut has_waited) = (None, false);
        loop {
            let mut writer = self.writer()?;
            if writer.take_refused() {
                // What would still fit behind all that was read would keep the space of that from what comes next.
                self.find_room(&mut writer)?;
            }
            let seen = *core.space.gate.lock();
            let passed = core.segments.passed();
            let first = writer.committed().seq;
            let pushed = push(&mut writer, core).and_then(|result| writer.commit(core).map(|_| result));
            let error = match pushed {
                Ok(result) => {
                    let waiters = core.message_waiters.load(Ordering::Relaxed);
                    let end = writer.committed();
                    drop(writer);
                    self.written(end, count, waiters)?;
                    return Ok((first..end.seq, result));
                }
                Err(error) => error,
            };
            writer.roll_back(core);
            if !error.is_full() {
                return Err(error);
            }
            writer.note_refused();
            events::full(core.storage.path(), &error);
            if self.find_room(&mut writer)? || core.regain(passed)? || core.pool.unmap_forgotten() {
                has_waited = false;
                continue;
            }
            if !has_waited && !error.is_of_max_bytes() && core.segments.has_removed_open() {
                has_waited = true;
                drop(writer);
                self.wait_for_dropped();
                continue;
            }
            match self.options.on_full {
                OnFull::Reject => return Err(error),
                OnFull::DropOldest => {
                    // The consumers may have drained what was to be dropped since there was no room: then there is some.
                    if !self.drop_oldest(&mut writer)? && !core.regain(passed)? {
                        return Err(error);
                    }
                    has_waited = false;
                }
                OnFull::Wait(limit) => {
                    drop(writer);
                    events::tell();
                    let until =
                        *deadline.get_or_insert_with(|| limit.and_then(|limit| Instant::now().checked_add(limit)));
                    if !core.wait_for_space(seen, until) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Writes all messages, or none.
    pub(crate) fn enqueue_batch<M: AsRef<[u8]>>(&self, messages: &[M]) -> Result<Range<u64>> {
        let written = self.write(messages.len() as u64, |writer, core| {
            for (index, message) in messages.iter().enumerate() {
                writer.push(core, message.as_ref(), Batch::of(index, messages.len()))?;
            }
            Ok(())
        })?;
        Ok(written.0)
    }

    /// Has `fill` write a message under the producers' lock, in place where it can lie in one piece.
    pub(crate) fn enqueue_with(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<u64> {
        let _later = DoLater(self);
        let mut fill = Some(fill);
        let mut bytes = Vec::new();
        let (range, ()) = self.write(1, |writer, core| {
            if fill.is_none() {
                // It was written, and the disk has refused to take it into the room that was made: from here on it is as any.
                return writer.push(core, &bytes, Batch::default());
            }
            // Room is made for all of it before the closure runs, which can run only once.
            let room = writer.reserve(core, len)?;
            let fill = |bytes: &mut [u8]| {
                let _filling = core.filling();
                if let Some(fill) = fill.take() {
                    fill(bytes);
                }
            };
            match room {
                Room::Here => writer.fill_here(len, fill),
                Room::Apart { pieces, bytes: buffer } => {
                    bytes = buffer;
                    writer.fill_apart(core, &pieces, &mut bytes, fill)?;
                }
            }
            Ok(())
        })?;
        Ok(range.start)
    }

    /// Does `what` now, or, when the calling thread is filling a message in place and so may not wait for locks, right after.
    #[inline]
    pub(crate) fn now_or_later(&self, what: impl FnOnce(&Engine<S>) + Send + 'static) {
        if self.core.is_filling() {
            self.later.0.lock().push(Box::new(what));
        } else {
            what(self);
        }
    }

    /// What follows a write that cannot simply return: waking readers, flushing.
    #[cold]
    fn written(&self, end: Spot, count: u64, waiters: usize) -> Result<()> {
        if waiters != 0 && !self.core.durable_only {
            self.core.wake_readers(count);
        }
        let flushed = match self.options.flush_every_ops {
            Some(1) => self.core.flush_to(end).and_then(|()| self.core.checkpoint_if_due()),
            Some(every) => self.count(every, count),
            None => Ok(()),
        };
        flushed.map_err(Error::of_flush)
    }

    /// The operation that completes the number does the flush.
    #[cold]
    fn count(&self, every: u64, count: u64) -> Result<()> {
        let before = self.operations.fetch_add(count, Ordering::Relaxed);
        if (before + count) / every > before / every { self.core.flush() } else { Ok(()) }
    }

    /// Gives up the oldest segment, or the only one with all that it holds; false when nothing is held. The producers' lock is
    /// held.
    #[cold]
    fn drop_oldest(&self, writer: &mut Writer<S::File>) -> Result<bool> {
        match self.core.segments.drop_oldest(&self.core.context()) {
            Some(first_held) => self.gave_up(first_held).map(|()| true),
            None => {
                let end = writer.committed().seq;
                if !self.retire_tail(writer, end) {
                    return Ok(false);
                }
                self.gave_up(end).map(|()| true)
            }
        }
    }

    /// As [`Segments::retire_tail`]; the next record begins another segment.
    fn retire_tail(&self, writer: &mut Writer<S::File>, dropped: u64) -> bool {
        let (core, tail) = (&*self.core, writer.committed().position);
        let Some(end) = core.segments.retire_tail(&core.context(), tail, dropped) else {
            return false;
        };
        writer.begin_anew(core, end);
        true
    }

    /// What lies before that number is held no longer: its space goes to whoever needs it.
    fn gave_up(&self, first_held: u64) -> Result<()> {
        self.core.oldest_seq.fetch_max(first_held, Ordering::AcqRel);
        self.core.note_given_up();
        self.let_go_of_dropped();
        self.core.settle()
    }

    /// Consumers that stand in segments which are no longer part of the queue let go of them.
    fn let_go_of_dropped(&self) {
        for standing in self.consumers.lock().values() {
            standing.let_go_of_dropped(&self.core, false);
        }
    }

    /// As [`let_go_of_dropped`](Self::let_go_of_dropped), and waits for those that are within a read, and for a flush that is
    /// under way: they have segments open that are removed. No lock is held.
    #[cold]
    fn wait_for_dropped(&self) {
        let standings: Vec<_> = self.consumers.lock().values().cloned().collect();
        for standing in standings {
            standing.let_go_of_dropped(&self.core, true);
        }
        self.core.wait_for_leader();
        self.core.pool.unmap_forgotten();
    }

    /// Gives back at once what is too old, or what everybody has read; true when there was something. The producers' lock is
    /// held.
    ///
    /// The only segment stays as the tail although everybody has read it: where there is no other room it is given back too,
    /// to be used again from its beginning, or for shorter ones.
    #[cold]
    fn find_room(&self, writer: &mut Writer<S::File>) -> Result<bool> {
        let core = &*self.core;
        if core.max_age.is_some() && core.expire(core.expired_before()) {
            self.let_go_of_dropped();
            core.settle()?;
            return Ok(true);
        }
        // Never waits for it: a seek holds it and wants the producers' lock.
        let Some(giving_back) = core.places.giving_back.try_read() else {
            return Ok(false);
        };
        let Some(lowest) = core.places.lowest() else {
            return Ok(false);
        };
        let drained = core.segments.drain(lowest);
        let is_read = lowest >= writer.committed().position;
        let retired = is_read && self.retire_tail(writer, 0);
        drop(giving_back);
        if !drained && !retired {
            return Ok(false);
        }
        core.note_oldest();
        self.gave_up(if retired { writer.committed().seq } else { 0 }).map(|()| true)
    }

    /// One read by a consumer, and what follows from it: giving segments back, flushing.
    #[inline(always)]
    pub(crate) fn read<D: Deliver<S>>(
        &self,
        standing: &Standing<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>> {
        self.read_boxed(standing, what, check, delivery).map_err(|error| *error)
    }

    /// As [`read`](Self::read), for those who have no use for an error in its full size.
    #[inline(always)]
    pub(crate) fn read_boxed<D: Deliver<S>>(
        &self,
        standing: &Standing<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        let _told = events::at_end();
        let step = standing.step(&self.core, what, check, delivery);
        if step.crossed {
            self.crossed(standing);
        }
        if step.moved
            && self.options.flush_every_ops.is_some()
            && let Err(error) = self.count_read()
            && !matches!(step.outcome, Ok(Some(_)))
        {
            // A message that was taken is handed over: it would be lost with the error. The flush that failed has poisoned
            // the queue, and the next call that writes says so.
            return Err(Box::new(error));
        }
        step.outcome
    }

    #[cold]
    fn count_read(&self) -> Result<()> {
        if self.core.is_poisoned() {
            // Reading goes on; that nothing is made durable any more the writing calls say.
            return Ok(());
        }
        match self.options.flush_every_ops {
            Some(1) => self.core.flush_places(false),
            Some(every) => self.count(every, 1),
            None => Ok(()),
        }
    }

    /// Hands the next message out.
    pub(crate) fn receive<D: Deliver<S>>(
        &self,
        standing: &Standing<S>,
        delivery: D,
    ) -> Result<Option<(D::Delivered, Handed)>> {
        let _told = events::at_end();
        let (step, handed) = standing.receive(&self.core, delivery);
        if step.crossed {
            self.crossed(standing);
        }
        Ok(step.outcome.map_err(|error| *error)?.map(|message| (message, handed)))
    }

    pub(crate) fn ack(&self, standing: &Standing<S>, seq: u64, handed: Handed) -> Result<()> {
        let _told = events::at_end();
        let Some(crossed) = standing.acknowledge(&self.core, seq, handed)? else {
            return Ok(());
        };
        if crossed {
            self.give_back();
        }
        self.core.wake_reader(standing.row);
        if self.options.flush_every_ops.is_some() { self.count_read() } else { Ok(()) }
    }

    pub(crate) fn nack(&self, standing: &Standing<S>, seq: u64, handed: Handed) {
        if !self.core.forked() && standing.give_back(&self.core, seq, handed) {
            self.core.wake_reader(standing.row);
        }
    }

    pub(crate) fn set_max_in_flight(&self, standing: &Standing<S>, limit: Option<u32>) -> Result<()> {
        standing.set_max_in_flight(&self.core, limit)?;
        self.core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Messages of the default consumer that are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.default.get().map_or(0, |standing| standing.in_flight(&self.core))
    }

    /// Messages that wait for the default consumer; before it first reads, all that are held.
    pub(crate) fn len(&self) -> u64 {
        match self.default.get() {
            Some(standing) => standing.len(&self.core),
            None if self.core.forked() => 0,
            None => self.core.len_from(None),
        }
    }

    /// The consumer's descriptor, which is made when first asked for.
    pub(crate) fn ready_fd<'a>(&self, standing: &'a Standing<S>) -> Result<BorrowedFd<'a>> {
        self.core.check_may_wait()?;
        if let Some(ready) = standing.ready.get() {
            return Ok(ready.descriptor());
        }
        let _one_at_a_time = self.registry()?;
        standing.with_progress(|progress| progress.check(&self.core, standing))?;
        if standing.ready.get().is_none() {
            let path = self.core.storage.path();
            let ready = Arc::new(Ready::new().map_err(|error| Error::io("make a descriptor for", path, error))?);
            self.core.waiters.add_ready(standing.row, &ready);
            // From here on producers tell it of news; what came before is seen when it is set.
            self.count_waiter();
            standing.set_ready(&self.core, ready);
        }
        let ready = standing.ready.get().map(|ready| ready.descriptor());
        let missing = || Error::internal(self.core.storage.path(), "the descriptor was made and is not there");
        ready.ok_or_else(missing)
    }

    /// Makes producers tell of news. Counted under the locks that messages become visible under: whoever publishes later
    /// sees the count, whoever published before is seen by the read that follows.
    fn count_waiter(&self) {
        let _writer = self.core.writer.lock();
        let _durable = self.core.durable.lock();
        self.core.message_waiters.fetch_add(1, Ordering::SeqCst);
    }

    /// Stands in line for news of the consumer.
    pub(crate) fn join(&self, standing: &Standing<S>, signal: Signal) -> Result<Ticket> {
        let ticket = self.core.waiters.join(standing.row, signal);
        self.count_waiter();
        Ok(ticket)
    }

    /// Leaves the line. When there is something left, the first in line is told.
    pub(crate) fn leave(&self, standing: &Standing<S>, ticket: Ticket) {
        if self.core.forked() {
            return;
        }
        self.core.waiters.leave(ticket);
        self.core.message_waiters.fetch_sub(1, Ordering::SeqCst);
        self.pass_on(standing, None);
    }

    /// One that waits for the consumer (with `after`, one that came later) is told when there is something to read: whoever asks
    /// for this cannot use it.
    pub(crate) fn pass_on(&self, standing: &Standing<S>, after: Option<Ticket>) {
        let core = &*self.core;
        if core.message_waiters.load(Ordering::Relaxed) != 0
            && standing.with_progress(|progress| progress.has_waiting(core))
        {
            core.waiters.wake_one(standing.row, after);
        }
    }

    /// Tries until there is a result, until `deadline` (`None`: for ever), without polling.
    pub(crate) fn wait<R>(
        &self,
        standing: &Standing<S>,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        if let Some(result) = attempt()? {
            return Ok(Some(result));
        }
        let signal = || Signal::Thread(std::thread::current());
        let ticket = self.join(standing, signal())?;
        let _leave = InLine { engine: self, standing, ticket };
        loop {
            self.core.waiters.rearm(ticket, signal());
            if let Some(result) = attempt()? {
                return Ok(Some(result));
            }
            self.pass_on(standing, Some(ticket));
            while !self.core.waiters.is_woken(ticket) {
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    None => std::thread::park(),
                    Some(left) if left.is_zero() => return Ok(None),
                    Some(left) => std::thread::park_timeout(left),
                }
            }
        }
    }

    /// Ends the run: wakes and refuses everybody, makes all durable, lets go of the files. Done once.
    pub(crate) fn close(&self) -> Result<()> {
        let _told = events::at_end();
        if self.core.forked() {
            // The files belong to the process that opened them; and a lock that another of its threads held is held for ever.
            return Ok(());
        }
        let core = &*self.core;
        let (begun, standings) = {
            // Whoever is within a write, or makes or moves a consumer, finishes it; nobody begins another.
            let _one_at_a_time = self.registry.lock();
            let mut writer = core.writer.lock();
            if !core.index.poison.close() {
                return Ok(());
            }
            writer.stop();
            (writer.has_begun(), self.consumers.lock().values().cloned().collect::<Vec<_>>())
        };
        // No lock is held: wakers may call the queue, and the keeper may be about to.
        core.wake_readers(u64::MAX);
        core.wake_writers();
        self.keeper.stop(&core.bell);
        // Whoever is within a read finishes it.
        for standing in &standings {
            standing.release(core);
        }
        core.reclaim();
        let settled = core.settle();
        if settled.is_ok() && !core.is_poisoned() {
            core.segments.trim(&core.context());
        }
        let flushed = core.flush_finally(begun);
        core.let_go();
        core.writer.lock().release();
        core.segments.release();
        core.pool.detach();
        core.index.set_pid(0);
        drop(self.held.lock().take());
        core.storage.unlock();
        flushed.and(settled)
    }
}

impl<S: Storage> Drop for Engine<S> {
    fn drop(&mut self) {
        // Whoever wants to know of errors calls `close`.
        let _ = self.close();
    }
}

/// Leaves the line whatever happens.
struct InLine<'a, S: Storage> {
    engine: &'a Engine<S>,
    standing: &'a Standing<S>,
    ticket: Ticket,
}

impl<S: Storage> Drop for InLine<'_, S> {
    fn drop(&mut self) {
        self.engine.leave(self.standing, self.ticket);
    }
}
