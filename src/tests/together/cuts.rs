//! What calls reported to be durable, when power is cut while others flush.

use std::sync::{Arc, Mutex};

use super::{go, plan, receive_next, seeds, small, take_next};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::error::Error;
use crate::options::Options;
use crate::tests::schedule::{self, Plan};
use crate::tests::sim::{SimStorage, forget_meanwhile, meanwhile};
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

/// A flush that comes between the store of a change and its count leaves the rest of the change to
/// the next flush, of this consumer and of every other one.
#[test]
fn a_flush_within_a_change_takes_no_work_from_the_next_flush() {
    for within in ["before a seek is counted", "before acknowledgements are stored"] {
        let storage = SimStorage::new(7).with_file_capacity(128 << 10);
        let engine = || Arc::new(Engine::open_without_workers(storage.clone(), &small(6)).unwrap());
        let queue = engine();
        let [a, b] = ["a", "b"].map(|name| queue.consumer(name).unwrap());
        for _ in 0..10 {
            queue.enqueue(&[1; 100]).unwrap();
        }
        for _ in 0..5 {
            assert_eq!(take_next(&queue, &a), take_next(&queue, &b));
        }
        queue.close().unwrap();
        drop((a, b, queue));
        // Another run: its counts begin anew, and the places do not.
        let queue = engine();
        let [a, b] = ["a", "b"].map(|name| queue.consumer(name).unwrap());
        let other = Arc::clone(&queue);
        meanwhile(within, move || other.core.flush_places().unwrap());
        if within.contains("seek") {
            queue.seek(&a, 0).unwrap();
            assert_eq!((take_next(&queue, &a), take_next(&queue, &b)), (0, 5));
        } else {
            let received = [(); 3].map(|()| receive_next(&queue, &a));
            assert_eq!(received.map(|(seq, _)| seq), [5, 6, 7]);
            queue.ack_batch(&a, &[received[0], received[2]]).unwrap();
        }
        assert!(!forget_meanwhile(), "nothing came to {within}");
        queue.core.flush_places().unwrap();
        let cut = storage.power_cut_losing_all();
        let queue = Arc::new(Engine::open_without_workers(cut, &small(6)).unwrap());
        let [a, b] = ["a", "b"].map(|name| queue.consumer(name).unwrap());
        if within.contains("seek") {
            assert_eq!((take_next(&queue, &a), take_next(&queue, &b)), (1, 6));
        } else {
            assert_eq!([take_next(&queue, &a), take_next(&queue, &a)], [6, 8]);
        }
    }
}
