//! An interrupt ends every wait that has begun, whatever the order of steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Queue, go, open, receive_next, small, under};
use crate::consume::step::Read;
use crate::engine::Background;
use crate::engine::reading::{self, AsMessage};
use crate::error::Error;
use crate::options::OnFull;
use crate::threads::{self, JoinHandle};

const SOON: Duration = Duration::from_micros(50);

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        threads::park_timeout(SOON);
    }
}

/// A reader that has looked once is interrupted, or was about to sleep and is interrupted.
#[test]
fn one_interrupt_ends_the_waits_that_have_begun() {
    under(100, || {
        let queue = open(&small(4), Background::Calls);
        let begun = Arc::new([const { AtomicBool::new(false) }; 2]);
        let consumer = queue.consumer("c").unwrap();
        queue.set_max_in_flight(&consumer, Some(1)).unwrap();
        queue.enqueue(b"one").unwrap();
        let (seq, handed) = receive_next(&queue, &consumer);
        let taker = {
            let (queue, consumer, begun) =
                (Arc::clone(&queue), queue.consumer("d"), Arc::clone(&begun));
            let consumer = consumer.unwrap();
            queue.seek(&consumer, 1).unwrap();
            go("taker", move || {
                let took = queue.wait(&consumer, None, || {
                    begun[0].store(true, Ordering::SeqCst);
                    reading::next(&queue, &consumer, Read::Take)
                });
                assert!(matches!(took, Err(Error::Interrupted)), "{took:?}");
            })
        };
        let receiver = {
            let (queue, consumer, begun) =
                (Arc::clone(&queue), Arc::clone(&consumer), Arc::clone(&begun));
            go("receiver", move || {
                let received = queue.wait(&consumer, None, || {
                    begun[1].store(true, Ordering::SeqCst);
                    queue.receive(&consumer, AsMessage)
                });
                assert!(matches!(received, Err(Error::Interrupted)), "it got one");
            })
        };
        begun.iter().for_each(wait_for);
        queue.core.interrupt();
        taker.join();
        receiver.join();
        // What was in flight stays in flight, and a wait that begins later is not interrupted.
        queue.ack(&consumer, seq, handed).unwrap();
        let later = queue
            .wait(&consumer, Some(threads::now() + SOON), || queue.receive(&consumer, AsMessage));
        assert!(matches!(later, Ok(None)));
    });
}

fn ends_when_interrupted(queue: &Queue, name: &str, wait: fn(&Queue) -> Result<(), Error>) {
    let ended = Arc::new(AtomicBool::new(false));
    let waiter: JoinHandle = {
        let (queue, ended) = (Arc::clone(queue), Arc::clone(&ended));
        go(name, move || {
            while wait(&queue).map_or_else(|error| !matches!(error, Error::Interrupted), |()| true)
            {
            }
            ended.store(true, Ordering::SeqCst);
        })
    };
    // The waiter may be between two calls.
    for _ in 0..50 {
        if ended.load(Ordering::SeqCst) {
            break;
        }
        queue.core.interrupt();
        threads::park_timeout(SOON);
    }
    assert!(ended.load(Ordering::SeqCst), "{name} waits on");
    waiter.join();
}

#[test]
fn who_waits_for_room_is_interrupted() {
    under(20, || {
        let queue = open(&small(4).on_full(OnFull::Wait(None)), Background::Calls);
        ends_when_interrupted(&queue, "producer", |queue| queue.enqueue(&[1; 6000]).map(drop));
        // It had put nothing in.
        let committed = queue.core.committed().spot().seq;
        assert_eq!(queue.len(), committed);
    });
}

#[test]
fn a_removal_ends_the_waits_for_the_consumer() {
    under(50, || {
        let queue = open(&small(4), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        let taker = {
            let queue = Arc::clone(&queue);
            go("taker", move || {
                let take = || reading::next(&queue, &consumer, Read::Take);
                let took = queue.wait(&consumer, None, take);
                assert!(took.is_err(), "{took:?}");
            })
        };
        queue.remove_consumer("c").unwrap();
        taker.join();
    });
}

/// Another thread makes the default consumer again before the one that waits for it looks.
#[test]
fn a_removal_ends_the_waits_for_a_consumer_that_is_made_again() {
    under(40, || {
        let queue = open(&small(4), Background::Calls);
        let begun = Arc::new(AtomicBool::new(false));
        let waiter = {
            let (queue, begun) = (Arc::clone(&queue), Arc::clone(&begun));
            let consumer = queue.consumer("").unwrap();
            go("waiter", move || {
                let took = queue.wait(&consumer, None, || {
                    begun.store(true, Ordering::SeqCst);
                    reading::take_awaited(&queue, &consumer)
                });
                assert!(matches!(took, Err(Error::NotFound { .. })), "{took:?}");
            })
        };
        wait_for(&begun);
        queue.remove_consumer("").unwrap();
        queue.default_consumer().unwrap();
        waiter.join();
        // A wait that begins later is for the one that was made again.
        let consumer = queue.default_consumer().unwrap();
        let until = Some(threads::now() + SOON);
        let later = queue.wait(consumer, until, || reading::take_awaited(&queue, consumer));
        assert!(matches!(later, Ok(None)), "{later:?}");
    });
}

/// An interrupt comes behind a reader's first look, and then a producer holds its lock for as long
/// as the reader may wait: the interrupt is heard when that time is over.
#[test]
fn an_interrupt_is_heard_by_who_waits_for_a_producer() {
    under(10, || {
        let queue = open(&small(6), Background::Calls);
        let consumer = queue.consumer("a").unwrap();
        let held = queue.core.writer.lock();
        let waiter = {
            let queue = Arc::clone(&queue);
            go("waiter", move || {
                let (mut looks, deadline) = (0, Some(threads::now() + SOON));
                let outcome = queue.wait(&consumer, deadline, || {
                    let found = reading::take_awaited(&queue, &consumer);
                    looks += 1;
                    if looks == 1 {
                        queue.core.interrupt();
                    }
                    found
                });
                assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
            })
        };
        threads::park_timeout(2 * SOON);
        drop(held);
        waiter.join();
    });
}
