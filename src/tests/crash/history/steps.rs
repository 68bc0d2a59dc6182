//! What each step does to the queue and to the model, and what it must answer.

use std::cell::Cell;
use std::rc::Rc;

use super::{History, Step};
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Error, GapCause, Result};
use crate::segment::overhead;
use crate::storage::Storage;
use crate::tests::crash::examine::{
    Queue, check_accounts, consumer_of, dropped_of, durable_of, next_of, oldest_of, open,
    prepare_ahead,
};
use crate::tests::crash::model::{Check, Model, ensure};
use crate::tests::in_parts;
use crate::tests::sim::{forget_meanwhile, meanwhile};

impl History {
    pub(super) fn perform(&mut self, step: &Step, during: &mut Model) -> Check {
        let queue = self.queue()?.clone();
        match step {
            Step::Enqueue(len) => self
                .enqueue(&[*len], during, |bytes| queue.enqueue(&bytes[0]).map(|seq| seq..seq + 1)),
            Step::Parts(len) => self.enqueue(&[*len], during, |bytes| {
                queue.enqueue_parts(&in_parts(&bytes[0])).map(|seq| seq..seq + 1)
            }),
            Step::Batch(lens) => {
                self.enqueue(lens, during, |messages| queue.enqueue_batch(messages))
            }
            Step::Read(name, what) => self.read(&queue, name, *what).map(|_| ()),
            Step::Drain(name, most) => {
                for _ in 0..*most {
                    if !self.read(&queue, name, Read::Take)? {
                        break;
                    }
                }
                Ok(())
            }
            Step::Add(name) => self.add(&queue, name),
            Step::Remove(name) => match queue.remove_consumer(name) {
                Ok(()) => {
                    self.model.remove_consumer(name);
                    Ok(())
                }
                Err(Error::NotFound { .. }) if self.model.place(name).is_none() => Ok(()),
                Err(error) => Err(format!("cannot remove {name:?}: {error}")),
            },
            Step::Fork(from, name) => self.fork(&queue, from, name),
            Step::Seek(name, seq) => self.seek(&queue, name, *seq),
            Step::Receive(name, most) => self.receive(&queue, name, *most),
            Step::Answer(name, which, done) => self.answer(&queue, name, *which, *done),
            Step::Clock(by) => {
                match u64::try_from(*by) {
                    Ok(by) => {
                        queue.core.storage.advance_clock(by);
                        self.model.elapsed += by;
                    }
                    Err(_) => queue.core.storage.set_back_clock(by.unsigned_abs()),
                }
                self.model.note_clock(queue.core.storage.now());
                Ok(())
            }
            Step::Look => {
                queue.expire();
                self.model.check_expired(oldest_of(&queue), self.model.clock)?;
                self.expires_in_time(&queue)
            }
            Step::Flush => {
                queue.core.flush().map_err(|error| format!("does not flush: {error}"))?;
                self.flushed(&queue)
            }
            Step::WaitDurable => {
                let tail = queue.core.committed_spot();
                queue.core.flush_to(tail).map_err(|error| format!("does not flush: {error}"))?;
                ensure!(
                    durable_of(&queue) == tail.seq,
                    "durable is {}, waited for {}",
                    durable_of(&queue),
                    tail.seq
                );
                self.claim(&queue);
                Ok(())
            }
            Step::Prepare => {
                prepare_ahead(&queue);
                check_accounts(&queue)
            }
            Step::Close => {
                queue.close().map_err(|error| format!("does not close: {error}"))?;
                let consumers = self.model.consumers.values_mut();
                consumers.for_each(|consumer| consumer.attempts.in_flight.clear());
                self.model.claimed = self.model.claimed.max(next_of(&queue));
                self.model.flush_places();
                Ok(())
            }
        }
    }

    /// At the moment when the first message may be held no longer, it is not, also when the queue
    /// was killed and opened again.
    fn expires_in_time(&self, queue: &Queue) -> Check {
        let Some(overdue) = self.model.first_overdue(oldest_of(queue)) else {
            return Ok(());
        };
        let killed = queue.core.storage.process_kill();
        killed.advance_clock(overdue - self.model.clock);
        let opened = open(killed, &self.options)?;
        self.model.check_expired(oldest_of(&opened), overdue)
    }

    fn claim(&mut self, queue: &Queue) {
        self.model.claimed = self.model.claimed.max(durable_of(queue));
    }

    fn flushed(&mut self, queue: &Queue) -> Check {
        let (durable, next) = (durable_of(queue), next_of(queue));
        ensure!(durable == next, "flushed: durable is {durable} of {next}");
        self.claim(queue);
        self.model.flush_places();
        Ok(())
    }

    fn enqueue(
        &mut self,
        lens: &[usize],
        during: &mut Model,
        write: impl FnOnce(&[Vec<u8>]) -> Result<std::ops::Range<u64>>,
    ) -> Check {
        let queue = self.queue()?.clone();
        let first = next_of(&queue);
        let messages = self.model.try_messages(first, lens);
        during.clone_from(&self.model);
        let range = first..first + lens.len() as u64;
        let crowded = note_crowding(&queue);
        let written = write(&messages);
        let _ = forget_meanwhile();
        if let Some(Crowding { first, used }) = crowded.take() {
            let limit = self.options.max_bytes.unwrap_or(u64::MAX);
            let segment = queue.core.pool.geometry().most_len;
            ensure!(
                used + segment + overhead(segment) > limit,
                "messages live longer although {used} bytes are used of {limit}"
            );
            self.model.live_longer(first);
            during.live_longer(first);
        }
        match written {
            Ok(got) => {
                ensure!(got == range, "got the numbers {got:?}, expected {range:?}");
                self.model.acknowledge(range.clone())?;
                self.counted(&queue, lens.len() as u64)?;
                let every = self.options.flush_every_ops;
                ensure!(
                    every != Some(1) || durable_of(&queue) == range.end,
                    "enqueued and not durable"
                );
            }
            Err(Error::Full { .. } | Error::MessageTooLarge { .. }) => {
                self.model.dropped = self.model.dropped.max(dropped_of(&queue));
                self.trace.push("  refused".into());
                self.model.refuse(range);
                self.refused = Some(lens.to_vec());
            }
            Err(error) => return Err(format!("does not enqueue: {error}")),
        }
        Ok(())
    }

    /// So many operations were done: the one that makes the number has flushed.
    pub(super) fn counted(&mut self, queue: &Queue, count: u64) -> Check {
        let before = self.operations;
        self.operations += count;
        match self.options.flush_every_ops {
            Some(1) => self.claim(queue),
            Some(every) if self.operations / every > before / every => self.flushed(queue)?,
            _ => {}
        }
        Ok(())
    }

    /// False when there was nothing to be read.
    fn read(&mut self, queue: &Queue, name: &str, what: Read) -> Check<bool> {
        self.add(queue, name)?;
        let consumer = consumer_of(queue, name)?;
        let found = match what {
            Read::Skip | Read::SkipMore => reading::skip(queue, &consumer),
            _ => reading::next(queue, &consumer, what)
                .map(|message| {
                    message.map(|message| {
                        (message.seq(), self.model.check_read(message.seq(), &message))
                    })
                })
                .and_then(|found| match found {
                    Some((seq, Ok(()))) => Ok(Some(seq)),
                    Some((_, Err(broken))) => {
                        Err(Error::InvalidArgument { path: None, what: "message", reason: broken })
                    }
                    None => Ok(None),
                }),
        };
        let reported = self.reported(queue, name, found)?;
        if let Some(Some(seq)) = reported
            && what != Read::Look
        {
            if let Some(consumer) = self.model.consumers.get_mut(name) {
                consumer.finish(seq..seq + 1);
            }
            self.model.note_place(name, consumer.seq())?;
            self.counted(queue, 1)?;
            if self.options.flush_every_ops == Some(1) {
                self.model.flush_places();
            }
        } else {
            self.model.note_place(name, consumer.seq())?;
        }
        Ok(reported.is_some())
    }

    /// What a read answered is what comes next for the consumer. The message's number; nothing
    /// inside for a gap, nothing at all at the end.
    pub(super) fn reported(
        &mut self,
        queue: &Queue,
        name: &str,
        found: Result<Option<u64>>,
    ) -> Check<Option<Option<u64>>> {
        self.model.dropped = self.model.dropped.max(dropped_of(queue));
        let expected = self.model.consumers.get(name).map_or(0, |consumer| consumer.expected());
        match found {
            Ok(Some(seq)) => {
                ensure!(seq == expected, "{name:?} gets {seq}, and {expected} comes next");
                let consumer = self.model.consumers.get(name);
                let is_rejected = consumer.is_some_and(|consumer| consumer.reports_rejected());
                ensure!(!is_rejected, "{name:?} gets {seq}, which was rejected");
                ensure!(self.model.messages.contains_key(&seq), "message {seq} was never enqueued");
                Ok(Some(Some(seq)))
            }
            Ok(None) => {
                let next = next_of(queue);
                ensure!(expected == next, "{name:?} at {expected} finds nothing below {next}");
                // What it has dealt with was passed over.
                self.model.note_place(name, consumer_of(queue, name)?.seq())?;
                Ok(None)
            }
            Err(Error::Gap(gap)) => {
                ensure!(
                    gap.first == expected,
                    "{gap:?} is reported to {name:?}, and {expected} comes next"
                );
                let consumer = self.model.consumers.get(name);
                let is_rejected = consumer.is_some_and(|consumer| consumer.reports_rejected());
                if gap.cause == GapCause::Rejected {
                    let is_own = is_rejected && gap.first == gap.last;
                    ensure!(is_own, "{gap:?} is reported to {name:?}, which was not rejected");
                } else {
                    self.model.check_gap(&gap)?;
                }
                if let Some(consumer) = self.model.consumers.get_mut(name) {
                    if is_rejected {
                        consumer.attempts.report_rejected(gap.first);
                    }
                    consumer.finish(gap.first..gap.last + 1);
                }
                self.model.note_place(name, consumer_of(queue, name)?.seq())?;
                Ok(Some(None))
            }
            Err(error) => Err(format!("{name:?} at {expected} cannot read: {error}")),
        }
    }

    pub(super) fn add(&mut self, queue: &Queue, name: &str) -> Check {
        if self.model.place(name).is_none() {
            let place = consumer_of(queue, name)?.seq();
            let needed = self.model.released;
            ensure!(
                self.model.is_gone(needed..place),
                "{name:?} begins at {place}, needed {needed}"
            );
            self.model.add_consumer(name, place);
        }
        Ok(())
    }

    fn fork(&mut self, queue: &Queue, from: &str, name: &str) -> Check {
        self.add(queue, from)?;
        let place = self.model.place(from).unwrap_or(0);
        match queue.fork(&*consumer_of(queue, from)?, name) {
            Ok(consumer) => {
                ensure!(
                    consumer.seq() == place,
                    "{name:?} begins at {}, not at {place}",
                    consumer.seq()
                );
                self.model.add_consumer(name, place);
                self.model.copy_finished(from, name, place);
            }
            Err(Error::InvalidArgument { .. }) if self.model.place(name).is_some() => {}
            Err(error) => return Err(format!("cannot fork: {error}")),
        }
        Ok(())
    }

    fn seek(&mut self, queue: &Queue, name: &str, seq: u64) -> Check {
        self.add(queue, name)?;
        let consumer = consumer_of(queue, name)?;
        match queue.seek(&consumer, seq) {
            Ok(()) => {
                let place = consumer.seq();
                let gone = self.model.is_gone(seq..seq + 1);
                ensure!(place == seq || gone, "{name:?} was to go to {seq} and stands at {place}");
                self.model.move_to(name, place);
                Ok(())
            }
            Err(Error::NotFound { .. }) if self.model.is_gone(seq..seq + 1) => Ok(()),
            Err(error) => {
                Err(format!("cannot seek {seq}, held from {}: {error}", self.model.released))
            }
        }
    }
}

/// What there was when the tail's segment went on for want of room for another one.
#[derive(Clone, Copy)]
struct Crowding {
    /// The number of the segment's first message.
    first: u64,
    /// Bytes of disk that the queue's files took.
    used: u64,
}

/// Notes when the tail's segment goes on for want of room during the next call.
fn note_crowding(queue: &Queue) -> Rc<Cell<Option<Crowding>>> {
    let noted = Rc::new(Cell::new(None));
    let (queue, note) = (queue.clone(), Rc::clone(&noted));
    meanwhile("no room behind the tail's segment", move || {
        // Each long segment may take a block more when its pages are written out.
        let list = queue.core.segments.list();
        let later: u64 = list.live.iter().map(|row| overhead(row.header.length)).sum();
        let used = queue.core.storage.named_bytes() + later;
        let tail = list.live.back().map(|row| row.header.first_seq);
        note.set(tail.map(|first| Crowding { first, used }));
    });
    noted
}
