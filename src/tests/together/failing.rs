//! A sync of the index fails while a producer waits for one of a segment.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::{go, small, under};
use crate::consume::standing::Read;
use crate::engine::{Background, Engine, reading};
use crate::segment::MOST_UNSYNCED_HERE;
use crate::tests::schedule;
use crate::tests::sim::{Call, SimStorage};
use crate::threads;

#[test]
fn a_producer_does_not_wait_for_a_sync_once_another_one_has_failed() {
    under(100, || {
        let seed = schedule::seed();
        let storage = SimStorage::new(7).with_file_capacity(128 << 10);
        let options = small(20).flush_every(Duration::from_micros(50));
        let queue =
            Arc::new(Engine::open_with(storage.clone(), &options, Background::Workers).unwrap());
        storage.fail_after(Call::SyncFile, 1 + seed % 14, Errno::IO, true);
        let reader = {
            let queue = Arc::clone(&queue);
            go("reader", move || {
                let consumer = queue.consumer("").unwrap();
                for _ in 0..12 {
                    let _ = reading::next(&queue, &consumer, Read::Take);
                    threads::park_timeout(Duration::from_micros(20));
                }
            })
        };
        let producer = {
            let queue = Arc::clone(&queue);
            go("producer", move || {
                MOST_UNSYNCED_HERE.set(Some(2));
                for _ in 0..14 {
                    if queue.enqueue(&[1; 6000]).is_err() {
                        break;
                    }
                }
            })
        };
        producer.join();
        reader.join();
        let _ = queue.close();
    });
}

#[test]
fn a_producer_alone_hears_that_the_workers_other_sync_failed() {
    under(300, || {
        let seed = schedule::seed();
        let storage = SimStorage::new(7).with_file_capacity(128 << 10);
        let options = small(40);
        let queue =
            Arc::new(Engine::open_with(storage.clone(), &options, Background::Workers).unwrap());
        storage.fail_after(Call::SyncFile, 1 + seed % 24, Errno::IO, true);
        let producer = {
            let queue = Arc::clone(&queue);
            go("producer", move || {
                MOST_UNSYNCED_HERE.set(Some(2));
                for _ in 0..34 {
                    if queue.enqueue(&[1; 6000]).is_err() {
                        break;
                    }
                }
            })
        };
        producer.join();
        let _ = queue.close();
    });
}
