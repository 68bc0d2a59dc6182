//! The descriptors of segments that are not synced: the queue keeps them open until a flush, for
//! the kernel reports a failed write-back only to those that were open.

use rustix::io::Errno;

use super::{LEN, disk, is_failed_sync, open, options, take_all};
use crate::engine::Background;
use crate::error::Error;
use crate::options::Options;
use crate::segment::MOST_UNSYNCED_HERE;
use crate::storage::{Storage, StorageFile};
use crate::tests::sim::Call;

/// A full segment is closed by nobody before it is synced: the flush reports what the kernel failed
/// to write of it by itself.
#[test]
fn a_write_back_that_failed_before_the_flush_fails_the_flush() {
    for lost in ["segment-00000000", "segment-00000002"] {
        let storage = disk();
        let queue = open(&storage, &options(), Background::Calls);
        for _ in 0..9 {
            queue.enqueue(&[1; LEN]).unwrap();
        }
        assert!(queue.core.segments.list().live.len() >= 4);
        storage.fail_write_back(lost);
        let answer = queue.core.flush();
        assert!(answer.as_ref().is_err_and(is_failed_sync), "{lost}: {answer:?}");
        assert!(matches!(queue.core.flush(), Err(Error::Poisoned { .. })));
        assert!(queue.close().is_err());
    }
}

/// What a process stored and did not sync, the next one flushes through descriptors that were open
/// from its opening on.
#[test]
fn a_write_back_that_failed_since_the_opening_fails_the_flush_of_what_was_found() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    for _ in 0..9 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    let storage = storage.process_kill();
    let queue = open(&storage, &options(), Background::Calls);
    storage.fail_write_back("segment-00000001");
    assert!(queue.core.flush().as_ref().is_err_and(is_failed_sync));
}

/// A segment that cannot be opened fails each flush, with its name, and keeps no other from the
/// disk and no producer from its message.
#[test]
fn a_segment_that_cannot_be_opened_keeps_no_other_from_the_disk() {
    let storage = disk();
    let _ = options();
    let options = Options::new().arena_size(4096);
    let queue = open(&storage, &options, Background::Calls);
    for _ in 0..9 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    let storage = storage.process_kill();
    // The opening keeps open what is first and last.
    MOST_UNSYNCED_HERE.set(Some(1));
    let queue = open(&storage, &options, Background::Workers);
    MOST_UNSYNCED_HERE.set(Some(4));
    let flush = || {
        let failed = queue.core.flush().unwrap_err();
        assert!(failed.to_string().contains("open simulated/segment-00000001"), "{failed}");
        assert_eq!(queue.durable_seq(), 0);
    };
    let after_a_cut =
        || take_all(&open(&storage.power_cut_losing_all(), &options, Background::Calls)).0;
    storage.fail_after(Call::Open, 1, Errno::ACCESS, false);
    flush();
    assert_eq!(after_a_cut(), [0, 1, 6, 7, 8]);
    storage.fail_after(Call::Open, 1, Errno::ACCESS, true);
    for put in 9..40 {
        assert_eq!(queue.enqueue(&[2; LEN]).unwrap(), put);
    }
    flush();
    storage.clear_faults();
    let came = after_a_cut();
    assert!((9..40).all(|seq| came.contains(&seq)), "{came:?}");
    queue.core.flush().unwrap();
    assert_eq!(queue.durable_seq(), 40);
    queue.close().unwrap();
}

/// Some file systems (FUSE, CIFS) give a file that nobody has open another number the next time:
/// what the queue noted while nobody had the file open says nothing.
#[test]
fn a_file_that_has_another_number_by_now_fails_no_flush() {
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    for _ in 0..9 {
        queue.enqueue(&[1; LEN]).unwrap();
    }
    let storage = storage.process_kill();
    // The opening keeps open what is first and last.
    MOST_UNSYNCED_HERE.set(Some(1));
    let queue = open(&storage, &options(), Background::Calls);
    for row in &mut queue.core.segments.list().live {
        row.header.file ^= 1;
    }
    queue.core.flush().unwrap();
    assert_eq!(queue.durable_seq(), 9);
    queue.close().unwrap();
}

/// Its messages are in a file that no later process finds.
#[test]
fn a_segments_file_that_lost_its_name_fails_the_flush() {
    for replaced in [false, true] {
        let storage = disk();
        let queue = open(&storage, &options(), Background::Calls);
        for _ in 0..9 {
            queue.enqueue(&[1; LEN]).unwrap();
        }
        let bytes = storage.open("segment-00000001").unwrap().read_first(64 << 10).unwrap();
        storage.remove_file("segment-00000001");
        if replaced {
            storage.create("segment-00000001").unwrap().write_at(&bytes, 0).unwrap();
        }
        let failed = queue.core.flush().unwrap_err();
        assert!(is_failed_sync(&failed), "{failed}");
        assert!(format!("{failed:?}").contains("the file was removed"), "{failed:?}");
        assert!(matches!(queue.core.flush(), Err(Error::Poisoned { .. })));
        assert!(queue.close().is_err());
    }
}

/// The process has no descriptor left until full segments are synced: a producer waits for that. If
/// none waits for its sync, it gets the error.
#[test]
fn a_producer_waits_for_the_descriptors_of_segments_that_are_not_synced() {
    for background in [Background::Calls, Background::Workers] {
        for errno in [Errno::MFILE, Errno::NFILE] {
            let storage = disk();
            let queue = open(&storage, &options(), background);
            for _ in 0..6 {
                queue.enqueue(&[1; LEN]).unwrap();
            }
            let unsynced = || queue.core.segments.list().count_unsynced();
            assert!(unsynced() > 2);
            storage.fail_after(Call::Create, 1, errno, false);
            for seq in 6..10 {
                assert_eq!(queue.enqueue(&[1; LEN]).unwrap(), seq);
            }
            assert!(storage.failed(Call::Create) == 1 && unsynced() < 4, "{}", unsynced());
            storage.fail_after(Call::Create, 1, errno, true);
            let refused = (10..16).find_map(|_| queue.enqueue(&[1; LEN]).err()).unwrap();
            assert!(refused.to_string().contains("create simulated/segment-"), "{refused}");
            storage.clear_faults();
            queue.enqueue(&[1; LEN]).unwrap();
            queue.close().unwrap();
        }
    }
}

/// Segments that are drained are recycled without a sync of theirs, and hold no descriptor.
#[test]
fn a_queue_that_is_nearly_empty_is_never_synced_for_its_descriptors() {
    MOST_UNSYNCED_HERE.set(Some(6));
    let storage = disk();
    let queue = open(&storage, &options(), Background::Calls);
    queue.consumer("").unwrap();
    queue.enqueue(&[1; LEN]).unwrap();
    take_all(&queue);
    let flushes = || queue.core.flush_totals.count.load(std::sync::atomic::Ordering::Relaxed);
    let before = flushes();
    for _ in 0..200 {
        queue.enqueue(&[1; LEN]).unwrap();
        take_all(&queue);
    }
    assert_eq!(flushes(), before);
    assert!(queue.core.segments.list().count_unsynced() <= 2);
}
