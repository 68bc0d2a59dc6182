//! Files that are missing, are the wrong ones, or cannot be opened or written.

use rustix::io::Errno;

use super::*;
use crate::format::{INDEX_NAME, QUARANTINE_SUFFIX, segment_name};
use crate::index::image::IndexImage;
use crate::segment::recycling::Spare;
use crate::tests::sim::Call;

/// Returns the header of each segment that has a row in the index.
fn noted(bench: &Bench) -> Vec<SegmentHeader> {
    let image = IndexImage::read(&bench.storage.read_file(INDEX_NAME), &ID);
    image.segments.into_iter().map(|(_, header)| header).collect()
}

/// A user may have removed or exchanged files while no process used the queue.
#[test]
fn a_spare_whose_file_is_gone_or_another_one_is_none_and_what_lies_there_is_kept_and_counted() {
    let mut bench = Bench::new(None);
    bench.append_all(3);
    bench.pass(2);
    bench.reclaim().unwrap();
    let (live, spares): (Vec<Row>, Vec<Row>) = {
        let list = bench.segments.list();
        let spare = |spare: &Spare<_>| spare.row;
        (list.live.iter().copied().collect(), list.recycling.spares.iter().map(spare).collect())
    };
    let rows = (live.clone(), spares.clone());
    let found = Found { live, spares, next_life: 4, rows_complete: true, ..Found::default() };
    bench.segments = Segments::new(found, Vec::new());
    let (live, [gone, other]) = (rows.0, rows.1[..].try_into().unwrap());
    let (gone, other): (Row, Row) = (gone, other);
    bench.storage.remove_file(&segment_name(gone.slot));
    let content = bench.storage.read_file(&segment_name(live[0].slot));
    bench.storage.write_file(&segment_name(other.slot), &content);
    let changes = bench.segments.list().names.directory_changes;
    let next = bench.append(1).unwrap().header.life;
    assert_eq!(bench.counts(), [2, 0, 0]);
    let quarantined = format!("{}{QUARANTINE_SUFFIX}", segment_name(other.slot));
    assert_eq!(bench.storage.read_file(&quarantined), content);
    let list = bench.segments.list();
    assert_eq!(list.names.other_bytes, other.header.allocated);
    assert_eq!(list.names.directory_changes, changes + 2, "a sync makes the names durable");
    // The index has no row left that would make an opening search for them.
    let mut lives: Vec<u64> = noted(&bench).iter().map(|header| header.life).collect();
    lives.sort_unstable();
    assert_eq!((lives, list.names.rows_complete), (vec![live[0].header.life, next], true));
}

#[test]
fn a_segment_that_was_lost_is_neither_dated_nor_kept_open_for_a_sync() {
    let bench = Bench::new(None);
    let segment = bench.append(1).unwrap();
    bench.storage.remove_file(&segment.name());
    let life = segment.header.life;
    let mut list = bench.segments.list();
    assert!(!list.look_for(&bench.storage, &bench.index, life));
    list.note_store(&segment);
    assert_eq!(list.count_unsynced(), 0);
    drop(list);
    let writes = bench.storage.call_count(Call::Write);
    bench.segments.date_tail(&bench.context(), &segment, 1, 2).unwrap();
    assert_eq!(bench.storage.call_count(Call::Write), writes);
}

#[test]
fn times_that_could_not_be_written_do_not_count() {
    let bench = Bench::new(None);
    let segment = bench.append(1).unwrap();
    let dated = |header: &SegmentHeader| (header.created, header.until);
    let all = || {
        let row = bench.segments.list().live[0].header;
        [row, noted(&bench)[0], bench.headers()[0]].map(|header| dated(&header))
    };
    bench.storage.fail_after(Call::Write, 1, Errno::IO, false);
    let error = bench.segments.date_tail(&bench.context(), &segment, 5, 7).unwrap_err();
    assert!(error.to_string().contains(&segment.name()), "{error}");
    assert_eq!(all(), [(0, 0); 3]);
    bench.segments.date_tail(&bench.context(), &segment, 5, 7).unwrap();
    assert_eq!(all(), [(5, 7); 3]);
}

#[test]
fn a_cut_waits_for_a_file_that_cannot_be_opened_and_for_the_next_run_once_files_are_released() {
    for is_over in [false, true] {
        let bench = Bench::new(None);
        let first = bench.append(LEN).unwrap();
        let name = first.name();
        drop(bench.append(1).unwrap());
        bench.segments.list().note_early_end(&first, 5000);
        drop(first);
        bench.synced();
        if is_over {
            bench.segments.end_reclaiming();
        }
        let cut = || {
            bench.segments.cut_early_ends(&bench.context());
            bench.storage.read_file(&name).len() as u64
        };
        bench.storage.fail_after(Call::Open, 1, Errno::IO, false);
        assert_eq!(cut(), LEN);
        assert_eq!(bench.storage.failed(Call::Open), u64::from(!is_over));
        assert_eq!(cut(), if is_over { LEN } else { 2 * 4096 });
    }
}

#[test]
fn a_file_for_which_no_other_name_is_known_to_be_free_keeps_its_own() {
    let bench = Bench::new(None);
    let name = bench.append(1).unwrap().name();
    let names = bench.storage.file_names();
    bench.storage.fail_after(Call::Open, 1, Errno::IO, true);
    let error = quarantine(&bench.storage, &name).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(bench.storage.file_names(), names);
}
