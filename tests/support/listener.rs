//! The one `tracing` subscriber of the tests.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// Hands each event of the library to a function, as a line: `LEVEL message=words field=value `.
pub(crate) struct Listener<F>(pub(crate) F);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl<F: Fn(String) + 'static> Subscriber for Listener<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "mmq"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        (self.0)(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// What an event says, without its fields.
pub(crate) fn words(line: &str) -> &str {
    let (_, message) = line.split_once("message=").unwrap_or_default();
    message.split(" path=").next().unwrap_or_default().trim_end()
}
