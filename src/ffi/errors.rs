//! What a program can ask about a failure: the meaning of a status, and this thread's last error.

use std::ffi::{c_char, c_int};

use super::guard::guard_or;
use super::mmq_status::{floor_char_boundary, last_error, mmq_status, raw_status};
use super::pointers::out_text;

/// The version of the running library, as "MAJOR.MINOR.PATCH". MMQ_VERSION_MAJOR, _MINOR and _PATCH
/// are those of the header that the program was compiled with.
///
/// @return Static text, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn mmq_version() -> *const c_char {
    guard_or(c"".as_ptr(), || concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast())
}

/// What a status means, in a few words. mmq_last_error says more about a particular failure.
///
/// @param status Any number; an unknown one has a text too.
/// @return Static text, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn mmq_status_message(status: raw_status) -> *const c_char {
    guard_or(c"".as_ptr(), || {
        let known = mmq_status::ALL.into_iter().find(|known| *known as c_int == status);
        known.map_or(c"unknown status", mmq_status::text).as_ptr()
    })
}

/// The last error of this thread in full: what was tried, on which file, and the system's error.
/// UTF-8, at most 5120 bytes. The text is that of this thread's latest call that answered MMQ_GAP
/// or an error (16 and above), or that returns no status and was given no live handle. Calls that
/// succeed leave it as it is, like errno. Empty when there was no error.
///
/// @param buf Where the text goes, cut off where it does not fit, and always ended by a zero byte.
///   NULL to ask for the length.
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
