//! What mmq promises to whoever calls it, as a model in memory without files, threads or clocks.
//!
//! A queue is a row of messages. The first message has the number 0, each further one the next
//! number, and no number is given twice. A [`Consumer`] is a place in that row with a name. It
//! reads every message in the order of the numbers. Consumers do not see each other.
//!
//! A read either *takes* its message, which is then done, or *receives* it as a delivery. The
//! message of a delivery is in flight until its holder acknowledges it (then it is done) or gives
//! it back (then it comes again, before all others).
//!
//! The queue holds a message until every consumer is done with it. It may hold it longer, because
//! it gives messages back in whole segments: which number is the oldest held, the queue says
//! itself, and [`Spec::sees_oldest`] judges it. Only a queue that drops the oldest gives up
//! messages before their time. A consumer that misses some learns their numbers as a gap.
//!
//! A flush makes durable what was put in and done before it. A close, a drop of the queue, and the
//! death of the process lose nothing, durable or not. A copy of the files is what a power cut
//! leaves at worst when all writing has reached the disk: every message is there, and each consumer
//! stands where it stands now, or where the latest flush found it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// For each consumer the queue remembers over openings this many stretches of done numbers at least
/// that lie behind messages that are not done.
const REMEMBERED: usize = 22;

/// How an opening says that the queue is to behave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) flush_every_ops: Option<u64>,
    /// Most bytes on the disk.
    pub(crate) max_bytes: Option<u64>,
    /// At that limit the oldest messages go. Without this, a message that does not fit is refused.
    pub(crate) drops_oldest: bool,
}

/// A queue as its users know it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spec {
    pub(crate) rules: Rules,
    /// The length of every message that was put in. A message's number is its index.
    pub(crate) lens: Vec<usize>,
    /// No message with a lower number is held.
    pub(crate) oldest: u64,
    /// The oldest message that was held when the last consumer went, or the queue was new.
    unclaimed: u64,
    /// Every message with a lower number survives a power cut.
    pub(crate) durable: u64,
    is_written_again: bool,
    /// The number of the first message of this opening.
    began: u64,
    /// Number 0 is the queue's own consumer. It has no name, and the first read makes it.
    pub(crate) consumers: BTreeMap<usize, Consumer>,
}

/// What one consumer has dealt with, and what comes to it next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consumer {
    /// No message from here on was handed out since the opening or the latest seek.
    pub(crate) next: u64,
    /// Handed out and not done, with how often: in flight, or given back.
    pub(crate) open: BTreeMap<u64, u32>,
    /// Those of `open` that are not in flight.
    pub(crate) given_back: BTreeSet<u64>,
    /// From `next` on: done before the opening.
    pub(crate) done: BTreeSet<u64>,
    /// Most messages in flight. A receive that would exceed it gives nothing.
    pub(crate) limit: Option<u32>,
    /// What was done at the latest flush. It never comes again, whatever happens.
    pub(crate) durable: BTreeSet<u64>,
    /// The consumer is new, or a seek moved it, since the latest flush. A copy of the files may
    /// show it as it was before, or not at all.
    pub(crate) has_moved: bool,
}

/// What the next read of a consumer must give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The message with this number.
    Message(u64),
    /// The numbers from the first on are missing. One report covers all up to the last, or fewer:
    /// then the next report goes on behind it.
    Gap(u64, u64),
    Nothing,
}

impl Consumer {
    /// A consumer that begins at this number.
    pub(crate) fn at(seq: u64) -> Consumer {
        Consumer { next: seq, has_moved: true, ..Consumer::default() }
    }

    /// Its place: all lower numbers are done.
    pub(crate) fn place(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(self.next)
    }

    pub(crate) fn is_done(&self, seq: u64) -> bool {
        self.done.contains(&seq) || (seq < self.next && !self.open.contains_key(&seq))
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.open.len() - self.given_back.len()
    }

    /// The numbers that wait for it, those in flight included.
    pub(crate) fn waiting(&self, held: Range<u64>) -> BTreeSet<u64> {
        (self.place().max(held.start)..held.end).filter(|seq| !self.is_done(*seq)).collect()
    }

    /// What a look ahead shows: what was never handed out.
    pub(crate) fn ahead(&self, held: Range<u64>) -> impl Iterator<Item = u64> {
        (self.next.max(held.start)..held.end).filter(|seq| !self.done.contains(seq))
    }

    /// Messages that were given back come first, in the order of their numbers. Then come those
    /// that were never handed out. Whatever lies before the oldest message held is a gap.
    fn comes(&self, held: Range<u64>) -> Next {
        let is_to_come = |seq: &u64| match self.given_back.is_empty() {
            true => !self.done.contains(seq),
            false => self.given_back.contains(seq),
        };
        let lowest = self.given_back.first().copied().unwrap_or(self.next);
        let first = (lowest..).find(is_to_come).unwrap_or(u64::MAX);
        if first < held.start {
            let missing = (first..held.start).take_while(is_to_come);
            return Next::Gap(first, missing.last().unwrap_or(first));
        }
        if first < held.end { Next::Message(first) } else { Next::Nothing }
    }

    /// The message leaves the row of those that are to come.
    fn goes_out(&mut self, seq: u64) {
        if !self.given_back.remove(&seq) {
            self.next = seq + 1;
        }
    }

    /// The consumer after an opening, or a fork of it: all that is not done comes again in the
    /// order of the numbers, and only that. Deliveries, their counts and the limit are forgotten.
    fn anew(&self) -> Consumer {
        let behind = self.done.last().map_or(self.next, |last| self.next.max(last + 1));
        let done = (self.place()..behind).filter(|seq| self.is_done(*seq)).collect();
        let (durable, has_moved) = (self.durable.clone(), self.has_moved);
        Consumer { next: self.place(), done, durable, has_moved, ..Consumer::default() }
    }

    /// Whether one more message in flight leaves so few stretches of done numbers that the queue
    /// remembers them all.
    pub(crate) fn may_scatter(&self) -> bool {
        let behind = self.done.last().map_or(0, |last| last + 1);
        let undone = (self.next..behind).filter(|seq| !self.done.contains(seq)).count();
        self.open.len() + undone < REMEMBERED - 1
    }
}

impl Spec {
    pub(crate) fn new(rules: Rules) -> Spec {
        Spec { rules, ..Spec::default() }
    }

    /// The number that the next message gets.
    pub(crate) fn end(&self) -> u64 {
        self.lens.len() as u64
    }

    pub(crate) fn held(&self) -> Range<u64> {
        self.oldest..self.end()
    }

    /// Messages of these lengths are put in, with adjoining numbers.
    pub(crate) fn puts(&mut self, numbers: Range<u64>, lens: &[usize]) {
        assert_eq!(numbers, self.end()..self.end() + lens.len() as u64, "the numbers of a put");
        self.lens.extend(lens);
    }

    /// The queue may refuse messages only at a limit of disk. One that drops the oldest makes room
    /// for whatever is shorter than a tenth of the limit: the index may have grown before.
    pub(crate) fn may_refuse(&self, lens: &[usize]) -> bool {
        let bytes: usize = lens.iter().map(|len| len + 64).sum();
        let most = self.rules.max_bytes.unwrap_or(u64::MAX);
        most < u64::MAX && (!self.rules.drops_oldest || bytes as u64 > most / 10)
    }

    /// A consumer that is new begins at the oldest message held; the first one before all that was
    /// dropped while there was none.
    pub(crate) fn consumer(&mut self, who: usize) -> &mut Consumer {
        let begins = if self.consumers.is_empty() { self.unclaimed } else { self.oldest };
        self.consumers.entry(who).or_insert_with(|| Consumer::at(begins))
    }

    /// What a read gives that takes its message, shows it or skips it.
    pub(crate) fn next(&mut self, who: usize) -> Next {
        let held = self.held();
        self.consumer(who).comes(held)
    }

    /// What a receive gives.
    pub(crate) fn next_delivery(&mut self, who: usize) -> Next {
        let consumer = self.consumer(who);
        match consumer.limit {
            Some(limit) if consumer.in_flight() >= limit as usize => Next::Nothing,
            _ => self.next(who),
        }
    }

    pub(crate) fn takes(&mut self, who: usize, seq: u64) {
        self.consumer(who).goes_out(seq);
        self.acknowledges(who, seq);
    }

    /// Says how often the message was handed out, this time included.
    pub(crate) fn receives(&mut self, who: usize, seq: u64) -> u32 {
        let consumer = self.consumer(who);
        consumer.goes_out(seq);
        let attempts = consumer.open.entry(seq).or_default();
        *attempts += 1;
        *attempts
    }

    pub(crate) fn acknowledges(&mut self, who: usize, seq: u64) {
        self.consumer(who).open.remove(&seq);
    }

    pub(crate) fn gives_back(&mut self, who: usize, seq: u64) {
        self.consumer(who).given_back.insert(seq);
    }

    /// A read has reported these numbers as missing. They are done: no other report covers them.
    pub(crate) fn misses(&mut self, who: usize, first: u64, last: u64) {
        let next = self.next(who);
        let Next::Gap(wanted, most) = next else {
            panic!("{first} to {last} missing, not {next:?}")
        };
        assert!(
            first == wanted && last >= first && last <= most,
            "{first} to {last}, not {next:?}"
        );
        let consumer = self.consumer(who);
        if consumer.given_back.contains(&first) {
            consumer.given_back.retain(|seq| *seq > last);
            consumer.open.retain(|seq, _| *seq < first || *seq > last);
        } else {
            consumer.next = last + 1;
        }
    }

    /// A consumer moves to any message held, or behind the last one. All deliveries of before are
    /// called off: no answer to one changes anything. The limit stays.
    pub(crate) fn seeks(&mut self, who: usize, seq: u64, succeeded: bool) {
        let is_held = (self.oldest..=self.end()).contains(&seq);
        assert_eq!(succeeded, is_held, "{seq} of {:?}", self.held());
        if succeeded {
            let limit = self.consumer(who).limit;
            self.consumers.insert(who, Consumer { limit, ..Consumer::at(seq) });
        }
    }

    /// A new consumer begins with all that this one is not done with. A name that is taken is
    /// refused.
    pub(crate) fn forks(&mut self, who: usize, to: usize, succeeded: bool) {
        let made =
            Consumer { durable: BTreeSet::new(), has_moved: true, ..self.consumer(who).anew() };
        assert_eq!(succeeded, !self.consumers.contains_key(&to), "a fork of {who} to {to}");
        self.consumers.entry(to).or_insert(made);
    }

    /// A consumer is forgotten. Answers to its deliveries are refused.
    pub(crate) fn removes(&mut self, who: usize, succeeded: bool) {
        assert_eq!(succeeded, self.consumers.remove(&who).is_some(), "consumer {who} goes");
        if succeeded {
            self.unclaimed = self.oldest;
        }
    }

    /// A flush, or a wait for the last message to be durable, has returned.
    pub(crate) fn flushes(&mut self) {
        self.durable = self.end();
        for consumer in self.consumers.values_mut() {
            let is_done = |seq: &u64| consumer.is_done(*seq);
            let behind =
                consumer.done.last().map_or(consumer.next, |last| consumer.next.max(last + 1));
            consumer.durable = (0..behind).filter(is_done).collect();
            consumer.has_moved = false;
        }
    }

    /// The queue was closed or dropped, and opened under these rules: nothing is lost, and
    /// everything is durable.
    pub(crate) fn reopens(&mut self, rules: Rules) {
        self.flushes();
        self.begins(rules);
    }

    /// The process died, and the queue was opened under these rules: nothing is lost. The test has
    /// written the files again: their time of change is that of a copy, and until a flush syncs
    /// them nothing counts as durable.
    pub(crate) fn comes_back(&mut self, rules: Rules) {
        self.is_written_again = true;
        self.begins(rules);
    }

    fn begins(&mut self, rules: Rules) {
        if self.is_written_again {
            self.durable = 0;
        }
        (self.rules, self.began) = (rules, self.end());
        self.consumers.values_mut().for_each(|consumer| *consumer = consumer.anew());
    }

    /// How many messages wait for a consumer. Without the queue's own one, its count is that of the
    /// messages that wait for any; without any consumer, of all that is held.
    pub(crate) fn len(&self, who: usize) -> u64 {
        if let Some(consumer) = self.consumers.get(&who) {
            return consumer.waiting(self.held()).len() as u64;
        }
        if self.consumers.is_empty() {
            return self.end() - self.oldest;
        }
        let waiting = self.consumers.values().flat_map(|consumer| consumer.waiting(self.held()));
        waiting.collect::<BTreeSet<_>>().len() as u64
    }

    /// The queue says which message is the oldest that it holds. That number never falls. It passes
    /// a message that somebody still waits for only in a queue that drops the oldest; and while
    /// there is no consumer, all messages are kept for the first one.
    pub(crate) fn sees_oldest(&mut self, oldest: u64) {
        assert!(
            self.held().start <= oldest && oldest <= self.end(),
            "{oldest} of {:?}",
            self.held()
        );
        if !self.rules.drops_oldest {
            let lowest = |consumer: &Consumer| consumer.waiting(self.held()).first().copied();
            let wanted = self.consumers.values().filter_map(lowest).min();
            let kept = if self.consumers.is_empty() { self.oldest } else { self.end() };
            assert!(
                oldest <= wanted.unwrap_or(kept),
                "{oldest} is the oldest, {wanted:?} is wanted"
            );
        }
        self.oldest = oldest;
    }

    /// The queue says below which number all is durable. That number never falls, and it is no
    /// higher than the next one. Once an opening has seen as many operations as it flushes after,
    /// fewer than these are not durable.
    pub(crate) fn sees_durable(&mut self, durable: u64) {
        let (end, every) = (self.end(), self.rules.flush_every_ops.unwrap_or(u64::MAX));
        let is_due = end - self.began >= every;
        let least = if is_due { self.durable.max(end + 1 - every) } else { self.durable };
        assert!((least..=end).contains(&durable), "durable below {durable}, not {least}..={end}");
        self.durable = durable;
    }
}
