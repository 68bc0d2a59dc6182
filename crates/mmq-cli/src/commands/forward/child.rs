//! A command as the far side, by frames on its standard input and output: `mmq accept` of another
//! queue, or an engine of the user's.

use std::fs;
use std::io::{self, BufReader, Read};
use std::mem;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mmq::forward::{Destination, Held, Limits, Mark, Outgoing, OutgoingKind, Source, Trouble};
use rustix::process::{Pid, Signal, kill_process};

use super::wire::{Frame, LONGEST, NO_MESSAGE};
use crate::console::Console;
use crate::failure::{Failure, Tried};

pub(super) const SCHEMES: [&str; 2] = ["ssh://", "exec:"];
/// So long the command may take to begin: a login, a lock, an opening.
const BEGINNING: Duration = Duration::from_secs(60);
/// So long a stop may go unnoticed meanwhile.
const TICK: Duration = Duration::from_millis(50);
/// After its input or output has ended a command has so long to end.
const ENDING: Duration = Duration::from_millis(300);
/// So much of what a command says on standard error is told.
const TOLD: usize = 1000;

/// The command and its session.
pub(super) struct AnotherQueue {
    program: String,
    arguments: Vec<String>,
    /// Whether nobody waits for an answer any more.
    is_stopped: Arc<AtomicBool>,
    console: Console,
    /// The missing numbers below this one were said.
    told: u64,
    session: Option<Session>,
}

/// A running command. Nobody waits for its threads: they end when its pipes close.
struct Session {
    child: Child,
    /// What a thread writes to it: `send` must not wait for a slow pipe.
    to: Sender<Vec<u8>>,
    from: Receiver<io::Result<Frame>>,
    /// The end of what it said on standard error.
    said: Arc<Mutex<Vec<u8>>>,
    acknowledged: u64,
}

impl AnotherQueue {
    /// Nothing runs before the first session.
    pub(super) fn at(url: &str, is_stopped: Arc<AtomicBool>, console: Console) -> Tried<Self> {
        let (program, arguments) = match url.strip_prefix("exec:") {
            Some(command) if command.trim().is_empty() => {
                return Err(Failure::usage("exec: needs a command, as in 'exec:mmq accept DIR2'"));
            }
            Some(command) => ("sh", vec!["-c".to_owned(), command.to_owned()]),
            None => ("ssh", ssh(url)?),
        };
        let (program, told, session) = (program.to_owned(), 0, None);
        Ok(AnotherQueue { program, arguments, is_stopped, console, told, session })
    }

    fn begin(&self) -> io::Result<Session> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (to, writes) = mpsc::channel::<Vec<u8>>();
        let (tell, from) = mpsc::channel();
        let said = Arc::new(Mutex::new(Vec::new()));
        if let Some(mut stdin) = child.stdin.take() {
            // A pipe that breaks shows in the reading: the command says why.
            thread::spawn(move || {
                writes.iter().try_for_each(|it| io::Write::write_all(&mut stdin, &it))
            });
        }
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || read(stdout, &tell));
        }
        if let Some(stderr) = child.stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || listen(stderr, &said));
        }
        Ok(Session { child, to, from, said, acknowledged: 0 })
    }

    fn session(&mut self) -> Result<&mut Session, Trouble> {
        self.session.as_mut().ok_or_else(|| again("there is no session".to_owned()))
    }
}

/// The arguments of ssh.
fn ssh(url: &str) -> Tried<Vec<String>> {
    let wrong = |why: &str| Failure::usage(format!("{url}: {why}"));
    let rest = url.strip_prefix("ssh://").unwrap_or(url);
    let Some((host, path)) = rest.split_once('/').filter(|(_, path)| !path.is_empty()) else {
        return Err(wrong("names no directory: write ssh://HOST/DIR2"));
    };
    let (user, host) = host.rsplit_once('@').map_or((None, host), |(user, it)| (Some(user), it));
    if user.is_some_and(|user| user.contains(':')) {
        return Err(Failure::usage("ssh takes no password from a URL: use a key"));
    }
    let colon = host.rfind(':').filter(|colon| host.rfind(']').is_none_or(|end| end < *colon));
    let (host, port) = match colon.and_then(|at| host.split_at_checked(at)) {
        Some((host, port)) => (host, Some(port.trim_start_matches(':'))),
        None => (host, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(wrong("the port is not a number from 0 to 65535"));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = user.map_or(host.to_owned(), |user| format!("{user}@{host}"));
    if host.is_empty() || host.starts_with('-') || host.starts_with('@') {
        return Err(wrong("is no user and host for ssh"));
    }
    // A login begins in the home directory.
    let path = path.strip_prefix("~/").map_or_else(|| format!("/{path}"), str::to_owned);
    let quoted = path.replace('\'', r"'\''");
    let mut arguments: Vec<String> = ["-T", "-o", "BatchMode=yes"].map(str::to_owned).into();
    arguments.extend(port.into_iter().flat_map(|port| ["-p".to_owned(), port.to_owned()]));
    arguments.extend(["--".to_owned(), host, format!("mmq accept -- '{quoted}'")]);
    Ok(arguments)
}

/// Reads frames until something is wrong, which is the last that it tells.
fn read(stdout: ChildStdout, tell: &Sender<io::Result<Frame>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let frame = match Frame::read(&mut stdout) {
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Some(frame)) => Ok(frame),
            Err(error) => Err(error),
        };
        let is_last = frame.is_err();
        if tell.send(frame).is_err() || is_last {
            return;
        }
    }
}

/// Keeps the end of what the command says.
fn listen(mut stderr: ChildStderr, said: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 512];
    while let Ok(len @ 1..) = stderr.read(&mut bytes) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend(bytes.get(..len).unwrap_or_default());
        let over = said.len().saturating_sub(TOLD);
        said.drain(..over);
    }
}

impl Session {
    fn next(&mut self, wait: Duration) -> Result<Option<Frame>, Trouble> {
        match self.from.recv_timeout(wait) {
            Ok(Ok(Frame::Refused(NO_MESSAGE, why))) => Err(again(why)),
            Ok(Ok(Frame::Refused(seq, why))) => Err(Trouble::Refused { seq, why }),
            Ok(Ok(frame)) => Ok(Some(frame)),
            Ok(Err(error)) => Err(self.ended(&error)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(again("the command has ended".to_owned())),
        }
    }

    /// Why the command's output ended, in the command's own words.
    fn ended(&mut self, error: &io::Error) -> Trouble {
        if error.kind() == io::ErrorKind::InvalidData {
            return Trouble::Lost(error.to_string().into());
        }
        let until = Instant::now() + ENDING;
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
                status => break status.ok().flatten(),
            }
        };
        // Its thread has the other reference until it has read all.
        while Arc::strong_count(&self.said) > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let said = mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        let said = String::from_utf8_lossy(&said);
        // (Without what would stand before another sign of a line's end.)
        let lines = said.lines().map(|line| line.trim().trim_end_matches('.'));
        let lines: Vec<&str> = lines.filter(|it| !it.is_empty()).collect();
        let ended = status.map_or_else(|| "it closed its output".to_owned(), |it| it.to_string());
        let text = format!("the command ended ({ended}): {}", lines.join("; "));
        match status.and_then(|status| status.code()) {
            // The shell found no such command, or may not run it; a wrong command line.
            Some(2 | 126 | 127) => Trouble::Lost(text.into()),
            _ => again(text),
        }
    }
}

/// Ends a process and all that it has started: a shell's command outlives the shell.
fn kill(id: u32) {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).for_each(kill);
}

/// Ends its input, so that it closes its queue before the forwarder ends. To kill it loses nothing:
/// the next session is told what it has stored.
impl Drop for Session {
    fn drop(&mut self) {
        self.to = mpsc::channel().0;
        let until = Instant::now() + ENDING;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                kill(self.child.id());
                let _ = self.child.wait();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn again(text: String) -> Trouble {
    Trouble::Again(text.into(), Duration::ZERO)
}

impl Destination for AnotherQueue {
    fn resume(&mut self, source: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        self.session = None;
        let program = &self.program;
        let begun = self.begin();
        let begun = begun.map_err(|error| Trouble::Lost(format!("{program}: {error}").into()))?;
        let session = self.session.insert(begun);
        let mut hello = Vec::new();
        let _ = Frame::Hello(source.queue_id).write(&mut hello);
        let _ = session.to.send(hello);
        let until = Instant::now() + BEGINNING;
        let answer = loop {
            match session.next(TICK)? {
                None if self.is_stopped.load(Ordering::Relaxed) => {
                    return Err(again("the command had not answered yet".to_owned()));
                }
                None if Instant::now() < until => {}
                answer => break answer,
            }
        };
        match answer {
            Some(Frame::Holds(None)) => Ok(Held::Nothing),
            Some(Frame::Holds(Some((seq, sum)))) => {
                session.acknowledged = seq.saturating_add(1);
                Ok(Held::Until { seq, sum: Some(sum) })
            }
            Some(_) => Err(Trouble::Lost("the command began with a wrong frame".into())),
            None => {
                Err(again(format!("no answer of the command within {} s", BEGINNING.as_secs())))
            }
        }
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let session = self.session()?;
        let mut bytes = Vec::new();
        let write = |bytes: &mut Vec<u8>| {
            for message in messages {
                for missing in message.missing_before {
                    Frame::Missing(missing.to_string()).write(bytes)?;
                }
                if message.kind == OutgoingKind::Message {
                    Frame::message(bytes, message.seq, message.sum, message.bytes)?;
                }
            }
            Frame::Flush.write(bytes)
        };
        write(&mut bytes).map_err(|error| again(error.to_string()))?;
        // A pipe that has broken is found by the next look at what came.
        let _ = session.to.send(bytes);
        // (A send may be repeated.)
        let missing = messages.iter().flat_map(|message| message.missing_before);
        let told = self.told;
        for missing in missing.filter(|missing| missing.last >= told) {
            self.console.note(format!("messages are missing: {missing}"));
            self.told = missing.last + 1;
        }
        Ok(())
    }

    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        let session = self.session()?;
        match session.next(wait)? {
            Some(Frame::Durable(below)) => session.acknowledged = below,
            Some(_) => return Err(Trouble::Lost("the command sent a wrong frame".into())),
            None => {}
        }
        Ok(session.acknowledged)
    }

    fn limits(&self) -> Limits {
        Limits { longest: LONGEST, ..Limits::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_becomes_a_call_of_ssh() {
        for (url, words) in [
            ("ssh://host/var/q", "-- host mmq accept -- '/var/q'"),
            ("ssh://edge@host:2222/~/q", "-p 2222 -- edge@host mmq accept -- 'q'"),
            ("ssh://[::1]:22/a b'c", r"-p 22 -- ::1 mmq accept -- '/a b'\''c'"),
        ] {
            assert_eq!(ssh(url).unwrap().join(" "), format!("-T -o BatchMode=yes {words}"));
        }
        for url in ["ssh://host", "ssh://-oProxyCommand=x/q", "ssh://a:b@h/q", "ssh://h:x/q"] {
            assert!(ssh(url).is_err(), "{url}");
        }
    }
}
