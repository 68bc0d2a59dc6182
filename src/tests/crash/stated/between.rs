//! What is missing between two segments is stated by the header of the second, and by its row.

use rustix::io::Errno;

use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Gap, GapCause};
use crate::format::{SEGMENT_HEADER_LEN, segment_name};
use crate::storage::{Storage, StorageFile};
use crate::tests::crash::directed::{
    disk, fine, is_of_a_cut, kept_but_for, options, take_all, take_all_of,
};
use crate::tests::crash::examine::open;
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::sim::{Call, Mutant, SimStorage};

/// Eight such messages fill a segment.
const LEN: usize = 8064 / 8 - 16;

/// What a power cut leaves of a queue with three full segments: the name of the second one was not
/// on the disk, and none of its messages was durable. And the name of the third one.
fn without_the_second() -> (SimStorage, String) {
    let queue = open(disk(1), &options()).unwrap();
    queue.default_consumer().unwrap();
    for number in 0..24 {
        assert_eq!(queue.enqueue(&content(number, LEN)).unwrap(), number);
        if number == 3 {
            queue.core.flush().unwrap();
        }
    }
    let left = queue.core.storage.copied();
    let names: Vec<_> =
        queue.core.segments.list().live.iter().map(|row| segment_name(row.slot)).collect();
    assert_eq!(names.len(), 3);
    left.remove_file(&names[1]);
    (left, names[2].clone())
}

/// All but the second segment's messages come, and these are reported as taken by the power cut.
fn check_reported(image: SimStorage) -> Check {
    let reported = take_all(&open(image, &options())?)?;
    let came: Vec<u64> = reported.iter().flatten().map(|(number, _)| *number).collect();
    ensure!(came.iter().copied().eq((0..8).chain(16..24)), "{came:?} come");
    let gaps: Vec<Gap> = reported.into_iter().filter_map(Result::err).collect();
    let wanted = Gap { first: 8, last: 15, cause: GapCause::Unflushed };
    let others = gaps.iter().filter(|gap| gap.cause != GapCause::Reserved);
    ensure!(others.eq([&wanted]), "gaps are reported as {gaps:?}");
    Ok(())
}

/// The next opening writes all rows anew, and dies at the store of this number. Whether it did.
fn dies_in_the_next_opening(left: &SimStorage, number: u64, images: &mut u64) -> Check<bool> {
    left.freeze_at_store(1 + number);
    let opened = open(left.clone(), &options())?;
    left.disarm();
    let frozen = left.frozen();
    let has_died = frozen.is_some();
    let image = frozen.unwrap_or_else(|| left.process_kill());
    drop(opened);
    *images += 1;
    check_reported(image)?;
    Ok(has_died)
}

/// The disk is full: it refuses the call that writes the header, in this opening and in the next.
/// The header states what is missing all the same.
#[test]
fn a_header_that_no_call_can_write_states_what_is_missing() {
    kept_but_for(Mutant::HeaderByCallAlone, |number, images| {
        let (left, _) = without_the_second();
        left.fail_after(Call::Write, 1, Errno::NOSPC, false);
        let opened = open(left.clone(), &options())?;
        ensure!(left.failed(Call::Write) == 1, "an opening writes the header by a call");
        let dead = left.process_kill();
        drop(opened);
        dead.fail_after(Call::Write, 1, Errno::NOSPC, false);
        dies_in_the_next_opening(&dead, number, images)
    });
}

/// The header did not reach the disk: the row of the index alone states what is missing.
#[test]
fn what_a_row_alone_states_outlives_the_opening_that_writes_the_rows_anew() {
    kept_but_for(Mutant::StatedByTheRowAlone, |number, images| {
        let (left, third) = without_the_second();
        let header = left.read_file(&third)[..SEGMENT_HEADER_LEN as usize].to_vec();
        let opened = open(left.clone(), &options())?;
        let dead = left.process_kill();
        drop(opened);
        let is_written = dead.read_file(&third)[..header.len()] != header[..];
        ensure!(is_written, "an opening writes the header");
        dead.corrupt(&third, 0, &header);
        dies_in_the_next_opening(&dead, number, images)
    });
}

/// A power cut took the end of the first segment and all of the second one, in which a consumer
/// stands. The opening that mends this dies at each of its calls; then perhaps power is cut again.
#[test]
fn a_death_in_an_opening_that_fills_a_hole_changes_no_cause() {
    const STANDS_AT: u64 = 10;
    kept_but_for(Mutant::FilledBeforeStated, |number, images| {
        let queue = open(disk(1), &options())?;
        let consumer = fine(queue.default_consumer())?.clone();
        fine(queue.consumer("at the beginning"))?;
        for message in 0..24 {
            fine(queue.enqueue(&content(message, LEN)))?;
        }
        for _ in 0..STANDS_AT {
            fine(reading::next(&queue, &consumer, Read::Take))?;
        }
        let left = queue.core.storage.copied();
        let names: Vec<_> =
            queue.core.segments.list().live.iter().map(|row| segment_name(row.slot)).collect();
        let fourth = SEGMENT_HEADER_LEN as usize + 4 * (LEN + 16);
        left.corrupt(&names[0], fourth, &vec![0; 4 * (LEN + 16)]);
        left.remove_file(&names[1]);
        for name in left.file_names() {
            left.open(&name).and_then(|file| file.sync().map_err(|failed| failed.0)).unwrap();
        }
        left.sync_directory().map_err(|failed| failed.0).unwrap();
        left.freeze_at(1 + number);
        let opened = open(left.clone(), &options())?;
        left.disarm();
        let frozen = left.frozen();
        let has_died = frozen.is_some();
        let dead = frozen.unwrap_or_else(|| left.process_kill());
        drop(opened);
        for image in [dead.process_kill(), dead.power_cut_losing_all()] {
            *images += 1;
            let reported = take_all(&open(image, &options())?)?;
            let wanted = Gap { first: STANDS_AT, last: 15, cause: GapCause::Unflushed };
            ensure!(
                reported.first() == Some(&Err(wanted)),
                "{:?} is reported first",
                reported.first()
            );
            let came = reported.iter().flatten().map(|(number, _)| *number);
            ensure!(came.eq(16..24), "other messages come than those of the third segment");
        }
        Ok(has_died)
    });
}

/// A power cut took all messages; a read reported that, and the consumer's place was made durable.
/// A second cut took all there was since. The opening behind it finds nothing where the run before
/// had its end, and a checkpoint is written there. A third cut takes the segment that states what
/// both took, and leaves the one behind it.
#[test]
fn a_checkpoint_within_missing_numbers_states_those_before_it() {
    kept_but_for(Mutant::StatedAtTheBaseAlone, |_, images| {
        let queue = open(disk(1), &options())?;
        fine(queue.default_consumer())?;
        fine(queue.consumer("told"))?;
        for message in 0..3 {
            fine(queue.enqueue(&content(message, 100)))?;
        }
        let queue = open(queue.core.storage.power_cut_losing_all(), &options())?;
        ensure!(take_all_of(&queue, "told")?.iter().all(Result::is_err), "messages come");
        fine(queue.core.flush())?;
        fine(queue.core.flush_places())?;
        fine(queue.enqueue(&content(3, 100)))?;
        let queue = open(queue.core.storage.power_cut_losing_all(), &options())?;
        let first = fine(queue.enqueue(&content(4, LEN)))?;
        for message in 5..20 {
            fine(queue.enqueue(&content(message, LEN)))?;
        }
        fine(queue.core.flush_places_and_checkpoint())?;
        let left = queue.core.storage.copied();
        let spot = queue.core.index.checkpoint().spot();
        ensure!(0 < spot.seq && spot.seq < first, "the checkpoint is at {spot:?}");
        let lost = queue.core.segments.list().live.front().map(|row| segment_name(row.slot));
        left.remove_file(&lost.unwrap_or_default());
        *images += 1;
        let reported = take_all(&open(left, &options())?)?;
        let other = reported
            .iter()
            .filter_map(|reported| reported.as_ref().err())
            .find(|gap| !is_of_a_cut(gap));
        ensure!(other.is_none(), "{other:?} is reported: {:?}", reported.first());
        ensure!(
            reported.iter().flatten().count() == 8,
            "the second segment's messages do not come"
        );
        Ok(false)
    });
}
