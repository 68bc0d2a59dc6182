//! How the tool ends.

use std::process::ExitCode;

/// The exit status. The numbers never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Done; also when the reader of standard output wanted no more.
    Done = 0,
    /// Done, and the answer is bad: damage, a gap, a threshold passed, messages given up.
    Bad = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Nothing was there.
    Nothing = 3,
    /// Another process owns the queue.
    Locked = 4,
    /// No such queue, consumer or message.
    Missing = 5,
    /// Refused: full, too large, damaged, a later format, framing.
    Refused = 6,
    /// The system or the far side failed.
    Failed = 7,
    /// Ended in order after SIGINT.
    Interrupted = 130,
    /// Ended in order after SIGTERM.
    Terminated = 143,
}

impl From<ExitStatus> for ExitCode {
    fn from(ending: ExitStatus) -> ExitCode {
        ExitCode::from(ending as u8)
    }
}
