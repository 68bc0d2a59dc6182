//! Waits without the interpreter's lock, and lets a signal's handler run meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park_timeout};
use std::time::{Duration, Instant};

use mmq::{Enqueue, OwnMutex};
use pyo3::prelude::*;

use crate::arguments::Payload;
use crate::errors::raise;
use crate::source::Shared;

/// How often a wait looks for a signal, which Python only notes: Ctrl-C raises within this time.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The outcome of a close, once it is over.
pub(crate) struct Ended(OwnMutex<Option<Result<(), Arc<mmq::Error>>>>);

impl Ended {
    pub(crate) fn not_yet() -> Ended {
        Ended(OwnMutex::new(None))
    }

    /// Closes, the first time. Every further call waits for that one, and has its outcome. (No code
    /// of Python runs in `close`, so a signal's handler or a finalizer that closes again does not
    /// wait for its own thread.)
    pub(crate) fn by(
        &self,
        py: Python<'_>,
        close: impl FnOnce() -> mmq::Result<()> + Send,
    ) -> PyResult<()> {
        let ended = py.detach(|| {
            let mut ended = self.0.lock()?;
            ended.get_or_insert_with(|| close().map_err(Arc::new)).clone()
        });
        ended.map_err(|error| raise(py, &error))
    }
}

/// A time by which a wait ends; `None`: never.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Deadline {
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Returns how long to wait until the next look for a signal; `None` at the end.
    pub(crate) fn slice(self) -> Option<Duration> {
        let Some(deadline) = self.0 else { return Some(SIGNALS_EVERY) };
        let left = deadline.checked_duration_since(Instant::now())?;
        (!left.is_zero()).then(|| left.min(SIGNALS_EVERY))
    }
}

/// Waits until the message is in the queue; `None` when no room came by the deadline. The deadline,
/// a close and signals end the wait for room only, not that for the flush behind it.
pub(crate) fn wait(
    py: Python<'_>,
    shared: &Shared,
    mut put: Enqueue<&Payload<'_>>,
    deadline: Deadline,
) -> PyResult<Option<mmq::Result<u64>>> {
    let waker = Waker::from(Arc::new(Unpark(current())));
    let outcome = loop {
        let polled = py.detach(|| {
            // Not between two slices: a signal's handler may close the queue there.
            let _open = match (shared.queue(), put.stored()) {
                (Err(closed), None) => return Some(Poll::Ready(Err(closed))),
                (open, _) => open,
            };
            let polled = Pin::new(&mut put).poll(&mut Context::from_waker(&waker));
            let Poll::Pending = polled else { return Some(polled) };
            let slice = put.stored().map_or_else(|| deadline.slice(), |_| Some(SIGNALS_EVERY));
            park_timeout(slice?);
            Some(polled)
        });
        match polled {
            Some(Poll::Ready(done)) => break Ok(Some(done)),
            Some(Poll::Pending) if put.stored().is_some() => {}
            Some(Poll::Pending) => match py.check_signals() {
                Ok(()) => {}
                Err(raised) => break Err(raised),
            },
            None => break Ok(None),
        }
    };
    py.detach(|| drop(put));
    outcome
}
