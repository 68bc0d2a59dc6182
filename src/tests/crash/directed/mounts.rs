//! The same boot, and another mount: a container that died, or a file system that failed.

use rustix::io::Errno;

use super::{disk, fine, is_of_a_cut, kept, kept_but_for, options, take_all};
use crate::consume::redelivery_state::Rules;
use crate::consume::step::Read;
use crate::engine::reading;
use crate::engine::reading::AsMessage;
use crate::error::{Error, Gap, GapCause};
use crate::storage::{Storage, StorageFile};
use crate::tests::crash::examine::{Queue, next_of, open};
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::effort::some_of;
use crate::tests::sim::{Call, Mutant, SimStorage};

/// A queue was closed with one message. Each process that is handed that message dies of it: how
/// often it was handed out, as each delivery says, until it is rejected.
fn attempts(dies: fn(&SimStorage) -> SimStorage) -> Vec<u32> {
    let queue = open(disk(1), &options()).unwrap();
    queue.consumer("c").unwrap();
    queue.enqueue(b"poison").unwrap();
    queue.close().unwrap();
    let mut left = dies(&queue.core.storage);
    let mut attempts = Vec::new();
    for _ in 0..6 {
        let queue = open(left, &options()).unwrap();
        let consumer = queue.consumer("c").unwrap();
        let rules = Rules { max_attempts: Some(3), ..Rules::default() };
        queue.set_redelivery(&consumer, rules).unwrap();
        match queue.receive(&consumer, AsMessage) {
            Ok(received) => attempts.push(received.unwrap().1.attempts),
            Err(Error::Gap(Gap { cause: GapCause::Rejected, .. })) => break,
            Err(error) => panic!("{error}"),
        }
        left = dies(&queue.core.storage);
    }
    attempts
}

/// A worker that only consumes never takes back the mark of the clean end.
#[test]
fn a_death_behind_a_clean_end_counts_in_whichever_mount() {
    assert_eq!(attempts(SimStorage::process_kill), [1, 2, 3]);
    assert_eq!(attempts(SimStorage::seen_elsewhere), [1, 2, 3]);
    // Power was cut, or somebody copied it: nobody died of the message.
    assert_eq!(attempts(SimStorage::copied), [1; 6]);
}

/// The file system failed and was mounted again, and lost the index's last page together with the
/// segments' pages: what is left looks like an earlier moment. Every acknowledged number is
/// reported, and none is given out again, also when this happens again and again.
#[test]
fn what_a_mount_lost_without_a_trace_was_reserved() {
    let mut reserved = 0;
    kept_but_for(Mutant::NumbersOfAnotherMount, |seed, images| {
        let options = options().max_bytes(256 << 10);
        let mut storage = disk(seed);
        let (mut put, mut reported) = (Vec::new(), 0);
        for remount in 0..4 {
            let queue = open(storage, &options)?;
            queue.default_consumer().map_err(|error| error.to_string())?;
            for found in take_all(&queue)? {
                let (first, last) = match &found {
                    Ok((seq, bytes)) if *bytes == content(*seq, 300) => (*seq, *seq),
                    Ok((seq, _)) => return Err(format!("{seq} is another message")),
                    Err(gap) => (gap.first, gap.last),
                };
                // A place that was lost has messages come again.
                ensure!(first <= reported, "{reported} is not reported, but {found:?}");
                reserved += u32::from(found.is_err_and(|gap| gap.cause == GapCause::Reserved));
                reported = reported.max(last + 1);
            }
            let most = put.last().map_or(0, |last| last + 1);
            let next = next_of(&queue);
            ensure!(
                reported >= most && next >= most,
                "{reported} reported, {next} is next, {most} were put"
            );
            if remount == 0 {
                queue.core.flush().map_err(|error| error.to_string())?;
            }
            for _ in 0..3 {
                let seq = queue.enqueue(&content(next_of(&queue), 300));
                put.push(seq.map_err(|error| error.to_string())?);
            }
            storage = queue.core.storage.mounted_again(seed * 4 + remount);
            *images += 1;
        }
        Ok(seed < 60)
    });
    assert!(reserved > 60, "{reserved}");
}

/// A batch died with its mount, and numbers go on at the end of the reservation, within the
/// segments that were begun for it. None of these takes the next message: whatever kills that,
/// reserved numbers are reported as reserved.
#[test]
fn a_batch_that_died_with_its_mount_leaves_no_segment() {
    kept(|number, images| {
        let options = options().arena_size(16 << 10).max_bytes(256 << 10);
        let storage = disk(number);
        let queue = open(storage.clone(), &options)?;
        fine(queue.default_consumer())?;
        fine(queue.core.flush())?;
        storage.freeze_at(1 + number);
        fine(queue.enqueue_batch(&[content(1, 25_000), content(2, 25_000)]))?;
        let Some(dead) = storage.frozen() else { return Ok(false) };
        let elsewhere = open(dead.seen_elsewhere(), &options)?.core.storage.process_kill();
        for moment in 1.. {
            let storage = elsewhere.process_kill();
            let queue = open(storage.clone(), &options)?;
            storage.freeze_at(moment);
            fine(queue.enqueue(b"behind"))?;
            let Some(dead) = storage.frozen() else { break };
            *images += 1;
            let reported = take_all(&open(dead, &options)?)?;
            let gaps: Vec<_> =
                reported.iter().filter_map(|reported| reported.as_ref().err()).collect();
            let is_reserved = gaps.iter().all(|gap| gap.cause == GapCause::Reserved);
            ensure!(is_reserved, "killed at call {number}, then at {moment}: {gaps:?}");
        }
        Ok(true)
    });
}

/// An opening behind a power cut fills a hole and moves the place that lies in it. Then the file
/// system fails, and the place alone is as it was: what it meets there is the same loss as before.
#[test]
fn a_place_that_another_mount_has_within_a_hole_leaves_it_again() {
    kept(|number, images| {
        let options = options().arena_size(16 << 10).max_bytes(256 << 10);
        let queue = open(disk(number), &options)?;
        let consumer = fine(queue.default_consumer())?;
        fine(queue.core.flush())?;
        for seq in 0..7 {
            fine(queue.enqueue(&content(seq, 1500)))?;
        }
        for _ in 0..1 + number % 3 {
            fine(reading::next(&queue, consumer, Read::Take))?;
        }
        let cut = open(queue.core.storage.power_cut(number), &options)?;
        for seed in 0..4 {
            *images += 1;
            let reported = take_all(&open(cut.core.storage.mounted_again(seed), &options)?)?;
            let gaps: Vec<_> =
                reported.iter().filter_map(|reported| reported.as_ref().err()).collect();
            let is_as_reported = gaps.iter().all(|gap| is_of_a_cut(gap));
            ensure!(is_as_reported, "cut {number}, mount {seed}: {gaps:?}");
        }
        Ok(number < 400)
    });
}

/// Each start of a process that is killed in a container closes a segment, and so does each power
/// cut. The file of that segment takes little more than what it holds.
#[test]
fn a_start_that_is_killed_takes_little_more_than_it_holds() {
    let dies: [fn(&SimStorage) -> SimStorage; 2] =
        [SimStorage::seen_elsewhere, SimStorage::power_cut_losing_all];
    for dies in dies {
        let options = options().arena_size(64 << 10).max_bytes(2 << 20);
        let mut left = SimStorage::new(1);
        for number in 0..40 {
            let queue = open(left, &options).unwrap();
            queue.default_consumer().unwrap();
            queue.enqueue(&content(number, 7)).unwrap();
            queue.core.flush().unwrap();
            left = dies(&queue.core.storage);
        }
        let files = left.contents();
        let taken: Vec<usize> = files.values().map(Vec::len).collect();
        // The last one has space ahead.
        let long = taken.iter().filter(|len| **len > 4096).count();
        assert!(long <= 3, "the files take {taken:?} bytes");
        let told = take_all(&open(left, &options).unwrap()).unwrap();
        let came = told.iter().flatten().map(|(_, bytes)| bytes.clone());
        assert!(came.eq((0..40).map(|number| content(number, 7))), "{told:?}");
    }
}

/// A run dies in its first flush, and a container's next run reports what had been reserved. A
/// power cut does not give those numbers out.
#[test]
fn numbers_that_were_reported_behind_another_mount_stay_missing() {
    let mut reported = 0;
    kept(|number, images| {
        let storage = disk(number);
        let queue = open(storage.clone(), &options())?;
        fine(queue.default_consumer())?;
        storage.freeze_at_store(1 + number);
        let flushed = fine(queue.enqueue(b"first")).and_then(|_| fine(queue.core.flush()));
        storage.disarm();
        flushed?;
        let Some(dead) = storage.frozen() else { return Ok(false) };
        let queue = open(dead.seen_elsewhere(), &options())?;
        let gaps = take_all(&queue)?;
        let end = gaps.iter().filter_map(|one| one.as_ref().err()).map(|gap| gap.last + 1).max();
        reported += u64::from(end.is_some());
        for cut in 0..8 {
            *images += 1;
            let next = next_of(&open(queue.core.storage.power_cut(cut), &options())?);
            ensure!(end <= Some(next), "{end:?} was reported as a gap, and {next} is next");
        }
        Ok(true)
    });
    assert!(reported > 0);
}

/// A container's next run goes on at the end of the reservation. Then the file system fails and is
/// mounted again: rows of the index name files that it lost, or that it has as they were before.
#[test]
fn rows_that_were_believed_before_the_mount_is_doubted_name_no_file() {
    let mut doubted = 0;
    let options = options().max_bytes(256 << 10);
    for seed in some_of(0..600, 3, 0) {
        let queue = open(disk(seed), &options).unwrap();
        queue.default_consumer().unwrap();
        for number in 0..10 {
            queue.enqueue(&content(number, 700)).unwrap();
        }
        queue.core.flush().unwrap();
        let queue = open(queue.core.storage.seen_elsewhere(), &options).unwrap();
        for number in 0..40 {
            queue.enqueue(&content(number, 700)).unwrap();
            if number % 5 == seed % 5 {
                queue.core.storage.snapshot();
            }
        }
        let image = queue.core.storage.mounted_again(seed);
        let reported = take_all(&open(image, &options).unwrap()).unwrap();
        let kept = (0..10).map(|number| Ok((number, content(number, 700))));
        assert!(reported.iter().take(10).cloned().eq(kept), "seed {seed}");
        doubted += u32::from(reported.iter().flatten().count() < 50);
    }
    assert!(doubted > 100, "{doubted}");
}

/// A batch lies in two segments and was flushed. The file system fails and is mounted again, which
/// loses no message, but the mark of the flush; perhaps the next run is killed before it reclaims.
/// The batch's beginning is read and reclaimed. Then power is cut, or somebody copies the queue:
/// the rest of the batch is still there.
#[test]
fn the_rest_of_a_flushed_batch_outlives_a_mount_and_then_a_power_cut() {
    let options = options().max_bytes(256 << 10);
    let last_two_are_found = |seed, is_killed| -> Check<bool> {
        let queue = open(disk(seed), &options)?;
        fine(queue.default_consumer())?;
        fine(queue.core.flush())?;
        let bodies = [20_000, 20_000, 20_000, 1000, 1000].map(|len| content(len, len as usize));
        fine(queue.enqueue_batch(&bodies))?;
        fine(queue.core.flush())?;
        let mut queue = open(queue.core.storage.mounted_again(seed), &options)?;
        if is_killed {
            queue = open(queue.core.storage.process_kill(), &options)?;
        }
        let consumer = fine(queue.default_consumer())?;
        for body in &bodies[..3] {
            let message = reading::next(&queue, consumer, Read::Take);
            ensure!(fine(message)?.is_some_and(|it| it[..] == body[..]), "another message");
        }
        fine(queue.core.reclaim())?;
        let is_reclaimed = queue.core.segments.list().live.iter().all(|row| row.header.base > 0);
        let storage = &queue.core.storage;
        let cuts = (0..5).map(|cut| storage.power_cut(cut));
        for (cut, image) in cuts.chain([storage.copied()]).enumerate() {
            let reported = take_all(&open(image, &options)?)?;
            let messages: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
            ensure!(messages.ends_with(&[3, 4]), "seed {seed}, cut {cut}: {reported:?}");
        }
        Ok(is_reclaimed)
    };
    for is_killed in [false, true] {
        let is_kept = |seed: &u64| last_two_are_found(*seed, is_killed).unwrap();
        let reclaimed = (0..20).filter(is_kept).count();
        assert!(reclaimed > 10, "{reclaimed}");
    }
}

/// A copy's bytes are in the page cache alone. A sync of the opening fails, which leaves their
/// pages clean; the next opening, a flush and a close succeed. Then power is cut: all messages are
/// there.
#[test]
fn a_copy_whose_opening_failed_is_durable_once_it_is_flushed() {
    for nth in 1..12 {
        let options = options().max_bytes(256 << 10);
        let queue = open(disk(nth), &options).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 1000)).unwrap();
        queue.core.flush().unwrap();
        for id in 1..6 {
            queue.enqueue(&content(id, 3000)).unwrap();
        }
        let image = queue.core.storage.copied();
        image.fail_after(Call::SyncFile, nth, Errno::IO, false);
        let _ = open(image.clone(), &options);
        image.clear_faults();
        let queue = open(image.process_kill(), &options.clone().flush_every_ops(1)).unwrap();
        queue.core.flush().unwrap();
        queue.close().unwrap();
        let cut = open(queue.core.storage.power_cut_losing_all(), &options).unwrap();
        let reported = take_all(&cut).unwrap();
        let messages: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
        assert_eq!(messages, [0, 1, 2, 3, 4, 5], "sync {nth}: {reported:?}");
    }
}

/// What runs do with a copy, before power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyIs {
    FlushedWithAMessage,
    FlushedByARunThatPutsNothing,
    ClosedByARunThatPutsNothing,
    FlushedBehindADeath,
    WaitedFor,
}

/// Somebody copies the files of a closed queue, and the copy is in the page cache alone. What a
/// flush or a close of the copy covers outlives a power cut, also what came with the copy.
#[test]
fn a_copy_that_was_flushed_or_closed_outlives_a_power_cut() {
    use CopyIs::*;
    let options = options().max_bytes(256 << 10);
    for copy_is in [
        FlushedWithAMessage,
        FlushedByARunThatPutsNothing,
        ClosedByARunThatPutsNothing,
        FlushedBehindADeath,
        WaitedFor,
    ] {
        let queue = open(disk(1), &options).unwrap();
        queue.default_consumer().unwrap();
        for id in 0..12 {
            queue.enqueue(&content(id, 3000)).unwrap();
        }
        queue.close().unwrap();
        let copy = SimStorage::new(77).with_file_capacity(64 << 10);
        for (name, bytes) in queue.core.storage.contents() {
            copy.create(&name).unwrap().write_at(&bytes, 0).unwrap();
        }
        let mut queue = open(copy, &options).unwrap();
        match copy_is {
            FlushedWithAMessage => drop(queue.enqueue(b"another").unwrap()),
            FlushedBehindADeath => {
                queue = open(queue.core.storage.process_kill(), &options).unwrap();
            }
            _ => {}
        }
        match copy_is {
            ClosedByARunThatPutsNothing => queue.close().unwrap(),
            WaitedFor => queue.core.flush_or_wait(queue.core.committed_spot(), None, None).unwrap(),
            _ => queue.core.flush().unwrap(),
        }
        let cut = queue.core.storage.power_cut_losing_all();
        let reported = take_all(&open(cut, &options).unwrap()).unwrap();
        let came: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
        assert!(came.starts_with(&(0..12).collect::<Vec<_>>()), "{copy_is:?}: {came:?} came");
    }
}

/// The first flush syncs a copy, and no other flush of that run or a later one does.
#[test]
fn the_files_of_a_copy_are_synced_once() {
    let options = options().max_bytes(256 << 10);
    let queue = open(disk(1), &options).unwrap();
    for id in 0..12 {
        queue.enqueue(&content(id, 3000)).unwrap();
    }
    queue.close().unwrap();
    let queue = open(queue.core.storage.copied(), &options).unwrap();
    let syncs = |queue: &Queue| {
        let before = queue.core.storage.call_count(Call::SyncFile);
        queue.core.flush().unwrap();
        queue.core.storage.call_count(Call::SyncFile) - before
    };
    let segments = queue.core.segments.list().live.len() as u64;
    assert!(segments > 1 && syncs(&queue) > segments, "{segments} segments and the index");
    assert_eq!(syncs(&queue), 0);
    let queue = open(queue.core.storage.process_kill(), &options).unwrap();
    assert!(syncs(&queue) < 3, "a run has synced the files here");
}
