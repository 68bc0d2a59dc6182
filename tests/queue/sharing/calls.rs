//! A client's calls do what the owner's do, with the same errors.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use mmq::{Client, Error, GapCause, OnFull, Options, Start, past_gaps};

use super::owner;
use crate::support::{Messages, effort, eventually, seed, tempdir, within};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn messages_of_every_length_go_both_ways() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let client = Client::connect(dir.path()).unwrap();
    assert_eq!((client.id(), client.owner_pid()), (queue.id(), std::process::id()));
    let sizes = [0..=0, 1..=40, 8_100..=8_300, 65_400..=65_700, 100_000..=3_000_000];
    let messages = Messages::new(seed("messages_of_every_length"), &sizes);
    let reader = client.default_consumer();
    for turn in 0..20 * effort() {
        let numbers: Range<u64> = turn * 10..turn * 10 + 10;
        for seq in numbers.clone() {
            let from = if seq % 2 == 0 {
                client.enqueue(messages.bytes(seq))
            } else {
                queue.enqueue(messages.bytes(seq))
            };
            assert_eq!(from.unwrap(), seq);
        }
        for seq in numbers {
            let peeked = reader.peek().unwrap().unwrap();
            assert_eq!((peeked.seq(), &peeked[..]), (seq, &messages.bytes(seq)[..]));
            let taken = match seq % 3 {
                0 => queue.dequeue().unwrap().unwrap(),
                1 => reader.dequeue().unwrap().unwrap(),
                _ => reader.dequeue_timeout(SOON).unwrap().unwrap(),
            };
            assert_eq!((taken.seq(), &taken[..]), (seq, &messages.bytes(seq)[..]));
        }
        assert!(reader.dequeue().unwrap().is_none());
    }
}

#[test]
fn deliveries_are_settled_as_the_owners_are() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let client = Client::connect(dir.path()).unwrap();
    let workers = client.consumer("workers").unwrap();
    workers.set_redelivery(Duration::from_secs(600), None, 3).unwrap();
    assert_eq!(client.enqueue_batch(["a", "b", "c", "d", "e"]).unwrap(), 0..5);
    let mut jobs = workers.receive_batch(100).unwrap();
    assert_eq!(queue.consumer("workers").unwrap().in_flight(), 5);
    let e = jobs.pop().unwrap();
    e.extend(Duration::from_secs(60)).unwrap();
    jobs.pop().unwrap().reject().unwrap();
    jobs.pop().unwrap().nack();
    mmq::Delivery::ack_batch(jobs).unwrap();
    // A dropped delivery is told, not asked: it comes when the owner has read that.
    let mut gaps = 0;
    let mut next = || {
        let received = past_gaps(
            || workers.receive_timeout(SOON),
            |gap| {
                assert_eq!((gap.first, gap.last, gap.cause), (3, 3, GapCause::Rejected));
                gaps += 1;
            },
        );
        received.unwrap().unwrap()
    };
    let c = next();
    assert_eq!((c.seq(), c.attempts(), &c[..]), (2, 2, &b"c"[..]));
    c.nack_after(Duration::from_millis(1));
    let c = next();
    assert_eq!(c.attempts(), 3);
    c.ack().unwrap();
    assert_eq!(gaps, 1);
    e.ack().unwrap();
    let stats = client.consumer_stats().unwrap();
    let workers = stats.iter().find(|stats| stats.name == "workers").unwrap();
    assert_eq!((workers.messages, workers.next_seq), (0, 5));
}

#[test]
fn errors_are_the_owners_own() {
    let dir = tempdir().unwrap();
    let queue = Options::new().shared(true).max_bytes(1 << 20).open(dir.path()).unwrap();
    let client = Client::connect(dir.path()).unwrap();
    let full = loop {
        if let Err(error) = client.enqueue(vec![7; 60_000]) {
            break error;
        }
    };
    assert!(matches!(full, Error::Full { option: "max_bytes", .. }), "{full}");
    let (mut seen, own) = (client.stats().unwrap(), queue.stats());
    assert!(seen.oldest_age <= own.oldest_age, "{seen:?}, then {own:?}");
    seen.oldest_age = own.oldest_age;
    assert_eq!(seen, own);
    let long = vec![0; (16 << 20) + 1];
    let error = client.enqueue(&long).unwrap_err();
    assert!(matches!(error, Error::MessageTooLarge { max: 0x100_0000, .. }), "{error}");
    let consumer = client.consumer("w").unwrap();
    let error = consumer.seek(10_000).unwrap_err();
    assert!(matches!(&error, Error::NotFound { what: "message", held: Some(_), .. }), "{error}");
    let error = client.consumer(&"x".repeat(256)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { what: "consumer name", .. }), "{error}");
    let error = consumer.fork("w").unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let error = client.wait_durable(1 << 40).unwrap_err();
    assert!(matches!(error, Error::NotFound { what: "message", .. }), "{error}");
    client.remove_consumer("w").unwrap();
    let error = client.remove_consumer("w").unwrap_err();
    assert!(matches!(error, Error::NotFound { what: "consumer", .. }), "{error}");
    let error = consumer.receive_timeout(SOON).unwrap_err();
    assert!(matches!(error, Error::NotFound { what: "consumer", .. }), "{error}");
    client.consumer("w").unwrap().seek(5).unwrap();
    client.flush().unwrap();
    assert!(client.durable_seq().unwrap() > 5);
}

#[test]
fn a_gap_comes_once_and_in_order() {
    let dir = tempdir().unwrap();
    let options = Options::new().shared(true).max_bytes(1 << 20).on_full(OnFull::DropOldest);
    let _queue = options.open(dir.path()).unwrap();
    let client = Client::connect(dir.path()).unwrap();
    let reader = client.consumer("reader").unwrap();
    for _ in 0..100 {
        client.enqueue(vec![1; 60_000]).unwrap();
    }
    let (mut next, mut gaps) = (0, 0);
    loop {
        match reader.receive() {
            Ok(Some(job)) => {
                assert_eq!(job.seq(), next);
                next += 1;
                job.ack().unwrap();
            }
            Ok(None) => break,
            Err(Error::Gap(gap)) => {
                assert_eq!((gap.first, gap.cause), (next, GapCause::Dropped));
                (next, gaps) = (gap.last + 1, gaps + 1);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(next, 100);
    assert!(gaps > 0);
}

#[test]
fn a_client_that_waits_does_not_hold_up_its_other_threads() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let client = Arc::new(Client::connect(dir.path()).unwrap());
    let workers = client.consumer("workers").unwrap();
    queue.enqueue("first").unwrap();
    let first = workers.receive().unwrap().unwrap();
    within(SOON, move || {
        let waiter = {
            let workers = workers.clone();
            std::thread::spawn(move || workers.receive_timeout(SOON).unwrap().unwrap())
        };
        // Whether it waits already or not: these return.
        first.ack().unwrap();
        client.flush().unwrap();
        assert!(client.default_consumer().peek().unwrap().is_some());
        client.enqueue("second").unwrap();
        let second = waiter.join().unwrap();
        assert_eq!(second.as_str(), Ok("second"));
        second.ack().unwrap();
        assert!(workers.receive_timeout(Duration::from_millis(30)).unwrap().is_none());
    });
}

#[test]
fn each_message_goes_to_one_of_many_clients() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let count = 2_000 * effort();
    let path = dir.path().to_owned();
    let read = move || {
        let client = Client::connect(&path).unwrap();
        let workers = client.consumer_at("workers", Start::Oldest).unwrap();
        let mut seen = Vec::new();
        while let Some(job) = workers.receive_timeout(Duration::from_secs(3)).unwrap() {
            if &job[..] == b"end" {
                job.nack_after(Duration::ZERO);
                break;
            }
            seen.push(job.seq());
            job.ack().unwrap();
        }
        seen
    };
    queue.consumer("workers").unwrap();
    let readers: Vec<_> = (0..4).map(|_| std::thread::spawn(read.clone())).collect();
    for number in 0..count {
        queue.enqueue(number.to_string()).unwrap();
    }
    queue.enqueue("end").unwrap();
    let mut seen: Vec<u64> =
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
}

#[test]
fn a_writer_stops_at_the_first_message_that_is_refused() {
    let dir = tempdir().unwrap();
    let queue = Options::new().shared(true).max_bytes(4 << 20).open(dir.path()).unwrap();
    let client = Client::connect(dir.path()).unwrap();
    let mut writer = client.writer().unwrap();
    let count = 20_000;
    (0..count).for_each(|number| writer.enqueue(number.to_string()).unwrap());
    writer.wait().unwrap();
    assert_eq!((writer.stored(), writer.last_seq()), (count, Some(count - 1)));
    let reader = client.default_consumer();
    for number in 0..count {
        let message = queue.dequeue().unwrap().unwrap();
        assert_eq!(message.as_str(), Ok(&*number.to_string()));
    }
    // Small ones would find room where the long one has none.
    let mut writer = client.writer().unwrap();
    let refused = (0..1_000).try_for_each(|number| {
        let len = if number % 2 == 0 { 60_000 } else { 10 };
        writer.enqueue(vec![0; len])
    });
    let refused = refused.and_then(|()| writer.wait()).unwrap_err();
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(matches!(writer.enqueue("more"), Err(Error::InvalidArgument { .. })));
    let stored = writer.stored();
    assert_eq!(queue.len(), stored);
    for number in 0..stored {
        let len = if number % 2 == 0 { 60_000 } else { 10 };
        assert_eq!(reader.dequeue().unwrap().unwrap().len(), len);
    }
}

#[test]
fn a_client_waits_for_room_as_long_as_the_owner_would() {
    let dir = tempdir().unwrap();
    let wait = OnFull::Wait(Some(Duration::from_secs(600)));
    let options = Options::new().shared(true).max_bytes(1 << 20).on_full(wait);
    let queue = options.open(dir.path()).unwrap();
    let client = Client::connect(dir.path()).unwrap();
    let path = dir.path().to_owned();
    let writer = std::thread::spawn(move || {
        let client = Client::connect(path).unwrap();
        for seq in 0..100 {
            assert_eq!(client.enqueue(vec![0; 60_000]).unwrap(), seq);
        }
    });
    for seq in 0..100 {
        let taken = client.default_consumer().dequeue_timeout(SOON).unwrap().unwrap();
        assert_eq!(taken.seq(), seq);
    }
    writer.join().unwrap();
    eventually("the writer has left", || client.connected().unwrap().len() == 1);
    queue.close().unwrap();
}

#[test]
fn a_client_changes_the_rules_and_not_where_dead_letters_go() {
    let dir = tempdir().unwrap();
    let queue = owner(&dir.path().join("jobs"));
    let dead = Arc::new(mmq::Queue::open(dir.path().join("dead")).unwrap());
    let workers = queue.consumer("workers").unwrap();
    workers.set_redelivery(mmq::Redelivery::new().dead_letters(Arc::clone(&dead))).unwrap();
    let client = Client::connect(dir.path().join("jobs")).unwrap();
    let theirs = client.consumer("workers").unwrap();
    theirs.set_redelivery(None, None, 1).unwrap();
    let numbers = client.enqueue_batch((0..100).map(|number| number.to_string())).unwrap();
    let jobs = theirs.receive_batch(1_000).unwrap();
    assert_eq!(jobs.len(), 64, "an answer has so many");
    jobs.into_iter().for_each(mmq::Delivery::nack);
    eventually("all 64 are dead letters", || dead.len() == 64);
    let letter = Client::connect(dir.path().join("dead")).unwrap_err();
    assert!(matches!(letter, Error::Locked { .. }), "{letter}");
    assert_eq!(dead.receive().unwrap().unwrap().origin().unwrap().attempts, 1);
    assert_eq!(numbers, 0..100);
}
