//! `cat`: shows messages and leaves them where they are.

use clap::{Arg, ArgAction, Command};
use mmq::Start;

use super::Call;
use crate::arguments::{self, at_most, flag, text_of};
use crate::ending::ExitStatus;
use crate::failure::Tried;
use crate::look::{Looked, Outlook};
use crate::place::{self, Where};
use crate::show::{self, As, Show, To};

const AFTER: &str = "\
The command takes no lock and writes nothing; a process may use the queue meanwhile.
It leaves out messages that the consumer has acknowledged before older ones. It reports messages
that will never come on standard error, or with --framing json in their place; then the status is
1. (`mmq gaps` says why they will not come.)";

pub(crate) fn command() -> Command {
    let cat = arguments::command(
        "cat",
        "Show the messages that wait for a consumer, oldest first, without taking them",
        "Examples:\n  \
         mmq cat q -n 5\n  \
         mmq cat q --json --from 1042 --to 1142\n  \
         mmq cat q --grep timeout --count\n  \
         mmq cat q --all --head 80",
    );
    let cat = cat
        .visible_alias("peek")
        .arg(arguments::dir())
        .arg(at_most("messages", "Show at most N messages").short('n'))
        .arg(arguments::consumer())
        .arg(
            flag("all", "Show all messages that are still in the files, also those that consumers have taken").conflicts_with("consumer"),
        )
        .arg(
            place::argument("from")
                .long("from")
                .help("Begin there; WHERE may lie before the consumer's place"),
        )
        .arg(place::argument("to").long("to").help("End before that message"))
        .arg(
            Arg::new("count")
                .short('c')
                .long("count")
                .action(ArgAction::SetTrue)
                .help("Print only how many messages there are"),
        );
    show::arguments(cat).after_help(format!("{}\n\n{AFTER}", place::ABOUT))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let looked = Looked::open(arguments::dir_of(matches))?;
    let snapshot = looked.snapshot()?;
    let view = Outlook::of(&snapshot, text_of(matches, "consumer"))?;
    let bounds = view.bounds(&snapshot);
    let all = matches.get_flag("all");
    let mut messages = match matches.get_one::<Where>("from") {
        Some(place) => looked.from(Start::Seq(place.resolve(bounds)?)),
        None if all => looked.from(Start::Oldest),
        None => looked.waiting_for(&view),
    };
    let counts = matches.get_flag("count");
    let to = match matches.get_one::<Where>("to") {
        None => To::End,
        // What has not come yet ends nothing.
        Some(Where::Seq(seq)) => To::Number(*seq),
        Some(Where::After(by)) => To::Number(bounds.place.saturating_add(*by)),
        Some(place) => To::Number(place.resolve(bounds)?),
    };
    let mut show = Show::new(call)?
        .shown_as(if counts { As::Count } else { As::Text })
        .at_most(matches.get_one::<u64>("messages").copied())
        .hiding(if all { Vec::new() } else { view.done })
        .up_to(to);
    let result = show.all(&mut messages);
    show::finish(show, result)
}
