//! Futures that wait for room or for a flush.
//!
//! The storage worker flushes for them; the delivery worker wakes them after a flush and when space
//! was freed. So no thread that holds a lock calls a waker, which is the program's code.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::threads::Mutex;
use crate::threads::waiting::Waiters;

#[derive(Debug, Default)]
#[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures wait this way"))]
pub(crate) struct Tasks {
    pub(crate) for_room: Waiters,
    pub(crate) for_flush: Waiters,
    rounds: Mutex<Rounds>,
}

/// The storage worker's flushes for futures. Each flush is a round that serves all futures that
/// asked before it began.
#[derive(Debug, Default)]
struct Rounds {
    begun: u64,
    ended: u64,
    /// The last round that failed, and the text of its error.
    failed: Option<(u64, Arc<str>)>,
}

#[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures wait this way"))]
impl Tasks {
    /// Returns the number of the next round, which will flush everything committed now. The caller
    /// asks the storage worker for it.
    pub(crate) fn next_round(&self) -> u64 {
        self.rounds.lock().begun + 1
    }

    /// Runs `flush` as a round.
    pub(crate) fn run_round(&self, flush: impl FnOnce() -> Result<()>) {
        let round = {
            let mut rounds = self.rounds.lock();
            rounds.begun += 1;
            rounds.begun
        };
        let outcome = flush();
        let mut rounds = self.rounds.lock();
        check!(let (begun, ended) = (rounds.begun, rounds.ended));
        holds!(begun == round && ended < round, "round {round} ends after {ended}, as of {begun}");
        rounds.ended = round;
        if let Err(error) = outcome {
            rounds.failed = Some((round, error.to_string().into()));
        }
    }

    /// Returns how `round` ended, with the error's text if it failed; `None` while it has not
    /// ended.
    pub(crate) fn outcome(&self, round: u64) -> Option<Result<(), Arc<str>>> {
        let rounds = self.rounds.lock();
        let failed = rounds.failed.as_ref().filter(|(failed, _)| *failed >= round);
        // A later successful round also flushed what an earlier one could not.
        match failed {
            Some((failed, text)) if *failed == rounds.ended => Some(Err(Arc::clone(text))),
            _ => (rounds.ended >= round).then_some(Ok(())),
        }
    }

    /// Wakes all waiting futures. The caller holds no lock.
    pub(crate) fn wake_all(&self) {
        self.for_room.wake(u64::MAX);
        self.for_flush.wake(u64::MAX);
    }
}

/// Returns the error of a failed flush by the storage worker, with that text.
pub(crate) fn flush_failed(directory: &std::path::Path, text: &str) -> Error {
    Error::io("flush", directory, std::io::Error::other(text.to_owned()))
}
