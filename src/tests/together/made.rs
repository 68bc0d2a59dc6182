//! A consumer is made while the oldest messages go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Queue, go, open, small, under};
use crate::consume::step::Read;
use crate::engine::{Background, reading};
use crate::error::{Error, GapCause};
use crate::options::{OnFull, Start};
use crate::tests::sim::meanwhile;
use crate::threads::JoinHandle;

/// By the disk's clock, which a test turns.
const AGE: Duration = Duration::from_secs(10);

/// Four messages, and a thread that gives them up: they are too old.
fn while_messages_expire(consumers: &[&str]) -> (Queue, JoinHandle) {
    let queue = open(&small(6).max_age(AGE), Background::Calls);
    for name in consumers {
        queue.consumer(name).unwrap();
    }
    for _ in 0..4 {
        queue.enqueue(&[1; 6000]).unwrap();
    }
    queue.core.storage.advance_clock(2 * AGE.as_millis() as u64);
    let expiring = Arc::clone(&queue);
    (queue, go("expiry", move || expiring.expire()))
}

/// A number that was given out is always one to begin at, also while its message goes.
#[test]
fn a_consumer_begins_at_a_number_whose_message_goes_meanwhile() {
    under(60, || {
        let (queue, expiry) = while_messages_expire(&["a"]);
        queue.consumer_at("b", Start::Seq(0)).unwrap();
        expiry.join();
    });
}

/// What expired before the first consumer was made, and meanwhile, is reported to it. The second
/// one is not.
#[test]
fn what_expires_while_it_is_made_is_reported_to_the_first_consumer() {
    under(300, || {
        let (queue, expiry) = while_messages_expire(&[]);
        let next = |name: &str| reading::next(&queue, &queue.consumer(name).unwrap(), Read::Take);
        let mut reported = 0;
        // What is not gone when the consumer is made comes.
        while reported < 4 {
            match next("first") {
                Ok(Some(message)) => assert_eq!(message.seq(), reported),
                Err(Error::Gap(gap)) => {
                    assert_eq!((gap.first, gap.cause), (reported, GapCause::Expired));
                    reported = gap.last;
                }
                read => panic!("{reported} is missing: {read:?}"),
            }
            reported += 1;
        }
        expiry.join();
        queue.expire();
        assert!(matches!(next("second"), Ok(None)));
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
    let reported = reading::next(&queue, &queue.consumer("a").unwrap(), Read::Take);
    assert!(
        matches!(&reported, Err(Error::Gap(gap)) if (gap.first, gap.last) == (9, 12)),
        "{reported:?}"
    );
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
