//! Commands that own the queue: `put`, `take`, `consumers`, `purge`.

use std::path::Path;
use std::time::{Duration, SystemTime};

use mmq::{Inspector, Queue, Seen, Start};

use crate::flipped;
use crate::run::{check, ends, given, mmq, on, said};
use crate::support::eventually;
use crate::times;

/// A queue that holds `0` to `count - 1`, a line each.
fn numbers(dir: &Path, count: u64) {
    let queue = Queue::open(dir).unwrap();
    queue.enqueue_batch((0..count).map(|number| number.to_string())).unwrap();
    queue.close().unwrap();
}

fn taken(dir: &Path, words: &[&str]) -> String {
    String::from_utf8(ends(on("take", dir, words), 0).stdout).unwrap()
}

#[test]
fn consumers_are_made_moved_forked_and_removed() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    numbers(dir, 10);
    let consumers = |words: &[&str], status| ends(on("consumers", dir, words), status);
    consumers(&["add", "audit"], 0);
    consumers(&["add", "late", "--at", "8"], 0);
    consumers(&["add", "audit"], 6);
    consumers(&["add", "bad", "--at", "11"], 5);
    assert_eq!(taken(dir, &["--consumer", "late"]), "8\n9\n");
    // What a forward move gives up is said, and nobody is there to be asked.
    let refused = consumers(&["seek", "audit", "+3"], 2);
    assert!(said(&refused).contains("gives up 3 messages"), "{}", said(&refused));
    consumers(&["seek", "audit", "+3", "--yes"], 0);
    consumers(&["fork", "audit", "second"], 0);
    assert_eq!(taken(dir, &["--consumer", "second", "-n", "2"]), "3\n4\n");
    consumers(&["seek", "second", "-2"], 0);
    consumers(&["seek", "late", "first"], 0);
    assert_eq!(taken(dir, &["--consumer", "second", "-n", "1"]), "3\n");
    assert!(said(&consumers(&["rm", "second"], 2)).contains("gives up 6 messages"));
    consumers(&["rm", "second", "--yes"], 0);
    consumers(&["rm", "second"], 5);
    consumers(&["seek", "second", "first"], 5);
    // The queue's own has no name.
    assert_eq!(taken(dir, &["-n", "1"]), "0\n");
    consumers(&["fork", "", "third"], 0);
    consumers(&["seek", "", "last", "--yes"], 0);
    assert_eq!(taken(dir, &["--consumer", "third", "-n", "1"]), "1\n");
    ends(on("take", dir, &["-n", "1"]), 3);
    ends(on("take", dir, &["--consumer", "second"]), 5);
    assert_eq!(Queue::open(dir).unwrap().consumers(), ["audit", "late", "third"]);
}

#[test]
fn purge_moves_every_consumer_and_makes_none() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    numbers(dir, 10);
    ends(on("consumers", dir, &["add", "one"]), 0);
    ends(on("consumers", dir, &["add", "two", "--at", "7"]), 0);
    let refused = ends(on("purge", dir, &["--before", "5"]), 2);
    assert!(said(&refused).contains("gives up 5 messages"), "{}", said(&refused));
    ends(on("purge", dir, &["--before", "5", "--yes"]), 0);
    assert_eq!(Queue::open(dir).unwrap().stats().consumers, 2);
    assert_eq!(taken(dir, &["--consumer", "one", "-n", "1"]), "5\n");
    assert_eq!(taken(dir, &["--consumer", "two", "-n", "1"]), "7\n");
    ends(on("purge", dir, &["--yes"]), 0);
    let queue = Queue::open(dir).unwrap();
    assert_eq!(queue.consumer("one").unwrap().len() + queue.consumer("two").unwrap().len(), 0);
    queue.close().unwrap();
    // Without any consumer it is the queue's own whose messages go.
    let other = dir.join("other");
    numbers(&other, 10);
    ends(on("purge", &other, &["--yes"]), 0);
    ends(on("take", &other, &["-n", "1"]), 3);
}

#[test]
fn a_directory_without_a_queue_is_reported_and_stays_as_it_is() {
    let dir = crate::support::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let words: [&[&str]; 4] = [&["take"], &["purge"], &["consumers", "add"], &["consumers", "rm"]];
    for words in words {
        let call = |dir: &Path| {
            let mut call = on(words[0], dir, &words[1..]);
            call.args(words.get(1).map(|_| "name"));
            call
        };
        let output = ends(call(&missing), 5);
        assert!(said(&output).contains("does not exist"), "{}", said(&output));
        assert!(!missing.exists());
        // An empty directory, a file, a directory of somebody else's.
        let empty = dir.path().join("empty");
        std::fs::create_dir_all(&empty).unwrap();
        ends(call(&empty), 5);
        assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        ends(call(&file), 5);
        let other = dir.path().join("other");
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("letter"), "text").unwrap();
        ends(call(&other), 5);
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    }
}

#[test]
fn a_queue_that_somebody_has_names_its_holder() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let output = ends(on("take", dir.path(), &[]), 4);
    let pid = std::process::id();
    for part in [&format!("process {pid} since 20"), "`cat` and `tail` need no lock"] {
        assert!(said(&output).contains(part), "{}", said(&output));
    }
    let output = ends(on("put", dir.path(), &["--json", "Cargo.toml"]), 4);
    let said = said(&output);
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("{\"error\":{\"code\":\"locked\",\"message\":\""), "{last}");
    assert!(last.contains(&format!("\"pid\":{pid},\"since\":\"20")), "{last}");
    queue.close().unwrap();
}

#[test]
fn put_says_what_it_did_and_makes_all_of_it_durable() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let output = check(given(on("put", &queue, &["--print-seq"]), b"a\nb\n"), 0);
    assert_eq!(output.stdout, b"0\n1\n");
    check(given(on("put", &queue, &["--no-flush"]), b"c\n"), 0);
    let files = ["--framing", "raw", "Cargo.toml", "-"];
    check(given(on("put", &queue, &files), b"d"), 0);
    check(given(on("put", &queue, &["--batch", "--print-seq"]), b"e\nf\n"), 0);
    assert_eq!(taken(&queue, &["-n", "3"]), "a\nb\nc\n");
    let whole = std::fs::read_to_string("Cargo.toml").unwrap();
    assert_eq!(taken(&queue, &["--framing", "raw"]), format!("{whole}def"));
    // A file that is not there makes no queue.
    let none = dir.path().join("none");
    ends(on("put", &none, &["/no/such/file"]), 7);
    assert!(!none.exists());
}

#[test]
fn a_full_queue_refuses_waits_or_drops() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let limit = ["--max-bytes", "256KiB", "--arena-size", "64K"];
    let lines = vec![format!("{:0>1000}\n", 7); 1000].concat().into_bytes();
    let output = check(given(on("put", &queue, &limit), &lines), 6);
    assert!(said(&output).contains("is full"), "{}", said(&output));
    let kept = Queue::open(&queue).unwrap().len();
    assert!((1..1000).contains(&kept));
    assert!(
        said(&output).contains(&format!("put in before the failure: {kept} messages")),
        "{}",
        said(&output)
    );
    // From here on there is a consumer to whom it is reported.
    taken(&queue, &["-n", "1"]);
    let words = [&limit[..], &["--on-full", "drop-oldest"]].concat();
    check(given(on("put", &queue, &words), &lines), 0);
    // What was dropped is reported, and all else comes.
    let output = ends(on("take", &queue, &["--json"]), 1);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.starts_with("{\"gap\":{\"first\":1,\"last\":"), "{}", &text[..60]);
    assert!(text.lines().next().unwrap().ends_with("\"cause\":\"dropped\"}}"));
    assert!(said(&output).starts_with("{\"error\":{\"code\":\"gap\""), "{}", said(&output));
    let too_large = vec![b'x'; 1 << 20];
    check(given(on("put", &queue, &limit), &too_large), 6);
}

#[test]
fn a_wrong_command_line_is_reported_with_status_2() {
    for words in [
        &["no-such-command"][..],
        &["take"],
        &["take", "q", "--no-such-flag"],
        &["take", "q", "-n", "0"],
    ] {
        let output = ends(mmq(words), 2);
        assert!(said(&output).starts_with("error: "), "{}", said(&output));
    }
    let output = ends(mmq(["take", "--json"]), 2);
    assert!(said(&output).starts_with("{\"error\":{\"code\":\"usage\","), "{}", said(&output));
    let output = ends(mmq(["purg", "q"]), 2);
    assert!(said(&output).contains("'purge'"), "{}", said(&output));
}

#[test]
fn help_begins_with_examples() {
    let alone = ends(mmq([""; 0]), 0);
    assert_eq!(String::from_utf8(alone.stdout).unwrap().matches("\n  mmq ").count(), 8 - 1);
    let help = String::from_utf8(ends(mmq(["help", "take"]), 0).stdout).unwrap();
    assert!(help.find("mmq take q -n 1").unwrap() < help.find("Usage:").unwrap(), "{help}");
    let version = String::from_utf8(ends(mmq(["--version"]), 0).stdout).unwrap();
    assert!(version.contains(env!("CARGO_PKG_VERSION")) && version.contains("formats 3 and 4"));
}

#[test]
fn a_time_is_the_first_segment_that_was_begun_then_or_later() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let long = vec![7; 100_000];
    let fill = || queue.enqueue_batch(std::iter::repeat_n(&long, 50)).unwrap();
    fill();
    let before = SystemTime::now() + Duration::from_millis(2);
    eventually("the clock goes on", || SystemTime::now() > before);
    let time = SystemTime::now();
    fill();
    queue.close().unwrap();
    let text = times::rfc3339(time);
    ends(on("consumers", dir.path(), &["add", "all", "--at", "1d"]), 0);
    ends(on("consumers", dir.path(), &["add", "late", "--at", &text]), 0);
    ends(on("consumers", dir.path(), &["add", "none", "--at", "2999-01-01"]), 0);
    let queue = Queue::open(dir.path()).unwrap();
    let place = |name| queue.consumer(name).unwrap().iter().next().map(|next| next.unwrap().seq());
    assert_eq!((place("all"), place("none")), (Some(0), None));
    let late = place("late").unwrap();
    assert!((1..100).contains(&late), "{late}");
    let begun = |seq| match Inspector::open(dir.path()).unwrap().messages(Start::Seq(seq)).next() {
        Some(Ok(Seen::Message { segment_time, .. })) => segment_time,
        other => panic!("{other:?}"),
    };
    let time = times::parse(&text).unwrap();
    assert!(begun(late - 1) < time && begun(late) >= time);
}

#[test]
fn bench_prints_what_it_measured_and_leaves_nothing_behind() {
    let dir = crate::support::tempdir().unwrap();
    let words = ["--count", "50", "--durable", "--threads", "2,2"];
    let output = ends(on("bench", dir.path(), &words), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split_whitespace().take(4).collect()).collect();
    assert_eq!(rows, [["put", "1", "0", "50"], ["take", "0", "1", "50"], ["both", "2", "2", "50"]]);
    let new = dir.path().join("new");
    let output = ends(on("bench", &new, &["--count", "10", "--size", "1M", "--json"]), 0);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (json["size"].as_u64(), json["rows"][2]["messages"].as_u64()),
        (Some(1 << 20), Some(10))
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    ends(on("bench", dir.path(), &["--threads", "0,1"]), 2);
}

/// The checksum of a header.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(bytes) as u32
}

#[test]
fn files_of_a_later_version_are_refused() {
    let dir = crate::support::tempdir().unwrap();
    numbers(dir.path(), 3);
    let index = dir.path().join("index");
    let mut bytes = std::fs::read(&index).unwrap();
    bytes[8] = mmq::FORMAT_VERSION as u8 + 1;
    let sum = checksum(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&index, bytes).unwrap();
    let output = ends(on("take", dir.path(), &["--json"]), 6);
    assert!(said(&output).contains("\"code\":\"later_format\""), "{}", said(&output));
}

#[test]
fn damage_is_reported_in_its_place_and_ends_with_status_1() {
    let dir = crate::support::tempdir().unwrap();
    flipped::make(dir.path(), |number| format!("job number {number:08} of many").into());
    ends(on("consumers", dir.path(), &["add", "second"]), 0);
    let output = ends(on("take", dir.path(), &[]), 1);
    let words = said(&output);
    for gap in ["message 0", "message 7", "messages 1303 to 1304", "message 2999", "message 3999"] {
        assert_eq!(words.matches(&format!("mmq: {gap} will never come: damaged\n")).count(), 1);
    }
    assert!(words.ends_with("mmq: 6 messages will never come (5 gaps)\n"), "{words}");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64, flipped::WHOLE);
    let output = ends(on("take", dir.path(), &["--json", "--consumer", "second"]), 1);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("{\"gap\":{\"first\":0,\"last\":0,\"count\":1,\"cause\":\"damaged\"")
    );
    assert!(lines[7].starts_with("{\"gap\":{\"first\":7,"), "{}", lines[7]);
    // Work goes on past it too.
    ends(on("consumers", dir.path(), &["seek", "second", "3990"]), 0);
    let mut each = on("each", dir.path(), &["--consumer", "second", "-j", "2"]);
    each.args(["--", "true"]);
    assert!(said(&ends(each, 1)).contains("message 3999 will never come"));
}

#[test]
fn a_command_waits_for_the_lock_so_long_as_it_is_asked_to() {
    let commands: [(&str, &[&str]); 5] = [
        ("put", &[]),
        ("take", &["-n", "1"]),
        ("each", &["--", "true"]),
        ("consumers", &["add", "audit"]),
        ("purge", &["--yes"]),
    ];
    // All of them wait at the same time, each for a queue of its own.
    std::thread::scope(|scope| {
        for (command, words) in commands {
            scope.spawn(move || waits_for_the_lock(command, words));
        }
    });
}

fn waits_for_the_lock(command: &str, words: &[&str]) {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("q");
    numbers(&path, 2);
    let queue = Queue::open(&path).unwrap();
    let call = |wait: &[&str]| on(command, &path, &[wait, words].concat());
    let refused = said(&ends(call(&["--wait-lock", "0s"]), 4));
    assert!(refused.contains("--wait-lock"), "{command}: {refused}");
    ends(call(&["--wait-lock", "100ms"]), 4);
    let mut waiting = call(&["--wait-lock", "60s"]);
    let child = waiting.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut child = crate::run::Running(child);
    queue.close().unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0), "{command}");
}

#[test]
fn spool_and_forward_wait_for_the_lock_too() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("q");
    let name = path.to_str().unwrap();
    let mut calls = vec![["spool", "Cargo.toml", name].to_vec()];
    if cfg!(feature = "redis") {
        calls.push(["forward", name, "redis://127.0.0.1:1", "--key", "k"].to_vec());
    }
    let queue = Queue::open(&path).unwrap();
    for words in calls {
        let call = |wait: &[&str]| mmq([&words, wait].concat());
        let refused = said(&ends(call(&["--wait-lock", "0s"]), 4));
        assert!(refused.contains("--wait-lock waits for it"), "{refused}");
    }
    queue.close().unwrap();
    ends(mmq(["spool", "Cargo.toml", name, "--wait-lock"]), 0);
}

#[test]
fn a_signal_ends_the_wait_for_the_lock() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("q");
    numbers(&path, 1);
    let queue = Queue::open(&path).unwrap();
    let mut take = on("take", &path, &["--wait-lock"]);
    let mut child = crate::run::Running(take.stderr(std::process::Stdio::null()).spawn().unwrap());
    let pid = rustix::process::Pid::from_child(&child.0);
    eventually("it catches signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << 14 != 0
    });
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(143));
    assert_eq!(queue.len(), 1);
}
