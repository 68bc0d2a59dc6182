//! Places in a queue, as the command line names them: `WHERE`.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Arg;
use mmq::{Inspector, Seen, Start};

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::times;
use crate::units;

/// What `WHERE` is, for the help of every command that takes one.
pub(crate) const ABOUT: &str = "\
WHERE is one of: a sequence number (1042); +N or -N, so many numbers after or before the consumer's
place; first; last (behind the newest message); a time (2026-11-22T03:00Z) or an age (15m), which
mean the first message of the first segment that was begun at that time or later.";

/// An argument that takes one.
pub(crate) fn argument(id: &'static str) -> Arg {
    Arg::new(id).value_name("WHERE").value_parser(parse).allow_negative_numbers(true)
}

/// A place in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// A sequence number.
    Seq(u64),
    /// So many numbers behind the consumer's place.
    After(u64),
    /// So many numbers before it.
    Before(u64),
    First,
    /// Behind the last message.
    Last,
    /// The first segment that was begun at that time or later.
    Time(SystemTime),
    /// As [`Where::Time`], so long ago.
    Ago(Duration),
}

/// For clap.
fn parse(text: &str) -> Result<Where, String> {
    let number = |digits: &str| digits.parse::<u64>().ok();
    let place = match text {
        "first" => Some(Where::First),
        "last" => Some(Where::Last),
        text if text.starts_with('+') => text.strip_prefix('+').and_then(number).map(Where::After),
        text if text.starts_with('-') => text.strip_prefix('-').and_then(number).map(Where::Before),
        text => number(text)
            .map(Where::Seq)
            .or_else(|| times::parse(text).map(Where::Time))
            .or_else(|| units::parse_duration(text).ok().map(Where::Ago)),
    };
    place.ok_or_else(|| format!("{text:?} is not a valid WHERE. {ABOUT}"))
}

/// What the places of a queue are measured from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// The queue's directory.
    pub(crate) dir: &'a Path,
    /// The first number still held.
    pub(crate) oldest: u64,
    /// The number that the next message will get.
    pub(crate) next: u64,
    /// The next number that the consumer will get.
    pub(crate) place: u64,
}

impl Where {
    /// The sequence number, within what the queue holds.
    pub(crate) fn resolve(self, bounds: Bounds<'_>) -> Tried<u64> {
        let Bounds { dir, oldest, next, place } = bounds;
        let seq = match self {
            Where::Seq(seq) => seq,
            Where::After(by) => place.saturating_add(by),
            Where::Before(by) => place.saturating_sub(by).max(oldest),
            Where::First => oldest,
            Where::Last => next,
            Where::Time(time) => first_since(dir, time, oldest..next)?,
            Where::Ago(ago) => {
                let time = SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
                first_since(dir, time, oldest..next)?
            }
        };
        if (oldest..=next).contains(&seq) {
            return Ok(seq);
        }
        let message =
            format!("there is no message {seq}: {oldest} is the oldest, and {next} comes next");
        Err(Failure::new(ExitStatus::Missing, "no_message", message))
    }
}

/// The first message of the first segment that was begun at that time or later. Segments were begun
/// in the order of their messages.
fn first_since(dir: &Path, time: SystemTime, held: Range<u64>) -> Tried<u64> {
    let inspector = Inspector::open(dir)?;
    let (mut from, mut to) = (held.start, held.end);
    while from < to {
        let middle = from + (to - from) / 2;
        let mut found = None;
        // Where messages are missing the next one tells.
        for seen in inspector.messages(Start::Seq(middle)) {
            if let Seen::Message { message, segment_time } = seen? {
                found = Some((message.seq(), segment_time));
                break;
            }
        }
        match found {
            Some((seq, begun)) if begun < time => from = seq + 1,
            _ => to = middle,
        }
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_the_help_says() {
        assert_eq!(parse("1042"), Ok(Where::Seq(1042)));
        assert_eq!(parse("+5"), Ok(Where::After(5)));
        assert_eq!(parse("-5"), Ok(Where::Before(5)));
        assert_eq!(parse("first"), Ok(Where::First));
        assert_eq!(parse("last"), Ok(Where::Last));
        assert_eq!(parse("15m"), Ok(Where::Ago(Duration::from_secs(900))));
        let time = times::parse("2026-11-22T03:00Z").unwrap();
        assert_eq!(parse("2026-11-22T03:00Z"), Ok(Where::Time(time)));
        for text in ["", "x", "+", "-x", "1x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn places_lie_within_the_queue() {
        let bounds = Bounds { dir: Path::new(""), oldest: 10, next: 20, place: 15 };
        let at = |place: Where| place.resolve(bounds).ok();
        assert_eq!(at(Where::Seq(10)), Some(10));
        assert_eq!(at(Where::Seq(20)), Some(20));
        assert_eq!(
            (at(Where::Seq(9)), at(Where::Seq(21)), at(Where::After(6))),
            (None, None, None)
        );
        assert_eq!((at(Where::After(5)), at(Where::Before(3))), (Some(20), Some(12)));
        assert_eq!(
            (at(Where::Before(99)), at(Where::First), at(Where::Last)),
            (Some(10), Some(10), Some(20))
        );
    }
}
