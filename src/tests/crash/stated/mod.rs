//! Stated numbers: the bytes of the index that state them are damaged in place, or belong to
//! another time, and only their own checks can show it.

mod anew;
mod between;
mod copies;
mod index;
mod lost;

use rustix::io::Errno;

use super::directed::{disk, is_of_a_cut, options, take_all};
use super::examine::{Queue, check_accounts, consumer_of, next_of, open};
use super::model::content;
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::format::segment_slot;
use crate::index::IndexFile;
use crate::index::image::IndexImage;
use crate::options::Options;
use crate::storage::Stores;
use crate::tests::sim::{Call, Mutant, SimStorage};

/// Twenty messages of which five were taken; closed in order.
fn closed(every: Option<u64>) -> SimStorage {
    let queue = open(disk(1), &options().flush_every_ops(every)).unwrap();
    queue.default_consumer().unwrap();
    for number in 0..20 {
        queue.enqueue(&content(number, 100)).unwrap();
    }
    take(&queue, 5);
    queue.close().unwrap();
    queue.core.storage.process_kill()
}

fn take(queue: &Queue, count: u64) {
    let consumer = queue.default_consumer().unwrap().clone();
    for _ in 0..count {
        reading::next(queue, &consumer, Read::Take).unwrap().unwrap();
    }
}

/// All from the fifth on, up to `end`, and nothing else.
fn reported_up_to(queue: &Queue, end: u64) -> bool {
    take_all(queue)
        .unwrap()
        .into_iter()
        .eq((5..end).map(|number| Ok((number, content(number, 100)))))
}

/// Segments of 24 KiB, and room for quarantined ones.
fn roomy() -> Options {
    options().arena_size(8192).max_bytes(192 << 10)
}

/// Sixty messages in several segments, flushed one by one.
fn killed() -> Queue {
    let queue = open(disk(2), &roomy().flush_every_ops(1)).unwrap();
    for number in 0..60 {
        assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number);
    }
    queue
}

/// Every number below `end` is reported once and in order, by a message or a gap; nothing of it
/// twice. Returns the gaps.
fn reported_all(queue: &Queue, name: &str, end: u64) -> Vec<Gap> {
    let consumer = consumer_of(queue, name).unwrap();
    let (mut at, mut gaps) = (0, Vec::new());
    loop {
        match reading::next(queue, &consumer, Read::Take) {
            Ok(Some(message)) => {
                assert_eq!(message.seq(), at);
                assert!(message[..] == content(at, 700)[..]);
                at += 1;
            }
            Err(Error::Gap(gap)) => {
                assert_eq!(gap.first, at, "{gap:?}");
                assert!(gap.cause != GapCause::Reserved || gap.first >= end, "{gap:?}");
                gaps.push(gap);
                at = gap.last + 1;
            }
            Ok(None) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(
        at >= end,
        "nothing is reported to {name:?} from {at} on, {end} were acknowledged: {gaps:?}"
    );
    assert_eq!(at, next_of(queue), "the rest is reported before the queue says that it is empty");
    gaps
}

/// Everything was said to be durable, the process dies, and something is done to a segment's file:
/// where the queue is, seen from another mount, and in a copy. Each number is reported, by whoever
/// reads, before the queue says that it is empty.
#[test]
fn whatever_becomes_of_a_segment_no_acknowledged_number_is_unmentioned() {
    let dead = killed();
    let storage = &dead.core.storage;
    let names: Vec<_> =
        storage.file_names().into_iter().filter(|name| segment_slot(name).is_some()).collect();
    assert!(names.len() > 1);
    let old = {
        let queue = open(disk(2), &roomy().flush_every_ops(1)).unwrap();
        (0..30)
            .for_each(|number| assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number));
        queue.core.storage.process_kill()
    };
    type Damage = fn(&SimStorage, &SimStorage, &str);
    let damages: [(&str, Damage); 8] = [
        ("removed", |storage, _, name| storage.remove_file(name)),
        ("emptied", |storage, _, name| storage.write_file(name, &[])),
        ("zeroed", |storage, _, name| {
            storage.write_file(name, &vec![0; storage.read_file(name).len()])
        }),
        ("cut in the header", |storage, _, name| {
            storage.write_file(name, &storage.read_file(name)[..100])
        }),
        ("cut", |storage, _, name| storage.write_file(name, &storage.read_file(name)[..3000])),
        ("cut at its end", |storage, _, name| {
            storage.write_file(name, &storage.read_file(name)[..8000])
        }),
        ("shifted", |storage, _, name| {
            let bytes = storage.read_file(name);
            storage.write_file(name, &[&[0; 8], &bytes[..bytes.len() - 8]].concat());
        }),
        ("replaced by an older copy", |storage, old, name| {
            if old.file_names().iter().any(|other| other == name) {
                storage.write_file(name, &old.read_file(name));
            }
        }),
    ];
    type See = fn(&SimStorage) -> SimStorage;
    let elsewhere: [(&str, See); 3] = [
        ("in place", SimStorage::process_kill),
        ("another mount", SimStorage::seen_elsewhere),
        ("copied", SimStorage::copied),
    ];
    let all: Vec<Vec<&String>> =
        names.iter().map(|name| vec![name]).chain([names.iter().collect()]).collect();
    for (what, damage) in damages {
        for (place, see) in elsewhere {
            for damaged in &all {
                let image = see(storage);
                damaged.iter().for_each(|name| damage(&image, &old, name));
                let reported = format!("{damaged:?} {what}, {place}");
                println!("{reported}");
                let queue = open(image, &roomy()).unwrap();
                let position = queue.core.committed_spot().position;
                assert!(
                    position >= dead.core.committed_spot().position,
                    "{reported}: positions never go backwards"
                );
                consumer_of(&queue, "named").unwrap();
                for name in ["", "named"] {
                    let gaps = reported_all(&queue, name, 60);
                    assert!(
                        gaps.iter().all(|gap| gap.cause != GapCause::Unflushed),
                        "{reported}: {gaps:?}"
                    );
                }
                let seq = queue.enqueue(b"new").unwrap();
                assert!(seq >= 60, "{reported}: {seq} is given out twice");
                assert_eq!(take_all(&queue).unwrap(), [Ok((seq, b"new".to_vec()))], "{reported}");
                queue.close().unwrap();
                let queue = open(queue.core.storage.process_kill(), &roomy()).unwrap();
                assert_eq!(take_all(&queue).unwrap(), [], "{reported}");
                assert_eq!(queue.enqueue(b"newer").unwrap(), seq + 1, "{reported}");
            }
        }
    }
}

/// An older copy of the index is put back where the queue is, in the same boot, or in a copy:
/// everything that was written since is found, and no number is given out twice.
#[test]
fn an_older_index_put_back_hides_nothing() {
    for (closed, copied) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = options().max_bytes(512 << 10);
        let storage = SimStorage::new(3).with_file_capacity(128 << 10);
        let queue = open(storage.clone(), &options).unwrap();
        (0..5).for_each(|number| assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number));
        queue.core.flush().unwrap();
        if closed {
            queue.close().unwrap();
        }
        let old = storage.read_file("index");
        drop(queue);
        let queue = open(storage.clone(), &options).unwrap();
        (5..200)
            .for_each(|number| assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number));
        queue.close().unwrap();
        drop(queue);
        storage.write_file("index", &old);
        let image = if copied { storage.copied() } else { storage };
        let queue = open(image, &options).unwrap();
        check_accounts(&queue).unwrap();
        let gaps = reported_all(&queue, "", 200);
        assert!(
            gaps.iter().all(|gap| gap.cause == GapCause::Reserved),
            "closed {closed}, copied {copied}: {gaps:?}"
        );
        let seq = queue.enqueue(b"new").unwrap();
        assert!(seq >= 200);
        queue.close().unwrap();
        let queue = open(queue.core.storage.process_kill(), &options).unwrap();
        check_accounts(&queue).unwrap();
        assert_eq!(take_all(&queue).unwrap(), [Ok((seq, b"new".to_vec()))]);
    }
}

/// A segment was drained and its file used again, and then an older copy of the index is put back.
/// Each row of that copy has a file; only the header of the first one shows that the file is of a
/// later life.
#[test]
fn the_ends_of_the_list_are_looked_at() {
    let history = || {
        let storage = disk(4);
        let queue = open(storage.clone(), &options()).unwrap();
        queue.default_consumer().unwrap();
        (0..20)
            .for_each(|number| assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number));
        let old = storage.read_file("index");
        let slots = |queue: &Queue| -> Vec<u32> {
            let mut slots: Vec<_> =
                queue.core.segments.list().live.iter().map(|row| row.slot).collect();
            slots.sort_unstable();
            slots
        };
        let before = slots(&queue);
        take_some(&queue, 15);
        for number in 20..30 {
            assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number);
        }
        assert_eq!(slots(&queue), before, "the first one's file is used again");
        queue.core.flush().unwrap();
        drop(queue);
        storage.corrupt("index", 0, &old);
        let queue = open(storage, &options()).unwrap();
        let seq = queue.enqueue(b"new").unwrap();
        let reported = take_all(&queue).unwrap();
        let last = reported.iter().flatten().map(|(seq, _)| *seq).rfind(|number| *number < seq);
        (seq, last)
    };
    let found = history();
    assert!(found.0 >= 30 && found.1 == Some(29), "{found:?}");
    Mutant::plant(Some(Mutant::EndsNotLookedAt));
    let found = std::panic::catch_unwind(history);
    Mutant::plant(None);
    assert!(
        !found.is_ok_and(|found| found.0 >= 30 && found.1 == Some(29)),
        "the planted bug is not found"
    );
}

fn take_some(queue: &Queue, count: u64) {
    let consumer = queue.default_consumer().unwrap().clone();
    (0..count)
        .for_each(|_| assert!(reading::next(queue, &consumer, Read::Skip).unwrap().is_some()));
    queue.give_space_back();
}

fn states_a_tail(storage: &SimStorage) -> bool {
    let file = IndexFile::read(storage).unwrap().unwrap();
    IndexImage::read(&file.bytes, &file.queue_id().unwrap()).live.tail.is_some()
}

/// Overwrites the first byte of that content, in whichever file it is.
fn damage(storage: &SimStorage, content: &[u8]) {
    for name in storage.file_names().into_iter().filter(|name| segment_slot(name).is_some()) {
        let bytes = storage.read_file(&name);
        if let Some(at) = bytes.windows(content.len()).position(|window| window == content) {
            return storage.corrupt(&name, at, &[!content[0]]);
        }
    }
    panic!("no file has it");
}

/// The process dies at each store of a commit, and a message before it is damaged: that message
/// alone is lost, and reported, also when the index does not say where the tail stands.
#[test]
fn killed_within_a_commit_damage_costs_its_message_alone() {
    let options = options().max_bytes(256 << 10);
    let mut unknown = 0;
    for (store, damaged) in (1..8).flat_map(|store| [(store, 0), (store, 12), (store, 29)]) {
        let queue = open(disk(6), &options).unwrap();
        queue.default_consumer().unwrap();
        for number in 0..30 {
            assert_eq!(queue.enqueue(&content(number, 100)).unwrap(), number);
        }
        queue.core.storage.freeze_at_store(store);
        queue.enqueue(&content(30, 100)).unwrap();
        queue.core.storage.disarm();
        let Some(dead) = queue.core.storage.frozen() else { break };
        damage(&dead, &content(damaged, 100));
        unknown += u32::from(!states_a_tail(&dead));
        let queue = open(dead, &options).unwrap();
        let next = next_of(&queue);
        assert!((30..=31).contains(&next), "store {store}: {next}");
        let reported = take_all(&queue).unwrap();
        let gap = Gap { first: damaged, last: damaged, cause: GapCause::Damaged };
        let expected = (0..next).map(|number| match number {
            _ if number == damaged => Err(gap),
            _ => Ok((number, content(number, 100))),
        });
        assert!(reported.into_iter().eq(expected), "store {store}, damaged {damaged}");
    }
    assert!(unknown >= 6, "{unknown}");
}

/// The process dies and the queue is opened in another mount namespace: no message is missing. With
/// a reservation the numbers up to its end are skipped, because another mount may have lost some
/// that were given out. The same when another process had it since.
#[test]
fn another_mount_namespace_is_no_power_cut() {
    for (every, stores) in
        [(None, 0), (Some(1), 0)].into_iter().chain((1..8).map(|store| (None, store)))
    {
        let options = options().max_bytes(256 << 10).flush_every_ops(every);
        let storage = disk(5);
        let queue = open(storage.clone(), &options).unwrap();
        queue.default_consumer().unwrap();
        (0..30)
            .for_each(|number| assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number));
        if stores > 0 {
            storage.freeze_at_store(stores);
            queue.enqueue(&content(30, 700)).unwrap();
            storage.disarm();
        }
        let dead = storage.frozen().unwrap_or_else(|| storage.process_kill()).seen_elsewhere();
        let queue = open(dead, &options).unwrap();
        let synced = queue.core.storage.call_count(Call::SyncFile);
        let next = next_of(&queue);
        if stores == 0 {
            assert_eq!(next == 30, every == Some(1), "{next}");
            // What the last segment states is made durable before other numbers are stated, and
            // those before a read reports them.
            assert!(every == Some(1) || synced <= 2, "{synced} syncs at opening");
        }
        assert_eq!(queue.enqueue(&content(next, 700)).unwrap(), next);
        // Killed between the stores of the tail, the index does not say what is there.
        let gaps = reported_all(&queue, "", 30);
        assert!(
            gaps.iter().all(|gap| every.is_none() && gap.cause == GapCause::Reserved),
            "{stores}: {gaps:?}"
        );
        let queue = open(queue.core.storage.seen_elsewhere(), &options).unwrap();
        assert_eq!(next_of(&queue) == next + 1, every == Some(1));
        let reported = take_all(&queue).unwrap();
        assert!(
            reported.iter().all(|it| it.as_ref().is_err_and(|gap| gap.cause == GapCause::Reserved)),
            "{reported:?}"
        );
    }
}

/// The file system failed and was mounted again in the same boot: what was flushed is there, the
/// rest is reported, no number of what consumers may have seen is given out again unless everything
/// the index knows of is there.
#[test]
fn a_remount_in_the_same_boot_may_be_a_power_cut() {
    let mut lost = 0;
    for seed in 0..300 {
        let queue = open(disk(seed), &options().max_bytes(256 << 10)).unwrap();
        queue.default_consumer().unwrap();
        for number in 0..24 {
            assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number);
            if number == 9 {
                queue.core.flush().unwrap();
            }
            if number % 5 == seed % 5 {
                queue.core.storage.snapshot();
            }
        }
        let queue =
            open(queue.core.storage.mounted_again(seed), &options().max_bytes(256 << 10)).unwrap();
        let stated = next_of(&queue);
        let gaps = reported_all(&queue, "", 10);
        assert!(
            gaps.iter().all(|gap| gap.first >= 10 && is_of_a_cut(gap)),
            "seed {seed}: {gaps:?}"
        );
        lost += u32::from(gaps.iter().any(|gap| gap.cause == GapCause::Unflushed));
        assert_eq!(queue.enqueue(b"new").unwrap(), stated);
        assert_eq!(take_all(&queue).unwrap(), [Ok((stated, b"new".to_vec()))], "seed {seed}");
    }
    assert!((100..300).contains(&lost), "{lost}");
}

/// Power is cut within a batch, and the disk is full when the queue is opened: what is left of the
/// batch is overwritten all the same, or the opening fails; it is never delivered.
#[test]
fn a_torn_batch_that_cannot_be_overwritten_is_not_delivered() {
    let options = options().arena_size(16 << 10).max_bytes(256 << 10);
    let torn = |safe: bool, errno: Errno, refused: &mut u32| {
        (0..200).all(|seed| {
            let queue = open(disk(seed), &options).unwrap();
            queue.default_consumer().unwrap();
            queue.enqueue(b"before").unwrap();
            queue.core.flush().unwrap();
            queue.enqueue_batch(&[content(1, 3000), content(2, 3000), content(3, 3000)]).unwrap();
            let cut = queue.core.storage.power_cut(seed);
            cut.set_stores(if safe { Stores::ByMap } else { Stores::ByCall });
            cut.fail_after(Call::Write, 1, errno, false);
            let opened = open(cut.clone(), &options);
            cut.clear_faults();
            let queue = match opened {
                Ok(queue) => open(queue.core.storage.process_kill(), &options).unwrap(),
                Err(error) => {
                    *refused += 1;
                    assert!(
                        !safe && error.contains("write") && error.contains("segment-"),
                        "{error}"
                    );
                    // It opens when the disk takes the write.
                    open(cut.process_kill(), &options).unwrap()
                }
            };
            let reported = take_all(&queue).unwrap();
            [1, 4].contains(&reported.iter().flatten().count())
        })
    };
    let mut refused = [0; 2];
    assert!(torn(true, Errno::NOSPC, &mut refused[0]) && torn(false, Errno::IO, &mut refused[1]));
    assert!(refused[0] == 0 && refused[1] > 20, "{refused:?}");
    Mutant::plant(Some(Mutant::TornRestKept));
    let found = torn(true, Errno::NOSPC, &mut 0);
    Mutant::plant(None);
    assert!(!found, "the planted bug is not found");
}
