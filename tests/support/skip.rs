//! What a test did not try.

use std::fmt::Display;
use std::io::Write;

/// Says it past the capture of a test's output, so that each run shows it. The gate repeats it at
/// its end.
pub(crate) fn skip(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
