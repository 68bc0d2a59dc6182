//! Index files with leftovers, truncated files, and full ones.

use super::*;
use crate::format::{ACKS_ROWS, ATTEMPTS_ROW_LEN, EXTENT_ROWS, Extent, ExtentKind, LIVE_LEN};

/// The removed consumer's row of attempts was not cleared on the disk. A new consumer of the same
/// name has no delivered messages.
#[test]
fn attempts_of_a_removed_consumer_are_not_those_of_one_of_its_name() {
    let (storage, index) = made(Stores::ByMap);
    let (row, _) = index.add_consumer(None, "c", begin(1), |take| take(0)).unwrap();
    let (mut attempts_row, _) = index.attempts_row(row, "c").unwrap();
    attempts_row.store(9, [(3, 2)].into_iter());
    let at = index_at::ATTEMPTS..index_at::ATTEMPTS + ATTEMPTS_ROW_LEN;
    let before = storage.read_file(INDEX_NAME)[at.clone()].to_vec();
    index.clear_acks(row, AcksRowIs::Free).unwrap();
    index.remove_consumer(row, "c");
    index.sync().unwrap();
    let left = storage.power_cut_losing_all();
    left.corrupt(INDEX_NAME, at.start, &before);
    let index = adopted(&left);
    assert_eq!(index.add_consumer(None, "c", begin(1), |take| take(0)).unwrap().0, row);
    assert!(image(&left).attempts_rows.iter().all(Option::is_none));
    // Before the consumer gets a name, the disk has the cleared row.
    let cut = left.power_cut_losing_all().read_file(INDEX_NAME);
    assert!(cut[at].iter().all(|byte| *byte == 0), "the disk still has the row");
}

#[test]
fn an_index_that_names_as_many_extents_as_it_can_takes_no_more_rows_and_overwrites_nothing() {
    let storage = SimStorage::new(3);
    let later = |number: usize| Extent {
        kind: ExtentKind::Later(9),
        offset: (index_at::END.next_multiple_of(65536) + 65536 * number) as u32,
        rows: 8,
    };
    let mut full = IndexImage { extents: first_extents().to_vec(), ..IndexImage::default() };
    full.extents.extend((0..EXTENT_ROWS).map(later));
    storage.write_file(INDEX_NAME, &full.encode(&ID, 0));
    let index = adopted(&storage);
    assert_eq!(image(&storage).extents, full.extents);
    let slot = SEGMENT_ROWS as u32;
    for row in 1..CONSUMER_ROWS as u32 {
        let name = format!("{row}");
        index.add_consumer(None, &name, begin(1), |take| take(0)).unwrap();
        let has_acks_row = index.acks_row(row, &name, u64::MAX).is_some();
        assert_eq!(has_acks_row, row <= ACKS_ROWS as u32, "{row}");
    }
    let before = storage.read_file(INDEX_NAME);
    assert!(!index.write_segment_row(slot, Some(&header(slot)), u64::MAX));
    let refused = index.add_consumer(None, "more", begin(1), |take| take(u64::MAX)).map(drop);
    assert!(matches!(&refused, Err(error) if error.is_full()), "{refused:?}");
    assert!(storage.read_file(INDEX_NAME) == before, "the file changed");
}

#[test]
fn rows_that_were_cut_off_with_the_end_of_the_file_are_made_anew() {
    let (storage, index) = made(Stores::ByMap);
    let slots = 2 * SEGMENT_ROWS as u32;
    (0..slots).for_each(|slot| {
        assert!(index.write_segment_row(slot, Some(&header(slot)), u64::MAX));
    });
    let add = |index: &Index<SimStorage>, name: &str| {
        index.add_consumer(None, name, begin(1), |take| take(u64::MAX)).map(drop).unwrap();
    };
    (0..CONSUMER_ROWS + 3).for_each(|number| add(&index, &format!("{number}")));
    let bytes = storage.read_file(INDEX_NAME);
    let cut = SimStorage::new(4);
    cut.write_file(INDEX_NAME, &bytes[..bytes.len() - 1]);
    let left = image(&cut);
    assert_eq!(left.extents.len(), first_extents().len() + 1);
    assert_eq!((left.segments.len(), left.consumers.len()), (slots as usize, CONSUMER_ROWS - 1));
    let index = adopted(&cut);
    (0..4).for_each(|number| add(&index, &format!("more {number}")));
    let again = image(&cut);
    assert_eq!(again.extents.len(), first_extents().len() + 2);
    assert_eq!(again.consumers.len(), CONSUMER_ROWS + 3);
}

#[test]
fn an_index_that_was_cut_off_names_no_holder() {
    let (storage, index) = made(Stores::ByMap);
    assert_eq!(holder(&SimStorage::new(4)), (0, None));
    index.set_pid(77_777);
    index.set_since(5);
    let (pid, since) = holder(&storage);
    assert_eq!((pid, since.is_some()), (77_777, true));
    let bytes = storage.read_file(INDEX_NAME);
    for len in [live_at::LIVE_PID + 2, LIVE_LEN - 1] {
        let cut = SimStorage::new(4);
        cut.write_file(INDEX_NAME, &bytes[..index_at::LIVE + len]);
        assert_eq!(holder(&cut), (0, None), "{len}");
    }
}

/// Two kills, each while the durable mark moves, leave one of its slots whole.
#[test]
fn two_deaths_that_tear_the_mark_of_flushes_leave_one_slot() {
    let at = |number: u64| Spot { position: 32 * number, seq: number };
    for (first, second) in (1..4).flat_map(|first| (1..5).map(move |second| (first, second))) {
        let (mut storage, mut index) = made(Stores::ByMap);
        index.set_synced(at(1));
        index.set_synced(at(2));
        for (number, nth) in [(4, first + 1), (3, second)] {
            storage.freeze_at_store(nth);
            index.set_synced(at(number));
            storage.disarm();
            storage = storage.frozen().unwrap_or_else(|| storage.process_kill());
            index = adopted(&storage);
        }
        let synced = image(&storage).live.synced;
        assert!(synced >= Some(at(2)), "deaths at {first} and {second}: {synced:?}");
    }
}

/// The id in a damaged header counts as long as the extents validate with it.
#[test]
fn a_long_index_with_a_damaged_header_is_read_to_its_end() {
    let mut long = IndexImage { extents: first_extents().to_vec(), ..IndexImage::default() };
    let mut extend = |kind, rows| {
        let offset = long.extents.iter().map(Extent::end).max().unwrap();
        long.extents.push(Extent::behind(kind, offset, rows, 4096).unwrap());
    };
    extend(ExtentKind::Later(9), 40_000);
    extend(ExtentKind::Consumers, 64);
    let mut bytes = long.encode(&ID, 0);
    assert!(bytes.len() > 16 << 20);
    bytes[60] ^= 1;
    let storage = SimStorage::new(1);
    storage.write_file(INDEX_NAME, &bytes);
    let read = IndexFile::read(&storage).unwrap().unwrap();
    assert!(read.header.is_err() && read.bytes == bytes, "{} bytes", read.bytes.len());
}
