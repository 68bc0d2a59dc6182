//! Runs CRC32C backwards: computes the state from which a sum began.

use super::checksum::times_x;

/// Returns the raw state that `len` zero bytes turn into `state`. For other bytes, call it with
/// `state ^ crc32c(0, bytes)`, because a CRC is affine.
pub(crate) fn before_zeros(state: u32, len: u64) -> u32 {
    // x to this power is 1: the polynomial is x + 1 times a primitive one of degree 31.
    const ORDER: u64 = (1 << 31) - 1;
    let (mut left, mut factor, mut result) = (ORDER - 8 * (len % ORDER) % ORDER, 1 << 30, state);
    while left > 0 {
        if left & 1 == 1 {
            result = product(result, factor);
        }
        factor = product(factor, factor);
        left >>= 1;
    }
    result
}

/// Multiplies two polynomials modulo the CRC polynomial.
fn product(mut a: u32, b: u32) -> u32 {
    let mut sum = 0;
    for bit in (0..32).rev() {
        sum ^= a & (b >> bit & 1).wrapping_neg();
        a = times_x(a);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::checksum::crc32c;

    #[test]
    fn the_state_before_any_bytes_is_found_from_the_state_behind() {
        let bytes: Vec<u8> = (0..2000u32).map(|at| (at * at / 7) as u8).collect();
        for len in [0, 1, 7, 8, 16, 100, 1999] {
            for state in [0, 1, !0, 0x1234_5678] {
                let (bytes, behind) = (&bytes[..len], crc32c(state, &bytes[..len]));
                assert_eq!(before_zeros(behind ^ crc32c(0, bytes), len as u64), state, "{len}");
            }
        }
        // x to the power of this many bits is 1; then one byte more.
        let order = (1u64 << 31) - 1;
        assert_eq!(before_zeros(77, order), 77);
        assert_eq!(before_zeros(77, order + 1), before_zeros(77, 1));
    }
}
