//! A queue's figures for people: what waits, and how old it is, first.

use std::os::unix::ffi::OsStrExt;

use mmq::{ConsumerSnapshot, QueueState, Snapshot};

use crate::figures;
use crate::framing::visible_text;
use crate::paint::Paint;
use crate::rates::Rates;
use crate::times;
use crate::units::{self, count};

/// How sizes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    Rounded,
    Exact,
}

impl Sizes {
    fn of(self, bytes: u64) -> String {
        match self {
            Sizes::Rounded => units::size(bytes),
            Sizes::Exact => format!("{bytes} B"),
        }
    }
}

/// Where the text of a line begins that has a name.
pub(crate) const INDENT: usize = 13;

/// The figures of one queue, a line each.
pub(crate) fn block(
    snapshot: &Snapshot,
    rates: Option<&Rates>,
    sizes: Sizes,
    paint: Paint,
) -> String {
    let path = visible_text(snapshot.path.as_os_str().as_bytes());
    let mut block = format!("{path}: {}\n", state(snapshot, paint));
    let mut line = |name: &str, text: String| block += &self::line(name, &text);
    let unread = no_reader(snapshot).map(|text| format!("; {text}")).unwrap_or_default();
    for consumer in snapshot.readers() {
        let name = if consumer.name.is_empty() { "waiting" } else { "consumer" };
        let taken = rates.and_then(|rates| rates.taken(&consumer.name));
        let taken = taken.map(|rate| format!("; {rate:.1} taken a second")).unwrap_or_default();
        line(name, waiting(consumer, sizes) + &unread + &taken);
    }
    let undurable = figures::undurable(snapshot);
    let durable =
        if undurable == 0 { "all durable".into() } else { format!("{undurable} not durable yet") };
    let (oldest, next) = (snapshot.oldest_seq, snapshot.next_seq);
    let put = rates.map(|rates| format!("; {:.1} put in a second", rates.put)).unwrap_or_default();
    line("numbers", format!("{oldest} is the oldest, {next} comes next, {durable}{put}"));
    let (segments, spare) = (count(snapshot.segments, "segment"), snapshot.spare_segments);
    let mut disk = format!("{} in {segments}, {spare} spare", sizes.of(snapshot.disk_bytes));
    if let Some(free) = snapshot.free_bytes {
        disk += &format!("; {} free", sizes.of(free));
    }
    line("disk", disk);
    for gap in &snapshot.gaps {
        let text = gap.to_string();
        line("missing", if figures::is_lost(gap.cause) { paint.bad(&text) } else { text });
    }
    if snapshot.set_aside_files > 0 {
        line("set aside", paint.bad(&count(snapshot.set_aside_files, "damaged file")));
    }
    if let Some(owner) = &snapshot.owner {
        // Since the owner, or the last one, opened the queue.
        if owner.lost > 0 {
            let lost = count(owner.lost, "message");
            line("lost", paint.bad(&format!("{lost}, to damage or a power cut")));
        }
        if owner.dropped > 0 {
            let dropped = count(owner.dropped, "message");
            line("dropped", format!("{dropped}, unread, to make room or because of their age"));
        }
        if owner.refused > 0 {
            line("refused", format!("{}, because there was no room", count(owner.refused, "call")));
        }
        if let Some(error) = &owner.last_flush_error {
            let error = visible_text(error.as_bytes());
            line("flush", paint.bad(&format!("a flush failed: {error}")));
        }
    }
    let created = snapshot.created.map_or("at an unknown time".into(), times::rfc3339);
    let id = figures::id(&snapshot.queue_id);
    line("queue", format!("{id}, format {}, created {created}", snapshot.format));
    block
}

/// A line below the first, with what it is about.
pub(crate) fn line(name: &str, text: &str) -> String {
    format!("  {name:<10} {text}\n")
}

/// Of a queue that nobody has: its index tells nothing.
fn has_no_index(snapshot: &Snapshot) -> bool {
    snapshot.state == QueueState::Cut && snapshot.created.is_none()
}

/// Why no consumer is shown but the one to come.
pub(crate) fn no_reader(snapshot: &Snapshot) -> Option<&'static str> {
    let why = if has_no_index(snapshot) { "no place is known" } else { "nobody has read yet" };
    snapshot.consumers.is_empty().then_some(why)
}

fn has_failed_flush(snapshot: &Snapshot) -> bool {
    snapshot.owner.as_ref().is_some_and(|owner| owner.last_flush_error.is_some())
}

fn state(snapshot: &Snapshot, paint: Paint) -> String {
    let state = match snapshot.state {
        QueueState::Owned => {
            let since = snapshot.owned_since.map(times::rfc3339);
            let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
            match snapshot.owner_pid {
                Some(pid) if pid != 0 => format!("process {pid} has it{since}"),
                _ => format!("a process that this one cannot see has it{since}"),
            }
        }
        QueueState::Closed => "closed".into(),
        QueueState::Left | QueueState::Cut if cfg!(not(target_os = "linux")) => {
            "in use, or its process died: this process cannot see".into()
        }
        QueueState::Left if has_failed_flush(snapshot) => {
            "its process died after a failed flush; messages may be lost".into()
        }
        QueueState::Left => "its process died; nothing is lost".into(),
        QueueState::Cut if has_no_index(snapshot) => {
            "its index is missing or damaged; consumers and places may be lost".into()
        }
        QueueState::Cut => {
            let found = count(snapshot.found_behind.unwrap_or(0), "message");
            format!("power was cut, or it is a copy; {found} found behind the last checkpoint")
        }
        QueueState::Empty => "nothing was ever put in".into(),
        _ => "in a state that this version does not know".into(),
    };
    let state = match snapshot.state {
        QueueState::Owned | QueueState::Closed => paint.well(&state),
        QueueState::Left | QueueState::Cut => paint.in_doubt(&state),
        _ => state,
    };
    if snapshot.poisoned {
        state + "; " + &paint.bad("POISONED: a flush failed, open it again to write")
    } else {
        state
    }
}

fn waiting(consumer: &ConsumerSnapshot, sizes: Sizes) -> String {
    let name = match consumer.name.as_str() {
        "" => String::new(),
        name => format!("{}: ", visible_text(name.as_bytes())),
    };
    let (waits, bytes) = (count(consumer.messages, "message"), sizes.of(consumer.bytes));
    let age = consumer.oldest_age.map(units::duration);
    let age = age.map(|age| format!(", the oldest at most {age} old")).unwrap_or_default();
    let ahead = match consumer.acknowledged_ahead {
        0 => String::new(),
        ahead => format!(", {ahead} acknowledged ahead"),
    };
    let handed = handed_out(consumer);
    format!("{name}{waits}{age}, {bytes}, next is {}{ahead}{handed}", consumer.next_seq)
}

/// What the consumer's workers have, if it is known.
pub(crate) fn handed_out(consumer: &ConsumerSnapshot) -> String {
    let Some(handed) = consumer.handed_out else { return String::new() };
    let in_vain = match handed.first_in_vain {
        0 => String::new(),
        in_vain => format!(", which came back {}", count(in_vain.into(), "time")),
    };
    format!("; {} handed out, from {} on{in_vain}", handed.messages, handed.first_seq)
}
