//! Arguments that several commands take.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::failure::{Failure, Tried};
use crate::framing;
use crate::units;

pub(crate) const WAIT_LOCK: &str = "wait-lock";

/// Refuses a new directory within one that is not to change.
pub(crate) fn is_outside(new: &Path, dir: &Path) -> Tried<()> {
    let Ok(dir) = dir.canonicalize() else {
        return Ok(());
    };
    let new = std::path::absolute(new).unwrap_or(new.to_owned());
    if new.canonicalize().is_ok_and(|new| new == dir) {
        // It is not empty, and who makes a queue there says so.
        return Ok(());
    }
    let there = new.ancestors().find_map(|above| above.canonicalize().ok());
    if there.is_some_and(|there| there.starts_with(&dir)) {
        let (new, dir) = (new.display(), dir.display());
        return Err(Failure::usage(format!("{new} is within {dir}; name a directory elsewhere")));
    }
    Ok(())
}

/// Refuses two names of one queue.
pub(crate) fn is_another(one: &Path, other: &Path) -> Tried<()> {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => {
            let (one, other) = (one.display(), other.display());
            let message = format!("{one} and {other} are one queue; name two");
            Err(Failure::usage(message))
        }
        _ => Ok(()),
    }
}

/// Examples first: who asks for help mostly wants one.
const TEMPLATE: &str =
    "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// A command of that name, with its examples: whole command lines, one a line.
pub(crate) fn command(name: &'static str, about: &'static str, examples: &'static str) -> Command {
    Command::new(name).about(about).before_help(examples).help_template(TEMPLATE)
}

pub(crate) fn dir() -> Arg {
    path("dir", "DIR").help("The queue's directory").required(true)
}

pub(crate) fn path(id: &'static str, name: &'static str) -> Arg {
    Arg::new(id).value_name(name).value_parser(value_parser!(PathBuf))
}

pub(crate) fn flag(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).help(help).action(ArgAction::SetTrue)
}

pub(crate) fn size(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name("SIZE").help(help).value_parser(units::parse_size)
}

/// `--mode`, of a command that makes a queue.
pub(crate) fn mode() -> Arg {
    Arg::new("mode").long("mode").value_name("OCTAL").value_parser(units::parse_mode).help(
        "Permission bits of the queue's files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]",
    )
}

pub(crate) fn mode_of(matches: &ArgMatches) -> Option<u32> {
    matches.get_one::<u32>("mode").copied()
}

/// A number above zero.
pub(crate) fn number(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name("N").help(help).value_parser(value_parser!(u64).range(1..))
}

/// A number of messages to show; 0 shows none.
pub(crate) fn at_most(id: &'static str, help: &'static str) -> Arg {
    number(id, help).value_parser(value_parser!(u64))
}

/// Arguments of every command.
pub(crate) fn global(command: Command) -> Command {
    let global = |id, help| flag(id, help).global(true).help_heading("Options of every command");
    command
        .arg(global("json", "For programs: JSON on standard output, and a failure as the last line of standard error"))
        .arg(global("quiet", "Say nothing on standard error but failures").short('q'))
        .arg(global("no-progress", "Draw no line of progress"))
}

/// How messages come in.
pub(crate) fn framing_in(command: Command) -> Command {
    framing(command).arg(flag(
        "keep-cr",
        "With line framing: a carriage return before a newline belongs to the message",
    ))
}

/// How messages go out.
pub(crate) fn framing_out(command: Command) -> Command {
    framing(command)
        .arg(flag(
            "strict",
            "End with status 6 before the first message that holds its own delimiter",
        ))
        .arg(
            Arg::new("decode").long("decode").value_name("CMD").help(
                "Show each message as this shell command answers it: one process, --framing length both ways, each answer at once",
            ),
        )
}

fn framing(command: Command) -> Command {
    let names = PossibleValuesParser::new(framing::names());
    command
        .arg(
            Arg::new("framing")
                .long("framing")
                .value_name("FRAMING")
                .value_parser(names)
                .help("Where a message ends [default: line]"),
        )
        .arg(
            Arg::new("null")
                .short('0')
                .long("null")
                .help("The same as --framing null")
                .action(ArgAction::SetTrue)
                .conflicts_with("framing"),
        )
}

pub(crate) fn consumer() -> Arg {
    Arg::new("consumer")
        .long("consumer")
        .value_name("NAME")
        .help("The consumer whose messages they are [default: the queue's own, which has no name]")
}

/// `--wait-lock`, of a command that opens a queue which others may have.
pub(crate) fn locking(command: Command) -> Command {
    command.arg(
        Arg::new(WAIT_LOCK)
            .long(WAIT_LOCK)
            .value_name("DURATION")
            .num_args(0..=1)
            .value_parser(units::parse_duration)
            .global(true)
            .help("Wait while another process has the queue, so long or for ever; status 4 then"),
    )
}

/// `--wait` and `--follow`.
pub(crate) fn following(command: Command) -> Command {
    command
        .arg(
            Arg::new("wait")
                .long("wait")
                .value_name("DURATION")
                .num_args(0..=1)
                .value_parser(units::parse_duration)
                .help("Wait for the first message, so long or for ever; status 3 when none came"),
        )
        .arg(
            Arg::new("follow")
                .short('f')
                .long("follow")
                .action(ArgAction::SetTrue)
                .help("Go on for ever. While nothing is there, others can open the queue"),
        )
}

/// How long a command waits for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It does not: it takes what is there.
    No,
    /// For the first message, so long or for ever.
    First(Option<Duration>),
    Forever,
}

pub(crate) fn waits(matches: &ArgMatches) -> Waits {
    if matches.get_flag("follow") {
        return Waits::Forever;
    }
    if !matches.contains_id("wait") {
        return Waits::No;
    }
    Waits::First(matches.get_one::<Duration>("wait").copied())
}

/// The directory of the queue.
pub(crate) fn dir_of(matches: &ArgMatches) -> &Path {
    path_of(matches, "dir").unwrap_or(Path::new(""))
}

pub(crate) fn path_of<'a>(matches: &'a ArgMatches, id: &str) -> Option<&'a Path> {
    matches.get_one::<PathBuf>(id).map(PathBuf::as_path)
}

pub(crate) fn text_of<'a>(matches: &'a ArgMatches, id: &str) -> Option<&'a str> {
    matches.get_one::<String>(id).map(String::as_str)
}
