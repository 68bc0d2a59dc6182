//! `consumers`: lists, makes, moves and removes consumers.

use std::path::Path;
use std::time::SystemTime;

use clap::{Arg, ArgMatches, Command};
use mmq::{ConsumerSnapshot, Handle, Start};

use super::Call;
use crate::arguments::{self, flag, text_of};
use crate::console::{Consent, Console, Form};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::framing::visible_text;
use crate::human;
use crate::look::Looked;
use crate::opening::{self, Standing};
use crate::output::{Out, Output};
use crate::place::{self, Where};
use crate::units;
use crate::units::count;
use crate::width::Width;

const ABOUT: &str = "List, make, move or remove consumers; each consumer gets every message";

const ADDED_AT: &str = "\
WHERE is one of: a sequence number (1042); -N, so that the newest N wait for it; +N, behind the
oldest N; first; last (behind the newest message); a time (2026-11-22T03:00Z) or an age (15m), which
mean the first message of the first segment that was begun at that time or later.

Without a consumer a queue keeps every message. If the first consumer begins behind the oldest
message, the queue gives up the messages before it. On a terminal the command asks whether it may;
elsewhere it needs --yes.";

pub(crate) fn command() -> Command {
    let consumers = arguments::command(
        "consumers",
        ABOUT,
        "Examples:\n  \
         mmq consumers q\n  \
         mmq consumers q add audit\n  \
         mmq consumers q seek audit -100\n  \
         mmq consumers q fork audit second\n  \
         mmq consumers q rm audit --yes",
    )
    .arg(arguments::dir())
    .subcommand(
        arguments::command(
            "add",
            "Make a consumer",
            "Examples:\n  mmq consumers q add audit\n  mmq consumers q add audit --at last --yes",
        )
        .arg(name("name", "The consumer's name: 1 to 255 bytes"))
        .arg(place::argument("at").long("at").help("Where the consumer begins [default: first]"))
        .arg(yes())
        .after_help(ADDED_AT),
    )
    .subcommand(
        arguments::command(
            "seek",
            "Move a consumer",
            "Examples:\n  mmq consumers q seek audit first",
        )
        .arg(name("name", "The consumer's name; \"\" is the queue's own"))
        .arg(place::argument("where").required(true).help("The place to move it to"))
        .arg(yes())
        .after_help(place::ABOUT),
    )
    .subcommand(
        arguments::command(
            "rm",
            "Remove a consumer",
            "Examples:\n  mmq consumers q rm audit --yes",
        )
        .arg(name("name", "The consumer's name; \"\" is the queue's own"))
        .arg(yes()),
    )
    .subcommand(
        arguments::command(
            "fork",
            "Make a consumer at the place of another one",
            "Examples:\n  mmq consumers q fork audit second",
        )
        .arg(name("name", "The existing consumer; \"\" is the queue's own"))
        .arg(name("new", "The name of the new consumer")),
    )
    .after_help(place::ABOUT);
    arguments::locking(consumers)
}

fn name(id: &'static str, help: &'static str) -> Arg {
    let shown = if id == "new" { "NEW" } else { "NAME" };
    Arg::new(id).value_name(shown).help(help).required(true)
}

pub(super) fn yes() -> Arg {
    flag("yes", "Give messages up without asking").short('y')
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let dir = arguments::dir_of(call.matches);
    let Some((verb, matches)) = call.matches.subcommand() else {
        return list(call, dir);
    };
    let queue = call.opener().open_existing(dir)?;
    let done = work(&queue, verb, matches, call.console);
    let closed = queue.close();
    done?;
    closed?;
    Ok(ExitStatus::Done)
}

/// Shows all consumers, without the lock.
fn list(call: &Call<'_>, dir: &Path) -> Tried<ExitStatus> {
    let snapshot = Looked::open(dir)?.snapshot()?;
    let mut output = Output::new(call.signals, Out::Written)?;
    let width = Width::of(&std::io::stdout());
    for consumer in snapshot.readers() {
        let line = match call.console.form {
            Form::Program => figures::consumer(consumer).text(),
            Form::Person => width.fold(&row(consumer), human::INDENT),
        };
        output.push(format!("{line}\n").as_bytes())?;
    }
    if let Some(why) = human::no_reader(&snapshot).filter(|_| call.console.form == Form::Person) {
        call.console.note(why);
    }
    output.flush()?;
    Ok(ExitStatus::Done)
}

fn row(consumer: &ConsumerSnapshot) -> String {
    let name = match consumer.name.as_str() {
        "" => "(the queue's own)".into(),
        name => visible_text(name.as_bytes()),
    };
    let (waits, bytes) = (count(consumer.messages, "message"), units::size(consumer.bytes));
    let age = consumer.oldest_age.map(units::duration);
    let age = age.map(|age| format!(", the oldest at most {age} old")).unwrap_or_default();
    let handed = human::handed_out(consumer);
    let forwards = forwarder(consumer);
    format!("{name:<20} at {}: {waits}, {bytes}{age}{handed}{forwards}", consumer.next_seq)
}

/// What a forwarder keeps that reads as this consumer, or `mmq accept` as its bookmark, and when it
/// last moved.
fn forwarder(consumer: &ConsumerSnapshot) -> String {
    let Some(at) = consumer.acknowledged_at else { return String::new() };
    let kept = count(consumer.kept, "message");
    let ago = units::duration(SystemTime::now().duration_since(at).unwrap_or_default());
    let id = consumer.name.strip_prefix("accept-");
    let whose = match id.filter(|id| id.len() == 32 && id.bytes().all(|it| it.is_ascii_hexdigit()))
    {
        Some(id) => format!("where `mmq accept` goes on with what queue {id} sends"),
        None => "a forwarder".to_owned(),
    };
    format!("; {whose}: moved {ago} ago, keeps {kept}")
}

fn work(queue: &Handle, verb: &str, matches: &ArgMatches, console: Console) -> Tried<()> {
    let name = text_of(matches, "name").unwrap_or_default();
    match verb {
        "add" => {
            is_free(queue, name)?;
            let at = matches.get_one::<Where>("at").copied().unwrap_or(Where::First);
            let stats = queue.stats()?;
            let (oldest, next) = (stats.oldest_seq, stats.next_seq);
            // A place that is not there makes no consumer.
            let seq = match at {
                // It has no place to go back from.
                Where::Before(newest) => next.saturating_sub(newest).max(oldest),
                at => {
                    let dir = queue.path();
                    at.resolve(place::Bounds { dir, oldest, next, place: oldest })?
                }
            };
            if stats.consumers == 0 {
                // Before the first consumer everything is kept; from then on, what is behind one.
                let unclaimed = seq.saturating_sub(oldest).min(stats.messages);
                let (dir, which) = (queue.path(), ", which no consumer has claimed");
                ask_of(console, matches, unclaimed, dir, which)?;
            }
            queue.consumer_at(name, Start::Seq(seq))?;
            let unclaimed = queue.stats()?.unclaimed.saturating_sub(stats.unclaimed);
            if unclaimed > 0 {
                let unclaimed = count(unclaimed, "message");
                console.note(format!("{unclaimed} given up, which no consumer had claimed"));
            }
            Ok(())
        }
        "seek" => {
            let Standing { bounds, waiting } = opening::standing(queue, name)?;
            let wanted = matches.get_one::<Where>("where").copied().unwrap_or(Where::First);
            let seq = wanted.resolve(bounds)?;
            let given_up = seq.saturating_sub(bounds.place).min(waiting);
            ask(console, matches, given_up, queue.path())?;
            Ok(opening::consumer(queue, name)?.seek(seq)?)
        }
        "rm" => {
            let waiting = opening::standing(queue, name)?.waiting;
            ask_of(console, matches, waiting, queue.path(), ", which wait for this consumer")?;
            Ok(queue.remove_consumer(name)?)
        }
        _ => {
            let new = text_of(matches, "new").unwrap_or_default();
            is_free(queue, new)?;
            opening::consumer(queue, name)?.fork(new)?;
            Ok(())
        }
    }
}

fn is_free(queue: &Handle, name: &str) -> Tried<()> {
    // The queue's own consumer has no name that could be given.
    if name.is_empty() || !queue.consumer_stats()?.iter().any(|known| known.name == name) {
        return Ok(());
    }
    let path = queue.path().display();
    let message = format!("queue {path} has a consumer {name:?} already; `seek` moves it");
    Err(Failure::new(ExitStatus::Refused, "exists", message))
}

/// Asks before messages are given up.
pub(super) fn ask(console: Console, matches: &ArgMatches, messages: u64, dir: &Path) -> Tried<()> {
    ask_of(console, matches, messages, dir, "")
}

/// As [`ask`]; `which` says more of the messages.
fn ask_of(
    console: Console,
    matches: &ArgMatches,
    messages: u64,
    dir: &Path,
    which: &str,
) -> Tried<()> {
    if messages == 0 || matches.get_flag("yes") {
        return Ok(());
    }
    let (messages, dir) = (count(messages, "message"), dir.display());
    let what = format!("this gives up {messages} of queue {dir}{which}");
    match console.asks(&format!("{what}. Go on?")) {
        Some(Consent::Yes) => Ok(()),
        Some(Consent::No) => {
            Err(Failure::new(ExitStatus::Refused, "not_confirmed", "nothing was changed"))
        }
        None => Err(Failure::usage(format!("{what}; repeat the command with --yes"))),
    }
}
