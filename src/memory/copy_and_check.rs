//! Copies bytes, with or without a checksum.
//!
//! Long input is copied and summed block by block, so that the cache has each block the second
//! time.

use crate::memory::checksum::{self, PIECE};
use std::ptr;

/// What is copied and summed, which decides the quicker order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// A message of the caller, which is likely in the cache, into a window.
    In,
    /// A payload out of a window: the cache has it less often, and a sum reads ahead better than a
    /// copy does. (128 KiB of a backlog: 17.4 us copied first, 15.9 summed first; 16 KiB: 1.20 us
    /// and 1.05.)
    Out,
}

/// Copies bytes as [`copy_bytes`] does, and returns their [`sum`](checksum::sum) from zero on.
///
/// # Safety
///
/// The arguments are valid for [`copy_bytes`].
#[inline(always)]
pub(super) unsafe fn copy_summed(
    to: *mut u8,
    from: *const u8,
    len: usize,
    direction: Direction,
) -> u64 {
    if len > PIECE {
        // SAFETY: passed on.
        return unsafe { copy_summed_long(to, from, len, direction) };
    }
    // SAFETY: as the caller promises, twice.
    unsafe {
        copy_bytes(to, from, len);
        checksum::sum(0, std::slice::from_raw_parts(from, len))
    }
}

/// From this length on, a message of the caller is summed first, too. (1 MiB: 91 us for 110; 64
/// KiB: 8.1 us for 6.0.)
const SUMS_FIRST_FROM: usize = 512 << 10;

/// A block and its copy fit the first-level cache.
const BLOCK: usize = 4 * PIECE;

/// # Safety
///
/// The arguments are valid for [`copy_bytes`].
#[inline(never)]
unsafe fn copy_summed_long(to: *mut u8, from: *const u8, len: usize, direction: Direction) -> u64 {
    let sums_first = direction == Direction::Out || len >= SUMS_FIRST_FROM;
    let mut sum = 0;
    for start in (0..len).step_by(BLOCK) {
        let part = BLOCK.min(len - start);
        // SAFETY: `start < len`, and at most the rest is read and copied.
        unsafe {
            let (to, from) = (to.add(start), from.add(start));
            // A copy that is made first is summed itself: the caller gets its bytes.
            if sums_first {
                sum = checksum::sum(sum, std::slice::from_raw_parts(from, part));
                copy_bytes(to, from, part);
            } else {
                copy_bytes(to, from, part);
                sum = checksum::sum(sum, std::slice::from_raw_parts(to, part));
            }
        }
    }
    sum
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
            if len <= NO_STRING_TO {
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
const NO_STRING_TO: usize = 2048;

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
                for start in (0..len).step_by(NO_STRING_TO) {
                    // SAFETY: `start < len`, and at most the rest is copied.
                    unsafe {
                        let (to, from) = (to.add(start), from.add(start));
                        ptr::copy_nonoverlapping(from, to, NO_STRING_TO.min(len - start));
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
