//! What a queue says of itself, for programs. Fields are only ever added.

use mmq::{ConsumerSnapshot, Gap, GapCause, HandedOut, Origin, OwnerFigures, QueueState, Snapshot};

use crate::framing::gap_cause;
use crate::json_object::Object;
use crate::rates::Rates;

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

/// Whether messages were lost that nobody gave up.
pub(crate) fn is_lost(cause: GapCause) -> bool {
    !matches!(
        cause,
        GapCause::Dropped | GapCause::Expired | GapCause::Rejected | GapCause::Reserved
    )
}

/// How many messages a power cut may take. (Behind one, numbers are passed over that have none.)
pub(crate) fn undurable(snapshot: &Snapshot) -> u64 {
    let (from, end) = (snapshot.durable_seq, snapshot.next_seq);
    let missing = snapshot.gaps.iter().map(|gap| {
        let (first, behind) = (gap.first.max(from), (gap.last + 1).min(end));
        behind.saturating_sub(first)
    });
    end.saturating_sub(from).saturating_sub(missing.sum())
}

/// All of it, and the rates where they are known.
pub(crate) fn object(snapshot: &Snapshot, rates: Option<&Rates>) -> Object {
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
        .with_all(
            "consumers",
            snapshot.readers().iter().map(|one| {
                let consumer = consumer(one);
                match rates {
                    Some(rates) => consumer.with("taken_per_second", rates.taken(&one.name)),
                    None => consumer,
                }
                .text()
            }),
        )
        .with_all("gaps", snapshot.gaps.iter().map(gap))
        .with("free_bytes", snapshot.free_bytes);
    let line = match &snapshot.owner {
        Some(counted) => line.with_json("counted", &counted_of(counted).text()),
        None => line,
    };
    let line = match snapshot.found_behind {
        Some(found) => line.with("found_behind", found),
        None => line,
    };
    let line = match rates {
        Some(rates) => line.with("put_per_second", rates.put),
        None => line,
    };
    line.with_time("taken_at", Some(snapshot.taken_at))
}

/// What the owner counts, or the last one counted, since it opened the queue.
fn counted_of(counted: &OwnerFigures) -> Object {
    Object::new()
        .with_time("stored_at", counted.stored_at)
        .with_time("opened_at", counted.opened_at)
        .with("library", counted.library.as_str())
        .with("enqueued", counted.enqueued)
        .with("taken", counted.taken)
        .with("flushes", counted.flushes)
        .with("longest_flush_seconds", counted.longest_flush.as_secs_f64())
        .with("refused", counted.refused)
        .with("lost", counted.lost)
        .with("dropped", counted.dropped)
        .with("last_flush_error", counted.last_flush_error.as_deref())
}

pub(crate) fn consumer(consumer: &ConsumerSnapshot) -> Object {
    Object::new()
        .with("name", consumer.name.as_str())
        .with("seq", consumer.next_seq)
        .with("messages", consumer.messages)
        .with("bytes", consumer.bytes)
        .with("acknowledged_ahead", consumer.acknowledged_ahead)
        .with_json("handed_out", &consumer.handed_out.map_or("null".into(), handed_out))
        .with_time("oldest_time", consumer.oldest_time)
        .with("oldest_age_seconds", consumer.oldest_age.map(|age| age.as_millis() as f64 / 1000.0))
        .with("kept", consumer.kept)
        .with_time("acknowledged_at", consumer.acknowledged_at)
}

fn handed_out(handed: HandedOut) -> String {
    Object::new()
        .with("messages", handed.messages)
        .with("first_seq", handed.first_seq)
        .with("first_in_vain", handed.first_in_vain)
        .text()
}

/// Where a dead letter comes from.
pub(crate) fn origin(origin: &Origin) -> String {
    Object::new()
        .with("queue_id", id(&origin.queue_id))
        .with("seq", origin.seq)
        .with("attempts", origin.attempts)
        .text()
}

pub(crate) fn gap(gap: &Gap) -> String {
    Object::new()
        .with("first", gap.first)
        .with("last", gap.last)
        .with("count", gap.count())
        .with("cause", gap_cause(gap.cause))
        .text()
}
