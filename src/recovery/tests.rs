//! Tests each phase of an opening by itself: what it believes, gathers, walks over and writes.

mod bytes;
mod failing;

use std::ops::Range;

use rustix::io::Errno;

use super::repair::{Holds, discard, repair};
use super::*;
use crate::engine::Engine;
use crate::format::{
    Checkpoint, FLAG_CHANGING, INDEX_NAME, MissingBefore, Place, SegmentHeader, SegmentState,
    index_at, numbers, segment_name,
};
use crate::index::IndexFile;
use crate::index::image::Live;
use crate::index::run::Run;
use crate::options::Options;
use crate::recovery::belief::SinceRun;
use crate::recovery::rows::Gathered;
use crate::tests::sim::{Call, SimStorage};

const LEN: usize = 100;

fn message(number: u8) -> [u8; LEN] {
    [number; LEN]
}

/// Segments of 8 KiB.
fn open(storage: &SimStorage) -> Engine<SimStorage> {
    let options = Options::new().arena_size(4096).max_bytes(64 << 10);
    Engine::open_without_workers(storage.clone(), &options).unwrap()
}

/// The disk after a kill of a queue with this many messages, all of them flushed.
fn killed(count: u8) -> SimStorage {
    let storage = SimStorage::new(5).with_file_capacity(64 << 10);
    let engine = open(&storage);
    for number in 0..count {
        engine.enqueue(&message(number)).unwrap();
    }
    engine.core.flush().unwrap();
    storage.process_kill()
}

fn image(storage: &SimStorage) -> (IndexImage, [u8; 16]) {
    let file = IndexFile::read(storage).unwrap().unwrap();
    let id = file.queue_id().unwrap();
    (IndexImage::read(&file.bytes, &id), id)
}

fn adopted(storage: &SimStorage) -> Index<SimStorage> {
    let (image, id) = image(storage);
    Index::adopt(storage, storage.open(INDEX_NAME).unwrap(), id, 7, &image).unwrap()
}

fn gathered(storage: &SimStorage, belief: Belief) -> Gathered<<SimStorage as Storage>::File> {
    let (image, id) = image(storage);
    load_rows(storage, &image, Some(id), SinceRun::Kept, belief).unwrap()
}

fn live(storage: &SimStorage) -> Vec<Row> {
    let mut live = gathered(storage, Belief::Disk).rows.live;
    live.sort_by_key(|row| row.header.base);
    live
}

/// Walks over all records.
fn walked(storage: &SimStorage, search: bool) -> Walked {
    let rules = WalkRules { search, whole_before: false, published: u64::MAX };
    walk(storage, &live(storage), &[], Spot::default(), rules).unwrap()
}

/// Numbers at the ends of the holes.
fn holes(walked: &Walked) -> Vec<(u64, u64)> {
    walked.holes.iter().map(|hole| (hole.start.seq, hole.end.seq)).collect()
}

/// Damages the message with that content.
fn damage(storage: &SimStorage, number: u8) {
    for name in storage.file_names().into_iter().filter(|name| format::segment_slot(name).is_some())
    {
        let bytes = storage.read_file(&name);
        if let Some(at) = bytes.windows(LEN).position(|window| window == message(number)) {
            storage.corrupt(&name, at, &[0xff]);
        }
    }
}

#[test]
fn what_is_believed_follows_from_the_boot_the_mount_and_the_mark_of_a_clean_end() {
    let killed = killed(3);
    let belief = |storage: &SimStorage| read_index(storage).unwrap().belief;
    assert_eq!(belief(&killed), Belief::Cache);
    assert_eq!(belief(&killed.seen_elsewhere()), Belief::Mount);
    assert_eq!(belief(&killed.copied()), Belief::Disk);
    let engine = open(&killed);
    engine.enqueue(&message(9)).unwrap();
    engine.close().unwrap();
    assert_eq!(belief(&killed), Belief::Cache);
    for elsewhere in [killed.seen_elsewhere(), killed.copied(), killed.power_cut_losing_all()] {
        assert_eq!(belief(&elsewhere), Belief::CleanEnd);
    }
    // A run has begun a segment since, so the mark of a clean end is an older copy's.
    let engine = open(&killed);
    engine.enqueue(&message(9)).unwrap();
    engine.core.flush().unwrap();
    assert_eq!(belief(&killed.copied()), Belief::Disk);
}

#[test]
fn rows_are_believed_and_say_the_same_as_the_headers() {
    let killed = killed(200);
    let known = |rows: &Rows| {
        let mut known: Vec<_> =
            rows.live.iter().map(|row| (row.header.base, row.slot, row.header.life)).collect();
        known.sort_unstable();
        known
    };
    let believed = gathered(&killed, Belief::Cache);
    let read = gathered(&killed, Belief::Disk);
    assert!(believed.from_index && !read.from_index && believed.rows.live.len() > 2);
    assert_eq!(known(&believed.rows), known(&read.rows));
    assert_eq!(believed.rows.highest_life, read.rows.highest_life);
}

#[test]
fn rows_that_files_contradict_are_not_believed() {
    let good = killed(200);
    let slots = image(&good).0.segments;
    let last = slots.iter().max_by_key(|(_, header)| header.base).unwrap().0;
    type Change<'a> = &'a dyn Fn(&SimStorage);
    let unlike: [(&str, Change); 5] = [
        ("a damaged row", &|disk| disk.corrupt(INDEX_NAME, index_at::SEGMENTS + 20, &[0xff])),
        ("a damaged row of no file", &|disk| disk.corrupt(INDEX_NAME, index_at::END - 20, &[0xff])),
        ("the last segment gone", &|disk| disk.remove_file(&segment_name(last))),
        ("a file without a row", &|disk| {
            disk.write_file(&segment_name(99), &disk.read_file(&segment_name(0)))
        }),
        ("another segment in its place", &|disk| {
            disk.write_file(&segment_name(last), &disk.read_file(&segment_name(slots[1].0)));
        }),
    ];
    for (what, change) in unlike {
        let disk = good.process_kill();
        assert!(gathered(&disk, Belief::Cache).from_index);
        change(&disk);
        assert!(!gathered(&disk, Belief::Cache).from_index, "{what}");
    }
    let (mut image, id) = image(&good);
    image.live.run.as_mut().unwrap().flags |= FLAG_CHANGING;
    assert!(!load_rows(&good, &image, Some(id), SinceRun::Kept, Belief::Cache).unwrap().from_index);
}

fn header(life: u64, base: u64) -> SegmentHeader {
    let good = live(&killed(1))[0].header;
    SegmentHeader { life, base: base * good.capacity(), first_seq: base, ..good }
}

#[test]
fn of_segments_in_each_others_place_those_that_were_made_later_count() {
    let lives = |rows: &[Row]| rows.iter().map(|row| row.header.life).collect::<Vec<_>>();
    // (Lives and positions, remaining lives): lives and positions grow together.
    for (made, left) in [
        (vec![(1, 0), (2, 1), (3, 2)], vec![1, 2, 3]),
        (vec![(1, 0), (2, 1), (3, 1)], vec![1, 3]),
        (vec![(4, 0), (2, 1), (3, 2)], vec![4]),
        (vec![(1, 0), (5, 1), (2, 2), (6, 3)], vec![1, 5, 6]),
    ] {
        let row = |(slot, (life, base)): (usize, &(u64, u64))| {
            Row::new(slot as u32, header(*life, *base))
        };
        let mut rows = Rows { live: made.iter().enumerate().map(row).collect(), ..Rows::default() };
        rows.drop_outlived();
        assert_eq!(lives(&rows.live), left, "{made:?}");
        assert_eq!(rows.stale.len(), made.len() - left.len());
    }
}

#[test]
fn a_walk_ends_at_the_first_unit_that_does_not_validate_and_a_search_goes_on_behind_it() {
    let disk = killed(200);
    assert_eq!((walked(&disk, false).tail.seq, walked(&disk, true).tail.seq), (200, 200));
    damage(&disk, 4);
    damage(&disk, 150);
    let stopped = walked(&disk, false);
    assert_eq!((stopped.tail.seq, holes(&stopped)), (4, vec![]));
    let searched = walked(&disk, true);
    assert_eq!((searched.tail.seq, holes(&searched)), (200, vec![(4, 5), (150, 151)]));
    // After the last record there may be anything.
    damage(&disk, 199);
    let searched = walked(&disk, true);
    assert_eq!((searched.tail.seq, holes(&searched)), (199, vec![(4, 5), (150, 151)]));
}

#[test]
fn a_batch_is_one_unit_whichever_record_of_it_is_damaged() {
    for damaged in 2..5 {
        let storage = killed(0);
        let engine = open(&storage);
        for number in 0..2 {
            engine.enqueue(&message(number)).unwrap();
        }
        engine.enqueue_batch(&[message(2), message(3), message(4)]).unwrap();
        engine.enqueue(&message(5)).unwrap();
        let disk = storage.process_kill();
        assert_eq!(walked(&disk, true).tail.seq, 6);
        damage(&disk, damaged);
        assert_eq!(walked(&disk, false).tail.seq, 2, "record {damaged}");
        let searched = walked(&disk, true);
        assert_eq!((searched.tail.seq, holes(&searched)), (6, vec![(2, 5)]), "record {damaged}");
    }
}

#[test]
fn a_hole_that_was_mended_is_none_for_any_later_walk() {
    let disk = killed(200);
    (60..140).for_each(|number| damage(&disk, number));
    let searched = walked(&disk, true);
    assert_eq!(holes(&searched), [(60, 140)]);
    let Range { start: from, end: to } = searched.holes[0].clone();
    let mut rows = live(&disk);
    repair(&disk, &rows, from, to).unwrap();
    restate(&disk, &adopted(&disk), &mut rows, from, to).unwrap();
    // Another power cut does not bring the hole back.
    for disk in [disk.process_kill(), disk.power_cut_losing_all()] {
        let walked = walked(&disk, true);
        assert!(walked.empty.iter().any(|empty| empty.end.seq == 140), "{:?}", walked.empty);
        assert_eq!((walked.tail.seq, holes(&walked)), (200, vec![]));
    }
    // Segments that begin in the hole state the numbers missing before them, also on the disk.
    for rows in [rows, live(&disk.power_cut_losing_all())] {
        let begin: Vec<_> =
            rows.iter().map(|row| row.header).filter(|header| header.missing.gap > 0).collect();
        assert!(
            !begin.is_empty() && begin.iter().all(|header| header.missing_from() == 60),
            "{begin:?}"
        );
    }
    // None of them counts twice. (Those after a segment's beginning count once a reader meets
    // them.)
    let messages = open(&disk.power_cut_losing_all()).stats().messages;
    assert!((120..200).contains(&messages), "{messages}");
}

#[test]
fn behind_a_sealed_tail_no_old_record_is_found() {
    let disk = killed(200);
    damage(&disk, 4);
    let tail = walked(&disk, false).tail;
    let first = &live(&disk)[..1];
    let missing = Next {
        seq: 10,
        missing: MissingBefore { gap: 6, ..MissingBefore::default() },
        ..Next::default()
    };
    let next = close_tail(&disk, first, tail, 0, None, missing).unwrap().unwrap();
    assert_eq!(
        (next.seq, next.missing.gap, next.base),
        (10, 6, first[0].header.end() + format::ALIGN)
    );
    let rules = WalkRules { search: true, whole_before: false, published: u64::MAX };
    let found = walk(&disk, first, &[], Spot::default(), rules).unwrap();
    assert_eq!(
        (found.tail, holes(&found)),
        (Spot { position: first[0].header.end(), seq: 4 }, vec![])
    );
    // The next segment begins after every stated position, and at the pending one if that is far
    // enough.
    let base = |stated, pending| {
        close_tail(&disk, first, tail, stated, pending, missing).unwrap().unwrap().base
    };
    assert_eq!(base(1 << 20, None), (1 << 20) + format::ALIGN);
    assert_eq!(base(0, Some(Next { base: 1 << 20, ..missing })), 1 << 20);
    // Where no number is missing, the next message begins another segment, too (R3).
    let complete = Next { seq: tail.seq, ..Next::default() };
    let next = close_tail(&disk, first, tail, tail.position, None, complete).unwrap().unwrap();
    assert_eq!((next.seq, next.missing.gap, next.base), (4, 0, first[0].header.end()));
}

/// The opening keeps how the next segment begins although it discards a file there. Everything
/// before it was evicted, which only the beginning of the next segment shows.
#[test]
fn a_segment_begun_behind_the_tail_is_not_the_next_one() {
    let next = Next { base: header(6, 1).base, seq: 1, ..Next::default() };
    let run = Run { next: Some(next), ..Run::default() };
    let live = Live { run: Some(run), ..Live::default() };
    let image = IndexImage { live, ..IndexImage::default() };
    let begun = [Row::new(0, header(0, 0)), Row::new(3, header(6, 1))];
    let of =
        |position| place_tail::pending(&image, &begun, Spot { position, seq: 1 }, Belief::Cache);
    assert_eq!(of(32), (Some(next), Spot { position: 32, seq: 1 }));
    assert_eq!(of(next.base), (None, Spot { position: next.base, seq: 1 }));
}

/// A segment after the tail is gone from the disk when the opening has recovered, before anything
/// is written after the tail (R2). Its life is not used again, though no file has it (R9).
#[test]
fn what_an_opening_discards_is_gone_and_so_is_its_life() {
    let disk = killed(200);
    let last = *live(&disk).last().unwrap();
    // No record of the segment before is left, so the records after it have no place.
    let before = live(&disk)[live(&disk).len() - 2];
    let disk = disk.copied();
    let name = segment_name(last.slot);
    let stale = SegmentHeader { first_seq: last.header.first_seq + 1, ..last.header };
    let len = disk.read_file(&name).len();
    let mut bytes = stale.in_file().encode().to_vec();
    bytes.resize(len, 0);
    disk.write_file(&name, &bytes);
    let options = Options::new().arena_size(4096).max_bytes(64 << 10);
    let recovered = recover(&disk, &options).unwrap();
    let on_disk = disk.power_cut_losing_all();
    assert!(on_disk.file_names().contains(&segment_name(before.slot)));
    assert!(!on_disk.file_names().contains(&name), "{:?}", on_disk.file_names());
    assert!(recovered.found.next_life > last.header.life);
    drop(recovered);
    // Without the file, the lives in the index count.
    let recovered = recover(&disk.copied(), &options).unwrap();
    assert!(recovered.found.next_life > last.header.life);
}

/// A consumer with this place.
fn consumer(row: u32, name: &str, position: u64, seq: u64) -> ConsumerRow {
    ConsumerRow {
        row,
        name: name.to_owned(),
        place: Place { number: 1, position, seq },
        acks: Vec::new(),
        forward: None,
    }
}

#[test]
fn the_highest_number_that_any_part_of_the_index_says_is_stated() {
    let spots =
        |checkpoint: (u64, u64), tail: (u64, u64), synced: (u64, u64), place: (u64, u64), acks| {
            let at = |(position, seq)| Spot { position, seq };
            let checkpoint =
                Checkpoint { position: checkpoint.0, seq: checkpoint.1, ..Checkpoint::default() };
            let consumer = ConsumerRow { acks, ..consumer(0, "", place.0, place.1) };
            let live = Live { tail: Some(at(tail)), synced: Some(at(synced)), ..Live::default() };
            let image = IndexImage {
                checkpoint: Some(checkpoint),
                live,
                consumers: vec![consumer],
                ..IndexImage::default()
            };
            let stated = Stated::by(&image);
            (stated.position, stated.seq, stated.durable.seq)
        };
    assert_eq!(spots((80, 8), (16, 2), (24, 3), (8, 1), vec![]), (80, 8, 8));
    assert_eq!(spots((8, 1), (80, 8), (24, 3), (16, 2), vec![]), (80, 8, 3));
    assert_eq!(spots((8, 1), (16, 2), (80, 8), (24, 3), vec![]), (80, 8, 8));
    assert_eq!(spots((8, 1), (16, 2), (24, 3), (80, 8), vec![]), (80, 8, 3));
    assert_eq!(
        spots((8, 1), (16, 2), (24, 3), (32, 4), vec![numbers(6, 6), numbers(9, 11)]),
        (32, 12, 3)
    );
}

#[test]
fn what_is_missing_behind_the_tail_is_what_was_stated_and_what_was_reserved_each_with_its_cause() {
    let durable = |seq| Spot { position: 8, seq };
    let stated = |seq| Stated { position: 80, seq: 8, durable: durable(seq), passed: 0 };
    let missing = |durable, found, before, evicted| {
        let next =
            stated(durable).missing_behind(Spot { position: 0, seq: found }, before, 20, evicted);
        (next.seq, next.missing.gap, next.missing.reserved, next.missing.cause)
    };
    let (damaged, unflushed) = (GapCause::Damaged.number(), GapCause::Unflushed.number());
    assert_eq!(missing(6, 5, None, 0), (20, 15, 12, damaged));
    assert_eq!(missing(5, 5, None, 0), (20, 15, 12, unflushed));
    // Evicted numbers have a cause of their own; numbers that were not stated were only reserved.
    assert_eq!(missing(6, 5, None, 7), (20, 13, 12, unflushed));
    assert_eq!(missing(6, 9, None, 0), (20, 11, 11, unflushed));
    // Numbers that were missing there before still are.
    let before =
        Next { base: 8, seq: 9, missing: MissingBefore { gap: 3, reserved: 1, cause: damaged } };
    assert_eq!(missing(6, 9, Some(before), 0), (20, 14, 12, damaged));
}

#[test]
fn a_place_in_the_middle_of_what_is_empty_goes_where_it_reports_what_is_missing() {
    let disk = killed(1);
    let index = adopted(&disk);
    let empty = Spot { position: 80, seq: 10 }..Spot { position: 160, seq: 20 };
    let mut consumers = Vec::new();
    for (name, position, seq) in [("a", 80, 10), ("b", 88, 12), ("c", 88, 20), ("d", 160, 12)] {
        let place = Place { number: 0, position, seq };
        let (row, _) = index.add_consumer(None, name, place, |take| take(0)).unwrap();
        consumers.push(consumer(row, name, position, seq));
    }
    for consumer in &mut consumers {
        // The number that the index stores.
        consumer.place.number = 2;
    }
    move_places_out_of_holes(&index, &mut consumers, &[empty]).unwrap();
    let positions: Vec<u64> = consumers.iter().map(|consumer| consumer.place.position).collect();
    assert_eq!(positions, [80, 80, 160, 160]);
    assert_eq!(
        consumers.iter().map(|consumer| consumer.place.seq).collect::<Vec<_>>(),
        [10, 12, 20, 12]
    );
    let stored = image(&disk).0.consumers;
    let stored: Vec<u64> =
        stored.iter().filter(|row| row.row > 0).map(|row| row.place.position).collect();
    assert_eq!(stored, positions);
}

#[test]
fn a_segment_that_is_none_any_more_goes_or_can_never_be_taken_for_one() {
    let row = |disk: &SimStorage| live(disk)[0];
    let disk = killed(1);
    assert!(discard(&disk, &row(&disk), Holds::Nothing).unwrap().is_none());
    assert!(live(&disk).is_empty());
    // The file cannot be removed: it becomes a spare, durably.
    let disk = killed(1);
    disk.fail_after(Call::Remove, 1, Errno::IO, false);
    let kept = discard(&disk, &row(&disk), Holds::Nothing).unwrap().unwrap();
    assert_eq!(kept.header.state, SegmentState::Spare);
    let rows = gathered(&disk.power_cut_losing_all(), Belief::Disk).rows;
    assert_eq!((rows.live.len(), rows.spares.len()), (0, 1));
    // It held messages, all of which are damaged: it is quarantined, or the opening fails.
    let disk = killed(1);
    let only = row(&disk);
    disk.fail_after(Call::Rename, 1, Errno::IO, true);
    assert!(discard(&disk, &only, Holds::Messages).is_err() && live(&disk).len() == 1);
    disk.clear_faults();
    assert!(discard(&disk, &only, Holds::Messages).unwrap().is_none() && live(&disk).is_empty());
    assert!(disk.file_names().iter().any(|name| name.ends_with(format::QUARANTINE_SUFFIX)));
}
