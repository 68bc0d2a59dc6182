//! Runs one scenario with mmq and prints one line of JSON, as the harnesses of its peers do.
//! `benches/compare/run.py` runs them side by side.
//!
//! ```text
//! compare --peer NAME --scenario S --size BYTES --n COUNT [--arena BYTES] [--cap BYTES, 0 = none]
//!     [--threads P,C] [--dir DIR]
//! ```
//!
//! Peers: `mmq` delivers into the caller's buffer; `mmq-message` lends in place (`dequeue`,
//! `peek`); `mmq-skip` steps over messages without delivering them (to compare with queues whose
//! dequeue does no more); `mmq-batch` enqueues and dequeues 32 at a time. Each checks every message
//! that it delivers. `--peer fingerprint` measures no queue and prints the machine's fingerprint.

#[path = "../benches/support/fingerprint.rs"]
mod fingerprint;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use mmq::{MessageBatch, Options, Queue, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Into,
    Message,
    Skip,
    Batch,
}

#[derive(Debug)]
struct Run {
    mode: Mode,
    scenario: String,
    size: usize,
    n: u64,
    arena: u64,
    cap: u64,
    producers: u64,
    consumers: u64,
    dir: PathBuf,
    message: Vec<u8>,
}

/// The result: wall and processor time of all operations, and bytes on disk at the end.
struct Figures {
    wall: Duration,
    processor: Duration,
    operations: u64,
    disk: u64,
}

const BATCH: usize = 32;

/// What messages are delivered into.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    batch: MessageBatch,
}

fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn timed(operations: u64, work: impl FnOnce() -> Result<()>) -> Result<Figures> {
    let (processor, began) = (processor_time(), Instant::now());
    work()?;
    let wall = began.elapsed();
    Ok(Figures { wall, processor: processor_time() - processor, operations, disk: 0 })
}

fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.blocks() * 512)).sum()
}

fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

impl Run {
    fn options(&self) -> Options {
        let mut options = Queue::options();
        if self.arena > 0 {
            options = options.arena_size(self.arena);
            let arenas = u32::try_from(self.cap / self.arena).unwrap_or(u32::MAX).max(3);
            options = options.max_mapped_arenas((self.cap > 0).then_some(arenas));
        }
        if self.scenario == "durable" {
            options = options.flush_every_ops(1);
        }
        options
    }

    fn open(&self) -> Result<Queue> {
        self.options().open(self.dir.join("queue"))
    }

    fn enqueue(&self, queue: &Queue, count: u64) -> Result<()> {
        if self.mode == Mode::Batch {
            let mut left = count as usize;
            while left > 0 {
                let now = left.min(BATCH);
                queue.enqueue_batch(std::iter::repeat_n(black_box(&self.message), now))?;
                left -= now;
            }
            return Ok(());
        }
        for _ in 0..count {
            queue.enqueue(black_box(&self.message))?;
        }
        Ok(())
    }

    /// Takes one message, or a batch; returns how many there were.
    #[inline]
    fn take(&self, queue: &Queue, memory: &mut Memory, most: u64) -> Result<u64> {
        Ok(match self.mode {
            Mode::Into => queue.dequeue_into(&mut memory.bytes)?.map_or(0, |_| {
                assert_eq!(black_box(&memory.bytes).len(), self.size);
                1
            }),
            Mode::Message => queue.dequeue()?.map_or(0, |message| {
                assert_eq!(black_box(&message).len(), self.size);
                1
            }),
            Mode::Skip => u64::from(black_box(queue.skip()?).is_some()),
            Mode::Batch => {
                let taken =
                    queue.dequeue_batch_into(&mut memory.batch, BATCH.min(most as usize))?;
                black_box(&memory.batch);
                taken as u64
            }
        })
    }

    fn peek(&self, queue: &Queue, buffer: &mut Vec<u8>) -> Result<bool> {
        if self.mode == Mode::Message {
            return Ok(black_box(queue.peek()?).is_some());
        }
        let seen = queue.peek_into(buffer)?.is_some();
        assert_eq!(black_box(&*buffer).len(), self.size);
        Ok(seen)
    }

    fn take_all(&self, queue: &Queue) -> Result<()> {
        let mut memory = Memory::default();
        let mut left = self.n;
        while left > 0 {
            let taken = self.take(queue, &mut memory, left)?;
            assert_ne!(taken, 0, "a message is missing");
            left -= taken;
        }
        if matches!(self.mode, Mode::Into) {
            assert_eq!(memory.bytes, self.message);
        }
        Ok(())
    }

    /// Runs producers and consumers in threads until `count` messages have passed.
    fn together(&self, queue: &Queue, producers: u64, consumers: u64, count: u64) -> Result<()> {
        let left = AtomicI64::new(count as i64);
        // A thread that fails ends the run for all.
        let watch = |result: Result<()>| result.inspect_err(|_| left.store(0, Ordering::Relaxed));
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..producers {
                let share = count / producers + u64::from(thread < count % producers);
                threads.push(scope.spawn(move || watch(self.enqueue(queue, share))));
            }
            for _ in 0..consumers {
                let left = &left;
                let consume = move || {
                    let (mut memory, mut misses) = (Memory::default(), 0_u32);
                    while left.load(Ordering::Relaxed) > 0 {
                        match self.take(queue, &mut memory, u64::MAX)? {
                            0 => {
                                misses += 1;
                                if misses.is_multiple_of(64) {
                                    std::thread::yield_now()
                                } else {
                                    std::hint::spin_loop()
                                }
                            }
                            taken => {
                                left.fetch_sub(taken as i64, Ordering::Relaxed);
                                misses = 0;
                            }
                        }
                    }
                    Ok(())
                };
                threads.push(scope.spawn(move || watch(consume())));
            }
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each scenario")]
    fn figures(&self) -> Result<Option<Figures>> {
        let queue_dir = self.dir.join("queue");
        let mut memory = Memory::default();
        let mut figures = match self.scenario.as_str() {
            "enqueue" | "durable" => {
                let queue = self.open()?;
                let mut figures = timed(self.n, || self.enqueue(&queue, self.n))?;
                figures.disk = disk_bytes(&queue_dir);
                assert_eq!(queue.peek()?.as_deref(), Some(&self.message[..]));
                figures
            }
            "dequeue" => {
                let queue = self.open()?;
                self.enqueue(&queue, self.n)?;
                timed(self.n, || self.take_all(&queue))?
            }
            "peek" if matches!(self.mode, Mode::Into | Mode::Message) => {
                let queue = self.open()?;
                self.enqueue(&queue, 16)?;
                timed(self.n, || {
                    for _ in 0..self.n {
                        assert!(self.peek(&queue, &mut memory.bytes)?);
                    }
                    Ok(())
                })?
            }
            "rw" => {
                let queue = self.open()?;
                let step = if self.mode == Mode::Batch { BATCH as u64 } else { 1 };
                timed(self.n, || {
                    let mut left = self.n;
                    while left > 0 {
                        let now = left.min(step);
                        self.enqueue(&queue, now)?;
                        assert_eq!(self.take(&queue, &mut memory, now)?, now);
                        left -= now;
                    }
                    Ok(())
                })?
            }
            "spsc" => {
                let queue = self.open()?;
                timed(self.n, || self.together(&queue, 1, 1, self.n))?
            }
            "mpmc" => {
                let queue = self.open()?;
                timed(self.n, || self.together(&queue, self.producers, self.consumers, self.n))?
            }
            "parallel" => {
                let queue = self.open()?;
                timed(self.n / 2 * 2, || {
                    self.together(&queue, self.producers, self.consumers, self.n / 2)
                })?
            }
            "open" => {
                // The directories are made before the timing, as for the peers.
                let dirs: Vec<PathBuf> =
                    (0..self.n).map(|at| self.dir.join(format!("queue-{at}"))).collect();
                for dir in &dirs {
                    std::fs::create_dir(dir).expect("a new directory");
                }
                timed(self.n, || dirs.iter().try_for_each(|dir| self.options().open(dir)?.close()))?
            }
            "reopen" => {
                let queue = self.open()?;
                self.enqueue(&queue, self.n)?;
                queue.close()?;
                let mut reopened = None;
                let figures = timed(1, || {
                    let queue = self.open()?;
                    assert!(queue.peek_into(&mut memory.bytes)?.is_some());
                    reopened = Some(queue);
                    Ok(())
                })?;
                assert_eq!(memory.bytes, self.message);
                figures
            }
            _ => return Ok(None),
        };
        if figures.disk == 0 {
            figures.disk = disk_bytes(&queue_dir);
        }
        Ok(Some(figures))
    }
}

fn payload(size: usize) -> Vec<u8> {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 33) as u8
    };
    (0..size).map(|_| next()).collect()
}

/// The arguments: which peer, and what to do with it.
fn arguments() -> std::result::Result<(String, Run), Box<dyn std::error::Error>> {
    let mut peer = String::from("mmq");
    let mut run = Run {
        mode: Mode::Into,
        scenario: "enqueue".into(),
        size: 128,
        n: 1000,
        arena: 4 << 20,
        cap: 0,
        producers: 2,
        consumers: 2,
        dir: std::env::temp_dir(),
        message: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("every option has a value")?;
        match name.as_str() {
            "--peer" => peer = value,
            "--scenario" => run.scenario = value,
            "--size" => run.size = value.parse()?,
            "--n" => run.n = value.parse()?,
            "--arena" => run.arena = value.parse()?,
            "--cap" => run.cap = value.parse()?,
            "--threads" => {
                let (producers, consumers) = value.split_once(',').ok_or("--threads P,C")?;
                (run.producers, run.consumers) = (producers.parse()?, consumers.parse()?);
            }
            "--dir" => run.dir = value.into(),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok((peer, run))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (peer, mut run) = arguments()?;
    let note = match peer.as_str() {
        "mmq" => "every message checked; payload copied to the caller's buffer",
        "mmq-message" => "every message checked; lent in place",
        "mmq-skip" => "stepped over, not delivered",
        "mmq-batch" => "every message checked; 32 at a time",
        "list" => {
            println!("mmq\nmmq-message\nmmq-skip\nmmq-batch");
            return Ok(());
        }
        "fingerprint" => {
            println!("{}", fingerprint::fingerprint(&run.dir));
            return Ok(());
        }
        _ => return Err(format!("unknown peer {peer}; try --peer list").into()),
    };
    run.mode = match peer.as_str() {
        "mmq-message" => Mode::Message,
        "mmq-skip" => Mode::Skip,
        "mmq-batch" => Mode::Batch,
        _ => Mode::Into,
    };
    std::fs::create_dir_all(&run.dir)?;
    let scratch = tempfile::Builder::new().prefix("pb").tempdir_in(&run.dir)?;
    run.dir = scratch.path().to_path_buf();
    run.message = payload(run.size);
    let (note, figures) = match run.figures() {
        Ok(Some(figures)) => (note.to_owned(), Some(figures)),
        Ok(None) => (format!("no {} in this mode", run.scenario), None),
        Err(error) => (error.to_string().replace(['"', '\\'], "'"), None),
    };
    let number = |value: Option<f64>| value.map_or("null".into(), |value| format!("{value:.1}"));
    let per = |time: Duration, figures: &Figures| {
        time.as_nanos() as f64 / figures.operations.max(1) as f64
    };
    let wall = figures.as_ref().map(|figures| per(figures.wall, figures));
    let processor = figures.as_ref().map(|figures| per(figures.processor, figures));
    let has_bytes = !matches!(run.scenario.as_str(), "open" | "reopen");
    let rate = wall.filter(|_| has_bytes).map(|wall| run.size as f64 * 1000.0 / wall);
    println!(
        "{{\"peer\":\"{peer}\",\"version\":\"{}\",\"scenario\":\"{}\",\"size\":{},\"n\":{},\"arena\":{},\"cap\":{},\
         \"threads\":\"{},{}\",\"ns_per_op\":{},\"mb_per_s\":{},\"peak_rss_kb\":{},\"disk_bytes\":{},\"note\":\"{note}\",\
         \"cpu_ns_per_op\":{}}}",
        env!("CARGO_PKG_VERSION"),
        run.scenario,
        run.size,
        run.n,
        run.arena,
        run.cap,
        run.producers,
        run.consumers,
        number(wall),
        number(rate),
        peak_kb(),
        figures.map_or(0, |figures| figures.disk),
        number(processor)
    );
    Ok(())
}
