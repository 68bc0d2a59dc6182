//! A far side removes messages, is removed itself, or is written to by somebody else.

use super::super::stored::Stored;
use super::Far;
use crate::forward::far_side::Position;

impl Far {
    /// Removes the stream and makes it anew. Returns the number below which the far side once had
    /// everything.
    pub(in super::super) fn recreate(&mut self) -> u64 {
        let until = self.all().last().map_or(0, |message| message.seq + 1).max(self.high);
        self.store += 1;
        (self.end, self.synced) = (0, 0);
        self.log.clear();
        self.removed.clear();
        self.lost.clear();
        until
    }

    /// Removes messages by their age, all of them by a purge, or the last one.
    pub(in super::super) fn remove(&mut self) {
        match self.rng.below(3) {
            0 => self.removed.extend(self.log.pop()),
            1 => self.removed.append(&mut self.log),
            _ => {
                let count = self.rng.below(self.log.len() as u64 + 1) as usize;
                self.removed.extend(self.log.drain(..count));
            }
        }
    }

    /// Notes that it stored what it has while the row named another store.
    pub(in super::super) fn misname_all(&mut self) {
        let numbers = self.all().into_iter().flat_map(Stored::unpacked).map(|it| it.seq).collect();
        self.misnamed = numbers;
    }

    /// Returns whether its store was not set back to before this position.
    pub(in super::super) fn has_all_below(&self, position: Option<Position>) -> bool {
        position.is_none_or(|it| it.store != self.store || it.at <= self.end)
    }

    /// Somebody else's messages take positions, and are gone. No write of the queue is pending.
    pub(in super::super) fn let_others_write(&mut self, count: u64) {
        self.silence();
        self.end += count;
    }
}
