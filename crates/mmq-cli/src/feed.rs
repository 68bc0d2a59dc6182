//! The messages of a consumer, now and as they come.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use mmq::{Consumer, Delivery, Error, Gap, Inspector, Options, Queue, QueueState, past_gaps};

use crate::failure::{Failure, Tried};
use crate::opening::{Opener, Reads};
use crate::signals::{For, Signals, Woken};
use crate::turns::{Sign, WaitersTurn, somebody_waits};

/// How often a queue that somebody else may be writing to is looked at.
const INTERVAL: Duration = Duration::from_millis(50);
/// The same of one that is wanted back.
const BACK: Duration = Duration::from_millis(5);

/// Whether attempts are counted over deaths of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptCounts {
    Forgotten,
    Stored,
}

/// Until when a feed releases its queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Absence {
    /// Until there are more messages than these, or until that time.
    UntilMore(u64, Option<Instant>),
    /// Until one of those who wait for the queue has had it.
    ForATurn,
}

/// Hands out the messages of a consumer. It can release the queue: while nothing is there, so
/// that others can put messages in, and when somebody waits for it.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    dir: PathBuf,
    name: Option<String>,
    signals: &'a Signals,
    attempts: AttemptCounts,
    /// `None` while it has released the queue.
    open: Option<(Queue, Option<Consumer>)>,
}

impl<'a> Feed<'a> {
    /// Opens the queue in `dir`, which must exist, as must the consumer.
    pub(crate) fn open(
        dir: PathBuf,
        name: Option<String>,
        opener: Opener<'a>,
        attempts: AttemptCounts,
    ) -> Tried<Feed<'a>> {
        let queue = opener.open_existing(&dir)?;
        let mut feed = Feed { dir, name, signals: opener.signals, attempts, open: None };
        feed.begin(queue)?;
        Ok(feed)
    }

    fn begin(&mut self, queue: Queue) -> Tried<()> {
        let consumer = match Reads::of(&queue, self.name.as_deref())? {
            Reads::Own(_) => None,
            Reads::Named(consumer) => Some(consumer),
        };
        if self.attempts == AttemptCounts::Stored {
            match &consumer {
                Some(consumer) => Reads::Named(consumer.clone()).count_attempts()?,
                None => Reads::Own(&queue).count_attempts()?,
            }
        }
        self.open = Some((queue, consumer));
        Ok(())
    }

    /// The consumer, while the queue is open.
    pub(crate) fn reads(&self) -> Tried<Reads<'_>> {
        match &self.open {
            Some((_, Some(consumer))) => Ok(Reads::Named(consumer.clone())),
            Some((queue, None)) => Ok(Reads::Own(queue)),
            None => Err(Error::Closed.into()),
        }
    }

    /// When the segment of the message was begun.
    pub(crate) fn segment_time(&self, seq: u64) -> Option<SystemTime> {
        self.open.as_ref().and_then(|(queue, _)| queue.segment_time(seq))
    }

    /// The next message; `None` when there is none now.
    pub(crate) fn next(&self, on_gap: impl FnMut(Gap)) -> Tried<Option<Delivery>> {
        let reads = self.reads()?;
        Ok(past_gaps(|| reads.receive(), on_gap)?)
    }

    /// Whether somebody waits for the queue.
    pub(crate) fn is_wanted(&self) -> bool {
        somebody_waits(&self.dir)
    }

    /// Releases the queue, and opens it again. What was handed out comes again: not counted as
    /// tried where it is dropped behind this call, and counted where it is dropped before.
    pub(crate) fn release(&mut self, away: Absence) -> Tried<Woken> {
        self.close()?;
        let dir = self.dir.clone();
        let inspector = Inspector::open(&dir)?;
        let mut turn = WaitersTurn::begin(&dir);
        let mut sign = None;
        loop {
            let (every, until) = match away {
                Absence::UntilMore(_, until) => (INTERVAL, until),
                Absence::ForATurn => (BACK, None),
            };
            let next = Instant::now() + every;
            let next = until.map_or(next, |until| next.min(until));
            let woken = self.signals.wait(&[], For::Reading, Some(next))?;
            if woken == Woken::Stopped || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(woken);
            }
            let is_time = match away {
                Absence::UntilMore(than, _) => self.has_more(&inspector, than)?,
                Absence::ForATurn => turn.is_over(),
            };
            if !is_time {
                continue;
            }
            match Options::new().create(false).open(&dir) {
                Ok(queue) => {
                    self.begin(queue)?;
                    return Ok(Woken::Ready);
                }
                // Somebody was quicker. This one was interrupted, so it waits as they did.
                Err(Error::Locked { .. }) if matches!(away, Absence::ForATurn) => {
                    sign = Sign::show(&dir).or(sign);
                }
                Err(Error::Locked { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether nobody has the queue and there are more messages than those. A look from outside
    /// gets into nobody's way.
    fn has_more(&self, inspector: &Inspector, than: u64) -> Tried<bool> {
        let snapshot = match inspector.snapshot() {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => {
                return Ok(false);
            }
            snapshot => snapshot?,
        };
        let waiting = match self.name.as_deref() {
            None | Some("") => snapshot.messages,
            Some(name) => {
                let found = snapshot.consumers.iter().find(|consumer| consumer.name == name);
                let gone = || Failure::no_consumer(&self.dir, name);
                found.map(|consumer| consumer.messages).ok_or_else(gone)?
            }
        };
        Ok(snapshot.state != QueueState::Owned && waiting > than)
    }

    /// Makes everything durable, and releases the queue.
    pub(crate) fn close(&mut self) -> Tried<()> {
        match self.open.take() {
            Some((queue, _)) => queue.close().map_err(Failure::from),
            None => Ok(()),
        }
    }
}
