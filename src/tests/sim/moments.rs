//! Moments between two stores through a mapping, which no storage call shows; and the planted bugs.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{SimStorage, State};

/// What a test has happen right before a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Everything stored so far may have reached the disk.
    Snapshot,
    /// A copy of the disk is kept as the death of the process would leave it now:
    /// [`SimStorage::frozen`].
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

/// The calling thread has come to this point in the code: runs the work that a test has set for it.
pub(crate) fn reached(place: &str) {
    let due =
        MEANWHILE.with_borrow_mut(|meanwhile| meanwhile.take_if(|(awaited, _)| *awaited == place));
    if let Some((_, work)) = due {
        work();
    }
}

/// Has `work` done the next time that the calling thread comes to this point in the code, as if by
/// another thread.
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
                    // Only the first death is kept.
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

    /// Takes back every snapshot and freeze that was asked for.
    pub(crate) fn disarm(&self) {
        AWAITED.with_borrow_mut(Vec::clear);
        ARMED.set(false);
        self.disk.lock().freeze = None;
    }
}

/// Bugs that a test can plant in the product (`planted!`), to show that the crash tests find them.
/// Each doc says what the product does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A checkpoint is written before the messages that it names as durable are synced (R0).
    CheckpointBeforeData,
    /// Checksums are not seeded from the segment's queue, life, base and salt (R5).
    ChecksumNotSeeded,
    /// The directory is never synced, so new and removed names never become durable (R2).
    DirectoryNotSynced,
    /// Recovery delivers those records of a torn batch that are whole.
    TornBatchAccepted,
    /// Recovery does not check seals: records of two tries at a batch count as one batch.
    SealNotChecked,
    /// Segments are recycled before the places behind them are synced (R8).
    RecycledBeforePlacesAreSynced,
    /// A half of the checkpoint is overwritten while the other half may exist in the page cache
    /// alone (R1).
    HalfOverwrittenWithoutR1,
    /// Pages that a failed sync left off the disk are not stored again before the next sync (R4).
    SuspectNotStoredAgain,
    /// Segments of dropped or expired messages are removed before the cause is durable.
    CauseNotDurable,
    /// The run record does not say that segments are being changed.
    ChangingNotSaid,
    /// The mark of a clean end stays when segments are recycled or removed.
    CleanMarkKept,
    /// The header of a segment that becomes a spare still says that it is live.
    SpareLeftLive,
    /// An opening goes on when it cannot overwrite the pieces of a unit that it gave up.
    TornRestKept,
    /// The rows of the index are believed without reading the headers of the first and the last
    /// segment.
    EndsNotLookedAt,
    /// A seek clears the consumer's acknowledgements without a sync.
    SeekNotSynced,
    /// Recovery does not count acknowledgements among the stated numbers, so it gives an
    /// acknowledged number out again.
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

    /// Whether this bug is planted for the calling thread.
    pub(crate) fn is_planted(self) -> bool {
        MUTANT.get() == Some(self)
    }

    /// Plants a bug for the calling thread; `None` takes it out again.
    pub(crate) fn plant(mutant: Option<Mutant>) {
        MUTANT.set(mutant);
    }
}
