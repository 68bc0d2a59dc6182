//! `each` releases its queue between commands when somebody waits for it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::each::{each, jobs, left, log};
use crate::run::{Running, check, ends, on};
use crate::support::{eventually, within};
use crate::turns::somebody_waits;

const JOBS: u64 = 60;

/// Commands read a line each from it. It is always open, so that none meets its end, and what is
/// written waits for the next one.
fn gate(dir: &Path) -> File {
    let fifo = dir.join("fifo");
    check(crate::support::command("mkfifo").arg(&fifo).output().unwrap(), 0);
    File::options().read(true).write(true).open(fifo).unwrap()
}

/// Its exit status, which comes in time.
fn status(mut child: Running) -> Option<i32> {
    within(Duration::from_secs(60), move || child.0.wait().unwrap().code())
}

/// `mmq put DIR --wait-lock`, with one message.
fn putting(dir: &Path) -> Child {
    let mut put = on("put", dir, &["--wait-lock"]);
    let mut child = put.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"new\n").unwrap();
    child
}

#[test]
fn who_waits_for_the_lock_has_it_before_all_is_done() {
    for (words, running) in [(&[][..], 1), (&["-j", "2"], 2)] {
        let dir = crate::support::tempdir().unwrap();
        let queue = dir.path().join("q");
        jobs(&queue, (0..JOBS).map(|number| number.to_string()));
        let mut gate = gate(dir.path());
        let script = "echo begins >> log; read line < fifo; echo ends >> log";
        let child = Running(each(&queue, words, script).spawn().unwrap());
        let lines = |wanted: &str| log(&queue).iter().filter(|line| **line == wanted).count();
        eventually("commands run", || lines("begins") == running);
        assert!(!somebody_waits(&queue));
        let mut put = Running(putting(&queue));
        eventually("it waits", || somebody_waits(&queue));
        let mut ended = 0;
        while put.0.try_wait().unwrap().is_none() {
            gate.write_all(b"\n").unwrap();
            ended += 1;
            eventually("a command ends", || lines("ends") >= ended);
        }
        assert!((ended as u64) < JOBS, "it had to wait for all of them");
        assert_eq!(status(put), Some(0));
        gate.write_all(&b"\n".repeat(JOBS as usize + 1 - ended)).unwrap();
        assert_eq!(status(child), Some(0));
        assert_eq!((lines("ends") as u64, left(&queue)), (JOBS + 1, 0));
        assert!(!somebody_waits(&queue));
    }
}

#[test]
fn a_waiter_that_was_killed_waits_no_more() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["job".to_owned()]);
    let holder = mmq::Queue::open(&queue).unwrap();
    let mut put = Running(putting(&queue));
    eventually("it waits", || somebody_waits(&queue));
    put.0.kill().unwrap();
    put.0.wait().unwrap();
    assert!(!somebody_waits(&queue));
    holder.close().unwrap();
}

#[test]
fn a_turn_of_another_costs_a_message_no_attempt_and_no_delay() {
    for dead in [false, true] {
        let dir = crate::support::tempdir().unwrap();
        let (queue, dead_dir) = (dir.path().join("q"), dir.path().join("dead"));
        jobs(&queue, ["bad", "good"].map(str::to_owned));
        let mut gate = gate(dir.path());
        let script = "read word; echo $MMQ_SEQ $MMQ_ATTEMPT >> log
            test $word != bad && read line < fifo";
        let kept = ["--dead", dead_dir.to_str().unwrap()];
        let kept = if dead { &kept[..] } else { &[] };
        let words = [&["--backoff", "1h"], kept].concat();
        let child = Running(each(&queue, &words, script).spawn().unwrap());
        eventually("the second one runs", || log(&queue) == ["0 1", "1 1"]);
        let put = Running(putting(&queue));
        eventually("it waits", || somebody_waits(&queue));
        gate.write_all(b"\n").unwrap();
        assert_eq!(status(put), Some(0));
        eventually("its message is next", || log(&queue) == ["0 1", "1 1", "2 1"]);
        gate.write_all(b"\n").unwrap();
        // From here on nothing is there but a message that waits for its delay.
        let put = Running(putting(&queue));
        assert_eq!(status(put), Some(0));
        eventually("its message is next", || log(&queue) == ["0 1", "1 1", "2 1", "3 1"]);
        kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
        gate.write_all(b"\n").unwrap();
        assert_eq!(status(child), Some(143));
        ends(each(&queue, kept, "echo $MMQ_SEQ $MMQ_ATTEMPT >> log"), 0);
        let again = if dead { "0 2" } else { "0 1" };
        assert_eq!(log(&queue), ["0 1", "1 1", "2 1", "3 1", again]);
    }
}

#[test]
fn a_message_that_fails_keeps_its_count_over_turns_of_others() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["bad".to_owned()]);
    let mut gate = gate(dir.path());
    let script = "read word; echo $word $MMQ_ATTEMPT >> log; test $word != bad && exit
        read line < fifo; exit 1";
    let child = Running(each(&queue, &["--retries", "2"], script).spawn().unwrap());
    for attempt in 1..=3 {
        let tried = || log(&queue).iter().filter(|line| line.starts_with("bad")).count();
        eventually("it is tried", || tried() == attempt);
        let put = Running(putting(&queue));
        eventually("it waits", || somebody_waits(&queue));
        gate.write_all(b"\n").unwrap();
        assert_eq!(status(put), Some(0));
    }
    assert_eq!(status(child), Some(1));
    let log = log(&queue);
    let bad: Vec<&String> = log.iter().filter(|line| line.starts_with("bad")).collect();
    assert_eq!(bad, ["bad 1", "bad 2", "bad 3"]);
}
