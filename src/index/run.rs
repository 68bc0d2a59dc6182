//! The run record: the values of the live part that change seldom. The tail changes with every
//! message and is stored apart.

use byteorder::{ByteOrder, LittleEndian};

use crate::format::{LIMIT, MissingBefore, RUN_LEN, Spot, is_position, run_at as at};
use crate::index::losses::Evicted;
use crate::memory::checksum::checksum;

/// How the next segment begins, after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Next {
    pub(crate) base: u64,
    /// The next segment's first number.
    pub(crate) seq: u64,
    /// The numbers missing right before `seq`.
    pub(crate) missing: MissingBefore,
}

impl Next {
    /// The spot of the next segment's first record.
    pub(crate) fn spot(&self) -> Spot {
        Spot { position: self.base, seq: self.seq }
    }

    /// How a segment at `spot` would begin, if the spot lies at or before this segment's beginning
    /// and after some of the missing numbers. `None` if no number is missing before the spot.
    pub(crate) fn cut_at(self, spot: Spot) -> Option<Next> {
        let behind = self.seq.checked_sub(spot.seq)?;
        let is_within = spot.position <= self.base && behind < self.missing.gap;
        is_within.then(|| Next {
            base: spot.position,
            seq: spot.seq,
            missing: self.missing.without_last(behind),
        })
    }
}

/// The run record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Run {
    pub(crate) flags: u32,
    pub(crate) next_life: u64,
    pub(crate) reservation: u64,
    pub(crate) evicted: Evicted,
    /// Set while the last segment is closed.
    pub(crate) next: Option<Next>,
}

impl Run {
    pub(crate) fn encode(&self, queue_id: &[u8; 16]) -> [u8; RUN_LEN] {
        let mut bytes = [0; RUN_LEN];
        let next = self.next.unwrap_or_default();
        LittleEndian::write_u32(&mut bytes[at::RUN_FLAGS..], self.flags);
        LittleEndian::write_u32(&mut bytes[at::RUN_CAUSE..], next.missing.cause.into());
        for (offset, value) in [
            (at::RUN_NEXT_LIFE, self.next_life),
            (at::RUN_RESERVATION, self.reservation),
            (at::RUN_DROPPED_SEQ, self.evicted.dropped),
            (at::RUN_EXPIRED_SEQ, self.evicted.expired),
            (at::RUN_NEXT_BASE, next.base),
            (at::RUN_NEXT_SEQ, next.seq),
            (at::RUN_NEXT_GAP, next.missing.gap),
            (at::RUN_NEXT_RESERVED, next.missing.reserved),
        ] {
            LittleEndian::write_u64(&mut bytes[offset..], value);
        }
        let sum = checksum(checksum(0, queue_id), &bytes[..at::RUN_SUM]);
        LittleEndian::write_u32(&mut bytes[at::RUN_SUM..], sum);
        holds!(
            Run::decode(&bytes, queue_id).is_none_or(|read| read == *self),
            "a run record that is written is read as it was, if a queue can have it: {self:?}"
        );
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], queue_id: &[u8; 16]) -> Option<Run> {
        let bytes = bytes.get(..RUN_LEN)?;
        let sum = checksum(checksum(0, queue_id), &bytes[..at::RUN_SUM]);
        if LittleEndian::read_u32(&bytes[at::RUN_SUM..]) != sum {
            return None;
        }
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        let next = Next {
            base: u64_at(at::RUN_NEXT_BASE),
            seq: u64_at(at::RUN_NEXT_SEQ),
            missing: MissingBefore {
                gap: u64_at(at::RUN_NEXT_GAP),
                reserved: u64_at(at::RUN_NEXT_RESERVED),
                cause: LittleEndian::read_u32(&bytes[at::RUN_CAUSE..]) as u8,
            },
        };
        let run = Run {
            flags: LittleEndian::read_u32(&bytes[at::RUN_FLAGS..]),
            next_life: u64_at(at::RUN_NEXT_LIFE),
            reservation: u64_at(at::RUN_RESERVATION),
            evicted: Evicted {
                dropped: u64_at(at::RUN_DROPPED_SEQ),
                expired: u64_at(at::RUN_EXPIRED_SEQ),
            },
            next: (next.base != 0).then_some(next),
        };
        let Evicted { dropped, expired } = run.evicted;
        let sound = [run.next_life, run.reservation, dropped, expired, next.seq]
            .into_iter()
            .all(|n| n < LIMIT)
            && is_position(next.base)
            && next.missing.is_sound(next.seq);
        sound.then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &[u8; 16] = b"0123456789abcdef";

    fn run() -> Run {
        Run {
            flags: 3,
            next_life: 4,
            reservation: 5,
            evicted: Evicted { dropped: 6, expired: 7 },
            next: Some(Next {
                base: 16,
                seq: 17,
                missing: MissingBefore { gap: 15, reserved: 14, cause: 2 },
            }),
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_every_flipped_bit_is_found() {
        for run in [run(), Run { next: None, ..run() }, Run::default()] {
            let good = run.encode(ID);
            assert_eq!(Run::decode(&good, ID), Some(run));
            assert_eq!(Run::decode(&good, b"0123456789abcdee"), None);
            for bit in 0..8 * RUN_LEN {
                let mut bytes = good;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Run::decode(&bytes, ID), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn reserved_bytes_that_are_not_zero_are_no_damage() {
        let mut bytes = run().encode(ID);
        bytes[40..80].fill(0xee);
        let sum = checksum(checksum(0, ID), &bytes[..at::RUN_SUM]);
        LittleEndian::write_u32(&mut bytes[at::RUN_SUM..], sum);
        assert_eq!(Run::decode(&bytes, ID), Some(run()));
    }

    #[test]
    fn numbers_no_queue_can_have_are_refused() {
        let next = |next| Run { next: Some(next), ..run() };
        let known = run().next.unwrap_or_default();
        let absurd = [
            Run { next_life: LIMIT, ..run() },
            Run { reservation: u64::MAX, ..run() },
            Run { evicted: Evicted { dropped: LIMIT, ..run().evicted }, ..run() },
            Run { evicted: Evicted { expired: LIMIT, ..run().evicted }, ..run() },
            next(Next { base: LIMIT, ..known }),
            next(Next { base: 17, ..known }),
            next(Next { seq: LIMIT, ..known }),
            next(Next { missing: MissingBefore { gap: known.seq + 1, ..known.missing }, ..known }),
            next(Next {
                missing: MissingBefore { reserved: known.missing.gap + 1, ..known.missing },
                ..known
            }),
        ];
        for run in absurd {
            assert_eq!(Run::decode(&run.encode(ID), ID), None, "{run:?}");
        }
    }
}
