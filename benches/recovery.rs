//! The time from opening to the first message, by backlog: after a clean close and after a SIGKILL.
//!
//! A child process fills the queue and waits until the parent has it close, or kills it. `--quick`
//! leaves out the largest backlog.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use mmq::Queue;

use support::{asked_for, human, payload, percentile, print_fingerprint, scratch};

const CHILD: &str = "MMQ_BENCH_RECOVERY_CHILD";

fn open(dir: &Path, arena: u64) -> Queue {
    Queue::options().arena_size(arena).open(dir).expect("a queue")
}

/// The child: enqueues, says so on standard output, and closes the queue when told.
fn child(arguments: &str) {
    let mut parts = arguments.split(',');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).expect("a number");
    let (arena, len, count) = (number(), number(), number());
    let dir = parts.next().expect("a directory");
    let queue = open(Path::new(dir), arena);
    let message = payload(len as usize);
    for _ in 0..count {
        queue.enqueue(&message).expect("room");
    }
    println!("ready");
    std::io::stdout().flush().expect("a parent");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a parent");
    queue.close().expect("a disk");
}

/// Has a child enqueue `count` more messages, and ends it.
fn visit(dir: &Path, arena: u64, len: usize, count: u64, kill: bool) {
    let mut child = Command::new(std::env::current_exe().expect("a program"))
        .env(CHILD, format!("{arena},{len},{count},{}", dir.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a child");
    if kill {
        child.kill().expect("a child");
    } else {
        writeln!(child.stdin.take().expect("piped"), "close").expect("a child");
    }
    child.wait().expect("a child");
}

fn main() {
    if let Ok(arguments) = std::env::var(CHILD) {
        return child(&arguments);
    }
    if asked_for("--test") || asked_for("--list") {
        return;
    }
    let quick = asked_for("--quick");
    print_fingerprint();
    println!(
        "us until the first message is in hand (open alone): best, median of {} openings\n",
        if quick { 5 } else { 15 }
    );
    println!(
        "|  arena | length |  backlog | bytes   | after close         | after SIGKILL       |"
    );
    println!("|---|---|---|---|---|---|");
    for (arena, len) in [(4 << 20, 128), (128 << 20, 128), (4 << 20, 16 << 10), (4 << 10, 128)] {
        for backlog in [0_u64, 1000, 30_000, 1_000_000, 8_000_000] {
            if backlog * len as u64 > if quick { 200 << 20 } else { 2 << 30 } {
                continue;
            }
            let dir = scratch();
            let path = dir.path().join("queue");
            visit(&path, arena, len, backlog, false);
            let mut cells = Vec::new();
            for kill in [false, true] {
                let (mut whole, mut alone) = (Vec::new(), Vec::new());
                let mut buffer = Vec::with_capacity(len);
                for _ in 0..if quick { 5 } else { 15 } {
                    visit(&path, arena, len, 1, kill);
                    let began = Instant::now();
                    let queue = open(&path, arena);
                    let opened = began.elapsed();
                    assert!(queue.peek_into(&mut buffer).expect("intact").is_some());
                    whole.push(began.elapsed().as_nanos() as f64 / 1e3);
                    alone.push(opened.as_nanos() as f64 / 1e3);
                    queue.close().expect("a disk");
                }
                cells.push(format!(
                    "{:>6.0} {:>6.0} ({:>5.0})",
                    percentile(&mut whole, 0.0),
                    percentile(&mut whole, 0.5),
                    percentile(&mut alone, 0.5)
                ));
            }
            println!(
                "| {:>6} | {:>6} | {backlog:>8} | {:>7} | {} | {} |",
                human(arena),
                human(len as u64),
                human((backlog * len as u64).next_multiple_of(1 << 10)),
                cells[0],
                cells[1]
            );
        }
    }
}
