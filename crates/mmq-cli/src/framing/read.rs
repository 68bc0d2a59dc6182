//! Messages out of a stream.

use std::io::{self, BufRead, BufReader, Read};

use clap::ArgMatches;

use super::json::{self, JsonLine};
use super::{Framing, asked};
use crate::arguments;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::input::Input;

/// What becomes of a carriage return before a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returns {
    /// It belongs to the end of the line.
    Cut,
    Kept,
}

/// Reads a line of JSON that holds a message of at most so many bytes: base64 is longer than these,
/// and a control byte takes six. Returns its length; 0 at the end.
pub(crate) fn json_line(
    reader: &mut BufReader<Input<'_>>,
    number: u64,
    longest: u64,
    line: &mut Vec<u8>,
) -> Tried<u64> {
    let most = longest.min(mmq::MAX_MESSAGE_LEN) * 6 + 4096;
    let read = reader.take(most + 1).read_until(b'\n', line);
    let name = &reader.get_ref().name;
    let read = read.map_err(|error| Failure::io(name, &error))? as u64;
    if read <= most { Ok(read) } else { Err(too_long(&format!("{name}: line {number}"), longest)) }
}

fn too_long(place: &str, longest: u64) -> Failure {
    let most = mmq::MAX_MESSAGE_LEN;
    let message =
        format!("{place} is longer than {longest} bytes; --max-message allows up to {most}");
    Failure::new(ExitStatus::Refused, "too_large", message)
}

/// The messages of an input, one after the other.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    reader: BufReader<Input<'a>>,
    framing: Framing,
    returns: Returns,
    /// Bytes of the longest message.
    longest: u64,
    /// Messages and lines read so far.
    number: u64,
    /// Lines that were gaps.
    pub(crate) gaps: u64,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(input: Input<'a>, matches: &ArgMatches) -> Frames<'a> {
        let framing = asked(matches).unwrap_or(Framing::Line);
        let returns = if matches.get_flag("keep-cr") { Returns::Kept } else { Returns::Cut };
        let reader = BufReader::with_capacity(256 << 10, input);
        let longest = arguments::longest_message(matches).min(mmq::MAX_MESSAGE_LEN);
        Frames { reader, framing, returns, longest, number: 0, gaps: 0 }
    }

    /// Bytes of the input that have become messages.
    pub(crate) fn consumed(&self) -> u64 {
        self.reader.get_ref().read - self.reader.buffer().len() as u64
    }

    /// Whether the next message has to wait for the input.
    pub(crate) fn is_drained(&self) -> bool {
        let ahead = self.reader.buffer();
        match self.framing {
            Framing::Line | Framing::Json => !ahead.contains(&b'\n'),
            Framing::Null => !ahead.contains(&0),
            Framing::Length | Framing::Varint | Framing::Raw => ahead.is_empty(),
        }
    }

    /// Puts the next message into the buffer, in place of what is there. False at the end.
    pub(crate) fn next(&mut self, message: &mut Vec<u8>) -> Tried<bool> {
        message.clear();
        self.number += 1;
        match self.framing {
            Framing::Line => {
                let found = self.until(b'\n', message)?;
                if self.returns == Returns::Cut && found == Delimited::Here {
                    message.pop_if(|last| *last == b'\r');
                }
                Ok(found != Delimited::Nothing)
            }
            Framing::Null => Ok(self.until(0, message)? != Delimited::Nothing),
            Framing::Length => self.length_delimited(message),
            Framing::Varint => self.varint_delimited(message),
            Framing::Json => self.json(message),
            Framing::Raw => {
                if self.number > 1 {
                    return Ok(false);
                }
                self.read(message, None)?;
                Ok(true)
            }
        }
    }

    fn until(&mut self, delimiter: u8, message: &mut Vec<u8>) -> Tried<Delimited> {
        let mut piece = (&mut self.reader).take(self.longest + 2);
        let count = piece.read_until(delimiter, message).map_err(|error| self.failed(&error))?;
        if count == 0 {
            return Ok(Delimited::Nothing);
        }
        let found = message.pop_if(|last| *last == delimiter);
        self.check(message.len() as u64)?;
        Ok(if found.is_some() { Delimited::Here } else { Delimited::Rest })
    }

    fn length_delimited(&mut self, message: &mut Vec<u8>) -> Tried<bool> {
        let mut head = [0; 4];
        let Some(first) = self.byte()? else { return Ok(false) };
        head[0] = first;
        for byte in &mut head[1..] {
            *byte = self.byte()?.ok_or_else(|| self.cut())?;
        }
        let length = head.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        self.read(message, Some(length))?;
        Ok(true)
    }

    fn varint_delimited(&mut self, message: &mut Vec<u8>) -> Tried<bool> {
        let (mut length, mut shift) = (0_u64, 0);
        loop {
            let Some(byte) = self.byte()? else {
                return if shift == 0 { Ok(false) } else { Err(self.cut()) };
            };
            if shift > 56 {
                return Err(self.refused("has an invalid length"));
            }
            length |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        self.read(message, Some(length))?;
        Ok(true)
    }

    fn json(&mut self, message: &mut Vec<u8>) -> Tried<bool> {
        let mut text = Vec::new();
        loop {
            if json_line(&mut self.reader, self.number, self.longest, &mut text)? == 0 {
                return Ok(false);
            }
            if text.trim_ascii().is_empty() {
                text.clear();
                self.number += 1;
                continue;
            }
            match json::parse(&text) {
                Ok(JsonLine::Message(bytes)) => {
                    self.check(bytes.len() as u64)?;
                    *message = bytes;
                    return Ok(true);
                }
                Ok(JsonLine::Gap { .. }) => self.gaps += 1,
                Err(reason) => return Err(self.refused(&reason)),
            }
            text.clear();
            self.number += 1;
        }
    }

    /// Reads so many bytes, or all. No more is allocated than comes.
    fn read(&mut self, message: &mut Vec<u8>, length: Option<u64>) -> Tried<()> {
        if let Some(length) = length {
            self.check(length)?;
        }
        let most = length.unwrap_or(self.longest + 1);
        let read = (&mut self.reader).take(most).read_to_end(message);
        let read = read.map_err(|error| self.failed(&error))? as u64;
        match length {
            Some(length) if read < length => Err(self.cut()),
            _ => self.check(read),
        }
    }

    fn byte(&mut self) -> Tried<Option<u8>> {
        let mut byte = [0];
        loop {
            match self.reader.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(byte[0])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    fn check(&self, length: u64) -> Tried<()> {
        if length <= self.longest { Ok(()) } else { Err(too_long(&self.place(), self.longest)) }
    }

    fn cut(&self) -> Failure {
        self.refused("is cut off by the end of the input")
    }

    fn refused(&self, reason: &str) -> Failure {
        Failure::new(ExitStatus::Refused, "framing", format!("{} {reason}", self.place()))
    }

    fn place(&self) -> String {
        let what = if self.framing == Framing::Json { "line" } else { "message" };
        format!("{}: {what} {}", self.reader.get_ref().name, self.number)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::io(&self.reader.get_ref().name, error)
    }
}

/// What a look for a delimiter found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delimited {
    Nothing,
    Here,
    /// The end of the input, behind some bytes.
    Rest,
}
