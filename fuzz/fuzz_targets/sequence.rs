//! `cargo +nightly fuzz run sequence`: the body is an ordinary test as well, in
//! tests/faults/fuzz_corpus.rs.
#![no_main]

#[path = "../../tests/support/fuzz_sequence.rs"]
mod fuzz_sequence;
#[path = "../../tests/support/guard.rs"]
mod guard;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_sequence::sequence(data));
