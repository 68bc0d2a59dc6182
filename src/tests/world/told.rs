//! How a life ended, and its story in words.

use super::acts::{Answer, Story};

/// Nothing, or the promise that is broken.
pub(super) type Check<T = ()> = Result<T, String>;

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use ensure;

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// The process; or in order, which is the same to who reads on.
    Kill,
    /// The machine lost power, and what was not synced is there as this seed says.
    Cut(u64),
}

impl Story {
    /// By steps: what began, what it was told.
    pub(super) fn in_words(&self) -> String {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for event in &self.events {
            let of = event.seq.map_or(String::new(), |seq| format!(" of {seq}"));
            let act = format!("{:?}{of}", event.act);
            let ids: Vec<String> = event.ids.iter().map(|id| format!("{id:x}")).collect();
            lines.push((event.began, format!("{}: {act} {}", event.thread, ids.join(" "))));
            if event.answer != Answer::Pending {
                let answer = match &event.answer {
                    Answer::Messages(messages) => messages
                        .iter()
                        .map(|(seq, id)| format!("{seq} is {id:x}"))
                        .collect::<Vec<_>>()
                        .join(", "),
                    other => format!("{other:?}"),
                };
                lines.push((event.ended, format!("    {}: {act} -> {answer}", event.thread)));
            }
        }
        lines.extend(self.quiet_at.map(|step| (step, "nobody has anything to do".to_owned())));
        lines.sort_by_key(|(step, _)| *step);
        lines.iter().map(|(step, text)| format!("{step:6} {text}\n")).collect()
    }
}
