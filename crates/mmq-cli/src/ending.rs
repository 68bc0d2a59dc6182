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
    /// Another process has the queue open, and does not share it.
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

/// What the help and the manual say of each exit status; what a command adds is in its own text.
pub(crate) const STATUSES: [(&str, &str); 9] = [
    ("0", "The command did its work. (So too when the reader of standard output closed it.)"),
    (
        "1",
        "The command did its work, and found damage, missing messages, failed messages or a limit exceeded.",
    ),
    ("2", "The command line is wrong."),
    ("3", "There was no message."),
    ("4", "Another process has the queue open, and does not share it."),
    ("5", "The queue, consumer or message does not exist."),
    ("6", "Refused: no room, message too large, damaged or later file format, wrong input."),
    ("7", "The system or the far side (mmq forward) failed."),
    ("130, 143", "SIGINT (130) or SIGTERM (143) ended the command; it stopped in order."),
];

impl From<ExitStatus> for ExitCode {
    fn from(ending: ExitStatus) -> ExitCode {
        ExitCode::from(ending as u8)
    }
}
