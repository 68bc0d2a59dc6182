//! The matrix: every arena size, message size and cap of bigqueue's tables, with the ids that
//! bigqueue prints.
//!
//! - `open` makes a queue.
//! - `enqueue` and `enqueue_str` put messages in.
//! - `peek` copies the same head out again and again, `peek_str` looks at it as text in place.
//! - `skip` steps over messages (the Dequeue rows of bigqueue's tables with Peek time that),
//!   `dequeue` delivers them (those of the others).
//! - `parallel`: of 1 to 8 threads the odd ones enqueue, the even ones peek and step over the
//!   message until both succeed. Each of these is one operation.
//! - `floor` is the price of the same bytes without a queue, in the same run: into fresh space, out
//!   of memory that is in no cache, and both in memory that is used again and again.
//!
//! Criterion may ask for a single operation, and takes its time for the figure if preparing it took
//! a second. So whatever it asks for, eight rounds run at least, each of 1,000 operations or an
//! eighth of 128 MiB, and the time is scaled. When a round finds too few messages or too many, it
//! first fills or empties the queue, outside the timing.
//!
//! At its end the run prints bigqueue's own table of what ran, and writes a page with plots of it.
//! Their times are medians of all rounds, which other work of the machine changes less than means;
//! what few rounds pay, such as the end of a large arena, is in the means that criterion prints.
//! With `MMQ_BIGQUEUE=FILE` both have bigqueue's figures too: the file is the output of its
//! benchmarks (`go test -run - -bench .` in its directory), or its README.
//!
//! `cargo bench --bench matrix -- --quick`

#[path = "../tests/support/counting.rs"]
mod counting;
mod support;

use std::hint::black_box;
use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use mmq::Queue;

use support::cells::{Cell, cells, pairs};
use support::floor::{Fresh, Ring, bare_open};
use support::report::{Row, report};
use support::{asked_for, human, median, payload, print_fingerprint, scratch, together};

/// What operations took: time, and memory that all threads asked for.
#[derive(Default)]
struct Spent {
    time: Duration,
    calls: u64,
    bytes: u64,
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Spent>>(all: I) -> Spent {
        all.fold(Spent::default(), |sum, one| Spent {
            time: sum.time + one.time,
            calls: sum.calls + one.calls,
            bytes: sum.bytes + one.bytes,
        })
    }
}

struct Meter {
    before: (u64, u64),
    began: Instant,
}

impl Meter {
    fn start() -> Meter {
        Meter { before: counting::asked_by_all(), began: Instant::now() }
    }

    fn stop(self) -> Spent {
        let time = self.began.elapsed();
        let (calls, bytes) = counting::asked_by_all();
        Spent { time, calls: calls - self.before.0, bytes: bytes - self.before.1 }
    }
}

/// What `count` times `work` take.
fn spent(count: u64, mut work: impl FnMut()) -> Spent {
    let meter = Meter::start();
    (0..count).for_each(|_| work());
    meter.stop()
}

struct Matrix {
    criterion: Criterion,
    rows: Vec<Row>,
}

impl Matrix {
    /// One benchmark, if the command line does not leave it out: `make` prepares it, and returns
    /// what does a round of so many operations, of `bytes` each; at least so many rounds.
    fn measure<R: FnMut() -> Spent>(
        &mut self,
        operation: &'static str,
        id: &str,
        bytes: u64,
        (operations, least): (u64, u64),
        make: impl Fn() -> R,
    ) {
        let (mut round, mut all) = (None, vec![]);
        let mut group = self.criterion.benchmark_group(operation);
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        if bytes > 0 {
            group.throughput(Throughput::Bytes(bytes));
        }
        group.bench_function(id, |b| {
            b.iter_custom(|iters| {
                let round = round.get_or_insert_with(&make);
                let (before, rounds) = (all.len(), iters.div_ceil(operations).max(least));
                all.extend((0..rounds).map(|_| round()));
                let time: Duration = all[before..].iter().map(|spent| spent.time).sum();
                time.mul_f64(iters as f64 / (rounds * operations) as f64)
            });
        });
        group.finish();
        if !all.is_empty() {
            let each = |sum: u64| sum as f64 / (all.len() as u64 * operations) as f64;
            let ns = |spent: &Spent| spent.time.as_nanos() as f64 / operations as f64;
            self.rows.push(Row {
                operation,
                id: id.to_string(),
                ns: median(&mut all.iter().map(ns).collect::<Vec<_>>()),
                bytes: each(all.iter().map(|spent| spent.bytes).sum()),
                allocations: each(all.iter().map(|spent| spent.calls).sum()),
            });
        }
    }

    /// One benchmark for each cell, with a queue that lives as long as the cell's rounds.
    fn each(&mut self, operation: &'static str, cells: &[Cell], round: impl Fn(&Bench) -> Spent) {
        for cell in cells {
            let count = operations(cell.backlog() / ROUNDS).min(1000);
            self.measure(operation, &cell.id(), cell.message, (count, ROUNDS), || {
                let bench = Bench::new(cell, count);
                let round = &round;
                move || round(&bench)
            });
        }
    }
}

const ROUNDS: u64 = 8;

/// A round's operations: with `--test` few, which show that it works.
fn operations(count: u64) -> u64 {
    if asked_for("--test") { 8 } else { count }
}

/// A queue, and the message that goes through it.
struct Bench {
    queue: Queue,
    message: String,
    /// Operations of a round.
    count: u64,
    /// The most messages, and how many there are.
    backlog: u64,
    held: AtomicU64,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(cell: &Cell, count: u64) -> Bench {
        let dir = scratch();
        let queue = cell.options().open(dir.path().join("queue")).expect("a queue");
        let message = payload(cell.message as usize);
        let message = message.into_iter().map(|byte| char::from(byte & 0x7F)).collect();
        let backlog = if asked_for("--test") { count } else { cell.backlog() };
        Bench { queue, message, count, backlog, held: AtomicU64::new(0), _dir: dir }
    }

    /// Times a round of enqueues.
    fn enqueues(&self, enqueue: impl Fn()) -> Spent {
        if self.held.load(Relaxed) + self.count > self.backlog {
            self.drain();
        }
        self.held.fetch_add(self.count, Relaxed);
        spent(self.count, enqueue)
    }

    /// Times a round of looks at the same message.
    fn looks(&self, look: impl FnMut()) -> Spent {
        if self.held.swap(1, Relaxed) == 0 {
            self.enqueue();
        }
        spent(self.count, look)
    }

    /// Times a round of removals.
    fn removals(&self, remove: impl FnMut()) -> Spent {
        if self.held.load(Relaxed) < self.count {
            (self.held.load(Relaxed)..self.backlog).for_each(|_| self.enqueue());
            self.held.store(self.backlog, Relaxed);
        }
        self.held.fetch_sub(self.count, Relaxed);
        spent(self.count, remove)
    }

    fn enqueue(&self) {
        self.queue.enqueue(black_box(self.message.as_bytes())).expect("room");
    }

    fn drain(&self) {
        while self.queue.skip().expect("intact").is_some() {}
        self.held.store(0, Relaxed);
    }

    fn buffer(&self) -> Vec<u8> {
        Vec::with_capacity(self.message.len())
    }
}

fn open(matrix: &mut Matrix) {
    let each = |count: u64, open: &dyn Fn(&std::path::Path) -> Spent| {
        let dir = scratch();
        (0..count).map(|at| open(&dir.path().join(at.to_string()))).sum::<Spent>()
    };
    let count = operations(20);
    for cell in cells().iter().filter(|cell| cell.max_mem == "NoLimit" && cell.message == 128) {
        let id = format!("ArenaSize-{}", human(cell.arena));
        let options = cell.options().max_mapped_arenas(Some(3));
        matrix.measure("open", &id, 0, (count, ROUNDS), || {
            || {
                each(count, &|path| {
                    let mut queue = None;
                    let spent = spent(1, || queue = Some(options.clone().open(path)));
                    queue.expect("made").expect("a queue").close().expect("closed");
                    spent
                })
            }
        });
    }
    matrix.measure("open", "floor", 0, (count, ROUNDS), || {
        || each(count, &|path| spent(1, || bare_open(path)))
    });
}

fn put(matrix: &mut Matrix) {
    matrix.each("enqueue", &cells(), |bench| bench.enqueues(|| bench.enqueue()));
    matrix.each("enqueue_str", &pairs(), |bench| {
        bench.enqueues(|| {
            bench.queue.enqueue(black_box(bench.message.as_str())).expect("room");
        })
    });
}

fn look(matrix: &mut Matrix) {
    matrix.each("peek", &cells(), |bench| {
        let mut buffer = bench.buffer();
        bench.looks(|| {
            bench.queue.peek_into(&mut buffer).expect("intact");
            black_box(&buffer);
        })
    });
    matrix.each("peek_str", &pairs(), |bench| {
        bench.looks(|| {
            let message = bench.queue.peek().expect("intact").expect("a message");
            black_box(message.as_str()).expect("text");
        })
    });
}

fn take(matrix: &mut Matrix) {
    matrix.each("skip", &cells(), |bench| {
        bench.removals(|| assert!(black_box(bench.queue.skip().expect("intact")).is_some()))
    });
    matrix.each("dequeue", &cells(), |bench| {
        let mut buffer = bench.buffer();
        bench.removals(|| {
            assert!(bench.queue.dequeue_into(&mut buffer).expect("intact").is_some());
            black_box(&buffer);
        })
    });
}

fn parallel(matrix: &mut Matrix) {
    for cell in pairs() {
        for threads in [1, 2, 4, 6, 8] {
            let (id, each) = (format!("{}-{threads}", cell.id()), cell.backlog().div_ceil(threads));
            let each = operations(each);
            matrix.measure("parallel", &id, cell.message, (each * threads, 1), || {
                let bench = Bench::new(&cell, each);
                move || {
                    let spent = together(threads, Meter::start, |thread| match thread % 2 {
                        0 => (0..each).for_each(|_| bench.enqueue()),
                        _ => peek_and_skip(&bench),
                    })
                    .stop();
                    bench.drain();
                    spent
                }
            });
        }
    }
}

fn peek_and_skip(bench: &Bench) {
    let mut buffer = bench.buffer();
    for _ in 0..bench.count {
        while bench.queue.peek_into(&mut buffer).expect("intact").is_none()
            || bench.queue.skip().expect("intact").is_none()
        {
            std::thread::yield_now();
        }
        black_box(&buffer);
    }
}

fn floor(matrix: &mut Matrix) {
    for len in [128, 4 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20] {
        let message = payload(len);
        let (bytes, count) = (len as u64, operations((128 << 20) / len as u64));
        let id = |name| format!("{name}/MessageSize-{}", human(bytes));
        type Fill = fn(&Fresh, &[u8], u64);
        for (name, fill) in
            [("fresh-mapped", Fresh::fill_mapped as Fill), ("fresh-written", Fresh::fill_written)]
        {
            matrix.measure("floor", &id(name), bytes, (count, 1), || {
                || {
                    let dir = scratch();
                    let fresh = Fresh::new(dir.path(), count * bytes);
                    spent(1, || fill(&fresh, &message, count))
                }
            });
        }
        let ring = |messages| {
            let dir = scratch();
            // Each message takes its header, and up to a cache line more.
            let ring = Ring::new(dir.path(), messages * (len + 80));
            (dir, ring, Vec::with_capacity(len))
        };
        matrix.measure("floor", &id("cold-dequeue"), bytes, (count, 1), || {
            let (dir, mut ring, mut buffer) = ring(count as usize + 1);
            let message = &message;
            move || {
                let _ = &dir;
                (0..count).for_each(|_| ring.enqueue(message));
                spent(count, || {
                    assert!(ring.dequeue_into(len, &mut buffer));
                    black_box(&buffer);
                })
            }
        });
        matrix.measure("floor", &id("recycled-pair"), bytes, (count, 1), || {
            let (dir, mut ring, mut buffer) = ring(2);
            let message = &message;
            move || {
                let _ = &dir;
                spent(count, || {
                    ring.enqueue(black_box(message));
                    assert!(ring.dequeue_into(len, &mut buffer));
                    black_box(&buffer);
                })
            }
        });
    }
}

fn main() {
    let fingerprint = print_fingerprint();
    let mut matrix = Matrix { criterion: Criterion::default().configure_from_args(), rows: vec![] };
    for part in [open, put, look, take, parallel, floor] {
        part(&mut matrix);
    }
    matrix.criterion.final_summary();
    if !matrix.rows.is_empty() && !asked_for("--test") {
        report(&fingerprint, &matrix.rows);
    }
}
