//! What the far side in memory has stored.

use crate::forward::destination::{MissingNumbers, Outgoing, OutgoingKind};
use crate::forward::unpacked::unpack;

/// The identity of the last message: its number, how many gaps were reported behind it, its sum.
pub(super) type Name = Option<(u64, u32, u32)>;

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) seq: u64,
    pub(super) sum: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) missing: Vec<MissingNumbers>,
    pub(super) kind: OutgoingKind,
    /// How many gaps were reported behind the real message.
    gaps: u32,
    /// Its position.
    pub(super) at: u64,
}

impl Stored {
    pub(super) fn of(sent: &Outgoing<'_>, before: Name) -> Stored {
        let gaps = match (sent.kind, before) {
            (OutgoingKind::Gap, Some((_, gaps, _))) => gaps + 1,
            _ => 0,
        };
        Stored {
            seq: sent.seq,
            sum: sent.sum,
            bytes: sent.bytes.to_vec(),
            missing: sent.missing_before.to_vec(),
            kind: sent.kind,
            gaps,
            at: 0,
        }
    }

    pub(super) fn name(&self) -> Name {
        Some((self.seq, self.gaps, self.sum))
    }

    /// The messages of the queue in it, as a reader finds them; what only reports a gap is one.
    pub(super) fn unpacked(&self) -> Vec<Stored> {
        let OutgoingKind::Pack { messages } = self.kind else { return vec![self.clone()] };
        let of = |(seq, bytes): (u64, &[u8])| Stored {
            seq,
            bytes: bytes.to_vec(),
            missing: Vec::new(),
            kind: OutgoingKind::Message,
            ..self.clone()
        };
        let mut all: Vec<_> = unpack(&self.bytes).unwrap().map(of).collect();
        assert_eq!((all.len() as u64, all[all.len() - 1].seq), (messages, self.seq));
        assert!(messages > 1, "a pack of one message");
        all[0].missing.clone_from(&self.missing);
        all
    }
}
