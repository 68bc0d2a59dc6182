//! `Handle`: a queue that several processes use.

use std::path::PathBuf;
use std::sync::Arc;

use mmq::{Error, OwnMutex};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{Opening, Payload, detached, start};
use crate::consumer::Consumer;
use crate::figures::{figures, range};
use crate::source::{Held, Source};
use crate::waiting::Ended;

/// What this process is to the queue.
enum Role {
    Client(mmq::Client),
    Handle(mmq::Handle),
}

/// A queue that several processes use: `mmq.open_or_connect`, `mmq.connect`.
///
/// >>> first, second = mmq.open_or_connect(path), mmq.open_or_connect(path)
/// >>> first.is_owner, second.is_owner # as a rule, in two processes
/// (True, False)
/// >>> second.put(b"a message")
/// 0
/// >>> first.consumer().get()
/// b'a message'
#[pyclass(module = "mmq", frozen)]
pub(crate) struct Handle {
    role: Held<OwnMutex<Option<Arc<Role>>>>,
    path: PathBuf,
    ended: Ended,
}

/// Calls the same method of a client and of a handle.
macro_rules! either {
    ($role:expr, $queue:ident => $call:expr) => {
        match $role {
            Role::Client($queue) => $call,
            Role::Handle($queue) => $call,
        }
    };
}

impl Handle {
    fn new(role: Role, path: PathBuf) -> Handle {
        let role = Held(Some(OwnMutex::new(Some(Arc::new(role)))));
        Handle { role, path, ended: Ended::not_yet() }
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Role) -> mmq::Result<T> + Send,
    ) -> PyResult<T> {
        detached(py, || {
            let role = self.role.lock()?.clone();
            call(&*role.ok_or(Error::Closed)?)
        })
    }
}

/// Connects to the process that has the queue open and shares it (`shared=True`, or `mmq serve`).
#[pyfunction]
pub(crate) fn connect(py: Python<'_>, path: PathBuf) -> PyResult<Handle> {
    let client = detached(py, || mmq::Client::connect(&path))?;
    Ok(Handle::new(Role::Client(client), path))
}

/// Opens the queue and shares it, if no process has it open; else connects to its owner. When the
/// owner ends, the next call opens the queue or connects to the next owner. The options are those
/// of `Queue`.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn open_or_connect(
    py: Python<'_>,
    path: PathBuf,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Handle> {
    let Opening { path, options, .. } = Opening::new(path, options)?;
    let handle = detached(py, || mmq::open_or_connect(&path, &options))?;
    Ok(Handle::new(Role::Handle(handle), path))
}

#[pymethods]
impl Handle {
    /// Puts a message in, and returns its number. `Disconnected` with `in_doubt` says that it may
    /// be in the queue.
    fn put(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let payload = Payload::new(data)?;
        self.ask(py, |role| either!(role, queue => queue.enqueue(&payload)))
    }

    /// Puts several messages in, all or none, and returns their numbers.
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let messages: Vec<_> = messages.try_iter()?.collect::<PyResult<_>>()?;
        let payloads: Vec<_> = messages.iter().map(Payload::new).collect::<PyResult<_>>()?;
        let put = |role: &Role| either!(role, queue => queue.enqueue_batch(&payloads));
        range(py, self.ask(py, put)?)
    }

    /// Makes everything durable that was put in before.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |role| either!(role, queue => queue.flush()))
    }

    /// Returns the queue's figures.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        figures(py, self.ask(py, |role| either!(role, queue => queue.stats()))?)
    }

    /// Returns the consumer `name`, without a name the queue's own. A new one begins at `start`.
    #[pyo3(signature = (name="", *, start=None, on_gap=None))]
    fn consumer<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        start: Option<&Bound<'py, PyAny>>,
        on_gap: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, Consumer>> {
        let begins = start.map_or(Ok(mmq::Start::Oldest), self::start)?;
        let source = self.ask(py, |role| {
            Ok(match role {
                Role::Client(client) if name.is_empty() => {
                    Source::Client(client.default_consumer())
                }
                Role::Client(client) => Source::Client(client.consumer_at(name, begins)?),
                Role::Handle(handle) => Source::Handle(handle.consumer_at(name, begins)?),
            })
        })?;
        Consumer::new(py, name, source, on_gap)
    }

    /// Removes the consumer `name`: nothing is kept for it any more.
    fn remove_consumer(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.ask(py, |role| either!(role, queue => queue.remove_consumer(name)))
    }

    /// Whether this process has the queue open.
    #[getter]
    fn is_owner(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |role| Ok(matches!(role, Role::Handle(handle) if handle.is_owner())))
    }

    /// The queue's directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Closes the queue if this process has it open, and else ends the connection, once no
    /// consumer of it is left. A second close waits for the first, and has its outcome.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.ended.by(py, || {
            let role = self.role.lock()?.take();
            match role.as_deref() {
                Some(Role::Handle(handle)) => handle.clone().close(),
                _ => Ok(()),
            }
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<mmq.Handle {}>", self.path.display())
    }
}
