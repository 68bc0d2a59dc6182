//! The thread that keeps a queue in order behind its callers: flushes by time and when much is not
//! durable, hands drained segments on, and makes the next segment ready.
//!
//! It is started when the first of these is needed, never before: an idle queue without a timer and
//! without ages has no thread. Where it cannot be started, opening with a timer or with ages is
//! refused; everything else is done by the calls that need it.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::commit::Core;
use crate::error::{Error, Result};
use crate::events;
use crate::storage::Storage;
use crate::threads::bell::Bell;

#[derive(Debug)]
pub(crate) struct Keeper<S: Storage> {
    hands: Arc<Hands<S>>,
}

/// Looks at the ages of what is held; who keeps the consumers knows how.
pub(crate) struct Look<S: Storage>(pub(crate) Arc<Looks<S>>);

type Looks<S> = dyn Fn(&Core<S>) + Send + Sync;

impl<S: Storage> Clone for Look<S> {
    fn clone(&self) -> Look<S> {
        Look(Arc::clone(&self.0))
    }
}

impl<S: Storage> fmt::Debug for Look<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

/// What it takes to start the thread, wherever the first wish comes from.
#[derive(Debug)]
struct Hands<S: Storage> {
    /// Not counted: the queue's state holds the bell, and the bell this.
    core: Weak<Core<S>>,
    period: Option<Duration>,
    /// Gives up what is too old.
    look: Look<S>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<S: Storage> Hands<S> {
    /// False when the queue is being closed.
    #[cold]
    fn start(&self) -> io::Result<bool> {
        let Some(core) = self.core.upgrade() else {
            return Ok(false);
        };
        let mut thread = self.thread.lock();
        if core.bell.wishes.lock().stop {
            return Ok(false);
        }
        if thread.is_none() {
            #[cfg(test)]
            if NO_THREADS.get() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let (keeper, period, look) = (Arc::clone(&core), self.period, self.look.clone());
            let keep = move || {
                let _leaving = Leaving(&keeper);
                keep(&keeper, period, &look);
            };
            *thread = Some(thread::Builder::new().name("mmq-keeper".into()).spawn(keep)?);
            core.bell.set_running(true);
        }
        Ok(core.bell.is_answered())
    }
}

#[cfg(test)]
thread_local! {
    /// Whoever wants a thread here is refused.
    pub(crate) static NO_THREADS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Says that nobody answers the bell any more, however the thread ends: by a panic of a subscriber,
/// too. Whoever rings does the work.
pub(crate) struct Leaving<'a, S: Storage>(pub(crate) &'a Core<S>);

impl<S: Storage> Drop for Leaving<'_, S> {
    fn drop(&mut self) {
        self.0.bell.wishes.lock().stop = true;
        self.0.bell.set_running(false);
        let _durable = self.0.durable.lock();
        self.0.segment_synced.notify_all();
    }
}

impl<S: Storage> Keeper<S> {
    pub(crate) fn new(core: &Arc<Core<S>>, period: Option<Duration>, look: Look<S>) -> Keeper<S> {
        Keeper {
            hands: Arc::new(Hands {
                core: Arc::downgrade(core),
                period,
                look,
                thread: Mutex::default(),
            }),
        }
    }

    /// From here on the thread may start. With a period, or when messages have an age, it starts at
    /// once: nobody else would do its work in time, so there is no queue without it.
    pub(crate) fn allow(&self, core: &Core<S>) -> Result<()> {
        let starter = Arc::clone(&self.hands);
        // Where it cannot start, whoever rings does the work.
        core.bell.set_starter(Box::new(move || starter.start().unwrap_or(false)));
        if self.hands.period.is_some() || core.ages.is_some() {
            let started = self.hands.start();
            started.map_err(|error| Error::io("start a thread for", core.storage.path(), error))?;
        }
        Ok(())
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self, bell: &Bell) {
        bell.wishes.lock().stop = true;
        bell.rung.notify_one();
        bell.set_running(false);
        let thread = self.hands.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The queue is idle when no segment was drained for so long.
const IDLE: Duration = Duration::from_millis(200);

fn keep<S: Storage>(core: &Core<S>, period: Option<Duration>, look: &Look<S>) {
    let bell = &*core.bell;
    // A period beyond what the clock can say never ends.
    let due =
        |period: Option<Duration>| period.and_then(|period| Instant::now().checked_add(period));
    let mut next_flush = due(period);
    // Messages that are too old are given back though nobody reads or writes.
    let every = core.ages.map(|ages| ages.look_every());
    let mut next_look = every.map(|every| Instant::now() + every);
    let mut trim_at = None;
    let mut wishes = bell.wishes.lock();
    loop {
        if wishes.stop {
            return;
        }
        if std::mem::take(&mut wishes.settle) {
            drop(wishes);
            // A failed sync poisons the queue: the next call that writes is told.
            let _ = core.settle();
            core.wake_writers();
            trim_at = Some(Instant::now() + IDLE);
            events::tell();
            wishes = bell.wishes.lock();
            continue;
        }
        if std::mem::take(&mut wishes.flush) {
            drop(wishes);
            // A failure poisons the queue: the next call that writes is told.
            let _ = core.flush_behind();
            events::tell();
            wishes = bell.wishes.lock();
            continue;
        }
        if std::mem::take(&mut wishes.ahead) {
            drop(wishes);
            core.prepare_ahead();
            events::tell();
            wishes = bell.wishes.lock();
            continue;
        }
        if next_look.is_some_and(|due| Instant::now() >= due) {
            drop(wishes);
            (look.0)(core);
            next_look = every.map(|every| Instant::now() + every);
            events::tell();
            wishes = bell.wishes.lock();
            continue;
        }
        if trim_at.is_some_and(|due| Instant::now() >= due) {
            drop(wishes);
            core.segments.trim_spares(&core.context());
            trim_at = None;
            events::tell();
            wishes = bell.wishes.lock();
            continue;
        }
        let other = [next_look, trim_at].into_iter().flatten().min();
        match next_flush {
            Some(due) if Instant::now() < due => {
                bell.rung.wait_until(&mut wishes, other.map_or(due, |other| other.min(due)));
            }
            None => match other {
                None => bell.rung.wait(&mut wishes),
                Some(due) => {
                    bell.rung.wait_until(&mut wishes, due);
                }
            },
            Some(_) => {
                drop(wishes);
                // A failure poisons the queue: the next call that writes is told.
                let _ = core.flush_on_time();
                // From the end of the flush: a disk slower than the period is not flooded.
                next_flush = due(period);
                events::tell();
                wishes = bell.wishes.lock();
            }
        }
    }
}
