//! The tool on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mmq::Queue;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::run::{Running, check, ends, given, mmq, on, said};
use crate::support::{eventually, segments, within};

/// The two ends of a terminal: the person's, and the program's.
fn terminal() -> (File, File) {
    terminal_of(0)
}

/// The same with so many columns; 0: it does not say.
pub(crate) fn terminal_of(columns: u16) -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let person: OwnedFd = openpt(flags).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&person, size).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap().into_string().unwrap();
    (person.into(), File::options().read(true).write(true).open(name).unwrap())
}

/// All that appears on the terminal, piece by piece. It ends when the program has.
pub(crate) fn screen(mut person: File) -> mpsc::Receiver<String> {
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
    let dir = crate::support::tempdir().unwrap();
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
    let dir = crate::support::tempdir().unwrap();
    let (person, program) = terminal();
    let mut spool = mmq(["spool", "-", "--no-progress", "--output"]);
    spool.arg(dir.path().join("out")).stdin(Stdio::piped()).stderr(program);
    let mut child = spool.spawn().unwrap();
    drop(spool);
    let shown = screen(person);
    child.stdin.take().unwrap().write_all(b"one line\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let seen: String = shown.iter().collect();
    assert!(seen.starts_with("mmq: 1 message, "), "{seen:?}");
}

#[test]
fn a_terminal_is_shown_control_bytes_as_text() {
    let dir = crate::support::tempdir().unwrap();
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
    let dir = crate::support::tempdir().unwrap();
    let (_person, program) = terminal();
    let mut put = on("put", &dir.path().join("q"), &[]);
    let output = check(put.stdin(program).output().unwrap(), 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("mmq put q < jobs.txt") && said.contains("name a FILE"), "{said}");
    assert!(!dir.path().join("q").exists());
}

#[test]
fn a_person_is_asked_before_messages_are_given_up() {
    asks("purge", &[]);
    asks("consumers", &["add", "late", "--at", "last"]);
}

/// Asserts that the command asks before it gives up three messages.
fn asks(command: &str, words: &[&str]) {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    queue.close().unwrap();
    for (answer, status, left) in [("n\n", 6, 3), ("\n", 6, 3), ("y\n", 0, 0)] {
        let (mut person, program) = terminal();
        let mut asking: Command = on(command, dir.path(), words);
        asking.stdin(program.try_clone().unwrap()).stderr(program);
        let mut child = asking.spawn().unwrap();
        drop(asking);
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

/// Runs the command with standard output or standard error on a terminal. Returns what appears
/// there, and the exit status.
fn on_terminal(command: Command, stream: Stream) -> (String, Option<i32>) {
    on_terminal_of(0, command, stream)
}

/// The same on a terminal of so many columns.
pub(crate) fn on_terminal_of(
    columns: u16,
    mut command: Command,
    stream: Stream,
) -> (String, Option<i32>) {
    let (person, program) = terminal_of(columns);
    match stream {
        Stream::Output => command.stdout(program).stderr(Stdio::null()),
        Stream::Errors => command.stderr(program).stdout(Stdio::null()),
    };
    let mut child = command.spawn().unwrap();
    drop(command);
    let shown = screen(person).iter().collect();
    (shown, child.wait().unwrap().code())
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Output,
    Errors,
}

/// The command on a terminal that has colours.
fn coloured(command: &str, dir: &Path, words: &[&str]) -> Command {
    let mut command = on(command, dir, words);
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    command
}

#[test]
fn there_are_colours_on_a_terminal_and_where_they_are_asked_for() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    let queue = Queue::open(dir).unwrap();
    queue.enqueue_batch(["one", "two"]).unwrap();
    queue.close().unwrap();
    let stat = |words: &[&str]| coloured("stat", dir, words);
    let shown = |command| on_terminal(command, Stream::Output).0;
    assert!(shown(stat(&[])).contains(": \x1b[32mclosed\x1b[0m\r\n"));
    let with = |name, value, words: &[&str]| {
        let mut command = stat(words);
        command.env(name, value);
        shown(command)
    };
    let is_plain = |text: String| !text.is_empty() && !text.contains('\x1b');
    assert!(is_plain(with("NO_COLOR", "1", &[])) && is_plain(with("TERM", "dumb", &[])));
    assert!(!is_plain(with("NO_COLOR", "", &[])), "an empty NO_COLOR says nothing");
    assert!(!is_plain(with("NO_COLOR", "1", &["--color", "always"])));
    assert!(is_plain(shown(stat(&["--color", "never"]))));
    let piped = |words: &[&str]| String::from_utf8(ends(stat(words), 0).stdout).unwrap();
    assert!(is_plain(piped(&[])) && !is_plain(piped(&["--color=always"])));
    for words in [["--color=always", "--json"], ["--color=always", "--prometheus"]] {
        assert!(is_plain(piped(&words)), "programs get none");
    }
    ends(on("stat", dir, &["--color", "sometimes"]), 2);
    ends(on("cat", dir, &["--color", "always"]), 2);

    // A passed limit and damage are red, on the stream that tells them.
    let limit = |words| on_terminal(coloured("stat", dir, words), Stream::Errors);
    let (reported, status) = limit(&["--max-lag", "1"]);
    assert!(
        reported.starts_with("\x1b[31mmmq: queue ") && reported.ends_with("\x1b[0m\r\n"),
        "{reported:?}"
    );
    assert_eq!(status, Some(1));
    assert!(is_plain(limit(&["--max-lag", "1", "--color", "never"]).0));
    assert!(
        shown(coloured("verify", dir, &[]))
            .contains("\x1b[32mintact: 1 segment header, 2 messages")
    );
    let segment = &segments(dir)[0];
    let mut bytes = std::fs::read(segment).unwrap();
    let at = bytes.windows(3).position(|part| part == b"one").unwrap();
    bytes[at] ^= 1;
    std::fs::write(segment, bytes).unwrap();
    let reported = shown(coloured("verify", dir, &[]));
    assert!(reported.starts_with("\x1b[31msegment-00000000 at "), "{reported:?}");
    assert!(reported.contains("\x1b[0m\r\nintact: 1 segment header, 1 message"), "{reported:?}");
    let plain = ends(coloured("verify", dir, &[]), 1);
    assert!(is_plain(String::from_utf8(plain.stdout.clone()).unwrap()) && is_plain(said(&plain)));
}

#[test]
fn verify_draws_a_line_of_progress_and_removes_it() {
    let verified = |dir: &Path, words: &[&str]| {
        let (shown, status) = on_terminal(on("verify", dir, words), Stream::Errors);
        assert_eq!(status, Some(0), "{shown}");
        shown
    };
    // Nothing is drawn in the first 300 ms, so it takes a queue that takes longer.
    let dir = crate::support::tempdir().unwrap();
    for more in [20_000, 180_000, 100_000, 100_000, 200_000, 400_000, 1_000_000, 8_000_000] {
        let queue = Queue::open(dir.path()).unwrap();
        for _ in 0..more / 10_000 {
            queue.enqueue_batch(std::iter::repeat_n([7; 8], 10_000)).unwrap();
        }
        queue.close().unwrap();
        let shown = verified(dir.path(), &[]);
        if shown.is_empty() {
            continue;
        }
        let line = shown.split("\x1b[K").next().unwrap();
        assert!(line.starts_with("\r[") && line.contains(" %  "), "{shown:?}");
        assert!(line.contains(" left  ") && line.ends_with("/s, verified"), "{shown:?}");
        assert!(shown.ends_with("\r\x1b[K"), "{shown:?}");
        for words in [&["--no-progress"][..], &["--quiet"], &["--quick"]] {
            assert_eq!(verified(dir.path(), words), "", "{words:?}");
        }
        let piped = ends(on("verify", dir.path(), &[]), 0);
        assert_eq!(said(&piped), "");
        return;
    }
    panic!("no line was ever drawn");
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn verify_ends_by_a_signal_between_two_messages() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch((0..5000).map(|number| format!("message {number:08}"))).unwrap();
    queue.close().unwrap();
    let segment = &segments(dir.path())[0];
    let mut bytes = std::fs::read(segment).unwrap();
    let mut at = 0;
    for number in (0..5000).step_by(2) {
        let text = format!("message {number:08}");
        let mut rest = bytes[at..].windows(text.len());
        at += rest.position(|part| part == text.as_bytes()).unwrap();
        bytes[at] ^= 1;
    }
    std::fs::write(segment, bytes).unwrap();
    // Its findings fill the pipe, so it stands in the middle.
    let mut verify = on("verify", dir.path(), &[]);
    let mut child = Running(verify.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    out.read_exact(&mut [0; 1]).unwrap();
    interrupt(&child.0);
    let (mut shown, mut said) = (String::new(), String::new());
    out.read_to_string(&mut shown).unwrap();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(shown.lines().count() < 2500 && !shown.contains("intact"), "{shown}");
    assert!(said.starts_with("mmq: ended by a signal after "), "{said}");
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
}

#[test]
fn watching_redraws_on_a_terminal() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let (person, program) = terminal();
    let mut stat = coloured("stat", dir.path(), &["--watch", "0.02"]);
    let mut child = Running(stat.stdout(program).spawn().unwrap());
    drop(stat);
    let shown = screen(person);
    let mut seen = String::new();
    let mut until = |wanted: &str| {
        while !seen.contains(wanted) {
            seen += &shown.recv_timeout(Duration::from_secs(60)).expect("it is drawn");
        }
        seen.clone()
    };
    until("0 messages");
    queue.enqueue("now").unwrap();
    let seen = until("1 message,");
    let screens: Vec<&str> = seen.split("\x1b[H\x1b[J").collect();
    assert!(screens.len() > 2 && screens[0].is_empty(), "{seen:?}");
    let begins = |screen: &&str| screen.starts_with(dir.path().to_str().unwrap());
    assert!(screens[1..].iter().all(begins), "{seen:?}");
    interrupt(&child.0);
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
}
