//! The system calls of other systems than Linux.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::file::{Overwrites, write_zeros};
use super::{CacheToken, FileStat};
pub(super) use full_sync as sync_data;
/// Linux alone has such a flag.
pub(super) const NO_ACCESS_TIME: OFlags = OFlags::empty();
use std::io::Read;

/// On Darwin fsync reaches the drive but not its medium, so F_FULLFSYNC is tried first. Some
/// network filesystems refuse it.
pub(super) fn full_sync<D: std::os::fd::AsFd>(file: D) -> rustix::io::Result<()> {
    #[cfg(target_vendor = "apple")]
    match rustix::fs::fcntl_fullfsync(&file) {
        Err(Errno::NOTSUP | Errno::NOTTY | Errno::INVAL) => {}
        answer => return answer,
    }
    rustix::fs::fsync(&file)
}

/// Darwin's F_PREALLOCATE, as rustix offers it, counts from the end of the file and cuts off bytes
/// behind it; posix_fallocate is missing on other systems, or refused by ZFS. Writing zeros works
/// everywhere.
pub(super) fn allocate(file: &File, offset: u64, len: u64, old_len: u64) -> io::Result<()> {
    write_zeros(file, offset.max(old_len), offset + len)
}

/// Darwin does not ask the file system at the first store to a mapped page: no store fails, but a
/// sync may. On the other systems ZFS is common.
pub(super) fn overwrites(_directory: &OwnedFd) -> io::Result<Overwrites> {
    Ok(if cfg!(target_vendor = "apple") { Overwrites::InPlace } else { Overwrites::MayCopy })
}

pub(super) fn set_nocow(_file: &File) {}

pub(super) fn has_own_extents(_file: &File, _offset: u64) -> bool {
    false
}

pub(super) fn has_holes(_file: &File, _len: u64) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn unshare(_file: &File, _len: u64) {}

pub(super) fn cache_token(_directory: &OwnedFd) -> CacheToken {
    CacheToken::default()
}

pub(super) fn stat(at: impl AsFd, name: &str) -> io::Result<FileStat> {
    let stat = match name {
        "" => rustix::fs::fstat(at)?,
        name => rustix::fs::statat(at, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?,
    };
    let changed = stat.st_ctime as u64 * 1_000_000_000 + stat.st_ctime_nsec as u64;
    Ok(FileStat { identity: stat.st_ino as u32, changed })
}

/// Always returns `None`: a queue in use looks like one whose process died.
pub(super) fn holder(_directory: &OwnedFd) -> Option<u32> {
    None
}

pub(super) fn mark(_directory: BorrowedFd<'_>) {}
pub(super) fn unmark(_directory: BorrowedFd<'_>) {}

pub(super) fn fill_random(bytes: &mut [u8; 16]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}
