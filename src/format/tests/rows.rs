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
    assert_eq!(hex(&bytes[24..28]), "4a67b9a6");
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
        alone: Some(1 << 40),
        counts: vec![(5, 1), (6, 300), (1 << 20, REJECTED | 2), ((1 << 20) + 9, !REJECTED)],
    };
    let mut bytes = [0; ATTEMPTS_SLOT_LEN];
    let (len, left_out) = row.encode(row.counts.iter().copied(), seed, &mut bytes);
    assert_eq!(left_out, None);
    assert_eq!(Attempts::decode(&bytes, 3, seed).as_ref(), Some(&row));
    assert_eq!(Attempts::decode(&bytes, 4, seed), None);
    assert_eq!(Attempts::decode(&bytes, 3, Place::seed(b"0123456789abcdef", b"nama")), None);
    for at in 0..len {
        let mut damaged = bytes;
        damaged[at] ^= 1;
        assert_eq!(Attempts::decode(&damaged, 3, seed), None, "byte {at}");
    }
    // As many as fit, the lowest first; a count too far from the one before is left out.
    for (apart, fit) in [(1, 106), (200, 71), (20_000, 53), (3_000_000, 43), (1 << 31, 36)] {
        let counts = (0..200).map(|n| (apart * n, 3));
        let (_, left_out) = row.encode(counts.clone(), seed, &mut bytes);
        assert_eq!(left_out, Some(apart * fit));
        let read = Attempts::decode(&bytes, 3, seed).unwrap();
        assert_eq!(read.counts, counts.take(fit as usize).collect::<Vec<_>>());
    }
    let counts = [(0, 1), (1 << 40, 1)];
    assert_eq!(row.encode(counts.into_iter(), seed, &mut bytes).1, Some(1 << 40));
}
