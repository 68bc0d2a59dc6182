//! A descriptor that is readable while messages wait for a consumer: an eventfd on Linux, a pipe
//! elsewhere.

use crate::threads::Mutex;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Moves a descriptor above those of standard input, output and error. Where a program has closed
/// one of these, whatever its code prints would go into a file, a socket or a count of the queue.
pub(crate) fn above_standard(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if file.as_raw_fd() > 2 { Ok(file) } else { rustix::io::fcntl_dupfd_cloexec(&file, 3) }
}

/// The descriptor itself. Only [`Ready`] reads from it and writes to it, and it contains at most
/// one count or one byte: so no call waits, or fails because it is full or empty.
#[derive(Debug)]
enum Descriptor {
    #[cfg(target_os = "linux")]
    Event(OwnedFd),
    /// On Linux only for the tests.
    #[cfg(any(not(target_os = "linux"), test))]
    Pipe(io::PipeReader, io::PipeWriter),
}

impl Descriptor {
    fn new() -> io::Result<Descriptor> {
        #[cfg(test)]
        if PIPES.with(std::cell::Cell::get) {
            return Descriptor::pipe();
        }
        #[cfg(target_os = "linux")]
        {
            use rustix::event::{EventfdFlags, eventfd};
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Descriptor::Event(above_standard(event)?))
        }
        #[cfg(not(target_os = "linux"))]
        Descriptor::pipe()
    }

    #[cfg(any(not(target_os = "linux"), test))]
    fn pipe() -> io::Result<Descriptor> {
        let (reader, writer) = io::pipe()?;
        let reader = above_standard(reader.into())?.into();
        Ok(Descriptor::Pipe(reader, above_standard(writer.into())?.into()))
    }

    /// Makes a descriptor readable that is not. Returns whether it is now.
    fn raise(&self) -> bool {
        match self {
            // Any number but zero does, so the byte order does not matter.
            #[cfg(target_os = "linux")]
            Descriptor::Event(event) => rustix::io::write(event, &[1u8; 8]).is_ok(),
            #[cfg(any(not(target_os = "linux"), test))]
            Descriptor::Pipe(_, writer) => rustix::io::write(writer, &[1]) == Ok(1),
        }
    }

    /// Clears a descriptor that is readable. Returns whether it is still readable.
    fn clear(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Descriptor::Event(event) => rustix::io::read(event, &mut [0u8; 8]).is_err(),
            #[cfg(any(not(target_os = "linux"), test))]
            Descriptor::Pipe(reader, _) => rustix::io::read(reader, &mut [0]) != Ok(1),
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Descriptors that this thread makes are pipes, as on systems other than Linux.
    pub(crate) static PIPES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A consumer's descriptor.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Whether the descriptor is readable.
    readable: Mutex<bool>,
    descriptor: Descriptor,
}

impl Ready {
    pub(crate) fn new() -> io::Result<Ready> {
        Ok(Ready { readable: Mutex::new(false), descriptor: Descriptor::new()? })
    }

    /// Makes the descriptor readable, because there is news.
    pub(crate) fn raise(&self) {
        let mut readable = self.readable.lock();
        if !*readable {
            *readable = self.descriptor.raise();
        }
    }

    /// Makes the descriptor readable if `has_news` returns true, and else not readable. After
    /// clearing it, calls `has_news` once more: a concurrent [`raise`](Self::raise) runs either
    /// before the clearing, and then the second call sees its news, or after it.
    pub(crate) fn notify(&self, has_news: impl Fn() -> bool) {
        if !has_news() {
            self.clear();
            if planted!(ReadyNotLookedAtAgain) || !has_news() {
                return;
            }
        }
        self.raise();
    }

    fn clear(&self) {
        let mut readable = self.readable.lock();
        if *readable {
            *readable = self.descriptor.clear();
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            #[cfg(target_os = "linux")]
            Descriptor::Event(event) => event.as_fd(),
            #[cfg(any(not(target_os = "linux"), test))]
            Descriptor::Pipe(reader, _) => reader.as_fd(),
        }
    }
}
