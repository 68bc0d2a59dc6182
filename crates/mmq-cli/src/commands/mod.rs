//! The commands. Each is one file: `command` says what its command line is, `run` does it.

mod accept;
mod bench;
mod cat;
mod completions;
mod consumers;
mod copy;
mod dump;
mod each;
mod forward;
mod gaps;
mod import;
mod load;
mod man;
mod purge;
mod put;
mod redrive;
mod salvage;
mod serve;
mod spool;
mod stat;
mod tail;
mod take;
mod verify;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

use crate::arguments;
use crate::console::{Console, Form};
use crate::ending::{ExitStatus, STATUSES};
use crate::failure::{Failure, Tried};
use crate::opening::Opener;
use crate::signals::Signals;

/// A command as it was called.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) matches: &'a ArgMatches,
    pub(crate) console: Console,
    pub(crate) signals: &'a Signals,
}

impl<'a> Call<'a> {
    /// Opens queues that others may have.
    pub(crate) fn opener(&self) -> Opener<'a> {
        Opener::of(self.matches, self.signals, self.console)
    }
}

struct Entry {
    command: fn() -> Command,
    run: fn(&Call<'_>) -> Tried<ExitStatus>,
}

/// In the order of the help.
const COMMANDS: [Entry; 23] = [
    Entry { command: stat::command, run: stat::run },
    Entry { command: cat::command, run: cat::run },
    Entry { command: tail::command, run: tail::run },
    Entry { command: gaps::command, run: gaps::run },
    Entry { command: verify::command, run: verify::run },
    Entry { command: put::command, run: put::run },
    Entry { command: take::command, run: take::run },
    Entry { command: each::command, run: each::run },
    Entry { command: serve::command, run: serve::run },
    Entry { command: redrive::command, run: redrive::run },
    Entry { command: forward::command, run: forward::run },
    Entry { command: accept::command, run: accept::run },
    Entry { command: consumers::command, run: consumers::run },
    Entry { command: purge::command, run: purge::run },
    Entry { command: copy::command, run: copy::run },
    Entry { command: dump::command, run: dump::run },
    Entry { command: load::command, run: load::run },
    Entry { command: salvage::command, run: salvage::run },
    Entry { command: import::command, run: import::run },
    Entry { command: spool::command, run: spool::run },
    Entry { command: bench::command, run: bench::run },
    Entry { command: completions::command, run: completions::run },
    Entry { command: man::command, run: man::run },
];

/// The version of the tool, and of the files that it reads and writes.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (reads and writes file formats 3 and 4)");
const _: () = assert!(mmq::FORMAT_VERSION == 4, "the text above names the format");

/// What `mmq` alone prints.
const EXAMPLES: &str = "\
mmq: a durable queue in a directory, for the shell

  mmq put /var/spool/jobs < jobs.txt           each line becomes a message; status 0: durable
  mmq take /var/spool/jobs -n 1                remove the oldest message and print it
  find . -name '*.jpg' -print0 | mmq put q -0      messages with any bytes but NUL
  mmq take q --framing json                    one JSON object a line, for any bytes
  mmq each q --dead dead -- ./upload           run a command for each message until it succeeds
  mmq consumers q add audit --at first         another reader that gets every message
  mmq purge q --before -1000                   give up all messages but the newest 1000
  mmq spool README.md                          send a file through a queue and check it

`mmq help` lists all commands; `mmq help COMMAND` explains one.
";

/// What the words mean that the help of all commands uses.
const WORDS: &str = "\
A queue is a directory. One process at a time has it open: its owner. An owner that shares the
queue, as every mmq does, lets other processes use it, through a socket in the directory. Messages
have sequence numbers and come out in the order in which they were put in. A consumer has a name and
a place, the next message that it reads; each consumer gets every message. The queue's own consumer
has no name: `mmq take` and `mmq each` read as that one. A consumer acknowledges a message when its
work is done. A message is durable when a power cut cannot take it. A gap is a range of numbers
whose messages will never come. To give messages up means that some consumer will never read them. A
segment is a file that holds messages. It is drained when every consumer has read all of it; then
the queue keeps it as a spare, to use it again, or removes it.";

/// The whole command line.
pub(crate) fn description() -> Command {
    let tool = Command::new("mmq")
        .about("A durable queue in a directory, for the shell")
        .after_help(WORDS)
        .version(VERSION)
        .subcommand_required(true)
        .subcommands(COMMANDS.iter().map(|entry| (entry.command)()));
    arguments::global(tool)
}

/// The tool, called with these words.
pub(crate) fn main(words: Vec<OsString>) -> ExitStatus {
    if words.len() < 2 {
        return print(EXAMPLES.as_bytes());
    }
    let to_program = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let rows = STATUSES.map(|(status, what)| format!("  {status:<10}{what}\n"));
    let after = format!("{WORDS}\n\nExit status:\n{}", rows.concat());
    let matches = match description().after_help(after).try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            return print(error.to_string().as_bytes());
        }
        Err(error) if to_program => {
            // What is wrong, in one line: behind it come the usage and advice.
            let text = error.to_string();
            let lines = text.lines().map(str::trim);
            let lines = lines.take_while(|line| !line.starts_with("Usage:"));
            let said: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            let said = said.join(" ");
            let said = said.trim_start_matches("error: ");
            return Console::plain(Form::Program).fail(&Failure::usage(said));
        }
        Err(error) => {
            // A word of the command line may hold control bytes.
            let text = error.to_string();
            text.lines().for_each(|line| Console::plain(Form::Person).line(line));
            return ExitStatus::Usage;
        }
    };
    let entry = matches.subcommand().and_then(|(name, matches)| {
        let entry = COMMANDS.iter().find(|entry| (entry.command)().get_name() == name)?;
        Some((entry, matches))
    });
    let Some((entry, matches)) = entry else { return ExitStatus::Usage };
    let console = Console::new(matches);
    let run = |signals: &'static Signals| (entry.run)(&Call { matches, console, signals });
    match Signals::catch().and_then(run) {
        Ok(ending) => ending,
        Err(failure) => console.fail(&failure),
    }
}

/// Prints a text that is complete. Who does not read it to its end wants no more.
fn print(text: &[u8]) -> ExitStatus {
    let mut stdout = io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Console::plain(Form::Person).fail(&Failure::io("standard output", &error))
        }
        _ => ExitStatus::Done,
    }
}
