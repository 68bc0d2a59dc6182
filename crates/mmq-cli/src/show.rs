//! Shows what a look at a queue meets: `cat` and `tail`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, Command, value_parser};
use mmq::{Gap, Seen};

use crate::arguments::{self, size};
use crate::commands::Call;
use crate::ending::ExitStatus;
use crate::failure::Tried;
use crate::framing::{About, Written};
use crate::look::Met;
use crate::output::{Out, Output};
use crate::units;

/// Which messages are shown, and how.
pub(crate) fn arguments(command: Command) -> Command {
    let command = command
        .arg(
            Arg::new("grep")
                .long("grep")
                .value_name("BYTES")
                .value_parser(value_parser!(OsString))
                .help("Show only messages that contain these bytes"),
        )
        .arg(size("head", "Show only the first bytes of each message, at most SIZE"));
    arguments::framing_out(command)
}

/// Where showing ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// With the newest message.
    End,
    /// Before this number.
    Number(u64),
}

/// What becomes of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    Text,
    /// They are counted.
    Count,
}

/// Why showing stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// There is nothing more now.
    AtEnd,
    /// As many were shown as were wanted, or the rest is not wanted.
    Full,
    BySignal,
}

/// Shows messages on standard output, and counts.
pub(crate) struct Show<'a> {
    call: &'a Call<'a>,
    pub(crate) output: Output<'a>,
    written: Written,
    shown: As,
    grep: Option<OsString>,
    most: u64,
    to: To,
    /// What is not shown: numbers from the first to the last.
    hidden: Vec<(u64, u64)>,
    count: u64,
}

impl<'a> Show<'a> {
    pub(crate) fn new(call: &'a Call<'a>) -> Tried<Show<'a>> {
        let matches = call.matches;
        let head = matches.get_one::<u64>("head").copied().unwrap_or(u64::MAX);
        Ok(Show {
            call,
            output: Output::new(call.signals, Out::Written)?,
            written: Written::new(matches, call.console).with_head(head),
            shown: As::Text,
            grep: matches.get_one::<OsString>("grep").cloned(),
            most: u64::MAX,
            to: To::End,
            hidden: Vec::new(),
            count: 0,
        })
    }

    pub(crate) fn shown_as(mut self, shown: As) -> Show<'a> {
        self.shown = shown;
        self
    }

    pub(crate) fn at_most(mut self, most: Option<u64>) -> Show<'a> {
        self.most = most.unwrap_or(u64::MAX);
        self
    }

    pub(crate) fn up_to(mut self, to: To) -> Show<'a> {
        self.to = to;
        self
    }

    pub(crate) fn hiding(mut self, hidden: Vec<(u64, u64)>) -> Show<'a> {
        self.hidden = hidden;
        self
    }

    /// Shows what comes, up to the end of what is there now.
    pub(crate) fn all(&mut self, messages: &mut Met<'_>) -> Tried<Stopped> {
        while self.count < self.most {
            if self.call.signals.stop().is_some() {
                return Ok(Stopped::BySignal);
            }
            let Some(seen) = messages.next() else { return Ok(Stopped::AtEnd) };
            if self.seen(seen?)? == Stopped::Full {
                break;
            }
        }
        Ok(Stopped::Full)
    }

    /// Shows one thing. `AtEnd`: there may be more.
    fn seen(&mut self, seen: Seen) -> Tried<Stopped> {
        match seen {
            Seen::Message { message, segment_time } => {
                let seq = message.seq();
                let beyond = match self.to {
                    To::End => false,
                    To::Number(end) => seq >= end,
                };
                if beyond {
                    return Ok(Stopped::Full);
                }
                if !self.hides(seq, seq) && self.wants(&message) {
                    self.count += 1;
                    if self.shown == As::Text {
                        let about = About { time: Some(segment_time), origin: message.origin() };
                        self.written.message(&mut self.output, seq, &message, about)?;
                    }
                }
            }
            Seen::Gap(gap) => return self.gap(gap),
            Seen::Overtaken { first, last } => {
                let numbers =
                    format!("{} from {first} on", units::count(last - first + 1, "number"));
                self.call
                    .console
                    .note(format!("{numbers}: the queue removed them before they were read"));
            }
            _ => {}
        }
        Ok(Stopped::AtEnd)
    }

    pub(crate) fn gap(&mut self, mut gap: Gap) -> Tried<Stopped> {
        if let To::Number(end) = self.to {
            if gap.first >= end {
                return Ok(Stopped::Full);
            }
            gap.last = gap.last.min(end - 1);
        }
        if !self.hides(gap.first, gap.last) {
            self.written.gap(&mut self.output, gap)?;
        }
        Ok(Stopped::AtEnd)
    }

    fn hides(&self, first: u64, last: u64) -> bool {
        self.hidden.iter().any(|hidden| hidden.0 <= first && last <= hidden.1)
    }

    fn wants(&self, message: &[u8]) -> bool {
        let Some(wanted) = &self.grep else { return true };
        let wanted = wanted.as_bytes();
        wanted.is_empty() || message.windows(wanted.len()).any(|part| part == wanted)
    }

    /// Writes what is left, and says what is to be said.
    fn end(mut self) -> Tried<ExitStatus> {
        if self.shown == As::Count && self.call.signals.stop().is_none() {
            self.output.push(format!("{}\n", self.count).as_bytes())?;
        }
        self.output.flush()?;
        let said = self.written.end();
        if let Some(ending) = self.call.signals.stop() {
            return Ok(ending);
        }
        said.map(|()| ExitStatus::Done)
    }
}

/// The end of a command that showed messages. Those before a failure are written.
pub(crate) fn finish(mut show: Show<'_>, result: Tried<Stopped>) -> Tried<ExitStatus> {
    if let Err(failure) = result {
        show.output.flush()?;
        let stopped = show.call.signals.stop();
        return stopped.filter(|_| failure.is_of_decoder()).ok_or(failure);
    }
    show.end()
}
