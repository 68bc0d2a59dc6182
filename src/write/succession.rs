//! Where the next segment must begin, when the tail's segment was given up.

use crate::format::Spot;
use crate::index::run::Next;

#[derive(Debug)]
pub(super) struct Succession {
    /// Where the next segment must begin, the numbers missing before it and their cause, when the
    /// last one takes no more.
    next: Option<Next>,
    /// What `next` was when it was last followed.
    followed: Option<Next>,
}

impl Succession {
    pub(super) fn new(next: Option<Next>) -> Succession {
        Succession { next, followed: None }
    }

    pub(super) fn next(&self) -> Option<Next> {
        self.next
    }

    /// The number behind the last one that the tail's segment holds. Behind it numbers may be
    /// missing that the next segment states.
    pub(super) fn held_end(&self, committed: Spot) -> u64 {
        self.next.map_or(committed.seq, |next| next.seq - next.gap)
    }

    /// The segment the tail stands in is given up: `next` is how the one behind it begins, and is
    /// returned to be told to the index, unless that was given up before.
    pub(super) fn begin(&mut self, next: Next) -> Option<Next> {
        if self.next.is_some() {
            return None;
        }
        self.next = Some(next);
        self.next
    }

    /// The next segment was begun. The index goes on saying so: the segment may be lost again.
    pub(super) fn follow(&mut self) {
        if let Some(next) = self.next.take() {
            self.followed = Some(next);
        }
    }

    /// The segment that was begun behind `committed`, if any, goes; the next one begins there all
    /// the same: what lies before was given up. Returns what to tell the index.
    pub(super) fn take_back(&mut self, committed: u64) -> Option<Next> {
        let next = self.followed.take_if(|next| next.base > committed)?;
        self.next = Some(next);
        self.next
    }
}
