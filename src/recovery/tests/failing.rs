//! Files that vanish or cannot be opened or synced during an opening, and an index that states less
//! than the files.

use super::*;
use crate::format::live_at;
use crate::segment::scan::Scan;

#[test]
fn a_directory_is_refused_by_files_that_could_be_looked_at() {
    let disk = SimStorage::new(5);
    disk.write_file(&segment_name(0), b"somebody's");
    disk.write_file(&segment_name(1), &[]);
    let refused = || foreign::refuse_foreign(&disk);
    refused().unwrap();
    // A file that cannot be opened may be anybody's.
    disk.fail_after(Call::Open, 1, Errno::IO, false);
    let error = refused().unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains(&segment_name(0)));
    // A file that vanished meanwhile proves nothing.
    disk.fail_after(Call::Open, 1, Errno::NOENT, false);
    refused().unwrap();
    disk.fail_after(Call::Open, 2, Errno::NOENT, false);
    assert!(matches!(refused().unwrap_err(), Error::NotAQueue { .. }));
}

#[test]
fn a_hole_is_filled_where_its_files_are_there_and_its_ends_have_room() {
    let disk = killed(200);
    let rows = live(&disk);
    let name = |at: usize| segment_name(rows[at].slot);
    let (base, files) = (rows[1].header.base, [disk.read_file(&name(0)), disk.read_file(&name(1))]);
    // The first segment has too few bytes left for a fragment header.
    let from = Spot { position: base - format::ALIGN, seq: 60 };
    let to = Spot { position: base + 4 * format::ALIGN, seq: 62 };
    disk.fail_after(Call::Open, 2, Errno::IO, false);
    let error = repair(&disk, &rows, from, to).unwrap_err();
    assert!(error.to_string().contains(&name(1)), "{error}");
    assert_eq!([disk.read_file(&name(0)), disk.read_file(&name(1))], files);
    repair(&disk, &rows, from, to).unwrap();
    assert_eq!(disk.read_file(&name(0)), files[0]);
    let file = disk.open(&name(1)).unwrap();
    let mut scan = Scan::new(&file, &rows[1].header, to.position);
    let gap = scan.header_at(base).unwrap().unwrap();
    assert_eq!((gap.fragment.kind, gap.end()), (format::Kind::Gap, to.position));
    // If the file is gone, no reader finds anything.
    disk.remove_file(&name(1));
    repair(&disk, &rows, from, to).unwrap();
}

#[test]
fn a_walk_ends_where_a_file_is_gone_and_a_search_goes_on_behind_it() {
    let disk = killed(200);
    let rows = live(&disk);
    let [second, third] = [rows[1].header.first_seq, rows[2].header.first_seq];
    disk.remove_file(&segment_name(rows[1].slot));
    let walk = |search, start| {
        let rules = WalkRules { search, whole_before: false, published: u64::MAX };
        walk(&disk, &rows, &[], start, rules).unwrap()
    };
    let ended = walk(false, Spot::default());
    assert!((second - 1..=second).contains(&ended.tail.seq) && holes(&ended).is_empty());
    let searched = walk(true, Spot::default());
    assert_eq!((searched.tail.seq, holes(&searched)), (200, vec![(ended.tail.seq, third)]));
    // Also where no number is missing after it.
    let inside = Spot { position: rows[2].header.base - format::ALIGN, seq: third };
    assert_eq!(walk(false, inside).tail, inside);
}

/// The tail in the index is outdated, and bytes after it are damaged.
#[test]
fn what_lies_behind_damage_behind_the_tail_is_found_where_the_index_states_more() {
    let disk = killed(0);
    let engine = open(&disk);
    let tail = index_at::LIVE + live_at::TAIL_SEQ;
    let mut earlier = Vec::new();
    for number in 0..200 {
        engine.enqueue(&message(number)).unwrap();
        if number == 99 {
            earlier = disk.read_file(INDEX_NAME)[tail..][..24].to_vec();
        }
    }
    engine.core.flush().unwrap();
    let disk = disk.process_kill();
    disk.corrupt(INDEX_NAME, tail, &earlier);
    assert_eq!(image(&disk).0.live.tail.unwrap().seq, 100);
    damage(&disk, 120);
    let messages = open(&disk).stats().messages;
    assert!((199..=200).contains(&messages), "{messages}");
}

/// Without the first segment the next one must state the missing numbers, durably.
#[test]
fn no_failed_sync_of_an_opening_after_a_power_cut_is_passed_over() {
    let disk = killed(200);
    disk.remove_file(&segment_name(live(&disk)[0].slot));
    let options = Options::new().arena_size(4096);
    let mut failed = 0;
    for nth in 1.. {
        let disk = disk.copied();
        disk.fail_after(Call::SyncFile, nth, Errno::IO, false);
        let opened = recover(&disk, &options);
        if disk.failed(Call::SyncFile) == 0 {
            break;
        }
        assert!(opened.is_err(), "sync {nth}");
        failed += 1;
    }
    assert!(failed >= 1, "no file was synced");
}

#[test]
fn a_queue_in_use_is_taken_from_its_headers_when_all_of_them_fit_together() {
    let disk = killed(0);
    let engine = open(&disk);
    let seen = |disk: &SimStorage| {
        let (image, id) = image(disk);
        look::by_headers(disk, &image, id).unwrap()
    };
    assert_eq!(seen(&disk.process_kill()).unwrap().live.len(), 0);
    for number in 0..200 {
        engine.enqueue(&message(number)).unwrap();
    }
    let rows = live(&disk.process_kill());
    assert!(rows.len() > 2);
    let found = seen(&disk.process_kill()).unwrap();
    let lives = |rows: &[Row]| rows.iter().map(|row| row.header.life).collect::<Vec<_>>();
    assert_eq!((lives(&found.live), found.tail.seq), (lives(&rows), 200));
    for row in [rows[0], rows[1], rows[rows.len() - 1]] {
        let disk = disk.process_kill();
        disk.remove_file(&segment_name(row.slot));
        assert!(seen(&disk).is_none(), "without segment {}", row.slot);
    }
}
