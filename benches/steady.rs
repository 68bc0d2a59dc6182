//! Steady state: as many messages go out as come in, and every segment is used again. Beside each
//! figure stands its floor: a plain memcpy with the same checksum into a mapped arena that is used
//! again and again.
//!
//! - `pair`: enqueue and dequeue by turns.
//! - `backlog-1000`: the same with a thousand messages in between.
//! - `enqueue`, `dequeue`, `peek`: one operation alone; a batch goes in, the same batch comes out.
//! - `enqueue_batch`, `dequeue_batch_into`: the same with 64 messages in a call. The time is that
//!   of all 64; the floor takes them one by one.
//! - `offsets` (a table at the end): the message at every 16-byte offset in a page. Some
//!   processors' memcpy falls to a twentieth at some distances between source and target.

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group};
use mmq::{MessageBatch, Queue};

use support::floor::Ring;
use support::{asked_for, human, median, payload, print_fingerprint, scratch, timed};

const LENGTHS: [usize; 6] = [128, 1 << 10, 4 << 10, 16 << 10, 128 << 10, 1 << 20];

fn queue(dir: &tempfile::TempDir) -> Queue {
    Queue::options()
        .arena_size(4 << 20)
        .max_mapped_arenas(None)
        .open(dir.path().join("queue"))
        .expect("a queue")
}

/// Goes once through every segment that the benchmark needs, so that from here on each is used
/// again.
fn warm(queue: &Queue, message: &[u8]) {
    for _ in 0..(32 << 20) / message.len() {
        queue.enqueue(message).expect("room");
        queue.skip().expect("intact");
    }
}

fn settings(group: &mut BenchmarkGroup<'_, WallTime>, len: usize) {
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    group.throughput(Throughput::Bytes(len as u64));
}

fn id(name: &str, len: usize) -> String {
    format!("{name}/MessageSize-{}", human(len as u64))
}

fn pairs(c: &mut Criterion) {
    for (name, backlog) in [("pair", 0), ("backlog-1000", 1000)] {
        let mut group = c.benchmark_group(name);
        for len in LENGTHS.into_iter().filter(|len| backlog * len <= 128 << 20) {
            settings(&mut group, len);
            let (message, dir) = (payload(len), scratch());
            let mut buffer = Vec::with_capacity(len);
            let queue = queue(&dir);
            (0..backlog).for_each(|_| assert!(queue.enqueue(&message).is_ok()));
            (0..backlog).for_each(|_| assert!(queue.skip().is_ok()));
            warm(&queue, &message);
            (0..backlog).for_each(|_| assert!(queue.enqueue(&message).is_ok()));
            group.bench_function(id("mmq", len), |b| {
                b.iter(|| {
                    queue.enqueue(black_box(&message)).expect("room");
                    queue.dequeue_into(&mut buffer).expect("intact");
                    black_box(&buffer);
                });
            });
            let mut ring = Ring::new(dir.path(), backlog * (len + 16) + (4 << 20));
            (0..backlog).for_each(|_| ring.enqueue(&message));
            group.bench_function(id("floor", len), |b| {
                b.iter(|| {
                    ring.enqueue(black_box(&message));
                    assert!(ring.dequeue_into(len, &mut buffer));
                    black_box(&buffer);
                });
            });
        }
        group.finish();
    }
}

/// Times one side of batches that go in and come out again.
fn sides(
    iters: u64,
    batch: u64,
    timed_side: usize,
    mut sides: [&mut dyn FnMut(u64); 2],
) -> Duration {
    let (mut total, mut left) = (Duration::ZERO, iters);
    while left > 0 {
        let count = left.min(batch);
        for (side, work) in sides.iter_mut().enumerate() {
            let time = timed(|| work(count));
            if side == timed_side {
                total += time;
            }
        }
        left -= count;
    }
    total
}

/// The floor of one side, in batches of so many calls, each of so many messages.
fn floor_alone(
    group: &mut BenchmarkGroup<'_, WallTime>,
    dir: &tempfile::TempDir,
    message: &[u8],
    side: usize,
    [batch, messages]: [u64; 2],
) {
    let len = message.len();
    let ring = std::cell::RefCell::new(Ring::new(dir.path(), 4 << 20));
    let mut buffer = Vec::with_capacity(len);
    let mut put = |count: u64| {
        let mut ring = ring.borrow_mut();
        (0..count * messages).for_each(|_| ring.enqueue(black_box(message)));
    };
    let mut take = |count: u64| {
        let mut ring = ring.borrow_mut();
        for _ in 0..count * messages {
            assert!(ring.dequeue_into(len, &mut buffer));
            black_box(&buffer);
        }
    };
    group.bench_function(id("floor", len), |b| {
        b.iter_custom(|iters| sides(iters, batch, side, [&mut put, &mut take]));
    });
}

fn alone(c: &mut Criterion) {
    for (side, name) in ["enqueue", "dequeue"].into_iter().enumerate() {
        let mut group = c.benchmark_group(name);
        for len in LENGTHS {
            settings(&mut group, len);
            let batch = ((2 << 20) / len as u64).clamp(2, 4096);
            let (message, dir) = (payload(len), scratch());
            let mut buffer = Vec::with_capacity(len);
            let queue = queue(&dir);
            warm(&queue, &message);
            let mut put = |count| {
                (0..count).for_each(|_| assert!(queue.enqueue(black_box(&message)).is_ok()))
            };
            let mut take = |count| {
                for _ in 0..count {
                    queue.dequeue_into(&mut buffer).expect("intact");
                    black_box(&buffer);
                }
            };
            group.bench_function(id("mmq", len), |b| {
                b.iter_custom(|iters| sides(iters, batch, side, [&mut put, &mut take]));
            });
            floor_alone(&mut group, &dir, &message, side, [batch, 1]);
        }
        group.finish();
    }
}

fn batches(c: &mut Criterion) {
    const MESSAGES: usize = 64;
    for (side, name) in ["enqueue_batch", "dequeue_batch_into"].into_iter().enumerate() {
        let mut group = c.benchmark_group(name);
        for len in [128, 1 << 10] {
            settings(&mut group, MESSAGES * len);
            let (message, dir) = (payload(len), scratch());
            let (queue, mut taken) = (queue(&dir), MessageBatch::new());
            warm(&queue, &message);
            let mut put = |count| {
                for _ in 0..count {
                    queue.enqueue_batch([black_box(&message); MESSAGES]).expect("room");
                }
            };
            let mut take = |count| {
                for _ in 0..count {
                    let count = queue.dequeue_batch_into(&mut taken, MESSAGES).expect("intact");
                    assert_eq!(count, MESSAGES);
                    black_box(&taken);
                }
            };
            group.bench_function(id("mmq", len), |b| {
                b.iter_custom(|iters| sides(iters, 16, side, [&mut put, &mut take]));
            });
            floor_alone(&mut group, &dir, &message, side, [16, MESSAGES as u64]);
        }
        group.finish();
    }
}

fn peek(c: &mut Criterion) {
    let mut group = c.benchmark_group("peek");
    for len in LENGTHS {
        settings(&mut group, len);
        let (message, dir) = (payload(len), scratch());
        let mut buffer = Vec::with_capacity(len);
        let queue = queue(&dir);
        queue.enqueue(&message).expect("room");
        group.bench_function(id("mmq", len), |b| {
            b.iter(|| {
                queue.peek_into(&mut buffer).expect("intact");
                black_box(&buffer);
            });
        });
        let mut ring = Ring::new(dir.path(), 4 << 20);
        ring.enqueue(&message);
        group.bench_function(id("floor", len), |b| {
            b.iter(|| {
                assert!(ring.peek_into(len, &mut buffer));
                black_box(&buffer);
            });
        });
    }
    group.finish();
}

/// Prints the nanoseconds of an enqueue and a dequeue with the caller's bytes at every 16-byte
/// offset in a page.
fn offsets() {
    println!("\nsource and target at every 16-byte offset in a page, ns: best, median, worst (at)");
    for len in [4 << 10, 16 << 10, 128 << 10] {
        let dir = scratch();
        let queue = queue(&dir);
        let bytes = payload(len + 3 * 4096);
        let start = bytes.as_ptr().align_offset(4096);
        warm(&queue, &bytes[..len]);
        let mut lines = [Vec::new(), Vec::new()];
        for offset in (0..4096).step_by(16) {
            let message = &bytes[start + offset..][..len];
            let mut best = [f64::MAX; 2];
            for _ in 0..8 {
                let count = 16;
                let began = Instant::now();
                (0..count).for_each(|_| assert!(queue.enqueue(black_box(message)).is_ok()));
                best[0] = best[0].min(began.elapsed().as_nanos() as f64 / f64::from(count));
                // The allocator chooses the buffer's address. So `enqueue` meets every distance;
                // here only the record's offset varies.
                let mut buffer = Vec::with_capacity(len);
                let began = Instant::now();
                (0..count)
                    .for_each(|_| assert!(queue.dequeue_into(black_box(&mut buffer)).is_ok()));
                best[1] = best[1].min(began.elapsed().as_nanos() as f64 / f64::from(count));
            }
            lines[0].push((best[0], offset));
            lines[1].push((best[1], offset));
        }
        for (name, line) in ["enqueue", "dequeue"].into_iter().zip(&lines) {
            let least = line.iter().fold(f64::MAX, |least, (ns, _)| least.min(*ns));
            let (most, at) =
                line.iter().copied().fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
            let middle = median(&mut line.iter().map(|(ns, _)| *ns).collect::<Vec<_>>());
            println!(
                "{name} {:>6}: {least:>8.0} {middle:>8.0} {most:>8.0} ({at})",
                human(len as u64)
            );
        }
    }
}

criterion_group!(steady, pairs, alone, batches, peek);

fn main() {
    print_fingerprint();
    steady();
    if !asked_for("--test") && !asked_for("--list") {
        offsets();
    }
    Criterion::default().configure_from_args().final_summary();
}
