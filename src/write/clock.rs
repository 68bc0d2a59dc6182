//! The writer's clock. With `max_age`: from when until when the tail's segment takes messages. With
//! lanes by age: when messages are written.

use std::time::Duration;

use crate::segment::ages::Ages;
use crate::storage::Storage;

/// From when until when a segment takes messages, as in its header.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) created: u64,
    /// Zero without `max_age`.
    pub(super) until: u64,
}

/// How often the writer marks when messages are written.
#[derive(Debug, Clone, Copy)]
struct Marks {
    span: u64,
    /// When the last mark was made.
    begun: u64,
}

#[derive(Debug)]
pub(super) struct Clock {
    ages: Option<Ages>,
    marks: Option<Marks>,
    /// The time at the last [`look`](Self::look).
    now: u64,
    /// The times of the tail's segment, as the clock shows them now.
    span: Span,
    /// When that segment began by its header: later than `span.created` after the clock was set
    /// back.
    begun: u64,
}

impl Clock {
    pub(super) fn new(ages: Option<Ages>) -> Clock {
        Clock { ages, marks: None, now: 0, span: Span::default(), begun: 0 }
    }

    /// Makes the writer mark when messages are written at least every eighth of the time `fresh`.
    pub(super) fn mark_often(&mut self, fresh: Duration) {
        let span = (u64::try_from(fresh.as_millis()).unwrap_or(u64::MAX) / 8).max(1);
        let often = self.marks.map_or(span, |marks| marks.span.min(span));
        self.marks = Some(Marks { span: often, begun: u64::MAX });
    }

    /// Returns whether the writer must read the clock for each message.
    #[inline]
    pub(super) fn is_needed(&self) -> bool {
        self.ages.is_some() || self.marks.is_some()
    }

    /// Returns whether segment headers date their messages, because these have a `max_age`.
    pub(super) fn has_ages(&self) -> bool {
        self.ages.is_some()
    }

    /// Returns the time span of the next mark when the last one is over.
    pub(super) fn next_mark(&mut self) -> Option<(u64, u64)> {
        let now = self.now;
        let marks = self.marks.as_mut()?;
        // (Also when the clock was set back.)
        let is_over = now < marks.begun || now - marks.begun >= marks.span;
        is_over.then(|| {
            marks.begun = now;
            (now, now.saturating_add(marks.span))
        })
    }

    /// Reads the clock.
    pub(super) fn look<S: Storage>(&mut self, storage: &S) {
        self.now = storage.now();
    }

    /// Returns the time span of a segment that begins now.
    pub(super) fn new_span(&self) -> Span {
        self.span_from(self.now)
    }

    fn span_from(&self, created: u64) -> Span {
        Span { created, until: self.ages.map_or(0, |ages| ages.until(created)) }
    }

    /// Returns the time span for the header of a tail's segment that has messages and takes more
    /// from now on. It begins no earlier than before: if the clock was set back and is wrong now,
    /// an earlier time would make its messages older than they are.
    pub(super) fn later_span(&self) -> Span {
        self.span_from(self.now.max(self.begun))
    }

    /// Notes that the tail is in a segment whose header has this time span.
    pub(super) fn enter(&mut self, stated: Span) {
        (self.span, self.begun) = (stated, stated.created);
    }

    /// Notes that the tail's segment takes messages from now on; its header has the span `stated`.
    pub(super) fn go_on(&mut self, stated: Span) {
        (self.span, self.begun) = (self.new_span(), stated.created);
        holds!(
            self.span.until == 0 || self.span.created <= self.span.until,
            "messages are written from {} on and before {}",
            self.span.created,
            self.span.until
        );
    }

    /// Returns whether the tail's segment takes no more messages, because its time span is over, or
    /// its header does not date its messages (the clock was set back, for instance).
    pub(super) fn is_over(&self) -> bool {
        let Span { created, until } = self.span;
        self.ages.is_some_and(|ages| !ages.is_dated(created, until, self.now) || self.now >= until)
    }
}
