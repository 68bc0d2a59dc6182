//! What `forward` and an engine like `accept` say to each other (docs/engines.md): frames, each a
//! length of four bytes, a kind of one byte, and a body. All numbers are little-endian. The first
//! frame of each side has the version.

use std::io::{self, Read, Write};

/// Of what the two say.
pub(in crate::commands) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"mmqaccpt";
/// The longest message: a frame's length must fit into four bytes.
pub(in crate::commands) const LONGEST: u64 = 1 << 30;
/// The longest body: a message with its number and sum.
const LONGEST_BODY: u64 = LONGEST + 12;
/// The number of a refusal that is not about one message.
pub(in crate::commands) const NO_MESSAGE: u64 = u64::MAX;

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum Frame {
    /// The forwarder begins: the id of its queue.
    Hello([u8; 16]),
    /// The answer: the last message that is here, its number and sum.
    Holds(Option<(u64, u32)>),
    /// Numbers that will not come, and why, as in `7-9 damaged`.
    Missing(String),
    /// A message: number, sum, bytes.
    Message(u64, u32, Vec<u8>),
    /// Asks for a flush and an answer.
    Flush,
    /// The answer: every message below this number is durable.
    Durable(u64),
    /// The end: about which message, and why.
    Refused(u64, String),
}

impl Frame {
    pub(in crate::commands) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut body = Vec::new();
        let kind = match self {
            Frame::Hello(id) => {
                body.extend([&MAGIC[..], &VERSION.to_le_bytes(), id].concat());
                1
            }
            Frame::Holds(last) => {
                body.extend([&MAGIC[..], &VERSION.to_le_bytes()].concat());
                if let Some((seq, sum)) = last {
                    body.extend([&seq.to_le_bytes()[..], &sum.to_le_bytes()].concat());
                }
                2
            }
            Frame::Missing(text) => {
                body.extend(text.as_bytes());
                3
            }
            Frame::Message(seq, sum, bytes) => return Frame::message(to, *seq, *sum, bytes),
            Frame::Flush => 5,
            Frame::Durable(below) => {
                body.extend(below.to_le_bytes());
                6
            }
            Frame::Refused(seq, why) => {
                body.extend([&seq.to_le_bytes()[..], why.as_bytes()].concat());
                7
            }
        };
        head(to, kind, body.len())?;
        to.write_all(&body)
    }

    /// Writes a message without a copy of its bytes.
    pub(in crate::commands) fn message(
        to: &mut impl Write,
        seq: u64,
        sum: u32,
        bytes: &[u8],
    ) -> io::Result<()> {
        head(to, 4, 12 + bytes.len())?;
        to.write_all(&seq.to_le_bytes())?;
        to.write_all(&sum.to_le_bytes())?;
        to.write_all(bytes)
    }

    /// Reads a frame; `None` at an end between two frames. What is no frame is an error of the kind
    /// `InvalidData`. It takes memory only for bytes that have come.
    pub(in crate::commands) fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = Vec::new();
        from.by_ref().take(5).read_to_end(&mut head)?;
        let (len, kind) = match *head.as_slice() {
            [] => return Ok(None),
            [a, b, c, d, kind] => (u64::from(u32::from_le_bytes([a, b, c, d])), kind),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let most = match kind {
            1 | 2 => 256,
            3 | 5..=7 => 64 << 10,
            4 => LONGEST_BODY,
            _ => 0,
        };
        if kind == 0 || kind > 7 || len > most {
            return Err(garbage(&head));
        }
        let mut body = Vec::new();
        if from.by_ref().take(len).read_to_end(&mut body)? as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Frame::of(kind, body).map(Some)
    }

    fn of(kind: u8, mut body: Vec<u8>) -> io::Result<Frame> {
        if kind <= 2 {
            let after = versioned(&body)?;
            return match (kind, after.len()) {
                (1, 16) => Ok(Frame::Hello(array(after, 0)?)),
                (2, 0) => Ok(Frame::Holds(None)),
                (2, 12) => Ok(Frame::Holds(Some((
                    u64::from_le_bytes(array(after, 0)?),
                    u32::from_le_bytes(array(after, 8)?),
                )))),
                _ => Err(garbage(&body)),
            };
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match kind {
            3 => Frame::Missing(text(&body)),
            4 => {
                let seq = u64::from_le_bytes(array(&body, 0)?);
                let sum = u32::from_le_bytes(array(&body, 8)?);
                body.drain(..12);
                Frame::Message(seq, sum, body)
            }
            5 => Frame::Flush,
            6 => Frame::Durable(u64::from_le_bytes(array(&body, 0)?)),
            _ => {
                let seq = u64::from_le_bytes(array(&body, 0)?);
                Frame::Refused(seq, text(body.get(8..).unwrap_or_default()))
            }
        })
    }
}

fn head(to: &mut impl Write, kind: u8, len: usize) -> io::Result<()> {
    let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    to.write_all(&len.to_le_bytes())?;
    to.write_all(&[kind])
}

/// What follows the version of a first frame.
fn versioned(body: &[u8]) -> io::Result<&[u8]> {
    let rest = body.strip_prefix(MAGIC).ok_or_else(|| garbage(body))?;
    match u32::from_le_bytes(array(rest, 0)?) {
        VERSION => Ok(rest.get(4..).unwrap_or_default()),
        other => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the other side speaks version {other} of these frames, this one version {VERSION}: install the same release on both sides"
            ),
        )),
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or_else(|| garbage(bytes))
}

fn garbage(bytes: &[u8]) -> io::Error {
    let shown = bytes.get(..bytes.len().min(40)).unwrap_or_default().escape_ascii();
    let text = format!(
        "what comes is no frame: \"{shown}\"; a login script that prints something must be silent"
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written_and_what_is_none_is_an_error() {
        for frame in [
            Frame::Hello([7; 16]),
            Frame::Holds(None),
            Frame::Holds(Some((40, 5))),
            Frame::Missing("7-9 damaged".into()),
            Frame::Message(u64::MAX - 1, 1, b"bytes".to_vec()),
            Frame::Flush,
            Frame::Durable(3),
            Frame::Refused(NO_MESSAGE, "why".into()),
        ] {
            let mut bytes = Vec::new();
            frame.write(&mut bytes).unwrap();
            assert_eq!(Frame::read(&mut &*bytes).unwrap(), Some(frame));
            for len in 1..bytes.len() {
                assert!(Frame::read(&mut &bytes[..len]).is_err());
            }
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                let _ = Frame::read(&mut &*other);
            }
        }
        assert_eq!(Frame::read(&mut &b""[..]).unwrap(), None);
        let motd = Frame::read(&mut &b"Welcome to host"[..]).unwrap_err();
        assert!(motd.to_string().contains("Welc"), "{motd}");
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = Vec::new();
        Frame::Holds(None).write(&mut bytes).unwrap();
        bytes[13] = 9;
        let said = Frame::read(&mut &*bytes).unwrap_err().to_string();
        assert!(said.contains("version 9"), "{said}");
    }
}
