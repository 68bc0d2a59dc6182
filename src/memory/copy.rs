//! Copying, and copying with a checksum in the same pass.
//!
//! Measured for the copy and the checksum of one message (GB/s; AMD EPYC, two processors of a
//! virtual machine, medians):
//!
//! | bytes | one after the other, from the cache | in one pass | one after the other, from memory | in one pass, fetched ahead |
//! |---|---|---|---|---|
//! | 4 KiB | 26 | 27 | 15 | 25 |
//! | 16 KiB | 26 | 28 | 11 | 26 |
//! | 128 KiB | 22 | 26 | 14 | 25 |
//! | 1 MiB | 19 | 25 | 13 | 25 |
//!
//! A checksum alone reads 12 to 17 GB/s from memory, and 28 fetched ahead.

use crate::memory::checksum::crc32c;
use std::ptr;

/// From this length on the checksum goes along with the copy, piece by piece: each piece is in the
/// first-level cache when it is read the second time.
const TOGETHER_FROM: usize = 1024;
/// Three lanes of the checksum.
const CHECKED_PIECE: usize = 1536;
/// So far ahead of the piece the memory is asked for. What the processor fetches ahead by itself
/// ends at each page.
const FETCH_AHEAD: usize = 8192;

/// Has the processor fetch `len` bytes from `from` on, which need not be there.
#[inline(always)]
fn fetch(from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..len).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, for any address; the instruction is part of every x86_64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (from, len);
}

/// Continues the raw CRC32C `state` over bytes that may come from memory.
#[inline]
pub(super) fn verify(state: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < TOGETHER_FROM { crc32c(state, bytes) } else { verify_long(state, bytes) }
}

#[inline(never)]
fn verify_long(state: u32, bytes: &[u8]) -> u32 {
    bytes.chunks(CHECKED_PIECE).fold(state, |state, piece| {
        fetch(piece.as_ptr().wrapping_add(FETCH_AHEAD), piece.len());
        crc32c(state, piece)
    })
}

/// [`copy_bytes`], and the raw CRC32C `state` continued over what is copied. What lies behind the
/// bytes at `from` may be fetched too.
///
/// # Safety
///
/// As [`copy_bytes`].
#[inline(always)]
pub(super) unsafe fn copy_checked(to: *mut u8, from: *const u8, len: usize, state: u32) -> u32 {
    if len >= TOGETHER_FROM {
        // SAFETY: passed on.
        return unsafe { copy_checked_long(to, from, len, state) };
    }
    // SAFETY: as the caller promises, twice.
    unsafe {
        copy_bytes(to, from, len);
        crc32c(state, std::slice::from_raw_parts(from, len))
    }
}

/// # Safety
///
/// As [`copy_bytes`].
#[inline(never)]
unsafe fn copy_checked_long(to: *mut u8, from: *const u8, len: usize, mut state: u32) -> u32 {
    for start in (0..len).step_by(CHECKED_PIECE) {
        let piece = CHECKED_PIECE.min(len - start);
        // SAFETY: `start < len`, and no more than the rest is read and copied.
        unsafe {
            let from = from.add(start);
            fetch(from.wrapping_add(FETCH_AHEAD), piece);
            state = crc32c(state, std::slice::from_raw_parts(from, piece));
            ptr::copy_nonoverlapping(from, to.add(start), piece);
        }
    }
    state
}

/// Copies by memcpy, but for two cases: the shortest lengths, where the call is half the cost; and
/// lengths with a distance at which some processors' string instructions (FSRM; Zen 3) fall to a
/// twentieth of their speed, which a payload behind a header, copied from or to a malloc'd buffer,
/// meets as a rule.
///
/// # Safety
///
/// `len` bytes readable at `from`, writable at `to`, not overlapping and not written by others
/// meanwhile.
#[inline(always)]
pub(super) unsafe fn copy_bytes(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: passed on; `copy_ends::<N>` is reached with `N <= len <= 2 * N`.
    unsafe {
        if len > 128 {
            if len <= PIECE {
                ptr::copy_nonoverlapping(from, to, len)
            } else {
                copy_long(to, from, len)
            }
        } else if len >= 64 {
            copy_ends::<64>(to, from, len);
        } else {
            match len {
                8..16 => copy_ends::<8>(to, from, len),
                16..32 => copy_ends::<16>(to, from, len),
                32.. => copy_ends::<32>(to, from, len),
                _ => ptr::copy_nonoverlapping(from, to, len),
            }
        }
    }
}

/// # Safety
///
/// As [`copy_bytes`], and `len` between `N` and `2 * N`.
#[inline]
unsafe fn copy_ends<const N: usize>(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the first and the last `N` of `len` bytes lie inside, and together they are all.
    unsafe {
        ptr::copy_nonoverlapping(from, to, N);
        ptr::copy_nonoverlapping(from.add(len - N), to.add(len - N), N);
    }
}

/// memcpy uses no string instruction up to this length.
const PIECE: usize = 2048;

/// # Safety
///
/// As [`copy_bytes`].
#[inline(never)]
unsafe fn copy_long(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128};
        /// Up to here pieces are at least as fast as a loop (both fit the first-level cache).
        const PIECES_TO: usize = 16 << 10;
        /// From here memcpy does without string instructions again, and better than a loop.
        const TRAP_TO: usize = 1 << 20;

        let distance = to.addr().wrapping_sub(from.addr()) % 4096;
        if (1..64).contains(&distance) && len < TRAP_TO {
            if len <= PIECES_TO {
                for start in (0..len).step_by(PIECE) {
                    // SAFETY: `start < len`, and no more than the rest is copied.
                    unsafe {
                        let (to, from) = (to.add(start), from.add(start));
                        ptr::copy_nonoverlapping(from, to, PIECE.min(len - start));
                    }
                }
                return;
            }
            // SAFETY: `len` is far above 128. The first 64 bytes, the last 64, and between them
            // blocks that begin within the first and end before `len`, at addresses of `to` that
            // are multiples of 64.
            unsafe {
                ptr::copy_nonoverlapping(from, to, 64);
                let mut start = 64 - to.addr() % 64;
                while start + 64 <= len {
                    let source = from.add(start).cast::<__m128i>();
                    let target = to.add(start).cast::<__m128i>();
                    let block = [0, 1, 2, 3].map(|i| _mm_loadu_si128(source.add(i)));
                    _mm_store_si128(target, block[0]);
                    _mm_store_si128(target.add(1), block[1]);
                    _mm_store_si128(target.add(2), block[2]);
                    _mm_store_si128(target.add(3), block[3]);
                    start += 64;
                }
                ptr::copy_nonoverlapping(from.add(len - 64), to.add(len - 64), 64);
            }
            return;
        }
    }
    // SAFETY: passed on.
    unsafe { ptr::copy_nonoverlapping(from, to, len) }
}
