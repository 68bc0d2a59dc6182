//! The matrix: every arena size, message size and cap of bigqueue's tables, with the ids that
//! bigqueue prints.
//!
//! `enqueue` puts messages in, `peek` copies the same head out again and again, `skip` steps over
//! messages (bigqueue's Dequeue rows time that), `dequeue` delivers them. Between batches, and
//! outside the timing, the queue is emptied, which bounds the disk it takes. `floor` is the price
//! of the same bytes without a queue, in the same run: into fresh space, out of memory that is in
//! no cache, and both in memory that is used again and again.
//!
//! `cargo bench --bench matrix -- --quick`

mod support;

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group};
use mmq::Queue;

use support::cells::{Cell, arenas, cells};
use support::floor::{Fresh, Ring};
use support::{human, payload, print_fingerprint, scratch, timed};

/// A queue whose backlog stays within the cell's bound.
struct Bench {
    queue: Queue,
    backlog: u64,
    held: u64,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(cell: &Cell) -> Bench {
        let dir = scratch();
        let queue = cell.options().open(dir.path().join("queue")).expect("a queue");
        Bench { queue, backlog: cell.backlog(), held: 0, _dir: dir }
    }

    fn drain(&mut self) {
        while self.queue.skip().expect("intact").is_some() {}
        self.held = 0;
    }

    fn fill(&mut self, message: &[u8]) {
        while self.held < self.backlog {
            self.queue.enqueue(message).expect("room");
            self.held += 1;
        }
    }

    /// Times `iters` enqueues, in batches; empties the queue between these.
    fn enqueues(&mut self, iters: u64, enqueue: impl Fn(&Queue)) -> Duration {
        let mut total = Duration::ZERO;
        let mut left = iters;
        while left > 0 {
            if self.held == self.backlog {
                self.drain();
            }
            let batch = left.min(self.backlog - self.held);
            total += timed(|| (0..batch).for_each(|_| enqueue(&self.queue)));
            self.held += batch;
            left -= batch;
        }
        total
    }

    /// Times `iters` removals, in batches; fills the queue between these.
    fn removals(&mut self, iters: u64, message: &[u8], mut remove: impl FnMut(&Queue)) -> Duration {
        let mut total = Duration::ZERO;
        let mut left = iters;
        while left > 0 {
            if self.held == 0 {
                self.fill(message);
            }
            let batch = left.min(self.held);
            total += timed(|| (0..batch).for_each(|_| remove(&self.queue)));
            self.held -= batch;
            left -= batch;
        }
        total
    }
}

fn settings(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
}

fn open(c: &mut Criterion) {
    let mut group = c.benchmark_group("open");
    settings(&mut group);
    let opening = |cell: &Cell, iters| {
        let dir = scratch();
        let mut total = Duration::ZERO;
        for at in 0..iters {
            let path = dir.path().join(at.to_string());
            total += timed(|| {
                let queue = cell.options().open(&path).expect("a queue");
                queue.close().expect("closed");
            });
        }
        total
    };
    for cell in arenas() {
        let id = format!("ArenaSize-{}/MaxMem-{}", human(cell.arena), cell.max_mem);
        group.bench_function(id, |b| b.iter_custom(|iters| opening(&cell, iters)));
    }
    group.bench_function("floor", |b| {
        b.iter_custom(|iters| {
            let dir = scratch();
            (0..iters)
                .map(|at| timed(|| support::floor::bare_open(&dir.path().join(at.to_string()))))
                .sum()
        });
    });
    group.finish();
}

/// One benchmark for each cell. The queue is made at the first iteration and lives as long as the
/// cell's runs.
fn each(c: &mut Criterion, name: &str, run: impl Fn(&mut Bench, &Cell, &[u8], u64) -> Duration) {
    let mut group = c.benchmark_group(name);
    settings(&mut group);
    for cell in cells() {
        let message = payload(cell.message as usize);
        let bench = RefCell::new(None);
        group.throughput(Throughput::Bytes(cell.message));
        group.bench_function(cell.id(), |b| {
            b.iter_custom(|iters| {
                let mut bench = bench.borrow_mut();
                run(bench.get_or_insert_with(|| Bench::new(&cell)), &cell, &message, iters)
            });
        });
    }
    group.finish();
}

fn enqueue(c: &mut Criterion) {
    each(c, "enqueue", |bench, _, message, iters| {
        bench.enqueues(iters, |queue| {
            queue.enqueue(black_box(message)).expect("room");
        })
    });
}

fn enqueue_str(c: &mut Criterion) {
    each(c, "enqueue_str", |bench, cell, _, iters| {
        let message = "m".repeat(cell.message as usize);
        bench.enqueues(iters, |queue| {
            queue.enqueue(black_box(message.as_str())).expect("room");
        })
    });
}

fn peek(c: &mut Criterion) {
    each(c, "peek", |bench, _, message, iters| {
        if bench.held == 0 {
            (0..16).for_each(|_| assert!(bench.queue.enqueue(message).is_ok()));
            bench.held = 16;
        }
        let mut buffer = Vec::with_capacity(message.len());
        timed(|| {
            for _ in 0..iters {
                bench.queue.peek_into(&mut buffer).expect("intact");
                black_box(&buffer);
            }
        })
    });
}

fn skip(c: &mut Criterion) {
    each(c, "skip", |bench, _, message, iters| {
        bench.removals(iters, message, |queue| {
            assert!(black_box(queue.skip().expect("intact")).is_some())
        })
    });
}

fn dequeue(c: &mut Criterion) {
    each(c, "dequeue", |bench, _, message, iters| {
        let mut buffer = Vec::with_capacity(message.len());
        bench.removals(iters, message, |queue| {
            queue.dequeue_into(&mut buffer).expect("intact");
            black_box(&buffer);
        })
    });
}

/// Times `iters` removals out of memory that no processor's cache has: in batches of up to `count`
/// messages, each out of a ring with that many.
fn cold_removals(ring: &mut Ring, message: &[u8], count: u64, iters: u64) -> Duration {
    let mut buffer = Vec::with_capacity(message.len());
    let (mut total, mut left) = (Duration::ZERO, iters);
    while left > 0 {
        let batch = left.min(count);
        (0..count).for_each(|_| ring.enqueue(message));
        let mut remove = || {
            assert!(ring.dequeue_into(message.len(), &mut buffer));
            black_box(&buffer);
        };
        total += timed(|| (0..batch).for_each(|_| remove()));
        (batch..count).for_each(|_| remove());
        left -= batch;
    }
    total
}

fn floor(c: &mut Criterion) {
    let mut group = c.benchmark_group("floor");
    settings(&mut group);
    for len in [128, 4 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20] {
        let message = payload(len);
        let count = (128 << 20) / len as u64;
        group.throughput(Throughput::Bytes(len as u64));
        type Fill = fn(&Fresh, &[u8], u64);
        for (name, fill) in
            [("fresh-mapped", Fresh::fill_mapped as Fill), ("fresh-written", Fresh::fill_written)]
        {
            group.bench_function(format!("{name}/MessageSize-{}", human(len as u64)), |b| {
                b.iter_custom(|iters| {
                    let (mut total, mut left) = (Duration::ZERO, iters);
                    while left > 0 {
                        let dir = scratch();
                        let batch = left.min(count);
                        let fresh = Fresh::new(dir.path(), batch * len as u64);
                        total += timed(|| fill(&fresh, &message, batch));
                        left -= batch;
                    }
                    total
                });
            });
        }
        group.bench_function(format!("cold-dequeue/MessageSize-{}", human(len as u64)), |b| {
            let dir = scratch();
            // Each message takes its header, and up to a cache line more.
            let mut ring = Ring::new(dir.path(), (count as usize + 1) * (len + 80));
            b.iter_custom(|iters| cold_removals(&mut ring, &message, count, iters));
        });
        group.bench_function(format!("recycled-pair/MessageSize-{}", human(len as u64)), |b| {
            let dir = scratch();
            let mut ring = Ring::new(dir.path(), 2 * len + 4096);
            let mut buffer = Vec::with_capacity(len);
            b.iter(|| {
                ring.enqueue(black_box(&message));
                assert!(ring.dequeue_into(len, &mut buffer));
                black_box(&buffer);
            });
        });
    }
    group.finish();
}

criterion_group!(matrix, open, enqueue, enqueue_str, peek, skip, dequeue, floor);

fn main() {
    print_fingerprint();
    matrix();
    Criterion::default().configure_from_args().final_summary();
}
