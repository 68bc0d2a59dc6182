//! A window: maps it, counts its references, unmaps it. `bytes.rs` accesses its bytes.

use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;
use memmap2::{MmapOptions, MmapRaw};

use crate::memory::Mutex;
use crate::memory::references::References;

#[cfg(test)]
use super::tests::heap::{HeapMemory, Stored};

/// The weight that a reference adds at once when it runs out of weight to share. It then creates
/// references one by one without an atomic operation.
pub(super) const BULK: u64 = 1 << 16;

/// Whether a window can be detached from its file while a thread reads from it
/// ([`Window::detach`]). Where it cannot, readers lend no messages, since a message may outlive the
/// queue.
pub(crate) const CAN_DETACH: bool = cfg!(target_os = "linux");

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "the memory is only kept there, to be freed at the end")
)]
struct Mapping {
    references: References,
    /// False where the queue must write the file by calls: then a store through the mapping panics.
    #[cfg(test)]
    writable: bool,
    /// Whether the memory is a file's pages: not private, and not detached.
    is_shared: Mutex<bool>,
    memory: Memory,
    /// What keeps the queue locked as long as a closed queue's window shares its file. Dropped
    /// behind `memory`: first the mapping goes, then the lock.
    lock: OnceLock<Arc<dyn Send + Sync>>,
}

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "the mapping is only kept there, to be unmapped at the end")
)]
enum Memory {
    File(MmapRaw),
    Private(MmapRaw),
    #[cfg(test)]
    Heap(Arc<HeapMemory>),
}

/// A counted reference to a window. Its weight is how many references it stands for.
pub(crate) struct Window {
    // A copy of the mapping's address, so that only counting touches the cache line of the count.
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
    mapping: NonNull<Mapping>,
    /// At least 1.
    weight: u64,
}

// SAFETY: the mapping stays until the last reference is dropped, which any thread may do (any
// thread may drop its memory, an `MmapRaw` or an `Arc<HeapMemory>`). The count is atomic, and the
// weight is this reference's own.
unsafe impl Send for Window {}
// SAFETY: through `&Window` the weight is only read and the count is changed atomically. The bytes
// are reached by the rules in `mod.rs`, which hold among threads, whichever reference they use.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `len` bytes of `file`, shared and writable. `offset` must be a multiple of 8. The
    /// window may reach beyond the end of the file; bytes there must not be touched before the file
    /// has them.
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

    /// Returns a window of zeros without a file, private to its owner.
    pub(crate) fn private(len: usize) -> io::Result<Window> {
        let map = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        match NonNull::new(map.as_mut_ptr()) {
            Some(base) => Ok(Window::first(base, len, Memory::Private(map))),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// Returns a window on heap bytes, for the simulated storage. `offset` must be a multiple of 8.
    #[cfg(test)]
    pub(crate) fn heap(memory: &Arc<HeapMemory>, offset: usize, len: usize) -> Window {
        assert!(offset.is_multiple_of(8));
        let base = memory.at(offset, len);
        Window::first(base, len, Memory::Heap(Arc::clone(memory)))
    }

    /// Makes the window read-only: a store through it panics.
    #[cfg(test)]
    pub(crate) fn forbid_stores(self) -> Window {
        // SAFETY: a window that was just made is the only reference to its mapping.
        unsafe { (*self.mapping.as_ptr()).writable = false };
        self
    }

    /// Lets the tests see every store to `len` bytes at `offset`: before it is made, and when what
    /// this returns is dropped behind it.
    #[cfg(test)]
    pub(super) fn before_store(&self, offset: usize, len: usize) -> Option<Stored<'_>> {
        assert!(
            self.mapping().writable,
            "mmq stored through a mapping of a file that is to be written by calls"
        );
        crate::tests::sim::before_store();
        // Without a step between the store and its note, no other simulated thread runs there.
        match &self.mapping().memory {
            Memory::Heap(memory) => Some(memory.stored(self.base, offset..offset + len)),
            _ => None,
        }
    }

    /// Returns the first reference to the `len` bytes of `memory` at `base`, which is a multiple of
    /// 8.
    fn first(base: NonNull<u8>, len: usize, memory: Memory) -> Window {
        let mapping = Box::new(Mapping {
            references: References::one(),
            #[cfg(test)]
            writable: true,
            is_shared: Mutex::new(matches!(memory, Memory::File(_))),
            memory,
            lock: OnceLock::new(),
        });
        Window { base, len, mapping: NonNull::from(Box::leak(mapping)), weight: 1 }
    }

    #[inline]
    fn mapping(&self) -> &Mapping {
        // SAFETY: only the drop that takes the count to zero frees the mapping, and this
        // reference's weight is still in the count. Nothing makes a `&mut Mapping` before that.
        unsafe { self.mapping.as_ref() }
    }

    /// Returns a reference to the same window. The caller has counted `weight`.
    fn same(&self, weight: u64) -> Window {
        Window { weight, ..*self }
    }

    /// Returns another reference to the window, with an atomic operation only once in [`BULK`]
    /// calls.
    #[inline]
    pub(crate) fn share(&mut self) -> Window {
        if self.weight == 1 {
            self.mapping().references.add(BULK);
            self.weight += BULK;
        }
        self.weight -= 1;
        holds!(self.weight > 0, "who shares a window keeps a reference of its own");
        self.same(1)
    }

    /// Returns another reference to the window, where several threads use this one.
    #[inline]
    pub(crate) fn clone_shared(&self) -> Window {
        self.mapping().references.add(1);
        holds!(
            self.references() > self.weight,
            "of {} references {} are here, and one is new",
            self.references(),
            self.weight
        );
        self.same(1)
    }

    /// Returns the weight of all references to the window. When it equals [`weight`](Self::weight),
    /// no other reference is left, and everything done through others has happened before.
    #[inline]
    pub(crate) fn references(&self) -> u64 {
        self.mapping().references.weight()
    }

    /// Returns how many references this one stands for.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// The window's length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[cfg(target_os = "linux")]
    fn map(&self) -> Option<&MmapRaw> {
        match &self.mapping().memory {
            Memory::File(map) | Memory::Private(map) => Some(map),
            #[cfg(test)]
            Memory::Heap(_) => None,
        }
    }

    /// Makes the pages of the range present and writable. Fails where a store would raise SIGBUS
    /// (no space, beyond the end of the file). On a system without such a call it does nothing and
    /// succeeds.
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

    /// Maps the pages of the range anew, clean and for reading, where the window shares them with
    /// its file: a sync does not have to protect them then. The next store into one of them faults.
    pub(crate) fn map_clean(&self, offset: usize, len: usize) {
        self.at(offset, len);
        #[cfg(target_os = "linux")]
        if let Some(map) = self.map() {
            let is_shared = self.mapping().is_shared.lock();
            if *is_shared {
                // SAFETY: the range lies in a shared mapping of a file, which stays one while the
                // lock is held. There the call changes no byte: the page cache has them all, and
                // any thread that reads or writes here meanwhile faults the page in again. (A file
                // system that gives up pages which it cannot write harms any mapping likewise.)
                let unmapped =
                    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, len) };
                // Pages locked in memory stay mapped. Before Linux 5.14 each reader faults.
                let _ = unmapped
                    .and_then(|()| map.advise_range(memmap2::Advice::PopulateRead, offset, len));
            }
        }
    }

    /// Detaches the window from its file: the window keeps its bytes, now private, at the same
    /// address. Bytes from `valid` on, which no reader ever lent, become zero. Afterwards another
    /// owner may write or truncate the file. Where the system cannot do that (memory, mappings),
    /// the window shares the file until its last reference is dropped, and keeps `lock` until then.
    pub(crate) fn detach(&self, valid: usize, lock: &Arc<dyn Send + Sync>) {
        if !self.try_detach(valid) {
            let _ = self.mapping().lock.set(Arc::clone(lock));
        }
    }

    fn try_detach(&self, valid: usize) -> bool {
        #[cfg(target_os = "linux")]
        if self.map().is_some() {
            use rustix::mm::{MremapFlags, mremap_fixed};
            let Ok(mut copy) = MmapOptions::new().len(self.len).map_anon() else {
                return false;
            };
            holds!(valid <= self.len, "of a window of {} bytes {valid} are kept", self.len);
            copy[..valid].copy_from_slice(self.bytes(0, valid));
            let mut is_shared = self.mapping().is_shared.lock();
            // SAFETY: both ranges are whole mappings of `len` bytes (rounded up to pages alike):
            // that of `copy`, and this window's. For a thread that reads there, the exchange is one
            // step: the range stays mapped, with the same committed bytes. No thread writes: the
            // queue is closed.
            let moved = unsafe {
                mremap_fixed(
                    copy.as_mut_ptr().cast(),
                    self.len,
                    self.len,
                    MremapFlags::MAYMOVE,
                    self.base.as_ptr().cast(),
                )
            };
            if moved.is_err() {
                return false;
            }
            // The pages of `copy` lie in this window now, and its mapping unmaps them.
            std::mem::forget(copy);
            *is_shared = false;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = valid;
        true
    }
}

impl Drop for Window {
    #[inline]
    fn drop(&mut self) {
        if self.mapping().references.drop_weight(self.weight) {
            // SAFETY: made by `Box::leak` in `first`. The count is zero, so no other reference is
            // left to use or free the mapping, and no borrow through this one is used any more.
            drop(unsafe { Box::from_raw(self.mapping.as_ptr()) });
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("len", &self.len)
            .field("weight", &self.weight)
            .finish_non_exhaustive()
    }
}
