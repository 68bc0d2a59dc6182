//! A thread of the queue that serves requests of other threads.
//!
//! A thread that waits here parks itself and is in no list of waiters. Condition variables may keep
//! such a list for the whole process, which a forked child inherits: the worker, which nearly
//! always sleeps, would stay in it forever, while its stack becomes that of one of the child's own
//! threads.

use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::threads::{
    AtomicBool, JoinHandle, Mutex, MutexGuard, OnceLock, Thread, current, now, park, park_timeout,
    spawn,
};

/// The requests (`R`) that other threads have made since the worker last looked.
#[derive(Debug, Default)]
pub(crate) struct Requests<R> {
    pub(crate) wanted: R,
    /// Whether the worker's thread must end, or has ended.
    pub(crate) stop: bool,
    thread: Option<Thread>,
}

/// What the thread does until the queue stops it.
pub(crate) type ThreadBody = Box<dyn FnOnce() + Send>;

/// The thread's name, and a function that makes its [`ThreadBody`], or returns `None` when the
/// queue is gone.
struct Starter {
    name: &'static str,
    body: Box<dyn Fn() -> Option<ThreadBody> + Send + Sync>,
}

/// Any thread makes requests, and the worker's thread serves them. The first request starts it.
pub(crate) struct Worker<R> {
    requests: Mutex<Requests<R>>,
    /// Whether the thread runs and was not stopped. Read without the lock.
    running: AtomicBool,
    starter: OnceLock<Starter>,
    thread: Mutex<Option<JoinHandle>>,
    /// Whether the thread waits for the end of another queue's worker.
    waits: Arc<AtomicBool>,
}

impl<R: Default> Default for Worker<R> {
    fn default() -> Worker<R> {
        Worker {
            requests: Mutex::default(),
            running: AtomicBool::new(false),
            starter: OnceLock::new(),
            thread: Mutex::default(),
            waits: Arc::default(),
        }
    }
}

impl<R: fmt::Debug> fmt::Debug for Worker<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("requests", &self.requests)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
thread_local! {
    /// Makes every start of a worker by this thread fail.
    pub(crate) static NO_THREADS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

thread_local! {
    /// [`Worker::waits`] of the worker whose thread this is.
    static HERE: OnceCell<Arc<AtomicBool>> = const { OnceCell::new() };
}

/// Returns `Worker::waits` of the calling thread, if it counts as a queue's worker. (At its very
/// end it does not.)
pub(crate) fn own_waits() -> Option<Arc<AtomicBool>> {
    HERE.try_with(|waits| waits.get().cloned()).ok().flatten()
}

/// Makes the calling thread count as a queue's worker.
pub(crate) fn count_as_worker(waits: Arc<AtomicBool>) {
    let _ = HERE.with(|here| here.set(waits));
}

impl<R> Worker<R> {
    /// Lets the thread start from now on.
    pub(crate) fn allow(
        &self,
        name: &'static str,
        body: impl Fn() -> Option<ThreadBody> + Send + Sync + 'static,
    ) {
        let _ = self.starter.set(Starter { name, body: Box::new(body) });
    }

    /// Starts the thread if it does not run. Returns false when there may be no thread.
    #[cold]
    pub(crate) fn start(&self) -> io::Result<bool> {
        let Some(starter) = self.starter.get() else {
            return Ok(false);
        };
        let mut thread = self.thread.lock();
        if self.requests.lock().stop {
            return Ok(false);
        }
        if thread.is_none() {
            #[cfg(test)]
            if NO_THREADS.get() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let Some(body) = (starter.body)() else {
                return Ok(false);
            };
            let waits = Arc::clone(&self.waits);
            let on_thread = move || {
                count_as_worker(waits);
                body();
            };
            *thread = Some(spawn(starter.name, on_thread)?);
            self.note_begin();
        }
        Ok(self.is_running())
    }

    /// Notes that the thread runs, unless it has already ended.
    pub(crate) fn note_begin(&self) {
        let requests = self.requests.lock();
        self.running.store(!requests.stop, Ordering::Release);
    }

    /// Returns whether the thread runs and was not stopped.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Makes a request. Returns false when there is no thread: then the caller must do the work.
    pub(crate) fn request(&self, request: impl FnOnce(&mut R)) -> bool {
        if !self.is_running() && !self.start().unwrap_or(false) {
            return false;
        }
        if planted!(RungBeforeTheWish) {
            self.wake();
            request(&mut self.requests.lock().wanted);
            return true;
        }
        request(&mut self.requests.lock().wanted);
        self.wake();
        true
    }

    pub(crate) fn requests(&self) -> MutexGuard<'_, Requests<R>> {
        self.requests.lock()
    }

    /// Makes the worker wait for a request, or until the time `due`.
    pub(crate) fn sleep<'a>(
        &'a self,
        mut requests: MutexGuard<'a, Requests<R>>,
        due: Option<Instant>,
    ) -> MutexGuard<'a, Requests<R>> {
        if requests.thread.is_none() {
            requests.thread = Some(current());
        }
        drop(requests);
        match due {
            None => park(),
            Some(due) => park_timeout(due.saturating_duration_since(now())),
        }
        self.requests.lock()
    }

    fn wake(&self) {
        let thread = self.requests.lock().thread.clone();
        thread.iter().for_each(Thread::unpark);
    }

    /// Stops the thread, and waits for its end. The program's code may close the queue on the
    /// thread itself, or on another queue's worker for which the thread waits: then this does not
    /// wait, and the thread ends later, and finds the queue closed.
    pub(crate) fn stop(&self) {
        self.leave();
        self.wake();
        let thread = self.thread.lock().take();
        let Some(thread) = thread.filter(|thread| !thread.is_current()) else {
            return;
        };
        let Some(waits) = own_waits() else {
            return thread.join();
        };
        // Store it before the check: of the workers that would wait in a circle, at least one then
        // sees that the next one waits.
        waits.store(true, Ordering::SeqCst);
        if !self.waits.load(Ordering::SeqCst) {
            thread.join();
        }
        waits.store(false, Ordering::SeqCst);
    }

    /// Marks the thread as ended: it serves no more requests.
    pub(crate) fn leave(&self) {
        let mut requests = self.requests.lock();
        requests.stop = true;
        self.running.store(false, Ordering::Release);
    }
}
