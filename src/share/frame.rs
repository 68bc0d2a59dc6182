//! The frames that a client and the owner of a queue send each other: a header and a body.

use byteorder::{ByteOrder, LittleEndian};

/// The version of the protocol, which the first frame names.
pub(super) const VERSION: u32 = 1;
/// The first bytes of a client's first body.
pub(super) const MAGIC: [u8; 8] = *b"mmqshare";
/// The longest message that a client can put in: the owner keeps it in memory until it is stored.
pub(super) const MAX_MESSAGE: u64 = 16 << 20;
/// The longest body of a question: such a message, or a batch with the lengths of its messages.
pub(super) const MAX_BODY: u64 = MAX_MESSAGE + (1 << 20);
/// How many messages a batch of a client has at most: the owner notes where each lies.
pub(super) const MOST_IN_BATCH: u32 = 1 << 16;
/// Stands for no limit, and for nothing, in a field of 8 bytes.
pub(super) const NONE: u64 = u64::MAX;

/// Offsets in a header.
mod header_at {
    pub(super) const NUMBER: usize = 0;
    pub(super) const LEN: usize = 8;
    pub(super) const KIND: usize = 16;
    pub(super) const CONSUMER: usize = 18;
    pub(super) const MORE: usize = 20;
    pub(super) const END: usize = 24;
}
pub(super) const HEADER_LEN: usize = header_at::END;

/// What stands before the body of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of the question, which the answer repeats. Nothing answers number 0.
    pub(super) number: u64,
    /// Bytes of the body.
    pub(super) len: u64,
    /// A [`Call`] by its number in a question, a status in an answer.
    pub(super) kind: u16,
    /// The consumer that a question is about: 0 for the default consumer, else what the answer to
    /// [`Call::OpenConsumer`] said.
    pub(super) consumer: u16,
    /// 1 when another frame of the same answer follows.
    pub(super) more: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        LittleEndian::write_u64(&mut bytes[header_at::NUMBER..], self.number);
        LittleEndian::write_u64(&mut bytes[header_at::LEN..], self.len);
        LittleEndian::write_u16(&mut bytes[header_at::KIND..], self.kind);
        LittleEndian::write_u16(&mut bytes[header_at::CONSUMER..], self.consumer);
        LittleEndian::write_u32(&mut bytes[header_at::MORE..], self.more);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_LEN]) -> Header {
        Header {
            number: LittleEndian::read_u64(&bytes[header_at::NUMBER..]),
            len: LittleEndian::read_u64(&bytes[header_at::LEN..]),
            kind: LittleEndian::read_u16(&bytes[header_at::KIND..]),
            consumer: LittleEndian::read_u16(&bytes[header_at::CONSUMER..]),
            more: LittleEndian::read_u32(&bytes[header_at::MORE..]),
        }
    }
}

/// Defines [`Call`] and its numbers together.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a client asks the owner to do. The numbers never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Call {
            $($(#[$doc])* $name = $number,)*
        }

        impl Call {
            #[cfg(test)]
            pub(super) const ALL: &[Call] = &[$(Call::$name,)*];

            pub(super) fn of(number: u16) -> Option<Call> {
                match number {
                    $($number => Some(Call::$name),)*
                    _ => None,
                }
            }
        }
    };
}

calls! {
    /// The first of a connection.
    Hello = 1,
    Enqueue = 2,
    EnqueueBatch = 3,
    /// As `Enqueue`, one of a sequence: after one that was refused the owner refuses all later
    /// ones of this connection, so that none of them overtakes it.
    EnqueueNext = 4,
    Flush = 5,
    WaitDurable = 6,
    DurableSeq = 7,
    Stats = 8,
    Consumers = 9,
    Clients = 10,
    SegmentTime = 11,
    OpenConsumer = 16,
    RemoveConsumer = 17,
    Fork = 18,
    Seek = 19,
    Peek = 20,
    Dequeue = 21,
    Receive = 22,
    Ack = 23,
    Nack = 24,
    Extend = 25,
    Reject = 26,
    SetRedelivery = 27,
    /// Ends the wait of an earlier question, which is answered then.
    EndWait = 28,
    ForwardBegin = 32,
    ForwardFrom = 33,
    ForwardRead = 34,
    ForwardAcknowledge = 35,
    ForwardKeep = 36,
    ForwardChain = 37,
}

impl Call {
    /// Whether it waits for the disk, or for something that another process does.
    pub(super) fn may_last(self) -> bool {
        let waits = [Call::Flush, Call::WaitDurable, Call::ForwardBegin, Call::ForwardRead];
        waits.contains(&self)
    }

    pub(super) fn is_of_forwarder(self) -> bool {
        (Call::ForwardBegin as u16..=Call::ForwardChain as u16).contains(&(self as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_written_can_be_read() {
        let header = Header { number: 7 << 40, len: 1 << 33, kind: 22, consumer: 513, more: 1 };
        assert_eq!(Header::decode(&header.encode()), header);
    }

    #[test]
    fn every_call_has_its_number() {
        for call in Call::ALL {
            assert_eq!(Call::of(*call as u16), Some(*call));
        }
        assert_eq!(Call::of(0), None);
    }
}
