//! `max_age` with a real clock and real files. How exact it is, `ages_tests.rs` in the sources tests with a clock of its own.

mod support;

use std::time::Duration;

use mmq::{Error, GapCause, Options};
use support::{Told, drain, eventually};

fn options(age: Duration) -> Options {
    Options::new().arena_size(4096).max_bytes(256 << 10).max_age(age)
}

#[test]
fn old_messages_are_told_as_one_gap_and_young_ones_come() {
    let dir = tempfile::tempdir().unwrap();
    let age = Duration::from_millis(1500);
    let queue = options(age).open(dir.path()).unwrap();
    for _ in 0..10 {
        queue.enqueue([1; 100]).unwrap();
    }
    assert_eq!(queue.peek().unwrap().unwrap().seq(), 0);
    drop(queue);
    std::thread::sleep(age + Duration::from_millis(100));
    let queue = options(age).open(dir.path()).unwrap();
    queue.enqueue("young").unwrap();
    match queue.dequeue() {
        Err(Error::Gap(gap)) => assert_eq!((gap.first, gap.last, gap.cause), (0, 9, GapCause::Expired)),
        other => panic!("{other:?}"),
    }
    assert_eq!(queue.dequeue().unwrap().unwrap().as_str(), Ok("young"));
    let stats = queue.stats();
    assert_eq!((stats.lost_expired, stats.lost_messages, stats.gaps), (10, 10, 1));
}

#[test]
fn space_is_given_back_though_nobody_touches_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than 300 messages take on a machine that does other things as well.
    let age = Duration::from_secs(2);
    let queue = options(age).open(dir.path()).unwrap();
    let slow = queue.consumer("slow").unwrap();
    for _ in 0..300 {
        queue.enqueue([1; 500]).unwrap();
    }
    let before = queue.stats();
    assert!(before.segments >= 4, "{before}");
    eventually("the segments go", || queue.stats().segments == 1 && queue.stats().disk_bytes < before.disk_bytes);
    let after = queue.stats();
    assert!(after.oldest_seq > 0, "{after}");
    assert_eq!(slow.len(), 300 - after.oldest_seq);
    // Not all of it in the same moment: it was not written in one.
    eventually("the rest is too old as well", || {
        if let Err(Error::Gap(gap)) = slow.peek() {
            assert_eq!(gap.cause, GapCause::Expired);
        }
        slow.is_empty()
    });
}

#[test]
fn the_iterator_passes_over_what_the_reader_would() {
    let dir = tempfile::tempdir().unwrap();
    let age = Duration::from_millis(1500);
    let queue = options(age).open(dir.path()).unwrap();
    for _ in 0..5 {
        queue.enqueue("old").unwrap();
    }
    queue.peek().unwrap();
    std::thread::sleep(age + Duration::from_millis(100));
    queue.enqueue("young").unwrap();
    let looked: Vec<_> = queue.iter().map(|looked| looked.map(|message| message.seq())).collect();
    assert!(matches!(looked[0], Err(Error::Gap(gap)) if (gap.first, gap.last) == (0, 4)), "{looked:?}");
    assert!(matches!(looked[1], Ok(5)));
    assert_eq!(looked.len(), 2);
    let drained = drain(&queue, 10, |_, _| {});
    assert!(matches!(drained.told[..], [Told::Gap(_), Told::Message(5)]), "{:?}", drained.told);
    assert_eq!(queue.stats().gaps, 1, "the iterator's are not counted");
}

#[test]
fn marks_of_time_cost_little_and_harm_nothing_without_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let queue = options(Duration::from_millis(64)).max_bytes(None).open(dir.path()).unwrap();
    for _ in 0..50 {
        queue.enqueue([2; 40]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(queue);
    let queue = Options::new().open(dir.path()).unwrap();
    let drained = drain(&queue, 200, |_, bytes| assert_eq!(bytes, [2; 40]));
    assert_eq!(drained.gaps(), []);
    assert_eq!(drained.messages().last(), Some(&49));
}
