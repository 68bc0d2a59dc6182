//! Consumers' rows in the index: their names and their places.

use std::collections::BTreeMap;

use super::acks::receive;
use super::directed::{disk, holds_but_for, options, take_all_of};
use super::examine::{Queue, consumer_of, open};
use super::model::content;
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::GapCause;
use crate::format::{ConsumerAt, INDEX_NAME, NAME_ROW_LEN, Place, SECTOR, index_at};
use crate::storage::Storage;
use crate::tests::sim::{Mutant, Rng};

/// The longest name that a place says, too; and one that stands in its row alone.
const SHORT: &str = "a name of exactly thirty-five bytes";
const LONG: &str = "a name that is longer than that by one byte or by more";

fn take(queue: &Queue, name: &str) -> u64 {
    let consumer = consumer_of(queue, name).unwrap();
    reading::next(queue, &consumer, Read::Take).unwrap().unwrap().seq()
}

/// After any number of moves one sector of the index, whichever it is, holds bytes that nobody
/// stored: each consumer is there, at its place or at most 64 moves before. (A name of more than 35
/// bytes goes with its sector.)
#[test]
fn an_invalid_sector_of_the_index_costs_a_consumer_at_most_64_moves() {
    assert_eq!(SHORT.len(), 35);
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    for number in 0..400 {
        queue.enqueue(&content(number, 20)).unwrap();
    }
    let filling: Vec<String> = (0..61).map(|number| format!("other {number}")).collect();
    let names = ["", SHORT, LONG].into_iter().chain(filling.iter().map(String::as_str));
    let names: Vec<&str> = names.collect();
    for name in &names {
        consumer_of(&queue, name).unwrap();
    }
    queue.core.flush().unwrap();
    let long_row = queue.consumer(LONG).unwrap().row as usize;
    let long_name = (index_at::CONSUMERS + long_row * NAME_ROW_LEN) / SECTOR;
    let mut rng = Rng(1);
    let mut places: BTreeMap<&str, u64> = names.iter().map(|name| (*name, 0)).collect();
    for _ in 0..6 {
        for _ in 0..rng.below(200) {
            let which = if rng.percent(70) { rng.below(3) } else { rng.below(names.len() as u64) };
            let name = names[which as usize];
            places.insert(name, take(&queue, name) + 1);
        }
        let dead = queue.core.storage.process_kill();
        let sectors = dead.read_file(INDEX_NAME).len() / SECTOR;
        for sector in 0..sectors {
            let image = dead.process_kill();
            let garbage: Vec<u8> = (0..SECTOR / 16).flat_map(|_| rng.bytes()).collect();
            image.corrupt(INDEX_NAME, sector * SECTOR, &garbage);
            let again = open(image, &options()).unwrap();
            let consumers = again.consumers.by_name.lock();
            assert!(consumers.len() <= names.len());
            for (name, last) in &places {
                if *name == LONG && sector == long_name {
                    continue;
                }
                let consumer = consumers.get(*name);
                let place =
                    consumer.unwrap_or_else(|| panic!("sector {sector}: {name:?} is gone")).seq();
                let near = last.saturating_sub(64)..=*last;
                assert!(
                    near.contains(&place),
                    "sector {sector}: {name:?} is at {place}, and was at {last}"
                );
            }
        }
    }
}

/// A row whose name was lost is written again, and is nobody else's.
#[test]
fn a_lost_name_is_written_again() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    queue.enqueue(b"first").unwrap();
    queue.consumer("worker").unwrap();
    assert_eq!(take(&queue, "worker"), 0);
    queue.close().unwrap();
    drop(queue);
    storage.corrupt(INDEX_NAME, index_at::CONSUMERS + NAME_ROW_LEN, &[0; NAME_ROW_LEN]);
    let queue = open(storage.clone(), &options()).unwrap();
    assert_ne!(queue.consumer("worker").unwrap().row, queue.consumer("another").unwrap().row);
    drop(queue);
    let queue = open(storage, &options()).unwrap();
    assert_eq!(queue.consumer_names(), ["another", "worker"]);
    assert_eq!(queue.consumer("worker").unwrap().seq(), 1);
}

/// A consumer was removed and made again in another row; power was cut, and the disk has both. The
/// one with more to come counts, and goes on to count when it has overtaken the other.
#[test]
fn a_consumer_of_which_a_power_cut_left_two_is_one() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    for number in 0..10 {
        queue.enqueue(&content(number, 20)).unwrap();
    }
    queue.consumer("worker").unwrap();
    let first = queue.consumer("other").unwrap();
    for _ in 0..3 {
        take(&queue, "worker");
    }
    take(&queue, "other");
    queue.close().unwrap();
    drop(queue);
    // As if `other` had been called `worker`.
    let bytes = storage.read_file(INDEX_NAME);
    let name = &bytes[index_at::CONSUMERS + NAME_ROW_LEN..][..NAME_ROW_LEN];
    storage.corrupt(INDEX_NAME, index_at::CONSUMERS + first.row as usize * NAME_ROW_LEN, name);
    let slots = ConsumerAt::new(first.row, 64).places();
    let seed = Place::seed(&first_bytes(&bytes), b"worker");
    for slot in slots {
        let at = index_at::CONSUMERS + slot;
        let position = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
        let place = Place {
            number: 1,
            position,
            seq: u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap()),
        };
        let words = place.words().into_iter().flat_map(|word| word.to_le_bytes());
        let row: Vec<u8> = words.chain(place.sum(seed).to_le_bytes()).collect();
        storage.corrupt(INDEX_NAME, at, &row);
    }
    drop(first);
    let place = {
        let queue = open(storage.clone(), &options()).unwrap();
        assert_eq!(queue.consumer_names(), ["worker"]);
        assert_eq!(
            queue.core.places.cells.read().len(),
            1,
            "what nobody asks for holds nothing back"
        );
        let place = queue.consumer("worker").unwrap().seq();
        assert!(place < 3);
        for seq in place..6 {
            assert_eq!(take(&queue, "worker"), seq);
        }
        queue.close().unwrap();
        6
    };
    let queue = open(storage, &options()).unwrap();
    assert_eq!(queue.consumer("worker").unwrap().seq(), place);
}

/// The queue's id, from an index.
fn first_bytes(index: &[u8]) -> [u8; 16] {
    crate::format::decode_index_header(index).unwrap()
}

/// A place reached the disk, and its consumer's name did not, when power was cut. One of that name
/// that comes into being afterwards, in the same row, never stood there: not even when power is cut
/// again, and its name is on the disk and its place is not.
#[test]
fn a_consumer_made_again_does_not_stand_where_another_stood() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    for number in 0..10 {
        queue.enqueue(&content(number, 20)).unwrap();
    }
    queue.core.flush().unwrap();
    let row = queue.consumer("worker").unwrap().row;
    for seq in 0..3 {
        assert_eq!(take(&queue, "worker"), seq);
    }
    let sector_of = |at: usize| (index_at::CONSUMERS + at) / SECTOR * SECTOR;
    let at = ConsumerAt::new(row, 64);
    let cut = storage.power_cut_losing_all();
    cut.corrupt(
        INDEX_NAME,
        sector_of(at.pair),
        &storage.read_file(INDEX_NAME)[sector_of(at.pair)..][..SECTOR],
    );
    let queue = open(cut.clone(), &options()).unwrap();
    assert!(queue.consumer_names().is_empty());
    assert_eq!(queue.consumer("worker").unwrap().row, row);
    let again = cut.power_cut_losing_all();
    again.corrupt(
        INDEX_NAME,
        sector_of(at.name),
        &cut.read_file(INDEX_NAME)[sector_of(at.name)..][..SECTOR],
    );
    let reported = take_all_of(&open(again, &options()).unwrap(), "worker").unwrap();
    assert_eq!(
        reported.iter().flatten().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>()
    );
}

/// The index was damaged and made anew, which a power cut undoes until the directory is synced.
/// Segments that every consumer has passed go only after that sync: no consumer loses its place and
/// then finds its segment gone.
#[test]
fn segments_go_after_the_name_of_the_index_is_on_the_disk() {
    holds_but_for(Mutant::DirectoryNotSynced, || {
        let mut met = 0;
        for seed in 0..60 {
            let storage = disk(seed);
            let queue = open(storage.clone(), &options()).unwrap();
            queue.default_consumer().unwrap();
            // Each fills a segment to its end: the opening finds nothing to seal, and so nothing to
            // flush.
            let sent = 3;
            for number in 0..sent {
                queue.enqueue(&content(number, 8192 - 128 - 16)).unwrap();
            }
            queue.close().unwrap();
            drop(queue);
            storage.corrupt(INDEX_NAME, 0, &[0xa5; 16]);
            let queue = open(storage.clone(), &options()).unwrap();
            let taken = take_all_of(&queue, "").unwrap().len() as u64;
            assert_eq!(taken, sent);
            met += u32::from(queue.core.segments.list().live.len() < 3);
            for cut in 0..8 {
                let again = open(storage.power_cut(seed ^ cut), &options()).unwrap();
                let reported = take_all_of(&again, "").unwrap();
                let gaps: Vec<_> =
                    reported.iter().filter_map(|reported| reported.as_ref().err()).collect();
                let lost = gaps.iter().find(|gap| gap.cause != GapCause::Reserved);
                assert!(lost.is_none(), "seed {seed}, cut {cut}: {lost:?}");
            }
        }
        assert!(met > 20, "{met}");
    });
}

/// The index grows only into space that `min_free_bytes` leaves; so far the queue works without.
#[test]
fn the_index_keeps_to_the_free_space_that_is_asked_for() {
    let storage = disk(1).with_file_capacity(256 << 10);
    let options = options().max_bytes(1 << 20).min_free_bytes(64 << 10);
    let queue = open(storage.clone(), &options).unwrap();
    for _ in 0..100 {
        queue.enqueue(b"message").unwrap();
    }
    let free =
        |bytes: u64| storage.set_capacity(Some((1 << 40) - storage.free_bytes().unwrap() + bytes));
    free(64 << 10);
    let len = queue.core.index.len();
    let name = |number: u32| format!("consumer {number}");
    for number in 1..64 {
        queue.consumer(&name(number)).unwrap();
    }
    let refused = queue.consumer(&name(64)).unwrap_err();
    assert!(refused.is_full() && refused.to_string().contains("min_free_bytes"), "{refused}");
    for number in 1..20 {
        let worker = queue.consumer(&name(number)).unwrap();
        let handed: Vec<_> = (0..3).map(|_| receive(&queue, &name(number))).collect();
        queue.ack(&worker, handed[1].0, handed[1].1).unwrap();
    }
    assert_eq!(queue.core.index.len(), len);
    storage.set_capacity(None);
    queue.consumer(&name(64)).unwrap();
    assert!(queue.core.index.len() > len);
}
