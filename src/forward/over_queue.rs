//! Connects the driver to a real queue.
//!
//! The place is the stored position of the forwarder's consumer. It moves by skipping
//! messages, as a reader does: a store for many, no sync. A cursor ahead of it reads the
//! messages. The kept place is the position of a second consumer, `NAME.kept`, created at the place
//! before that first moves. So a kill between the two loses no message that should be kept. The
//! second consumer is separate: a user who removes the forwarder's consumer must remove both.

use std::sync::Arc;
use std::time::Duration;

use crate::consume::consumer_state::ConsumerState;
use crate::engine::Engine;
use crate::engine::ahead::Ahead;
use crate::engine::reading::pass;
use crate::error::{Error, Gap, Result};
use crate::forward::local::{Local, NextRead, sum_of};
use crate::storage::FileStorage;
use crate::threads::now;

/// Returns the name of the second consumer.
pub(super) fn kept_name(name: &str) -> String {
    format!("{name}.kept")
}

type Marker = Arc<ConsumerState<FileStorage>>;

#[derive(Debug)]
pub(super) struct QueueLocal {
    pub(super) engine: Arc<Engine<FileStorage>>,
    place: Marker,
    /// `None` when the queue keeps nothing.
    kept: Option<Marker>,
    began: u64,
    ahead: Option<Ahead<FileStorage>>,
    /// The message or gap that a wait has read.
    waiting: Option<NextRead>,
    /// Gaps that the place has passed, and that reads may not have met.
    passed: Vec<Gap>,
    /// The number that the next read returns, unless it is missing.
    next: u64,
}

impl QueueLocal {
    /// Wraps a queue. Below `began` nothing was ever acknowledged.
    pub(super) fn new(engine: &Arc<Engine<FileStorage>>, place: &Marker, began: u64) -> QueueLocal {
        QueueLocal {
            engine: Arc::clone(engine),
            place: Arc::clone(place),
            kept: None,
            began,
            ahead: None,
            waiting: None,
            passed: Vec::new(),
            next: 0,
        }
    }

    /// Creates the second consumer, or removes it when the queue must keep nothing. One left over
    /// from a removed consumer of this name moves to the place.
    pub(super) fn keep_anything(&mut self, messages: u64) -> Result<()> {
        let name = kept_name(self.place.name());
        let is_there = self.engine.consumer_names().contains(&name);
        let is_new = self.place.seq() <= self.began && self.began > 0;
        if is_there && (messages == 0 || is_new) {
            self.engine.remove_consumer(&name)?;
        }
        self.kept = match messages {
            0 => None,
            _ if is_there && !is_new => Some(self.engine.consumer(&name)?),
            _ => Some(self.engine.fork(&self.place, &name)?),
        };
        Ok(())
    }
}

/// Moves a place forward over messages and gaps, many messages at a time: a kill within leaves the
/// place behind, and the far side says what it has.
fn pass_to(
    engine: &Engine<FileStorage>,
    place: &Marker,
    to: u64,
    mut on_gap: impl FnMut(Gap),
) -> Result<()> {
    while place.seq() < to {
        match pass(engine, place, to) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Error::Gap(gap)) => on_gap(gap),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Local for QueueLocal {
    fn place(&self) -> u64 {
        self.place.seq()
    }

    fn next_number(&self) -> u64 {
        self.engine.core.committed().spot().seq
    }

    fn began(&self) -> u64 {
        self.began
    }

    fn oldest(&self) -> u64 {
        let core = &self.engine.core;
        let kept = self.kept.as_ref().map_or(u64::MAX, |kept| kept.seq());
        core.oldest(core.visible_end()).seq.max(kept.min(self.place()))
    }

    fn sum(&mut self, seq: u64) -> Result<Option<u32>> {
        let consumer = self.kept.as_ref().unwrap_or(&self.place);
        if seq < self.oldest() {
            return Ok(None);
        }
        let mut ahead = match Ahead::at(&self.engine, consumer, seq) {
            Err(Error::NotFound { .. }) => return Ok(None),
            ahead => ahead?,
        };
        match ahead.next() {
            Some(Ok(message)) => Ok(Some(sum_of(&message)).filter(|_| message.seq() == seq)),
            Some(Err(Error::Gap(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    fn read_from_place(&mut self, from: u64) -> Result<()> {
        self.ahead = Some(Ahead::new(&self.engine, &self.place)?);
        self.waiting = None;
        self.next = from;
        Ok(())
    }

    fn read(&mut self) -> Result<NextRead> {
        if let Some(read) = self.waiting.take() {
            return Ok(read);
        }
        let next = self.next;
        self.passed.retain(|gap| gap.last >= next);
        if let Some(index) = self.passed.iter().position(|gap| gap.first <= next) {
            let gap = self.passed.swap_remove(index);
            self.next = gap.last + 1;
            return Ok(NextRead::Gap(gap));
        }
        let Some(ahead) = &mut self.ahead else {
            return Ok(NextRead::Nothing);
        };
        match ahead.next() {
            None => Ok(NextRead::Nothing),
            Some(Ok(message)) => {
                self.next = message.seq() + 1;
                Ok(NextRead::Message(message))
            }
            Some(Err(Error::Gap(gap))) => {
                self.next = gap.last + 1;
                Ok(NextRead::Gap(gap))
            }
            Some(Err(error)) => Err(error),
        }
    }

    fn wait(&mut self, wait: Duration) -> Result<()> {
        if self.waiting.is_some() {
            return Ok(());
        }
        let (engine, place) = (Arc::clone(&self.engine), Arc::clone(&self.place));
        let read = || match self.read()? {
            NextRead::Nothing => Ok(None),
            read => Ok(Some(read)),
        };
        match engine.wait(&place, now().checked_add(wait), read) {
            Ok(read) => self.waiting = read,
            Err(Error::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn move_place(&mut self, to: u64) -> Result<()> {
        pass_to(&self.engine, &self.place, to, |gap| self.passed.push(gap))
    }

    fn move_back(&mut self, to: u64) -> Result<()> {
        // Reads return again what the place has passed.
        self.passed.clear();
        self.engine.seek(&self.place, to)
    }

    fn kept(&self) -> u64 {
        self.kept.as_ref().map_or_else(|| self.place(), |kept| kept.seq())
    }

    fn kept_bytes(&self) -> u64 {
        let position = |place: &Marker| place.cell.spot().position;
        let kept = self.kept.as_ref().map_or(u64::MAX, position);
        position(&self.place).saturating_sub(kept)
    }

    fn move_kept(&mut self, to: u64) -> Result<()> {
        match &self.kept {
            Some(kept) => pass_to(&self.engine, kept, to.min(self.place()), drop),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.engine.core.flush()
    }
}
