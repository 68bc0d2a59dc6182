//! Handles: the pointers that C gets, and how a call tells a live handle from a closed one.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::guard::{Answer, Failed, invalid};
use super::mmq_status::mmq_status;
use crate::memory::PerProcess;

/// The memory behind a handle. Every kind of handle begins with its magic word, so that a call
/// recognises a handle of another kind.
#[repr(C)]
pub(super) struct Shell<B> {
    magic: AtomicU64,
    body: UnsafeCell<MaybeUninit<B>>,
}

/// The magic word of a handle that was closed or freed.
const RETIRED: u64 = 0x6d6d_7120_676f_6e65;

/// The most retired shells that a list keeps.
const MOST: usize = 64;
/// How many of the youngest retired shells are not reused yet: their magic words still show that
/// the handle is closed.
const LEAST: usize = 32;

/// The shells of closed handles of one kind, in a ring. New handles reuse them, the oldest first: a
/// new handle costs no allocation, and a call with a recently closed handle still reads its magic
/// word and rejects it.
pub(super) struct Retired<B> {
    ring: [*mut Shell<B>; MOST],
    /// How many shells were pushed so far. The next one goes to `head % MOST`.
    head: usize,
    /// How many shells were taken so far. The oldest one is at `tail % MOST`.
    tail: usize,
}

// SAFETY: the list alone owns a retired shell, and the shell has no body.
unsafe impl<B> Send for Retired<B> {}

impl<B> Retired<B> {
    pub(super) const fn new() -> Self {
        Retired { ring: [std::ptr::null_mut(); MOST], head: 0, tail: 0 }
    }

    /// Keeps `shell`; returns the oldest shell when the ring is full.
    #[inline]
    fn push(&mut self, shell: *mut Shell<B>) -> Option<*mut Shell<B>> {
        let surplus = if self.head - self.tail == MOST { self.oldest() } else { None };
        self.ring[self.head % MOST] = shell;
        self.head += 1;
        surplus
    }

    /// Takes the oldest shell, if more than `LEAST` are kept.
    #[inline]
    fn again(&mut self) -> Option<*mut Shell<B>> {
        if self.head - self.tail > LEAST { self.oldest() } else { None }
    }

    #[inline]
    fn oldest(&mut self) -> Option<*mut Shell<B>> {
        if self.head == self.tail {
            return None;
        }
        let shell = self.ring[self.tail % MOST];
        self.tail += 1;
        Some(shell)
    }
}

impl<B> Drop for Retired<B> {
    fn drop(&mut self) {
        while let Some(shell) = self.oldest() {
            // SAFETY: the shell came from `Box::into_raw`, and the list owned it.
            drop(unsafe { Box::from_raw(shell) });
        }
    }
}

/// A list of retired shells that all threads of a process share.
pub(super) struct RetiredShared<B: 'static>(PerProcess<Mutex<Retired<B>>>);

impl<B: 'static> RetiredShared<B> {
    pub(super) const fn new() -> Self {
        RetiredShared(PerProcess::new())
    }

    pub(super) fn with<R>(&'static self, with: impl FnOnce(&mut Retired<B>) -> R) -> R {
        with(&mut self.0.get(|| Mutex::new(Retired::new())).lock())
    }
}

/// A kind of handle: one of the opaque `struct mmq_...` of C.
pub(super) trait CHandle: Sized {
    type Body;
    const MAGIC: u64;
    /// Whether retiring exchanges the magic word atomically: then of two threads that retire the
    /// same handle at the same time, only one succeeds.
    const EXCHANGED: bool = true;
    /// The kind's name in error texts.
    const NAME: &'static str;

    /// Runs `with` on the retired shells of this kind; `None` when the ending thread has already
    /// destroyed the list.
    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R>;
}

/// A shell without a body, for a new handle. Taking the shell before the body is made saves a move
/// of the body.
pub(super) struct Empty<H: CHandle>(*mut Shell<H::Body>);

impl<H: CHandle> Empty<H> {
    #[inline]
    pub(super) fn new() -> Empty<H> {
        match H::retired(Retired::again).flatten() {
            Some(again) => Empty(again),
            None => Empty::allocated(),
        }
    }

    #[cold]
    #[inline(never)]
    fn allocated() -> Empty<H> {
        let (magic, body) = (AtomicU64::new(RETIRED), UnsafeCell::new(MaybeUninit::uninit()));
        Empty(Box::into_raw(Box::new(Shell { magic, body })))
    }

    /// Gives the handle to C, which owns it from now on.
    #[inline(always)]
    pub(super) fn fill(self, body: H::Body) -> *mut H {
        let shell = self.0;
        std::mem::forget(self);
        // SAFETY: the shell is allocated, and `self` alone owns it: it is new, or has left the
        // list.
        let shell_ref = unsafe { &*shell };
        // SAFETY: as above. The body is empty, so the write overwrites nothing that must be
        // dropped.
        unsafe { (*shell_ref.body.get()).write(body) };
        shell_ref.magic.store(H::MAGIC, Ordering::Release);
        shell.cast()
    }
}

impl<H: CHandle> Drop for Empty<H> {
    fn drop(&mut self) {
        // SAFETY: `self` alone owns the shell, and its body is empty.
        unsafe { put_by::<H>(self.0) };
    }
}

/// Gives a new handle to C, which owns it from now on.
#[inline]
pub(super) fn give<H: CHandle>(body: H::Body) -> *mut H {
    Empty::new().fill(body)
}

/// Puts a shell on the list of retired ones, and frees the oldest one when the list is full.
///
/// # Safety
///
/// The caller owns the shell, and its body is empty.
#[inline]
unsafe fn put_by<H: CHandle>(shell: *mut Shell<H::Body>) {
    let surplus = H::retired(|retired| retired.push(shell)).unwrap_or(Some(shell));
    if let Some(surplus) = surplus {
        // SAFETY: the shell came from `Box::into_raw`, and has just left the list or never was on
        // it.
        drop(unsafe { Box::from_raw(surplus) });
    }
}

/// Returns the magic word of `handle`. Rejects NULL and a pointer that is not aligned.
///
/// # Safety
///
/// `handle` is NULL, or a handle of any kind that this library returned and whose shell it has not
/// freed. (It frees the shell of a closed handle once many others were closed, and C cannot know
/// when: the header calls this check a help, not a promise.)
#[inline]
unsafe fn word<'a, H: CHandle>(handle: *const H) -> Answer<&'a AtomicU64> {
    if handle.is_null() {
        return Err(invalid(H::NAME, "NULL"));
    }
    if !handle.cast::<AtomicU64>().is_aligned() {
        return Err(invalid(H::NAME, "not a handle"));
    }
    // SAFETY: not NULL, aligned, and every shell begins with its word, which is atomic.
    Ok(unsafe { &*handle.cast::<AtomicU64>() })
}

/// Returns the body of a live handle.
///
/// # Safety
///
/// `handle` is valid for [`word`]. No thread retires the handle while the reference is used.
#[inline]
pub(super) unsafe fn body<'a, H: CHandle>(handle: *const H) -> Answer<&'a H::Body> {
    // SAFETY: the caller's promise.
    if unsafe { word(handle) }?.load(Ordering::Acquire) != H::MAGIC {
        return Err(not_live::<H>());
    }
    // SAFETY: the magic word is that of a live shell of this kind.
    let shell = unsafe { &*handle.cast::<Shell<H::Body>>() };
    // SAFETY: the body of a live shell was written before its magic word, and is only read until
    // the handle is retired.
    Ok(unsafe { (*shell.body.get()).assume_init_ref() })
}

/// Marks a handle as closed. Returns its shell, with the body in it, to the caller.
///
/// # Safety
///
/// `handle` is valid for [`word`]. No other thread uses the handle at the same time.
#[inline]
unsafe fn retire<H: CHandle>(handle: *mut H) -> Answer<*mut Shell<H::Body>> {
    // SAFETY: the caller's promise.
    let word = unsafe { word(handle) }?;
    let live = if H::EXCHANGED {
        word.compare_exchange(H::MAGIC, RETIRED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    } else {
        let live = word.load(Ordering::Acquire) == H::MAGIC;
        if live {
            word.store(RETIRED, Ordering::Release);
        }
        live
    };
    if live { Ok(handle.cast()) } else { Err(not_live::<H>()) }
}

/// Takes a handle back from C and returns its body.
///
/// # Safety
///
/// `handle` is valid for [`retire`].
pub(super) unsafe fn take<H: CHandle>(handle: *mut H) -> Answer<H::Body> {
    // SAFETY: the caller's promise.
    let shell = unsafe { retire(handle) }?;
    // SAFETY: the handle was live until now, so its body is there; it is retired, so nothing takes
    // the body a second time.
    let body = unsafe { (*(*shell).body.get()).assume_init_read() };
    // SAFETY: the retired shell is this function's, and its body was taken.
    unsafe { put_by::<H>(shell) };
    Ok(body)
}

/// Takes a handle back from C and drops its body. Does nothing with NULL.
///
/// # Safety
///
/// `handle` is valid for [`retire`].
#[inline]
pub(super) unsafe fn free<H: CHandle>(handle: *mut H) -> Answer {
    if handle.is_null() {
        return Ok(mmq_status::MMQ_OK);
    }
    // SAFETY: the caller's promise.
    let shell = unsafe { retire(handle) }?;
    // SAFETY: the handle was live until now, so its body is there; it is retired, so nothing drops
    // the body a second time.
    unsafe { (*(*shell).body.get()).assume_init_drop() };
    // SAFETY: the retired shell is this function's, and its body was dropped.
    unsafe { put_by::<H>(shell) };
    Ok(mmq_status::MMQ_OK)
}

#[cold]
#[inline(never)]
fn not_live<H: CHandle>() -> Failed {
    invalid(H::NAME, "not a live handle (closed or freed already, or of another kind)")
}
