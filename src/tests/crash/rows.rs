//! Consumers' rows in the index: their names, their places, what they acknowledged.

use std::collections::BTreeMap;

use super::directed::{disk, holds_but_for, options, take_all_of};
use super::examine::{Queue, open, standing_of};
use super::model::content;
use crate::consume::standing::{Handed, Read};
use crate::engine::reading;
use crate::error::GapCause;
use crate::format::{
    ConsumerAt, INDEX_NAME, NAME_ROW_LEN, Place, SECTOR, SEGMENT_HEADER_LEN, index_at, segment_name,
};
use crate::storage::Storage;
use crate::tests::sim::{Mutant, Rng};

/// The longest name that a place says, too; and one that stands in its row alone.
const SHORT: &str = "a name of exactly thirty-five bytes";
const LONG: &str = "a name that is longer than that by one byte or by more";

fn take(queue: &Queue, name: &str) -> u64 {
    let standing = standing_of(queue, name).unwrap();
    reading::next(queue, &standing, Read::Take).unwrap().unwrap().seq()
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
        standing_of(&queue, name).unwrap();
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
                let standing = consumers.get(*name);
                let place =
                    standing.unwrap_or_else(|| panic!("sector {sector}: {name:?} is gone")).seq();
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
        let row: Vec<u8> = words.chain(place.crc(seed).to_le_bytes()).collect();
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

/// The next message handed out; `None` when there is none.
fn try_receive(queue: &Queue, name: &str) -> Option<(u64, Handed)> {
    let standing = standing_of(queue, name).unwrap();
    let found = queue.receive(&standing, reading::AsMessage).unwrap();
    found.map(|(message, handed)| (message.seq(), handed))
}

fn receive(queue: &Queue, name: &str) -> (u64, Handed) {
    try_receive(queue, name).unwrap()
}

/// Messages are acknowledged in any order, some of it is flushed, more is acknowledged, the process
/// dies or not, and power is cut: no message comes again whose acknowledgement was flushed.
#[test]
fn a_flushed_acknowledgement_outlives_a_power_cut() {
    const MESSAGES: u64 = 60;
    for seed in 0..600 {
        let mut rng = Rng(seed);
        let mut queue = open(disk(seed), &options()).unwrap();
        for number in 0..MESSAGES {
            queue.enqueue(&content(number, 20)).unwrap();
        }
        queue.core.flush().unwrap();
        let (mut done, mut flushed) = (Vec::new(), Vec::new());
        for run in 0..2 {
            let mut open_ones = Vec::new();
            for round in 0..3 {
                for _ in 0..rng.below(MESSAGES / 4) {
                    open_ones.extend(try_receive(&queue, "worker"));
                }
                for _ in 0..rng.below(2 + open_ones.len() as u64) {
                    if open_ones.is_empty() {
                        break;
                    }
                    // Mostly in order: the place moves on.
                    let at = if rng.percent(60) { 0 } else { rng.below(open_ones.len() as u64) };
                    let (seq, handed) = open_ones.remove(at as usize);
                    queue.ack(&standing_of(&queue, "worker").unwrap(), seq, handed).unwrap();
                    done.push(seq);
                    if rng.percent(30) {
                        queue.core.storage.snapshot();
                    }
                }
                if round < 2 && rng.percent(50) {
                    queue.core.flush().unwrap();
                    flushed.clone_from(&done);
                }
            }
            if run == 0 {
                // The process dies, and what it leaves in the cache is gone on with.
                queue = open(queue.core.storage.process_kill(), &options()).unwrap();
            }
        }
        for cut in 0..8 {
            let again = open(queue.core.storage.power_cut(seed ^ cut), &options()).unwrap();
            let told = take_all_of(&again, "worker").unwrap();
            let twice: Vec<u64> = told
                .iter()
                .flatten()
                .map(|(seq, _)| *seq)
                .filter(|seq| flushed.contains(seq))
                .collect();
            assert!(
                twice.is_empty(),
                "seed {seed}, cut {cut}: {twice:?} come again, flushed were {flushed:?}"
            );
            let missing = (0..MESSAGES).filter(|seq| !done.contains(seq));
            for seq in missing {
                assert!(
                    told.iter().flatten().any(|(got, _)| *got == seq),
                    "seed {seed}, cut {cut}: {seq} is lost"
                );
            }
        }
    }
}

/// Some messages were acknowledged, then the consumer goes back to have them again, and power is
/// cut: where it went back on the disk, it has them again.
#[test]
fn a_seek_backwards_is_not_undone_by_older_acknowledgements() {
    holds_but_for(Mutant::SeekNotSynced, || {
        let mut met = 0;
        for seed in 0..200 {
            let storage = disk(seed);
            let queue = open(storage.clone(), &options()).unwrap();
            for number in 0..10 {
                queue.enqueue(&content(number, 20)).unwrap();
            }
            let worker = queue.consumer("worker").unwrap();
            let handed: Vec<_> = (0..10).map(|_| receive(&queue, "worker")).collect();
            for at in [0, 1, 2, 5, 6] {
                queue.ack(&worker, handed[at].0, handed[at].1).unwrap();
            }
            queue.core.flush().unwrap();
            queue.seek(&worker, 1).unwrap();
            for cut in 0..4 {
                let again = open(storage.power_cut(seed ^ cut), &options()).unwrap();
                let went_back = again.consumer("worker").unwrap().seq() == 1;
                met += u32::from(went_back);
                let told = take_all_of(&again, "worker").unwrap();
                let got: Vec<u64> = told.iter().flatten().map(|(seq, _)| *seq).collect();
                assert!(
                    !went_back || got == (1..10).collect::<Vec<_>>(),
                    "seed {seed}, cut {cut}: {got:?}"
                );
            }
        }
        assert!(met > 20, "{met}");
    });
}

/// What a consumer acknowledged reached the disk, and the consumer itself did not, when power was
/// cut. One of that name that comes into being afterwards, in the same row, has acknowledged
/// nothing.
#[test]
fn a_consumer_made_again_has_acknowledged_nothing() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    for number in 0..10 {
        queue.enqueue(&content(number, 20)).unwrap();
    }
    queue.core.flush().unwrap();
    let worker = queue.consumer("worker").unwrap();
    let handed: Vec<_> = (0..10).map(|_| receive(&queue, "worker")).collect();
    queue.ack(&worker, handed[5].0, handed[5].1).unwrap();
    let cut = storage.power_cut_losing_all();
    cut.corrupt(
        INDEX_NAME,
        index_at::ACKS,
        &storage.read_file(INDEX_NAME)[index_at::ACKS..][..SECTOR],
    );
    let queue = open(cut, &options()).unwrap();
    assert!(queue.consumer_names().is_empty());
    assert_eq!(queue.consumer("worker").unwrap().row, worker.row);
    for image in [queue.core.storage.process_kill(), queue.core.storage.power_cut(1)] {
        let again = open(image, &options()).unwrap();
        let told = take_all_of(&again, "worker").unwrap();
        let got: Vec<u64> = told.iter().flatten().map(|(seq, _)| *seq).collect();
        assert_eq!(got, (0..10).collect::<Vec<_>>());
    }
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
    let told = take_all_of(&open(again, &options()).unwrap(), "worker").unwrap();
    assert_eq!(
        told.iter().flatten().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>()
    );
}

/// All that says which numbers were given out is damaged but what one consumer has acknowledged,
/// and the messages are lost: none of the numbers is given again, for it would be taken for done.
#[test]
fn an_acknowledged_number_is_not_given_again() {
    holds_but_for(Mutant::AcknowledgedNumberGivenAgain, || {
        let storage = disk(1);
        let options = options().flush_every_ops(1);
        let queue = open(storage.clone(), &options).unwrap();
        for number in 0..10 {
            queue.enqueue(&content(number, 100)).unwrap();
        }
        let worker = queue.consumer("worker").unwrap();
        let handed: Vec<_> = (0..10).map(|_| receive(&queue, "worker")).collect();
        queue.ack(&worker, handed[9].0, handed[9].1).unwrap();
        let image = storage.power_cut_losing_all();
        // From the sixth message on, each of which takes 120 bytes.
        image.corrupt(&segment_name(0), SEGMENT_HEADER_LEN as usize + 5 * 120, &[0; 5 * 120]);
        for sector in [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B, index_at::LIVE] {
            image.corrupt(INDEX_NAME, sector, &[0xa5; SECTOR]);
        }
        let queue = open(image, &options).unwrap();
        for number in 0..8 {
            assert!(queue.enqueue(&content(number, 30)).unwrap() >= 10);
        }
        let told = take_all_of(&queue, "worker").unwrap();
        assert_eq!(told.iter().flatten().filter(|(seq, _)| *seq >= 10).count(), 8, "{told:?}");
    });
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
                let told = take_all_of(&again, "").unwrap();
                let gaps: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
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

/// As many ranges as a row holds (one of 114 may be needed for what the place has passed), and more
/// than that, when power is cut.
#[test]
fn flushed_acknowledgements_in_many_ranges_outlive_a_power_cut() {
    for seed in 0..200 {
        let storage = disk(seed);
        let queue = open(storage.clone(), &options()).unwrap();
        for _ in 0..240 {
            queue.enqueue(b"message").unwrap();
        }
        let worker = queue.consumer("worker").unwrap();
        let handed: Vec<_> = (0..240).map(|_| receive(&queue, "worker")).collect();
        let ack = |at: usize| queue.ack(&worker, handed[at].0, handed[at].1).unwrap();
        for at in 0..113 {
            ack(1 + 2 * at);
        }
        queue.core.flush().unwrap();
        for at in [229, 231, 0, 227] {
            ack(at);
            storage.snapshot();
        }
        for cut in 0..4 {
            let again = open(storage.power_cut(seed ^ cut), &options()).unwrap();
            let told = take_all_of(&again, "worker").unwrap();
            for at in 0..113 {
                let seq = 1 + 2 * at;
                assert!(
                    told.iter().flatten().all(|(got, _)| *got != seq),
                    "seed {seed}, cut {cut}: {seq} again"
                );
            }
        }
    }
}
