//! What an operator stumbled over once.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::run::{Running, check, ends, given, mmq, on};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A queue of so many numbered lines.
fn queue_of(dir: &Path, count: u64) -> PathBuf {
    let queue = dir.join("q");
    let lines: String = (0..count).map(|number| format!("{number}\n")).collect();
    check(given(on("put", &queue, &[]), lines.as_bytes()), 0);
    queue
}

#[test]
fn purge_keeps_the_newest() {
    let dir = crate::support::tempdir().unwrap();
    let queue = queue_of(dir.path(), 10);
    ends(on("purge", &queue, &["--before", "-3", "--yes"]), 0);
    assert_eq!(text(&ends(on("take", &queue, &[]), 0).stdout), "7\n8\n9\n");
}

#[test]
fn gaps_shows_what_is_yet_to_be_reported_to_consumers() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("q");
    let options = mmq::Options::new().max_bytes(1 << 20).on_full(mmq::OnFull::DropOldest);
    let queue = options.open(&path).unwrap();
    (0..3000).for_each(|_| assert!(queue.enqueue([1; 1000]).is_ok()));
    let dropped = queue.stats().dropped;
    assert!(dropped > 0);
    let show_them = |whose: &str| {
        for words in [&[][..], &["--deep"]] {
            let reported = text(&ends(on("gaps", &path, words), 0).stdout);
            let wanted = format!("messages 0 to {} will never come: dropped", dropped - 1);
            assert!(reported.starts_with(&wanted), "{whose}: {reported}");
        }
    };
    show_them("those of the first consumer to come, in use");
    let figures = text(&ends(on("stat", &path, &["--prometheus"]), 0).stdout);
    let line = figures.lines().find(|line| line.starts_with("mmq_given_up_messages_total{"));
    assert!(line.unwrap().ends_with(&format!(" {dropped}")), "{line:?}");
    queue.close().unwrap();
    show_them("those of the first consumer to come, closed");
    let queue = options.open(&path).unwrap();
    queue.consumer("slow").unwrap();
    show_them("those of a slow consumer");
}

#[test]
fn a_dump_that_was_cut_short_is_reported() {
    let dir = crate::support::tempdir().unwrap();
    let queue = queue_of(dir.path(), 100);
    let dump = ends(on("dump", &queue, &[]), 0).stdout;
    let lines: Vec<&[u8]> = dump.split_inclusive(|byte| *byte == b'\n').collect();
    let loaded = given(on("load", &dir.path().join("cut"), &[]), &lines[..50].concat());
    assert!(text(&check(loaded, 1).stderr).contains("ends with message 48"));
    let twice = [&lines[..3], &lines[2..]].concat().concat();
    let loaded = given(on("load", &dir.path().join("twice"), &[]), &twice);
    assert!(text(&check(loaded, 6).stderr).contains("line 4"));
    check(given(on("load", &dir.path().join("whole"), &[]), &dump), 0);
    // Cut within a line: nothing is left that could pass for the queue.
    let half = dir.path().join("half");
    check(given(on("load", &half, &[]), &dump[..dump.len() / 2 - 3]), 6);
    assert!(!half.exists());
}

#[test]
fn verify_finds_an_index_that_was_cut() {
    let dir = crate::support::tempdir().unwrap();
    let queue = queue_of(dir.path(), 10);
    ends(on("verify", &queue, &[]), 0);
    let index = queue.join("index");
    let whole = std::fs::read(&index).unwrap();
    for len in [64, 4096, 8192, 12_288, 40_959] {
        std::fs::write(&index, &whole[..len]).unwrap();
        let reported = text(&ends(on("verify", &queue, &["--quick"]), 1).stdout);
        assert!(reported.contains(&format!("it has {len} bytes")), "{reported}");
    }
    std::fs::write(&index, [&whole[..64], &vec![0; whole.len() - 64][..]].concat()).unwrap();
    ends(on("verify", &queue, &[]), 1);
}

#[test]
fn nothing_is_made_within_a_queue() {
    let dir = crate::support::tempdir().unwrap();
    let queue = queue_of(dir.path(), 3);
    let within = queue.join("a/b");
    let within = within.to_str().unwrap();
    ends(on("copy", &queue, &[within]), 2);
    ends(on("salvage", &queue, &["--to", within]), 2);
    ends(on("each", &queue, &["--dead", within, "--", "true"]), 2);
    assert!(!queue.join("a").exists());
}

#[test]
fn a_usage_error_for_programs_says_all_of_it() {
    let output = ends(mmq(["stat", "--json"]), 2);
    assert!(text(&output.stderr).contains("<DIR>"), "{}", text(&output.stderr));
}

/// A reader that never began is the one to tell of.
#[test]
fn a_queue_that_nobody_has_read_shows_its_own_consumer_and_an_age() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let program = ::mmq::Queue::open(&queue).unwrap();
    program.enqueue_batch(["0", "1", "2"]).unwrap();
    program.close().unwrap();
    let line = text(&ends(on("stat", &queue, &["--json"]), 0).stdout);
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    let consumer = &object["consumers"][0];
    assert_eq!((&consumer["name"], &consumer["messages"]), (&"".into(), &3.into()));
    assert!(consumer["oldest_age_seconds"].is_number(), "{line}");
    let listed = text(&ends(on("consumers", &queue, &["--json"]), 0).stdout);
    assert!(listed.starts_with("{\"name\":\"\",\"seq\":0,\"messages\":3,"), "{listed}");
    let shown = text(&ends(on("stat", &queue, &[]), 0).stdout);
    assert!(shown.contains("3 messages, the oldest at most "), "{shown}");
    assert!(shown.contains("nobody has read yet"), "{shown}");
    let figures = text(&ends(on("stat", &queue, &["--prometheus"]), 0).stdout);
    assert!(figures.contains("mmq_consumer_messages{"), "{figures}");
}

#[test]
fn none_of_the_messages_is_none() {
    let dir = crate::support::tempdir().unwrap();
    let queue = queue_of(dir.path(), 3);
    for command in ["cat", "tail"] {
        let shown = ends(on(command, &queue, &["-n", "0"]), 0);
        assert_eq!((text(&shown.stdout), text(&shown.stderr)), (String::new(), String::new()));
    }
    assert_eq!(text(&ends(on("cat", &queue, &["-n", "0", "--count"]), 0).stdout), "0\n");
    let mut follows = on("tail", &queue, &["-f", "-n", "0"]);
    let mut follows = Running(follows.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(follows.0.stdout.take().unwrap()).lines();
    // It may not have looked at the queue yet: then it begins behind these, too.
    let (mut put, mut next) = (3, None);
    std::thread::scope(|scope| {
        let shown = scope.spawn(|| lines.next().unwrap().unwrap());
        while !shown.is_finished() {
            check(given(on("put", &queue, &[]), format!("{put}\n").as_bytes()), 0);
            put += 1;
        }
        next = Some(shown.join().unwrap());
    });
    assert!(next.unwrap().parse::<u64>().unwrap() >= 3);
}

/// A terminal obeys U+009B as it obeys an escape.
#[test]
fn what_a_terminal_obeys_is_escaped_in_json_and_in_what_is_said() {
    let dir = crate::support::tempdir().unwrap();
    let evil = "a\x1b[31mb\u{9b}31mc\nd";
    let queue = dir.path().join(evil);
    check(given(on("put", &queue, &["--framing", "raw"]), evil.as_bytes()), 0);
    ends(on("consumers", &queue, &["add", "x\u{9b}y"]), 0);
    let is_tame = |bytes: &[u8]| {
        let text = text(bytes);
        text.lines().all(|line| !line.contains(char::is_control)) && text.is_ascii()
    };
    for command in ["cat", "tail", "stat", "consumers", "dump", "verify", "salvage"] {
        let output = ends(on(command, &queue, &["--json"]), 0);
        assert!(is_tame(&output.stdout) && is_tame(&output.stderr), "{command}: {output:?}");
    }
    let line = text(&ends(on("cat", &queue, &["--json"]), 0).stdout);
    assert!(line.contains("a\\u001b[31mb\\u009b31mc\\nd"), "{line}");
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["text"], evil);
    for command in ["stat", "consumers", "verify", "salvage"] {
        let output = on(command, &queue, &[]).stderr(Stdio::piped()).output().unwrap();
        let shown = if command == "salvage" { &[] } else { &output.stdout[..] };
        assert!(is_tame(shown) && is_tame(&output.stderr), "{command}: {output:?}");
    }
    let none = dir.path().join(format!("none{evil}"));
    for words in [&[][..], &["--json"]] {
        let output = ends(on("cat", &none, words), 5);
        assert!(is_tame(&output.stderr) && output.stderr.contains(&b'\\'), "{output:?}");
    }
    let usage = ends(on("cat", &queue, &["--from", evil]), 2);
    assert!(is_tame(&usage.stderr), "{usage:?}");
}

#[test]
fn a_new_consumer_begins_where_it_is_asked_to() {
    let dir = crate::support::tempdir().unwrap();
    let queue = queue_of(dir.path(), 10);
    let places = [
        ("first", Some(0)),
        ("last", Some(10)),
        ("7", Some(7)),
        ("10", Some(10)),
        ("+4", Some(4)),
        ("-3", Some(7)),
        ("-99", Some(0)),
        ("1h", Some(0)),
        ("0s", Some(10)),
        ("2020-01-01", Some(0)),
        ("2999-01-01T00:00Z", Some(10)),
        ("11", None),
        ("+11", None),
    ];
    for (name, (place, seq)) in places.into_iter().enumerate() {
        let name = format!("c{name}");
        let status = if seq.is_some() { 0 } else { 5 };
        ends(on("consumers", &queue, &["add", &name, "--at", place]), status);
        let listed = text(&ends(on("consumers", &queue, &["--json"]), 0).stdout);
        let mut objects =
            listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let found = objects.find(|object| object["name"] == name.as_str());
        assert_eq!(found.and_then(|object| object["seq"].as_u64()), seq, "{place}");
    }
    for place in ["oldest", "end", "", "1042x", "-"] {
        let usage = ends(on("consumers", &queue, &["add", "bad", "--at", place]), 2);
        assert!(text(&usage.stderr).contains("WHERE is one of: a sequence number"), "{place}");
    }
}

#[test]
fn a_directory_that_holds_no_queue_is_not_said_to_be_missing() {
    let dir = crate::support::tempdir().unwrap();
    for command in ["stat", "cat", "take", "purge"] {
        let said = text(&ends(on(command, dir.path(), &[]), 5).stderr);
        assert!(said.contains("holds no queue; `mmq put` makes one there"), "{command}: {said}");
    }
}

/// Nothing else tells that finished jobs run again.
#[test]
fn an_opening_says_that_the_index_was_lost_and_stat_before_it() {
    let dir = crate::support::tempdir().unwrap();
    for (damage, said) in [
        (None, "was missing: consumers and their places are lost"),
        (Some([7; 40_000]), "was damaged: consumers and their places may be lost"),
    ] {
        let queue = queue_of(&dir.path().join(format!("{}", damage.is_some())), 3);
        ends(on("take", &queue, &["-n", "2"]), 0);
        let index = queue.join("index");
        damage.map_or_else(|| fs::remove_file(&index), |bytes| fs::write(&index, bytes)).unwrap();
        if damage.is_none() {
            let shown = text(&ends(on("stat", &queue, &[]), 0).stdout);
            assert!(shown.contains("its index is missing or damaged"), "{shown}");
            assert!(shown.contains("no place is known"), "{shown}");
        }
        let first = ends(on("take", &queue, &["-n", "1"]), 0);
        assert!(text(&first.stderr).contains(said), "{}", text(&first.stderr));
        let second = ends(on("take", &queue, &["-n", "1"]), 0);
        assert_eq!(text(&second.stderr), "");
    }
}

#[test]
fn an_opening_that_takes_up_the_index_of_one_that_died_says_nothing() {
    let dir = crate::support::tempdir().unwrap();
    let queue = queue_of(&dir.path().join("q"), 3);
    ends(on("take", &queue, &["-n", "2"]), 0);
    fs::rename(queue.join("index"), queue.join("index.new")).unwrap();
    let rest = ends(on("take", &queue, &[]), 0);
    assert_eq!(
        (rest.stdout.iter().filter(|byte| **byte == b'\n').count(), &*rest.stderr),
        (1, &b""[..])
    );
    // One that is no index helps nobody.
    let queue = queue_of(&dir.path().join("other"), 3);
    fs::rename(queue.join("index"), queue.join("index.new")).unwrap();
    fs::write(queue.join("index.new"), [7; 40_000]).unwrap();
    assert!(text(&ends(on("take", &queue, &[]), 0).stderr).contains("was missing"));
}
