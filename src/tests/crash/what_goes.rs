//! What must be on the disk, or stated in the index, before a segment goes or a sync is believed: a
//! history for each danger, each with the planted bug that it finds.

use std::time::Duration;

use rustix::io::Errno;

use super::directed::{disk, fine, holds_but_for, kept_but_for, options, take_all};
use super::examine::{oldest_of, open};
use super::model::{Check, content, ensure};
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::format::{FLAG_CHANGING, QUARANTINE_SUFFIX, SegmentHeader, segment_name, segment_slot};
use crate::index::image::IndexImage;
use crate::options::OnFull;
use crate::segment::geometry::LENGTH_HERE;
use crate::storage::Stores;
use crate::tests::effort::comes;
use crate::tests::sim::{Call, Mutant, SimStorage};

/// A sync failed; the process ends, and the next one flushes. What it says is durable outlives a
/// power cut: pages that the failure left clean, and off the disk, were stored again (R4).
#[test]
fn what_is_flushed_after_a_failed_sync_is_on_the_disk() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        kept_but_for(Mutant::SuspectNotStoredAgain, |number, images| {
            let storage = disk(number);
            storage.set_stores(stores);
            let queue = open(storage.clone(), &options())?;
            fine(queue.default_consumer())?;
            for message in 0..10 {
                fine(queue.enqueue(&content(message, 1000)))?;
            }
            storage.fail_after(Call::SyncFile, 1 + number, Errno::IO, false);
            let failed = queue.core.flush().is_err();
            storage.clear_faults();
            drop(queue);
            let queue = open(storage.process_kill(), &options())?;
            fine(queue.core.flush())?;
            *images += 1;
            let reported = take_all(&open(queue.core.storage.power_cut_losing_all(), &options())?)?;
            let came = reported.iter().flatten().count();
            ensure!(came == 10, "{came} of 10 messages that were flushed");
            Ok(failed)
        });
    }
}

/// Messages are dropped to make room, and power is cut: reads report to who has not read them
/// that they were dropped.
#[test]
fn why_a_segment_was_evicted_is_known_before_it_goes() {
    kept_but_for(Mutant::CauseNotDurable, |number, images| {
        let options = options().on_full(OnFull::DropOldest);
        let queue = open(disk(number), &options)?;
        fine(queue.default_consumer())?;
        for message in 0..30 {
            fine(queue.enqueue(&content(message, 3000)))?;
            if message < 12 {
                fine(queue.core.flush())?;
            }
            if !comes(message + number, 3) {
                continue;
            }
            *images += 1;
            let reported = take_all(&open(queue.core.storage.power_cut(number), &options)?)?;
            let damaged = reported
                .iter()
                .flat_map(|reported| reported.as_ref().err())
                .find(|gap| gap.cause == GapCause::Damaged);
            ensure!(damaged.is_none(), "{damaged:?} after message {message}");
        }
        Ok(number < 40)
    });
}

/// Messages were dropped, and more have expired. Those that were dropped are reported to whoever
/// had read neither, and power is cut: what of the rest is there again is delivered, for it was
/// reported to nobody.
#[test]
fn what_was_reported_to_nobody_comes_when_a_power_cut_brings_it_back() {
    let mut back = 0;
    for seed in 0..40 {
        let options = options().on_full(OnFull::DropOldest).max_age(Duration::from_secs(5));
        let queue = open(disk(seed), &options).unwrap();
        let consumer = queue.default_consumer().unwrap().clone();
        for message in 0..40 {
            queue.enqueue(&content(message, 3000)).unwrap();
        }
        queue.core.flush().unwrap();
        queue.core.storage.advance_clock(6000);
        let reported = reading::next(&queue, &consumer, Read::Take);
        assert!(
            matches!(reported, Err(Error::Gap(Gap { first: 0, cause: GapCause::Dropped, .. }))),
            "{reported:?}"
        );
        let image = queue.core.storage.power_cut(seed);
        image.set_back_clock(6000);
        let reported = take_all(&open(image, &options).unwrap()).unwrap();
        back += u64::from(reported.iter().flatten().count() > 1);
        let damaged = reported
            .iter()
            .flat_map(|reported| reported.as_ref().err())
            .find(|gap| gap.cause == GapCause::Damaged);
        assert_eq!(damaged, None, "seed {seed}");
    }
    assert!(back > 5, "{back}");
}

/// A sync failed, so no segment goes any more and no checkpoint says what expires from then on. It
/// stays expired after the death of the process, whatever the clock says then.
#[test]
fn what_expired_before_a_kill_does_not_come_again() {
    holds_but_for(Mutant::LossesOfTheRunForgotten, || {
        let queue = open(disk(1), &options().max_age(Duration::from_secs(5))).unwrap();
        queue.default_consumer().unwrap();
        for message in 0..5 {
            queue.enqueue(&content(message, 3000)).unwrap();
        }
        queue.core.storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
        queue.core.flush().unwrap_err();
        queue.core.storage.advance_clock(6000);
        queue.expire();
        let held = oldest_of(&queue);
        assert!(held > 0, "nothing has expired");
        let dead = queue.core.storage.process_kill();
        dead.set_back_clock(6000);
        let reported = take_all(&open(dead, &options()).unwrap()).unwrap();
        let expired = Gap { first: 0, last: held - 1, cause: GapCause::Expired };
        assert_eq!(reported.first(), Some(&Err(expired)));
    });
}

/// Whenever the rows do not say what the files are, the index says that they are being changed. (An
/// opening holds the ends and the spares against the files besides.)
fn check_rows(dead: &SimStorage, queue_id: &[u8; 16]) -> Check {
    let image = IndexImage::read(&dead.read_file("index"), queue_id);
    let names: Vec<_> =
        dead.file_names().into_iter().filter(|name| segment_slot(name).is_some()).collect();
    let is_said = |name: &String| {
        let bytes = dead.read_file(name);
        let header = bytes.first_chunk().and_then(|bytes| SegmentHeader::decode(bytes).ok());
        let row = image.segments.iter().find(|(slot, _)| segment_name(*slot) == *name);
        header
            .zip(row)
            .is_some_and(|(file, (_, row))| (file.life, file.state) == (row.life, row.state))
    };
    let is_exact = names.len() == image.segments.len() && names.iter().all(is_said);
    let changing = image.live.run.is_none_or(|run| run.flags & FLAG_CHANGING != 0);
    ensure!(is_exact || changing, "nothing says that the rows are not what is there: {names:?}");
    Ok(())
}

/// The process dies while segments are used again or removed: every file is known for what it is,
/// and none is quarantined.
#[test]
fn a_death_in_a_change_of_segments_leaves_no_file_that_is_not_known() {
    kept_but_for(Mutant::ChangingNotSaid, |number, images| {
        let storage = disk(number);
        let queue = open(storage.clone(), &options())?;
        fine(queue.default_consumer())?;
        for message in 0..4 {
            fine(queue.enqueue(&content(message, 7000)))?;
            take_all(&queue)?;
        }
        if number % 2 == 0 {
            storage.freeze_at(1 + number / 2);
        } else {
            storage.freeze_at_store(1 + number / 2);
        }
        for message in 4..6 {
            fine(queue.enqueue(&content(message, 7000)))?;
            take_all(&queue)?;
        }
        storage.disarm();
        let Some(dead) = storage.frozen() else {
            return Ok(number < 200);
        };
        *images += 1;
        check_rows(&dead, &queue.core.index.queue_id)
            .map_err(|broken| format!("moment {number}: {broken}"))?;
        let queue = open(dead, &options())?;
        for _ in 0..6 {
            fine(queue.enqueue(&content(9, 7000)))?;
            let reported = take_all(&queue)?;
            ensure!(
                reported.iter().all(Result::is_ok),
                "{:?}",
                reported.iter().find(|reported| reported.is_err())
            );
        }
        let names = queue.core.storage.file_names();
        ensure!(
            !names.iter().any(|name| name.ends_with(QUARANTINE_SUFFIX)),
            "moment {number}: {names:?}"
        );
        Ok(true)
    });
}

/// The index is lost when everything was read: what is in the spares does not come again.
#[test]
fn a_spare_does_not_rise_again_when_the_index_is_lost() {
    kept_but_for(Mutant::SpareLeftLive, |number, images| {
        let queue = open(disk(number), &options())?;
        fine(queue.default_consumer())?;
        for message in 0..4 {
            fine(queue.enqueue(&content(message, 7000)))?;
            take_all(&queue)?;
        }
        let held = queue.core.segments.list().live.front().map_or(0, |row| row.header.first_seq);
        ensure!(queue.core.segments.list().spares() > 0, "no spare");
        let dead = queue.core.storage.process_kill();
        dead.remove_file("index");
        *images += 1;
        let reported = take_all(&open(dead, &options())?)?;
        let risen = reported.iter().flatten().find(|(seq, _)| *seq < held);
        ensure!(
            risen.is_none(),
            "message {:?} came, and {held} is the first that is held",
            risen.map(|risen| risen.0)
        );
        Ok(false)
    });
}

/// The beginning of a batch was read and given back, and the index is lost. The headers of the
/// segments say how far everything was given back: so no gap is reported, and the rest of the batch
/// comes.
#[test]
fn a_lost_index_costs_nothing_of_a_batch_that_is_half_read() {
    let queue = open(disk(1), &options()).unwrap();
    let consumer = queue.default_consumer().unwrap().clone();
    queue.enqueue_batch(&(0..6).map(|message| content(message, 3000)).collect::<Vec<_>>()).unwrap();
    queue.enqueue_batch(&[content(6, 3000), content(7, 3000)]).unwrap();
    queue.core.flush().unwrap();
    for _ in 0..3 {
        reading::next(&queue, &consumer, Read::Take).unwrap();
    }
    queue.core.flush().unwrap();
    let held = queue.core.segments.list().live.front().unwrap().header.first_seq;
    assert!((1..=3).contains(&held), "the beginning was given back, up to {held}");
    let dead = queue.core.storage.process_kill();
    assert_eq!(take_all(&open(dead.process_kill(), &options()).unwrap()).unwrap().len(), 5);
    let cut = queue.core.storage.power_cut(3);
    for (storage, was_cut) in
        [(dead, false), (cut, true), (queue.core.storage.power_cut_losing_all(), true)]
    {
        storage.remove_file("index");
        for _ in 0..2 {
            let reported = take_all(&open(storage.process_kill(), &options()).unwrap()).unwrap();
            let gaps: Vec<_> =
                reported.iter().filter_map(|reported| reported.as_ref().err()).collect();
            assert!(gaps.is_empty(), "{gaps:?}");
            let came: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
            // What had gone, and a power cut brought back, may come again.
            let first = if was_cut { came[0] } else { held };
            assert!(first <= held, "{came:?}");
            assert_eq!(came, (first..8).collect::<Vec<_>>());
            // Opened a second time it says the same.
            drop(open(storage.clone(), &options()).unwrap());
        }
    }
}

/// Segments that are given back leave the directory, for there are spares enough: what remains says
/// that they were given back.
#[test]
fn a_lost_index_leaves_no_doubt_of_what_left_the_directory() {
    LENGTH_HERE.set(Some(16 << 10));
    let options = options().max_bytes(128 << 10);
    let queue = open(disk(1), &options).unwrap();
    let consumer = queue.default_consumer().unwrap().clone();
    let len = (16 << 10) - 200;
    for message in 0..5 {
        queue.enqueue(&content(message, len)).unwrap();
    }
    for taken in [3, 1] {
        for _ in 0..taken {
            reading::next(&queue, &consumer, Read::Take).unwrap();
        }
        queue.core.flush().unwrap();
        queue.core.segments.reclaim(&queue.core.context()).unwrap();
    }
    assert_eq!(queue.core.segments.list().live.front().unwrap().header.first_seq, 3);
    assert!(queue.core.storage.file_names().len() < 6, "some were removed");
    let dead = queue.core.storage.process_kill();
    dead.remove_file("index");
    let reported = take_all(&open(dead, &options).unwrap()).unwrap();
    // The place was in the fourth segment, behind its only message, and is lost with the index.
    let reported: Vec<_> =
        reported.into_iter().map(|reported| reported.map(|(seq, _)| seq)).collect();
    assert_eq!(reported, [Ok(3), Ok(4)]);
}

/// The index is lost when everything was read and its segments went: no number is given out a
/// second time, whether or not a segment is left.
#[test]
fn a_lost_index_gives_out_no_number_twice() {
    for many in [3, 40] {
        let queue = open(disk(1), &options()).unwrap();
        queue.default_consumer().unwrap();
        for message in 0..many {
            queue.enqueue(&content(message, 3000)).unwrap();
            if message % 5 == 4 {
                take_all(&queue).unwrap();
            }
        }
        take_all(&queue).unwrap();
        queue.core.flush().unwrap();
        let front =
            queue.core.segments.list().live.front().map_or(many, |row| row.header.first_seq);
        let names = queue.core.storage.file_names();
        let tail = queue.core.segments.list().live.back().map(|row| row.slot);
        let dead = queue.core.storage.process_kill();
        dead.remove_file("index");
        let reported = take_all(&open(dead.process_kill(), &options()).unwrap()).unwrap();
        assert!(
            reported.iter().all(|reported| reported.as_ref().is_ok_and(|(seq, _)| *seq >= front)),
            "from {front} on"
        );
        if let Some(tail) = tail.filter(|_| front > 0) {
            // And with the last segment: what was begun there is lost, and what is behind it is not
            // known.
            assert!(names.len() > 2, "there is a spare: {names:?}");
            dead.remove_file(&crate::format::segment_name(tail));
            let queue = open(dead, &options()).unwrap();
            assert_eq!(queue.enqueue(b"new").unwrap(), front);
            assert_eq!(take_all(&queue).unwrap(), [Ok((front, b"new".to_vec()))]);
        }
    }
}

/// Segments go after a clean end was found, and power is cut: the disk says no more that the end is
/// clean. (Today the rows are held against the files all the same, and everybody has passed what
/// goes: no message shows the difference.)
#[test]
fn segments_that_go_end_the_clean_end() {
    kept_but_for(Mutant::CleanMarkKept, |number, images| {
        let storage = disk(number);
        let queue = open(storage.clone(), &options())?;
        fine(queue.default_consumer())?;
        for message in 0..4 {
            fine(queue.enqueue(&content(message, 5000)))?;
        }
        fine(queue.close())?;
        let queue = open(storage.process_kill(), &options())?;
        let says_clean = || {
            let cut = queue.core.storage.power_cut_losing_all();
            IndexImage::read(&cut.read_file("index"), &queue.core.index.queue_id)
                .checkpoint
                .is_some_and(|c| c.clean)
        };
        ensure!(says_clean(), "it was closed");
        ensure!(take_all(&queue)?.len() == 4, "four messages");
        ensure!(queue.core.segments.list().live.len() == 1, "nothing has gone");
        *images += 1;
        ensure!(!says_clean(), "the end is said to be clean");
        Ok(false)
    });
}
