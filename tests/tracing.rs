//! With the feature `tracing` what happens to the files is told.

#![cfg(feature = "tracing")]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use mmq::{OnFull, Options};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Heard {
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
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn opening_segments_gaps_and_a_full_queue_are_told() {
    let heard = Heard::default();
    let dir = tempfile::tempdir().unwrap();
    tracing::subscriber::with_default(heard.clone(), || {
        let queue =
            Options::new().arena_size(4096).max_bytes(65536).on_full(OnFull::DropOldest).open(dir.path()).unwrap();
        queue.peek().unwrap();
        for _ in 0..100 {
            queue.enqueue([0; 1000]).unwrap();
        }
        assert!(queue.dequeue().is_err());
    });
    let lines = heard.0.lock().unwrap();
    for told in [
        "INFO message=queue opened",
        "DEBUG message=segment begun",
        "message=queue is full",
        "WARN message=messages are missing",
    ] {
        assert!(lines.iter().any(|line| line.contains(told)), "{told} is not in {lines:#?}");
    }
}
