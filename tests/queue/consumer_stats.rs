//! Figures of each consumer: what a reader then reads, at once after a reopening too; possible at
//! any moment while other threads work. (Any order of calls: `tests/support/fuzz_figures.rs`.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::within;
use mmq::{Consumer, ConsumerStats, Error, OnFull, Options, Queue};

/// Bytes of a record of 100 bytes.
const RECORD: u64 = 16 + 104;

fn of<'a>(all: &'a [ConsumerStats], name: &str) -> &'a ConsumerStats {
    all.iter().find(|stats| stats.name == name).unwrap()
}

/// Place, messages, bytes and messages in flight.
fn figures(stats: &ConsumerStats) -> (u64, u64, u64, u64) {
    (stats.next_seq, stats.messages, stats.bytes, stats.in_flight)
}

/// How many messages come until the queue is empty, and how many numbers are reported as missing.
fn read_all(consumer: &Consumer) -> (u64, u64) {
    let (mut came, mut missing) = (0, 0);
    loop {
        match consumer.dequeue() {
            Ok(Some(_)) => came += 1,
            Ok(None) => return (came, missing),
            Err(Error::Gap(gap)) => missing += gap.count(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn each_consumer_has_its_own_figures_and_a_reopening_keeps_them() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let id = queue.id();
    assert_ne!(id, [0; 16]);
    assert_eq!(queue.consumer_stats(), []);
    let (ahead, behind) = (queue.consumer("ahead").unwrap(), queue.consumer("behind").unwrap());
    assert_eq!(figures(&behind.stats()), (0, 0, 0, 0));
    assert!(!behind.stats().holds_oldest && behind.stats().oldest_age.is_none());
    for _ in 0..100 {
        queue.enqueue([1; 100]).unwrap();
    }
    for _ in 0..30 {
        ahead.dequeue().unwrap();
    }
    let mut held: Vec<_> = (0..10).map(|_| behind.receive().unwrap().unwrap()).collect();
    // Out of order: 9, 7, 5 and 0 are done.
    for at in [9, 7, 5, 0] {
        held.remove(at).ack().unwrap();
    }
    held.remove(0).nack();
    let all = queue.consumer_stats();
    let names: Vec<_> = all.iter().map(|stats| &*stats.name).collect();
    assert_eq!(names, ["ahead", "behind"]);
    assert_eq!(figures(of(&all, "ahead")), (30, 70, 70 * RECORD, 0));
    assert_eq!(figures(of(&all, "behind")), (1, 96, 99 * RECORD, 5));
    assert!(of(&all, "behind").holds_oldest && !of(&all, "ahead").holds_oldest);
    queue.peek().unwrap();
    let all = queue.consumer_stats();
    assert_eq!((&*all[0].name, figures(&all[0])), ("", (0, 100, 100 * RECORD, 0)));
    assert!(all[0].holds_oldest && !of(&all, "behind").holds_oldest);
    drop(queue);
    drop(held);

    let queue = Queue::open(dir.path()).unwrap();
    assert_eq!(queue.id(), id);
    let all = queue.consumer_stats();
    assert_eq!(all.len(), 3);
    assert_eq!(figures(of(&all, "ahead")), (30, 70, 70 * RECORD, 0));
    // Nothing is in flight any more; what was acknowledged stays so.
    assert_eq!(figures(of(&all, "behind")), (1, 96, 99 * RECORD, 0));
    let behind = queue.consumer("behind").unwrap();
    assert_eq!(read_all(&behind), (96, 0));
    assert_eq!(figures(&behind.stats()), (100, 0, 0, 0));
    assert_ne!(Queue::open(dir.path().join("another")).unwrap().id(), id);
}

/// Damage counts until its gap is reported, to each consumer by itself.
#[test]
fn a_gap_is_counted_by_each_consumer_until_it_is_reported() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let _ = (queue.consumer("a").unwrap(), queue.consumer("b").unwrap());
    for seq in 0..50u8 {
        queue.enqueue([seq; 100]).unwrap();
    }
    queue.close().unwrap();
    let path = crate::support::segments(dir.path()).pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(100).position(|window| window == [20; 100]).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let queue = Queue::open(dir.path()).unwrap();
    let a = queue.consumer("a").unwrap();
    let deliveries: Vec<_> = (0..20).map(|_| a.receive().unwrap().unwrap()).collect();
    assert_eq!(figures(&a.stats()), (0, 50, 50 * RECORD, 20));
    assert!(matches!(a.receive(), Err(Error::Gap(gap)) if (gap.first, gap.last) == (20, 20)));
    let all = queue.consumer_stats();
    // The gap is done, beyond the place.
    assert_eq!(figures(of(&all, "a")), (0, 49, 50 * RECORD, 20));
    assert_eq!(figures(of(&all, "b")), (0, 50, 50 * RECORD, 0));
    drop(deliveries);
    assert_eq!(read_all(&a), (49, 0));
    assert_eq!(read_all(&queue.consumer("b").unwrap()), (49, 1));
}

#[test]
fn what_was_dropped_does_not_wait_for_anybody() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096).max_bytes(128 << 10).on_full(OnFull::DropOldest);
    let queue = options.open(dir.path()).unwrap();
    let (slow, quick) = (queue.consumer("slow").unwrap(), queue.consumer("quick").unwrap());
    let mut held = Vec::new();
    for n in 0..5000u64 {
        queue.enqueue([1; 100]).unwrap();
        quick.dequeue().unwrap();
        if n == 10 {
            held.extend((0..3).map(|_| slow.receive().unwrap().unwrap()));
            held.remove(1).ack().unwrap();
        }
    }
    let (stats, all) = (queue.stats(), queue.consumer_stats());
    let slow_figures = of(&all, "slow");
    // The place stays where the gap begins.
    assert!(stats.oldest_seq > 11 && slow_figures.next_seq == 0, "{stats} {all:?}");
    assert_eq!(slow_figures.messages, 5000 - stats.oldest_seq);
    assert!(slow_figures.bytes >= slow_figures.messages * RECORD, "{all:?}");
    assert!(slow_figures.bytes <= stats.disk_bytes, "{stats} {all:?}");
    assert!(slow_figures.holds_oldest && !of(&all, "quick").holds_oldest);
    assert_eq!(figures(of(&all, "quick")), (5000, 0, 0, 0));
    held.clear();
    assert_eq!(read_all(&slow).0, slow_figures.messages);
    assert_eq!(figures(&slow.stats()), (5000, 0, 0, 0));
}

#[test]
fn the_figures_of_all_consumers_end_at_the_same_message_at_any_look() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = Options::new().arena_size(256 << 10).open(dir.path()).unwrap();
        let (plain, worker) = (queue.consumer("plain").unwrap(), queue.consumer("work").unwrap());
        let still = queue.consumer("still").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..60_000u64 {
                    queue.enqueue([n as u8; 100]).unwrap();
                    plain.dequeue().unwrap();
                    // The second of three is acknowledged last.
                    if n % 3 == 2 {
                        let [a, b, c] = [(); 3].map(|()| worker.receive().unwrap().unwrap());
                        [a, c, b].into_iter().for_each(|delivery| delivery.ack().unwrap());
                    }
                }
                done.store(true, Ordering::Release);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = [0; 3];
                    while !done.load(Ordering::Acquire) {
                        let all = queue.consumer_stats();
                        let [plain, still, work] = &all[..] else { panic!("{all:?}") };
                        assert_eq!(plain.next_seq + plain.messages, still.messages, "{all:?}");
                        assert!(work.next_seq + work.messages <= still.messages, "{all:?}");
                        assert!(work.next_seq + work.messages + 3 > still.messages, "{all:?}");
                        assert!(work.in_flight <= work.messages.min(3), "{all:?}");
                        assert!(still.messages <= queue.stats().next_seq, "{all:?}");
                        assert!(still.holds_oldest || still.messages == 0, "{all:?}");
                        let now = [&plain, &work, &still].map(|stats| stats.next_seq);
                        assert!(now.iter().zip(last).all(|(now, last)| *now >= last), "{all:?}");
                        last = now;
                    }
                });
            }
        });
        assert_eq!(read_all(&worker), (0, 0));
        assert_eq!(still.stats().messages, 60_000);
    });
}
