//! Counts the references to something that the last one frees.

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
        // Relaxed: the caller's reference keeps what is counted, and another thread gets the new
        // one only through a later, ordered step.
        if self.0.fetch_add(more, Ordering::Relaxed) > u64::MAX / 2 {
            // Only references leaked for years lead here. A panic would not help: the count is
            // wrong already.
            std::process::abort();
        }
    }

    /// The weight of all references. When it equals that of the caller's, no other reference is
    /// left, and everything done through others has happened before.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Gives up a reference of that weight. True when it was the last one: everything done through
    /// others has happened before, and the caller frees what is counted.
    #[inline]
    pub(crate) fn drop_weight(&self, weight: u64) -> bool {
        // Release: what was done through this reference happens before the memory is freed or
        // written again.
        let is_last = self.0.fetch_sub(weight, Ordering::Release) == weight;
        if is_last {
            // Acquire: the other side of that. A load, for ThreadSanitizer does not know fences.
            self.0.load(Ordering::Acquire);
        }
        is_last
    }
}
