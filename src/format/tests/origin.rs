//! The origin of a dead letter.

use super::{header, hex};
use crate::format::*;
use crate::memory::checksum;

/// The bytes of format version 4 that differ from version 3.
#[test]
fn the_bytes_of_version_4_are_these() {
    let origin =
        Origin { queue_id: *b"fedcba9876543210", seq: 0x0102_0304_0506, attempts: 7, sum: 0 };
    let bytes = origin.encode();
    let wanted = "66656463626139383736353433323130".to_owned()
        + "0605040302010000"
        + "07000000"
        + "00000000";
    assert_eq!(hex(&bytes), wanted);
    assert_eq!(Origin::decode(&bytes), origin);
    let mut record = origin.before(b"a message");
    assert_eq!((Origin::take_off(&mut record), &record[..]), (Some(origin), &b"a message"[..]));
    assert_eq!((Origin::take_off(&mut record), &record[..]), (None, &b"a message"[..]));
    let fragment = Fragment::whole(1001, ORIGIN_LEN as u32, Batch::DEAD_LETTER);
    assert_eq!((fragment.message_len(), fragment.total_len()), (0, 48));
    let header_sum = fragment.header_sum(header().seed(), 64);
    let sum = with_payload(header_sum, checksum::sum(0, &bytes));
    let words = fragment.encode(header_sum, sum);
    assert_eq!(words.bytes()[13], 1 | 64);
    assert_eq!(Fragment::decode(words, header().seed(), 64), Some((fragment, header_sum)));
    let later = SegmentHeader { version: Version::Origins, ..header() };
    assert_eq!(hex(&later.encode()[8..12]), "04000000");
    assert_eq!(SegmentHeader::decode(&later.encode()), Ok(later));
    assert_eq!(later.seed(), header().seed());
    let id = [7; 16];
    for version in [Version::Plain, Version::Origins] {
        let bytes = encode_index_header(&id, 9, version);
        assert_eq!((index_version(&bytes, &id), index_created(&bytes)), (version, 9));
        assert_eq!(index_version(&bytes, &[8; 16]), Version::Plain);
    }
}
