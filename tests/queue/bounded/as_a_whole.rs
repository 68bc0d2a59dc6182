//! Batches, and messages in parts, find room as a whole or are refused.

use super::*;

#[test]
fn batches_keep_to_the_limit_as_a_whole() {
    let dir = crate::support::tempdir().unwrap();
    let ((), most) = watched(dir.path(), || {
        let queue = limited(64 << 10, OnFull::Reject).open(dir.path()).unwrap();
        let batch = vec![vec![1u8; 700]; 10];
        let mut whole = 0;
        while queue.enqueue_batch(&batch).is_ok() {
            whole += 10;
        }
        assert_eq!(queue.len(), whole, "no part of the refused one");
        let queue = {
            drop(queue);
            limited(64 << 10, OnFull::DropOldest).open(dir.path()).unwrap()
        };
        queue.peek().unwrap();
        for _ in 0..100 {
            queue.enqueue_batch(&batch).unwrap();
        }
        let next = queue.stats().next_seq;
        assert_eq!(next, whole + 1000);
        assert_eq!(drain(&queue, 2000, |_, _| {}).span(), Some((0, next)));
    });
    assert!(most <= 64 << 10, "{most}");
}

#[test]
fn a_message_in_parts_finds_room_for_all_of_it() {
    within(Duration::from_secs(120), || {
        for flushed in [false, true] {
            let dir = crate::support::tempdir().unwrap();
            let options = limited(MIB as u64, OnFull::DropOldest);
            let queue = if flushed { options.flush_every_ops(1) } else { options }
                .open(dir.path())
                .unwrap();
            let messages = Messages::new(9, &[300 * KIB..=400 * KIB, 0..=100, 60 * KIB..=80 * KIB]);
            let rounds = if flushed { 40 } else { 200 };
            for seq in 0..rounds {
                let given = queue.enqueue_parts(&in_parts(&messages.bytes(seq)));
                assert_eq!(given.unwrap(), seq);
            }
            let mut last = None;
            loop {
                match queue.dequeue() {
                    Ok(Some(message)) => {
                        messages.check(message.seq(), &message);
                        last = Some(message.seq());
                    }
                    Ok(None) => break,
                    Err(Error::Gap(gap)) => assert_eq!(gap.cause, GapCause::Dropped),
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(last, Some(rounds - 1));
        }
    });
}

#[test]
fn a_message_in_parts_waits_for_room_for_all_of_it() {
    within(Duration::from_secs(120), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = limited(MIB as u64, OnFull::Wait(None)).open(dir.path()).unwrap();
        let messages = Messages::new(10, &[300 * KIB..=400 * KIB, 0..=100]);
        queue.peek().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 0..100 {
                    let message = queue.dequeue_timeout(Duration::MAX).unwrap().unwrap();
                    assert_eq!(message.seq(), seq);
                    messages.check(seq, &message);
                }
            });
            for seq in 0..100 {
                let given = queue.enqueue_parts(&in_parts(&messages.bytes(seq)));
                assert_eq!(given.unwrap(), seq);
            }
        });
    });
}

#[test]
fn where_there_is_no_room_for_all_parts_of_a_message_none_is_put_in() {
    for policy in [OnFull::Reject, OnFull::Wait(Some(Duration::from_millis(1)))] {
        let dir = crate::support::tempdir().unwrap();
        let queue = limited(MIB as u64, policy).open(dir.path()).unwrap();
        let len = 300 * KIB;
        let mut done = 0;
        let refused = loop {
            match queue.enqueue_parts(&in_parts(&vec![done + 1; len])) {
                Ok(_) => done += 1,
                Err(error) => break error,
            }
        };
        assert!(is_full(&refused), "{refused}");
        assert!(done >= 2, "{done} messages");
        // What room was made for the refused one is free again.
        assert_eq!(queue.enqueue("short").unwrap(), u64::from(done));
        for number in 1..=done {
            assert!(*queue.dequeue().unwrap().unwrap() == *vec![number; len]);
        }
        assert_eq!(&*queue.dequeue().unwrap().unwrap(), b"short");
        assert!(queue.dequeue().unwrap().is_none());
    }
}
