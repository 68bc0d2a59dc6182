//! No line is wider than the terminal.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use mmq::Queue;

use crate::run::{Running, ends, mmq, on};
use crate::support::segments;
use crate::terminal::{Stream, on_terminal_of, screen, terminal_of};

/// The widest line of what a terminal shows: without colours, and begun anew by a carriage return.
fn widest(shown: &str) -> usize {
    let mut plain = String::new();
    let mut rest = shown;
    while let Some((before, escape)) = rest.split_once("\x1b[") {
        plain += before;
        let end = escape.find(|c: char| c.is_ascii_alphabetic()).expect("an escape ends");
        rest = &escape[end + 1..];
    }
    plain += rest;
    plain.split(['\r', '\n']).map(|line| line.chars().count()).max().unwrap()
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("a queue with a name of some length, in words");
    let queue = Queue::open(&path).unwrap();
    queue.enqueue_batch((0..1000).map(|number| format!("message number {number}"))).unwrap();
    let workers = queue.consumer("workers-with-a-name-that-is-longer-than-forty-columns").unwrap();
    let _held = workers.receive().unwrap().unwrap();
    queue.flush().unwrap();
    let damaged = dir.path().join("damaged");
    let other = Queue::open(&damaged).unwrap();
    other.enqueue_batch(["one", "two"]).unwrap();
    other.close().unwrap();
    let segment = &segments(&damaged)[0];
    let mut bytes = std::fs::read(segment).unwrap();
    let at = bytes.windows(3).position(|part| part == b"one").unwrap();
    bytes[at] ^= 1;
    std::fs::write(segment, bytes).unwrap();
    for columns in [40, 80, 130] {
        let shown = |command, stream| {
            let (shown, _) = on_terminal_of(columns, command, stream);
            assert!(widest(&shown) <= columns.into(), "{columns}: {shown}");
            shown.lines().count()
        };
        let block = shown(on("stat", &path, &["--color", "always"]), Stream::Output);
        assert!(block >= 7, "{block} lines");
        shown(on("consumers", &path, &[]), Stream::Output);
        shown(on("gaps", &damaged, &["--deep"]), Stream::Output);
        shown(on("verify", &damaged, &["--as-opened"]), Stream::Output);
        shown(on("verify", &damaged, &[]), Stream::Errors);
        let limits = ["--max-lag", "1", "--max-age", "0", "--max-bytes", "1"];
        let reported = shown(on("stat", &path, &limits), Stream::Errors);
        assert!(reported >= 6, "three limits of two consumers: {reported} lines");
        shown(on("put", &path, &["Cargo.toml"]), Stream::Errors);
        shown(mmq(["no-such-command"]), Stream::Errors);
    }
    // Where nobody says how wide it is, nothing is broken.
    let stat = |columns: Option<&str>| {
        let mut stat = on("stat", &path, &[]);
        columns.map(|columns| stat.env("COLUMNS", columns));
        widest(&String::from_utf8(ends(stat, 0).stdout).unwrap())
    };
    assert!(stat(None) > 100 && stat(Some("50")) <= 50 && stat(Some("no")) > 100);
}

#[test]
fn a_screen_that_is_watched_is_no_wider() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue("a message").unwrap();
    queue.dequeue().unwrap().unwrap();
    let (person, program) = terminal_of(40);
    let mut stat = on("stat", dir.path(), &["--watch", "0.02"]);
    let _child = Running(stat.stdout(program).spawn().unwrap());
    drop(stat);
    let (mut seen, shown) = (String::new(), screen(person));
    while !seen.contains("taken a") {
        seen += &shown.recv_timeout(Duration::from_secs(60)).expect("it is drawn");
    }
    assert!(widest(&seen) <= 40, "{seen}");
}

#[test]
fn a_line_of_progress_is_cut_where_the_terminal_ends() {
    let dir = crate::support::tempdir().unwrap();
    let (person, program) = terminal_of(24);
    let mut spool = mmq(["spool", "-", "--output"]);
    spool.arg(dir.path().join("out")).stdin(Stdio::piped()).stderr(program);
    let mut child = Running(spool.spawn().unwrap());
    drop(spool);
    let shown = screen(person);
    let mut stdin = child.0.stdin.take().unwrap();
    stdin.write_all(b"one line\n").unwrap();
    let mut seen = String::new();
    while !seen.contains("/s, 1 mess") {
        seen += &shown.recv_timeout(Duration::from_secs(60)).expect("it is drawn");
    }
    drop(stdin);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    seen.extend(shown);
    assert!(widest(&seen) <= 24, "{seen:?}");
}
