//! Memory for the simulated storage, which makes windows on it as on a file.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::memory::Window;
use crate::memory::copy_and_check::{copy_bytes, outside};

/// Zeroed, page-aligned bytes that windows can be made on: the simulated storage's page cache.
#[derive(Debug)]
pub(crate) struct HeapMemory {
    /// What was allocated: up to a page less lies before `base`.
    allocated: NonNull<u8>,
    base: NonNull<u8>,
    len: usize,
    /// For each page, whether a thread stored to it since the last
    /// [`take_touched`](Self::take_touched): the dirty bit that the processor sets for a mapping.
    touched: Box<[AtomicBool]>,
}

const PAGE: usize = 4096;

/// A store to these pages: they count as touched when this is dropped.
#[derive(Debug)]
pub(in crate::memory) struct Stored<'a> {
    touched: &'a [AtomicBool],
}

impl Drop for Stored<'_> {
    fn drop(&mut self) {
        for touched in self.touched {
            touched.store(true, Ordering::Release);
        }
    }
}

// SAFETY: plain bytes, which any thread may free, reached by the rules in `memory/mod.rs`.
unsafe impl Send for HeapMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    /// With a page to spare, in which `base` is aligned: what is allocated with the alignment of a
    /// page is zeroed by stores, what is allocated so comes from the kernel as zeros.
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len + PAGE, 16).expect("a length that memory can have")
    }

    pub(crate) fn new(len: usize) -> Arc<HeapMemory> {
        let layout = HeapMemory::layout(len);
        // SAFETY: the layout is of at least one byte.
        let allocated = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        let allocated = allocated.unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        // SAFETY: less than a page behind the beginning of an allocation that is a page longer.
        let base = unsafe { allocated.add(allocated.addr().get().wrapping_neg() % PAGE) };
        let touched = (0..len.div_ceil(PAGE)).map(|_| AtomicBool::new(false)).collect();
        Arc::new(HeapMemory { allocated, base, len, touched })
    }

    /// Notes a store to these bytes behind `base` when it is dropped.
    pub(in crate::memory) fn stored(&self, base: NonNull<u8>, bytes: Range<usize>) -> Stored<'_> {
        let from = base.addr().get() - self.base.addr().get();
        let pages = (from + bytes.start) / PAGE..(from + bytes.end).div_ceil(PAGE);
        Stored { touched: self.touched.get(pages).unwrap_or_default() }
    }

    /// Returns whether a thread stored to the page through a window since the last call. Whoever
    /// reads the page after it sees these stores.
    pub(crate) fn take_touched(&self, page: usize) -> bool {
        let touched = &self.touched[page];
        touched.load(Ordering::Relaxed) && touched.swap(false, Ordering::Acquire)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::memory) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        if len > self.len || offset > self.len - len {
            outside(offset, len, self.len);
        }
        // SAFETY: `offset` is at most the length of the bytes that begin at `base`.
        unsafe { self.base.add(offset) }
    }

    /// Like `pread`: reads as many bytes as there are, and returns how many.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let len = into.len().min(self.len.saturating_sub(offset));
        let from = self.at(offset.min(self.len), len).as_ptr();
        // SAFETY: `len` bytes inside the allocation, which no thread writes now (rules 1 and 2);
        // `into` is elsewhere.
        unsafe { copy_bytes(into.as_mut_ptr(), from, len) }
        len
    }

    /// Like `pwrite` on a file that cannot grow: writes as many bytes as fit, and returns how many.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len.saturating_sub(offset));
        let to = self.at(offset.min(self.len), len).as_ptr();
        // SAFETY: `len` bytes inside the allocation, the writer's own (rule 1), so `bytes` do not
        // overlap them.
        unsafe { copy_bytes(to, bytes.as_ptr(), len) }
        len
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. Each window holds an `Arc`, so none is left.
        unsafe { std::alloc::dealloc(self.allocated.as_ptr(), HeapMemory::layout(self.len)) }
    }
}

#[test]
fn heap_memory_reads_and_writes_like_a_file_that_cannot_grow() {
    let memory = HeapMemory::new(10);
    assert_eq!(memory.len(), 10);
    assert_eq!(
        [memory.write(8, &[1, 2, 3]), memory.write(11, &[9]), memory.write(0, &[])],
        [2, 0, 0]
    );
    let mut into = [7; 4];
    assert_eq!((memory.read(7, &mut into), into), (3, [0, 1, 2, 7]));
    assert_eq!((memory.read(10, &mut into), memory.read(usize::MAX, &mut into)), (0, 0));
    let window = Window::heap(&memory, 8, 2);
    window.copy_in(1, &[5]);
    assert_eq!((memory.read(8, &mut into), &into[..2], window.len()), (2, &[1, 5][..], 2));
}
