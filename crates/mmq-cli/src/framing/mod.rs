//! Where one message ends and the next begins, in a stream of bytes.

pub(crate) mod base64;
mod decode;
mod json;
mod read;
mod visible;
mod write;

use clap::ArgMatches;
use clap::builder::PossibleValue;

pub(crate) use json::{About, JsonLine, Lines, gap_line, numbered};
pub(crate) use read::{Frames, json_line};
pub(crate) use visible::visible_text;
pub(crate) use write::{Written, gap_cause, missing};

/// How messages follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A newline behind each.
    Line,
    /// A NUL behind each.
    Null,
    /// The length before each: four bytes, big-endian.
    Length,
    /// The length before each, in LEB128.
    Varint,
    /// A JSON object in a line.
    Json,
    /// Nothing between them.
    Raw,
}

const ALL: [(&str, Framing, &str); 6] = [
    ("line", Framing::Line, "a newline ends each message"),
    ("null", Framing::Null, "a NUL byte ends each message, as for xargs -0"),
    (
        "length",
        Framing::Length,
        "each message comes after its length: four bytes, big-endian; for any bytes",
    ),
    ("varint", Framing::Varint, "each message comes after its length, in LEB128; for any bytes"),
    ("json", Framing::Json, "each line is a JSON object; for any bytes"),
    ("raw", Framing::Raw, "nothing marks the end; each input file is one message"),
];

/// For clap.
pub(crate) fn names() -> Vec<PossibleValue> {
    ALL.iter().map(|(name, _, help)| PossibleValue::new(*name).help(*help)).collect()
}

/// The framing that was asked for, `None` when none was.
pub(crate) fn asked(matches: &ArgMatches) -> Option<Framing> {
    if matches.get_flag("null") {
        return Some(Framing::Null);
    }
    let asked = matches.get_one::<String>("framing")?;
    ALL.iter().find(|(name, ..)| name == asked).map(|(_, framing, _)| *framing)
}
