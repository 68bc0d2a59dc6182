//! The tool on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mmq::Queue;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::run::{check, given, mmq, on};
use crate::support::{eventually, within};

/// The two ends of a terminal: the person's, and the program's.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let person: OwnedFd = openpt(flags).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap().into_string().unwrap();
    (person.into(), File::options().read(true).write(true).open(name).unwrap())
}

/// All that appears on the terminal, piece by piece. It ends when the program has.
fn screen(mut person: File) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = person.read(&mut bytes) {
            let _ = sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
        }
    });
    receiver
}

#[test]
fn spool_draws_a_line_of_progress_and_removes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (person, program) = terminal();
    let mut spool = mmq(["spool", "-", "--output"]);
    spool.arg(dir.path().join("out")).stdin(Stdio::piped()).stderr(program);
    let mut child = spool.spawn().unwrap();
    drop(spool);
    let shown = screen(person);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"one line\n").unwrap();
    let mut seen = String::new();
    while !seen.contains("/s, 1 messages inside\x1b[K") {
        seen += &shown.recv_timeout(Duration::from_secs(60)).expect("it is drawn");
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    seen.extend(shown);
    let (_, end) = seen.rsplit_once("\r\x1b[K").expect("the line is removed");
    assert!(end.contains("everything came out, byte for byte and in order"), "{seen:?}");
}

#[test]
fn nothing_is_drawn_where_it_was_forbidden() {
    let dir = tempfile::tempdir().unwrap();
    let (person, program) = terminal();
    let mut spool = mmq(["spool", "-", "--no-progress", "--output"]);
    spool.arg(dir.path().join("out")).stdin(Stdio::piped()).stderr(program);
    let mut child = spool.spawn().unwrap();
    drop(spool);
    let shown = screen(person);
    child.stdin.take().unwrap().write_all(b"one line\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let seen: String = shown.iter().collect();
    assert!(seen.starts_with("mmq: 1 messages, "), "{seen:?}");
}

#[test]
fn a_terminal_is_shown_control_bytes_as_text() {
    let dir = tempfile::tempdir().unwrap();
    let message = b"\x1b[2Jcleared?\xff";
    check(given(on("put", dir.path(), &["--framing", "raw"]), message), 0);
    let (person, program) = terminal();
    let mut take = on("take", dir.path(), &[]);
    let mut child = take.stdout(program).spawn().unwrap();
    drop(take);
    let shown = screen(person);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(shown.iter().collect::<String>(), "\\x1b[2Jcleared?\\xff\r\n");
}

#[test]
fn put_without_input_gives_help() {
    let dir = tempfile::tempdir().unwrap();
    let (_person, program) = terminal();
    let mut put = on("put", &dir.path().join("q"), &[]);
    let output = check(put.stdin(program).output().unwrap(), 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("mmq put q < jobs.txt") && said.contains("name a FILE"), "{said}");
    assert!(!dir.path().join("q").exists());
}

#[test]
fn a_person_is_asked_before_messages_are_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    queue.close().unwrap();
    for (answer, status, left) in [("n\n", 6, 3), ("\n", 6, 3), ("y\n", 0, 0)] {
        let (mut person, program) = terminal();
        let mut purge: Command = on("purge", dir.path(), &[]);
        purge.stdin(program.try_clone().unwrap()).stderr(program);
        let mut child = purge.spawn().unwrap();
        drop(purge);
        person.write_all(answer.as_bytes()).unwrap();
        let shown = screen(person);
        let mut seen = String::new();
        eventually("it asks", || {
            seen.extend(shown.try_iter());
            seen.contains("gives up 3 messages")
        });
        let ended = within(Duration::from_secs(60), move || child.wait().unwrap());
        assert_eq!(ended.code(), Some(status), "{seen}");
        assert_eq!(Queue::open(dir.path()).unwrap().len(), left);
    }
}
