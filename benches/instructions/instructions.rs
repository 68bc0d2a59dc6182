//! The instruction budget: callgrind counts the instructions of each operation, and the table in
//! `docs/instructions.md` says how many there may be.
//!
//! A package of its own, so that the library has its default features and needs nothing else.
//! `.ci/run instructions` runs it. It exits with 1 when an operation takes 2 % more than the table
//! says, and with 3 when it cannot measure here. `MMQ_BLESS='why'` writes the table anew.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use mmq::Queue;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/instructions.md");
const OPERATIONS: [&str; 6] = ["enqueue", "dequeue", "peek", "pair", "receive and ack", "opening"];

/// How many messages are measured. They fill six segments.
const MESSAGES: u64 = 100_000;
const OPENINGS: u64 = 100;

/// An operation may take this much more than the table says.
const TOLERANCE: f64 = 0.02;
/// The same when another compiler built it.
const OTHER_COMPILER: f64 = 0.10;
/// Two runs agree when they differ by less.
const NOISE: f64 = 0.002;

const BLESS: &str = "MMQ_BLESS='why it is so' .ci/run instructions";

fn program() -> PathBuf {
    std::env::current_exe().expect("a program")
}

/// Below Cargo's target directory.
fn scratch() -> tempfile::TempDir {
    let program = program();
    tempfile::tempdir_in(program.parent().expect("its directory")).expect("a directory")
}

/// callgrind counts what runs in here, on the thread that calls it.
#[inline(never)]
fn measured(times: u64, mut work: impl FnMut()) {
    for _ in 0..times {
        work();
    }
}

/// The child: does the operation, under callgrind. What is done only once is done before.
fn perform(operation: &str) {
    let (dir, message) = (scratch(), vec![7; 128]);
    let options = Queue::options().arena_size(4 << 20).max_mapped_arenas(None);
    // The length of the whole path would count.
    std::env::set_current_dir(dir.path()).expect("a directory");
    let open = || options.open("queue").expect("a queue");
    let queue = open();
    let enqueue = |queue: &Queue| _ = queue.enqueue(black_box(&message)).expect("room");
    let mut buffer = Vec::with_capacity(message.len());
    let mut dequeue = |queue: &Queue| {
        queue.dequeue_into(&mut buffer).expect("intact").expect("a message");
        black_box(&buffer);
    };
    let acknowledge = |queue: &Queue| {
        let delivery = queue.receive().expect("intact").expect("a message");
        black_box(&delivery[..]);
        delivery.ack().expect("a delivery");
    };
    (0..10).for_each(|_| enqueue(&queue));
    dequeue(&queue);
    match operation {
        "enqueue" => measured(MESSAGES, || enqueue(&queue)),
        "dequeue" => {
            (0..MESSAGES).for_each(|_| enqueue(&queue));
            measured(MESSAGES, || dequeue(&queue));
        }
        "peek" => {
            let mut peek = || _ = queue.peek_into(&mut buffer).expect("intact");
            peek();
            measured(MESSAGES, peek);
        }
        "pair" => {
            let mut pair = || {
                enqueue(&queue);
                dequeue(&queue);
            };
            // So many that each segment has been used before.
            (0..MESSAGES).for_each(|_| pair());
            measured(MESSAGES, pair);
        }
        "receive and ack" => {
            (0..MESSAGES).for_each(|_| enqueue(&queue));
            acknowledge(&queue);
            measured(MESSAGES, || acknowledge(&queue));
        }
        "opening" => {
            (0..MESSAGES).for_each(|_| enqueue(&queue));
            queue.close().expect("a disk");
            let again = || open().close().expect("a disk");
            again();
            measured(OPENINGS, again);
        }
        _ => panic!("no such operation: {operation}"),
    }
}

/// The instructions of one operation: those of all, divided.
fn count(operation: &str) -> f64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg("--toggle-collect=*measured*");
    // `rep movsb` would be counted as one instruction for each byte.
    command.env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS");
    command.arg(program()).arg(operation);
    let output = command.output().expect("valgrind");
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{operation}: {reported}");
    let total =
        reported.lines().find_map(|line| line.split_once("Collected : ")?.1.parse::<u64>().ok());
    let times = if operation == "opening" { OPENINGS } else { MESSAGES };
    total.unwrap_or_else(|| panic!("{operation}: {reported}")) as f64 / times as f64
}

/// What two runs agree on: which thread runs when may change a figure a little.
fn agreed(operation: &str) -> f64 {
    let mut before = count(operation);
    for _ in 0..4 {
        let now = count(operation);
        if (now - before).abs() <= NOISE * before {
            return now.min(before);
        }
        before = now;
    }
    panic!("{operation}: of five runs no two in a row agree")
}

/// What a program says of its version: its first line, or nothing where it cannot be run.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

/// The compiler's release that a text names: `1.95`.
fn release(text: &str) -> Option<&str> {
    let (_, from) = text.split_once("rustc ")?;
    Some(&from[..from.match_indices('.').nth(1)?.0])
}

/// Writes the figures into the table, and a line for each that changed into the reasons.
fn bless(text: &str, made_with: &str, changes: &[(&str, f64, f64)], why: &str) {
    let (before, rest) = text.split_once("Measured with ").expect("the line of the compiler");
    let (_, rest) = rest.split_once('\n').expect("its end");
    let (between, rest) = rest.split_once("|---|---|\n").expect("the table");
    let (_, after) = rest.split_once("\n\n").expect("its end");
    let (mut rows, mut reasons) = (String::new(), String::new());
    let date = Command::new("date").arg("+%F").output().expect("date").stdout;
    let date = String::from_utf8_lossy(&date);
    for &(operation, budget, now) in changes {
        let is_new = (now - budget).abs() > NOISE * budget;
        let kept = if is_new { now } else { budget };
        rows += &format!("| {operation} | {kept:.1} |\n");
        if is_new {
            let date = date.trim();
            reasons += &format!("- {date}, {operation}, from {budget:.1} to {now:.1}: {why}\n");
        }
    }
    let text =
        format!("{before}Measured with {made_with}.\n{between}|---|---|\n{rows}\n{after}{reasons}");
    std::fs::write(TABLE, text).expect("docs/instructions.md can be written");
}

/// Why the figures of the table do not hold here.
fn obstacle() -> Option<&'static str> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if std::arch::is_x86_feature_detected!("avx2") {
        return version("valgrind").is_none().then_some("valgrind is not installed");
    }
    Some("the table is for Linux on x86_64 with AVX2")
}

fn main() -> ExitCode {
    if let Some(operation) = std::env::args().skip(1).find(|word| !word.starts_with("--")) {
        perform(&operation);
        return ExitCode::SUCCESS;
    }
    if cfg!(debug_assertions) {
        return ExitCode::SUCCESS;
    }
    if let Some(why) = obstacle() {
        println!("SKIPPED: no instructions were counted: {why}");
        return ExitCode::from(3);
    }
    let why = std::env::var("MMQ_BLESS").ok();
    assert!(why.as_ref().is_none_or(|why| why.contains(' ')), "MMQ_BLESS is the reason, in words");
    let text = std::fs::read_to_string(TABLE).expect("docs/instructions.md");
    let compiler = version("rustc").expect("rustc");
    let mut tolerance = TOLERANCE;
    if release(&compiler) != release(&text) {
        tolerance = OTHER_COMPILER;
        println!("The table was made by another compiler than {compiler}: 10 % more may be.\n");
    }
    println!("| operation | measured | budget | difference |\n|---|---|---|---|");
    let (mut changes, mut over, mut under) = (Vec::new(), Vec::new(), false);
    for operation in OPERATIONS {
        let row = format!("| {operation} | ");
        let budget = text.lines().find_map(|line| line.strip_prefix(&row)?.split(' ').next());
        let budget = budget.map_or(0.0, |figure| figure.parse::<f64>().expect("a number"));
        let now = agreed(operation);
        let part = now / budget - 1.0;
        println!("| {operation} | {now:.1} | {budget:.1} | {:+.1} % |", 100.0 * part);
        changes.push((operation, budget, now));
        under |= part < -TOLERANCE;
        if part > tolerance {
            over.push(operation);
        }
    }
    if let Some(why) = why {
        let valgrind = version("valgrind").expect("valgrind");
        bless(&text, &format!("{compiler}, {valgrind}"), &changes, &why);
        println!("\ndocs/instructions.md has these figures now.");
        return ExitCode::SUCCESS;
    }
    if under {
        println!("\nSomething became cheaper. Lower its budget, so that it stays so: {BLESS}");
    }
    let Some(first) = over.first() else { return ExitCode::SUCCESS };
    println!("\nOVER THE BUDGET of docs/instructions.md: {}", over.join(", "));
    println!("What takes the instructions, line by line:");
    println!("  valgrind --tool=callgrind --callgrind-out-file=target/callgrind.out \\");
    println!("    '--toggle-collect=*measured*' {} '{first}'", program().display());
    println!("  callgrind_annotate target/callgrind.out");
    println!("If it has to be so, put the new figures into the table, with the reason:\n  {BLESS}");
    ExitCode::FAILURE
}
