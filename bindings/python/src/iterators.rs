//! Iterators over messages.

use mmq::{Iter, OwnMutex};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::delivery::{Delivery, Forgotten};
use crate::errors::{gap, raise, refuse};
use crate::figures::origin;
use crate::reader::{Patience, Reader};
use crate::source::Held;

/// Whether the exception says that the queue is closed, where a loop ends.
fn is_closed(py: Python<'_>, error: &PyErr) -> bool {
    let status = error.value(py).getattr("status").and_then(|status| status.extract::<u16>());
    status.is_ok_and(|status| status == 25)
}

fn until_closed<T>(py: Python<'_>, next: PyResult<Option<T>>) -> PyResult<Option<T>> {
    match next {
        Err(error) if is_closed(py, &error) => Ok(None),
        next => next,
    }
}

/// Takes messages: `Queue.messages`, and `for message in queue`.
#[pyclass(module = "mmq", frozen)]
pub(crate) struct Messages {
    reader: Py<Reader>,
    timeout: Option<f64>,
}

impl Messages {
    pub(crate) fn new(
        py: Python<'_>,
        reader: Py<Reader>,
        timeout: Option<f64>,
    ) -> PyResult<Messages> {
        Patience::new(py, timeout)?;
        Ok(Messages { reader, timeout })
    }
}

#[pymethods]
impl Messages {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let patience = Patience::new(py, self.timeout)?;
        until_closed(py, self.reader.get().take(py, patience))
    }

    fn __aiter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let take = self.reader.bind(py).getattr("get_nowait")?;
        py.import("mmq._tasks")?.getattr("each")?.call1((&self.reader, take, self.timeout))
    }
}

/// Hands out messages: `Consumer.deliveries`, and `for job in consumer`.
#[pyclass(module = "mmq", frozen)]
pub(crate) struct Deliveries {
    reader: Py<Reader>,
    timeout: Option<f64>,
    forgotten: Forgotten,
}

impl Deliveries {
    pub(crate) fn new(
        py: Python<'_>,
        reader: Py<Reader>,
        timeout: Option<f64>,
    ) -> PyResult<Deliveries> {
        Patience::new(py, timeout)?;
        Ok(Deliveries { reader, timeout, forgotten: Forgotten::default() })
    }

    fn next(&self, py: Python<'_>, patience: Patience) -> PyResult<Option<Delivery>> {
        if let Some(seq) = self.forgotten.take() {
            let text = format!(
                "the loop let job {seq} go, neither acknowledged nor given back, and it comes \
                 again: write `with job:` around the work, or call job.ack() or job.nack()"
            );
            return Err(refuse(py, "Undecided", &text));
        }
        let handed = self.reader.get().hand_out(py, patience)?;
        Ok(handed.map(|handed| Delivery::new(py, handed, Some(self.forgotten.clone()))))
    }
}

#[pymethods]
impl Deliveries {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Delivery>> {
        until_closed(py, self.next(py, Patience::new(py, self.timeout)?))
    }

    /// The next delivery, for a task; raises `Empty` when there is none now.
    fn _next_nowait(&self, py: Python<'_>) -> PyResult<Delivery> {
        self.next(py, Patience::NONE)?.ok_or_else(|| refuse(py, "Empty", "there is no message"))
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (this, next) = (slf.get(), slf.getattr("_next_nowait")?);
        py.import("mmq._tasks")?.getattr("each")?.call1((&this.reader, next, this.timeout))
    }
}

/// A message that was looked at.
#[pyclass(module = "mmq", frozen, get_all)]
pub(crate) struct Message {
    /// Its number.
    seq: u64,
    /// Its bytes.
    data: Py<PyBytes>,
    /// Where it comes from, if it is a dead letter.
    origin: Option<Py<PyAny>>,
}

#[pymethods]
impl Message {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<mmq.Message {}: {} bytes>", self.seq, self.data.bind(py).len()?))
    }
}

/// Looks at messages: `Reader.look_ahead`.
#[pyclass(module = "mmq", frozen)]
pub(crate) struct LookAhead {
    ahead: Held<OwnMutex<Iter>>,
    on_gap: Option<Py<PyAny>>,
}

impl LookAhead {
    pub(crate) fn new(ahead: Iter, on_gap: Option<Py<PyAny>>) -> LookAhead {
        LookAhead { ahead: Held(Some(OwnMutex::new(ahead))), on_gap }
    }
}

#[pymethods]
impl LookAhead {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            let next = py.detach(|| self.ahead.lock()?.next().transpose());
            let message = match (next, &self.on_gap) {
                (Ok(None), _) => return Ok(None),
                (Ok(Some(message)), _) => message,
                (Err(mmq::Error::Gap(missing)), Some(on_gap)) => {
                    on_gap.call1(py, (gap(py, missing),))?;
                    continue;
                }
                (Err(error), _) => return Err(raise(py, &error)),
            };
            let data = PyBytes::new(py, &message).unbind();
            let origin = origin(py, message.origin())?;
            return Ok(Some(Message { seq: message.seq(), data, origin }));
        }
    }
}
