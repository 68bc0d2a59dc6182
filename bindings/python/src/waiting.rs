//! Waits without the interpreter's lock, and lets a signal's handler run meanwhile.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park_timeout};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How often a wait looks for a signal, which Python only notes: Ctrl-C raises within this time.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
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

/// Waits for the future; `None` when it is not ready by the deadline, and then it is dropped.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send,
    deadline: Deadline,
) -> PyResult<Option<T>> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(current())));
    loop {
        let polled = py.detach(|| {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            let Poll::Pending = polled else { return Some(polled) };
            park_timeout(deadline.slice()?);
            Some(polled)
        });
        match polled {
            Some(Poll::Ready(done)) => return Ok(Some(done)),
            Some(Poll::Pending) => py.check_signals()?,
            None => return Ok(None),
        }
    }
}
