//! A lock that no forked child waits for.

use std::ops::DerefMut;

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
