//! Whole programs that use many parts at once and are killed in the middle: a spool that drops its
//! oldest messages, workers that fail, a sender with a window.
//!
//! Each runs in a small size with the other tests, and in full size when asked for (CI does):
//! `cargo test --release --test long scenarios -- --ignored --nocapture`. `MMQ_SEED` replays one.

mod spool;
mod window;
mod workers;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io::{BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{MIB, Messages, Random, alone, count, fill_queue, itself};
use crate::watch::{taken, watched};
use mmq::{Delivery, Error, GapCause, OnFull, Options, Queue};

/// The same for every run, unless another is asked for.
fn seed() -> u64 {
    let seed = alone().unwrap_or(20_261_121);
    println!("replay with MMQ_SEED={seed}");
    seed
}

/// Written at once, so that a death leaves no half of it.
fn report(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).expect("the parent reads");
}

fn child(test: &str, dir: &Path, settings: &[(&str, u64)]) -> Child {
    let mut command = itself(&format!("scenarios::{test}"));
    command.env("MMQ_CHILD_DIR", dir);
    for (name, value) in settings {
        command.env(name, value.to_string());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The directory a child works in; `None` when the test runs for itself.
fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os("MMQ_CHILD_DIR").map(Into::into)
}
