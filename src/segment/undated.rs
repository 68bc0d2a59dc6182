//! Bounds the age of the messages in the tail's segment when its header does not date them.

/// When this run saw the messages of a tail segment whose header does not date them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Undated {
    pub(super) life: u64,
    /// The tail's position at the last look.
    pub(super) tail: u64,
    /// The time of the first look: messages in the segments before it were written before.
    pub(super) begun: u64,
    /// The time of the first look at the last message in it.
    pub(super) until: u64,
}

impl Undated {
    pub(super) fn at(life: u64, tail: u64, now: u64) -> Undated {
        Undated { life, tail, begun: now, until: now }
    }

    /// Returns the bounds after another look. The clock may have been set back meanwhile.
    pub(super) fn look(self, tail: u64, now: u64) -> Undated {
        let has_more = tail > self.tail;
        let until = if has_more { now } else { self.until.min(now) };
        let begun = self.begun.min(now);
        holds!(begun <= until, "the first look at a segment, {begun}, was before that at {until}");
        Undated { tail: tail.max(self.tail), begun, until, ..self }
    }
}
