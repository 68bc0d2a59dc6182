//! Consumers whose place cannot be read any more: nothing that they have not read goes.

use super::{Queue, roomy};
use crate::consume::step::Read;
use crate::engine::reading;
use crate::format::SECTOR;
use crate::index::image::UNREADABLE;
use crate::options::{Options, Start};
use crate::tests::crash::directed::{breaks, disk, fine, kept, take_all_of};
use crate::tests::crash::examine::{consumer_of, next_of, open};
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::effort::some_of;
use crate::tests::sim::{Mutant, SimStorage};

const MESSAGES: u64 = 40;
/// More than the first extent has rows for.
const CONSUMERS: usize = 70;
const PAGE: usize = 4096;

fn limits() -> Options {
    roomy().max_bytes(512 << 10)
}

/// Names that fit into the copy of a place, and longer ones.
fn name(number: usize) -> String {
    match number {
        0 => String::new(),
        _ if number.is_multiple_of(2) => format!("consumer {number}"),
        _ => format!("consumer {number} with a name of more than thirty-five bytes"),
    }
}

fn read(queue: &Queue, name: &str, count: u64) {
    let consumer = consumer_of(queue, name).unwrap();
    for _ in 0..count {
        reading::next(queue, &consumer, Read::Take).unwrap().unwrap();
    }
}

/// Forty messages in several segments, which every consumer but the one of this number has read.
fn left(number: usize) -> SimStorage {
    let queue = open(SimStorage::new(1).with_file_capacity(128 << 10), &limits()).unwrap();
    let names: Vec<_> = (0..CONSUMERS).map(name).collect();
    for name in &names {
        queue.consumer_at(name, Start::Oldest).unwrap();
    }
    for number in 0..MESSAGES {
        queue.enqueue(&content(number, 700)).unwrap();
    }
    for (at, name) in names.iter().enumerate() {
        read(&queue, name, if at == number { 2 } else { MESSAGES });
    }
    queue.core.flush().unwrap();
    queue.close().unwrap();
    queue.core.storage.process_kill()
}

/// The consumer of this number, made again if need be, gets all that it has not read, whatever is
/// done to the queue before it comes.
fn check_all_comes(storage: SimStorage, number: usize, what: &str) -> Check {
    let mut storage = storage;
    for end in 0..2 {
        let queue = open(storage, &limits())?;
        queue.enqueue(&content(1000 + end, 700)).map_err(|error| error.to_string())?;
        queue.core.flush().map_err(|error| error.to_string())?;
        queue.close().map_err(|error| error.to_string())?;
        storage = queue.core.storage.process_kill();
    }
    let queue = open(storage, &limits())?;
    let taken = take_all_of(&queue, &name(number))?;
    let numbers: Vec<_> = taken.iter().flatten().map(|(number, _)| *number).collect();
    ensure!(
        (2..MESSAGES).all(|number| numbers.contains(&number)),
        "{what}: consumer {number} gets {numbers:?}, and these: {:?}",
        queue.consumer_names()
    );
    Ok(())
}

/// What becomes of these bytes of the index.
fn damages(bytes: &[u8], at: usize) -> Vec<(&'static str, Vec<u8>)> {
    let used: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let flipped = (0..3).filter_map(|seed: usize| {
        let mut flipped = bytes.to_vec();
        flipped[*used.get((seed * 7 + at / bytes.len()) % used.len().max(1))?] ^= 1 << (2 * seed);
        Some(("a bit", flipped))
    });
    let len = bytes.len();
    flipped.chain([("garbage", vec![0xa5; len]), ("zeros", vec![0; len])]).collect()
}

/// Damages `len` bytes at `at` in one of `few` ways, or in each.
fn is_damaged(
    storage: &SimStorage,
    victim: usize,
    (at, len): (usize, usize),
    (few, shift): (u64, u64),
) -> Check<u64> {
    let bytes = storage.read_file("index");
    let damages = damages(&bytes[at..at + len], at);
    let mut images = 0;
    for way in some_of(0..=damages.len() as u64, few, shift) {
        images += 1;
        let image = storage.process_kill();
        let what = match damages.get(way as usize) {
            Some((what, damaged)) => {
                image.corrupt("index", at, damaged);
                what
            }
            None => {
                image.make_unreadable("index", at..at + len);
                "unreadable"
            }
        };
        check_all_comes(image, victim, &format!("{what}: {len} bytes at {at}"))?;
    }
    Ok(images)
}

/// One sector of a disk, which may be as long as a page: those where a victim's places lie, and
/// some of the others.
#[test]
fn a_damaged_sector_of_the_index_costs_no_consumer_a_message() {
    let victims = [69, 68, 5, 4, 0];
    let storages = victims.map(left);
    let indexes = storages.each_ref().map(|storage| storage.read_file("index"));
    for len in [SECTOR, PAGE] {
        kept(|number, images| {
            let (which, sector) = (number % 5, number / 5);
            let (index, at) = (&indexes[which as usize], sector as usize * len);
            let is_others = |other: &Vec<u8>| other[at..at + len] == index[at..at + len];
            let has_its_places = indexes.iter().filter(|other| is_others(other)).count() == 1;
            // There are up to six ways: each victim, and each sector, meets all that are left out.
            let ways = (if has_its_places { 2 } else { 6 }, 5 * (sector + which));
            let (storage, victim) = (&storages[which as usize], victims[which as usize]);
            *images += is_damaged(storage, victim, (at, len), ways)?;
            Ok(at + len < index.len() || which != 4)
        });
    }
}

/// The index ends at this page, or within the one before.
#[test]
fn an_index_that_was_cut_costs_no_consumer_a_message() {
    let victims = [69, 5];
    let storages = victims.map(left);
    kept(|number, images| {
        let (victim, storage) = (victims[number as usize % 2], &storages[number as usize % 2]);
        let bytes = storage.read_file("index");
        for len in [number as usize / 2 * PAGE + 100, number as usize / 2 * PAGE] {
            *images += 1;
            let cut = storage.process_kill();
            cut.write_file("index", &bytes[..len.min(bytes.len())]);
            check_all_comes(cut, victim, &format!("cut to {len}"))?;
        }
        Ok(number as usize / 2 * PAGE < bytes.len())
    });
}

/// Power is cut while consumers are made: nothing shows of those that were not flushed.
#[test]
fn a_power_cut_is_not_taken_for_damage() {
    let all: Vec<String> = (1..150).map(name).collect();
    let history = |number: u64, images: &mut u64| {
        let storage = SimStorage::new(number).with_file_capacity(128 << 10);
        let queue = open(storage.clone(), &limits())?;
        (1..62).try_for_each(|at| fine(queue.consumer(&name(2 * at))).map(drop))?;
        fine(queue.core.flush())?;
        storage.freeze_at_store(1 + number);
        let made = (0..6).try_for_each(|at| queue.consumer(&name(63 + at)).map(drop));
        storage.disarm();
        fine(made)?;
        let Some(dead) = storage.frozen() else { return Ok(false) };
        for cut in some_of(0..30, 6, number) {
            *images += 1;
            let queue = open(dead.power_cut(cut), &limits())?;
            let (names, files) = (queue.consumer_names(), queue.core.storage.file_names());
            let is_one = |name: &String| all.contains(name);
            ensure!(names.iter().all(is_one), "store {number}, cut {cut}: {names:?}");
            let aside = files.iter().find(|name| name.ends_with(".damaged"));
            ensure!(aside.is_none(), "store {number}, cut {cut}: {files:?}");
        }
        Ok(true)
    };
    let images = kept(history);
    for mutant in [Mutant::ConsumersNamedUnsynced, Mutant::LongNameNotSynced] {
        breaks(mutant, images, history);
    }
}

/// A consumer with a long name is removed, and power is cut: it is there or not, and nothing is
/// damaged.
#[test]
fn a_removal_that_is_cut_is_not_taken_for_damage() {
    kept(|number, images| {
        let queue = open(disk(number), &limits())?;
        fine(queue.consumer(&name(1)).and(queue.consumer(&name(3))))?;
        fine(queue.enqueue(b"a message"))?;
        fine(queue.core.flush())?;
        fine(queue.remove_consumer(&name(3)))?;
        *images += 1;
        let queue = open(queue.core.storage.power_cut(number), &limits())?;
        let names = queue.consumer_names();
        ensure!(names.iter().all(|one| [name(1), name(3)].contains(one)), "{number}: {names:?}");
        Ok(number < 400)
    });
}

/// One bit makes a long name that of another consumer, which stays where it is.
#[test]
fn a_damaged_name_moves_no_other_consumer() {
    let queue = open(disk(1), &limits()).unwrap();
    let (early, late) = (name(11), name(13));
    for name in [&early, &late] {
        queue.consumer_at(name, Start::Oldest).unwrap();
    }
    (0..20).for_each(|seq| assert_eq!(queue.enqueue(&content(seq, 700)).unwrap(), seq));
    read(&queue, &early, 2);
    read(&queue, &late, 20);
    queue.close().unwrap();
    let storage = queue.core.storage.process_kill();
    let bytes = storage.read_file("index");
    let at = bytes.windows(early.len()).position(|found| found == early.as_bytes()).unwrap();
    storage.corrupt("index", at, late.as_bytes());
    let queue = open(storage, &limits()).unwrap();
    assert_eq!(queue.consumer(&late).unwrap().seq(), 20);
    assert_eq!(queue.consumer(UNREADABLE).unwrap().seq(), 0);
}

/// One bit of a long name, which has no copy: the consumer does not go on under the wrong name.
#[test]
fn no_consumer_goes_on_under_a_name_that_damage_made() {
    let storage = left(5);
    let bytes = storage.read_file("index");
    let said = name(5);
    let at = bytes.windows(said.len()).position(|found| found == said.as_bytes()).unwrap();
    for bit in (0..8 * said.len()).step_by(37) {
        let image = storage.process_kill();
        image.corrupt("index", at + bit / 8, &[bytes[at + bit / 8] ^ 1 << (bit % 8)]);
        let names = open(image.process_kill(), &limits()).unwrap().consumer_names();
        let is_strange = |one: &&String| (0..CONSUMERS).all(|number| name(number) != **one);
        assert_eq!(names.iter().filter(is_strange).collect::<Vec<_>>(), [UNREADABLE], "{bit}");
        check_all_comes(image, 5, "a bit of the name").unwrap();
    }
}

/// A power cut takes the length of the file back, and leaves the rows of extents in it: none of
/// them counts once the file is longer again.
#[test]
fn rows_of_extents_that_a_power_cut_left_are_cleared() {
    let queue = open(disk(1), &limits()).unwrap();
    (1..70).for_each(|number| drop(queue.consumer(&name(number)).unwrap()));
    let later = |row: usize| crate::format::Extent {
        kind: crate::format::ExtentKind::Acks,
        offset: (crate::format::index_at::END + 4096 * row) as u32,
        rows: 8,
    };
    let id = queue.core.index.queue_id;
    queue.close().unwrap();
    let storage = queue.core.storage.process_kill();
    // As if two extents of acknowledgements had been added instead, and the file's end was lost.
    for row in [1, 2] {
        for at in crate::index::image::extent_row(row) {
            storage.corrupt("index", at, &later(row).encode(&id));
        }
    }
    let queue = open(storage, &limits()).unwrap();
    let bytes = queue.core.storage.read_file("index");
    for row in [1, 2] {
        for at in crate::index::image::extent_row(row) {
            assert!(bytes[at..at + 16].iter().all(|byte| *byte == 0), "row {row} at {at}");
        }
    }
    assert_eq!(queue.consumer_names().len(), 69);
}

/// Everything was read, and a container died or power was cut. The next run makes a spare of the
/// last segment. When the index is lost after that, the spare says which numbers are gone.
#[test]
fn an_opening_that_drains_the_last_segment_says_so_in_its_header() {
    for left in
        [SimStorage::process_kill, SimStorage::seen_elsewhere, SimStorage::power_cut_losing_all]
    {
        let queue = open(disk(1), &limits()).unwrap();
        queue.consumer("w").unwrap();
        (0..8).for_each(|seq| assert_eq!(queue.enqueue(&content(seq, 400)).unwrap(), seq));
        read(&queue, "w", 8);
        queue.core.flush().unwrap();
        let queue = open(left(&queue.core.storage), &limits()).unwrap();
        let next = next_of(&queue);
        queue.give_space_back();
        queue.close().unwrap();
        let storage = queue.core.storage.process_kill();
        storage.remove_file("index");
        assert!(next_of(&open(storage, &limits()).unwrap()) >= next.min(8));
    }
}
