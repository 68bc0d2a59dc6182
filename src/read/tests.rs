//! The cursor alone, over the simulated disk.

use super::gather::{TRIM_ABOVE, gather};
use super::pass_gaps::{pass_to, pass_to_end, pass_to_first};
use super::*;
use crate::engine::Engine;
use crate::error::{Gap, GapCause};
use crate::format::{MissingBefore, SEGMENT_HEADER_LEN, SegmentHeader, segment_name};
use crate::index::losses::Evicted;
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::state::Gaps;
use crate::tests::sim::{Call, SimFile, SimStorage};

type Queue = Engine<SimStorage>;

/// Segments of 64 KiB, each in one window.
fn small() -> Options {
    LENGTH_HERE.set(Some(64 << 10));
    Options::new().arena_size(64 << 10).max_bytes(512 << 10)
}

fn open(options: &Options, file_capacity: usize) -> (SimStorage, Queue) {
    let storage = SimStorage::new(3).with_file_capacity(file_capacity);
    let queue = Engine::open_without_workers(storage.clone(), options).unwrap();
    (storage, queue)
}

/// The payload of the message `seq`; all payloads differ.
fn payload(seq: u64, len: usize) -> Vec<u8> {
    let mix = |at| (seq << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..len).map(|at| mix(at) as u8).collect()
}

fn put(queue: &Queue, lens: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    let mut put = Vec::new();
    for len in lens {
        put.push(payload(put.len() as u64, len));
        queue.enqueue(put.last().unwrap()).unwrap();
    }
    put
}

/// A cursor in front of the first message.
fn cursor(queue: &Queue) -> Cursor<SimFile> {
    Cursor::new(Spot { position: first_header(queue).base, seq: 0 })
}

fn first_header(queue: &Queue) -> SegmentHeader {
    queue.core.segments.list().live[0].header
}

fn copy(cursor: &mut Cursor<SimFile>, record: Record) -> Option<Vec<u8>> {
    let mut out = b"what it held before".to_vec();
    cursor.copy_to(record, Then::Stays, &mut out).then_some(out)
}

/// Finds the next message or gap and steps over it: the number and the payload, or the gap.
fn take(queue: &Queue, cursor: &mut Cursor<SimFile>) -> Result<Option<(u64, Vec<u8>)>, Gap> {
    match cursor.find(&queue.core) {
        Ok(None) => Ok(None),
        Ok(Some(record)) => {
            let bytes = copy(cursor, record).expect("what was found checked can be copied");
            cursor.advance();
            Ok(Some((record.seq, bytes)))
        }
        Err(Error::Gap(gap)) => Err(gap),
        Err(error) => panic!("{error}"),
    }
}

/// Flips a byte in the payload of a message that lies in one piece in the first segment.
fn damage(storage: &SimStorage, bytes: &[u8]) {
    let name = segment_name(0);
    let file = storage.read_file(&name);
    let at = file.windows(bytes.len()).position(|there| there == bytes).unwrap() + bytes.len() / 2;
    storage.corrupt(&name, at, &[!file[at]]);
}

fn gap(first: u64, last: u64, cause: GapCause) -> Gap {
    Gap { first, last, cause }
}

/// Records of many lengths, most of which lie in one piece.
#[test]
fn quick_way_and_slow_way_find_the_same_records() {
    let (_, queue) = open(&small(), 64 << 10);
    let len = |n: usize| if n.is_multiple_of(12) { 24_000 } else { n * n % 2003 };
    let put = put(&queue, (0..150).map(len));
    let (mut quick, mut slow) = (cursor(&queue), cursor(&queue));
    let mut scratch = Scratch::default();
    let (mut quickly, mut in_pieces) = (0, 0);
    for (seq, bytes) in put.iter().enumerate() {
        let spot = slow.spot();
        quickly += usize::from(quick.find_quickly(&queue.core, Check::Now).is_some());
        let met = quick.find(&queue.core).unwrap().unwrap();
        // A slow cursor reads the record at the fast cursor's spot again, by calls only.
        slow.release();
        let header = slow.find_header(&queue.core).unwrap().unwrap();
        let segment = Arc::clone(slow.segment.as_ref().unwrap());
        let (core, limit) = (&*queue.core, slow.limit);
        let at = Spot { position: spot.position.max(segment.header.base), ..spot };
        let gathered = gather(core, segment, at, limit, Check::Now, &mut scratch).unwrap().unwrap();
        for other in [header, gathered] {
            assert_eq!((met.seq, met.len, met.end), (other.seq, other.len, other.end));
        }
        assert_eq!((met.seq, met.len), (seq as u64, bytes.len() as u64));
        let mut by_calls = Vec::new();
        assert!(scratch.append_to(met.seq, &mut by_calls) && by_calls == *bytes, "{seq} by calls");
        assert_eq!(copy(&mut quick, met).as_ref(), Some(bytes), "{seq} from the window");
        in_pieces += usize::from(met.in_window.is_none());
        quick.advance();
        slow.advance();
        assert_eq!(quick.spot(), slow.spot());
    }
    assert!(quickly > 130 && in_pieces >= 2, "{quickly} quickly, {in_pieces} in pieces");
    assert!(
        quick.find(&queue.core).unwrap().is_none() && slow.find(&queue.core).unwrap().is_none()
    );
}

#[test]
fn damaged_records_are_searched_over_and_reported_as_one_gap() {
    for damaged in [5..6, 7..11, 0..2, 18..20] {
        let (storage, queue) = open(&small(), 64 << 10);
        let put = put(&queue, (0..20).map(|n| 8 + n * n));
        damaged.clone().for_each(|seq| damage(&storage, &put[seq as usize]));
        let mut cursor = cursor(&queue);
        let mut expected: Vec<Result<u64, Gap>> = (0..damaged.start).map(Ok).collect();
        expected.push(Err(gap(damaged.start, damaged.end - 1, GapCause::Damaged)));
        expected.extend((damaged.end..20).map(Ok));
        for expected in expected {
            match take(&queue, &mut cursor) {
                Ok(Some((seq, bytes))) => {
                    assert_eq!((Ok(seq), &bytes), (expected, &put[seq as usize]));
                }
                Ok(None) => panic!("the end, and not {expected:?}"),
                Err(gap) => assert_eq!(Err(gap), expected),
            }
        }
        assert_eq!(take(&queue, &mut cursor), Ok(None));
    }
}

#[test]
fn a_damaged_piece_costs_its_record_alone() {
    let (storage, queue) = open(&small(), 64 << 10);
    // The second one begins in the first segment and ends in the second.
    let put = put(&queue, [40_000, 40_000, 1000]);
    damage(&storage, &put[1][..20_000]);
    let mut cursor = cursor(&queue);
    assert_eq!(take(&queue, &mut cursor), Ok(Some((0, put[0].clone()))));
    assert_eq!(take(&queue, &mut cursor), Err(gap(1, 1, GapCause::Damaged)));
    assert_eq!(take(&queue, &mut cursor), Ok(Some((2, put[2].clone()))));
}

#[test]
fn numbers_are_passed_over_cause_by_cause() {
    let known = vec![gap(10, 14, GapCause::Unflushed), gap(15, 19, GapCause::Reserved)];
    let gaps = Gaps::new(known, Evicted { dropped: 4, expired: 7 });
    let mut spot = Spot { position: 100, seq: 0 };
    let end = Spot { position: 200, seq: 25 };
    let mut reported = Vec::new();
    while let Err(error) = pass_to_end(&mut spot, &gaps, end) {
        let Error::Gap(gap) = error else { panic!("{error}") };
        reported.push(gap);
        let is_all = gap.last == 24;
        assert_eq!(spot, Spot { position: if is_all { 200 } else { 100 }, seq: gap.last + 1 });
    }
    let expected = [
        gap(0, 3, GapCause::Dropped),
        gap(4, 6, GapCause::Expired),
        gap(7, 9, GapCause::Damaged),
        gap(10, 14, GapCause::Unflushed),
        gap(15, 19, GapCause::Reserved),
        gap(20, 24, GapCause::Damaged),
    ];
    assert_eq!(reported, expected);
    // A stated cause applies to all of them.
    spot.seq = 0;
    let reported = pass_to(&mut spot, &gaps, 25, Some(GapCause::Unflushed));
    assert!(
        matches!(reported, Err(Error::Gap(reported)) if reported == gap(0, 24, GapCause::Unflushed))
    );
}

#[test]
fn what_a_segment_states_to_be_missing_before_it_has_the_cause_it_states() {
    let (_, queue) = open(&small(), 64 << 10);
    queue.enqueue(b"the segment is made").unwrap();
    let missing = MissingBefore { gap: 10, reserved: 4, cause: GapCause::Unflushed.number() };
    let header = SegmentHeader { first_seq: 20, missing, ..first_header(&queue) };
    let gaps = Gaps::new(Vec::new(), Evicted::default());
    let mut spot = Spot { position: 0, seq: 5 };
    let causes = [GapCause::Damaged, GapCause::Unflushed, GapCause::Reserved];
    for (cause, (first, last)) in causes.into_iter().zip([(5, 9), (10, 15), (16, 19)]) {
        let reported = pass_to_first(&mut spot, &gaps, &header);
        assert!(
            matches!(reported, Err(Error::Gap(reported)) if reported == gap(first, last, cause))
        );
    }
    pass_to_first(&mut spot, &gaps, &header).unwrap();
    assert_eq!(spot, Spot { position: 0, seq: 20 });
}

#[test]
fn a_record_in_several_pieces_is_gathered_once_and_its_scratch_trimmed() {
    LENGTH_HERE.set(Some(1 << 20));
    let options = Options::new().arena_size(1 << 20).max_bytes(32 << 20);
    let (storage, queue) = open(&options, 1 << 20);
    let put = put(&queue, [100, 1_300_000, TRIM_ABOVE + 1, 50]);
    let mut cursor = cursor(&queue);
    assert_eq!(take(&queue, &mut cursor), Ok(Some((0, put[0].clone()))));
    let reads = || storage.call_count(Call::Read);

    // The payload is read once, whatever the number of looks. A read that steps over it gets its
    // memory.
    let record = cursor.meet(&queue.core, Check::Later).unwrap().unwrap();
    cursor.remember(record);
    assert_eq!((record.in_window, record.len), (None, 1_300_000));
    let before = reads();
    assert_eq!(copy(&mut cursor, record).as_ref(), Some(&put[1]));
    assert!(cursor.meet(&queue.core, Check::Now).unwrap().is_some());
    let mut out = Vec::with_capacity(10);
    assert!(cursor.copy_to(record, Then::StepsOver, &mut out) && out == put[1]);
    assert_eq!(reads(), before);
    // A payload that a read took is read again.
    assert!(!cursor.copy_to(record, Then::StepsOver, &mut out) && out.is_empty());
    let record = cursor.meet(&queue.core, Check::Now).unwrap().unwrap();
    assert!(reads() > before);
    assert_eq!(cursor.take_gathered(record.seq), Some((put[1].clone(), None)));
    assert_eq!(cursor.take_gathered(record.seq), None);
    cursor.take_crossed();
    cursor.step_over(record);
    assert!(cursor.take_crossed(), "the segment of its first piece is behind");

    // The scratch does not keep the memory of a long payload, and does not mistake earlier bytes
    // for it.
    let record = cursor.find(&queue.core).unwrap().unwrap();
    assert!(cursor.scratch.is_of(2));
    assert_eq!(copy(&mut cursor, record).as_ref(), Some(&put[2]));
    assert!(cursor.scratch.capacity() == 0 && !cursor.scratch.is_of(2));
    cursor.advance();
    assert_eq!(take(&queue, &mut cursor), Ok(Some((3, put[3].clone()))));
}

/// The file system has no shared mappings, or the process may not have more of them.
#[test]
fn where_nothing_is_mapped_messages_go_in_and_out_by_calls() {
    for errno in [rustix::io::Errno::NODEV, rustix::io::Errno::NOMEM, rustix::io::Errno::AGAIN] {
        let (storage, queue) = open(&small(), 64 << 10);
        let mut put = put(&queue, [100, 9000, 0]);
        queue.core.pool.detach(&(std::sync::Arc::new(()) as std::sync::Arc<dyn Send + Sync>));
        storage.fail_after(Call::Map, 1, errno, true);
        for len in [100, 9000, 70_000] {
            put.push(payload(put.len() as u64, len));
            queue.enqueue(put.last().unwrap()).unwrap();
        }
        let mut cursor = cursor(&queue);
        for (seq, bytes) in (0..).zip(put) {
            assert_eq!(take(&queue, &mut cursor), Ok(Some((seq, bytes))), "{errno}");
        }
        storage.clear_faults();
    }
}

#[test]
fn with_short_windows_a_backlog_is_read_ahead_and_its_buffer_used_again() {
    let options = Options::new().arena_size(4096).max_mapped_arenas(4).max_bytes(512 << 10);
    let (storage, queue) = open(&options, 64 << 10);
    let mut put = put(&queue, (0..100).map(|n| 700 + n));
    let mut cursor = cursor(&queue);
    let (reads, maps) = (storage.call_count(Call::Read), storage.call_count(Call::Map));
    let mut ahead = 0;
    for (seq, bytes) in put.iter().enumerate() {
        let record = cursor.find(&queue.core).unwrap().unwrap();
        let is_backlog = cursor.limit - cursor.spot.position >= 4096 + 1000;
        if is_backlog && record.in_window.is_some() {
            ahead += 1;
            assert!(!cursor.may_lend() && cursor.view.is_ahead(), "{seq}");
        }
        assert_eq!(copy(&mut cursor, record).as_ref(), Some(bytes), "{seq}");
        cursor.advance();
    }
    let (reads, maps) =
        (storage.call_count(Call::Read) - reads, storage.call_count(Call::Map) - maps);
    assert!(ahead > 90 && reads < 20 && maps <= 3, "{ahead} by {reads} reads, {maps} maps");
    assert!(cursor.find(&queue.core).unwrap().is_none());

    // A single message is read from a window, and may be lent from it.
    put.push(payload(100, 500));
    queue.enqueue(&put[100]).unwrap();
    cursor.release();
    assert!(cursor.view.has_buffer());
    assert!(cursor.find(&queue.core).unwrap().unwrap().in_window.is_some());
    assert!(cursor.may_lend() && !cursor.view.is_ahead() && cursor.view.has_buffer());
    assert_eq!(take(&queue, &mut cursor), Ok(Some((100, put[100].clone()))));
}

#[test]
fn check_later_notices_a_payload_that_changed() {
    let (storage, queue) = open(&small(), 64 << 10);
    let put = put(&queue, [300, 400, 500]);
    let mut cursor = cursor(&queue);
    assert_eq!(take(&queue, &mut cursor), Ok(Some((0, put[0].clone()))));

    let met = cursor.meet(&queue.core, Check::Later).unwrap().unwrap();
    assert!(met.seq == 1 && !cursor.verified);
    damage(&storage, &put[1]);
    assert_eq!(copy(&mut cursor, met), None);
    let mut out = vec![1; 9];
    assert!(!cursor.copy_to(met, Then::StepsOver, &mut out) && out.is_empty());
    #[cfg(feature = "capi")]
    assert!(!cursor.copy_into(met, &mut [0; 400]) && !cursor.is_verified());
    // A read of the header alone does not find the damage.
    assert_eq!(cursor.meet(&queue.core, Check::Never).unwrap().map(|met| met.seq), Some(1));

    // A read that fails to deliver it finds it again and verifies it.
    let reported = cursor.meet(&queue.core, Check::Now).unwrap_err();
    assert!(matches!(*reported, Error::Gap(reported) if reported == gap(1, 1, GapCause::Damaged)));
    let met = cursor.meet(&queue.core, Check::Later).unwrap().unwrap();
    cursor.remember(met);
    assert_eq!(copy(&mut cursor, met).as_ref(), Some(&put[2]));
    assert!(cursor.verified, "by the copy: it is not checked again");
    assert!(cursor.is_at_hand(met, Check::Now));
}

#[test]
fn a_cursor_that_is_released_holds_nothing_and_stays_where_it_is() {
    let (_, queue) = open(&small(), 64 << 10);
    let put = put(&queue, [300, 400]);
    let mut cursor = cursor(&queue);
    let record = cursor.find(&queue.core).unwrap().unwrap();
    let header = first_header(&queue);
    let offset = cursor.spot.position - header.base + SEGMENT_HEADER_LEN + 16;
    assert_eq!(record.in_window, Some(offset as usize));
    assert_eq!(cursor.segment_life(), Some(header.life));
    assert!(cursor.window().is_some() && cursor.may_lend());
    let spot = cursor.spot();
    cursor.release();
    assert_eq!((cursor.segment_life(), cursor.spot()), (None, spot));
    assert!(cursor.window().is_none() && cursor.found.is_none() && !cursor.may_lend());
    assert_eq!(take(&queue, &mut cursor), Ok(Some((0, put[0].clone()))));
}

#[test]
fn a_damaged_long_piece_of_a_record_is_not_delivered() {
    let (storage, queue) = open(&Options::new().arena_size(1 << 20).max_bytes(8 << 20), 1 << 20);
    let put = put(&queue, [1_600_000, 10]);
    // A byte of the second piece, which is copied from a window.
    let (name, at) = (segment_name(1), 300_000);
    let reads = storage.call_count(Call::Read);
    assert_eq!(take(&queue, &mut cursor(&queue)), Ok(Some((0, put[0].clone()))));
    assert!(storage.call_count(Call::Read) - reads < 10, "pieces are read by calls");
    storage.corrupt(&name, at, &[!storage.read_file(&name)[at]]);
    let mut cursor = cursor(&queue);
    assert_eq!(take(&queue, &mut cursor), Err(gap(0, 0, GapCause::Damaged)));
    assert_eq!(take(&queue, &mut cursor), Ok(Some((1, put[1].clone()))));
}

#[test]
fn a_long_piece_in_a_segment_of_an_earlier_run_that_is_longer_than_a_window_is_read_by_calls() {
    LENGTH_HERE.set(Some(512 << 10));
    let (storage, queue) = open(&Options::new().arena_size(512 << 10), 512 << 10);
    let put = put(&queue, [800_000, 10]);
    queue.close().unwrap();
    LENGTH_HERE.set(Some(64 << 10));
    let queue =
        Engine::open_without_workers(storage, &Options::new().arena_size(64 << 10)).unwrap();
    let mut cursor = cursor(&queue);
    for (seq, bytes) in put.into_iter().enumerate() {
        assert_eq!(take(&queue, &mut cursor), Ok(Some((seq as u64, bytes))));
    }
}
