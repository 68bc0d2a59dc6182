//! The state of one session, from the far side's answer to the first trouble.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::error::GapCause;
use crate::forward::destination::{Limits, MissingCause, MissingNumbers};
use crate::forward::local::chained;
use crate::forward::parcel::{Item, Parcel};
use crate::forward::rules::TellGaps;
use crate::message::Message;

/// What this session has read and sent, and what the far side has acknowledged.
#[derive(Debug)]
pub(super) struct Session {
    /// What the far side takes.
    pub(super) limits: Limits,
    /// What may be in flight on this link, in bytes; not more than the far side takes.
    most_bytes: u64,
    /// How many messages may go in one; not more than the far side takes.
    most_packed: u64,
    /// The number of the next message to read, unless numbers are missing.
    pub(super) expected: u64,
    /// The first unsent number.
    pub(super) unsent: u64,
    /// The first number that the far side has not acknowledged.
    pub(super) acknowledged: u64,
    /// When it last acknowledged a message, or had none to acknowledge.
    pub(super) heard: Duration,
    /// Each message or pack that is sent and unacknowledged.
    sent: VecDeque<InFlight>,
    pub(super) sent_bytes: u64,
    /// The sum of the chain over what was read.
    chain: u32,
    /// An earlier session left these out for good.
    pub(super) left_out: Range<u64>,
    /// It left out a message, which has a number and gets no position.
    pub(super) has_left_out: bool,
    /// A message that the session has read but that does not fit yet.
    pub(super) waiting: Option<Message>,
    /// A pack that this message joins.
    open: Option<Item>,
    /// Missing numbers behind the last real message.
    missing: Vec<MissingNumbers>,
    /// How many of them the session has already reported by a separate message.
    reported: usize,
    /// Number and checksum of the last real message that was sent.
    last: Option<(u64, u32)>,
}

/// A message or a pack that is sent and unacknowledged: number and sum of its last message.
#[derive(Debug)]
struct InFlight {
    seq: u64,
    messages: u64,
    len: u64,
    sum: u32,
    since: Duration,
    /// What was in flight when it was sent, in bytes, itself included.
    under_way: u64,
}

/// What an acknowledgement covers.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Everything below this number, which follows the last of them.
    pub(super) until: u64,
    /// The sum of the chain before that number.
    pub(super) chain: u32,
    /// How long ago the first of them was sent.
    pub(super) after: Duration,
    /// What was in flight when the last of them was sent, in bytes, itself included.
    pub(super) under_way: u64,
}

impl Session {
    pub(super) fn new(
        limits: Limits,
        at: u64,
        chain: u32,
        lost: Option<MissingNumbers>,
        last: Option<(u64, u32)>,
        now: Duration,
    ) -> Session {
        Session {
            most_bytes: limits.in_flight_bytes,
            most_packed: limits.pack_messages,
            limits,
            expected: at,
            unsent: at,
            acknowledged: at,
            heard: now,
            sent: VecDeque::new(),
            sent_bytes: 0,
            chain,
            left_out: 0..0,
            has_left_out: false,
            waiting: None,
            open: None,
            missing: lost.into_iter().collect(),
            reported: 0,
            last,
        }
    }

    /// What is under way was sent in order, after what is acknowledged and before what is not sent.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check(&self) {
        let (acknowledged, unsent, expected) = (self.acknowledged, self.unsent, self.expected);
        holds!(acknowledged <= unsent, "what is acknowledged, {acknowledged}, was sent: {unsent}");
        holds!(unsent <= expected, "what is sent, to {unsent}, was read, to {expected}");
        let sent = || self.sent.iter().map(|it| it.seq);
        holds!(sent().is_sorted_by(|a, b| a < b), "messages are sent in order: {:?}", self.sent);
        holds!(
            sent().all(|seq| acknowledged <= seq && seq < unsent),
            "what is under way, {:?}, lies from {acknowledged} to {unsent}",
            self.sent
        );
        let bytes: u64 = self.sent.iter().map(|it| it.len).sum();
        holds!(bytes == self.sent_bytes, "{bytes} bytes are under way, as {}", self.sent_bytes);
        let (count, most) = (self.sent.len(), self.limits.in_flight_messages.max(1));
        holds!(count <= most, "{count} messages are under way, and {most} may be");
        let most = self.limits.in_flight_bytes;
        holds!(bytes <= most || count <= 1, "{bytes} bytes are under way, and {most} may be");
        let (reported, missing) = (self.reported, self.missing.len());
        holds!(reported <= missing, "of {missing} gaps {reported} were told");
    }

    /// Limits what may be in flight to what the link takes, and the messages of a pack.
    pub(super) fn limit(&mut self, bytes: u64, packed: u64) {
        self.most_bytes = self.limits.in_flight_bytes.min(bytes);
        self.most_packed = self.limits.pack_messages.min(packed);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Begins a batch, with the pack that is open.
    pub(super) fn begin_batch(&mut self) -> Parcel {
        let mut batch = Parcel::default();
        if let Some(item) = self.open.take() {
            batch.push(item);
        }
        batch
    }

    /// Keeps a message for the next batch, and the pack that it joins, if something else is under
    /// way then: so a pack is full while messages wait.
    pub(super) fn keep_waiting(&mut self, batch: &mut Parcel, message: Message) {
        let joins = self.joins(batch, message.seq(), message.len() as u64);
        if joins && (self.in_flight() > 0 || batch.items.len() > 1) {
            self.open = batch.pop();
        }
        self.waiting = Some(message);
    }

    /// Returns the most messages and bytes of a send: half of what may be in flight, so that the
    /// next one is ready when the far side has stored this one.
    fn most_of_send(&self) -> (usize, u64) {
        let Limits { in_flight_messages, send_messages, send_bytes, .. } = self.limits;
        let messages = send_messages.min(in_flight_messages / 2).max(1);
        (messages, send_bytes.min(self.most_bytes / 2))
    }

    /// Returns whether a whole send has room beside what is in flight. A smaller one would cost the
    /// far side as much, and the next one would be small again.
    pub(super) fn may_send(&self) -> bool {
        let (messages, bytes) = self.most_of_send();
        self.sent.is_empty()
            || self.sent.len() + messages <= self.limits.in_flight_messages
                && self.sent_bytes + bytes <= self.most_bytes
    }

    /// Returns whether the batch has room for another message.
    pub(super) fn has_room(&self, batch: &Parcel, most: usize) -> bool {
        let window = self.limits.in_flight_messages.max(1).saturating_sub(self.sent.len());
        batch.items.len() < most.min(self.most_of_send().0).min(window)
    }

    /// Returns whether the batch has room for another message, if it joins the last one.
    pub(super) fn is_open(&self, batch: &Parcel) -> bool {
        batch.is_open(self.most_packed)
    }

    /// Returns whether this message joins the last one of the batch. A pack ends before a gap.
    pub(super) fn joins(&self, batch: &Parcel, seq: u64, len: u64) -> bool {
        self.missing.is_empty() && batch.takes(seq, len, self.most_packed, self.limits.pack_bytes)
    }

    /// Returns whether this message fits the batch. One that is longer than all limits goes alone.
    pub(super) fn fits(&self, batch: &Parcel, len: u64) -> bool {
        let most = self.most_of_send().1;
        let send = batch.bytes + len <= most || batch.items.is_empty();
        let in_flight = self.sent_bytes + batch.bytes;
        let is_alone = in_flight == 0 && batch.items.is_empty() && self.sent.is_empty();
        send && (in_flight + len <= self.most_bytes || is_alone)
    }

    /// Notes missing numbers. Those below the expected number are already sent or reported.
    pub(super) fn note_missing(&mut self, missing: MissingNumbers) {
        let first = missing.first.max(self.expected);
        if first > missing.last {
            return;
        }
        holds!(
            self.missing.last().is_none_or(|last| last.last < first),
            "missing numbers are noted in order, {first} behind {:?}",
            self.missing.last()
        );
        self.missing.push(MissingNumbers { first, ..missing });
        self.expected = missing.last + 1;
    }

    /// Notes that the next message or gap begins at `seq`: the queue dropped unreported numbers
    /// below it, and the place passed them before a read.
    pub(super) fn note_passed(&mut self, seq: u64) {
        if seq > self.expected {
            let cause = MissingCause::Gap(GapCause::Dropped);
            self.note_missing(MissingNumbers { first: self.expected, last: seq - 1, cause });
        }
    }

    /// Notes that `message` was read, and that nobody sends it. It stays in the chain: a later
    /// session cannot tell that it was rejected.
    pub(super) fn leave_out(&mut self, message: &Message) {
        self.chain = chained(self.chain, message);
        self.has_left_out = true;
        let (seq, cause) = (message.seq(), MissingCause::Refused);
        self.note_missing(MissingNumbers { first: seq, last: seq, cause });
        self.expected = seq + 1;
    }

    /// Adds a message of the queue.
    pub(super) fn add(&mut self, batch: &mut Parcel, message: Message, gaps: TellGaps) {
        let (seq, len) = (message.seq(), message.len() as u64);
        let joins = self.joins(batch, seq, len);
        let missing = std::mem::take(&mut self.missing);
        self.reported = 0;
        let missing = if gaps == TellGaps::None { Vec::new() } else { missing };
        let sum = chained(self.chain, &message);
        self.chain = sum;
        if joins {
            batch.join(&message, sum);
        } else {
            batch.push(Item::message(message, sum, missing));
        }
        self.last = Some((seq, sum));
        holds!(seq >= self.expected, "message {seq} was not read before {}", self.expected);
        self.expected = seq + 1;
    }

    /// Adds a report of the numbers missing behind the last real message, unless it was sent
    /// before. Before the very first message there is no number that it could repeat. Without room
    /// it goes with the next batch.
    pub(super) fn add_gap(&mut self, batch: &mut Parcel, gaps: TellGaps, most: usize) {
        if gaps != TellGaps::Message || !self.has_room(batch, most) {
            return;
        }
        let Some((seq, sum)) = self.last.filter(|_| self.reported < self.missing.len()) else {
            return;
        };
        let missing = self.missing.split_off(self.reported);
        self.missing.extend_from_slice(&missing);
        self.reported = self.missing.len();
        batch.push(Item::gap(seq, sum, missing));
    }

    /// Notes that the batch was sent to the far side.
    pub(super) fn note_sent(&mut self, batch: &Parcel, now: Duration) {
        if self.sent.is_empty() {
            self.heard = now;
        }
        for item in batch.items.iter().filter(|item| item.messages > 0) {
            let Item { seq, sum, messages, len, .. } = *item;
            self.sent_bytes += len;
            let under_way = self.sent_bytes;
            self.sent.push_back(InFlight { seq, messages, len, sum, since: now, under_way });
            self.unsent = seq + 1;
        }
        check!(self.check());
    }

    /// Notes that the far side has acknowledged everything below `until`. Returns which messages of
    /// this session that covers.
    pub(super) fn note_acknowledged(&mut self, until: u64, now: Duration) -> Arrived {
        self.acknowledged = until;
        self.heard = now;
        let mut arrived = Arrived::default();
        while let Some(first) = self.sent.front().filter(|it| it.seq < until) {
            if arrived.messages == 0 {
                arrived.after = now.saturating_sub(first.since);
            }
            self.sent_bytes -= first.len;
            let others = if planted!(ForwardPackFirst) { first.messages - 1 } else { 0 };
            arrived.until = first.seq + 1 - others;
            arrived.chain = first.sum;
            arrived.messages += first.messages;
            arrived.bytes += first.len;
            arrived.under_way = first.under_way;
            self.sent.pop_front();
        }
        check!(self.check());
        arrived
    }
}
