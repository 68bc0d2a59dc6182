//! `copy`.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use mmq::{ConsumerSnapshot, Inspector, Options, Queue, QueueState, Seen, Snapshot, Start};
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Running, ends, on, said};
use crate::support::{Random, eventually, rounds, seed, segments};

/// A queue of several segments, with consumers here and there, and one message damaged.
fn filled(dir: &Path) {
    let mut random = Random::new(seed("copying"));
    let queue = Options::new().arena_size(64 << 10).open(dir).unwrap();
    for number in 0..300 {
        let bytes: Vec<u8> = (0..random.size(0..=4000)).map(|_| random.next() as u8).collect();
        match number % 10 {
            0 => drop(queue.enqueue_batch([&bytes, &bytes[..9], &bytes]).unwrap()),
            _ => drop(queue.enqueue(&bytes).unwrap()),
        }
    }
    queue.enqueue("a message of its own, which will be damaged").unwrap();
    queue.enqueue("the last").unwrap();
    queue.seek(30).unwrap();
    let slow = queue.consumer("slow").unwrap();
    slow.seek(20).unwrap();
    let open = slow.receive().unwrap().unwrap();
    for _ in 0..7 {
        slow.receive().unwrap().unwrap().ack().unwrap();
    }
    queue.consumer("done").unwrap().seek(queue.stats().next_seq).unwrap();
    drop(open);
    queue.close().unwrap();
    assert!(segments(dir).iter().any(|path| flip(path, b"which will be damaged")));
}

/// Changes these bytes where they stand in the file.
fn flip(path: &Path, wanted: &[u8]) -> bool {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.windows(wanted.len()).position(|bytes| bytes == wanted);
    at.inspect(|at| bytes[*at] ^= 1).is_some_and(|_| fs::write(path, &bytes).is_ok())
}

/// What is told of a message or of something else, and the message's bytes.
#[derive(Clone, PartialEq, Eq)]
struct Reported(String, Vec<u8>);

impl std::fmt::Debug for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} bytes: {:x?}..", self.0, self.1.len(), &self.1[..self.1.len().min(8)])
    }
}

/// All that is in the files, by name.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

fn snapshot(dir: &Path) -> Snapshot {
    Inspector::open(dir).unwrap().snapshot().unwrap()
}

fn reported(dir: &Path) -> Vec<Reported> {
    let inspector = Inspector::open(dir).unwrap();
    let seen = inspector.messages(Start::Oldest).map(|seen| match seen.unwrap() {
        Seen::Message { message, segment_time } => {
            Reported(format!("{} {segment_time:?}", message.seq()), message.to_vec())
        }
        other => Reported(format!("{other:?}"), Vec::new()),
    });
    seen.collect()
}

/// The copy shows what the queue does.
#[track_caller]
fn same(old: &Path, new: &Path) {
    let (left, right) = (snapshot(old), snapshot(new));
    let places = |snapshot: &Snapshot| {
        let place = |consumer: &ConsumerSnapshot| {
            let ConsumerSnapshot { name, next_seq, messages, bytes, done_ahead, .. } = consumer;
            (name.clone(), *next_seq, *messages, *bytes, done_ahead.clone(), consumer.oldest_time)
        };
        snapshot.consumers.iter().map(place).collect::<Vec<_>>()
    };
    assert_eq!(places(&left), places(&right));
    assert_eq!(
        (left.next_seq, left.oldest_seq, left.messages, left.bytes, left.segments, left.gaps),
        (right.next_seq, right.oldest_seq, right.messages, right.bytes, right.segments, right.gaps)
    );
    assert_eq!((right.state, right.spare_segments), (QueueState::Closed, 0));
    assert_eq!(right.durable_seq, right.next_seq);
    assert_eq!(reported(old), reported(new));
}

#[test]
fn a_copy_has_the_same_messages_numbers_and_consumers_under_either_id() {
    let dir = crate::support::tempdir().unwrap();
    let old = dir.path().join("old");
    filled(&old);
    let before = reported(&old);
    assert!(before.iter().any(|reported| reported.0.contains("cause: Damaged")), "{before:?}");
    let (new, backup) = (dir.path().join("a/new"), dir.path().join("backup"));
    let copied = ends(on("copy", &old, &[new.to_str().unwrap()]), 0);
    let id: String = snapshot(&new).queue_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(said(&copied).contains("3 consumers"), "{}", said(&copied));
    assert!(said(&copied).ends_with(&format!("the copy's id is {id}\n")), "{}", said(&copied));
    // An empty directory is taken.
    fs::create_dir(&backup).unwrap();
    ends(on("copy", &old, &[backup.to_str().unwrap(), "--same-id", "-q"]), 0);
    for (copy, same_id) in [(&new, false), (&backup, true)] {
        same(&old, copy);
        let (old, copy) = (snapshot(&old), snapshot(copy));
        assert_eq!(old.queue_id == copy.queue_id, same_id);
        assert!(old.created == copy.created || !same_id);
    }
    assert_eq!(before, reported(&old));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left beside");
    // Damage is all that is wrong with it, and each goes on alone.
    assert_eq!(ends(on("verify", &new, &[]), 1).stdout, ends(on("verify", &old, &[]), 1).stdout);
    let next = snapshot(&old).next_seq;
    for dir in [&old, &new, &backup] {
        let queue = Queue::open(dir).unwrap();
        assert_eq!(queue.enqueue(dir.to_str().unwrap()).unwrap(), next);
        queue.close().unwrap();
    }
    let (mut all, last) = (reported(&new), reported(&backup).pop());
    assert_ne!(all.pop(), last);
    assert_eq!(all, before);
    // A copy of a copy, and the backup in the place of the queue.
    let third = dir.path().join("third");
    ends(on("copy", &new, &[third.to_str().unwrap()]), 0);
    same(&new, &third);
    fs::remove_dir_all(&old).unwrap();
    fs::rename(&backup, &old).unwrap();
    assert_eq!(reported(&old).pop(), last);
}

#[test]
fn what_cannot_be_copied_or_would_be_overwritten_is_refused() {
    let dir = crate::support::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    filled(&old);
    let copy = |from: &Path, to: &Path, status| {
        let output = ends(on("copy", from, &[to.to_str().unwrap(), "--json"]), status);
        assert!(!dir.path().join("new.copying").exists());
        said(&output)
    };
    let (before, shown) = (files(&old), reported(&old));
    let queue = Queue::open(&old).unwrap();
    let pid = format!("\"pid\":{}", std::process::id());
    assert!(copy(&old, &new, 4).contains(&pid));
    queue.close().unwrap();
    copy(&dir.path().join("none"), &new, 5);
    assert!(!new.exists());
    fs::create_dir(&new).unwrap();
    copy(&new, &dir.path().join("other"), 5);
    assert!(copy(&old, &old, 2).contains("are the same queue; name two different ones"));
    // Not empty: another's file.
    fs::write(new.join("letter"), "text").unwrap();
    let refused = copy(&old, &new, 6);
    assert!(refused.contains("\"not_empty\"") && refused.contains("letter"), "{refused}");
    assert_eq!(files(&new).len(), 1);
    assert!(copy(&old, &new.join("letter"), 6).contains("is not a directory"));
    assert!(copy(&old, Path::new("/proc"), 6).contains("not empty"));
    copy(&old, Path::new("/proc/new"), 7);
    assert_eq!(before.len(), files(&old).len());
    assert_eq!(reported(&old), shown);
}

#[test]
fn what_fails_half_way_leaves_nothing() {
    let dir = crate::support::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    filled(&old);
    let (before, shown) = (files(&old).len(), reported(&old));
    // No file may take more than 50 KiB.
    let mut small = crate::support::command("sh");
    small.args(["-c", "ulimit -f 100; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_mmq"), "copy"]);
    small.args([&old, &new]);
    let failed = ends(small, 7);
    assert!(said(&failed).contains("new.copying/segment-0"), "{}", said(&failed));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!((before, shown), (files(&old).len(), reported(&old)));
    ends(on("copy", &old, &[new.to_str().unwrap()]), 0);
    same(&old, &new);
}

/// A queue that takes a while to be copied.
fn long(dir: &Path) {
    let queue = Options::new().arena_size(1 << 20).open(dir).unwrap();
    for _ in 0..64 {
        queue.enqueue(vec![1; 1 << 20]).unwrap();
    }
    queue.close().unwrap();
}

#[test]
fn a_copy_that_is_killed_is_no_queue_and_its_rest_is_named() {
    let dir = crate::support::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let rest = dir.path().join("new.copying");
    long(&old);
    let shown = reported(&old);
    let mut random = Random::new(seed("copying killed"));
    let mut killed = 0;
    for _ in 0..rounds(4, 6) {
        let mut child = Running(on("copy", &old, &[new.to_str().unwrap()]).spawn().unwrap());
        eventually("it begins or ends", || rest.exists() || new.exists());
        std::thread::sleep(Duration::from_micros(random.below(100_000)));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert_eq!(reported(&old), shown);
        if new.exists() {
            same(&old, &new);
            fs::remove_dir_all(&new).unwrap();
        }
        if rest.exists() {
            killed += 1;
            if fs::read_dir(&rest).unwrap().next().is_some() {
                let refused = ends(on("copy", &old, &[new.to_str().unwrap()]), 6);
                let wanted = "new.copying is left from a copy that did not finish: remove it";
                assert!(said(&refused).contains(wanted), "{}", said(&refused));
                assert!(!new.exists());
            }
            fs::remove_dir_all(&rest).unwrap();
        }
    }
    println!("{killed} were killed half way");
    ends(on("copy", &old, &[new.to_str().unwrap()]), 0);
    same(&old, &new);
}

#[test]
fn a_signal_ends_a_copy_and_a_second_one_to_the_same_place_waits_for_none() {
    let dir = crate::support::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let rest = dir.path().join("new.copying");
    long(&old);
    let other = dir.path().join("other");
    filled(&other);
    for signal in [Signal::INT, Signal::TERM] {
        let mut copy = on("copy", &old, &[new.to_str().unwrap()]);
        let child = copy.stderr(Stdio::piped()).spawn().unwrap();
        eventually("it begins or ends", || rest.exists() || new.exists());
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        if rest.exists() {
            // Stopped in the middle of it, or just before it has the lock.
            let locked = on("copy", &other, &[new.to_str().unwrap()]).output().unwrap();
            let expected = [Some(4), Some(6), Some(0)];
            assert!(expected.contains(&locked.status.code()), "{}", said(&locked));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
        let output = child.wait_with_output().unwrap();
        let status = output.status.code();
        assert!(!rest.exists(), "{status:?} {}", said(&output));
        match status {
            Some(130 | 143) => {
                assert!(said(&output).contains("nothing of the copy is left"));
                assert!(!new.exists());
            }
            // The signal came too late.
            _ => fs::remove_dir_all(&new).unwrap(),
        }
    }
}
