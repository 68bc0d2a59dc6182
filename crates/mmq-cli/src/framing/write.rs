//! Messages into a stream.

use std::io::{self, IsTerminal};

use clap::ArgMatches;
use mmq::{Gap, GapCause};

use super::decode::Decoder;
use super::visible::visible;
use super::{About, Framing, Lines, asked, gap_line};
use crate::arguments::text_of;
use crate::console::{Console, Form};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::output::Output;
use crate::units;

/// The word for programs.
pub(crate) fn gap_cause(cause: GapCause) -> &'static str {
    match cause {
        GapCause::Damaged => "damaged",
        GapCause::Unflushed => "unflushed",
        GapCause::Dropped => "dropped",
        GapCause::Expired => "expired",
        GapCause::Rejected => "rejected",
        GapCause::Reserved => "reserved",
        _ => "unknown",
    }
}

/// How many messages a gap takes. Numbers that were only reserved are none.
pub(crate) fn missing(gap: &Gap) -> u64 {
    if gap.cause == GapCause::Reserved { 0 } else { gap.count() }
}

/// What stands before a message in `length` framing.
pub(super) fn length_head(message: &[u8]) -> [u8; 4] {
    [24, 16, 8, 0].map(|shift| (message.len() as u64 >> shift) as u8)
}

/// What becomes of a message that holds its own delimiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strict {
    /// It is written, and counted.
    Counted,
    /// The command ends before it.
    Refused,
}

/// Writes messages as they were asked for, and counts.
#[derive(Debug)]
pub(crate) struct Written {
    framing: Framing,
    strict: Strict,
    console: Console,
    decoder: Option<Decoder>,
    lines: Lines,
    head: usize,
    /// A terminal obeys control bytes, so they are shown as text there.
    escapes: bool,
    messages: u64,
    /// Messages that hold the delimiter, and the first of them.
    ambiguous: u64,
    first_ambiguous: u64,
    gaps: u64,
    missing: u64,
}

impl Written {
    pub(crate) fn new(matches: &ArgMatches, console: Console) -> Written {
        let asked = asked(matches);
        // `--json` wants JSON of every command that prints anything.
        let default = match console.form {
            Form::Program => Framing::Json,
            Form::Person => Framing::Line,
        };
        let strict = if matches.get_flag("strict") { Strict::Refused } else { Strict::Counted };
        let framing = asked.unwrap_or(default);
        Written {
            framing,
            strict,
            console,
            decoder: text_of(matches, "decode").map(|command| Decoder::new(command.to_owned())),
            lines: Lines::default(),
            head: usize::MAX,
            escapes: asked.is_none() && framing == Framing::Line && io::stdout().is_terminal(),
            messages: 0,
            ambiguous: 0,
            first_ambiguous: 0,
            gaps: 0,
            missing: 0,
        }
    }

    /// Messages written so far.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether it is told when a message's segment was begun.
    pub(crate) fn shows_times(&self) -> bool {
        self.framing == Framing::Json
    }

    /// Only so many first bytes of each message are written.
    pub(crate) fn with_head(mut self, head: u64) -> Written {
        self.head = usize::try_from(head).unwrap_or(usize::MAX);
        self
    }

    /// Writes a message, of which that is known. With an error it may have been written in part.
    pub(crate) fn message(
        &mut self,
        output: &mut Output<'_>,
        seq: u64,
        message: &[u8],
        about: About,
    ) -> Tried<()> {
        let decoded = self.decoder.as_mut().map(|decoder| decoder.decode(message)).transpose()?;
        let whole = decoded.as_deref().unwrap_or(message);
        let message = whole.get(..self.head).unwrap_or(whole);
        match self.framing {
            Framing::Line => {
                self.delimited(output, seq, message, b'\n')?;
            }
            Framing::Null => self.delimited(output, seq, message, 0)?,
            Framing::Length => {
                output.push(&length_head(message))?;
                output.push(message)?;
            }
            Framing::Varint => {
                let (mut head, mut length) = (Vec::new(), message.len());
                while length > 0x7f {
                    head.push(length as u8 | 0x80);
                    length >>= 7;
                }
                head.push(length as u8);
                output.push(&head)?;
                output.push(message)?;
            }
            Framing::Json => {
                output.push(self.lines.of(seq, message, whole.len(), about))?;
            }
            Framing::Raw => output.push(message)?,
        }
        self.messages += 1;
        Ok(())
    }

    fn delimited(
        &mut self,
        output: &mut Output<'_>,
        seq: u64,
        message: &[u8],
        delimiter: u8,
    ) -> Tried<()> {
        if self.escapes {
            output.push(&visible(message))?;
        } else {
            if message.contains(&delimiter) {
                self.ambiguity(seq)?;
            }
            output.push(message)?;
        }
        output.push(&[delimiter])
    }

    fn ambiguity(&mut self, seq: u64) -> Tried<()> {
        if self.strict == Strict::Refused {
            let message = format!("message {seq} contains the delimiter; use --framing length");
            return Err(Failure::new(ExitStatus::Refused, "framing", message));
        }
        if self.ambiguous == 0 {
            self.first_ambiguous = seq;
        }
        self.ambiguous += 1;
        Ok(())
    }

    /// Reports messages that will never come, in their place.
    pub(crate) fn gap(&mut self, output: &mut Output<'_>, gap: Gap) -> Tried<()> {
        let missing = missing(&gap);
        self.gaps += u64::from(missing > 0);
        self.missing += missing;
        if self.framing == Framing::Json {
            output.push(gap_line(gap).as_bytes())?;
            return output.push(b"\n");
        }
        self.console.note(gap.to_string());
        Ok(())
    }

    /// What is to be said at the end: of delimiters as a note, of gaps as a failure.
    pub(crate) fn end(&self) -> Tried<()> {
        if self.ambiguous > 0 {
            let (count, first) = (units::count(self.ambiguous, "message"), self.first_ambiguous);
            self.console.note(format!(
                "{count} contained the delimiter (the first is {first}); use --framing length"
            ));
        }
        if self.gaps == 0 {
            return Ok(());
        }
        let (gaps, missing) =
            (units::count(self.gaps, "gap"), units::count(self.missing, "message"));
        let message = format!("{missing} will never come ({gaps})");
        Err(Failure::new(ExitStatus::Bad, "gap", message))
    }
}
