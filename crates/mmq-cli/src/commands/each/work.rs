//! The command that is run for a message.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use mmq::Delivery;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::signals;
use crate::units;

/// How often a command with a time limit is looked at.
const TICK: Duration = Duration::from_millis(10);

/// How long the rest of standard error is waited for once the command has ended: a process that it
/// left behind may hold it open for ever.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a command that was killed may take to end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// The most of a line of standard error that is kept.
const LONGEST_LINE: usize = 1024;

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ran {
    Done,
    Failed {
        reason: String,
        /// The last line that it wrote to standard error, where that is wanted.
        last_line: String,
        by_signal: bool,
    },
    /// It took longer than it may, and cannot be killed.
    RunsOn {
        reason: String,
    },
    /// There is no such command, or no process to run it in.
    NotStarted(io::Error),
}

/// What becomes of the command's standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errors {
    /// It is this program's own.
    Passed,
    /// The same, and its last line is kept.
    Kept,
}

/// A command and its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    program: &'a OsString,
    words: &'a [OsString],
    errors: Errors,
    limit: Option<Duration>,
}

/// How a command came to its end.
enum RunEnd {
    Status(ExitStatus),
    /// It took longer than it may, and was killed.
    Killed(Duration),
    /// It could not be killed, for that reason.
    RunsOn(Duration, String),
}

impl<'a> Work<'a> {
    pub(super) fn new(
        words: &'a [OsString],
        errors: Errors,
        limit: Option<Duration>,
    ) -> Option<Work<'a>> {
        let (program, words) = words.split_first()?;
        Some(Work { program, words, errors, limit })
    }

    pub(super) fn program(&self) -> &OsString {
        self.program
    }

    /// Runs it with the message on its standard input, for the time that `attempt` says.
    pub(super) fn run(&self, message: &Delivery, attempt: u64) -> Ran {
        match self.run_to_its_end(message, attempt) {
            Ok((RunEnd::Status(status), _)) if status.success() => Ran::Done,
            Ok((RunEnd::Status(status), last_line)) => {
                // A shell says so by its status.
                let by_signal =
                    status.signal().is_some() || matches!(status.code(), Some(130 | 143));
                Ran::Failed { reason: status.to_string(), last_line, by_signal }
            }
            Ok((RunEnd::Killed(limit), last_line)) => {
                let limit = units::duration(limit);
                let reason = format!("killed: it took longer than {limit}");
                Ran::Failed { reason, last_line, by_signal: false }
            }
            Ok((RunEnd::RunsOn(limit, why), _)) => {
                let limit = units::duration(limit);
                Ran::RunsOn { reason: format!("it took longer than {limit}, and {why}") }
            }
            Err(error) => Ran::NotStarted(error),
        }
    }

    fn run_to_its_end(&self, message: &Delivery, attempt: u64) -> io::Result<(RunEnd, String)> {
        let mut command = Command::new(self.program);
        command.args(self.words).stdin(Stdio::piped());
        command.env("MMQ_SEQ", message.seq().to_string());
        command.env("MMQ_ATTEMPT", attempt.to_string());
        if self.errors == Errors::Kept {
            command.stderr(Stdio::piped());
        }
        if self.limit.is_some() {
            // All that it starts is killed with it.
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        let last_line = child.stderr.take().map(last_line);
        let stdin = child.stdin.take();
        let end = run_to_end(&mut child, self.limit, stdin, message)?;
        let last_line = last_line.and_then(|line| line.recv_timeout(PATIENCE).ok());
        Ok((end, last_line.unwrap_or_default()))
    }
}

/// Waits for the end of the command, which is killed with its process group when its time is over.
/// Meanwhile it gets the message, as far as it reads it: its exit status alone counts.
fn run_to_end(
    child: &mut Child,
    limit: Option<Duration>,
    mut stdin: Option<ChildStdin>,
    mut message: &[u8],
) -> io::Result<RunEnd> {
    if let Some(stdin) = &stdin {
        ioctl_fionbio(stdin, true)?;
    }
    let until = limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(RunEnd::Status(status));
        }
        if let Some((limit, _)) = until.filter(|(_, until)| Instant::now() >= *until) {
            return kill(child, limit);
        }
        let Some(pipe) = &mut stdin else {
            if until.is_none() {
                return child.wait().map(RunEnd::Status);
            }
            thread::sleep(TICK);
            continue;
        };
        match pipe.write(message) {
            Ok(count) => message = message.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let tick = Timespec::try_from(TICK).ok();
                let _ = poll(&mut [PollFd::new(pipe, PollFlags::OUT)], tick.as_ref());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // It reads no more of it.
            Err(_) => message = &[],
        }
        if message.is_empty() {
            stdin = None;
        }
    }
}

/// Kills the command and all that it has started.
fn kill(child: &mut Child, limit: Duration) -> io::Result<RunEnd> {
    // It was not waited for, so the number is still its own.
    let killed = kill_process_group(Pid::from_child(child), Signal::KILL);
    let until = Instant::now() + KILL_PATIENCE;
    // Of several, one that cannot be killed is reported by no error.
    while killed.is_ok() && Instant::now() < until {
        if child.try_wait()?.is_some() {
            return Ok(RunEnd::Killed(limit));
        }
        thread::sleep(TICK);
    }
    let why = match killed {
        Ok(()) => "it does not end".to_owned(),
        Err(error) => io::Error::from(error).to_string(),
    };
    Ok(RunEnd::RunsOn(limit, format!("process {} cannot be killed: {why}", child.id())))
}

/// Hands on what comes to this program's standard error. The last line with anything in it comes
/// from the receiver at the end.
fn last_line(mut errors: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (mut buffer, mut line, mut last) = ([0; 4096], Vec::new(), Vec::new());
        while let Ok(count @ 1..) = errors.read(&mut buffer) {
            let bytes = buffer.get(..count).unwrap_or_default();
            signals::say(bytes);
            for byte in bytes {
                match byte {
                    b'\n' if line.trim_ascii().is_empty() => line.clear(),
                    b'\n' => last = std::mem::take(&mut line),
                    byte if line.len() < LONGEST_LINE => line.push(*byte),
                    _ => {}
                }
            }
        }
        let last = if line.trim_ascii().is_empty() { last } else { line };
        let _ = sender.send(String::from_utf8_lossy(&last).into_owned());
    });
    receiver
}
