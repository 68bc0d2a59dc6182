//! The panic guard: turns errors and panics into a status and this thread's last error text.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::mmq_status::{mmq_status, remember};
use crate::error::{Error, InFull};

/// A failure whose text is already this thread's last error. One word long, so that a successful
/// call moves no space for an [`Error`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed(mmq_status);

/// What the body of an exported function returns.
pub(super) type Answer<T = mmq_status> = Result<T, Failed>;

impl From<Error> for Failed {
    #[cold]
    #[inline(never)]
    fn from(error: Error) -> Failed {
        let text = InFull::of(&error);
        remember(&text);
        if matches!(error, Error::Internal { .. }) {
            // Print a line, as a panic does. If standard error is closed, the last error still has
            // the text.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        Failed(mmq_status::of(&error))
    }
}

impl From<Box<Error>> for Failed {
    #[cold]
    #[inline(never)]
    fn from(error: Box<Error>) -> Failed {
        Failed::from(*error)
    }
}

/// Runs the body of an exported function. An error becomes its status, a panic `MMQ_PANIC`; the
/// text of both becomes this thread's last error.
#[inline]
pub(super) fn guard(body: impl FnOnce() -> Answer) -> mmq_status {
    guard_or(mmq_status::MMQ_PANIC, || body().unwrap_or_else(|Failed(status)| status))
}

/// The answer of a call that has nothing to return but its status.
#[inline]
pub(super) fn done(result: Result<(), Error>) -> Answer {
    result?;
    Ok(mmq_status::MMQ_OK)
}

/// Runs the body of an exported function that does not return a status: a panic becomes
/// `otherwise`.
#[inline]
pub(super) fn guard_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    let body = || {
        panic_when_tested();
        body()
    };
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(answer) => answer,
        Err(payload) => {
            caught(payload);
            otherwise
        }
    }
}

#[cold]
#[inline(never)]
fn caught(payload: Box<dyn std::any::Any + Send>) {
    let text = payload.downcast_ref::<&str>().copied();
    let text =
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    remember(&format_args!("a bug in mmq: {text}"));
    // Dropping a payload may panic.
    std::mem::forget(payload);
}

/// For a test in C: a library built with `--cfg mmq_test_panic` panics in every call while the
/// environment variable is set.
#[inline]
fn panic_when_tested() {
    #[cfg(mmq_test_panic)]
    if std::env::var_os("MMQ_TEST_PANIC").is_some() {
        panic!("on purpose");
    }
}

/// Returns `MMQ_NOT_FOUND` with `text` as the last error.
#[cold]
pub(super) fn not_found(text: &'static str) -> Failed {
    remember(&text);
    Failed(mmq_status::MMQ_NOT_FOUND)
}

/// Returns this status, with `text` as the last error.
#[cfg(feature = "forward")]
pub(super) fn told(status: mmq_status, text: &str) -> Failed {
    remember(&text);
    Failed(status)
}

#[cold]
#[inline(never)]
pub(super) fn invalid(what: &'static str, reason: &str) -> Failed {
    Failed::from(Error::InvalidArgument { path: None, what, reason: reason.to_owned() })
}
