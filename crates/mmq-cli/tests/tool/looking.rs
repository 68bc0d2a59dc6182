//! Commands that show messages and what is missing, and leave them where they are: `cat`, `tail`,
//! `gaps`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use mmq::{Options, Queue};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::run::{Running, check, ends, given, mmq, on, said};
use crate::support::{copy_directory, eventually, itself, within};

/// Bytes and times of every file. (A directory has none.)
pub(crate) fn files(dir: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let listed = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let listed = listed.map(|file| {
        let (name, about) = (file.file_name().into_string().unwrap(), file.metadata().unwrap());
        let bytes = if about.is_dir() { Vec::new() } else { fs::read(file.path()).unwrap() };
        (name, (bytes, about.modified().unwrap()))
    });
    listed.collect()
}

pub(crate) fn text(command: &str, dir: &Path, words: &[&str]) -> String {
    String::from_utf8(ends(on(command, dir, words), 0).stdout).unwrap()
}

pub(crate) fn json(command: &str, dir: &Path, words: &[&str]) -> Vec<Value> {
    let words = [words, &["--json"]].concat();
    text(command, dir, &words).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn stat(dir: &Path) -> Value {
    let mut all = json("stat", dir, &[]);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub(crate) fn stop(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Not a test: the process that holds a queue with `0` to `9` until it is killed.
#[test]
#[ignore = "started by another test"]
fn the_child_that_holds_a_queue() {
    let queue = Queue::open(std::env::var("MMQ_TEST_DIR").unwrap()).unwrap();
    for number in 0..10 {
        queue.enqueue(number.to_string()).unwrap();
    }
    queue.dequeue().unwrap().unwrap();
    println!("holds it");
    loop {
        std::thread::park();
    }
}

/// A queue of each kind: its state, and its directory. The first is held as long as the last lives.
pub(crate) fn kinds(dir: &Path) -> (Queue, [(&'static str, PathBuf); 4]) {
    let [owned, closed, left, cut] = ["owned", "closed", "left", "cut"].map(|name| dir.join(name));
    let held = Queue::open(&owned).unwrap();
    let shut = Queue::open(&closed).unwrap();
    for queue in [&held, &shut] {
        queue.enqueue_batch((0..10).map(|number| number.to_string())).unwrap();
        queue.dequeue().unwrap().unwrap();
    }
    shut.close().unwrap();
    let mut child = itself("looking::the_child_that_holds_a_queue")
        .env("MMQ_TEST_DIR", &left)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("holds it")));
    child.kill().unwrap();
    child.wait().unwrap();
    copy_directory(&owned, &cut);
    (held, [("owned", owned), ("closed", closed), ("left", left), ("cut", cut)])
}

#[test]
fn queues_of_every_kind_are_shown_and_no_byte_changes() {
    let dir = crate::support::tempdir().unwrap();
    let (held, kinds) = kinds(dir.path());
    for (state, dir) in &kinds {
        let before = files(dir);
        let figures = stat(dir);
        assert_eq!(figures["schema"], 1);
        assert_eq!(figures["state"], *state);
        assert_eq!(figures["path"], dir.to_str().unwrap());
        // Behind a power cut numbers are passed over that may have been given out.
        let is_cut = *state == "cut";
        assert!(figures["next_seq"] == 10 || is_cut, "{figures}");
        let shown = |command, words: &[&str]| {
            let output = ends(on(command, dir, words), 0);
            String::from_utf8(output.stdout).unwrap()
        };
        let owner = &figures["owner"];
        if *state == "owned" {
            assert_eq!(owner["pid"], std::process::id());
            assert!(owner["since"].as_str().unwrap().ends_with('Z'));
        } else {
            assert_eq!(*owner, Value::Null);
        }
        assert_eq!(figures.get("found_behind").is_some(), is_cut);
        let place = figures["consumers"][0]["seq"].as_u64().unwrap();
        assert!(place == 1 || is_cut, "{figures}");
        let waiting: String = (place..10).map(|number| format!("{number}\n")).collect();
        assert_eq!(shown("cat", &[]), waiting);
        assert_eq!(shown("cat", &["--count"]), format!("{}\n", 10 - place));
        assert_eq!(shown("cat", &["--all"]), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        assert_eq!(shown("tail", &["-n", "2"]), "8\n9\n");
        assert_eq!(shown("tail", &[]).lines().count(), 10);
        assert!(text("stat", dir, &[]).contains("10 comes next") != is_cut);
        let metrics = text("stat", dir, &["--prometheus", "--label", "q"]);
        assert!(metrics.contains("mmq_up{queue=\"q\"} 1\n"), "{metrics}");
        // Behind a power cut an opening confirms nothing: the files may be a copy that no disk has.
        // Numbers that were only reserved are no messages.
        let undurable = if *state == "closed" { 0 } else { 10 };
        let wanted = format!("mmq_undurable_messages{{queue=\"q\"}} {undurable}\n");
        assert!(metrics.contains(&wanted), "{state}: {metrics}");
        assert_eq!(json("consumers", dir, &[])[0]["seq"], place);
        assert!(text("consumers", dir, &[]).starts_with("(the queue's own)"));
        assert_eq!(json("gaps", dir, &["--deep"]).len(), usize::from(is_cut));
        assert!(files(dir) == before, "a look changed a file of the {state} queue");
    }
    let empty = Options::new().open(dir.path().join("new")).unwrap();
    assert_eq!(number(&stat(empty.path())["messages"]), 0);
    assert_eq!(text("cat", empty.path(), &[]) + &text("tail", empty.path(), &[]), "");
    assert_eq!(held.len(), 9);
}

#[test]
fn cat_shows_what_it_is_asked_for() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    let queue = Queue::open(dir).unwrap();
    for message in [&b"zero"[..], b"one", b"two\x1b", b"\xff\0three", b"", b"five"] {
        queue.enqueue(message).unwrap();
    }
    queue.consumer("one").unwrap().skip().unwrap();
    let cat = |words: &[&str]| text("cat", dir, words);
    assert_eq!(text("peek", dir, &["-n", "1"]), "zero\n");
    assert_eq!(cat(&["--from", "4"]), "\nfive\n");
    assert_eq!(cat(&["--from", "1", "--to", "2"]), "one\n");
    assert_eq!(cat(&["--from", "last"]) + &cat(&["--to", "first"]), "");
    assert_eq!(cat(&["--consumer", "one", "--to", "+1"]), "one\n");
    assert_eq!(cat(&["--consumer", "one", "--from", "-1", "-n", "1"]), "zero\n");
    assert_eq!(cat(&["--from", "1h", "-c"]), "6\n");
    assert_eq!(cat(&["--from", "2100-01-01", "-c"]), "0\n");
    assert_eq!(cat(&["--grep", "e", "--count"]), "4\n");
    assert_eq!(cat(&["--grep", "e", "-n", "2"]), "zero\none\n");
    assert_eq!(cat(&["--head", "2", "--to", "2"]), "ze\non\n");
    assert_eq!(cat(&["-0", "--to", "2"]), "zero\0one\0");
    let lines = json("cat", dir, &["--from", "3", "-n", "2"]);
    assert_eq!((&lines[0]["base64"], &lines[0]["len"]), (&"/wB0aHJlZQ==".into(), &7.into()));
    assert_eq!((&lines[1]["text"], &lines[1]["seq"]), (&"".into(), &4.into()));
    assert!(lines[0]["segment_time"].as_str().unwrap().ends_with('Z'));
    let head = &json("cat", dir, &["--head", "1", "-n", "1"])[0];
    assert_eq!((&head["text"], &head["len"]), (&"z".into(), &4.into()));
    assert_eq!(cat(&["--decode", "cat", "-n", "2"]), "zero\none\n");
    ends(on("cat", dir, &["--from", "7"]), 5);
    ends(on("cat", dir, &["--consumer", "two"]), 5);
    ends(on("cat", dir, &["--consumer", "one", "--all"]), 2);
    // Whose reader has read enough ends quietly.
    queue.enqueue_batch((0..9).map(|_| vec![b'x'; 1 << 20])).unwrap();
    let mut child =
        on("cat", dir, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 4]).unwrap();
    let output = check(child.wait_with_output().unwrap(), 0);
    assert_eq!(said(&output), "");
}

#[test]
fn what_was_dropped_is_reported_as_take_reports_it() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let limit = ["--max-bytes", "256KiB", "--arena-size", "64K", "--on-full", "drop-oldest"];
    check(given(on("put", &queue, &limit), b"first\nsecond\n"), 0);
    ends(on("take", &queue, &["-n", "1"]), 0);
    let lines = vec![format!("{:0>1000}\n", 7); 1000].concat().into_bytes();
    check(given(on("put", &queue, &limit), &lines), 0);
    let seen = ends(on("cat", &queue, &["--json"]), 1);
    assert!(said(&seen).starts_with("{\"error\":{\"code\":\"gap\""), "{}", said(&seen));
    let seen = String::from_utf8(seen.stdout).unwrap();
    let taken = String::from_utf8(ends(on("take", &queue, &["--json"]), 1).stdout).unwrap();
    assert!(seen.lines().next().unwrap().contains("\"dropped\""), "{seen}");
    assert!(seen.lines().last().unwrap().contains("\"segment_time\":\"20"), "{seen}");
    assert_eq!(seen, taken);
}

#[test]
fn what_was_too_old_is_reported_as_take_reports_it() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("q");
    let options = mmq::Options::new().arena_size(4096).max_bytes(256 << 10);
    let queue = options.open(&path).unwrap();
    queue.dequeue().unwrap();
    queue.enqueue_batch((0..20).map(|number| vec![number; 4000])).unwrap();
    queue.close().unwrap();
    let begun = Instant::now();
    eventually("the segments are too old", || begun.elapsed() > Duration::from_millis(5));
    options.max_age(Duration::from_millis(5)).open(&path).unwrap().close().unwrap();
    let seen = String::from_utf8(ends(on("cat", &path, &["--json"]), 1).stdout).unwrap();
    let taken = String::from_utf8(ends(on("take", &path, &["--json"]), 1).stdout).unwrap();
    assert!(seen.contains("\"cause\":\"expired\""), "{seen}");
    assert_eq!(seen, taken);
}

#[test]
fn tail_follows_what_is_put_in_and_ends_by_a_signal() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch((0..20).map(|number| number.to_string())).unwrap();
    for (words, first) in [(&["-f"][..], 10), (&["-f", "--from", "last", "--interval", "5ms"], 20)]
    {
        let mut tail = on("tail", dir.path(), words);
        let mut child = Running(tail.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let end = queue.stats().next_seq;
        for number in if first == 10 { 10..end } else { end..end } {
            assert_eq!(lines.next().unwrap().unwrap(), number.to_string());
        }
        if first == 20 {
            // Nothing tells that it has begun but what it shows, so numbers go on until it does.
            let mut put = end;
            let (sender, shown) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
            });
            let seen = loop {
                queue.enqueue(put.to_string()).unwrap();
                put += 1;
                if let Ok(line) = shown.recv_timeout(std::time::Duration::from_millis(20)) {
                    break line;
                }
            };
            assert!((end..put).contains(&seen.parse().unwrap()), "{seen}");
        } else {
            for number in end..end + 5 {
                queue.enqueue(number.to_string()).unwrap();
                assert_eq!(lines.next().unwrap().unwrap(), number.to_string());
            }
        }
        stop(&child.0);
        let status = within(std::time::Duration::from_secs(60), move || child.0.wait().unwrap());
        assert_eq!(status.code(), Some(130));
    }
    // A reader that goes ends it, also while nothing comes.
    let mut tail = on("tail", dir.path(), &["-f", "-n", "1"]);
    let mut child = Running(tail.stdout(Stdio::piped()).spawn().unwrap());
    let mut first = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let status = within(std::time::Duration::from_secs(60), move || child.0.wait().unwrap());
    assert_eq!(status.code(), Some(0));
    ends(on("tail", dir.path(), &["-n", "1", "--from", "3"]), 2);
}

#[test]
fn tail_stops_at_what_is_durable() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue("kept").unwrap();
    queue.flush().unwrap();
    queue.enqueue("not yet").unwrap();
    assert_eq!(text("tail", dir.path(), &["--durable"]), "kept\n");
    assert_eq!(text("tail", dir.path(), &[]), "kept\nnot yet\n");
    let mut tail = on("tail", dir.path(), &["-f", "--durable"]);
    let mut child = Running(tail.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "kept");
    queue.flush().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "not yet");
}

#[test]
fn what_cannot_be_looked_at_is_reported() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    let [missing, empty, file, other, later] =
        ["missing", "empty", "file", "other", "later"].map(|name| dir.join(name));
    fs::create_dir(&empty).unwrap();
    fs::write(&file, "text").unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter"), "text").unwrap();
    for command in ["stat", "cat", "tail", "consumers", "gaps"] {
        for (path, code) in [
            (&missing, "no_queue"),
            (&empty, "no_queue"),
            (&file, "not_a_queue"),
            (&other, "not_a_queue"),
        ] {
            let output = ends(on(command, path, &["--json"]), 5);
            let error: Value = serde_json::from_str(said(&output).lines().last().unwrap()).unwrap();
            assert_eq!(error["error"]["code"], code, "{command} {error}");
            assert_eq!(output.stdout, b"");
        }
    }
    check(given(on("put", &later, &[]), b"x\n"), 0);
    // Of several queues those that can be read are shown.
    let output =
        ends(std::mem::replace(mmq(["stat", "--json"]).args([&missing, &later]), mmq([""; 0])), 5);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
}

#[test]
fn gaps_are_reported_with_their_causes() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    queue.enqueue_batch((0..100).map(|number| format!("{number:0>1000}"))).unwrap();
    queue.close().unwrap();
    assert_eq!(text("gaps", dir.path(), &["--deep"]), "");
    // Bytes of a message in the middle of a segment are others.
    let segments = crate::support::segments(dir.path());
    let mut bytes = fs::read(&segments[0]).unwrap();
    let wanted = format!("{:0>1000}", 7);
    let at = bytes.windows(1000).position(|part| part == wanted.as_bytes()).unwrap();
    bytes[at + 500] ^= 1;
    fs::write(&segments[0], bytes).unwrap();
    assert_eq!(text("gaps", dir.path(), &[]), "", "nobody has met it");
    let reported = ends(on("gaps", dir.path(), &["--deep"]), 1);
    assert_eq!(reported.stdout, b"message 7 will never come: damaged\n");
    let reported = ends(on("gaps", dir.path(), &["--deep", "--json"]), 1);
    let line = "{\"gap\":{\"first\":7,\"last\":7,\"count\":1,\"cause\":\"damaged\"}}\n";
    assert_eq!(String::from_utf8(reported.stdout).unwrap(), line);
    assert!(said(&ends(on("tail", dir.path(), &["-n", "95"]), 1)).contains("message 7 will never"));
    assert_eq!(text("tail", dir.path(), &["-n", "92"]).lines().count(), 92);
}
