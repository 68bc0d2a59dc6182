//! The permission bits of files and directories.

use std::os::fd::AsFd;

use rustix::fs::{Mode, RawMode};

/// The permission bits of files; the queue's own process must be able to read and write.
pub(super) const FILE_BITS: Mode = Mode::from_raw_mode(0o666);
pub(super) const OWNERS: Mode = Mode::from_raw_mode(0o600);
pub(super) const DIRECTORY_BITS: Mode = Mode::from_raw_mode(0o777);

pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as RawMode)
}

/// Returns the permission bits of a directory whose files have these: a user who may read the files
/// may enter the directory.
pub(super) fn of_directory(mode: Mode) -> Mode {
    mode | Mode::from_raw_mode((mode.as_raw_mode() & 0o444) >> 2)
}

/// Gives a file or a directory the permission bits of `mode` among the `bits`, whatever the umask
/// is.
pub(super) fn change_mode(file: impl AsFd, mode: Mode, bits: Mode) -> rustix::io::Result<()> {
    let found = Mode::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if found & bits == mode {
        return Ok(());
    }
    rustix::fs::fchmod(&file, found & !bits | mode)
}
