//! The answers to one client, collected until they are worth a call.

use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::fields::{Fields, TooShort, put_u32, put_u64};
use super::frame::Header;
use super::refusal::put_error;
use crate::error::Error;
use crate::format::{ORIGIN_LEN, Origin};

/// What is sent at once, at most; a longer message goes out from where it lies.
const MOST: usize = 64 << 10;
/// Messages up to this length are copied behind what is collected.
const SHORT: usize = 8 << 10;

/// Bytes before those of a message that has no origin.
const DESCRIBED: usize = 24;

/// The status of an answer without an error.
pub(super) const OK: u16 = 0;
pub(super) const EMPTY: u16 = 1;
pub(super) const TIMED_OUT: u16 = 3;

/// A message as an answer: what stands before its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Described {
    pub(super) seq: u64,
    /// The number by which the client acknowledges it; 0 for a message that is no delivery.
    pub(super) delivery: u64,
    pub(super) attempts: u32,
    pub(super) origin: Option<Origin>,
}

#[derive(Debug)]
pub(super) struct Output<'a> {
    stream: &'a UnixStream,
    collected: Vec<u8>,
    /// Why nothing can be sent any more. Whoever answers need not look.
    failed: Option<io::Error>,
}

impl<'a> Output<'a> {
    pub(super) fn new(stream: &'a UnixStream) -> Output<'a> {
        Output { stream, collected: Vec::new(), failed: None }
    }

    /// Answers with a body.
    pub(super) fn answer(&mut self, number: u64, status: u16, body: &[u8]) {
        self.begin(number, status, 0, body.len() as u64);
        self.collected.extend_from_slice(body);
        self.send_if_much();
    }

    /// Answers with an error.
    pub(super) fn error(&mut self, number: u64, error: &Error) {
        let mut body = Vec::new();
        put_error(&mut body, error);
        self.answer(number, error.status(), &body);
    }

    /// Answers with a message. `more` says whether another one of the same answer follows.
    pub(super) fn message(&mut self, number: u64, what: &Described, bytes: &[u8], more: u32) {
        let before = DESCRIBED + what.origin.map_or(0, |_| ORIGIN_LEN);
        self.begin(number, OK, more, (before + bytes.len()) as u64);
        if bytes.len() <= SHORT {
            put_message(&mut self.collected, what, bytes);
            return self.send_if_much();
        }
        put_message(&mut self.collected, what, &[]);
        let collected = std::mem::take(&mut self.collected);
        self.send_all(&collected, bytes);
        self.collected = collected;
        self.collected.clear();
    }

    fn begin(&mut self, number: u64, kind: u16, more: u32, len: u64) {
        let header = Header { number, len, kind, consumer: 0, more };
        self.collected.extend_from_slice(&header.encode());
    }

    fn send_if_much(&mut self) {
        if self.collected.len() >= MOST {
            // An error stays for the caller of the next `send`.
            let _ = self.send();
        }
    }

    /// Sends what is collected.
    ///
    /// # Errors
    ///
    /// The first error of this connection.
    pub(super) fn send(&mut self) -> io::Result<()> {
        let collected = std::mem::take(&mut self.collected);
        self.send_all(&collected, &[]);
        self.collected = collected;
        self.collected.clear();
        if self.collected.capacity() > 2 * MOST {
            self.collected = Vec::new();
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn send_all(&mut self, first: &[u8], second: &[u8]) {
        if self.failed.is_none() {
            self.failed = send_both(self.stream, first, second).err();
        }
    }
}

/// Without this flag a write to a client that has gone would end the process with SIGPIPE, unless
/// it ignores that signal, as Rust programs do and C programs do not. (Darwin has an option of the
/// socket for it.)
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Sends both pieces, with one call as a rule.
pub(super) fn send_both(to: &UnixStream, first: &[u8], second: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < first.len() + second.len() {
        sent += send_some(to, first, second, sent, SendFlags::empty())?;
    }
    Ok(())
}

/// Sends what the system takes of both pieces, behind the first `sent` bytes.
pub(super) fn send_some(
    to: &UnixStream,
    first: &[u8],
    second: &[u8],
    sent: usize,
    flags: SendFlags,
) -> io::Result<usize> {
    let left = match first.get(sent..) {
        Some(left) => [IoSlice::new(left), IoSlice::new(second)],
        None => [IoSlice::new(&second[sent - first.len()..]), IoSlice::new(&[])],
    };
    loop {
        match sendmsg(to, &left, &mut SendAncillaryBuffer::default(), flags | NO_SIGNAL) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes a message as a body. It can be read with [`read_message`].
pub(super) fn put_message(body: &mut Vec<u8>, what: &Described, bytes: &[u8]) {
    put_u64(body, what.seq);
    put_u64(body, what.delivery);
    put_u32(body, what.attempts);
    put_u32(body, u32::from(what.origin.is_some()));
    body.extend(what.origin.iter().flat_map(Origin::encode));
    body.extend_from_slice(bytes);
}

/// Reads a message from a body: what stands before its bytes, and how long that is.
pub(super) fn read_message(body: &[u8]) -> Result<(Described, usize), TooShort> {
    let mut fields = Fields(body);
    let (seq, delivery) = (fields.u64()?, fields.u64()?);
    let (attempts, has_origin) = (fields.u32()?, fields.u32()? & 1 != 0);
    let mut origin = None;
    if has_origin {
        let bytes = fields.rest().first_chunk::<ORIGIN_LEN>().ok_or(TooShort)?;
        fields.bytes(ORIGIN_LEN)?;
        origin = Some(Origin::decode(bytes));
    }
    Ok((Described { seq, delivery, attempts, origin }, body.len() - fields.rest().len()))
}
