//! Bytes that a later release may have stored in the index stay: reserved bytes, and rows of a kind
//! that is unknown here.

use crate::consume::step::Read;
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::format::{
    CONSUMER_ROWS, ConsumerAt, EXTENT_ROW_LEN, Extent, ExtentKind, INDEX_NAME, SECTOR, index_at,
};
use crate::options::Options;
use crate::tests::sim::SimStorage;

type Queue = Engine<SimStorage>;

fn options() -> Options {
    Options::new().arena_size(4096).max_bytes(1 << 20)
}

fn open(storage: SimStorage) -> Queue {
    Engine::open_without_workers(storage, &options()).unwrap()
}

/// Takes a message, if there is one. After a power cut numbers may have been reserved in vain;
/// nothing is damaged.
fn take(queue: &Queue, name: &str) {
    let consumer = queue.consumer(name).unwrap();
    match reading::next(queue, &consumer, Read::Take) {
        Ok(_) | Err(Error::Gap(Gap { cause: GapCause::Reserved, .. })) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Zero in what this release writes, by the tables of docs/format.md: beginning and length.
const RESERVED: [(usize, usize); 10] = [
    (64, 960),
    (1216, 832),
    (4288, 320),
    (index_at::UNREPORTED, SECTOR),
    (index_at::ATTEMPTS, 4 * SECTOR),
    (index_at::LIVE + 44, 4),
    (index_at::LIVE + 56, 8),
    (index_at::LIVE + 88, 40),
    (index_at::LIVE + 432, 80),
    (2560, 1536),
];

/// The four bytes behind each slot of the default consumer's place.
fn behind_slots() -> [(usize, usize); 2] {
    let pair = index_at::CONSUMERS + ConsumerAt::new(0, CONSUMER_ROWS as u32).pair;
    [(pair + 28, 4), (pair + 60, 4)]
}

fn ranges() -> impl Iterator<Item = (usize, usize)> {
    RESERVED.into_iter().chain(behind_slots())
}

/// All that a queue does to its index.
fn use_all_of(queue: &Queue, round: usize) {
    for number in 0..30u8 {
        queue.enqueue(&[number; 1000]).unwrap();
    }
    for _ in 0..70 {
        take(queue, "");
    }
    for number in 0..CONSUMER_ROWS {
        take(queue, &format!("{round} {number}"));
    }
    queue.remove_consumer(&format!("{round} 7")).unwrap();
    queue.core.flush().unwrap();
}

#[test]
fn reserved_bytes_are_zero_and_those_of_a_later_release_stay_over_every_opening() {
    let storage = SimStorage::new(5);
    let queue = open(storage.clone());
    use_all_of(&queue, 0);
    let bytes = storage.read_file(INDEX_NAME);
    for (at, len) in ranges() {
        assert!(
            bytes[at..at + len].iter().all(|byte| *byte == 0),
            "{len} bytes at {at} are not zero"
        );
    }
    let mut disk = storage.process_kill();
    for (at, len) in ranges() {
        disk.corrupt(INDEX_NAME, at, &vec![0xee; len]);
    }
    for round in 1..5 {
        let queue = open(disk.clone());
        use_all_of(&queue, round);
        disk = match round {
            1 => disk.process_kill(),
            2 => disk.power_cut_losing_all(),
            3 => disk.mounted_again(3),
            _ => {
                queue.close().unwrap();
                disk.copied()
            }
        };
        let bytes = disk.read_file(INDEX_NAME);
        for (at, len) in ranges() {
            assert!(
                bytes[at..at + len].iter().all(|byte| *byte == 0xee),
                "round {round}: {len} bytes at {at}"
            );
        }
    }
}

#[test]
fn an_extent_of_an_unknown_kind_stays_and_others_are_added_behind_it() {
    let storage = SimStorage::new(6);
    let queue = open(storage.clone());
    queue.enqueue(b"a message").unwrap();
    let queue_id = queue.core.index.queue_id;
    queue.close().unwrap();
    drop(queue);
    // Eight rows of 512 bytes, behind the end.
    let mut bytes = storage.read_file(INDEX_NAME);
    let later = Extent { kind: ExtentKind::Later(4), offset: index_at::END as u32, rows: 8 };
    bytes[index_at::EXTENTS..][..EXTENT_ROW_LEN].copy_from_slice(&later.encode(&queue_id));
    bytes.truncate(index_at::END);
    bytes.extend([0xab; 8 * SECTOR]);
    storage.write_file(INDEX_NAME, &bytes);
    let mut disk = storage;
    for round in 0..4 {
        let queue = open(disk.clone());
        // More consumers than there are rows for: an extent is added.
        use_all_of(&queue, round);
        let names = queue.consumer_names().len();
        assert!(names >= (round + 1) * (CONSUMER_ROWS - 1), "round {round}: {names} consumers");
        disk = match round {
            0 => disk.process_kill(),
            1 => disk.power_cut_losing_all(),
            _ => {
                queue.close().unwrap();
                disk.copied()
            }
        };
        let bytes = disk.read_file(INDEX_NAME);
        let added =
            Extent::decode(&bytes[index_at::EXTENTS + EXTENT_ROW_LEN..], &queue_id).unwrap();
        assert_eq!(added.kind, ExtentKind::Consumers);
        assert!(added.offset as usize >= index_at::END + 8 * SECTOR, "round {round}");
        assert_eq!(
            Extent::decode(&bytes[index_at::EXTENTS..], &queue_id),
            Some(later),
            "round {round}"
        );
        assert!(
            bytes[index_at::END..][..8 * SECTOR].iter().all(|byte| *byte == 0xab),
            "round {round}"
        );
    }
}
