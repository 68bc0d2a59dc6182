//! What `each` does with messages whose command fails: attempts that outlive it, delays, time
//! limits, dead letters that say why, and `redrive`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mmq::Queue;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::each::{each, left, log};
use crate::looking::text;
use crate::run::{Running, check, ends, given, on, said};
use crate::support::{eventually, within};

fn jobs(dir: &Path, lines: &str) {
    check(given(on("put", dir, &[]), lines.as_bytes()), 0);
}

fn dead_letters(dead: &Path) -> Vec<Value> {
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
    let dead_letter = &dead_letters(&dead)[0];
    assert_eq!((&dead_letter["text"], &dead_letter["seq"]), (&"poison".into(), &0.into()));
    assert!(dead_letter["reason"].as_str().unwrap().contains("ended"), "{dead_letter}");
    assert_eq!(Queue::open(&queue).unwrap().len(), 0);
}

#[test]
fn a_dead_letter_says_where_from_and_why_and_redrive_puts_its_message_back() {
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
    let found = dead_letters(&dead);
    let dead_letter = &found[0];
    assert_eq!(dead_letter["queue"], queue.to_str().unwrap());
    assert_eq!((&dead_letter["seq"], &dead_letter["attempts"]), (&1.into(), &2.into()));
    assert_eq!(dead_letter["reason"], "exit status: 7");
    assert_eq!(dead_letter["stderr"], "why it failed");
    assert_eq!(dead_letter["text"], "bad");
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
    let reported = said(&output);
    assert!(reported.contains("message 0: killed: it took longer than 300 ms"), "{reported}");
    let child = fs::read_to_string(dir.path().join("child")).unwrap();
    crate::support::eventually("its child is gone", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_command_that_ends_by_the_signal_that_ends_each_was_not_tried() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, dead) = (dir.path().join("q"), dir.path().join("dead"));
    jobs(&queue, "job\n");
    let words = ["--dead", dead.to_str().unwrap()];
    let script = "echo $MMQ_SEQ $MMQ_ATTEMPT >> log; echo $$ > pid; exec sleep 600";
    let mut child = Running(each(&queue, &words, script).spawn().unwrap());
    let number = || fs::read_to_string(dir.path().join("pid")).unwrap_or_default();
    eventually("the command runs", || number().ends_with('\n'));
    let command = Pid::from_raw(number().trim().parse().unwrap()).unwrap();
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    eventually("it has the signal", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap();
        status.lines().any(|line| line == "ShdPnd:\t0000000000000000")
    });
    kill_process(command, Signal::TERM).unwrap();
    let ended = within(Duration::from_secs(60), move || child.0.wait().unwrap());
    assert_eq!(ended.code(), Some(143));
    // A command that is not there says nothing of the message either.
    ends(on("each", &queue, &["--dead", words[1], "--", "/no/such/command"]), 7);
    assert!(!dead.exists(), "the queue is made for the first letter");
    ends(each(&queue, &words, "echo $MMQ_SEQ $MMQ_ATTEMPT >> log"), 0);
    assert_eq!(log(&queue), ["0 1", "0 1"]);
    assert!(!dead.exists());
}

#[test]
fn the_queue_for_the_dead_is_free_while_each_works() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, dead) = (dir.path().join("q"), dir.path().join("dead"));
    jobs(&queue, "bad\ngood\n");
    check(crate::support::command("mkfifo").arg(dir.path().join("fifo")).output().unwrap(), 0);
    let words = ["--retries", "0", "--dead", dead.to_str().unwrap()];
    let script = "read line; echo $MMQ_SEQ >> log; test $line = good && read line < fifo";
    let mut child = Running(each(&queue, &words, script).spawn().unwrap());
    eventually("the second one runs", || log(&queue) == ["0", "1"]);
    assert!(said(&ends(on("take", &dead, &["--wait-lock", "0s"]), 0)).is_empty());
    fs::write(dir.path().join("fifo"), "\n").unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(1));
}

#[test]
fn a_place_that_cannot_be_that_of_the_dead_is_reported_before_anything_is_done() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, "job\n");
    let (file, other) = (dir.path().join("file"), dir.path().join("other"));
    fs::write(&file, "text").unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter"), "text").unwrap();
    for place in [&file, &other] {
        let words = ["--dead", place.to_str().unwrap()];
        ends(each(&queue, &words, "echo $MMQ_SEQ >> log"), 5);
    }
    let below = file.join("dead");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&file, mode).unwrap();
    ends(each(&queue, &["--dead", below.to_str().unwrap()], "echo $MMQ_SEQ >> log"), 7);
    assert_eq!((log(&queue).len(), left(&queue)), (0, 1));
}

#[test]
fn one_queue_under_two_names_is_a_wrong_command_line() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, "job\n");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&queue, &link).unwrap();
    let slash = format!("{}/", queue.display());
    for name in [queue.to_str().unwrap(), link.to_str().unwrap(), &slash] {
        let reported = said(&ends(on("redrive", &queue, &[name]), 2));
        assert!(reported.contains("are the same queue; name two"), "{reported}");
        let reported = said(&ends(each(&queue, &["--dead", name], "true"), 2));
        assert!(reported.contains("are the same queue; name two"), "{reported}");
    }
    assert_eq!(left(&queue), 1);
}

/// A process of root that may kill none of another user's is refused as a user is by a command that
/// has become root.
#[test]
fn a_command_that_cannot_be_killed_is_reported_and_not_waited_for() {
    let may = |words: &[&str]| {
        let mut setpriv = crate::support::command("setpriv");
        setpriv.args(words).arg("true").output().is_ok_and(|output| output.status.success())
    };
    if !may(&["--bounding-set", "-kill"]) || !may(&["--reuid", "65534", "--clear-groups"]) {
        crate::support::skip("without root or setpriv no command resists SIGKILL");
        return;
    }
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    // More than a pipe holds, which the command does not read.
    jobs(&queue, &("x".repeat(200_000) + "\n"));
    // It may be killed before it has become another user's.
    for millis in [200, 1_000, 5_000, 25_000] {
        let script = "echo $$ > pid
            exec setpriv --reuid 65534 --clear-groups sleep 600 > /dev/null 2>&1";
        let mut command = crate::support::command("setpriv");
        command.args(["--bounding-set", "-kill", env!("CARGO_BIN_EXE_mmq"), "each"]).arg(&queue);
        command.args(["--timeout", &format!("{millis}ms"), "--retries", "0"]);
        command.args(["--", "sh", "-c", script]).current_dir(dir.path());
        let output = within(Duration::from_secs(60), move || command.output().unwrap());
        if said(&output).contains("killed: it took longer") {
            continue;
        }
        let number = fs::read_to_string(dir.path().join("pid")).unwrap();
        let process = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
        kill_process(process, Signal::KILL).unwrap();
        let output = check(output, 7);
        let why = format!("process {} cannot be killed: Operation not permitted", number.trim());
        assert!(said(&output).contains(&why), "{}", said(&output));
        assert_eq!(left(&queue), 1);
        return;
    }
    panic!("it never became another user's");
}

/// What had all its attempts in earlier runs is not tried again. A signal ends a run that waits for
/// a delay, and one that only buries.
#[test]
fn a_signal_ends_a_run_that_waits_and_one_that_buries() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, dead) = (dir.path().join("q"), dir.path().join("dead"));
    // So many have stored attempts. They are large, so that it takes its time.
    let messages = 100;
    jobs(&queue, &("x".repeat(500_000) + "\n").repeat(messages));
    let ended = |retries, backoff, begun: &dyn Fn() -> bool| {
        let words = ["--retries", retries, "--backoff", backoff, "--dead", "dead"];
        let mut child = each(&queue, &words, "echo tried >> log; exit 1").spawn().unwrap();
        eventually("it has begun", begun);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        within(Duration::from_secs(60), move || child.wait().unwrap()).code()
    };
    assert_eq!(ended("1", "1h", &|| log(&queue).len() == messages), Some(143));
    assert_eq!(ended("0", "1h", &|| dead.join("index").exists()), Some(143));
    assert_eq!(log(&queue).len(), messages);
    let (buried, left) = (Queue::open(&dead).unwrap().len(), left(&queue));
    assert_eq!(buried + left, messages as u64);
    assert!(left > 0, "it did not hear the signal");
}
