//! `accept`: the far side of another queue's `forward`, on standard input and output.

use std::io::{self, BufReader, Read};
use std::path::Path;

use clap::Command;
use mmq::forward::Arrivals;
use mmq::{Error, Options};

use super::Call;
use super::forward::wire::{Frame, NO_MESSAGE};
use crate::arguments;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::framing::visible_text;
use crate::input::Input;
use crate::opening;
use crate::output::{Out, Output};
use crate::units;

/// Why numbers of the source are missing: from 1 on in the origin of the message behind them.
const CAUSES: &str = "damaged unflushed dropped expired reserved rejected lost-there refused";
/// They have several causes.
const SEVERAL: u32 = 9;

const AFTER: &str = "\
`mmq forward DIR ssh://HOST/DIR2` runs this command on HOST. It stores each message once and in
order, and acknowledges it when it is durable. Each message has its origin: the id of the queue DIR
and the number there (`mmq take --framing json` shows both). Where that number jumps, messages are
missing; \"attempts\" there says why: 1 damaged, 2 unflushed, 3 dropped, 4 expired, 5 reserved, 6
rejected, 7 lost-there, 8 refused, 9 several. One source at a time may send to DIR2.

The consumer accept-ID belongs to the queue with that ID. It keeps the last message of that queue,
from which the next session goes on. `mmq stat` does not count that message. Do not remove the
consumer while that queue forwards to this one.";

pub(crate) fn command() -> Command {
    let accept = arguments::command(
        "accept",
        "Store what `mmq forward` sends, each message once",
        "Examples:\n  \
         mmq forward q ssh://host/var/spool/q\n  \
         mmq forward q 'exec:mmq accept /mnt/q'",
    );
    let accept = accept.arg(arguments::dir().help("The queue; it is made if it is missing"));
    arguments::locking(accept.arg(arguments::mode()).after_help(AFTER))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let dir = arguments::dir_of(call.matches);
    let input = Input::open(Path::new("-"), call.signals)?;
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut output = Output::new(call.signals, Out::Written)?;
    // Nothing is made for a caller that is no forwarder.
    let Some(Frame::Hello(source)) = read(call, &mut input)? else {
        return call.signals.stop().ok_or_else(|| {
            Failure::usage("standard input is not from `mmq forward`, which runs this command")
        });
    };
    let queue = call.opener().own(dir, &Options::new().mode(arguments::mode_of(call.matches)))?;
    if queue.stats().consumers == 0 {
        // As `opening::keep_for_own`.
        queue.set_max_in_flight(None)?;
    }
    opening::warn_of_owner(call.console, dir);
    let mut arrivals = Arrivals::new(&queue, source)?;
    say(&mut output, &Frame::Holds(arrivals.last()))?;
    let (mut count, mut missing, mut why) = (0, 0, 0);
    let ended = loop {
        let frame = match read(call, &mut input) {
            Ok(Some(frame)) => frame,
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        };
        let done = match frame {
            Frame::Message(seq, sum, bytes) => match arrivals.store(seq, sum, &bytes) {
                Ok(()) => {
                    (count, why) = (count + 1, 0);
                    Ok(())
                }
                Err(error) => refuse(&mut output, seq, error),
            },
            Frame::Missing(text) => {
                missing += 1;
                let cause = CAUSES.split(' ').zip(1..).find(|(cause, _)| text.ends_with(cause));
                why = cause.filter(|_| why == 0).map_or(SEVERAL, |(_, number)| number);
                arrivals.note_missing(why);
                let text = visible_text(text.as_bytes());
                call.console.note(format!("messages of the source are missing: {text}"));
                Ok(())
            }
            Frame::Flush => match arrivals.flush() {
                Ok(()) => {
                    let below = arrivals.last().map_or(0, |(seq, _)| seq.saturating_add(1));
                    say(&mut output, &Frame::Durable(below))
                }
                Err(error) => refuse(&mut output, NO_MESSAGE, error),
            },
            _ => Err(Failure::usage("`mmq forward` sent a frame that is an answer")),
        };
        if let Err(failure) = done {
            break Err(failure);
        }
    };
    // What came before the end stays: the next session goes on behind it.
    let flushed = arrivals.flush();
    drop(arrivals);
    queue.close()?;
    flushed?;
    let (messages, gaps) = (units::count(count, "message"), units::count(missing, "gap"));
    call.console.note(format!("accepted {messages}, told of {gaps}"));
    match call.signals.stop() {
        Some(ending) => Ok(ending),
        None => ended.map(|()| ExitStatus::Done),
    }
}

fn read(call: &Call<'_>, input: &mut impl Read) -> Tried<Option<Frame>> {
    match Frame::read(input) {
        // A forwarder that dies may leave half a frame.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(_) if call.signals.stop().is_some() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Failure::usage(format!("standard input: {error}")))
        }
        read => read.map_err(|error| Failure::io("standard input", &error)),
    }
}

fn say(output: &mut Output<'_>, frame: &Frame) -> Tried<()> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes).map_err(|error| Failure::io("standard output", &error))?;
    output.push(&bytes)?;
    output.flush()
}

/// Tells the forwarder, and ends.
fn refuse(output: &mut Output<'_>, seq: u64, error: Error) -> Tried<()> {
    let is_of_message = matches!(error, Error::MessageTooLarge { .. });
    let seq = if is_of_message { seq } else { NO_MESSAGE };
    say(output, &Frame::Refused(seq, error.to_string()))?;
    Err(error.into())
}
