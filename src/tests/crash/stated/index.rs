//! Damage of the index itself.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::{closed, reported_up_to, roomy, take};
use crate::format::{Checkpoint, LIMIT, LIVE_LEN, SECTOR, index_at, live_at};
use crate::tests::crash::directed::{disk, options, take_all};
use crate::tests::crash::examine::open;
use crate::tests::crash::model::content;
use crate::tests::effort::some_of;
use crate::tests::sim::{Call, SimStorage};

/// Any one byte of the live part is damaged, in the same boot: nothing is lost, no number is given
/// out twice, also after a kill, a power cut, a clean end.
#[test]
fn a_damaged_byte_of_the_live_part_costs_nothing() {
    for every in [None, Some(1)] {
        let options = options().flush_every_ops(every);
        let base = closed(every);
        // Five is prime to the three changes, and to the eight bytes of a number.
        for at in some_of(0..LIVE_LEN as u64, 5, every.map_or(0, |_| 2)) {
            let (at, bits) = (at as usize, [0x01u8, 0x40, 0xff][at as usize % 3]);
            let storage = base.process_kill();
            let byte = storage.read_file("index")[index_at::LIVE + at];
            storage.corrupt("index", index_at::LIVE + at, &[byte ^ bits]);
            let queue = open(storage, &options).unwrap();
            for number in 20..40 {
                assert_eq!(
                    queue.enqueue(&content(number, 100)).unwrap(),
                    number,
                    "byte {at} xor {bits:#x}"
                );
            }
            queue.core.flush().unwrap();
            let kill = queue.core.storage.process_kill();
            let cut = queue.core.storage.power_cut_losing_all();
            queue.close().unwrap();
            let closed = queue.core.storage.process_kill();
            for (what, image) in [("kill", kill), ("power cut", cut), ("clean end", closed)] {
                let queue = open(image, &options).unwrap();
                let reported = take_all(&queue).unwrap();
                let messages =
                    reported.iter().flatten().map(|(number, bytes)| (*number, bytes.clone()));
                let wanted = (5..40).map(|number| (number, content(number, 100)));
                assert!(messages.eq(wanted), "{what}, byte {at} xor {bits:#x}: {reported:?}");
                assert!(
                    what == "power cut" || reported.iter().all(Result::is_ok),
                    "{what}, byte {at}: {reported:?}"
                );
            }
        }
    }
}

/// Both copies of the run record are damaged: then the live part is not believed, and the
/// checkpoint is.
#[test]
fn without_a_record_of_the_run_the_checkpoint_counts() {
    let storage = closed(None);
    for at in [live_at::RUN_A, live_at::RUN_B] {
        storage.corrupt("index", index_at::LIVE + at + 10, &[0xa5]);
    }
    assert!(reported_up_to(&open(storage, &options()).unwrap(), 20));
}

/// Both checkpoints are damaged, and of the run the disk holds what it said when it began: behind
/// what that run reserved no number was given out, so none is given again.
#[test]
fn without_a_checkpoint_what_the_run_reserved_counts() {
    let queue = open(disk(3), &options()).unwrap();
    queue.enqueue(&content(0, 100)).unwrap();
    let begun = queue.core.storage.read_file("index")[index_at::LIVE..][..LIVE_LEN].to_vec();
    for number in 1..6 {
        assert_eq!(queue.enqueue(&content(number, 100)).unwrap(), number);
    }
    let cut = queue.core.storage.power_cut_losing_all();
    cut.corrupt("index", index_at::LIVE, &begun);
    for slot in [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B] {
        cut.corrupt("index", slot, &[0xa5; SECTOR]);
    }
    assert!(open(cut, &options()).unwrap().enqueue(b"new").unwrap() >= 6);
}

/// A checkpoint whose checksum is right and whose numbers no queue can have is not believed: the
/// one before it is.
#[test]
fn a_checkpoint_with_numbers_beyond_the_limit_is_refused() {
    let id = {
        let queue = open(closed(None), &options()).unwrap();
        queue.core.index.queue_id
    };
    type Change = fn(&mut Checkpoint, u64);
    let fields: [(&str, Change); 7] = [
        ("position", |checkpoint, value| checkpoint.position = value & !7),
        ("unaligned position", |checkpoint, value| checkpoint.position = (value >> 8) | 1),
        ("seq", |checkpoint, value| checkpoint.seq = value),
        ("reservation", |checkpoint, value| checkpoint.reservation = value),
        ("next life", |checkpoint, value| checkpoint.next_life = value),
        ("gap", |checkpoint, value| checkpoint.missing.gap = value),
        ("dropped", |checkpoint, value| checkpoint.dropped_seq = value),
    ];
    for (field, change) in fields {
        for (value, clean) in [LIMIT, LIMIT + 8, u64::MAX - 7, u64::MAX]
            .into_iter()
            .flat_map(|v| [(v, true), (v, false)])
        {
            let storage = closed(None);
            let bytes = storage.read_file("index");
            let slots = [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B];
            let newest = slots.into_iter().filter_map(|at| Checkpoint::decode(&bytes[at..], &id));
            let mut hostile = newest.max_by_key(|slot| slot.number).unwrap();
            hostile.number += 2;
            hostile.clean = clean;
            change(&mut hostile, value);
            let older = slots
                .into_iter()
                .min_by_key(|at| Checkpoint::decode(&bytes[*at..], &id).map(|slot| slot.number));
            storage.corrupt("index", older.unwrap(), &hostile.encode(&id));
            let queue = open(storage.power_cut_losing_all(), &options()).unwrap();
            assert!(reported_up_to(&queue, 20), "{field} {value:#x}");
            assert_eq!(queue.enqueue(b"new").unwrap(), 20, "{field} {value:#x}");
            queue.close().unwrap();
            let queue = open(queue.core.storage.process_kill(), &options()).unwrap();
            assert_eq!(
                take_all(&queue).unwrap(),
                [Ok((20, b"new".to_vec()))],
                "{field} {value:#x}"
            );
        }
    }
}

/// The files of a queue whose run took back the mark of the clean end in one slot of the
/// checkpoint. That slot is damaged, so the other one counts, and still has the mark.
fn with_the_mark_of_the_run_before(storage: SimStorage, id: &[u8; 16]) -> SimStorage {
    let bytes = storage.read_file("index");
    let is_clean = |at: usize| Checkpoint::decode(&bytes[at..], id).is_some_and(|slot| slot.clean);
    let [a, b] = [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B];
    assert_ne!(is_clean(a), is_clean(b));
    let newer = if is_clean(a) { b } else { a };
    storage.corrupt("index", newer + 20, &[bytes[newer + 20] ^ 1]);
    storage
}

/// What a run put in behind a clean end is there, and none of its numbers is given again, when only
/// the mark of that clean end is left: after a kill, after a power cut.
#[test]
fn a_clean_end_counts_no_more_once_a_run_went_on_behind_it() {
    let queue = open(closed(None), &roomy()).unwrap();
    for number in 20..100 {
        queue.enqueue(&content(number, 1000)).unwrap();
    }
    let (storage, id) = (&queue.core.storage, queue.core.index.queue_id);
    let (killed, cut) = (storage.process_kill(), storage.power_cut_losing_all());
    for (what, storage, held) in [("kill", killed, 100), ("power cut", cut, 20)] {
        let queue = open(with_the_mark_of_the_run_before(storage, &id), &roomy()).unwrap();
        let reported = take_all(&queue).unwrap();
        let numbers: Vec<_> = reported.iter().flatten().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (5..held).collect::<Vec<_>>(), "{what}: {reported:?}");
        let next = queue.enqueue(b"new").unwrap();
        assert!(next == 100 || held == 20 && next > 100, "{what}: {next}");
    }
}

/// A closed run gives its reservation back: the next one goes on at the very next number, also
/// after a power cut.
#[test]
fn a_clean_end_leaves_no_reserved_number() {
    let queue = open(closed(None).power_cut_losing_all(), &options()).unwrap();
    assert!(reported_up_to(&queue, 20));
    assert_eq!(queue.enqueue(b"new").unwrap(), 20);
}

/// Some sector of the index cannot be read: the queue opens, and what the other sectors say is
/// carried over.
#[test]
fn an_index_that_cannot_be_read_everywhere_is_made_anew() {
    let places = |len: usize| (0..index_at::END).step_by(len).map(move |at| (at, len));
    for (sector, len) in places(512).chain(places(4096)) {
        let storage = closed(None);
        storage.make_unreadable("index", sector..sector + len);
        let queue = open(storage, &roomy()).unwrap();
        let reported = take_all(&queue).unwrap();
        // With its place lost the consumer begins with what is held.
        let first = reported.iter().flatten().map(|(seq, _)| *seq).next().unwrap();
        assert!(
            first == 5
                || first < 5
                    && (len > 512 || (index_at::CONSUMERS..index_at::SEGMENTS).contains(&sector)),
            "sector {sector}"
        );
        let wanted = (first..20).map(|number| Ok((number, content(number, 100))));
        assert!(
            reported.iter().filter(|reported| reported.is_ok()).cloned().eq(wanted),
            "sector {sector}: {reported:?}"
        );
        let seq = queue.enqueue(b"new").unwrap();
        assert!(seq >= 20, "sector {sector}: {seq}");
        assert!(
            queue
                .core
                .storage
                .file_names()
                .iter()
                .any(|name| name.starts_with("index.") || name == "index.damaged")
        );
        queue.close().unwrap();
        let queue = open(queue.core.storage.process_kill(), &roomy()).unwrap();
        assert_eq!(take_all(&queue).unwrap(), [Ok((seq, b"new".to_vec()))], "sector {sector}");
    }
}

/// Nothing of the index can be read for a while, or nothing but what a few reads fetched before:
/// the opening fails, and the index stays, with every consumer in it.
#[test]
fn an_index_of_which_next_to_nothing_can_be_read_is_kept() {
    let mut refused = 0;
    for (once, ever) in (1..5).flat_map(|once| (1..8).map(move |ever| (once, ever))) {
        let queue = open(disk(1), &options()).unwrap();
        queue.consumer("worker").unwrap();
        queue.close().unwrap();
        let storage = queue.core.storage.process_kill();
        storage.fail_after(Call::Read, once, Errno::IO, false);
        storage.fail_after(Call::Read, ever, Errno::IO, true);
        refused += u32::from(open(storage.clone(), &options()).is_err());
        storage.clear_faults();
        let names = open(storage, &options()).unwrap().consumer_names();
        assert_eq!(names, ["worker"], "reads {once} and {ever} later fail");
    }
    assert!(refused > 3, "{refused}");
}

/// A quarantined index counts in the limit of disk; one whose header alone is damaged is not
/// quarantined at all.
#[test]
fn an_index_that_is_quarantined_counts() {
    for (damage, is_quarantined, consumers) in
        [(&b"damaged!"[..], false, 100), (&[0; 64], true, 20), (&[0; 64], true, 100)]
    {
        let limit = 160 << 10;
        let storage = disk(6);
        let queue = open(storage.clone(), &options().max_bytes(limit)).unwrap();
        queue.enqueue(b"message").unwrap();
        for number in 0..consumers {
            if queue.consumer(&format!("consumer {number}")).is_err() {
                break;
            }
        }
        let consumers = queue.consumer_names();
        queue.close().unwrap();
        drop(queue);
        storage.corrupt("index", 0, damage);
        let queue = open(storage.clone(), &options().max_bytes(limit)).unwrap();
        assert_eq!(queue.consumer_names(), consumers);
        while queue.enqueue(&content(1, 1000)).is_ok() {}
        let names = storage.file_names();
        assert_eq!(names.iter().any(|name| name.contains("damaged")), is_quarantined, "{names:?}");
        let taken: u64 = names.iter().map(|name| storage.read_file(name).len() as u64).sum();
        assert!(
            queue.stats().disk_bytes >= taken,
            "{} of {taken} bytes are counted",
            queue.stats().disk_bytes
        );
        // Whoever has a place keeps it: with so many of them there is no room for two indexes, and
        // the queue is full.
        assert!(taken <= limit || consumers.len() > 63, "{taken} of {limit} bytes");
    }
}

/// The beginning of a batch was taken and its segment given back; then an older copy of the index
/// is put back. The rest of the batch is there.
#[test]
fn an_older_index_hides_nothing_of_a_batch_that_was_half_given_back() {
    let queue = open(disk(1), &roomy()).unwrap();
    queue.default_consumer().unwrap();
    queue.enqueue(&content(0, 700)).unwrap();
    queue.core.flush().unwrap();
    let older = queue.core.storage.read_file("index");
    let batch: Vec<_> = (1..60).map(|number| content(number, 1000)).collect();
    queue.enqueue_batch(&batch).unwrap();
    take(&queue, 30);
    queue.core.flush().unwrap();
    queue.enqueue(&content(60, 12000)).unwrap();
    queue.core.flush().unwrap();
    let first = queue.core.oldest_seq.load(Ordering::Acquire);
    assert!((2..30).contains(&first), "{first}");
    queue.close().unwrap();
    let storage = queue.core.storage.process_kill();
    storage.corrupt("index", 0, &older);
    let reported = take_all(&open(storage, &roomy()).unwrap()).unwrap();
    let numbers: Vec<_> = reported.iter().flatten().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (first..61).collect::<Vec<_>>(), "{reported:?}");
}
