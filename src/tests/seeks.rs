//! What goes on beside a seek.

use std::sync::Arc;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::Read;
use crate::engine::{Engine, reading};
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::sim::{SimStorage, forget_meanwhile, meanwhile};

type Consumer = Arc<ConsumerState<SimStorage>>;

/// Sixty messages in segments of 8 KiB, and two consumers that have read forty of them.
fn half_read() -> (Arc<Engine<SimStorage>>, [Consumer; 2]) {
    LENGTH_HERE.set(Some(8 << 10));
    let storage = SimStorage::new(1).with_file_capacity(64 << 10);
    let options = Options::new().arena_size(4096);
    let queue = Arc::new(Engine::open_without_workers(storage, &options).unwrap());
    let consumers = ["early", "late"].map(|name| queue.consumer(name).unwrap());
    (0..60).for_each(|seq| assert_eq!(queue.enqueue(&[7; 700]).unwrap(), seq));
    for consumer in &consumers {
        (0..40).for_each(|seq| assert_eq!(take(&queue, consumer), seq));
    }
    LENGTH_HERE.set(None);
    (queue, consumers)
}

fn take(queue: &Engine<SimStorage>, consumer: &ConsumerState<SimStorage>) -> u64 {
    reading::next(queue, consumer, Read::Take).unwrap().unwrap().seq()
}

/// A seek walks over a long segment and may sync the index: others give segments back meanwhile,
/// and the one that the seek looks at stays.
#[test]
fn nobody_waits_for_a_seek_and_its_segment_stays() {
    let (queue, [early, late]) = half_read();
    let other = Arc::clone(&queue);
    meanwhile("before a seek looks for its message", move || {
        assert!(other.core.places.giving_back.try_read().is_some());
        (40..60).for_each(|seq| assert_eq!(take(&other, &early), seq));
    });
    // `early` is at the end before the seek of `late` takes its lock.
    queue.seek(&late, 45).unwrap();
    assert!(!forget_meanwhile());
    assert_eq!(take(&queue, &late), 45);
}

/// A seek to a number that is gone keeps a segment while it looks. What everybody has passed
/// meanwhile is drained when the seek is refused.
#[test]
fn what_a_refused_seek_kept_is_given_back() {
    let (queue, [early, late]) = half_read();
    let (other, reader) = (Arc::clone(&queue), Arc::clone(&late));
    meanwhile("before a seek looks for its message", move || {
        for consumer in [&early, &reader] {
            (40..60).for_each(|seq| assert_eq!(take(&other, consumer), seq));
        }
    });
    assert!(queue.seek(&late, 0).is_err());
    assert!(!forget_meanwhile());
    assert!(!queue.core.drain_passed(), "space is kept that nobody needs");
}
