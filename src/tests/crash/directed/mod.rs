//! Histories made for one danger each: few steps, with a crash at every step.

mod batches;
mod drained;
mod left;
mod lives;
mod mounts;
mod put_back;
mod refused;
mod refused_later;
mod salvaged;
mod suspect;
mod unsynced;

use super::examine::{Queue, consumer_of, next_of, open};
use super::model::{Check, content, ensure};
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::format::{Checkpoint, INDEX_NAME, SECTOR, decode_index_header, index_at};
use crate::options::{OnFull, Options};
use crate::tests::effort::some_of;
use crate::tests::sim::{Mutant, SimStorage};

/// Segments of 8 KiB.
pub(super) fn options() -> Options {
    Options::new().arena_size(4096).max_bytes(64 << 10)
}

pub(super) fn disk(seed: u64) -> SimStorage {
    SimStorage::new(seed).with_file_capacity(64 << 10)
}

/// A message with its number, or a gap.
pub(super) type Taken = Result<(u64, Vec<u8>), Gap>;

/// What a power cut took, or left unused.
pub(super) fn is_of_a_cut(gap: &Gap) -> bool {
    matches!(gap.cause, GapCause::Unflushed | GapCause::Reserved)
}

/// All that reads report to the default consumer, to the end.
pub(super) fn take_all(queue: &Queue) -> Check<Vec<Taken>> {
    take_all_of(queue, "")
}

/// All that reads report to the consumer of that name, to the end.
pub(super) fn take_all_of(queue: &Queue, name: &str) -> Check<Vec<Taken>> {
    let consumer = consumer_of(queue, name)?;
    let mut reported = Vec::new();
    loop {
        match reading::next(queue, &consumer, Read::Take) {
            Ok(Some(message)) => reported.push(Ok((message.seq(), message.to_vec()))),
            Ok(None) => return Ok(reported),
            Err(Error::Gap(gap)) => reported.push(Err(gap)),
            Err(error) => return Err(format!("cannot read: {error}")),
        }
    }
}

/// Runs `history` with 0, 1, ... until it says that there is no more to see. Returns after how many
/// images the promise was broken, or in how many it was kept.
fn search(
    mutant: Option<Mutant>,
    mut history: impl FnMut(u64, &mut u64) -> Check<bool>,
) -> Result<u64, (u64, String)> {
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
pub(super) fn fine<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> Check<T> {
    result.map_err(|error| error.to_string())
}

/// Asserts that the promise is kept. Returns after how many images.
pub(super) fn kept(mut history: impl FnMut(u64, &mut u64) -> Check<bool>) -> u64 {
    search(None, &mut history).unwrap_or_else(|(images, broken)| panic!("image {images}: {broken}"))
}

/// As [`kept`], and asserts that the promise is broken once the bug is planted.
pub(super) fn kept_but_for(mutant: Mutant, mut history: impl FnMut(u64, &mut u64) -> Check<bool>) {
    let images = kept(&mut history);
    breaks(mutant, images, history);
}

/// Asserts that the planted bug breaks a promise that was kept in so many images without it.
pub(super) fn breaks(
    mutant: Mutant,
    images: u64,
    history: impl FnMut(u64, &mut u64) -> Check<bool>,
) {
    match search(Some(mutant), history) {
        Ok(_) => panic!("{mutant:?} was not found in {images} images"),
        Err((images, broken)) => println!("{mutant:?} was found at image {images}: {broken:.160}"),
    }
}

/// As [`kept_but_for`], for a check that panics when it does not hold.
pub(crate) fn holds_but_for(mutant: Mutant, holds: impl Fn()) {
    kept_but_for(mutant, |_, images| {
        *images += 1;
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&holds));
        held.map(|()| false).map_err(|panic| super::words_of(&*panic))
    });
}

const PAGE: usize = 4096;

/// What was flushed is there, whatever of the rest is lost: the files' names too.
#[test]
fn what_was_flushed_has_its_name_on_the_disk() {
    kept_but_for(Mutant::DirectoryNotSynced, |number, images| {
        let queue = open(disk(number), &options())?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(&content(number, 1 + 1000 * number as usize)))?;
        fine(queue.core.flush())?;
        for seed in 0..4 {
            *images += 1;
            let reported = take_all(&open(queue.core.storage.power_cut(seed), &options())?)?;
            ensure!(
                matches!(reported.first(), Some(Ok((0, _)))),
                "message 0 was flushed, and what is reported is {reported:?}"
            );
        }
        Ok(number < 10)
    });
}

/// Power is cut within a flush: what is lost was never said to be durable, so no read reports
/// damage.
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
        fine(if number % 2 == 0 { queue.core.flush() } else { queue.close() })?;
        storage.disarm();
        let Some(dead) = storage.frozen() else {
            return Ok(number < 2);
        };
        for seed in 0..10 {
            *images += 1;
            let queue = open(dead.power_cut(seed), &options())?;
            fine(queue.enqueue(b"behind"))?;
            let reported = take_all(&queue)?;
            let damaged = reported
                .iter()
                .flat_map(|reported| reported.as_ref().err())
                .find(|gap| !is_of_a_cut(gap));
            ensure!(damaged.is_none(), "{damaged:?} in {number}");
        }
        Ok(true)
    });
}

/// A power cut leaves a hole in a segment, over which a gap is written. The segment is drained and
/// used again; the tail comes to stand where the gap lay, and the process dies: what lies there is
/// of another life and tells nothing.
#[test]
fn what_a_segment_held_before_it_was_used_again_never_counts() {
    let mut reused = 0;
    kept_but_for(Mutant::ChecksumNotSeeded, |number, images| {
        let queue = open(disk(number), &options())?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(&content(0, 600)))?;
        fine(queue.core.flush())?;
        for message in 1..3 {
            fine(queue.enqueue(&content(message, 1200)))?;
        }
        let queue = open(queue.core.storage.power_cut(number), &options())?;
        let consumer = consumer_of(&queue, "")?;
        let read = || reading::next(&queue, &consumer, Read::Take);
        // What is missing at the tail is not reported yet: its segment stays.
        let hole = matches!(read(), Ok(Some(message)) if message.seq() == 0)
            && matches!(read(), Err(Error::Gap(Gap { first: 1, last: 1, .. })))
            && matches!(read(), Ok(Some(message)) if message.seq() == 2);
        if !hole {
            return Ok(number < 1000);
        }
        // The next segment, whole; then the one that was drained.
        fine(queue.enqueue(&content(3, 7900)))?;
        take_all(&queue)?;
        fine(queue.core.flush())?;
        fine(queue.enqueue(&content(4, 600)))?;
        reused +=
            u64::from(queue.core.segments.list().live.back().is_some_and(|row| row.slot == 0));
        let next = next_of(&queue);
        *images += 1;
        let queue = open(queue.core.storage.process_kill(), &options())?;
        ensure!(next_of(&queue) == next, "the next number is {}, and was {next}", next_of(&queue));
        let reported = take_all(&queue)?;
        ensure!(reported == [Ok((next - 1, content(4, 600)))], "{} reports", reported.len());
        Ok(number < 1000)
    });
    assert!(reused >= 4, "{reused}");
}

/// Numbers are missing before the segment that the tail stands at. That segment states so; and
/// where a power cut takes it and leaves the next one, the checkpoint does.
#[test]
fn numbers_missing_before_a_segment_that_is_lost_are_reported_with_their_cause() {
    let mut lost_alone = [0; 2];
    for (seed, held) in some_of(0..600, 3, 0).map(|number| (number / 2, number as usize % 2)) {
        let storage = disk(seed);
        let queue = open(storage, &options()).unwrap();
        queue.default_consumer().unwrap();
        if held == 1 {
            // A segment before it stays.
            queue.enqueue(b"held").unwrap();
            queue.core.flush().unwrap();
        }
        queue.enqueue(b"lost").unwrap();
        let queue = open(queue.core.storage.power_cut_losing_all(), &options()).unwrap();
        let missing = next_of(&queue);
        assert!(missing > 1);
        queue.close().unwrap();
        let queue = open(queue.core.storage.process_kill(), &options()).unwrap();
        // It fills one segment and goes on in the next.
        queue.enqueue(&content(1, 9000)).unwrap();
        queue.enqueue(b"behind").unwrap();
        let cut = queue.core.storage.power_cut(seed);
        let names = cut.file_names();
        let has = |name: &str| names.iter().any(|other| other == name);
        let (stating, next) =
            [("segment-00000000", "segment-00000001"), ("segment-00000001", "segment-00000002")]
                [held];
        lost_alone[held] += u32::from(!has(stating) && has(next));
        let queue = open(cut, &options().max_bytes(256 << 10)).unwrap();
        queue.enqueue(b"new").unwrap();
        let reported = take_all(&queue).unwrap();
        let gaps: Vec<_> = reported.iter().filter_map(|reported| reported.as_ref().err()).collect();
        assert!(gaps.iter().all(|gap| is_of_a_cut(gap)), "{gaps:?}, files {names:?}");
        assert_eq!(gaps.first().map(|gap| gap.first), Some(held as u64));
    }
    assert!(lost_alone.iter().all(|seen| *seen > 10), "{lost_alone:?}");
}

/// The process dies in the first write after a clean end, at every moment of it; what it leaves is
/// opened, given a message, and power is cut: no number is given out twice, whatever of the
/// checkpoint was in the page cache alone.
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
            for cut in (0..8).map(|seed| queue.core.storage.power_cut(seed)) {
                let queue = open(cut, &options).unwrap();
                images += 1;
                assert!(
                    next_of(&queue) > given,
                    "moment {moment}, {every:?}: {given} was given out"
                );
                let reported = take_all(&queue).unwrap();
                let lost =
                    every == Some(1) && !reported.iter().flatten().any(|(seq, _)| *seq == given);
                assert!(
                    !lost,
                    "moment {moment}: {given} was durable, reported {:?}",
                    reported.iter().flatten().count()
                );
            }
        }
        assert!(images >= 32, "{images}");
    }
}

/// With `flush_every_ops(1)` numbers need no reservation. What a kill left of the last message,
/// without a flush, is seen by an opening with other options: its number is not given out again
/// after a power cut.
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
        let queue = open(queue.core.storage.power_cut_losing_all(), &options()).unwrap();
        assert!(
            next_of(&queue) >= seen,
            "moment {moment}: {} is next, {seen} were seen",
            next_of(&queue)
        );
    }
    assert!(found > 0);
}

/// Messages are dropped to make room, none is ever flushed, and the process dies at any call; what
/// it leaves is opened, more is dropped, and power is cut. What the index said when the process
/// died may have been in the page cache alone, and is not overwritten by half before it is on the
/// disk: no number is given out twice.
#[test]
fn a_checkpoint_that_may_be_the_only_one_is_durable_before_the_other_is_written() {
    let options = options().on_full(OnFull::DropOldest);
    let slots = |storage: &SimStorage| {
        let read = |name: &String| (name == INDEX_NAME).then(|| storage.read_file(name));
        let bytes = storage.file_names().iter().find_map(read).unwrap_or_default();
        let queue_id = decode_index_header(&bytes).unwrap_or_default();
        let slot = |at: usize| Some(Checkpoint::decode(bytes.get(at..)?, &queue_id)?.number);
        [slot(index_at::CHECKPOINT_A), slot(index_at::CHECKPOINT_B)]
    };
    let mut cached = 0;
    let deaths = (1..).map_while(|moment| {
        let storage = disk(moment);
        let queue = open(storage.clone(), &options).unwrap();
        storage.freeze_at(moment);
        (0..30)
            .for_each(|number| assert_eq!(queue.enqueue(&content(number, 3000)).unwrap(), number));
        storage.disarm();
        storage.frozen()
    });
    let deaths: Vec<_> = deaths
        .filter(|dead| slots(dead).iter().max() != slots(&dead.power_cut_losing_all()).iter().max())
        .collect();
    kept_but_for(Mutant::SlotOverwrittenWithoutR1, |number, images| {
        let Some(dead) = deaths.get(number as usize / 40) else {
            return Ok(false);
        };
        let storage = dead.process_kill();
        let queue = open(storage.clone(), &options)?;
        let given = next_of(&queue);
        storage.freeze_at_store(1 + number % 40);
        for number in 0..6 {
            fine(queue.enqueue(&content(number, 3000)))?;
        }
        storage.disarm();
        // In the middle of a slot.
        let torn = storage.frozen().filter(|dead| slots(dead).contains(&None));
        let Some(dead) = torn else {
            return Ok(true);
        };
        cached += 1;
        *images += 1;
        // Of all that was not synced, that sector alone reached the disk.
        let cut = dead.power_cut_losing_all();
        let at = [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B]
            [usize::from(slots(&dead)[0].is_some())];
        cut.corrupt(INDEX_NAME, at, &dead.read_file(INDEX_NAME)[at..at + SECTOR]);
        ensure!(slots(&cut).iter().any(Option::is_some), "no slot of the checkpoint is whole");
        let next = next_of(&open(cut, &options)?);
        ensure!(next >= given, "{next} is the next number, and {given} were given out");
        Ok(true)
    });
    assert!(cached > 10, "{cached}");
}

/// Messages are dropped to make room, power is cut, and cut again when the queue was opened: what
/// is missing is reported as what the first cut took, or as dropped.
#[test]
fn what_a_power_cut_took_is_reported_as_such_after_another_one() {
    let options = options().on_full(OnFull::DropOldest);
    let mut lost = 0;
    for seed in 0..200 {
        let storage = disk(seed);
        let queue = open(storage.clone(), &options).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 100)).unwrap();
        queue.core.flush().unwrap();
        for number in 1..2 + seed % 12 {
            queue.enqueue(&content(number, 3000)).unwrap();
        }
        let queue = open(storage.power_cut(seed), &options).unwrap();
        let queue = open(queue.core.storage.power_cut(seed), &options).unwrap();
        let reported = take_all(&queue).unwrap();
        let gaps: Vec<_> = reported.iter().filter_map(|reported| reported.as_ref().err()).collect();
        lost += u32::from(reported.iter().flatten().count() == 0 && gaps.len() > 1);
        let damaged = gaps.iter().find(|gap| gap.cause == GapCause::Damaged);
        assert!(damaged.is_none(), "seed {seed}: {damaged:?} of {gaps:?}");
    }
    assert!(lost > 3, "{lost}");
}

/// A consumer's place lies within a batch. The place reached the disk, and only pieces of the batch
/// did. Power is cut, and cut again when the queue was opened: reads report the same both times,
/// and return what lies behind the batch.
#[test]
fn a_place_within_what_is_empty_reports_the_same_after_another_power_cut() {
    let options = options().max_bytes(256 << 10);
    let mut met = 0;
    for seed in some_of(0..400, 4, 0) {
        let queue = open(disk(seed), &options).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 31)).unwrap();
        queue.core.flush().unwrap();
        queue
            .enqueue_batch(&[content(1, 10), content(2, 70_000), content(3, 29), content(4, 1500)])
            .unwrap();
        queue.enqueue(&content(5, 500)).unwrap();
        let consumer = consumer_of(&queue, "").unwrap();
        (0..3)
            .for_each(|_| assert!(reading::next(&queue, &consumer, Read::Take).unwrap().is_some()));
        queue.core.index.sync().unwrap();
        let queue = open(queue.core.storage.power_cut(seed), &options).unwrap();
        let reported = |storage: SimStorage| take_all(&open(storage, &options).unwrap()).unwrap();
        let once = reported(queue.core.storage.process_kill());
        let found =
            once.iter().flatten().any(|(seq, _)| *seq == 5) && once.iter().any(Result::is_err);
        met += u32::from(found);
        let again = reported(queue.core.storage.power_cut_losing_all());
        assert_eq!(again, once, "seed {seed}");
    }
    assert!(met > 10, "{met}");
}
