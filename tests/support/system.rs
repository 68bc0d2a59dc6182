//! What tests ask the system.

#![allow(dead_code, reason = "every test program compiles this file and uses its own part of it")]

use std::time::Duration;

/// Whether the system gives each mount a number of its own: Linux from 6.8 on, not under qemu-user.
pub(crate) fn mounts_are_numbered() -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let unique = StatxFlags::from_bits_retain(0x4000);
    let stat = statx(CWD, ".", AtFlags::empty(), unique).expect("statx");
    StatxFlags::from_bits_retain(stat.stx_mask).contains(unique) && stat.stx_mnt_id != 0
}

/// Whether a descriptor becomes readable within that time.
pub(crate) fn readable(fd: std::os::fd::BorrowedFd<'_>, wait: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = rustix::event::Timespec {
        tv_sec: wait.as_secs() as i64,
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    poll(&mut polled, Some(&timeout)).unwrap() == 1
}
