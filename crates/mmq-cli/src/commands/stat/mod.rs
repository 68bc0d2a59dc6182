//! `stat`: figures of queues, for people, programs and monitoring.

mod limits;
mod prometheus;

use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::{Arg, ArgAction, Command};
use mmq::Snapshot;

use super::Call;
use crate::arguments::{self, flag};
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::human::{self, Sizes};
use crate::look::Looked;
use crate::metrics;
use crate::output::{Out, Output};
use crate::paint::{self, Paint};
use crate::rates::Rates;
use crate::signals::{For, Woken};
use crate::times;
use crate::units;
use crate::width::Width;

const AFTER: &str = "\
The queue may be in use: no lock is taken, and nothing is written. Ages are upper bounds: that of
the segment in which a message lies. Messages and bytes are those that wait for a consumer; those
of the queue are those of its own consumer, and all it holds before that one's first read.

--watch shows what is put in and taken a second since the look before: on a terminal in place of it,
elsewhere block after block with the time, with --json an object a line.

Where attempts are stored (mmq each --dead, and programs that set a redelivery) a consumer shows
what was handed out to its workers and is not done, now, and how often the first of it came back.
What was taken, refused, dropped and lost since the queue was opened is what the process that has it
stored last, at `stored_at`. Since when a worker has a message that process alone knows.

No line is wider than the terminal; elsewhere COLUMNS sets a width.

With --max-lag, --max-age and --max-bytes the status is 1 when a consumer has more before it, and
standard error says which. Of several queues, one that cannot be read is reported, and the others
are shown; the status is that of the worst.";

pub(crate) fn command() -> Command {
    let stat = arguments::command(
        "stat",
        "Figures of queues: how many messages wait, how old, who has it",
        "Examples:\n  \
         mmq stat q\n  \
         mmq stat --json q r | jq .messages\n  \
         mmq stat q --watch 2\n  \
         mmq stat q --max-lag 1000 --max-age 15m --consumer audit\n  \
         mmq stat q --prometheus --output /var/lib/node_exporter/mmq.prom",
    );
    let stat = stat
        .arg(
            arguments::dir()
                .num_args(1..)
                .action(ArgAction::Append)
                .help("The queues' directories"),
        )
        .arg(flag("exact", "Sizes in bytes"))
        .arg(paint::argument())
        .arg(flag("prometheus", "In the text format of Prometheus"))
        .arg(
            arguments::path("output", "FILE")
                .long("output")
                .help("Write it there, at once as a whole")
                .requires("prometheus"),
        )
        .arg(
            Arg::new("label")
                .long("label")
                .value_name("NAME")
                .action(ArgAction::Append)
                .requires("prometheus")
                .help("The label `queue`, for each queue one [default: its path]"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .value_name("SECONDS")
                .num_args(0..=1)
                .value_parser(units::parse_duration)
                .help("Show it again and again [default: each second]"),
        );
    limits::arguments(stat).after_help(AFTER)
}

/// The form of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Block,
    /// Blocks that take the place of those before them.
    Screen,
    JsonLine,
    Prometheus,
}

/// A queue, and what it says.
#[derive(Debug)]
struct Polled {
    label: String,
    answer: Tried<Snapshot>,
    /// Since the look before.
    rates: Option<Rates>,
}

impl Polled {
    fn new(path: &Path, label: Option<&String>, before: Option<&Polled>) -> Polled {
        let look = |looked: Looked| {
            let snapshot = looked.snapshot()?;
            let gaps = looked.gaps(&snapshot)?;
            let mut snapshot = snapshot;
            snapshot.gaps = gaps;
            Ok(snapshot)
        };
        let answer = Looked::open(path).and_then(look);
        let label = label.map_or_else(|| path.to_string_lossy().into_owned(), String::clone);
        let before = before.and_then(Polled::snapshot);
        let rates = before.zip(answer.as_ref().ok());
        let rates = rates.and_then(|(before, now)| Rates::between(before, now));
        Polled { label, answer, rates }
    }

    fn snapshot(&self) -> Option<&Snapshot> {
        self.answer.as_ref().ok()
    }
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let paths: Vec<&PathBuf> = matches.get_many("dir").into_iter().flatten().collect();
    let labels: Vec<&String> = matches.get_many("label").into_iter().flatten().collect();
    if !labels.is_empty() && labels.len() != paths.len() {
        return Err(Failure::usage("give as many --label as queues"));
    }
    if matches.get_flag("prometheus") {
        let mut shown: Vec<Cow<'_, str>> = match labels.is_empty() {
            true => paths.iter().map(|path| path.to_string_lossy()).collect(),
            false => labels.iter().map(|label| label.as_str().into()).collect(),
        };
        shown.sort_unstable();
        let twice = shown.iter().zip(shown.iter().skip(1)).find(|(one, next)| one == next);
        if let Some((label, _)) = twice {
            let message = format!("two queues have the label {label:?}: name each by a --label");
            return Err(Failure::usage(message));
        }
    }
    let watch = matches.contains_id("watch");
    let terminal = std::io::stdout().is_terminal();
    let shape = match call.console.form {
        _ if matches.get_flag("prometheus") => Shape::Prometheus,
        Form::Person if watch && terminal => Shape::Screen,
        Form::Person => Shape::Block,
        Form::Program => Shape::JsonLine,
    };
    let every = matches.get_one::<Duration>("watch").copied().unwrap_or(Duration::from_secs(1));
    if every.is_zero() {
        return Err(Failure::usage("--watch: the time between two looks is zero"));
    }
    let mut output = Output::new(call.signals, Out::Written)?;
    let mut before = Vec::new();
    loop {
        let begun = Instant::now();
        let asked = paths.iter().enumerate().map(|(at, path)| {
            let label = labels.get(at).copied();
            Polled::new(path, label, before.get(at))
        });
        let asked: Vec<Polled> = asked.collect();
        let ending = turn(call, shape, &mut output, &asked)?;
        if !watch {
            return Ok(ending);
        }
        before = asked;
        match call.signals.wait(&[output.as_fd()], For::Closing, begun.checked_add(every))? {
            Woken::TimedOut => {}
            Woken::Ready => return Ok(ExitStatus::Done),
            Woken::Stopped => return Ok(call.signals.stop().unwrap_or(ExitStatus::Done)),
        }
    }
}

/// Shows the figures of one moment, and says what is wrong with them.
fn turn(
    call: &Call<'_>,
    shape: Shape,
    output: &mut Output<'_>,
    asked: &[Polled],
) -> Tried<ExitStatus> {
    let exact = if call.matches.get_flag("exact") { Sizes::Exact } else { Sizes::Rounded };
    let paint = Paint::on(call.matches, &std::io::stdout());
    if shape == Shape::Screen {
        output.push(b"\x1b[H\x1b[J")?;
    }
    if shape == Shape::Prometheus {
        let text = prometheus::text(asked);
        match arguments::path_of(call.matches, "output") {
            None => output.push(text.as_bytes())?,
            Some(file) => metrics::replace(file, &text)?,
        }
    } else {
        let width = Width::of(&std::io::stdout());
        let is_log = shape == Shape::Block && call.matches.contains_id("watch");
        if is_log {
            output.push(format!("{}\n", times::rfc3339(SystemTime::now())).as_bytes())?;
        }
        for (at, polled) in asked.iter().enumerate() {
            let Some(snapshot) = polled.snapshot() else { continue };
            let rates = polled.rates.as_ref();
            let text = match shape {
                Shape::JsonLine => figures::object(snapshot, rates).text() + "\n",
                _ => {
                    let block = human::block(snapshot, rates, exact, paint);
                    let between = if at == 0 { "" } else { "\n" };
                    format!("{between}{}", width.fold(&block, human::INDENT))
                }
            };
            output.push(text.as_bytes())?;
        }
        if is_log {
            output.push(b"\n")?;
        }
    }
    output.flush()?;
    let mut worst = ExitStatus::Done;
    for asked in asked {
        let (found, failures) = match &asked.answer {
            Ok(snapshot) => (None, limits::passed(call.matches, snapshot)),
            Err(failure) => (Some(failure), Vec::new()),
        };
        for failure in found.into_iter().chain(&failures) {
            let ending = call.console.fail(failure);
            worst = if ending as u8 > worst as u8 { ending } else { worst };
        }
    }
    Ok(worst)
}
