//! An error as the body of an answer: four numbers, a name and a text.
//!
//! | error | numbers | name | text |
//! |---|---|---|---|
//! | a gap | first, last, cause | | |
//! | invalid argument or option | | which | why |
//! | message too large | its length, the longest, `max_bytes` | | |
//! | full | used, limit, needed, free | the option | |
//! | not found | first and next number held | `message`, `consumer` | its name |
//! | an error of the system | its number | the operation | the system's words |
//! | any other | | | the whole text |

use std::io;
use std::path::Path;

use super::fields::{Fields, TooShort, put_optional, put_text};
use super::frame::NONE;
use crate::error::{Error, Gap, GapCause};

/// Words that an error of this process keeps for ever, for those that come from another one.
const WORDS: [&str; 11] = [
    "max_bytes",
    "min_free_bytes",
    "message",
    "consumer",
    "consumer name",
    "flush",
    "sync",
    "messages in flight",
    "lease",
    "backoff",
    "max_attempts",
];

fn word(name: &str, otherwise: &'static str) -> &'static str {
    WORDS.into_iter().find(|word| *word == name).unwrap_or(otherwise)
}

/// Writes the error as a body. Its number is [`Error::status`].
pub(super) fn put_error(body: &mut Vec<u8>, error: &Error) {
    let (numbers, name, text): ([Option<u64>; 4], &str, String) = match error {
        Error::Gap(Gap { first, last, cause }) => {
            ([Some(*first), Some(*last), Some(cause.number().into()), None], "", String::new())
        }
        Error::InvalidArgument { what, reason, .. } => ([None; 4], what, reason.clone()),
        Error::InvalidOption { name, reason, .. } => ([None; 4], name, reason.clone()),
        Error::MessageTooLarge { len, max, max_bytes, .. } => {
            ([Some(*len), Some(*max), *max_bytes, None], "", String::new())
        }
        Error::Full { option, used, limit, needed, free, .. } => {
            ([Some(*used), Some(*limit), Some(*needed), *free], option, String::new())
        }
        Error::NotFound { what, name, held, .. } => {
            let held = held.as_ref().map(|held| [Some(held.start), Some(held.end), None, None]);
            (held.unwrap_or_default(), what, name.clone())
        }
        Error::Io { op, source, .. } => {
            let number = source.raw_os_error().and_then(|number| u64::try_from(number).ok());
            ([number, None, None, None], op, source.to_string())
        }
        Error::Poisoned { reason } | Error::NotShared { reason, .. } => {
            ([None; 4], "", reason.clone())
        }
        other => ([None; 4], "", other.to_string()),
    };
    numbers.into_iter().for_each(|number| put_optional(body, number));
    put_text(body, name);
    body.extend_from_slice(text.as_bytes());
}

/// Reads the error with this number from a body. `path` is the queue's directory.
pub(super) fn read_error(status: u16, body: &[u8], path: &Path) -> Error {
    read(status, Fields(body), path)
        .unwrap_or_else(|TooShort| unreadable(path, format!("an answer {status} is too short")))
}

/// The error for an answer that this version does not understand.
pub(super) fn unreadable(path: &Path, what: String) -> Error {
    Error::io("understand the owner of", path, io::Error::new(io::ErrorKind::InvalidData, what))
}

fn read(status: u16, mut body: Fields<'_>, path: &Path) -> Result<Error, TooShort> {
    let numbers = [body.optional()?, body.optional()?, body.optional()?, body.optional()?];
    let [first, second, third, _] = numbers.map(|number| number.unwrap_or(NONE));
    let path = path.to_owned();
    let name = body.text()?;
    let text = String::from_utf8_lossy(body.rest()).into_owned();
    Ok(match status {
        4 => {
            let is_cause = |cause: &GapCause| u64::from(cause.number()) == third;
            let cause = GapCause::ALL.into_iter().find(is_cause).unwrap_or(GapCause::Damaged);
            Error::Gap(Gap { first, last: second.max(first), cause })
        }
        16 => {
            Error::InvalidArgument { path: Some(path), what: word(&name, "argument"), reason: text }
        }
        17 => Error::InvalidOption { path, name: word(&name, "option"), reason: text },
        18 => Error::MessageTooLarge { path, len: first, max: second, max_bytes: numbers[2] },
        19 if !name.is_empty() && numbers[1].is_some() => Error::Full {
            path,
            option: word(&name, "limit"),
            used: first,
            limit: second,
            needed: third,
            free: numbers[3],
            held_by: None,
        },
        21 => Error::NotFound {
            path,
            what: word(&name, "object"),
            name: text,
            held: numbers[0].zip(numbers[1]).map(|(from, to)| from..to),
        },
        24 => Error::Poisoned { reason: text },
        25 => Error::Closed,
        27 => Error::Expired,
        28 => Error::Interrupted,
        32 => Error::NotShared { path, reason: text },
        _ => {
            let number = numbers[0].and_then(|number| i32::try_from(number).ok());
            let kind = number
                .map_or(io::ErrorKind::Other, |number| io::Error::from_raw_os_error(number).kind());
            Error::io(word(&name, "have this done in"), path, io::Error::new(kind, text))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn an_error_arrives_as_it_was_sent() {
        let path = PathBuf::from("/queue");
        let errors = [
            Error::Gap(Gap { first: 3, last: 9, cause: GapCause::Rejected }),
            Error::InvalidArgument {
                path: Some(path.clone()),
                what: "consumer name",
                reason: "300 bytes long".into(),
            },
            Error::MessageTooLarge { path: path.clone(), len: 9, max: 8, max_bytes: Some(100) },
            Error::MessageTooLarge { path: path.clone(), len: 9, max: 8, max_bytes: None },
            Error::Full {
                path: path.clone(),
                option: "max_bytes",
                used: 1,
                limit: 2,
                needed: 3,
                free: None,
                held_by: None,
            },
            Error::no_message(&path, 17, 20..40),
            Error::no_consumer(&path, "w"),
            Error::Poisoned { reason: "flush failed".into() },
            Error::Closed,
            Error::Expired,
            Error::Interrupted,
            Error::NotShared { path: path.clone(), reason: "64 are enough".into() },
        ];
        for error in errors {
            let mut body = Vec::new();
            put_error(&mut body, &error);
            let read = read_error(error.status(), &body, &path);
            assert_eq!(format!("{read:?}"), format!("{error:?}"));
            for cut in 0..body.len() {
                let _ = read_error(error.status(), &body[..cut], &path);
            }
        }
    }

    #[test]
    fn a_full_disk_is_one_here_too() {
        let full = io::Error::from_raw_os_error(28);
        let mut body = Vec::new();
        let error = Error::io("write", "/queue/segment-00000000", full);
        put_error(&mut body, &error);
        let read = read_error(error.status(), &body, Path::new("/queue"));
        assert!(read.is_full(), "{read}");
        assert_eq!(
            read.to_string(),
            "cannot have this done in /queue: No space left on device (os error 28)"
        );
    }
}
