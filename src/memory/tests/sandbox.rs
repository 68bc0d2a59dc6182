//! Calls that the system refuses, as a sandbox may have it.

use std::ffi::{c_int, c_ulong};
use std::thread;

use crate::memory::file_limit;

/// `struct sock_filter`.
#[repr(C)]
struct Step(u16, u8, u8, u32);
/// `struct sock_fprog`.
#[repr(C)]
struct Program(u16, *const Step);

unsafe extern "C" {
    fn prctl(option: c_int, ...) -> c_int;
}

/// Has the call of that number on x86-64, or on 64-bit ARM, end with this error from now on: for
/// this thread, and those that it begins.
pub(crate) fn refuse(call: (u32, u32), error: u16) {
    let call = if cfg!(target_arch = "x86_64") { call.0 } else { call.1 };
    // Loads the number of the call, and compares it.
    let steps = [
        Step(0x20, 0, 0, 0),
        Step(0x15, 0, 1, call),
        Step(0x06, 0, 0, 0x0005_0000 | u32::from(error)),
        Step(0x06, 0, 0, 0x7fff_0000),
    ];
    let program = Program(4, steps.as_ptr());
    let no: c_ulong = 0;
    // SAFETY: PR_SET_NO_NEW_PRIVS takes numbers; PR_SET_SECCOMP reads a `struct sock_fprog`.
    let set = unsafe { (prctl(38, no + 1, no, no, no), prctl(22, no + 2, &raw const program)) };
    assert_eq!(set, (0, 0));
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_limit_that_the_system_does_not_tell_is_none() {
    let sandboxed = || {
        assert!(file_limit().is_some());
        // prlimit64; EPERM.
        refuse((302, 261), 1);
        assert_eq!(file_limit(), None);
    };
    thread::spawn(sandboxed).join().unwrap();
}
