//! Segments with missing bytes: a file that ends too soon, a lost header, a batch without its seal.

use super::*;
use crate::format::{Batch, FRAGMENT_HEADER_LEN, Fragment, Kind, SEGMENT_HEADER_LEN, fragment_len};
use crate::memory::checksum;
use crate::segment::scan::Scan;
use crate::storage::StorageFile;

/// The file is truncated after it was opened.
#[test]
fn a_payload_that_the_file_ends_within_is_damaged() {
    let disk = killed(3);
    let Row { slot, header, .. } = live(&disk)[0];
    let file = disk.open(&segment_name(slot)).unwrap();
    file.set_len(SEGMENT_HEADER_LEN + FRAGMENT_HEADER_LEN + 8).unwrap();
    let mut scan = Scan::new(&file, &header, header.end());
    let seen = scan.header_at(header.base).unwrap().unwrap();
    assert!(scan.fragment_at(header.base, 0).unwrap().is_none());
    let mut out = b"before".to_vec();
    assert!(!scan.copy(&seen, 0, &mut out).unwrap() && out == b"before");
}

/// The last record of a batch is marked as the last, and no seal follows it.
#[test]
fn a_batch_without_a_seal_is_none() {
    let disk = killed(0);
    let engine = open(&disk);
    engine.enqueue(&message(0)).unwrap();
    engine.enqueue_batch(&[message(1), message(2)]).unwrap();
    let disk = disk.process_kill();
    assert_eq!(walked(&disk, true).tail.seq, 3);
    let Row { slot, header, .. } = live(&disk)[0];
    let batch = Batch { continues: true, ..Batch::default() };
    let unsealed = Fragment { sealed: false, ..Fragment::whole(2, LEN as u32, batch) };
    let offset = 2 * fragment_len(LEN as u64);
    let seeded = unsealed.header_sum(header.seed(), offset);
    let sum = format::with_payload(seeded, checksum::sum(0, &message(2)));
    let words = unsealed.encode(seeded, sum);
    let at = (SEGMENT_HEADER_LEN + offset) as usize;
    disk.corrupt(&segment_name(slot), at, &words.bytes());
    assert_eq!((walked(&disk, false).tail.seq, walked(&disk, true).tail.seq), (1, 1));
}

#[test]
fn the_seed_of_a_segment_that_begins_with_a_gap_is_found_by_it() {
    let disk = killed(200);
    let Row { slot, header, .. } = live(&disk)[1];
    let file = disk.open(&segment_name(slot)).unwrap();
    let (first, second) = {
        let mut scan = Scan::new(&file, &header, header.end());
        let from = header.base + format::ALIGN;
        let (first, _) = scan.search(from, header.first_seq, 200).unwrap().unwrap();
        let (second, seq) = scan.search(first.end(), header.first_seq, 200).unwrap().unwrap();
        (first, Spot { position: second.position, seq })
    };
    let from = Spot { position: header.base, seq: header.first_seq };
    repair(&disk, &live(&disk), from, second).unwrap();
    let mut scan = Scan::seeded(&file, 0, header.base..header.end(), header.end());
    let found = scan.find_seed().unwrap().unwrap();
    assert_eq!((found.seed, found.position), (header.seed(), header.base));
    assert_eq!(found.witnesses, crate::segment::seed::Witnesses::Two);
    assert!(found.fragment.kind == Kind::Gap && first.position > header.base);
}

#[test]
fn the_seed_of_a_rest_is_found_by_the_piece_before_it_alone() {
    let disk = killed(0);
    let engine = open(&disk);
    engine.enqueue(&message(0)).unwrap();
    engine.enqueue(&[7; 9000]).unwrap();
    engine.enqueue(&message(2)).unwrap();
    let disk = disk.process_kill();
    let rows = live(&disk);
    let chain = {
        let file = disk.open(&segment_name(rows[0].slot)).unwrap();
        let mut scan = Scan::new(&file, &rows[0].header, rows[0].header.end());
        let seen = scan.header_at(fragment_len(LEN as u64)).unwrap().unwrap();
        assert_eq!(seen.fragment.kind, Kind::First);
        seen.checksum()
    };
    let found = |row: &Row, seq, chain| {
        let file = disk.open(&segment_name(row.slot)).unwrap();
        let header = row.header;
        let mut scan = Scan::seeded(&file, 1, header.base..header.end(), header.end());
        let found = scan.find_seed_of_rest(seq, chain).unwrap();
        assert_eq!(scan.header_at(header.base).unwrap().is_some(), found.is_some());
        found
    };
    assert_eq!(found(&rows[1], 1, chain), Some(rows[1].header.seed()));
    assert_eq!(found(&rows[1], 2, chain), None, "the end of another message");
    assert_eq!(found(&rows[0], 0, 0), None, "a message begins there");
    disk.corrupt(&segment_name(rows[1].slot), SEGMENT_HEADER_LEN as usize, &[0; 16]);
    assert_eq!(found(&rows[1], 1, chain), None, "nothing is there");
}
