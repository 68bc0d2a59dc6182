//! Sends every line of a file (or of standard input) through a queue on disk and checks that it
//! comes out unchanged.
//!
//! One thread puts lines in while another takes them out and writes them. Half way the queue is
//! closed, with messages left inside, and opened again. One line of figures on standard error ends
//! the run.

mod ends;
mod report;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ends::{Sink, Source};
use report::Report;

const USAGE: &str = "\
Usage: spool FILE [--keep DIR] [--output FILE] [--arena-size BYTES]

Puts every line of FILE (`-` is standard input; any bytes will do) into a queue on disk from one
thread while another takes it out and writes it to standard output. Half way the queue is closed and
opened again. One line of figures on standard error ends the run.

  --keep DIR           keep the queue in DIR (otherwise: a temporary directory, removed at the end)
  --output FILE        write there instead of standard output
  --arena-size BYTES   the queue's arena size: a multiple of the OS page, 4096 to 1073741824
                       (default 134217728)
  --help               this text

A line longer than 16 MiB goes through in pieces. A run that is interrupted leaves its temporary
directory behind (mmq-spool-* where temporary files go).

Exit status: 0 everything came out byte for byte and in order (or the reader of standard output
asked for no more), 1 it did not, or something failed, 2 wrong usage.
";

/// Bytes of the longest message. A longer line becomes several messages, so memory stays bounded
/// whatever the input is.
const LONGEST_MESSAGE: u64 = 16 << 20;
/// Lines in the first half of an input of unknown length.
const FIRST_LINES: u64 = 1000;
/// The newest messages, this many, stay in the queue until it has been opened again.
const KEPT_BACK: u64 = 16;
/// The longest time that the taking thread sleeps before it looks whether the input has ended.
const TICK: Duration = Duration::from_millis(2);

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    ExitCode::from(spool(std::env::args_os().skip(1)))
}

/// The exit status.
pub(crate) fn spool(words: impl Iterator<Item = OsString>) -> u8 {
    let (code, line) = match Arguments::parse(words) {
        Ok(None) => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return 0;
        }
        Ok(Some(arguments)) => match run(&arguments) {
            Ok(report) => (report.exit_code(), report.to_string()),
            Err(failure) if is_usage(&failure) => (2, failure.to_string()),
            Err(failure) => (1, failure.to_string()),
        },
        Err(message) => (2, format!("{message} (--help tells more)")),
    };
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "spool: {line}");
    code
}

fn is_usage(failure: &Failure) -> bool {
    matches!(failure.downcast_ref(), Some(mmq::Error::InvalidOption { .. }))
}

#[derive(Default)]
struct Arguments {
    input: OsString,
    keep: Option<PathBuf>,
    output: Option<PathBuf>,
    arena_size: Option<u64>,
}

impl Arguments {
    /// `None`: the user asked for help.
    fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut arguments = Arguments::default();
        let mut input = None;
        let mut options_ended = false;
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            if options_ended || text == "-" || !text.starts_with('-') {
                if input.replace(word).is_some() {
                    return Err("more than one FILE".into());
                }
                continue;
            }
            let mut value = || words.next().ok_or(format!("{text} needs a value"));
            match &*text {
                "--" => options_ended = true,
                "-h" | "--help" => return Ok(None),
                "--keep" => arguments.keep = Some(value()?.into()),
                "--output" => {
                    arguments.output = Some(value()?.into()).filter(|path| path != Path::new("-"))
                }
                "--arena-size" => {
                    let value = value()?;
                    let size = value.to_str().and_then(|digits| digits.parse().ok());
                    arguments.arena_size = Some(
                        size.ok_or(format!("--arena-size: {value:?} is not a number of bytes"))?,
                    );
                }
                _ => return Err(format!("unknown option {text}")),
            }
        }
        arguments.input = input.ok_or("no FILE given")?;
        Ok(Some(arguments))
    }
}

fn run(arguments: &Arguments) -> Result<Report, Failure> {
    let mut source = Source::open(&arguments.input)?;
    let temporary;
    let dir = match &arguments.keep {
        Some(dir) => dir.as_path(),
        None => {
            temporary = tempfile::Builder::new().prefix("mmq-spool-").tempdir()?;
            temporary.path()
        }
    };
    // When the disk is full, `enqueue` waits: the other thread gives space back as it takes
    // messages out.
    let mut options = mmq::Options::new().on_full(mmq::OnFull::Wait(Some(Duration::from_secs(10))));
    if let Some(bytes) = arguments.arena_size {
        options = options.arena_size(bytes);
    }

    let start = Instant::now();
    let mut queue = options.open(dir)?;
    if !queue.is_empty() {
        let held = queue.len();
        return Err(format!(
            "{} holds {held} messages of an earlier run: name another directory",
            dir.display()
        )
        .into());
    }
    let mut sink = Sink::open(arguments.output.as_deref(), &source)?;
    // No bar when it would stand among the lines on the same terminal.
    let bar =
        io::stderr().is_terminal() && (arguments.output.is_some() || !io::stdout().is_terminal());
    let mut progress = Progress { dir, start, size: source.size, most_disk: 0, bar, drawn: false };

    let mut wanted = progress.run_half(&queue, Half::First, &mut source, &mut sink)?;
    let inside = queue.len();
    if wanted {
        queue.close()?;
        queue = options.open(dir)?;
        if queue.len() != inside {
            return Err(format!(
                "{inside} messages were inside at closing, {} after reopening",
                queue.len()
            )
            .into());
        }
        wanted = progress.run_half(&queue, Half::Second, &mut source, &mut sink)?;
    }
    let left = queue.len();
    queue.close()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Report {
        put_in: source.passed,
        taken_out: sink.passed,
        inside,
        left,
        wanted,
        seconds,
        disk: progress.most_disk,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Half {
    First,
    Second,
}

/// Shared by the two threads of one half and the progress bar.
#[derive(Default)]
struct Shared {
    /// All lines of this half have been put in.
    input_ended: AtomicBool,
    /// One of the threads has given up: the other is to stop.
    stop: AtomicBool,
    bytes_out: AtomicU64,
}

/// Puts lines in until this half is over.
fn put_in(
    queue: &mmq::Queue,
    half: Half,
    source: &mut Source,
    shared: &Shared,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    while !source.is_over(half) && !shared.stop.load(Relaxed) {
        source.next_line(&mut line)?;
        if line.is_empty() {
            break;
        }
        let seq = queue.enqueue(&line)?;
        source.passed.add(seq, &line);
    }
    Ok(())
}

/// Takes messages out and writes them until the input has ended and, in the second half, the queue
/// is empty. In the first half the newest messages stay inside. Returns false when the reader of
/// the output wants no more.
fn take_out(
    queue: &mmq::Queue,
    half: Half,
    sink: &mut Sink,
    shared: &Shared,
) -> Result<bool, Failure> {
    while !shared.stop.load(Relaxed) {
        // Read before the look at the queue: only if the input had ended by then, an empty queue
        // stays empty.
        let input_ended = shared.input_ended.load(Acquire);
        let message = match half {
            Half::First if input_ended => break,
            Half::First if queue.len() <= KEPT_BACK => {
                thread::sleep(TICK);
                None
            }
            _ if input_ended => mmq::past_gaps(|| queue.dequeue(), |gap| sink.passed.miss(gap))?,
            _ => mmq::past_gaps(|| queue.dequeue_timeout(TICK), |gap| sink.passed.miss(gap))?,
        };
        match message {
            Some(message) => {
                sink.passed.add(message.seq(), &message);
                if !sink.write(&message)? {
                    return Ok(false);
                }
                shared.bytes_out.store(sink.passed.bytes, Relaxed);
            }
            None if input_ended => break,
            // The input is slow: show what came.
            None => {
                if !sink.flush()? {
                    return Ok(false);
                }
            }
        }
    }
    sink.flush()
}

/// Drives the two threads, and meanwhile measures the disk and draws the bar.
struct Progress<'a> {
    dir: &'a Path,
    start: Instant,
    size: Option<u64>,
    most_disk: u64,
    bar: bool,
    drawn: bool,
}

impl Progress<'_> {
    /// Returns false when the reader of the output wants no more.
    fn run_half(
        &mut self,
        queue: &mmq::Queue,
        half: Half,
        source: &mut Source,
        sink: &mut Sink,
    ) -> Result<bool, Failure> {
        let shared = Shared::default();
        shared.bytes_out.store(sink.passed.bytes, Relaxed);
        let (running, finished) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let shared = &shared;
            let writer_running = running.clone();
            let writer = scope.spawn(move || {
                let _running = writer_running;
                let result = put_in(queue, half, source, shared);
                shared.stop.fetch_or(result.is_err(), Relaxed);
                shared.input_ended.store(true, Release);
                result
            });
            let reader = scope.spawn(move || {
                let _running = running;
                let result = take_out(queue, half, sink, shared);
                shared.stop.fetch_or(!matches!(result, Ok(true)), Relaxed);
                result
            });
            // The channel is disconnected when both threads have dropped their senders.
            while finished.recv_timeout(Duration::from_millis(100))
                == Err(RecvTimeoutError::Timeout)
            {
                self.measure_disk();
                self.draw(shared.bytes_out.load(Relaxed), queue.len());
            }
            self.measure_disk();
            writer.join().map_err(|_| "the thread that puts messages in panicked")??;
            reader.join().map_err(|_| "the thread that takes messages out panicked")?
        })
    }

    /// Measures the space that the queue's files take, as the file system counts it.
    fn measure_disk(&mut self) {
        let files = fs::read_dir(self.dir).into_iter().flatten().flatten();
        let bytes = files.filter_map(|file| Some(file.metadata().ok()?.blocks() * 512)).sum();
        self.most_disk = self.most_disk.max(bytes);
    }

    fn draw(&mut self, bytes_out: u64, inside: u64) {
        let seconds = self.start.elapsed().as_secs_f64();
        if !self.bar || seconds < 0.5 {
            return;
        }
        const WIDTH: u64 = 30;
        let megabytes = bytes_out as f64 / 1e6;
        let mut line = String::from("\r");
        if let Some(size) = self.size {
            let part = (bytes_out as f64 / size as f64).min(1.0);
            let full = (part * WIDTH as f64) as usize;
            line += &format!("[{:<30}] {:3.0} %  ", "#".repeat(full), part * 100.0);
        }
        line += &format!(
            "{megabytes:.1} MB out, {:.1} MB/s, {inside} messages inside\x1b[K",
            megabytes / seconds
        );
        self.drawn = io::stderr().write_all(line.as_bytes()).is_ok();
    }
}

impl Drop for Progress<'_> {
    /// Removes the bar, so that the next line of output begins on an empty line.
    fn drop(&mut self) {
        if self.drawn {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
