//! The queue of a forwarder that is a client of the queue's owner.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::connection::Connection;
use super::fields::{Fields, put_milliseconds, put_u32, put_u64};
use super::forwarding::{ForwardPlaces, put_acknowledged};
use super::frame::Call;
use super::output::read_message;
use super::refusal::unreadable;
use crate::error::{Error, Result};
use crate::forward::local::{Acknowledged, Forwarded, Local, NextRead};
use crate::message::Message;
use crate::options::Start;
use crate::threads::now;

/// How old the places may become that the owner has said, while the forwarder has nothing to ask.
const OLD: Duration = Duration::from_millis(50);

/// A queue that another process has open, as the forwarder's driver uses it.
pub(super) struct RemoteLocal {
    /// By a connection of its own: an answer may take a while.
    connection: Connection,
    consumer: u16,
    places: ForwardPlaces,
    placed_at: Instant,
    /// What has been read ahead.
    read: VecDeque<NextRead>,
    may_go_on: Box<dyn Fn() -> Result<()>>,
}

impl RemoteLocal {
    /// `may_go_on` returns an error once the forwarder has to end.
    pub(super) fn begin(
        path: &Path,
        queue_id: [u8; 16],
        name: &str,
        may_go_on: impl Fn() -> Result<()> + 'static,
    ) -> Result<RemoteLocal> {
        let connection = Connection::open_of(path, queue_id)?;
        let consumer = connection.open_consumer(name, Start::Oldest)?;
        let answer = connection.ask(Call::ForwardBegin, consumer, &[])?;
        let places = connection.read(&answer, ForwardPlaces::read)?;
        let read = VecDeque::new();
        let (placed_at, may_go_on) = (now(), Box::new(may_go_on));
        Ok(RemoteLocal { connection, consumer, places, placed_at, read, may_go_on })
    }

    /// Asks something whose answer is where everything is then.
    fn ask(&mut self, call: Call, body: &[u8]) -> Result<()> {
        let answer = self.connection.ask(call, self.consumer, body)?;
        self.places = self.connection.read(&answer, ForwardPlaces::read)?;
        self.placed_at = now();
        Ok(())
    }

    /// Reads what comes next, after up to `wait`.
    fn read_ahead(&mut self, wait: Duration) -> Result<()> {
        let mut body = Vec::new();
        put_milliseconds(&mut body, Some(wait));
        let mut frames = match self.connection.ask_for_all(Call::ForwardRead, self.consumer, &body)
        {
            Err(Error::Gap(gap)) => {
                self.read.push_back(NextRead::Gap(gap));
                return Ok(());
            }
            frames => frames?,
        };
        let Some(last) = frames.pop() else {
            let what = "an answer without a frame".to_owned();
            return Err(unreadable(self.connection.path(), what));
        };
        for frame in frames {
            let (what, at) = self.connection.read(&frame, |Fields(body)| read_message(body))?;
            let mut bytes = frame.body;
            bytes.drain(..at);
            let message = Message::owned(what.seq, bytes).with_origin(what.origin);
            self.read.push_back(NextRead::Message(message));
        }
        self.places = self.connection.read(&last, ForwardPlaces::read)?;
        self.placed_at = now();
        Ok(())
    }
}

impl Local for RemoteLocal {
    fn acknowledged(&self) -> Acknowledged {
        self.places.acknowledged
    }

    fn next_number(&self) -> u64 {
        self.places.next
    }

    fn began(&self) -> u64 {
        self.places.began
    }

    fn oldest(&self) -> u64 {
        self.places.oldest
    }

    fn chain_over(&mut self, from: u64, sum: u32, to: u64) -> Result<Option<u32>> {
        let mut body = Vec::new();
        put_u64(&mut body, from);
        put_u64(&mut body, to);
        put_u32(&mut body, sum);
        let answer = self.connection.ask(Call::ForwardChain, self.consumer, &body)?;
        self.connection.read(&answer, |mut fields| {
            let (is_there, sum) = (fields.u32()? != 0, fields.u32()?);
            Ok(is_there.then_some(sum))
        })
    }

    fn read_from(&mut self, from: u64) -> Result<()> {
        self.read.clear();
        self.ask(Call::ForwardFrom, &from.to_le_bytes())
    }

    fn read(&mut self) -> Result<NextRead> {
        if self.read.is_empty() {
            self.read_ahead(Duration::ZERO)?;
        }
        Ok(self.read.pop_front().unwrap_or(NextRead::Nothing))
    }

    fn wait(&mut self, wait: Duration) -> Result<()> {
        if self.read.is_empty() { self.read_ahead(wait) } else { Ok(()) }
    }

    fn set_acknowledged(&mut self, acknowledged: Acknowledged) -> Result<()> {
        let mut body = Vec::new();
        put_acknowledged(&mut body, &acknowledged);
        self.ask(Call::ForwardAcknowledge, &body)
    }

    fn kept(&self) -> u64 {
        self.places.kept
    }

    fn kept_bytes(&self) -> u64 {
        self.places.kept_bytes
    }

    fn move_kept(&mut self, to: u64) -> Result<()> {
        self.ask(Call::ForwardKeep, &to.to_le_bytes())
    }

    fn flush(&mut self) -> Result<()> {
        self.connection.ask(Call::Flush, 0, &[]).map(drop)
    }

    fn segment_time(&self, seq: u64) -> Result<Option<SystemTime>> {
        self.connection.segment_time(seq)
    }

    fn acknowledged_at(&self) -> Option<SystemTime> {
        self.places.acknowledged_at
    }

    fn max_bytes(&self) -> Option<u64> {
        self.places.max_bytes
    }

    fn look(&mut self) -> Result<()> {
        (self.may_go_on)()?;
        if now().saturating_duration_since(self.placed_at) < OLD {
            return Ok(());
        }
        self.ask(Call::ForwardBegin, &[])
    }
}

/// What a client's forwarder forwards.
#[derive(Debug)]
pub(super) struct ClientForwarded {
    pub(super) path: PathBuf,
    pub(super) queue_id: [u8; 16],
    pub(super) consumer: String,
}

impl Forwarded for ClientForwarded {
    fn begin(&self) -> Result<Box<dyn Local>> {
        let local = RemoteLocal::begin(&self.path, self.queue_id, &self.consumer, || Ok(()))?;
        Ok(Box::new(local))
    }

    fn begins_again(&self, _: &Error) -> bool {
        false
    }
}
