//! Files that somebody put back from a copy, copied or removed: the disk may lack all of their
//! bytes, whatever the index says of the run before.

use rustix::io::Errno;

use super::{disk, options, take_all};
use crate::consume::redelivery_state::Rules;
use crate::consume::step::Read;
use crate::engine::reading::{self, AsMessage};
use crate::format::{INDEX_NAME, SEGMENT_HEADER_LEN, segment_name};
use crate::read::Check;
use crate::storage::{Storage, StorageFile};
use crate::tests::crash::examine::{Queue, consumer_of, open};
use crate::tests::crash::model::content;
use crate::tests::sim::{Call, SimStorage};

const LEN: usize = 700;

fn put(queue: &Queue, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| assert_eq!(queue.enqueue(&content(number, LEN)).unwrap(), number));
}

/// Puts a file back as `cp` does: into the page cache.
fn put_back(storage: &SimStorage, name: &str, bytes: &[u8]) {
    let _ = storage.remove(name);
    let file = storage.create(name).unwrap();
    file.allocate(0, bytes.len() as u64).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// Changes the bytes of the file, and no name, as `cp` does with a file that is there.
fn write_over(storage: &SimStorage, name: &str, bytes: &[u8]) {
    let file = storage.open(name).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// As [`write_over`], and the disk had other bytes.
fn write_over_others(storage: &SimStorage, name: &str, bytes: &[u8]) {
    write_over(storage, name, &vec![0; bytes.len()]);
    storage.open(name).unwrap().sync().unwrap();
    write_over(storage, name, bytes);
}

type PutBack = fn(&SimStorage, &str, &[u8]);

/// A closed queue of thirty messages on this disk, of which these files were put back.
fn closed_and_put_back(
    disk: SimStorage,
    is_put_back: fn(&str) -> bool,
    put_back: PutBack,
) -> SimStorage {
    let queue = open(disk, &options()).unwrap();
    put(&queue, 0..30);
    queue.core.flush().unwrap();
    queue.close().unwrap();
    let storage = queue.core.storage.process_kill();
    for (name, bytes) in storage.contents().into_iter().filter(|(name, _)| is_put_back(name)) {
        put_back(&storage, &name, &bytes);
    }
    storage
}

/// The numbers of the messages that come after a power cut, and how many numbers are missing.
fn after_a_cut(storage: &SimStorage) -> (Vec<u64>, u64) {
    let queue = open(storage.power_cut_losing_all(), &options()).unwrap();
    let reported = take_all(&queue).unwrap();
    let missing = reported.iter().filter_map(|one| one.as_ref().err());
    let missing = missing.map(|gap| gap.last - gap.first + 1).sum();
    (reported.into_iter().flatten().map(|(seq, _)| seq).collect(), missing)
}

#[test]
fn what_was_put_back_from_a_copy_is_on_the_disk_once_it_is_flushed() {
    let is_segment = |name: &str| name != INDEX_NAME;
    type Which = fn(&str) -> bool;
    let parts: [(&str, Which); 3] =
        [("all", |_| true), ("the segments", is_segment), ("the index", |name| name == INDEX_NAME)];
    for (what, which) in parts {
        let both: [PutBack; 2] = [put_back, write_over_others];
        for (puts_one, how) in [false, true].into_iter().flat_map(|one| both.map(|how| (one, how)))
        {
            let storage = closed_and_put_back(disk(1), which, how);
            let end = 30 + u64::from(puts_one);
            let queue = open(storage, &options()).unwrap();
            put(&queue, 30..end);
            queue.core.flush().unwrap();
            queue.close().unwrap();
            let came = after_a_cut(&queue.core.storage);
            assert_eq!(came, ((0..end).collect(), 0), "{what}, {puts_one}");
        }
    }
}

/// A spare of the backup was used again since, and its file is written over, too: the messages of
/// its later life do not come back with a power cut.
#[test]
fn a_spare_that_was_written_over_is_none_of_later_messages() {
    let queue = open(disk(4), &options()).unwrap();
    queue.default_consumer().unwrap();
    put(&queue, 0..30);
    for _ in 0..30 {
        let consumer = consumer_of(&queue, "").unwrap();
        reading::next(&queue, &consumer, Read::Take).unwrap();
    }
    queue.core.drain_passed();
    queue.core.reclaim().unwrap();
    queue.close().unwrap();
    let storage = queue.core.storage.process_kill();
    drop(queue);
    let backup = storage.contents();
    let queue = open(storage, &options()).unwrap();
    assert!(queue.core.segments.list().spares() > 0);
    put(&queue, 30..50);
    queue.core.flush().unwrap();
    queue.close().unwrap();
    let storage = queue.core.storage.process_kill();
    drop(queue);
    for name in storage.contents().into_keys() {
        match backup.iter().find(|(kept, _)| **kept == name) {
            Some((_, bytes)) => write_over(&storage, &name, bytes),
            None => storage.remove(&name).unwrap(),
        }
    }
    let queue = open(storage, &options()).unwrap();
    queue.core.flush().unwrap();
    queue.close().unwrap();
    assert_eq!(after_a_cut(&queue.core.storage), (Vec::new(), 0));
}

/// A copy of a queue in use has a hole where `cp` read before its owner wrote, and the owner's
/// later messages behind it. Put back in the place of the owner's files, these never follow newer
/// ones.
#[test]
fn old_messages_of_a_torn_copy_do_not_follow_newer_ones() {
    let options = options().arena_size(32 << 10).max_bytes(512 << 10);
    let queue = open(disk(2), &options).unwrap();
    put(&queue, 0..10);
    let index = queue.core.storage.read_file(INDEX_NAME);
    let from = queue.core.committed().spot();
    put(&queue, 10..12);
    let to = queue.core.committed().spot();
    put(&queue, 12..25);
    let storage = queue.core.storage.process_kill();
    let name = segment_name(0);
    let mut bytes = storage.read_file(&name);
    let offset = |position: u64| (SEGMENT_HEADER_LEN + position) as usize;
    bytes[offset(from.position)..offset(to.position)].fill(0);
    put_back(&storage, &name, &bytes);
    put_back(&storage, INDEX_NAME, &index);

    let queue = open(storage, &options).unwrap();
    let newer: Vec<u64> =
        (100..102).map(|text| queue.enqueue(&content(text, LEN)).unwrap()).collect();
    let again = open(queue.core.storage.process_kill(), &options).unwrap();
    let came: Vec<_> = take_all(&again).unwrap().into_iter().flatten().collect();
    let last: Vec<_> = came.iter().rev().take(2).rev().cloned().collect();
    let wanted = [(newer[0], content(100, LEN)), (newer[1], content(101, LEN))];
    assert!(last == wanted, "the newest messages come last");
}

/// The first run over a copy could not sync it, which leaves its pages clean, and on ext4 their
/// space unwritten.
#[test]
fn a_copy_whose_sync_failed_is_stored_again_before_the_next_one() {
    for nth in 0.. {
        let storage = closed_and_put_back(disk(3).with_unwritten_kept(), |_| true, put_back);
        let queue = open(storage.clone(), &options()).unwrap();
        storage.fail_after(Call::SyncFile, nth, Errno::IO, false);
        let failed = queue.core.flush().is_err();
        storage.clear_faults();
        let _ = queue.close();
        if !failed {
            assert!(nth > 2, "the files of a copy are synced one by one");
            return;
        }
        let queue = open(storage.process_kill(), &options()).unwrap();
        queue.core.flush().unwrap();
        assert_eq!(after_a_cut(&queue.core.storage), ((0..30).collect(), 0), "sync {nth}");
    }
}

/// A cleaner of old files removes some below an open queue: a flush does not call durable what no
/// later process can find.
#[test]
fn a_flush_fails_once_its_files_are_removed() {
    let segment = segment_name(0);
    let names = [INDEX_NAME, &segment];
    for (name, each) in names.into_iter().flat_map(|name| [(name, None), (name, Some(1))]) {
        let queue = open(disk(4), &options().flush_every_ops(each)).unwrap();
        put(&queue, 0..3);
        queue.core.flush().unwrap();
        queue.core.storage.remove_file(name);
        let stored = queue.enqueue(&content(3, LEN));
        let flushed = queue.core.flush();
        assert!(stored.is_err() || flushed.is_err(), "{name}, {each:?}");
        let error = flushed.unwrap_err().to_string();
        assert!(error.contains("removed") && error.contains(name), "{error}");
        assert!(queue.close().is_err(), "{name}, {each:?}");
    }
}

/// The queue's own removals are none of these.
#[test]
fn a_queue_may_remove_a_segment_while_a_flush_syncs_it() {
    let queue = open(disk(5), &options()).unwrap();
    queue.default_consumer().unwrap();
    for number in 0..200 {
        queue.enqueue(&content(number, LEN)).unwrap();
        let consumer = consumer_of(&queue, "").unwrap();
        let locked = consumer.locked.lock();
        let step = consumer.step(locked, &queue.core, Read::Take, Check::Now, AsMessage, None);
        assert!(step.outcome.unwrap().is_some());
        queue.core.flush().unwrap();
        queue.core.drain_passed();
        queue.core.reclaim().unwrap();
    }
    queue.close().unwrap();
}

/// Where the system does not say which boot this is, a message that kills its process still comes
/// to its last attempt.
#[test]
fn deaths_count_where_the_boot_is_not_known() {
    let mut storage = disk(6).without_boot();
    for attempt in 1..=4 {
        let queue = open(storage, &options()).unwrap();
        if attempt == 1 {
            put(&queue, 0..1);
        }
        let jobs = queue.consumer("jobs").unwrap();
        let rules = Rules { max_attempts: Some(3), ..Rules::default() };
        queue.set_redelivery(&jobs, rules).unwrap();
        let received = queue.receive(&jobs, reading::AsMessage);
        match attempt {
            4 => assert!(!matches!(received, Ok(Some(_))), "a fourth attempt"),
            _ => assert_eq!(received.unwrap().unwrap().1.attempts, attempt),
        }
        storage = queue.core.storage.process_kill();
    }
}
