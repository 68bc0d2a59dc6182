//! `gaps`: numbers that will never come.

use clap::Command;
use mmq::{Gap, Seen, Start};

use super::Call;
use crate::arguments::{self, flag};
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::framing::gap_line;
use crate::human;
use crate::look::Looked;
use crate::output::{Out, Output};
use crate::units::count;
use crate::width::Width;

const AFTER: &str = "\
The command takes no lock and writes nothing; a process may use the queue meanwhile.
Without --deep it shows what the files state; only --deep finds damage that nobody has met yet.

Status 1: messages were lost (cause damaged, or not flushed before a power cut). The status stays 0
if numbers were only reserved, or if the queue dropped or expired messages as its options say.";

pub(crate) fn command() -> Command {
    arguments::command(
        "gaps",
        "Show which messages will never come, and why",
        "Examples:\n  mmq gaps q\n  mmq gaps q --deep --json",
    )
    .arg(arguments::dir())
    .arg(flag("deep", "Read every message, to find damage too"))
    .after_help(AFTER)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let looked = Looked::open(arguments::dir_of(call.matches))?;
    let snapshot = looked.snapshot()?;
    let mut gaps = looked.gaps(&snapshot)?;
    if call.matches.get_flag("deep") {
        let mut met = Vec::new();
        for seen in looked.from(Start::Oldest) {
            if let Some(ending) = call.signals.stop() {
                return Ok(ending);
            }
            if let Seen::Gap(gap) = seen? {
                met.push(gap);
            }
        }
        gaps = joined(&gaps, met);
    }
    let mut output = Output::new(call.signals, Out::Written)?;
    let width = Width::of(&std::io::stdout());
    for gap in &gaps {
        let line = match call.console.form {
            Form::Program => gap_line(*gap),
            Form::Person => width.fold(&gap.to_string(), human::INDENT),
        };
        output.push(format!("{line}\n").as_bytes())?;
    }
    output.flush()?;
    let lost = gaps.iter().filter(|gap| figures::is_lost(gap.cause)).map(Gap::count).sum();
    if lost > 0 {
        let path = snapshot.path.display();
        let message = format!("queue {path}: {} lost", count(lost, "message"));
        return Err(Failure::new(ExitStatus::Bad, "gap", message));
    }
    Ok(ExitStatus::Done)
}

/// What a reader met, and what the files state of numbers that it did not come by.
fn joined(known: &[Gap], met: Vec<Gap>) -> Vec<Gap> {
    let is_met = |gap: &Gap| met.iter().any(|met| met.first <= gap.last && gap.first <= met.last);
    let mut gaps: Vec<Gap> = known.iter().filter(|gap| !is_met(gap)).copied().collect();
    gaps.extend(met);
    gaps.sort_by_key(|gap| gap.first);
    gaps
}
