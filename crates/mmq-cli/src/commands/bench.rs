//! `bench`: what the disk of a directory gives.

use std::fs;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, Command};
use mmq::{Options, Queue};

use super::Call;
use crate::arguments::{self, flag};
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::output::Output;
use crate::signals::Signals;
use crate::units;

/// What is put in without a count: so many bytes, or so many messages, whichever is less.
const BYTES: u64 = 256 << 20;
const MESSAGES: u64 = 1_000_000;
const DURABLE_MESSAGES: u64 = 1_000;
const TICK: Duration = Duration::from_millis(5);

pub(crate) fn command() -> Command {
    arguments::command(
        "bench",
        "Measure how fast a queue is on the disk of a directory",
        "Examples:\n  \
         mmq bench /var/spool\n  \
         mmq bench /var/spool --durable --threads 4,0\n  \
         mmq bench . --size 16KiB --threads 2,2 --json",
    )
    .arg(arguments::path("dir", "DIR").required(true).help("A directory on the disk to measure"))
    .arg(arguments::size("size", "The length of each message [default: 128]"))
    .arg(arguments::number(
        "count",
        "How many messages [default: 1000000, at most 256 MiB; 1000 with --durable]",
    ))
    .arg(flag("durable", "Wait until each message is durable"))
    .arg(
        Arg::new("threads").long("threads").value_name("P,C").value_parser(threads).help(
            "How many threads put in, and how many take out, in the row `both` [default: 1,1]",
        ),
    )
    .after_help(
        "The rows: `put` puts messages in, `take` takes them out, `both` does both at once.\n\
         DIR may hold other files: the queue is in a new directory inside DIR, which is removed at \
         the end.",
    )
}

fn threads(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number <= 256);
    let both = text.split_once(',').and_then(|(p, c)| Some((number(p)?, number(c)?)));
    both.filter(|(producers, _)| *producers > 0)
        .ok_or_else(|| format!("{text:?}: write two numbers, as in 2,2; the first above 0"))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let size = matches.get_one::<u64>("size").copied().unwrap_or(128);
    let durable = matches.get_flag("durable");
    let most = if durable { DURABLE_MESSAGES } else { MESSAGES };
    let default = (BYTES / size.max(1)).clamp(1, most);
    let count = matches.get_one::<u64>("count").copied().unwrap_or(default);
    let (producers, consumers) = matches.get_one("threads").copied().unwrap_or((1, 1));
    if size > mmq::MAX_MESSAGE_LEN {
        let message =
            format!("no queue takes messages of more than {} bytes", mmq::MAX_MESSAGE_LEN);
        return Err(Failure::new(ExitStatus::Refused, "too_large", message));
    }
    let ground = Ground::new(arguments::dir_of(matches))?;
    let options = Options::new().flush_every_ops(durable.then_some(1));
    let bench = Bench { size, count, signals: call.signals };
    let queue = options.open(&ground.queue)?;
    let mut rows = vec![
        bench.measure("put", &queue, 1, 0)?,
        bench.measure("take", &queue, 0, 1)?,
        bench.measure("both", &queue, producers, consumers)?,
    ];
    queue.close()?;
    drop(ground);
    if let Some(ending) = call.signals.stop() {
        call.console.note("ended by a signal");
        return Ok(ending);
    }
    let text = match call.console.form {
        Form::Program => {
            let rows: Vec<_> = rows.drain(..).map(|row| row.json(size)).collect();
            let durable = if durable { "each" } else { "none" };
            format!("{}\n", serde_json::json!({"size": size, "durable": durable, "rows": rows}))
        }
        Form::Person => table(&rows, size),
    };
    Output::print(call.signals, text.as_bytes())?;
    Ok(ExitStatus::Done)
}

/// A directory for the queue, below the one that was named. It goes when this is dropped, and with
/// it the one that was named, if it was made for this.
struct Ground {
    queue: PathBuf,
    made: Option<PathBuf>,
}

impl Ground {
    fn new(dir: &Path) -> Tried<Ground> {
        let failed = |error| Failure::io(dir.display(), &error);
        let made = !dir.try_exists().map_err(failed)?;
        if made {
            fs::create_dir(dir).map_err(failed)?;
        }
        let queue = dir.join(format!("mmq-bench-{}", std::process::id()));
        let ground = Ground { queue, made: made.then(|| dir.to_owned()) };
        DirBuilder::new().mode(0o700).create(&ground.queue).map_err(failed)?;
        Ok(ground)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.queue);
        if let Some(dir) = &self.made {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// What was measured.
struct Figure {
    what: &'static str,
    producers: u64,
    consumers: u64,
    messages: u64,
    spent: Duration,
}

impl Figure {
    fn per_second(&self) -> f64 {
        self.messages as f64 / self.spent.as_secs_f64().max(1e-9)
    }

    fn json(&self, size: u64) -> serde_json::Value {
        serde_json::json!({
            "what": self.what,
            "producers": self.producers,
            "consumers": self.consumers,
            "messages": self.messages,
            "seconds": self.spent.as_secs_f64(),
            "messages_per_second": self.per_second(),
            "bytes_per_second": self.per_second() * size as f64,
        })
    }
}

fn table(rows: &[Figure], size: u64) -> String {
    let mut text = format!(
        "{:<6} {:>4} {:>4} {:>10} {:>9} {:>12} {:>12} {:>14}\n",
        "", "in", "out", "messages", "seconds", "messages/s", "bytes/s", "ns a message"
    );
    for row in rows {
        let (rate, nanos) =
            (row.per_second(), row.spent.as_nanos() / u128::from(row.messages.max(1)));
        let bytes = units::size((rate * size as f64) as u64);
        text += &format!(
            "{:<6} {:>4} {:>4} {:>10} {:>9.3} {rate:>12.0} {bytes:>12} {nanos:>14}\n",
            row.what,
            row.producers,
            row.consumers,
            row.messages,
            row.spent.as_secs_f64()
        );
    }
    text
}

struct Bench<'a> {
    size: u64,
    count: u64,
    signals: &'a Signals,
}

impl Bench<'_> {
    /// So many threads put the messages in, and so many take them out; with none that put in, all
    /// that is there is taken.
    fn measure(
        &self,
        what: &'static str,
        queue: &Queue,
        producers: u64,
        consumers: u64,
    ) -> Tried<Figure> {
        let message = vec![0x5a; self.size as usize];
        let (begun, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        // A thread that has failed ends the others: nobody waits for what will not come.
        let given_up = AtomicBool::new(false);
        let stopped = || given_up.load(Relaxed) || self.signals.stop().is_some();
        let heed = |result: mmq::Result<()>| {
            given_up.fetch_or(result.is_err(), Relaxed);
            result
        };
        let put = || -> mmq::Result<()> {
            while begun.fetch_add(1, Relaxed) < self.count && !stopped() {
                queue.enqueue(&message)?;
            }
            Ok(())
        };
        let take = || -> mmq::Result<()> {
            let mut buffer = Vec::new();
            while taken.load(Relaxed) < self.count && !stopped() {
                if queue.dequeue_into(&mut buffer)?.is_some() {
                    taken.fetch_add(1, Relaxed);
                } else if let Some(_message) = queue.dequeue_timeout(TICK)? {
                    taken.fetch_add(1, Relaxed);
                } else if producers == 0 {
                    break;
                }
            }
            Ok(())
        };
        let start = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..producers)
                .map(|_| scope.spawn(|| heed(put())))
                .chain((0..consumers).map(|_| scope.spawn(|| heed(take()))))
                .collect();
            let failed =
                |_| Failure::new(ExitStatus::Failed, "failed", "a thread of the tool panicked");
            threads.into_iter().try_for_each(|thread| Ok(thread.join().map_err(failed)??))
        })
        .map(|()| Figure {
            what,
            producers,
            consumers,
            messages: self.count,
            spent: start.elapsed(),
        })
    }
}
