use rustix::io::Errno;

use super::*;
use crate::format::INDEX_NAME;
use crate::index::image::IndexImage;
use crate::tests::sim::{BESIDE, Call};

/// Returns whether the index tells the next opening to trust its segment rows.
fn rows_count(bench: &Bench) -> bool {
    let image = IndexImage::read(&bench.storage.read_file(INDEX_NAME), &ID);
    image.live.run.unwrap_or_default().flags & format::FLAG_CHANGING == 0
}

#[test]
fn a_segment_that_cannot_be_made_leaves_no_file_and_no_name() {
    for call in [Call::Create, Call::Allocate, Call::Write] {
        let bench = Bench::new(None);
        bench.append_all(1);
        bench.storage.fail_after(call, 1, Errno::NOSPC, true);
        let error = bench.append(1).unwrap_err();
        bench.storage.clear_faults();
        assert!(error.is_full(), "{call:?}: {error}");
        assert_eq!((bench.counts(), rows_count(&bench)), ([1, 0, 0], true), "{call:?}");
        drop(bench.append(1).unwrap());
        let lives: Vec<u64> = bench.headers().iter().map(|header| header.life).collect();
        assert_eq!(lives, [1, 3], "{call:?}: no life is used twice");
    }
}

#[test]
fn a_foreign_file_keeps_its_name() {
    let bench = Bench::new(None);
    bench.storage.write_file(&format::segment_name(0), b"somebody's");
    let segment = bench.append(1).unwrap();
    assert_eq!(
        (segment.slot, bench.storage.read_file(&format::segment_name(0))),
        (1, b"somebody's".to_vec())
    );
}

#[test]
fn the_limit_is_kept_to_the_byte_and_what_is_refused_changes_nothing() {
    let one = LEN + overhead(LEN);
    let index = Bench::new(None).index.len();
    for (limit, fits) in [(index + 3 * one, 3), (index + 3 * one - 1, 2), (index + one, 1)] {
        let bench = Bench::new(Some(limit));
        let made = (0..4).take_while(|_| bench.append(LEN).is_ok()).count();
        assert_eq!(made, fits, "{limit}");
        let used = bench.segments.list().limited_bytes() + bench.index.len();
        let error = bench.append(LEN).unwrap_err();
        assert!(
            matches!(error, Error::Full { option: "max_bytes", used: reported, .. } if reported == used),
            "{error}"
        );
        assert_eq!((bench.counts(), rows_count(&bench)), ([fits, 0, 0], true));
        // A segment that every consumer has passed frees space at once: the queue reclaims it
        // first.
        if fits > 1 {
            bench.pass(1);
            drop(bench.append(LEN).unwrap());
            assert_eq!(bench.counts(), [fits, 0, 0]);
        }
    }
}

#[test]
fn where_there_is_no_room_ahead_a_segment_makes_do_with_what_is_needed() {
    let bench = Bench::new(None);
    bench.storage.set_capacity(Some(bench.index.len() + 6 * 4096));
    let segment = bench.append(100).unwrap();
    assert_eq!(segment.allocated(), 4096);
    bench.segments.extend(&bench.context(), &segment, 9000).unwrap();
    assert_eq!(segment.allocated(), 3 * 4096);
    bench.segments.extend(&bench.context(), &segment, 9000).unwrap();
    let full = bench.segments.extend(&bench.context(), &segment, 7 * 4096).unwrap_err();
    assert!(full.is_full() && segment.allocated() == 3 * 4096);
    let row = bench.segments.list().live[0].header;
    assert_eq!(
        (row.allocated, segment.allocated_end()),
        (3 * 4096, 3 * 4096 - format::SEGMENT_HEADER_LEN)
    );
    // The index's row has the same value, and the index marks its rows as right.
    let image = IndexImage::read(&bench.storage.read_file(INDEX_NAME), &ID);
    assert_eq!((image.segments[0].1.allocated, rows_count(&bench)), (3 * 4096, true));
}

#[test]
fn a_spare_gives_its_space_to_a_segment_that_must_grow() {
    let bench = Bench::new(None);
    bench.append_all(2);
    bench.pass(1);
    bench.reclaim().unwrap();
    // A spare of another length cannot become a segment.
    bench.segments.list().recycling.spares[0].row.header.length = 2 * LEN;
    bench.storage.set_capacity(Some(bench.index.len() + 2 * LEN));
    let segment = bench.append(LEN).unwrap();
    assert_eq!((segment.allocated(), bench.counts()), (LEN, [2, 0, 0]));
}

#[test]
fn one_spare_is_made_ahead_where_nobody_counts_the_bytes() {
    for (limit, made) in [(None, 1), (Some(1 << 20), 0)] {
        let bench = Bench::new(limit);
        bench.segments.prepare(&bench.context(), 0);
        assert_eq!(bench.counts(), [0, 0, 0], "before the first segment");
        bench.append_all(1);
        bench.segments.prepare(&bench.context(), 0);
        bench.segments.prepare(&bench.context(), 0);
        assert_eq!((bench.counts(), rows_count(&bench)), ([1, 0, made], true));
    }
}

#[test]
fn names_that_changed_are_durable_once_for_all_who_ask() {
    let bench = Bench::new(None);
    bench.append_all(2);
    let sync = || bench.segments.sync_directory(&bench.storage, &bench.index);
    let syncs = bench.storage.call_count(Call::SyncDirectory);
    (0..3).for_each(|_| sync().unwrap());
    assert_eq!(bench.storage.call_count(Call::SyncDirectory), syncs + 1);
    drop(bench.append(1).unwrap());
    bench.storage.fail_after(Call::SyncDirectory, 1, Errno::IO, false);
    assert!(sync().is_err() && bench.index.poison.is_poisoned());
    // No sync is made after one that failed.
    assert!(sync().is_err());
    assert_eq!(bench.storage.call_count(Call::SyncDirectory), syncs + 2);
}

/// A file of many extents needs more blocks to list them.
#[test]
fn blocks_that_the_file_system_takes_beside_count_and_what_is_beyond_the_limit_is_given_back() {
    let one = LEN + overhead(LEN);
    let bench = Bench::new(Some(Bench::new(None).index.len() + one));
    BESIDE.set((4096, 2 * 4096));
    let error = bench.append(LEN).unwrap_err();
    assert!(matches!(error, Error::Full { needed, .. } if needed == LEN + 2 * 4096), "{error}");
    assert_eq!((bench.counts(), bench.headers().len()), ([0, 0, 0], 0));
    bench.storage.set_capacity(Some(bench.index.len() + 4096));
    let segment = bench.append(100).unwrap();
    bench.storage.set_capacity(None);
    let len = || bench.storage.read_file(&segment.name()).len() as u64;
    assert_eq!((segment.allocated(), len()), (4096, 4096));
    // All that the limit leaves would be too much.
    bench.segments.extend(&bench.context(), &segment, 9000).unwrap();
    assert_eq!((segment.allocated(), len()), (3 * 4096, 3 * 4096));
    assert_eq!(bench.segments.list().limited_bytes(), 5 * 4096);
    let refused = bench.segments.extend(&bench.context(), &segment, LEN);
    BESIDE.set((0, 0));
    assert!(refused.unwrap_err().is_full() && len() == 3 * 4096);
}

#[test]
fn a_spare_made_ahead_gets_no_name_that_a_file_has() {
    for is_foreign in [true, false] {
        let bench = Bench::new(None);
        bench.append_all(1);
        if is_foreign {
            bench.storage.write_file(&format::segment_name(1), b"somebody's");
        } else {
            bench.storage.fail_after(Call::Allocate, 1, Errno::NOSPC, false);
            bench.storage.fail_after(Call::Remove, 1, Errno::IO, false);
        }
        let slots = || {
            bench.segments.prepare(&bench.context(), 0);
            let list = bench.segments.list();
            list.recycling.spares.iter().map(|spare| spare.row.slot).collect::<Vec<_>>()
        };
        assert_eq!((slots(), slots()), (vec![], vec![2]), "foreign: {is_foreign}");
        assert!(rows_count(&bench));
    }
}
