//! A lease beside a full queue: the thread that ends leases takes consumers' locks, a reader waits
//! for the producers' lock with its consumer's lock held, and a producer waits for that thread. All
//! three once waited for each other for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mmq::{Error, Fresh, LaneOptions, OnFull, Queue, Redelivery};

use crate::support::{effort, within};

#[derive(Clone, Copy, PartialEq)]
enum Read {
    /// Workers receive from the lanes.
    Lanes,
    /// The lanes are there, and workers receive past them.
    Past,
    /// There are no lanes.
    Plain,
}

/// Two producers fill the queue while two workers receive and let every sixteenth lease end.
fn fill_and_receive(read: Read, max_bytes: u64, lease: Duration, messages: u64) {
    let dir = crate::support::tempdir().unwrap();
    let options = Queue::options().max_bytes(max_bytes).on_full(OnFull::DropOldest);
    let queue = Arc::new(options.open(dir.path()).unwrap());
    let link = queue.consumer("link").unwrap();
    link.set_redelivery(Redelivery::new().lease(lease)).unwrap();
    let lanes = (read != Read::Plain).then(|| {
        let options = LaneOptions::new().fresh_within(Fresh::Messages(20)).share(1, 0);
        Arc::new(link.lanes(options).unwrap())
    });
    let (link, put) = (Arc::new(link), Arc::new(AtomicU64::new(0)));
    let ended = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, put) = (Arc::clone(&queue), Arc::clone(&put));
            std::thread::spawn(move || {
                while put.fetch_add(1, Ordering::Relaxed) < messages {
                    queue.enqueue([7; 500]).unwrap();
                }
            })
        })
        .collect();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (lanes, link, ended) = (lanes.clone(), Arc::clone(&link), Arc::clone(&ended));
            std::thread::spawn(move || {
                let mut received = 0;
                while !ended.load(Ordering::Relaxed) {
                    let next = match &lanes {
                        Some(lanes) if read == Read::Lanes => lanes.receive(),
                        _ => link.receive(),
                    };
                    match next {
                        Ok(Some(delivery)) => {
                            received += 1;
                            if received % 16 == 0 {
                                // A worker that hangs.
                                std::mem::forget(delivery);
                            } else if let Err(error) = delivery.ack() {
                                assert!(matches!(error, Error::Expired), "{error}");
                            }
                        }
                        Ok(None) => std::thread::yield_now(),
                        Err(Error::Gap(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                received
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
    ended.store(true, Ordering::Relaxed);
    let received: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(received > 0);
}

fn goes_on(read: Read, max_bytes: u64, lease_ms: u64, messages: u64) {
    let lease = Duration::from_millis(lease_ms);
    let messages = messages * effort();
    let limit = Duration::from_secs(120) * u32::try_from(effort()).unwrap();
    within(limit, move || fill_and_receive(read, max_bytes, lease, messages));
}

#[test]
fn a_full_queue_with_leases_and_lanes_goes_on() {
    goes_on(Read::Lanes, 2 << 20, 2, 30_000);
}

#[test]
fn a_full_queue_with_leases_and_lanes_that_nobody_reads_goes_on() {
    goes_on(Read::Past, 2 << 20, 2, 60_000);
}

#[test]
fn a_full_queue_with_leases_alone_goes_on() {
    goes_on(Read::Plain, 2 << 20, 2, 60_000);
}

#[test]
fn a_full_queue_of_many_segments_with_long_leases_goes_on() {
    goes_on(Read::Lanes, 64 << 20, 200, 30_000);
}
