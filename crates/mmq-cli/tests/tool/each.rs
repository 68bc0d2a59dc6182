//! `each`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mmq::Queue;
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Running, check, ends, given, on, said};
use crate::support::{Random, eventually, rounds, seed, within};

pub(crate) fn jobs(dir: &Path, messages: impl IntoIterator<Item = String>) {
    let queue = Queue::open(dir).unwrap();
    queue.enqueue_batch(messages).unwrap();
    queue.close().unwrap();
}

/// `mmq each DIR WORDS... -- sh -c SCRIPT`, in the directory of `log`.
pub(crate) fn each(dir: &Path, words: &[&str], script: &str) -> Command {
    let mut each = on("each", dir, words);
    each.args(["--", "sh", "-c", script]).current_dir(dir.parent().unwrap());
    each
}

pub(crate) fn log(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.parent().unwrap().join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn left(dir: &Path) -> u64 {
    Queue::open(dir).unwrap().len()
}

#[test]
fn each_message_goes_to_a_command_and_is_removed_when_it_succeeds() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, (0..5).map(|number| format!("job {number}")));
    let script = "read line; echo $MMQ_SEQ $MMQ_ATTEMPT $line >> log; echo $line done";
    let output = ends(each(&queue, &[], script), 0);
    let all = |what: fn(u64) -> String| (0..5).map(what).collect::<Vec<_>>();
    assert_eq!(log(&queue), all(|number| format!("{number} 1 job {number}")));
    let printed = all(|number| format!("job {number} done\n")).concat();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), printed);
    assert_eq!(left(&queue), 0);
    ends(each(&queue, &[], "exit 1"), 0);
    ends(each(&queue, &["--wait", "0"], "exit 1"), 3);
}

#[test]
fn a_message_that_fails_comes_again_so_often_and_then_goes_to_the_dead() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, dead) = (dir.path().join("q"), dir.path().join("dead"));
    jobs(&queue, ["good", "bad", "later", "good"].map(str::to_owned));
    // Any bytes, and more than a pipe holds.
    jobs(&queue, ["bad".to_owned() + &"\0\n".repeat(100_000)]);
    let script = "read line; echo $MMQ_SEQ $MMQ_ATTEMPT >> log
        case $line in bad*) exit 7;; later) test $MMQ_ATTEMPT = 2;; esac";
    let words = ["--retries", "2", "--dead", dead.to_str().unwrap()];
    let output = ends(each(&queue, &words, script), 1);
    let tried = ["0 1", "1 1", "1 2", "1 3", "2 1", "2 2", "3 1", "4 1", "4 2", "4 3"];
    assert_eq!(log(&queue), tried);
    assert!(said(&output).contains("message 1: exit status: 7 (attempt 3 of 3)"));
    assert!(said(&output).contains("2 messages went to "), "{}", said(&output));
    assert_eq!(left(&queue), 0);
    let dead = Queue::open(dead).unwrap();
    let dead_letter = || {
        let dead_letter = dead.dequeue().unwrap().unwrap();
        serde_json::from_slice::<serde_json::Value>(&dead_letter).unwrap()["text"].to_string()
    };
    assert_eq!(dead_letter(), "\"bad\"");
    assert!(
        dead_letter()
            == format!("{:?}", "bad".to_owned() + &"\0\n".repeat(100_000))
                .replace("\\0", "\\u0000")
    );
}

#[test]
fn without_a_queue_for_the_dead_they_stay_and_the_others_are_done() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["bad", "good", "bad", "good"].map(str::to_owned));
    let script = "read line; echo $MMQ_SEQ >> log; test $line = good";
    let output = ends(each(&queue, &["--retries", "0", "--json"], script), 1);
    assert_eq!(log(&queue), ["0", "1", "2", "3"]);
    let last = said(&output).lines().last().unwrap().to_owned();
    assert!(last.starts_with("{\"error\":{\"code\":\"given_up\",\"message\":\"2 messages stay"));
    let queue = Queue::open(&queue).unwrap();
    assert_eq!((queue.len(), queue.peek().unwrap().unwrap().seq()), (2, 0));
}

/// Kept as a whole, these would be more than a run may keep.
#[test]
fn however_much_has_failed_the_others_are_done() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["bad ".repeat(9 << 20), "bad ".repeat(9 << 20), "good".to_owned()]);
    let output = ends(each(&queue, &["--retries", "0"], "test $MMQ_SEQ = 2"), 1);
    assert!(said(&output).contains("2 messages stay in the queue"), "{}", said(&output));
    assert_eq!(left(&queue), 2);
}

#[test]
fn a_command_that_is_not_there_removes_nothing() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["one".to_owned()]);
    let output = ends(on("each", &queue, &["--", "/no/such/command"]), 7);
    assert!(said(&output).contains("cannot run \"/no/such/command\""), "{}", said(&output));
    assert_eq!(left(&queue), 1);
    ends(on("each", &queue, &[]), 2);
}

#[test]
fn so_many_commands_run_at_a_time() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["a", "b"].map(str::to_owned));
    check(crate::support::command("mkfifo").arg(dir.path().join("fifo")).output().unwrap(), 0);
    // Each of the two waits for the other.
    let script = "if [ $MMQ_SEQ = 0 ]; then read line < fifo; else echo > fifo; fi";
    let both = each(&queue, &["-j", "2"], script);
    within(Duration::from_secs(60), || ends(both, 0));
    assert_eq!(left(&queue), 0);
}

#[test]
fn a_first_signal_ends_each_after_the_command_at_hand() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = crate::support::tempdir().unwrap();
        let queue = dir.path().join("q");
        jobs(&queue, ["a", "b"].map(str::to_owned));
        check(crate::support::command("mkfifo").arg(dir.path().join("fifo")).output().unwrap(), 0);
        let script = "echo $MMQ_SEQ >> log; read line < fifo";
        let mut child = each(&queue, &[], script).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the command runs", || log(&queue) == ["0"]);
        kill_process(Pid::from_child(&child), signal).unwrap();
        // It goes on: the signal was not for it.
        fs::write(dir.path().join("fifo"), "\n").unwrap();
        let ended = within(Duration::from_secs(60), move || child.wait().unwrap());
        assert_eq!(ended.code(), Some(status));
        assert_eq!(log(&queue), ["0"]);
        assert_eq!(left(&queue), 1);
    }
}

#[test]
fn each_follows_a_queue_that_others_put_into() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["bad".to_owned()]);
    let script = "read line; echo $line >> log; test $line != bad";
    let child =
        each(&queue, &["-f", "--retries", "1"], script).stderr(Stdio::null()).spawn().unwrap();
    let child = Running(child);
    eventually("the first one has failed", || log(&queue) == ["bad", "bad"]);
    for number in 0..3 {
        let text = format!("job{number}");
        check(given(on("put", &queue, &[]), text.as_bytes()), 0);
        eventually("it is done", || log(&queue).last() == Some(&text));
    }
    // What has failed too often was not tried again.
    assert_eq!(log(&queue), ["bad", "bad", "job0", "job1", "job2"]);
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    let mut child = child;
    assert_eq!(child.0.wait().unwrap().code(), Some(143));
    assert_eq!(left(&queue), 1);
}

#[test]
fn sigkill_of_each_loses_nothing() {
    let mut random = Random::new(seed("sigkill of each"));
    for _ in 0..rounds(2, 6) {
        let dir = crate::support::tempdir().unwrap();
        let queue = dir.path().join("q");
        let (messages, dead) = (60, dir.path().join("dead"));
        jobs(&queue, (0..messages).map(|number| format!("job {number}")));
        // Every seventh fails; the command says first that it has begun, and then what it has done.
        let script = "read line; echo begin $MMQ_SEQ >> log
            test $((MMQ_SEQ % 7)) != 3 || exit 1; echo done $line >> log";
        // A death counts as a failure of the message that was alone with a command.
        let words = ["-j", "2", "--retries", "8", "--dead", dead.to_str().unwrap()];
        let mut killed = 0;
        loop {
            let before = log(&queue).len();
            let mut child =
                Running(each(&queue, &words, script).stderr(Stdio::null()).spawn().unwrap());
            let until = before + random.size(1..=30);
            let ended = loop {
                if let Some(status) = child.0.try_wait().unwrap() {
                    break Some(status);
                }
                if log(&queue).len() >= until {
                    child.0.kill().unwrap();
                    child.0.wait().unwrap();
                    break None;
                }
                std::thread::yield_now();
            };
            match ended {
                None => killed += 1,
                // Somebody that an earlier run has started may have the lock no more: it is freed
                // with the one that took it.
                Some(status) => {
                    assert!([0, 1].contains(&status.code().unwrap()), "{status:?}");
                    break;
                }
            }
        }
        let log = log(&queue);
        let dead = Queue::open(dead).unwrap();
        let text = |dead_letter: &[u8]| -> serde_json::Value {
            serde_json::from_slice(dead_letter).unwrap()
        };
        let buried: Vec<String> = dead
            .iter()
            .map(|dead_letter| text(&dead_letter.unwrap())["text"].as_str().unwrap().to_owned())
            .collect();
        for number in 0..messages {
            let done = log.iter().filter(|line| **line == format!("done job {number}")).count();
            let dead = buried.iter().filter(|text| **text == format!("job {number}")).count();
            let (did, other) = if number % 7 == 3 { (dead, done) } else { (done, dead) };
            // Killed between the work and the acknowledgement, it comes again.
            assert!(did >= 1 && did <= 1 + killed && other == 0, "{number}: {did}, {other}");
        }
        assert_eq!(left(&queue), 0);
    }
}
