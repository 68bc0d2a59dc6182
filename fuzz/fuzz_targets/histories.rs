//! `cargo +nightly fuzz run histories`: a history of one queue on a simulated disk, with crashes at
//! any call or store, chosen by the bytes. The body is an ordinary test as well, in
//! src/tests/crash/chosen.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(broken) = mmq_simulated::history(data) {
        panic!("{broken}");
    }
});
