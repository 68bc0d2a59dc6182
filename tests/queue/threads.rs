//! Promise P2 among threads: each message comes to exactly one reader, and the messages of one
//! producer come to each reader in the order they were put in.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{KIB, MIB, Messages, Random, in_parts, sample, seed, within};
use mmq::{Options, Queue};

const LIMIT: Duration = Duration::from_secs(300);

/// A message's key names its producer and its place among that producer's messages; its first eight
/// bytes carry it.
fn key(producer: u64, number: u64) -> u64 {
    producer << 32 | number
}

fn message(messages: &Messages, key: u64) -> Vec<u8> {
    let mut bytes = key.to_le_bytes().to_vec();
    bytes.extend(messages.bytes(key));
    bytes
}

fn key_of(messages: &Messages, bytes: &[u8]) -> u64 {
    let key = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    messages.check(key, &bytes[8..]);
    key
}

#[derive(Debug, Clone, Copy)]
struct Load {
    producers: u64,
    consumers: usize,
    each: u64,
    peekers: usize,
}

/// What one reader took: number and key, in its order.
fn take(
    queue: &Queue,
    messages: &Messages,
    taken: &AtomicU64,
    total: u64,
    seed: u64,
) -> Vec<(u64, u64)> {
    let mut random = Random::new(seed);
    let (mut got, mut buffer) = (Vec::new(), Vec::new());
    while taken.load(Ordering::Relaxed) < total {
        let before = got.len();
        match random.below(3) {
            0 => got.extend(
                queue.dequeue().unwrap().map(|message| (message.seq(), key_of(messages, &message))),
            ),
            1 => got.extend(
                queue
                    .dequeue_into(&mut buffer)
                    .unwrap()
                    .map(|seq| (seq, key_of(messages, &buffer))),
            ),
            _ => {
                let batch = queue.dequeue_batch(1 + random.below(6) as usize).unwrap();
                got.extend(batch.iter().map(|message| (message.seq(), key_of(messages, message))));
            }
        }
        match got.len() - before {
            0 => std::thread::yield_now(),
            count => _ = taken.fetch_add(count as u64, Ordering::Relaxed),
        }
    }
    got
}

/// What one producer put in: number and key, in its order.
fn put(queue: &Queue, messages: &Messages, producer: u64, each: u64, seed: u64) -> Vec<(u64, u64)> {
    let mut random = Random::new(seed);
    let mut given = Vec::new();
    let mut number = 0;
    while number < each {
        let left = each - number;
        match random.below(4) {
            0 => {
                let count = (1 + random.below(5)).min(left);
                let keys: Vec<u64> =
                    (number..number + count).map(|number| key(producer, number)).collect();
                let range =
                    queue.enqueue_batch(keys.iter().map(|key| message(messages, *key))).unwrap();
                assert_eq!(range.end - range.start, count);
                given.extend(range.zip(keys));
                number += count;
                continue;
            }
            1 => {
                let bytes = message(messages, key(producer, number));
                let seq = queue.enqueue_parts(&in_parts(&bytes)).unwrap();
                given.push((seq, key(producer, number)));
            }
            _ => {
                let seq = queue.enqueue(message(messages, key(producer, number))).unwrap();
                given.push((seq, key(producer, number)));
            }
        }
        number += 1;
    }
    given
}

fn run(name: &str, options: Options, sizes: &[RangeInclusive<usize>], load: Load) {
    let seed = seed(name);
    let messages = Messages::new(seed, sizes);
    within(LIMIT, move || {
        let dir = crate::support::tempdir().unwrap();
        let queue = options.clone().open(dir.path()).unwrap();
        let total = load.producers * load.each;
        let (taken, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let (put_in, taken_out) = std::thread::scope(|scope| {
            let (queue, messages, taken, done) = (&queue, &messages, &taken, &done);
            let producers: Vec<_> = (0..load.producers)
                .map(|producer| {
                    scope.spawn(move || put(queue, messages, producer, load.each, seed ^ producer))
                })
                .collect();
            let consumers: Vec<_> = (0..load.consumers as u64)
                .map(|reader| {
                    scope.spawn(move || take(queue, messages, taken, total, seed ^ reader << 8))
                })
                .collect();
            for peeker in 0..load.peekers {
                scope.spawn(move || look(queue, messages, done, peeker));
            }
            let put_in: Vec<_> = producers.into_iter().map(|thread| thread.join()).collect();
            let taken_out: Vec<_> = consumers.into_iter().map(|thread| thread.join()).collect();
            // The peekers end before a panic is passed on, or the scope would wait for them for
            // ever.
            done.store(true, Ordering::Relaxed);
            let put_in: Vec<_> = put_in.into_iter().map(Result::unwrap).collect();
            let taken_out: Vec<_> = taken_out.into_iter().map(Result::unwrap).collect();
            (put_in, taken_out)
        });
        assert!(queue.is_empty());
        judge(&put_in, &taken_out, total);
        queue.close().unwrap();
        assert!(options.open(dir.path()).unwrap().is_empty());
    });
}

/// Reads beside the others without taking anything.
fn look(queue: &Queue, messages: &Messages, done: &AtomicBool, peeker: usize) {
    let mut buffer = Vec::new();
    let mut last = 0;
    while !done.load(Ordering::Relaxed) {
        if let Some(message) = queue.peek().unwrap() {
            key_of(messages, &message);
            assert!(message.seq() >= last, "the head went back from {last} to {}", message.seq());
            last = message.seq();
        }
        if queue.peek_into(&mut buffer).unwrap().is_some() {
            key_of(messages, &buffer);
        }
        if peeker % 2 == 1 {
            let seen: Vec<u64> =
                queue.iter().take(5).map(|message| message.unwrap().seq()).collect();
            assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        }
        let _ = (queue.len(), queue.is_empty(), queue.stats(), queue.durable_seq());
        std::thread::yield_now();
    }
}

fn judge(put_in: &[Vec<(u64, u64)>], taken_out: &[Vec<(u64, u64)>], total: u64) {
    for given in put_in {
        assert!(given.is_sorted_by(|a, b| a.0 < b.0), "one producer's numbers rise");
    }
    let given: HashMap<u64, u64> = put_in.iter().flatten().copied().collect();
    assert_eq!(given.len() as u64, total);
    assert!((0..total).all(|seq| given.contains_key(&seq)), "numbers without holes");
    let mut seen = HashMap::new();
    for stream in taken_out {
        assert!(stream.is_sorted_by(|a, b| a.0 < b.0), "one reader's numbers rise");
        let mut latest: HashMap<u64, u64> = HashMap::new();
        for &(seq, key) in stream {
            assert_eq!(
                given.get(&seq),
                Some(&key),
                "message {seq} is the one enqueued under that number"
            );
            assert_eq!(seen.insert(seq, key), None, "message {seq} came twice");
            if let Some(before) = latest.insert(key >> 32, key) {
                assert!(before < key, "a producer's messages came out of order");
            }
        }
    }
    assert_eq!(seen.len() as u64, total);
}

fn small_arenas() -> Options {
    Options::new().arena_size(4096).max_mapped_arenas(3)
}

#[test]
fn small_messages_of_four_producers_come_once_to_four_readers() {
    let load = Load { producers: 4, consumers: 4, each: 5000, peekers: 0 };
    run("small messages", Options::new(), &[0..=200], load);
    run("small messages, small arenas", small_arenas(), &[0..=200], load);
}

#[test]
fn one_producer_and_one_reader_meet_at_the_empty_queue() {
    let load = Load { producers: 1, consumers: 1, each: 20_000, peekers: 0 };
    run("one and one", small_arenas(), &[0..=60], load);
}

#[test]
fn messages_larger_than_arenas_of_several_producers_come_once() {
    let load = Load { producers: 3, consumers: 3, each: 400, peekers: 0 };
    run(
        "large messages",
        small_arenas(),
        &[0..=100, 5 * KIB..=50 * KIB, 100 * KIB..=300 * KIB],
        load,
    );
    let load = Load { producers: 2, consumers: 2, each: 20, peekers: 0 };
    run("messages larger than segments", small_arenas(), &[0..=100, MIB..=6 * MIB], load);
}

#[test]
fn two_producers_of_64_kib_messages_do_not_disturb_each_other() {
    let load = Load { producers: 2, consumers: 1, each: 1500, peekers: 0 };
    run("64 KiB", Options::new().arena_size(4 << 20), &[64 * KIB..=64 * KIB], load);
    run(
        "64 KiB, no cap",
        Options::new().arena_size(1 << 20).max_mapped_arenas(None),
        &[64 * KIB..=64 * KIB],
        load,
    );
}

#[test]
fn peeking_beside_readers_and_producers_disturbs_nobody() {
    let load = Load { producers: 2, consumers: 2, each: 3000, peekers: 2 };
    run("peeks beside", small_arenas(), &[0..=100, 0..=9000], load);
}

#[test]
fn small_segments_are_recycled_under_readers_and_peekers() {
    let options = Options::new().arena_size(4096).max_bytes(64 << 20);
    let load = Load { producers: 2, consumers: 2, each: 4000, peekers: 2 };
    run("recycling", options, &[0..=100, 4 * KIB..=12 * KIB], load);
}

#[test]
fn flushing_beside_everything_else_disturbs_nobody() {
    let options = Options::new()
        .arena_size(64 << 10)
        .flush_every_ops(500)
        .flush_every(Duration::from_millis(5));
    let load = Load { producers: 3, consumers: 2, each: 2000, peekers: 1 };
    run("flushes beside", options, &[0..=100, 0..=9000], load);
}

#[test]
fn a_reader_that_begins_while_the_first_messages_come_in_misses_none() {
    within(LIMIT, || {
        let each = sample(500);
        for _ in 0..sample(200).min(100) {
            let dir = crate::support::tempdir().unwrap();
            let queue = small_arenas().open(dir.path()).unwrap();
            let barrier = std::sync::Barrier::new(3);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        barrier.wait();
                        (0..each).for_each(|_| assert!(queue.enqueue([1; 40]).is_ok()));
                    });
                }
                scope.spawn(|| {
                    barrier.wait();
                    for seq in 0..2 * each {
                        let message = loop {
                            match queue.dequeue().unwrap() {
                                Some(message) => break message,
                                None => std::thread::yield_now(),
                            }
                        };
                        assert_eq!(
                            message.seq(),
                            seq,
                            "the default consumer begins at the first message"
                        );
                    }
                });
            });
        }
    });
}
