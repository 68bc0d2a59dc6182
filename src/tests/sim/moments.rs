//! Moments that storage calls do not show: between two stores through a mapping. And the planted
//! bugs.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{SimStorage, State};

/// What happens before the store that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// What is stored so far may have reached the disk.
    Snapshot,
    /// The process dies in [`SimStorage::frozen`]'s world.
    Freeze,
}

#[derive(Debug)]
struct Awaited {
    disk: Arc<Mutex<State>>,
    left: u64,
    moment: Moment,
}

type Meanwhile = (&'static str, Box<dyn FnOnce()>);

thread_local! {
    static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static AWAITED: RefCell<Vec<Awaited>> = const { RefCell::new(Vec::new()) };
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// The calling thread has come to that place in the code: what a test wants to happen there
/// happens.
pub(crate) fn reached(place: &str) {
    let due =
        MEANWHILE.with_borrow_mut(|meanwhile| meanwhile.take_if(|(awaited, _)| *awaited == place));
    if let Some((_, work)) = due {
        work();
    }
}

/// The next time that the calling thread comes to that place in the code, `work` is done there, as
/// if by another thread.
pub(crate) fn meanwhile(place: &'static str, work: impl FnOnce() + 'static) {
    MEANWHILE.set(Some((place, Box::new(work))));
}

/// Called before every store through a mapping, and in the middle of those that are not one
/// instruction.
#[inline]
pub(crate) fn before_store() {
    if ARMED.get() {
        arrive();
    }
}

#[cold]
fn arrive() {
    AWAITED.with_borrow_mut(|awaited| {
        awaited.retain_mut(|waiting| {
            waiting.left = waiting.left.saturating_sub(1);
            if waiting.left > 0 {
                return true;
            }
            let mut state = waiting.disk.lock();
            match waiting.moment {
                Moment::Snapshot => state.snapshot(),
                Moment::Freeze => {
                    if state.frozen.is_none() {
                        state.frozen = Some(state.killed());
                    }
                    // One death is enough.
                    state.freeze = None;
                }
            }
            false
        });
        ARMED.set(!awaited.is_empty());
    });
}

impl SimStorage {
    /// Takes a `process_kill` right before the `nth` store from now of this thread, for
    /// [`SimStorage::frozen`].
    pub(crate) fn freeze_at_store(&self, nth: u64) {
        self.wait_for_store(nth, Moment::Freeze);
    }

    /// Takes a snapshot right before the `nth` store from now of this thread.
    pub(crate) fn snapshot_at_store(&self, nth: u64) {
        self.wait_for_store(nth, Moment::Snapshot);
    }

    fn wait_for_store(&self, nth: u64, moment: Moment) {
        AWAITED.with_borrow_mut(|awaited| {
            awaited.push(Awaited { disk: self.disk.clone(), left: nth, moment })
        });
        ARMED.set(true);
    }

    /// Waits for nothing any more.
    pub(crate) fn disarm(&self) {
        AWAITED.with_borrow_mut(Vec::clear);
        ARMED.set(false);
        self.disk.lock().freeze = None;
    }
}

/// Bugs that can be planted, so that the crash tests can be seen to find them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The checkpoint is on disk before the messages it speaks of.
    CheckpointBeforeData,
    /// Checksums do not depend on the queue, the life and the place of the segment.
    ChecksumNotSeeded,
    /// New and removed names are never made durable.
    DirectoryNotSynced,
    /// Recovery takes what there is of a batch.
    TornBatchAccepted,
    /// Recovery takes records of two tries at a batch for one.
    SealNotChecked,
    /// Segments are used again before the places behind them are on disk.
    RecycledBeforePlacesAreSynced,
    /// A checkpoint slot is overwritten while the other one may exist in the page cache alone.
    HalfOverwrittenWithoutR1,
    /// What an earlier, failed sync left off the disk is not stored again before the next one (R4).
    SuspectNotStoredAgain,
    /// A segment that was given up goes before the disk knows why.
    CauseNotDurable,
    /// Nothing says that segments are being changed.
    ChangingNotSaid,
    /// The files say that the end was clean although segments went since.
    CleanMarkKept,
    /// A spare's header says that it is live.
    SpareLeftLive,
    /// Recovery goes on when what it gave up could not be overwritten.
    TornRestKept,
    /// The rows of the index are believed without a look at the first and the last segment.
    EndsNotLookedAt,
    /// A seek forgets what was acknowledged in the page cache alone.
    SeekNotSynced,
    /// A number that only an acknowledgement speaks of is given out again.
    AcknowledgedNumberGivenAgain,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 16] = [
        Mutant::CheckpointBeforeData,
        Mutant::ChecksumNotSeeded,
        Mutant::DirectoryNotSynced,
        Mutant::TornBatchAccepted,
        Mutant::SealNotChecked,
        Mutant::RecycledBeforePlacesAreSynced,
        Mutant::HalfOverwrittenWithoutR1,
        Mutant::SuspectNotStoredAgain,
        Mutant::CauseNotDurable,
        Mutant::ChangingNotSaid,
        Mutant::CleanMarkKept,
        Mutant::SpareLeftLive,
        Mutant::TornRestKept,
        Mutant::EndsNotLookedAt,
        Mutant::SeekNotSynced,
        Mutant::AcknowledgedNumberGivenAgain,
    ];

    /// Whether this bug is planted in what the calling thread does.
    pub(crate) fn is_planted(self) -> bool {
        MUTANT.get() == Some(self)
    }

    /// Plants a bug, or pulls it out again.
    pub(crate) fn plant(mutant: Option<Mutant>) {
        MUTANT.set(mutant);
    }
}
