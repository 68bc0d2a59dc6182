//! Promise P5: a full disk is an error, not a death. Small file systems are mounted for it, which
//! root alone may do; what cannot be mounted here is skipped with the reason printed.

mod file_limit;
mod no_inode;
mod small_disk;
mod sparse;
mod to_the_last_byte;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::support::{
    KIB, MIB, Messages, Random, drain_by, drain_exactly, effort, fill_queue, guard, in_parts,
    is_whole, sample,
};
use mmq::{GapCause, OnFull, Options, Queue};
use rustix::fs::FallocateFlags;
use tempfile::TempDir;

/// Held for writing by a test that counts on the space of removed files at once: for a moment a
/// program that is being started has the descriptors of this process, and so the files that are
/// removed meanwhile.
static STARTING: RwLock<()> = RwLock::new(());

/// Until it is dropped no test of this process starts a program.
fn no_program_starts() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a program, unless a test holds [`STARTING`].
fn start(command: &mut Command) -> std::io::Result<Child> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// A mounted file system; gone when dropped, whatever the test came to.
struct Mount {
    path: PathBuf,
    _dir: TempDir,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a failed test may leave files open, and a drop must not hide its message behind
        // another.
        if let Ok(mut umount) = start(crate::support::command("umount").arg("-l").arg(&self.path)) {
            let _ = umount.wait();
        }
    }
}

fn done(command: &mut Command) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match start(command).and_then(Child::wait_with_output) {
        Err(error) => Err(format!("{:?}: {error}", command.get_program())),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{:?}: {}",
            command.get_program(),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// A file system of about that many bytes.
fn mount(kind: &str, bytes: usize) -> Result<Mount, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root may mount".into());
    }
    let dir = crate::support::tempdir().unwrap();
    let (path, image) = (dir.path().join("mounted"), dir.path().join("image"));
    fs::create_dir(&path).unwrap();
    guard::unmount_at_end(&path, &image);
    if kind == "tmpfs" {
        done(
            crate::support::command("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "mmq-test"])
                .arg(&path),
        )?;
    } else {
        fs::File::create(&image).unwrap().set_len(bytes as u64).unwrap();
        let options: &[&str] = match kind {
            "ext4" => &["-q", "-F", "-m", "0"],
            "xfs" => &["-q", "-f", "-m", "reflink=1"],
            // Data apart from metadata, as btrfs does by itself on anything but a tiny disk: where
            // the metadata has no room left either, it refuses even stores into allocated pages
            // that are not copied on write (see the README).
            _ => &["-q", "-f"],
        };
        done(crate::support::command(format!("mkfs.{kind}")).args(options).arg(&image))?;
        done(
            crate::support::command("mount")
                .args(["-t", kind, "-o", "loop"])
                .arg(&image)
                .arg(&path),
        )?;
    }
    if kind == "btrfs" {
        make_ballast(&path);
    }
    Ok(Mount { path, _dir: dir })
}

/// On a full btrfs the kernel may repeat a page fault for ever, and no signal ends that. So some
/// room is held, and the guard gives it up when the test has not ended in time or has died.
fn make_ballast(disk: &Path) {
    let ballast = disk.join("ballast");
    let file = fs::File::create(&ballast).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB as u64).unwrap();
    // From here on the disk counts it as used.
    rustix::fs::syncfs(&file).unwrap();
    let ballast = guard::quoted(&ballast);
    let give_up = format!("{{ [ ! -e {ballast} ] || {{ : >{ballast}; rm {ballast}; }}; }}");
    guard::at_end(&give_up);
    let workers = format!("{}={}", to_the_last_byte::WORKPLACE, disk.display());
    let workers = guard::quoted(Path::new(&workers));
    let late = to_the_last_byte::DEADLINE.as_secs() + 30;
    guard::at_once(&format!("sleep {late}; kill_all {workers}; {give_up}"));
}

fn skip(kind: &str, reason: &str) {
    crate::support::skip(format_args!("a full {kind}: {reason}"));
}

/// Takes every byte that is left, in ever smaller pieces. (Larger ones once more: btrfs finds some
/// room after it had none.)
fn take_all_space(mount: &Path) {
    // btrfs may have no room left even for a name.
    let Ok(mut file) = fs::File::options().append(true).create(true).open(mount.join("filler"))
    else {
        return;
    };
    for piece in [MIB, 64 * KIB, 4 * KIB, 64 * KIB, 4 * KIB, 512] {
        while file.write_all(&vec![0xcc; piece]).is_ok() && file.sync_data().is_ok() {}
    }
}

/// Gives the space back. ext4 has it for others once the commit of its journal is over, and
/// `syncfs` may return while that frees the blocks. So others have it when this has got a part.
fn give_space_back(mount: &Path) {
    let filler = mount.join("filler");
    fs::remove_file(&filler).unwrap();
    let has_space = || {
        rustix::fs::syncfs(fs::File::open(mount).unwrap()).unwrap();
        let written = fs::write(&filler, vec![1; 256 << 10])
            .and_then(|()| fs::File::open(&filler)?.sync_all());
        let _ = fs::remove_file(&filler);
        written.is_ok()
    };
    assert!((0..1000).any(|_| has_space()), "the space is not free again");
}

/// Enqueues until the disk is full, and returns the number after the last acknowledged message.
#[track_caller]
fn until_full(queue: &Queue, messages: &Messages, from: u64) -> u64 {
    let len = queue.len();
    for seq in from.. {
        match queue.enqueue(messages.bytes(seq)) {
            Ok(given) => assert_eq!(given, seq),
            Err(error) => {
                assert!(error.is_full(), "another error than a full disk: {error}");
                assert_eq!(queue.len(), len + seq - from, "a refused message changes nothing");
                return seq;
            }
        }
    }
    unreachable!("the disk is small")
}

fn all_of_it(kind: &str, bytes: usize, options: &Options) {
    // Times a queue is opened and closed on a full disk.
    let reopenings = sample(1000);
    // Each read is flushed, or one of four.
    let flushed = 4 / effort().min(4);
    let mount = match mount(kind, bytes) {
        Ok(mount) => mount,
        Err(reason) => return skip(kind, &reason),
    };
    let _no_program_starts = no_program_starts();
    let queue_dir = mount.path.join("queue");
    // The smallest are numerous enough for a thousand reads.
    let messages = Messages::new(bytes as u64, &[0..=100, 0..=3000, bytes / 3000..=bytes / 1500]);
    // Room for a segment, given back at the end.
    fs::write(mount.path.join("reserve"), vec![0xaa; 5 * MIB + bytes / 16]).unwrap();
    let queue = options.clone().open(&queue_dir).unwrap();
    let beside = queue.consumer("beside").unwrap();
    let mut tail = until_full(&queue, &messages, 0);
    assert!(tail > 1000 + reopenings + 100, "only {tail} messages fit");
    take_all_space(&mount.path);
    for kind_of_call in 0..20 {
        let refused = match kind_of_call % 4 {
            0 => queue.enqueue(vec![1; 2 * MIB]).map(drop),
            1 => queue.enqueue_batch(vec![vec![1; 100 * KIB]; 30]).map(drop),
            2 => queue.enqueue_parts(&in_parts(&vec![1; 2 * MIB])).map(drop),
            _ => queue.enqueue(vec![1; 5 * MIB]).map(drop),
        };
        assert!(refused.unwrap_err().is_full());
        assert_eq!(queue.len(), tail, "a refused call changes nothing");
    }
    // Small ones may still find room in what is allocated; the end of it is an error again.
    tail = until_full(&queue, &messages, tail);
    assert_eq!(queue.peek().unwrap().unwrap().seq(), 0);
    let mut buffer = Vec::new();
    for head in 0..1000 {
        if head % 50 == 0 {
            // What was drained may have been given back.
            take_all_space(&mount.path);
        }
        assert_eq!(queue.peek_into(&mut buffer).unwrap(), Some(head));
        messages.check(head, &buffer);
        let message = queue.dequeue().unwrap().unwrap();
        assert_eq!(message.seq(), head);
        messages.check(head, &message);
        drop(message);
        let message = beside.dequeue().unwrap().unwrap();
        assert_eq!(message.seq(), head);
        messages.check(head, &message);
        if head % 10 == 0 {
            // Consumers come and go: their rows have their place already.
            let passing = queue.consumer("passing").unwrap();
            assert!(passing.skip().unwrap().is_some());
            queue.remove_consumer("passing").unwrap();
        }
        if head % flushed == 0 {
            queue.flush().unwrap();
        }
    }
    // Both ends work on a full disk: closing it, and opening it again.
    drop(beside);
    queue.close().unwrap();
    let reopened = 1000 + reopenings;
    for head in 1000..reopened {
        let queue = options.clone().open(&queue_dir).unwrap();
        assert_eq!(queue.len(), tail - head);
        assert_eq!(queue.skip().unwrap(), Some(head));
        assert_eq!(queue.consumer("beside").unwrap().skip().unwrap(), Some(head));
        queue.close().unwrap();
    }
    let queue = options.clone().open(&queue_dir).unwrap();
    queue.remove_consumer("beside").unwrap();
    drain_exactly(&queue, &messages, reopened, tail);
    // Drained space is used again, in this process, although the disk is as full as before.
    fill_queue(&queue, &messages, tail, tail + 200);
    let next = until_full(&queue, &messages, tail + 200);
    drain_exactly(&queue, &messages, tail, next);
    // Given space from outside, it goes on in the same process too.
    let full = until_full(&queue, &messages, next);
    fs::remove_file(mount.path.join("reserve")).unwrap();
    fill_queue(&queue, &messages, full, full + 50);
    drain_exactly(&queue, &messages, next, full + 50);
    queue.close().unwrap();
    println!("{kind} of {bytes} bytes: {tail} messages fitted");
}

fn small_arenas() -> Options {
    Options::new().arena_size(4096).max_mapped_arenas(3)
}

fn large_arenas() -> Options {
    Options::new().arena_size(4 << 20)
}

#[test]
fn a_full_tmpfs_is_an_error_and_everything_goes_on() {
    all_of_it("tmpfs", 16 * MIB, &small_arenas());
    all_of_it("tmpfs", 24 * MIB + 12 * KIB, &large_arenas());
}

#[test]
fn a_full_ext4_is_an_error_and_everything_goes_on() {
    all_of_it("ext4", 32 * MIB, &small_arenas());
    if is_whole() {
        all_of_it("ext4", 48 * MIB, &large_arenas());
    }
}

#[test]
fn a_full_xfs_is_an_error_and_everything_goes_on() {
    all_of_it("xfs", 320 * MIB, &small_arenas());
}

#[test]
fn a_full_btrfs_is_an_error_and_everything_goes_on() {
    all_of_it("btrfs", 256 * MIB, &small_arenas());
}

#[test]
fn a_disk_filled_by_somebody_else_between_any_two_calls_is_an_error_at_most() {
    for sync_each in [false, true] {
        let mount = match mount("tmpfs", 24 * MIB) {
            Ok(mount) => mount,
            Err(reason) => return skip("tmpfs", &reason),
        };
        let _no_program_starts = no_program_starts();
        let options = small_arenas().flush_every_ops(sync_each.then_some(1));
        let messages = Messages::new(3, &[0..=5000]);
        let queue = options.open(mount.path.join("queue")).unwrap();
        let mut tail = 0;
        for n in 0..20 {
            fill_queue(&queue, &messages, tail, tail + 37 * n % 100 + 1);
            tail += 37 * n % 100 + 1;
            take_all_space(&mount.path);
            tail = until_full(&queue, &messages, tail);
            // Everything that is allocated may be written, and what was written can be read.
            drain_exactly(&queue, &messages, tail - queue.len(), tail);
            give_space_back(&mount.path);
        }
    }
}

#[test]
fn on_a_full_disk_the_oldest_are_dropped_when_that_was_asked_for_and_reported_to_each_consumer() {
    let mount = match mount("tmpfs", 24 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
    let _no_program_starts = no_program_starts();
    let messages = Messages::new(5, &[0..=100, 0..=5000]);
    let path = mount.path.join("queue");
    // Segments of 1 MiB, so that there are some to drop.
    let options = small_arenas().max_bytes(8 << 20);
    let queue = options.clone().open(&path).unwrap();
    let tail = until_full(&queue, &messages, 0);
    queue.consumer("beside").unwrap();
    queue.consumer("ahead").unwrap().seek(tail - 10).unwrap();
    queue.close().unwrap();
    take_all_space(&mount.path);
    let queue = options.on_full(OnFull::DropOldest).open(&path).unwrap();
    let next = tail + 2 * tail;
    for seq in tail..next {
        assert_eq!(queue.enqueue(messages.bytes(seq)).unwrap(), seq, "the oldest make room");
        if seq % 500 == 0 {
            take_all_space(&mount.path);
        }
    }
    let mut reported = Vec::new();
    for (name, place) in [("", 0), ("beside", 0), ("ahead", tail - 10)] {
        let consumer = (!name.is_empty()).then(|| queue.consumer(name).unwrap());
        let dequeue =
            || consumer.as_ref().map_or_else(|| queue.dequeue(), |consumer| consumer.dequeue());
        let drained = drain_by(dequeue, 4 * next, |seq, bytes| messages.check(seq, bytes));
        // Who never read before begins with what is held.
        let begin = if name.is_empty() { drained.messages()[0] } else { place };
        assert_eq!(drained.span(), Some((begin, next)), "each number is reported to {name:?} once");
        assert!(
            drained.gaps().iter().all(|gap| gap.cause == GapCause::Dropped && gap.last < next),
            "{name:?}"
        );
        assert!(drained.gaps().len() <= 1, "{:?}", drained.gaps());
        reported.push(drained.messages());
    }
    assert!(reported[0].len() as u64 <= tail + 1 && !reported[0].is_empty());
    assert!(
        reported[0] == reported[2] && reported[0] == reported[1],
        "what is held is the same for all"
    );
    queue.close().unwrap();
}

/// A segment could be longer than the disk: what was read gives its room all the same, and so do
/// the oldest.
#[test]
fn a_disk_that_holds_one_segment_only_is_used_again_and_again() {
    let mount = match mount("tmpfs", 3 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
    let _no_program_starts = no_program_starts();
    let messages = Messages::new(6, &[3000..=3000]);
    let path = mount.path.join("queue");
    let queue = Queue::open(&path).unwrap();
    let mut tail = until_full(&queue, &messages, 0);
    assert!(tail > 900, "only {tail} messages fit");
    let first = tail;
    for _ in 0..4 {
        drain_exactly(&queue, &messages, tail - queue.len(), tail);
        let next = until_full(&queue, &messages, tail);
        assert!(next - tail >= first - 5, "{} messages fitted, and then {}", first, next - tail);
        tail = next;
    }
    queue.close().unwrap();
    let queue = Options::new().on_full(OnFull::DropOldest).open(&path).unwrap();
    let head = tail - queue.len();
    let next = tail + 5 * first;
    for seq in tail..next {
        assert_eq!(queue.enqueue(messages.bytes(seq)).unwrap(), seq, "the oldest make room");
    }
    let drained = drain_by(|| queue.dequeue(), next, |seq, bytes| messages.check(seq, bytes));
    assert_eq!(drained.span(), Some((head, next)), "each number is reported once");
    assert!(
        drained.gaps().len() == 1 && drained.gaps()[0].cause == GapCause::Dropped,
        "{:?}",
        drained.gaps()
    );
}

#[test]
fn a_queue_cannot_be_made_on_a_full_disk_and_can_be_once_there_is_space() {
    let mount = match mount("tmpfs", 2 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
    let _no_program_starts = no_program_starts();
    take_all_space(&mount.path);
    let path = mount.path.join("queue");
    for _ in 0..3 {
        let error = small_arenas().open(&path).expect_err("there is no space for an index");
        assert!(error.is_full(), "{error}");
    }
    give_space_back(&mount.path);
    let queue = small_arenas().open(&path).unwrap();
    assert!(queue.is_empty());
    // The first segment may be refused on so small a disk, but only by an error.
    if let Err(error) = queue.enqueue("a") {
        assert!(error.is_full(), "{error}");
    }
}

#[test]
fn free_space_that_was_asked_to_be_left_is_left() {
    let mount = match mount("tmpfs", 32 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
    let _no_program_starts = no_program_starts();
    let options = small_arenas().min_free_bytes(10 << 20);
    let messages = Messages::new(4, &[0..=5000]);
    let queue = options.open(mount.path.join("queue")).unwrap();
    let tail = until_full(&queue, &messages, 0);
    let free = rustix::fs::statvfs(&mount.path).unwrap();
    assert!(
        free.f_bavail * free.f_frsize >= 10 << 20,
        "{} bytes are free",
        free.f_bavail * free.f_frsize
    );
    drain_exactly(&queue, &messages, 0, tail);
    fill_queue(&queue, &messages, tail, tail + 100);
}
