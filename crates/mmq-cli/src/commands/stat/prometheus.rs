//! Figures in the text format of Prometheus, version 0.0.4.
//!
//! By hand: the libraries count in registries of their own; these figures are only written down.

use std::time::UNIX_EPOCH;

use mmq::{ConsumerSnapshot, QueueState, Snapshot};

use super::Polled;
use crate::figures;
use crate::metrics;

/// The value of a figure of a queue; `None` where nobody knows it.
type OfQueue = fn(&Snapshot) -> Option<f64>;
/// The value of a figure of a consumer; `None` where there is none now.
type OfConsumer = fn(&ConsumerSnapshot) -> Option<f64>;

const QUEUES: [(&str, &str, &str, OfQueue); 16] = [
    ("mmq_owned", "gauge", "1: a process has the queue open", |of| {
        Some(f64::from(u8::from(of.state == QueueState::Owned)))
    }),
    ("mmq_poisoned", "gauge", "1: a flush failed, and writing is refused", |of| {
        Some(f64::from(u8::from(of.poisoned)))
    }),
    ("mmq_messages", "gauge", "Messages that wait for the queue's own consumer", |of| {
        Some(of.messages as f64)
    }),
    ("mmq_bytes", "gauge", "Bytes of the segments that they take", |of| Some(of.bytes as f64)),
    ("mmq_disk_bytes", "gauge", "Bytes of disk that all files take", |of| {
        Some(of.disk_bytes as f64)
    }),
    ("mmq_segments", "gauge", "Segments that hold messages", |of| Some(of.segments as f64)),
    ("mmq_spare_segments", "gauge", "Drained segments kept for reuse", |of| {
        Some(of.spare_segments as f64)
    }),
    ("mmq_set_aside_files", "gauge", "Damaged files that openings set aside", |of| {
        Some(of.set_aside_files as f64)
    }),
    ("mmq_enqueued_total", "counter", "The number of the next message", |of| {
        Some(of.next_seq as f64)
    }),
    ("mmq_undurable_messages", "gauge", "Messages that a power cut may take", |of| {
        Some(figures::undurable(of) as f64)
    }),
    (
        "mmq_disk_free_bytes",
        "gauge",
        "Bytes of disk that are free; absent where the file system does not say",
        |of| Some(of.free_bytes? as f64),
    ),
    (
        "mmq_lost_messages_total",
        "counter",
        "Messages lost to damage or a power cut that reads reported since the owner opened the queue",
        |of| Some(of.owner.as_ref()?.lost as f64),
    ),
    (
        "mmq_given_up_messages_total",
        "counter",
        "Messages that the queue dropped, to make room or because of their age, before every consumer \
         had read them, since the owner opened the queue",
        |of| Some(of.owner.as_ref()?.dropped as f64),
    ),
    (
        "mmq_taken_total",
        "counter",
        "Messages that consumers took or skipped since the owner opened the queue; the owner stores \
         this figure at a flush, a close or a new segment, so it may stand still meanwhile",
        |of| Some(of.owner.as_ref()?.taken as f64),
    ),
    ("mmq_flushes_total", "counter", "Flushes since the owner opened the queue", |of| {
        Some(of.owner.as_ref()?.flushes as f64)
    }),
    (
        "mmq_refused_total",
        "counter",
        "Calls refused for lack of room since the owner opened the queue",
        |of| Some(of.owner.as_ref()?.refused as f64),
    ),
];

const CONSUMERS: [(&str, &str, OfConsumer); 4] = [
    ("mmq_consumer_messages", "Messages that wait for the consumer", |of| Some(of.messages as f64)),
    ("mmq_consumer_bytes", "Bytes of the segments that they take", |of| Some(of.bytes as f64)),
    (
        "mmq_consumer_handed_out",
        "Messages that its workers have or gave back; absent when there are none, and where attempts \
         are not stored",
        |of| Some(of.handed_out?.messages as f64),
    ),
    (
        "mmq_consumer_oldest_timestamp_seconds",
        "When the segment of the oldest waiting message was begun; absent when no message waits",
        |of| of.oldest_time?.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64()),
    ),
];

/// All of it. A queue that cannot be read has `mmq_up` 0 and nothing else.
pub(super) fn text(asked: &[Polled]) -> String {
    let mut text = String::new();
    family(&mut text, "mmq_up", "gauge", "1: the queue's files could be read");
    for one in asked {
        let up = if one.answer.is_ok() { 1.0 } else { 0.0 };
        sample(&mut text, "mmq_up", &[("queue", &one.label)], up);
    }
    let queues: Vec<_> =
        asked.iter().filter_map(|one| Some((one.label.as_str(), one.snapshot()?))).collect();
    family(&mut text, "mmq_info", "gauge", "What the queue is; version is that of this tool");
    for (label, snapshot) in &queues {
        let (id, format) = (figures::id(&snapshot.queue_id), snapshot.format.to_string());
        let labels = [
            ("queue", *label),
            ("queue_id", &id),
            ("format", &format),
            ("version", env!("CARGO_PKG_VERSION")),
            ("state", figures::state(snapshot.state)),
        ];
        sample(&mut text, "mmq_info", &labels, 1.0);
    }
    for (name, kind, help, value) in QUEUES {
        family(&mut text, name, kind, help);
        for (label, snapshot) in &queues {
            if let Some(value) = value(snapshot) {
                sample(&mut text, name, &[("queue", label)], value);
            }
        }
    }
    for (name, help, value) in CONSUMERS {
        family(&mut text, name, "gauge", help);
        for (label, snapshot) in &queues {
            for consumer in snapshot.readers() {
                let labels = [("queue", *label), ("consumer", &consumer.name)];
                if let Some(value) = value(consumer) {
                    sample(&mut text, name, &labels, value);
                }
            }
        }
    }
    text
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    *text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", metrics::escaped(value)))
        .collect();
    *text += &format!("{name}{{{}}} {value}\n", labels.join(","));
}
