//! What an operator meets when something is wrong: each has its exit status and one sentence, and
//! nothing that looks changes a byte.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use mmq::{Options, Queue};
use serde_json::Value;

use crate::looking::{files, stat, stop, text};
use crate::owning::checksum;
use crate::run::{Running, ends, mmq, on, said};
use crate::support::{eventually, itself, segments};

/// All that only look.
const LOOKS: [&str; 7] = ["stat", "cat", "tail", "consumers", "gaps", "verify", "dump"];

/// Runs each command that only looks. Wants this status, the word for programs, and words of the
/// one sentence; and that no byte changes.
fn refused(dir: &Path, status: i32, code: &str, words: &[&str]) {
    let before = files(dir);
    // At the same time: some are tried for a while.
    std::thread::scope(|scope| {
        for command in LOOKS {
            scope.spawn(move || is_refused(command, dir, status, code, words));
        }
    });
    assert!(files(dir) == before, "a look changed a file");
}

fn is_refused(command: &str, dir: &Path, status: i32, code: &str, words: &[&str]) {
    let said = said(&ends(on(command, dir, &[]), status));
    assert!(said.starts_with("mmq: ") && said.lines().count() == 1, "{command}: {said}");
    let path = dir.to_str().unwrap();
    for word in words.iter().chain([&path]) {
        assert!(said.contains(word), "{command}, {word}: {said}");
    }
    let output = ends(on(command, dir, &["--json"]), status);
    assert_eq!(output.stdout, b"", "{command}");
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["code"], code, "{command} {error}");
}

/// A closed queue with 100 messages of 1000 bytes.
fn filled(dir: &Path, first: u64) {
    let queue = Options::new().arena_size(64 << 10).open(dir).unwrap();
    queue.enqueue_batch((first..first + 100).map(|number| format!("{number:0>1000}"))).unwrap();
    queue.close().unwrap();
}

/// Makes the file one of a later format: `at` is where the checksum of the bytes before it stands.
fn make_later(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[8] = mmq::FORMAT_VERSION as u8 + 1;
    let sum = checksum(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_later_format_is_refused_by_all_that_look() {
    let dir = crate::support::tempdir().unwrap();
    filled(dir.path(), 0);
    make_later(&dir.path().join("index"), 60);
    let words = ["format version 5", "use the mmq that wrote it"];
    refused(dir.path(), 6, "later_format", &words);
    let output = ends(on("stat", dir.path(), &["--prometheus"]), 6);
    let metrics = String::from_utf8(output.stdout).unwrap();
    assert!(metrics.contains("mmq_up{") && metrics.contains("\"} 0\n"), "{metrics}");
    // Without the index its segments say so.
    fs::remove_file(dir.path().join("index")).unwrap();
    segments(dir.path()).iter().for_each(|segment| make_later(segment, 124));
    refused(dir.path(), 6, "later_format", &words);
}

#[test]
fn a_queue_that_is_being_changed_too_quickly_is_reported() {
    let dir = crate::support::tempdir().unwrap();
    filled(dir.path(), 0);
    // Somebody has its lock, and the live part is never whole: whoever looks finds it half written
    // each time. (A queue of this process would store to it when it likes.)
    let lock = File::open(dir.path()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let index = dir.path().join("index");
    let mut bytes = fs::read(&index).unwrap();
    bytes[8192..8192 + 256].fill(0);
    fs::write(&index, bytes).unwrap();
    refused(dir.path(), 7, "too_quick", &["is being changed too quickly", "try again"]);
}

/// The tool as a user who is not root; `None` where that user cannot run it.
fn as_nobody(command: &str, dir: &Path) -> Option<Command> {
    let nobody = |mut command: Command| {
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534).current_dir("/");
        }
        command
    };
    let runs = nobody(mmq(["--version"])).output().is_ok();
    runs.then(|| nobody(on(command, dir, &[])))
}

#[test]
fn who_may_not_read_learns_what_may_be_done() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    filled(&queue, 0);
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(dir.path(), 0o755);
    for closed in [queue.clone(), queue.join("index")] {
        let is_file = closed.is_file();
        mode(&queue, 0o755);
        mode(&closed, 0);
        for command in LOOKS {
            let Some(nobody) = as_nobody(command, &queue) else {
                crate::support::skip("root may read everything, and nobody else can run the tool");
                return;
            };
            let said = said(&ends(nobody, 7));
            assert!(said.contains("ermission denied"), "{command}: {said}");
            assert!(
                said.contains("commands that only look need read permission"),
                "{command}: {said}"
            );
            assert!(said.contains(queue.to_str().unwrap()), "{command}: {said}");
        }
        mode(&closed, if is_file { 0o644 } else { 0o755 });
    }
    let readable = as_nobody("cat", &queue).expect("it ran before");
    segments(&queue).iter().for_each(|segment| mode(segment, 0o444));
    mode(&queue, 0o555);
    assert_eq!(ends(readable, 0).stdout.len(), 100 * 1001, "read permission is enough");
}

#[test]
fn a_segment_that_is_cut_costs_what_lay_behind() {
    const CUT: u64 = 50_000;
    let dir = crate::support::tempdir().unwrap();
    filled(dir.path(), 0);
    let first = &segments(dir.path())[0];
    File::options().write(true).open(first).unwrap().set_len(CUT).unwrap();
    let before = files(dir.path());
    let seen = ends(on("cat", dir.path(), &["--json"]), 1);
    let lines = String::from_utf8(seen.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost: u64 = lines.iter().filter_map(|line| line["gap"]["count"].as_u64()).sum();
    let shown = lines.iter().filter(|line| line.get("seq").is_some()).count() as u64;
    assert!(lost > 0 && shown > 0 && lost + shown == 100, "{shown} shown, {lost} lost");
    let reported = ends(on("verify", dir.path(), &[]), 1);
    let text = String::from_utf8(reported.stdout.clone()).unwrap();
    let at = 128 + shown * 1016;
    assert!(text.contains(&format!("segment-00000000 at {at}: ")), "{text}");
    assert!(text.contains(&format!("messages {shown} to 99 will never come")), "{text}");
    assert!(
        said(&reported).contains(&format!("lost with it: {lost} messages")),
        "{}",
        said(&reported)
    );
    for command in ["stat", "consumers"] {
        ends(on(command, dir.path(), &[]), 0);
    }
    assert!(files(dir.path()) == before, "a look changed a file");
}

#[test]
fn another_queues_files_are_reported_and_left_alone() {
    let dir = crate::support::tempdir().unwrap();
    let [queue, other] = ["queue", "other"].map(|name| dir.path().join(name));
    filled(&queue, 0);
    filled(&other, 5000);
    let count = segments(&queue).len();
    for (number, segment) in segments(&other).iter().enumerate() {
        fs::copy(segment, queue.join(format!("segment-{:08}", count + number))).unwrap();
    }
    let before = files(&queue);
    assert_eq!(text("cat", &queue, &["--count"]), "100\n");
    let reported = ends(on("verify", &queue, &[]), 1);
    let text = String::from_utf8(reported.stdout).unwrap();
    assert_eq!(
        text.matches("it belongs to another queue").count(),
        segments(&other).len(),
        "{text}"
    );
    assert!(files(&queue) == before, "a look changed a file");
    // The index is the other queue's.
    fs::copy(other.join("index"), queue.join("index")).unwrap();
    let before = files(&queue);
    for command in LOOKS {
        let status = on(command, &queue, &[]).output().unwrap().status.code();
        assert!(matches!(status, Some(0 | 1)), "{command}: {status:?}");
    }
    assert!(files(&queue) == before, "a look changed a file");
}

/// Not a test: the process whose disk fails.
#[test]
#[ignore = "started by another test"]
#[expect(unsafe_code, reason = "no other way makes a real sync fail")]
fn the_child_whose_flush_fails() {
    let dir = std::env::var("MMQ_TEST_DIR").unwrap();
    let queue = Queue::open(&dir).unwrap();
    let dir = fs::canonicalize(dir).unwrap();
    queue.enqueue("a message").unwrap();
    // Every descriptor of a segment becomes that of a pipe, which cannot be synced.
    let (pipe, _writer) = std::io::pipe().unwrap();
    for listed in fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap) {
        let Ok(target) = fs::read_link(listed.path()) else { continue };
        if target.starts_with(&dir) && target.to_string_lossy().contains("segment-") {
            let number = listed.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: the queue has this descriptor open, and it is not closed here.
            let mut taken = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
            rustix::io::dup2(&pipe, &mut taken).unwrap();
        }
    }
    queue.flush().unwrap_err();
    queue.enqueue("another").unwrap_err();
    println!("poisoned");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_poisoned_queue_is_shown_as_such() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    // A short path, so that the error's cause finds room behind it in the index.
    let child = itself("trouble::the_child_whose_flush_fails")
        .current_dir(dir)
        .env("MMQ_TEST_DIR", ".")
        .stdout(Stdio::piped())
        .spawn();
    let mut child = Running(child.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("poisoned")));
    let seen = stat(dir);
    assert_eq!((&seen["poisoned"], &seen["state"]), (&true.into(), &"owned".into()));
    let error = seen["counted"]["last_flush_error"].as_str().unwrap();
    assert!(error.contains("Invalid argument"), "{error}");
    let block = text("stat", dir, &["--color", "always"]);
    assert!(block.contains("\x1b[31mPOISONED: a flush failed, open it again to write\x1b[0m\n"));
    assert!(block.contains("flush      \x1b[31ma flush failed: "), "{block}");
    let metrics = text("stat", dir, &["--prometheus", "--label", "q"]);
    assert!(metrics.contains("mmq_poisoned{queue=\"q\"} 1\n"), "{metrics}");
    assert_eq!(text("cat", dir, &[]), "a message\n");
    drop(child);
    let seen = stat(dir);
    assert_eq!((&seen["poisoned"], &seen["state"]), (&false.into(), &"left".into()));
    let block = text("stat", dir, &[]);
    assert!(block.contains("died after a failed flush"), "{block}");
    assert!(!block.contains("nothing is lost"), "{block}");
}

/// Starts the command, and when it stands in the middle has the queue give back what lies before
/// it. Returns what it shows, what it says, and its status.
fn overtaken(command: &str, words: &[&str]) -> (String, String, Option<i32>) {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    let message = |number: u64| format!("{number:0>1000}");
    queue.enqueue_batch((0..COUNT).map(message)).unwrap();
    let mut child = on(command, dir.path(), words);
    let mut child = Running(child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let (mut out, err) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
    // It has begun, and nobody reads on: the pipe and its buffer hold a tenth of what it shows.
    let mut shown = vec![0; 1];
    out.read_exact(&mut shown).unwrap();
    for round in 1..=2 {
        while queue.dequeue().unwrap().is_some() {}
        queue.flush().unwrap();
        queue.enqueue_batch((round * COUNT..(round + 1) * COUNT).map(message)).unwrap();
    }
    while queue.dequeue().unwrap().is_some() {}
    queue.flush().unwrap();
    eventually("segments are given back", || queue.stats().oldest_seq > 2 * COUNT);
    let rest = std::thread::spawn(move || out.read_to_end(&mut shown).map(|_| shown));
    let mut err = BufReader::new(err);
    let mut said = String::new();
    if words.contains(&"-f") {
        err.read_line(&mut said).unwrap();
        stop(&child.0);
    }
    err.read_to_string(&mut said).unwrap();
    let shown = String::from_utf8(rest.join().unwrap().unwrap()).unwrap();
    (shown, said, child.0.wait().unwrap().code())
}

const COUNT: u64 = 2000;

#[test]
fn what_was_given_back_meanwhile_is_reported() {
    let given_back = |said: &str| -> u64 {
        let numbers = said.lines().map(|line| {
            let said = line.strip_prefix("mmq: ").and_then(|line| line.split_once(" number"));
            let (count, rest) = said.unwrap_or_else(|| panic!("{line}"));
            assert!(rest.ends_with(": the queue removed them before they were read"), "{line}");
            count.parse::<u64>().unwrap()
        });
        numbers.sum()
    };
    for (command, words) in [("cat", &[][..]), ("tail", &["-n", "2000"])] {
        let (shown, said, status) = overtaken(command, words);
        assert_eq!(status, Some(0), "{command}: {said}");
        let shown = shown.lines().count() as u64;
        assert!(shown > 0 && shown + given_back(&said) == COUNT, "{command}: {shown}, {said}");
    }
    let (_, said, status) = overtaken("tail", &["-f", "-n", "2000"]);
    assert!(given_back(said.lines().next().unwrap()) > 0, "{said}");
    assert_eq!(status, Some(130), "{said}");
    let (_, said, status) = overtaken("dump", &[]);
    assert!(said.contains(" before they were read; dump it again"), "{said}");
    assert_eq!(status, Some(1), "{said}");
}

/// A queue whose index is lost and whose only segment has a zeroed header: its messages are whole.
fn beheaded(dir: &Path) {
    filled(dir, 0);
    let all = segments(dir);
    fs::remove_file(dir.join("index")).unwrap();
    for path in all {
        let mut bytes = fs::read(&path).unwrap();
        bytes[..64].fill(0);
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn segments_that_no_queue_is_found_in_are_damage_and_nothing_touches_them() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    beheaded(&queue);
    let advice = format!("mmq salvage {} --to NEW", queue.display());
    refused(&queue, 1, "damaged", &[&advice]);
    let before = files(&queue);
    let copy = dir.path().join("copy");
    let words: [(&str, &[&str]); 6] = [
        ("put", &[]),
        ("take", &[]),
        ("each", &["--", "true"]),
        ("purge", &["--yes"]),
        ("copy", &[copy.to_str().unwrap()]),
        ("consumers", &["add", "audit"]),
    ];
    for (command, words) in words {
        let reported = said(&ends(on(command, &queue, words), 6));
        assert!(reported.contains(&advice), "{command}: {reported}");
        assert!(files(&queue) == before, "{command}");
    }
    // What an earlier opening has quarantined is no empty place either.
    for path in segments(&queue) {
        let mut quarantined = path.clone().into_os_string();
        quarantined.push(".damaged");
        fs::rename(path, quarantined).unwrap();
    }
    refused(&queue, 1, "damaged", &[&advice]);
    ends(on("put", &queue, &[]), 6);
    assert!(!queue.join("index").exists());
    let saved = dir.path().join("saved");
    ends(on("salvage", &queue, &["--to", saved.to_str().unwrap()]), 1);
    assert_eq!(text("take", &saved, &[]).lines().count(), 100);
}
