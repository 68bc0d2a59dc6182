//! A queue in memory, with the two places of a forwarder: tests kill it, cut its power, drop its
//! messages, and restore it from an older copy.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Gap, GapCause, Result};
use crate::forward::local::{Acknowledged, Local, NextRead, chained};
use crate::message::Message;
use crate::tests::sim::Rng;

/// The first byte of a message that the far side never accepts.
pub(super) const POISON: u8 = 1;
/// The far side never accepts longer messages, either.
pub(super) const LONGEST: usize = 40;

#[derive(Debug, Clone)]
pub(super) struct Numbered {
    /// The bytes of the message, also after it is lost.
    pub(super) bytes: Vec<u8>,
    pub(super) gone: Option<GapCause>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Near {
    pub(super) numbers: Vec<Numbered>,
    /// What messages are long: most of them up to so many bytes more than the shortest, a few
    /// exactly so many, and the longest that the far side takes.
    pub(super) lengths: (u64, usize, usize),
    /// The number where the forwarder began.
    pub(super) began: u64,
    /// The queue dropped every number below.
    pub(super) dropped: u64,
    pub(super) acknowledged: Acknowledged,
    pub(super) kept: u64,
    durable_messages: usize,
    pub(super) durable: (Acknowledged, u64),
    /// What was stored since the last flush: a power cut may leave any of it.
    since: Vec<Acknowledged>,
    /// The number of the next read.
    read_at: u64,
    /// The number at which the last reading began.
    pub(super) read_from: u64,
}

impl Near {
    pub(super) fn next(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Enqueues messages that no queue with another `life` has, except empty ones.
    pub(super) fn enqueue(&mut self, rng: &mut Rng, life: u8) {
        let first = if rng.percent(3) { POISON } else { 0 };
        let mut bytes = vec![first, life];
        bytes.extend((self.next() as u32).to_le_bytes());
        let (more, long, _) = self.lengths;
        let len = if rng.percent(3) { long } else { bytes.len() + rng.below(more) as usize };
        bytes.resize(len.max(bytes.len()), 7);
        self.numbers.push(Numbered { bytes, gone: None });
    }

    /// A queue with messages of these lengths, of which `began` were taken before the forwarder.
    pub(super) fn used(lengths: (u64, usize, usize), began: u64, rng: &mut Rng) -> Near {
        let mut near = Near { lengths, began, kept: began, ..Near::default() };
        (0..began).for_each(|_| near.enqueue(rng, 0));
        near.acknowledged = Acknowledged::until(began);
        near.flush_all();
        near
    }

    pub(super) fn flush_all(&mut self) {
        self.durable_messages = self.numbers.len();
        self.durable = (self.acknowledged, self.kept);
        self.since.clear();
    }

    pub(super) fn place(&self) -> u64 {
        self.acknowledged.until.max(self.kept)
    }

    /// May lose unflushed messages, unless it `keeps` them; their numbers, and some behind them,
    /// are not assigned again.
    pub(super) fn lose_power(&mut self, rng: &mut Rng, keeps: bool) {
        if keeps {
            self.durable_messages = self.numbers.len();
        }
        let unflushed = self.numbers.len() - self.durable_messages;
        let left = self.durable_messages + rng.below(unflushed as u64 + 1) as usize;
        if left < self.numbers.len() || !keeps && rng.percent(30) {
            for number in &mut self.numbers[left..] {
                number.gone.get_or_insert(GapCause::Unflushed);
            }
            for _ in 0..rng.below(4) {
                let gone = Some(GapCause::Reserved);
                self.numbers.push(Numbered { bytes: Vec::new(), gone });
            }
        }
        let between = |rng: &mut Rng, durable: u64, now: u64| {
            if now <= durable {
                return if rng.percent(50) { durable } else { now };
            }
            durable + rng.below(now - durable + 1)
        };
        let left = rng.below(self.since.len() as u64 + 1) as usize;
        self.acknowledged = left.checked_sub(1).map_or(self.durable.0, |left| self.since[left]);
        self.kept = between(rng, self.durable.1, self.kept);
        // As the opening does it.
        let Acknowledged { handed, position, .. } = self.acknowledged;
        if position.is_none() {
            self.acknowledged.handed = handed.max(self.next());
        }
        self.flush_all();
    }

    pub(super) fn drop_up_to(&mut self, number: u64) {
        self.dropped = self.dropped.max(number.min(self.next()));
    }

    fn is_missing(&self, number: u64) -> bool {
        number < self.dropped || self.numbers[number as usize].gone.is_some()
    }

    /// Returns whether the number was ever missing for a cause in the queue.
    pub(super) fn may_be_missing(&self, number: u64) -> bool {
        number < self.next() && self.is_missing(number)
    }

    fn gap_at(&self, number: u64) -> Option<Gap> {
        if number < self.dropped {
            let cause = GapCause::Dropped;
            return Some(Gap { first: number, last: self.dropped - 1, cause });
        }
        let cause = self.numbers.get(number as usize)?.gone?;
        let more = self.numbers[number as usize..].iter();
        let count = more.take_while(|number| number.gone == Some(cause)).count() as u64;
        Some(Gap { first: number, last: number + count - 1, cause })
    }
}

/// The driver's access to it.
#[derive(Debug, Clone)]
pub(super) struct NearHandle(pub(super) Rc<RefCell<Near>>);

impl Local for NearHandle {
    fn acknowledged(&self) -> Acknowledged {
        let near = self.0.borrow();
        let (kept, stored) = (near.kept, near.acknowledged);
        if kept > stored.until {
            let counts_differ = stored.counts_differ;
            return Acknowledged { counts_differ, ..Acknowledged::until(kept) };
        }
        stored
    }

    fn next_number(&self) -> u64 {
        self.0.borrow().next()
    }

    fn began(&self) -> u64 {
        self.0.borrow().began
    }

    fn oldest(&self) -> u64 {
        let near = self.0.borrow();
        near.kept.max(near.dropped)
    }

    fn chain_over(&mut self, from: u64, sum: u32, to: u64) -> Result<Option<u32>> {
        let held = self.oldest();
        let near = self.0.borrow();
        let is_there = |number: &u64| *number < near.next() && !near.is_missing(*number);
        if from < to && (from < held || !(from..to).all(|number| is_there(&number))) {
            return Ok(None);
        }
        let bytes = (from..to).map(|number| &near.numbers[number as usize].bytes);
        Ok(Some(bytes.fold(sum, |sum, bytes| chained(sum, bytes))))
    }

    fn read_from(&mut self, from: u64) -> Result<()> {
        let mut near = self.0.borrow_mut();
        (near.read_at, near.read_from) = (from, from);
        Ok(())
    }

    fn read(&mut self) -> Result<NextRead> {
        let mut near = self.0.borrow_mut();
        if near.read_at >= near.next() {
            return Ok(NextRead::Nothing);
        }
        if let Some(gap) = near.gap_at(near.read_at) {
            near.read_at = gap.last + 1;
            return Ok(NextRead::Gap(gap));
        }
        let seq = near.read_at;
        near.read_at += 1;
        let bytes = near.numbers[seq as usize].bytes.clone();
        Ok(NextRead::Message(Message::owned(seq, bytes)))
    }

    fn wait(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn set_acknowledged(&mut self, acknowledged: Acknowledged) -> Result<()> {
        let mut near = self.0.borrow_mut();
        let until = acknowledged.until;
        assert!(until <= near.next(), "a place behind the end");
        assert!(until >= near.kept, "{until} lies before {}, the kept place", near.kept);
        near.acknowledged = acknowledged;
        near.since.push(acknowledged);
        Ok(())
    }

    fn kept(&self) -> u64 {
        self.0.borrow().kept
    }

    fn kept_bytes(&self) -> u64 {
        let near = self.0.borrow();
        let held = near.kept as usize..near.place() as usize;
        near.numbers[held].iter().map(|number| number.bytes.len() as u64).sum()
    }

    fn move_kept(&mut self, to: u64) -> Result<()> {
        let mut near = self.0.borrow_mut();
        assert!(to <= near.place(), "the kept place passes the place");
        near.kept = near.kept.max(to);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.borrow_mut().flush_all();
        Ok(())
    }
}
