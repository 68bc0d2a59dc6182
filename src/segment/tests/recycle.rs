use std::cell::Cell;
use std::rc::Rc;

use rustix::io::Errno;

use super::*;
use crate::format::{INDEX_NAME, QUARANTINE_SUFFIX, SegmentState};
use crate::index::image::IndexImage;
use crate::segment::pool::User;
use crate::tests::sim::{Call, meanwhile};

/// Returns the position of the only consumer on the disk.
fn durable_place(storage: &SimStorage) -> u64 {
    let image = IndexImage::read(&storage.power_cut_losing_all().read_file(INDEX_NAME), &ID);
    image.consumers.first().map_or(0, |consumer| consumer.place.position)
}

#[test]
fn a_drained_segment_goes_to_the_spares_or_out_only_when_the_place_behind_it_is_on_the_disk() {
    let mut moments = 0;
    for nth in 1.. {
        let bench = Bench::new(None);
        bench.append_all(9);
        bench.storage.sync_directory().unwrap();
        let ends: Vec<u64> = bench.headers().iter().map(SegmentHeader::end).collect();
        stand(&bench, ends[7]);
        bench.pass(8);
        assert_eq!(bench.counts(), [1, 8, 0]);
        bench.storage.freeze_at(nth);
        bench.reclaim().unwrap();
        let Some(killed) = bench.storage.frozen() else {
            assert_eq!(bench.counts(), [1, 0, 6]);
            break;
        };
        let live =
            headers(&killed).iter().filter(|header| header.state == SegmentState::Live).count();
        if live < 9 {
            moments += 1;
            assert_eq!(durable_place(&killed), ends[7], "call {nth} (R8)");
        }
    }
    assert!(moments >= 7, "{moments} moments with a spare and drained ones");
}

#[test]
fn a_spare_says_so_in_its_header_and_begins_another_life_with_another_salt() {
    let bench = Bench::new(None);
    bench.append_all(2);
    let before = bench.headers()[0];
    bench.pass(1);
    bench.reclaim().unwrap();
    let spare = bench.headers()[0];
    assert_eq!((spare.state, spare.life), (SegmentState::Spare, before.life));
    assert_eq!(spare.retained_from, HELD, "everything below was given back, and the disk knows");
    let allocated = bench.storage.call_count(Call::Allocate);
    let segment = bench.append(1).unwrap();
    let after = bench.headers()[0];
    assert_eq!(
        (segment.slot, after.state, after.life, after.base),
        (0, SegmentState::Live, 3, 2 * before.end())
    );
    assert!(after.seed() != before.seed() && after.salt != before.salt);
    assert_eq!(bench.storage.call_count(Call::Allocate), allocated, "its space is there");
    assert!(!segment.is_fresh(LEN - 1) && bench.counts() == [2, 0, 0]);
}

#[test]
fn a_segment_that_an_opening_handed_on_is_open_until_it_is_drained_and_then_a_spare() {
    let mut bench = Bench::new(None);
    bench.append_all(3);
    let live: Vec<Row> = bench.segments.list().live.iter().copied().collect();
    let opened = |at: usize| open_life(&bench.storage, live[at].slot, &live[at].header).unwrap();
    let opened = vec![opened(0), opened(2)];
    let found = Found { live: live.clone(), next_life: 4, rows_complete: true, ..Found::default() };
    bench.segments = Segments::new(found, opened);
    let before = bench.storage.call_count(Call::Open);
    for (row, opens) in live.iter().zip([0, 1, 1]) {
        drop(bench.segments.list().open(&bench.storage, row).unwrap());
        assert_eq!(bench.storage.call_count(Call::Open) - before, opens);
    }
    bench.pass(2);
    assert!(!bench.segments.list().handed_on.iter().any(|open| open.header.life == 1));
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [1, 0, 2], "nobody has it open any more");
    assert_eq!(bench.storage.call_count(Call::Open) - before, 2, "its file was at hand");
}

#[test]
fn the_windows_of_a_spare_go_over_to_its_next_life() {
    let bench = Bench::new(None);
    bench.append_all(2);
    let look = |life| {
        let mut list = bench.segments.list();
        let row = *list.live.iter().find(|row| row.header.life == life).unwrap();
        let segment = list.open(&bench.storage, &row).unwrap();
        drop(bench.pool.get(&segment.file, life, 0, LEN, || LEN, User::Reader).unwrap());
        bench.pool.mapped_bytes()
    };
    assert_eq!(look(1), LEN);
    bench.pass(1);
    bench.reclaim().unwrap();
    let next = bench.append(1).unwrap().header.life;
    assert_eq!(look(next), LEN, "it is mapped already");
}

#[test]
fn the_tails_segment_is_not_drained_while_others_are_live() {
    let bench = Bench::new(None);
    bench.append_all(2);
    let header = bench.headers()[1];
    let tail = Spot { position: header.base + 80, seq: 2 * HELD };
    let drain = || bench.segments.drain_tail(&bench.context(), tail, GapCause::Dropped, tail.seq);
    assert_eq!((drain(), bench.counts()), (None, [2, 0, 0]));
    bench.pass(1);
    assert_eq!((drain(), bench.counts()), (Some(header.end()), [0, 2, 0]));
}

#[test]
fn what_is_drained_while_the_places_are_synced_waits_for_the_next_sync() {
    let bench = Bench::new(None);
    bench.append_all(4);
    bench.storage.sync_directory().unwrap();
    bench.pass(1);
    let gate = bench.storage.stop_next(Call::SyncFile);
    std::thread::scope(|scope| {
        let reclaiming = scope.spawn(|| bench.reclaim());
        gate.wait_for_visitor();
        bench.pass(1);
        gate.open();
        reclaiming.join().unwrap().unwrap();
    });
    assert_eq!(bench.counts(), [2, 1, 1]);
}

#[test]
fn a_segment_that_somebody_has_open_is_removed_and_never_used_again() {
    for lent in [false, true] {
        let bench = Bench::new(None);
        let segment = bench.append(1).unwrap();
        bench.append_all(1);
        let life = segment.header.life;
        let window = bench.pool.get(&segment.file, life, 0, LEN, || LEN, User::Reader).unwrap();
        let _lent = lent.then_some(window);
        let _open = (!lent).then_some(segment);
        bench.pass(1);
        bench.reclaim().unwrap();
        assert_eq!((bench.counts(), bench.headers().len()), ([1, 0, 0], 1), "lent: {lent}");
    }
}

/// A reader that has a segment open and no window yet may take the window, lend a message from it
/// and release the segment, all at the last moment.
#[test]
fn what_a_reader_lends_while_a_segment_is_looked_at_is_never_used_again() {
    let bench = Rc::new(Bench::new(None));
    let segment = bench.append(1).unwrap();
    bench.append_all(1);
    let lent = Rc::new(Cell::new(None));
    let (reader, into) = (Rc::clone(&bench), Rc::clone(&lent));
    bench.pass(1);
    meanwhile("before a drained segment's readers are looked at", move || {
        let life = segment.header.life;
        let window = reader.pool.get(&segment.file, life, 0, LEN, || LEN, User::Reader);
        into.set(window);
    });
    bench.reclaim().unwrap();
    assert!(lent.take().is_some());
    assert_eq!((bench.counts(), bench.headers().len()), ([1, 0, 0], 1));
}

#[test]
fn bytes_of_a_removed_file_count_on_the_disk_and_not_against_the_limit_until_it_is_released() {
    let bench = Bench::new(None);
    let segment = bench.append(1).unwrap();
    bench.append_all(1);
    let bytes = || {
        let list = bench.segments.list();
        (list.limited_bytes(), list.disk_bytes())
    };
    let both = bytes();
    assert_eq!(both, (2 * (LEN + overhead(LEN)), 2 * (LEN + overhead(LEN))));
    bench.pass(1);
    assert_eq!(bytes(), both, "drained is not free");
    bench.reclaim().unwrap();
    assert_eq!((bytes(), bench.segments.has_removed_open()), ((both.0 / 2, both.1), true));
    drop(segment);
    assert_eq!((bytes(), bench.segments.has_removed_open()), ((both.0 / 2, both.1 / 2), false));
}

#[test]
fn a_drained_segment_that_cannot_be_marked_is_removed_and_one_that_cannot_be_removed_stays_counted()
{
    let bench = Bench::new(None);
    bench.append_all(2);
    bench.pass(1);
    bench.storage.fail_after(Call::Write, 1, Errno::IO, false);
    bench.reclaim().unwrap();
    assert_eq!((bench.storage.failed(Call::Write), bench.counts()), (1, [1, 0, 0]));
    bench.append_all(1);
    bench.pass(1);
    bench.storage.fail_after(Call::Write, 1, Errno::IO, false);
    bench.storage.fail_after(Call::Remove, 1, Errno::IO, false);
    let seen = bench.segments.passed();
    bench.reclaim().unwrap();
    assert_eq!((bench.storage.failed(Call::Remove), bench.counts()), (1, [1, 1, 0]));
    // The next reclaiming tries again.
    assert!(!bench.segments.regain(&bench.context(), seen).unwrap());
    assert_eq!(bench.counts(), [1, 0, 1]);
}

#[test]
fn space_comes_back_on_a_disk_that_is_full() {
    let bench = Bench::new(None);
    bench.append_all(9);
    stand(&bench, bench.headers()[7].end());
    bench.storage.set_capacity(Some(0));
    bench.pass(8);
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [1, 0, 6]);
    bench.segments.trim_spares(&bench.context());
    assert_eq!(bench.counts(), [1, 0, 2]);
    drop(bench.append(LEN).unwrap());
    assert_eq!(bench.counts(), [2, 0, 1], "a spare needs no space");
}

#[test]
fn where_all_that_is_drained_leaves_the_directory_a_spare_says_how_far_that_goes() {
    let bench = Bench::new(Some(1 << 20));
    bench.append_all(9);
    bench.pass(2);
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [7, 0, 2]);
    bench.pass(3);
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [4, 0, 2]);
    let retained_from = |state| {
        bench
            .headers()
            .iter()
            .filter(|header| header.state == state)
            .map(|header| header.retained_from)
            .max()
    };
    assert_eq!(retained_from(SegmentState::Spare), Some(5 * HELD));
}

#[test]
fn once_the_files_are_released_nothing_is_done_to_them() {
    let bench = Bench::new(None);
    bench.append_all(3);
    bench.pass(2);
    bench.segments.end_reclaiming();
    let calls = bench.storage.calls();
    bench.reclaim().unwrap();
    bench.segments.prepare(&bench.context(), 0);
    bench.segments.trim_spares(&bench.context());
    assert_eq!((bench.storage.calls(), bench.counts()), (calls, [1, 2, 0]));
}

#[test]
fn what_is_done_to_files_that_go_keeps_no_producer_waiting_and_their_bytes_count_meanwhile() {
    let bench = Bench::new(None);
    bench.append_all(9);
    bench.pass(8);
    bench.reclaim().unwrap();
    let bytes = bench.segments.list().limited_bytes();
    let gate = bench.storage.stop_next(Call::Remove);
    std::thread::scope(|scope| {
        scope.spawn(|| bench.segments.trim_spares(&bench.context()));
        gate.wait_for_visitor();
        let meanwhile = {
            let list = bench.segments.list();
            (list.check_accounts(&bench.storage.file_names()), list.limited_bytes())
        };
        let appended = bench.append(1).map(drop);
        gate.open();
        assert_eq!(meanwhile, (Ok(()), bytes));
        appended.unwrap();
    });
    assert_eq!(bench.counts(), [2, 0, 1]);
}

/// A quarantined file stays, and counts, until a user removes it.
#[test]
fn a_spare_that_cannot_be_looked_at_just_now_is_not_quarantined() {
    let bench = Bench::new(None);
    bench.append_all(2);
    bench.pass(1);
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [1, 0, 1]);
    bench.storage.fail_after(Call::Measure, 1, Errno::IO, false);
    bench.append(1).unwrap();
    assert_eq!((bench.storage.failed(Call::Measure), bench.counts()), (1, [2, 1, 0]));
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [2, 0, 1]);
    assert!(!bench.storage.file_names().iter().any(|name| name.ends_with(QUARANTINE_SUFFIX)));
}

/// The queue removes spares of a length that it no longer needs, and segments of that length do not
/// become spares.
#[test]
fn spares_are_as_long_as_the_tails_segment() {
    let bench = Bench::new(None);
    bench.append_all(3);
    bench.pass(2);
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [1, 0, 2]);
    let double = Geometry { usual_len: 2 * LEN, most_len: 2 * LEN, ..*bench.pool.geometry() };
    let bench = Bench { pool: Pool::new(double), ..bench };
    let append = |backlog| {
        let last = bench.segments.list().live.back().unwrap().header;
        let (base, first_seq) = (last.end(), last.first_seq + HELD);
        let plan = Plan { base, first_seq, need: 1, backlog, ..Plan::default() };
        bench.segments.append(&bench.context(), plan).unwrap().header.length
    };
    assert_eq!((append(2 * LEN), bench.counts()), (2 * LEN, [2, 0, 2]), "none is long enough");
    bench.synced();
    bench.pass(1);
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [1, 0, 0], "all were too short");
    assert_eq!(append(0), LEN);
    bench.synced();
    bench.pass(1);
    bench.reclaim().unwrap();
    assert_eq!(bench.counts(), [1, 0, 0], "it was too long");
}

/// On a full disk no file can be removed: the search for room ends, and leaves no more files.
#[test]
fn a_search_for_room_ends_where_no_spare_can_be_removed() {
    let bench = Bench::new(None);
    // Too many for all of them to become spares.
    bench.append_all(12);
    bench.pass(11);
    bench.storage.set_capacity(Some(bench.storage.named_bytes()));
    bench.storage.fail_after(Call::Remove, 1, Errno::IO, true);
    let files = bench.storage.file_names().len();
    let long = Plan { need: LEN, ..Plan::default() };
    let last = bench.segments.list().live.back().unwrap().header;
    let other = Plan { base: last.end(), first_seq: last.first_seq + HELD, ..long };
    let double = Geometry { usual_len: 2 * LEN, most_len: 2 * LEN, ..*bench.pool.geometry() };
    let bench = Bench { pool: Pool::new(double), ..bench };
    assert!(bench.segments.append(&bench.context(), other).unwrap_err().is_full());
    let more = bench.storage.file_names().len() - files;
    assert!(more < 9, "{more} more files");
}
