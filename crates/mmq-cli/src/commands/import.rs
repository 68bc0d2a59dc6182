//! `import`: another queue's directory becomes a queue.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use mmq::{Options, Queue};
use mmq_import::{
    Finding, ImportOptions, ImportRange, Listing, OldQueue, Order, Severity, SourceKind, Survey,
    users,
};
use serde_json::{Value, json};

use super::Call;
use crate::arguments::{self, flag, number, text_of};
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::framing::visible_text;

use crate::json_object;
use crate::making::Making;
use crate::output::Output;
use crate::progress::Bar;
use crate::renamed::Renamed;
use crate::units::{self, count};

const AFTER: &str = "\
Until the queue is complete it is in the directory NEW.importing. Status 0: everything is in NEW.
Status 1: NEW was made (with --dry-run: would be), but something was torn (cut off while it was
written) or is lost; the report says what. Status 6: nothing was made, because DIR is too damaged to
find anything in it, or because NEW is not empty. With any other status nothing was made either.";

pub(crate) fn command() -> Command {
    let about = "Make a queue from a directory of bigqueue or pqueue, which stays unchanged";
    arguments::command(
        "import",
        about,
        "Examples:\n  \
         mmq import /var/spool/old q --dry-run\n  \
         mmq import /var/spool/old q\n  \
         mmq import /var/spool/old q --rename worker-1=uploader --json",
    )
    .arg(arguments::path("dir", "DIR").help("The other queue's directory").required(true))
    .arg(
        arguments::path("new", "NEW")
            .help("The new queue's directory: missing or empty")
            .required_unless_present("dry-run"),
    )
    .arg(
        Arg::new("as")
            .long("as")
            .value_name("KIND")
            .value_parser(PossibleValuesParser::new(SourceKind::names()))
            .help("The kind of DIR [default: found from the names of its files]"),
    )
    .arg(flag("dry-run", "Check and report only").short('n'))
    .arg(
        Arg::new("order")
            .long("order")
            .value_name("ORDER")
            .value_parser(PossibleValuesParser::new(["name", "mtime"]))
            .help("What decides the order of pqueue's segments [default: name]"),
    )
    .arg(flag("all", "Import also messages that every consumer has taken, if they are still there"))
    .arg(
        Arg::new("rename")
            .long("rename")
            .value_name("OLD=NEW")
            .value_parser(value_parser!(OsString))
            .action(ArgAction::Append)
            .help("Give a consumer another name; write OLD as it is, or as the report writes it"),
    )
    .arg(number("stop-at-empty-run", "End the queue before the first N empty messages in a row"))
    .arg(arguments::mode())
    .arg(flag("force", "Import even while a process has the files open"))
    .after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let dir = arguments::dir_of(matches);
    let renamed = renamed(matches)?;
    let target = match arguments::path_of(matches, "new") {
        Some(new) => Some(Making::of(new, ".importing", "exists")?),
        None => None,
    };
    if target.as_ref().is_some_and(|target| target.is_within(dir)) {
        return Err(Failure::usage(
            "NEW lies inside DIR, which is never changed; name a directory outside it",
        ));
    }
    let listing = Listing::of(dir)?;
    let kind = match text_of(matches, "as").and_then(SourceKind::named) {
        Some(kind) => kind,
        None => listing.detect()?,
    };
    listing.check(kind)?;
    if !matches.get_flag("force")
        && let Some((pid, file)) = users(listing.paths())
    {
        let message =
            format!("process {pid} has {} open: end it first, or give --force", file.display());
        return Err(Failure::held(pid, message));
    }
    let is_dry = matches.get_flag("dry-run");
    let total = listing.bytes();
    let stopped = || match call.signals.stop() {
        None => Ok(()),
        Some(ending) => {
            Err(Failure::new(ending, "stopped", "ended by a signal; nothing was imported"))
        }
    };
    let mut bar = Bar::new(call.console, Some(total));
    let mut progress = |bytes| {
        bar.at(bytes, || ", checked".to_owned());
        stopped()
    };
    let (mut survey, mut source) =
        OldQueue::survey(&listing, kind, manner(matches), &mut progress)?;
    drop(bar);
    let names = renamed.apply(&survey.consumers, &mut survey.findings)?;
    if let Some(target) = target.as_ref().filter(|_| !is_dry) {
        let mut bar = Bar::new(call.console, Some(survey.bytes));
        target.make(&Options::new().mode(arguments::mode_of(matches)), |queue| {
            fill(queue, &mut source, &survey, &names, &mut |bytes| {
                bar.at(bytes, || ", imported".to_owned());
                stopped()
            })
        })?;
    }
    let report = Report { dir, new: target.as_ref(), kind, survey: &survey, names: &names };
    let text = match call.console.form {
        Form::Program => report.json(matches),
        Form::Person => report.text(matches),
    };
    // Who closes the output wants no report.
    if let Err(failure) = Output::print(call.signals, text.as_bytes())
        && failure.ending != ExitStatus::Done
    {
        return Err(failure);
    }
    let is_bad = survey.findings.iter().any(|finding| finding.weight != Severity::Warning);
    Ok(if is_bad { ExitStatus::Bad } else { ExitStatus::Done })
}

fn manner(matches: &ArgMatches) -> ImportOptions {
    ImportOptions {
        extent: if matches.get_flag("all") { ImportRange::All } else { ImportRange::Waiting },
        order: match text_of(matches, "order") {
            Some("mtime") => Order::Modified,
            _ => Order::Name,
        },
        empty_run: matches.get_one::<u64>("stop-at-empty-run").copied(),
    }
}

fn renamed(matches: &ArgMatches) -> Tried<Renamed> {
    let mut renamed = Renamed::default();
    for pair in matches.get_many::<OsString>("rename").into_iter().flatten() {
        let bytes = pair.as_bytes();
        let Some(at) = bytes.iter().position(|byte| *byte == b'=') else {
            return Err(Failure::usage("--rename: write OLD=NEW"));
        };
        let (old, new) = bytes.split_at(at);
        renamed.add(old, new.get(1..).unwrap_or_default())?;
    }
    Ok(renamed)
}

fn fill(
    queue: &Queue,
    source: &mut OldQueue,
    survey: &Survey,
    names: &[String],
    progress: &mut dyn FnMut(u64) -> Tried<()>,
) -> Tried<()> {
    let mut bytes = 0;
    source.read(&mut |message| {
        queue.enqueue(message)?;
        bytes += message.len() as u64;
        progress(bytes)
    })?;
    // All of them first: a queue gives up what every consumer that exists has passed.
    for name in names {
        match name.as_str() {
            "" => queue.seek(0)?,
            name => drop(queue.consumer(name)?),
        }
    }
    for (name, consumer) in names.iter().zip(&survey.consumers) {
        match name.as_str() {
            "" => queue.seek(consumer.seq)?,
            name => queue.consumer(name)?.seek(consumer.seq)?,
        }
    }
    Ok(())
}

struct Report<'a> {
    dir: &'a Path,
    new: Option<&'a Making>,
    kind: SourceKind,
    survey: &'a Survey,
    names: &'a [String],
}

impl Report<'_> {
    fn json(&self, matches: &ArgMatches) -> String {
        let survey = self.survey;
        let consumers = self.names.iter().zip(&survey.consumers).map(|(name, consumer)| {
            json!({ "name": name, "seq": consumer.seq, "messages": survey.messages - consumer.seq })
        });
        let of = |weight| -> Vec<Value> {
            let found = survey.findings.iter().filter(|finding| finding.weight == weight);
            found.map(finding).collect()
        };
        let report = json!({
            "schema": 1,
            "source": self.dir.display().to_string(),
            "path": self.new.map(|target| target.path().display().to_string()),
            "dry_run": matches.get_flag("dry-run"),
            "kind": self.kind.name(),
            "arena_size": survey.arena_size,
            "messages": survey.messages,
            "bytes": survey.bytes,
            "consumers": consumers.collect::<Vec<_>>(),
            "torn": of(Severity::Torn),
            "lost": of(Severity::Lost),
            "warnings": of(Severity::Warning),
        });
        json_object::text(&report) + "\n"
    }

    fn text(&self, matches: &ArgMatches) -> String {
        let survey = self.survey;
        let is_dry = matches.get_flag("dry-run");
        let done = if is_dry { "would be imported" } else { "imported" };
        let arenas = survey.arena_size.map(|size| format!(", arenas of {size} bytes"));
        let mut text = format!(
            "{}: {}{}\n{} ({}) {done}\n",
            visible_text(self.dir.as_os_str().as_bytes()),
            self.kind.name(),
            arenas.unwrap_or_default(),
            count(survey.messages, "message"),
            units::size(survey.bytes)
        );
        for (name, consumer) in self.names.iter().zip(&survey.consumers) {
            let name = if name.is_empty() { "the queue's own".into() } else { format!("{name:?}") };
            let waiting = count(survey.messages - consumer.seq, "message");
            text += &format!("consumer {name}: at {}, {waiting} to come\n", consumer.seq);
        }
        for finding in &survey.findings {
            let weight = match finding.weight {
                Severity::Warning => "note",
                Severity::Torn => "torn",
                Severity::Lost => "lost",
            };
            text += &format!("{weight}: {}\n", visible_text(finding.text.as_bytes()));
        }
        text
    }
}

fn finding(finding: &Finding) -> Value {
    json!({
        "what": finding.what,
        "place": finding.place,
        "bytes": finding.bytes,
        "text": finding.text,
    })
}
