//! An index that is damaged beyond use, and an opening that makes a new one in its place and dies.

use rustix::io::Errno;

use super::{roomy, take};
use crate::format::{Checkpoint, FLAG_BEGUN, SegmentHeader, index_at, live_at, segment_name};
use crate::index::image::u64_at;
use crate::tests::crash::directed::{
    disk, fine, holds_but_for, kept_but_for, take_all, take_all_of,
};
use crate::tests::crash::examine::open;
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::sim::{Call, Mutant, SimStorage};

/// What a kill left of a queue with twenty messages, of which two consumers took five and eight. No
/// byte of the index's header is what it was.
fn damaged(seed: u64) -> SimStorage {
    let queue = open(disk(seed), &roomy()).unwrap();
    queue.default_consumer().unwrap();
    queue.consumer("worker").unwrap();
    for number in 0..20 {
        queue.enqueue(&content(number, 100)).unwrap();
    }
    take(&queue, 5);
    let worker = queue.consumer("worker").unwrap();
    for _ in 0..8 {
        crate::engine::reading::next(&queue, &worker, crate::consume::step::Read::Take)
            .unwrap()
            .unwrap();
    }
    queue.core.flush().unwrap();
    let storage = queue.core.storage.process_kill();
    storage.corrupt("index", 0, &[0; 64]);
    storage
}

/// Every consumer is where it was, and no number is given out twice.
fn check_places(image: &SimStorage, what: &str) -> Check {
    let queue = open(image.process_kill(), &roomy())?;
    for (name, first) in [("", 5), ("worker", 8)] {
        let reported = take_all_of(&queue, name)?;
        let wanted = (first..20).map(|number| (number, content(number, 100)));
        ensure!(reported.iter().flatten().cloned().eq(wanted), "{what}, {name:?}: {reported:?}");
    }
    let seq = fine(queue.enqueue(b"new"))?;
    ensure!(seq >= 20, "{what}: number {seq} is given out again");
    Ok(())
}

/// The opening dies at its call or store of this number. Whether it did.
fn dies(number: u64, images: &mut u64) -> Check<bool> {
    let mut has_died = false;
    for is_store in [false, true] {
        let storage = damaged(number);
        if is_store {
            storage.freeze_at_store(1 + number);
        } else {
            storage.freeze_at(1 + number);
        }
        let opened = open(storage.clone(), &roomy())?;
        storage.disarm();
        let frozen = storage.frozen();
        has_died |= frozen.is_some();
        let image = frozen.unwrap_or_else(|| storage.process_kill());
        drop(opened);
        check_places(&image, &format!("dead at {number}"))?;
        for cut in 0..8 {
            *images += 1;
            check_places(&image.power_cut(cut), &format!("cut {cut} at {number}"))?;
        }
    }
    Ok(has_died)
}

#[test]
fn a_damaged_index_costs_no_place_whenever_the_opening_dies() {
    kept_but_for(Mutant::NewIndexNotSynced, dies);
}

/// A file of a new index that an opening left counts no more than the index that is there.
#[test]
fn a_new_index_that_was_left_is_made_again() {
    let storage = damaged(1);
    storage.write_file("index.new", &[0xa5; 100]);
    check_places(&storage, "a torn new index").unwrap();
}

/// An opening died between its two renames: the next one fails as long as it cannot rename either.
/// In a directory that is no queue's, nothing is changed.
#[test]
fn what_stands_for_the_index_is_taken_or_left_as_it_is() {
    let mut met = 0;
    for nth in 1..40 {
        let storage = damaged(1);
        storage.freeze_at(nth);
        drop(open(storage.clone(), &roomy()).unwrap());
        let Some(image) = storage.frozen() else { break };
        if image.file_names().iter().any(|name| name == "index") {
            continue;
        }
        met += 1;
        for call in [Call::Open, Call::Rename] {
            let again = image.process_kill();
            for nth in 1..4 {
                again.fail_after(call, nth, Errno::IO, false);
                let _ = open(again.clone(), &roomy());
                again.clear_faults();
            }
            check_places(&again, "after calls that failed").unwrap();
        }
    }
    assert!(met > 0, "no opening died between its renames");
    for bytes in [&b"notes"[..], &[b'x'; 40960]] {
        let storage = disk(1);
        storage.write_file("index.new", bytes);
        let error = open(storage.clone(), &roomy()).unwrap_err();
        assert!(error.contains("index.new"), "{error}");
        assert_eq!(storage.file_names(), ["index.new"]);
    }
}

/// An index that was left is not taken up when the one beside it is lost, long after.
#[test]
fn a_new_index_beside_a_whole_one_is_removed() {
    let queue = open(disk(9), &roomy()).unwrap();
    queue.default_consumer().unwrap();
    for number in 0..20 {
        queue.enqueue(&content(number, 100)).unwrap();
    }
    queue.core.flush().unwrap();
    let storage = queue.core.storage.process_kill();
    // A sector cannot be read, and the opening cannot rename what it has made.
    let unreadable = storage.process_kill();
    unreadable.make_unreadable("index", 1024..1536);
    unreadable.fail_after(Call::Rename, 1, Errno::IO, true);
    open(unreadable.clone(), &roomy()).unwrap_err();
    storage.write_file("index.new", &unreadable.read_file("index.new"));
    let queue = open(storage, &roomy()).unwrap();
    let names = queue.core.storage.file_names();
    assert!(!names.contains(&"index.new".to_owned()), "{names:?}");
}

/// The mark of a clean end is taken back before segments change, in one slot of the checkpoint.
/// With that slot damaged the run record shows it, though nothing was ever reserved.
#[test]
fn a_change_of_segments_behind_a_clean_end_is_said_in_the_run_record() {
    holds_but_for(Mutant::BegunNotSaid, || {
        let options = roomy().flush_every_ops(1);
        let queue = open(disk(1), &options).unwrap();
        queue.default_consumer().unwrap();
        for number in 0..40 {
            queue.enqueue(&content(number, 1000)).unwrap();
        }
        queue.close().unwrap();
        let queue = open(queue.core.storage.process_kill(), &options).unwrap();
        let mut taken = 0..;
        let index = loop {
            let index = queue.core.storage.process_kill().read_file("index");
            let slot = |at: usize| Checkpoint::decode(&index[at..], &queue.core.index.queue_id);
            let slots = [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B].map(slot);
            if !slots.iter().flatten().max_by_key(|slot| slot.number).unwrap().clean {
                break index;
            }
            assert!(taken.next() < Some(40), "no segment changed");
            take(&queue, 1);
            queue.core.flush().unwrap();
        };
        let flags = u64_at(&index, index_at::LIVE + live_at::RUN_A) as u32;
        assert!(flags & FLAG_BEGUN != 0, "{flags:#x}");
    });
}

/// A segment that a later one stands in the place of holds nothing that anybody was to get: its
/// file goes, and is not quarantined, also where the segments are seen from another mount.
#[test]
fn a_segment_in_the_place_of_a_later_one_is_removed() {
    let queue = open(disk(1), &roomy()).unwrap();
    queue.default_consumer().unwrap();
    for number in 0..60 {
        queue.enqueue(&content(number, 1000)).unwrap();
    }
    queue.core.flush().unwrap();
    let storage = queue.core.storage.copied();
    let mut bytes = storage.read_file(&segment_name(1));
    let header = SegmentHeader::decode(bytes[..128].try_into().unwrap()).unwrap();
    let earlier = SegmentHeader { life: header.life - 1, ..header };
    bytes[..128].copy_from_slice(&earlier.in_file().encode());
    storage.write_file(&segment_name(9), &bytes);
    let queue = open(storage, &roomy()).unwrap();
    let names = queue.core.storage.file_names();
    assert!(!names.iter().any(|name| name.starts_with(&segment_name(9))), "{names:?}");
    assert_eq!(take_all(&queue).unwrap().iter().flatten().count(), 60);
}
