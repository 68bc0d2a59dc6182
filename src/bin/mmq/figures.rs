//! What a queue says of itself, for programs. Fields are only ever added.

use mmq::{ConsumerSnapshot, Gap, QueueState, Snapshot};

use crate::framing::gap_cause;
use crate::json::Object;

const SCHEMA: u32 = 1;

/// The word for programs.
pub(crate) fn state(state: QueueState) -> &'static str {
    match state {
        QueueState::Owned => "owned",
        QueueState::Closed => "closed",
        QueueState::Left => "left",
        QueueState::Cut => "cut",
        QueueState::Empty => "empty",
        _ => "unknown",
    }
}

/// A queue's id, as 32 digits.
pub(crate) fn id(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All of it, in one line.
pub(crate) fn line(snapshot: &Snapshot) -> String {
    let owner = snapshot
        .owner_pid
        .map(|pid| Object::new().with("pid", pid).with_time("since", snapshot.owned_since).text());
    let line = Object::new()
        .with("schema", SCHEMA)
        .with("path", snapshot.path.to_string_lossy())
        .with("state", state(snapshot.state))
        .with_json("owner", owner.as_deref().unwrap_or("null"))
        .with("queue_id", id(&snapshot.queue_id))
        .with_time("created", snapshot.created)
        .with("format", snapshot.format)
        .with("next_seq", snapshot.next_seq)
        .with("oldest_seq", snapshot.oldest_seq)
        .with("durable_seq", snapshot.durable_seq)
        .with("messages", snapshot.messages)
        .with("bytes", snapshot.bytes)
        .with("disk_bytes", snapshot.disk_bytes)
        .with("segments", snapshot.segments)
        .with("spare_segments", snapshot.spare_segments)
        .with("poisoned", snapshot.poisoned)
        .with("set_aside_files", snapshot.set_aside_files)
        .with_all("consumers", snapshot.consumers.iter().map(|one| consumer(one).text()))
        .with_all("gaps", snapshot.gaps.iter().map(gap))
        .with("free_bytes", snapshot.free_bytes);
    let line = match snapshot.found_behind {
        Some(found) => line.with("found_behind", found),
        None => line,
    };
    line.with_time("taken_at", Some(snapshot.taken_at)).text()
}

pub(crate) fn consumer(consumer: &ConsumerSnapshot) -> Object {
    Object::new()
        .with("name", consumer.name.as_str())
        .with("seq", consumer.next_seq)
        .with("messages", consumer.messages)
        .with("bytes", consumer.bytes)
        .with("acknowledged_ahead", consumer.acknowledged_ahead)
        .with_time("oldest_time", consumer.oldest_time)
        .with("oldest_age_seconds", consumer.oldest_age.map(|age| age.as_millis() as f64 / 1000.0))
}

pub(crate) fn gap(gap: &Gap) -> String {
    Object::new()
        .with("first", gap.first)
        .with("last", gap.last)
        .with("count", gap.count())
        .with("cause", gap_cause(gap.cause))
        .text()
}
