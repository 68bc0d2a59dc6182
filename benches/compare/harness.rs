//! What mmq's harness (`examples/compare.rs`) and that of the stores (`stores/`) have in common:
//! the command line, the scenarios, the line of JSON.
//!
//! ```text
//! PROGRAM --peer NAME --scenario S --size BYTES --n COUNT [--arena BYTES] [--cap BYTES, 0 = none]
//!     [--threads P,C] [--dir DIR]
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is measured.
pub(crate) trait Peer: Sized + Sync {
    /// Opens the queue in this directory, which is there already if the scenario is `open`.
    fn open(run: &Run, dir: &Path) -> Done<Self>;
    /// What one thread works with.
    fn handle(&self) -> Done<impl Handle>;
    fn close(self) -> Done;
}

pub(crate) trait Handle {
    /// Puts the message in, `count` times.
    fn enqueue(&mut self, message: &[u8], count: u64) -> Done;
    /// Takes a message, or as many as a batch has but at most `most`; returns how many it took.
    fn take(&mut self, most: u64) -> Done<u64>;
    /// Looks at the first message; returns whether there is one.
    fn peek(&mut self) -> Done<bool>;
    /// The message that came last, where messages are copied out.
    fn delivered(&self) -> Option<&[u8]>;
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) peer: String,
    pub(crate) scenario: String,
    pub(crate) size: usize,
    n: u64,
    pub(crate) arena: u64,
    pub(crate) cap: u64,
    producers: u64,
    consumers: u64,
    pub(crate) dir: PathBuf,
    message: Vec<u8>,
    /// How many messages go in before as many come out, where one thread does both.
    pub(crate) step: u64,
}

/// The result: wall and processor time of all operations, and bytes on disk at the end.
pub(crate) struct Figures {
    wall: Duration,
    processor: Duration,
    operations: u64,
    disk: u64,
}

fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn timed(operations: u64, work: impl FnOnce() -> Done) -> Done<Figures> {
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

impl Run {
    /// What the arguments of the program ask for.
    pub(crate) fn from_arguments() -> Done<Run> {
        let mut run = Run {
            peer: String::new(),
            scenario: "enqueue".into(),
            size: 128,
            n: 1000,
            arena: 4 << 20,
            cap: 0,
            producers: 2,
            consumers: 2,
            dir: std::env::temp_dir(),
            message: Vec::new(),
            step: 1,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or("every option has a value")?;
            match name.as_str() {
                "--peer" => run.peer = value,
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
        run.message = payload(run.size);
        Ok(run)
    }

    fn open<P: Peer>(&self) -> Done<P> {
        P::open(self, &self.dir.join("queue"))
    }

    fn take_all(&self, handle: &mut impl Handle) -> Done {
        let mut left = self.n;
        while left > 0 {
            let taken = handle.take(left)?;
            assert_ne!(taken, 0, "a message is missing");
            left -= taken;
        }
        self.check(handle);
        Ok(())
    }

    fn check(&self, handle: &impl Handle) {
        assert!(handle.delivered().is_none_or(|message| message == self.message));
    }

    /// Runs producers and consumers in threads until `count` messages have passed.
    fn together(&self, peer: &impl Peer, producers: u64, consumers: u64, count: u64) -> Done {
        let left = AtomicI64::new(count as i64);
        // A thread that fails ends the run for all.
        let watch = |result: Done| result.inspect_err(|_| left.store(0, Ordering::Relaxed));
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..producers {
                let share = count / producers + u64::from(thread < count % producers);
                let produce = move || peer.handle()?.enqueue(&self.message, share);
                threads.push(scope.spawn(move || watch(produce())));
            }
            for _ in 0..consumers {
                let left = &left;
                let consume = move || {
                    let (mut handle, mut misses) = (peer.handle()?, 0_u32);
                    while left.load(Ordering::Relaxed) > 0 {
                        match handle.take(u64::MAX)? {
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

    /// The scenarios of one thread on one queue.
    fn alone(&self, handle: &mut impl Handle) -> Done<Option<Figures>> {
        Ok(Some(match self.scenario.as_str() {
            "enqueue" | "durable" => {
                let figures = timed(self.n, || handle.enqueue(&self.message, self.n))?;
                let disk = disk_bytes(&self.dir.join("queue"));
                assert!(handle.peek()?);
                self.check(handle);
                Figures { disk, ..figures }
            }
            "dequeue" => {
                handle.enqueue(&self.message, self.n)?;
                timed(self.n, || self.take_all(handle))?
            }
            "peek" => {
                handle.enqueue(&self.message, 16)?;
                timed(self.n, || {
                    for _ in 0..self.n {
                        assert!(handle.peek()?);
                    }
                    Ok(())
                })?
            }
            "rw" => timed(self.n, || {
                let mut left = self.n;
                while left > 0 {
                    let now = left.min(self.step);
                    handle.enqueue(&self.message, now)?;
                    assert_eq!(handle.take(now)?, now);
                    left -= now;
                }
                Ok(())
            })?,
            _ => return Ok(None),
        }))
    }

    fn several(&self, peer: &impl Peer) -> Done<Figures> {
        let (producers, consumers) = match self.scenario.as_str() {
            "spsc" => (1, 1),
            _ => (self.producers, self.consumers),
        };
        // bigqueue's Parallel test counts both ends of a message.
        let ends = if self.scenario == "parallel" { 2 } else { 1 };
        let count = self.n / ends;
        timed(count * ends, || self.together(peer, producers, consumers, count))
    }

    fn opening<P: Peer>(&self) -> Done<Figures> {
        if self.scenario == "open" {
            // The directories are made before the timing, as for all peers.
            let dirs: Vec<PathBuf> =
                (0..self.n).map(|at| self.dir.join(format!("queue-{at}"))).collect();
            dirs.iter().try_for_each(std::fs::create_dir)?;
            return timed(self.n, || dirs.iter().try_for_each(|dir| P::open(self, dir)?.close()));
        }
        let peer = self.open::<P>()?;
        peer.handle()?.enqueue(&self.message, self.n)?;
        peer.close()?;
        let mut reopened = None;
        timed(1, || {
            let peer = reopened.insert(self.open::<P>()?);
            let mut handle = peer.handle()?;
            assert!(handle.peek()?);
            self.check(&handle);
            Ok(())
        })
    }

    /// Runs the scenario; none if there is no such.
    pub(crate) fn figures<P: Peer>(&self) -> Done<Option<Figures>> {
        let figures = match self.scenario.as_str() {
            "open" | "reopen" => Some(self.opening::<P>()?),
            "spsc" | "mpmc" | "parallel" => Some(self.several(&self.open::<P>()?)?),
            _ => self.alone(&mut self.open::<P>()?.handle()?)?,
        };
        let disk = |figures: &Figures| match figures.disk {
            0 => disk_bytes(&self.dir.join("queue")),
            disk => disk,
        };
        Ok(figures.map(|figures| Figures { disk: disk(&figures), ..figures }))
    }

    /// Runs the scenario in a directory of its own, and prints the line.
    pub(crate) fn report(
        mut self,
        version: &str,
        note: &str,
        figures: impl FnOnce(&Run) -> Done<Option<Figures>>,
    ) -> Done {
        std::fs::create_dir_all(&self.dir)?;
        let scratch = tempfile::Builder::new().prefix("pb").tempdir_in(&self.dir)?;
        self.dir = scratch.path().to_path_buf();
        let (note, figures) = match figures(&self) {
            Ok(Some(figures)) => (note.to_owned(), Some(figures)),
            Ok(None) => (format!("no {} in this mode", self.scenario), None),
            Err(error) => (error.to_string().replace(['"', '\\'], "'"), None),
        };
        let per = |time: fn(&Figures) -> Duration| {
            let figures = figures.as_ref()?;
            Some(time(figures).as_nanos() as f64 / figures.operations.max(1) as f64)
        };
        let (wall, processor) = (per(|figures| figures.wall), per(|figures| figures.processor));
        let has_bytes = !matches!(self.scenario.as_str(), "open" | "reopen");
        let rate = wall.filter(|_| has_bytes).map(|wall| self.size as f64 * 1000.0 / wall);
        let number =
            |value: Option<f64>| value.map_or("null".into(), |value| format!("{value:.1}"));
        println!(
            "{{\"peer\":\"{}\",\"version\":\"{version}\",\"scenario\":\"{}\",\"size\":{},\"n\":{},\"arena\":{},\"cap\":{},\
             \"threads\":\"{},{}\",\"ns_per_op\":{},\"mb_per_s\":{},\"peak_rss_kb\":{},\"disk_bytes\":{},\"note\":\"{note}\",\
             \"cpu_ns_per_op\":{}}}",
            self.peer,
            self.scenario,
            self.size,
            self.n,
            self.arena,
            self.cap,
            self.producers,
            self.consumers,
            number(wall),
            number(rate),
            peak_kb(),
            figures.as_ref().map_or(0, |figures| figures.disk),
            number(processor)
        );
        Ok(())
    }
}
