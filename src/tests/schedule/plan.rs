//! What a schedule is given, and what it ends with.

use super::Log;

/// What was drawn for a schedule before it begins.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// One step in so many hands over to another thread.
    pub(crate) switch_one_in: u64,
    /// The thread with the lowest rank goes on, until it is put last at such a step. (Else the
    /// thread is drawn at each of them.)
    pub(crate) by_rank: bool,
    /// The most nanoseconds, by the schedule's clock, that a [slow](super::linger) call takes
    /// before it does its work, and once more behind it.
    pub(crate) slow: u64,
    /// The step at which the process dies.
    pub(crate) dies_at: Option<u64>,
    pub(crate) on_death: Box<dyn FnOnce() + Send>,
    /// After so many steps it counts as one that does not end.
    pub(crate) most_steps: u64,
    /// Where it is written down what the threads do. Without one, not even their panics are.
    pub(crate) log: Option<Log>,
}

/// How a schedule ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) steps: u64,
    pub(crate) died: bool,
    /// Why it is a failure: a panic, threads that are stuck, or too many steps.
    pub(crate) failure: Option<String>,
    /// Threads that could not be unwound: they wait for each other in what they drop.
    pub(crate) leaked: usize,
}
