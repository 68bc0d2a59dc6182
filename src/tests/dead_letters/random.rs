//! Random histories with dead letters in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::versions::{Queue, disk, flush, is_reported, open};
use super::{origin, payload};
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Error, GapCause};
use crate::format::Origin;
use crate::inspect::{Kept, Onlooker, Picture, Reported};
use crate::tests::effort::some_of;
use crate::tests::sim::{Rng, SimStorage};

/// What an outsider reads of a queue that nobody uses: numbers with origins.
fn seen_from_outside(left: &SimStorage) -> Vec<(u64, Option<Origin>)> {
    let (picture, kept) = Picture::take(&Arc::new(left.clone())).unwrap();
    let Kept::InOverlay(files) = kept else { panic!("somebody has the queue") };
    let oldest = picture.oldest();
    let mut onlooker = Onlooker::new(picture, oldest);
    let mut seen = Vec::new();
    while let Some(reported) = onlooker.next(&*files).unwrap() {
        if let Reported::Message { seq, payload: bytes, origin, .. } = reported {
            assert!(bytes == payload(seq, bytes.len()), "{seq}");
            seen.push((seq, origin));
        }
    }
    seen
}

/// Random messages, dead letters and batches of all lengths, with kills and power cuts between
/// them: no flushed one is lost, none changes, and the outsider sees what a consumer does.
#[test]
fn random_dead_letters_outlive_kills_and_power_cuts() {
    for seed in some_of(0..40, 4, 0) {
        let mut rng = Rng(seed);
        let mut storage = disk(seed).with_file_capacity(256 << 10);
        // Those that are there, by number: the length, and whether it is a dead letter.
        let mut put = BTreeMap::new();
        // All below this number are on the disk.
        let mut durable = 0;
        for life in 0..6 {
            let when = format!("seed {seed}, life {life}");
            let queue = open(storage.clone());
            queue.consumer("keeps").unwrap();
            for _ in 0..rng.below(12) {
                step(&queue, &mut rng, &mut put, &mut durable);
            }
            let is_cut = rng.percent(50);
            let left = if is_cut { storage.power_cut(rng.next()) } else { storage.process_kill() };
            is_reported(&left, &when);
            let seen = seen_from_outside(&left);
            // (On a copy: the consumer stays where it was.)
            let queue = open(left.process_kill());
            let consumer = queue.consumer("keeps").unwrap();
            let reported = std::iter::from_fn(|| {
                loop {
                    match reading::next(&queue, &consumer, Read::Take) {
                        Err(Error::Gap(gap)) => assert!(gap.cause != GapCause::Damaged, "{when}"),
                        reported => return reported.unwrap(),
                    }
                }
            });
            let reported: Vec<_> = reported
                .map(|message| {
                    let (len, is_dead_letter) = put[&message.seq()];
                    assert!(*message == *payload(message.seq(), len), "{when}");
                    assert_eq!(message.origin(), is_dead_letter.then(|| origin(message.seq())));
                    (message.seq(), message.origin())
                })
                .collect();
            assert_eq!(reported, seen, "{when}");
            put.retain(|number, _| {
                let is_there = reported.iter().any(|(seq, _)| seq == number);
                assert!(is_there || is_cut && *number >= durable, "{when}: {number} is lost");
                is_there
            });
            if is_cut {
                durable = queue.core.committed_spot().seq;
            }
            storage = left;
        }
    }
}

fn step(queue: &Queue, rng: &mut Rng, put: &mut BTreeMap<u64, (usize, bool)>, durable: &mut u64) {
    let number = queue.core.committed_spot().seq;
    let most = [40, 600, 9000, 20_000][rng.below(4) as usize];
    let len = rng.below(most) as usize;
    let bytes = payload(number, len);
    match rng.below(6) {
        0 | 1 => {
            assert_eq!(queue.enqueue(&bytes).unwrap(), number);
            put.insert(number, (len, false));
        }
        2 | 3 => {
            assert_eq!(queue.enqueue_dead_letter(&bytes, &origin(number)).unwrap(), number);
            put.insert(number, (len, true));
        }
        4 => {
            let numbers = number..number + 1 + rng.below(3);
            let batch: Vec<_> = numbers.clone().map(|number| payload(number, len)).collect();
            assert_eq!(queue.enqueue_batch(&batch).unwrap(), numbers);
            put.extend(numbers.map(|number| (number, (len, false))));
        }
        _ => {
            flush(queue);
            *durable = number;
        }
    }
}
