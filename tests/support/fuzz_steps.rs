//! Bytes as steps: what the fuzz target `sequence` does to a queue, and how it ends.

use mmq::{OnFull, Options};

use super::spec::Rules;

/// The queue's own consumer, then three with names, in the order of these.
pub(super) const NAMES: [&str; 4] = ["", "a name of more than sixteen bytes", "audit", "mail"];

/// Steps of one sequence.
const MOST: usize = 400;

/// A length that becomes bytes when the size of an arena is known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    Bytes(usize),
    /// So many arenas and bytes, or fewer bytes.
    Near(usize, isize),
    /// Thousandths of three arenas.
    Share(usize),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) arena: usize,
    cap: Option<u32>,
    pub(super) rules: Rules,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Put {
    OneByOne,
    Batch,
    InParts,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Take {
    Dequeue,
    DequeueInto,
    Batch,
    Skip,
    /// The message is kept and compared at the end.
    Hold,
}

/// How a queue goes before it is opened again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gone {
    Closed,
    Dropped,
    /// The files are as they were before anything was dropped.
    Dead,
}

/// `who` is an index into `NAMES`. A share of 0 to 65535 chooses from what is there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Enqueue(Put, usize, Size),
    Take(usize, Take, usize),
    Peek(usize),
    PeekInto(usize),
    Iterate(usize, usize),
    Drain(usize),
    Receive(usize, usize),
    Ack(usize),
    Nack(usize),
    Limit(usize, Option<u32>),
    Seek(usize, usize),
    Fork(usize, usize),
    Remove(usize),
    Flush,
    WaitDurable,
    Reopen(Gone, Setting),
}

impl Size {
    pub(super) fn bytes(self, arena: usize) -> usize {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Near(times, more) => (times * arena).saturating_add_signed(more),
            Size::Share(thousandths) => 3 * arena * thousandths / 1000,
        }
    }
}

impl Setting {
    pub(super) fn options(self) -> Options {
        let Rules { flush_every_ops, max_bytes, drops_oldest } = self.rules;
        Options::new()
            .arena_size(self.arena as u64)
            .max_mapped_arenas(self.cap)
            .flush_every_ops(flush_every_ops)
            .max_bytes(max_bytes)
            .on_full(if drops_oldest { OnFull::DropOldest } else { OnFull::Reject })
    }
}

/// The fuzzer's bytes; zeros behind their end.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        let count = if end > 256 { 2 } else { 1 };
        (0..count).fold(0, |sum, _| sum << 8 | usize::from(self.byte())) % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn who(&mut self) -> usize {
        self.below(NAMES.len())
    }

    fn share(&mut self) -> usize {
        self.below(1 << 16)
    }

    /// Most queues keep to small files: the more of them, the more happens at their ends.
    pub(super) fn setting(&mut self) -> Setting {
        const KIB: usize = 1 << 10;
        let arenas = [4, 4, 4, 4, 8, 8, 16, 64].map(|kib| kib * KIB);
        let arena = if self.below(32) == 31 { 4096 * KIB } else { self.pick(&arenas) };
        let cap = self.pick(&[None, Some(3), Some(4), Some(10)]);
        let flush_every_ops = self.pick(&[None, None, None, Some(1), Some(3), Some(7)]);
        let limits = [None, None, Some(64), Some(128), Some(150), Some(512)];
        let max_bytes = self.pick(&limits).map(|kib| kib << 10);
        let drops_oldest = max_bytes.is_some() && self.below(4) > 0;
        Setting { arena, cap, rules: Rules { flush_every_ops, max_bytes, drops_oldest } }
    }

    fn size(&mut self) -> Size {
        match self.below(20) {
            0..12 => Size::Bytes(self.below(200)),
            12..15 => Size::Bytes(self.below(5000)),
            15 => Size::Bytes(self.below(20_000)),
            16..19 => Size::Near(1 + self.below(3), self.below(221) as isize - 200),
            _ => Size::Share(self.below(1000)),
        }
    }

    fn step(&mut self) -> Step {
        match self.below(64) {
            0..7 => Step::Enqueue(Put::OneByOne, 1, self.size()),
            7..11 => Step::Enqueue(Put::OneByOne, 1 + self.below(12), self.size()),
            11..13 => Step::Enqueue(Put::InParts, 1, self.size()),
            13..15 => Step::Enqueue(Put::Batch, self.below(8), self.size()),
            15..18 => Step::Take(self.who(), Take::Dequeue, 1 + self.below(5)),
            18 => Step::Take(self.who(), Take::DequeueInto, 1 + self.below(3)),
            19 => Step::Take(self.who(), Take::Batch, self.below(12)),
            20 => Step::Take(self.who(), Take::Skip, 1 + self.below(2)),
            21 => Step::Take(self.who(), Take::Hold, 1),
            22 => Step::Peek(self.who()),
            23 => Step::PeekInto(self.who()),
            24 => Step::Iterate(self.who(), self.below(256)),
            25 => Step::Drain(self.who()),
            26..35 => Step::Receive(self.who(), 1 + self.below(7)),
            35..47 => Step::Ack(self.share()),
            47..51 => Step::Nack(self.share()),
            51 | 52 => Step::Limit(self.who(), [None, Some(1), Some(2), Some(5)][self.below(4)]),
            53 | 54 => Step::Seek(self.who(), self.share()),
            55 => Step::Fork(self.who(), 1 + self.below(NAMES.len() - 1)),
            56 => Step::Remove(1 + self.below(NAMES.len() - 1)),
            57 | 58 => Step::Flush,
            59 => Step::WaitDurable,
            60 => Step::Reopen(Gone::Closed, self.setting()),
            61 => Step::Reopen(Gone::Dropped, self.setting()),
            _ => Step::Reopen(Gone::Dead, self.setting()),
        }
    }

    pub(super) fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while steps.len() < MOST && !self.0.is_empty() {
            steps.push(self.step());
        }
        steps
    }
}
