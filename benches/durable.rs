//! The price of durability: enqueues that return when the message is on disk, by one to eight
//! threads, beside a bare write and fdatasync of the same bytes in the same run; and how many bytes
//! the device writes for each byte of payload.
//!
//! A sync of space that was never written before takes longer, because the file system must note
//! that it is written now. A queue with a growing backlog writes to fresh space; one that is
//! drained as it is filled writes to used space. Both are measured, each beside bare writes to such
//! space.
//!
//! Rounds of the queue and of bare writes alternate, so that other work of the disk slows both.
//! `--quick` makes the rounds short.

mod support;

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mmq::Queue;

use support::{asked_for, human, payload, percentile, print_fingerprint, scratch};

const LENGTHS: [usize; 3] = [128, 4 << 10, 64 << 10];
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Bytes that go in between two drains of a queue that writes to used space: as many as the spare
/// segments take.
const BETWEEN_DRAINS: usize = 8 << 20;

/// Bare writes and syncs in a file: the cheapest durable write there is.
struct Bare {
    file: File,
    len: u64,
    at: u64,
    fresh: bool,
}

impl Bare {
    fn new(dir: &Path, fresh: bool) -> Bare {
        let name = if fresh { "fresh" } else { "used" };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.join(name))
            .expect("a new file");
        let mut bare = Bare { file, len: 32 << 20, at: 0, fresh };
        bare.begin();
        bare
    }

    /// Makes space, fresh or used, for the next writes.
    fn begin(&mut self) {
        self.at = 0;
        if self.fresh {
            self.file.set_len(0).expect("a disk");
            rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, self.len)
                .expect("room");
        } else if self.file.metadata().expect("a disk").len() == 0 {
            self.file.write_all_at(&vec![1; self.len as usize], 0).expect("room on the disk");
        }
        self.file.sync_all().expect("a disk");
    }

    /// The time of each write, in microseconds.
    fn run(&mut self, bytes: &[u8], period: Duration) -> Vec<f64> {
        let (mut micros, began) = (Vec::new(), Instant::now());
        while began.elapsed() < period {
            if self.at + bytes.len() as u64 > self.len {
                self.begin();
            }
            let began = Instant::now();
            self.write(bytes);
            micros.push(began.elapsed().as_nanos() as f64 / 1e3);
        }
        micros
    }

    fn write(&mut self, bytes: &[u8]) {
        self.file.write_all_at(bytes, self.at).expect("allocated space takes a write");
        self.file.sync_data().expect("a disk");
        self.at += bytes.len() as u64;
    }
}

/// Bytes that all programs have written to the device that holds `path`.
fn device_bytes(path: &Path) -> Option<u64> {
    let device = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    Some(stat.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}

#[derive(Default)]
struct Figures {
    micros: Vec<f64>,
    device: u64,
}

impl Figures {
    fn add(&mut self, dir: &Path, run: impl FnOnce() -> Vec<f64>) {
        let device = device_bytes(dir);
        self.micros.extend(run());
        self.device += device_bytes(dir).zip(device).map_or(0, |(now, before)| now - before);
    }

    /// Prints a row; returns the first decile, the median and the operations per second.
    fn row(
        &mut self,
        name: &str,
        len: usize,
        threads: usize,
        bare: Option<(f64, f64, f64)>,
    ) -> (f64, f64, f64) {
        let count = self.micros.len() as f64;
        let rate = threads as f64 * 1e6 * count / self.micros.iter().sum::<f64>();
        let early = percentile(&mut self.micros, 0.1);
        let middle = percentile(&mut self.micros, 0.5);
        let late = percentile(&mut self.micros, 0.99);
        let times =
            |value: f64, of: Option<f64>| of.map_or("-".into(), |of| format!("{:.2}", value / of));
        println!(
            "| {:>6} | {name:<18} | {early:>8.0} | {middle:>8.0} | {late:>8.0} | {rate:>9.0} | {:>8} | {:>8} | {:>9} | {:>8.2} |",
            human(len as u64),
            times(early, bare.map(|bare| bare.0)),
            times(middle, bare.map(|bare| bare.1)),
            times(rate, bare.map(|bare| bare.2)),
            self.device as f64 / (count * len as f64),
        );
        (early, middle, rate)
    }
}

fn many(queue: &Queue, message: &[u8], threads: usize, period: Duration) -> Vec<f64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..threads)
            .map(|_| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut micros = Vec::new();
                    let most = BETWEEN_DRAINS / message.len() / threads;
                    while !stop.load(Ordering::Relaxed) && micros.len() < most {
                        let began = Instant::now();
                        queue.enqueue(message).expect("a disk");
                        micros.push(began.elapsed().as_nanos() as f64 / 1e3);
                    }
                    micros
                })
            })
            .collect();
        let began = Instant::now();
        while began.elapsed() < period && !producers.iter().all(|producer| producer.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        producers.into_iter().flat_map(|producer| producer.join().expect("no panic")).collect()
    })
}

/// A queue whose next messages go into fresh space, or into segments that were used before.
fn queue(dir: &Path, fresh: bool) -> Queue {
    let options = Queue::options().arena_size(4 << 20);
    if !fresh {
        let queue = options.clone().open(dir).expect("a queue");
        for _ in 0..3 * BETWEEN_DRAINS / (64 << 10) {
            queue.enqueue([1; 64 << 10]).expect("room on the disk");
        }
        drain(&queue);
        queue.close().expect("a disk");
    }
    options.flush_every_ops(1).open(dir).expect("a queue")
}

fn drain(queue: &Queue) {
    while !queue.dequeue_batch(1024).expect("a read").is_empty() {}
}

fn main() {
    if asked_for("--test") || asked_for("--list") {
        return;
    }
    let (rounds, period) = if asked_for("--quick") { (3, 100) } else { (9, 300) };
    let period = Duration::from_millis(period);
    print_fingerprint();
    println!(
        "durable enqueue (flush_every_ops(1)); bare = pwrite + fdatasync, one thread, into space of the same kind"
    );
    println!(
        "rate/bare: operations a second as a multiple of what one bare fdatasync after the other gives"
    );
    println!("device: bytes the block device wrote, everybody's, per payload byte\n");
    println!(
        "p10 is what it takes when nobody else disturbs; the higher percentiles of a busy machine are those of its scheduler\n"
    );
    println!(
        "|    len |                    |  p10, us |  p50, us |  p99, us | ops/s     | p10/bare | p50/bare | rate/bare | device   |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for len in LENGTHS {
        let message = payload(len);
        for (space, fresh) in [("used", false), ("fresh", true)] {
            let dir = scratch();
            let mut bare = Bare::new(dir.path(), fresh);
            let mut bare_figures = Figures::default();
            let mut figures = THREADS.map(|_| Figures::default());
            let queues: Vec<Queue> = THREADS
                .iter()
                .map(|threads| queue(&dir.path().join(threads.to_string()), fresh))
                .collect();
            for _ in 0..rounds {
                bare_figures.add(dir.path(), || bare.run(&message, period));
                for ((threads, queue), figures) in THREADS.iter().zip(&queues).zip(&mut figures) {
                    if !fresh {
                        drain(queue);
                    }
                    figures.add(dir.path(), || many(queue, &message, *threads, period));
                }
            }
            let bare = bare_figures.row(&format!("{space}: bare"), len, 1, None);
            for (threads, figures) in THREADS.iter().zip(&mut figures) {
                figures.row(&format!("{space}: {threads} threads"), len, *threads, Some(bare));
            }
        }
    }
}
