//! Counts operations for `flush_every_ops`.

use std::sync::atomic::Ordering;

use crate::threads::AtomicU64;

/// How many operations all threads did since the queue was opened, and how many of them a flush
/// covers.
#[derive(Debug, Default)]
pub(super) struct Operations {
    counted: AtomicU64,
    flushed: AtomicU64,
}

impl Operations {
    /// Counts `count` committed operations of the calling thread. If `every` or more are unflushed,
    /// returns how many a flush will cover: the caller flushes before it returns, and then calls
    /// [`note_flushed`](Self::note_flushed). So no call returns while that many may be lost, even
    /// while other threads flush. (The result is a multiple of `every`: a single thread flushes
    /// each time it completes the number.)
    pub(super) fn count(&self, every: u64, count: u64) -> Option<u64> {
        let counted = self.counted.fetch_add(count, Ordering::AcqRel) + count;
        let open = counted.saturating_sub(self.flushed.load(Ordering::Acquire));
        (open >= every).then_some(counted / every * every)
    }

    /// Notes that a flush succeeded that began when `covered` operations were counted.
    pub(super) fn note_flushed(&self, covered: u64) {
        self.flushed.fetch_max(covered, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While one thread flushes, no other thread returns with more unflushed operations than the
    /// limit.
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
