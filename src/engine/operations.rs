//! Counts operations for `flush_every_ops`.

use std::sync::atomic::Ordering;

use crate::threads::AtomicU64;

/// The operations of all threads since the queue was opened, and those that a flush covers.
#[derive(Debug, Default)]
pub(super) struct Operations {
    counted: AtomicU64,
    flushed: AtomicU64,
}

impl Operations {
    /// Counts `count` operations of the calling thread, which are committed. If `every` or more are
    /// not flushed, the caller flushes before it returns, and notes what this returns: so no call
    /// returns while that many may be lost, whoever else is flushing. (It is a multiple of `every`:
    /// a thread alone flushes each time that it completes the number.)
    pub(super) fn count(&self, every: u64, count: u64) -> Option<u64> {
        let counted = self.counted.fetch_add(count, Ordering::AcqRel) + count;
        let open = counted.saturating_sub(self.flushed.load(Ordering::Acquire));
        (open >= every).then_some(counted / every * every)
    }

    /// A flush that began when `covered` operations were counted has succeeded.
    pub(super) fn note_flushed(&self, covered: u64) {
        self.flushed.fetch_max(covered, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread flushes, and others go on: none of them returns beyond the number.
    #[test]
    fn no_more_than_the_number_are_open_while_a_thread_flushes() {
        let operations = Operations::default();
        assert_eq!(
            (1..=5).map(|_| operations.count(4, 1)).collect::<Vec<_>>(),
            [None, None, None, Some(4), Some(4)]
        );
        operations.note_flushed(4);
        assert_eq!((operations.count(4, 1), operations.count(4, 2)), (None, Some(8)));
        operations.note_flushed(8);
        operations.note_flushed(5);
        assert_eq!((operations.count(4, 3), operations.count(4, 7)), (None, Some(16)));
    }
}
