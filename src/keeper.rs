//! The thread that keeps a queue in order behind its callers: flushes by time, hands drained segments on, and makes the
//! next segment ready.
//!
//! It is started when the first of these is needed, never before: an idle queue without a timer and without ages has no thread.

use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bell::Bell;
use crate::lock;
use crate::shared::Shared;
use crate::storage::Storage;

#[derive(Debug)]
pub(crate) struct Keeper<S: Storage> {
    hands: Arc<Hands<S>>,
}

/// What it takes to start the thread, wherever the first wish comes from.
#[derive(Debug)]
struct Hands<S: Storage> {
    /// Not counted: the queue's state holds the bell, and the bell this.
    shared: Weak<Shared<S>>,
    period: Option<Duration>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<S: Storage> Hands<S> {
    #[cold]
    fn start(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else {
            return false;
        };
        let mut thread = self.thread.lock();
        if thread.is_some() || shared.bell.wishes.lock().stop {
            return thread.is_some();
        }
        let (keeper, period) = (Arc::clone(&shared), self.period);
        let spawned = thread::Builder::new().name("mmq-keeper".into()).spawn(move || keep(&keeper, period));
        *thread = spawned.ok();
        shared.bell.set_running(thread.is_some());
        thread.is_some()
    }
}

impl<S: Storage> Keeper<S> {
    /// With a period, or when messages have an age, the thread starts at once; never when it is not `allowed`.
    pub(crate) fn new(shared: &Arc<Shared<S>>, period: Option<Duration>, allowed: bool) -> Keeper<S> {
        let hands = Arc::new(Hands { shared: Arc::downgrade(shared), period, thread: Mutex::default() });
        if allowed {
            let starter = Arc::clone(&hands);
            shared.bell.set_starter(Box::new(move || starter.start()));
            if period.is_some() || shared.max_age.is_some() {
                hands.start();
            }
        }
        Keeper { hands }
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

fn keep<S: Storage>(shared: &Shared<S>, period: Option<Duration>) {
    let bell = &*shared.bell;
    let mut next_flush = period.map(|period| Instant::now() + period);
    // Messages that are too old are given back though nobody reads or writes.
    let look = shared.max_age.map(|age| Duration::from_millis((age / 8).clamp(20, 30_000)));
    let mut next_look = look.map(|look| Instant::now() + look);
    let mut trim_at = None;
    let mut prepared = false;
    let mut wishes = bell.wishes.lock();
    loop {
        if wishes.stop {
            return;
        }
        if std::mem::take(&mut wishes.settle) {
            drop(wishes);
            // A failed sync poisons the queue: the next call that writes is told.
            let _ = shared.settle();
            shared.wake_writers();
            trim_at = Some(Instant::now() + IDLE);
            wishes = bell.wishes.lock();
            continue;
        }
        if std::mem::take(&mut wishes.ahead) {
            drop(wishes);
            shared.prepare_ahead();
            wishes = bell.wishes.lock();
            continue;
        }
        if next_look.is_some_and(|due| Instant::now() >= due) {
            drop(wishes);
            if shared.expire(shared.expired_before()) {
                let _ = shared.settle();
                shared.wake_writers();
            }
            next_look = look.map(|look| Instant::now() + look);
            wishes = bell.wishes.lock();
            continue;
        }
        if trim_at.is_some_and(|due| Instant::now() >= due) {
            drop(wishes);
            shared.segments.trim(&shared.context());
            trim_at = None;
            wishes = bell.wishes.lock();
            continue;
        }
        if !prepared {
            prepared = true;
            drop(wishes);
            lock::prepare();
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
                let _ = shared.flush();
                // From the end of the flush: a disk slower than the period is not flooded.
                next_flush = period.map(|period| Instant::now() + period);
                wishes = bell.wishes.lock();
            }
        }
    }
}
