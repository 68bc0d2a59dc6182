//! Every access to the bytes of a window: words that other threads read meanwhile, copies in and
//! out with or without a checksum, lent ranges. `mod.rs` has the rules that the `SAFETY` comments
//! cite.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::copy_and_check::{Direction, copy_bytes, copy_summed, outside};
use super::{Payload, Window};
use crate::memory::checksum;

impl Window {
    /// Returns the address of the `len` bytes at `offset`. Panics when they are not all inside the
    /// window.
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        if len > self.len || offset > self.len - len {
            outside(offset, len, self.len);
        }
        // SAFETY: `offset` is at most `self.len`, and that many bytes from `base` on are one
        // mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Returns the address of `len` bytes that begin with a word. Panics when they are not all
    /// inside the window, or the word is not aligned (`base` is).
    #[inline]
    fn words_at(&self, offset: usize, len: usize) -> *mut u64 {
        let words = self.at(offset, len);
        if !offset.is_multiple_of(8) {
            outside(offset, len, self.len);
        }
        words.cast()
    }

    #[inline]
    fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: eight aligned bytes inside the window, which outlives `&self`. All access to them
        // is atomic as long as they are such a word (rule 3).
        unsafe { AtomicU64::from_ptr(self.words_at(offset, 8)) }
    }

    #[inline]
    fn word32(&self, offset: usize) -> &AtomicU32 {
        let word = self.at(offset, 4);
        if !offset.is_multiple_of(4) {
            outside(offset, 4, self.len);
        }
        // SAFETY: as in `word64`, with four bytes.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Reads a little-endian word. A thread that reads a value of [`store_u64`](Self::store_u64)
    /// also sees everything written before it.
    pub(crate) fn load_u64(&self, offset: usize) -> u64 {
        #[cfg(test)]
        crate::tests::schedule::step();
        u64::from_le(self.word64(offset).load(Ordering::Acquire))
    }

    /// Writes a little-endian word, after everything this thread wrote before.
    #[inline]
    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        #[cfg(test)]
        let _stored = self.before_store(offset, 8);
        self.word64(offset).store(value.to_le(), Ordering::Release);
    }

    /// Reads a little-endian word, with relaxed ordering.
    #[inline]
    pub(crate) fn load_u64_relaxed(&self, offset: usize) -> u64 {
        #[cfg(test)]
        crate::tests::schedule::step();
        u64::from_le(self.word64(offset).load(Ordering::Relaxed))
    }

    /// Writes a little-endian four-byte word, after everything this thread wrote before.
    #[inline]
    pub(crate) fn store_u32(&self, offset: usize, value: u32) {
        #[cfg(test)]
        let _stored = self.before_store(offset, 4);
        self.word32(offset).store(value.to_le(), Ordering::Release);
    }

    /// Writes `bytes` at `offset`, into the writer's own range.
    #[inline]
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        #[cfg(test)]
        self.store_first_part(offset, bytes);
        // SAFETY: `to` has as many bytes inside the window. They are this writer's own (rule 1), so
        // `bytes` do not overlap them, even if lent from this window.
        unsafe { copy_bytes(to, bytes.as_ptr(), bytes.len()) }
    }

    /// Copies bytes from `offset` on into all of `into`.
    #[inline]
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        #[cfg(test)]
        crate::tests::schedule::step();
        let from = self.at(offset, into.len());
        // SAFETY: `from` has as many bytes inside the window, which no thread is writing (rules 1
        // and 2); `into` is exclusive, hence elsewhere.
        unsafe { copy_bytes(into.as_mut_ptr(), from, into.len()) }
    }

    /// Appends `len` bytes to `into`.
    #[inline]
    pub(crate) fn append_to(&self, offset: usize, len: usize, into: &mut Vec<u8>) {
        #[cfg(test)]
        crate::tests::schedule::step();
        let from = self.at(offset, len);
        into.reserve(len);
        // SAFETY: `from` as in `copy_out`; the vector has room for `len` bytes behind its own, all
        // of them written before they become its own.
        unsafe {
            copy_bytes(into.as_mut_ptr().add(into.len()), from, len);
            into.set_len(into.len() + len);
        }
    }

    /// Appends `len` bytes to `into`, and returns their [`sum`](checksum::sum).
    #[inline(always)]
    pub(crate) fn append_summed(&self, offset: usize, len: usize, into: &mut Vec<u8>) -> u64 {
        #[cfg(test)]
        crate::tests::schedule::step();
        let from = self.at(offset, len);
        into.reserve(len);
        // SAFETY: as in `append_to`.
        unsafe {
            let sum = copy_summed(into.as_mut_ptr().add(into.len()), from, len, Direction::Out);
            into.set_len(into.len() + len);
            sum
        }
    }

    /// Copies bytes from `offset` on into all of `into`, and returns their
    /// [`sum`](checksum::sum).
    #[inline(always)]
    pub(crate) fn copy_out_summed(&self, offset: usize, into: &mut [u8]) -> u64 {
        #[cfg(test)]
        crate::tests::schedule::step();
        let from = self.at(offset, into.len());
        // SAFETY: as in `copy_out`.
        unsafe { copy_summed(into.as_mut_ptr(), from, into.len(), Direction::Out) }
    }

    /// Returns the [`sum`](checksum::sum) of committed bytes, or the writer's own.
    #[inline]
    pub(crate) fn sum(&self, offset: usize, len: usize) -> u64 {
        checksum::sum(0, self.bytes(offset, len))
    }

    /// Lets the crash tests look at memory before a copy, and in the middle of it.
    #[cfg(test)]
    fn store_first_part(&self, offset: usize, bytes: &[u8]) {
        let _stored = self.before_store(offset, bytes.len());
        let part = &bytes[..bytes.len() / 2];
        // SAFETY: as in `copy_in`, which stores the same bytes again.
        unsafe { copy_bytes(self.at(offset, part.len()), part.as_ptr(), part.len()) }
        let _stored = self.before_store(offset, bytes.len());
    }

    /// Writes zeros over the writer's own range.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        #[cfg(test)]
        let _stored = self.before_store(offset, len);
        let to = self.at(offset, len);
        // SAFETY: `len` bytes inside the window, this writer's own (rule 1).
        unsafe { ptr::write_bytes(to, 0, len) }
    }

    /// Lends the writer's own, uncommitted range to `fill`, which writes it. No other `&mut [u8]`
    /// over a window exists. `fill` must not reach the same range through the window.
    #[inline]
    pub(crate) fn with_mut<R>(
        &self,
        offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        #[cfg(test)]
        let _stored = self.before_store(offset, len);
        let range = self.at(offset, len);
        // SAFETY: `len` initialised bytes inside the window, this writer's own (rule 1). Until
        // `fill` returns, the slice is their only use; `fill` cannot keep it.
        fill(unsafe { std::slice::from_raw_parts_mut(range, len) })
    }

    /// Lends committed bytes, or the writer's own while the writer does not write.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        #[cfg(test)]
        crate::tests::schedule::step();
        let range = self.at(offset, len);
        // SAFETY: `len` initialised bytes inside the window. `&self` is a counted reference: it
        // keeps the window mapped and the segment from being recycled, so the bytes do not change
        // (rules 1 and 2).
        unsafe { std::slice::from_raw_parts(range, len) }
    }

    /// Writes a fragment into the writer's own range: the payload, then the second header word,
    /// then the first. So a thread that sees the first word sees the whole fragment. `header`
    /// computes the two words from the payload's [`sum`](checksum::sum).
    #[inline(always)]
    pub(crate) fn put_fragment<P: Payload + ?Sized>(
        &self,
        offset: usize,
        payload: &P,
        header: impl FnOnce(u64) -> [u64; 2],
    ) {
        let to = self.words_at(offset, payload.len().saturating_add(16));
        if planted!(MappedHeaderBeforePayload) {
            let payload = payload.joined();
            self.store_words(offset, header(checksum::sum(0, &payload)));
            return self.copy_in(offset + 16, &payload);
        }
        let sum = if let Some(payload) = payload.whole() {
            #[cfg(test)]
            self.store_first_part(offset + 16, payload);
            // SAFETY: the window has 16 bytes and those of the payload from `to` on; for the rest
            // as in `copy_in`.
            unsafe {
                copy_summed(to.cast::<u8>().add(16), payload.as_ptr(), payload.len(), Direction::In)
            }
        } else {
            let mut at = offset + 16;
            for piece in payload.pieces() {
                self.copy_in(at, piece);
                at += piece.len();
            }
            self.sum(offset + 16, payload.len())
        };
        let [first, second] = header(sum);
        #[cfg(test)]
        let _stored = self.before_store(offset + 8, 8);
        // SAFETY: the second aligned word from `to` on, inside the window. All access to it is
        // atomic as long as it is a word (rule 3).
        unsafe { AtomicU64::from_ptr(to.add(1)) }.store(second.to_le(), Ordering::Relaxed);
        #[cfg(test)]
        let _stored = self.before_store(offset, 8);
        // SAFETY: as above, the first one.
        unsafe { AtomicU64::from_ptr(to) }.store(first.to_le(), Ordering::Release);
    }

    /// Reads two little-endian words, with relaxed ordering.
    #[inline]
    pub(crate) fn load_pair(&self, offset: usize) -> [u64; 2] {
        #[cfg(test)]
        crate::tests::schedule::step();
        let from = self.words_at(offset, 16);
        // SAFETY: two aligned words inside the window, which outlives `&self`. All access to them
        // is atomic as long as they are words (rule 3).
        let words = unsafe { [AtomicU64::from_ptr(from), AtomicU64::from_ptr(from.add(1))] };
        words.map(|word| u64::from_le(word.load(Ordering::Relaxed)))
    }

    /// Writes little-endian words in this order, the last one after everything this thread wrote
    /// before.
    #[inline(always)]
    pub(crate) fn store_words<const N: usize>(&self, offset: usize, words: [u64; N]) {
        let to = self.words_at(offset, 8 * N);
        for (at, word) in words.into_iter().enumerate() {
            #[cfg(test)]
            let _stored = self.before_store(offset + 8 * at, 8);
            let order = if at + 1 == N { Ordering::Release } else { Ordering::Relaxed };
            // SAFETY: `N` words inside the window; for the rest as in `load_pair`.
            unsafe { AtomicU64::from_ptr(to.add(at)) }.store(word.to_le(), order);
        }
    }

    /// Writes little-endian words with relaxed ordering, and behind them four bytes (`last`), after
    /// everything this thread wrote before.
    #[inline]
    pub(crate) fn store_row<const N: usize>(&self, offset: usize, words: [u64; N], last: u32) {
        let to = self.words_at(offset, 8 * N + 4);
        for (at, word) in words.into_iter().enumerate() {
            #[cfg(test)]
            let _stored = self.before_store(offset + 8 * at, 8);
            // SAFETY: `N` words inside the window; for the rest as in `load_pair`.
            unsafe { AtomicU64::from_ptr(to.add(at)) }.store(word.to_le(), Ordering::Relaxed);
        }
        #[cfg(test)]
        let _stored = self.before_store(offset + 8 * N, 4);
        // SAFETY: four bytes behind the words, aligned as those are; for the rest as above.
        unsafe { AtomicU32::from_ptr(to.add(N).cast()) }.store(last.to_le(), Ordering::Release);
    }
}
