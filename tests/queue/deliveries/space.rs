//! What deliveries hold and need: segments, rows of the index, free space.

use super::*;

#[test]
fn acks_out_of_order_are_remembered_up_to_many_ranges_and_never_lose() {
    let (dir, queue) = filled(400);
    let consumer = queue.consumer("w").unwrap();
    let deliveries: Vec<_> = (0..400).map(|_| next(&consumer)).collect();
    let mut unacked = Vec::new();
    for delivery in deliveries {
        if delivery.seq() % 2 == 1 {
            delivery.ack().unwrap();
        } else {
            unacked.push(delivery);
        }
    }
    assert_eq!(consumer.len(), 200);
    drop(unacked);
    assert_eq!(consumer.len(), 200);
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    let came = drain(&consumer);
    let wanted: Vec<u64> = (0..400).filter(|seq| seq % 2 == 0 || *seq > 227).collect();
    assert_eq!(came, wanted, "114 ranges are remembered, the rest comes again");
}

#[test]
fn one_range_may_be_as_long_as_it_likes() {
    let (dir, queue) = filled(5000);
    let consumer = queue.consumer("w").unwrap();
    let first = next(&consumer);
    assert_eq!(drain(&consumer).len(), 4999);
    drop(first);
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(consumer.len(), 1);
    assert_eq!(drain(&consumer), [0]);
    assert!(consumer.is_empty());
}

#[test]
fn segments_are_held_by_the_oldest_message_that_is_not_acknowledged() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(4 << 20).open(dir.path()).unwrap();
    let big = vec![1; 600 << 10];
    for _ in 0..40 {
        queue.enqueue(&big).unwrap();
    }
    let first = queue.receive().unwrap().unwrap();
    let mut taken = 0;
    while let Some(delivery) = queue.receive().unwrap() {
        delivery.ack().unwrap();
        taken += 1;
    }
    assert_eq!((taken, queue.stats().oldest_seq), (39, 0));
    let before = queue.stats().segments;
    assert!(before >= 5, "{before} segments");
    assert_eq!(&first[..], &big[..], "lent for as long as it is held");
    first.ack().unwrap();
    crate::support::eventually("the segments are given back", || queue.stats().segments == 1);
    assert!(queue.is_empty());
}

#[test]
fn a_message_dropped_to_make_room_may_be_acknowledged_and_is_reported_when_given_back() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new()
        .arena_size(4096)
        .max_bytes(64 << 10)
        .on_full(OnFull::DropOldest)
        .open(dir.path())
        .unwrap();
    let consumer = queue.consumer("w").unwrap();
    let payload = vec![9; 500];
    for _ in 0..4 {
        queue.enqueue(&payload).unwrap();
    }
    let held: Vec<Delivery> = (0..4).map(|_| consumer.receive().unwrap().unwrap()).collect();
    for _ in 0..200 {
        queue.enqueue(&payload).unwrap();
    }
    let oldest = queue.stats().oldest_seq;
    assert!(oldest > 4, "the first ones were dropped: {oldest}");
    assert_eq!(consumer.len(), 204 - oldest);
    let mut held = held.into_iter();
    assert_eq!(&held.next().unwrap()[..], &payload[..]);
    let two = held.nth(1).unwrap();
    two.ack().unwrap();
    // 0 and 1 were given back, 2 acknowledged, 3 is still in flight.
    match consumer.receive() {
        Err(Error::Gap(gap)) => {
            assert_eq!((gap.first, gap.last, gap.cause), (0, 1, GapCause::Dropped))
        }
        other => panic!("expected the gap, got {other:?}"),
    }
    let three = held.next().unwrap();
    assert_eq!(three.seq(), 3);
    three.ack().unwrap();
    match consumer.receive() {
        Err(Error::Gap(gap)) => {
            assert_eq!((gap.first, gap.last, gap.cause), (4, oldest - 1, GapCause::Dropped))
        }
        other => panic!("expected the gap, got {other:?}"),
    }
    let mut seqs = Vec::new();
    while let Some(delivery) = consumer.receive().unwrap() {
        seqs.push(delivery.seq());
        delivery.ack().unwrap();
    }
    assert_eq!(seqs, (oldest..204).collect::<Vec<_>>());
    assert_eq!(queue.stats().lost_dropped, oldest - 2, "what was acknowledged was not lost");
}

#[test]
fn many_consumers_remember_their_acks() {
    let (dir, queue) = filled(5);
    let names: Vec<String> = (0..20).map(|n| format!("consumer {n}")).collect();
    for name in &names {
        let consumer = queue.consumer(name).unwrap();
        let held: Vec<_> = (0..3).map(|_| next(&consumer)).collect();
        held.into_iter().nth(1).unwrap().ack().unwrap();
    }
    let queue = reopen(&dir, queue);
    for name in &names {
        assert_eq!(drain(&queue.consumer(name).unwrap()), [0, 2, 3, 4], "{name}");
    }
    // A row that was given up is used again.
    for name in &names {
        queue.remove_consumer(name).unwrap();
    }
    let consumer = queue.consumer("one more").unwrap();
    let held: Vec<_> = (0..2).map(|_| next(&consumer)).collect();
    held.into_iter().nth(1).unwrap().ack().unwrap();
    drop(consumer);
    let queue = reopen(&dir, queue);
    assert_eq!(drain(&queue.consumer("one more").unwrap()), [0, 2, 3, 4]);
}

#[test]
fn acknowledging_needs_no_space() {
    let (dir, queue) = filled(50);
    let consumer = queue.consumer("w").unwrap();
    let held: Vec<_> = (0..50).map(|_| next(&consumer)).collect();
    let before = queue.stats().disk_bytes;
    held.into_iter().rev().for_each(|delivery| {
        if delivery.seq() != 0 {
            delivery.ack().unwrap();
        }
    });
    assert_eq!(queue.stats().disk_bytes, before);
    drop(consumer);
    let queue = reopen(&dir, queue);
    assert_eq!(drain(&queue.consumer("w").unwrap()), [0]);
}

/// One delivery that is never acknowledged fills the disk in the end: the error says whose it is.
#[test]
fn a_full_queue_names_who_keeps_the_oldest_segment() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(4096).max_bytes(65536).open(dir.path()).unwrap();
    let fill = || loop {
        if let Err(error) = queue.enqueue([1; 1000]) {
            break error;
        }
    };
    let held_by = |error: &Error| match error {
        Error::Full { held_by, .. } => held_by.as_deref().map(|it| (it.consumer.clone(), it.seq)),
        other => panic!("expected Full, got {other:?}"),
    };
    assert_eq!(held_by(&fill()), None, "there is no consumer");
    let (quick, slow) = (queue.consumer("quick").unwrap(), queue.consumer("slow").unwrap());
    slow.skip().unwrap();
    let forgotten = slow.receive().unwrap().unwrap();
    while let Some(job) = slow.receive().unwrap() {
        job.ack().unwrap();
    }
    while quick.skip().unwrap().is_some() {}
    let error = fill();
    assert_eq!(held_by(&error), Some(("slow".to_owned(), 1)));
    assert!(
        error
            .to_string()
            .ends_with("; consumer \"slow\" keeps the oldest segment: it is at message 1")
    );
    forgotten.ack().unwrap();
    queue.enqueue([1; 1000]).unwrap();
}
