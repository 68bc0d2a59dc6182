//! One session: from the far side's answer to the first trouble.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::GapCause;
use crate::forward::destination::{Limits, MissingCause, MissingNumbers, Outgoing, OutgoingKind};
use crate::forward::local::sum_of;
use crate::forward::rules::TellGaps;
use crate::message::Message;

/// What this session has read, sent, and heard.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) limits: Limits,
    /// The number that the next message read has, unless numbers are missing.
    pub(super) expected: u64,
    /// The first number that is not sent.
    pub(super) unsent: u64,
    /// The first number that the far side has not acknowledged.
    pub(super) acknowledged: u64,
    /// When it last acknowledged something, or had nothing to.
    pub(super) heard: Duration,
    /// Number and length of what is sent and not acknowledged.
    sent: VecDeque<(u64, u64)>,
    sent_bytes: u64,
    /// A message that was read and has no room.
    pub(super) waiting: Option<Message>,
    /// Missing numbers behind the last real message.
    missing: Vec<MissingNumbers>,
    /// How many of them were sent as a message of their own.
    reported: usize,
    /// Number and checksum of the last real message that was sent.
    last: Option<(u64, u32)>,
}

/// One message that is about to be sent.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) seq: u64,
    sum: u32,
    /// `None`: it only says what is missing.
    message: Option<Message>,
    missing: Vec<MissingNumbers>,
}

impl Item {
    pub(super) fn outgoing(&self) -> Outgoing<'_> {
        let kind = if self.message.is_some() { OutgoingKind::Message } else { OutgoingKind::Gap };
        Outgoing {
            seq: self.seq,
            sum: self.sum,
            bytes: self.message.as_deref().unwrap_or_default(),
            missing_before: &self.missing,
            kind,
        }
    }
}

/// Messages of one send.
#[derive(Debug, Default)]
pub(super) struct Parcel {
    pub(super) items: Vec<Item>,
    bytes: u64,
}

impl Session {
    pub(super) fn new(
        limits: Limits,
        at: u64,
        lost: Option<MissingNumbers>,
        last: Option<(u64, u32)>,
        now: Duration,
    ) -> Session {
        Session {
            limits,
            expected: at,
            unsent: at,
            acknowledged: at,
            heard: now,
            sent: VecDeque::new(),
            sent_bytes: 0,
            waiting: None,
            missing: lost.into_iter().collect(),
            reported: 0,
            last,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Whether the batch takes another message.
    pub(super) fn has_room(&self, batch: &Parcel, most: usize) -> bool {
        let window = self.limits.in_flight_messages.max(1).saturating_sub(self.sent.len());
        batch.items.len() < most.min(self.limits.send_messages.max(1)).min(window)
    }

    /// Whether the batch takes this message. One that is longer than all limits goes alone.
    pub(super) fn fits(&self, batch: &Parcel, len: u64) -> bool {
        let send = batch.bytes + len <= self.limits.send_bytes || batch.items.is_empty();
        let in_flight = self.sent_bytes + batch.bytes;
        let is_alone = in_flight == 0 && batch.items.is_empty() && self.sent.is_empty();
        send && (in_flight + len <= self.limits.in_flight_bytes || is_alone)
    }

    /// Notes numbers that will not come. Those below what is expected are there or reported.
    pub(super) fn note_missing(&mut self, missing: MissingNumbers) {
        let first = missing.first.max(self.expected);
        if first > missing.last {
            return;
        }
        self.missing.push(MissingNumbers { first, ..missing });
        self.expected = missing.last + 1;
    }

    /// Notes that the next thing read begins at `seq`: numbers below that nobody said anything of
    /// were passed by the place before they were read, because the queue gave them up.
    pub(super) fn note_passed(&mut self, seq: u64) {
        if seq > self.expected {
            let cause = MissingCause::Gap(GapCause::Dropped);
            self.note_missing(MissingNumbers { first: self.expected, last: seq - 1, cause });
        }
    }

    /// Adds a message of the queue.
    pub(super) fn add(&mut self, batch: &mut Parcel, message: Message, gaps: TellGaps) {
        let (seq, len) = (message.seq(), message.len() as u64);
        let missing = std::mem::take(&mut self.missing);
        self.reported = 0;
        let missing = if gaps == TellGaps::None { Vec::new() } else { missing };
        let sum = sum_of(&message);
        batch.items.push(Item { seq, sum, message: Some(message), missing });
        batch.bytes += len;
        self.last = Some((seq, sum));
        self.expected = seq + 1;
    }

    /// Adds word of what is missing behind the last real message, unless it was sent before. In
    /// front of the first message of all there is none whose number it could repeat.
    pub(super) fn add_gap(&mut self, batch: &mut Parcel) {
        let Some((seq, sum)) = self.last.filter(|_| self.reported < self.missing.len()) else {
            return;
        };
        let missing = self.missing.split_off(self.reported);
        self.missing.extend_from_slice(&missing);
        self.reported = self.missing.len();
        batch.items.push(Item { seq, sum, message: None, missing });
    }

    /// The batch was handed to the far side.
    pub(super) fn note_sent(&mut self, batch: &Parcel, now: Duration) {
        if self.sent.is_empty() {
            self.heard = now;
        }
        for item in &batch.items {
            if let Some(message) = &item.message {
                self.sent.push_back((item.seq, message.len() as u64));
                self.unsent = item.seq + 1;
            }
        }
        self.sent_bytes += batch.bytes;
    }

    /// The far side has acknowledged everything below `until`. How many messages that are, in this
    /// session.
    pub(super) fn note_acknowledged(&mut self, until: u64, now: Duration) -> u64 {
        self.acknowledged = until;
        self.heard = now;
        let mut count = 0;
        while let Some((_, len)) = self.sent.front().filter(|(seq, _)| *seq < until) {
            self.sent_bytes -= len;
            self.sent.pop_front();
            count += 1;
        }
        count
    }
}
