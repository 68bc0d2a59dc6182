//! Disks that are full to the last byte, and copies that share their extents. A store that fails
//! there may end the process or never return, so a child does the work.

use super::*;

/// Names the work of a process that a test of this file starts, and where it does it.
const WORK: &str = "MMQ_FULL_DISK_WORK";
pub(super) const WORKPLACE: &str = "MMQ_FULL_DISK_WORKPLACE";
/// How long a child may take before it counts as hanging.
pub(super) const DEADLINE: Duration = Duration::from_secs(120);

/// Does `work` in a process of its own, which must end by itself: no process can report its own
/// death by a signal, or a page fault that never ends.
#[track_caller]
fn in_a_child(work: &str, place: &Path) {
    let mut child = start(
        crate::support::built(std::env::current_exe().unwrap())
            .args(["--exact", "full_disk::to_the_last_byte::work_of_a_child", "--nocapture"])
            .env(WORK, work)
            .env(WORKPLACE, place)
            .stdin(Stdio::null())
            .stdout(Stdio::null()),
    )
    .unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > DEADLINE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{work}: hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{work}: {status}");
}

/// What a full disk may answer.
#[track_caller]
fn fine_or_full<T>(result: mmq::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.is_full(), "another error than a full disk: {error}");
            None
        }
    }
}

/// Whatever the disk says to a place, the messages come.
#[track_caller]
fn take(queue: &Queue, messages: &Messages, from: u64, to: u64) {
    for seq in from..to {
        let message = queue.dequeue().unwrap().unwrap();
        assert_eq!(message.seq(), seq);
        messages.check(seq, &message);
    }
}

#[test]
fn work_of_a_child() {
    let (Ok(work), Some(place)) = (std::env::var(WORK), std::env::var_os(WORKPLACE)) else {
        return;
    };
    let place = PathBuf::from(place);
    let path = place.join("queue");
    match work.as_str() {
        "fill" => {
            let messages = Messages::new(1, &[16..=400]);
            let queue = Options::new().arena_size(64 << 10).open(&path).unwrap();
            let tail = until_full(&queue, &messages, 0);
            assert!(tail > 5000, "only {tail} messages fit");
            take(&queue, &messages, 0, 200);
            fine_or_full(queue.flush());
            fine_or_full(queue.close());
        }
        "go on" | "go on, and a snapshot" => {
            let queue = large_arenas().open(&path).unwrap();
            if work == "go on, and a snapshot" {
                fine_or_full(queue.enqueue(copied().bytes(COPIED)));
                done(
                    crate::support::command("btrfs")
                        .args(["subvolume", "snapshot"])
                        .args([&place, &place.join("backup")]),
                )
                .unwrap();
                take_all_space(&place);
            }
            take(&queue, &copied(), 5, 15);
            for seq in COPIED..COPIED + 5 {
                if queue.enqueue(copied().bytes(seq)).is_err_and(|error| error.is_full()) {
                    break;
                }
            }
            fine_or_full(queue.flush());
            fine_or_full(queue.close());
        }
        other => panic!("{other:?}"),
    }
}

/// The kernel repeated the page fault of a store for ever: at message 18,876 with the first number,
/// at 9,637 with the other.
#[test]
fn a_btrfs_that_is_filled_to_the_last_byte_hangs_nobody() {
    for left in [4_344_884, 6_434_422] {
        let mount = match mount("btrfs", 128 * MIB) {
            Ok(mount) => mount,
            Err(reason) => return skip("btrfs", &reason),
        };
        let space = rustix::fs::statvfs(&mount.path).unwrap();
        let filler = fs::File::create(mount.path.join("filler")).unwrap();
        let taken = space.f_bavail * space.f_frsize - left;
        rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, taken).unwrap();
        in_a_child("fill", &mount.path);
    }
}

/// Messages in a queue that is copied.
const COPIED: u64 = 40;

fn copied() -> Messages {
    Messages::new(9, &[100_000..=100_000])
}

/// A queue is copied by a call that shares extents, and the disk fills up: what the queue stores
/// needs new space from now on.
fn goes_on_after_a_copy(kind: &str, copy: impl Fn(&Path) -> Result<(), String>, work: &str) {
    let mount = match mount(kind, 400 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip(kind, &reason),
    };
    let place = mount.path.join("place");
    let made = match kind {
        "btrfs" => done(crate::support::command("btrfs").args(["subvolume", "create"]).arg(&place)),
        _ => fs::create_dir(&place).map_err(|error| error.to_string()),
    };
    if let Err(reason) = made {
        return skip(kind, &reason);
    }
    let queue = large_arenas().open(place.join("queue")).unwrap();
    fill_queue(&queue, &copied(), 0, COPIED);
    take(&queue, &copied(), 0, 5);
    queue.close().unwrap();
    if let Err(reason) = copy(&place) {
        return skip(kind, &reason);
    }
    if work == "go on" {
        take_all_space(&place);
    }
    in_a_child(work, &place);
    // With space again nothing is missing. What was taken may come again: its place was not to be
    // stored.
    give_space_back(&place);
    let queue = large_arenas().open(place.join("queue")).unwrap();
    let head = queue.peek().unwrap().unwrap().seq();
    assert!((5..=15).contains(&head), "{head}");
    let tail = head + queue.len();
    drain_exactly(&queue, &copied(), head, tail);
    assert!((COPIED..=COPIED + 5).contains(&tail), "{tail}");
    fill_queue(&queue, &copied(), tail, tail + 5);
    drain_exactly(&queue, &copied(), tail, tail + 5);
    queue.close().unwrap();
}

#[test]
fn after_a_copy_that_shares_extents_a_full_xfs_is_an_error_at_most() {
    let copy = |place: &Path| {
        done(
            crate::support::command("cp")
                .args(["-a", "--reflink=always"])
                .arg(place.join("queue"))
                .arg(place.join("backup")),
        )
    };
    goes_on_after_a_copy("xfs", copy, "go on");
}

#[test]
fn after_a_snapshot_a_full_btrfs_is_an_error_at_most() {
    let snapshot = |place: &Path| {
        let backup = place.with_file_name("backup");
        done(
            crate::support::command("btrfs").args(["subvolume", "snapshot"]).arg(place).arg(backup),
        )
    };
    goes_on_after_a_copy("btrfs", snapshot, "go on");
}

#[test]
fn a_snapshot_of_an_open_queue_on_a_full_btrfs_is_an_error_at_most() {
    goes_on_after_a_copy("btrfs", |_| Ok(()), "go on, and a snapshot");
}
