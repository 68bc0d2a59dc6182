//! With ages: the times between which the tail's segment takes messages. With lanes by age: when
//! messages are written.

use std::time::Duration;

use crate::segment::ages::Ages;
use crate::storage::Storage;

/// The times between which a segment takes messages, as its header says them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) created: u64,
    /// Zero without ages.
    pub(super) until: u64,
}

/// How often it is marked when messages are written.
#[derive(Debug, Clone, Copy)]
struct Marks {
    span: u64,
    /// When the last one was made.
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
    /// When that segment began, as its header says: later than that after the clock was set back.
    begun: u64,
}

impl Clock {
    pub(super) fn new(ages: Option<Ages>) -> Clock {
        Clock { ages, marks: None, now: 0, span: Span::default(), begun: 0 }
    }

    /// From now on it is marked when messages are written, to an eighth of the time that they are
    /// `fresh`, if it was not as often before.
    pub(super) fn mark_often(&mut self, fresh: Duration) {
        let span = (u64::try_from(fresh.as_millis()).unwrap_or(u64::MAX) / 8).max(1);
        let often = self.marks.map_or(span, |marks| marks.span.min(span));
        self.marks = Some(Marks { span: often, begun: u64::MAX });
    }

    /// Whether the time is taken for each message.
    #[inline]
    pub(super) fn is_needed(&self) -> bool {
        self.ages.is_some() || self.marks.is_some()
    }

    /// Whether segments say when their messages were written, because these have a `max_age`.
    pub(super) fn has_ages(&self) -> bool {
        self.ages.is_some()
    }

    /// The times between which messages are written from now on, when the last ones are over.
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

    /// Takes the time.
    pub(super) fn look<S: Storage>(&mut self, storage: &S) {
        self.now = storage.now();
    }

    /// The times of a segment that begins now.
    pub(super) fn new_span(&self) -> Span {
        self.span_from(self.now)
    }

    fn span_from(&self, created: u64) -> Span {
        Span { created, until: self.ages.map_or(0, |ages| ages.until(created)) }
    }

    /// What the tail's segment's header is to say when the segment takes messages from now on,
    /// behind those that it has: it begins no earlier than it did. When the clock was set back and
    /// is wrong now, an earlier time would make the messages in it older than they are.
    pub(super) fn later_span(&self) -> Span {
        self.span_from(self.now.max(self.begun))
    }

    /// The tail stands in a segment whose header says these times.
    pub(super) fn enter(&mut self, stated: Span) {
        (self.span, self.begun) = (stated, stated.created);
    }

    /// The tail's segment takes messages from now on; its header says `stated`.
    pub(super) fn go_on(&mut self, stated: Span) {
        (self.span, self.begun) = (self.new_span(), stated.created);
    }

    /// Whether the tail's segment takes no more messages: its time is over, or its header does not
    /// date its messages (the clock was set back, for instance).
    pub(super) fn is_over(&self) -> bool {
        let Span { created, until } = self.span;
        self.ages.is_some_and(|ages| !ages.is_dated(created, until, self.now) || self.now >= until)
    }
}
