//! The checksum of every record and every table in the files: XXH3-64, in pieces of 4 KiB.
//!
//! A crate computes it, with the vectors that the processor has. `docs/format.md` compares it with
//! CRC32C and others.

use twox_hash::XxHash3_64;

/// Bytes of a piece. Bytes to copy and its copy fit the first-level cache together.
pub(crate) const PIECE: usize = 4096;

/// Returns the XXH3-64 of `bytes`, seeded with `seed`. Longer than a [`PIECE`]: that of the last
/// piece, where the sum of all pieces before it is the seed.
///
/// So `sum(sum(seed, start), rest)` is `sum(seed, bytes)` where `start` is whole pieces, and a copy
/// can sum each piece while the cache has it.
#[inline]
pub(crate) fn sum(seed: u64, bytes: &[u8]) -> u64 {
    if bytes.len() <= PIECE { xxh3_64(seed, bytes) } else { sum_pieces(seed, bytes) }
}

/// Returns the XXH3-64 of `bytes`, as everybody computes it.
#[inline]
pub(crate) fn xxh3_64(seed: u64, bytes: &[u8]) -> u64 {
    // With a seed, the crate derives a secret of 192 bytes for more than 240 bytes.
    if seed == 0 { XxHash3_64::oneshot(bytes) } else { XxHash3_64::oneshot_with_seed(seed, bytes) }
}

#[inline(never)]
fn sum_pieces(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(PIECE).fold(seed, xxh3_64)
}

/// Returns the low half of the [`sum`] of a table's `bytes`, as the files have it. To cover several
/// parts, give the checksum of each to the next as its seed.
#[inline]
pub(crate) fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    sum(seed.into(), bytes) as u32
}

/// Returns the checksum of a few words, a step of XXH3 for each: about six instructions a word.
/// The step multiplies the state before, at first the seed, with the word, and folds the product.
#[inline(always)]
pub(crate) fn checksum_words<const N: usize>(seed: u32, words: [u64; N]) -> u32 {
    words.into_iter().fold(seed.into(), step) as u32
}

/// Two words of XXH3's secret keep zeros from making the product zero.
const SECRET: [u64; 2] = [0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c];

#[inline(always)]
fn step(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ SECRET[0]) * u128::from(word ^ SECRET[1]);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3;

    fn pattern(len: usize) -> Vec<u8> {
        let mix = |i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        (0..len).map(|i| mix(i) as u8).collect()
    }

    /// The values of the reference implementation (xxHash 0.8, `xxhsum -H3`), and another crate's.
    #[test]
    fn a_piece_is_summed_as_everybody_does() {
        assert_eq!(sum(0, b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(sum(0, b"123456789"), xxh3::xxh3_64(b"123456789"));
        let bytes = pattern(PIECE + 64);
        let lengths = (0..300).chain([511, 512, 513, 1024, 1025, 2048, 4095, PIECE]);
        for len in lengths.step_by(if cfg!(miri) { 29 } else { 1 }) {
            for start in [0, 1, 13] {
                let bytes = &bytes[start..start + len];
                assert_eq!(sum(0, bytes), xxh3::xxh3_64(bytes), "{len}");
                let seeded = xxh3::xxh3_64_with_seed(bytes, 0x1234_5678);
                assert_eq!(checksum(0x1234_5678, bytes), seeded as u32, "{len}");
            }
        }
    }

    /// Words that differ in one bit, or in their order, have other checksums: of the lower and the
    /// upper half of 32 bits, about one in 65,536 agrees, as of random numbers.
    #[test]
    fn words_are_told_apart() {
        let mut halves = [0; 2];
        let mut pairs = 0;
        for case in 0..if cfg!(miri) { 2 } else { 2000 } {
            let words = [case << 32 | 128, (case * 3) | (1 << 40)];
            let sum = checksum_words(0, words);
            assert_ne!(sum, checksum_words(1, words));
            assert_ne!(sum, checksum_words(0, [words[1], words[0]]));
            for bit in 0..128 {
                let mut other = words;
                other[bit / 64] ^= 1 << (bit % 64);
                let differ = sum ^ checksum_words(0, other);
                assert_ne!(differ, 0, "{words:x?} {bit}");
                halves[0] += u32::from(differ as u16 == 0);
                halves[1] += u32::from(differ >> 16 == 0);
                pairs += 1;
            }
        }
        assert!(halves.iter().all(|agree| *agree < 5 + pairs / 10_000), "{halves:?} of {pairs}");
    }

    #[test]
    fn each_piece_is_seeded_with_those_before() {
        let bytes = pattern(3 * PIECE + 100);
        for len in [PIECE + 1, 2 * PIECE, 3 * PIECE + 100] {
            let pieces = bytes[..len].chunks(PIECE);
            let expected = pieces.fold(5, |seed, piece| xxh3::xxh3_64_with_seed(piece, seed));
            assert_eq!(sum(5, &bytes[..len]), expected, "{len}");
            assert_eq!(sum(sum(5, &bytes[..PIECE]), &bytes[PIECE..len]), expected, "{len}");
        }
        // Pieces that changed places are found.
        let mut swapped = bytes.clone();
        swapped[..2 * PIECE].rotate_left(PIECE);
        assert_ne!(sum(0, &swapped), sum(0, &bytes));
    }
}
