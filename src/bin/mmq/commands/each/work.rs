//! The command that is run for a message.

use std::ffi::OsString;
use std::io;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;

use mmq::Delivery;

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ran {
    Done,
    Failed {
        reason: String,
        by_signal: bool,
    },
    /// There is no such command, or no process to run it in.
    NotStarted(io::Error),
}

/// A command and its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    program: &'a OsString,
    words: &'a [OsString],
}

impl<'a> Work<'a> {
    pub(super) fn new(words: &'a [OsString]) -> Option<Work<'a>> {
        let (program, words) = words.split_first()?;
        Some(Work { program, words })
    }

    pub(super) fn program(&self) -> &OsString {
        self.program
    }

    /// Runs it with the message on its standard input.
    pub(super) fn run(&self, message: &Delivery) -> Ran {
        match self.run_to_its_end(message) {
            Ok(status) if status.success() => Ran::Done,
            Ok(status) => {
                // A shell says so by its status.
                let by_signal =
                    status.signal().is_some() || matches!(status.code(), Some(130 | 143));
                Ran::Failed { reason: status.to_string(), by_signal }
            }
            Err(error) => Ran::NotStarted(error),
        }
    }

    fn run_to_its_end(&self, message: &Delivery) -> io::Result<ExitStatus> {
        let mut command = Command::new(self.program);
        command.args(self.words).stdin(Stdio::piped());
        command.env("MMQ_SEQ", message.seq().to_string());
        command.env("MMQ_ATTEMPT", message.attempts().to_string());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // It need not read all of it: its exit status alone counts.
            let _ = stdin.write_all(message);
        }
        child.wait()
    }
}
