mod origin;
mod rows;

use std::collections::BTreeMap;

use super::*;
use crate::memory::checksum::{self, checksum, checksum_words};
use byteorder::{ByteOrder, LittleEndian};

const TABLES: &str = include_str!("../../docs/format.md");
const SOURCE: &str = concat!(
    include_str!("mod.rs"),
    include_str!("attempts_row.rs"),
    include_str!("consumer_row.rs"),
    include_str!("figures_row.rs"),
    include_str!("forward_row.rs"),
    include_str!("fragment.rs"),
    include_str!("index_layout.rs"),
    include_str!("origin_row.rs"),
    include_str!("segment.rs")
);

/// Name, offset and length of every row of the tables.
fn table_rows() -> Vec<(String, usize, usize)> {
    let mut rows = Vec::new();
    for line in TABLES.lines().filter_map(|line| line.strip_prefix("|")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (Ok(offset), Ok(len)) = (cells[0].parse(), cells[1].parse()) else {
            continue;
        };
        let name = cells[2].split('`').nth(1).unwrap_or("").to_owned();
        rows.push((name, offset, len));
    }
    rows
}

/// Every `const NAME: usize = N;` of the modules with offsets.
fn constants() -> BTreeMap<String, Vec<usize>> {
    let mut constants: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut inside = false;
    for line in SOURCE.lines() {
        if line.contains("mod ") && line.contains("_at {") {
            inside = true;
        } else if line == "}" {
            inside = false;
        }
        if let Some((_, rest)) = line.split_once("const ")
            && let Some((name, value)) = rest.split_once(": usize = ")
            && inside
        {
            constants
                .entry(name.to_owned())
                .or_default()
                .push(value.trim_end_matches(';').parse().unwrap());
        }
    }
    constants
}

#[test]
fn the_tables_say_what_the_code_does() {
    let rows = table_rows();
    let constants = constants();
    assert!(rows.len() > 45, "the tables were not found: {} rows", rows.len());
    assert!(constants.len() > 40, "the constants were not found: {}", constants.len());
    for (name, offset, _) in rows.iter().filter(|(name, ..)| !name.is_empty()) {
        if let Some(values) = constants.get(name) {
            assert!(
                values.contains(offset),
                "{name}: the table says {offset}, the code {values:?}"
            );
        }
    }
    // Every offset in the code is in a table (the test checks the first extents and the end below).
    for (name, values) in &constants {
        if ["END", "CONSUMERS", "SEGMENTS", "ACKS"].contains(&name.as_str()) {
            continue;
        }
        for value in values {
            let reported = rows.iter().any(|(row, offset, _)| row == name && offset == value);
            assert!(reported, "{name} at {value} is in no table");
        }
    }
    assert!(TABLES.contains(&format!("file offset `{SEGMENT_HEADER_LEN} + (p - base)`")));
    let extent = |offset: usize, len: usize| rows.iter().any(|(_, o, l)| *o == offset && *l == len);
    assert!(extent(index_at::CONSUMERS, CONSUMER_ROWS * CONSUMER_ROW_LEN));
    assert!(extent(index_at::SEGMENTS, SEGMENT_ROWS * SEGMENT_ROW_LEN));
    assert!(extent(index_at::ACKS, ACKS_ROWS * ACKS_ROW_LEN));
    const { assert!(index_at::ACKS + ACKS_ROWS * ACKS_ROW_LEN <= index_at::CONSUMERS) };
    // A row of acknowledgements is a sector, a pair of places lies in one; name, pair and copy lie
    // in three.
    const { assert!(index_at::ACKS.is_multiple_of(SECTOR) && ACKS_ROW_LEN == SECTOR) };
    for row in 0..64 {
        let at = ConsumerAt::new(row, 64);
        let sector = |offset: usize| (index_at::CONSUMERS + offset) / SECTOR;
        let [first, second, copy] = at.places().map(sector);
        let name = sector(at.name + NAME_ROW_LEN - 1);
        assert!(name < first && first == second && second < copy, "row {row}");
        assert!(
            copy < index_at::SEGMENTS / SECTOR
                && [at.pair, at.copy].iter().all(|at| at.is_multiple_of(PLACE_PAIR_LEN))
        );
    }
    assert!(extent(index_at::EXTENTS, EXTENT_ROWS * EXTENT_ROW_LEN));
    assert!(extent(index_at::LIVE, LIVE_LEN));
    assert!(extent(index_at::UNREPORTED, SECTOR) && extent(index_at::FIGURES, 2 * FIGURES_LEN));
    assert!(extent(index_at::ATTEMPTS, ATTEMPTS_ROWS * ATTEMPTS_ROW_LEN));
    const { assert!(ATTEMPTS_ROW_LEN == SECTOR) };
    assert_eq!(index_at::SEGMENTS + SEGMENT_ROWS * SEGMENT_ROW_LEN, index_at::END);
}

/// Each row of a table begins where the one before ends.
#[test]
fn the_tables_leave_no_byte_out() {
    let mut last = (String::new(), 0, 0);
    for (name, offset, len) in table_rows() {
        // A new table begins at 0.
        assert!(
            offset == 0 || offset == last.1 + last.2,
            "{name} at {offset} does not follow {} ({} bytes at {})",
            last.0,
            last.2,
            last.1
        );
        last = (name, offset, len);
    }
}

fn header() -> SegmentHeader {
    SegmentHeader {
        version: Version::Plain,
        state: SegmentState::Live,
        queue_id: *b"0123456789abcdef",
        life: 7,
        base: 4096,
        first_seq: 1000,
        missing: MissingBefore { gap: 5, reserved: 0, cause: 2 },
        retained_from: 0,
        created: 1_700_000_000_000,
        until: 1_700_000_001_250,
        length: 4 << 20,
        allocated: 0,
        disk: 0,
        file: 0,
        salt: 0xdead_beef,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of format version 3. They never change; a new format gets a new version.
#[test]
fn the_bytes_of_version_3_are_these() {
    let bytes = header().encode();
    assert_eq!(
        hex(&bytes[..92]),
        "6d6d717365676d74".to_owned()
            + "03000000"
            + "01020000"
            + "30313233343536373839616263646566"
            + "0700000000000000"
            + "0010000000000000"
            + "e803000000000000"
            + "0500000000000000"
            + "0068e5cf8b010000"
            + "0000400000000000"
            + "0000000000000000"
            + "efbeadde"
    );
    assert_eq!(hex(&bytes[120..124]), "e2040000");
    assert_eq!(hex(&bytes[124..]), "cd9009fc");
    let fragment = Fragment {
        kind: Kind::Whole,
        more: true,
        continues: false,
        sealed: false,
        has_origin: false,
        len: 5,
        seq: 1001,
    };
    let header_sum = fragment.header_sum(header().seed(), 64);
    let sum = with_payload(header_sum, checksum::sum(0, b"hello"));
    let words = fragment.encode(header_sum, sum);
    assert_eq!(
        hex(&[words.0.to_le_bytes(), words.1.to_le_bytes()].concat()),
        "e1f811cc05000000e903000000116fb4"
    );
    let checkpoint = Checkpoint {
        number: 3,
        nonce: 4,
        position: 5,
        seq: 6,
        reservation: 7,
        next_life: 8,
        dropped_seq: 9,
        expired_seq: 10,
        clean: true,
        missing: MissingBefore::default(),
        retained_from: 0,
    };
    let place = Place { number: 1, position: 2, seq: 3 };
    let sums = [
        hex(&checkpoint.encode(b"0123456789abcdef")[188..]),
        hex(&encode_index_header(b"0123456789abcdef", 9, Version::Plain)[60..]),
        hex(&place.sum(Place::seed(b"0123456789abcdef", b"name")).to_le_bytes()),
    ];
    assert_eq!(sums, ["7d80329c", "422a751b", "ceca498b"]);
}

#[test]
fn what_is_encoded_is_decoded() {
    assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
    let fragment = Fragment {
        kind: Kind::Last,
        more: false,
        continues: true,
        sealed: true,
        has_origin: false,
        len: 123,
        seq: fragment::SEQ_MASK,
    };
    let header_sum = fragment.header_sum(99, 4096);
    let words = fragment.encode(header_sum, 7);
    assert_eq!(Fragment::decode(words, 99, 4096), Some((fragment, header_sum)));
    assert_eq!(words.sum(), 7);
    assert_eq!(fragment.seq_from(fragment::SEQ_MASK - 3), fragment::SEQ_MASK);
    assert_eq!(
        Fragment { seq: 2, ..fragment }.seq_from(fragment::SEQ_MASK),
        fragment::SEQ_MASK + 3
    );
    let checkpoint = Checkpoint {
        number: 3,
        nonce: 4,
        position: 8,
        seq: 6,
        reservation: 7,
        next_life: 8,
        dropped_seq: 9,
        expired_seq: 10,
        clean: true,
        missing: MissingBefore { gap: 5, reserved: 4, cause: 1 },
        retained_from: 2,
    };
    let id = [7; 16];
    assert_eq!(Checkpoint::decode(&checkpoint.encode(&id), &id), Some(checkpoint));
    assert_eq!(Checkpoint::decode(&checkpoint.encode(&id), &[8; 16]), None);
    let extent = Extent { kind: ExtentKind::Segments, offset: 40960, rows: 32 };
    assert_eq!(Extent::decode(&extent.encode(&id), &id), Some(extent));
    // A kind of a later release: it takes whole sectors, so that its end is known.
    let later = Extent { kind: ExtentKind::Later(4), rows: 8, ..extent };
    assert_eq!((Extent::decode(&later.encode(&id), &id), later.row_len()), (Some(later), SECTOR));
    let none = Extent { kind: ExtentKind::Later(0), ..later };
    assert_eq!(Extent::decode(&none.encode(&id), &id), None);
    assert_eq!(decode_index_header(&encode_index_header(&id, 1, Version::Plain)), Ok(id));
}

/// A checksum covers the bytes that are zero in this release, and no other code reads them.
#[test]
fn reserved_bytes_that_are_not_zero_are_no_damage() {
    let id = [7; 16];
    let sum = |bytes: &mut [u8], seed: u32| {
        let (covered, sum) = bytes.split_at_mut(bytes.len() - 4);
        LittleEndian::write_u32(sum, checksum(seed, covered));
    };
    let of_queue = checksum(0, &id);
    let checkpoint = Checkpoint { number: 3, position: 8, seq: 6, ..Checkpoint::default() };
    let mut bytes = checkpoint.encode(&id);
    bytes[80..120].fill(0xee);
    bytes[136..188].fill(0xee);
    sum(&mut bytes, of_queue);
    assert_eq!(Checkpoint::decode(&bytes, &id), Some(checkpoint));
    let mut bytes = header().encode();
    bytes[14..16].fill(0xee);
    sum(&mut bytes, 0);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header()));
    let mut bytes = encode_index_header(&id, 9, Version::Plain);
    bytes[12..16].fill(0xee);
    bytes[40..60].fill(0xee);
    sum(&mut bytes, 0);
    assert_eq!(decode_index_header(&bytes), Ok(id));
}

/// Their checks are valid, but they have a kind or a bit that this release does not know: it does
/// not accept them.
#[test]
fn a_fragment_of_an_unknown_kind_or_bit_does_not_validate() {
    let words = |kind: u8, len: u64| {
        let tag = 7 | u64::from(kind) << 40;
        let state = checksum_words(0, [64 << 32 | len, tag]) ^ 99;
        FragmentWords(len << 32, tag | u64::from((state ^ state >> 16) as u16) << 48)
    };
    for kind in 1..=6 {
        assert!(Fragment::decode(words(kind, 32), 99, 64).is_some(), "{kind}");
        assert_eq!(Fragment::decode(words(kind | 128, 32), 99, 64), None, "{kind}");
        // An origin lies in a first or only fragment, completely.
        for (len, may_have) in [(32, kind <= 2), (31, false), (0, false)] {
            let decoded = Fragment::decode(words(kind | 64, len), 99, 64);
            assert_eq!(decoded.is_some(), may_have, "{kind}, {len}");
            assert!(decoded.is_none_or(|(fragment, _)| fragment.has_origin));
        }
    }
    for unknown in [0, 7] {
        assert_eq!(Fragment::decode(words(unknown, 32), 99, 64), None, "{unknown}");
    }
    // `decode_whole` accepts the same whole records as `decode`, except dead letters.
    for kind in 0..=u8::MAX {
        for (offset, seq) in [(64, 7), (64, 8), (72, 7)] {
            let decoded = Fragment::decode(words(kind, 32), 99, offset).filter(|(fragment, _)| {
                fragment.kind == Kind::Whole && fragment.is_numbered(seq) && !fragment.has_origin
            });
            let wanted = decoded.map(|(fragment, sum)| (fragment.len, fragment.total_len(), sum));
            let whole = Fragment::decode_whole(words(kind, 32), 99, offset, seq);
            assert_eq!(whole, wanted, "{kind}");
        }
    }
}

#[test]
fn every_flipped_bit_of_a_header_is_found() {
    let good = header().encode();
    for bit in 0..good.len() * 8 {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
    }
    let good = encode_index_header(&[7; 16], 1_700_000_000_000, Version::Plain);
    for bit in 0..good.len() * 8 {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_index_header(&bytes).is_err(), "bit {bit} of the index's header");
    }
    let good = Extent { kind: ExtentKind::Segments, offset: 8192, rows: 32 }.encode(&[7; 16]);
    for bit in 0..good.len() * 8 {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Extent::decode(&bytes, &[7; 16]), None, "bit {bit} of an extent's row");
    }
}

#[test]
fn a_fragment_moved_or_of_another_segment_does_not_validate() {
    let fragment = Fragment {
        kind: Kind::Whole,
        more: false,
        continues: false,
        sealed: false,
        has_origin: false,
        len: 8,
        seq: 1,
    };
    let seed = header().seed();
    let mut taken_for_valid = 0;
    for offset in (8..8192).step_by(8) {
        let header_sum = fragment.header_sum(seed, 0);
        let payload = checksum::sum(0, b"payload!");
        let words = fragment.encode(header_sum, with_payload(header_sum, payload));
        if let Some((_, header_sum)) = Fragment::decode(words, seed, offset) {
            // The header's 16 bits may agree by chance, the whole 32 may not.
            assert_ne!(words.sum(), with_payload(header_sum, payload));
            taken_for_valid += 1;
        }
    }
    assert!(taken_for_valid < 4);
    for change in [
        SegmentHeader { life: 8, ..header() },
        SegmentHeader { salt: 1, ..header() },
        SegmentHeader { base: 8192, ..header() },
        SegmentHeader { queue_id: [0; 16], ..header() },
    ] {
        assert_ne!(change.seed(), seed);
    }
}

#[test]
fn a_later_version_is_told_from_damage() {
    let mut bytes = header().encode();
    LittleEndian::write_u32(&mut bytes[8..], FORMAT_VERSION + 1);
    let sum = checksum(0, &bytes[..124]);
    LittleEndian::write_u32(&mut bytes[124..], sum);
    assert_eq!(SegmentHeader::decode(&bytes), Err(Invalid::Version(FORMAT_VERSION + 1)));
    let mut bytes = encode_index_header(&[7; 16], 9, Version::Origins);
    assert_eq!(decode_index_header(&bytes), Ok([7; 16]));
    LittleEndian::write_u32(&mut bytes[8..], FORMAT_VERSION + 1);
    let sum = checksum(0, &bytes[..60]);
    LittleEndian::write_u32(&mut bytes[60..], sum);
    assert_eq!(decode_index_header(&bytes), Err(Invalid::Version(FORMAT_VERSION + 1)));
}

#[test]
fn names_are_exactly_those_we_make() {
    assert_eq!(segment_name(7), "segment-00000007");
    assert_eq!(segment_slot("segment-00000007"), Some(7));
    for name in [
        "segment-7",
        "segment-+0000007",
        "segment-00000007.damaged",
        "index",
        "segment-",
        "segment-99999999999",
    ] {
        assert_eq!(segment_slot(name), None, "{name}");
    }
}

#[test]
fn the_seal_of_a_batch_is_that_of_its_fragments_in_their_order() {
    let fragment = Fragment {
        kind: Kind::Whole,
        more: false,
        continues: true,
        sealed: true,
        has_origin: false,
        len: 5,
        seq: 2,
    };
    assert_eq!((fragment.total_len(), fragment.seal_at()), (16 + 8 + 8, Some(16 + 8)));
    let last = Fragment { kind: Kind::Middle, sealed: false, ..fragment };
    assert_eq!((last.total_len(), last.seal_at()), (16 + 8, None));
    let word = |sums: &[u32]| {
        let mut seal = Seal::NEW;
        sums.iter().for_each(|sum| seal.add(*sum));
        seal.word()
    };
    assert_eq!(hex(&word(&[0x4108_95b2, 7]).to_le_bytes()), "bb84597400000000");
    for other in [[0x4108_95b2, 8].as_slice(), &[7, 0x4108_95b2], &[7], &[0x4108_95b2], &[]] {
        assert_ne!(word(other), word(&[0x4108_95b2, 7]));
    }
}
