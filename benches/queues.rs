//! The benchmarks that pqueue and dque bring along, with mmq in their place and under their ids, so
//! that mmq can be put beside the tables that pqueue publishes.
//!
//! - `Writing_N` (pqueue): 10,000 messages of N bytes go into a new queue in batches of ten. As in
//!   pqueue's program, the time has that of closing the queue and of removing its files, and not
//!   that of opening it.
//! - `RW_N` (pqueue): the same, and two threads take the messages out, one by one, until all are
//!   out. A thread that finds none sleeps for half a millisecond.
//! - `Enqueue_Safe`, `Dequeue_Turbo` and so on (dque): one message of 64 bytes; in safe mode every
//!   operation waits for the disk.
//! - `NAME/calls`: the same without closing and removing.
//! - `NAME/floor`: without a queue, one write call for each batch, into a new file.
//!
//! `cargo bench --bench queues -- --quick`

mod support;

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group};
use mmq::{Options, Queue};

use support::{asked_for, payload, print_fingerprint, scratch, timed};

const LENGTHS: [(&str, usize); 6] =
    [("16", 16), ("64", 64), ("256", 256), ("2048", 2048), ("16K", 16 << 10), ("64K", 64 << 10)];
const BATCH: usize = 10;

fn settings(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
}

/// What the time of a run contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timed {
    Calls,
    CallsAndEnd,
}

/// How many messages a run has: all that pqueue's program has, or few to show that it works.
fn messages() -> u64 {
    if asked_for("--test") { 100 } else { 10_000 }
}

fn write(queue: &Queue, message: &[u8]) {
    for _ in 0..messages() / BATCH as u64 {
        queue.enqueue_batch([black_box(message); BATCH]).expect("room");
    }
}

/// Takes messages, as another thread does, until both have taken all.
fn read(queue: &Queue, taken: &AtomicU64, len: usize) {
    let mut buffer = Vec::with_capacity(len);
    while taken.load(Ordering::Relaxed) < messages() {
        if queue.dequeue_into(&mut buffer).expect("intact").is_some() {
            black_box(&buffer);
            taken.fetch_add(1, Ordering::Relaxed);
        } else {
            thread::sleep(Duration::from_micros(500));
        }
    }
}

fn run(readers: usize, message: &[u8], timed: Timed) -> Duration {
    let dir = scratch();
    let path = dir.path().join("queue");
    let queue = Queue::open(&path).expect("a queue");
    let taken = AtomicU64::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| read(&queue, &taken, message.len()));
        }
        write(&queue, message);
    });
    let calls = began.elapsed();
    queue.close().expect("a disk");
    fs::remove_dir_all(path).expect("a queue's files");
    if timed == Timed::Calls { calls } else { began.elapsed() }
}

fn floor(message: &[u8]) -> Duration {
    let dir = scratch();
    let path = dir.path().join("file");
    let mut file = File::create_new(&path).expect("a new file");
    let mut batch = Vec::with_capacity(BATCH * message.len());
    timed(|| {
        for _ in 0..messages() / BATCH as u64 {
            batch.clear();
            (0..BATCH).for_each(|_| batch.extend_from_slice(black_box(message)));
            file.write_all(&batch).expect("room on the disk");
        }
        drop(file);
        fs::remove_file(&path).expect("the file");
    })
}

fn pqueue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queues");
    settings(&mut group);
    for (name, readers) in [("Writing", 0), ("RW", 2)] {
        for (length, len) in LENGTHS {
            let message = payload(len);
            let mut bench = |ending: &str, once: &dyn Fn() -> Duration| {
                group.throughput(Throughput::Bytes(messages() * len as u64));
                group.bench_function(format!("{name}_{length}{ending}"), |b| {
                    b.iter_custom(|iters| (0..iters).map(|_| once()).sum())
                });
            };
            bench("", &|| run(readers, &message, Timed::CallsAndEnd));
            bench("/calls", &|| run(readers, &message, Timed::Calls));
            if readers == 0 {
                bench("/floor", &|| floor(&message));
            }
        }
    }
    group.finish();
}

fn dque(c: &mut Criterion) {
    let mut group = c.benchmark_group("queues");
    settings(&mut group);
    let message = payload(64);
    let enqueues = |options: &Options, count| {
        let dir = scratch();
        let queue = options.clone().open(dir.path().join("queue")).expect("a queue");
        timed(|| (0..count).for_each(|_| assert!(queue.enqueue(black_box(&message)).is_ok())))
    };
    let dequeues = |options: &Options, count| {
        let dir = scratch();
        let path = dir.path().join("queue");
        let queue = Queue::open(&path).expect("a queue");
        (0..count).for_each(|_| assert!(queue.enqueue(&message).is_ok()));
        queue.close().expect("a disk");
        let queue = options.clone().open(&path).expect("a queue");
        let mut buffer = Vec::with_capacity(message.len());
        timed(|| {
            for _ in 0..count {
                assert!(queue.dequeue_into(&mut buffer).expect("intact").is_some());
                black_box(&buffer);
            }
        })
    };
    let safe = Queue::options().flush_every_ops(1);
    for (mode, options) in [("Safe", safe), ("Turbo", Queue::options())] {
        group.bench_function(format!("Enqueue_{mode}"), |b| {
            b.iter_custom(|iters| enqueues(&options, iters))
        });
        group.bench_function(format!("Dequeue_{mode}"), |b| {
            b.iter_custom(|iters| dequeues(&options, iters))
        });
    }
    group.finish();
}

criterion_group!(queues, pqueue, dque);

fn main() {
    print_fingerprint();
    queues();
    Criterion::default().configure_from_args().final_summary();
}
