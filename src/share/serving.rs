//! One client of the owner: a thread reads its questions and answers them.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::answering::{Answering, Later, Status};
use super::clients::Clients;
use super::fields::{Fields, TooShort};
#[cfg(feature = "forward")]
use super::forwarding::Forwarding;
use super::frame::{Call, HEADER_LEN, Header, MAX_BODY, MAX_MESSAGE};
use super::input::Input;
use super::output::{EMPTY, OK, Output, TIMED_OUT};
use super::patience::Patience;
use super::socket::is_connected;
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::threads::now;

/// How many waits of one client may be under way.
const MOST_WAITS: usize = 64;
/// How long a client may leave answers unread before the owner ends the connection.
pub(super) const UNREAD_FOR: Duration = Duration::from_secs(30);
/// How much memory for an answer is kept for the next one.
const MOST_KEPT: usize = 64 << 10;
/// How soon a client has to send its first frame.
const GREETED_IN: Duration = Duration::from_secs(5);
/// The longest body of a first frame.
const GREETING: u64 = 1 << 10;
/// After how many looks in vain this thread pauses.
const IN_VAIN: u32 = 16;
/// How long this thread does not look at consumers again whose messages went to other readers.
const PAUSE: Duration = Duration::from_millis(5);

/// A read that waits for a message.
#[derive(Debug)]
struct WaitingRead {
    number: u64,
    what: Later,
    deadline: Option<Instant>,
}

/// Serves one client, until it has gone or the queue is closed.
pub(super) struct Serving<'a> {
    clients: &'a Clients,
    stream: &'a UnixStream,
    answering: Answering<'a>,
    output: Output<'a>,
    waits: VecDeque<WaitingRead>,
    /// Whether a descriptor was readable before the last look, and how often in turn a look found
    /// nothing then.
    was_ready: bool,
    in_vain: u32,
    patience: Patience,
    #[cfg(feature = "forward")]
    forwarding: Option<Forwarding>,
    /// The body of the answer under way.
    body: Vec<u8>,
}

impl<'a> Serving<'a> {
    pub(super) fn new(clients: &'a Clients, stream: &'a UnixStream) -> Serving<'a> {
        Serving {
            clients,
            stream,
            answering: Answering::new(&clients.engine, stream),
            output: Output::new(stream),
            waits: VecDeque::new(),
            was_ready: false,
            in_vain: 0,
            patience: Patience::default(),
            #[cfg(feature = "forward")]
            forwarding: None,
            body: Vec::new(),
        }
    }

    /// Serves the client. What it has in flight goes back to the queue when this is dropped.
    pub(super) fn run(&mut self) -> io::Result<()> {
        self.stream.set_write_timeout(Some(UNREAD_FOR))?;
        let mut input = Input::new();
        if !self.greet(&mut input)? {
            return Ok(());
        }
        loop {
            while let Some((header, at)) = input.next() {
                self.question(header, input.body(at));
                // What the client has in flight goes back when it is gone, not when all that it
                // asked is done.
                if Call::of(header.kind).is_some_and(Call::may_last) && !is_connected(self.stream) {
                    return Ok(());
                }
            }
            if input.header().is_some_and(|header| header.len > MAX_BODY) {
                return self.refuse_too_long(&input);
            }
            self.look_at_waits();
            self.output.send()?;
            let may_read = self.waits.is_empty() || self.wait()?;
            if may_read && input.fill_soon(self.stream)? == 0 {
                return Ok(());
            }
        }
    }

    /// Answers the first frame, which has to come soon. Returns whether it is one of this protocol.
    fn greet(&mut self, input: &mut Input) -> io::Result<bool> {
        let until = now() + GREETED_IN;
        let (header, at) = loop {
            if let Some(frame) = input.next() {
                break frame;
            }
            let left = until.saturating_duration_since(now());
            // No time at all would be no limit.
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let is_longer = input.header().is_some_and(|header| header.len > GREETING);
            if is_longer || input.fill(self.stream)? == 0 {
                return Ok(false);
            }
        };
        self.stream.set_read_timeout(None)?;
        let greeted = self.answering.greet(header, input.body(at), &mut self.body);
        match &greeted {
            Ok(()) => self.output.answer(header.number, OK, &self.body),
            Err(error) => self.output.error(header.number, error),
        }
        self.output.send()?;
        Ok(greeted.is_ok())
    }

    fn question(&mut self, header: Header, body: &[u8]) {
        self.body.clear();
        self.body.shrink_to(MOST_KEPT);
        let call = Call::of(header.kind);
        let status = match call {
            Some(Call::Clients) => {
                self.clients.put_connected(&mut self.body);
                Ok(Status::Done)
            }
            Some(Call::EndWait) => self.end_wait(body),
            Some(call) if call.is_of_forwarder() => self.forward(call, header, body),
            Some(call) => self.answering.answer(call, header, body, &mut self.body),
            None => Err(self.answering.invalid("call", format!("{} is unknown", header.kind))),
        };
        let status = match status {
            Ok(Status::Later { what, wait }) => return self.read(header.number, what, wait),
            status => status,
        };
        if header.number != 0 {
            match status {
                Ok(_) => self.output.answer(header.number, OK, &self.body),
                Err(error) => self.output.error(header.number, &error),
            }
        }
    }

    /// Does what the client's forwarder asks. It forwards one consumer.
    #[cfg(feature = "forward")]
    fn forward(&mut self, call: Call, header: Header, body: &[u8]) -> Result<Status> {
        let forwarding = match &mut self.forwarding {
            _ if header.number == 0 => return Ok(Status::Done),
            Some(forwarding) if forwarding.is_of(header.consumer) => forwarding,
            Some(_) => {
                let reason = "this connection forwards another one: connect once more";
                return Err(self.answering.invalid("consumer", reason.into()));
            }
            none if call == Call::ForwardBegin => {
                let consumer = self.answering.existing(header.consumer)?;
                let (stream, engine) = (self.stream, &self.clients.engine);
                let is_there = || is_connected(stream);
                none.insert(Forwarding::begin(is_there, engine, (header.consumer, &consumer))?)
            }
            None => return Err(self.answering.invalid("call", "it has to begin first".into())),
        };
        let answer = (&mut self.output, &mut self.body);
        let done = forwarding.answer(call, header.number, Fields(body), answer);
        done.unwrap_or_else(|TooShort| Err(self.answering.too_short(call))).map(|()| Status::Done)
    }

    #[cfg(not(feature = "forward"))]
    fn forward(&mut self, _: Call, _: Header, _: &[u8]) -> Result<Status> {
        let reason = "the owner was built without forwarding; let it end, or forward in it";
        Err(self.answering.invalid("call", reason.into()))
    }

    /// Answers the wait whose number this body names, if it is still under way.
    fn end_wait(&mut self, body: &[u8]) -> Result<Status> {
        let number =
            Fields(body).u64().map_err(|TooShort| self.answering.too_short(Call::EndWait))?;
        if let Some(at) = self.waits.iter().position(|wait| wait.number == number)
            && let Some(wait) = self.waits.remove(at)
        {
            self.output.answer(wait.number, TIMED_OUT, &[]);
        }
        Ok(Status::Done)
    }

    /// Answers a read now, in the order of the questions, if there is something or it may not wait.
    fn read(&mut self, number: u64, what: Later, wait: Option<Duration>) {
        if number == 0 {
            // Nobody would get the message.
            return;
        }
        match self.answering.read(number, what, &mut self.output) {
            Ok(ControlFlow::Break(())) => {}
            Err(error) => self.output.error(number, &error),
            Ok(ControlFlow::Continue(())) if wait == Some(Duration::ZERO) => {
                self.output.answer(number, EMPTY, &[]);
            }
            Ok(ControlFlow::Continue(())) if self.waits.len() >= MOST_WAITS => {
                let reason = format!("{MOST_WAITS} of this connection are under way already");
                let error = self.answering.invalid("wait", reason);
                self.output.error(number, &error);
            }
            Ok(ControlFlow::Continue(())) => {
                let deadline = wait.and_then(|wait| now().checked_add(wait));
                self.waits.push_back(WaitingRead { number, what, deadline });
            }
        }
    }

    /// Answers the waits that have a message, an error, or no time left.
    fn look_at_waits(&mut self) {
        let before = self.waits.len();
        for _ in 0..before {
            let Some(wait) = self.waits.pop_front() else { break };
            let answered = self.answering.read(wait.number, wait.what, &mut self.output);
            let is_late = || wait.deadline.is_some_and(|deadline| deadline <= now());
            match answered {
                Ok(ControlFlow::Break(())) => {}
                Err(error) => self.output.error(wait.number, &error),
                Ok(ControlFlow::Continue(())) if is_late() => {
                    self.output.answer(wait.number, TIMED_OUT, &[]);
                }
                Ok(ControlFlow::Continue(())) => self.waits.push_back(wait),
            }
        }
        let was_in_vain = self.was_ready && self.waits.len() == before;
        self.in_vain = if was_in_vain { self.in_vain + 1 } else { 0 };
    }

    /// Sleeps until the client sends something, a message waits for it, or a wait has no time left.
    /// Returns whether there is something to read.
    fn wait(&mut self) -> io::Result<bool> {
        let deadline = self.waits.iter().filter_map(|wait| wait.deadline).min();
        let left = deadline.map(|until| until.saturating_duration_since(now()));
        let ready = self.answering.ready(self.waits.iter().map(|wait| wait.what));
        let mut fds = vec![PollFd::new(self.stream, PollFlags::IN)];
        self.was_ready = false;
        // Other readers take what makes the descriptors readable; or there is none left to make, or
        // the consumer is gone, of which the next look tells the client.
        let Some(ready) = ready.ok().filter(|_| self.in_vain <= IN_VAIN) else {
            poll_for(&mut fds, Some(left.unwrap_or(PAUSE).min(PAUSE)))?;
            return Ok(!fds[0].revents().is_empty());
        };
        fds.extend(ready.iter().map(|ready| PollFd::from_borrowed_fd(*ready, PollFlags::IN)));
        self.patience.wait(|time| {
            poll_for(&mut fds, time.or(left))?;
            Ok(fds.iter().any(|fd| !fd.revents().is_empty()).then_some(()))
        })?;
        let has_come = !fds[0].revents().is_empty();
        self.was_ready = fds.iter().skip(1).any(|fd| !fd.revents().is_empty());
        Ok(has_come)
    }

    /// Answers the question whose body is longer than the owner keeps, and ends the connection.
    fn refuse_too_long(&mut self, input: &Input) -> io::Result<()> {
        let Some(Header { number, len, .. }) = input.header() else { return Ok(()) };
        let path = self.clients.engine.core.storage.path().to_owned();
        let len = len.saturating_sub(HEADER_LEN as u64);
        let error = Error::MessageTooLarge { path, len, max: MAX_MESSAGE, max_bytes: None };
        self.output.error(number, &error);
        self.output.send()
    }
}

/// Waits for one of the descriptors; `None`: for ever.
fn poll_for(fds: &mut [PollFd<'_>], wait: Option<Duration>) -> io::Result<()> {
    let wait = wait.map(|wait| Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    });
    match poll(fds, wait.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
