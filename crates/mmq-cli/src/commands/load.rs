//! `load`: a queue out of what `dump` printed.

use std::io::{BufReader, IsTerminal};
use std::ops::Range;
use std::path::Path;

use clap::Command;
use mmq::{Consumer, Delivery, Options, Queue};
use serde_json::Value;

use super::Call;
use crate::arguments::{self, size};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::framing::{JsonLine, json_line, numbered};
use crate::input::Input;
use crate::making::Making;
use crate::progress::Bar;
use crate::units::{self, count};

const AFTER: &str = "\
Messages keep their order. Each consumer stands at the same message as before, with the same ones
behind it acknowledged. Numbers begin anew, and dead letters lose their origins (`mmq copy` keeps
both). Until the queue is complete it is in the directory NEW.loading. If the command is killed,
run it again: it removes that directory first. Status 0: NEW is complete and durable. Status 1: NEW
is durable too, but the dump tells of gaps (messages that its queue had lost or given up), or its
end is missing. Any other status: NEW was not made.";

/// Messages that are held unacknowledged at a time, and bytes of them: those that a consumer had in
/// hand before others that it had acknowledged.
const MOST_HELD: usize = 1 << 18;
const MOST_BYTES_HELD: usize = 256 << 20;

pub(crate) fn command() -> Command {
    arguments::command(
        "load",
        "Make a queue from what `mmq dump` printed",
        "Examples:\n  mmq load copy < q.json\n  mmq load copy q.json",
    )
    .arg(arguments::dir().value_name("NEW").help("The new queue's directory: missing or empty"))
    .arg(arguments::path("file", "FILE").help("What to read; - is standard input [default: -]"))
    .arg(size(
        "arena-size",
        "How many bytes of a file are mapped into memory at a time [default: 128MiB]",
    ))
    .arg(arguments::max_message())
    .arg(arguments::mode())
    .after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let path = arguments::path_of(call.matches, "file").unwrap_or(Path::new("-"));
    if path == Path::new("-") && std::io::stdin().is_terminal() {
        return Err(Failure::usage("name a FILE, or give a dump on standard input"));
    }
    let reader = BufReader::new(Input::open(path, call.signals)?);
    let longest = arguments::longest_message(call.matches);
    let mut lines = Lines { reader, longest, text: Vec::new(), number: 0, bytes: 0, next_seq: 0 };
    // Before a queue is made for nothing.
    let places = lines.head()?;
    let mut options = Options::new().mode(arguments::mode_of(call.matches));
    if let Some(bytes) = call.matches.get_one::<u64>("arena-size") {
        options = options.arena_size(*bytes);
    }
    let making = Making::of(arguments::dir_of(call.matches), ".loading", "not_empty")?;
    let (report, gaps, cut) = making.make(&options, |queue| {
        let mut load = Load { queue, places, messages: 0, gaps: 0, last: None };
        let cut = load.all(call, &mut lines)?;
        Ok((load.report(), load.gaps, cut))
    })?;
    call.console.note(report);
    if gaps > 0 {
        let message =
            format!("the dump tells of {}: its queue had lost messages", count(gaps, "gap"));
        let reported = Failure::new(ExitStatus::Bad, "gap", message);
        let Some(cut) = cut else { return Err(reported) };
        call.console.note(reported.text());
        return Err(cut);
    }
    cut.map_or(Ok(ExitStatus::Done), Err)
}

/// The lines of a dump.
struct Lines<'a> {
    reader: BufReader<Input<'a>>,
    /// Bytes of the longest message.
    longest: u64,
    text: Vec<u8>,
    number: u64,
    bytes: u64,
    /// The number that the queue's next message would have had.
    next_seq: u64,
}

impl Lines<'_> {
    /// Reads the next line that is not blank. False at the end.
    fn next(&mut self) -> Tried<bool> {
        loop {
            self.text.clear();
            self.number += 1;
            let read = json_line(&mut self.reader, self.number, self.longest, &mut self.text)?;
            self.bytes += read;
            if read == 0 || !self.text.trim_ascii().is_empty() {
                return Ok(read > 0);
            }
        }
    }

    fn refused(&self, reason: &str) -> Failure {
        let (name, number) = (&self.reader.get_ref().name, self.number);
        Failure::new(ExitStatus::Refused, "framing", format!("{name}: line {number} {reason}"))
    }

    fn head(&mut self) -> Tried<Vec<Snapshot>> {
        let found = self.next()?;
        let head: Value = serde_json::from_slice(&self.text).unwrap_or(Value::Null);
        match head.get("mmq").and_then(Value::as_u64).filter(|_| found) {
            Some(1) => {}
            Some(later) => {
                let message = format!("a dump of version {later}; use the mmq that wrote it");
                return Err(Failure::new(ExitStatus::Refused, "later_format", message));
            }
            None => return Err(self.refused("is not the first line of a dump")),
        }
        self.next_seq = head.get("next_seq").and_then(Value::as_u64).unwrap_or(0);
        let all = head.get("consumers").and_then(Value::as_array).into_iter().flatten();
        let mut places = all.map(Snapshot::of).collect::<Option<Vec<_>>>();
        if let Some(places) = &mut places {
            places.sort_by_key(|place| place.seq);
        }
        places.ok_or_else(|| self.refused("has a consumer without a name or a place"))
    }
}

/// Where a consumer stood.
struct Snapshot {
    name: String,
    seq: u64,
    acknowledged: Vec<(u64, u64)>,
    /// The number in the new queue of the message there.
    now: Option<u64>,
    /// What it had acknowledged, in the numbers of the new queue.
    done: Vec<Range<u64>>,
}

impl Snapshot {
    fn of(consumer: &Value) -> Option<Snapshot> {
        let range = |range: &Value| Some((range.get(0)?.as_u64()?, range.get(1)?.as_u64()?));
        let ahead = consumer.get("acknowledged").and_then(Value::as_array).into_iter().flatten();
        Some(Snapshot {
            name: consumer.get("name")?.as_str()?.to_owned(),
            seq: consumer.get("seq")?.as_u64()?,
            acknowledged: ahead.map(range).collect::<Option<_>>()?,
            now: None,
            done: Vec::new(),
        })
    }

    /// Notes that the message `seq` has the number `now` in the new queue.
    fn note(&mut self, seq: u64, now: u64) {
        self.now.get_or_insert(now);
        if !self.acknowledged.iter().any(|(first, last)| (*first..=*last).contains(&seq)) {
            return;
        }
        match self.done.last_mut().filter(|range| range.end == now) {
            Some(range) => range.end = now + 1,
            None => self.done.push(now..now + 1),
        }
    }

    /// Acknowledges again what the consumer had acknowledged, and gives the others back. False when
    /// these were too many.
    fn acknowledge(&self, reads: &Reads<'_>) -> Tried<bool> {
        let end = self.done.last().map_or(0, |range| range.end);
        let (mut held, mut bytes, mut next) = (Vec::new(), 0, self.now.unwrap_or(end));
        while next < end {
            let Some(delivery) = reads.receive()? else { break };
            next = delivery.seq() + 1;
            let at = self.done.partition_point(|range| range.end < next);
            if self.done.get(at).is_some_and(|range| range.contains(&delivery.seq())) {
                delivery.ack()?;
                continue;
            }
            bytes += delivery.len();
            held.push(delivery);
            if held.len() > MOST_HELD || bytes > MOST_BYTES_HELD {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A consumer: the queue's own, or one with a name.
enum Reads<'a> {
    Own(&'a Queue),
    Named(Consumer),
}

impl<'a> Reads<'a> {
    fn of(queue: &'a Queue, name: &str) -> mmq::Result<Reads<'a>> {
        if name.is_empty() { Ok(Reads::Own(queue)) } else { queue.consumer(name).map(Reads::Named) }
    }

    fn receive(&self) -> mmq::Result<Option<Delivery>> {
        match self {
            Reads::Own(queue) => queue.receive(),
            Reads::Named(consumer) => consumer.receive(),
        }
    }

    fn seek(&self, seq: u64) -> mmq::Result<()> {
        match self {
            Reads::Own(queue) => queue.seek(seq),
            Reads::Named(consumer) => consumer.seek(seq),
        }
    }
}

struct Load<'a> {
    queue: &'a Queue,
    /// In the order of their places.
    places: Vec<Snapshot>,
    messages: u64,
    gaps: u64,
    /// The number of the last line.
    last: Option<u64>,
}

impl Load<'_> {
    /// Puts all of it in. Returns what is wrong with the dump as a whole.
    fn all(&mut self, call: &Call<'_>, lines: &mut Lines<'_>) -> Tried<Option<Failure>> {
        let queue = self.queue;
        let mut bar = Bar::new(call.console, None);
        while lines.next()? {
            if let Some(ending) = call.signals.stop() {
                return Err(Failure::new(
                    ending,
                    "stopped",
                    "ended by a signal; nothing was loaded",
                ));
            }
            let (seq, line) = numbered(&lines.text).map_err(|reason| lines.refused(&reason))?;
            if seq.is_some_and(|seq| self.last.is_some_and(|last| seq <= last)) {
                return Err(lines.refused("has a number that is not above the one before"));
            }
            self.last = seq.or(self.last);
            match (seq, line) {
                (_, JsonLine::Gap { reserved }) => self.gaps += u64::from(!reserved),
                (seq, JsonLine::Message(message)) => {
                    let seq = seq.ok_or_else(|| lines.refused("has no \"seq\""))?;
                    self.message(seq, &message)?;
                }
            }
            bar.at(lines.bytes, || format!(", {} messages", self.messages));
        }
        drop(bar);
        let cut = self.last.filter(|last| last + 1 < lines.next_seq);
        for place in &self.places {
            let reads = Reads::of(queue, &place.name)?;
            let next = queue.stats().next_seq;
            reads.seek(place.now.unwrap_or(next))?;
            if !place.acknowledge(&reads)? {
                let (name, bytes) = (&place.name, units::size(MOST_BYTES_HELD as u64));
                let had = format!(
                    "more than {MOST_HELD} messages or {bytes} waiting before acknowledged ones"
                );
                let comes = "acknowledged messages come again";
                call.console.note(format!("consumer {name:?} had {had}: {comes}"));
            }
        }
        Ok(cut.map(|last| {
            let (name, next) = (&lines.reader.get_ref().name, lines.next_seq);
            let message = format!(
                "{name} ends with message {last}, but the queue had messages up to {}: the dump was cut short",
                next - 1
            );
            Failure::new(ExitStatus::Bad, "cut_short", message)
        }))
    }

    fn message(&mut self, seq: u64, message: &[u8]) -> Tried<()> {
        let now = self.queue.enqueue(message)?;
        self.messages += 1;
        for place in self.places.iter_mut().filter(|place| place.seq <= seq) {
            place.note(seq, now);
        }
        Ok(())
    }

    fn report(&self) -> String {
        let (messages, gaps) = (count(self.messages, "message"), count(self.gaps, "gap"));
        let consumers = count(self.places.len() as u64, "consumer");
        format!("loaded {messages}, {consumers}; {gaps} left out")
    }
}
