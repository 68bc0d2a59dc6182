//! `Queue`: a queue that this process has open.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arguments::{Number, Opening, Payload, callable, detached, optional, start};
use crate::consumer::Consumer;
use crate::errors::{raise, refuse};
use crate::figures::{consumer_figures, figures, range};
use crate::iterators::Messages;
use crate::reader::Reader;
use crate::source::{Held, Open, Shared, Source};
use crate::waiting::{Deadline, Ended, wait};

/// An embedded, durable first-in first-out queue in a directory.
///
/// Options (keywords; times in seconds): `max_bytes`, `min_free_bytes`, `on_full` ("reject",
/// "wait", a number of seconds to wait, "drop-oldest"), `max_age`, `flush_every`,
/// `flush_every_ops`, `arena_size`, `max_mapped_arenas`, `mode`, `create`, `shared`, `shared_mode`.
/// `on_gap` is called with a `Gap` for messages that will never come; without it a read raises it.
///
/// >>> with mmq.Queue(path, max_bytes=64 << 20, on_full="drop-oldest") as q:
/// ...     q.put(b"a message")
/// ...     q.get()
/// 0
/// b'a message'
#[pyclass(module = "mmq", extends = Reader, frozen, subclass)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    path: PathBuf,
    waits: bool,
    ended: Ended,
}

impl Queue {
    /// Makes a call of the open queue, without the interpreter's lock. No Python code runs before
    /// the call has ended: a signal's handler or a finalizer may close the queue, and `end` in it
    /// waits for all calls.
    pub(crate) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open) -> mmq::Result<T> + Send,
    ) -> PyResult<T> {
        detached(py, || self.shared.ask(call))
    }

    /// Waits until no call uses the queue, and closes it.
    fn end(&self) -> mmq::Result<()> {
        let Some(mut queue) = self.shared.open.lock()?.take() else { return Ok(()) };
        let Open(queue) = loop {
            match Arc::try_unwrap(queue) {
                Ok(queue) => break queue,
                Err(in_use) => {
                    in_use.interrupt();
                    queue = in_use;
                    sleep(Duration::from_millis(1));
                }
            }
        };
        match Arc::try_unwrap(queue) {
            Ok(queue) => queue.close(),
            // It takes another queue's dead letters, and stays open as long as that one.
            Err(queue) => {
                // Tasks wait for its descriptors.
                queue.interrupt();
                queue.flush()
            }
        }
    }
}

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (path, *, on_gap=None, **options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        on_gap: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Queue>> {
        let Opening { path, options, waits } = Opening::new(path, options)?;
        let shared = Shared::new(detached(py, || options.open(&path))?);
        let on_gap = callable(py, on_gap)?;
        let reader = Reader { source: Held(Some(Source::Own(Arc::clone(&shared)))), on_gap };
        let queue = Queue { shared, path, waits, ended: Ended::not_yet() };
        Ok(PyClassInitializer::from(reader).add_subclass(queue))
    }

    /// Puts a message in, and returns its number: bytes, or a contiguous buffer of any numbers.
    ///
    /// From then on it survives the death of the process; a power cut once it is flushed. A queue
    /// opened with `on_full="wait"` waits for room, at most `timeout` seconds; then, as without
    /// waiting, it raises `Full`. A flush that is due behind it takes the time that it takes.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put(b"a message"), q.put(memoryview(b"another one")[:7])
    /// (0, 1)
    #[pyo3(signature = (data, *, timeout=None))]
    fn put(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<u64> {
        let payload = Payload::new(data)?;
        if self.waits {
            let timeout = optional(py, "timeout", timeout)?;
            let put = self.ask(py, |queue| Ok(queue.enqueue_async(&payload)))?;
            let Some(put) = wait(py, &self.shared, put, Deadline::after(timeout))? else {
                let path = self.path.display();
                let text = format!("queue {path} is full: no room came within the timeout");
                return Err(refuse(py, "Full", &text));
            };
            return self.shared.waited(put).map_err(|error| raise(py, &error));
        }
        if timeout.is_some() {
            let text = "timeout: this queue does not wait: open it with on_full=\"wait\"";
            return Err(refuse(py, "InvalidArgument", text));
        }
        self.ask(py, |queue| queue.enqueue(&payload))
    }

    /// Puts several messages in, all or none, and returns their numbers. (Ctrl-C does not end its
    /// wait for room.)
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b", b"c"])
    /// range(0, 3)
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let messages: Vec<_> = messages.try_iter()?.collect::<PyResult<_>>()?;
        let payloads: Vec<_> = messages.iter().map(Payload::new).collect::<PyResult<_>>()?;
        range(py, self.ask(py, |queue| queue.enqueue_batch(&payloads))?)
    }

    /// Makes everything durable that was put in, taken or acknowledged before.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> seq = q.put(b"order 17")
    /// >>> q.flush()
    /// >>> q.durable_seq > seq
    /// True
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |queue| queue.flush())
    }

    /// Makes sure that the message number `seq` is durable. Threads share one sync.
    fn wait_durable(&self, py: Python<'_>, seq: Number<u64>) -> PyResult<()> {
        self.ask(py, |queue| queue.wait_durable(seq.0))
    }

    /// The first number that is not known to be durable.
    #[getter]
    fn durable_seq(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, |queue| Ok(queue.durable_seq()))
    }

    /// Returns the consumer `name`. A new one begins at the "oldest" message, at the "end", or at
    /// a number.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> workers = q.consumer("workers")
    /// >>> q.put(b"resize picture 7")
    /// 0
    /// >>> for job in workers.deliveries(timeout=0):
    /// ...     with job:
    /// ...         print(job.data)
    /// b'resize picture 7'
    #[pyo3(signature = (name, *, start=None, on_gap=None))]
    fn consumer<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        name: &str,
        start: Option<&Bound<'py, PyAny>>,
        on_gap: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, Consumer>> {
        let begins = start.map_or(Ok(mmq::Start::Oldest), self::start)?;
        let consumer = slf.get().ask(py, |queue| queue.consumer_at(name, begins))?;
        let source = Source::Named(consumer, Arc::clone(&slf.get().shared));
        let inherited = || slf.as_super().get().on_gap.as_ref().map(|tell| tell.clone_ref(py));
        Consumer::new(py, name, source, on_gap.or_else(inherited))
    }

    /// Returns the names of all consumers.
    fn consumers(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.ask(py, |queue| Ok(queue.consumers()))
    }

    /// Removes the consumer `name`: nothing is kept for it any more.
    fn remove_consumer(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.ask(py, |queue| queue.remove_consumer(name))
    }

    /// Returns the queue's figures.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put(b"a message")
    /// 0
    /// >>> q.stats().messages, q.stats().lost_messages
    /// (1, 0)
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        figures(py, self.ask(py, |queue| Ok(queue.stats()))?)
    }

    /// Returns the figures of each consumer.
    fn consumer_stats<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let all = self.ask(py, |queue| Ok(queue.consumer_stats()))?;
        all.into_iter().map(|stats| consumer_figures(py, stats)).collect()
    }

    /// Ends all waits of threads that have begun: they raise `Interrupted`. (A task can be
    /// cancelled.) The queue stays open.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.shared.interrupt())
    }

    /// Makes everything durable and closes the queue. Waits in other threads end with `Closed`,
    /// loops end. A second close waits for the first, and has its outcome. Where a queue takes
    /// another's dead letters, its directory stays locked until that one is closed, too.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.ended.by(py, || self.end())
    }

    /// Whether the queue was closed.
    #[getter]
    fn closed(&self) -> bool {
        matches!(self.shared.ask(|_| Ok(())), Err(mmq::Error::Closed))
    }

    /// The queue's directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The queue's id: 16 random bytes, the same at every opening.
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.ask(py, |queue| Ok(queue.id()))?))
    }

    fn __iter__(slf: Bound<'_, Self>, py: Python<'_>) -> PyResult<Messages> {
        Messages::new(py, slf.into_super().unbind(), None)
    }

    fn __aiter__<'py>(slf: Bound<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let messages = Messages::new(py, slf.into_super().unbind(), None)?;
        Bound::new(py, messages)?.call_method0("__aiter__")
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<mmq.Queue {}{closed}>", self.path.display())
    }
}
