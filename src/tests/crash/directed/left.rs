//! What an opening, or a refused call, leaves behind when it ends half way.

use std::time::Duration;

use rustix::io::Errno;

use super::{Taken, disk, fine, holds_but_for, kept, options, take_all};
use crate::consume::redelivery_state::Rules;
use crate::engine::reading::AsMessage;
use crate::error::{Error, GapCause};
use crate::format::{
    CONSUMER_ROWS, ConsumerAt, INDEX_NAME, NAME_ROW_LEN, PLACE_PAIR_LEN, SEGMENT_HEADER_LEN,
    index_at,
};
use crate::tests::crash::examine::{Queue, next_of, open};
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::effort::some_of;
use crate::tests::sim::{Call, Mutant, SimStorage};

/// A new file can be neither completed nor removed, again and again: the limit holds.
#[test]
fn files_that_can_be_neither_completed_nor_removed_count() {
    let limit = 96 << 10;
    let storage = disk(1);
    let queue = open(storage.clone(), &options().max_bytes(limit)).unwrap();
    queue.default_consumer().unwrap();
    storage.fail_after(Call::Remove, 1, Errno::IO, true);
    // The one write of a new file is its header.
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    for number in 0..50 {
        assert!(queue.enqueue(&content(number, 1000)).unwrap_err().is_full());
        let taken = storage.named_bytes();
        assert!(taken <= limit, "the files take {taken} of {limit} bytes");
    }
}

/// Killed at each store while the tail's file grows: the next opening knows how long it is.
#[test]
fn a_file_that_grew_right_before_a_kill_is_measured() {
    kept(|store, images| {
        let options = options().arena_size(16 << 10).max_bytes(512 << 10);
        let storage = disk(2);
        let queue = open(storage.clone(), &options)?;
        fine(queue.default_consumer())?;
        // No room but for the first message.
        storage.set_capacity(Some(storage.used() + 12_000));
        fine(queue.enqueue(&content(0, 100)))?;
        storage.set_capacity(None);
        storage.freeze_at_store(1 + store);
        fine(queue.enqueue(&content(1, 15_000)))?;
        storage.disarm();
        let Some(dead) = storage.frozen() else { return Ok(false) };
        *images += 1;
        let queue = open(dead, &options)?;
        let known = queue.core.segments.list().limited_bytes() + queue.core.index.len();
        let taken = queue.core.storage.named_bytes();
        ensure!(known >= taken, "the files take {taken} bytes, and {known} are counted");
        Ok(true)
    });
}

/// How often the next message was handed out to workers.
fn attempts(queue: &Queue) -> Check<u32> {
    let workers = fine(queue.consumer("workers"))?;
    fine(queue.set_redelivery(&workers, Rules::default()))?;
    match queue.receive(&workers, AsMessage) {
        Ok(received) => Ok(received.map_or(0, |(_, handed)| handed.attempts)),
        Err(Error::Gap(_)) => Ok(0),
        Err(error) => Err(error.to_string()),
    }
}

/// The file system failed and was mounted anew, and the opening that finds bytes lost dies at any
/// call: the next one reports what that one would have reported, and nobody died of a message.
#[test]
fn an_opening_that_dies_behind_a_remount_changes_nothing_of_what_is_reported() {
    let mut most = 0;
    kept(|seed, images| {
        let options = options().max_bytes(256 << 10);
        let queue = open(disk(seed), &options)?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(&content(0, 700)))?;
        ensure!(attempts(&queue)? == 1, "it was never handed out before");
        fine(queue.core.flush())?;
        for number in 1..24 {
            fine(queue.enqueue(&content(number, 700)))?;
            if number % 5 == seed % 5 {
                queue.core.storage.snapshot();
            }
        }
        let left = queue.core.storage.mounted_again(seed);
        let whole = open(left.process_kill(), &options)?;
        let expected = (take_all(&whole)?, next_of(&whole), attempts(&whole)?);
        let image = left.process_kill();
        let mut opened = Ok(());
        let deaths = image.freeze_at_each(|| opened = open(image.clone(), &options).map(drop));
        opened?;
        most += deaths.len();
        for call in some_of(0..deaths.len() as u64, 4, seed) {
            *images += 1;
            let again = open(deaths[call as usize].clone(), &options)?;
            let seen = (take_all(&again)?, next_of(&again), attempts(&again)?);
            let differs =
                || format!("{:?} and not {:?}", (seen.1, seen.2), (expected.1, expected.2));
            ensure!(seen == expected, "call {call}: {}", differs());
        }
        Ok(seed < 60)
    });
    assert!(most > 1000, "{most}");
}

/// A segment that was about to be evicted is found live, with bytes of a refused batch behind its
/// last message. What follows it and was flushed is there after a power cut.
#[test]
fn a_segment_that_was_left_is_closed_before_the_next_one_begins() {
    let options = options().arena_size(16 << 10).max_bytes(256 << 10);
    let storage = disk(3);
    let queue = open(storage.clone(), &options).unwrap();
    queue.default_consumer().unwrap();
    let capacity = (queue.core.pool.geometry().least_len - SEGMENT_HEADER_LEN) as usize;
    let first = content(0, capacity - capacity / 8 + 100);
    assert_eq!(queue.enqueue(&first).unwrap(), 0);
    queue.core.flush().unwrap();
    storage.fail_after(Call::Create, 1, Errno::NOSPC, true);
    // The third does not fit: padding lies behind the second, with its number.
    let refused = [content(1, 100), content(2, 100), content(3, capacity / 2)];
    assert!(queue.enqueue_batch(&refused).unwrap_err().is_full());
    storage.clear_faults();
    let end = queue.core.segments.list().live.back().unwrap().header.end();
    queue.core.writer.lock().begin_anew(&queue.core, end);
    let queue = open(storage.process_kill(), &options).unwrap();
    let second = content(9, 100);
    assert_eq!(queue.enqueue(&second).unwrap(), 1);
    queue.core.flush().unwrap();
    let cut = queue.core.storage.power_cut_losing_all();
    let reported = take_all(&open(cut, &options).unwrap()).unwrap();
    assert!(reported.starts_with(&[Ok((0, first)), Ok((1, second))]), "{} came", reported.len());
}

/// Numbers that were reserved before a power cut are stated by the segment behind them, and by the
/// run record until that segment is durable. Its name is not. An opening found bytes lost and died;
/// the next one states more numbers; then power is cut. The first ones are not damaged.
#[test]
fn what_a_segment_states_whose_name_is_lost_is_not_called_damaged() {
    holds_but_for(Mutant::StatementMayBeLost, || {
        for seed in 0..60 {
            let queue = open(disk(seed), &options()).unwrap();
            queue.default_consumer().unwrap();
            queue.enqueue(&content(0, 100)).unwrap();
            queue.core.flush().unwrap();
            let cut = queue.core.storage.power_cut_losing_all();
            let queue = open(cut, &options()).unwrap();
            queue.core.flush().unwrap();
            let next = queue.enqueue(&content(1, 100)).unwrap();
            queue.core.index.forget_token();
            let queue = open(queue.core.storage.process_kill(), &options()).unwrap();
            let queue = open(queue.core.storage.power_cut(seed), &options()).unwrap();
            for found in take_all(&queue).unwrap() {
                if let Err(gap) = found {
                    assert!(gap.cause != GapCause::Damaged, "{gap}, {next} was the next number");
                }
            }
        }
    });
}

/// Behind a clean end a message expires, and the process is killed at each call from there on.
fn killed_after_it_expired() -> Vec<SimStorage> {
    let options = options().max_age(Duration::from_secs(1));
    let mut images = Vec::new();
    loop {
        let storage = disk(images.len() as u64);
        let queue = open(storage.clone(), &options).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 100)).unwrap();
        queue.close().unwrap();
        let queue = open(storage.clone(), &options).unwrap();
        storage.advance_clock(5_000);
        storage.freeze_at(1 + images.len() as u64);
        queue.expire();
        match storage.frozen() {
            Some(killed) => images.push(killed),
            None => return images,
        }
    }
}

/// What reads report to the next run's consumer, but for numbers that were only reserved.
fn reported(storage: SimStorage) -> Vec<Taken> {
    let mut reported = take_all(&open(storage, &options()).unwrap()).unwrap();
    reported.retain(|it| it.as_ref().map_or_else(|gap| gap.cause != GapCause::Reserved, |_| true));
    reported
}

#[test]
fn what_expired_behind_a_clean_end_does_not_come_back_in_another_mount() {
    let mut expired = 0;
    for killed in killed_after_it_expired() {
        let here = reported(killed.process_kill());
        expired += u32::from(here.iter().all(Result::is_err));
        assert_eq!(here, reported(killed.seen_elsewhere()));
    }
    assert!(expired > 1, "{expired}");
}

/// The opening in another mount believes what it reads, and is killed at each store.
#[test]
fn what_expired_does_not_come_back_when_an_opening_dies_that_believed_it() {
    let mut met = 0;
    for killed in killed_after_it_expired() {
        let here = reported(killed.process_kill());
        for nth in 1.. {
            let storage = killed.seen_elsewhere();
            storage.freeze_at_store(nth);
            drop(open(storage.clone(), &options()).unwrap());
            storage.disarm();
            let Some(dead) = storage.frozen() else {
                break;
            };
            met += 1;
            assert_eq!(reported(dead), here, "store {nth}");
        }
    }
    assert!(met > 20, "{met}");
}

/// Killed with a segment begun for a batch that was never whole, and killed again, between the
/// words of the index's tail, before that segment was reclaimed: what came between is there.
#[test]
fn a_segment_of_a_batch_that_was_never_whole_hides_nothing() {
    let mut met = 0;
    for (call, nth) in (1..12).flat_map(|call| (1..30).map(move |nth| (call, nth))) {
        let storage = disk(3);
        let queue = open(storage.clone(), &options()).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 100)).unwrap();
        storage.freeze_at(call);
        queue.enqueue_batch(&[content(1, 4000), content(2, 4000), content(3, 4000)]).unwrap();
        let Some(storage) = storage.frozen() else {
            break;
        };
        let queue = open(storage.clone(), &options()).unwrap();
        // More than the batch had.
        let mut next = 0;
        for id in 5..10 {
            next = queue.enqueue(&content(id, 100)).unwrap();
        }
        storage.freeze_at_store(nth);
        queue.enqueue(&content(10, 100)).unwrap();
        storage.disarm();
        let Some(killed) = storage.frozen() else {
            continue;
        };
        met += 1;
        let queue = open(killed, &options()).unwrap();
        assert!(next_of(&queue) > next, "call {call}, store {nth}: {}", next_of(&queue));
        let reported = take_all(&queue).unwrap();
        assert!(reported.contains(&Ok((next, content(9, 100)))), "call {call}, store {nth}");
    }
    assert!(met > 20, "{met}");
}

/// A power cut left the name of a consumer, in its row or beside the copy of its place, and kept
/// the place that says that the consumer was removed. The process dies at any store, and power is
/// cut or not, while another consumer gets the row: the removed one does not come back.
#[test]
fn a_removed_consumer_whose_name_is_left_does_not_come_back() {
    let row = ConsumerAt::new(1, CONSUMER_ROWS as u32);
    for (former, left, len) in [
        ("a name of more than sixteen bytes", row.name, NAME_ROW_LEN),
        ("former", row.name, NAME_ROW_LEN),
        ("former", row.copy, PLACE_PAIR_LEN),
    ] {
        kept(|step, images| {
            let storage = disk(1);
            let queue = open(storage.clone(), &options())?;
            fine(queue.consumer(former))?;
            let before =
                storage.read_file(INDEX_NAME)[index_at::CONSUMERS + left..][..len].to_vec();
            fine(queue.remove_consumer(former))?;
            fine(queue.core.flush())?;
            let cut = storage.power_cut_losing_all();
            cut.corrupt(INDEX_NAME, index_at::CONSUMERS + left, &before);
            let queue = open(cut.clone(), &options())?;
            ensure!(queue.consumer_names().is_empty(), "the removal is not found");
            cut.freeze_at_store(1 + step);
            fine(queue.consumer("other"))?;
            let Some(dead) = cut.frozen() else {
                return Ok(false);
            };
            for image in [dead.process_kill(), dead.power_cut(step)] {
                *images += 1;
                let names = open(image, &options())?.consumer_names();
                ensure!(!names.iter().any(|name| name == former), "killed at {step}: {names:?}");
            }
            Ok(true)
        });
    }
}

/// Power is cut within the first enqueue of a run: the cut may leave the second copy of the run
/// record torn or older, and the reservation in the first one alone. The opening behind it dies at
/// any store: the next one reports what it was about to report.
#[test]
fn an_opening_that_dies_takes_no_reservation_with_it() {
    kept(|number, images| {
        let storage = disk(number);
        let queue = open(storage.clone(), &options())?;
        fine(queue.default_consumer())?;
        fine(queue.core.flush())?;
        storage.freeze_at_store(1 + number);
        fine(queue.enqueue(b"first"))?;
        storage.disarm();
        let Some(dead) = storage.frozen() else { return Ok(false) };
        for seed in 0..4 {
            let cut = dead.power_cut(seed);
            let shown = take_all(&open(cut.process_kill(), &options())?)?;
            for nth in some_of(1.., 3, number + seed).take_while(|_| !shown.is_empty()) {
                let image = cut.process_kill();
                image.freeze_at_store(nth);
                let opened = open(image.clone(), &options());
                image.disarm();
                fine(opened)?;
                let Some(dead) = image.frozen() else { break };
                *images += 1;
                let reported = take_all(&open(dead, &options())?)?;
                ensure!(reported == shown, "cut {number}, {seed}, store {nth}: {reported:?}");
            }
        }
        Ok(true)
    });
}
