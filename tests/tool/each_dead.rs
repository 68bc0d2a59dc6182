//! What `each` does with messages whose command fails: attempts that outlive it, delays, time
//! limits, letters that say why, and `redrive`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mmq::Queue;
use serde_json::Value;

use crate::looking::text;
use crate::run::{check, ends, given, on, said};

fn jobs(dir: &Path, lines: &str) {
    check(given(on("put", dir, &[]), lines.as_bytes()), 0);
}

/// `mmq each DIR WORDS... -- sh -c SCRIPT`, in the directory of `log`.
fn each(dir: &Path, words: &[&str], script: &str) -> std::process::Command {
    let mut each = on("each", dir, words);
    each.args(["--", "sh", "-c", script]).current_dir(dir.parent().unwrap());
    each
}

fn log(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.parent().unwrap().join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn letters(dead: &Path) -> Vec<Value> {
    let lines = text("cat", dead, &[]);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_message_whose_command_ends_each_every_time_goes_to_the_dead() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, dead) = (dir.path().join("q"), dir.path().join("dead"));
    jobs(&queue, "poison\ngood\n");
    let words = ["--retries", "2", "--dead", dead.to_str().unwrap()];
    let script = "read line; echo $MMQ_SEQ $MMQ_ATTEMPT >> log
        test $line = good || kill -9 $PPID";
    let mut died = 0;
    let last = loop {
        let output = each(&queue, &words, script).output().unwrap();
        if output.status.code().is_some() {
            break output;
        }
        died += 1;
        assert!(died <= 3, "{:?}", log(&queue));
    };
    assert_eq!(last.status.code(), Some(1), "{}", said(&last));
    assert_eq!(log(&queue), ["0 1", "0 2", "0 3", "1 1"]);
    let letter = &letters(&dead)[0];
    assert_eq!((&letter["text"], &letter["seq"]), (&"poison".into(), &0.into()));
    assert!(letter["reason"].as_str().unwrap().contains("ended"), "{letter}");
    assert_eq!(Queue::open(&queue).unwrap().len(), 0);
}

#[test]
fn a_letter_says_where_from_and_why_and_redrive_puts_its_message_back() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, dead) = (dir.path().join("q"), dir.path().join("dead"));
    jobs(&queue, "good\nbad\n");
    let bytes = Queue::open(&queue).unwrap();
    bytes.enqueue(b"\xff\0bytes").unwrap();
    bytes.close().unwrap();
    let words = ["--retries", "1", "--dead", dead.to_str().unwrap()];
    let script = "read line; test \"$line\" = good && exit; echo first >&2
        echo why it failed >&2; exit 7";
    let output = ends(each(&queue, &words, script), 1);
    assert!(said(&output).contains("why it failed\n"), "{}", said(&output));
    let found = letters(&dead);
    let letter = &found[0];
    assert_eq!(letter["queue"], queue.to_str().unwrap());
    assert_eq!((&letter["seq"], &letter["attempts"]), (&1.into(), &2.into()));
    assert_eq!(letter["reason"], "exit status: 7");
    assert_eq!(letter["stderr"], "why it failed");
    assert_eq!(letter["text"], "bad");
    assert_eq!((found.len(), &found[1]["base64"]), (2, &"/wBieXRlcw==".into()));
    // One that no `each` has put there goes as it is.
    jobs(&dead, "{\"no\":\"letter\"}\n");
    let to = [queue.to_str().unwrap()];
    let one = ends(on("redrive", &dead, &[to[0], "-n", "1"]), 0);
    assert!(said(&one).contains("put back: 1 message"), "{}", said(&one));
    ends(on("redrive", &dead, &to), 0);
    let queue = Queue::open(&queue).unwrap();
    let back = queue.iter().map(|message| message.unwrap().to_vec()).collect::<Vec<_>>();
    assert_eq!(back, [&b"bad"[..], b"\xff\0bytes", b"{\"no\":\"letter\"}"]);
    queue.close().unwrap();
    ends(on("redrive", &dead, &to), 3);
    ends(on("redrive", &dead, &[dir.path().join("none").to_str().unwrap()]), 5);
}

#[test]
fn a_message_waits_for_its_delay_and_others_pass_it() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, "late\nother\n");
    let script = "echo $MMQ_SEQ $MMQ_ATTEMPT >> log; read line; test $line$MMQ_ATTEMPT != late1 -a $line$MMQ_ATTEMPT != late2";
    let begun = Instant::now();
    ends(each(&queue, &["--backoff", "100ms"], script), 0);
    assert!(begun.elapsed() >= Duration::from_millis(300), "100 ms, and then twice as long");
    assert_eq!(log(&queue), ["0 1", "1 1", "0 2", "0 3"]);
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_all_that_it_has_started() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    // More than a pipe holds, which the command does not read.
    jobs(&queue, &("x".repeat(200_000) + "\n"));
    let words = ["--timeout", "300ms", "--retries", "0"];
    let output = ends(each(&queue, &words, "sleep 600 & echo $! > child; sleep 600"), 1);
    let told = said(&output);
    assert!(told.contains("message 0: killed: it took longer than 300 ms"), "{told}");
    let child = fs::read_to_string(dir.path().join("child")).unwrap();
    crate::support::eventually("its child is gone", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
}
