//! CRC32C (Castagnoli), the checksum of every record and every table in the files.
//!
//! The functions work on the *raw* state, which is not inverted: so a checksum can start from a
//! seed that ties a record to its position, and continue over several windows. The usual CRC32C of
//! `bytes` is `!crc32c(!0, bytes)`.
//!
//! The processor's CRC instruction takes eight bytes a cycle but returns its result three cycles
//! later. So three parts ("lanes") of the input run side by side, the later two from a zero state,
//! and are joined at the end: multiplying a state with `x^(64 m)` moves it past `m` words, which
//! carry-less multiplication does for any `m` with one constant. Where the processor can multiply
//! whole vectors, they sum long input (`wide.rs`).

#![expect(unsafe_code, reason = "instructions that some processors do not have")]

#[path = "wide.rs"]
pub(crate) mod wide;

/// Continues the raw CRC32C `state` over `bytes`.
#[inline]
pub(crate) fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if hardware::available() {
        // SAFETY: the processor has the instructions that `update` is compiled with: just checked.
        return unsafe { hardware::update(state, bytes) };
    }
    table::update(state, bytes)
}

/// Continues the raw CRC32C `state` over the eight little-endian bytes of `word`.
#[cfg(test)]
pub(crate) fn crc32c_u64(state: u32, word: u64) -> u32 {
    crc32c_words(state, [word])
}

/// Continues the raw CRC32C `state` over the little-endian bytes of `words`.
#[inline(always)]
pub(crate) fn crc32c_words<const N: usize>(state: u32, words: [u64; N]) -> u32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if hardware::available() {
        // SAFETY: the processor has the instruction: just checked.
        return words
            .iter()
            .fold(state, |state, word| unsafe { hardware::word_inline(state, *word) });
    }
    words.iter().fold(state, |state, word| table::update(state, &word.to_le_bytes()))
}

/// The Castagnoli polynomial, reflected: bit 31 stands for x^0.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// x^`exponent`, modulo the polynomial.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) const fn power_of_x(exponent: u32) -> u32 {
    let (mut power, mut at) = (1 << 31, 0);
    while at < exponent {
        power = times_x(power);
        at += 1;
    }
    power
}

/// `state * x`, modulo the polynomial.
pub(super) const fn times_x(state: u32) -> u32 {
    (state >> 1) ^ (POLYNOMIAL & (state & 1).wrapping_neg())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod hardware {
    use super::times_x;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    use super::wide;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[cfg(target_arch = "aarch64")]
    use self::aarch64::multiply;
    #[cfg(target_arch = "aarch64")]
    use self::aarch64::word;
    #[cfg(target_arch = "x86_64")]
    use self::x86_64::multiply;
    #[cfg(target_arch = "x86_64")]
    use self::x86_64::word;

    /// From this many words on, the lanes' lengths fit the input. Computing them takes some
    /// nanoseconds.
    const FITTED_FROM: usize = 32;
    /// Words of a block. Shorter input is cut into blocks, whose lanes have fixed lengths: the
    /// compiler unrolls them.
    const BLOCK: usize = 16;
    /// Words of the first and the second lane of a block; the third has the rest.
    const BLOCK_LANE: usize = 4;
    /// Words by which the third lane is longer: it continues while the other two are multiplied.
    const LEAD: usize = 3;
    /// Words of the longest lane; longer input takes several rounds. Joining costs about ten
    /// cycles, a lane of this length 256.
    const LANE_MAX: usize = 256;
    /// The most words of one round.
    const ROUND: usize = 3 * LANE_MAX + LEAD;

    /// `SHIFT[m]` is x^(64 m - 33). It moves a state past `m` words: the product of the two is
    /// folded into the m-th word, and reading that word does the rest. (Of the 33, reading the word
    /// accounts for 32, and the alignment of the reflected product for one.)
    static SHIFT: [u32; 2 * LANE_MAX + LEAD + 3] = {
        let mut shift = [0; 2 * LANE_MAX + LEAD + 3];
        // x^31, which is x^(64 - 33)
        let mut power = 1u32;
        let mut m = 1;
        while m < shift.len() {
            shift[m] = power;
            let mut bit = 0;
            while bit < 64 {
                power = times_x(power);
                bit += 1;
            }
            m += 1;
        }
        shift
    };

    const UNKNOWN: u8 = 0;
    const PRESENT: u8 = 1;
    const ABSENT: u8 = 2;
    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Returns whether the processor has the instructions: a constant where the build requires
    /// them, else one load.
    #[inline]
    pub(super) fn available() -> bool {
        if cfg!(miri) {
            return false;
        }
        if cfg!(any(
            all(target_arch = "x86_64", target_feature = "sse4.2", target_feature = "pclmulqdq"),
            all(target_arch = "aarch64", target_feature = "crc", target_feature = "aes")
        )) {
            return true;
        }
        // Relaxed: the value is the same for every thread, and publishes nothing else.
        match FOUND.load(Ordering::Relaxed) {
            PRESENT => true,
            ABSENT => false,
            _ => ask(),
        }
    }

    #[cold]
    fn ask() -> bool {
        #[cfg(target_arch = "x86_64")]
        let present = std::arch::is_x86_feature_detected!("sse4.2")
            && std::arch::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let present = std::arch::is_aarch64_feature_detected!("crc")
            && std::arch::is_aarch64_feature_detected!("aes");
        FOUND.store(if present { PRESENT } else { ABSENT }, Ordering::Relaxed);
        present
    }

    /// The CRC instruction alone. The compiler's function for it is inlined only into code that is
    /// compiled for processors that have it. A call would cost more than the two or three words of
    /// most uses.
    ///
    /// # Safety
    ///
    /// The processor has the instruction.
    #[inline(always)]
    pub(super) unsafe fn word_inline(state: u32, word: u64) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            let mut next = u64::from(state);
            // SAFETY: only registers are read and written. The processor has the instruction, as
            // the caller promises.
            unsafe {
                std::arch::asm!("crc32 {next}, {word}", next = inout(reg) next, word = in(reg) word,
                    options(pure, nomem, nostack, preserves_flags));
            }
            next as u32
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            self::word(state, word)
        }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2,pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc,aes"))]
    pub(super) fn update(state: u32, bytes: &[u8]) -> u32 {
        let words = bytes.as_chunks::<8>().0;
        if words.len() < FITTED_FROM {
            update_short(state, words, bytes)
        } else {
            update_long(state, words, bytes)
        }
    }

    /// Not inlined: otherwise short input would save and load the loop's registers for nothing.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2,pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc,aes"))]
    #[inline(never)]
    fn update_long(mut state: u32, mut words: &[[u8; 8]], bytes: &[u8]) -> u32 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if bytes.len() >= wide::FROM && wide::available() {
            return wide::sum(state, bytes);
        }
        while words.len() >= FITTED_FROM {
            let (now, later) = words.split_at(words.len().min(ROUND));
            state = three_lanes(state, now, (now.len() - LEAD) / 3);
            words = later;
        }
        update_short(state, words, bytes)
    }

    /// Continues the state over the last words of `bytes`, fewer than [`FITTED_FROM`], and the
    /// bytes behind them.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2,pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc,aes"))]
    #[inline]
    fn update_short(mut state: u32, mut words: &[[u8; 8]], bytes: &[u8]) -> u32 {
        while let Some((block, later)) = words.split_first_chunk::<BLOCK>() {
            state = three_lanes(state, block, BLOCK_LANE);
            words = later;
        }
        for bytes in words {
            state = word(state, u64::from_le_bytes(*bytes));
        }
        let rest = bytes.len() % 8;
        if rest == 0 {
            return state;
        }
        // Leading zero bytes leave a zero state zero. So the remaining bytes are read as the end of
        // one word, with the state folded into them. Bits of the state beyond those bytes meet no
        // input: they move down by as many bits.
        let bits = 8 * rest as u32;
        let value = match bytes.last_chunk::<8>() {
            Some(last) => u64::from_le_bytes(*last) >> (64 - bits),
            None => little_endian(bytes),
        };
        let folded = u64::from(state) ^ value;
        word(0, folded << (64 - bits)) ^ (u64::from(state) >> bits) as u32
    }

    /// One to seven bytes as a number.
    #[inline]
    fn little_endian(bytes: &[u8]) -> u64 {
        let mut value = 0;
        for &byte in bytes.iter().rev() {
            value = value << 8 | u64::from(byte);
        }
        value
    }

    /// Continues the state over at most [`ROUND`] words: two lanes of `lane` words, and a third
    /// lane of the rest.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2,pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc,aes"))]
    #[inline]
    fn three_lanes(state: u32, words: &[[u8; 8]], lane: usize) -> u32 {
        let (first, others) = words.split_at(lane);
        let (second, third) = others.split_at(lane);
        let (beside, alone) = third.split_at(lane);
        let (mut a, mut b, mut c) = (state, 0, 0);
        for ((x, y), z) in first.iter().zip(second).zip(beside) {
            a = word(a, u64::from_le_bytes(*x));
            b = word(b, u64::from_le_bytes(*y));
            c = word(c, u64::from_le_bytes(*z));
        }
        let moved = multiply(a, SHIFT[lane + third.len()]) ^ multiply(b, SHIFT[third.len()]);
        let [before @ .., last] = alone else {
            return c;
        };
        for bytes in before {
            c = word(c, u64::from_le_bytes(*bytes));
        }
        word(c, u64::from_le_bytes(*last) ^ moved)
    }

    #[cfg(target_arch = "x86_64")]
    mod x86_64 {
        use std::arch::x86_64::{
            _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
        };

        #[target_feature(enable = "sse4.2")]
        #[inline]
        pub(super) fn word(state: u32, word: u64) -> u32 {
            _mm_crc32_u64(u64::from(state), word) as u32
        }

        /// The carry-less product.
        #[target_feature(enable = "sse4.2,pclmulqdq")]
        #[inline]
        pub(super) fn multiply(a: u32, b: u32) -> u64 {
            let product =
                _mm_clmulepi64_si128::<0>(_mm_cvtsi32_si128(a as i32), _mm_cvtsi32_si128(b as i32));
            _mm_cvtsi128_si64(product) as u64
        }
    }

    #[cfg(target_arch = "aarch64")]
    mod aarch64 {
        use std::arch::aarch64::{__crc32cd, vmull_p64};

        #[target_feature(enable = "crc")]
        #[inline]
        pub(super) fn word(state: u32, word: u64) -> u32 {
            __crc32cd(state, word)
        }

        /// The carry-less product.
        #[target_feature(enable = "aes")]
        #[inline]
        pub(super) fn multiply(a: u32, b: u32) -> u64 {
            vmull_p64(u64::from(a), u64::from(b)) as u64
        }
    }
}

/// For processors without the instructions, and for Miri: eight bytes a step, through eight tables.
mod table {
    use super::times_x;

    /// `TABLES[k][byte]`: what `byte` adds to the state when `k` bytes follow it.
    static TABLES: [[u32; 256]; 8] = {
        let mut tables = [[0; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            let mut state = byte as u32;
            let mut k = 0;
            while k < 8 {
                let mut bit = 0;
                while bit < 8 {
                    state = times_x(state);
                    bit += 1;
                }
                tables[k][byte] = state;
                k += 1;
            }
            byte += 1;
        }
        tables
    };

    pub(super) fn update(mut state: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        for bytes in words {
            let folded = u64::from_le_bytes(*bytes) ^ u64::from(state);
            state = 0;
            for (k, table) in TABLES.iter().enumerate() {
                state ^= table[(folded >> (56 - 8 * k) & 0xff) as usize];
            }
        }
        for &byte in rest {
            state = (state >> 8) ^ TABLES[0][usize::from(state as u8 ^ byte)];
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRC bit by bit, as the polynomial defines it.
    fn oracle(state: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(state, |state, &byte| {
            (0..8).fold(state ^ u32::from(byte), |state, _| times_x(state))
        })
    }

    fn pattern(len: usize) -> Vec<u8> {
        let mix = |i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        (0..len).map(|i| mix(i) as u8).collect()
    }

    #[track_caller]
    fn check(state: u32, bytes: &[u8]) {
        let expected = oracle(state, bytes);
        assert_eq!(crc32c(state, bytes), expected, "of {} bytes", bytes.len());
        assert_eq!(table::update(state, bytes), expected, "{} bytes, tables", bytes.len());
    }

    #[test]
    fn known_vectors() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        // RFC 3720, B.4, and the customary check value.
        let vectors: [(&[u8], u32); 6] = [
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ];
        for (bytes, checksum) in vectors {
            assert_eq!(!crc32c(!0, bytes), checksum, "{bytes:?}");
            check(!0, bytes);
        }
    }

    #[test]
    fn every_length_at_every_alignment_agrees_with_the_oracle() {
        let bytes = pattern(700);
        let (lengths, starts) = if cfg!(miri) { (40, 2) } else { (601, 16) };
        for start in 0..starts {
            for len in 0..lengths {
                let state = (len as u32).wrapping_mul(0x9e37_79b9) ^ start as u32;
                check(state, &bytes[start..start + len]);
            }
        }
    }

    #[test]
    fn long_input_agrees_with_the_oracle() {
        let bytes = pattern(if cfg!(miri) { 2100 } else { 300_000 });
        // A round of three lanes is 6,168 bytes.
        for around in [1000, 2048, 6144, 6168, 6424, 12_336, 16_384, 65_536, 299_900] {
            for len in around - 9..around + 70 {
                let every = if cfg!(miri) || len > 20_000 { 16 } else { 1 };
                if len + 3 <= bytes.len() && len % every == 0 {
                    check(!0, &bytes[3..3 + len]);
                }
            }
        }
    }

    #[test]
    fn a_word_is_its_eight_bytes_and_pieces_are_the_whole() {
        let bytes = pattern(1000);
        for (word, state) in [(0, 0), (u64::MAX, 1), (0x0807_0605_0403_0201, !0)] {
            assert_eq!(crc32c_u64(state, word), oracle(state, &word.to_le_bytes()));
        }
        for cut in (0..bytes.len()).step_by(if cfg!(miri) { 370 } else { 37 }) {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(crc32c(crc32c(9, first), second), crc32c(9, &bytes));
        }
    }
}
