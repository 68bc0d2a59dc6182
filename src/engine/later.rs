//! A thread that fills a message in place may not wait for locks: its other work is put off until
//! right after.

use std::fmt;

use super::Engine;
use crate::storage::Storage;
use crate::threads::Mutex;

/// Work that threads put off while they filled a message in place.
pub(super) struct Later<S: Storage>(Mutex<Vec<Deferred<S>>>);

type Deferred<S> = Box<dyn FnOnce(&Engine<S>) + Send>;

impl<S: Storage> Default for Later<S> {
    fn default() -> Later<S> {
        Later(Mutex::default())
    }
}

impl<S: Storage> fmt::Debug for Later<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Later").field(&self.0.lock().len()).finish()
    }
}

/// Does the work that was put off when dropped: the closure has returned or panicked by then, and
/// the producers' lock is free again.
pub(super) struct DoLater<'a, S: Storage>(pub(super) &'a Engine<S>);

impl<S: Storage> Drop for DoLater<'_, S> {
    fn drop(&mut self) {
        let deferred = std::mem::take(&mut *self.0.later.0.lock());
        deferred.into_iter().for_each(|what| what(self.0));
    }
}

impl<S: Storage> Engine<S> {
    /// Does `what` now; or, when the calling thread is filling a message in place, right after.
    #[inline]
    pub(crate) fn now_or_later(&self, what: impl FnOnce(&Engine<S>) + Send + 'static) {
        if self.core.is_filling() {
            self.later.0.lock().push(Box::new(what));
        } else {
            what(self);
        }
    }
}
