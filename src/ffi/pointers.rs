//! The helpers that turn the caller's pointers into references.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::guard::{Answer, invalid};
use super::mmq_status::mmq_status;
use crate::error::Result;

/// Returns the place of an output. Rejects NULL.
///
/// # Safety
///
/// `pointer` is NULL, or may be written to for as long as the reference is used.
#[inline]
pub(super) unsafe fn out<'a, T>(
    pointer: *mut T,
    what: &'static str,
) -> Answer<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller's promise.
    unsafe { out_or_null(pointer, what) }?.ok_or_else(|| invalid(what, "NULL"))
}

/// Returns the place of an output that the caller may omit: `None` for NULL.
///
/// # Safety
///
/// `pointer` is valid for [`out`].
#[inline]
pub(super) unsafe fn out_or_null<'a, T>(
    pointer: *mut T,
    what: &'static str,
) -> Answer<Option<&'a mut MaybeUninit<T>>> {
    if pointer.is_null() {
        return Ok(None);
    }
    if !pointer.is_aligned() {
        return Err(invalid(what, "not aligned"));
    }
    // SAFETY: not NULL, aligned, writable by the caller's promise; `MaybeUninit` allows any present
    // content.
    Ok(Some(unsafe { &mut *pointer.cast::<MaybeUninit<T>>() }))
}

/// Writes an output that the caller [may omit](out_or_null).
#[inline(always)]
pub(super) fn put<T>(out: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Returns the bytes that the caller lends. `check_len` rejects more bytes than a message may have.
/// NULL is allowed when `len` is 0.
///
/// # Safety
///
/// `data` is NULL, or `len` bytes can be read there for as long as the reference is used.
#[inline]
pub(super) unsafe fn bytes<'a>(
    check_len: impl FnOnce(u64) -> Result<()>,
    data: *const c_void,
    len: usize,
) -> Answer<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(invalid("data", "NULL, but the length is not 0"));
    }
    check_len(len as u64)?;
    // SAFETY: not NULL, readable by the caller's promise, shorter than `isize::MAX`; bytes need no
    // alignment.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// The caller's buffer, filled from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    start: *mut u8,
    cap: usize,
}

impl Buffer {
    /// NULL is allowed when there is no room.
    pub(super) fn new(start: *mut c_void, cap: usize) -> Answer<Buffer> {
        if start.is_null() && cap != 0 {
            return Err(invalid("buf", "NULL, but cap is not 0"));
        }
        Ok(Buffer { start: start.cast(), cap })
    }

    /// Returns the first `len` bytes; `None` when the buffer is shorter. Never touches the bytes
    /// behind them: callers who know that a message fits may pass `SIZE_MAX` as the capacity.
    ///
    /// # Safety
    ///
    /// The buffer may be written to, up to its capacity, for as long as the reference is used.
    #[inline]
    pub(super) unsafe fn room<'a>(self, len: usize) -> Option<&'a mut [u8]> {
        if len > self.cap {
            return None;
        }
        if len == 0 {
            return Some(&mut []);
        }
        // SAFETY: not NULL, because the capacity is not 0; writable by the caller's promise.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start, len) })
    }

    /// Takes the first `len` bytes, which the buffer [has](Self::room), off it. Returns where they
    /// are.
    #[inline]
    pub(super) fn split_off(&mut self, len: usize) -> *const c_void {
        let first = self.start;
        *self = Buffer { start: first.wrapping_add(len), cap: self.cap - len };
        first.cast()
    }
}

/// The caller's array, filled from its beginning. Only the filled part is touched.
#[derive(Clone, Copy)]
pub(super) struct Array<T> {
    start: *mut T,
    max: usize,
}

impl<T> Array<T> {
    /// NULL is allowed when there is no room.
    pub(super) fn new(start: *mut T, max: usize, what: &'static str) -> Answer<Array<T>> {
        if max != 0 && (start.is_null() || !start.is_aligned()) {
            return Err(invalid(what, "NULL or not aligned, but the capacity is not 0"));
        }
        Ok(Array { start, max })
    }

    /// Writes as many values as fit, and returns how many.
    ///
    /// # Safety
    ///
    /// The array may be written to, up to its length.
    pub(super) unsafe fn fill(self, values: impl Iterator<Item = T>) -> usize {
        let mut count = 0;
        for value in values.take(self.max) {
            // SAFETY: the caller's promise; `count` is below the length.
            unsafe { self.put(count, value) };
            count += 1;
        }
        count
    }

    /// Writes the element `at`.
    ///
    /// # Safety
    ///
    /// The array may be written to, up to its length, which is more than `at`.
    #[inline]
    pub(super) unsafe fn put(&self, at: usize, value: T) {
        // SAFETY: not NULL and aligned, because there is room; within the array, which is writable
        // by the caller's promise.
        unsafe { self.start.add(at).write(value) };
    }
}

/// Returns an array that the caller lends. NULL is allowed when `count` is 0.
///
/// # Safety
///
/// `start` is NULL, or `count` values can be read there for as long as the reference is used.
#[inline]
pub(super) unsafe fn array<'a, T>(
    start: *const T,
    count: usize,
    what: &'static str,
) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(invalid(what, "NULL, but the count is not 0"));
    }
    if !start.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(invalid(what, "not aligned, or the count is too large"));
    }
    // SAFETY: not NULL, aligned, not longer than memory can be, readable by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Returns the caller's text, which ends with a zero byte. Rejects NULL.
///
/// # Safety
///
/// `text` is NULL, or a zero byte ends it, and it can be read for as long as the reference is used.
pub(super) unsafe fn text<'a>(text: *const c_char, what: &'static str) -> Answer<&'a CStr> {
    if text.is_null() {
        return Err(invalid(what, "NULL"));
    }
    // SAFETY: not NULL, and ended by a zero byte by the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Returns the directory that the caller's text names.
///
/// # Safety
///
/// `dir` is valid for [`text`].
pub(super) unsafe fn directory<'a>(dir: *const c_char) -> Answer<&'a Path> {
    // SAFETY: the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe { text(dir, "dir") }?.to_bytes())))
}

/// Returns the name of a consumer.
///
/// # Safety
///
/// `name` is valid for [`text`].
pub(super) unsafe fn consumer_name<'a>(name: *const c_char) -> Answer<&'a str> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, "consumer name") }?;
    name.to_str().map_err(|_| invalid("consumer name", "not UTF-8"))
}

/// Writes `text` and a zero byte behind it. Writes nothing when `buf` is NULL or too short.
///
/// # Safety
///
/// `buf` is NULL or has `cap` writable bytes; `text` is shorter than `cap`, or empty.
pub(super) unsafe fn out_text(buf: *mut c_char, cap: usize, text: &[u8]) {
    if buf.is_null() || cap == 0 || text.len() >= cap {
        return;
    }
    // SAFETY: `text.len() + 1` bytes fit `cap`, which are writable by the caller's promise; `text`
    // is this thread's.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, text.len());
        buf.add(text.len()).write(0);
    }
}

/// Writes the first `len` bytes of a struct, which may be longer than the struct that the caller
/// was compiled with.
///
/// # Safety
///
/// `pointer` is not NULL and has `len` writable bytes; `len` is at most the size of `T`, which has
/// no padding.
pub(super) unsafe fn out_prefix<T>(pointer: *mut T, value: &T, len: usize) {
    // SAFETY: the caller's promise; bytes are copied, so no alignment is needed.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(value).cast::<u8>(),
            pointer.cast::<u8>(),
            len,
        )
    };
}

/// Larger than any struct with a size in it will ever be: with a larger struct_size the caller did
/// not set it.
const LARGEST: usize = 4096;

/// Copies the caller's struct, which begins with the struct's size in the caller's version. Fields
/// that it does not have are zero. `None` for NULL.
///
/// # Safety
///
/// `given` is NULL, or its first field is set, and that many bytes can be read there. `T` begins
/// with this field, and any bytes are a `T`.
#[cfg(feature = "forward")]
pub(super) unsafe fn in_sized<T>(
    given: *const T,
    what: &'static str,
    unset: &'static str,
) -> Answer<Option<T>> {
    if given.is_null() {
        return Ok(None);
    }
    if !given.is_aligned() {
        return Err(invalid(what, "not aligned"));
    }
    // SAFETY: not NULL, aligned; the caller promises that this first field is set.
    let struct_size = unsafe { given.cast::<usize>().read() };
    if !(size_of::<usize>() + size_of::<u64>()..=LARGEST).contains(&struct_size) {
        return Err(invalid(what, unset));
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    let len = struct_size.min(size_of::<T>());
    // SAFETY: by the caller's promise the struct has that many bytes; so has the copy.
    unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), copy.as_mut_ptr().cast(), len) };
    // SAFETY: any bytes are a `T`, by the caller's promise.
    Ok(Some(unsafe { copy.assume_init() }))
}

/// Returns the caller's text, or `None` for NULL. Rejects what is not UTF-8.
///
/// # Safety
///
/// `text` is valid for [`text`], or NULL.
#[cfg(feature = "forward")]
pub(super) unsafe fn utf8_or_null<'a>(
    text: *const c_char,
    what: &'static str,
) -> Answer<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { self::text(text, what) }?;
    text.to_str().map(Some).map_err(|_| invalid(what, "not UTF-8"))
}

/// Fills the caller's struct, which begins with the struct's size in the caller's version. Passes
/// to `value` the number of bytes that it will fill.
///
/// # Safety
///
/// `out` is NULL, or its first field is set, and it has that many writable bytes. `T` begins with
/// this field, and has no padding.
pub(super) unsafe fn out_sized<T>(
    out: *mut T,
    unset: &'static str,
    value: impl FnOnce(usize) -> Answer<T>,
) -> Answer<mmq_status> {
    if out.is_null() || !out.is_aligned() {
        return Err(invalid("out", "NULL, or not aligned"));
    }
    // SAFETY: not NULL, aligned; the caller promises that this first field is set.
    let struct_size = unsafe { out.cast::<usize>().read() };
    if !(size_of::<usize>() + size_of::<u64>()..=LARGEST).contains(&struct_size) {
        return Err(invalid("out", unset));
    }
    let filled = struct_size.min(size_of::<T>());
    let value = value(filled)?;
    // SAFETY: by the caller's promise the struct has that many bytes; so has this one, and no
    // padding.
    unsafe { out_prefix(out, &value, filled) };
    Ok(mmq_status::MMQ_OK)
}
