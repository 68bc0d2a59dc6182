//! What a user of one queue relies on: each module holds the tests of one promise or one part of
//! the public API, on real files.

#![cfg(unix)]

mod ages;
mod bounded;
mod consumer_stats;
mod consumers;
mod default_consumer;
mod deliveries;
mod errors;
mod fifo;
mod flush;
mod gaps_in_examples;
mod inspector;
mod lanes;
#[cfg(target_os = "linux")]
mod memory_cap;
mod options;
mod persistence;
mod redelivery;
mod sharing;
#[cfg(target_os = "linux")]
mod space;
mod stats;
mod threads;
mod waiting;

#[path = "../support/flipped.rs"]
mod flipped;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/watch.rs"]
mod watch;
