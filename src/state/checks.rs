//! Rejects calls on a closed or poisoned queue, and in a forked child.

use super::State;
use crate::error::{Error, Result};
use crate::storage::Storage;

impl<S: Storage> State<S> {
    /// Returns whether this process is a forked child of the one that opened the queue. A child has
    /// neither the queue's lock nor its threads.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.index.poison.forked()
    }

    /// Rejects a call in a forked child, which might wait forever for a lock: the thread that held
    /// it does not exist there.
    #[inline(always)]
    pub(crate) fn check_not_forked(&self) -> Result<()> {
        if self.forked() { self.refuse_forked() } else { Ok(()) }
    }

    /// Rejects a reading call on a closed queue, and in a [forked child](Self::check_not_forked).
    #[inline(always)]
    pub(crate) fn check_readable(&self) -> Result<()> {
        if !self.index.poison.takes_all_calls() {
            return self.refuse_reading();
        }
        reached!("found open");
        Ok(())
    }

    /// Rejects a writing call on a closed or poisoned queue, and in a forked child.
    #[inline(always)]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.index.poison.takes_all_calls() { Ok(()) } else { self.refuse_writing() }
    }

    /// Rejects a writing call on a closed or poisoned queue. The caller has checked that this is
    /// [no forked child](Self::check_not_forked).
    #[inline(always)]
    pub(crate) fn check_still_writable(&self) -> Result<()> {
        if self.index.poison.is_marked() { self.refuse_writing() } else { Ok(()) }
    }

    #[cold]
    fn refuse_forked(&self) -> Result<()> {
        Err(Error::forked(self.storage.path()))
    }

    /// Lets the call through if the queue is only poisoned.
    #[cold]
    fn refuse_reading(&self) -> Result<()> {
        self.check_not_forked()?;
        if self.index.poison.is_closed() { Err(Error::closed(self.storage.path())) } else { Ok(()) }
    }

    #[cold]
    fn refuse_writing(&self) -> Result<()> {
        self.refuse_reading()?;
        self.index.poison.check()
    }
}
