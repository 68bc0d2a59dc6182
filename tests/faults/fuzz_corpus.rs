//! The fuzz targets' bodies over the checked-in corpus and over inputs made from a seed, without a
//! fuzzer.
//!
//! `MMQ_EFFORT` multiplies the number of inputs, `MMQ_SEED` says which ones.

use crate::support::{Random, alone, effort, first, sample};
use std::fs;
use std::path::Path;

/// As many inputs made from seeds (of which a sample is taken), besides the corpus, of at most so
/// many bytes.
fn run(target: &str, body: fn(&[u8]), inputs: u64, most: u64) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files = 0;
    for file in fs::read_dir(&corpus).into_iter().flatten() {
        let path = file.unwrap().path();
        println!("{}", path.display());
        body(&fs::read(&path).unwrap());
        files += 1;
    }
    println!("{files} files");
    let first = first().unwrap_or(0);
    let seeds = alone().map_or(first..first + sample(inputs) * effort(), |seed| seed..seed + 1);
    for seed in seeds {
        let mut random = Random::new(seed);
        let input: Vec<u8> = (0..random.below(most)).map(|_| random.next() as u8).collect();
        println!("{target}: replay with MMQ_SEED={seed}");
        body(&input);
    }
}

#[test]
fn edited_segments_never_lead_astray() {
    run("segment_bytes", crate::fuzz_bodies::segment_bytes, 100, 400);
}

#[test]
fn an_edited_index_never_leads_astray() {
    run("index_bytes", crate::fuzz_bodies::index_bytes, 100, 400);
}

#[test]
fn whatever_is_done_the_queue_does_what_the_specification_says() {
    run("sequence", crate::fuzz_sequence::sequence, 80, 900);
}

#[test]
fn whatever_a_client_sends_its_owner_goes_on() {
    run("frames", crate::fuzz_frames::frames, 80, 300);
}
