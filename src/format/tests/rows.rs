//! Rows of consumers in the index.

use super::hex;
use crate::format::*;

#[test]
fn acknowledged_ranges_come_back_as_they_were_and_never_as_anothers() {
    let seed = Place::seed(b"0123456789abcdef", b"name");
    let mut bytes = [0; ACKS_SLOT_LEN];
    let ranges = [numbers(5, 5), numbers(9, 11), numbers(13, 1000)];
    Acks::encode(7, 3, ranges.into_iter(), seed, &mut bytes);
    assert_eq!(
        Acks::decode(&bytes, 3, seed),
        Some(Acks { number: 7, owner: 3, ranges: ranges.to_vec() })
    );
    assert_eq!(hex(&bytes[24..28]), "0a99c4cf");
    assert_eq!(Acks::decode(&bytes, 4, seed), None);
    assert_eq!(Acks::decode(&bytes, 3, Place::seed(b"0123456789abcdef", b"nama")), None);
    for at in 0..acks_at::ACKS_RANGES + 7 {
        let mut damaged = bytes;
        damaged[at] ^= 1;
        assert_eq!(Acks::decode(&damaged, 3, seed), None, "byte {at}");
    }
    // As many as fit, the lowest first; a range that is too far from the one before is left out.
    for (apart, fit) in [(10u64, 114), (200, 76), (20_000, 57), (3_000_000, 46), (1 << 31, 38)] {
        let range = |n| numbers(apart * n, apart * n + 1);
        Acks::encode(8, 3, (0..200).map(range), seed, &mut bytes);
        let read = Acks::decode(&bytes, 3, seed).unwrap();
        assert_eq!(read.ranges, (0..fit).map(range).collect::<Vec<_>>());
    }
    Acks::encode(9, 3, [numbers(0, 1), numbers(1 << 40, 1 << 40)].into_iter(), seed, &mut bytes);
    assert_eq!(Acks::decode(&bytes, 3, seed).unwrap().ranges, [numbers(0, 1)]);
}

#[test]
fn a_row_of_attempts_reads_as_written_and_only_as_written() {
    let seed = Place::seed(b"0123456789abcdef", b"name");
    let row = Attempts {
        number: 7,
        owner: 3,
        below: 1 << 41,
        counts: vec![(5, 1), (6, 300), (1 << 20, REJECTED | 2), ((1 << 20) + 9, !REJECTED)],
    };
    let mut bytes = [0; ATTEMPTS_SLOT_LEN];
    let (len, all_fit) = row.encode(row.counts.iter().copied(), seed, &mut bytes);
    assert!(all_fit);
    assert_eq!(Attempts::decode(&bytes, 3, seed).as_ref(), Some(&row));
    assert_eq!(Attempts::decode(&bytes, 4, seed), None);
    assert_eq!(Attempts::decode(&bytes, 3, Place::seed(b"0123456789abcdef", b"nama")), None);
    for at in 0..len {
        let mut damaged = bytes;
        damaged[at] ^= 1;
        assert_eq!(Attempts::decode(&damaged, 3, seed), None, "byte {at}");
    }
    // As many as fit, the lowest first; a count too far from the one before is left out.
    for (apart, fit) in [(1, 110), (200, 73), (20_000, 55), (3_000_000, 44), (1 << 31, 37)] {
        let counts = (0..200).map(|n| (apart * n, 3));
        let (_, all_fit) = row.encode(counts.clone(), seed, &mut bytes);
        assert!(!all_fit);
        let read = Attempts::decode(&bytes, 3, seed).unwrap();
        assert_eq!(read.counts, counts.take(fit as usize).collect::<Vec<_>>());
    }
    let counts = [(0, 1), (1 << 40, 1)];
    assert!(!row.encode(counts.into_iter(), seed, &mut bytes).1);
}

#[test]
fn a_row_of_a_forwarder_reads_as_written_and_only_as_written() {
    let seed = Place::seed(b"0123456789abcdef", b"name");
    let known = ForwardSlot {
        number: 7,
        owner: 3,
        until: 1 << 41,
        there: (1 << 41) - 3,
        began: 5,
        position: Some((u64::MAX, 9)),
        chain: Some(0),
        counts_differ: true,
        handed: (1 << 41) + 6,
        time: 1_764_200_000_000,
    };
    let unknown = ForwardSlot { position: None, chain: None, counts_differ: false, ..known };
    for slot in [known, unknown, ForwardSlot { owner: 3, ..ForwardSlot::default() }] {
        let bytes = slot.encode(seed);
        assert_eq!(ForwardSlot::decode(&bytes, 3, seed), Some(slot));
        assert_eq!(ForwardSlot::decode(&bytes, 4, seed), None);
        assert_eq!(ForwardSlot::decode(&bytes, 3, Place::seed(b"0123456789abcdef", b"nama")), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(ForwardSlot::decode(&damaged, 3, seed), None, "byte {at}");
        }
    }
}

#[test]
fn a_death_counts_for_each_message_in_flight_and_another_end_for_none() {
    let row = Attempts {
        number: 7,
        owner: 3,
        below: 20,
        counts: vec![
            (5, IN_FLIGHT),
            (11, 2),
            (12, 2 | IN_FLIGHT),
            (13, 2 | REJECTED),
            (30, IN_FLIGHT),
            (31, (IN_FLIGHT - 1) | IN_FLIGHT),
        ],
    };
    let mut ended = row.clone();
    ended.end_run(None::<std::iter::Empty<_>>);
    let counts = vec![(11, 2), (12, 2), (13, 2 | REJECTED), (31, IN_FLIGHT - 1)];
    assert_eq!(ended, Attempts { below: 0, counts, ..row.clone() });

    let mut died = row.clone();
    died.end_run(Some([10..15, 17..18, 19..u64::MAX].into_iter()));
    let of_the_mark = [10, 14, 17, 19].map(|seq| (seq, 1));
    let mut counts =
        vec![(5, 1), (11, 2), (12, 3), (13, 2 | REJECTED), (30, 1), (31, IN_FLIGHT - 1)];
    counts.extend(of_the_mark);
    counts.sort_unstable();
    assert_eq!(died, Attempts { below: 0, counts, ..row });
}
