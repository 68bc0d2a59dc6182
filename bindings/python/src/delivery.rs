//! `Delivery`: a message that waits for its acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mmq::OwnMutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{detached, optional};
use crate::errors::{raise, refuse};
use crate::figures::origin;
use crate::source::Held;

/// The number of a delivery that a loop let go undecided, plus 1.
#[derive(Clone, Default)]
pub(crate) struct Forgotten(Arc<AtomicU64>);

impl Forgotten {
    pub(crate) fn take(&self) -> Option<u64> {
        self.0.swap(0, Ordering::AcqRel).checked_sub(1)
    }
}

/// A message that comes again unless it is acknowledged: `Reader.receive`, `for job in consumer`.
///
/// `with job:` acknowledges it at the end of the block. An exception gives it back, and goes on. A
/// delivery that the program lets go of goes back, too.
///
/// >>> q = mmq.Queue(path)
/// >>> q.put(b"resize picture 7")
/// 0
/// >>> with q.receive() as job:
/// ...     1 / 0
/// Traceback (most recent call last):
/// ...
/// ZeroDivisionError: division by zero
/// >>> with q.receive() as job:
/// ...     print(job.seq, job.data, job.attempts)
/// 0 b'resize picture 7' 2
/// >>> len(q)
/// 0
#[pyclass(module = "mmq", frozen)]
pub(crate) struct Delivery {
    /// `None` once it was acknowledged, given back or rejected.
    handed: OwnMutex<Option<mmq::Delivery>>,
    data: Py<PyBytes>,
    seq: u64,
    attempts: u32,
    origin: Option<mmq::Origin>,
    forgotten: Option<Forgotten>,
}

impl Delivery {
    /// The bytes are copied here: a child made by a fork may read them.
    pub(crate) fn new(
        py: Python<'_>,
        handed: mmq::Delivery,
        forgotten: Option<Forgotten>,
    ) -> Delivery {
        Delivery {
            data: PyBytes::new(py, &handed).unbind(),
            seq: handed.seq(),
            attempts: handed.attempts(),
            origin: handed.origin(),
            handed: OwnMutex::new(Some(handed)),
            forgotten,
        }
    }

    /// Takes the delivery, for the one call that decides what becomes of it.
    fn decide(&self, py: Python<'_>) -> PyResult<mmq::Delivery> {
        let handed = detached(py, || Ok(self.handed.lock()?.take()))?;
        handed.ok_or_else(|| self.is_decided(py))
    }

    fn is_decided(&self, py: Python<'_>) -> PyErr {
        let text = format!("delivery {} was acknowledged or given back already", self.seq);
        refuse(py, "InvalidArgument", &text)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let handed = self.handed.lock().ok().and_then(|mut handed| handed.take());
        let handed = handed.map(|handed| Held(Some(handed)));
        if let (Some(_), Some(forgotten)) = (&handed, &self.forgotten) {
            forgotten.0.store(self.seq + 1, Ordering::Release);
        }
    }
}

#[pymethods]
impl Delivery {
    /// The message's bytes.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    /// The message's number.
    #[getter]
    fn seq(&self) -> u64 {
        self.seq
    }

    /// How often the message was handed out, this time included.
    #[getter]
    fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Where the message comes from, if it is a dead letter.
    #[getter]
    fn origin(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        origin(py, self.origin)
    }

    /// Acknowledges: the work is done. Raises `Expired` when the lease has ended.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        let handed = self.decide(py)?;
        detached(py, || handed.ack())
    }

    /// Gives the message back. It comes again after `delay` seconds, or after the consumer's
    /// backoff.
    #[pyo3(signature = (delay=None))]
    fn nack(&self, py: Python<'_>, delay: Option<f64>) -> PyResult<()> {
        let delay = optional(py, "delay", delay)?;
        let handed = self.decide(py)?;
        py.detach(|| match delay {
            Some(delay) => handed.nack_after(delay),
            None => handed.nack(),
        });
        Ok(())
    }

    /// Rejects the message, which comes no more: it goes to the dead letters, or comes as a gap.
    fn reject(&self, py: Python<'_>) -> PyResult<()> {
        let handed = self.decide(py)?;
        detached(py, || handed.reject())
    }

    /// Makes the lease end `seconds` from now.
    fn extend(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let by = crate::arguments::duration(py, "extend", seconds)?;
        let extended =
            detached(py, || self.handed.lock()?.as_ref().map(|it| it.extend(by)).transpose())?;
        extended.ok_or_else(|| self.is_decided(py))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        match (py.detach(|| Ok(self.handed.lock()?.take())), kind) {
            (Ok(Some(handed)), None) => detached(py, || handed.ack()),
            (Ok(Some(handed)), Some(_)) => {
                py.detach(|| handed.nack());
                Ok(())
            }
            (Err(error), None) => Err(raise(py, &error)),
            (Ok(None) | Err(_), _) => Ok(()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let len = self.data.bind(py).len()?;
        Ok(format!("<mmq.Delivery {}: {len} bytes, attempt {}>", self.seq, self.attempts))
    }
}

/// Acknowledges many deliveries in one step.
#[pyfunction]
pub(crate) fn ack_many(py: Python<'_>, deliveries: Vec<Bound<'_, Delivery>>) -> PyResult<()> {
    let mut handed = Vec::new();
    for delivery in &deliveries {
        match delivery.get().decide(py) {
            Ok(one) => handed.push(one),
            Err(error) => {
                // All or none.
                for (delivery, one) in deliveries.iter().zip(handed) {
                    if let Ok(mut handed) = delivery.get().handed.lock() {
                        *handed = Some(one);
                    }
                }
                return Err(error);
            }
        }
    }
    detached(py, || mmq::Delivery::ack_batch(handed))
}
