//! Segment files whose headers are damaged, or never reached the disk.

use rustix::io::Errno;

use super::directed::{disk, is_of_a_cut, options, take_all};
use super::examine::{PROBE, check_accounts, consumer_of, open, prepare_ahead};
use super::model::content;
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::Error;
use crate::format::{
    INDEX_NAME, MissingBefore, QUARANTINE_SUFFIX, SEGMENT_HEADER_LEN, SegmentHeader, index_at,
    segment_name, segment_slot,
};
use crate::options::Options;
use crate::tests::effort::some_of;
use crate::tests::sim::{Call, SimStorage};

/// A queue is opened for the first time. At any call or store it is killed, or power is cut: the
/// directory opens again.
#[test]
fn a_queue_that_was_being_made_opens() {
    for at_calls in [true, false] {
        for moment in 1.. {
            let storage = disk(moment);
            if at_calls {
                storage.freeze_at(moment);
            } else {
                storage.freeze_at_store(moment);
            }
            let queue = open(storage.clone(), &options()).unwrap();
            queue.enqueue(b"first").unwrap();
            storage.disarm();
            let frozen = storage.frozen();
            let is_last = frozen.is_none();
            let dead = frozen.unwrap_or_else(|| storage.process_kill());
            let cuts = (0..20).map(|seed| dead.power_cut(seed));
            for image in cuts.chain([dead.power_cut_losing_all(), dead.process_kill()]) {
                let names = image.file_names();
                let queue = open(image, &options())
                    .unwrap_or_else(|error| panic!("{moment}, {names:?}: {error}"));
                queue.enqueue(b"second").unwrap();
            }
            if is_last {
                break;
            }
        }
    }
}

/// Every header of the index and of the segments is damaged, in place: the queue opens, and an
/// opening of it that is killed leaves one that opens.
#[test]
fn a_queue_all_of_whose_headers_are_damaged_opens() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    for number in 0..4 {
        queue.enqueue(&content(number, 6000)).unwrap();
    }
    queue.close().unwrap();
    drop(queue);
    for damage in [vec![0; SEGMENT_HEADER_LEN as usize], vec![0xa5; SEGMENT_HEADER_LEN as usize]] {
        for moment in 1.. {
            let damaged = storage.process_kill();
            for name in damaged.file_names() {
                damaged.corrupt(&name, 0, &damage);
            }
            damaged.freeze_at(moment);
            let queue = open(damaged.clone(), &options()).unwrap();
            damaged.disarm();
            let frozen = damaged.frozen();
            let is_last = frozen.is_none();
            let dead = frozen.unwrap_or_else(|| damaged.process_kill());
            drop(queue);
            for image in (0..10).map(|seed| dead.power_cut(seed)).chain([dead.process_kill()]) {
                let names = image.file_names();
                open(image, &options())
                    .unwrap_or_else(|error| panic!("{moment}, {names:?}: {error}"));
            }
            if is_last {
                break;
            }
        }
    }
}

/// One segment's header is damaged, and the index alone knows what it was. The opening is killed at
/// any store, or power is cut then: everything flushed is there.
#[test]
fn a_damaged_header_outlives_a_crash_of_the_opening() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    queue.default_consumer().unwrap();
    // The second fills a segment that no record begins in.
    let sent = [5000, 15_500, 3000].into_iter().zip(0..);
    let sent: Vec<_> = sent.map(|(len, number)| (number, content(number, len))).collect();
    for (number, bytes) in &sent {
        assert_eq!(queue.enqueue(bytes).unwrap(), *number);
    }
    queue.core.flush().unwrap();
    let cut = queue.core.storage.power_cut_losing_all();
    let names: Vec<_> =
        cut.file_names().into_iter().filter(|name| segment_slot(name).is_some()).collect();
    assert_eq!(names.len(), 3);
    for name in &names {
        for at_calls in [true, false] {
            for moment in 1.. {
                let damaged = cut.process_kill();
                damaged.corrupt(name, 0, &[0; SEGMENT_HEADER_LEN as usize]);
                if at_calls {
                    damaged.freeze_at(moment);
                } else {
                    damaged.freeze_at_store(moment);
                }
                let opened = open(damaged.clone(), &options()).unwrap();
                damaged.disarm();
                let frozen = damaged.frozen();
                let is_last = frozen.is_none();
                let dead = frozen.unwrap_or_else(|| damaged.process_kill());
                drop(opened);
                let cuts = some_of(0..6, 6, moment)
                    .map(|seed| dead.power_cut(seed))
                    .chain([dead.power_cut_losing_all(), dead.process_kill()]);
                for image in cuts {
                    let queue = open(image, &options()).unwrap();
                    let reported = take_all(&queue).unwrap();
                    let got: Vec<_> = reported.iter().flatten().cloned().collect();
                    assert!(got == sent, "{name}, moment {moment}: {} messages", got.len());
                }
                if is_last {
                    break;
                }
            }
        }
    }
}

/// Openings believe the index, so that no message rests on the damaged header of the first or the
/// last segment. It is written again all the same: one day the index may be lost.
#[test]
fn a_damaged_header_is_written_again_while_the_index_is_believed() {
    let queue = open(disk(1), &options()).unwrap();
    queue.default_consumer().unwrap();
    let sent: Vec<_> = (0..20).map(|number| (number, content(number, 700))).collect();
    for (_, bytes) in &sent {
        queue.enqueue(bytes).unwrap();
    }
    queue.close().unwrap();
    let closed = queue.core.storage.process_kill();
    let names = closed.file_names();
    let segments: Vec<_> = names.iter().filter(|name| segment_slot(name).is_some()).collect();
    for name in [segments[0], segments[segments.len() - 1]] {
        let damaged = closed.process_kill();
        damaged.corrupt(name, 50, &[damaged.read_file(name)[50] ^ 1]);
        let queue = open(damaged, &options()).unwrap();
        queue.close().unwrap();
        let mended = queue.core.storage.process_kill();
        mended.remove_file(INDEX_NAME);
        let reported = take_all(&open(mended, &options()).unwrap()).unwrap();
        let came = reported.iter().flatten().count();
        assert!(reported.iter().flatten().eq(&sent), "{came} come behind damage of {name}");
    }
}

/// The row of a segment begins at another number than its file: whichever is right, every message
/// in the file comes. (An older index may have been put back.)
#[test]
fn a_row_with_other_numbers_states_nothing_of_the_file() {
    let queue = open(disk(1), &options()).unwrap();
    queue.default_consumer().unwrap();
    for number in 0..20 {
        queue.enqueue(&content(number, 700)).unwrap();
    }
    queue.core.flush().unwrap();
    for dies in [SimStorage::process_kill, SimStorage::copied] {
        let image = dies(&queue.core.storage);
        let bytes = image.read_file(&segment_name(0));
        let header = SegmentHeader::decode(bytes.first_chunk().unwrap()).unwrap();
        let row = SegmentHeader {
            first_seq: 100,
            missing: MissingBefore { gap: 90, ..header.missing },
            ..header
        };
        image.corrupt(INDEX_NAME, index_at::SEGMENTS, &row.encode());
        let reported = take_all(&open(image, &options()).unwrap()).unwrap();
        assert_eq!(reported.iter().flatten().count(), 20);
    }
}

/// A segment that everybody has passed is removed, and a new one takes its name; power is cut
/// before the new one's header is on the disk, and the index still has the row of the old one. No
/// damage is reported to a new consumer.
#[test]
fn a_new_file_is_not_taken_for_the_one_whose_name_it_has() {
    let mut met = 0;
    for moment in 1.. {
        let storage = disk(moment);
        let queue =
            open(storage.clone(), &options().arena_size(32 << 10).max_bytes(512 << 10)).unwrap();
        queue.default_consumer().unwrap();
        for number in 0..3 {
            queue.enqueue(&content(number, 2000)).unwrap();
        }
        assert_eq!(take_all(&queue).unwrap().len(), 3);
        queue.close().unwrap();
        let queue = open(storage.clone(), &options()).unwrap();
        storage.freeze_at(moment);
        // The long segment goes, for what is refused all the same.
        let refused = queue.enqueue_batch(&[7000; 9].map(|len| content(len, len as usize)));
        assert!(refused.is_err_and(|error| error.is_full()));
        storage.disarm();
        let Some(dead) = storage.frozen() else {
            break;
        };
        for cut in some_of(0..20, 3, moment) {
            let image = dead.power_cut(cut);
            let bytes = image
                .file_names()
                .contains(&segment_name(0))
                .then(|| image.read_file(&segment_name(0)));
            met +=
                u32::from(bytes.is_some_and(|bytes| bytes.iter().take(128).all(|byte| *byte == 0)));
            let queue = open(image, &options().max_bytes(256 << 10)).unwrap();
            queue.enqueue(b"behind").unwrap();
            let consumer = consumer_of(&queue, PROBE).unwrap();
            loop {
                match reading::next(&queue, &consumer, Read::Take) {
                    Ok(Some(message)) if message[..] == b"behind"[..] => break,
                    Ok(Some(message)) => assert_eq!(message[..], content(message.seq(), 2000)[..]),
                    Err(Error::Gap(gap)) => {
                        assert!(is_of_a_cut(&gap), "moment {moment}, cut {cut}: {gap:?}")
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(met > 20, "{met}");
}

/// A segment is being made ahead, or anew, when the process dies or power is cut: what it leaves is
/// used or removed, never counted twice or for ever, and never taken for damage.
#[test]
fn a_segment_that_was_being_made_leaves_nothing_behind() {
    let mut met = [0; 2];
    for (moment, ahead) in (1..).flat_map(|moment| [(moment, true), (moment, false)]) {
        let storage = disk(moment);
        let queue = open(storage.clone(), &options()).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 3000)).unwrap();
        queue.core.flush().unwrap();
        storage.freeze_at(moment);
        if ahead {
            prepare_ahead(&queue);
            assert_eq!(queue.core.segments.list().spares(), 1);
            check_accounts(&queue).unwrap();
        } else {
            queue.enqueue(&content(1, 7000)).unwrap();
        }
        storage.disarm();
        let frozen = storage.frozen();
        let is_last = frozen.is_none();
        let dead = frozen.unwrap_or_else(|| storage.process_kill());
        for image in (0..8)
            .map(|seed| dead.power_cut(seed))
            .chain([dead.process_kill(), dead.power_cut_losing_all()])
        {
            let bytes = image.file_names().into_iter().filter(|name| segment_slot(name).is_some());
            let bytes: Vec<_> = bytes.map(|name| image.read_file(&name)).collect();
            let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
            met[usize::from(ahead)] += u32::from(bytes.iter().any(|bytes| is_blank(bytes)));
            // Records without a header may be what damage left of a segment: kept.
            let header =
                |bytes: &[u8]| is_blank(&bytes[..bytes.len().min(SEGMENT_HEADER_LEN as usize)]);
            let torn = bytes.iter().any(|bytes| header(bytes) && !is_blank(bytes));
            let queue = open(image, &options()).unwrap();
            let names = queue.core.storage.file_names();
            let quarantined = names.iter().any(|name| name.ends_with(QUARANTINE_SUFFIX));
            assert_eq!(quarantined, torn, "moment {moment}, {ahead}: {names:?}");
            check_accounts(&queue).unwrap();
            let seq = queue.enqueue(&content(2, 7000)).unwrap();
            check_accounts(&queue).unwrap();
            let reported = take_all(&queue).unwrap();
            assert_eq!(reported.first(), Some(&Ok((0, content(0, 3000)))));
            assert_eq!(reported.last(), Some(&Ok((seq, content(2, 7000)))));
            queue.close().unwrap();
            let again = open(queue.core.storage.process_kill(), &options()).unwrap();
            check_accounts(&again).unwrap();
        }
        if is_last && !ahead {
            break;
        }
    }
    assert!(met.iter().all(|met| *met > 3), "{met:?}");
}

/// A queue that was closed in order is opened again, a segment is made ahead, and power is cut. The
/// clean end is the last thing the index on disk knows of: the file is counted all the same.
#[test]
fn a_segment_made_since_the_clean_end_is_counted_after_a_power_cut() {
    let mut met = 0;
    for seed in 0..60 {
        let storage = disk(seed);
        let queue = open(storage.clone(), &options()).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 3000)).unwrap();
        queue.close().unwrap();
        let queue = open(storage, &options()).unwrap();
        prepare_ahead(&queue);
        let image = queue.core.storage.power_cut(seed);
        met += u32::from(image.file_names().contains(&segment_name(1)));
        let queue = open(image, &options()).unwrap();
        check_accounts(&queue).unwrap();
        assert_eq!(queue.enqueue(&content(1, 7000)).unwrap(), 1, "the clean end is believed");
        check_accounts(&queue).unwrap();
        assert_eq!(
            take_all(&queue).unwrap(),
            [Ok((0, content(0, 3000))), Ok((1, content(1, 7000)))]
        );
    }
    assert!(met > 10, "{met}");
}

/// Each call of making a segment ahead is refused: nothing is left of it, and the next try takes
/// the same name.
#[test]
fn a_refused_segment_ahead_takes_no_name() {
    for call in [Call::Create, Call::Allocate, Call::Write] {
        let storage = disk(1);
        let queue = open(storage.clone(), &options()).unwrap();
        queue.enqueue(&content(0, 3000)).unwrap();
        let (names, bytes) = (storage.file_names(), queue.core.segments.list().disk_bytes());
        for _ in 0..100 {
            storage.fail_after(call, 1, Errno::NOSPC, false);
            prepare_ahead(&queue);
            storage.clear_faults();
            assert_eq!(storage.file_names(), names, "{call:?}");
            assert_eq!(queue.core.segments.list().disk_bytes(), bytes, "{call:?}");
            check_accounts(&queue).unwrap();
        }
        prepare_ahead(&queue);
        assert!(
            storage.file_names().contains(&segment_name(1)),
            "{call:?}: {:?}",
            storage.file_names()
        );
        assert_eq!(queue.core.segments.list().spares(), 1);
        check_accounts(&queue).unwrap();
    }
}

/// Without `max_bytes` and `min_free_bytes` the storage worker's own call makes one segment ahead,
/// and not a second one.
#[test]
fn one_segment_is_made_ahead_where_nobody_counts_the_bytes() {
    for limited in [true, false] {
        let storage = SimStorage::new(1).with_file_capacity(4 << 20);
        let options = Options::new().arena_size(4096).max_bytes(limited.then_some(1 << 20));
        let queue = open(storage.clone(), &options).unwrap();
        queue.core.prepare_ahead();
        assert_eq!(
            queue.core.segments.list().spares(),
            0,
            "there is no tail that comes near an end"
        );
        queue.enqueue(b"first").unwrap();
        for _ in 0..3 {
            queue.core.prepare_ahead();
            assert_eq!(queue.core.segments.list().spares(), usize::from(!limited));
            check_accounts(&queue).unwrap();
        }
    }
}
