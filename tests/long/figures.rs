//! Figures that are measured when asked for: `cargo test --release --test long figures -- --ignored
//! --nocapture`. The system calls of an enqueue when nobody waits are counted in every run.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mmq::{Options, Queue};

const MESSAGES: u64 = 1_000_000;

fn filled() -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue =
        Options::new().arena_size(32 << 20).max_mapped_arenas(None).open(dir.path()).unwrap();
    queue.peek().unwrap();
    for _ in 0..MESSAGES {
        queue.enqueue([7; 128]).unwrap();
    }
    (dir, queue)
}

fn nanos(what: &str, work: impl FnOnce()) {
    let begin = Instant::now();
    work();
    println!(
        "{what}: {:.1} ns per message of 128 bytes",
        begin.elapsed().as_nanos() as f64 / MESSAGES as f64
    );
}

#[test]
#[ignore = "measures"]
fn measure_ways_of_reading() {
    for _ in 0..3 {
        let (_dir, queue) = filled();
        let mut buffer = Vec::new();
        nanos("dequeue_into", || while queue.dequeue_into(&mut buffer).unwrap().is_some() {});
        let (_dir, queue) = filled();
        nanos("dequeue", || while queue.dequeue().unwrap().is_some() {});
        let (_dir, queue) = filled();
        nanos("receive and ack", || {
            while let Some(delivery) = queue.receive().unwrap() {
                delivery.ack().unwrap();
            }
        });
        let (_dir, queue) = filled();
        nanos("receive and ack, 64 in flight, the newest first", || {
            let mut held = Vec::new();
            loop {
                while held.len() < 64 {
                    match queue.receive().unwrap() {
                        Some(delivery) => held.push(delivery),
                        None => break,
                    }
                }
                if held.is_empty() {
                    break;
                }
                while let Some(delivery) = held.pop() {
                    delivery.ack().unwrap();
                }
            }
        });
        let (_dir, queue) = filled();
        let second = queue.consumer("second").unwrap();
        nanos("dequeue_into by two consumers in turn, both", || {
            while queue.dequeue_into(&mut buffer).unwrap().is_some() {
                second.dequeue_into(&mut buffer).unwrap();
            }
        });
    }
    let dir = crate::support::tempdir().unwrap();
    let queue =
        Options::new().arena_size(32 << 20).max_mapped_arenas(None).open(dir.path()).unwrap();
    nanos("enqueue", || (0..MESSAGES).for_each(|_| _ = queue.enqueue([7; 128]).unwrap()));
    let other = queue.consumer("other").unwrap();
    other.seek(MESSAGES).unwrap();
    let _fd = other.ready_fd().unwrap();
    nanos("enqueue with a descriptor to tell", || {
        (0..MESSAGES).for_each(|_| _ = queue.enqueue([7; 128]).unwrap())
    });
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(32 << 20).max_mapped_arenas(None);
    let queue = options.max_age(std::time::Duration::from_secs(3600)).open(dir.path()).unwrap();
    nanos("enqueue with max_age", || {
        (0..MESSAGES).for_each(|_| _ = queue.enqueue([7; 128]).unwrap())
    });
}

/// How long opening takes with a backlog: 1, 256 and 1024 MiB.
#[test]
#[ignore = "measures"]
fn measure_opening() {
    for mib in [1_u64, 256, 1024] {
        for max_bytes in [None, Some(1u64 << 40)] {
            let dir = crate::support::tempdir().unwrap();
            let options = Options::new().arena_size(4 << 20).max_bytes(max_bytes);
            let queue = options.open(dir.path()).unwrap();
            queue.peek().unwrap();
            let payload = vec![7; 1_000_000];
            for _ in 0..mib {
                queue.enqueue(&payload).unwrap();
            }
            queue.close().unwrap();
            let mut times: Vec<_> = (0..41)
                .map(|_| {
                    let begin = Instant::now();
                    let queue = options.open(dir.path()).unwrap();
                    let taken = begin.elapsed();
                    assert_eq!(queue.len(), mib);
                    queue.close().unwrap();
                    taken
                })
                .collect();
            times.sort();
            let limited = if max_bytes.is_some() { ", max_bytes" } else { "" };
            println!(
                "{mib} MiB in 4 MiB arenas{limited}: opened in {:?} (best {:?})",
                times[20], times[0]
            );
        }
    }
}

/// What came before the enqueues that are counted.
const BEFORE: [&str; 3] =
    ["nothing", "a waiter that came and went", "a descriptor that says so already"];

/// Nobody waits: no system call is made for waiting readers, whether there were any before or not.
#[test]
fn enqueues_make_no_system_calls_when_nobody_waits() {
    let few = 1000;
    if !strace_works() {
        return crate::support::skip("strace is not installed, or may not trace");
    }
    for before in BEFORE {
        // Fresh space is allocated and faulted in, one call for each piece: measured 113, whatever
        // came before.
        let calls = system_calls(before, few + 100_000).saturating_sub(system_calls(before, few));
        println!("after {before}: {calls} system calls for 100,000 enqueues of 128 bytes");
        assert!(calls < 1000, "after {before}: {calls} for 100,000 enqueues");
    }
}

/// Each message is taken before the next one comes: drained segments are used again.
const IN_TURN: &str = "each message is taken at once";

#[test]
fn a_hundred_thousand_pairs_make_hardly_any_system_calls() {
    if !strace_works() {
        return crate::support::skip("strace is not installed, or may not trace");
    }
    // Three segments' worth before it is steady.
    let few = 90_000;
    let calls = system_calls(IN_TURN, few + 100_000).saturating_sub(system_calls(IN_TURN, few));
    println!("{calls} system calls for 100,000 pairs of 128 bytes");
    // Some twenty for each of four segments that end: measured 67.
    assert!(calls < 300, "{calls} for 100,000 pairs");
}

/// The queue is closed and opened again for each of the messages, and the first one is looked at.
const REOPENED: &str = "closed and opened again";

#[test]
fn an_opening_with_its_close_makes_few_system_calls() {
    if !strace_works() {
        return crate::support::skip("strace is not installed, or may not trace");
    }
    let few = 10;
    let calls = system_calls(REOPENED, few + 100).saturating_sub(system_calls(REOPENED, few)) / 100;
    println!("{calls} system calls for an opening, a look at the first message and a close");
    // Each of three files (the index, the first and the last segment) is opened, looked at, read
    // and closed once. Seven calls ask which files they are, and in which boot and mount: a copy
    // must not be believed. Three ask for holes, as a store into one of a sparse copy would kill
    // the process on a full disk. Measured 60.
    assert!(calls < 64, "{calls} for an opening");
}

fn strace_works() -> bool {
    let works = crate::support::command("strace")
        .args(["-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status();
    works.is_ok_and(|status| status.success())
}

fn system_calls(before: &str, messages: u64) -> u64 {
    let dir = crate::support::tempdir().unwrap();
    let table = dir.path().join("calls");
    let mut command = crate::support::command("strace");
    command.args(["-f", "-c", "-o"]).arg(&table);
    enqueue_in_a_child(command, before, messages);
    let table = std::fs::read_to_string(table).unwrap();
    let total =
        table.lines().find(|line| line.ends_with("total")).unwrap_or_else(|| panic!("{table}"));
    // % time, seconds, usecs/call, calls, errors.
    total.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// Instructions of an enqueue of 128 bytes, by callgrind.
#[test]
#[ignore = "measures"]
fn measure_instructions_of_an_enqueue() {
    let instructions = |before: &str, messages: u64| -> u64 {
        let mut command = crate::support::command("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        let dir = crate::support::tempdir().unwrap();
        let log = dir.path().join("log");
        command.arg(format!("--log-file={}", log.display()));
        enqueue_in_a_child(command, before, messages);
        let log = std::fs::read_to_string(log).unwrap();
        let line = log.lines().find(|line| line.contains("Collected : ")).unwrap();
        line.split_whitespace().last().unwrap().parse().unwrap()
    };
    for before in BEFORE {
        let (few, all) = (instructions(before, 20_000), instructions(before, 120_000));
        println!(
            "after {before}: {} instructions for each enqueue of 128 bytes",
            (all - few) / 100_000
        );
    }
}

fn enqueue_in_a_child(mut command: Command, before: &str, messages: u64) {
    let child = command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "figures::the_child_that_enqueues"]);
    child.env("MMQ_CHILD_BEFORE", before).env("MMQ_CHILD_MESSAGES", messages.to_string());
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_child_that_enqueues() {
    let Ok(before) = std::env::var("MMQ_CHILD_BEFORE") else { return };
    let dir = crate::support::tempdir().unwrap();
    let queue =
        Options::new().arena_size(4 << 20).max_mapped_arenas(None).open(dir.path()).unwrap();
    let consumer = queue.consumer("waits").unwrap();
    if before == BEFORE[1] {
        assert!(consumer.dequeue_timeout(Duration::from_millis(1)).unwrap().is_none());
        assert!(consumer.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
    }
    if before == BEFORE[2] {
        consumer.ready_fd().unwrap();
    }
    let mut buffer = Vec::new();
    if before == REOPENED {
        (0..100_000).for_each(|_| _ = queue.enqueue([7; 128]).unwrap());
        queue.close().unwrap();
        drop(consumer);
        for _ in 0..crate::support::count("MMQ_CHILD_MESSAGES", 0) {
            let queue = Queue::open(dir.path()).unwrap();
            assert!(queue.peek_into(&mut buffer).unwrap().is_some());
            queue.close().unwrap();
        }
        return;
    }
    for _ in 0..crate::support::count("MMQ_CHILD_MESSAGES", 0) {
        queue.enqueue([7; 128]).unwrap();
        if before == IN_TURN {
            assert!(consumer.dequeue_into(&mut buffer).unwrap().is_some());
        }
    }
}
