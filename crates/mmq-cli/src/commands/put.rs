//! `put`: messages from standard input or files.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use mmq::{Handle, OnFull, Options};

use super::Call;
use crate::arguments::{self, flag, size};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::framing::Frames;
use crate::input::Input;
use crate::opening;
use crate::output::{Out, Output};
use crate::progress::Bar;
use crate::signals::For;
use crate::units;

/// How long a message waits for room before it looks whether a signal has come.
const PATIENCE: Duration = Duration::from_millis(200);
/// How soon a message is tried again that another process has refused for want of room.
const PAUSE: Duration = Duration::from_millis(20);

const AFTER: &str = "\
Status 0 says that the messages are durable: a power cut cannot take them (except with --no-flush).

If another process has the queue open and shares it, as every mmq does, the messages go in through
that process, and its options apply: a line on standard error names those of this command that do
not. If it does not share the queue, this program waits for 0.3 s (with --wait-lock longer), and
then ends with status 4. If it ends while it stores a message, nobody knows whether it has: this
program ends with status 7, and says how many messages are in for certain.

If the queue has no consumer, `mmq put` makes the queue's own one; `mmq take` and `mmq each` read
as that one. The queue keeps every message until it has read it, whatever other consumers do. If
only consumers with names read the queue, make one of them (`mmq consumers q add NAME`), then remove
the queue's own: `mmq consumers q rm '' --yes`.

If root puts messages into the queue of another user, that user may be unable to open the files
that root makes. A line on standard error warns of it.";

pub(crate) fn command() -> Command {
    let about = "Put messages in, from standard input or files";
    let put = arguments::command(
        "put",
        about,
        "Examples:\n  \
         mmq put q < jobs.txt\n  \
         mmq put q --framing raw picture.jpg letter.txt\n  \
         mmq put q --max-bytes 1GiB --on-full drop-oldest < events.log",
    );
    let on_full = PossibleValuesParser::new(["reject", "wait", "drop-oldest"]);
    let put = put
        .arg(arguments::dir().help("The queue's directory; it is made if it is missing"))
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .action(ArgAction::Append)
                .num_args(0..)
                .help("Files to read; - is standard input [default: -]"),
        )
        .arg(
            Arg::new("on-full")
                .long("on-full")
                .value_name("POLICY")
                .value_parser(on_full)
                .help("What to do when there is no room: end with status 6, wait for room, or drop the oldest messages [default: reject]"),
        )
        .arg(flag("batch", "Put in the whole input or nothing, even if the machine crashes"))
        .arg(flag("print-seq", "Print the sequence number of each message"))
        .arg(flag("no-flush", "Do not wait until the messages are on disk; a power cut may take them"));
    arguments::locking(arguments::framing_in(owning(put).after_help(AFTER)))
}

/// The options of the process that has the queue open.
pub(super) fn owning(command: Command) -> Command {
    command
        .arg(size("max-bytes", "The most bytes of disk that the queue may take"))
        .arg(size("arena-size", "How many bytes of a file are mapped into memory at a time, for new files [default: 128MiB]"))
        .arg(arguments::mode())
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let files = files(call.matches)?;
    let options = options(call.matches);
    let dir = arguments::dir_of(call.matches);
    let queue = call.opener().open(dir, &options)?;
    note_unheeded(call, &queue);
    opening::keep_for_own(&queue)?;
    opening::warn_of_owner(call.console, dir);
    let mut put = Put::new(call, &queue, &files)?;
    let result = if call.matches.get_flag("batch") {
        put.all_or_nothing(&files)
    } else {
        files.iter().try_for_each(|file| put.file(file))
    };
    let result = result.and_then(|()| put.print_rest());
    let (count, bytes, gaps) = (put.count, put.bytes, put.gaps);
    drop(put);
    // What went in before a failure stays, and is as durable as all else.
    let ended = end(queue, call.matches);
    if gaps > 0 {
        let gaps = units::count(gaps, "line");
        call.console
            .note(format!("{gaps} of the input told of missing messages and were left out"));
    }
    let done = || format!("{}, {}", units::count(count, "message"), units::size(bytes));
    if let Some(ending) = call.signals.stop() {
        call.console.note(format!("ended by a signal; put in before that: {}", done()));
        return ended.map(|()| ending);
    }
    let result = result.and(ended);
    if let Err(failure) = &result {
        let before = if failure.is_in_doubt() { "certainly put in" } else { "put in" };
        if count > 0 || failure.is_in_doubt() {
            call.console.note(format!("{before} before the failure: {}", done()));
        }
    }
    result.map(|()| ExitStatus::Done)
}

/// Makes what was put in durable, if that is wanted, and closes the queue.
fn end(queue: Handle, matches: &ArgMatches) -> Tried<()> {
    if matches.get_flag("no-flush") {
        if queue.is_owner() {
            // To close it is to flush it. A queue that is left is as one whose process has died.
            std::mem::forget(queue);
        }
        return Ok(());
    }
    if !queue.is_owner() {
        queue.flush()?;
    }
    Ok(queue.close()?)
}

/// Says which options do not apply because another process has the queue open.
fn note_unheeded(call: &Call<'_>, queue: &Handle) {
    if queue.is_owner() {
        return;
    }
    let waits = arguments::text_of(call.matches, "on-full") == Some("wait");
    let given = ["max-bytes", "on-full", "arena-size", "mode"]
        .into_iter()
        .filter(|option| call.matches.contains_id(option) && !(waits && *option == "on-full"));
    let given: Vec<String> = given.map(|option| format!("--{option}")).collect();
    if !given.is_empty() {
        let given = given.join(", ");
        call.console.note(format!(
            "another process has the queue open, so its options apply: {given} does not"
        ));
    }
}

/// The files to read. Standard input is none that a person types into: who forgot the file gets
/// help.
fn files(matches: &ArgMatches) -> Tried<Vec<PathBuf>> {
    let files: Vec<PathBuf> = matches.get_many("file").into_iter().flatten().cloned().collect();
    if files.is_empty() {
        if io::stdin().is_terminal() {
            let help = command().render_help().to_string();
            let _ = io::stderr().write_all(format!("{help}\n").as_bytes());
            return Err(Failure::usage("name a FILE, or give the messages on standard input"));
        }
        return Ok(vec![PathBuf::from("-")]);
    }
    // Before a queue is made for nothing.
    for file in files.iter().filter(|file| *file != Path::new("-")) {
        file.metadata().map_err(|error| Failure::io(file.display(), &error))?;
    }
    Ok(files)
}

pub(super) fn options(matches: &ArgMatches) -> Options {
    let mut options = Options::new()
        .max_bytes(matches.get_one::<u64>("max-bytes").copied())
        .mode(arguments::mode_of(matches));
    if let Some(bytes) = matches.get_one::<u64>("arena-size") {
        options = options.arena_size(*bytes);
    }
    options.on_full(match arguments::text_of(matches, "on-full") {
        Some("wait") => OnFull::Wait(Some(PATIENCE)),
        Some("drop-oldest") => OnFull::DropOldest,
        _ => OnFull::Reject,
    })
}

struct Put<'a> {
    call: &'a Call<'a>,
    queue: &'a Handle,
    waits: bool,
    bar: Bar,
    numbers: Option<Output<'a>>,
    count: u64,
    bytes: u64,
    /// Bytes of the files that were read to their ends.
    read: u64,
    gaps: u64,
}

impl<'a> Put<'a> {
    fn new(call: &'a Call<'a>, queue: &'a Handle, files: &[PathBuf]) -> Tried<Put<'a>> {
        let sizes = files.iter().map(|file| file.metadata().ok().filter(|data| data.is_file()));
        let total = sizes.map(|data| data.map(|data| data.len())).sum();
        let bar = Bar::new(call.console, total);
        let waits = arguments::text_of(call.matches, "on-full") == Some("wait");
        let prints = call.matches.get_flag("print-seq");
        let numbers = prints.then(|| Output::new(call.signals, Out::Written)).transpose()?;
        Ok(Put { call, queue, waits, bar, numbers, count: 0, bytes: 0, read: 0, gaps: 0 })
    }

    /// Hands each message of that file to `each`.
    fn read(
        &mut self,
        file: &Path,
        mut each: impl FnMut(&mut Self, &mut Vec<u8>) -> Tried<()>,
    ) -> Tried<()> {
        let input = Input::open(file, self.call.signals)?;
        let mut frames = Frames::new(input, self.call.matches);
        let mut message = Vec::new();
        while self.call.signals.stop().is_none() && frames.next(&mut message)? {
            each(self, &mut message)?;
            if frames.is_drained() {
                self.print_rest()?;
            }
            let bytes = self.read + frames.consumed();
            self.bar.at(bytes, || format!(", {} messages", self.count));
        }
        self.read += frames.consumed();
        self.gaps += frames.gaps;
        Ok(())
    }

    fn file(&mut self, file: &Path) -> Tried<()> {
        self.read(file, |put, message| {
            let seq = put.when_there_is_room(|queue| queue.enqueue(&*message))?;
            put.passed(seq, message.len())
        })
    }

    fn all_or_nothing(&mut self, files: &[PathBuf]) -> Tried<()> {
        let mut messages: Vec<Vec<u8>> = Vec::new();
        for file in files {
            self.read(file, |_, message| {
                messages.push(std::mem::take(message));
                Ok(())
            })?;
        }
        if self.call.signals.stop().is_some() || messages.is_empty() {
            return Ok(());
        }
        let numbers = self.when_there_is_room(|queue| queue.enqueue_batch(&messages))?;
        numbers.zip(&messages).try_for_each(|(seq, message)| self.passed(seq, message.len()))
    }

    /// With `--on-full wait` the call is made again until there is room, or a signal comes.
    fn when_there_is_room<T>(&self, call: impl Fn(&Handle) -> mmq::Result<T>) -> Tried<T> {
        loop {
            match call(self.queue) {
                Err(error)
                    if self.waits && error.is_full() && self.call.signals.stop().is_none() =>
                {
                    if !self.queue.is_owner() {
                        // Another owner may refuse at once.
                        let next = Instant::now() + PAUSE;
                        self.call.signals.wait(&[], For::Reading, Some(next))?;
                    }
                }
                result => return result.map_err(Failure::from),
            }
        }
    }

    fn passed(&mut self, seq: u64, length: usize) -> Tried<()> {
        self.count += 1;
        self.bytes += length as u64;
        let printed =
            self.numbers.as_mut().map(|numbers| numbers.push(format!("{seq}\n").as_bytes()));
        self.heed(printed.unwrap_or(Ok(())))
    }

    fn print_rest(&mut self) -> Tried<()> {
        let printed = self.numbers.as_mut().map(Output::flush);
        self.heed(printed.unwrap_or(Ok(())))
    }

    /// The messages go in, whether or not anybody reads their numbers.
    fn heed(&mut self, printed: Tried<()>) -> Tried<()> {
        match printed {
            Err(failure) if failure.is_silent() => {
                self.numbers = None;
                Ok(())
            }
            printed => printed,
        }
    }
}
