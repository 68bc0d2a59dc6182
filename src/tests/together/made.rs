//! A consumer is made while the oldest messages go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Queue, go, open, small, under};
use crate::consume::standing::Read;
use crate::engine::{Background, reading};
use crate::error::Error;
use crate::options::{OnFull, Start};
use crate::tests::sim::meanwhile;

/// By the disk's clock, which a test turns.
const AGE: Duration = Duration::from_secs(10);

/// A number that was given out is always one to begin at, also while its message goes.
#[test]
fn a_consumer_begins_at_a_number_whose_message_goes_meanwhile() {
    under(60, || {
        let queue = open(&small(6).max_age(AGE), Background::Calls);
        queue.consumer("a").unwrap();
        for _ in 0..4 {
            queue.enqueue(&[1; 6000]).unwrap();
        }
        queue.core.storage.advance_clock(2 * AGE.as_millis() as u64);
        let other = {
            let queue = Arc::clone(&queue);
            go("other", move || queue.expire())
        };
        queue.consumer_at("b", Start::Seq(0)).unwrap();
        other.join();
    });
}

/// Ten short messages and some long ones, of which "a" has read the first nine.
fn nine_read(queue: &Queue, long: usize) {
    let a = queue.consumer("a").unwrap();
    for len in [[100].repeat(10), [6000].repeat(long)].concat() {
        queue.enqueue(&vec![1; len]).unwrap();
    }
    for _ in 0..9 {
        reading::next(queue, &a, Read::Take).unwrap().unwrap();
    }
}

/// What every consumer has read is not counted as expired, also while another one is made; nor is
/// that one counted before it is there.
#[test]
fn what_was_read_does_not_count_as_expired_while_a_consumer_is_made() {
    let queue = open(&small(6).max_age(AGE), Background::Calls);
    nine_read(&queue, 3);
    let other = Arc::clone(&queue);
    meanwhile("before a consumer has its place", move || {
        other.core.storage.advance_clock(2 * AGE.as_millis() as u64);
        other.expire();
        assert_eq!(other.stats().consumers, 1);
    });
    queue.consumer_at("b", Start::End).unwrap();
    let told = reading::next(&queue, &queue.consumer("a").unwrap(), Read::Take);
    assert!(matches!(&told, Err(Error::Gap(gap)) if (gap.first, gap.last) == (9, 12)), "{told:?}");
    assert_eq!((queue.stats().expired, queue.stats().consumers), (4, 2));
}

/// The same for messages that are dropped while a consumer is forked. (Two of them were in a
/// segment that "a" had open, and reads on in.)
#[test]
fn what_was_read_does_not_count_as_dropped_while_a_consumer_is_forked() {
    let queue = open(&small(6).on_full(OnFull::DropOldest), Background::Calls);
    nine_read(&queue, 2);
    let other = Arc::clone(&queue);
    meanwhile("before a consumer has its place", move || {
        while other.core.oldest_seq.load(Ordering::Relaxed) < 9 {
            other.enqueue(&[1; 6000]).unwrap();
        }
    });
    queue.fork(&queue.consumer("a").unwrap(), "b").unwrap();
    assert_eq!(queue.stats().dropped, queue.core.oldest_seq.load(Ordering::Relaxed) - 9);
}
