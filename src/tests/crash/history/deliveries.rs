//! Messages are handed out, and answered.

use std::time::Duration;

use super::{History, Work};
use crate::consume::redelivery_state::Rules;
use crate::consume::step::DeliveryToken;
use crate::engine::reading;
use crate::tests::crash::attempts::{Asked, Attempts};
use crate::tests::crash::examine::{Queue, consumer_of};
use crate::tests::crash::model::{Check, ensure};

/// Longer than any run.
const FOR_THE_RUN: Duration = Duration::from_secs(100_000);

impl History {
    /// The first receive of a run asks for redelivery, or does without.
    fn ask(&mut self, queue: &Queue, name: &str) -> Check {
        let consumer = consumer_of(queue, name)?;
        let more = &mut self.more;
        let Some(model) = self.model.consumers.get_mut(name) else { return Ok(()) };
        if model.attempts.asked != Asked::NotYet {
            return Ok(());
        }
        let most = [None, Some(1), Some(2), Some(3)][more.below(4) as usize];
        let is_asked = self.work == Work::Everything && more.percent(70);
        model.attempts.ask(if is_asked { Asked::Redelivery(most) } else { Asked::Deliveries });
        if is_asked {
            self.trace.push(format!("  {name:?} is redelivered, {most:?} times at most"));
            let rules = Rules { max_attempts: most, ..Rules::default() };
            let asked = queue.set_redelivery(&consumer, rules);
            asked.map_err(|error| format!("{name:?} cannot be redelivered: {error}"))?;
        }
        Ok(())
    }

    /// Has messages handed out.
    pub(super) fn receive(&mut self, queue: &Queue, name: &str, most: usize) -> Check {
        self.add(queue, name)?;
        self.ask(queue, name)?;
        let consumer = consumer_of(queue, name)?;
        for _ in 0..most {
            let mut answer = DeliveryToken::default();
            let found = queue.receive(&consumer, reading::AsMessage).map(|found| {
                found.map(|(message, handed)| {
                    answer = handed;
                    (message.seq(), self.model.check_read(message.seq(), &message))
                })
            });
            let broken = match &found {
                Ok(Some((_, broken))) => broken.clone(),
                _ => Ok(()),
            };
            broken?;
            let found = found.map(|found| found.map(|(seq, _)| seq));
            let Some(reported) = self.reported(queue, name, found)? else {
                break;
            };
            if let Some(seq) = reported {
                if let Some(consumer) = self.model.consumers.get_mut(name) {
                    let before = consumer.open.get(&seq).map(|handed| handed.attempts + 1);
                    let attempts = before.unwrap_or(consumer.attempts.first(seq));
                    ensure!(
                        answer.attempts == attempts,
                        "{name:?} gets {seq} the {}th time, not the {attempts}th",
                        answer.attempts
                    );
                    consumer.hand_out(seq, answer);
                }
                self.model.note_place(name, consumer.seq())?;
            }
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, queue: &Queue, name: &str, which: u64, done: bool) -> Check {
        let consumer = consumer_of(queue, name)?;
        let Some((seq, handed)) = self.model.in_flight(name, which) else {
            return Ok(());
        };
        if !done {
            return self.give_back(queue, name, seq, handed);
        }
        queue
            .ack(&consumer, seq, handed)
            .map_err(|error| format!("cannot acknowledge {seq}: {error}"))?;
        if let Some(consumer) = self.model.consumers.get_mut(name) {
            consumer.finish(seq..seq + 1);
        }
        self.model.note_place(name, consumer.seq())?;
        self.counted(queue, 1)?;
        if self.options.flush_every_ops == Some(1) {
            self.model.flush_places();
        }
        Ok(())
    }

    /// Gives a message back, at once or for the rest of the run, or rejects it.
    fn give_back(&mut self, queue: &Queue, name: &str, seq: u64, handed: DeliveryToken) -> Check {
        let consumer = consumer_of(queue, name)?;
        let Some(model) = self.model.consumers.get_mut(name) else { return Ok(()) };
        let has_room = model.attempts.stored.counts.len() < Attempts::MOST;
        let way = match self.more.below(4) {
            _ if !model.attempts.are_counted() => 0,
            _ if !has_room => return Ok(()),
            way => way,
        };
        if way == 3 {
            self.trace.push(format!("  rejected {seq}"));
            let rejected = queue.reject(&consumer, seq, handed);
            rejected.map_err(|error| format!("cannot reject {seq}: {error}"))?;
            model.attempts.reject(seq, handed.attempts);
        } else {
            let delay = (way == 2).then_some(FOR_THE_RUN);
            self.trace.push(format!("  gave back {seq}, {delay:?}"));
            queue.nack(&consumer, seq, handed, delay);
            if !model.attempts.give_back(seq, handed.attempts) {
            } else if delay.is_some() {
                model.attempts.delayed.insert(seq);
            } else {
                model.returned.insert(seq);
            }
        }
        Ok(())
    }
}
