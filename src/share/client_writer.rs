//! [`ClientWriter`]: puts many messages in, with many under way.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SendFlags;

use super::connection::Connection;
use super::fields::{Fields, TooShort};
use super::frame::{Call, Header};
use super::input::Input;
use super::output::{OK, send_some};
use super::refusal::{read_error, unreadable};
use crate::error::{Error, Result};

/// How many messages may be under way.
const MOST: u64 = 1 << 12;
/// How many bytes are collected for one call.
const COLLECTED: usize = 32 << 10;

/// Puts messages in without waiting for each answer: [`Client::writer`](crate::Client::writer).
///
/// The owner stores the messages in their order, and once it has refused one, none behind it: what
/// is in the queue are the first [`stored`](Self::stored) ones.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
/// # let client = mmq::Client::connect(dir.path())?;
/// let mut writer = client.writer()?;
/// for number in 0..10_000 {
///     writer.enqueue(format!("reading {number}"))?;
/// }
/// writer.wait()?;
/// assert_eq!((writer.stored(), writer.last_seq()), (10_000, Some(9_999)));
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
pub struct ClientWriter {
    connection: Connection,
    input: Input,
    collected: Vec<u8>,
    /// Messages collected or sent, and those of them that are stored.
    given: u64,
    stored: u64,
    last_seq: Option<u64>,
    has_failed: bool,
}

impl ClientWriter {
    pub(super) fn new(connection: Connection) -> ClientWriter {
        ClientWriter {
            connection,
            input: Input::new(),
            collected: Vec::new(),
            given: 0,
            stored: 0,
            last_seq: None,
            has_failed: false,
        }
    }

    /// Puts a message under way. It is in the queue when [`wait`](Self::wait) has returned.
    ///
    /// # Errors
    ///
    /// [`Error::MessageTooLarge`] for more than 16 MiB, and then the writer goes on. The error of
    /// an earlier message: those of [`Client::enqueue`](crate::Client::enqueue). The writer takes
    /// no more messages then.
    pub fn enqueue(&mut self, message: impl AsRef<[u8]>) -> Result<()> {
        let message = message.as_ref();
        self.connection.check_len(message.len() as u64)?;
        self.check()?;
        self.given += 1;
        let (number, len) = (self.given, message.len() as u64);
        let header = Header { number, len, kind: Call::EnqueueNext as u16, consumer: 0, more: 0 };
        self.collected.extend_from_slice(&header.encode());
        if message.len() > COLLECTED {
            return self.send(message);
        }
        self.collected.extend_from_slice(message);
        if self.collected.len() >= COLLECTED || self.given - self.stored >= MOST {
            return self.send(&[]);
        }
        Ok(())
    }

    /// Waits until the owner has stored all messages.
    ///
    /// # Durability
    ///
    /// As after [`Client::enqueue`](crate::Client::enqueue).
    ///
    /// # Errors
    ///
    /// Those of [`enqueue`](Self::enqueue).
    pub fn wait(&mut self) -> Result<()> {
        self.check()?;
        self.send(&[])?;
        self.read_until(self.given)
    }

    /// Returns how many messages are known to be in the queue: the first ones of this writer.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the number of the last message that is known to be in the queue.
    #[must_use]
    pub fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    fn check(&self) -> Result<()> {
        if self.has_failed {
            let reason = "it has failed, and takes no more messages; open another one".to_owned();
            return Err(Error::invalid_argument(self.connection.path(), "writer", reason));
        }
        Ok(())
    }

    /// Sends what is collected, and `message` behind it.
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let collected = std::mem::take(&mut self.collected);
        let sent = self.send_and_read(&collected, message);
        self.collected = collected;
        self.collected.clear();
        self.has_failed |= sent.is_err();
        sent?;
        let unanswered = self.given - self.stored;
        if unanswered < MOST { Ok(()) } else { self.read_until(self.given - MOST / 2) }
    }

    /// Sends both pieces. Where the owner takes no more, it may wait for its answers to be read.
    fn send_and_read(&mut self, first: &[u8], second: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < first.len() + second.len() {
            let stream = self.connection.stream()?;
            match send_some(stream, first, second, sent, SendFlags::DONTWAIT) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(stream, PollFlags::IN | PollFlags::OUT)];
                    let polled = poll(&mut fds, None);
                    if polled.is_ok() && fds[0].revents().contains(PollFlags::IN) {
                        self.read_some()?;
                    }
                }
                // What it has answered before says more.
                Err(_) => return self.read_answers(u64::MAX),
            }
        }
        Ok(())
    }

    /// Reads answers until so many messages are stored.
    fn read_until(&mut self, stored: u64) -> Result<()> {
        let read = self.read_answers(stored);
        self.has_failed |= read.is_err();
        read
    }

    fn read_answers(&mut self, stored: u64) -> Result<()> {
        while self.stored < stored {
            self.read_some()?;
        }
        Ok(())
    }

    /// Waits until some answers have come, and reads them.
    fn read_some(&mut self) -> Result<()> {
        let (stream, path) = (self.connection.stream()?, self.connection.path());
        if !matches!(self.input.fill(stream), Ok(1..)) {
            return Err(Error::Disconnected { path: path.to_owned(), in_doubt: true });
        }
        while let Some((header, at)) = self.input.next() {
            let body = self.input.body(at);
            if header.kind != OK {
                return Err(read_error(header.kind, body, path));
            }
            let seq = Fields(body).u64().map_err(|TooShort| {
                unreadable(path, "the answer to a message is too short".into())
            })?;
            (self.stored, self.last_seq) = (header.number, Some(seq));
        }
        Ok(())
    }
}

/// Waits for the messages under way; an error is lost.
impl Drop for ClientWriter {
    fn drop(&mut self) {
        if !self.has_failed {
            let _ = self.wait();
        }
    }
}
