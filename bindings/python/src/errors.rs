//! Errors of the crate as exceptions of `mmq/_errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Returns the exception for an error of the crate.
pub(crate) fn raise(py: Python<'_>, error: &mmq::Error) -> PyErr {
    let details = PyDict::new(py);
    match describe(error, &details) {
        Ok(class) => make(py, class, &error.to_string(), Some(&details)),
        Err(failed) => failed,
    }
}

/// Returns an exception of the class `class` in `mmq/_errors.py`.
pub(crate) fn refuse(py: Python<'_>, class: &str, text: &str) -> PyErr {
    make(py, class, text, None)
}

/// Returns the exception object for a gap.
pub(crate) fn gap<'py>(py: Python<'py>, gap: mmq::Gap) -> Bound<'py, PyAny> {
    raise(py, &mmq::Error::Gap(gap)).into_value(py).into_bound(py).into_any()
}

fn make(py: Python<'_>, class: &str, text: &str, details: Option<&Bound<'_, PyDict>>) -> PyErr {
    let made = CLASSES
        .get_or_try_init(py, || py.import("mmq._errors").map(Bound::unbind))
        .and_then(|classes| classes.bind(py).getattr(class)?.call((text,), details));
    made.map_or_else(|failed| failed, PyErr::from_value)
}

/// Returns the name of the error's class, and sets its attributes.
fn describe(error: &mmq::Error, to: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    use mmq::Error;
    Ok(match error {
        Error::Gap(gap) => {
            to.set_item("first", gap.first)?;
            to.set_item("last", gap.last)?;
            to.set_item("cause", cause(gap.cause))?;
            "Gap"
        }
        Error::Io { source, path, .. } => {
            to.set_item("errno", source.raw_os_error())?;
            to.set_item("filename", path)?;
            if error.is_full() { "Full" } else { "Io" }
        }
        Error::Full { .. } => "Full",
        Error::MessageTooLarge { .. } => "MessageTooLarge",
        Error::InvalidOption { .. } => "InvalidOption",
        Error::InvalidArgument { .. } => "InvalidArgument",
        Error::Locked { pid, .. } => {
            to.set_item("pid", pid)?;
            "Locked"
        }
        Error::NotFound { .. } => "NotFound",
        Error::NotAQueue { .. } => "NotAQueue",
        Error::UnsupportedFormat { .. } => "UnsupportedFormat",
        Error::Poisoned { .. } => "Poisoned",
        Error::Closed => "Closed",
        Error::Interrupted => "Interrupted",
        Error::Expired => "Expired",
        Error::Forked => "Forked",
        Error::NotShared { .. } => "NotShared",
        Error::Disconnected { in_doubt, .. } => {
            to.set_item("in_doubt", in_doubt)?;
            "Disconnected"
        }
        _ => "Internal",
    })
}

fn cause(cause: mmq::GapCause) -> &'static str {
    match cause {
        mmq::GapCause::Damaged => "damaged",
        mmq::GapCause::Unflushed => "unflushed",
        mmq::GapCause::Dropped => "dropped",
        mmq::GapCause::Expired => "expired",
        mmq::GapCause::Reserved => "reserved",
        mmq::GapCause::Rejected => "rejected",
        _ => "unknown",
    }
}
