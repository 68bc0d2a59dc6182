//! `cargo +nightly fuzz run segment_bytes`: the body is an ordinary test as well, in
//! tests/faults/fuzz_corpus.rs.
#![no_main]

#[allow(dead_code, reason = "the other targets' bodies")]
#[path = "../../tests/support/fuzz_bodies.rs"]
mod fuzz_bodies;
#[path = "../../tests/support/guard.rs"]
mod guard;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::segment_bytes(data));
