//! `verify`: whether every part of every file is what was written.

use std::ops::ControlFlow;

use clap::Command;
use mmq::{AsOpened, Finding, Verified, VerifyStep};

use super::Call;
use crate::arguments::{self, flag};
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::framing::visible_text;
use crate::human::{self, Sizes};
use crate::json_object::Object;
use crate::look::{Checks, Looked};
use crate::output::{Out, Output};
use crate::paint::{self, Paint};
use crate::progress::Bar;
use crate::units::{self, count};
use crate::width::Width;

const AFTER: &str = "\
The command takes no lock and writes nothing; a process may use the queue meanwhile.
If no process has the queue, the command checks it as the next opening will find it. --as-opened
first prints what that opening will find: the figures of `mmq stat`, the gaps, and the files that it
will set aside (rename), make or remove. While a process has the queue, --as-opened ends with
status 4.

Status 1: some bytes are not those that mmq wrote. A line names the file, the offset, what is wrong,
and which messages are lost with it. If a segment's header is damaged and the index has no copy of
it, nothing says which messages the segment held; `mmq salvage DIR` tells how many are still
readable. Messages that a power cut took, or that the queue dropped, are no damage: see `mmq gaps`.";

pub(crate) fn command() -> Command {
    arguments::command(
        "verify",
        "Check every header, checksum and sequence number, and say what is damaged",
        "Examples:\n  \
         mmq verify q\n  \
         mmq verify q --quick && echo headers are sound\n  \
         mmq verify q --as-opened",
    )
    .arg(arguments::dir())
    .arg(flag("quick", "Check only the index and the headers of segments, not the messages"))
    .arg(flag("as-opened", "First print what the next opening of the queue will find"))
    .arg(paint::argument())
    .after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let dir = arguments::dir_of(call.matches);
    let looked = Looked::open(dir)?;
    let mut report = Report {
        form: call.console.form,
        paint: Paint::on(call.matches, &std::io::stdout()),
        output: Output::new(call.signals, Out::Written)?,
        bar: Bar::new(call.console, None),
        lost: 0,
        uncounted: false,
    };
    if call.matches.get_flag("as-opened") {
        report.opened(&looked.as_opened()?)?;
    }
    let is_quick = call.matches.get_flag("quick");
    let depth = if is_quick { Checks::Headers } else { Checks::Messages };
    let mut failed = None;
    let verified = looked.verify(depth, |step| {
        failed = report.step(step).err();
        let ends = failed.is_some() || call.signals.stop().is_some();
        if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    report.bar.clear();
    if let Some(failure) = failed {
        return Err(failure);
    }
    if let Some(ending) = call.signals.stop() {
        let messages = count(verified.messages, "message");
        call.console.note(format!("ended by a signal after {messages}"));
        return Ok(ending);
    }
    report.summary(&verified, depth)?;
    if verified.findings == 0 {
        return Ok(ExitStatus::Done);
    }
    let (found, lost) = (count(verified.findings, "place"), count(report.lost, "message"));
    let dir = dir.display();
    let costs = match (report.uncounted, report.lost) {
        (false, _) => format!("lost with it: {lost}"),
        (true, 0) => format!("`mmq salvage {dir}` tells how many messages are still readable"),
        (true, _) => format!(
            "lost with it: at least {lost}; `mmq salvage {dir}` tells how many are still readable"
        ),
    };
    let message = format!("queue {dir}: damage in {found}; {costs}");
    Err(Failure::new(ExitStatus::Bad, "damaged", message))
}

/// What is said, while it is found.
struct Report<'a> {
    form: Form,
    paint: Paint,
    output: Output<'a>,
    bar: Bar,
    /// Messages that the damage costs.
    lost: u64,
    /// A segment's header is damaged or foreign: if the index has no copy, nothing says which
    /// messages the segment holds.
    uncounted: bool,
}

impl Report<'_> {
    fn say(&mut self, line: &str) -> Tried<()> {
        self.bar.clear();
        let line = match self.form {
            Form::Person => Width::of(&std::io::stdout()).fold(line, human::INDENT),
            Form::Program => line.to_owned(),
        };
        self.output.push(format!("{line}\n").as_bytes())?;
        self.output.flush()
    }

    fn step(&mut self, step: VerifyStep) -> Tried<()> {
        match step {
            VerifyStep::Finding(finding) => {
                self.lost += finding.lost.map_or(0, |gap| gap.count());
                self.uncounted |= finding.offset == Some(0) && finding.lost.is_none();
                let line = match self.form {
                    Form::Program => json(&finding),
                    Form::Person => self.paint.bad(&visible_text(finding.to_string().as_bytes())),
                };
                self.say(&line)
            }
            VerifyStep::Read { bytes, total } => {
                self.bar.of(bytes, total, || ", verified".to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What an opening would make of the queue.
    fn opened(&mut self, opened: &AsOpened) -> Tried<()> {
        let AsOpened { snapshot, set_aside, created, removed, .. } = opened;
        if self.form == Form::Program {
            let renamed = set_aside.iter().map(|(file, becomes)| {
                Object::new().with("file", file.as_str()).with("becomes", becomes.as_str()).text()
            });
            let object = figures::object(snapshot, None)
                .with_all("would_set_aside", renamed)
                .with("would_create", created.clone())
                .with("would_remove", removed.clone())
                .text();
            return self.say(&Object::new().with_json("as_opened", &object).text());
        }
        let mut block = human::block(snapshot, None, Sizes::Rounded, self.paint);
        for (file, becomes) in set_aside {
            let text =
                format!("{file} becomes {becomes}: it is damaged, or belongs to another queue");
            let text = visible_text(text.as_bytes());
            block += &human::line("sets aside", &self.paint.bad(&text));
        }
        for (what, files) in [("creates", created), ("removes", removed)] {
            if !files.is_empty() {
                block += &human::line(what, &visible_text(files.join(", ").as_bytes()));
            }
        }
        self.say(&format!("The next opening will find:\n{block}"))
    }

    fn summary(&mut self, verified: &Verified, depth: Checks) -> Tried<()> {
        let line = match self.form {
            Form::Program => Object::new()
                .with("segments", verified.segments)
                .with("messages", verified.messages)
                .with("bytes", verified.bytes)
                .with("missing", verified.missing)
                .with("overtaken", verified.overtaken)
                .with("findings", verified.findings)
                .with("lost", self.lost)
                .with("uncounted", self.uncounted)
                .text(),
            Form::Person => {
                let segments = count(verified.segments, "segment header");
                let messages = count(verified.messages, "message");
                let bytes = units::size(verified.bytes);
                let text = match depth {
                    Checks::Messages => format!("intact: {segments}, {messages} ({bytes})"),
                    Checks::Headers => {
                        format!("intact: {segments}; the messages were not read (--quick)")
                    }
                };
                if verified.findings == 0 { self.paint.well(&text) } else { text }
            }
        };
        self.say(&line)
    }
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
