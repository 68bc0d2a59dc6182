//! What consumers acknowledged, in the index.

use super::directed::{disk, holds_but_for, options, take_all_of};
use super::examine::{Queue, consumer_of, open};
use super::model::content;
use crate::consume::step::DeliveryToken;
use crate::engine::reading;
use crate::format::{INDEX_NAME, SECTOR, SEGMENT_HEADER_LEN, index_at, segment_name};
use crate::tests::effort::some_of;
use crate::tests::sim::{Mutant, Rng};

/// The next message handed out; `None` when there is none.
pub(super) fn try_receive(queue: &Queue, name: &str) -> Option<(u64, DeliveryToken)> {
    let consumer = consumer_of(queue, name).unwrap();
    let found = queue.receive(&consumer, reading::AsMessage).unwrap();
    found.map(|(message, handed)| (message.seq(), handed))
}

pub(super) fn receive(queue: &Queue, name: &str) -> (u64, DeliveryToken) {
    try_receive(queue, name).unwrap()
}

/// Messages are acknowledged in any order, some of it is flushed, more is acknowledged, the process
/// dies or not, and power is cut: no message comes again whose acknowledgement was flushed.
#[test]
fn a_flushed_acknowledgement_outlives_a_power_cut() {
    const MESSAGES: u64 = 60;
    for seed in some_of(0..600, 5, 0) {
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
                    queue.ack(&consumer_of(&queue, "worker").unwrap(), seq, handed).unwrap();
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
            let reported = take_all_of(&again, "worker").unwrap();
            let twice: Vec<u64> = reported
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
                    reported.iter().flatten().any(|(got, _)| *got == seq),
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
        for seed in some_of(0..200, 3, 0) {
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
                let reported = take_all_of(&again, "worker").unwrap();
                let got: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
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
        let reported = take_all_of(&again, "worker").unwrap();
        let got: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
        assert_eq!(got, (0..10).collect::<Vec<_>>());
    }
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
        let reported = take_all_of(&queue, "worker").unwrap();
        assert_eq!(
            reported.iter().flatten().filter(|(seq, _)| *seq >= 10).count(),
            8,
            "{reported:?}"
        );
    });
}

/// As many ranges as a row holds (one of 114 may be needed for what the place has passed), and more
/// than that, when power is cut.
#[test]
fn flushed_acknowledgements_in_many_ranges_outlive_a_power_cut() {
    for seed in some_of(0..200, 5, 0) {
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
            let reported = take_all_of(&again, "worker").unwrap();
            for at in 0..113 {
                let seq = 1 + 2 * at;
                assert!(
                    reported.iter().flatten().all(|(got, _)| *got != seq),
                    "seed {seed}, cut {cut}: {seq} again"
                );
            }
        }
    }
}
