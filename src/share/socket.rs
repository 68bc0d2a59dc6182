//! The socket in a queue's directory: the owner listens, clients connect.
//!
//! The address of a socket holds 107 bytes of a path. So both sides go by the directory's
//! descriptor, as `/proc/self/fd/N/socket`, which also works where the directory was renamed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, Uid};
use rustix::io::Errno;
#[cfg(not(target_vendor = "apple"))]
use rustix::net::SocketFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::format::SOCKET_NAME;
use crate::threads::above_standard;

/// How many clients may wait to be accepted.
const BACKLOG: i32 = 128;

/// Calls `with` the address of the socket in this directory.
fn at_address<R>(
    directory: BorrowedFd<'_>,
    path: &Path,
    with: impl Fn(&SocketAddrUnix) -> rustix::io::Result<R>,
) -> io::Result<R> {
    let by_descriptor = format!("/proc/self/fd/{}/{SOCKET_NAME}", directory.as_raw_fd());
    let done = SocketAddrUnix::new(&by_descriptor).and_then(|address| with(&address));
    // Without /proc, by the path.
    let is_missing = |error: &Errno| matches!(*error, Errno::NOENT | Errno::NOTDIR);
    match done {
        Err(error) if is_missing(&error) && !Path::new("/proc/self/fd").exists() => {
            let address = SocketAddrUnix::new(path.join(SOCKET_NAME))?;
            Ok(with(&address)?)
        }
        done => Ok(done?),
    }
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    #[cfg(not(target_vendor = "apple"))]
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // Darwin knows no flags here. An accepted socket has the option of the one that listens.
    #[cfg(target_vendor = "apple")]
    let socket = {
        let socket = rustix::net::socket(family, kind, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_nosigpipe(&socket, true)?;
        socket
    };
    above_standard(socket)
}

/// Listens in the directory. The caller holds the queue's lock, so that a socket that is there
/// already has no owner and is replaced.
pub(super) fn listen(
    directory: BorrowedFd<'_>,
    path: &Path,
    mode: u32,
) -> io::Result<UnixListener> {
    remove(directory)?;
    let socket = new_socket()?;
    let mode = Mode::from_raw_mode(mode as RawMode);
    // On Linux the file gets these bits of the socket, less the umask: at no time more than `mode`.
    let _ = rustix::fs::fchmod(&socket, mode);
    at_address(directory, path, |address| rustix::net::bind(&socket, address))?;
    // As its directory's, for those whose queue it is. Only root may give it away, and others may
    // not give it to each group.
    let of = rustix::fs::fstat(directory)?;
    for (user, group) in [(Some(of.st_uid), None), (None, Some(of.st_gid))] {
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        let _ = rustix::fs::chownat(directory, SOCKET_NAME, user, group, AtFlags::SYMLINK_NOFOLLOW);
    }
    rustix::fs::chmodat(directory, SOCKET_NAME, mode, AtFlags::empty())?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket from the directory, if there is one. A file of that name that is no socket is
/// not mmq's, and stays.
pub(crate) fn remove(directory: BorrowedFd<'_>) -> io::Result<()> {
    let stat = match rustix::fs::statat(directory, SOCKET_NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        found => found?,
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Ok(());
    }
    match rustix::fs::unlinkat(directory, SOCKET_NAME, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => Err(error.into()),
        _ => Ok(()),
    }
}

/// Connects to the owner that listens in the directory `path`.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    // To go through a directory is all that a client needs; it may not be allowed to list it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let access = OFlags::PATH;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let access = OFlags::RDONLY;
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let socket = new_socket()?;
    let directory = std::os::fd::AsFd::as_fd(&directory);
    at_address(directory, path, |address| rustix::net::connect(&socket, address))?;
    Ok(socket.into())
}

/// Returns whether the client has not hung up.
pub(super) fn is_connected(stream: &UnixStream) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let gone = PollFlags::HUP | PollFlags::ERR;
    let mut fds = [PollFd::new(stream, gone)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && !fds[0].revents().intersects(gone)
}
