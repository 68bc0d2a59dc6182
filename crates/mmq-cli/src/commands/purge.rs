//! `purge`: gives messages up for every consumer.

use clap::{ArgMatches, Command};
use mmq::Handle;

use super::Call;
use super::consumers::{ask, yes};
use crate::arguments;
use crate::console::Console;
use crate::ending::ExitStatus;
use crate::failure::Tried;
use crate::opening::{self, Standing};
use crate::place::{self, Where};
use crate::units::count;

const AFTER: &str = "\
WHERE is one of: a sequence number (1042); -N, which keeps the newest N; +N, so many numbers after
each consumer's place; first; last (behind the newest message); a time (2026-11-22T03:00Z) or an age
(15m), which mean the first message of the first segment that was begun at that time or later.";

pub(crate) fn command() -> Command {
    let purge = arguments::command(
        "purge",
        "Give messages up: move every consumer behind them",
        "Examples:\n  mmq purge q --yes\n  mmq purge q --before 1042\n  mmq purge q --before -1000 --yes",
    )
    .arg(arguments::dir())
    .arg(place::argument("before").long("before").help("Give up the messages before WHERE [default: last, which gives up all]"))
    .arg(yes())
    .after_help(AFTER);
    arguments::locking(purge)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let queue = call.opener().open_existing(arguments::dir_of(call.matches))?;
    let done = purge(&queue, call.matches, call.console);
    let closed = queue.close();
    done?;
    closed?;
    Ok(ExitStatus::Done)
}

fn purge(queue: &Handle, matches: &ArgMatches, console: Console) -> Tried<()> {
    let wanted = matches.get_one::<Where>("before").copied().unwrap_or(Where::Last);
    let mut moves = Vec::new();
    let mut given_up = 0;
    for name in everyone(queue)? {
        let Standing { bounds, waiting } = opening::standing(queue, &name)?;
        let seq = match wanted {
            // Back from its place no consumer gives anything up.
            Where::Before(newest) => bounds.next.saturating_sub(newest).max(bounds.oldest),
            wanted => wanted.resolve(bounds)?,
        };
        if seq > bounds.place {
            given_up = given_up.max((seq - bounds.place).min(waiting));
            moves.push((name, seq));
        }
    }
    ask(console, matches, given_up, queue.path())?;
    for (name, seq) in &moves {
        opening::consumer(queue, name)?.seek(*seq)?;
    }
    console.note(format!("{} given up", count(given_up, "message")));
    Ok(())
}

/// The names of all consumers. The queue's own is among them when it exists, or when there is no
/// other whose place could say what is done with.
fn everyone(queue: &Handle) -> Tried<Vec<String>> {
    let consumers = queue.consumer_stats()?;
    let mut names: Vec<String> = consumers.into_iter().map(|consumer| consumer.name).collect();
    if names.is_empty() {
        names.push(String::new());
    }
    Ok(names)
}
