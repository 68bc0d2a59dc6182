//! The socket in a queue's directory: the owner listens, clients connect.
//!
//! The address of a socket holds 107 bytes of a path. So both sides go by the directory's
//! descriptor, as `/proc/self/fd/N/socket`, which also works where the directory was renamed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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

/// To go through a directory is all that a client needs; it may not be allowed to list it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const ACCESS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const ACCESS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
/// How many clients may wait to be accepted.
const BACKLOG: i32 = 128;

/// Calls `with` the address of the socket in this directory.
fn at_address<R>(
    directory: BorrowedFd<'_>,
    path: &Path,
    with: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<R>,
) -> io::Result<R> {
    let mut at = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    if !at.exists() {
        // Without /proc, by the path.
        path.clone_into(&mut at);
    }
    Ok(with(&SocketAddrUnix::new(at.join(SOCKET_NAME))?)?)
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
    reached!("a socket is bound");
    hand_over(directory, mode)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Gives the socket that was just bound all bits of `mode`, and its directory's user and group, for
/// those whose queue it is. Only root may give it away, and others may not give it to each group.
///
/// Whoever may write to the directory can put another file in the socket's place, a link to one, or
/// one of this user's. So the calls go by a descriptor of what has the name (other systems have
/// none of a socket's file), and only if that is a socket of this user with no other name, and on
/// Linux with no other bits than those.
fn hand_over(directory: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let to = rustix::fs::openat(directory, SOCKET_NAME, ACCESS | OFlags::NOFOLLOW, Mode::empty())?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let (name, flags) = ("", AtFlags::EMPTY_PATH);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let (to, name, flags) = (directory, SOCKET_NAME, AtFlags::SYMLINK_NOFOLLOW);
    let (found, of) = (rustix::fs::statat(&to, name, flags)?, rustix::fs::fstat(directory)?);
    let has_more = !mode.contains(Mode::from_raw_mode(found.st_mode));
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket
        || (found.st_uid, found.st_nlink) != (rustix::process::geteuid().as_raw(), 1)
        || has_more && cfg!(any(target_os = "linux", target_os = "android"))
    {
        return Ok(());
    }
    // Without /proc the socket keeps what the umask left: less than `mode`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::fs::chmod(format!("/proc/self/fd/{}", to.as_raw_fd()), mode);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    rustix::fs::chmodat(to, name, mode, flags)?;
    let (user, group) = (Some(Uid::from_raw(of.st_uid)), Some(Gid::from_raw(of.st_gid)));
    let _ = rustix::fs::chownat(&to, name, user, None, flags);
    let _ = rustix::fs::chownat(&to, name, None, group, flags);
    Ok(())
}

/// Removes the socket from the directory, if there is one. A file of that name that is no socket is
/// not mmq's, and stays.
pub(crate) fn remove(directory: BorrowedFd<'_>) -> io::Result<()> {
    let found = rustix::fs::statat(directory, SOCKET_NAME, AtFlags::SYMLINK_NOFOLLOW);
    if !found.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Socket) {
        return Ok(());
    }
    match rustix::fs::unlinkat(directory, SOCKET_NAME, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => Err(error.into()),
        _ => Ok(()),
    }
}

/// Connects to the owner that listens in the directory `path`.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let directory = rustix::fs::openat(CWD, path, ACCESS | OFlags::DIRECTORY, Mode::empty())?;
    let socket = new_socket()?;
    at_address(directory.as_fd(), path, |address| rustix::net::connect(&socket, address))?;
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
