//! The keeper: a queue's own thread. It flushes by time, and when many bytes are not durable; it
//! reserves numbers and settles drained segments, for producers, which never sync for that; it
//! makes the next segment; it gives up messages that are too old, the oldest where room is needed,
//! and long segments that nobody needs; it ends leases and delays, and carries dead letters.
//!
//! The thread starts when it is first asked for one of these: an idle queue without a timer and
//! without ages has no thread. If it cannot start, an opening with a timer or with ages is refused;
//! all other work is then done by the calls that need it.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::commit::Core;
use crate::error::{Error, Result};
use crate::events;
use crate::state::LOOK_FOR_ROOM;
use crate::storage::Storage;
use crate::threads::bell::{Bell, Errand, Wishes};
use crate::threads::{JoinHandle, Mutex, now, spawn};

#[derive(Debug)]
pub(crate) struct Keeper<S: Storage> {
    starter: Arc<Starter<S>>,
}

/// What gives messages up, and a long segment of the tail when all of it is read. The engine makes
/// it, because consumers have to let go of the segments, and this folder does not know consumers.
pub(crate) struct Look<S: Storage>(pub(crate) Arc<LookFn<S>>);

type LookFn<S> = dyn Fn(&Core<S>, LookFor) -> Result<()> + Send + Sync;

/// What is to be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookFor {
    /// Messages that are too old, and a long segment that is read.
    Age,
    /// The oldest messages, so that there is room for the next segments.
    Room,
    /// Nothing: leases and delays that have ended, and letters.
    Deliveries,
}

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

/// Starts the thread, on whichever thread the first wish is made.
#[derive(Debug)]
struct Starter<S: Storage> {
    /// Weak, against a cycle: the core has the bell, and the bell has this starter.
    core: Weak<Core<S>>,
    /// The time between two flushes, `flush_every`.
    period: Option<Duration>,
    look: Look<S>,
    /// The running thread.
    thread: Mutex<Option<JoinHandle>>,
}

impl<S: Storage> Starter<S> {
    /// Starts the thread if it does not run. Returns false when the queue is being closed.
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
            *thread = Some(spawn("mmq-keeper", keep)?);
            core.bell.note_begin();
        }
        Ok(core.bell.is_answered())
    }
}

#[cfg(test)]
thread_local! {
    /// A keeper that this thread is to start cannot start.
    pub(crate) static NO_THREADS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// When dropped, at the end of the keeper's thread, says that nobody answers the bell any more:
/// from then on the thread that rings does the work. The thread may also end by a panic of a
/// `tracing` subscriber.
pub(crate) struct Leaving<'a, S: Storage>(pub(crate) &'a Core<S>);

impl<S: Storage> Drop for Leaving<'_, S> {
    fn drop(&mut self) {
        self.0.bell.leave();
        let durable = self.0.durable.lock();
        if !planted!(KeeperLeavesInSilence) {
            self.0.segment_synced.notify_all();
        }
        drop(durable);
        // They go on by themselves.
        self.0.tasks.wake_all();
    }
}

impl<S: Storage> Keeper<S> {
    pub(crate) fn new(core: &Arc<Core<S>>, period: Option<Duration>, look: Look<S>) -> Keeper<S> {
        Keeper {
            starter: Arc::new(Starter {
                core: Arc::downgrade(core),
                period,
                look,
                thread: Mutex::default(),
            }),
        }
    }

    /// Lets the thread start from now on. With a period or with ages it starts at once, and an
    /// error refuses the opening: nobody else would do its work in time.
    pub(crate) fn allow(&self, core: &Core<S>) -> Result<()> {
        let starter = Arc::clone(&self.starter);
        // If the thread cannot start, the thread that rings does the work.
        core.bell.set_starter(Box::new(move || starter.start().unwrap_or(false)));
        if self.starter.period.is_some() || core.ages.is_some() {
            let started = self.starter.start();
            started.map_err(|error| Error::io("start a thread for", core.storage.path(), error))?;
        }
        Ok(())
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self, bell: &Bell) {
        bell.wishes.lock().stop = true;
        if !planted!(KeeperNotRungToEnd) {
            bell.wake();
        }
        bell.note_end();
        let thread = self.starter.thread.lock().take();
        if let Some(thread) = thread
            && !thread.is_current()
        {
            thread.join();
        }
    }
}

/// A queue is idle when no segment was drained for this long. Then surplus spares are removed, and
/// a tail's segment that is long and read.
const IDLE: Duration = Duration::from_millis(200);
/// As long as the tail's segment is long the keeper looks again: each time after twice the pause,
/// and at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Does what producers wait for, or are about to need.
fn run<S: Storage>(core: &Core<S>, look: &Look<S>, errand: Errand) -> Result<()> {
    match errand {
        Errand::Settle => {
            let settled = core.settle();
            core.wake_writers();
            settled
        }
        Errand::Room => (look.0)(core, LookFor::Room),
        Errand::Lease(lease) => core.lease(lease),
        // It takes consumers' locks. Their holders may wait for the producers' lock, and the
        // holder of that for the keeper.
        Errand::Deliveries => call_out(core, || (look.0)(core, LookFor::Deliveries)),
    }
}

/// After each piece of work: stores the figures, and reports events. A subscriber may call the
/// queue, and wait for a producer that waits for the keeper, or be one itself: so the keeper is
/// away meanwhile.
fn tell<S: Storage>(core: &Core<S>) {
    core.store_figures();
    if events::are_noted() {
        call_out(core, events::tell);
    }
}

/// Runs what may wait for others: while it runs the keeper is away. After a call within such a
/// call it is still away, because the code around it may wait, too.
pub(crate) fn call_out<S: Storage, T>(core: &Core<S>, code: impl FnOnce() -> T) -> T {
    core.bell.go_away();
    drop(core.durable.lock());
    core.segment_synced.notify_all();
    let result = code();
    core.bell.come_back();
    result
}

/// What futures have the keeper do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskWork {
    Flush,
    /// Have those that wait for room look again.
    Look,
}

/// What is to be done for futures now. `next_look` is when those that wait for room look again.
fn asked_by_tasks<S: Storage>(
    core: &Core<S>,
    wishes: &mut Wishes,
    next_look: &mut Option<Instant>,
) -> Option<TaskWork> {
    if std::mem::take(&mut wishes.flush_for_tasks) {
        return Some(TaskWork::Flush);
    }
    if std::mem::take(&mut wishes.tell_tasks_later) && core.space.is_looked_for() {
        next_look.get_or_insert_with(|| now() + LOOK_FOR_ROOM);
    }
    if std::mem::take(&mut wishes.tell_tasks) || next_look.is_some_and(|due| now() >= due) {
        *next_look = None;
        return Some(TaskWork::Look);
    }
    None
}

fn serve_tasks<S: Storage>(core: &Core<S>, work: TaskWork) {
    match work {
        TaskWork::Flush => {
            core.tasks.run_round(|| core.flush_for_tasks());
            tell(core);
            call_out(core, || core.tasks.for_flush.wake(u64::MAX));
        }
        TaskWork::Look => {
            let most = if planted!(OneFutureToldOfRoom) { 1 } else { u64::MAX };
            call_out(core, || core.tasks.for_room.wake(most));
        }
    }
}

/// The thread's work, until the bell says stop.
fn keep<S: Storage>(core: &Core<S>, period: Option<Duration>, look: &Look<S>) {
    let bell = &*core.bell;
    bell.answer_here();
    // A period that is too long for the clock never ends.
    let due = |period: Option<Duration>| period.and_then(|period| now().checked_add(period));
    let mut next_flush = due(period);
    // Messages expire also while nobody reads or writes.
    let every = core.ages.map(|ages| ages.look_every());
    let mut next_look = every.map(|every| now() + every);
    let (mut trim_at, mut pause) = (None, IDLE);
    let mut next_tasks = None;
    let mut wishes = bell.wishes.lock();
    loop {
        if wishes.stop {
            return;
        }
        if let Some(errand) = wishes.take_errand() {
            drop(wishes);
            // If nobody waits for the answer: a failed sync poisons the queue, and the next call
            // that writes returns the error.
            bell.answer(run(core, look, errand));
            if !matches!(errand, Errand::Lease(_) | Errand::Deliveries) {
                (trim_at, pause) = (Some(now() + IDLE), IDLE);
            }
            tell(core);
            wishes = bell.wishes.lock();
            continue;
        }
        if std::mem::take(&mut wishes.flush) {
            drop(wishes);
            // As above: a failed sync poisons the queue.
            let _ = core.flush_behind();
            tell(core);
            wishes = bell.wishes.lock();
            continue;
        }
        if let Some(work) = asked_by_tasks(core, &mut wishes, &mut next_tasks) {
            drop(wishes);
            serve_tasks(core, work);
            wishes = bell.wishes.lock();
            continue;
        }
        if std::mem::take(&mut wishes.ahead) {
            drop(wishes);
            core.prepare_ahead();
            tell(core);
            wishes = bell.wishes.lock();
            continue;
        }
        if next_look.is_some_and(|due| now() >= due) {
            drop(wishes);
            let _ = (look.0)(core, LookFor::Age);
            next_look = every.map(|every| now() + every);
            tell(core);
            wishes = bell.wishes.lock();
            continue;
        }
        if trim_at.is_some_and(|due| now() >= due) {
            drop(wishes);
            let _ = (look.0)(core, LookFor::Age);
            core.segments.trim_spares(&core.context());
            pause = LONGEST_PAUSE.min(2 * pause);
            trim_at = core.has_long_tail().then(|| now() + pause);
            tell(core);
            wishes = bell.wishes.lock();
            continue;
        }
        let other_due =
            [next_look, trim_at, next_tasks, wishes.deliveries].into_iter().flatten().min();
        match next_flush {
            Some(due) if now() < due => {
                let due = other_due.map_or(due, |other| other.min(due));
                wishes = bell.sleep(wishes, Some(due));
            }
            None => wishes = bell.sleep(wishes, other_due),
            Some(_) => {
                drop(wishes);
                // As above: a failed sync poisons the queue.
                let _ = if planted!(TimerDoesNotFlush) { Ok(()) } else { core.flush_on_time() };
                // The next period begins at the end of this flush, so that a disk slower than the
                // period gets a pause.
                next_flush = due(period);
                tell(core);
                wishes = bell.wishes.lock();
            }
        }
    }
}
