//! `spool`: sends a file through a queue and checks what comes out.

mod home;
mod lines;
mod summary;

use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use clap::Command;
use mmq::OnFull;
use mmq::Options;
use mmq::Queue;

use self::home::Home;
use self::lines::Lines;
use self::lines::Shared;
use self::lines::Wanted;
use self::summary::Report;
use super::Call;
use crate::arguments;
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::Failure;
use crate::failure::Tried;
use crate::input::Input;
use crate::output::Out;
use crate::output::Output;
use crate::progress::Bar;

const AFTER: &str = "\
One thread puts the lines in. Another one takes them out and writes them to standard output. Half
way the queue is closed, with messages inside, and opened again. At the end a line of figures goes
to standard error. A line longer than --max-message goes through in pieces.

Status 0: everything came out byte for byte and in order (or the reader of standard output closed
it before the end). Status 1: it did not.";

pub(crate) fn command() -> Command {
    let spool = arguments::command(
        "spool",
        "Send a file through a queue, line by line, and check that it comes out unchanged",
        "Examples:\n  mmq spool README.md\n  mmq spool - < access.log > copy.log\n  mmq spool big.iso q --output copy.iso",
    )
    .arg(arguments::path("file", "FILE").required(true).help("Any file; - is standard input"))
    .arg(
        arguments::path("dir", "DIR")
            .help("The queue's directory, which stays [default: a temporary one]"),
    )
    .arg(arguments::path("output", "FILE").long("output").help("Write to this file [default: standard output]"))
    .arg(arguments::size("arena-size", "How many bytes of a file are mapped into memory at a time [default: 128MiB]"))
    .arg(arguments::size("max-message", "The most bytes of a message [default: 16MiB]"))
    .arg(arguments::mode())
    .after_help(AFTER);
    arguments::locking(spool)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let file = arguments::path_of(call.matches, "file").unwrap_or(Path::new("-"));
    let input = Input::open(file, call.signals)?;
    let size = input.size();
    let longest = call.matches.get_one("max-message").copied().unwrap_or(16 << 20).max(1);
    let output = match arguments::path_of(call.matches, "output") {
        None => Output::new(call.signals, Out::Written)?,
        Some(path) => {
            let name = path.display().to_string();
            if input.is(path) {
                return Err(Failure::usage(format!(
                    "--output {name} is also the input; name another file"
                )));
            }
            let file = File::create(path).map_err(|error| Failure::io(&name, &error))?;
            Output::into_file(name, file, call.signals, Out::Written)
        }
    };
    let home = Home::new(arguments::path_of(call.matches, "dir"))?;
    let mut spool = Spool {
        call,
        start: Instant::now(),
        bar: Bar::new(call.console, size),
        lines: Lines::new(input, longest, output),
        most_disk: 0,
    };
    let report = spool.through(home.path());
    // The bar is removed before anything is said.
    drop(spool);
    if let Some(ending) = call.signals.stop() {
        call.console.note("ended by a signal");
        return Ok(ending);
    }
    let report = report?;
    match call.console.form {
        Form::Person => {
            let text = report.to_string();
            text.lines().for_each(|line| call.console.line(&format!("mmq: {line}")));
        }
        Form::Program => call.console.line(&report.json()),
    }
    Ok(report.ending())
}

/// Which half of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lap {
    First,
    Second,
}

struct Spool<'a> {
    call: &'a Call<'a>,
    start: Instant,
    bar: Bar,
    lines: Lines<'a>,
    most_disk: u64,
}

impl Spool<'_> {
    fn through(&mut self, dir: &Path) -> Tried<Report> {
        // When the disk is full the queue waits: the other thread gives space back as it takes
        // messages out.
        let mut options = Options::new()
            .on_full(OnFull::Wait(Some(Duration::from_secs(10))))
            .mode(arguments::mode_of(self.call.matches));
        if let Some(bytes) = self.call.matches.get_one::<u64>("arena-size") {
            options = options.arena_size(*bytes);
        }
        let mut queue = self.call.opener().own(dir, &options)?;
        let held = queue.len();
        if held > 0 {
            let dir = dir.display();
            let message = format!(
                "queue {dir} holds {held} messages of an earlier run: name another directory"
            );
            return Err(Failure::new(ExitStatus::Refused, "not_empty", message));
        }
        let mut wanted = self.half(&queue, Lap::First)?;
        let inside = queue.len();
        if wanted == Wanted::More {
            queue.close()?;
            queue = self.call.opener().own(dir, &options)?;
            if queue.len() != inside {
                let message = format!(
                    "{inside} messages were in the queue when it was closed, and {} when it was opened again",
                    queue.len()
                );
                return Err(Failure::new(ExitStatus::Bad, "not_the_same", message));
            }
            wanted = self.half(&queue, Lap::Second)?;
        }
        let left = queue.len();
        queue.close()?;
        let (put_in, taken_out) = self.lines.passed();
        let seconds = self.start.elapsed().as_secs_f64();
        Ok(Report { put_in, taken_out, inside, left, wanted, seconds, disk: self.most_disk })
    }

    /// Runs the two threads; meanwhile measures the disk and draws the bar.
    fn half(&mut self, queue: &Queue, half: Lap) -> Tried<Wanted> {
        let shared = Shared::new(self.lines.out.passed.bytes);
        let (running, finished) = mpsc::channel::<()>();
        let Lines { source, out } = &mut self.lines;
        let (bar, most_disk) = (&mut self.bar, &mut self.most_disk);
        thread::scope(|scope| {
            let shared = &shared;
            let writer_running = running.clone();
            let writer = scope.spawn(move || {
                let _running = writer_running;
                shared.input_ended_by(source.put_in(queue, half, shared))
            });
            let reader = scope.spawn(move || {
                let _running = running;
                shared.reader_ended_by(out.take_out(queue, half, shared))
            });
            let mut look = || {
                let stats = queue.stats();
                *most_disk = stats.disk_bytes.max(*most_disk);
                bar.at(shared.bytes_out(), || format!(", {} messages inside", stats.messages));
            };
            // The channel is disconnected when both threads have dropped their senders.
            let tick = Duration::from_millis(100);
            while finished.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                look();
            }
            look();
            let panicked =
                |_| Failure::new(ExitStatus::Failed, "failed", "a thread of the tool panicked");
            writer.join().map_err(panicked)??;
            reader.join().map_err(panicked)?
        })
    }
}
