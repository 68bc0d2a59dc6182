//! `stat`: figures of queues, for people, programs and monitoring.

mod limits;
mod prometheus;
mod users;

use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::{Arg, ArgAction, Command};
use mmq::{QueueState, Snapshot};

use self::users::{User, Users};
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
The command takes no lock and writes nothing; a process may use the queue meanwhile.

The line `waiting` counts the messages that the queue's own consumer has still to read; while the
queue has no consumer, all of them. Each line `consumer` counts those of another consumer. An age is
that of the segment (the file) that holds the oldest message, so the message may be younger. A size
is what the messages take in the segments. `used by` names the processes that use a shared queue
through its owner (in JSON `users`, which is null if the owner does not share the queue, not with
this user, or does not answer within half a second).

--watch shows how many messages were put in and taken per second since the last look. On a terminal
it redraws the screen. Elsewhere it prints one block after the other, each with the time, or with
--json one object per line.

`handed out` counts the messages that workers have now, or have given back. It is known only for
consumers that store attempts: those of `mmq each --dead`, and of programs that set a redelivery.
Since when a worker has a message, only its process knows.

`lost`, `dropped`, `refused`, `flush` (and `taken` in JSON) count from the last opening of the queue
on. The owner stores these figures at a flush, at closing and at unusual events, not at each
message; `stored_at` in JSON says when. So `taken` may stand still while messages are taken.

No line is wider than the terminal. Elsewhere the variable COLUMNS sets the width.

With --max-lag, --max-age and --max-bytes the status is 1 if a consumer exceeds the limit, and
standard error says which. If one of several queues cannot be read, the command reports that and
shows the others; the status is the worst of all.";

pub(crate) fn command() -> Command {
    let stat = arguments::command(
        "stat",
        "Show figures of queues: how many messages wait, how old they are, which process has the queue",
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
        .arg(flag("exact", "Print sizes in bytes"))
        .arg(paint::argument())
        .arg(flag("prometheus", "Print in the text format of Prometheus"))
        .arg(
            arguments::path("output", "FILE")
                .long("output")
                .help("Write to this file; readers see the old text or the new one, never a part")
                .requires("prometheus"),
        )
        .arg(
            Arg::new("label")
                .long("label")
                .value_name("NAME")
                .action(ArgAction::Append)
                .requires("prometheus")
                .help("The value of the label `queue`; give one --label for each queue [default: its path]"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .value_name("SECONDS")
                .num_args(0..=1)
                .value_parser(units::parse_duration)
                .help("Show the figures again after so many seconds, until a signal comes [default: 1]"),
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
    /// Who uses the queue through its owner; `None`: nobody says so.
    users: Option<Vec<User>>,
    /// Since the look before.
    rates: Option<Rates>,
}

impl Polled {
    fn new(
        path: &Path,
        label: Option<&String>,
        before: Option<&Polled>,
        users: &mut Users,
    ) -> Polled {
        let look = |looked: Looked| {
            let snapshot = looked.snapshot()?;
            let gaps = looked.gaps(&snapshot)?;
            let mut snapshot = snapshot;
            snapshot.gaps = gaps;
            Ok(snapshot)
        };
        let answer = Looked::open(path).and_then(look);
        let is_owned = answer.as_ref().is_ok_and(|snapshot| snapshot.state == QueueState::Owned);
        let users = if is_owned { users.ask(path) } else { None };
        let label = label.map_or_else(|| path.to_string_lossy().into_owned(), String::clone);
        let before = before.and_then(Polled::snapshot);
        let rates = before.zip(answer.as_ref().ok());
        let rates = rates.and_then(|(before, now)| Rates::between(before, now));
        Polled { label, answer, users, rates }
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
        return Err(Failure::usage("give one --label for each queue"));
    }
    if matches.get_flag("prometheus") {
        let mut shown: Vec<Cow<'_, str>> = match labels.is_empty() {
            true => paths.iter().map(|path| path.to_string_lossy()).collect(),
            false => labels.iter().map(|label| label.as_str().into()).collect(),
        };
        shown.sort_unstable();
        let twice = shown.iter().zip(shown.iter().skip(1)).find(|(one, next)| one == next);
        if let Some((label, _)) = twice {
            let message = format!("two queues have the label {label:?}; give each its own --label");
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
        return Err(Failure::usage("--watch must be more than 0 seconds"));
    }
    let mut output = Output::new(call.signals, Out::Written)?;
    let mut before = Vec::new();
    let mut users: Vec<Users> = paths.iter().map(|_| Users::default()).collect();
    loop {
        let begun = Instant::now();
        let asked = paths.iter().zip(&mut users).enumerate().map(|(at, (path, users))| {
            let label = labels.get(at).copied();
            Polled::new(path, label, before.get(at), users)
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
                Shape::JsonLine => {
                    let line = figures::object(snapshot, rates);
                    users::with(line, polled.users.as_deref()).text() + "\n"
                }
                _ => {
                    let mut block = human::block(snapshot, rates, exact, paint);
                    block += &users::line(polled.users.as_deref());
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
