//! One open queue, on the real or a simulated disk. [`Queue`](crate::Queue) and
//! [`Consumer`](crate::Consumer) call it.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `mod` | [`Engine`] | opens and closes a queue |
//! | `enqueue`, `operations` | a count for `flush_every_ops` | enqueues messages and batches, flushes when due |
//! | `room` | | evicts and reclaims segments for a write without room |
//! | `dequeue`, `reading` | | reads, delivers, acknowledges; then frees space and flushes |
//! | `read_lanes` | | receives in two lanes |
//! | `ahead` | a cursor ahead of a consumer | reads messages without taking them |
//! | `wait` | | waits for a message or a flush |
//! | `consumer_table`, `consumer_life` | the consumers | creates, moves and removes consumers |
//! | `dead_letters` | | sets redelivery rules, moves rejected messages to another queue |
//! | `delivery_worker` | | threads that end leases, wake futures and carry dead letters |
//! | `copy_queue` | | copies a closed queue to another directory |
//! | `statistics` | | computes the figures of a queue and its consumers |
//! | `held` | queues that this process has open, `Lock` | tells whether this process holds a lock; unlocks |
//! | `waited_for` | threads that carry dead letters | keeps closing threads from waiting for each other |

pub(crate) mod ahead;
pub(crate) mod consumer_life;
mod consumer_table;
pub(crate) mod copy_queue;
mod dead_letters;
mod delivery_worker;
mod dequeue;
mod enqueue;
mod held;
mod operations;
mod read_lanes;
pub(crate) mod reading;
mod room;
mod statistics;
pub(crate) mod wait;
pub(crate) mod waited_for;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use consumer_table::Consumers;
pub(crate) use held::locked;
use held::{Lock, OpenHere};
use waited_for::{WaitedFor, may_wait};

use crate::commit::Core;
use crate::commit::storage_worker;
use crate::engine::operations::Operations;
use crate::error::{Error, Result};
use crate::events;
use crate::format::{Figures, padded};
use crate::memory::page_size;
use crate::options::Options;
use crate::recovery::{Ended, Recovered, recover};
use crate::segment::ages::Ages;
use crate::segment::geometry::Geometry;
use crate::segment::pool::Pool;
use crate::segment::{DiskLimits, Segments};
use crate::state::{Parts, State, flush_failed};
use crate::storage::Storage;
use crate::threads::{Condvar, Mutex};
use crate::write::Writer;

#[derive(Debug)]
pub(crate) struct Engine<S: Storage> {
    pub(crate) core: Arc<Core<S>>,
    pub(crate) options: Options,
    pub(crate) consumers: Arc<Consumers<S>>,
    /// How many operations this run has done, for `flush_every_ops` above 1.
    operations: Operations,
    /// Lists the queue among those that this process has open; `None` once it is closed.
    open_here: Mutex<Option<OpenHere>>,
    pub(crate) closing: Mutex<Closing>,
    closed: Condvar,
    /// How many calls found the queue open and then began to take the registry's or the producers'
    /// lock.
    #[cfg(test)]
    pub(crate) came: crate::threads::AtomicU64,
}

/// Which threads do the background work: flushes by time, reclaiming, expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Background {
    /// The storage worker and the delivery worker.
    Workers,
    /// The threads that call the queue.
    #[cfg(test)]
    Calls,
}

impl<S: Storage> Engine<S> {
    /// Opens the queue in `storage`.
    pub(crate) fn open(storage: S, options: &Options) -> Result<Engine<S>> {
        Engine::open_with(storage, options, Background::Workers)
    }

    /// Opens the queue in `storage` without workers: the calling threads do their work.
    #[cfg(test)]
    pub(crate) fn open_without_workers(storage: S, options: &Options) -> Result<Engine<S>> {
        Engine::open_with(storage, options, Background::Calls)
    }

    pub(crate) fn open_with(
        storage: S,
        options: &Options,
        background: Background,
    ) -> Result<Engine<S>> {
        let _events = events::at_end();
        let path = storage.path().to_path_buf();
        options.validate(&path)?;
        if !storage.try_lock().map_err(|error| Error::io("lock", &path, error))? {
            return Err(locked(&storage));
        }
        let recovered = recover(&storage, options);
        let recovered = recovered.inspect_err(|_| storage.unlock())?;
        let open_here = OpenHere::new(storage.now());
        recovered.index.set_since(open_here.0);
        Engine::start(storage, options, background, recovered, open_here)
    }

    /// Starts the run from the state that recovery found.
    fn start(
        storage: S,
        options: &Options,
        background: Background,
        mut recovered: Recovered<S>,
        open_here: OpenHere,
    ) -> Result<Engine<S>> {
        let durable_only = options.flush_every_ops == Some(1);
        let reservation = (!durable_only).then_some(recovered.reservation);
        // Consumers may read messages that recovery found at once, so some must be durable first
        // (R4): where visible means durable, and where no reservation covers their numbers (the
        // previous run needed none, or recovery rebuilt the index). After a power cut a writer
        // could assign those numbers again.
        let undurable = durable_only || recovered.tail.seq > recovered.reservation;
        if recovered.ended == Ended::Killed && recovered.next.is_some() {
            // A read reports the numbers before the next segment as a gap. They may exist only in
            // the page cache, and no writer may assign them again after a power cut.
            recovered.index.sync()?;
        }
        let Recovered { tail, durable, clean, .. } = recovered;
        let found_consumers = std::mem::take(&mut recovered.consumers);
        let ended = recovered.ended;
        let ages = options.max_age.map(Ages::new);
        let writer = Writer::new(tail, recovered.next, reservation, ages);
        let state = state(storage, options, ages, open_here.0, recovered);
        let core = Arc::new(Core::new(state, writer));
        core.segments.note_found_unsynced(&core.storage, durable.position, tail.position);
        core.note_oldest();
        let consumers = Arc::new(Consumers::new(core.index.default_row()?));
        let engine = Engine {
            core,
            options: options.clone(),
            consumers,
            operations: Operations::default(),
            open_here: Mutex::new(Some(open_here)),
            closing: Mutex::default(),
            closed: Condvar::new(),
            #[cfg(test)]
            came: crate::threads::AtomicU64::new(0),
        };
        let (path, oldest) = (engine.core.storage.path(), &engine.core.oldest_seq);
        let segments = engine.core.segments.list().live.len();
        events::opened(path, tail.seq, oldest.load(Ordering::Relaxed), segments);
        if !clean {
            events::recovered(path, engine.core.gaps.known.lock().len());
        }
        for row in found_consumers {
            // Count an attempt only for the death of a process, not for a close or a power cut.
            let died_with = ended.counts_attempts().then(|| row.not_done());
            engine.core.index.end_attempts(row.row, &row.name, died_with);
            let consumer = engine.take_up(Some(row.row), &row.name, row.place, &row.acks)?;
            row.forward.iter().for_each(|slot| consumer.note_forwarded(slot));
            #[cfg(feature = "forward")]
            if matches!(ended, Ended::Cut | Ended::Unknown)
                && row.forward.is_some_and(|slot| slot.position.is_none())
            {
                engine.core.index.hand_all(row.row, &row.name, tail.seq)?;
            }
        }
        if undurable {
            engine.core.flush_to(tail)?;
        }
        engine.expire();
        engine.core.store_figures();
        if background == Background::Workers {
            delivery_worker::allow(&engine.core, &engine.consumers);
            let release = engine.consumers.release();
            storage_worker::allow(&engine.core, options.flush_every, release)?;
        }
        Ok(engine)
    }

    /// Closes the queue: wakes all waiters and rejects their calls, makes everything durable,
    /// closes the files. A second call waits for the first one, and returns its error.
    pub(crate) fn close(&self) -> Result<()> {
        let _events = events::at_end();
        match self.close_then(|| Ok(())) {
            Some(closed) => closed,
            // In a forked child a lock may stay locked forever.
            None if self.core.forked() => Ok(()),
            None => {
                let failed = self.closing.lock().failed.clone();
                let path = self.core.storage.path();
                failed.map_or(Ok(()), |text| Err(flush_failed(path, &text)))
            }
        }
    }

    /// Closes the queue, and calls `last` while it is still locked. Returns `None` when another
    /// call closes it, after that call has ended; and in a forked child: the files belong to the
    /// parent process, and a lock that another of the parent's threads held at the fork stays
    /// locked forever.
    ///
    /// A queue's own thread does not wait for another close, because that close waits for this
    /// thread; nor does a thread that is closing a queue, because its wakers may close it again. A
    /// close by a queue's own thread waits for another queue's thread, but not for one that itself
    /// waits for a worker's end ([`Worker`](crate::threads::worker::Worker)): those two might wait
    /// for each other.
    fn close_then(&self, last: impl FnOnce() -> Result<()>) -> Option<Result<()>> {
        if self.core.forked() || self.is_closed_by_another() {
            return None;
        }
        let mut over = CloseIsOver::new(self);
        let ended = self.end(&over);
        over.has_ended = true;
        let failed = ended.as_ref().err().map(|error| error.to_string().into());
        let ended = ended.and_then(|()| last());
        over.failed = failed;
        Some(ended)
    }

    /// Returns whether another call has begun to close the queue; then waits for its end, if this
    /// thread may wait.
    fn is_closed_by_another(&self) -> bool {
        let mut closing = self.closing.lock();
        if !std::mem::replace(&mut closing.has_begun, true) {
            return false;
        }
        // The first close waits for the queue's own threads and for the threads that carry dead
        // letters. These call wakers and subscribers, which may close the queue again, so they must
        // not wait for the first close here.
        let may_wait = may_wait() && !planted!(CloseNotWaitedFor);
        while may_wait && !closing.is_over {
            self.closed.wait(&mut closing);
        }
        true
    }

    /// Ends the run; the queue stays locked.
    fn end(&self, over: &CloseIsOver<'_, S>) -> Result<()> {
        let core = &*self.core;
        // (A close from within a call of the carrier skips the dead letters that it is carrying.)
        self.consumers.send_last_dead_letters(core);
        let consumers = {
            // Threads that write, or create or move a consumer, finish first; no thread begins
            // after that.
            let registry = &self.consumers.registry;
            let _one_at_a_time = registry.lock();
            let mut writer = core.writer.lock();
            core.index.poison.close();
            writer.stop();
            self.consumers.all()
        };
        // This thread holds no lock here, because wakers may call the queue.
        core.wake_readers(u64::MAX);
        core.wake_writers();
        core.storage_worker.stop();
        core.delivery_worker.stop();
        core.carrier.stop();
        events::take_over(std::mem::take(&mut core.delivery_worker.requests().wanted.events));
        if over.may_wait {
            // Their dead letters are in the other queue already: they must be acknowledged here
            // before the run ends.
            self.consumers.carriers.wait_for_all();
        }
        // Threads that read finish first.
        for consumer in &consumers {
            consumer.end_run(core);
        }
        core.drain_passed();
        core.drain_long_tail();
        let reclaimed = core.reclaim();
        if reclaimed.is_ok() && !core.is_poisoned() {
            core.segments.trim_spares(&core.context());
        }
        let flushed = core.flush_finally();
        core.store_figures();
        core.end_run();
        core.writer.lock().release();
        core.segments.close_files();
        if flushed.is_ok() {
            core.note_tail_changed();
            core.index.set_pid(0);
        }
        core.index.write_late();
        flushed.and(reclaimed)
    }

    /// Unlocks the queue after its run, so that others can open it. A message that still shares a
    /// file keeps it locked.
    fn give_up(&self) {
        let open_here = self.open_here.lock().take();
        let lock: Arc<dyn Send + Sync> = Arc::new(Lock { core: Arc::clone(&self.core), open_here });
        self.core.pool.detach(&lock);
        drop(lock);
        self.core.tasks.wake_all();
    }
}

/// The progress of a close.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    has_begun: bool,
    is_over: bool,
    failed: Option<Arc<str>>,
}

/// When dropped, at the end of the close, wakes the threads that wait for it.
#[derive(Debug)]
struct CloseIsOver<'a, S: Storage> {
    engine: &'a Engine<S>,
    failed: Option<Arc<str>>,
    /// Whether no call or thread of the run is active any more.
    has_ended: bool,
    /// Whether the close may wait for threads that carry dead letters.
    may_wait: bool,
    _waited_for: WaitedFor,
}

impl<S: Storage> CloseIsOver<'_, S> {
    fn new(engine: &Engine<S>) -> CloseIsOver<'_, S> {
        let failed = Some("a panic ended the close".into());
        let may_wait = may_wait();
        CloseIsOver { engine, failed, has_ended: false, may_wait, _waited_for: WaitedFor::begin() }
    }
}

impl<S: Storage> Drop for CloseIsOver<'_, S> {
    fn drop(&mut self) {
        if self.has_ended {
            // Also after a panic: otherwise no process could open the queue while a handle of it
            // lives.
            self.engine.give_up();
        } else {
            // Calls of the run may go on, and messages may share a file: the queue stays locked as
            // long as this process lives.
            std::mem::forget(Arc::clone(&self.engine.core));
        }
        let mut closing = self.engine.closing.lock();
        (closing.is_over, closing.failed) = (true, self.failed.take());
        drop(closing);
        self.engine.closed.notify_all();
    }
}

impl<S: Storage> Drop for Engine<S> {
    fn drop(&mut self) {
        // A caller that wants the errors calls `close`.
        let _ = self.close();
    }
}

/// Builds the state of a run from what recovery found.
fn state<S: Storage>(
    storage: S,
    options: &Options,
    ages: Option<Ages>,
    opened_at: u64,
    recovered: Recovered<S>,
) -> State<S> {
    let Recovered { tail, durable, found, evicted, .. } = recovered;
    let geometry = Geometry::new(
        options.arena_size,
        options.max_mapped_arenas,
        options.max_bytes,
        options.on_full,
        page_size(),
    );
    let small_flushes = options.flush_every_ops.is_some_and(|operations| operations < 10_000)
        || options.flush_every.is_some_and(|period| period.as_millis() < 100);
    let library = padded(env!("CARGO_PKG_VERSION"));
    let oldest_seq = found.live.first().map_or(tail.seq, |row| row.header.first_seq);
    State::new(Parts {
        segments: Segments::new(found, recovered.opened),
        pool: Pool::new(geometry),
        limits: DiskLimits { max_bytes: options.max_bytes, min_free_bytes: options.min_free_bytes },
        durable_only: options.flush_every_ops == Some(1),
        fills: !small_flushes,
        ages,
        tail,
        durable,
        places_cached: recovered.places_cached,
        is_untouched: recovered.is_untouched,
        files_unsynced: recovered.files_unsynced,
        oldest_seq: oldest_seq.max(evicted.end()).min(tail.seq),
        known_gaps: recovered.known_gaps,
        evicted,
        figures: Figures { opened_at, library, ..Figures::default() },
        index: recovered.index,
        storage,
    })
}

/// Takes an error out of its box. (Not inline: the caller's fast path stays short.)
#[cold]
#[inline(never)]
#[allow(clippy::boxed_local, reason = "the box is what it takes")]
fn unboxed(error: Box<Error>) -> Error {
    *error
}
