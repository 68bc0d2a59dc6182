//! Histories that bytes choose: what the fuzz target `histories` runs, over its corpus and over
//! bytes made from a seed, without a fuzzer.

use super::history::History;
use super::model::Check;

/// Bytes of which each choice takes one or two.
const MOST: usize = 4096;

/// A history, for as long as there are bytes.
pub(crate) fn history(bytes: &[u8]) -> Check {
    let mut history = History::chosen_by(&bytes[..bytes.len().min(MOST)])?;
    history.run_out().map_err(|broken| format!("{}\n{broken}", history.trace.join("\n")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::history;
    use crate::tests::effort::{effort, first};
    use crate::tests::sim::{Mutant, Rng};

    fn bytes(seed: u64) -> Vec<u8> {
        let mut rng = Rng(seed);
        (0..200 + rng.below(1000)).map(|_| rng.next() as u8).collect()
    }

    #[test]
    fn histories_that_bytes_choose_keep_the_promises() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/histories");
        let mut seeds = 0;
        for file in fs::read_dir(corpus).into_iter().flatten() {
            let path = file.expect("a file").path();
            history(&fs::read(&path).expect("its bytes"))
                .unwrap_or_else(|broken| panic!("{}: {broken}", path.display()));
            seeds += 1;
        }
        println!("{seeds} seeds");
        let first = first().unwrap_or(0);
        for round in first..first + 10 * effort() {
            history(&bytes(round)).unwrap_or_else(|broken| panic!("round {round}: {broken}"));
        }
    }

    #[test]
    fn bytes_find_a_planted_bug() {
        Mutant::plant(Some(Mutant::CheckpointBeforeData));
        let found = (0..300).find(|seed| history(&bytes(*seed)).is_err());
        Mutant::plant(None);
        assert!(found.is_some(), "300 histories, and none breaks a promise");
    }
}
