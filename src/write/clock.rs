//! With `max_age`: between which times the tail's segment takes messages.

use crate::segment::ages::Ages;
use crate::storage::Storage;

/// Between which times a segment takes messages, as its header says it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) created: u64,
    /// Zero without ages.
    pub(super) until: u64,
}

#[derive(Debug)]
pub(super) struct Clock {
    ages: Option<Ages>,
    /// When the record that comes is written: as last looked.
    now: u64,
    /// Of the tail's segment.
    pub(super) span: Span,
}

impl Clock {
    pub(super) fn new(ages: Option<Ages>) -> Clock {
        Clock { ages, now: 0, span: Span::default() }
    }

    /// Messages become too old.
    #[inline]
    pub(super) fn counts(&self) -> bool {
        self.ages.is_some()
    }

    pub(super) fn look<S: Storage>(&mut self, storage: &S) {
        self.now = storage.now();
    }

    /// Of a segment that begins now.
    pub(super) fn new_span(&self) -> Span {
        Span { created: self.now, until: self.ages.map_or(0, |ages| ages.until(self.now)) }
    }

    /// The tail's segment takes no more messages: it has for as long as one may, or the clock was
    /// set back.
    pub(super) fn is_over(&self) -> bool {
        self.ages.is_some_and(|ages| !self.tells(ages) || self.now >= self.span.until)
    }

    /// Every message in the tail's segment is too old.
    pub(super) fn is_past(&self) -> bool {
        self.ages.is_some_and(|ages| self.tells(ages) && ages.are_past(self.span.until, self.now))
    }

    /// The clock was not set back since the tail's segment began.
    pub(super) fn goes_on(&self) -> bool {
        self.now >= self.span.created
    }

    fn tells(&self, ages: Ages) -> bool {
        ages.tells(self.span.created, self.span.until, self.now)
    }
}
