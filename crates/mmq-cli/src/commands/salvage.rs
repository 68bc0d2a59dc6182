//! `salvage`: messages out of segment files, wherever they lie.

use std::io::{self, IsTerminal};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command};
use mmq::{Error, Gap, Message, Options, Queue, Salvage, SalvageReport, Salvaged, SalvagedFile};

use super::Call;
use crate::arguments::{self, flag};
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::framing::{About, Written};
use crate::json_object::Object;
use crate::making::check_new;
use crate::opening;
use crate::output::{Out, Output};
use crate::progress::Bar;
use crate::units::{self, count};

const AFTER: &str = "\
Each PATH is a segment file, or a directory with segment files, with or without an index. It may
also be a file that mmq set aside (*.damaged). Copies of one file may be given together: each
message comes once. (If copies were both used, two messages may have one number: one comes, and the
other is reported.) The command writes nothing there and takes no lock, so PATH may be on a
read-only mount, or in a queue that a process has.

Messages come in the order of their numbers, and each is checked by itself. If a segment's header is
lost, the index has a copy, or the messages themselves show how to check them. In the latter case
nothing says which queue they belong to, so give the files of one queue only. The report on standard
error says what each file was, how many messages came from it, and how many numbers are missing that
should be in it. If neither a header nor an index says with which number a file begins, the messages
missing before its first intact one cannot be counted; the report says so (uncounted, with --json).

Messages that consumers have taken come too, unless their segment is drained: every consumer has
taken all of it. With --spares the messages of drained segments come too, as far as nothing was
written over them. A message may come whose put had not ended when its process died. A batch that
was never finished is left out if the index shows it, and reported otherwise.

Status 1: something is damaged or missing. Status 5: there is no segment file. Status 6: the files
are of two queues or of a later format, or NEW is not empty. With --to messages get new numbers,
dead letters lose their origins, and status 0 or 1 says that NEW is durable.";

pub(crate) fn command() -> Command {
    let salvage = arguments::command(
        "salvage",
        "Read messages out of segment files that are damaged, renamed, drained or without their queue",
        "Examples:\n  \
         mmq salvage /mnt/rescued/q --to q\n  \
         mmq salvage q/segment-00000003.damaged --json\n  \
         mmq salvage q q.backup --framing length > messages\n  \
         mmq salvage q --spares | grep invoice",
    )
    .arg(
        Arg::new("path")
            .value_name("PATH")
            .value_parser(ValueParser::path_buf())
            .action(ArgAction::Append)
            .num_args(1..)
            .required(true)
            .help("Segment files, or directories with segment files"),
    )
    .arg(
        arguments::path("to", "NEW")
            .long("to")
            .help("Put the messages into a new queue; its directory is missing or empty")
            .conflicts_with_all(["framing", "null", "strict", "decode"]),
    )
    .arg(arguments::mode().requires("to").help(
        "Permission bits of NEW's files, for example 640 [default: the bits that all the read files have]",
    ))
    .arg(flag("spares", "Read drained segments too: messages that were taken come back"));
    arguments::framing_out(salvage).after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let paths: Vec<&PathBuf> = matches.get_many("path").into_iter().flatten().collect();
    let new = arguments::path_of(matches, "to");
    for (new, path) in new.iter().flat_map(|new| paths.iter().map(move |path| (new, path))) {
        arguments::is_outside(new, path)?;
    }
    let salvage = Salvage::of(&paths);
    let salvage = if matches.get_flag("spares") { salvage.with_spares() } else { salvage };
    // A queue that is there is never opened: opening changes it.
    new.map_or(Ok(()), |new| check_new(new, "", "not_empty"))?;
    let mut found = salvage.messages().map_err(failed)?;
    let mut target = match new {
        None => Target::Stream {
            output: Output::new(call.signals, Out::Written)?,
            written: Box::new(Written::new(matches, call.console)),
        },
        Some(new) => {
            let options = match arguments::mode_of(matches) {
                Some(mode) => Options::new().mode(mode),
                None => opening::as_open_as(&paths, new),
            };
            Target::Queue(opening::open(new, &options)?)
        }
    };
    let draws = new.is_some() || !io::stdout().is_terminal();
    let mut bar = draws.then(|| Bar::new(call.console, None));
    let (mut messages, mut bytes) = (0u64, 0u64);
    let mut result = Ok(());
    for salvaged in &mut found {
        if call.signals.stop().is_some() {
            break;
        }
        if let Salvaged::Message { message, .. } = &salvaged {
            (messages, bytes) = (messages + 1, bytes + message.len() as u64);
        }
        result = target.put(call, salvaged);
        if result.is_err() {
            break;
        }
        if let Some(bar) = &mut bar {
            bar.at(bytes, || format!(", {messages} messages"));
        }
    }
    drop(bar);
    let ended = target.end();
    if let (Err(_), Some(new)) = (&result, new) {
        let (new, put) = (new.display(), count(messages.saturating_sub(1), "message"));
        call.console.note(format!("{new} has {put} and is not complete: remove it and try again"));
    }
    result.and(ended)?;
    let report = found.into_report();
    print_report(call, &report, new);
    if let Some(ending) = call.signals.stop() {
        call.console.note("ended by a signal; the rest was not read");
        return Ok(ending);
    }
    if report.is_whole() {
        return Ok(ExitStatus::Done);
    }
    Err(Failure::new(ExitStatus::Bad, "damaged", verdict(&report)))
}

fn failed(error: Error) -> Failure {
    match &error {
        Error::InvalidArgument { what: "paths", reason, .. } => {
            Failure::new(ExitStatus::Refused, "two_queues", reason.as_str())
        }
        _ => error.into(),
    }
}

/// Where the messages go.
enum Target<'a> {
    Stream { output: Output<'a>, written: Box<Written> },
    Queue(Queue),
}

impl Target<'_> {
    fn put(&mut self, call: &Call<'_>, salvaged: Salvaged) -> Tried<()> {
        match (self, salvaged) {
            (
                Target::Stream { output, written },
                Salvaged::Message { message, segment_time, .. },
            ) => {
                let about = About { time: segment_time, origin: message.origin() };
                written.message(output, message.seq(), &message, about)
            }
            (Target::Queue(queue), Salvaged::Message { message, .. }) => {
                queue.enqueue(Message::into_vec(message))?;
                Ok(())
            }
            (Target::Stream { output, written }, Salvaged::Gap(gap)) => written.gap(output, gap),
            (Target::Queue(_), Salvaged::Gap(gap)) => {
                note_gap(call, gap);
                Ok(())
            }
            (_, Salvaged::Overtaken { first, last }) => {
                let numbers = count(last - first + 1, "number");
                call.console.note(format!(
                    "{numbers} from {first} on: the queue removed them before they were read"
                ));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(self) -> Tried<()> {
        match self {
            Target::Stream { mut output, written } => {
                output.flush()?;
                // Gaps are in the report.
                let _ = written.end();
                Ok(())
            }
            Target::Queue(queue) => Ok(queue.close()?),
        }
    }
}

fn note_gap(call: &Call<'_>, gap: Gap) {
    match call.console.form {
        Form::Person => call.console.note(gap.to_string()),
        Form::Program => {}
    }
}

/// The report, on standard error.
fn print_report(call: &Call<'_>, report: &SalvageReport, new: Option<&Path>) {
    if call.matches.get_flag("quiet") {
        return;
    }
    if call.console.form == Form::Program {
        report.files.iter().for_each(|found| call.console.line(&file(found)));
        call.console.line(&summary(report, new));
        return;
    }
    report.files.iter().for_each(|found| call.console.note(found.to_string()));
    let mut text = format!(
        "{} ({}) from {}; {}",
        count(report.messages, "message"),
        units::size(report.bytes),
        count(report.files.len() as u64, "file"),
        missing(report)
    );
    if report.given_up > 0 {
        text += &format!(", {} given up by the queue", count(report.given_up, "number"));
    }
    if report.overtaken > 0 {
        text += &format!(", {} removed by the queue meanwhile", count(report.overtaken, "number"));
    }
    if report.differing > 0 {
        text += &format!(", {}", differing(report));
    }
    if let Some(from) = report.unfinished_from {
        let what = if report.unfinished_left_out {
            "were never put in completely, and are left out"
        } else {
            "have no end, and may never have been put in"
        };
        text += &format!("; the messages of the batch from {from} on {what}");
    }
    call.console.note(text);
}

fn missing(report: &SalvageReport) -> String {
    let lost = count(report.lost, "message");
    match (report.uncounted, report.lost) {
        (false, _) => format!("{lost} missing"),
        (true, 0) => "it is not known whether messages are missing".to_owned(),
        (true, _) => format!("at least {lost} missing, and perhaps more"),
    }
}

fn differing(report: &SalvageReport) -> String {
    format!(
        "{} left out because another one has the same number",
        count(report.differing, "message")
    )
}

fn verdict(report: &SalvageReport) -> String {
    let is_damaged = |file: &&SalvagedFile| !file.damage.is_empty() || file.lost > 0;
    let damaged = report.files.iter().filter(is_damaged).count() as u64;
    match (damaged, report.lost) {
        (0, 0) if report.differing > 0 => differing(report),
        (0, 0) => "the last batch has no end".to_owned(),
        (0, _) => missing(report),
        _ => format!("{}; {} damaged", missing(report), count(damaged, "file")),
    }
}

fn file(found: &SalvagedFile) -> String {
    let row = |row: &RangeInclusive<u64>| {
        Object::new().with("first", *row.start()).with("last", *row.end()).text()
    };
    let differing = found.differing.iter().map(row);
    let file = Object::new()
        .with("path", found.path.to_string_lossy())
        .with("len", found.len)
        .with("what", found.what.as_str())
        .with("damage", found.damage.clone())
        .with("messages", found.messages)
        .with("duplicates", found.duplicates)
        .with_all("differing", differing)
        .with("given_back", found.given_back)
        .with("lost", found.lost)
        .with("uncounted", found.uncounted)
        .text();
    Object::new().with_json("file", &file).text()
}

fn summary(report: &SalvageReport, new: Option<&Path>) -> String {
    let salvaged = Object::new()
        .with("queue_id", report.queue_id.as_ref().map(figures::id))
        .with("to", new.map(|new| new.to_string_lossy().into_owned()))
        .with("messages", report.messages)
        .with("bytes", report.bytes)
        .with("lost", report.lost)
        .with("uncounted", report.uncounted)
        .with("given_up", report.given_up)
        .with("overtaken", report.overtaken)
        .with("differing", report.differing)
        .with("unfinished_from", report.unfinished_from)
        .with("unfinished_left_out", report.unfinished_left_out)
        .text();
    Object::new().with_json("salvaged", &salvaged).text()
}
