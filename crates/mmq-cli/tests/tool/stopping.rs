//! Pipes that close, signals, SIGKILL, and what cannot be written.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use mmq::Queue;
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Running, check, ends, given, on, said};
use crate::support::{Random, effort, eventually, seed, within};

const LONG: Duration = Duration::from_secs(60);

/// So many that they fill every pipe and buffer.
const MANY: u64 = 50_000;

fn line(number: u64) -> String {
    format!("message number {number:08}")
}

fn many(dir: &Path) {
    let queue = Queue::open(dir).unwrap();
    queue.enqueue_batch((0..MANY).map(line)).unwrap();
    queue.close().unwrap();
}

/// The numbers of the messages that are held: one row without a hole, to the end.
fn held_from(dir: &Path) -> u64 {
    let queue = Queue::open(dir).unwrap();
    let mut numbers = queue.iter().map(|message| message.unwrap().seq());
    let first = numbers.next().unwrap_or(MANY);
    assert!(numbers.eq(first + 1..MANY));
    first
}

#[test]
fn a_reader_that_ends_early_costs_what_its_pipe_held() {
    let dir = crate::support::tempdir().unwrap();
    many(dir.path());
    let mut take = on("take", dir.path(), &[]);
    let mut child = take.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert_eq!(first, line(0) + "\n");
    drop(out);
    let output = within(LONG, || child.wait_with_output().unwrap());
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    let from = held_from(dir.path());
    // What the tool wrote lay in the pipe, the reader's buffer, or was cut off in a message.
    let taken = from * (line(0).len() as u64 + 1);
    assert!(from > 0 && taken <= (64 << 10) + (64 << 10), "{from}");
}

#[test]
fn a_first_signal_ends_take_between_two_messages() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = crate::support::tempdir().unwrap();
        many(dir.path());
        let mut child =
            Running(on("take", dir.path(), &[]).stdout(Stdio::piped()).spawn().unwrap());
        let mut out = child.0.stdout.take().unwrap();
        let mut text = vec![0; 10];
        out.read_exact(&mut text).unwrap();
        kill_process(Pid::from_child(&child.0), signal).unwrap();
        out.read_to_end(&mut text).unwrap();
        assert_eq!(within(LONG, move || child.0.wait().unwrap()).code(), Some(status));
        let text = String::from_utf8(text).unwrap();
        let from = held_from(dir.path());
        let wanted: String = (0..from).map(|number| line(number) + "\n").collect();
        assert!(text == wanted && (1..MANY).contains(&from), "{from}, {} bytes", text.len());
    }
}

#[test]
fn a_second_signal_ends_take_at_once() {
    let dir = crate::support::tempdir().unwrap();
    many(dir.path());
    let mut child = Running(on("take", dir.path(), &[]).stdout(Stdio::piped()).spawn().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    out.read_exact(&mut [0; 10]).unwrap();
    // Nobody reads on, so it stands in a write.
    for signal in [Signal::INT, Signal::TERM] {
        kill_process(Pid::from_child(&child.0), signal).unwrap();
    }
    let ended = within(LONG, move || child.0.wait().unwrap());
    assert!([Some(130), Some(143)].contains(&ended.code()), "{ended:?}");
    // What was in the pipe and was not acknowledged comes again.
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let written = (10 + rest.len() as u64) / (line(0).len() as u64 + 1);
    assert!(held_from(dir.path()) <= written);
}

#[test]
fn take_follows_a_queue_that_others_put_into() {
    let dir = crate::support::tempdir().unwrap();
    given(on("put", dir.path(), &[]), b"first\n");
    let mut child =
        Running(on("take", dir.path(), &["-f"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut out = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(out.next().unwrap().unwrap(), "first");
    for number in 0..5 {
        check(given(on("put", dir.path(), &[]), line(number).as_bytes()), 0);
        assert_eq!(out.next().unwrap().unwrap(), line(number));
    }
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    assert_eq!(within(LONG, move || child.0.wait().unwrap()).code(), Some(130));
    assert!(Queue::open(dir.path()).unwrap().is_empty());
}

#[test]
fn take_waits_for_the_first_message() {
    let dir = crate::support::tempdir().unwrap();
    given(on("put", dir.path(), &[]), b"");
    ends(on("take", dir.path(), &["--wait", "0s"]), 3);
    ends(on("take", dir.path(), &["-n", "1"]), 3);
    ends(on("take", dir.path(), &[]), 0);
    let waiting = on("take", dir.path(), &["--wait"]).stdout(Stdio::piped()).spawn().unwrap();
    // It takes what is there when the first one comes: both, for they come together.
    check(given(on("put", dir.path(), &["--batch"]), b"a\nb\n"), 0);
    let output = check(within(LONG, || waiting.wait_with_output().unwrap()), 0);
    assert_eq!(output.stdout, b"a\nb\n");
}

#[test]
fn a_first_signal_ends_put_in_order() {
    let dir = crate::support::tempdir().unwrap();
    let mut put = on("put", dir.path(), &["--print-seq"]);
    put.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = put.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\nb\nhalf a line").unwrap();
    let mut numbers = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert_eq!(numbers.next().unwrap().unwrap(), "0");
    assert_eq!(numbers.next().unwrap().unwrap(), "1");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = check(within(LONG, || child.wait_with_output().unwrap()), 130);
    assert!(said(&output).contains("put in before that: 2 messages"), "{}", said(&output));
    drop(stdin);
    assert_eq!(ends(on("take", dir.path(), &[]), 0).stdout, b"a\nb\n");
}

#[test]
fn a_signal_ends_a_put_that_waits_for_room() {
    let dir = crate::support::tempdir().unwrap();
    let limit = ["--max-bytes", "256KiB", "--arena-size", "64K"];
    let lines = vec![format!("{:0>1000}\n", 7); 1000].concat().into_bytes();
    check(given(on("put", dir.path(), &limit), &lines), 6);
    let kept = Queue::open(dir.path()).unwrap().len();
    let mut put = on("put", dir.path(), &[&limit[..], &["--on-full", "wait"]].concat());
    let mut child = put.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&lines[..2 * 1001]).unwrap();
    // There is no room for both, and nobody else can make some.
    eventually("it has the queue", || {
        matches!(Queue::open(dir.path()), Err(mmq::Error::Locked { .. }))
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    check(within(LONG, || child.wait_with_output().unwrap()), 143);
    assert!(Queue::open(dir.path()).unwrap().len() - kept < 2);
}

#[test]
fn sigkill_of_put_loses_nothing_acknowledged_and_makes_nothing_up() {
    let mut random = Random::new(seed("sigkill of put"));
    let rounds = 6 * effort();
    let dir = crate::support::tempdir().unwrap();
    let mut expected = 0;
    for _ in 0..rounds {
        let mut put = on("put", dir.path(), &["--print-seq"]);
        let mut child = Running(put.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let mut stdin = child.0.stdin.take().unwrap();
        let feeding = std::thread::spawn(move || {
            (expected..).try_for_each(|number| writeln!(stdin, "{}", line(number)))
        });
        let mut numbers = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let wanted = random.size(1..=20_000);
        let seen = numbers.by_ref().take(wanted).last().unwrap().unwrap();
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert!(feeding.join().unwrap().is_err());
        // Those it could still print.
        let rest = numbers.map_while(Result::ok).filter_map(|number| number.parse::<u64>().ok());
        let acknowledged = rest.last().unwrap_or(0).max(seen.parse().unwrap());
        let queue = Queue::open(dir.path()).unwrap();
        let next = queue.stats().next_seq;
        // The last number may be cut off.
        assert!(acknowledged / 10 < next && seen.parse::<u64>().unwrap() < next);
        let mut held = 0;
        for message in queue.iter() {
            assert_eq!(message.unwrap().as_str(), Ok(line(held).as_str()));
            held += 1;
        }
        assert_eq!(held, next);
        expected = next;
    }
}

#[test]
fn what_cannot_be_written_stays_in_the_queue() {
    let dir = crate::support::tempdir().unwrap();
    given(on("put", dir.path(), &[]), b"a\nb\n");
    let mut take = on("take", dir.path(), &[]);
    take.stdout(File::options().write(true).open("/dev/full").unwrap());
    let output = ends_with_stderr(take, 7);
    assert!(output.contains("standard output: No space left on device"), "{output}");
    let mut take = on("take", dir.path(), &["--sync"]);
    take.stdout(Stdio::piped());
    let output = ends_with_stderr(take, 2);
    assert!(output.contains("--sync: standard output is not a file"), "{output}");
    let file = dir.path().parent().unwrap().join(format!("out-{}", std::process::id()));
    let mut take = on("take", dir.path(), &["--sync"]);
    take.stdout(File::create(&file).unwrap());
    ends_with_stderr(take, 0);
    assert_eq!(std::fs::read(&file).unwrap(), b"a\nb\n");
    std::fs::remove_file(&file).unwrap();
}

#[track_caller]
fn ends_with_stderr(mut command: std::process::Command, status: i32) -> String {
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    said(&check(child.wait_with_output().unwrap(), status))
}
