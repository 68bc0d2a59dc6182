//! Counts the references to an object, which the last reference frees.

#[cfg(not(test))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

#[cfg(test)]
use crate::tests::schedule::atomics::AtomicU64;

/// The sum of the weights of all references; zero only when the last one is gone.
#[derive(Debug)]
pub(crate) struct References(AtomicU64);

impl References {
    /// One reference of weight 1.
    pub(crate) fn one() -> References {
        References(AtomicU64::new(1))
    }

    /// Counts references of the weight `more`. The caller has a reference.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: the caller's reference keeps the object alive, and another thread gets the new
        // reference only through a later, ordered step.
        if self.0.fetch_add(more, Ordering::Relaxed) > u64::MAX / 2 {
            // Only references leaked for years lead here. A panic would not help, because the count
            // is already wrong.
            std::process::abort();
        }
    }

    /// Returns the weight of all references. When it equals the weight of the caller's reference,
    /// no other one is left, and everything done through others has happened before.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Drops a reference of that weight. Returns true when it was the last one: then everything
    /// done through others has happened before, and the caller frees the object.
    #[inline]
    pub(crate) fn drop_weight(&self, weight: u64) -> bool {
        // Release: what was done through this reference happens before the memory is freed or
        // written again.
        let is_last = self.0.fetch_sub(weight, Ordering::Release) == weight;
        if is_last {
            // Acquire: pairs with that release. A load, since ThreadSanitizer does not support
            // fences.
            self.0.load(Ordering::Acquire);
        }
        is_last
    }
}
