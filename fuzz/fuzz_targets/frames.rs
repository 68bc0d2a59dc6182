//! `cargo +nightly fuzz run frames`: the body is an ordinary test as well, in
//! tests/faults/fuzz_corpus.rs.
#![no_main]

#[path = "../../tests/support/fuzz_frames.rs"]
mod fuzz_frames;
#[path = "../../tests/support/guard.rs"]
mod guard;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_frames::frames(data));
