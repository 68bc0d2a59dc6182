//! Several processes use one queue.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use mmq::Queue;
use rustix::process::{Pid, Signal, kill_process};

use crate::each::{each, jobs, left, log};
use crate::looking::{stat, text};
use crate::run::{Running, check, ends, given, mmq, on, said};
use crate::support::{Random, effort, eventually, seed, within};

const LONG: Duration = Duration::from_secs(60);

/// `mmq serve DIR WORDS...`, once it listens.
fn serve(dir: &Path, words: &[&str]) -> Running {
    let mut child = Running(on("serve", dir, words).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(&format!("is shared by process {}", child.0.id())), "{line}");
    child
}

/// Its exit status after this signal.
fn ended_by(child: Running, signal: Signal) -> Option<i32> {
    kill_process(Pid::from_child(&child.0), signal).unwrap();
    status(child)
}

fn status(mut child: Running) -> Option<i32> {
    within(LONG, move || child.0.wait().unwrap().code())
}

fn putting(dir: &Path, lines: &str) -> Child {
    let mut child = on("put", dir, &[]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child
}

#[test]
fn ten_put_beside_a_worker_and_every_job_is_done_once() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, []);
    let script = "read line; echo $line >> log";
    let worker = Running(each(&queue, &["-f", "-j", "2"], script).spawn().unwrap());
    let lines = |writer: u64| (0..20).map(move |job| format!("{writer}-{job}\n"));
    let writers: Vec<Running> = (0..10)
        .map(|writer| Running(putting(&queue, &lines(writer).collect::<String>())))
        .collect();
    for writer in writers {
        assert_eq!(status(writer), Some(0));
    }
    eventually("all is done", || log(&queue).len() >= 200);
    assert_eq!(ended_by(worker, Signal::TERM), Some(143));
    let mut done = log(&queue);
    done.sort_unstable();
    let mut wanted: Vec<String> = (0..10).flat_map(lines).map(|line| line.trim().into()).collect();
    wanted.sort_unstable();
    assert_eq!(done, wanted);
    assert_eq!(left(&queue), 0);
}

#[test]
fn put_and_take_use_a_served_queue() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let served = serve(&queue, &["--max-bytes", "1MiB"]);
    check(given(on("put", &queue, &["--print-seq"]), b"a\nb\n"), 0);
    let output = check(given(on("put", &queue, &["--batch", "--mode", "640"]), b"c\nd\n"), 0);
    assert!(said(&output).contains("its options apply: --mode does not"), "{}", said(&output));
    check(given(on("put", &queue, &["--no-flush"]), b"e\n"), 0);
    assert_eq!(text("take", &queue, &["-n", "2"]), "a\nb\n");
    let lines = text("take", &queue, &["-n", "1", "--json"]);
    assert!(lines.starts_with("{\"seq\":2,") && lines.contains("\"segment_time\":\"20"), "{lines}");
    assert_eq!(text("take", &queue, &[]), "d\ne\n");
    ends(on("take", &queue, &["--wait", "10ms"]), 3);
    let waiting = on("take", &queue, &["--wait", "-n", "1"]).stdout(Stdio::piped()).spawn();
    check(given(on("put", &queue, &[]), b"late\n"), 0);
    let output = check(within(LONG, || waiting.unwrap().wait_with_output().unwrap()), 0);
    assert_eq!(output.stdout, b"late\n");
    // No room: the owner's limit. What fits is in.
    let long = vec![format!("{:0>1000}\n", 7); 2000].concat().into_bytes();
    let output = check(given(on("put", &queue, &[]), &long), 6);
    assert!(said(&output).contains("put in before the failure: "), "{}", said(&output));
    ends(on("serve", &queue, &[]), 4);
    assert_eq!(ended_by(served, Signal::INT), Some(130));
    assert!(left(&queue) > 0);
}

#[test]
fn a_put_waits_for_room_that_another_process_has_to_make() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let served = serve(&queue, &["--max-bytes", "256KiB", "--arena-size", "64K"]);
    let lines: String = (0..1000).map(|number| format!("{number:0>1000}\n")).collect();
    let mut put = on("put", &queue, &["--on-full", "wait"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = put.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let put = Running(put);
    let mut taken = 0;
    eventually("all come", || {
        taken += text("take", &queue, &[]).lines().count();
        taken == 1000
    });
    feeding.join().unwrap();
    assert_eq!(status(put), Some(0));
    assert_eq!(ended_by(served, Signal::TERM), Some(143));
}

#[test]
fn consumers_and_purge_use_a_served_queue() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let _served = serve(&queue, &[]);
    let lines: String = (0..10).map(|number| format!("{number}\n")).collect();
    check(given(on("put", &queue, &[]), lines.as_bytes()), 0);
    let consumers = |words: &[&str], status| ends(on("consumers", &queue, words), status);
    consumers(&["add", "audit"], 0);
    consumers(&["add", "late", "--at", "8"], 0);
    consumers(&["add", "audit"], 6);
    assert_eq!(text("take", &queue, &["--consumer", "late"]), "8\n9\n");
    let refused = consumers(&["seek", "audit", "+3"], 2);
    assert!(said(&refused).contains("gives up 3 messages"), "{}", said(&refused));
    consumers(&["seek", "audit", "+3", "--yes"], 0);
    consumers(&["fork", "audit", "second"], 0);
    consumers(&["fork", "", "third"], 0);
    assert_eq!(text("take", &queue, &["--consumer", "second", "-n", "2"]), "3\n4\n");
    consumers(&["rm", "second", "--yes"], 0);
    consumers(&["rm", "second"], 5);
    consumers(&["seek", "second", "first"], 5);
    ends(on("take", &queue, &["--consumer", "second"]), 5);
    consumers(&["seek", "", "1", "--yes"], 0);
    assert_eq!(text("take", &queue, &["-n", "1"]), "1\n");
    let output = ends(on("purge", &queue, &["--before", "-1", "--yes"]), 0);
    assert!(said(&output).contains("9 messages given up"), "{}", said(&output));
    for name in ["", "audit", "third"] {
        assert_eq!(text("take", &queue, &["--consumer", name]), "9\n", "{name:?}");
    }
}

#[test]
fn dead_letters_go_into_a_served_queue_and_back_into_another() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, dead) = (dir.path().join("q"), dir.path().join("dead"));
    let (_served, _dead) = (serve(&queue, &[]), serve(&dead, &[]));
    check(given(on("put", &queue, &[]), b"bad\ngood\n"), 0);
    let script = "read line; echo $line $MMQ_ATTEMPT >> log; test $line = good";
    let words = ["--retries", "1", "--backoff", "1ms", "--dead", dead.to_str().unwrap()];
    ends(each(&queue, &words, script), 1);
    let mut tried = log(&queue);
    tried.sort_unstable();
    assert_eq!(tried, ["bad 1", "bad 2", "good 1"]);
    ends(mmq([Path::new("redrive"), &dead, &queue]), 0);
    assert_eq!(text("take", &queue, &[]), "bad\n");
    ends(on("take", &dead, &["-n", "1"]), 3);
}

#[test]
fn a_worker_takes_over_when_the_server_is_killed() {
    for words in [&["-f", "-j", "2"][..], &["-f", "-j", "2", "--dead", "dead"]] {
        let dir = crate::support::tempdir().unwrap();
        let queue = dir.path().join("q");
        let mut served = serve(&queue, &[]);
        let lines: String = (0..100).map(|number| format!("{number}\n")).collect();
        check(given(on("put", &queue, &[]), lines.as_bytes()), 0);
        // Commands are under way when the owner ends, and end behind it.
        let script = "read line; sleep 0.02; echo $line >> log";
        let worker = Running(each(&queue, words, script).spawn().unwrap());
        eventually("some are done", || log(&queue).len() >= 10);
        served.0.kill().unwrap();
        served.0.wait().unwrap();
        eventually("it goes on", || log(&queue).len() >= 100);
        check(given(on("put", &queue, &[]), b"100\n"), 0);
        eventually("it takes what comes later", || log(&queue).len() >= 101);
        assert_eq!(stat(&queue)["owner"]["pid"], worker.0.id());
        assert_eq!(ended_by(worker, Signal::TERM), Some(143));
        let mut done: Vec<u64> = log(&queue).iter().map(|line| line.parse().unwrap()).collect();
        done.sort_unstable();
        assert_eq!(done, (0..101).collect::<Vec<_>>(), "{words:?}");
        assert_eq!(left(&queue), 0);
    }
}

#[test]
fn a_signal_ends_a_worker_that_waits_through_another_process() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let served = serve(&queue, &[]);
    let worker = Running(each(&queue, &["-f"], "read line; echo $line >> log").spawn().unwrap());
    check(given(on("put", &queue, &[]), b"job\n"), 0);
    eventually("it is done", || log(&queue) == ["job"]);
    assert_eq!(ended_by(worker, Signal::INT), Some(130));
    assert_eq!(ended_by(served, Signal::TERM), Some(143));
    assert_eq!(left(&queue), 0);
}

#[test]
fn stat_says_who_uses_a_shared_queue() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let served = serve(&queue, &[]);
    assert_eq!(stat(&queue)["users"].as_array().unwrap().len(), 0);
    let idle = text("stat", &queue, &[]);
    assert!(idle.contains("used by    no process but its owner, which shares it\n"), "{idle}");
    check(given(on("put", &queue, &[]), b""), 0);
    let take = Running(on("take", &queue, &["-f"]).spawn().unwrap());
    let users = || stat(&queue)["users"].as_array().unwrap().clone();
    eventually("it is connected", || users().len() == 1);
    let user = &users()[0];
    assert_eq!(user["pid"], take.0.id());
    assert_eq!(user["uid"], rustix::process::geteuid().as_raw());
    assert!(user["since"].as_str().unwrap().starts_with("20"), "{user}");
    let shown = text("stat", &queue, &[]).replace("\n             ", " ");
    let line = format!("used by    1 connection: process {} of user ", take.0.id());
    assert!(shown.contains(&line), "{shown}");
    // It asks an owner that is stopped, and does not wait for it.
    kill_process(Pid::from_child(&served.0), Signal::STOP).unwrap();
    let asked = within(LONG, {
        let queue = queue.clone();
        move || stat(&queue)
    });
    assert!(asked["users"].is_null() && asked["state"] == "owned", "{asked}");
    kill_process(Pid::from_child(&served.0), Signal::CONT).unwrap();
    assert_eq!(ended_by(served, Signal::TERM), Some(143));
}

#[test]
fn an_owner_that_does_not_share_refuses_every_command_with_status_4() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    jobs(&queue, ["job".to_owned()]);
    let owner = Queue::open(&queue).unwrap();
    let commands: [(&str, &[&str]); 6] = [
        ("put", &["Cargo.toml"]),
        ("take", &[]),
        ("each", &["--", "true"]),
        ("consumers", &["add", "audit"]),
        ("purge", &["--yes"]),
        ("serve", &[]),
    ];
    for (command, words) in commands {
        let refused = ends(on(command, &queue, words), 4);
        let pid = std::process::id();
        assert!(said(&refused).contains(&format!("process {pid} since 20")), "{}", said(&refused));
    }
    assert!(stat(&queue)["users"].is_null());
    assert_eq!(owner.len(), 1);
}

#[test]
fn a_put_says_what_is_certainly_in_when_the_owner_is_killed() {
    for round in 0..4 * effort() {
        let dir = crate::support::tempdir().unwrap();
        let queue = dir.path().join("q");
        let mut served = serve(&queue, &[]);
        let mut put = on("put", &queue, &["--print-seq"]);
        put.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = put.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let lines: String = (0..20_000).map(|number| format!("{number}\n")).collect();
        // It may end before it has read all.
        let feeding = std::thread::spawn(move || drop(stdin.write_all(lines.as_bytes())));
        let mut numbers = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen = numbers.by_ref().take(100 + 1000 * round as usize).count();
        served.0.kill().unwrap();
        served.0.wait().unwrap();
        let printed = seen + numbers.map_while(Result::ok).count();
        feeding.join().unwrap();
        let output = within(LONG, || child.wait_with_output().unwrap());
        let held = text("cat", &queue, &[]);
        let held: Vec<u64> = held.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(held, (0..held.len() as u64).collect::<Vec<_>>());
        if output.status.success() {
            assert_eq!((printed, held.len()), (20_000, 20_000));
            continue;
        }
        let said = said(&check(output, 7));
        assert!(said.contains("may or may not have been done"), "{said}");
        let (_, certain) = said.split_once("certainly put in before the failure: ").unwrap();
        let certain: usize = certain.split_whitespace().next().unwrap().parse().unwrap();
        assert!(printed <= certain, "{printed}: {said}");
        assert!((certain..=certain + 1).contains(&held.len()), "{}: {said}", held.len());
    }
}

#[test]
fn forward_goes_through_whoever_has_the_queue() {
    let dir = crate::support::tempdir().unwrap();
    let (near, far) = (dir.path().join("near"), dir.path().join("far"));
    Queue::open(&far).unwrap().close().unwrap();
    let mut served = serve(&near, &[]);
    let url = format!("exec:'{}' accept '{}'", env!("CARGO_BIN_EXE_mmq"), far.display());
    let forward = on("forward", &near, &[&url]).stderr(Stdio::null()).spawn().unwrap();
    let forward = Running(forward);
    let has = |messages: u64| eventually("all are there", || stat(&far)["messages"] == messages);
    check(given(on("put", &near, &[]), b"a\nb\n"), 0);
    has(2);
    let refused = ends(on("forward", &near, &[&url, "--once"]), 2);
    assert!(said(&refused).contains("belongs to another forwarder"), "{}", said(&refused));
    served.0.kill().unwrap();
    served.0.wait().unwrap();
    check(given(on("put", &near, &[]), b"c\nd\n"), 0);
    has(4);
    assert_eq!(ended_by(forward, Signal::TERM), Some(143));
    assert_eq!(text("take", &far, &[]), "a\nb\nc\nd\n");
}

#[test]
fn whichever_of_owner_and_forwarder_dies_each_message_arrives_once() {
    let dir = crate::support::tempdir().unwrap();
    let (near, far) = (dir.path().join("near"), dir.path().join("far"));
    Queue::open(&far).unwrap().close().unwrap();
    let url = format!("exec:'{}' accept '{}'", env!("CARGO_BIN_EXE_mmq"), far.display());
    let forward = || Running(on("forward", &near, &[&url]).stderr(Stdio::null()).spawn().unwrap());
    let mut random = Random::new(seed("owner_or_forwarder"));
    let mut both = [serve(&near, &[]), forward()];
    let mut messages = 0;
    for _ in 0..10 * effort() {
        let some = 1 + random.below(300);
        let lines: String = (messages..messages + some).map(|at| format!("{at}\n")).collect();
        check(given(on("put", &near, &[]), lines.as_bytes()), 0);
        messages += some;
        std::thread::sleep(Duration::from_millis(random.below(30)));
        let dies = random.below(2) as usize;
        both[dies].0.kill().unwrap();
        both[dies].0.wait().unwrap();
        // The forwarder may be the owner by now, so that `serve` finds it.
        both[dies] = if dies == 1 {
            forward()
        } else {
            Running(on("serve", &near, &["--wait-lock"]).stdout(Stdio::null()).spawn().unwrap())
        };
    }
    eventually("all are there", || stat(&far)["messages"] == messages);
    drop(both);
    let came = text("take", &far, &[]);
    assert_eq!(came, (0..messages).map(|at| format!("{at}\n")).collect::<String>());
}
