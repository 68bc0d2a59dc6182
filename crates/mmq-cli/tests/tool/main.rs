//! The tool `mmq`, by its real binary.

#![cfg(unix)]
#![allow(dead_code, reason = "what only the binary uses")]

#[path = "../../../../tests/support/mod.rs"]
mod support;
#[path = "../../src/times.rs"]
mod times;

#[path = "../../../../tests/support/flipped.rs"]
mod flipped;

mod accepting;
mod claiming;
mod copying;
mod dead_letters;
mod dumping;
mod each;
mod each_dead;
mod forwarding;
mod framings;
mod import_bigqueue;
mod import_killed;
mod import_pqueue;
mod import_writers;
mod load_killed;
mod looking;
mod manual;
mod modes;
mod namespaces;
mod new_directories;
mod owning;
mod readme;
mod reserved;
mod reviewed;
mod run;
mod salvaging;
mod salvaging_batches;
mod salvaging_damage;
mod salvaging_given_back;
mod sharing;
mod spooling;
mod statistics;
mod stopping;
mod stopping_unread;
mod terminal;
mod trouble;
mod verifying;
mod widths;
