//! A window, the windows on it, and every way to its bytes.

use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::copy::{copy_bytes, copy_checked, verify};
#[cfg(test)]
use super::heap::HeapMemory;

/// A window with few references takes this many at once, and gives them out one by one without an atomic operation.
pub(super) const BULK: u64 = 1 << 16;

/// Whether a window can be cut off from its file while somebody reads from it ([`Window::detach`]). Where it cannot,
/// nothing is lent: a message may outlive the queue.
pub(crate) const CAN_DETACH: bool = cfg!(target_os = "linux");

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the memory is only kept there, for its end"))]
struct Mapping {
    /// The weights of all windows together; zero only when the last one is gone.
    references: AtomicU64,
    /// Stores are seen to go by calls where they must.
    #[cfg(test)]
    writable: bool,
    memory: Memory,
}

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the mapping is only kept there, for its end"))]
enum Memory {
    File(MmapRaw),
    #[cfg(test)]
    #[expect(dead_code, reason = "keeps the bytes, no more")]
    Heap(Arc<HeapMemory>),
}

/// One or more references to a window.
pub(crate) struct Window {
    // Kept here too, so that the line with the count is touched by counting alone.
    base: NonNull<u8>,
    len: usize,
    window: NonNull<Mapping>,
    /// At least 1.
    weight: u64,
}

// SAFETY: the window stays until the last window is gone, wherever that is dropped (its memory, `MmapRaw` or
// `Arc<HeapMemory>`, may be dropped by any thread); the count is atomic, and the weight is this window's own.
unsafe impl Send for Window {}
// SAFETY: through `&Window` the weight is only read and the count only changed atomically; the bytes are reached by the
// protocol above, which speaks of threads and not of windows.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `len` bytes of `file`, shared and writable. The window may reach beyond the end of the file; bytes there
    /// must not be touched before the file has them. `offset` must be a multiple of 8.
    pub(crate) fn map_file(file: &File, offset: u64, len: usize) -> io::Result<Window> {
        if !offset.is_multiple_of(8) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let map = MmapOptions::new().offset(offset).len(len).map_raw(file)?;
        match NonNull::new(map.as_mut_ptr()) {
            Some(base) => Ok(Window::first(base, len, Memory::File(map))),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// A window of zeros on no file, for its owner alone.
    pub(crate) fn private(len: usize) -> io::Result<Window> {
        let map = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        match NonNull::new(map.as_mut_ptr()) {
            Some(base) => Ok(Window::first(base, len, Memory::File(map))),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// A window on heap bytes, for the simulated storage. `offset` must be a multiple of 8.
    #[cfg(test)]
    pub(crate) fn heap(memory: &Arc<HeapMemory>, offset: usize, len: usize) -> Window {
        assert!(offset.is_multiple_of(8));
        let base = memory.at(offset, len);
        Window::first(base, len, Memory::Heap(Arc::clone(memory)))
    }

    /// The same window, to be read only: its file is written by calls.
    #[cfg(test)]
    pub(crate) fn forbid_stores(self) -> Window {
        // SAFETY: a window that was just made is the only one on its window.
        unsafe { (*self.window.as_ptr()).writable = false };
        self
    }

    /// Called before every store.
    #[cfg(test)]
    fn before_store(&self) {
        assert!(self.window().writable, "mmq stored through a mapping of a file that is to be written by calls");
        crate::tests::sim::before_store();
    }

    /// `base` begins `len` bytes of `memory`, at an address that is a multiple of 8.
    fn first(base: NonNull<u8>, len: usize, memory: Memory) -> Window {
        let window = Box::new(Mapping {
            references: AtomicU64::new(1),
            #[cfg(test)]
            writable: true,
            memory,
        });
        Window { base, len, window: NonNull::from(Box::leak(window)), weight: 1 }
    }

    #[inline]
    fn window(&self) -> &Mapping {
        // SAFETY: freed only by the drop that takes the count to zero, and this window's weight is still in it; nothing
        // ever makes a `&mut Mapping` before that.
        unsafe { self.window.as_ref() }
    }

    fn same(&self, weight: u64) -> Window {
        Window { weight, ..*self }
    }

    /// Another window on the window, by an atomic operation only once in [`BULK`] calls.
    #[inline]
    pub(crate) fn share(&mut self) -> Window {
        if self.weight == 1 {
            self.count(BULK);
            self.weight += BULK;
        }
        self.weight -= 1;
        self.same(1)
    }

    /// Another window on the window, where this one is shared itself.
    #[inline]
    pub(crate) fn clone_shared(&self) -> Window {
        self.count(1);
        self.same(1)
    }

    #[inline]
    fn count(&self, more: u64) {
        // Relaxed: this window already keeps the window, and whoever gets the new one gets it through a later,
        // ordered step.
        if self.window().references.fetch_add(more, Ordering::Relaxed) > u64::MAX / 2 {
            // Only windows forgotten for years lead here. A panic would be no help: the count is already wrong.
            std::process::abort();
        }
    }

    /// The weight of all windows on the window. Where it equals [`weight`](Self::weight), nobody else holds one, and
    /// everything others did with theirs has happened before.
    #[inline]
    pub(crate) fn references(&self) -> u64 {
        self.window().references.load(Ordering::Acquire)
    }

    /// How many references this window stands for.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// The window's length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where `len` bytes at `offset` begin; panics when they are not all inside the window.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        if len > self.len || offset > self.len - len {
            outside(offset, len, self.len);
        }
        // SAFETY: `offset` is at most `self.len`, and that many bytes from `base` on are one mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Where `len` bytes begin with a word at `offset`; panics when they are not all inside the window, or the word is not
    /// aligned (`base` is).
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
        // SAFETY: eight bytes inside the window, which outlives `&self`, and aligned; while it is such a word it is accessed
        // atomically only (rule 3).
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

    /// Reads a little-endian word; what was stored before the value by [`store_u64`](Self::store_u64) is seen after.
    pub(crate) fn load_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.word64(offset).load(Ordering::Acquire))
    }

    /// Writes a little-endian word, after everything this thread wrote before.
    #[inline]
    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        #[cfg(test)]
        self.before_store();
        self.word64(offset).store(value.to_le(), Ordering::Release);
    }

    /// Reads a little-endian word, without order.
    #[inline]
    pub(crate) fn load_u64_relaxed(&self, offset: usize) -> u64 {
        u64::from_le(self.word64(offset).load(Ordering::Relaxed))
    }

    /// As [`store_u64`](Self::store_u64), for half a word.
    #[inline]
    pub(crate) fn store_u32(&self, offset: usize, value: u32) {
        #[cfg(test)]
        self.before_store();
        self.word32(offset).store(value.to_le(), Ordering::Release);
    }

    /// Writes `bytes` at `offset`, into the writer's own range.
    #[inline]
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        #[cfg(test)]
        self.store_half(offset, bytes);
        // SAFETY: `to` has as many bytes inside the window; they are this writer's own (rule 1), so that `bytes`, even
        // if lent from this window, are others.
        unsafe { copy_bytes(to, bytes.as_ptr(), bytes.len()) }
    }

    /// Reads as many bytes as `into` has.
    #[inline]
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `from` has as many bytes inside the window, which nobody is writing (rules 1 and 2); `into` is
        // exclusive, hence elsewhere.
        unsafe { copy_bytes(into.as_mut_ptr(), from, into.len()) }
    }

    /// Appends `len` bytes to `into`.
    #[inline]
    pub(crate) fn append_to(&self, offset: usize, len: usize, into: &mut Vec<u8>) {
        let from = self.at(offset, len);
        into.reserve(len);
        // SAFETY: `from` as in `copy_out`; the vector has room for `len` bytes behind its own, all of them written
        // before they become its own.
        unsafe {
            copy_bytes(into.as_mut_ptr().add(into.len()), from, len);
            into.set_len(into.len() + len);
        }
    }

    /// [`append_to`](Self::append_to), and the raw CRC32C `state` continued over these bytes.
    #[inline(always)]
    pub(crate) fn append_checked(&self, offset: usize, len: usize, state: u32, into: &mut Vec<u8>) -> u32 {
        let from = self.at(offset, len);
        into.reserve(len);
        // SAFETY: as in `append_to`.
        unsafe {
            let state = copy_checked(into.as_mut_ptr().add(into.len()), from, len, state);
            into.set_len(into.len() + len);
            state
        }
    }

    /// [`copy_out`](Self::copy_out), and the raw CRC32C `state` continued over these bytes.
    #[cfg(any(test, feature = "capi"))]
    #[inline(always)]
    pub(crate) fn copy_out_checked(&self, offset: usize, into: &mut [u8], state: u32) -> u32 {
        let from = self.at(offset, into.len());
        // SAFETY: as in `copy_out`.
        unsafe { copy_checked(into.as_mut_ptr(), from, into.len(), state) }
    }

    /// Continues the raw CRC32C `state` over committed bytes, or the writer's own.
    #[inline]
    pub(crate) fn crc32c(&self, state: u32, offset: usize, len: usize) -> u32 {
        verify(state, self.bytes(offset, len))
    }

    /// The crash tests look at memory before a copy, and in the middle of it.
    #[cfg(test)]
    fn store_half(&self, offset: usize, bytes: &[u8]) {
        self.before_store();
        let half = &bytes[..bytes.len() / 2];
        // SAFETY: as in `copy_in`, which stores the same bytes again.
        unsafe { copy_bytes(self.at(offset, half.len()), half.as_ptr(), half.len()) }
        self.before_store();
    }

    /// Writes zeros over the writer's own range.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        #[cfg(test)]
        self.before_store();
        let to = self.at(offset, len);
        // SAFETY: `len` bytes inside the window, this writer's own (rule 1).
        unsafe { ptr::write_bytes(to, 0, len) }
    }

    /// Lends the writer's own, uncommitted range for writing: the only `&mut [u8]` there is over a window. `fill` must
    /// not reach the same range through the window.
    #[inline]
    pub(crate) fn with_mut<R>(&self, offset: usize, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        #[cfg(test)]
        self.before_store();
        let range = self.at(offset, len);
        // SAFETY: `len` initialised bytes inside the window, this writer's own (rule 1), of which the slice is the only
        // use until `fill` returns: it cannot be kept.
        fill(unsafe { std::slice::from_raw_parts_mut(range, len) })
    }

    /// Lends committed bytes (or the writer's own, while it does not write).
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let range = self.at(offset, len);
        // SAFETY: `len` initialised bytes inside the window; `&self` keeps it mapped and, as a reference counted, its
        // segment from being recycled, so that they do not change (rules 1 and 2).
        unsafe { std::slice::from_raw_parts(range, len) }
    }

    /// Writes a fragment into the writer's own range so that whoever sees its first header word sees
    /// all of it: the payload, then the second word, then the first. `header` makes the words from the raw CRC32C `state`
    /// continued over the payload, before they are stored.
    #[inline(always)]
    pub(crate) fn put_fragment(&self, offset: usize, payload: &[u8], state: u32, header: impl FnOnce(u32) -> [u64; 2]) {
        let to = self.words_at(offset, 16 + payload.len());
        #[cfg(test)]
        self.store_half(offset + 16, payload);
        // SAFETY: the window has 16 bytes and the payload's from `to` on; for the rest as in `copy_in`.
        let state = unsafe { copy_checked(to.cast::<u8>().add(16), payload.as_ptr(), payload.len(), state) };
        let [first, second] = header(state);
        #[cfg(test)]
        self.before_store();
        // SAFETY: the second of the words that the window has from `to` on, aligned as that is, and accessed atomically while
        // it is one (rule 3).
        unsafe { AtomicU64::from_ptr(to.add(1)) }.store(second.to_le(), Ordering::Relaxed);
        #[cfg(test)]
        self.before_store();
        // SAFETY: as above, the first one.
        unsafe { AtomicU64::from_ptr(to) }.store(first.to_le(), Ordering::Release);
    }

    /// Reads two little-endian words, without order.
    #[inline]
    pub(crate) fn load_pair(&self, offset: usize) -> [u64; 2] {
        let from = self.words_at(offset, 16);
        // SAFETY: two words inside the window, which outlives `&self`, aligned, and accessed atomically while they are such
        // words (rule 3).
        let words = unsafe { [AtomicU64::from_ptr(from), AtomicU64::from_ptr(from.add(1))] };
        words.map(|word| u64::from_le(word.load(Ordering::Relaxed)))
    }

    /// Writes little-endian words in this order, the last one after everything this thread wrote before.
    #[inline(always)]
    pub(crate) fn store_words<const N: usize>(&self, offset: usize, words: [u64; N]) {
        let to = self.words_at(offset, 8 * N);
        for (at, word) in words.into_iter().enumerate() {
            #[cfg(test)]
            self.before_store();
            let order = if at + 1 == N { Ordering::Release } else { Ordering::Relaxed };
            // SAFETY: `N` words inside the window; for the rest as in `load_pair`.
            unsafe { AtomicU64::from_ptr(to.add(at)) }.store(word.to_le(), order);
        }
    }

    /// Writes little-endian words without order, and half a word behind them after everything this thread wrote before.
    #[inline]
    pub(crate) fn store_row<const N: usize>(&self, offset: usize, words: [u64; N], last: u32) {
        let to = self.words_at(offset, 8 * N + 4);
        for (at, word) in words.into_iter().enumerate() {
            #[cfg(test)]
            self.before_store();
            // SAFETY: `N` words inside the window; for the rest as in `load_pair`.
            unsafe { AtomicU64::from_ptr(to.add(at)) }.store(word.to_le(), Ordering::Relaxed);
        }
        #[cfg(test)]
        self.before_store();
        // SAFETY: four bytes behind the words, aligned as those are; for the rest as above.
        unsafe { AtomicU32::from_ptr(to.add(N).cast()) }.store(last.to_le(), Ordering::Release);
    }

    #[cfg(target_os = "linux")]
    fn map(&self) -> Option<&MmapRaw> {
        match &self.window().memory {
            Memory::File(map) => Some(map),
            #[cfg(test)]
            Memory::Heap(_) => None,
        }
    }

    /// Makes the pages of the range present and writable; fails where a store would be SIGBUS (no space, beyond the end
    /// of the file). Where the system has no such call nothing is done and nothing is known.
    pub(crate) fn populate_write(&self, offset: usize, len: usize) -> io::Result<()> {
        self.at(offset, len);
        #[cfg(target_os = "linux")]
        if let Some(map) = self.map() {
            return match map.advise_range(memmap2::Advice::PopulateWrite, offset, len) {
                // Linux before 5.14.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                result => result,
            };
        }
        Ok(())
    }

    /// Cuts the window off from its file: the same bytes, private, at the same address. Bytes from `valid` on were never
    /// lent and become zero. Afterwards the file may be written, truncated or opened by somebody else. Where the system
    /// cannot do that nothing changes.
    pub(crate) fn detach(&self, valid: usize) {
        #[cfg(target_os = "linux")]
        if self.map().is_some() {
            use rustix::mm::{MremapFlags, mremap_fixed};
            let Ok(mut copy) = MmapOptions::new().len(self.len).map_anon() else {
                return;
            };
            copy[..valid].copy_from_slice(self.bytes(0, valid));
            // SAFETY: both ranges are whole mappings of `len` bytes (rounded up to pages alike), `copy`'s own and this
            // window's, which stays mapped and with the same committed bytes throughout: the exchange is one step for
            // whoever reads there. Nobody writes: the queue is closed.
            let moved = unsafe {
                mremap_fixed(
                    copy.as_mut_ptr().cast(),
                    self.len,
                    self.len,
                    MremapFlags::MAYMOVE,
                    self.base.as_ptr().cast(),
                )
            };
            if moved.is_ok() {
                // Its pages lie in this window now, whose own mapping unmaps them.
                std::mem::forget(copy);
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = valid;
    }
}

impl Drop for Window {
    #[inline]
    fn drop(&mut self) {
        let references = &self.window().references;
        // Release: what was done through this window happens before the memory is unmapped or written anew.
        if references.fetch_sub(self.weight, Ordering::Release) == self.weight {
            // The other half of that. A load, as ThreadSanitizer does not know fences.
            references.load(Ordering::Acquire);
            // SAFETY: made by `Box::leak` in `first`; the count is zero, so no other window is left to use or free it,
            // and no reference of this one is used from here on.
            drop(unsafe { Box::from_raw(self.window.as_ptr()) });
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("len", &self.len).field("weight", &self.weight).finish_non_exhaustive()
    }
}

/// A bug in mmq: what comes from disk or from a caller is checked where it comes in.
#[cold]
#[inline(never)]
#[allow(clippy::panic, reason = "going on would be a stray access")]
pub(super) fn outside(offset: usize, len: usize, window: usize) -> ! {
    panic!("access of {len} bytes at {offset} is misaligned or outside of a window of {window}")
}
