//! How other threads ask the keeper's thread for work.
//!
//! A thread that waits here is parked by itself, in no list of waiters. Condition variables keep
//! such a list for the whole process, and a child made by a fork inherits it: the keeper, which
//! nearly always sleeps, would stand in it for ever, while its stack becomes that of one of the
//! child's own threads.

use crate::error::Result;
use crate::threads::{
    AtomicBool, Mutex, MutexGuard, OnceLock, Thread, current, now, park, park_timeout,
};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Work with syncs in it, which the keeper does for producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Settle drained segments.
    Settle,
    /// Give up the oldest messages, so that there is room for the next segment, and settle.
    Room,
    /// Reserve the numbers below this one.
    Lease(u64),
    /// End leases and delays, and carry dead letters.
    Deliveries,
}

/// An errand that a producer waits for: one at a time, for that producer has the producers' lock.
#[derive(Debug, Default)]
pub(crate) enum Awaited {
    #[default]
    Nothing,
    For(Errand),
    /// The keeper is at it.
    Taken,
    Done(Result<()>),
}

/// What other threads have asked the keeper for since it last looked.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// Settle drained segments.
    pub(crate) settle: bool,
    /// Have room for more than the next segment.
    pub(crate) room: bool,
    /// Reserve the numbers below this one.
    pub(crate) lease: Option<u64>,
    pub(crate) asked: Awaited,
    /// The keeper looks at deliveries or runs code of the caller's: both may wait for a lock whose
    /// holder waits for a producer.
    /// It counts calls within such a call, and those of threads that do its work without one.
    away: u32,
    /// Make the next segment ready.
    pub(crate) ahead: bool,
    /// Flush what is committed, and sync full segments.
    pub(crate) flush: bool,
    /// Flush messages and places, for futures.
    pub(crate) flush_for_tasks: bool,
    /// Futures wait for room: wake them, for space was given back.
    pub(crate) tell_tasks: bool,
    /// Futures wait for room: wake them in a while.
    pub(crate) tell_tasks_later: bool,
    /// Look at the deliveries at this time.
    pub(crate) deliveries: Option<Instant>,
    /// End the thread.
    pub(crate) stop: bool,
    /// The keeper's thread.
    keeper: Option<Thread>,
    /// The producer that waits for its errand.
    producer: Option<Thread>,
}

impl Wishes {
    /// The keeper is to look at the deliveries at this time, or before.
    pub(crate) fn look_at_deliveries(&mut self, at: Instant) {
        self.deliveries = Some(self.deliveries.map_or(at, |due| due.min(at)));
    }

    /// The errand that the keeper is to do next.
    pub(crate) fn take_errand(&mut self) -> Option<Errand> {
        if let Awaited::For(errand) = self.asked {
            self.asked = Awaited::Taken;
            return Some(errand);
        }
        if std::mem::take(&mut self.settle) {
            return Some(Errand::Settle);
        }
        if std::mem::take(&mut self.room) {
            return Some(Errand::Room);
        }
        if let Some(lease) = self.lease.take() {
            return Some(Errand::Lease(lease));
        }
        self.deliveries.take_if(|due| now() >= *due).map(|_| Errand::Deliveries)
    }
}

/// Starts the keeper's thread; false when there is to be none.
type StartFn = Box<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    /// Where the bell lies that this thread answers.
    static ANSWERS: Cell<usize> = const { Cell::new(0) };
}

/// Any thread rings it, and the keeper answers. The first ring starts the keeper's thread.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) wishes: Mutex<Wishes>,
    /// The keeper's thread runs.
    running: AtomicBool,
    starter: OnceLock<StartFn>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell")
            .field("wishes", &self.wishes)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Bell {
    pub(crate) fn set_starter(&self, starter: StartFn) {
        let _ = self.starter.set(starter);
    }

    /// The calling thread is the keeper from now on.
    pub(crate) fn answer_here(&self) {
        ANSWERS.set(std::ptr::from_ref(self).addr());
    }

    /// Whether the calling thread is the keeper: a waker, or an event, that it calls may call the
    /// queue, and must not wait for it.
    fn is_answered_here(&self) -> bool {
        ANSWERS.get() == std::ptr::from_ref(self).addr() && !planted!(KeeperWaitsForItself)
    }

    /// The keeper's thread runs.
    pub(crate) fn note_begin(&self) {
        self.running.store(true, Ordering::Release);
    }

    /// The keeper's thread has ended, or is about to.
    pub(crate) fn note_end(&self) {
        self.running.store(false, Ordering::Release);
    }

    /// Whether the keeper's thread runs.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures ask"))]
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Whether the keeper's thread runs, is another one, was not asked to end, and is not away.
    pub(crate) fn is_answered(&self) -> bool {
        !self.is_answered_here() && self.running.load(Ordering::Acquire) && {
            let wishes = self.wishes.lock();
            !wishes.stop && wishes.away == 0
        }
    }

    /// Has the keeper do `errand`, and waits until it has. `None`: the caller is to do it itself,
    /// for there is no keeper, or it is away, or the caller is the keeper. The caller holds the
    /// producers' lock, and none of those that the keeper may wait for.
    #[cold]
    pub(crate) fn ask(&self, errand: Errand) -> Option<Result<()>> {
        if planted!(ErrandsDoneHere)
            || self.is_answered_here()
            || !self.ring(|wishes| wishes.asked = Awaited::For(errand))
        {
            return None;
        }
        let mut wishes = self.wishes.lock();
        let mut has_parked = false;
        let outcome = loop {
            let waits = !wishes.stop && wishes.away == 0 || planted!(AskedWhileAway);
            match std::mem::take(&mut wishes.asked) {
                Awaited::Done(result) => break Some(result),
                Awaited::Nothing => break None,
                Awaited::For(_) if !waits => break None,
                asked => wishes.asked = asked,
            }
            wishes.producer = Some(current());
            drop(wishes);
            park();
            has_parked = true;
            wishes = self.wishes.lock();
        };
        wishes.producer = None;
        drop(wishes);
        if has_parked {
            // The token that woke this thread may have been meant for the caller's own `park`.
            current().unpark();
        }
        outcome
    }

    /// What a producer has asked for is done, or it is to do it itself: wakes it. (A token that
    /// comes too late only has it look once more.)
    fn wake_producer(mut wishes: MutexGuard<'_, Wishes>) {
        let producer = wishes.producer.take();
        drop(wishes);
        if let Some(producer) = producer {
            producer.unpark();
        }
    }

    /// The keeper waits until it is rung, or until the time `due`.
    pub(crate) fn sleep<'a>(
        &'a self,
        mut wishes: MutexGuard<'a, Wishes>,
        due: Option<Instant>,
    ) -> MutexGuard<'a, Wishes> {
        if wishes.keeper.is_none() {
            wishes.keeper = Some(current());
        }
        drop(wishes);
        match due {
            None => park(),
            Some(due) => park_timeout(due.saturating_duration_since(now())),
        }
        self.wishes.lock()
    }

    /// Wakes the keeper, if it sleeps.
    pub(crate) fn wake(&self) {
        let keeper = self.wishes.lock().keeper.clone();
        if let Some(keeper) = keeper {
            keeper.unpark();
        }
    }

    /// The errand that was [asked](Self::ask) for, if one was, is done.
    pub(crate) fn answer(&self, result: Result<()>) {
        let mut wishes = self.wishes.lock();
        if matches!(wishes.asked, Awaited::Taken) {
            wishes.asked = Awaited::Done(result);
            if !planted!(AnswerNotTold) {
                Bell::wake_producer(wishes);
            }
        }
    }

    /// The keeper is away until it has [come back](Self::come_back) as often as it went. A
    /// producer that waits for it does its errand itself.
    pub(crate) fn go_away(&self) {
        let mut wishes = self.wishes.lock();
        wishes.away += 1;
        Bell::wake_producer(wishes);
    }

    pub(crate) fn come_back(&self) {
        self.wishes.lock().away -= 1;
    }

    /// The keeper's thread ends, and does no more of what it was asked for.
    pub(crate) fn leave(&self) {
        let mut wishes = self.wishes.lock();
        wishes.stop = true;
        wishes.asked = Awaited::Nothing;
        wishes.keeper = None;
        Bell::wake_producer(wishes);
        self.note_end();
    }

    /// Asks the keeper for something. False when there is to be no thread.
    pub(crate) fn ring(&self, wish: impl FnOnce(&mut Wishes)) -> bool {
        if !self.running.load(Ordering::Acquire) && !self.starter.get().is_some_and(|start| start())
        {
            return false;
        }
        if planted!(RungBeforeTheWish) {
            self.wake();
            wish(&mut self.wishes.lock());
            return true;
        }
        let mut wishes = self.wishes.lock();
        wish(&mut wishes);
        let keeper = wishes.keeper.clone();
        drop(wishes);
        if let Some(keeper) = keeper {
            keeper.unpark();
        }
        true
    }
}
