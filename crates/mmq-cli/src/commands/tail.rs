//! `tail`: the newest messages, and those that come.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, Command};
use mmq::{Seen, Snapshot, Start};

use super::Call;
use crate::arguments::{self, at_most, flag};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::look::{Looked, Met, Outlook};
use crate::place::{self, Where};
use crate::show::{self, Show, Stopped};
use crate::signals::{For, Woken};
use crate::units;

const NEWEST: u64 = 10;
const INTERVAL: Duration = Duration::from_millis(50);

const AFTER: &str = "\
The command takes no lock and writes nothing; a process may use the queue meanwhile.
It shows messages that are in the files, whether or not consumers have taken them. Consumers still
get them. If the queue uses the segment of a taken message again before that message was shown,
standard error says so.";

pub(crate) fn command() -> Command {
    let tail = arguments::command(
        "tail",
        "Show the newest messages, and with -f those that come later",
        "Examples:\n  \
         mmq tail q -n 20\n  \
         mmq tail q -f | grep --line-buffered error\n  \
         mmq tail q -f --from last --json",
    );
    let tail = tail
        .arg(arguments::dir())
        .arg(at_most("messages", "Show the N newest messages [default: 10]").short('n'))
        .arg(place::argument("from").long("from").help("Begin there").conflicts_with("messages"))
        .arg(
            Arg::new("follow")
                .short('f')
                .long("follow")
                .action(ArgAction::SetTrue)
                .help("Do not end, and show new messages as they come"),
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("DURATION")
                .value_parser(units::parse_duration)
                .requires("follow")
                .help("How often to look for new messages [default: 50ms]"),
        )
        .arg(flag("durable", "Show only messages that are durable: a power cut cannot take them"));
    show::arguments(tail).after_help(format!("{}\n\n{AFTER}", place::ABOUT))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let dir = arguments::dir_of(matches);
    let looked = Looked::open(dir)?;
    let before = mark(dir);
    let snapshot = looked.snapshot()?;
    let durable = matches.get_flag("durable");
    let end = if durable { snapshot.durable_seq } else { snapshot.next_seq };
    let start = match matches.get_one::<Where>("from") {
        Some(place) => Start::Seq(place.resolve(Outlook::of(&snapshot, None)?.bounds(&snapshot))?),
        None => {
            let newest = matches.get_one::<u64>("messages").copied().unwrap_or(NEWEST);
            newest_from(&looked, &snapshot, newest, end)?
        }
    };
    let mut messages = looked.from(start);
    let mut show = Show::new(call)?;
    let result = if matches.get_flag("follow") {
        if durable {
            messages.end_at(snapshot.durable_seq);
        }
        Following { call, dir, looked: &looked, before, show: &mut show }.follow(&mut messages)
    } else {
        messages.end_at(end);
        show.all(&mut messages)
    };
    show::finish(show, result)
}

/// What every opening changes, and every message that is put in.
fn mark(dir: &Path) -> Option<Vec<u8>> {
    fs::read(dir.join("index")).ok()
}

/// Where the newest messages before `end` begin, so many of them or all there are. Numbers without
/// a message lie between them, so it may take several looks.
fn newest_from(looked: &Looked, snapshot: &Snapshot, newest: u64, end: u64) -> Tried<Start> {
    let mut span = newest;
    loop {
        let from = end.saturating_sub(span).max(snapshot.oldest_seq);
        let mut numbers = VecDeque::new();
        for seen in looked.from(Start::Seq(from)) {
            match seen? {
                Seen::Message { message, .. } if message.seq() < end => {
                    numbers.push_back(message.seq());
                }
                Seen::Message { .. } => break,
                _ => {}
            }
            if numbers.len() as u64 > newest {
                numbers.pop_front();
            }
        }
        if numbers.len() as u64 == newest {
            return Ok(Start::Seq(numbers.front().copied().unwrap_or(end)));
        }
        if from <= snapshot.oldest_seq {
            return Ok(Start::Oldest);
        }
        span = span.saturating_mul(2);
    }
}

struct Following<'a, 'b> {
    call: &'a Call<'b>,
    dir: &'a Path,
    looked: &'a Looked,
    /// The mark before the latest look.
    before: Option<Vec<u8>>,
    show: &'a mut Show<'b>,
}

impl Following<'_, '_> {
    fn follow(&mut self, messages: &mut Met<'_>) -> Tried<Stopped> {
        loop {
            if self.show.all(messages)? == Stopped::BySignal {
                return Ok(Stopped::BySignal);
            }
            self.show.output.flush()?;
            if self.wait()? == Woken::Stopped {
                return Ok(Stopped::BySignal);
            }
            if self.call.matches.get_flag("durable") {
                messages.end_at(self.looked.snapshot()?.durable_seq);
            }
        }
    }

    /// Waits until there may be more to show, or a signal comes.
    fn wait(&mut self) -> Tried<Woken> {
        let every = self.call.matches.get_one::<Duration>("interval").copied();
        let every = every.unwrap_or(INTERVAL);
        loop {
            let next = Instant::now().checked_add(every);
            match self.call.signals.wait(&[self.show.output.as_fd()], For::Closing, next)? {
                Woken::Stopped => return Ok(Woken::Stopped),
                Woken::Ready => return Err(Failure::closed_output()),
                Woken::TimedOut => {}
            }
            let now = mark(self.dir);
            if now != self.before {
                self.before = now;
                return Ok(Woken::TimedOut);
            }
        }
    }
}
