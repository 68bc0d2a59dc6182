//! Tells the program about a failure: the meaning of a status, and this thread's last error.

use std::ffi::{c_char, c_int};

use super::guard::guard_or;
use super::mmq_status::{floor_char_boundary, last_error, mmq_status, raw_status};
use super::pointers::out_text;

/// Returns the version of the running library, as "MAJOR.MINOR.PATCH". MMQ_VERSION_MAJOR, _MINOR
/// and _PATCH are the version of the header that the program was compiled with.
///
/// @return Static text, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn mmq_version() -> *const c_char {
    guard_or(c"".as_ptr(), || concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast())
}

/// Describes a status in a few words. mmq_last_error has the details of a particular failure.
///
/// @param status Any number, also an unknown one.
/// @return Static text, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn mmq_status_message(status: raw_status) -> *const c_char {
    guard_or(c"".as_ptr(), || {
        let known = mmq_status::ALL.into_iter().find(|known| *known as c_int == status);
        known.map_or(c"unknown status", mmq_status::text).as_ptr()
    })
}

/// Copies the full text of this thread's last error: the failed operation, the file, and the
/// system's error. UTF-8, at most 5120 bytes. The text is from this thread's latest call that
/// returned MMQ_GAP or an error (16 and above), or that has no status and got a handle that is not
/// live. Successful calls do not change it, like errno. Empty when there was no error.
///
/// @param buf Receives the text, truncated to fit, and always ended by a zero byte. NULL to get
///   only the length.
/// @param cap Size of buf in bytes.
/// @return Length of the whole text in bytes, without the zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_last_error(buf: *mut c_char, cap: usize) -> usize {
    guard_or(0, || {
        last_error(|text| {
            let fits = floor_char_boundary(text, cap.saturating_sub(1));
            // SAFETY: the contract says that `buf` is NULL or has `cap` writable bytes.
            unsafe { out_text(buf, cap, &text.as_bytes()[..fits]) };
            text.len()
        })
    })
}
