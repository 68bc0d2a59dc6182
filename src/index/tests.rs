//! Tests the index alone, on a simulated disk: each part survives, whatever happens to the bytes of
//! another.

mod left;
mod refused;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::*;
use crate::format::{
    ACKS_SLOT_LEN, CONSUMER_ROWS, Checkpoint, ConsumerAt, MissingBefore, PLACE_SLOT_LEN, Place,
    SEGMENT_ROWS, SegmentHeader, SegmentState, Spot, live_at, numbers,
};
use crate::index::image::Live;
use crate::index::run::Next;
use crate::storage::{CacheToken, Stores};
use crate::tests::sim::{Call, SimStorage, forget_meanwhile, meanwhile};

const ID: [u8; 16] = *b"0123456789abcdef";

/// A storage that changes bytes as `stores` says, and an index in it whose name is durable.
fn made(stores: Stores) -> (SimStorage, Index<SimStorage>) {
    let storage = SimStorage::new(3);
    storage.set_stores(stores);
    let index = Index::create(&storage, ID, 7).unwrap();
    storage.sync_directory().unwrap();
    (storage, index)
}

fn image(storage: &SimStorage) -> IndexImage {
    IndexImage::read(&storage.read_file(INDEX_NAME), &ID)
}

/// Adopts the index file, as an opening does.
fn adopted(storage: &SimStorage) -> Index<SimStorage> {
    let file = IndexFile::read(storage).unwrap().unwrap();
    assert_eq!(file.queue_id(), Some(ID));
    let image = IndexImage::read(&file.bytes, &ID);
    Index::adopt(storage, file.file, ID, 8, &image).unwrap()
}

fn flip(storage: &SimStorage, offset: usize) {
    let byte = storage.read_file(INDEX_NAME)[offset];
    storage.corrupt(INDEX_NAME, offset, &[byte ^ 0x10]);
}

fn begin(number: u64) -> Place {
    Place { number: 0, position: 64 * number, seq: number }
}

/// Each consumer's name in the file, with the number of its place.
fn places(storage: &SimStorage) -> BTreeMap<String, u64> {
    image(storage)
        .consumers
        .into_iter()
        .map(|consumer| (consumer.name, consumer.place.seq))
        .collect()
}

/// The offsets of the two slots of a consumer's place in the file. The first is the slot that was
/// written last, after `stores` stores.
fn slots(row: u32, stores: u64) -> [usize; 2] {
    let pair = index_at::CONSUMERS + ConsumerAt::new(row, CONSUMER_ROWS as u32).pair;
    [stores % 2, (stores + 1) % 2].map(|slot| pair + slot as usize * PLACE_SLOT_LEN)
}

fn at(position: u64, seq: u64) -> Spot {
    Spot { position, seq }
}

#[test]
fn a_damaged_slot_of_a_place_costs_one_move_and_the_older_slot_none() {
    for damaged in [0, 1] {
        for moves in 1..6 {
            let (storage, index) = made(Stores::ByMap);
            let (row, mut place) =
                index.add_consumer(None, "c", begin(10), |take| take(0)).unwrap();
            (1..=moves).for_each(|moved| place.store(at(64 * (10 + moved), 10 + moved)));
            // A new place is stored twice, so that both slots have it.
            flip(&storage, slots(row, 2 + moves)[damaged]);
            let left = 10 + moves - u64::from(damaged == 0);
            assert_eq!(places(&storage)["c"], left, "{moves} moves, slot {damaged}");
        }
    }
}

#[test]
fn a_place_whose_slots_are_both_damaged_costs_at_most_64_moves() {
    let (storage, index) = made(Stores::ByMap);
    let (row, mut place) = index.add_consumer(None, "c", begin(0), |take| take(0)).unwrap();
    for moves in 1..200u64 {
        place.store(at(64 * moves, moves));
        let killed = storage.process_kill();
        slots(row, 0).into_iter().for_each(|slot| flip(&killed, slot));
        let left = places(&killed)["c"];
        assert!(left <= moves && moves < left + 64, "{left} of {moves}");
    }
}

#[test]
fn what_a_call_refused_is_late_and_written_before_anything_later() {
    let (storage, index) = made(Stores::ByCall);
    let mut rows =
        ["a", "b"].map(|name| index.add_consumer(None, name, begin(1), |take| take(0)).unwrap().1);
    storage.fail_after(Call::Write, 1, Errno::NOSPC, false);
    rows[0].store(at(64 * 2, 2));
    assert_eq!(places(&storage)["a"], 1, "it was refused");
    // Two writes follow: the first one succeeds, the second one fails.
    storage.fail_after(Call::Write, 2, Errno::NOSPC, true);
    rows[1].store(at(64 * 3, 3));
    assert_eq!((places(&storage)["a"], places(&storage)["b"]), (2, 1));
    // The index cannot make late bytes durable; that is no failed sync.
    let syncs = storage.call_count(Call::SyncFile);
    assert!(matches!(index.sync(), Err(Error::Io { op: "write", .. })));
    assert_eq!((storage.call_count(Call::SyncFile), index.poison.is_poisoned()), (syncs, false));
    storage.clear_faults();
    index.sync().unwrap();
    assert_eq!(places(&storage.power_cut_losing_all())["b"], 3);
}

#[test]
fn what_is_at_once_or_not_at_all_is_not_there_after_a_refusal() {
    let (storage, index) = made(Stores::ByCall);
    index.set_tail(at(64, 4));
    storage.fail_after(Call::Write, 1, Errno::NOSPC, false);
    assert!(index.move_tail(at(128, 5), || at(64, 4)).is_err());
    assert_eq!(index.tail(), Some(at(64, 4)));
    index.sync().unwrap();
    assert_eq!(image(&storage).live.tail, Some(at(64, 4)));
    index.move_tail(at(128, 5), || at(64, 4)).unwrap();
    assert_eq!(image(&storage).live.tail, Some(at(128, 5)));
}

/// A live part in which each part has the values of run `number`.
fn live(token: CacheToken, number: u64) -> Live {
    Live {
        changed: 0,
        token,
        pid: 1,
        run: Some(Run { reservation: number, ..Run::default() }),
        tail: Some(at(8 * number, number)),
        synced: Some(at(8 * number, number)),
    }
}

#[test]
fn under_the_token_of_a_run_the_live_part_says_nothing_of_another_run() {
    let token = |byte| CacheToken { boot: byte, file: 2, mount: 1 };
    for next in [token(2), token(1)] {
        let is_new = next != token(1);
        // Under a new token, hence after a power cut, the numbers may be lower than before.
        let number = if is_new { 2 } else { 5 };
        let mut seen = 0;
        for nth in 1.. {
            // Each store is a call here, so a process may be killed between any two of them.
            let (storage, index) = made(Stores::ByCall);
            index.begin_run(&live(token(1), 3), StoredOver::Doubted);
            storage.freeze_at(nth);
            let over = if is_new { StoredOver::Doubted } else { StoredOver::Believed };
            index.begin_run(&live(next, number), over);
            let killed = storage.frozen();
            let live = image(killed.as_ref().unwrap_or(&storage)).live;
            seen += usize::from(live.token == token(1));
            // Before that, only the durable mark may be the new run's: it is true for any run.
            if live.token == token(1) && is_new {
                let before = (live.run.map(|run| run.reservation), live.tail);
                assert_eq!(before, (Some(3), Some(at(24, 3))), "call {nth}");
            }
            assert!(live.synced.is_some(), "call {nth}");
            if live.token == next && is_new {
                assert_eq!(live.run.map(|run| run.reservation), Some(number), "call {nth}");
                let spot = Some(at(8 * number, number));
                assert_eq!((live.tail, live.synced), (spot, spot), "call {nth}");
            }
            // Under the same token no byte was lost, and no part may be missing while the live part
            // is being stored.
            assert!(is_new || live.token == next && live.run.is_some(), "call {nth}");
            if killed.is_none() {
                assert_eq!(live.token, next, "after the last call");
                break;
            }
        }
        assert!(seen > 3, "{seen} moments under the old token");
    }
}

#[test]
fn a_damaged_part_of_the_live_part_costs_no_other() {
    let life = CacheToken { boot: 1, file: 2, mount: 1 };
    let (storage, index) = made(Stores::ByMap);
    index.begin_run(&live(life, 3), StoredOver::Doubted);
    index.set_synced(at(32, 4));
    let damaged = |at: usize| {
        let killed = storage.process_kill();
        flip(&killed, index_at::LIVE + at);
        image(&killed).live
    };
    assert_eq!(damaged(live_at::RUN_A).run.map(|run| run.reservation), Some(3));
    assert_eq!(damaged(live_at::RUN_B).run.map(|run| run.reservation), Some(3));
    assert_eq!(
        (damaged(live_at::TAIL_SEQ).tail, damaged(live_at::TAIL_SEQ).synced),
        (None, Some(at(32, 4)))
    );
    // The later mark lies in one slot, the mark before it in the other.
    let mut marks = [live_at::SYNCED_A, live_at::SYNCED_B].map(|at| damaged(at).synced);
    marks.sort_unstable();
    assert_eq!(marks, [Some(at(24, 3)), Some(at(32, 4))]);
}

/// Positions of the checkpoints in the two slots.
fn checkpoints(storage: &SimStorage) -> [Option<u64>; 2] {
    let bytes = storage.read_file(INDEX_NAME);
    let slots = [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B];
    slots.map(|at| Checkpoint::decode(&bytes[at..], &ID).map(|checkpoint| checkpoint.position))
}

fn write_checkpoint(index: &Index<SimStorage>, position: u64) -> Result<()> {
    index.write_checkpoint(|checkpoint| checkpoint.position = position)
}

#[test]
fn the_higher_valid_checkpoint_counts_and_the_other_slot_is_written_next() {
    let (storage, index) = made(Stores::ByMap);
    for number in 1..6u64 {
        write_checkpoint(&index, 8 * number).unwrap();
        let newest = checkpoints(&storage)
            .iter()
            .position(|position| *position == Some(8 * number))
            .unwrap();
        assert_eq!(
            image(&storage).checkpoint.map(|checkpoint| checkpoint.position),
            Some(8 * number)
        );
        let damaged = storage.power_cut_losing_all();
        flip(&damaged, [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B][newest] + 20);
        let before = image(&damaged).checkpoint.map(|checkpoint| checkpoint.position);
        assert_eq!(before, (number > 1).then(|| 8 * (number - 1)), "{number}");
        // The next checkpoint has a higher number than the damaged slot (R9), and does not
        // overwrite the slot that counts.
        write_checkpoint(&adopted(&damaged), 800).unwrap();
        let mut left = checkpoints(&damaged).into_iter().flatten().collect::<Vec<_>>();
        left.sort_unstable();
        assert_eq!(left, before.into_iter().chain([800]).collect::<Vec<_>>(), "{number}");
        assert_eq!(
            image(&damaged).checkpoint.map(|checkpoint| checkpoint.number),
            Some(number + 1)
        );
    }
}

#[test]
fn a_checkpoint_that_was_found_is_durable_before_the_other_slot_is_touched() {
    let (storage, index) = made(Stores::ByMap);
    write_checkpoint(&index, 8).unwrap();
    storage.freeze_at(1);
    write_checkpoint(&index, 16).unwrap();
    // The process was killed before its sync: only the page cache has the newest checkpoint.
    let killed = storage.frozen().unwrap();
    assert_eq!(checkpoints(&killed).into_iter().max(), Some(Some(16)));
    let index = adopted(&killed);
    killed.fail_after(Call::SyncFile, 1, Errno::IO, false);
    assert!(write_checkpoint(&index, 24).is_err());
    let mut left = checkpoints(&killed);
    left.sort_unstable();
    assert_eq!(left, [Some(8), Some(16)], "R1");
}

fn header(slot: u32) -> SegmentHeader {
    SegmentHeader {
        version: Version::Plain,
        state: SegmentState::Live,
        queue_id: ID,
        life: u64::from(slot) + 1,
        base: 65536 * u64::from(slot),
        first_seq: u64::from(slot),
        missing: MissingBefore::default(),
        retained_from: 0,
        created: 0,
        until: 0,
        length: 65536,
        allocated: 65536,
        disk: 65536,
        file: 0,
        salt: slot,
    }
}

#[test]
fn rows_of_segments_go_on_in_further_extents_while_there_is_room_for_those() {
    let (storage, index) = made(Stores::ByMap);
    let first = SEGMENT_ROWS as u32;
    (0..first).for_each(|slot| assert!(index.write_segment_row(slot, Some(&header(slot)), 0)));
    let len = index.len();
    assert!(!index.write_segment_row(first, Some(&header(first)), 0), "there is no room");
    assert!(
        !index.write_segment_row(9 * first, Some(&header(9 * first)), u64::MAX),
        "a far number"
    );
    assert!(index.write_segment_row(first, None, 0), "what has no row needs none");
    assert_eq!((index.len(), storage.read_file(INDEX_NAME).len() as u64), (len, len));
    (first..2 * first)
        .for_each(|slot| assert!(index.write_segment_row(slot, Some(&header(slot)), u64::MAX)));
    assert!(index.len() > len);
    index.write_segment_row(5, None, 0);
    let noted: Vec<_> =
        (0..2 * first).filter(|slot| *slot != 5).map(|slot| (slot, header(slot))).collect();
    assert_eq!(image(&storage).segments, noted);
    // The next opening continues with the added rows.
    assert!(adopted(&storage).write_segment_row(2 * first - 1, None, 0));
    assert_eq!(image(&storage).segments.len(), noted.len() - 1);
}

#[test]
fn the_row_of_a_removed_consumer_is_given_out_when_the_disk_knows() {
    let (storage, index) = made(Stores::ByMap);
    let (row, _) = index.add_consumer(None, "gone", begin(1), |take| take(0)).unwrap();
    index.remove_consumer(row, "gone");
    assert!(!places(&storage).contains_key("gone"));
    let (other, _) = index.add_consumer(None, "other", begin(2), |take| take(0)).unwrap();
    assert_ne!(other, row, "a power cut may leave half of either in it");
    index.sync().unwrap();
    assert_eq!(index.add_consumer(None, "third", begin(3), |take| take(0)).unwrap().0, row);
    assert_eq!(places(&storage), [("other".to_owned(), 2), ("third".to_owned(), 3)].into());
}

#[test]
fn acknowledged_ranges_state_all_that_is_done_from_the_place_on_the_disk_on() {
    let (storage, index) = made(Stores::ByMap);
    let (row, _) = index.add_consumer(None, "c", begin(1), |take| take(0)).unwrap();
    let mut acks_row = index.acks_row(row, "c", 0).unwrap();
    let acks = || {
        image(&storage).consumers.into_iter().find(|consumer| consumer.name == "c").unwrap().acks
    };
    acks_row.store(1, [numbers(3, 4)].into_iter());
    assert_eq!(acks(), [numbers(3, 4)]);
    // The place moved, and the disk may still have the previous place.
    acks_row.store(5, [numbers(7, 7)].into_iter());
    assert_eq!(acks(), [numbers(1, 4), numbers(7, 7)]);
    index.sync().unwrap();
    acks_row.store(8, [numbers(9, 9)].into_iter());
    assert_eq!(
        acks(),
        [numbers(1, 7), numbers(9, 9)],
        "a place that was stored before that sync is known to be on the disk"
    );
    index.sync().unwrap();
    acks_row.store(8, [numbers(9, 9)].into_iter());
    assert_eq!(acks(), [numbers(9, 9)]);
    index.clear_acks(row, AcksRowIs::Free).unwrap();
    assert_eq!(acks(), []);
}

#[test]
fn after_the_first_sync_that_fails_none_is_made() {
    let (storage, index) = made(Stores::ByMap);
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    assert!(index.sync().is_err() && index.poison.is_poisoned());
    let syncs = storage.call_count(Call::SyncFile);
    assert!(index.sync().is_err() && write_checkpoint(&index, 8).is_err());
    assert_eq!((storage.call_count(Call::SyncFile), checkpoints(&storage)), (syncs, [None, None]));
}

#[test]
fn a_damaged_slot_of_acknowledgements_costs_no_more_than_the_latest() {
    let (storage, index) = made(Stores::ByMap);
    let (row, _) = index.add_consumer(None, "c", begin(1), |take| take(0)).unwrap();
    let mut acks_row = index.acks_row(row, "c", 0).unwrap();
    acks_row.store(1, [numbers(3, 3)].into_iter());
    acks_row.store(1, [numbers(3, 4)].into_iter());
    let mut left = [0, ACKS_SLOT_LEN].map(|slot| {
        let killed = storage.process_kill();
        flip(&killed, index_at::ACKS + slot + 8);
        image(&killed).consumers.into_iter().find(|consumer| consumer.name == "c").unwrap().acks
    });
    left.sort_by_key(|ranges| ranges.last().map(|range| range.last));
    assert_eq!(left, [[numbers(3, 3)], [numbers(3, 4)]]);
}

#[test]
fn a_checkpoint_that_a_failed_sync_left_off_the_disk_is_stored_again_before_the_next() {
    let (storage, index) = made(Stores::ByMap);
    write_checkpoint(&index, 8).unwrap();
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    assert!(write_checkpoint(&index, 16).is_err());
    let killed = storage.process_kill();
    let index = adopted(&killed);
    index.store_again();
    killed.fail_after(Call::SyncFile, 2, Errno::IO, false);
    assert!(write_checkpoint(&index, 24).is_err());
    let cut = killed.power_cut_losing_all();
    assert_eq!(image(&cut).checkpoint.map(|checkpoint| checkpoint.position), Some(16), "R1");
}

#[test]
fn what_a_failed_sync_left_off_the_disk_is_there_once_it_is_stored_again_and_synced() {
    let (storage, index) = made(Stores::ByMap);
    storage.fail_after(Call::SyncFile, 2, Errno::IO, false);
    assert!(write_checkpoint(&index, 8).is_err());
    let killed = storage.process_kill();
    let index = adopted(&killed);
    index.store_again();
    index.sync().unwrap();
    let cut = killed.power_cut_losing_all();
    assert_eq!(image(&cut).checkpoint.map(|checkpoint| checkpoint.position), Some(8), "R4");
}

#[test]
fn two_threads_that_change_the_run_record_lose_nothing_of_each_other() {
    let (storage, index) = made(Stores::ByMap);
    let index = Arc::new(index);
    let other = Arc::clone(&index);
    // The other thread can come in between only if the call releases the lock.
    meanwhile("with the run record unlocked", move || assert_eq!(other.begin_reservation(5), 0));
    index.set_next(Some(Next { base: 8, seq: 7, ..Next::default() }));
    let came = !forget_meanwhile();
    let run = image(&storage).live.run.unwrap();
    assert_eq!((run.next.map(|next| next.seq), run.reservation == 5), (Some(7), came));
}

#[test]
fn no_sync_begins_while_another_fails() {
    let (storage, index) = made(Stores::ByMap);
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    let (index, second) = (Arc::new(index), Arc::new(OnceLock::new()));
    let (other, answer) = (Arc::clone(&index), Arc::clone(&second));
    // The first thread's sync has failed, and the thread has not noted it yet.
    meanwhile("before a failed sync is noted", move || {
        if other.syncing.try_lock().is_some() {
            answer.set(other.sync().is_ok()).unwrap();
        }
    });
    assert!(index.sync().is_err() && !forget_meanwhile());
    assert_ne!(second.get(), Some(&true), "R6");
    assert!(index.sync().is_err(), "R6");
}
