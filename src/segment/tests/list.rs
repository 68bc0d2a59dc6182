use super::*;
use crate::tests::sim::Call;

#[test]
fn live_segments_stand_in_the_order_of_their_positions_and_a_position_lies_in_one() {
    let bench = Bench::new(None);
    bench.append_all(5);
    bench.pass(2);
    let list = bench.segments.list();
    let live: Vec<SegmentHeader> = list.live.iter().map(|row| row.header).collect();
    assert!(
        live.windows(2).all(|pair| pair[0].end() == pair[1].base && pair[0].life < pair[1].life)
    );
    for header in &live {
        for position in [header.base, header.end() - 8] {
            assert_eq!(list.at(position).map(|row| row.header.life), Some(header.life));
        }
    }
    // For a position that was drained: the first live segment. For one behind the last: none.
    assert_eq!(list.at(0).map(|row| row.header.life), Some(live[0].life));
    assert!(list.at(live[2].end()).is_none());
}

#[test]
fn the_last_segment_is_never_drained_and_a_refused_record_takes_its_own_back() {
    let bench = Bench::new(None);
    bench.append_all(3);
    assert!(bench.segments.drain(u64::MAX));
    assert_eq!(bench.counts(), [1, 2, 0]);
    assert!(!bench.segments.drain(u64::MAX));
    let tail = bench.segments.list().live[0].header;
    drop(bench.append(1).unwrap());
    assert!(bench.segments.drain_behind(tail.base) && !bench.segments.drain_behind(tail.base));
    assert_eq!(bench.segments.list().live[0].header.life, tail.life);
}

#[test]
fn what_is_not_synced_keeps_its_descriptor_until_it_was_synced_through_it() {
    let bench = Bench::new(None);
    (0..3).for_each(|_| drop(bench.append(1).unwrap()));
    let mut list = bench.segments.list();
    let opened = bench.storage.call_count(Call::Open);
    let first = list.next_unsynced(&bench.storage, 0, u64::MAX).unwrap();
    assert_eq!((first.row.header.base, first.is_full, list.count_unsynced()), (0, true, 3));
    assert_eq!(
        bench.storage.call_count(Call::Open),
        opened,
        "the descriptor that was open all the time"
    );
    let segment = first.opened.unwrap();
    // A writer stores to the segment after the sync began: the segment stays unsynced.
    list.note_store(&segment);
    list.note_synced(&first.row);
    assert_eq!(list.count_unsynced(), 3);
    let again = list.next_unsynced(&bench.storage, 0, u64::MAX).unwrap();
    list.note_synced(&again.row);
    drop((segment, again));
    assert_eq!(
        (
            list.count_unsynced(),
            list.open.iter().filter(|(_, open)| open.strong_count() > 0).count()
        ),
        (2, 2)
    );
    assert_eq!(list.first_unsynced(u64::MAX), list.live[1].header.base);
    // A writer is about to store to the tail.
    let from = list.live[2].header.base;
    let tail = list.next_unsynced(&bench.storage, from, u64::MAX).unwrap();
    assert!(!tail.is_full);
}

#[test]
fn what_was_found_and_may_not_be_on_the_disk_is_held_as_far_as_descriptors_go() {
    let bench = Bench::new(None);
    bench.append_all(5);
    let live = bench.segments.list().live.clone();
    let found = Found {
        live: live.iter().map(|row| Row::new(row.slot, row.header)).collect(),
        next_life: bench.segments.next_life(),
        ..Found::default()
    };
    let segments: Segments<SimStorage> = Segments::new(found, Vec::new());
    MOST_UNSYNCED_HERE.set(Some(2));
    segments.note_found_unsynced(&bench.storage, live[1].header.base, live[4].header.base);
    MOST_UNSYNCED_HERE.set(None);
    let mut list = segments.list();
    assert_eq!(list.count_unsynced(), 2);
    let unsynced: Vec<bool> = list.live.iter().map(|row| row.unsynced_store != 0).collect();
    assert_eq!(unsynced, [false, true, true, true, false]);
    assert!(list.next_unsynced(&bench.storage, 0, live[1].header.base).is_none());
}

#[test]
fn files_that_were_swapped_are_found_and_one_that_is_gone_leaves_the_list() {
    let bench = Bench::new(None);
    bench.append_all(3);
    let [first, second] = [0, 1].map(|slot| bench.storage.read_file(&format::segment_name(slot)));
    bench.storage.write_file(&format::segment_name(0), &second);
    bench.storage.write_file(&format::segment_name(1), &first);
    let mut list = bench.segments.list();
    let rows: Vec<Row> = list.live.iter().copied().collect();
    for row in &rows[..2] {
        assert!(matches!(list.open(&bench.storage, row), Err(Lost::Gone)), "it is another life");
        let segment = list.open_anywhere(&bench.storage, &bench.index, row).unwrap();
        assert_eq!((segment.header.life, segment.slot), (row.header.life, 1 - row.slot));
    }
    // Another queue's file under the third one's name: the third one's messages are lost, and no
    // file is removed.
    let foreign = SegmentHeader { queue_id: [9; 16], ..rows[2].header };
    bench.storage.write_file(&format::segment_name(2), &foreign.encode());
    list.kept_open.clear();
    let bytes = list.limited_bytes();
    assert!(matches!(list.open_anywhere(&bench.storage, &bench.index, &rows[2]), Err(Lost::Gone)));
    assert_eq!((list.live.len(), list.limited_bytes()), (2, bytes));
    drop(list);
    let names = bench.storage.file_names();
    assert!(names.iter().any(|name| name.ends_with(format::QUARANTINE_SUFFIX)), "{names:?}");
    assert_eq!(bench.counts(), [2, 0, 0]);
}
