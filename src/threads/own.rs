//! A lock that no forked child waits for, and a thread that none lets go of.

use std::io;
use std::ops::DerefMut;
use std::thread::{Builder, current};

use crate::error::{Error, Result};
use crate::memory::ForkGuard;
use crate::threads::Mutex;

/// A lock of the process that made it. In a forked child the thread that holds it may not exist, so
/// the child does not take it.
///
/// ```
/// let count = mmq::OwnMutex::new(1);
/// *count.lock()? += 1;
/// assert_eq!(*count.lock()?, 2);
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
pub struct OwnMutex<T> {
    guard: ForkGuard,
    lock: Mutex<T>,
}

impl<T> OwnMutex<T> {
    /// Makes a lock of this process.
    pub fn new(value: T) -> OwnMutex<T> {
        OwnMutex { guard: ForkGuard::new(), lock: Mutex::new(value) }
    }

    /// Takes the lock, and waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child.
    #[inline]
    pub fn lock(&self) -> Result<impl DerefMut<Target = T>> {
        if self.guard.forked() { Err(Error::Forked) } else { Ok(self.lock.lock()) }
    }
}

/// A thread that was started, and ends on its own. A forked child forgets it: what detaches it by
/// its address there would find another thread of the child's own, or no memory.
#[derive(Debug)]
pub(crate) struct JoinHandle {
    guard: ForkGuard,
    /// `None` from the end on.
    thread: Option<std::thread::JoinHandle<()>>,
}

impl JoinHandle {
    pub(crate) fn is_current(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == current().id())
    }

    /// Waits until the thread has ended, normally or by a panic.
    pub(crate) fn join(mut self) {
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

impl Drop for JoinHandle {
    fn drop(&mut self) {
        if self.guard.forked() {
            std::mem::forget(self.thread.take());
        }
    }
}

pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    let thread = Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(JoinHandle { guard: ForkGuard::new(), thread: Some(thread) })
}
