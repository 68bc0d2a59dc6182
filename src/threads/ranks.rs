//! The order in which a thread takes the locks of a queue.
//!
//! In every test, taking a lock with a rank checks its place in the order
//! (`src/tests/schedule/ranks.rs`). Outside of tests ranks do nothing.

/// The locks that a thread holds while it takes others, in the order in which it takes them. Only
/// of [`Consumer`](Rank::Consumer) may a thread hold several, if it holds the
/// [`Registry`](Rank::Registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `Consumers::registry`: taken by a thread that creates, moves or removes a consumer.
    Registry,
    /// `ConsumerState::locked`.
    Consumer,
    /// `Core::writer`. The storage worker takes this one and those before it only by `try_`.
    Producers,
    /// `Places::synced_moves`.
    SyncedPlaces,
    /// `State::figures`.
    Figures,
    /// `State::durable`, the flush lock.
    Flush,
    /// `Segments::reclaiming`.
    Reclaiming,
    /// `Segments::list`.
    Segments,
    /// `Pool::windows`.
    Pool,
    /// `Gaps::evicted`.
    Evicted,
}

#[cfg(not(test))]
mod unchecked {
    use super::Rank;
    use crate::threads::Mutex;

    /// Returns a lock with that rank.
    pub(crate) const fn ranked<T>(_: Rank, value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    /// Checks, before this thread runs the program's code or enqueues a dead letter in another
    /// queue, that it holds no lock of the queue and no thread waits for it.
    #[inline(always)]
    pub(crate) fn check_foreign_code() {}

    /// Checks, before this thread waits for the storage worker, that it holds no lock that the
    /// worker takes.
    #[inline(always)]
    pub(crate) fn check_wait_for_storage_worker() {}

    /// Marks the calling thread as a queue's storage worker.
    #[inline(always)]
    pub(crate) fn enter_storage_worker() {}
}

#[cfg(test)]
pub(crate) use crate::tests::schedule::ranks::{
    check_foreign_code, check_wait_for_storage_worker, enter_storage_worker, ranked,
};
#[cfg(not(test))]
pub(crate) use unchecked::{
    check_foreign_code, check_wait_for_storage_worker, enter_storage_worker, ranked,
};
