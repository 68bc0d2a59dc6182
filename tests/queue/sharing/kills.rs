//! Writers and readers in processes of their own, each killed in turn, the owner included.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use mmq::{Error, Options, Queue, open_or_connect, past_gaps};

use crate::support::{Random, itself, rounds, seed, tempdir};

const DIR: &str = "MMQ_TEST_SHARED_DIR";
const ROLE: &str = "MMQ_TEST_SHARED_ROLE";
const WRITERS: [&str; 3] = ["a", "b", "c"];
const READERS: [&str; 2] = ["x", "y"];

/// All processes append to one file: the order of its lines is that of what they did.
struct Log(File);

impl Log {
    fn open(dir: &Path) -> Log {
        Log(File::options().create(true).append(true).open(dir.join("log")).unwrap())
    }

    /// One call, so that no line is cut by a kill.
    fn line(&mut self, line: String) {
        self.0.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

fn read_log(dir: &Path) -> Vec<Vec<String>> {
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    log.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// Puts in one message after the other, with its name and a number that no earlier run of it used.
fn write(dir: &Path, name: &str) {
    let queue = open_or_connect(dir.join("queue"), &Options::new()).unwrap();
    let mut log = Log::open(dir);
    let begun = |line: &Vec<String>| {
        (line[0] == "begin" && line[1] == name).then(|| line[2].parse::<u64>().unwrap())
    };
    let mut number = read_log(dir).iter().filter_map(begun).max().map_or(0, |last| last + 1);
    loop {
        log.line(format!("begin {name} {number}"));
        match queue.enqueue(format!("{name} {number}")) {
            Ok(seq) => log.line(format!("stored {name} {number} {seq}")),
            Err(Error::Disconnected { in_doubt: true, .. }) => {}
            Err(error) => panic!("{name}: {error}"),
        }
        number += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn read(dir: &Path) {
    let queue = open_or_connect(dir.join("queue"), &Options::new()).unwrap();
    let workers = queue.consumer("workers").unwrap();
    let mut log = Log::open(dir);
    loop {
        let received = past_gaps(
            || workers.receive_timeout(Duration::from_secs(5)),
            |gap| {
                panic!("nothing can be missing: {gap}");
            },
        );
        let Some(job) = received.unwrap() else { continue };
        log.line(format!("got {} {}", job.seq(), job.as_str().unwrap()));
        let seq = job.seq();
        match job.ack() {
            Ok(()) => log.line(format!("acked {seq}")),
            // The owner has gone, and the message comes again.
            Err(Error::Disconnected { .. } | Error::Closed) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let role = std::env::var(ROLE).unwrap();
    if WRITERS.contains(&&*role) { write(&dir, &role) } else { read(&dir) }
}

fn start(dir: &Path, role: &str) -> Child {
    let mut command = itself("sharing::kills::child");
    command.env(DIR, dir).env(ROLE, role).stdout(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn no_kill_loses_or_doubles_or_reorders() {
    let dir = tempdir().unwrap();
    let mut random = Random::new(seed("no_kill_loses_or_doubles_or_reorders"));
    let roles: Vec<&str> = WRITERS.into_iter().chain(READERS).collect();
    let mut children: Vec<Child> = roles.iter().map(|role| start(dir.path(), role)).collect();
    let kills = rounds(15, 40);
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(random.below(60)));
        let at = random.size(0..=roles.len() - 1);
        assert!(children[at].try_wait().unwrap().is_none(), "{} ended by itself", roles[at]);
        children[at].kill().unwrap();
        children[at].wait().unwrap();
        children[at] = start(dir.path(), roles[at]);
    }
    std::thread::sleep(Duration::from_millis(500));
    for child in &mut children {
        assert!(child.try_wait().unwrap().is_none(), "one ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    check(dir.path(), kills);
}

fn check(dir: &Path, kills: u64) {
    let mut log = Log::open(dir);
    let queue = Queue::open(dir.join("queue")).unwrap();
    let workers = queue.consumer("workers").unwrap();
    while let Some(job) = workers.receive().unwrap() {
        log.line(format!("got {} {}", job.seq(), job.as_str().unwrap()));
        job.ack().unwrap();
    }
    let (mut stored, mut acked, mut again) = (0, BTreeSet::<u64>::new(), 0);
    // By writer and number, and by sequence number.
    let (mut messages, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    let lines = read_log(dir);
    for line in &lines {
        match &*line[0] {
            "got" => {
                let seq: u64 = line[1].parse().unwrap();
                let message = (line[2].clone(), line[3].parse::<u64>().unwrap());
                assert!(!acked.contains(&seq), "{seq} came after its acknowledgement");
                again += u64::from(numbers.insert(seq, message.clone()).is_some());
                let first = messages.insert(message.clone(), seq);
                assert!(first.is_none_or(|first| first == seq), "{message:?} is stored twice");
            }
            "acked" => assert!(acked.insert(line[1].parse::<u64>().unwrap())),
            _ => {}
        }
    }
    for line in lines.iter().filter(|line| line[0] == "stored") {
        let message = (line[1].clone(), line[2].parse::<u64>().unwrap());
        let seq: u64 = line[3].parse().unwrap();
        assert_eq!(messages.get(&message), Some(&seq), "what was answered came");
        stored += 1;
    }
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for (seq, (writer, number)) in &numbers {
        let before = last.insert(writer, *number);
        assert!(before.is_none_or(|before| before < *number), "order of {writer} at {seq}");
    }
    println!(
        "{kills} kills: {stored} stored, {} came, {} acknowledged, {again} came again",
        numbers.len(),
        acked.len()
    );
    assert!(stored > 0 && !acked.is_empty());
}
