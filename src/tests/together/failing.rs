//! A sync of the index fails while a producer waits for one of a segment.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::{Queue, go, small, under};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::options::Options;
use crate::segment::MOST_UNSYNCED_HERE;
use crate::tests::schedule;
use crate::tests::sim::{Call, SimStorage};
use crate::threads::{self, JoinHandle};

/// A producer puts in more than it may leave unsynced, and some sync fails. It ends, whichever
/// sync that is.
fn produces(
    options: &Options,
    syncs: u64,
    messages: u64,
    beside: fn(&Queue) -> Option<JoinHandle>,
) {
    let storage = SimStorage::new(7).with_file_capacity(128 << 10);
    let queue = Engine::open_with(storage.clone(), options, Background::Workers).unwrap();
    let queue = Arc::new(queue);
    storage.fail_after(Call::SyncFile, 1 + schedule::seed() % syncs, Errno::IO, true);
    let other = beside(&queue);
    let producer = {
        let queue = Arc::clone(&queue);
        go("producer", move || {
            MOST_UNSYNCED_HERE.set(Some(2));
            let _ = (0..messages).try_for_each(|_| queue.enqueue(&[1; 6000]).map(drop));
        })
    };
    producer.join();
    other.into_iter().for_each(JoinHandle::join);
    let _ = queue.close();
}

#[test]
fn a_producer_does_not_wait_for_a_sync_once_another_one_has_failed() {
    let reads = |queue: &Queue| {
        let queue = Arc::clone(queue);
        let reader = go("reader", move || {
            let consumer = queue.consumer("").unwrap();
            for _ in 0..12 {
                let _ = reading::next(&queue, &consumer, Read::Take);
                threads::park_timeout(Duration::from_micros(20));
            }
        });
        Some(reader)
    };
    under(100, move || {
        produces(&small(20).flush_every(Duration::from_micros(50)), 14, 14, reads);
    });
}
