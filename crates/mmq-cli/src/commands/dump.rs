//! `dump`: a queue as JSON lines, without loss.

use clap::Command;
use mmq::{ConsumerSnapshot, Seen, Snapshot, Start};

use super::Call;
use crate::arguments;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::framing::{self, About, Lines, gap_line};
use crate::json_object::Object;
use crate::look::Looked;
use crate::output::{Out, Output};
use crate::units::count;

const AFTER: &str = "\
The command takes no lock and writes nothing; a process may use the queue meanwhile.
The first line has the queue's id and the places of its consumers. Then come all messages that are
in the files, also those that consumers have taken, and the gaps. Status 1: messages are missing.

To move a queue to another host, end the process that has it and copy the directory (`cp -r`,
rsync): that keeps everything. `mmq dump` and `mmq load` work through any pipe, and while a process
has the queue. They keep messages, their order and the places of consumers, but not numbers, times,
and the origins of dead letters (the queue and number that each had). `mmq copy` makes a second
queue with the same numbers.";

pub(crate) fn command() -> Command {
    arguments::command(
        "dump",
        "Print a whole queue as JSON lines, for `mmq load`",
        "Examples:\n  mmq dump q > q.json\n  mmq dump q | ssh other mmq load copy",
    )
    .arg(arguments::dir())
    .after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let looked = Looked::open(arguments::dir_of(call.matches))?;
    let snapshot = looked.snapshot()?;
    let mut output = Output::new(call.signals, Out::Written)?;
    output.push((head(&snapshot) + "\n").as_bytes())?;
    let mut lines = Lines::default();
    let (mut overtaken, mut missing) = (0, 0);
    for seen in looked.from(Start::Oldest) {
        if let Some(ending) = call.signals.stop() {
            output.flush()?;
            return Ok(ending);
        }
        match seen? {
            Seen::Message { message, segment_time } => {
                let about = About { time: Some(segment_time), origin: message.origin() };
                output.push(lines.of(message.seq(), &message, message.len(), about))?;
            }
            Seen::Gap(gap) => {
                missing += framing::missing(&gap);
                output.push((gap_line(gap) + "\n").as_bytes())?;
            }
            Seen::Overtaken { first, last } => overtaken += last - first + 1,
            _ => {}
        }
    }
    output.flush()?;
    if overtaken > 0 {
        let numbers = count(overtaken, "number");
        let message = format!("the queue removed {numbers} before they were read; dump it again");
        return Err(Failure::new(ExitStatus::Bad, "overtaken", message));
    }
    if missing > 0 {
        let message = format!("{} will never come", count(missing, "message"));
        return Err(Failure::new(ExitStatus::Bad, "gap", message));
    }
    Ok(ExitStatus::Done)
}

fn head(snapshot: &Snapshot) -> String {
    Object::new()
        .with("mmq", 1)
        .with("queue_id", figures::id(&snapshot.queue_id))
        .with("next_seq", snapshot.next_seq)
        .with_all("consumers", snapshot.consumers.iter().map(place))
        .text()
}

fn place(consumer: &ConsumerSnapshot) -> String {
    let ahead = consumer.done_ahead.iter().map(|(first, last)| format!("[{first},{last}]"));
    Object::new()
        .with("name", consumer.name.as_str())
        .with("seq", consumer.next_seq)
        .with_all("acknowledged", ahead)
        .text()
}
