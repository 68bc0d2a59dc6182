//! `load`: a queue out of what `dump` printed.

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;

use clap::Command;
use mmq::{Options, Queue};
use serde_json::Value;

use super::Call;
use crate::arguments::{self, size};
use crate::ending::Ending;
use crate::failure::{Failure, Tried};
use crate::framing::{JsonLine, numbered};
use crate::input::Input;
use crate::opening::{self, Reads};
use crate::progress::Bar;
use crate::units::count;

const AFTER: &str = "\
Messages keep their order, and consumers stand at the same messages; numbers begin anew. What a
consumer had acknowledged ahead of others waits for it again. Status 0: a power cut takes nothing.";

pub(crate) fn command() -> Command {
    arguments::command(
        "load",
        "Make a queue out of what `mmq dump` printed",
        "Examples:\n  mmq load copy < q.json\n  mmq load copy q.json",
    )
    .arg(arguments::dir().value_name("NEW").help("Its directory: missing, or an empty queue"))
    .arg(arguments::path("file", "FILE").help("What to read; - is standard input [default: -]"))
    .arg(size("arena-size", "The unit of mapping [default: 128MiB]"))
    .after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<Ending> {
    let path = arguments::path_of(call.matches, "file").unwrap_or(Path::new("-"));
    if path == Path::new("-") && std::io::stdin().is_terminal() {
        return Err(Failure::usage("name a FILE, or give a dump on standard input"));
    }
    let input = Input::open(path, call.signals)?;
    let mut lines = Lines { reader: BufReader::new(input), text: Vec::new(), number: 0, bytes: 0 };
    // Before a queue is made for nothing.
    let places = lines.head()?;
    let mut options = Options::new();
    if let Some(bytes) = call.matches.get_one::<u64>("arena-size") {
        options = options.arena_size(*bytes);
    }
    let queue = opening::open(arguments::dir_of(call.matches), &options)?;
    let mut load = Load { queue: &queue, places, messages: 0, gaps: 0, again: 0 };
    let result = load.all(call, &mut lines);
    let report = load.report();
    queue.close()?;
    if let Some(ending) = call.signals.stop() {
        call.console.note(format!("ended by a signal; {report}, and no consumer"));
        return Ok(ending);
    }
    result?;
    call.console.note(report);
    Ok(Ending::Done)
}

/// The lines of a dump.
struct Lines<'a> {
    reader: BufReader<Input<'a>>,
    text: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl Lines<'_> {
    /// Reads the next line that is not blank. False at the end.
    fn next(&mut self) -> Tried<bool> {
        loop {
            self.text.clear();
            let read = self.reader.read_until(b'\n', &mut self.text);
            let read = read.map_err(|error| Failure::io(&self.reader.get_ref().name, &error))?;
            (self.number, self.bytes) = (self.number + 1, self.bytes + read as u64);
            if read == 0 || !self.text.trim_ascii().is_empty() {
                return Ok(read > 0);
            }
        }
    }

    fn refused(&self, reason: &str) -> Failure {
        let (name, number) = (&self.reader.get_ref().name, self.number);
        Failure::new(Ending::Refused, "framing", format!("{name}: line {number} {reason}"))
    }

    fn head(&mut self) -> Tried<Vec<Stood>> {
        let found = self.next()?;
        let head: Value = serde_json::from_slice(&self.text).unwrap_or(Value::Null);
        match head.get("mmq").and_then(Value::as_u64).filter(|_| found) {
            Some(1) => {}
            Some(later) => {
                let message = format!("a dump of version {later}; use the mmq that wrote it");
                return Err(Failure::new(Ending::Refused, "later_format", message));
            }
            None => return Err(self.refused("is not the first line of a dump")),
        }
        let all = head.get("consumers").and_then(Value::as_array).into_iter().flatten();
        let mut places = all.map(Stood::of).collect::<Option<Vec<_>>>();
        if let Some(places) = &mut places {
            places.sort_by_key(|place| place.seq);
        }
        places.ok_or_else(|| self.refused("has a consumer without a name or a place"))
    }
}

/// Where a consumer stood.
struct Stood {
    name: String,
    seq: u64,
    acknowledged: Vec<(u64, u64)>,
    /// The number in the new queue of the message there.
    now: Option<u64>,
}

impl Stood {
    fn of(consumer: &Value) -> Option<Stood> {
        let range = |range: &Value| Some((range.get(0)?.as_u64()?, range.get(1)?.as_u64()?));
        let ahead = consumer.get("acknowledged").and_then(Value::as_array).into_iter().flatten();
        Some(Stood {
            name: consumer.get("name")?.as_str()?.to_owned(),
            seq: consumer.get("seq")?.as_u64()?,
            acknowledged: ahead.map(range).collect::<Option<_>>()?,
            now: None,
        })
    }
}

struct Load<'a> {
    queue: &'a Queue,
    /// In the order of their places.
    places: Vec<Stood>,
    messages: u64,
    gaps: u64,
    /// Messages that a consumer had acknowledged, and that wait for it again.
    again: u64,
}

impl Load<'_> {
    fn all(&mut self, call: &Call<'_>, lines: &mut Lines<'_>) -> Tried<()> {
        let queue = self.queue;
        let path = queue.path().display();
        if queue.stats().next_seq > 0 || !queue.consumers().is_empty() {
            let message = format!("queue {path} is not empty; load into a new directory");
            return Err(Failure::new(Ending::Refused, "not_empty", message));
        }
        let mut bar = Bar::new(call.console, None);
        while lines.next()? {
            if call.signals.stop().is_some() {
                return Ok(());
            }
            match numbered(&lines.text).map_err(|reason| lines.refused(&reason))? {
                (_, JsonLine::Gap) => self.gaps += 1,
                (seq, JsonLine::Message(message)) => {
                    let seq = seq.ok_or_else(|| lines.refused("has no \"seq\""))?;
                    self.message(seq, &message)?;
                }
            }
            bar.at(lines.bytes, || format!(", {} messages", self.messages));
        }
        drop(bar);
        for place in &self.places {
            if !place.name.is_empty() {
                queue.consumer(&place.name)?;
            }
            let next = queue.stats().next_seq;
            Reads::of(queue, Some(&place.name))?.seek(place.now.unwrap_or(next))?;
        }
        Ok(())
    }

    fn message(&mut self, seq: u64, message: &[u8]) -> Tried<()> {
        let now = self.queue.enqueue(message)?;
        self.messages += 1;
        for place in self.places.iter_mut().filter(|place| place.seq <= seq) {
            place.now.get_or_insert(now);
            let is_done = |done: &&(u64, u64)| (done.0..=done.1).contains(&seq);
            self.again += place.acknowledged.iter().filter(is_done).count() as u64;
        }
        Ok(())
    }

    fn report(&self) -> String {
        let (messages, gaps) = (count(self.messages, "message"), count(self.gaps, "gap"));
        let consumers = count(self.places.len() as u64, "consumer");
        let mut report = format!("loaded {messages}, {consumers}; {gaps} left out");
        if self.again > 0 {
            report += &format!("; {} come again", count(self.again, "acknowledgement"));
        }
        report
    }
}
