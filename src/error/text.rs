//! Parts of error texts.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::held_by::HeldBy;

/// `queue PATH: ` at the beginning of a text; nothing when the path is not known.
pub(super) struct Of<'a>(pub(super) Option<&'a Path>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |path| write!(f, "queue {}: ", path.display()))
    }
}

/// How long a message may be, and why not longer.
pub(super) struct Longest {
    pub(super) max: u64,
    pub(super) max_bytes: Option<u64>,
}

impl fmt::Display for Longest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_bytes {
            Some(max_bytes) => {
                write!(f, "with max_bytes {max_bytes} at most {} bytes fit", self.max)
            }
            None => write!(f, "no queue takes more than {} bytes", self.max),
        }
    }
}

/// The limit that the call would exceed.
pub(super) struct Passed<'a> {
    pub(super) option: &'a str,
    pub(super) used: u64,
    pub(super) limit: u64,
    pub(super) free: Option<u64>,
    pub(super) held_by: Option<&'a HeldBy>,
}

impl fmt::Display for Passed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Passed { option, used, limit, free, held_by } = self;
        match free {
            Some(free) => {
                write!(
                    f,
                    "leave less than {option} {limit} free ({free} bytes are free, the queue takes {used})"
                )
            }
            None => write!(f, "exceed {option} {limit} (the queue takes {used})"),
        }?;
        match held_by {
            Some(HeldBy { consumer, seq }) if consumer.is_empty() => {
                write!(f, "; its own consumer keeps the oldest segment: it is at message {seq}")
            }
            Some(HeldBy { consumer, seq }) => {
                write!(
                    f,
                    "; consumer {consumer:?} keeps the oldest segment: it is at message {seq}"
                )
            }
            None => Ok(()),
        }
    }
}

/// The process that has a queue open.
pub(super) struct Holder {
    pub(super) pid: u32,
    pub(super) here: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder { pid: 0, here: false } => Ok(()),
            Holder { pid: 0, here: true } => {
                f.write_str(" in this process, which is closing it or holds a message of it")
            }
            Holder { pid, here: false } => write!(f, " in process {pid}"),
            Holder { pid, here: true } => write!(f, " in process {pid}, this one,"),
        }
    }
}

/// When the holder opened the queue. It is the same text at any moment of printing, so that whoever
/// tries again and again reports one trouble.
pub(super) struct Since(pub(super) Option<SystemTime>);

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.0 else { return Ok(()) };
        let Ok(since) = time.duration_since(UNIX_EPOCH) else { return Ok(()) };
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, " since {year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// Returns year, month and day of the day that is `days` after 1970-01-01 in the Gregorian
/// calendar. 400 years have 146,097 days, and a year that begins in March has its leap day at its
/// end.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // 0 is March
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

/// The missing item, and the items that exist.
pub(super) struct Absent<'a> {
    pub(super) path: &'a Path,
    pub(super) what: &'a str,
    pub(super) name: &'a str,
    pub(super) held: Option<&'a Range<u64>>,
}

impl fmt::Display for Absent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Absent { path, what, name, held } = self;
        let path = path.display();
        match (*what, held) {
            ("queue", _) => write!(f, "queue {name} does not exist"),
            ("path", _) => write!(f, "{name} does not exist"),
            ("segment file", _) => write!(f, "no segment file in {name}"),
            (_, Some(held)) if held.is_empty() => {
                write!(
                    f,
                    "queue {path} holds no {what} {name}: it is empty, and the next one will be {}",
                    held.end
                )
            }
            (_, Some(held)) => {
                write!(
                    f,
                    "queue {path} holds no {what} {name}: it holds {} to {}",
                    held.start,
                    held.end - 1
                )
            }
            (_, None) => write!(f, "queue {path} has no {what} {name:?}"),
        }
    }
}

/// Whether a call whose connection ended may have been done.
pub(super) struct Doubt(pub(super) bool);

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            true => "what was asked may or may not have been done",
            false => "nothing was done",
        })
    }
}
