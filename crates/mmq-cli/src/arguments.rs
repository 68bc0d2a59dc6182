//! Arguments that several commands take.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::failure::{Failure, Tried};
use crate::framing;
use crate::units;

pub(crate) const WAIT_LOCK: &str = "wait-lock";

/// Refuses a new directory that is one which is not to change, or lies within it.
pub(crate) fn is_outside(new: &Path, dir: &Path) -> Tried<()> {
    is_another(new, dir)?;
    let Ok(dir) = dir.canonicalize() else {
        return Ok(());
    };
    let new = std::path::absolute(new).unwrap_or(new.to_owned());
    let there = new.ancestors().find_map(|above| above.canonicalize().ok());
    if there.is_some_and(|there| there.starts_with(&dir)) {
        let (new, dir) = (new.display(), dir.display());
        return Err(Failure::usage(format!(
            "{new} lies inside {dir}; name a directory outside it"
        )));
    }
    Ok(())
}

/// Refuses two names of one queue.
pub(crate) fn is_another(one: &Path, other: &Path) -> Tried<()> {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => {
            let (one, other) = (one.display(), other.display());
            let message = format!("{one} and {other} are the same queue; name two different ones");
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
        "Permission bits of the queue's files, for example 640: r lets others look, w lets others open the queue [default: those of the existing files, or as the umask says]",
    )
}

pub(crate) fn mode_of(matches: &ArgMatches) -> Option<u32> {
    matches.get_one::<u32>("mode").copied()
}

/// A number above zero.
pub(crate) fn number(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name("N").help(help).value_parser(units::parse_count)
}

/// A number of messages to show; 0 shows none.
pub(crate) fn at_most(id: &'static str, help: &'static str) -> Arg {
    number(id, help).value_parser(units::parse_number)
}

/// Arguments of every command.
pub(crate) fn global(command: Command) -> Command {
    let global = |id, help| flag(id, help).global(true).help_heading("Options of every command");
    command
        .arg(global(
            "json",
            "Write JSON on standard output, and a failure as the last line of standard error",
        ))
        .arg(global("quiet", "Write nothing on standard error except failures").short('q'))
        .arg(global("no-progress", "Draw no progress line"))
}

/// How messages come in.
pub(crate) fn framing_in(command: Command) -> Command {
    framing(command)
        .arg(flag(
            "keep-cr",
            "With line framing: keep a carriage return before a newline as part of the message",
        ))
        .arg(max_message())
}

/// `--max-message`.
pub(crate) fn max_message() -> Arg {
    let help = "End with status 6 before a message that is longer than SIZE [default: 64MiB]";
    size("max-message", help)
}

pub(crate) fn longest_message(matches: &ArgMatches) -> u64 {
    matches.get_one("max-message").copied().unwrap_or(64 << 20)
}

/// How messages go out.
pub(crate) fn framing_out(command: Command) -> Command {
    framing(command)
        .arg(flag(
            "strict",
            "End with status 6 before the first message that contains its own delimiter",
        ))
        .arg(
            Arg::new("decode").long("decode").value_name("CMD").help(
                "Send each message through this shell command and show its answer: it runs once, reads and writes with --framing length, and answers each message before it reads the next",
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
                .help("How the end of a message is marked [default: line]"),
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
        .help("Read as this consumer [default: the queue's own, which has no name]")
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
            .help("Wait this long (without DURATION: for ever) while another process has the queue and does not share it, then end with status 4"),
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
                .help("Wait this long (without DURATION: for ever) for the first message, then end with status 3"),
        )
        .arg(
            Arg::new("follow")
                .short('f')
                .long("follow")
                .action(ArgAction::SetTrue)
                .help("Do not end, and wait for more messages"),
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
