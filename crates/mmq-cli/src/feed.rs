//! The messages of a consumer, now and as they come.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use mmq::{Delivery, Error, Gap, Handle, HandleConsumer, past_gaps};

use crate::failure::{Failure, Tried};
use crate::opening::{self, Opener};
use crate::signals::{Signals, Woken};

/// After how long a wait for messages looks whether a signal has come.
const SLICE: Duration = Duration::from_millis(50);

/// Whether attempts are counted over deaths of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptCounts {
    Forgotten,
    Stored,
}

/// Hands out the messages of a consumer, each once in this process: when another process that had
/// the queue open ends, what it had handed out comes again from the next owner.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    queue: Handle,
    consumer: HandleConsumer,
    signals: &'a Signals,
    /// What a wait has met, and nobody has asked for yet.
    met: Option<mmq::Result<Delivery>>,
    /// Messages that were handed out and are not settled. With those that came again meanwhile, the
    /// delivery that counts.
    held: BTreeMap<u64, Option<Delivery>>,
    /// Messages that are done, of which the owner may not have known when it ended.
    done: BTreeSet<u64>,
}

impl<'a> Feed<'a> {
    /// Opens the queue in `dir`, which must exist, as must the consumer.
    pub(crate) fn open(
        dir: &Path,
        name: &str,
        opener: Opener<'a>,
        attempts: AttemptCounts,
    ) -> Tried<Feed<'a>> {
        let queue = opener.open_existing(dir)?;
        let consumer = opening::consumer(&queue, name)?;
        if attempts == AttemptCounts::Stored {
            consumer.set_redelivery(None, None, None)?;
        }
        let (held, done) = (BTreeMap::new(), BTreeSet::new());
        Ok(Feed { queue, consumer, signals: opener.signals, met: None, held, done })
    }

    /// When the segment of the message was begun.
    pub(crate) fn segment_time(&self, seq: u64) -> Tried<Option<SystemTime>> {
        Ok(self.queue.segment_time(seq)?)
    }

    /// The next message; `None` when there is none now.
    pub(crate) fn next(&mut self, mut on_gap: impl FnMut(Gap)) -> Tried<Option<Delivery>> {
        loop {
            let (met, consumer) = (&mut self.met, &self.consumer);
            let receive = || match met.take() {
                Some(met) => met.map(Some),
                None => consumer.receive(),
            };
            let Some(delivery) = past_gaps(receive, &mut on_gap)? else {
                // What an owner did not know of has come again by now, or others have it.
                self.done.clear();
                return Ok(None);
            };
            let seq = delivery.seq();
            if self.done.remove(&seq) {
                self.ack([delivery])?;
            } else if let Some(held) = self.held.get_mut(&seq) {
                *held = Some(delivery);
            } else {
                self.held.insert(seq, None);
                return Ok(Some(delivery));
            }
        }
    }

    /// Waits until there is something for [`next`](Self::next), a signal comes, or the time is
    /// over.
    pub(crate) fn wait(&mut self, until: Option<Instant>) -> Tried<Woken> {
        while self.met.is_none() {
            if self.signals.stop().is_some() {
                return Ok(Woken::Stopped);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Woken::TimedOut);
            }
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            self.met = self.consumer.receive_timeout(slice).transpose();
        }
        Ok(Woken::Ready)
    }

    /// Says that messages are done.
    pub(crate) fn ack(&mut self, done: impl IntoIterator<Item = Delivery>) -> Tried<()> {
        let done: Vec<Delivery> = done.into_iter().map(|delivery| self.newest(delivery)).collect();
        let numbers: Vec<u64> = done.iter().map(Delivery::seq).collect();
        match Delivery::ack_batch(done) {
            // They come again from the next owner, and must not be handed out then.
            Err(Error::Disconnected { .. } | Error::Closed) => {
                self.done.extend(numbers);
                Ok(())
            }
            acknowledged => Ok(acknowledged?),
        }
    }

    /// Gives a message back, which comes again after the delay.
    pub(crate) fn give_back(&mut self, delivery: Delivery, delay: Duration) {
        self.newest(delivery).nack_after(delay);
    }

    /// Whether this process has the queue open itself.
    pub(crate) fn is_owner(&self) -> bool {
        self.queue.is_owner()
    }

    fn newest(&mut self, delivery: Delivery) -> Delivery {
        self.held.remove(&delivery.seq()).flatten().unwrap_or(delivery)
    }

    /// Makes everything durable and closes the queue, if this process has it open. What was handed
    /// out comes again: not counted as tried where it is dropped behind this call, and counted
    /// where it is dropped before.
    pub(crate) fn close(self) -> Tried<()> {
        self.queue.clone().close().map_err(Failure::from)
    }
}
