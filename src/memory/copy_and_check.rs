//! Copies bytes, with or without a checksum in the same pass.
//!
//! Measured for the copy and the checksum of one message, in pieces (GB/s; AMD EPYC, two processors
//! of a virtual machine, medians):
//!
//! | bytes | one after the other, from the cache | in one pass | one after the other, from memory | in one pass, fetched ahead |
//! |---|---|---|---|---|
//! | 4 KiB | 26 | 27 | 15 | 25 |
//! | 16 KiB | 26 | 28 | 11 | 26 |
//! | 128 KiB | 22 | 26 | 14 | 25 |
//! | 1 MiB | 19 | 25 | 13 | 25 |
//!
//! A checksum alone reads 12 to 17 GB/s from memory, and 28 fetched ahead.

use crate::memory::checksum::{crc32c, wide};
use std::ptr;

/// From this length on, one pass sums and copies the bytes: it loads each byte once (`wide.rs`), or
/// works piece by piece, so that each piece is in the first-level cache when it is read for the
/// second time.
const TOGETHER_FROM: usize = wide::FROM;
/// Bytes of such a piece: three lanes of the checksum.
const CHECKED_PIECE: usize = 1536;
/// Memory is fetched this many bytes ahead of the piece. By itself, the processor fetches ahead
/// only up to the end of the page.
const FETCH_AHEAD: usize = 8192;

/// Continues the raw CRC32C `crc_state` over bytes that may not be in the cache.
#[inline]
pub(super) fn verify(crc_state: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < TOGETHER_FROM {
        crc32c(crc_state, bytes)
    } else {
        verify_long(crc_state, bytes)
    }
}

#[inline(never)]
fn verify_long(crc_state: u32, bytes: &[u8]) -> u32 {
    if wide::available() {
        return crc32c(crc_state, bytes);
    }
    bytes.chunks(CHECKED_PIECE).fold(crc_state, |crc_state, piece| {
        wide::fetch(piece.as_ptr().wrapping_add(FETCH_AHEAD), piece.len());
        crc32c(crc_state, piece)
    })
}

/// Copies bytes as [`copy_bytes`] does, and returns the raw CRC32C `crc_state` continued over them.
/// May prefetch memory behind the bytes at `from`.
///
/// # Safety
///
/// The arguments are valid for [`copy_bytes`].
#[inline(always)]
pub(super) unsafe fn copy_checked(to: *mut u8, from: *const u8, len: usize, crc_state: u32) -> u32 {
    if len >= TOGETHER_FROM {
        // SAFETY: passed on.
        return unsafe { copy_checked_long(to, from, len, crc_state) };
    }
    // SAFETY: as the caller promises, twice.
    unsafe {
        copy_bytes(to, from, len);
        crc32c(crc_state, std::slice::from_raw_parts(from, len))
    }
}

/// # Safety
///
/// The arguments are valid for [`copy_bytes`].
#[inline(never)]
unsafe fn copy_checked_long(to: *mut u8, from: *const u8, len: usize, mut crc_state: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if wide::available() {
        // SAFETY: passed on.
        return unsafe { wide::copy(to, from, len, crc_state) };
    }
    for start in (0..len).step_by(CHECKED_PIECE) {
        let piece = CHECKED_PIECE.min(len - start);
        // SAFETY: `start < len`, and at most the rest is read and copied.
        unsafe {
            let from = from.add(start);
            wide::fetch(from.wrapping_add(FETCH_AHEAD), piece);
            crc_state = crc32c(crc_state, std::slice::from_raw_parts(from, piece));
            ptr::copy_nonoverlapping(from, to.add(start), piece);
        }
    }
    crc_state
}

/// Copies by memcpy, except in two cases. Short lengths, where the call is half the cost. And
/// addresses less than 64 bytes apart modulo the page, where the string instructions of some
/// processors (FSRM; Zen 3) fall to a twentieth of their speed: a payload behind its header and a
/// malloc'd buffer usually lie so.
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
/// The arguments are valid for [`copy_bytes`], and `len` is between `N` and `2 * N`.
#[inline]
unsafe fn copy_ends<const N: usize>(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the first and the last `N` of `len` bytes lie inside, and together they are all.
    unsafe {
        ptr::copy_nonoverlapping(from, to, N);
        ptr::copy_nonoverlapping(from.add(len - N), to.add(len - N), N);
    }
}

/// Up to this length memcpy uses no string instruction.
const PIECE: usize = 2048;

/// # Safety
///
/// The arguments are valid for [`copy_bytes`].
#[inline(never)]
unsafe fn copy_long(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128};
        /// Up to this length, memcpy in pieces is at least as fast as a loop (both ranges fit the
        /// first-level cache).
        const PIECES_TO: usize = 16 << 10;
        /// From this length on, memcpy uses no string instructions again and beats a loop.
        const TRAP_TO: usize = 1 << 20;

        let distance = to.addr().wrapping_sub(from.addr()) % 4096;
        if (1..64).contains(&distance) && len < TRAP_TO {
            if len <= PIECES_TO {
                for start in (0..len).step_by(PIECE) {
                    // SAFETY: `start < len`, and at most the rest is copied.
                    unsafe {
                        let (to, from) = (to.add(start), from.add(start));
                        ptr::copy_nonoverlapping(from, to, PIECE.min(len - start));
                    }
                }
                return;
            }
            // SAFETY: `len` is far above 128. Copied are the first 64 bytes, the last 64, and
            // between them blocks of 64 that begin within the first, end at or before `len`, and
            // are aligned to 64 at `to`.
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

/// Panics: an access outside a window is a bug in mmq. Other code checks numbers from disk or from
/// a caller where they enter.
#[cold]
#[inline(never)]
#[allow(clippy::panic, reason = "going on would access memory outside the window")]
pub(super) fn outside(offset: usize, len: usize, window: usize) -> ! {
    panic!("access of {len} bytes at {offset} is misaligned or outside of a window of {window}")
}
