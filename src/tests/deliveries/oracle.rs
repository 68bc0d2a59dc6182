//! What one consumer's deliveries must come to, in sets of numbers and with a clock of its own: the
//! naive side of the comparison.

use std::collections::{BTreeMap, BTreeSet};

/// The rules of a run, with times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) lease: Option<u64>,
    /// The first delay, and the longest.
    pub(super) backoff: Option<(u64, u64)>,
    pub(super) most: Option<u32>,
    /// Rejected messages go to another queue.
    pub(super) has_dead_letters: bool,
}

impl Wishes {
    fn delay(&self, attempts: u32) -> u64 {
        let Some((first, longest)) = self.backoff else { return 0 };
        (1..attempts).fold(first, |delay, _| 2 * delay).min(longest)
    }
}

/// What the queue for dead letters does with a dead letter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Takes,
    /// Each dead letter is refused.
    Refuses,
    /// A dead letter with an odd number is too large.
    OddTooLarge,
    /// What was put in cannot be made durable.
    CannotFlush,
}

/// Where a message is that was handed out in this run and is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// With a worker, until its lease ends.
    Out(Option<u64>),
    Back,
    Delayed(u64),
    Rejected,
    /// Rejected, and too large for a dead letter.
    Unsendable,
    /// Its dead letter was refused, and is tried again then.
    Refused(u64),
}

#[derive(Debug, Clone, Copy)]
struct Open {
    attempts: u32,
    is: Is,
}

/// What is stored of a message that was handed out in vain.
#[derive(Debug, Clone, Copy, Default)]
struct Vain {
    count: u32,
    is_rejected: bool,
}

/// What a read that hands out must give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    Message(u64),
    /// This number was rejected, and is reported as a gap.
    Rejected(u64),
    Nothing,
}

/// Which read it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Receive,
    Take,
    Look,
}

/// A delivery as a worker has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    pub(super) seq: u64,
    pub(super) attempts: u32,
    epoch: u64,
    pub(super) is_leased: bool,
}

/// What an answer comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    /// It has its effect.
    Heard,
    /// It changes nothing, for a seek has called the delivery off.
    CalledOff,
    /// The lease has ended.
    Expired,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Oracle {
    /// Messages that were put in.
    pub(super) end: u64,
    pub(super) now: u64,
    done: BTreeSet<u64>,
    open: BTreeMap<u64, Open>,
    epoch: u64,
    pub(super) limit: Option<u32>,
    /// `None`: the run asks for no redelivery.
    pub(super) wishes: Option<Wishes>,
    /// Of this run.
    pub(super) rejections: u64,
    /// Their dead letters went in, and could not be flushed.
    unflushed: BTreeSet<u64>,
    // What a next run is to know.
    vain: BTreeMap<u64, Vain>,
    /// Of all runs: number and attempts of each dead letter that was put in.
    pub(super) dead_letters: Vec<(u64, u32)>,
    pub(super) mood: Mood,
}

impl Oracle {
    /// Another run. After a death, each message that a worker had was handed out in vain.
    pub(super) fn reopen(&mut self, wishes: Option<Wishes>, is_death: bool) {
        let open = std::mem::take(&mut self.open).into_iter();
        for (seq, _) in open.filter(|(_, open)| is_death && matches!(open.is, Is::Out(_))) {
            if self.wishes.is_some() {
                self.vain.entry(seq).or_default().count += 1;
            }
        }
        self.unflushed.clear();
        (self.limit, self.rejections, self.wishes) = (None, 0, wishes);
    }

    pub(super) fn set_wishes(&mut self, wishes: Wishes) {
        self.wishes = Some(wishes);
        self.unflushed.clear();
        let comes_again = |open: &Open| matches!(open.is, Is::Back | Is::Delayed(_));
        let open = self.open.iter().filter(|(_, open)| comes_again(open));
        let spent: Vec<u64> = open.map(|(seq, _)| *seq).filter(|seq| self.is_spent(*seq)).collect();
        spent.into_iter().for_each(|seq| self.reject_open(seq));
    }

    pub(super) fn seek(&mut self, seq: u64) {
        self.epoch += 1;
        self.open.clear();
        self.done = (0..seq).collect();
        self.vain.clear();
        self.unflushed.clear();
    }

    fn is_spent(&self, seq: u64) -> bool {
        let vain = self.vain.get(&seq).copied().unwrap_or_default();
        let most = self.wishes.and_then(|wishes| wishes.most);
        self.wishes.is_some() && (vain.is_rejected || most.is_some_and(|most| vain.count >= most))
    }

    fn has_dead_letters(&self) -> bool {
        self.wishes.is_some_and(|wishes| wishes.has_dead_letters)
    }

    fn finish(&mut self, seq: u64) {
        self.open.remove(&seq);
        self.vain.remove(&seq);
        self.unflushed.remove(&seq);
        self.done.insert(seq);
    }

    fn put(&mut self, seq: u64, is: Is) {
        if let Some(open) = self.open.get_mut(&seq) {
            open.is = is;
        }
    }

    fn reject_open(&mut self, seq: u64) {
        let attempts = self.open.get(&seq).map_or(0, |open| open.attempts);
        let was = self.vain.insert(seq, Vain { count: attempts, is_rejected: true });
        if was.is_none_or(|was| !was.is_rejected) {
            self.rejections += 1;
        }
        self.put(seq, Is::Rejected);
    }

    fn give_back(&mut self, seq: u64, delay: Option<u64>) {
        let attempts = self.open.get(&seq).map_or(0, |open| open.attempts);
        let mut rules_delay = 0;
        if let Some(wishes) = self.wishes {
            self.vain.insert(seq, Vain { count: attempts, is_rejected: false });
            if self.is_spent(seq) {
                return self.reject_open(seq);
            }
            rules_delay = wishes.delay(attempts);
        }
        let delay = delay.unwrap_or(rules_delay);
        self.put(seq, if delay == 0 { Is::Back } else { Is::Delayed(self.now + delay) });
    }

    /// Leases and delays that are over end. True when there were any.
    pub(super) fn tick(&mut self) -> bool {
        let mut over = Vec::new();
        for (seq, open) in &self.open {
            match open.is {
                Is::Out(Some(due)) | Is::Delayed(due) | Is::Refused(due) if due <= self.now => {
                    over.push((*seq, open.is));
                }
                _ => {}
            }
        }
        for (seq, was) in &over {
            match was {
                Is::Out(_) => self.give_back(*seq, None),
                Is::Refused(_) => self.put(*seq, Is::Rejected),
                _ => self.put(*seq, Is::Back),
            }
        }
        !over.is_empty()
    }

    /// The queue is about to be closed: all dead letters are tried.
    pub(super) fn before_a_close(&mut self) {
        let refused = self.open.iter().filter(|(_, open)| matches!(open.is, Is::Refused(_)));
        for seq in refused.map(|(seq, _)| *seq).collect::<Vec<_>>() {
            self.put(seq, Is::Rejected);
        }
        self.post();
    }

    /// The worker looks: what is over ends, and dead letters go.
    pub(super) fn look(&mut self) {
        self.tick();
        self.post();
    }

    fn post(&mut self) {
        if !self.has_dead_letters() {
            return;
        }
        let rejected = self.open.iter().filter(|(_, open)| open.is == Is::Rejected);
        let rejected: Vec<(u64, u32)> = rejected.map(|(seq, open)| (*seq, open.attempts)).collect();
        for (seq, attempts) in rejected {
            let was_put = self.unflushed.contains(&seq);
            let is_put = match self.mood {
                _ if was_put => true,
                Mood::Takes | Mood::CannotFlush => true,
                Mood::Refuses => false,
                Mood::OddTooLarge if seq % 2 == 1 => {
                    self.put(seq, Is::Unsendable);
                    continue;
                }
                Mood::OddTooLarge => true,
            };
            if is_put && !was_put {
                self.dead_letters.push((seq, attempts));
            }
            if is_put && self.mood != Mood::CannotFlush {
                self.finish(seq);
            } else {
                self.unflushed.extend(is_put.then_some(seq));
                let delay = self.wishes.map_or(0, |wishes| wishes.delay(attempts));
                let delay = if delay == 0 { 1000 } else { delay };
                self.put(seq, Is::Refused(self.now + delay));
            }
        }
    }

    /// Whether there is something for the storage worker to do.
    pub(super) fn is_due(&self) -> bool {
        let dead_letters = self.has_dead_letters();
        self.open.values().any(|open| match open.is {
            Is::Out(Some(due)) | Is::Delayed(due) | Is::Refused(due) => due <= self.now,
            Is::Rejected => dead_letters,
            _ => false,
        })
    }

    pub(super) fn has_dead_letters_to_post(&self) -> bool {
        self.has_dead_letters() && self.open.values().any(|open| open.is == Is::Rejected)
    }

    fn first(&self, is: Is) -> Option<u64> {
        self.open.iter().find(|(_, open)| open.is == is).map(|(seq, _)| *seq)
    }

    pub(super) fn in_flight(&self) -> u64 {
        let comes_again = |open: &&Open| matches!(open.is, Is::Back | Is::Delayed(_));
        (self.open.len() - self.open.values().filter(comes_again).count()) as u64
    }

    pub(super) fn waiting(&self) -> u64 {
        self.end - self.done.len() as u64
    }

    /// One read: what it must give, and what it changes.
    pub(super) fn read(&mut self, want: Want) -> (Given, Option<Ticket>) {
        self.tick();
        loop {
            let rejected = self.first(Is::Rejected).filter(|_| !self.has_dead_letters());
            if let Some(seq) = self.first(Is::Unsendable).or(rejected) {
                self.finish(seq);
                return (Given::Rejected(seq), None);
            }
            let back = self.first(Is::Back);
            let ahead =
                (0..self.end).find(|seq| !self.done.contains(seq) && !self.open.contains_key(seq));
            let is_full = self.limit.is_some_and(|limit| self.in_flight() >= u64::from(limit));
            if want == Want::Receive && is_full {
                return (Given::Nothing, None);
            }
            let Some(seq) = back.or(ahead) else {
                return (Given::Nothing, None);
            };
            if back.is_none() && self.is_spent(seq) {
                let attempts = self.vain.get(&seq).map_or(0, |vain| vain.count);
                self.open.insert(seq, Open { attempts, is: Is::Back });
                self.reject_open(seq);
                continue;
            }
            let ticket = match want {
                Want::Receive => Some(self.hand_out(seq)),
                Want::Take => {
                    self.finish(seq);
                    None
                }
                Want::Look => None,
            };
            return (Given::Message(seq), ticket);
        }
    }

    fn hand_out(&mut self, seq: u64) -> Ticket {
        let vain = self.vain.get(&seq).filter(|_| self.wishes.is_some());
        let before = vain.map_or(0, |vain| vain.count);
        let attempts = 1 + self.open.get(&seq).map_or(before, |open| open.attempts);
        let lease = self.wishes.and_then(|wishes| wishes.lease);
        let due = lease.map(|lease| self.now + lease);
        self.open.insert(seq, Open { attempts, is: Is::Out(due) });
        Ticket { seq, attempts, epoch: self.epoch, is_leased: due.is_some() }
    }

    /// What an answer to that delivery comes to. If it comes too late, it ends the lease.
    fn hear(&mut self, ticket: Ticket) -> Answered {
        if ticket.epoch != self.epoch {
            return Answered::CalledOff;
        }
        if !ticket.is_leased {
            return Answered::Heard;
        }
        let own = self.open.get(&ticket.seq).filter(|open| open.attempts == ticket.attempts);
        match own.map(|open| open.is) {
            Some(Is::Out(Some(due))) if due <= self.now => {
                self.give_back(ticket.seq, None);
                Answered::Expired
            }
            Some(Is::Out(_)) => Answered::Heard,
            _ => Answered::Expired,
        }
    }

    pub(super) fn ack(&mut self, ticket: Ticket) -> Answered {
        let answered = self.hear(ticket);
        if answered == Answered::Heard {
            self.finish(ticket.seq);
        }
        answered
    }

    pub(super) fn nack(&mut self, ticket: Ticket, delay: Option<u64>) -> Answered {
        let answered = self.hear(ticket);
        if answered == Answered::Heard {
            self.give_back(ticket.seq, delay);
        }
        answered
    }

    pub(super) fn reject(&mut self, ticket: Ticket) -> Answered {
        let answered = self.hear(ticket);
        if answered == Answered::Heard {
            self.reject_open(ticket.seq);
        }
        answered
    }

    pub(super) fn extend(&mut self, ticket: Ticket, by: u64) -> Answered {
        let answered = self.hear(ticket);
        if answered == Answered::Heard && ticket.is_leased {
            self.put(ticket.seq, Is::Out(Some(self.now + by)));
        }
        answered
    }
}
