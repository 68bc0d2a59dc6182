//! Several buffers in one call.

use std::ffi::c_void;

use super::guard::Answer;
use super::pointers::{array, bytes};
use crate::error::Result;

/// Bytes that the caller lends for the duration of a call.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_slice {
    /// The first byte; may be NULL when len is 0.
    pub data: *const c_void,
    /// How many bytes.
    pub len: usize,
}

/// Returns the buffers of an array, each converted by `lent`.
///
/// # Safety
///
/// `slices` is NULL or an array of `count` slices. Each of them is NULL or can be read for its
/// length, for as long as the result is used.
pub(super) unsafe fn slices<'a, T>(
    check_len: impl Fn(u64) -> Result<()>,
    slices: *const mmq_slice,
    count: usize,
    what: &'static str,
    lent: impl Fn(&'a [u8]) -> T,
) -> Answer<Vec<T>> {
    // SAFETY: the caller's promise.
    let slices = unsafe { array(slices, count, what) }?;
    // SAFETY: the caller's promise.
    let bytes = |slice: &mmq_slice| unsafe { bytes(&check_len, slice.data, slice.len) };
    slices.iter().map(|slice| bytes(slice).map(&lent)).collect()
}
