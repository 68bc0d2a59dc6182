//! `load`, killed at random moments, and two at once.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use mmq::{Inspector, Queue, QueueState, Snapshot};

use crate::run::{Running, check, ends, given, on, said};
use crate::support::{Random, command, effort, eventually, seed};

/// The name of a queue that is not yet complete.
const UNFINISHED: &str = ".mmq-unfinished";

/// A dump of so many messages, and the file that holds it.
fn dump(dir: &std::path::Path, messages: u64) -> std::path::PathBuf {
    let old = dir.join("old");
    let queue = Queue::open(&old).unwrap();
    queue.enqueue_batch((0..messages).map(|number| format!("{number:0>300}"))).unwrap();
    queue.close().unwrap();
    let file = dir.join("dump.json");
    fs::write(&file, ends(on("dump", &old, &[]), 0).stdout).unwrap();
    file
}

/// Whatever moment SIGKILL comes at: NEW is not there or is complete, and the same command makes it
/// out of whatever was left.
#[test]
fn sigkill_of_load_leaves_no_queue_or_the_whole_one() {
    let mut random = Random::new(seed("load_killed"));
    let dir = crate::support::tempdir().unwrap();
    let messages = 20_000;
    let file = dump(dir.path(), messages);
    let new = dir.path().join("new");
    let making = dir.path().join("new.loading");
    for round in 0..4 * effort() {
        let load = || on("load", &new, &[file.to_str().unwrap()]);
        let mut child =
            Running(load().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("it has begun", || making.exists() || new.exists());
        std::thread::sleep(Duration::from_millis(random.below(40)));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        if !new.exists() {
            ends(load(), 0);
        }
        assert_eq!(Queue::open(&new).unwrap().len(), messages, "round {round}");
        // A kill may come just before this directory is removed.
        assert!(fs::remove_dir(&making).is_err() || !making.exists(), "round {round}");
        fs::remove_dir_all(&new).unwrap();
    }
}

/// The moment is a certain one here: standard input stays open in the middle of the dump.
#[test]
fn a_load_that_waits_for_the_rest_of_its_dump_has_made_nothing_yet() {
    let dir = crate::support::tempdir().unwrap();
    let file = dump(dir.path(), 3000);
    let bytes = fs::read(file).unwrap();
    let new = dir.path().join("new");
    let making = dir.path().join("new.loading").join(UNFINISHED);
    let mut load = on("load", &new, &[]);
    load.stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = Running(load.spawn().unwrap());
    let half = &bytes[..bytes.len() / 2];
    std::io::Write::write_all(child.0.stdin.as_mut().unwrap(), half).unwrap();
    eventually("it loads", || making.join("index").exists());
    assert!(!new.exists());
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert!(!new.exists());
    check(given(on("load", &new, &[]), &bytes), 0);
    assert_eq!(Queue::open(&new).unwrap().len(), 3000);
    let again = said(&check(given(on("load", &new, &[]), &bytes), 6));
    assert!(again.contains("is not empty: it holds"), "{again}");
}

/// The queue of the first one is closed, and not yet in its place when the second one comes.
#[test]
fn of_two_loads_at_once_one_makes_the_queue_and_the_other_is_refused() {
    let dir = crate::support::tempdir().unwrap();
    let file = dump(dir.path(), 100);
    let (new, unfinished) =
        (dir.path().join("new"), dir.path().join("new.loading").join(UNFINISHED));
    let load = || on("load", &new, &[file.to_str().unwrap()]);
    let mut held = command("strace");
    held.args(["-f", "-o", "/dev/null", "-e", "trace=/^rename", "-e"]);
    held.arg("inject=/^rename:delay_enter=600000000").arg(load().get_program());
    held.args(load().get_args()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(held) = held.spawn() else {
        return crate::support::skip("strace is not installed");
    };
    let mut held = Running(held);
    eventually("it is closed", || {
        let seen = Inspector::open(&unfinished).and_then(|queue| queue.snapshot());
        let is_closed = |seen: Snapshot| (seen.state, seen.messages) == (QueueState::Closed, 100);
        seen.is_ok_and(is_closed) || held.0.try_wait().unwrap().is_some()
    });
    if held.0.try_wait().unwrap().is_some() {
        return crate::support::skip("strace may not trace");
    }
    let refused = said(&check(given(load(), b""), 4));
    assert!(refused.contains("another command makes"), "{refused}");
    // Without its tracer it goes on.
    held.0.kill().unwrap();
    eventually("the first one ends", || new.exists());
    assert_eq!(Queue::open(&new).unwrap().len(), 100);
}
