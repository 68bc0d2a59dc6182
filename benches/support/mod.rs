//! Shared by the benchmarks: directories, messages, the cells of the matrix, the floors, the
//! report of a run, the machine's fingerprint.
//!
//! Files go below `MMQ_BENCH_DIR`, else below Cargo's target directory. That must be on the disk to
//! be measured, not on a tmpfs.

#![allow(dead_code, unreachable_pub, reason = "every benchmark uses a part")]

pub mod cells;
pub mod fingerprint;
pub mod floor;
pub mod report;

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A new directory, removed when the value is dropped.
pub fn scratch() -> tempfile::TempDir {
    let root = std::env::var_os("MMQ_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), Into::into);
    std::fs::create_dir_all(&root).expect("a directory for the benchmarks' files");
    tempfile::Builder::new().prefix("bench").tempdir_in(root).expect("a scratch directory")
}

/// Prints the fingerprint of the machine before a benchmark's figures, and returns it.
pub fn print_fingerprint() -> String {
    if asked_for("--test") || asked_for("--list") {
        return String::new();
    }
    let fingerprint = fingerprint::fingerprint(scratch().path());
    println!("{fingerprint}\n");
    fingerprint
}

/// Bytes that do not compress, the same in every run.
pub fn payload(len: usize) -> Vec<u8> {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The time that `work` takes.
#[inline]
pub fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// Runs `work(i)` in `threads` threads that begin together, after `begin`; returns what that
/// returned, when the last one has ended.
pub fn together<T>(threads: u64, begin: impl FnOnce() -> T, work: impl Fn(u64) + Sync) -> T {
    let barrier = Barrier::new(threads as usize + 1);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(thread);
            });
        }
        let began = begin();
        barrier.wait();
        began
    })
}

/// A size as bigqueue prints it: 4096 is "4KB", 1310720 is "1.25MB".
pub fn human(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => (1, "B"),
        1024..1_048_576 => (1 << 10, "KB"),
        1_048_576..1_073_741_824 => (1 << 20, "MB"),
        _ => (1 << 30, "GB"),
    };
    format!("{}{name}", bytes as f64 / f64::from(unit))
}

/// Whether the command line has `flag`: `--quick` for short rounds, `--test` (from `cargo test
/// --benches`) only to show that the benchmark works.
pub fn asked_for(flag: &str) -> bool {
    std::env::args().any(|argument| argument == flag)
}

/// The middle value.
pub fn median(values: &mut [f64]) -> f64 {
    percentile(values, 0.5)
}

pub fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(((values.len() as f64 - 1.0) * part).round() as usize).copied().unwrap_or(f64::NAN)
}
