//! Connects the driver to a real queue.
//!
//! The forwarder reads as a consumer of its own. The consumer's place is the kept place: the queue
//! keeps everything from there on. How far the far side has acknowledged stands in a row of the
//! index that belongs to the consumer: a store without a sync for each acknowledgement. A cursor
//! ahead of both reads the messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::consume::consumer_state::ConsumerState;
use crate::engine::Engine;
use crate::engine::ahead::Ahead;
use crate::engine::reading::pass;
use crate::error::{Error, Result};
use crate::format::ForwardSlot;
use crate::forward::far_side::Position;
use crate::forward::local::{Acknowledged, Local, NextRead, chained};
use crate::index::ForwardRow;
use crate::storage::{FileStorage, Storage};
use crate::threads::now;

type ForwardConsumer = Arc<ConsumerState<FileStorage>>;

/// The right to write a consumer's row. Its drop releases it, also in a panic.
#[derive(Debug)]
struct OnlyForwarder(ForwardConsumer);

impl Drop for OnlyForwarder {
    fn drop(&mut self) {
        self.0.end_forwarding();
    }
}

#[derive(Debug)]
pub(crate) struct QueueLocal {
    _only: OnlyForwarder,
    engine: Arc<Engine<FileStorage>>,
    consumer: ForwardConsumer,
    row: ForwardRow<<FileStorage as Storage>::File>,
    ahead: Option<Ahead<FileStorage>>,
    /// The message or gap that a wait has read.
    waiting: Option<NextRead>,
    /// Number and end position of each message that was read and is not acknowledged.
    ends: VecDeque<(u64, u64)>,
    /// Where the place lies, as far as it is known.
    place_at: u64,
}

impl QueueLocal {
    /// Wraps a queue and its consumer, which this may have begun. A new forwarder begins at the
    /// consumer's place. One at a time may read as a consumer.
    pub(crate) fn new(
        engine: &Arc<Engine<FileStorage>>,
        consumer: &ForwardConsumer,
    ) -> Result<QueueLocal> {
        let core = &engine.core;
        core.check_readable()?;
        if !consumer.begin_forwarding() {
            let reason = format!(
                "{:?} belongs to another forwarder, which runs; stop that one, or name a consumer of \
                 its own for this one",
                consumer.name()
            );
            return Err(Error::invalid_argument(core.storage.path(), "consumer", reason));
        }
        let only = OnlyForwarder(Arc::clone(consumer));
        let (row, began) = (consumer.row, consumer.seq());
        let row =
            core.with_index_room(|room| core.index.forward_row(row, consumer.name(), began, room))?;
        consumer.note_forwarded(row.stored());
        Ok(QueueLocal {
            _only: only,
            engine: Arc::clone(engine),
            consumer: Arc::clone(consumer),
            row,
            ahead: None,
            waiting: None,
            ends: VecDeque::new(),
            place_at: 0,
        })
    }

    /// Returns how many messages were read and are not acknowledged.
    pub(crate) fn in_flight(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn invalid(&self, what: &'static str, reason: String) -> Error {
        Error::invalid_argument(self.engine.core.storage.path(), what, reason)
    }

    fn ahead_at(&self, seq: u64) -> Result<Option<Ahead<FileStorage>>> {
        match Ahead::at(&self.engine, &self.consumer, seq) {
            Ok(ahead) => Ok(Some(ahead)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Local for QueueLocal {
    fn acknowledged(&self) -> Acknowledged {
        let (stored, kept) = (self.row.stored(), self.consumer.seq());
        if kept > stored.until {
            // Somebody moved the consumer on: what lies between was never sent.
            let counts_differ = stored.counts_differ;
            return Acknowledged { counts_differ, ..Acknowledged::until(kept) };
        }
        let position = stored.position.map(|(store, at)| Position { store, at });
        let ForwardSlot { until, there, chain, counts_differ, handed, .. } = *stored;
        Acknowledged { until, there, position, chain, counts_differ, handed }
    }

    fn next_number(&self) -> u64 {
        self.engine.core.committed().spot().seq
    }

    fn began(&self) -> u64 {
        self.row.stored().began
    }

    fn oldest(&self) -> u64 {
        let core = &self.engine.core;
        core.oldest(core.visible_end()).seq.max(self.consumer.seq())
    }

    fn chain_over(&mut self, from: u64, mut sum: u32, to: u64) -> Result<Option<u32>> {
        if from == to {
            return Ok(Some(sum));
        }
        let end = self.next_number();
        if from < self.oldest() || to > end {
            return Ok(None);
        }
        let Some(mut ahead) = self.ahead_at(from)? else { return Ok(None) };
        for seq in from..to {
            match ahead.next() {
                Some(Ok(message)) if message.seq() == seq => sum = chained(sum, &message),
                Some(Ok(_) | Err(Error::Gap(_))) | None => return Ok(None),
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(Some(sum))
    }

    fn read_from(&mut self, from: u64) -> Result<()> {
        let ahead = match self.ahead_at(from)? {
            Some(ahead) => ahead,
            // The queue has dropped that message: the reading reports a gap from the kept place on.
            None => Ahead::new(&self.engine, &self.consumer)?,
        };
        self.place_at = ahead.position();
        self.ahead = Some(ahead);
        self.ends.clear();
        self.waiting = None;
        Ok(())
    }

    fn read(&mut self) -> Result<NextRead> {
        if let Some(read) = self.waiting.take() {
            return Ok(read);
        }
        let Some(ahead) = &mut self.ahead else {
            return Ok(NextRead::Nothing);
        };
        match ahead.next() {
            None => Ok(NextRead::Nothing),
            Some(Ok(message)) => {
                self.ends.push_back((message.seq(), ahead.position()));
                Ok(NextRead::Message(message))
            }
            Some(Err(Error::Gap(gap))) => Ok(NextRead::Gap(gap)),
            Some(Err(error)) => Err(error),
        }
    }

    fn wait(&mut self, wait: Duration) -> Result<()> {
        if self.waiting.is_some() {
            return Ok(());
        }
        let (engine, consumer) = (Arc::clone(&self.engine), Arc::clone(&self.consumer));
        let read = || match self.read()? {
            NextRead::Nothing => Ok(None),
            read => Ok(Some(read)),
        };
        match engine.wait(&consumer, now().checked_add(wait), read) {
            Ok(read) => self.waiting = read,
            Err(Error::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn set_acknowledged(&mut self, acknowledged: Acknowledged) -> Result<()> {
        let Acknowledged { until, there, position, chain, counts_differ, handed } = acknowledged;
        while let Some((_, end)) = self.ends.front().filter(|(seq, _)| *seq < until) {
            self.place_at = *end;
            self.ends.pop_front();
        }
        let stored = *self.row.stored();
        let core = &self.engine.core;
        // (What is left out is passed without an acknowledgement.)
        let time = if there > stored.there { core.storage.now() } else { stored.time };
        let position = position.map(|Position { store, at }| (store, at));
        let (row, consumer) = (&mut self.row, &self.consumer);
        // After a close the files may belong to another process. The close waits for this lock.
        consumer.with_locked(|locked| {
            locked.check(core, consumer)?;
            row.store(ForwardSlot {
                until,
                there,
                position,
                chain,
                counts_differ,
                handed,
                time,
                ..stored
            });
            consumer.cell.count_change();
            Ok(())
        })?;
        self.consumer.note_forwarded(self.row.stored());
        Ok(())
    }

    fn kept(&self) -> u64 {
        self.consumer.seq()
    }

    fn kept_bytes(&self) -> u64 {
        self.place_at.saturating_sub(self.consumer.cell.spot().position)
    }

    fn move_kept(&mut self, to: u64) -> Result<()> {
        let to = to.min(self.place());
        while self.consumer.seq() < to {
            match pass(&self.engine, &self.consumer, to) {
                Ok(0) => break,
                // Reading ahead reports the gaps.
                Ok(_) | Err(Error::Gap(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.engine.core.flush()
    }

    fn max_bytes(&self) -> Option<u64> {
        self.engine.core.limits.max_bytes
    }

    fn segment_time(&self, seq: u64) -> Result<Option<SystemTime>> {
        Ok(self.engine.segment_time(seq))
    }

    fn acknowledged_at(&self) -> Option<SystemTime> {
        self.consumer.forwarded_at()
    }
}
