//! What a queue makes of damage, full disks, kills and random calls, on real files.

#![cfg(unix)]

mod damage;
mod fixtures;
#[cfg(target_os = "linux")]
mod full_disk;
mod fuzz_corpus;
mod kill;
#[cfg(target_os = "linux")]
mod leftovers;
mod readings;

#[path = "../support/base.rs"]
mod base;
#[path = "../support/fuzz_bodies.rs"]
mod fuzz_bodies;
#[path = "../support/fuzz_frames.rs"]
mod fuzz_frames;
#[path = "../support/fuzz_sequence.rs"]
mod fuzz_sequence;
#[path = "../support/replica.rs"]
mod replica;
#[path = "../support/mod.rs"]
mod support;

use support::guard;
