//! `verify`: whether every part of every file is what was written.

use clap::Command;
use mmq::Finding;

use super::Call;
use crate::arguments::{self, flag};
use crate::console::Form;
use crate::ending::Ending;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::json::Object;
use crate::look::{Checks, Looked};
use crate::output::{Out, Output};
use crate::units::{self, count};

const AFTER: &str = "\
The queue may be in use: no lock is taken, and nothing is written. A queue that nobody has is
verified as its next opening will find it.

Status 1: something is not as it was written. A line says the file, the place, what is wrong, and
which messages it costs. What a power cut took, or what was dropped, is no damage: mmq gaps.";

pub(crate) fn command() -> Command {
    arguments::command(
        "verify",
        "Check every header, checksum, number, seal and place, and say what is damaged",
        "Examples:\n  mmq verify q\n  mmq verify q --quick && echo headers are sound",
    )
    .arg(arguments::dir())
    .arg(flag("quick", "Leave the messages out: the index and the headers of segments alone"))
    .after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<Ending> {
    let dir = arguments::dir_of(call.matches);
    let mut output = Output::new(call.signals, Out::Written)?;
    let (mut failed, mut lost) = (None, 0);
    let form = call.console.form;
    let is_quick = call.matches.get_flag("quick");
    let depth = if is_quick { Checks::Headers } else { Checks::Messages };
    let verified = Looked::open(dir)?.verify(depth, |finding| {
        lost += finding.lost.map_or(0, |gap| gap.count());
        let line = match form {
            Form::Program => json(&finding),
            Form::Person => finding.to_string(),
        };
        if failed.is_none() {
            failed = output.push(format!("{line}\n").as_bytes()).err();
        }
    })?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    let summary = match form {
        Form::Program => Object::new()
            .with("segments", verified.segments)
            .with("messages", verified.messages)
            .with("bytes", verified.bytes)
            .with("missing", verified.missing)
            .with("overtaken", verified.overtaken)
            .with("findings", verified.findings)
            .with("lost", lost)
            .text(),
        Form::Person => {
            let segments = count(verified.segments, "segment header");
            let messages = count(verified.messages, "message");
            format!("{segments} and {messages} ({}) are intact", units::size(verified.bytes))
        }
    };
    output.push(format!("{summary}\n").as_bytes())?;
    output.flush()?;
    if verified.findings == 0 {
        return Ok(Ending::Done);
    }
    let (found, costs) = (count(verified.findings, "place"), count(lost, "message"));
    let message = format!("queue {}: {found} damaged, at a cost of {costs}", dir.display());
    Err(Failure::new(Ending::Bad, "damaged", message))
}

fn json(finding: &Finding) -> String {
    let lost = finding.lost.as_ref().map(figures::gap);
    let found = Object::new()
        .with("file", finding.file.as_str())
        .with("offset", finding.offset)
        .with("what", finding.what.as_str())
        .with_json("lost", lost.as_deref().unwrap_or("null"))
        .text();
    Object::new().with_json("finding", &found).text()
}
