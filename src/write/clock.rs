//! With `max_age`: the times between which the tail's segment takes messages.

use crate::segment::ages::Ages;
use crate::storage::Storage;

/// The times between which a segment takes messages, as its header says them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) created: u64,
    /// Zero without ages.
    pub(super) until: u64,
}

#[derive(Debug)]
pub(super) struct Clock {
    ages: Option<Ages>,
    /// The time at the last [`look`](Self::look).
    now: u64,
    /// The times of the tail's segment.
    pub(super) span: Span,
}

impl Clock {
    pub(super) fn new(ages: Option<Ages>) -> Clock {
        Clock { ages, now: 0, span: Span::default() }
    }

    /// Whether messages become too old.
    #[inline]
    pub(super) fn has_ages(&self) -> bool {
        self.ages.is_some()
    }

    /// Takes the time.
    pub(super) fn look<S: Storage>(&mut self, storage: &S) {
        self.now = storage.now();
    }

    /// The times of a segment that begins now.
    pub(super) fn new_span(&self) -> Span {
        Span { created: self.now, until: self.ages.map_or(0, |ages| ages.until(self.now)) }
    }

    /// Whether the tail's segment takes no more messages: its time is over, or its header does not
    /// tell the age of its messages (the clock was set back, for instance).
    pub(super) fn is_over(&self) -> bool {
        self.ages.is_some_and(|ages| !self.tells(ages) || self.now >= self.span.until)
    }

    /// Whether every message in the tail's segment is too old.
    pub(super) fn is_past(&self) -> bool {
        self.ages.is_some_and(|ages| self.tells(ages) && ages.are_past(self.span.until, self.now))
    }

    /// Whether the time is not before the beginning of the tail's segment: the clock was not set
    /// back since.
    pub(super) fn goes_on(&self) -> bool {
        self.now >= self.span.created
    }

    fn tells(&self, ages: Ages) -> bool {
        ages.tells(self.span.created, self.span.until, self.now)
    }
}
