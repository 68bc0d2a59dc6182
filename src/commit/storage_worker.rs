//! The storage worker: a thread of the queue. It flushes by time, and when many bytes are not
//! durable; it reserves sequence numbers and reclaims drained segments, so that producers need no
//! syncs for that; it makes the next segment; it evicts messages that are too old, the oldest ones
//! where room is needed, and long segments that all consumers have read.
//!
//! Producers wait for it while they hold their lock. So it waits for no consumer's and no
//! producer's lock, and runs none of the program's code: the delivery worker calls wakers and
//! subscribers, and the carrier carries dead letters. (In tests each lock has a rank, and waiting
//! for a forbidden lock fails the test.)
//!
//! The thread starts at the first request: an idle queue without `flush_every` and `max_age` has no
//! thread. If it cannot start, an opening with one of these fails; the calls that need other work
//! then do it themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::commit::Core;
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::threads::now;
use crate::threads::ranks::enter_storage_worker;
use crate::threads::requests::Request;
use crate::threads::worker::ThreadBody;

/// Makes consumers that are not busy close drained segments.
pub(crate) type Release<S> = Arc<dyn Fn(&Core<S>) + Send + Sync>;

/// When dropped, at the end of the worker's thread, wakes the threads that wait for it, so that
/// they do the work themselves. No drained segment waits for it any more.
pub(crate) struct Leaving<'a, S: Storage>(pub(crate) &'a Core<S>);

impl<S: Storage> Drop for Leaving<'_, S> {
    fn drop(&mut self) {
        self.0.storage_worker.leave_producers();
        self.0.segments.list().is_watched = false;
        let durable = self.0.durable.lock();
        self.0.segment_synced.notify_all();
        drop(durable);
        self.0.wake_tasks_elsewhere();
    }
}

/// Lets the thread start from now on. With a `period` between flushes or with `max_age` it starts
/// at once, and an error fails the opening, since no other thread would do its work in time.
pub(crate) fn allow<S: Storage>(
    core: &Arc<Core<S>>,
    period: Option<Duration>,
    release: Release<S>,
) -> Result<()> {
    // Weak, against a cycle: the core has the worker.
    let weak = Arc::downgrade(core);
    core.storage_worker.allow("mmq-storage", move || {
        let (core, release) = (weak.upgrade()?, Arc::clone(&release));
        Some(Box::new(move || {
            let _leaving = Leaving(&core);
            serve(&core, period, &release);
        }) as ThreadBody)
    });
    if period.is_some() || core.ages.is_some() {
        let started = core.storage_worker.start();
        started.map_err(|error| Error::io("start a thread for", core.storage.path(), error))?;
    }
    Ok(())
}

/// So long after the last request to reclaim the worker reclaims what a busy queue left, and looks
/// again. A queue is idle when it frees nothing: then the worker removes surplus spares, and a long
/// tail's segment that all consumers have read.
const IDLE: Duration = Duration::from_millis(200);
/// While the tail's segment is long, the worker checks again: each time after twice the pause, and
/// at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Handles one request of a producer.
fn run<S: Storage>(core: &Core<S>, release: &Release<S>, request: Request) -> Result<()> {
    match request {
        Request::Reclaim => core.reclaim_and_wake(),
        Request::Room => core.make_room(release),
        Request::Reserve(reservation) => core.reserve(reservation),
    }
}

/// When the worker acts without a request.
struct Times {
    /// The time between two flushes, `flush_every`.
    period: Option<Duration>,
    flush: Option<Instant>,
    /// The time between two checks for messages that are too old.
    look_every: Option<Duration>,
    look: Option<Instant>,
    trim: Option<Instant>,
    pause: Duration,
}

impl Times {
    fn new(period: Option<Duration>, look_every: Option<Duration>) -> Times {
        let look = look_every.map(|every| now() + every);
        let flush = Times::after(period);
        Times { period, flush, look_every, look, trim: None, pause: IDLE }
    }

    /// A period that is too long for the clock never ends.
    fn after(period: Option<Duration>) -> Option<Instant> {
        period.and_then(|period| now().checked_add(period))
    }

    fn is_due(at: Option<Instant>) -> bool {
        at.is_some_and(|due| now() >= due)
    }

    /// Notes that a segment was drained: the queue does not count as idle for a while.
    fn note_drained(&mut self) {
        (self.trim, self.pause) = (Some(now() + IDLE), IDLE);
    }

    fn next(&self) -> Option<Instant> {
        [self.flush, self.look, self.trim].into_iter().flatten().min()
    }
}

/// Serves requests until the queue stops the worker. After each job it stores the figures, and
/// passes its events to the delivery worker.
fn serve<S: Storage>(core: &Core<S>, period: Option<Duration>, release: &Release<S>) {
    enter_storage_worker();
    let worker = &core.storage_worker;
    let serve_one = || {
        let request = worker.requests().wanted.take_request();
        request.into_iter().for_each(|request| worker.answer(run(core, release, request)));
    };
    let mut times = Times::new(period, core.ages.map(|ages| ages.look_every()));
    let mut requests = worker.requests();
    loop {
        if requests.stop {
            return;
        }
        if let Some(request) = requests.wanted.take_request() {
            drop(requests);
            // If no producer waits for the result: a failed sync poisons the queue, and the next
            // call that writes returns the error. (The same holds for each flush below.)
            worker.answer(run(core, release, request));
            if !matches!(request, Request::Reserve(_)) {
                times.note_drained();
                core.segments.list().is_watched = true;
            }
        } else if std::mem::take(&mut requests.wanted.flush_for_tasks) {
            drop(requests);
            core.tasks.run_round(|| core.flush_for_tasks(Some(&serve_one)));
            if planted!(StorageWorkerCallsWakers) {
                core.tasks.for_flush.wake(u64::MAX);
            }
            core.wake_flushed_elsewhere();
        } else if Times::is_due(times.flush) {
            drop(requests);
            let _ = core.flush_on_time(Some(&serve_one));
            // The next period begins at the end of this flush, so that a disk slower than the
            // period gets a pause.
            times.flush = Times::after(times.period);
        } else if std::mem::take(&mut requests.wanted.flush) {
            // Behind the others: a producer that goes on asks again and again.
            drop(requests);
            let _ = core.flush_behind(Some(&serve_one));
        } else if std::mem::take(&mut requests.wanted.ahead) {
            drop(requests);
            let _ = core.reclaim_and_wake();
            core.prepare_ahead();
        } else if Times::is_due(times.look) {
            drop(requests);
            core.look_at_ages(release);
            times.look = times.look_every.map(|every| now() + every);
        } else if Times::is_due(times.trim) {
            drop(requests);
            core.look_at_ages(release);
            if core.reclaim_left() {
                times.note_drained();
            } else {
                core.segments.trim_spares(&core.context());
                times.pause = LONGEST_PAUSE.min(2 * times.pause);
                times.trim = core.has_long_tail().then(|| now() + times.pause);
            }
        } else {
            requests = worker.sleep(requests, times.next());
            continue;
        }
        core.store_figures();
        core.report_elsewhere();
        requests = worker.requests();
    }
}
