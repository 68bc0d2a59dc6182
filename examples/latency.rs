//! Latency under a steady stream: one thread puts messages in at a fixed rate, a second one takes
//! them out.
//!
//! Each message has a time at which it is due. Its latency counts from that time, not from the
//! call, so that a stall counts for every message it delays (no coordinated omission). The
//! histograms are printed as a table and drawn as a plot.
//!
//! ```text
//! cargo run --release --example latency -- [--seconds N] [--rate PER_SECOND] [--size BYTES]
//!     [--arena BYTES] [--dir DIR] [--plot FILE.svg]
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
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

fn plot(histograms: &[(&str, &Histogram)], title: &str) -> String {
    let (width, height, left, bottom) = (900.0, 460.0, 80.0, 50.0);
    let colours = ["#1f77b4", "#d62728", "#2ca02c"];
    let most =
        histograms.iter().map(|(_, histogram)| histogram.most).max().unwrap_or(1).max(1000) as f64;
    let total = histograms.iter().map(|(_, histogram)| histogram.total).max().unwrap_or(1) as f64;
    let nines = total.log10().max(1.0);
    let x =
        |part: f64| left + (width - left - 20.0) * (-(1.0 - part).max(1.0 / total).log10()) / nines;
    let y = |nanos: f64| {
        height
            - bottom
            - (height - bottom - 40.0) * (nanos.max(10.0).log10() - 1.0)
                / (most.log10().ceil() - 1.0)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/><text x=\"{left}\" y=\"20\">{title}</text>\n"
    );
    let line = |svg: &mut String, from: (f64, f64), to: (f64, f64)| {
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ccc\"/>",
            from.0, from.1, to.0, to.1
        );
    };
    for power in 1..=most.log10().ceil() as i32 {
        let at = y(10_f64.powi(power));
        line(&mut svg, (left, at), (width - 20.0, at));
        let label = match power {
            0..3 => format!("{} ns", 10_u64.pow(power as u32)),
            3..6 => format!("{} us", 10_u64.pow(power as u32 - 3)),
            _ => format!("{} ms", 10_u64.pow(power as u32 - 6)),
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for (name, part) in PERCENTILES {
        let at = x(part);
        line(&mut svg, (at, 40.0), (at, height - bottom));
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            height - bottom + 18.0
        );
    }
    for (at, ((name, histogram), colour)) in histograms.iter().zip(colours).enumerate() {
        let mut points = String::new();
        let mut seen = 0;
        for (bucket, count) in histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0)
        {
            seen += count;
            let part = seen as f64 / histogram.total as f64;
            let _ = write!(points, "{:.1},{:.1} ", x(part), y(Histogram::value(bucket) as f64));
        }
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{points}\"/>"
        );
        let row = 56.0 + 18.0 * at as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{row:.1}\" fill=\"{colour}\">{name}</text>",
            left + 10.0
        );
    }
    svg + "</svg>\n"
}

/// The stream of messages.
struct Load {
    seconds: u64,
    /// Messages per second.
    rate: u64,
    /// Bytes of each message.
    size: usize,
    /// Messages in each segment.
    each: u64,
}

struct Measured {
    enqueued: Histogram,
    called: Histogram,
    changes: Histogram,
    delivered: Histogram,
    /// Nanoseconds of the first call.
    first: u64,
}

impl Load {
    /// Runs the stream: one thread enqueues, one dequeues.
    fn put_on(&self, queue: &Queue) -> mmq::Result<Measured> {
        let Load { seconds, rate, size, each } = *self;
        let count = seconds * rate;
        let done = AtomicBool::new(false);
        let began = Instant::now() + Duration::from_millis(50);
        let since = |moment: Instant| moment.saturating_duration_since(began).as_nanos() as u64;
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| -> mmq::Result<Histogram> {
                let (mut delivered, mut buffer) = (Histogram::new(), Vec::with_capacity(size));
                loop {
                    if queue.dequeue_into(&mut buffer)?.is_some() {
                        let due =
                            buffer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                        delivered.add(since(Instant::now()).saturating_sub(due));
                    } else if done.load(Ordering::Acquire) && queue.is_empty() {
                        return Ok(delivered);
                    } else {
                        // Yields instead of spinning: on two processors the queue's own thread
                        // would otherwise never run.
                        std::thread::yield_now();
                    }
                }
            });
            let mut message = vec![7; size];
            let (mut enqueued, mut called, mut changes) =
                (Histogram::new(), Histogram::new(), Histogram::new());
            let (mut outcome, mut first) = (Ok(()), 0);
            for number in 0..count {
                let due = (number + 1) * 1_000_000_000 / rate;
                let mut now = since(Instant::now());
                while now < due {
                    std::hint::spin_loop();
                    now = since(Instant::now());
                }
                message[..8].copy_from_slice(&due.to_le_bytes());
                outcome = queue.enqueue(&message).map(drop);
                if outcome.is_err() {
                    break;
                }
                let after = since(Instant::now());
                enqueued.add(after - due);
                called.add(after - now);
                if number == 0 {
                    // The first call makes the queue's first segment.
                    first = after - now;
                } else if number.is_multiple_of(each) {
                    changes.add(after - now);
                }
            }
            done.store(true, Ordering::Release);
            let delivered = consumer.join().map_err(|_| mmq::Error::Closed)??;
            outcome?;
            Ok(Measured { enqueued, called, changes, delivered, first })
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut seconds, mut rate, mut size, mut arena) =
        (60_u64, 100_000_u64, 140_usize, 4_u64 << 20);
    let (mut dir, mut picture) = (std::env::temp_dir(), None::<PathBuf>);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("every option has a value")?;
        match name.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--rate" => rate = value.parse()?,
            "--size" => size = value.parse()?,
            "--arena" => arena = value.parse()?,
            "--dir" => dir = value.into(),
            "--plot" => picture = Some(value.into()),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    let size = size.max(8);
    std::fs::create_dir_all(&dir)?;
    let scratch = tempfile::tempdir_in(dir)?;
    let queue = Queue::options().arena_size(arena).open(scratch.path().join("queue"))?;
    // How many messages a segment holds.
    let segment = if arena < 4 << 20 { (4 << 20) / arena * arena } else { arena };
    let each = (segment - 128) / (16 + size as u64).next_multiple_of(8);
    let Measured { enqueued, called, changes, delivered, first } =
        Load { seconds, rate, size, each }.put_on(&queue)?;

    let rows = [
        ("enqueued, from when due", &enqueued),
        ("delivered, from when due", &delivered),
        ("enqueue call", &called),
    ];
    let title = format!(
        "{rate} messages of {size} B a second for {seconds} s, arenas of {} KiB, {} segment changes",
        arena >> 10,
        changes.total
    );
    println!("{title}\n\n| us | {} |", PERCENTILES.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(PERCENTILES.len()));
    for (name, histogram) in rows.iter().chain(&[("call that changes the segment", &changes)]) {
        let values =
            PERCENTILES.map(|(_, part)| format!("{:.2}", histogram.percentile(part) as f64 / 1e3));
        println!("| {name} | {} |", values.join(" | "));
    }
    println!("\nthe first message, which makes the first file: {:.2} us", first as f64 / 1e3);
    if let Some(picture) = picture {
        std::fs::write(&picture, plot(&rows, &title))?;
        println!("\nplot: {}", picture.display());
    }
    Ok(queue.close()?)
}
