//! Threads: one to eight producers, consumers, and both. (`matrix` has bigqueue's Parallel table.)
//!
//! - `producers`, `consumers`: only one side; counts the messages of all threads together.
//! - `one-to-one`: as many consumers as producers; a message is one operation, from enqueue to
//!   delivery. `alternating` is the same work by one thread.
//! - `floor`: one thread, memcpy and checksum into a recycled arena and out again.

mod support;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group};
use mmq::Queue;

use support::floor::Ring;
use support::{human, payload, print_fingerprint, scratch, timed, together};

const LENGTHS: [usize; 3] = [128, 4 << 10, 16 << 10];
const THREADS: [u64; 4] = [1, 2, 4, 8];
/// Bytes that may lie in the queue when only one side is timed.
const BACKLOG: u64 = 64 << 20;

fn queue(dir: &tempfile::TempDir) -> Queue {
    Queue::options()
        .arena_size(4 << 20)
        .max_mapped_arenas(None)
        .open(dir.path().join("queue"))
        .expect("a queue")
}

fn settings(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
}

fn share(total: u64, threads: u64, thread: u64) -> u64 {
    total / threads + u64::from(thread < total % threads)
}

fn enqueue(queue: &Queue, message: &[u8], count: u64) {
    for _ in 0..count {
        queue.enqueue(black_box(message)).expect("room");
    }
}

/// Takes messages until `left`, which all consumers share, is zero.
fn dequeue(queue: &Queue, left: &AtomicU64, len: usize) {
    let mut buffer = Vec::with_capacity(len);
    while left.load(Ordering::Relaxed) > 0 {
        if queue.dequeue_into(&mut buffer).expect("intact").is_some() {
            black_box(&buffer);
            left.fetch_sub(1, Ordering::Relaxed);
        } else {
            std::thread::yield_now();
        }
    }
}

fn batches(iters: u64, len: usize, mut batch: impl FnMut(u64) -> Duration) -> Duration {
    let most = BACKLOG / (len as u64 + 16);
    let (mut total, mut left) = (Duration::ZERO, iters);
    while left > 0 {
        let now = left.min(most);
        total += batch(now);
        left -= now;
    }
    total
}

fn run(
    c: &mut Criterion,
    name: &str,
    threads: &[u64],
    work: impl Fn(&Queue, &[u8], u64, u64) -> Duration,
) {
    let mut group = c.benchmark_group(name);
    settings(&mut group);
    for len in LENGTHS {
        let message = payload(len);
        group.throughput(Throughput::Bytes(len as u64));
        for &threads in threads {
            let dir = scratch();
            let queue = queue(&dir);
            group.bench_function(
                format!("MessageSize-{}/Threads-{threads}", human(len as u64)),
                |b| {
                    b.iter_custom(|iters| {
                        batches(iters, len, |count| work(&queue, &message, threads, count))
                    });
                },
            );
        }
    }
    group.finish();
}

fn producers(c: &mut Criterion) {
    run(c, "producers", &THREADS, |queue, message, threads, count| {
        let time = together(threads, Instant::now, |thread| {
            enqueue(queue, message, share(count, threads, thread));
        })
        .elapsed();
        while queue.skip().expect("intact").is_some() {}
        time
    });
}

fn consumers(c: &mut Criterion) {
    run(c, "consumers", &THREADS, |queue, message, threads, count| {
        enqueue(queue, message, count);
        let left = AtomicU64::new(count);
        together(threads, Instant::now, |_| {
            let mut buffer = Vec::with_capacity(message.len());
            while queue.dequeue_into(&mut buffer).expect("intact").is_some() {
                black_box(&buffer);
            }
            left.store(0, Ordering::Relaxed);
        })
        .elapsed()
    });
}

fn one_to_one(c: &mut Criterion) {
    run(c, "one-to-one", &THREADS, |queue, message, pairs, count| {
        let left = AtomicU64::new(count);
        let time = together(2 * pairs, Instant::now, |thread| {
            if thread % 2 == 0 {
                enqueue(queue, message, share(count, pairs, thread / 2));
            } else {
                dequeue(queue, &left, message.len());
            }
        })
        .elapsed();
        while queue.skip().expect("intact").is_some() {}
        time
    });
    run(c, "alternating", &[1], |queue, message, _, count| {
        let mut buffer = Vec::with_capacity(message.len());
        timed(|| {
            for _ in 0..count {
                queue.enqueue(black_box(message)).expect("room");
                queue.dequeue_into(&mut buffer).expect("intact");
                black_box(&buffer);
            }
        })
    });
}

fn floor(c: &mut Criterion) {
    let mut group = c.benchmark_group("floor");
    settings(&mut group);
    for len in LENGTHS {
        let message = payload(len);
        let dir = scratch();
        let mut ring = Ring::new(dir.path(), 4 << 20);
        let mut buffer = Vec::with_capacity(len);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("MessageSize-{}", human(len as u64)), |b| {
            b.iter(|| {
                ring.enqueue(black_box(&message));
                assert!(ring.dequeue_into(len, &mut buffer));
                black_box(&buffer);
            });
        });
    }
    group.finish();
}

criterion_group!(threads, producers, consumers, one_to_one, floor);

fn main() {
    print_fingerprint();
    threads();
    Criterion::default().configure_from_args().final_summary();
}
