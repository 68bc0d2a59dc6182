//! Measures what a queue costs: memory, disk, descriptors, threads, bytes written to the disk. The
//! tables of `docs/sizing.md` are its output. Linux only, because it reads `/proc/self`.
//!
//! ```sh
//! cargo run --release --example footprint -- drain DIR arena=1M cap=3 bytes=128 backlog=64M
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mmq::{Options, Queue};

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir, rest @ ..] = words.as_slice() else {
        return Err("footprint idle|drain|drip|many|die|open DIR [arena=1M cap=3 ...]".into());
    };
    let number = |name: &str, default: u64| {
        let found = rest.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.map_or(Ok(default), bytes)
    };
    let mut options = Options::new().arena_size(number("arena", 128 << 20)?);
    options = options.max_mapped_arenas(number("cap", 3)? as u32);
    if let limit @ 1.. = number("limit", 0)? {
        options = options.max_bytes(limit);
    }
    if let ms @ 1.. = number("flush_ms", 0)? {
        options = options.flush_every(Duration::from_millis(ms));
    }
    if let ops @ 1.. = number("flush_ops", 0)? {
        options = options.flush_every_ops(ops);
    }
    let payload = vec![b'x'; number("bytes", 128)? as usize];
    let (backlog, count) = (number("backlog", 0)?, number("count", 300)?);
    let dir = Path::new(dir);
    match what.as_str() {
        "idle" => {
            let queue = options.open(dir)?;
            in_turn(&queue, &payload, count)?;
            row("idle", Some(&queue));
        }
        "drain" => {
            let queue = options.open(dir)?;
            fill(&queue, &payload, backlog)?;
            row("full", Some(&queue));
            while queue.dequeue()?.is_some() {}
            row("drained", Some(&queue));
            thread::sleep(Duration::from_secs(1));
            row("a second later", Some(&queue));
        }
        "drip" => {
            let pause = Duration::from_micros(number("pause_us", 10_000)?);
            let takes = number("take", 1)? == 1;
            drip(&options.open(dir)?, &payload, count, pause, takes)?;
        }
        "many" => {
            let open = |n| options.open(dir.join(format!("{n}")));
            let queues: Vec<Queue> =
                (0..number("queues", 100)?).map(open).collect::<Result<_, _>>()?;
            for queue in &queues {
                in_turn(queue, &payload, 1)?;
            }
            row("many", None);
            let disk: u64 = queues.iter().map(|queue| queue.stats().disk_bytes).sum();
            println!("{} queues, {} KiB of disk", queues.len(), disk >> 10);
        }
        "die" => {
            let queue = options.open(dir)?;
            fill(&queue, &payload, backlog)?;
            println!("{} not durable", queue.stats().next_seq - queue.stats().durable_seq);
            std::process::abort();
        }
        "open" => {
            let begun = Instant::now();
            let queue = options.open(dir)?;
            println!("opened in {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
            row("open", Some(&queue));
        }
        _ => return Err(format!("no measurement is called {what}").into()),
    }
    Ok(())
}

/// Puts a message in after each pause, and says what that wrote to the disk.
fn drip(queue: &Queue, payload: &[u8], count: u64, pause: Duration, takes: bool) -> Done<()> {
    in_turn(queue, payload, 1)?;
    queue.flush()?;
    let (written, flushes) = (io("write_bytes"), queue.stats().flushes);
    let begun = Instant::now();
    for _ in 0..count {
        queue.enqueue(payload)?;
        if takes {
            queue.dequeue()?;
        }
        thread::sleep(pause);
    }
    queue.flush()?;
    let flushes = queue.stats().flushes - flushes;
    let (written, seconds) = (io("write_bytes") - written, begun.elapsed().as_secs_f64());
    let (len, each) = (payload.len(), written / flushes.max(1));
    println!("{count} messages of {len} bytes in {seconds:.1} s: {flushes} flushes");
    println!("{written} bytes written, {each} a flush");
    Ok(())
}

fn in_turn(queue: &Queue, payload: &[u8], count: u64) -> Done<()> {
    for _ in 0..count {
        queue.enqueue(payload)?;
        queue.dequeue()?;
    }
    Ok(())
}

/// Puts messages in until so many bytes wait, or the queue is full.
fn fill(queue: &Queue, payload: &[u8], backlog: u64) -> Done<()> {
    for _ in 0..backlog / payload.len().max(1) as u64 {
        match queue.enqueue(payload) {
            Err(error) if error.is_full() => break,
            done => done?,
        };
    }
    Ok(())
}

/// Prints what this process has now.
fn row(when: &str, queue: Option<&Queue>) {
    let listed = |folder: &str| fs::read_dir(folder).map_or(0, Iterator::count);
    print!(
        "{when}: resident {} KiB (of its own {}, most ever {}), {} descriptors, {} threads",
        status("VmRSS"),
        status("RssAnon"),
        status("VmHWM"),
        // Reading the folder takes one.
        listed("/proc/self/fd") - 1,
        listed("/proc/self/task"),
    );
    if let Some(queue) = queue {
        let stats = queue.stats();
        let (mapped, disk) = (stats.mapped_bytes >> 10, stats.disk_bytes >> 10);
        print!(", mapped {mapped} KiB, disk {disk} KiB, {} messages", stats.messages);
    }
    println!();
}

fn status(name: &str) -> u64 {
    field("/proc/self/status", name)
}

fn io(name: &str) -> u64 {
    field("/proc/self/io", name)
}

/// A number of a file with lines like `VmRSS:   5120 kB`.
fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// `64M` is 64 MiB.
fn bytes(text: &str) -> Done<u64> {
    let shift = match text.chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    Ok(text.trim_end_matches(['K', 'M', 'G']).parse::<u64>()? << shift)
}
