//! Latency under a steady stream: one thread puts messages in at a fixed rate, a second one takes
//! them out.
//!
//! Each message has a time at which it is due. Its latency counts from that time, not from the
//! call, so that a stall counts for every message it delays (no coordinated omission). Before that
//! a witness copies the same messages in memory at the same times, without mmq: what the witness
//! waits for, the machine did.
//!
//! ```text
//! cargo run --release --example latency -- [--seconds N] [--rate PER_SECOND] [--size BYTES]
//!     [--arena BYTES] [--dir DIR]
//! ```

#[path = "../benches/support/fingerprint.rs"]
mod fingerprint;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mmq::Queue;

/// A log-linear histogram of nanoseconds: 64 steps to each power of two, so a value is off by 1.6 %
/// at most.
struct Histogram {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

const STEPS: u32 = 6;

impl Histogram {
    fn new() -> Histogram {
        Histogram { counts: vec![0; 64 << STEPS], total: 0, most: 0 }
    }

    fn bucket(nanos: u64) -> usize {
        let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEPS + 1);
        ((shift << STEPS) as u64 + (nanos >> shift)) as usize
    }

    /// The greatest value of a bucket.
    fn value(bucket: usize) -> u64 {
        let shift = (bucket >> STEPS).saturating_sub(1);
        let step = bucket - (shift << STEPS);
        ((step as u64 + 1) << shift) - 1
    }

    fn add(&mut self, nanos: u64) {
        self.counts[Histogram::bucket(nanos)] += 1;
        self.total += 1;
        self.most = self.most.max(nanos);
    }

    fn percentile(&self, part: f64) -> u64 {
        let rank = (self.total as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Histogram::value(bucket).min(self.most);
            }
        }
        self.most
    }
}

const PERCENTILES: [(&str, f64); 8] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
    ("p99.9999", 0.999_999),
    ("max", 1.0),
];

/// The stream of messages.
struct Load {
    seconds: u64,
    /// Messages per second.
    rate: u64,
    /// Bytes of each message.
    size: usize,
}

/// What the producer saw.
struct Produced {
    enqueued: Histogram,
    called: Histogram,
    /// Nanoseconds of the first call.
    first: u64,
}

fn since(began: Instant) -> u64 {
    Instant::now().saturating_duration_since(began).as_nanos() as u64
}

impl Load {
    /// Puts each message in when it is due.
    fn produce(
        &self,
        began: Instant,
        mut put: impl FnMut(&[u8]) -> mmq::Result<()>,
    ) -> mmq::Result<Produced> {
        let mut message = vec![7; self.size];
        let (mut enqueued, mut called) = (Histogram::new(), Histogram::new());
        let mut first = 0;
        for number in 0..self.seconds * self.rate {
            let due = (number + 1) * 1_000_000_000 / self.rate;
            let mut now = since(began);
            while now < due {
                std::hint::spin_loop();
                now = since(began);
            }
            message[..8].copy_from_slice(&due.to_le_bytes());
            put(&message)?;
            let after = since(began);
            enqueued.add(after - due);
            called.add(after - now);
            if number == 0 {
                // The first call makes the queue's first segment.
                first = after - now;
            }
        }
        Ok(Produced { enqueued, called, first })
    }

    /// The same without mmq: copies each message behind the one before it, in memory.
    fn witness(&self) -> mmq::Result<Produced> {
        let mut memory = vec![1; (4 << 20) / self.size * self.size];
        let mut places = (0..memory.len()).step_by(self.size).cycle();
        self.produce(Instant::now(), |message| {
            let at = places.next().unwrap_or(0);
            memory[at..at + message.len()].copy_from_slice(message);
            black_box(&mut memory);
            Ok(())
        })
    }

    /// Runs the stream: one thread enqueues, one dequeues.
    fn put_on(&self, queue: &Queue) -> mmq::Result<(Produced, Histogram)> {
        let done = AtomicBool::new(false);
        let began = Instant::now() + Duration::from_millis(50);
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| -> mmq::Result<Histogram> {
                let (mut delivered, mut buffer) = (Histogram::new(), Vec::with_capacity(self.size));
                loop {
                    if queue.dequeue_into(&mut buffer)?.is_some() {
                        let due =
                            buffer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                        delivered.add(since(began).saturating_sub(due));
                    } else if done.load(Ordering::Acquire) && queue.is_empty() {
                        return Ok(delivered);
                    } else {
                        // Yields instead of spinning: on two processors the queue's own thread
                        // would otherwise never run.
                        std::thread::yield_now();
                    }
                }
            });
            let produced = self.produce(began, |message| queue.enqueue(message).map(drop));
            done.store(true, Ordering::Release);
            let delivered = consumer.join().map_err(|_| mmq::Error::Closed)??;
            Ok((produced?, delivered))
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut seconds, mut rate, mut size, mut arena) =
        (60_u64, 100_000_u64, 140_usize, 4_u64 << 20);
    let mut dir = std::env::temp_dir();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("every option has a value")?;
        match name.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--rate" => rate = value.parse()?,
            "--size" => size = value.parse()?,
            "--arena" => arena = value.parse()?,
            "--dir" => dir = value.into(),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    let size = size.max(8);
    std::fs::create_dir_all(&dir)?;
    let scratch = tempfile::tempdir_in(dir)?;
    let queue = Queue::options().arena_size(arena).open(scratch.path().join("queue"))?;
    println!("{}\n", fingerprint::fingerprint(scratch.path()));
    let load = Load { seconds, rate, size };
    let witness = load.witness()?;
    let (produced, delivered) = load.put_on(&queue)?;

    println!(
        "{rate} messages of {size} B a second for {seconds} s, arenas of {} KiB\n",
        arena >> 10
    );
    println!("| us | {} |", PERCENTILES.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(PERCENTILES.len()));
    for (name, histogram) in [
        ("enqueue call", &produced.called),
        ("enqueued, from when due", &produced.enqueued),
        ("delivered, from when due", &delivered),
        ("witness: copied, from when due", &witness.enqueued),
    ] {
        let values =
            PERCENTILES.map(|(_, part)| format!("{:.2}", histogram.percentile(part) as f64 / 1e3));
        println!("| {name} | {} |", values.join(" | "));
    }
    println!(
        "\nthe first message, which makes the first file: {:.2} us",
        produced.first as f64 / 1e3
    );
    Ok(queue.close()?)
}
