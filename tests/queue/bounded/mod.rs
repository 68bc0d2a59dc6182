//! Promise P6, the disk's part: the queue never takes more than `max_bytes`, every file counted,
//! whatever the policy; and each policy does what it says.

mod as_a_whole;
mod drop_oldest;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    KIB, MIB, Messages, Random, Reported, drain, eventually, in_parts, open_files, seed, within,
};
use crate::watch::{taken as disk, watched};
use mmq::{Error, GapCause, OnFull, Options};

fn limited(max_bytes: u64, policy: OnFull) -> Options {
    Options::new().arena_size(4096).max_bytes(max_bytes).on_full(policy)
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Full { used, limit, needed, .. } if used + needed > *limit)
}

#[test]
fn reject_refuses_and_takes_again_when_there_is_room() {
    for max_bytes in [64 << 10, 100_000, 256 << 10, 1 << 20] {
        let dir = crate::support::tempdir().unwrap();
        let messages = Messages::new(max_bytes, &[0..=3000]);
        let ((), most) = watched(dir.path(), || {
            let queue = limited(max_bytes, OnFull::Reject).open(dir.path()).unwrap();
            let (mut head, mut tail) = (0, 0);
            for _ in 0..30 {
                loop {
                    match queue.enqueue(messages.bytes(tail)) {
                        Ok(seq) => assert_eq!(seq, tail),
                        Err(error) => {
                            assert!(is_full(&error), "{error}");
                            break;
                        }
                    }
                    tail += 1;
                }
                assert!(tail - head >= 3, "{max_bytes}: only {} messages fit", tail - head);
                assert_eq!(queue.len(), tail - head);
                while let Some(message) = queue.dequeue().unwrap() {
                    messages.check(head, &message);
                    head += 1;
                }
                assert_eq!(head, tail);
            }
            assert_eq!(queue.stats().gaps, 0);
        });
        assert!(most <= max_bytes, "{most} bytes of {max_bytes}");
    }
}

#[test]
fn a_full_queue_uses_what_it_may() {
    let dir = crate::support::tempdir().unwrap();
    let queue = limited(1 << 20, OnFull::Reject).open(dir.path()).unwrap();
    let mut bytes = 0;
    while queue.enqueue([1; 1000]).is_ok() {
        bytes += 1000;
    }
    assert!(bytes > 850_000, "{bytes} bytes of 1 MiB");
    // Space that waits to be used again is space.
    while queue.dequeue().unwrap().is_some() {}
    let mut again = 0;
    while queue.enqueue([1; 1000]).is_ok() {
        again += 1000;
    }
    assert!(again > 750_000, "{again} bytes the second time");
}

#[test]
fn a_message_that_could_never_fit_is_refused_at_once_under_every_policy() {
    for policy in [OnFull::Reject, OnFull::Wait(None), OnFull::DropOldest] {
        within(Duration::from_secs(30), move || {
            let dir = crate::support::tempdir().unwrap();
            let queue = limited(64 << 10, policy).open(dir.path()).unwrap();
            queue.enqueue("small").unwrap();
            for len in [24 * KIB, 64 * KIB, MIB] {
                match queue.enqueue(vec![0; len]) {
                    Err(Error::MessageTooLarge { len: reported, max, .. }) => {
                        assert_eq!(reported, len as u64);
                        assert!(max < len as u64);
                    }
                    other => panic!("{policy:?}: {len} bytes gave {other:?}"),
                }
                assert!(matches!(
                    queue.enqueue_parts(&in_parts(&vec![0; len])),
                    Err(Error::MessageTooLarge { .. })
                ));
            }
            assert_eq!(queue.len(), 1, "{policy:?}: nothing was dropped for it");
            // The largest that is allowed fits whatever lies before it.
            let Err(Error::MessageTooLarge { max, .. }) = queue.enqueue(vec![0; MIB]) else {
                panic!("too large")
            };
            if policy != OnFull::Wait(None) {
                for before in [0, 1, 4000, 8000] {
                    while queue.dequeue().is_ok_and(|message| message.is_some()) {}
                    queue.enqueue(vec![0; before]).unwrap();
                    while matches!(queue.dequeue(), Ok(Some(_)) | Err(Error::Gap(_))) {}
                    eventually("it fits", || queue.enqueue(vec![7; max as usize]).is_ok());
                }
            }
        });
    }
}

#[test]
fn a_waiting_producer_goes_on_when_space_is_given_back() {
    within(Duration::from_secs(60), || {
        let dir = crate::support::tempdir().unwrap();
        let messages = Messages::new(3, &[0..=2000]);
        let total = 3000;
        let (latency, most) = watched(dir.path(), || {
            let queue = limited(64 << 10, OnFull::Wait(None)).open(dir.path()).unwrap();
            std::thread::scope(|scope| {
                let producer =
                    scope.spawn(|| crate::support::fill_queue(&queue, &messages, 0, total));
                for seq in 0..total {
                    let message = queue.dequeue_timeout(Duration::from_secs(20)).unwrap().unwrap();
                    assert_eq!(message.seq(), seq);
                    messages.check(seq, &message);
                }
                producer.join().unwrap();
            });
        });
        let () = latency;
        assert!(most <= 64 << 10, "{most}");
    });
}

#[test]
fn a_waiting_producer_gives_up_in_time() {
    let dir = crate::support::tempdir().unwrap();
    let queue =
        limited(64 << 10, OnFull::Wait(Some(Duration::from_millis(80)))).open(dir.path()).unwrap();
    let begin = loop {
        let begin = Instant::now();
        match queue.enqueue([0; 900]) {
            Ok(_) => {}
            Err(error) => {
                assert!(is_full(&error), "{error}");
                break begin;
            }
        }
    };
    let waited = begin.elapsed();
    assert!((Duration::from_millis(75)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
}

#[test]
fn a_waiting_producer_learns_that_the_queue_is_closed() {
    within(Duration::from_secs(30), || {
        let dir = crate::support::tempdir().unwrap();
        let queue =
            std::sync::Arc::new(limited(64 << 10, OnFull::Wait(None)).open(dir.path()).unwrap());
        let consumer = queue.consumer("c").unwrap();
        let sent = std::sync::Arc::new(AtomicU64::new(0));
        let thread = {
            let (queue, sent) = (std::sync::Arc::downgrade(&queue), sent.clone());
            std::thread::spawn(move || {
                // Only the producer's own reference keeps the queue open; it ends when the wait
                // does.
                while let Some(queue) = queue.upgrade() {
                    queue.enqueue([0; 900]).map_err(Some)?;
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                Err::<(), Option<Error>>(None)
            })
        };
        eventually("the queue fills", || sent.load(Ordering::Relaxed) > 10);
        // Most often the producer waits for room by now.
        std::thread::sleep(Duration::from_millis(20));
        // A reader makes room, so the producer ends whatever it was doing.
        drop(queue);
        while let Ok(Some(_)) = consumer.dequeue_timeout(Duration::from_millis(200)) {}
        let error = thread.join().unwrap().unwrap_err();
        assert!(matches!(error, None | Some(Error::Closed)), "{error:?}");
    });
}

#[test]
fn a_queue_that_is_too_large_opens_and_keeps_to_its_policy() {
    for (arena, filled) in [(64 << 10, 6 * MIB), (4 << 20, 6 * MIB), (16 << 20, 3 * MIB)] {
        let made = || {
            let dir = crate::support::tempdir().unwrap();
            let queue = Options::new().arena_size(arena).open(dir.path()).unwrap();
            let total = (filled / 1000) as u64;
            for _ in 0..total {
                queue.enqueue([3; 1000]).unwrap();
            }
            queue.close().unwrap();
            (dir, total)
        };
        // Reject: refused until enough was read.
        let (dir, total) = made();
        let queue = limited(256 << 10, OnFull::Reject).open(dir.path()).unwrap();
        assert_eq!(queue.len(), total);
        let mut more = 0;
        let error = loop {
            match queue.enqueue([4; 1000]) {
                Ok(_) => more += 1,
                Err(error) => break error,
            }
        };
        assert!(is_full(&error), "{error}");
        for _ in 0..total + more {
            queue.dequeue().unwrap().unwrap();
        }
        assert!(queue.dequeue().unwrap().is_none());
        eventually("there is room", || queue.enqueue([5; 20_000]).is_ok());
        eventually("it keeps to its limit", || {
            queue.enqueue([5; 20_000]).is_ok() && disk(dir.path()) <= 256 << 10
        });
        drop(queue);
        // Drop: the oldest go until the limit holds.
        let (dir, total) = made();
        let queue = limited(256 << 10, OnFull::DropOldest).open(dir.path()).unwrap();
        queue.peek().unwrap();
        let mut next = total;
        while disk(dir.path()) > 256 << 10 {
            assert_eq!(queue.enqueue([6; 1000]).unwrap(), next);
            next += 1;
            assert!(next < total + 20_000, "{arena}: never within the limit: {}", queue.stats());
        }
        let drained = drain(&queue, 20_000, |_, _| {});
        assert_eq!(drained.span(), Some((0, next)), "every number is reported");
        assert!(
            matches!(drained.reported[0], Reported::Gap(gap) if gap.cause == GapCause::Dropped),
            "{:?}",
            drained.reported[0]
        );
        assert!(drained.gaps().iter().all(|gap| gap.cause == GapCause::Dropped));
    }
}

#[test]
fn the_index_counts_and_its_growth_keeps_to_the_limit() {
    let dir = crate::support::tempdir().unwrap();
    let ((), most) = watched(dir.path(), || {
        let queue = limited(64 << 10, OnFull::Reject).open(dir.path()).unwrap();
        queue.enqueue("m").unwrap();
        let mut made = 0;
        let error = loop {
            match queue.consumer(&format!("consumer {made}")) {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        assert!(made >= 63, "{made} consumers");
        assert!(error.is_full(), "{error}");
        // Nothing else broke.
        assert_eq!(queue.consumers().len(), made);
        queue.enqueue("n").unwrap();
        assert_eq!(queue.consumer("consumer 7").unwrap().len(), 2);
        queue.remove_consumer("consumer 7").unwrap();
        queue.consumer("another").unwrap();
    });
    assert!(most <= 64 << 10, "{most}");
}

#[test]
fn min_free_bytes_leaves_that_much_of_the_file_system() {
    let dir = crate::support::tempdir().unwrap();
    // More than there is: nothing may be taken, and nothing that is there is harmed.
    let queue = Options::new().arena_size(4096).open(dir.path()).unwrap();
    queue.enqueue("kept").unwrap();
    queue.close().unwrap();
    let queue =
        Options::new().arena_size(4096).min_free_bytes(u64::MAX / 2).open(dir.path()).unwrap();
    let mut put = 0;
    let error = loop {
        match queue.enqueue([0; 60_000]) {
            Ok(_) => put += 1,
            Err(error) => break error,
        }
    };
    assert!(put < 10 && matches!(error, Error::Full { .. }), "{put}: {error}");
    assert_eq!(queue.dequeue().unwrap().unwrap().as_str(), Ok("kept"));
    drop(queue);
    let queue = Options::new().arena_size(4096).min_free_bytes(4096).open(dir.path()).unwrap();
    queue.enqueue([0; 60_000]).unwrap();
}

#[test]
fn many_consumers_in_segments_of_their_own_hold_few_descriptors() {
    const SEGMENTS: u64 = 50;
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(4096).open(dir.path()).unwrap();
    for number in 0..SEGMENTS {
        // Each fills a segment.
        queue.enqueue(vec![number as u8; (4 << 20) - 200]).unwrap();
    }
    assert!(queue.stats().segments >= SEGMENTS);
    // Full segments that are not synced keep descriptors of their own.
    queue.flush().unwrap();
    let consumers: Vec<_> = (0..SEGMENTS)
        .map(|number| queue.consumer(&format!("consumer {number}")).unwrap())
        .collect();
    for (number, consumer) in (0..).zip(&consumers) {
        consumer.seek(number).unwrap();
        if number % 2 == 0 {
            assert_eq!(consumer.peek().unwrap().unwrap()[0], number as u8);
        } else {
            drop(consumer.receive().unwrap());
        }
        // The index, the directory, the tail's segment, spares, and those of 32 that read.
        assert!(open_files(dir.path()) <= 44, "{number}: {}", open_files(dir.path()));
    }
    for (number, consumer) in (0..).zip(&consumers) {
        assert_eq!(consumer.dequeue().unwrap().unwrap()[0], number, "it goes on where it was");
    }
}
