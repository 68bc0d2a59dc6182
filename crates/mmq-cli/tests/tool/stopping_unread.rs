//! A signal ends a command at once whose output nobody reads.

use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mmq::Queue;
use rustix::io::{ioctl_fionbio, ioctl_fionread};
use rustix::process::{Pid, Signal, kill_process};

use crate::each::{each, jobs, left};
use crate::run::{Running, ends, on};
use crate::support::{eventually, within};

const LONG: Duration = Duration::from_secs(60);
/// What a pipe holds, in pages that need not be full.
const PIPE: u64 = 64 << 10;
const PAGE: u64 = 4 << 10;
/// So many that they fill a pipe and the tool's buffer, with this length.
const MANY: u64 = 3000;
const LENGTH: usize = 99;

fn many(dir: &Path) {
    jobs(dir, (0..MANY).map(|number| format!("{number:0>LENGTH$}")));
}

/// Runs it until it has filled its standard output, which nobody reads, and sends the signal.
/// Returns what the pipe held.
#[track_caller]
fn ends_unread(mut command: Command, non_blocking: bool, signal: Signal) -> PipeReader {
    let (reader, writer) = io::pipe().unwrap();
    ioctl_fionbio(&writer, non_blocking).unwrap();
    let shown = format!("{command:?}");
    let mut child = Running(command.stdout(writer).spawn().unwrap());
    drop(command);
    eventually("the pipe is full", || ioctl_fionread(&reader).unwrap() > PIPE - PAGE);
    kill_process(Pid::from_child(&child.0), signal).unwrap();
    let ended = within(LONG, move || child.0.wait().unwrap());
    assert_eq!(ended.code(), Some(if signal == Signal::INT { 130 } else { 143 }), "{shown}");
    reader
}

#[test]
fn a_signal_ends_every_command_whose_output_is_full() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, file) = (dir.path().join("q"), dir.path().join("file"));
    many(&queue);
    fs::write(&file, format!("{:0>LENGTH$}\n", 7).repeat(MANY as usize)).unwrap();
    let follow: &[&str] = &["-f", "-n", "3000"];
    for (command, words) in [("cat", &[][..]), ("tail", follow), ("dump", &[]), ("salvage", &[])] {
        ends_unread(on(command, &queue, words), command == "tail", Signal::TERM);
    }
    ends_unread(on("spool", &file, &[]), false, Signal::INT);
    let mut put = on("put", &dir.path().join("new"), &["--print-seq", "-0"]);
    put.stdin(fs::File::open("/dev/zero").unwrap());
    ends_unread(put, false, Signal::TERM);
}

#[test]
fn what_take_did_not_write_stays() {
    for (non_blocking, words) in [(false, &[][..]), (true, &["-f"])] {
        let dir = crate::support::tempdir().unwrap();
        many(dir.path());
        let mut out = ends_unread(on("take", dir.path(), words), non_blocking, Signal::TERM);
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        // One that was cut off comes again.
        let whole = (text.len() / (LENGTH + 1)) as u64;
        let queue = Queue::open(dir.path()).unwrap();
        assert_eq!(queue.peek().unwrap().unwrap().seq(), whole);
        assert_eq!(queue.len(), MANY - whole);
    }
}

#[test]
fn a_signal_ends_a_command_whose_standard_error_is_full() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["a", "b"].map(str::to_owned));
    let (_reader, mut writer) = io::pipe().unwrap();
    writer.write_all(&[b' '; PIPE as usize]).unwrap();
    let mut bad = each(&queue, &[], "touch ran; exit 1");
    let mut child = Running(bad.stderr(writer).spawn().unwrap());
    drop(bad);
    eventually("a command has failed", || dir.path().join("ran").exists());
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    assert_eq!(within(LONG, move || child.0.wait().unwrap()).code(), Some(143));
    assert_eq!(left(&queue), 2);
}

#[test]
fn a_command_that_has_ended_need_not_have_read_its_message() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["long ".repeat(100_000)]);
    // What it leaves behind keeps the pipe open.
    let script = "exec 3<&0; sleep 100 <&3 >&- 2>&- & echo $! > pid";
    let done = each(&queue, &[], script);
    within(LONG, || ends(done, 0));
    let pid: i32 = fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    assert_eq!(left(&queue), 0);
}
