//! What calls reported to be durable, when power is cut while others flush.

use std::sync::{Arc, Mutex};

use super::{go, plan, seeds, small, take_next};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::error::Error;
use crate::options::Options;
use crate::tests::schedule::{self, Plan};
use crate::tests::sim::SimStorage;
use crate::threads::JoinHandle;

#[test]
fn what_was_reported_durable_to_any_thread_is_there_after_a_power_cut() {
    let options = small(16).flush_every_ops(1);
    for seed in seeds(600) {
        let storage = SimStorage::new(seed).with_file_capacity(128 << 10);
        let reported: Arc<Mutex<Vec<u64>>> = Arc::default();
        let left: Arc<Mutex<Option<SimStorage>>> = Arc::default();
        let (disk, into) = (storage.clone(), Arc::clone(&left));
        let on_death = move || *into.lock().unwrap() = Some(disk.power_cut(seed));
        let dies_at = Some(200 + seed * 37 % 1500);
        let plan = Plan { dies_at, on_death: Box::new(on_death), ..plan(seed) };
        let (disk, heard, its) = (storage.clone(), Arc::clone(&reported), options.clone());
        let outcome = schedule::run(plan, move || produce(disk, &its, &heard));
        assert_eq!(outcome.failure, None, "MMQ_SEED={seed} is the schedule");
        let Some(left) = left.lock().unwrap().take() else { continue };
        let came = all_of(left, &options);
        for seq in &*reported.lock().unwrap() {
            let is_there = came.contains(seq);
            assert!(is_there, "MMQ_SEED={seed} is the schedule: {seq} was durable, and is gone");
        }
    }
}

/// Two threads, each of whose messages is durable when its call returns, and is the first one of a
/// segment; and one that reads them and flushes its consumer's place.
fn produce(disk: SimStorage, options: &Options, reported: &Arc<Mutex<Vec<u64>>>) {
    let queue = Arc::new(Engine::open_with(disk, options, Background::Workers).unwrap());
    queue.consumer("c").unwrap();
    let producers = ["1", "2"].map(|name| {
        let (queue, reported) = (Arc::clone(&queue), Arc::clone(reported));
        go(name, move || {
            for _ in 0..6 {
                let seq = queue.enqueue(&[1; 6000]).unwrap();
                reported.lock().unwrap().push(seq);
            }
        })
    });
    let reader = queue.consumer("reader").unwrap();
    for _ in 0..12 {
        take_next(&queue, &reader);
        queue.core.flush_places().unwrap();
    }
    producers.into_iter().for_each(JoinHandle::join);
}

/// The numbers that an opening shows.
fn all_of(storage: SimStorage, options: &Options) -> Vec<u64> {
    let queue = Engine::open_without_workers(storage, options).unwrap();
    let consumer = queue.consumer("c").unwrap();
    let mut came = Vec::new();
    loop {
        match reading::next(&queue, &consumer, Read::Take) {
            Ok(Some(message)) => came.push(message.seq()),
            Ok(None) => return came,
            Err(Error::Gap(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
