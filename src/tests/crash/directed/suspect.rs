//! What the page cache may show and the disk does not hold: a sync failed, and the process, the
//! index or an opening was lost before the next one.

use rustix::io::Errno;

use super::{Taken, disk, fine, kept, kept_but_for, options, take_all};
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Gap, GapCause};
use crate::format::{INDEX_NAME, index_at, live_at, segment_name};
use crate::storage::Stores;
use crate::tests::crash::examine::{Queue, consumer_of, open};
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::sim::{Call, Mutant, SimStorage};

const MESSAGES: u64 = 10;

/// How the process goes whose sync failed.
#[derive(Debug, Clone, Copy)]
enum Goes {
    /// It closes the queue, which fails.
    ByClosing,
    /// It dies right before its store of this number since the flush began, or else at the flush's
    /// end.
    AtStore(u64),
}

/// What a process left whose sync of this number failed in a flush: ten messages, of which `taken`
/// were taken; and whether it died at a store. `None` when the flush needs no such sync.
fn after_a_failed_sync(
    storage: SimStorage,
    nth: u64,
    stores: Stores,
    taken: u64,
    goes: Goes,
) -> Check<Option<(SimStorage, bool)>> {
    storage.set_stores(stores);
    let queue = open(storage.clone(), &options())?;
    fine(queue.default_consumer())?;
    for message in 0..MESSAGES {
        fine(queue.enqueue(&content(message, 1000)))?;
    }
    if taken > 0 {
        fine(queue.core.flush())?;
        take(&queue, taken)?;
    }
    storage.fail_after(Call::SyncFile, nth, Errno::IO, false);
    if let Goes::AtStore(store) = goes {
        storage.freeze_at_store(1 + store);
    }
    let failed = queue.core.flush().is_err();
    storage.disarm();
    storage.clear_faults();
    let frozen = storage.frozen();
    let died = frozen.is_some();
    let dead = frozen.unwrap_or_else(|| storage.process_kill());
    drop(queue);
    let left = if let Goes::ByClosing = goes { storage.process_kill() } else { dead };
    Ok(failed.then_some((left, died)))
}

fn take(queue: &Queue, count: u64) -> Check {
    let consumer = consumer_of(queue, "")?;
    for _ in 0..count {
        fine(reading::next(queue, &consumer, Read::Take))?;
    }
    Ok(())
}

/// A flush that succeeds makes durable what there is, whatever was not before.
fn check_flushed(queue: &Queue, taken: u64) -> Check {
    fine(queue.core.flush())?;
    let cut = open(queue.core.storage.power_cut_losing_all(), &options())?;
    let reported = take_all(&cut)?;
    let came: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
    ensure!(came == (taken..MESSAGES).collect::<Vec<_>>(), "of what was flushed, {came:?} come");
    Ok(())
}

/// A sync of the data failed, and the process dies at any store after that. What the failed sync
/// left in the page cache alone is stored again by the next flush (R4): no opening can know of the
/// failure.
#[test]
fn a_death_right_after_a_failed_sync_takes_nothing_of_what_is_flushed_later() {
    for nth in 1..3 {
        kept_but_for(Mutant::SuspectNotStoredAgain, |number, images| {
            let goes = Goes::AtStore(number);
            let Some((dead, died)) = after_a_failed_sync(disk(1), nth, Stores::ByMap, 0, goes)?
            else {
                return Ok(false);
            };
            *images += 1;
            check_flushed(&open(dead, &options())?, 0)?;
            Ok(died)
        });
    }
}

/// A sync failed, the queue was closed, and the opening after that dies at any store, or does
/// nothing. The one after that does not rely on what the page cache shows.
#[test]
fn a_death_within_an_opening_leaves_the_page_cache_suspect() {
    kept_but_for(Mutant::SuspectNotStoredAgain, |number, images| {
        let left = after_a_failed_sync(disk(1), 1, Stores::ByMap, 0, Goes::ByClosing)?;
        let (storage, _) = left.expect("a flush syncs a segment");
        storage.freeze_at_store(1 + number);
        let opened = open(storage.clone(), &options())?;
        storage.disarm();
        let (dead, died) =
            storage.frozen().map_or((storage.process_kill(), false), |dead| (dead, true));
        drop(opened);
        *images += 1;
        check_flushed(&open(dead, &options())?, 0)?;
        Ok(died)
    });
}

/// A sync of the index failed, and the process died. What it left off the disk, a consumer's place
/// above all, is stored again by the next opening, so that the next flush has it (R4).
#[test]
fn places_that_a_failed_sync_left_off_the_disk_are_stored_again() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        kept_but_for(Mutant::IndexNotStoredAgain, |number, images| {
            let (nth, goes) = (1 + number / 4, Goes::AtStore(number % 4));
            let Some((dead, _)) = after_a_failed_sync(disk(1), nth, stores, 3, goes)? else {
                return Ok(false);
            };
            *images += 1;
            check_flushed(&open(dead, &options())?, 3)?;
            Ok(true)
        });
    }
}

/// ext4 leaves fresh space unwritten whose first write-back failed, whatever is stored there later.
/// The opening writes it past the page cache, also one after an opening that died meanwhile.
#[test]
fn what_a_failed_sync_left_in_fresh_space_is_written() {
    for (nth, dies) in (1..3).flat_map(|nth| [(nth, false), (nth, true)]) {
        kept_but_for(Mutant::SuspectNotStoredAgain, |number, images| {
            let ext4 = disk(nth).with_unwritten_kept();
            let left = after_a_failed_sync(ext4, nth, Stores::ByMap, 0, Goes::ByClosing)?;
            let (mut left, _) = left.expect("a flush syncs two segments");
            if dies {
                left.freeze_at_store(1 + number);
                let opened = open(left.clone(), &options())?;
                left.disarm();
                drop(opened);
                let Some(dead) = left.frozen() else { return Ok(false) };
                left = dead;
            }
            *images += 1;
            check_flushed(&open(left, &options())?, 0)?;
            Ok(dies)
        });
    }
}

/// As above, but the process closed the queue, whose last flush failed, too.
#[test]
fn places_that_a_failed_sync_left_off_the_disk_outlive_a_close() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        kept(|number, images| {
            let left = after_a_failed_sync(disk(1), 1 + number, stores, 3, Goes::ByClosing)?;
            let Some((left, _)) = left else {
                return Ok(false);
            };
            *images += 1;
            check_flushed(&open(left, &options())?, 3)?;
            Ok(true)
        });
    }
}

/// A sync failed, and then the record of the run is damaged. What the opening finds
/// in the segments may exist in the page cache alone, and it is stored again before it counts as
/// durable.
#[test]
fn what_is_found_without_a_record_of_the_run_is_stored_again_before_it_is_durable() {
    kept_but_for(Mutant::SuspectNotStoredAgain, |number, images| {
        let left = after_a_failed_sync(disk(1), 1 + number, Stores::ByMap, 0, Goes::ByClosing)?;
        let Some((dead, _)) = left else {
            return Ok(false);
        };
        for at in [live_at::RUN_A, live_at::RUN_B] {
            dead.corrupt(INDEX_NAME, index_at::LIVE + at + 10, &[0xa5]);
        }
        *images += 1;
        check_flushed(&open(dead, &options())?, 0)?;
        Ok(true)
    });
}

/// A page that was found behind the durable mark cannot be read any more. That costs its messages
/// and no other: the flush stores the pages around it again.
#[test]
fn a_page_that_cannot_be_read_does_not_keep_the_others_from_being_flushed() {
    const UNREADABLE: usize = 4096 + 512;
    let (left, _) =
        after_a_failed_sync(disk(1), 1, Stores::ByMap, 0, Goes::ByClosing).unwrap().unwrap();
    left.make_unreadable(&segment_name(0), UNREADABLE..UNREADABLE + 512);
    let queue = open(left, &options()).unwrap();
    queue.core.flush().unwrap();
    let cut = queue.core.storage.power_cut_losing_all();
    // No opening goes on without a segment that it cannot read: the disk may be back later.
    cut.clear_faults();
    let reported = take_all(&open(cut, &options()).unwrap()).unwrap();
    let came: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
    // Three messages lie before the page in whole, and two in the next segment.
    assert!([0, 1, 2, 8, 9].iter().all(|seq| came.contains(seq)), "{reported:?}");
}

/// What the opening after a failed sync cannot read stays in its file, for when it can be read.
#[test]
fn a_page_that_cannot_be_read_for_a_while_is_lost_by_no_opening() {
    for name in [segment_name(0), INDEX_NAME.to_owned()] {
        let left = after_a_failed_sync(disk(1), 1, Stores::ByMap, 0, Goes::ByClosing);
        let (left, _) = left.unwrap().unwrap();
        left.make_unreadable(&name, 4096 + 512..4096 + 1024);
        drop(open(left.clone(), &options()).unwrap());
        left.clear_faults();
        let reported = take_all(&open(left, &options()).unwrap()).unwrap();
        let came: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
        assert_eq!(came, (0..MESSAGES).collect::<Vec<_>>(), "{name}");
    }
}

/// Each number that was reported, with the cause of its gap where it is missing.
fn causes(reported: Vec<Taken>) -> Vec<(u64, Option<GapCause>)> {
    let of_gap = |gap: Gap| (gap.first..=gap.last.min(100)).map(move |seq| (seq, Some(gap.cause)));
    let mut all = Vec::new();
    for one in reported {
        match one {
            Ok((seq, _)) => all.push((seq, None)),
            Err(gap) => all.extend(of_gap(gap)),
        }
    }
    all
}

/// Power was cut, and a sync of the opening fails that writes gaps over what is missing. The next
/// opening finds these in the page cache. What it reports is reported again after another power
/// cut, whether that run was closed before or not.
#[test]
fn what_an_opening_mended_and_could_not_sync_is_reported_again() {
    kept(|number, images| {
        let (seed, nth) = (number / 4, 1 + number % 4);
        let queue = open(disk(seed), &options())?;
        fine(queue.default_consumer())?;
        for message in 0..2 * MESSAGES {
            fine(queue.enqueue(&content(message, 1000)))?;
            if message == 1 {
                fine(queue.core.flush())?;
            }
        }
        let cut = queue.core.storage.power_cut(seed);
        cut.fail_after(Call::SyncFile, nth, Errno::IO, false);
        let opened = open(cut.clone(), &options());
        cut.clear_faults();
        if opened.is_err() {
            let reported = causes(take_all(&open(cut.process_kill(), &options())?)?);
            let queue = open(cut.process_kill(), &options())?;
            if number % 8 < 4 {
                fine(queue.close())?;
            }
            let again = queue.core.storage.power_cut_losing_all();
            let reported_again = causes(take_all(&open(again, &options())?)?);
            *images += 1;
            ensure!(
                reported_again == reported,
                "{reported:?} was reported, and then {reported_again:?}"
            );
        }
        Ok(number < 400)
    });
}
