//! Handles: what C holds, and how it is told from what is no handle any more.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use super::guard::{Answer, Failed, invalid};
use super::status::mmq_status;

/// The memory behind every handle. The magic word comes first, whatever the kind, so that a handle
/// of another kind is told.
#[repr(C)]
pub(super) struct Shell<B> {
    magic: AtomicU64,
    body: UnsafeCell<MaybeUninit<B>>,
}

/// No live handle has it.
const RETIRED: u64 = 0x6d6d_7120_676f_6e65;

/// Retired shells kept at most.
const MOST: usize = 64;
/// So many are not used again: their words must stay what they are for a while.
const LEAST: usize = 32;

/// Shells of retired handles in a ring, oldest first. They are used again rather than freed, the
/// oldest first, so that the word of a handle that was closed not long ago can still be read and
/// refused, and a new handle costs no allocation.
pub(super) struct Retired<B> {
    ring: [*mut Shell<B>; MOST],
    /// Where the next goes, and where the oldest is; both only grow.
    head: usize,
    tail: usize,
}

// SAFETY: a retired shell is owned by the list that holds it, and by nobody else; its body is gone.
unsafe impl<B> Send for Retired<B> {}

impl<B> Retired<B> {
    pub(super) const fn new() -> Self {
        Retired { ring: [std::ptr::null_mut(); MOST], head: 0, tail: 0 }
    }

    /// Keeps `shell`; returns the one that has been here longest when there are enough.
    #[inline]
    fn push(&mut self, shell: *mut Shell<B>) -> Option<*mut Shell<B>> {
        let surplus = if self.head - self.tail == MOST { self.oldest() } else { None };
        self.ring[self.head % MOST] = shell;
        self.head += 1;
        surplus
    }

    /// A shell that has been here so long that it may be used again.
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
            // SAFETY: it came from `Box::into_raw` and this list owned it.
            drop(unsafe { Box::from_raw(shell) });
        }
    }
}

/// A kind of handle: what C knows as `struct mmq_...`, which has no content there.
pub(super) trait Handle: Sized {
    type Body;
    const MAGIC: u64;
    /// Two threads that retire the same handle at the same time are told apart. It costs an atomic
    /// exchange.
    const EXCHANGED: bool = true;
    /// What it is called in error texts.
    const NAME: &'static str;

    /// Runs `with` on the retired shells of this kind; `None` when there are none any more (the
    /// thread ends).
    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R>;
}

/// A shell without a body, for a handle that C is to get. To have it before the body is made spares
/// moving the body about.
pub(super) struct Empty<H: Handle>(*mut Shell<H::Body>);

impl<H: Handle> Empty<H> {
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
        // SAFETY: the shell is allocated, and nobody else's: it is new, or it was retired and left
        // the list.
        let shell_ref = unsafe { &*shell };
        // SAFETY: as above; its body is empty, so nothing is overwritten that had to be dropped.
        unsafe { (*shell_ref.body.get()).write(body) };
        shell_ref.magic.store(H::MAGIC, Ordering::Release);
        shell.cast()
    }
}

impl<H: Handle> Drop for Empty<H> {
    fn drop(&mut self) {
        // SAFETY: it is nobody else's, and its body is empty.
        unsafe { put_by::<H>(self.0) };
    }
}

/// Gives a new handle to C, which owns it from now on.
#[inline]
pub(super) fn give<H: Handle>(body: H::Body) -> *mut H {
    Empty::new().fill(body)
}

/// Puts a shell on the list, and frees the one that is too many there.
///
/// # Safety
///
/// The shell is nobody's, and its body empty.
#[inline]
unsafe fn put_by<H: Handle>(shell: *mut Shell<H::Body>) {
    let surplus = H::retired(|retired| retired.push(shell)).unwrap_or(Some(shell));
    if let Some(surplus) = surplus {
        // SAFETY: it came from `Box::into_raw`, and has just left the list (or never came there).
        drop(unsafe { Box::from_raw(surplus) });
    }
}

/// The magic word of a handle that is not NULL and could be one.
///
/// # Safety
///
/// `handle` is NULL, or a handle of any kind that was given out; a retired one may have been freed
/// after many others were, which is why the header calls this check a best effort.
#[inline]
unsafe fn word<'a, H: Handle>(handle: *const H) -> Answer<&'a AtomicU64> {
    if handle.is_null() {
        return Err(invalid(H::NAME, "NULL"));
    }
    if !handle.cast::<AtomicU64>().is_aligned() {
        return Err(invalid(H::NAME, "not a handle"));
    }
    // SAFETY: not NULL, aligned, and every shell begins with its word, which is atomic.
    Ok(unsafe { &*handle.cast::<AtomicU64>() })
}

/// The body of a handle.
///
/// # Safety
///
/// As for [`word`]; and nobody retires the handle while the reference is used.
#[inline]
pub(super) unsafe fn body<'a, H: Handle>(handle: *const H) -> Answer<&'a H::Body> {
    // SAFETY: the caller's promise.
    if unsafe { word(handle) }?.load(Ordering::Acquire) != H::MAGIC {
        return Err(not_live::<H>());
    }
    // SAFETY: the word says that it is a live shell of this kind.
    let shell = unsafe { &*handle.cast::<Shell<H::Body>>() };
    // SAFETY: the body of a live shell was written before its word, and is only shared until the
    // handle is retired.
    Ok(unsafe { (*shell.body.get()).assume_init_ref() })
}

/// Makes a handle one that is live no more; its shell, with the body in it, is the caller's.
///
/// # Safety
///
/// As for [`word`]; and nobody uses the handle at the same time.
#[inline]
unsafe fn retire<H: Handle>(handle: *mut H) -> Answer<*mut Shell<H::Body>> {
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

/// Takes a handle back from C; its body goes to the caller.
///
/// # Safety
///
/// As for [`retire`].
pub(super) unsafe fn take<H: Handle>(handle: *mut H) -> Answer<H::Body> {
    // SAFETY: the caller's promise.
    let shell = unsafe { retire(handle) }?;
    // SAFETY: it was live until now, so its body is there; it is retired, so nobody takes the body
    // a second time.
    let body = unsafe { (*(*shell).body.get()).assume_init_read() };
    // SAFETY: it is retired, and its body was taken.
    unsafe { put_by::<H>(shell) };
    Ok(body)
}

/// Takes a handle back from C and drops its body. NULL is fine.
///
/// # Safety
///
/// As for [`retire`].
#[inline]
pub(super) unsafe fn free<H: Handle>(handle: *mut H) -> Answer {
    if handle.is_null() {
        return Ok(mmq_status::MMQ_OK);
    }
    // SAFETY: the caller's promise.
    let shell = unsafe { retire(handle) }?;
    // SAFETY: it was live until now, so its body is there; it is retired, so nobody drops the body
    // a second time.
    unsafe { (*(*shell).body.get()).assume_init_drop() };
    // SAFETY: it is retired, and its body is gone.
    unsafe { put_by::<H>(shell) };
    Ok(mmq_status::MMQ_OK)
}

#[cold]
#[inline(never)]
fn not_live<H: Handle>() -> Failed {
    invalid(H::NAME, "not a live handle (closed or freed already, or of another kind)")
}
