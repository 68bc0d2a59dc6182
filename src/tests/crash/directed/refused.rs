//! Calls that are refused, in a run and in an opening.

use std::time::Duration;

use rustix::io::Errno;

use super::{disk, is_of_a_cut, options, take_all};
use crate::consume::step::Read;
use crate::engine::{Engine, reading};
use crate::error::{Error, Gap, GapCause};
use crate::format::{
    FRAGMENT_HEADER_LEN, INDEX_NAME, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState,
};
use crate::options::{OnFull, Options};
use crate::storage::{Storage, StorageFile, Stores};
use crate::tests::crash::examine::{consumer_of, next_of, open};
use crate::tests::crash::model::content;
use crate::tests::sim::{Call, SimStorage};

/// Power is cut with a segment lost before one that is there, or one left behind the tail; a call
/// of the opening is refused, and the process dies. The next one reports what is missing as lost
/// by the cut, and delivers what is enqueued then.
#[test]
fn a_call_refused_in_recovery_changes_nothing_of_what_is_reported() {
    let mut refused = [0, 0];
    let options = options().max_bytes(256 << 10);
    for (at, call) in [Call::Remove, Call::Write].into_iter().enumerate() {
        for seed in 0..60 {
            let queue = open(disk(seed), &options).unwrap();
            queue.default_consumer().unwrap();
            for number in 0..12 {
                queue.enqueue(&content(number, 3000)).unwrap();
            }
            let image = queue.core.storage.power_cut(seed);
            image.fail_after(call, 1, Errno::NOSPC, true);
            let opened = Engine::open_without_workers(image.clone(), &options);
            refused[at] += u64::from(image.failed(call) > 0);
            let dead = image.process_kill();
            drop(opened);
            let queue = open(dead, &options).unwrap();
            let seq = queue.enqueue(&content(99, 3000)).unwrap();
            let reported = take_all(&queue).unwrap();
            let other = reported
                .iter()
                .filter_map(|reported| reported.as_ref().err())
                .find(|gap| !is_of_a_cut(gap));
            assert_eq!(other, None, "{call:?} was refused, seed {seed}");
            assert_eq!(
                reported.last(),
                Some(&Ok((seq, content(99, 3000)))),
                "{call:?} was refused, seed {seed}"
            );
        }
    }
    assert!(refused.iter().all(|times| *times > 10), "{refused:?}");
}

/// Where stores go by calls and the disk is full, what is taken is handed over, the place stays in
/// memory until there is space, and messages are refused. A kill before that gives them again.
#[test]
fn a_place_that_cannot_be_stored_is_kept_and_stored_later() {
    let storage = disk(1);
    storage.set_stores(Stores::ByCall);
    let queue = open(storage.clone(), &options()).unwrap();
    let consumer = consumer_of(&queue, "").unwrap();
    let take =
        || reading::next(&queue, &consumer, Read::Take).unwrap().map(|message| message.seq());
    let place_after_a_kill = || {
        let killed = open(storage.process_kill(), &options()).unwrap();
        (consumer_of(&killed, "").unwrap().seq(), next_of(&killed))
    };
    for number in 0..6 {
        assert_eq!(queue.enqueue(&content(number, 100)).unwrap(), number);
    }
    assert_eq!(take(), Some(0));
    assert_eq!(place_after_a_kill(), (1, 6));
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    assert_eq!((take(), take()), (Some(1), Some(2)));
    assert!(queue.enqueue(&content(6, 100)).unwrap_err().is_full());
    assert!(queue.core.flush().unwrap_err().is_full());
    assert!(!queue.core.is_poisoned(), "nothing is lost");
    assert_eq!((take(), next_of(&queue)), (Some(3), 6));
    assert_eq!(place_after_a_kill(), (1, 6), "given again, and the refused one is not there");
    storage.clear_faults();
    assert_eq!(take(), Some(4));
    assert_eq!(place_after_a_kill(), (5, 6));
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    assert_eq!(take(), Some(5));
    assert_eq!(place_after_a_kill(), (5, 6));
    storage.clear_faults();
    assert_eq!(queue.enqueue(&content(6, 100)).unwrap(), 6);
    assert_eq!(place_after_a_kill(), (6, 7), "whatever is written next comes after it");
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    assert_eq!(take(), Some(6));
    storage.clear_faults();
    queue.core.flush().unwrap();
    assert_eq!(place_after_a_kill(), (7, 7));
    queue.close().unwrap();
}

/// A message whose record is written and whose commit is refused never comes, also after a kill.
#[test]
fn a_message_whose_commit_is_refused_was_never_there() {
    for nth in 1..6 {
        let storage = disk(nth);
        storage.set_stores(Stores::ByCall);
        let queue = open(storage.clone(), &options()).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 100)).unwrap();
        storage.fail_after(Call::Write, nth, Errno::NOSPC, true);
        let mut next = 1;
        let refused = loop {
            match queue.enqueue(&content(next, 100)) {
                Ok(seq) => next = seq + 1,
                Err(error) => break error,
            }
        };
        assert!(refused.is_full() && next_of(&queue) == next, "{refused}");
        let killed = open(storage.process_kill(), &options()).unwrap();
        let kept: Vec<_> = (0..next).map(|seq| Ok((seq, content(seq, 100)))).collect();
        assert_eq!((take_all(&killed).unwrap(), next_of(&killed)), (kept.clone(), next));
        storage.clear_faults();
        assert_eq!(queue.enqueue(&content(next, 100)).unwrap(), next);
        assert_eq!(take_all(&queue).unwrap().len(), kept.len() + 1);
    }
}

/// As above, where the record begins a segment: behind padding, or behind one that is full. All
/// writes fail, or all but a few of those that take the record back.
#[test]
fn a_message_in_a_segment_of_its_own_whose_commit_is_refused_was_never_there() {
    let (mut refused, mut taken) = (0, 0);
    for (left, passing) in (0..12).map(|nth| ([0, 8, 400][nth % 3], nth as u64 / 3)) {
        for nth in 1.. {
            let storage = disk(nth);
            storage.set_stores(Stores::ByCall);
            let queue = open(storage.clone(), &options()).unwrap();
            queue.default_consumer().unwrap();
            let geometry = *queue.core.pool.geometry();
            let capacity = (geometry.least_len - SEGMENT_HEADER_LEN) as usize;
            let first = content(0, capacity - FRAGMENT_HEADER_LEN as usize - left);
            assert_eq!(queue.enqueue(&first).unwrap(), 0);
            storage.fail_after(Call::Write, nth, Errno::IO, false);
            storage.fail_after(Call::Write, nth + 1 + passing, Errno::IO, true);
            let before = storage.call_count(Call::Write);
            let answer = queue.enqueue(&content(1, 500));
            let met = storage.call_count(Call::Write) - before >= nth;
            let killed = open(storage.process_kill(), &options()).unwrap();
            let mut kept = vec![Ok((0, first))];
            match answer {
                Ok(seq) => kept.push(Ok((seq, content(1, 500)))),
                Err(_) => refused += 1,
            }
            taken += kept.len() - 1;
            let case = format!("{left} bytes left, write {nth}, then {passing} that pass");
            assert_eq!(next_of(&killed), kept.len() as u64, "{case}");
            assert!(take_all(&killed).unwrap() == kept, "{case}");
            if !met {
                break;
            }
        }
    }
    assert!(refused > 12 && taken > 12, "{refused} refused, {taken} taken");
}

/// A batch is refused, what was there before expires, and the queue is closed: the segments that
/// were begun for the batch are spares. Then power is cut, which shows the headers of some of them
/// as they were. Returns the disk, and what expired.
fn cut_behind_a_refused_batch(options: &Options) -> (SimStorage, Gap) {
    let storage = disk(3);
    let queue = open(storage.clone(), options).unwrap();
    consumer_of(&queue, "").unwrap();
    for number in 0..4 {
        queue.enqueue(&content(number, 700)).unwrap();
    }
    let refused = queue.enqueue_batch(&[5, 6, 7].map(|id| content(id, 12_000)));
    assert!(refused.as_ref().is_err_and(Error::is_full), "{refused:?}");
    storage.advance_clock(5_000);
    queue.expire();
    let next = next_of(&queue);
    queue.close().unwrap();
    drop(queue);
    // Every name and byte is there in another boot, but for these headers.
    let cut = storage.copied();
    let mut live_again = 0;
    for name in storage.file_names().iter().filter(|name| *name != INDEX_NAME) {
        let file = storage.read_file(name);
        let header = file[..SEGMENT_HEADER_LEN as usize].try_into().unwrap();
        let header = SegmentHeader::decode(header).unwrap();
        assert_eq!(header.state, SegmentState::Spare, "{name}");
        if header.first_seq > next {
            let live = SegmentHeader { state: SegmentState::Live, ..header };
            cut.corrupt(name, 0, &live.encode());
            live_again += 1;
        }
    }
    assert!(live_again > 0, "no segment was begun within the batch");
    (cut, Gap { first: 0, last: next - 1, cause: GapCause::Expired })
}

/// No read reports numbers that nobody got.
#[test]
fn what_was_begun_for_a_refused_batch_says_nothing_behind_a_clean_end() {
    let options = options().max_age(Duration::from_secs(1));
    let (cut, expired) = cut_behind_a_refused_batch(&options);
    let next = expired.last + 1;
    // The rows of the segments are damaged, so the headers of the files are read.
    cut.corrupt(INDEX_NAME, 36_864, &[0xff; 512]);
    // The opening may die at any store; the next one knows as much.
    for nth in 1.. {
        let image = cut.process_kill();
        image.freeze_at_store(nth);
        let opened = open(image.clone(), &options).unwrap();
        image.disarm();
        let died = image.frozen();
        let queue = died.clone().map_or(Ok(opened), |dead| open(dead, &options)).unwrap();
        assert_eq!(next_of(&queue), next, "after store {nth}");
        assert_eq!(take_all(&queue).unwrap(), [Err(expired)], "after store {nth}");
        if died.is_none() {
            break;
        }
    }
}

/// The next run takes the mark of the clean end back, and dies while it changes segments, so the
/// headers are read. The opening behind it may die, too: what was a spare stays one.
#[test]
fn what_was_begun_for_a_refused_batch_says_nothing_once_a_run_went_on() {
    let options = options().max_age(Duration::from_secs(1));
    let (cut, expired) = cut_behind_a_refused_batch(&options);
    let put = Ok((expired.last + 1, content(8, 100)));
    for nth in 1.. {
        let image = cut.process_kill();
        let queue = open(image.clone(), &options).unwrap();
        image.freeze_at_store(nth);
        queue.enqueue(&content(8, 100)).unwrap();
        image.disarm();
        let Some(dead) = image.frozen() else { break };
        for at in (1..).step_by(5) {
            let image = dead.process_kill();
            image.freeze_at_store(at);
            let opened = open(image.clone(), &options).unwrap();
            image.disarm();
            let again = image.frozen();
            let queue = again.clone().map_or(Ok(opened), |dead| open(dead, &options)).unwrap();
            let reported = take_all(&queue).unwrap();
            let case = format!("after store {nth}, then {at}");
            assert_eq!(reported.first(), Some(&Err(expired)), "{case}");
            assert!(reported[1..].iter().all(|reported| *reported == put), "{case}: {reported:?}");
            if again.is_none() {
                break;
            }
        }
    }
}

/// What was dropped for a batch that was refused all the same is reported as dropped, also after a
/// power cut in the next call.
#[test]
fn what_was_dropped_for_a_refused_batch_is_reported_as_dropped_after_a_power_cut() {
    let options = Options::new().arena_size(8192).max_bytes(64 << 10).on_full(OnFull::DropOldest);
    for seed in 0..400 {
        let storage = disk(seed);
        let queue = open(storage.clone(), &options).unwrap();
        queue.default_consumer().unwrap();
        queue.core.flush().unwrap();
        queue.enqueue(&content(0, 8)).unwrap();
        let refused = queue.enqueue_batch(&[5, 6, 7, 8].map(|id| content(id, 7680)));
        assert!(refused.as_ref().is_err_and(Error::is_full), "{refused:?}");
        queue.core.flush().unwrap();
        storage.freeze_at_store(1 + seed % 60);
        queue.enqueue(&content(1, 8)).unwrap();
        storage.disarm();
        let image = storage.frozen().unwrap_or_else(|| storage.process_kill());
        let reported = take_all(&open(image.power_cut(seed), &options).unwrap()).unwrap();
        let dropped = Gap { first: 0, last: 0, cause: GapCause::Dropped };
        assert_eq!(reported.first(), Some(&Err(dropped)), "seed {seed}: {reported:?}");
    }
}

/// A quarantined file counts in `max_bytes`. An opening that cannot measure it fails, or
/// counts it all the same.
#[test]
fn an_opening_that_cannot_measure_a_file_counts_it_or_fails() {
    let queue = open(disk(1), &options()).unwrap();
    queue.enqueue(&content(0, 100)).unwrap();
    let storage = queue.core.storage.process_kill();
    let quarantined = storage.create("segment-00000009.damaged").unwrap();
    quarantined.allocate(0, 8 << 10).unwrap();
    drop(quarantined);
    let mut met = 0;
    for nth in 1.. {
        let storage = storage.process_kill();
        storage.set_most(Some(64 << 10));
        storage.fail_after(Call::Measure, nth, Errno::IO, false);
        let opened = open(storage.clone(), &options());
        met = nth;
        let is_met = storage.failed(Call::Measure) > 0;
        storage.clear_faults();
        if let Ok(queue) = opened {
            let full = (0..100).find_map(|id| queue.enqueue(&content(id, 1000)).err());
            assert!(full.is_some_and(|error| error.is_full()), "the disk holds the limit");
        }
        if !is_met {
            break;
        }
    }
    assert!(met > 2, "{met}");
}
