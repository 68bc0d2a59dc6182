//! A descriptor that is readable while there is something to read: an eventfd on Linux, a pipe
//! elsewhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use parking_lot::Mutex;

/// What is readable or not. Nobody else reads from it or writes to it, and there is one count or
/// one byte in it at most: no call waits, or fails for want of room or content.
#[derive(Debug)]
enum Descriptor {
    #[cfg(target_os = "linux")]
    Event(std::os::fd::OwnedFd),
    /// (On Linux for the tests alone.)
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
            Ok(Descriptor::Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }
        #[cfg(not(target_os = "linux"))]
        Descriptor::pipe()
    }

    #[cfg(any(not(target_os = "linux"), test))]
    fn pipe() -> io::Result<Descriptor> {
        let (reader, writer) = io::pipe()?;
        Ok(Descriptor::Pipe(reader, writer))
    }

    /// Makes it readable, or no longer so; it was not, or was. True when that was done.
    fn set(&self, readable: bool) -> bool {
        match (self, readable) {
            // Any number that is not zero, in any byte order.
            #[cfg(target_os = "linux")]
            (Descriptor::Event(event), true) => rustix::io::write(event, &[1u8; 8]).is_ok(),
            #[cfg(target_os = "linux")]
            (Descriptor::Event(event), false) => rustix::io::read(event, &mut [0u8; 8]).is_ok(),
            #[cfg(any(not(target_os = "linux"), test))]
            (Descriptor::Pipe(_, writer), true) => rustix::io::write(writer, &[1]) == Ok(1),
            #[cfg(any(not(target_os = "linux"), test))]
            (Descriptor::Pipe(reader, _), false) => rustix::io::read(reader, &mut [0]) == Ok(1),
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Descriptors that this thread makes are pipes, as where there is nothing else.
    pub(crate) static PIPES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[derive(Debug)]
pub(crate) struct Ready {
    /// Whether it is readable.
    state: Mutex<bool>,
    descriptor: Descriptor,
}

impl Ready {
    pub(crate) fn new() -> io::Result<Ready> {
        Ok(Ready { state: Mutex::new(false), descriptor: Descriptor::new()? })
    }

    /// Something came.
    pub(crate) fn raise(&self) {
        self.set(&mut self.state.lock(), true);
    }

    /// Makes it say what `has_news` does. It is cleared before that is looked at once more, so that
    /// news which come meanwhile are not lost: their [`raise`](Self::raise) comes either before the
    /// clearing, and then they are seen, or after it.
    pub(crate) fn tell(&self, has_news: impl Fn() -> bool) {
        if !has_news() {
            self.set(&mut self.state.lock(), false);
            if !has_news() {
                return;
            }
        }
        self.raise();
    }

    fn set(&self, state: &mut bool, readable: bool) {
        if *state == readable {
            return;
        }
        if self.descriptor.set(readable) {
            *state = readable;
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
