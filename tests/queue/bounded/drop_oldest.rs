//! With `DropOldest` no message is refused, and each consumer gets a gap for what it missed.

use super::*;
use crate::support::{effort, sample};

/// Drops are reported to each consumer by exactly the numbers it had not read.
#[expect(clippy::too_many_lines, reason = "a model, and what it is held against")]
#[test]
fn drop_oldest_reports_to_every_consumer_exactly_what_it_missed() {
    let seed = seed("drop oldest");
    for round in 0..2 * effort() {
        let mut random = Random::new(seed ^ round);
        let max_bytes = *random.pick(&[64 << 10, 90_000, 200_000, 1 << 20]);
        let dir = crate::support::tempdir().unwrap();
        let messages = Messages::new(seed, &[0..=300, 0..=3000, 0..=12_000]);
        let ((), most) = watched(dir.path(), || {
            let mut queue = limited(max_bytes, OnFull::DropOldest).open(dir.path()).unwrap();
            let names = ["", "a", "b"];
            let mut next = [0u64; 3];
            let mut tail = 0;
            let mut lost = 0;
            let mut held = Vec::new();
            queue.consumer("a").unwrap();
            queue.consumer("b").unwrap();
            queue.peek().unwrap();
            for step in 0..600 {
                if random.chance(4) {
                    let which = random.below(3) as usize;
                    for _ in 0..random.below(40) {
                        let read = if which == 0 {
                            queue.dequeue()
                        } else {
                            queue.consumer(names[which]).unwrap().dequeue()
                        };
                        match read {
                            Ok(Some(message)) => {
                                assert_eq!(
                                    message.seq(),
                                    next[which],
                                    "consumer {which} at step {step}"
                                );
                                messages.check(message.seq(), &message);
                                next[which] += 1;
                                if random.chance(30) && held.len() < 3 {
                                    held.push(message);
                                }
                            }
                            Ok(None) => {
                                assert_eq!(next[which], tail);
                                break;
                            }
                            Err(Error::Gap(gap)) => {
                                assert_eq!(
                                    (gap.first, gap.cause),
                                    (next[which], GapCause::Dropped)
                                );
                                lost += gap.count();
                                next[which] = gap.last + 1;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                } else if random.chance(60) {
                    lost = 0;
                    drop(queue);
                    queue = limited(max_bytes, OnFull::DropOldest).open(dir.path()).unwrap();
                } else if random.chance(20) {
                    held.clear();
                } else {
                    for _ in 0..random.below(12) {
                        assert_eq!(queue.enqueue(messages.bytes(tail)).unwrap(), tail);
                        tail += 1;
                    }
                }
                let stats = queue.stats();
                assert_eq!(stats.lost_dropped, lost);
                for which in 0..3 {
                    let len = match which {
                        0 => queue.len(),
                        _ => queue.consumer(names[which]).unwrap().len(),
                    };
                    assert_eq!(
                        len,
                        tail - next[which].max(stats.oldest_seq),
                        "len of {which} at step {step}"
                    );
                }
            }
        });
        assert!(most <= max_bytes, "{most} bytes of {max_bytes} (round {round})");
    }
}

#[test]
fn drop_oldest_does_not_wait_for_busy_or_pausing_readers() {
    within(Duration::from_secs(60), || {
        let dir = crate::support::tempdir().unwrap();
        let messages = Messages::new(5, &[0..=1000]);
        let (max_bytes, total) = (100_000, sample(20_000));
        let ((), most) = watched(dir.path(), || {
            let queue = limited(max_bytes, OnFull::DropOldest)
                .max_mapped_arenas(None)
                .open(dir.path())
                .unwrap();
            crate::support::fill_queue(&queue, &messages, 0, 20);
            // An iterator that pauses within a segment, and a message that is held, keep nothing
            // from being dropped.
            let mut paused = queue.iter();
            messages.check(0, &paused.next().unwrap().unwrap());
            let held = queue.peek().unwrap().unwrap();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let readers: Vec<_> = (0..2)
                    .map(|reader| {
                        let consumer = queue.consumer(&format!("busy {reader}")).unwrap();
                        let (stop, messages) = (&stop, &messages);
                        scope.spawn(move || {
                            let (mut next, mut lost) = (0, 0);
                            loop {
                                let ending = stop.load(Ordering::Relaxed);
                                match consumer.dequeue() {
                                    Ok(Some(message)) => {
                                        assert_eq!(message.seq(), next);
                                        messages.check(next, &message);
                                        next += 1;
                                    }
                                    Ok(None) if ending => return (next, lost),
                                    Ok(None) => {}
                                    Err(Error::Gap(gap)) => {
                                        assert_eq!(
                                            (gap.first, gap.cause),
                                            (next, GapCause::Dropped)
                                        );
                                        next = gap.last + 1;
                                        lost += gap.count();
                                    }
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        })
                    })
                    .collect();
                crate::support::fill_queue(&queue, &messages, 20, total);
                stop.store(true, Ordering::Relaxed);
                let lost: u64 = readers
                    .into_iter()
                    .map(|reader| {
                        let (next, lost) = reader.join().unwrap();
                        assert_eq!(next, total);
                        lost
                    })
                    .sum();
                assert_eq!(queue.stats().lost_dropped, lost);
            });
            messages.check(0, &held);
            let mut reported = 1;
            for looked in paused {
                match looked {
                    Ok(message) => {
                        assert_eq!(message.seq(), reported);
                        reported += 1;
                    }
                    Err(Error::Gap(gap)) => {
                        assert_eq!((gap.first, gap.cause), (reported, GapCause::Dropped));
                        reported = gap.last + 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(reported, total);
        });
        assert!(most <= max_bytes, "{most}");
    });
}

/// The consumer may leave nothing to drop between the look for room and the drop: then there is
/// room.
#[test]
fn what_drops_the_oldest_refuses_nothing_however_fast_it_is_drained() {
    within(Duration::from_secs(300), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = limited(64 << 10, OnFull::DropOldest).open(dir.path()).unwrap();
        queue.peek().unwrap();
        let each = sample(if cfg!(debug_assertions) { 60_000 } else { 600_000 });
        let produced = AtomicBool::new(false);
        let refused: u64 = std::thread::scope(|scope| {
            let producers = [(); 2].map(|()| {
                scope.spawn(|| {
                    (0..each)
                        .map(|_| queue.enqueue([1; 100]))
                        .filter(|result| result.is_err())
                        .count()
                })
            });
            scope.spawn(|| {
                let mut buffer = Vec::new();
                while !produced.load(Ordering::Acquire) {
                    let _ = queue.dequeue_into(&mut buffer);
                }
            });
            let refused = producers.map(|producer| producer.join().unwrap() as u64);
            produced.store(true, Ordering::Release);
            refused.iter().sum()
        });
        assert_eq!((refused, queue.stats().enqueued), (0, 2 * each));
    });
}
