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
}

/// Places that are no steps of a schedule of their own: the next thing done there is one.
const NO_STEPS: [&str; 12] = [
    "before a consumer has its place",
    "before a failed sync is noted",
    "before a seek is counted",
    "before a place is stored",
    "before a tail is published",
    "before acknowledgements are stored",
    "behind a flush's messages",
    "behind a future's look for room",
    "between two looks at the committed tail",
    "published",
    "where no segment is",
    "with the run record unlocked",
];
/// Windows of a few instructions: whoever is there often has to wait for others.
const TURNS: [&str; 4] = [
    "before the directory is synced",
    "before a drained segment's readers are looked at",
    "between a segment and its window",
    "between bytes and their store",
];

/// The calling thread has come to this point in the code: runs the work that a test has set for it.
pub(crate) fn reached(place: &str) {
    if TURNS.contains(&place) {
        crate::tests::schedule::turn();
    } else if !NO_STEPS.contains(&place) {
        crate::tests::schedule::step();
    }
    let due =
        MEANWHILE.with_borrow_mut(|meanwhile| meanwhile.take_if(|(awaited, _)| *awaited == place));
    if let Some((_, work)) = due {
        // It is another thread's.
        let _other = crate::tests::schedule::ranks::other_queues();
        work();
    }
}

/// Has `work` done the next time that the calling thread comes to this point in the code, as if by
/// another thread.
pub(crate) fn meanwhile(place: &'static str, work: impl FnOnce() + 'static) {
    MEANWHILE.set(Some((place, Box::new(work))));
}

/// What [`meanwhile`] has set is not done any more. Returns whether it was not done yet.
pub(crate) fn forget_meanwhile() -> bool {
    MEANWHILE.take().is_some()
}

/// Called before every store through a mapping, and in the middle of those that are not one
/// instruction.
#[inline]
pub(crate) fn before_store() {
    crate::tests::schedule::step();
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
