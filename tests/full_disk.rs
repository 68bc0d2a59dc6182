//! Promise P5: a full disk is an error, not a death. Small file systems are mounted for it, which root alone may do;
//! what cannot be mounted here is skipped with the reason printed.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mmq::{GapCause, OnFull, Options, Queue};
use support::{KIB, MIB, Messages, Random, drain_by, drain_exactly, fill_queue};
use tempfile::TempDir;

/// A mounted file system; gone when dropped, whatever the test came to.
struct Mount {
    path: PathBuf,
    _dir: TempDir,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a failed test may leave files open, and a drop must not hide its message behind another.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn done(command: &mut Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).output() {
        Err(error) => Err(format!("{:?}: {error}", command.get_program())),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A file system of about that many bytes.
fn mount(kind: &str, bytes: usize) -> Result<Mount, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root may mount".into());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mounted");
    fs::create_dir(&path).unwrap();
    if kind == "tmpfs" {
        done(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "mmq-test"]).arg(&path))?;
    } else {
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes as u64).unwrap();
        let options: &[&str] = match kind {
            "ext4" => &["-q", "-F", "-m", "0"],
            "xfs" => &["-q", "-f", "-m", "reflink=1"],
            // Data apart from metadata, as btrfs does by itself on anything but a tiny disk: where the metadata has no room
            // left either, it refuses even stores into allocated pages that are not copied on write (see the README).
            _ => &["-q", "-f"],
        };
        done(Command::new(format!("mkfs.{kind}")).args(options).arg(&image))?;
        done(Command::new("mount").args(["-t", kind, "-o", "loop"]).arg(&image).arg(&path))?;
    }
    Ok(Mount { path, _dir: dir })
}

/// Said past the capture of a test's output, so that a run shows what it did not try.
fn skip(kind: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: a full {kind}: {reason}");
}

/// Takes every byte that is left, in ever smaller pieces. (Larger ones once more: btrfs finds some room after it had none.)
fn take_all_space(mount: &Path) {
    // btrfs may have no room left even for a name.
    let Ok(mut file) = fs::File::options().append(true).create(true).open(mount.join("filler")) else { return };
    for piece in [MIB, 64 * KIB, 4 * KIB, 64 * KIB, 4 * KIB, 512] {
        while file.write_all(&vec![0xcc; piece]).is_ok() && file.sync_data().is_ok() {}
    }
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

/// Times a queue is opened and closed on a full disk.
const REOPENINGS: u64 = 1000;

fn all_of_it(kind: &str, bytes: usize, options: &Options) {
    let mount = match mount(kind, bytes) {
        Ok(mount) => mount,
        Err(reason) => return skip(kind, &reason),
    };
    let queue_dir = mount.path.join("queue");
    // The smallest are numerous enough for a thousand reads.
    let messages = Messages::new(bytes as u64, &[0..=100, 0..=3000, bytes / 3000..=bytes / 1500]);
    // Room for a segment, given back at the end.
    fs::write(mount.path.join("reserve"), vec![0xaa; 5 * MIB + bytes / 16]).unwrap();
    let queue = options.clone().open(&queue_dir).unwrap();
    let beside = queue.consumer("beside").unwrap();
    let mut tail = until_full(&queue, &messages, 0);
    assert!(tail > 1000 + REOPENINGS + 100, "only {tail} messages fit");
    take_all_space(&mount.path);
    for kind_of_call in 0..20 {
        let refused = match kind_of_call % 4 {
            0 => queue.enqueue(vec![1; 2 * MIB]).map(drop),
            1 => queue.enqueue_batch(vec![vec![1; 100 * KIB]; 30]).map(drop),
            2 => queue.enqueue_with(2 * MIB, |bytes| bytes.fill(1)).map(drop),
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
        queue.flush().unwrap();
    }
    // Both ends work on a full disk: closing it, and opening it again.
    drop(beside);
    queue.close().unwrap();
    let reopened = 1000 + REOPENINGS;
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
    all_of_it("ext4", 48 * MIB, &large_arenas());
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
            fs::remove_file(mount.path.join("filler")).unwrap();
        }
    }
}

#[test]
fn on_a_full_disk_the_oldest_are_dropped_when_that_was_asked_for_and_each_consumer_is_told() {
    let mount = match mount("tmpfs", 24 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
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
    let mut told = Vec::new();
    for (name, place) in [("", 0), ("beside", 0), ("ahead", tail - 10)] {
        let consumer = (!name.is_empty()).then(|| queue.consumer(name).unwrap());
        let dequeue = || consumer.as_ref().map_or_else(|| queue.dequeue(), |consumer| consumer.dequeue());
        let drained = drain_by(dequeue, 4 * next, |seq, bytes| messages.check(seq, bytes));
        // Who never read before begins with what is held.
        let begin = if name.is_empty() { drained.messages()[0] } else { place };
        assert_eq!(drained.span(), Some((begin, next)), "{name:?} is told of each number once");
        assert!(drained.gaps().iter().all(|gap| gap.cause == GapCause::Dropped && gap.last < next), "{name:?}");
        assert!(drained.gaps().len() <= 1, "{:?}", drained.gaps());
        told.push(drained.messages());
    }
    assert!(told[0].len() as u64 <= tail + 1 && !told[0].is_empty());
    assert!(told[0] == told[2] && told[0] == told[1], "what is held is the same for all");
    queue.close().unwrap();
}

/// A segment could be longer than the disk: what was read gives its room all the same, and so do the oldest.
#[test]
fn a_disk_that_holds_one_segment_only_is_used_again_and_again() {
    let mount = match mount("tmpfs", 3 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
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
    assert_eq!(drained.span(), Some((head, next)), "each number is told of once");
    assert!(drained.gaps().len() == 1 && drained.gaps()[0].cause == GapCause::Dropped, "{:?}", drained.gaps());
}

/// One of many ways to use a queue on a small disk.
#[derive(Debug)]
struct Use {
    disk: usize,
    options: Options,
    messages: Messages,
    beside: bool,
    deliveries: bool,
    lends: bool,
}

impl Use {
    fn any(random: &mut Random) -> Use {
        let disk = random.size(2 * MIB..=6 * MIB) / 4096 * 4096;
        let arena = *random.pick(&[4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 128 << 20]);
        let options = Options::new()
            .arena_size(arena)
            .max_mapped_arenas(random.chance(2).then_some(3))
            .flush_every_ops(random.chance(4).then_some(1))
            .min_free_bytes(if random.chance(3) { 300 << 10 } else { 0 })
            .max_bytes(random.chance(3).then_some(disk as u64 * 9 / 10));
        let sizes = random.pick(&[0..=100, 3000..=3000, 0..=20_000, 40_000..=90_000]).clone();
        let messages = Messages::new(random.next(), &[sizes]);
        Use { disk, options, messages, beside: random.chance(2), deliveries: random.chance(3), lends: random.chance(3) }
    }

    /// Puts the message of that number in, or it and some that follow in a batch.
    fn put(&self, queue: &Queue, seq: u64, random: &mut Random) -> mmq::Result<u64> {
        let bytes = self.messages.bytes(seq);
        match random.below(4) {
            0 => queue.enqueue_batch((seq..seq + 3).map(|seq| self.messages.bytes(seq))).map(|given| given.end),
            1 => queue.enqueue_with(bytes.len(), |room| room.copy_from_slice(&bytes)).map(|given| given + 1),
            _ => queue.enqueue(&bytes).map(|given| given + 1),
        }
    }

    /// Up to the first refusal. The number behind the last one, and the bytes that they have.
    fn fill(&self, queue: &Queue, from: u64, random: &mut Random) -> (u64, u64) {
        let (mut seq, mut bytes) = (from, 0);
        loop {
            match self.put(queue, seq, random) {
                Ok(next) => {
                    bytes += (seq..next).map(|seq| self.messages.len_of(seq) as u64 + 16).sum::<u64>();
                    seq = next;
                }
                Err(error) => {
                    assert!(error.is_full(), "{error}");
                    return (seq, bytes);
                }
            }
        }
    }

    fn drain(&self, queue: &Queue, held: &mut Vec<mmq::Message>) {
        if self.deliveries {
            let mut deliveries = Vec::new();
            while let Some(delivery) = queue.receive().unwrap() {
                self.messages.check(delivery.seq(), &delivery);
                deliveries.push(delivery);
                if deliveries.len() == 20 {
                    deliveries.drain(..).rev().for_each(|delivery| delivery.ack().unwrap());
                }
            }
            deliveries.into_iter().rev().for_each(|delivery| delivery.ack().unwrap());
        }
        while let Some(message) = queue.dequeue().unwrap() {
            self.messages.check(message.seq(), &message);
            if self.lends && message.seq() % 50 == 7 {
                held.push(message);
            }
        }
        if self.beside {
            let beside = queue.consumer("beside").unwrap();
            while beside.skip().unwrap().is_some() {}
        }
    }

    fn what_was_read_makes_room(&self, path: &Path, random: &mut Random) {
        let queue = self.options.clone().open(path).unwrap();
        let mut held = Vec::new();
        self.drain(&queue, &mut held);
        let (mut tail, first) = self.fill(&queue, 0, random);
        for round in 0..4 {
            self.drain(&queue, &mut held);
            if self.lends {
                // What is lent may take all the space there is.
                self.fill(&queue, tail, random);
                self.drain(&queue, &mut held);
                held.iter().for_each(|message| self.messages.check(message.seq(), message));
                held.clear();
                tail = queue.stats().next_seq;
            }
            let (next, bytes) = self.fill(&queue, tail, random);
            // The rest of what was filled before lies before it in the last segment, which may take half of the disk.
            assert!(5 * bytes >= 2 * first, "{bytes} of {first} bytes found room in round {round}");
            tail = next;
        }
    }

    fn the_oldest_are_dropped(&self, path: &Path, random: &mut Random) {
        let queue = self.options.clone().on_full(OnFull::DropOldest).open(path).unwrap();
        queue.dequeue().unwrap();
        if self.beside {
            queue.consumer("beside").unwrap();
        }
        let (mut seq, mut bytes) = (0, 0);
        while bytes < 4 * self.disk {
            let next = self.put(&queue, seq, random).unwrap();
            bytes += (seq..next).map(|seq| self.messages.len_of(seq) + 100).sum::<usize>();
            seq = next;
        }
        let drained = drain_by(|| queue.dequeue(), 2 * seq, |seq, bytes| self.messages.check(seq, bytes));
        assert_eq!(drained.span(), Some((0, seq)));
        assert!(drained.gaps().iter().all(|gap| gap.cause == GapCause::Dropped), "{:?}", drained.gaps());
    }

    fn whoever_waits_goes_on(&self, path: &Path, random: &mut Random) {
        let limit = Duration::from_secs(60);
        let queue = self.options.clone().on_full(OnFull::Wait(Some(limit))).open(path).unwrap();
        assert!(queue.dequeue().unwrap().is_none());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut next = 0;
                while let Some(message) = queue.dequeue_timeout(limit).unwrap() {
                    assert_eq!(message.seq(), next);
                    next += 1;
                    if &*message == b"the end" {
                        break;
                    }
                    self.messages.check(message.seq(), &message);
                }
                next
            });
            let (mut seq, mut bytes) = (0, 0);
            while bytes < 4 * self.disk {
                let next = self.put(&queue, seq, random).unwrap();
                bytes += (seq..next).map(|seq| self.messages.len_of(seq) + 100).sum::<usize>();
                seq = next;
            }
            queue.enqueue("the end").unwrap();
            assert_eq!(reader.join().unwrap(), seq + 1);
        });
    }
}

#[test]
fn however_a_small_disk_is_used_what_was_read_or_may_be_dropped_makes_room() {
    let seed = support::seed("however_a_small_disk_is_used");
    for case in 0..support::count("MMQ_FULL_DISK_CASES", 24) {
        let mut random = Random::new(seed ^ case);
        let used = Use::any(&mut random);
        let mount = match mount("tmpfs", used.disk) {
            Ok(mount) => mount,
            Err(reason) => return skip("tmpfs", &reason),
        };
        println!("case {case}: {used:?}");
        let path = mount.path.join("queue");
        match case % 3 {
            0 => used.what_was_read_makes_room(&path, &mut random),
            1 => used.the_oldest_are_dropped(&path, &mut random),
            _ => used.whoever_waits_goes_on(&path, &mut random),
        }
    }
}

#[test]
fn a_queue_cannot_be_made_on_a_full_disk_and_can_be_once_there_is_space() {
    let mount = match mount("tmpfs", 2 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
    take_all_space(&mount.path);
    let path = mount.path.join("queue");
    for _ in 0..3 {
        let error = small_arenas().open(&path).expect_err("there is no space for an index");
        assert!(error.is_full(), "{error}");
    }
    fs::remove_file(mount.path.join("filler")).unwrap();
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
    let options = small_arenas().min_free_bytes(10 << 20);
    let messages = Messages::new(4, &[0..=5000]);
    let queue = options.open(mount.path.join("queue")).unwrap();
    let tail = until_full(&queue, &messages, 0);
    let free = rustix::fs::statvfs(&mount.path).unwrap();
    assert!(free.f_bavail * free.f_frsize >= 10 << 20, "{} bytes are free", free.f_bavail * free.f_frsize);
    drain_exactly(&queue, &messages, 0, tail);
    fill_queue(&queue, &messages, tail, tail + 100);
}

/// Names the work of a process that a test of this file starts, and where it does it.
const WORK: &str = "MMQ_FULL_DISK_WORK";
const WORKPLACE: &str = "MMQ_FULL_DISK_WORKPLACE";
/// What a process that hangs is given.
const DEADLINE: Duration = Duration::from_secs(120);

/// Does `work` in a process of its own, which must come to its end: neither a signal nor a page fault that never ends can be
/// told from within.
#[track_caller]
fn in_a_child(work: &str, place: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "work_of_a_child", "--nocapture"])
        .env(WORK, work)
        .env(WORKPLACE, place)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
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
    let (Ok(work), Some(place)) = (std::env::var(WORK), std::env::var_os(WORKPLACE)) else { return };
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
                done(Command::new("btrfs").args(["subvolume", "snapshot"]).args([&place, &place.join("backup")]))
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

/// The kernel repeated the page fault of a store for ever: at message 18,876 with the first number, at 9,637 with the other.
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
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, taken).unwrap();
        in_a_child("fill", &mount.path);
    }
}

/// Messages in a queue that is copied.
const COPIED: u64 = 40;

fn copied() -> Messages {
    Messages::new(9, &[100_000..=100_000])
}

/// A queue is copied by a call that shares extents, and the disk fills up: what the queue stores needs new space from now on.
fn goes_on_after_a_copy(kind: &str, copy: impl Fn(&Path) -> Result<(), String>, work: &str) {
    let mount = match mount(kind, 400 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip(kind, &reason),
    };
    let place = mount.path.join("place");
    let made = match kind {
        "btrfs" => done(Command::new("btrfs").args(["subvolume", "create"]).arg(&place)),
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
    // With space again nothing is missing. What was taken may come again: its place was not to be stored.
    fs::remove_file(place.join("filler")).unwrap();
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
        done(Command::new("cp").args(["-a", "--reflink=always"]).arg(place.join("queue")).arg(place.join("backup")))
    };
    goes_on_after_a_copy("xfs", copy, "go on");
}

#[test]
fn after_a_snapshot_a_full_btrfs_is_an_error_at_most() {
    let snapshot = |place: &Path| {
        let backup = place.with_file_name("backup");
        done(Command::new("btrfs").args(["subvolume", "snapshot"]).arg(place).arg(backup))
    };
    goes_on_after_a_copy("btrfs", snapshot, "go on");
}

#[test]
fn a_snapshot_of_an_open_queue_on_a_full_btrfs_is_an_error_at_most() {
    goes_on_after_a_copy("btrfs", |_| Ok(()), "go on, and a snapshot");
}
