//! The fuzz targets' bodies over the checked-in corpus and over inputs made from a seed, without a
//! fuzzer.

use crate::support::effort;
use std::fs;
use std::path::Path;

/// Inputs made from a seed, besides the corpus.
fn rounds() -> u64 {
    100 * effort()
}

fn run(target: &str, body: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut seeds = 0;
    for file in fs::read_dir(&corpus).into_iter().flatten() {
        let path = file.unwrap().path();
        println!("{}", path.display());
        body(&fs::read(&path).unwrap());
        seeds += 1;
    }
    println!("{seeds} seeds");
    for round in 0..rounds() {
        let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let len = next() % 400;
        let input: Vec<u8> = (0..len).map(|_| next() as u8).collect();
        println!("{target} round {round}");
        body(&input);
    }
}

#[test]
fn edited_segments_never_lead_astray() {
    run("segment_bytes", crate::fuzz_bodies::segment_bytes);
}

#[test]
fn an_edited_index_never_leads_astray() {
    run("index_bytes", crate::fuzz_bodies::index_bytes);
}

#[test]
fn operations_agree_with_a_vec_deque() {
    run("operations", crate::fuzz_bodies::operations);
}

#[test]
fn sequences_with_deaths_and_damage_agree_with_a_model() {
    run("sequence", crate::fuzz_sequence::sequence);
}
