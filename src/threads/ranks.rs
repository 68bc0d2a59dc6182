//! The order in which a thread takes the locks of a queue.
//!
//! In tests each lock with a rank looks for its place in the order whenever it is taken, whatever
//! the test is for (`src/tests/schedule/ranks.rs`). Outside of tests nothing is left of a rank.

/// The locks that are held while others are taken, in the order in which a thread takes them.
/// [`Consumer`](Rank::Consumer) alone is held several times, by a thread with the
/// [`Registry`](Rank::Registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `Consumers::registry`: whoever makes, moves or removes a consumer.
    Registry,
    /// `ConsumerState::locked`.
    Consumer,
    /// `Core::writer`. The storage worker takes this one and those before it by `try_` alone.
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

    /// A lock with that rank.
    pub(crate) const fn ranked<T>(_: Rank, value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    /// The calling thread is about to run code of the program's, or to put a dead letter into
    /// another queue: it holds no lock of the queue, and nobody waits for it.
    #[inline(always)]
    pub(crate) fn check_foreign_code() {}

    /// The calling thread is about to wait for the storage worker: it holds nothing that the worker
    /// takes.
    #[inline(always)]
    pub(crate) fn check_wait_for_storage_worker() {}

    /// The calling thread is a queue's storage worker from now on.
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
