//! A far side loses or removes messages, is removed itself, or is written to by somebody else.

use super::super::stored::Stored;
use super::Far;
use crate::forward::far_side::Position;

impl Far {
    /// Kills the far side and restarts it with the synced messages, and perhaps some more. It may
    /// lose at most `most` of the acknowledged numbers.
    pub(in super::super) fn die(&mut self, most: u64) {
        self.silence();
        let mut left = self.synced + self.rng.below(self.end - self.synced + 1);
        let least = self.high.saturating_sub(most);
        let all = self.all();
        if most < u64::MAX && self.high > 0 {
            // All or nothing: with nothing left it would have forgotten the queue.
            // (What was sent again follows higher numbers.)
            let held = all.iter().rev().take_while(|message| message.seq + 1 >= least).last();
            left = left.max(held.map_or(self.end, |message| message.at));
        }
        let last = all.iter().rfind(|message| message.at <= left);
        let until = last.map_or(0, |message| message.seq + 1);
        if until < self.high {
            self.lost.push(until..self.high);
        }
        self.log.retain(|message| message.at <= left);
        self.removed.retain(|message| message.at <= left);
        (self.end, self.synced) = (left, left);
    }

    /// Sets the store back to its first `len` messages.
    pub(in super::super) fn set_back(&mut self, len: usize) {
        self.log.truncate(len);
        self.end = self.log.last().map_or(0, |last| last.at);
    }

    /// Removes the stream and makes it anew. Returns the number below which the far side once had
    /// everything.
    pub(in super::super) fn recreate(&mut self) -> u64 {
        let until = self.all().last().map_or(0, |message| message.seq + 1).max(self.high);
        (self.store, self.is_known) = (self.store + 1, false);
        (self.end, self.synced) = (0, 0);
        self.log.clear();
        self.removed.clear();
        self.lost.clear();
        self.misnamed.clear();
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
    pub(super) fn misname_all(&mut self) {
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
