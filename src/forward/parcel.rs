//! What goes to the far side in one send.

use std::time::SystemTime;

use crate::forward::destination::{MissingNumbers, Outgoing, OutgoingKind};
use crate::forward::pack::Pack;
use crate::message::Message;

/// Messages of one send.
#[derive(Debug, Default)]
pub(super) struct Parcel {
    pub(super) items: Vec<Item>,
    /// The bytes of the queue's messages in it.
    pub(super) bytes: u64,
}

/// One message of the far side.
#[derive(Debug)]
pub(super) struct Item {
    /// Number and sum of its last message.
    pub(super) seq: u64,
    pub(super) sum: u32,
    content: Content,
    missing: Vec<MissingNumbers>,
    /// How many messages of the queue it has.
    pub(super) messages: u64,
    /// The bytes of these.
    pub(super) len: u64,
}

#[derive(Debug)]
enum Content {
    /// Only missing numbers.
    Gap,
    Message(Message),
    Pack(Pack),
}

impl Item {
    /// A message of the queue, with the numbers missing before it.
    pub(super) fn message(message: Message, sum: u32, missing: Vec<MissingNumbers>) -> Item {
        let (seq, len) = (message.seq(), message.len() as u64);
        Item { seq, sum, content: Content::Message(message), missing, messages: 1, len }
    }

    /// A report of numbers missing behind the message with this number and sum.
    pub(super) fn gap(seq: u64, sum: u32, missing: Vec<MissingNumbers>) -> Item {
        Item { seq, sum, content: Content::Gap, missing, messages: 0, len: 0 }
    }

    /// Returns how many bytes it takes as a pack with `len` more at the most; `None` for what
    /// cannot be one.
    fn longest_with(&self, len: u64) -> Option<u64> {
        match &self.content {
            Content::Gap => None,
            Content::Message(_) => Some(Pack::longest(self.len) + Pack::longest(len)),
            Content::Pack(pack) => Some(pack.longest_with(len)),
        }
    }

    /// Puts the next message into it.
    fn join(&mut self, message: &Message, sum: u32) {
        if let Content::Message(first) = &self.content {
            let mut pack = Pack::new(self.seq);
            pack.push(first);
            self.content = Content::Pack(pack);
        }
        if let Content::Pack(pack) = &mut self.content {
            pack.push(message);
        }
        (self.seq, self.sum) = (message.seq(), sum);
        self.messages += 1;
        self.len += message.len() as u64;
    }

    fn outgoing(&self, segment_time: Option<SystemTime>) -> Outgoing<'_> {
        let (kind, bytes) = match &self.content {
            Content::Gap => (OutgoingKind::Gap, &[][..]),
            Content::Message(message) => (OutgoingKind::Message, &**message),
            Content::Pack(pack) => (OutgoingKind::Pack { messages: self.messages }, pack.bytes()),
        };
        let Item { seq, sum, missing, .. } = self;
        Outgoing { seq: *seq, sum: *sum, bytes, missing_before: missing, segment_time, kind }
    }
}

impl Parcel {
    /// Returns the number of its first message. (A report of a gap has that of an earlier one,
    /// which the queue may hold no more.)
    pub(super) fn first_seq(&self) -> Option<u64> {
        let first = self.items.iter().find(|item| item.messages > 0)?;
        Some(first.seq + 1 - first.messages)
    }

    /// Returns what goes to the far side, all of it with this time.
    pub(super) fn outgoing(&self, segment_time: Option<SystemTime>) -> Vec<Outgoing<'_>> {
        self.items.iter().map(|item| item.outgoing(segment_time)).collect()
    }

    /// Returns whether its last item may take another message, if that is short enough.
    pub(super) fn is_open(&self, pack_messages: u64) -> bool {
        self.items.last().is_some_and(|last| (1..pack_messages).contains(&last.messages))
    }

    /// Returns whether a message of that number and length may join the last item.
    pub(super) fn takes(&self, seq: u64, len: u64, pack_messages: u64, pack_bytes: u64) -> bool {
        let follows = |last: &Item| {
            last.seq + 1 == seq && last.longest_with(len).is_some_and(|len| len <= pack_bytes)
        };
        self.is_open(pack_messages) && self.items.last().is_some_and(follows)
    }

    /// Puts a message into the last item, which [takes](Self::takes) it.
    pub(super) fn join(&mut self, message: &Message, sum: u32) {
        self.bytes += message.len() as u64;
        if let Some(last) = self.items.last_mut() {
            last.join(message, sum);
        }
    }

    pub(super) fn push(&mut self, item: Item) {
        self.bytes += item.len;
        self.items.push(item);
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop()?;
        self.bytes -= item.len;
        Some(item)
    }

    /// Makes its packs whole, [compressed](Pack::seal) or not. No message joins them any more.
    pub(super) fn seal(&mut self, zstd: Option<i32>) {
        for item in &mut self.items {
            if let Content::Pack(pack) = &mut item.content {
                pack.seal(zstd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_that_of_a_pack_and_no_report_of_a_gap() {
        let mut batch = Parcel::default();
        batch.push(Item::gap(3, 0, Vec::new()));
        assert_eq!(batch.first_seq(), None);
        batch.push(Item::message(Message::owned(7, b"seven".to_vec()), 0, Vec::new()));
        batch.join(&Message::owned(8, b"eight".to_vec()), 0);
        assert_eq!(batch.first_seq(), Some(7));
    }
}
