//! Histories made for one danger each: few steps, every crash of them.

use rustix::io::Errno;

use super::examine::{Queue, next_of, open, standing_of};
use super::model::{Check, content, ensure};
use crate::error::{Error, Gap, GapCause};
use crate::options::Options;
use crate::place::Read;
use crate::reading;
use crate::sim::{Call, Mutant, SimStorage};

/// Segments of 8 KiB.
pub(super) fn options() -> Options {
    Options::new().arena_size(4096).max_bytes(64 << 10)
}

pub(super) fn disk(seed: u64) -> SimStorage {
    SimStorage::new(seed).with_file_capacity(64 << 10)
}

/// A message with its number, or a gap.
pub(super) type Taken = Result<(u64, Vec<u8>), Gap>;

/// All the default consumer is told, to the end.
pub(super) fn take_all(queue: &Queue) -> Check<Vec<Taken>> {
    let standing = standing_of(queue, "")?;
    let mut told = Vec::new();
    loop {
        match reading::next(queue, &standing, Read::Take) {
            Ok(Some(message)) => told.push(Ok((message.seq(), message.to_vec()))),
            Ok(None) => return Ok(told),
            Err(Error::Gap(gap)) => told.push(Err(gap)),
            Err(error) => return Err(format!("cannot read: {error}")),
        }
    }
}

/// Runs `history` for each number until it says that there is no more to see; says how many images it took to break the
/// promise, or in how many it was kept.
fn search(mutant: Option<Mutant>, mut history: impl FnMut(u64, &mut u64) -> Check<bool>) -> Result<u64, (u64, String)> {
    Mutant::plant(mutant);
    let mut images = 0;
    let mut outcome = Ok(());
    for number in 0.. {
        match history(number, &mut images) {
            Ok(true) => {}
            Ok(false) => break,
            Err(broken) => {
                outcome = Err(broken);
                break;
            }
        }
    }
    Mutant::plant(None);
    outcome.map(|()| images).map_err(|broken| (images, broken))
}

/// What must succeed.
fn fine<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> Check<T> {
    result.map_err(|error| error.to_string())
}

/// The promise is kept, and with the bug planted it is seen to be broken.
fn kept_but_for(mutant: Mutant, mut history: impl FnMut(u64, &mut u64) -> Check<bool>) {
    let images = search(None, &mut history).unwrap_or_else(|(images, broken)| panic!("image {images}: {broken}"));
    match search(Some(mutant), &mut history) {
        Ok(_) => panic!("{mutant:?} was not found in {images} images"),
        Err((images, broken)) => println!("{mutant:?} was found at image {images}: {broken:.160}"),
    }
}

/// Three messages behind a short one. The second fills a page of its own, so that one try's may be on the disk between the
/// other's: where two share a sector, either tells that the other is not its neighbour.
const BATCH: [usize; 3] = [PAGE - 152 - 16, PAGE - 16, 100];
const PAGE: usize = 4096;

fn batch_of(try_number: u64) -> Vec<Vec<u8>> {
    BATCH.iter().enumerate().map(|(at, len)| content(1000 * try_number + at as u64, *len)).collect()
}

/// A batch is whole or absent, and of one try.
fn check_batch(queue: &Queue, tries: &[u64]) -> Check {
    let told = take_all(queue)?;
    let got: Vec<_> = told.iter().flatten().filter(|(seq, _)| *seq > 0).map(|(_, bytes)| bytes.clone()).collect();
    let whole = tries.iter().any(|number| got == batch_of(*number));
    ensure!(got.is_empty() || whole, "{} messages that are no batch that was tried", got.len());
    Ok(())
}

/// A batch is refused because a call fails, then tried again with the same lengths in the same place; power is cut. Or the
/// process dies in it, and power is cut after the second try.
#[test]
fn records_of_two_tries_at_a_batch_never_make_one() {
    kept_but_for(Mutant::SealNotChecked, |number, images| {
        let storage = disk(number);
        let options = options().arena_size(16 << 10).max_bytes(256 << 10);
        let mut queue = open(storage.clone(), &options)?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(b"before"))?;
        fine(queue.shared.flush())?;
        let mut tried = vec![2];
        if number % 2 == 0 {
            storage.set_stores_are_safe(false);
            fine(queue.close())?;
            queue = open(storage.clone(), &options)?;
            // The lease and a segment that is opened take none: two for the longer messages, one and the seal for the last.
            storage.fail_after(Call::Write, 1 + number / 2 % 6, Errno::IO, false);
            let refused = queue.enqueue_batch(&batch_of(1));
            storage.clear_faults();
            if refused.is_ok() {
                return Ok(true);
            }
        } else {
            storage.freeze_at_store(1 + number / 2 % 40);
            fine(queue.enqueue_batch(&batch_of(1)))?;
            storage.disarm();
            let Some(dead) = storage.frozen() else {
                return Ok(true);
            };
            queue = open(dead, &options)?;
            // It may have been whole.
            tried.push(1);
        }
        if next_of(&queue) == 1 {
            fine(queue.enqueue_batch(&batch_of(2)))?;
        }
        for seed in 0..20 {
            *images += 1;
            let cut = queue.shared.storage.power_cut(seed);
            check_batch(&open(cut, &options)?, &tried)?;
        }
        Ok(number < 100)
    });
}

/// Of a batch over three pages, never flushed, a power cut leaves all or nothing.
#[test]
fn a_torn_batch_is_absent() {
    kept_but_for(Mutant::TornBatchAccepted, |number, images| {
        let options = options().arena_size(16 << 10).max_bytes(256 << 10);
        let queue = open(disk(number), &options)?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(b"before"))?;
        fine(queue.enqueue_batch(&batch_of(1)))?;
        for seed in 0..10 {
            *images += 1;
            check_batch(&open(queue.shared.storage.power_cut(seed), &options)?, &[1])?;
        }
        Ok(number < 20)
    });
}

/// What was flushed is there, whatever of the rest is lost: the files' names too.
#[test]
fn what_was_flushed_has_its_name_on_the_disk() {
    kept_but_for(Mutant::DirectoryNotSynced, |number, images| {
        let queue = open(disk(number), &options())?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(&content(number, 1 + 1000 * number as usize)))?;
        fine(queue.shared.flush())?;
        for seed in 0..4 {
            *images += 1;
            let told = take_all(&open(queue.shared.storage.power_cut(seed), &options())?)?;
            ensure!(matches!(told.first(), Some(Ok((0, _)))), "message 0 was flushed, and what is told is {told:?}");
        }
        Ok(number < 10)
    });
}

/// Power is cut within a flush: what is lost was never said to be durable, so nobody is told of damage.
#[test]
fn a_checkpoint_never_speaks_of_messages_that_are_not_on_the_disk() {
    kept_but_for(Mutant::CheckpointBeforeData, |number, images| {
        let storage = disk(number);
        let queue = open(storage.clone(), &options())?;
        fine(queue.default_consumer())?;
        for len in [100, 5000, 9000] {
            fine(queue.enqueue(&content(number, len)))?;
        }
        storage.freeze_at(1 + number / 2);
        fine(if number % 2 == 0 { queue.shared.flush() } else { queue.close() })?;
        storage.disarm();
        let Some(dead) = storage.frozen() else {
            return Ok(number < 2);
        };
        for seed in 0..10 {
            *images += 1;
            let queue = open(dead.power_cut(seed), &options())?;
            fine(queue.enqueue(b"behind"))?;
            let told = take_all(&queue)?;
            let damaged = told.iter().flat_map(|told| told.as_ref().err()).find(|gap| gap.cause != GapCause::Unflushed);
            ensure!(damaged.is_none(), "{damaged:?} in {number}");
        }
        Ok(true)
    });
}

/// A power cut leaves a hole in a segment, over which a gap is written. The segment is drained and used again; the tail comes
/// to stand where the gap lay, and the process dies: what lies there is of another life and tells nothing.
#[test]
fn what_a_segment_held_before_it_was_used_again_never_counts() {
    let mut reused = 0;
    kept_but_for(Mutant::ChecksumNotSeeded, |number, images| {
        let queue = open(disk(number), &options())?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(&content(0, 600)))?;
        fine(queue.shared.flush())?;
        for message in 1..3 {
            fine(queue.enqueue(&content(message, 1200)))?;
        }
        let queue = open(queue.shared.storage.power_cut(number), &options())?;
        let told = take_all(&queue)?;
        let hole = matches!(told[..], [Ok((0, _)), Err(Gap { first: 1, last: 1, .. }), Ok((2, _)), ..]);
        if !hole {
            return Ok(number < 1000);
        }
        // The next segment, whole; then the one that was drained.
        fine(queue.enqueue(&content(3, 7900)))?;
        take_all(&queue)?;
        fine(queue.shared.flush())?;
        fine(queue.enqueue(&content(4, 600)))?;
        reused += u64::from(queue.shared.segments.list().live.back().is_some_and(|row| row.slot == 0));
        let next = next_of(&queue);
        *images += 1;
        let queue = open(queue.shared.storage.process_kill(), &options())?;
        ensure!(next_of(&queue) == next, "the next number is {}, and was {next}", next_of(&queue));
        let told = take_all(&queue)?;
        ensure!(told == [Ok((next - 1, content(4, 600)))], "told {} things", told.len());
        Ok(number < 1000)
    });
    assert!(reused >= 4, "{reused}");
}

/// Numbers are missing before the segment that the tail stands at. That segment states so; and where a power cut takes it and
/// leaves the next one, the checkpoint does.
#[test]
fn numbers_missing_before_a_segment_that_is_lost_are_told_with_their_cause() {
    let mut lost_alone = [0; 2];
    for (seed, held) in (0..600).map(|number| (number / 2, number as usize % 2)) {
        let storage = disk(seed);
        let queue = open(storage, &options()).unwrap();
        queue.default_consumer().unwrap();
        if held == 1 {
            // A segment before it stays.
            queue.enqueue(b"held").unwrap();
            queue.shared.flush().unwrap();
        }
        queue.enqueue(b"lost").unwrap();
        let queue = open(queue.shared.storage.power_cut_losing_all(), &options()).unwrap();
        let missing = next_of(&queue);
        assert!(missing > 1);
        queue.close().unwrap();
        let queue = open(queue.shared.storage.process_kill(), &options()).unwrap();
        // It fills one segment and goes on in the next.
        queue.enqueue(&content(1, 9000)).unwrap();
        queue.enqueue(b"behind").unwrap();
        let cut = queue.shared.storage.power_cut(seed);
        let names = cut.file_names();
        let has = |name: &str| names.iter().any(|other| other == name);
        let (stating, next) =
            [("segment-00000000", "segment-00000001"), ("segment-00000001", "segment-00000002")][held];
        lost_alone[held] += u32::from(!has(stating) && has(next));
        let queue = open(cut, &options().max_bytes(256 << 10)).unwrap();
        queue.enqueue(b"new").unwrap();
        let told = take_all(&queue).unwrap();
        let gaps: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
        assert!(gaps.iter().all(|gap| gap.cause == GapCause::Unflushed), "{gaps:?}, files {names:?}");
        assert_eq!(gaps.first().map(|gap| gap.first), Some(held as u64));
    }
    assert!(lost_alone.iter().all(|seen| *seen > 10), "{lost_alone:?}");
}

/// The process dies in the first write after a clean end, at every moment of it; what it leaves is opened, given a message,
/// and power is cut: no number is given out twice, whatever of the checkpoint was in the page cache alone.
#[test]
fn a_checkpoint_that_is_only_cached_keeps_no_number() {
    for (every, at_calls) in [(None, true), (None, false), (Some(1), true), (Some(1), false)] {
        let options = options().flush_every_ops(every);
        let mut images = 0;
        for moment in 1.. {
            let storage = disk(moment);
            let queue = open(storage.clone(), &options).unwrap();
            queue.default_consumer().unwrap();
            queue.enqueue(b"first").unwrap();
            queue.close().unwrap();
            let queue = open(storage.clone(), &options).unwrap();
            if at_calls {
                storage.freeze_at(moment);
            } else {
                storage.freeze_at_store(moment);
            }
            queue.enqueue(&content(1, 7000)).unwrap();
            storage.disarm();
            let Some(dead) = storage.frozen() else {
                break;
            };
            let queue = open(dead, &options).unwrap();
            let given = queue.enqueue(&content(2, 7000)).unwrap();
            for cut in (0..8).map(|seed| queue.shared.storage.power_cut(seed)) {
                let queue = open(cut, &options).unwrap();
                images += 1;
                assert!(next_of(&queue) > given, "moment {moment}, {every:?}: {given} was given out");
                let told = take_all(&queue).unwrap();
                let lost = every == Some(1) && !told.iter().flatten().any(|(seq, _)| *seq == given);
                assert!(!lost, "moment {moment}: {given} was durable, told {:?}", told.iter().flatten().count());
            }
        }
        assert!(images >= 32, "{images}");
    }
}

/// With `flush_every_ops(1)` numbers need no lease. What a kill left of the last message, without a flush, is seen by an opening
/// with other options: its number is not given out again after a power cut.
#[test]
fn a_message_found_after_a_kill_keeps_its_number() {
    let mut found = 0;
    for moment in 1.. {
        let storage = disk(moment);
        let queue = open(storage.clone(), &options().flush_every_ops(1)).unwrap();
        queue.enqueue(b"first").unwrap();
        storage.freeze_at_store(moment);
        queue.enqueue(&content(1, 700)).unwrap();
        storage.disarm();
        let Some(dead) = storage.frozen() else {
            break;
        };
        let queue = open(dead, &options()).unwrap();
        let seen = take_all(&queue).unwrap().len() as u64;
        found += u32::from(seen == 2);
        let queue = open(queue.shared.storage.power_cut_losing_all(), &options()).unwrap();
        assert!(next_of(&queue) >= seen, "moment {moment}: {} is next, {seen} were seen", next_of(&queue));
    }
    assert!(found > 0);
}

/// A batch over two segments was flushed. Power is cut; its first message is taken and the segment of it given back; power is cut
/// again: the rest of the batch, still wanted, is there.
#[test]
fn the_rest_of_a_flushed_batch_outlives_two_power_cuts() {
    for seed in 0..40 {
        let queue = open(disk(seed), &options()).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue_batch(&[content(1, 6000), content(2, 3000), content(3, 10)]).unwrap();
        queue.shared.flush().unwrap();
        queue.enqueue(&content(4, 3000)).unwrap();
        let queue = open(queue.shared.storage.power_cut(seed), &options()).unwrap();
        let standing = standing_of(&queue, "").unwrap();
        for seq in 0..2 {
            assert_eq!(reading::next(&queue, &standing, Read::Take).unwrap().unwrap().seq(), seq);
        }
        let shown = || reading::next(&queue, &standing, Read::Look);
        assert_eq!(shown().unwrap().unwrap().seq(), 2);
        assert_eq!(queue.shared.segments.list().live.front().unwrap().header.first_seq, 2, "the first was given back");
        let queue = open(queue.shared.storage.power_cut(seed), &options()).unwrap();
        let told = take_all(&queue).unwrap();
        assert!(matches!(told.first(), Some(Ok((2, bytes))) if *bytes == content(3, 10)), "seed {seed}");
    }
}

/// A queue that was opened with a smaller limit gives up its one long segment, which everybody has read, for a batch that is
/// refused all the same: what comes after it is found.
#[test]
fn a_refused_batch_leaves_no_segment_before_the_tail() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options().arena_size(32 << 10).max_bytes(512 << 10)).unwrap();
    queue.default_consumer().unwrap();
    queue.enqueue(&content(1, 50_000)).unwrap();
    assert_eq!(take_all(&queue).unwrap().len(), 1);
    queue.close().unwrap();
    let queue = open(storage, &options()).unwrap();
    for kill in [false, true, false] {
        let next = next_of(&queue);
        let refused = queue.enqueue_batch(&[content(2, 7000), content(3, 7000), content(4, 7000), content(5, 7000)]);
        assert!(refused.as_ref().is_err_and(|error| error.is_full()), "{refused:?}");
        let bases: Vec<_> = queue.shared.segments.list().live.iter().map(|row| row.header.base).collect();
        assert!(bases.is_sorted() && bases.iter().all(|base| *base <= queue.shared.committed_spot().position));
        let dead = queue.shared.storage.process_kill();
        if kill {
            let queue = open(dead, &options()).unwrap();
            assert_eq!(queue.enqueue(&content(5, 300)).unwrap(), next);
            assert_eq!(take_all(&queue).unwrap(), [Ok((next, content(5, 300)))]);
            continue;
        }
        assert_eq!(queue.enqueue(&content(5, 300)).unwrap(), next);
        assert_eq!(take_all(&queue).unwrap(), [Ok((next, content(5, 300)))]);
    }
}

/// A message that goes to the next segment is refused, and its padding stays behind the tail. A batch is tried there, its second
/// message begins the next segment, and the process dies; or messages are put there, the third one in the next segment. Power is
/// cut, and the padding is what is left of them. What the next segment says of its first number is not believed.
#[test]
fn padding_of_a_refused_message_hides_no_gap() {
    let mut met = [0; 2];
    for (seed, whole) in (0..400).map(|number| (number / 2, number as usize % 2)) {
        let storage = disk(seed);
        // Without a lease the same number comes next.
        let options = options().flush_every_ops((whole == 0).then_some(1));
        let queue = open(storage.clone(), &options).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 7100)).unwrap();
        queue.shared.flush().unwrap();
        storage.fail_after(Call::Create, 1, Errno::IO, false);
        queue.enqueue(&content(1, 3000)).unwrap_err();
        let dead = if whole == 0 {
            // Durable records go by write calls: the death comes at any of them.
            storage.freeze_at(1 + seed % 16);
            queue.enqueue_batch(&[content(2, 31), content(3, 3000), content(4, 7000)]).unwrap();
            let Some(dead) = storage.frozen() else { continue };
            dead
        } else {
            for len in [31, 60, 3000] {
                queue.enqueue(&content(2, len)).unwrap();
            }
            storage.process_kill()
        };
        let cut = dead.power_cut(seed);
        met[whole] += u32::from(cut.file_names().len() > 2);
        let queue = open(cut, &options.clone().max_bytes(256 << 10)).unwrap();
        let seq = queue.enqueue(b"behind").unwrap();
        let told = take_all(&queue).unwrap();
        let behind = told.iter().flatten().any(|(got, bytes)| *got == seq && bytes == b"behind");
        let gaps: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
        assert!(behind && gaps.iter().all(|gap| gap.cause == GapCause::Unflushed), "seed {seed}, {whole}: {gaps:?}");
    }
    assert!(met.iter().all(|met| *met > 20), "{met:?}");
}
