//! A flush in parts, and who waits for it meanwhile.

use std::sync::{Arc, Mutex};

use super::{go, open, small, under};
use crate::engine::Background;
use crate::tests::schedule;
use crate::tests::sim::{forget_meanwhile, meanwhile};
use crate::threads::requests::{Awaited, Request};

const PART: &str = "between the syncs of two segments";

/// The storage worker's flush waits for another thread's flush of many segments: what a producer
/// asks of the worker waits for one sync, not for all of them.
#[test]
fn a_producers_request_waits_for_one_part_of_another_threads_flush() {
    under(20, || {
        let queue = open(&small(8), Background::Calls);
        while queue.core.segments.list().count_unsynced() < 4 {
            queue.enqueue(&[1; 2000]).unwrap();
        }
        let end = queue.core.committed_spot();
        queue.core.durable.lock().want(end);
        let (core, worker) = (Arc::clone(&queue.core), Arc::new(Mutex::new(None)));
        let began = Arc::clone(&worker);
        // On the leader's thread, between the parts of its flush.
        let ask = move || {
            let behind = Arc::clone(&core);
            let behind = move || {
                let serve = || {
                    behind.storage_worker.requests().wanted.take_request();
                };
                behind.flush_behind(Some(&serve)).unwrap();
            };
            *began.lock().unwrap() = Some(go("worker", behind));
            schedule::wait_until_quiet();
            core.storage_worker.requests().wanted.asked = Awaited::For(Request::Room);
            meanwhile(PART, move || {
                schedule::wait_until_quiet();
                let is_asked = core.storage_worker.requests().wanted.is_asked();
                assert!(!is_asked, "a producer waits for the whole flush");
            });
        };
        let leader = go("leader", move || {
            meanwhile(PART, ask);
            queue.core.flush().unwrap();
            assert!(!forget_meanwhile());
        });
        leader.join();
        let worker = worker.lock().unwrap().take();
        worker.unwrap().join();
    });
}
