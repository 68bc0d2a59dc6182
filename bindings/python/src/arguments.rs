//! What Python passes in: times, options, messages.

use std::path::PathBuf;
use std::time::Duration;

use mmq::{OnFull, Options, Start};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
#[cfg(not(feature = "buffers"))]
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyString};

use crate::errors::{raise, refuse};

/// Returns a time given in seconds, for the argument `what`.
pub(crate) fn duration(py: Python<'_>, what: &str, seconds: f64) -> PyResult<Duration> {
    let reason = match Duration::try_from_secs_f64(seconds) {
        Ok(time) => return Ok(time),
        // Too long to count, or `inf`: for ever.
        Err(_) if seconds > 0.0 => return Ok(Duration::MAX),
        Err(_) if seconds.is_nan() => "is not a number of seconds",
        Err(_) => "is negative: a time is 0 seconds or more",
    };
    Err(refuse(py, "InvalidArgument", &format!("{what}: {seconds} {reason}")))
}

/// Returns a time that may be missing.
pub(crate) fn optional(
    py: Python<'_>,
    what: &str,
    seconds: Option<f64>,
) -> PyResult<Option<Duration>> {
    seconds.map(|seconds| duration(py, what, seconds)).transpose()
}

/// A number; one that the type does not hold is an invalid argument.
pub(crate) struct Number<T>(pub(crate) T);

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Number<T> {
    type Error = PyErr;

    fn extract(given: pyo3::Borrowed<'a, 'py, PyAny>) -> PyResult<Number<T>> {
        match given.extract::<T>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {
                let text = format!("{} is out of range: {}", *given, error.value(given.py()));
                Err(refuse(given.py(), "InvalidArgument", &text))
            }
            number => number.map(Number),
        }
    }
}

/// Where a new consumer begins: `"oldest"`, `"end"`, or a number.
pub(crate) fn start(given: &Bound<'_, PyAny>) -> PyResult<Start> {
    match given.extract::<u64>() {
        Ok(seq) => return Ok(Start::Seq(seq)),
        Err(_) if given.eq("oldest")? => return Ok(Start::Oldest),
        Err(_) if given.eq("end")? => return Ok(Start::End),
        Err(_) => {}
    }
    let text = format!("start: {} is neither \"oldest\", \"end\" nor a number", given.repr()?);
    Err(refuse(given.py(), "InvalidArgument", &text))
}

/// Returns what to do with a message when the queue is full, and whether it waits.
fn on_full(given: &Bound<'_, PyAny>) -> PyResult<(OnFull, bool)> {
    let py = given.py();
    if let Ok(seconds) = given.extract::<f64>() {
        return Ok((OnFull::Wait(Some(duration(py, "on_full", seconds)?)), true));
    }
    match given.extract::<String>().unwrap_or_default().as_str() {
        "reject" => Ok((OnFull::Reject, false)),
        "wait" => Ok((OnFull::Wait(None), true)),
        "drop-oldest" => Ok((OnFull::DropOldest, false)),
        _ => {
            let text = format!(
                "option on_full: {} is neither \"reject\", \"wait\", \"drop-oldest\" nor seconds \
                 to wait",
                given.repr()?
            );
            Err(refuse(py, "InvalidOption", &text))
        }
    }
}

/// The options of an opening, by the names of the crate's.
pub(crate) struct Opening {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    /// Whether `put` waits while the queue is full.
    pub(crate) waits: bool,
}

impl Opening {
    pub(crate) fn new(path: PathBuf, given: Option<&Bound<'_, PyDict>>) -> PyResult<Opening> {
        let mut opening = Opening { path, options: Options::new(), waits: false };
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            opening.set(&name, &value).map_err(|error| of_option(value.py(), &name, error))?;
        }
        Ok(opening)
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let time = || optional(value.py(), name, value.extract()?);
        let options = self.options.clone();
        self.options = match name {
            "max_bytes" => options.max_bytes(value.extract::<Option<u64>>()?),
            "min_free_bytes" => options.min_free_bytes(value.extract()?),
            "on_full" => {
                let (policy, waits) = on_full(value)?;
                self.waits = waits;
                options.on_full(policy)
            }
            "max_age" => options.max_age(time()?),
            "flush_every" => options.flush_every(time()?),
            "flush_every_ops" => options.flush_every_ops(value.extract::<Option<u64>>()?),
            "arena_size" => options.arena_size(value.extract()?),
            "max_mapped_arenas" => options.max_mapped_arenas(value.extract::<Option<u32>>()?),
            "mode" => options.mode(value.extract::<Option<u32>>()?),
            "create" => options.create(value.extract()?),
            "shared" => options.shared(value.extract()?),
            "shared_mode" => options.shared_mode(value.extract()?),
            _ => return Err(PyTypeError::new_err("there is no such option")),
        };
        Ok(())
    }
}

/// Names the option in an exception of Python's own.
fn of_option(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    let value = error.value(py);
    if value.hasattr("status").unwrap_or(false) {
        return error;
    }
    if error.is_instance_of::<PyTypeError>(py) {
        return PyTypeError::new_err(format!("option {name}: {value}"));
    }
    refuse(py, "InvalidOption", &format!("option {name}: {value}"))
}

/// When messages come again: `lease`, `backoff`, `max_attempts`.
pub(crate) struct Rules {
    pub(crate) lease: Option<Duration>,
    pub(crate) backoff: Option<(Duration, Duration)>,
    pub(crate) max_attempts: Option<u32>,
}

impl Rules {
    pub(crate) fn new(
        py: Python<'_>,
        lease: Option<f64>,
        backoff: Option<(f64, f64)>,
        max_attempts: Option<u32>,
    ) -> PyResult<Rules> {
        let lease = optional(py, "lease", lease)?;
        let delays = |(first, longest)| -> PyResult<(Duration, Duration)> {
            Ok((duration(py, "backoff", first)?, duration(py, "backoff", longest)?))
        };
        Ok(Rules { lease, backoff: backoff.map(delays).transpose()?, max_attempts })
    }
}

/// The bytes of a message that goes in.
pub(crate) enum Payload<'a> {
    /// Of a `bytes`: nobody can change them.
    Bytes(&'a [u8]),
    /// Of another buffer, in place. (With `socket.send` and `file.write`, too, a program must not
    /// change a buffer until the call has returned.)
    #[cfg(feature = "buffers")]
    Lent(pyo3_bytes::PyBytes),
    #[cfg(not(feature = "buffers"))]
    Copied(PyBackedBytes),
}

impl AsRef<[u8]> for Payload<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Payload::Bytes(bytes) => bytes,
            #[cfg(feature = "buffers")]
            Payload::Lent(buffer) => buffer.as_slice(),
            #[cfg(not(feature = "buffers"))]
            Payload::Copied(bytes) => bytes,
        }
    }
}

impl<'a> Payload<'a> {
    pub(crate) fn new(given: &'a Bound<'_, PyAny>) -> PyResult<Payload<'a>> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Payload::Bytes(bytes.as_bytes()));
        }
        Payload::of_buffer(given).map_err(|error| {
            let py = given.py();
            let what = match given.cast::<PyString>() {
                Ok(_) => "not text: encode it, or use mmq.stdqueue".into(),
                Err(_) => format!("or a contiguous buffer of them: {}", error.value(py)),
            };
            PyTypeError::new_err(format!("a message is bytes, {what}"))
        })
    }

    #[cfg(feature = "buffers")]
    fn of_buffer(given: &Bound<'_, PyAny>) -> PyResult<Payload<'a>> {
        if let Ok(buffer) = given.extract() {
            return Ok(Payload::Lent(buffer));
        }
        // An array of other numbers: the same memory as bytes.
        let bytes = PyMemoryView::from(given)?.call_method1("cast", ("B",))?;
        Ok(Payload::Lent(bytes.extract()?))
    }

    #[cfg(not(feature = "buffers"))]
    fn of_buffer(given: &Bound<'_, PyAny>) -> PyResult<Payload<'a>> {
        let copy = PyMemoryView::from(given)?.call_method0("tobytes")?;
        Ok(Payload::Copied(copy.extract()?))
    }
}

/// Returns what is to be called with gaps.
pub(crate) fn callable(py: Python<'_>, given: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
    match given {
        Some(given) if !given.bind(py).is_callable() => {
            Err(PyTypeError::new_err("on_gap: it cannot be called"))
        }
        given => Ok(given),
    }
}

/// Calls `call` without the interpreter's lock.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> mmq::Result<T> + Send,
) -> PyResult<T> {
    py.detach(call).map_err(|error| raise(py, &error))
}
