//! `max_age` with a real clock and real files: messages that are too old go by themselves, and are
//! reported to each consumer. `src/tests/ages` has its own clock and tests how exact an age is and
//! what a clock that jumps does.

use std::time::Duration;

use crate::support::{Reported, drain, eventually};
use mmq::{Error, Gap, GapCause, OnFull, Options};

fn options(age: Duration) -> Options {
    Options::new().arena_size(4096).max_bytes(256 << 10).max_age(age)
}

const SHORT: Duration = Duration::from_millis(50);
/// Longer than any of this takes on a machine that does other things as well.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn old_messages_are_reported_as_one_gap_and_young_ones_come() {
    let dir = crate::support::tempdir().unwrap();
    let queue = options(LONG).open(dir.path()).unwrap();
    for _ in 0..10 {
        queue.enqueue([1; 100]).unwrap();
    }
    assert_eq!(queue.peek().unwrap().unwrap().seq(), 0);
    drop(queue);
    let queue = options(SHORT).open(dir.path()).unwrap();
    eventually("they are too old", || queue.is_empty());
    assert_eq!((queue.stats().expired, queue.stats().lost_expired), (10, 0), "not reported yet");
    drop(queue);
    let queue = options(LONG).open(dir.path()).unwrap();
    queue.enqueue("young").unwrap();
    match queue.dequeue() {
        Err(Error::Gap(gap)) => {
            assert_eq!((gap.first, gap.last, gap.cause), (0, 9, GapCause::Expired))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(queue.dequeue().unwrap().unwrap().as_str(), Ok("young"));
    let stats = queue.stats();
    assert_eq!((stats.lost_expired, stats.lost_messages, stats.gaps), (10, 10, 1));
    assert_eq!((stats.expired, stats.dropped), (0, 0), "they had expired before this opening");
}

#[test]
fn space_is_given_back_though_nobody_touches_the_queue() {
    let dir = crate::support::tempdir().unwrap();
    let queue = options(LONG).open(dir.path()).unwrap();
    let slow = queue.consumer("slow").unwrap();
    for _ in 0..300 {
        queue.enqueue([1; 500]).unwrap();
    }
    // It has the first segment mapped.
    assert_eq!(slow.dequeue().unwrap().unwrap().seq(), 0);
    let before = queue.stats();
    assert!(before.segments >= 4, "{before}");
    drop((slow, queue));
    let queue = options(SHORT).open(dir.path()).unwrap();
    eventually("all segments go, the last one too", || queue.stats().segments == 0);
    eventually("and their space", || queue.stats().disk_bytes < before.disk_bytes);
    let slow = queue.consumer("slow").unwrap();
    assert!(slow.is_empty() && queue.stats().oldest_seq == 300);
    match slow.dequeue() {
        Err(Error::Gap(gap)) => {
            assert_eq!((gap.first, gap.last, gap.cause), (1, 299, GapCause::Expired))
        }
        other => panic!("{other:?}"),
    }
    assert!(slow.dequeue().unwrap().is_none());
}

/// Nobody reads before all messages have expired: they are reported to the first reader.
#[test]
fn a_queue_that_nobody_read_yet_reports_to_its_first_reader() {
    let dir = crate::support::tempdir().unwrap();
    let queue = options(SHORT).open(dir.path()).unwrap();
    queue.enqueue("old").unwrap();
    eventually("it is too old", || queue.is_empty());
    match queue.dequeue() {
        Err(Error::Gap(gap)) => {
            assert_eq!((gap.first, gap.last, gap.cause), (0, 0, GapCause::Expired))
        }
        other => panic!("{other:?}"),
    }
    assert!(queue.dequeue().unwrap().is_none());
}

#[test]
fn the_iterator_reports_what_the_reader_does() {
    let dir = crate::support::tempdir().unwrap();
    let queue = options(SHORT).open(dir.path()).unwrap();
    for _ in 0..5 {
        queue.enqueue("old").unwrap();
    }
    queue.peek().unwrap();
    eventually("they are too old", || queue.is_empty());
    drop(queue);
    let queue = options(LONG).open(dir.path()).unwrap();
    queue.enqueue("young").unwrap();
    let looked: Vec<_> = queue.iter().map(|looked| looked.map(|message| message.seq())).collect();
    assert!(
        matches!(looked[0], Err(Error::Gap(gap)) if (gap.first, gap.last) == (0, 4)),
        "{looked:?}"
    );
    assert!(matches!(looked[1], Ok(5)));
    assert_eq!(looked.len(), 2);
    let drained = drain(&queue, 10, |_, _| {});
    assert!(
        matches!(drained.reported[..], [Reported::Gap(_), Reported::Message(5)]),
        "{:?}",
        drained.reported
    );
    assert_eq!(queue.stats().gaps, 1, "the iterator's are not counted");
}

/// The queue is full of messages that nobody reads. A producer that waits for room gets it when
/// they expire.
#[test]
fn a_producer_that_waits_for_room_goes_on_when_what_is_there_is_too_old() {
    let dir = crate::support::tempdir().unwrap();
    let queue =
        options(Duration::from_millis(400)).on_full(OnFull::Wait(None)).open(dir.path()).unwrap();
    let slow = queue.consumer("slow").unwrap();
    for _ in 0..1000 {
        queue.enqueue([1; 700]).unwrap();
    }
    assert!(matches!(
        slow.dequeue(),
        Err(Error::Gap(Gap { first: 0, cause: GapCause::Expired, .. }))
    ));
}

/// An age so short that every message begins a segment, with as many threads as there may be.
#[test]
fn every_number_is_reported_once_whatever_expires_meanwhile() {
    let dir = crate::support::tempdir().unwrap();
    let queue =
        options(Duration::from_millis(1)).on_full(OnFull::DropOldest).open(dir.path()).unwrap();
    let consumer = queue.consumer("c").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..3000).for_each(|number| _ = queue.enqueue(&[2; 200][..number % 200]).unwrap())
            });
        }
        let mut next = 0;
        while next < 6000 {
            match consumer.dequeue_timeout(Duration::from_secs(60)) {
                Ok(message) => {
                    assert_eq!(message.unwrap().seq(), next);
                    next += 1;
                }
                Err(Error::Gap(gap)) => {
                    assert_eq!(gap.first, next);
                    assert!(matches!(gap.cause, GapCause::Expired | GapCause::Dropped), "{gap:?}");
                    next = gap.last + 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(next, 6000);
    });
    assert!(consumer.dequeue().unwrap().is_none());
}

#[test]
fn what_was_written_with_ages_is_read_without() {
    let dir = crate::support::tempdir().unwrap();
    let queue = options(Duration::from_secs(2)).max_bytes(None).open(dir.path()).unwrap();
    for _ in 0..50 {
        queue.enqueue([2; 40]).unwrap();
    }
    drop(queue);
    let queue = Options::new().open(dir.path()).unwrap();
    let drained = drain(&queue, 200, |_, bytes| assert_eq!(bytes, [2; 40]));
    assert_eq!(drained.gaps(), []);
    assert_eq!(drained.messages().last(), Some(&49));
}
