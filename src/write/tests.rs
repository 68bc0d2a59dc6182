//! The writer over a simulated disk: which bytes it stores, and what a rollback undoes.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Writer;
use super::tail::STRIDE;
use crate::engine::Engine;
use crate::format::{
    Batch, FRAGMENT_HEADER_LEN, Fragment, FragmentWords, Kind, SEAL_LEN, SEGMENT_HEADER_LEN, Spot,
    segment_name,
};
use crate::index::run::Next;
use crate::memory::checksum;
use crate::options::Options;
use crate::segment::Row;
use crate::segment::geometry::LENGTH_HERE;
use crate::state::State;
use crate::storage::Stores;
use crate::tests::in_parts;
use crate::tests::schedule::ranks::other_queues;
use crate::tests::sim::{SYNCS, SimFile, SimStorage, meanwhile};

fn options() -> Options {
    LENGTH_HERE.set(Some(64 << 10));
    Options::new().arena_size(16 << 10).max_bytes(512 << 10)
}

/// A storage that draws the same salts as every other one with this seed.
fn disk() -> SimStorage {
    SimStorage::new(7).with_file_capacity(16 << 20)
}

fn open(storage: &SimStorage, options: &Options) -> Engine<SimStorage> {
    Engine::open_without_workers(storage.clone(), options).unwrap()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

/// The segments of a queue, the oldest first, and the bytes of their files before the tail.
fn segments(engine: &Engine<SimStorage>, tail: Spot) -> Vec<(Row, Vec<u8>)> {
    let rows: Vec<Row> = engine.core.segments.list().live.iter().copied().collect();
    let bytes = |row: &Row| {
        let end = SEGMENT_HEADER_LEN + row.header.end().min(tail.position) - row.header.base;
        let mut bytes = engine.core.storage.read_file(&segment_name(row.slot));
        bytes.truncate(end as usize);
        bytes
    };
    rows.into_iter().map(|row| (row, bytes(&row))).collect()
}

/// A fragment stored in a file.
#[derive(Debug)]
struct Stored {
    header: Fragment,
    sum: u32,
    payload: Vec<u8>,
    seal: Option<u64>,
}

/// Every fragment before the tail. Checks each, with the checksum of the fragment before it where
/// it continues a record.
fn fragments(engine: &Engine<SimStorage>, tail: Spot) -> Vec<Stored> {
    let mut found: Vec<Stored> = Vec::new();
    for (row, bytes) in segments(engine, tail) {
        let mut at = SEGMENT_HEADER_LEN as usize;
        while bytes.len() - at >= FRAGMENT_HEADER_LEN as usize {
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let words = FragmentWords(word(at), word(at + 8));
            let offset = at as u64 - SEGMENT_HEADER_LEN;
            let (header, seeded) =
                Fragment::decode(words, row.header.seed(), offset).expect("a fragment");
            if header.kind == Kind::Padding {
                break;
            }
            let chain = match header.kind {
                Kind::Middle | Kind::Last => found.last().expect("a fragment before it").sum,
                _ => 0,
            };
            let from = at + FRAGMENT_HEADER_LEN as usize;
            let payload = bytes[from..from + header.len as usize].to_vec();
            let sum = crate::format::with_payload(seeded ^ chain, checksum::sum(0, &payload));
            assert_eq!(words.sum(), sum, "{header:?}");
            let seal = header.seal_at().map(|seal_at| word(at + seal_at as usize));
            found.push(Stored { header, sum, payload, seal });
            at += header.total_len() as usize;
        }
    }
    found
}

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Through the window, on the fast path.
    Quick,
    /// Through the window, with the fast path closed before each message.
    Slow,
    ByCall,
    /// Through the window, on the fast path, in parts.
    Parts,
}

fn put(
    way: Way,
    writer: &mut Writer<SimFile>,
    state: &State<SimStorage>,
    payload: &[u8],
    batch: Batch,
) {
    if way == Way::Slow {
        writer.stop();
    }
    writer.push(state, payload, batch).unwrap();
}

#[test]
fn every_way_leaves_the_same_bytes() {
    // The message of 30,000 bytes is cut in two, the one of 140,000 bytes in three.
    let lens = [0, 1, 7, 8, 9, 500, 100, 60, 4080, 4081, 40_000, 100, 50, 30_000, 140_000, 100, 0];
    let all = [Way::Quick, Way::Slow, Way::ByCall, Way::Parts];
    let mut left = Vec::new();
    for way in all {
        let storage = disk();
        if way == Way::ByCall {
            storage.set_stores(Stores::ByCall);
        }
        let engine = open(&storage, &options());
        let (core, mut quick) = (&*engine.core, 0);
        let mut writer = core.writer.lock();
        for len in lens {
            let payload = content(len);
            let is_put = match way {
                Way::Quick => writer.push_quickly(&payload[..]),
                Way::Parts => writer.push_quickly(&in_parts(&payload)[..]),
                Way::Slow | Way::ByCall => false,
            };
            quick += usize::from(is_put);
            if !is_put {
                put(way, &mut writer, core, &payload, Batch::default());
            }
            writer.commit(core).unwrap();
        }
        for batch in [2, 30] {
            for index in 0..batch {
                put(way, &mut writer, core, &content(100 * index), Batch::of(index, batch));
            }
            writer.commit(core).unwrap();
        }
        let is_quick = matches!(way, Way::Quick | Way::Parts);
        assert!(!is_quick || quick > lens.len() / 2, "only {quick} went the quick way");
        let tail = core.committed().spot();
        assert_eq!(tail.seq, lens.len() as u64 + 32);
        drop(writer);
        let payloads =
            fragments(&engine, tail).iter().map(|found| found.payload.len()).sum::<usize>();
        assert_eq!(payloads, lens.iter().sum::<usize>() + 100 + 100 * 29 * 15, "{way:?}");
        left.push((
            way,
            tail,
            segments(&engine, tail).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(),
        ));
    }
    let (_, tail, files) = &left[0];
    assert!(files.len() > 3);
    for (way, its_tail, its_files) in &left[1..] {
        assert_eq!(its_tail, tail, "{way:?}");
        for (its, file) in its_files.iter().zip(files) {
            let differs = its.iter().zip(file).position(|(a, b)| a != b);
            assert_eq!((differs, its.len()), (None, file.len()), "{way:?}");
        }
    }
}

#[test]
fn what_is_rolled_back_leaves_the_tail_and_is_cleared() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        let storage = disk();
        storage.set_stores(stores);
        let engine = open(&storage, &options());
        let core = &*engine.core;
        let mut writer = core.writer.lock();
        writer.push(core, b"kept", Batch::default()).unwrap();
        let tail = writer.commit(core).unwrap();
        // A single message, a batch, and a batch that begins three segments.
        for lens in [&[100][..], &[0, 30_000, 1], &[5, 140_000, 5]] {
            for (index, len) in lens.iter().enumerate() {
                writer.push(core, &content(*len), Batch::of(index, lens.len())).unwrap();
            }
            writer.roll_back(core);
            assert_eq!((writer.tail.at, core.committed().spot()), (tail, tail));
            assert!(writer.is_cleared(core));
            let list = core.segments.list();
            assert_eq!(list.live.len(), 1, "segments that were begun go");
            let row = list.live[0];
            drop(list);
            let at = (SEGMENT_HEADER_LEN + tail.position - row.header.base) as usize;
            let bytes = storage.read_file(&segment_name(row.slot));
            assert_eq!(
                bytes[at..at + FRAGMENT_HEADER_LEN as usize],
                [0; 16],
                "{stores:?} {lens:?}"
            );
        }
        writer.push(core, b"next", Batch::default()).unwrap();
        let tail = writer.commit(core).unwrap();
        drop(writer);
        let payloads: Vec<Vec<u8>> =
            fragments(&engine, tail).into_iter().map(|found| found.payload).collect();
        assert_eq!((tail.seq, payloads), (2, vec![b"kept".to_vec(), b"next".to_vec()]));
    }
}

/// After the tail's segment was evicted: when the record that begins the next segment is rejected,
/// the next record begins it at the same position, and the index says so.
#[test]
fn a_segment_that_was_to_follow_is_to_follow_again_when_its_first_record_is_rolled_back() {
    let storage = disk();
    let engine = open(&storage, &options());
    let core = &*engine.core;
    let mut writer = core.writer.lock();
    writer.push(core, b"given up", Batch::default()).unwrap();
    let tail = writer.commit(core).unwrap();
    let base = core.segments.list().live[0].header.end();
    writer.begin_anew(core, base);
    let next = Some(Next { base, seq: 1, ..Next::default() });
    for _ in 0..2 {
        assert_eq!((writer.pending_segment.next(), core.committed().spot()), (next, tail));
        writer.push(core, b"refused", Batch::default()).unwrap();
        assert_eq!((writer.pending_segment.next(), writer.tail.at.position > base), (None, true));
        core.index.set_next(None);
        writer.roll_back(core);
        let _other = other_queues();
        let after_a_kill = open(&storage.process_kill(), &options());
        assert_eq!(after_a_kill.core.writer.lock().pending_segment.next(), next);
    }
    writer.push(core, b"taken", Batch::default()).unwrap();
    assert!(writer.commit(core).unwrap().position > base);
}

/// The seal of a batch whose fragments have these checksums.
fn seal_of(sums: impl Iterator<Item = u32>) -> u64 {
    sums.fold(0, |seal, sum| checksum::checksum_words(seal, [sum.into()])).into()
}

#[test]
fn a_record_longer_than_a_segment_is_cut_and_the_seal_lies_behind_the_last_piece() {
    let engine = open(&disk(), &options());
    engine.enqueue(b"").unwrap();
    let capacity = engine.core.segments.list().live[0].header.capacity() as usize;
    let head = FRAGMENT_HEADER_LEN as usize;
    // The rest of the first segment behind the batch's first record, which takes 24 bytes.
    let first = capacity - 24 - head;
    for stores in [Stores::ByMap, Stores::ByCall] {
        // The lengths of the pieces of the batch's last record.
        for pieces in [
            vec![first, capacity - head, 1000],
            // The last piece and the seal fill a segment.
            vec![first, capacity - head - SEAL_LEN as usize],
            // There would be no room for the seal: it takes the last byte to the next segment.
            vec![first, capacity - head - 1, 1],
        ] {
            let storage = disk();
            storage.set_stores(stores);
            let engine = open(&storage, &options());
            let record = content(pieces.iter().sum());
            engine.enqueue_batch(&[&b"short"[..], &record]).unwrap();
            let found = fragments(&engine, engine.core.committed_spot());
            let lens: Vec<usize> = found.iter().map(|found| found.payload.len()).collect();
            assert_eq!(lens[1..], pieces, "{stores:?}");
            let kinds: Vec<Kind> = found.iter().map(|found| found.header.kind).collect();
            let middle = iter::repeat_n(Kind::Middle, pieces.len() - 2);
            assert!(
                kinds
                    .into_iter()
                    .eq([Kind::Whole, Kind::First].into_iter().chain(middle).chain([Kind::Last]))
            );
            assert_eq!(
                found[1..].iter().flat_map(|found| found.payload.clone()).collect::<Vec<_>>(),
                record
            );
            let (last, before) = found.split_last().unwrap();
            assert_eq!(last.seal, Some(seal_of(found.iter().map(|found| found.sum))));
            assert!(before.iter().all(|found| found.seal.is_none()));
            let batch =
                |found: &Stored| (found.header.seq, found.header.more, found.header.continues);
            assert_eq!(batch(&found[0]), (0, true, false));
            assert!(found[1..].iter().all(|found| batch(found) == (1, false, true)));
        }
    }
}

/// A reservation is on disk before the writer assigns any number beyond the last one: also when the
/// messages are the shortest, and a whole stride of them takes the fast path before the next check.
/// A run that makes each message durable at once needs no reservation.
/// The short rest of a long record goes by a call: the next long record would overwrite zeros that
/// were written behind it.
#[test]
fn behind_a_long_record_no_space_is_filled_with_zeros() {
    LENGTH_HERE.set(Some(256 << 10));
    let storage = disk();
    storage.set_stores(Stores::ByMap);
    let engine = open(&storage, &Options::new().arena_size(16 << 10));
    let filled = || {
        let mut list = engine.core.segments.list();
        let row = *list.live.back().expect("a segment");
        list.open(&storage, &row).expect("its file").filled()
    };
    // Two records end about 1000 bytes within the second segment.
    for _ in 0..2 {
        engine.enqueue(&content((128 << 10) + 400)).unwrap();
    }
    assert_eq!(engine.core.segments.list().live.len(), 2);
    assert!(filled() <= crate::memory::page_size(), "{}", filled());
    engine.enqueue(&content(100)).unwrap();
    assert!(filled() > crate::memory::page_size());
}

#[test]
fn a_run_without_a_reservation_keeps_that_of_the_run_before() {
    let storage = disk();
    let engine = open(&storage, &options());
    engine.enqueue(b"one").unwrap();
    let before = engine.core.index.checkpoint().reservation;
    let engine = open(&storage.process_kill(), &options().flush_every_ops(1));
    engine.enqueue(b"two").unwrap();
    assert!(before > 1 && engine.core.index.checkpoint().reservation >= before);
}

#[test]
fn a_reservation_is_on_disk_before_a_number_at_it_is_given_out() {
    // The first number of the next run after a power cut that loses everything not synced.
    let reservation = |storage: &SimStorage| {
        let _other = other_queues();
        open(&storage.power_cut_losing_all(), &options()).core.committed_spot().seq
    };
    // How many of the shortest messages fit a stride.
    let most = STRIDE / FRAGMENT_HEADER_LEN;
    let mut renewed = 0;
    for before in [most + 3, most + 2, most + 1, most, 1] {
        let storage = disk();
        let engine = open(&storage, &options());
        let core = &*engine.core;
        let mut writer = core.writer.lock();
        writer.push(core, b"", Batch::default()).unwrap();
        let first = reservation(&storage);
        assert!(first > most, "the first number is not committed yet");
        writer.commit(core).unwrap();
        // Many numbers later.
        writer.tail.at.seq = first - before;
        writer.commit(core).unwrap();
        writer.stop();
        writer.push(core, b"", Batch::default()).unwrap();
        let second = reservation(&storage);
        renewed += u64::from(second > first);
        assert!(second >= writer.tail.at.seq + most, "{before} before its end");
        writer.commit(core).unwrap();
    }
    assert_eq!(renewed, 2, "it is renewed when it must be, and no sooner");
}

/// When half of the reservation is used, the writer asks the storage worker to reserve more without
/// waiting, and no number counts as reserved before it is on disk.
#[test]
fn a_reservation_is_renewed_ahead_of_need_and_by_the_storage_worker() {
    let storage = disk();
    let engine = Arc::new(open(&storage, &options()));
    let core = &*engine.core;
    engine.enqueue(b"").unwrap();
    // From here on there is a storage worker, which is this thread.
    core.storage_worker.note_begin();
    let first = core.reserved.load(Ordering::Acquire);
    let syncs = SYNCS.get();
    let push_at = |seq: u64| {
        let mut writer = core.writer.lock();
        writer.tail.at.seq = seq;
        writer.stop();
        writer.push(core, b"", Batch::default()).unwrap();
        writer.commit(core).unwrap();
        core.storage_worker.requests().wanted.reservation.take()
    };
    assert_eq!(push_at(first / 2), None);
    let asked = push_at(first / 2 + 1).unwrap();
    assert_eq!((asked > first, SYNCS.get()), (true, syncs));
    let (keeper, disk) = (Arc::clone(&engine), storage.clone());
    meanwhile("before a reservation is on the disk", move || {
        let cut = open(&disk.power_cut_losing_all(), &options());
        let next = cut.core.committed_spot().seq;
        assert!(keeper.core.reserved.load(Ordering::Acquire) <= next);
    });
    core.reserve(asked).unwrap();
    assert_eq!((push_at(first), core.reserved.load(Ordering::Acquire)), (None, asked));
    core.storage_worker.leave();
}
