//! A client's connection to the owner, for any number of threads: each waits for its own answers.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::net::SendFlags;

use super::fields::{Fields, TooShort, put_u32, put_u64};
use super::frame::{Call, Header, MAGIC, MAX_MESSAGE, VERSION};
use super::input::Input;
use super::output::{OK, send_both, send_some};
use super::refusal::{read_error, unreadable};
use super::socket;
use crate::engine::locked;
use crate::error::{Error, Result};
use crate::index::IndexFile;
use crate::memory::ForkGuard;
use crate::options::Start;
use crate::storage::{FileStorage, Storage};
use crate::threads::{AtomicU64, Condvar, Mutex, spawn};

/// How soon an owner has to answer the greeting. One that is stopped does not.
const GREETED_IN: Duration = Duration::from_secs(10);
/// Questions up to this length are copied behind their header.
const SHORT: usize = 8 << 10;

/// One frame of an answer.
#[derive(Debug)]
pub(super) struct AnswerFrame {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// The answer to a question, as far as it has come.
#[derive(Debug)]
struct PartialAnswer {
    /// The question's.
    number: u64,
    frames: Vec<AnswerFrame>,
    is_whole: bool,
}

/// What has been read. The thread that holds `input` reads for all.
#[derive(Debug)]
struct Incoming {
    input: Option<Input>,
    /// One for each thread that waits.
    coming: Vec<PartialAnswer>,
    has_ended: bool,
}

impl Incoming {
    /// Notes that a thread waits for the answer to this question.
    fn expect(&mut self, number: u64) {
        self.coming.push(PartialAnswer { number, frames: Vec::new(), is_whole: false });
    }

    fn find(&mut self, number: u64) -> Option<&mut PartialAnswer> {
        self.coming.iter_mut().find(|coming| coming.number == number)
    }

    /// Takes what has come of an answer.
    fn take(&mut self, number: u64) -> Vec<AnswerFrame> {
        let at = self.coming.iter().position(|coming| coming.number == number);
        at.map(|at| self.coming.swap_remove(at).frames).unwrap_or_default()
    }
}

/// Frames without an answer, which go out before the next one; the first may have gone in part.
/// Only the holder of `sending` takes bytes out. No thread waits while it holds this.
#[derive(Debug, Default)]
struct Told {
    frames: Vec<u8>,
    /// A thread has been started that will send them.
    is_taken_on: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    path: PathBuf,
    stream: UnixStream,
    /// What an owner said in its greeting.
    pub(super) owner_pid: u32,
    pub(super) queue_id: [u8; 16],
    next: AtomicU64,
    /// The frame that is being sent.
    sending: Mutex<Vec<u8>>,
    told: Mutex<Told>,
    arrivals: Mutex<Incoming>,
    has_come: Condvar,
    fork: ForkGuard,
}

impl Connection {
    /// Connects to the owner of the queue in `path`, and greets it.
    pub(super) fn open(path: &Path) -> Result<Connection> {
        let stream = socket::connect(path).map_err(|error| no_owner(path, error))?;
        let failed = |error| Error::io("greet the owner of", path, error);
        stream.set_read_timeout(Some(GREETED_IN)).map_err(failed)?;
        let mut connection = Connection {
            // The process may change its directory.
            path: std::path::absolute(path).map_err(failed)?,
            stream,
            owner_pid: 0,
            queue_id: [0; 16],
            next: AtomicU64::new(1),
            sending: Mutex::default(),
            told: Mutex::default(),
            arrivals: Mutex::new(Incoming {
                input: Some(Input::new()),
                coming: Vec::new(),
                has_ended: false,
            }),
            has_come: Condvar::new(),
            fork: ForkGuard::new(),
        };
        let mut greeting = MAGIC.to_vec();
        put_u32(&mut greeting, VERSION);
        let answer = connection.greet(&greeting).map_err(|error| match error {
            Error::Disconnected { path, .. } => {
                Error::NotShared { path, reason: UNANSWERED.into() }
            }
            other => other,
        })?;
        connection.read_greeting(&answer.body).map_err(|TooShort| {
            unreadable(path, "the answer to the greeting is too short".into())
        })?;
        connection.stream.set_read_timeout(None).map_err(failed)?;
        Ok(connection)
    }

    /// The same; it has to be the queue of this id.
    pub(super) fn open_of(path: &Path, queue_id: [u8; 16]) -> Result<Connection> {
        let connection = Connection::open(path)?;
        check_same(path, queue_id, connection.queue_id)?;
        Ok(connection)
    }

    /// Greets the owner. One that refuses a client may have hung up before; its answer says why.
    fn greet(&self, greeting: &[u8]) -> Result<AnswerFrame> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.arrivals.lock().expect(number);
        let _ = self.send(number, Call::Hello, 0, greeting);
        self.first(self.wait(number)?)
    }

    fn first(&self, mut frames: Vec<AnswerFrame>) -> Result<AnswerFrame> {
        if frames.is_empty() {
            return Err(unreadable(&self.path, "an answer without a frame".into()));
        }
        Ok(frames.swap_remove(0))
    }

    fn read_greeting(&mut self, body: &[u8]) -> Result<(), TooShort> {
        let mut fields = Fields(body);
        let _version = fields.u32()?;
        self.owner_pid = fields.u32()?;
        let _longest = fields.u64()?;
        self.queue_id = *fields.rest().first_chunk().ok_or(TooShort)?;
        Ok(())
    }

    /// Refuses a message that no owner takes from a client.
    pub(super) fn check_len(&self, len: u64) -> Result<()> {
        let max = MAX_MESSAGE;
        if len > max {
            return Err(Error::MessageTooLarge {
                path: self.path.clone(),
                len,
                max,
                max_bytes: None,
            });
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Asks, and waits for the answer: its first frame, unless that is an error.
    pub(super) fn ask(&self, call: Call, consumer: u16, body: &[u8]) -> Result<AnswerFrame> {
        self.first(self.ask_for_all(call, consumer, body)?)
    }

    /// Asks when the segment was begun in which that message is.
    pub(super) fn segment_time(&self, seq: u64) -> Result<Option<SystemTime>> {
        let answer = self.ask(Call::SegmentTime, 0, &seq.to_le_bytes())?;
        let since = self.read(&answer, |mut fields| fields.milliseconds())?;
        Ok(since.and_then(|since| UNIX_EPOCH.checked_add(since)))
    }

    /// Asks, and waits for all frames of the answer.
    pub(super) fn ask_for_all(
        &self,
        call: Call,
        consumer: u16,
        body: &[u8],
    ) -> Result<Vec<AnswerFrame>> {
        let number = self.begin(call, consumer, body)?;
        self.wait(number)
    }

    /// Opens a consumer. Returns its number on this connection.
    pub(super) fn open_consumer(&self, name: &str, start: Start) -> Result<u16> {
        let (kind, seq) = match start {
            Start::Oldest => (0, 0),
            Start::End => (1, 0),
            Start::Seq(seq) => (2, seq),
        };
        let mut body = vec![kind];
        put_u64(&mut body, seq);
        body.extend_from_slice(name.as_bytes());
        let answer = self.ask(Call::OpenConsumer, 0, &body)?;
        self.read(&answer, |mut fields| fields.u16())
    }

    /// Sends a question. The caller waits for the answer to the number that this returns.
    pub(super) fn begin(&self, call: Call, consumer: u16, body: &[u8]) -> Result<u64> {
        if self.fork.forked() {
            return Err(Error::Forked);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.arrivals.lock().expect(number);
        self.send(number, call, consumer, body).inspect_err(|_| {
            self.arrivals.lock().take(number);
        })?;
        Ok(number)
    }

    /// Tells the owner something that needs no answer, and never waits for it: destructors call
    /// this. A thread of its own sends what the socket does not take now. Where the owner has gone
    /// this changes nothing.
    pub(super) fn tell(self: &Arc<Self>, call: Call, consumer: u16, body: &[u8]) {
        if self.fork.forked() {
            return;
        }
        let header =
            Header { number: 0, len: body.len() as u64, kind: call as u16, consumer, more: 0 };
        let mut told = self.told.lock();
        told.frames.extend(header.encode().iter().chain(body));
        if let Some(_sending) = self.sending.try_lock() {
            let sent = send_some(&self.stream, &told.frames, &[], 0, SendFlags::DONTWAIT);
            told.frames.drain(..sent.unwrap_or(0));
        }
        if !told.frames.is_empty() && !told.is_taken_on {
            let connection = Arc::clone(self);
            told.is_taken_on = spawn("mmq-tell", move || connection.send_told()).is_ok();
        }
    }

    fn send_told(&self) {
        let mut frame = self.sending.lock();
        *frame = std::mem::take(&mut *self.told.lock()).frames;
        if send_both(&self.stream, &frame, &[]).is_err() {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    fn send(&self, number: u64, call: Call, consumer: u16, body: &[u8]) -> Result<()> {
        let len = body.len() as u64;
        let header = Header { number, len, kind: call as u16, consumer, more: 0 };
        let mut frame = self.sending.lock();
        frame.clear();
        frame.append(&mut self.told.lock().frames);
        frame.extend_from_slice(&header.encode());
        let sent = if body.len() <= SHORT {
            frame.extend_from_slice(body);
            send_both(&self.stream, &frame, &[])
        } else {
            send_both(&self.stream, &frame, body)
        };
        if sent.is_err() {
            // A part of the frame may have gone. Nothing can follow it.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        sent.map_err(|_| Error::Disconnected { path: self.path.clone(), in_doubt: false })
    }

    /// Ends the connection. Not in a forked child: it is its parent's.
    pub(super) fn end(&self) {
        if !self.fork.forked() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns the socket, to the only caller that reads and writes.
    pub(super) fn stream(&self) -> Result<&UnixStream> {
        if self.fork.forked() { Err(Error::Forked) } else { Ok(&self.stream) }
    }

    /// Waits for the answer to the question of this number.
    pub(super) fn wait(&self, number: u64) -> Result<Vec<AnswerFrame>> {
        let mut arrivals = self.arrivals.lock();
        loop {
            let is_whole = arrivals.find(number).map(|coming| coming.is_whole);
            if is_whole == Some(true) {
                break;
            }
            if arrivals.has_ended || is_whole.is_none() {
                arrivals.take(number);
                return Err(Error::Disconnected { path: self.path.clone(), in_doubt: true });
            }
            let Some(mut input) = arrivals.input.take() else {
                self.has_come.wait(&mut arrivals);
                continue;
            };
            drop(arrivals);
            let read = input.fill_soon(&self.stream);
            arrivals = self.arrivals.lock();
            if !matches!(read, Ok(1..)) {
                arrivals.has_ended = true;
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            while let Some((header, at)) = input.next() {
                // Nobody waits for the answer to a question that was given up.
                if let Some(coming) = arrivals.find(header.number) {
                    let body = input.body(at).to_vec();
                    coming.frames.push(AnswerFrame { status: header.kind, body });
                    coming.is_whole = header.more == 0;
                }
            }
            arrivals.input = Some(input);
            self.has_come.notify_all();
        }
        let frames = arrivals.take(number);
        drop(arrivals);
        self.check(frames)
    }

    /// Turns an answer that is an error, or ends with one, into that.
    fn check(&self, frames: Vec<AnswerFrame>) -> Result<Vec<AnswerFrame>> {
        match frames.last() {
            Some(AnswerFrame { status, body }) if *status == 4 || *status >= 16 => {
                Err(read_error(*status, body, &self.path))
            }
            _ => Ok(frames),
        }
    }

    /// Reads the body of an answer.
    pub(super) fn read<R>(
        &self,
        answer: &AnswerFrame,
        read: impl FnOnce(Fields<'_>) -> Result<R, TooShort>,
    ) -> Result<R> {
        read(Fields(&answer.body)).map_err(|TooShort| {
            unreadable(&self.path, format!("an answer {} is too short", answer.status))
        })
    }
}

impl AnswerFrame {
    pub(super) fn is_ok(&self) -> bool {
        self.status == OK
    }
}

/// Why nobody can connect, where the next moment may change that.
const UNOWNED: &str = "no process has it open; open it, or have `mmq serve` open it";
const CHANGING: &str = "a process opens or closes it at the moment";
const UNANSWERED: &str = "the owner has ended, or did not answer the greeting";

/// Returns whether this error is one that the next moment may change.
pub(super) fn is_passing(error: &Error) -> bool {
    let passing = [UNOWNED, CHANGING, UNANSWERED];
    matches!(error, Error::NotShared { reason, .. } if passing.contains(&&**reason))
}

/// Reads the id of the queue in the directory; `None` where the index does not tell it.
pub(super) fn id_in(path: &Path) -> Option<[u8; 16]> {
    IndexFile::read(&FileStorage::open_to_look(path).ok()?).ok()??.queue_id()
}

/// Refuses a queue that stands where another one was.
pub(super) fn check_same(path: &Path, was: [u8; 16], is: [u8; 16]) -> Result<()> {
    if was == is {
        return Ok(());
    }
    let reason = "another one stands there now; what was opened has been moved or removed";
    Err(Error::invalid_argument(path, "queue", reason))
}

/// The error for an owner to whom nobody can connect.
fn no_owner(path: &Path, error: io::Error) -> Error {
    let not_shared =
        |reason: &str| Error::NotShared { path: path.to_owned(), reason: reason.into() };
    let has_socket = match error.kind() {
        io::ErrorKind::NotFound => false,
        io::ErrorKind::ConnectionRefused => true,
        io::ErrorKind::PermissionDenied => {
            return not_shared("this user may not use the socket: see Options::shared_mode");
        }
        _ => return Error::io("connect to the owner of", path, error),
    };
    let storage = match FileStorage::open_to_look(path) {
        Ok(storage) => storage,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Error::no_queue(path),
        Err(error) => return Error::io("open", path, error),
    };
    if storage.holder().is_none() {
        return not_shared(UNOWNED);
    }
    if has_socket {
        // An owner that does not share removes the socket that an earlier one left.
        return not_shared(CHANGING);
    }
    locked(&storage)
}
