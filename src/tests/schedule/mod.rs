//! Threads that a seed schedules: one runs at a time, and the seed says at each step which.
//!
//! A step is a lock, an unlock, a wait, a wake-up, an access to an atomic, a store through a
//! mapping or a call of the storage. (`locks`, `atomics` and `threads` have the types of
//! `crate::threads` that take them.) The clock is the schedule's too: it moves with the steps, and
//! jumps to the next deadline when everybody waits.
//!
//! At the step that was given for it the process dies: `on_death` looks at what is left, and then
//! every thread unwinds from where it stands. A schedule in which nobody can go on, and one that
//! does not end, are failures, with the list of who waits for what.
//!
//! The threads are the system's: what is bound to a thread (its locals, whether it panics) is as
//! it always is. Only the thread that has the baton runs; a hand-over costs a wake-up.
//!
//! Each access sees the last one before it: no weaker order of memory is tried.

pub(crate) mod atomics;
pub(crate) mod child;
mod core;
mod end;
pub(crate) mod locks;
mod log;
mod plan;
pub(crate) mod ranks;
pub(crate) mod threads;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::core::{slow_key, words_of};
pub(crate) use self::log::{Line, Log, note};
pub(crate) use self::plan::{Outcome, Plan};
use crate::tests::sim::{Mutant, Rng};

/// A schedule that takes no step for so long counts as one that does not end.
pub(crate) const STILL: std::time::Duration = std::time::Duration::from_secs(10);
/// After so many steps a schedule usually counts as one that does not end.
pub(crate) const MOST_STEPS: u64 = 400_000;
/// How it is said that a thread takes no step.
pub(crate) const FOR_EVER: &str = "a thread goes on for ever without a step";
/// How the names of the threads begin whose timers go on for ever.
const WORKER: &str = "mmq-";
/// How long they are given before the rest is quiet.
const QUIET: u64 = 40_000_000;
/// How long their calls to the disk keep the rest from being quiet: a flush that always fails comes
/// again at each timer.
const LONGEST: u64 = 1_000_000_000;
/// So long a thread may be without a processor at a [`turn`], by the schedule's clock.
const AWAY: u64 = 500_000;
/// Each step takes so long by the schedule's clock.
const STEP: u64 = 1_000;

/// What unwinds a thread of a process that has died.
struct Died;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Ready,
    Waiting {
        on: usize,
        until: Option<u64>,
    },
    /// Waits until nobody else has anything to do.
    Quiet,
    Ended,
}

struct Slot {
    name: String,
    run: Run,
    /// It went on because its time was over.
    timed_out: bool,
    /// It was unparked and has not parked since.
    token: bool,
    /// The lower, the sooner it goes on.
    rank: u64,
    baton: Arc<Baton>,
}

#[derive(Default)]
struct Baton {
    thread: Mutex<Option<std::thread::Thread>>,
    here: AtomicBool,
}

impl Baton {
    fn hand_over(&self) {
        self.here.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }

    fn wait(&self) {
        while !self.here.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

struct Core {
    seed: u64,
    rng: Rng,
    slots: Vec<Slot>,
    /// What was waited for, in the order of the first waits, so that it has a number.
    places: Vec<usize>,
    steps: u64,
    /// Nanoseconds since the beginning.
    now: u64,
    /// When only the storage worker was left to do anything.
    quiet_since: Option<u64>,
    /// Since when nobody but the workers did anything.
    alone_since: Option<u64>,
    switch_one_in: u64,
    by_rank: bool,
    slow: u64,
    last_rank: u64,
    dies_at: Option<u64>,
    on_death: Option<Box<dyn FnOnce() + Send>>,
    most_steps: u64,
    is_dead: bool,
    is_over: bool,
    outcome: Outcome,
}

/// One process under a seed.
pub(crate) struct Schedule {
    core: Mutex<Core>,
    over: Condvar,
    began: Instant,
    log: Option<Log>,
}

thread_local! {
    static IS_SCHEDULED: Cell<bool> = const { Cell::new(false) };
    static HERE: RefCell<Option<(Arc<Schedule>, usize)>> = const { RefCell::new(None) };
}

/// A step of the calling thread; nothing where no schedule runs it.
#[inline]
pub(crate) fn step() {
    if IS_SCHEDULED.get() {
        here(Schedule::step);
    }
}

/// A step at which the thread loses its processor for a while every second time: for windows of a
/// few instructions.
#[inline]
pub(crate) fn turn() {
    if IS_SCHEDULED.get() {
        here(|schedule, me| {
            schedule.step(me);
            schedule.linger(me, Some(AWAY));
        });
    }
}

/// A call of the calling thread takes its time, and others go on meanwhile.
pub(crate) fn linger() {
    if IS_SCHEDULED.get() {
        here(|schedule, me| schedule.linger(me, None));
    }
}

/// Whether the calling thread belongs to a process that has died.
pub(crate) fn is_dead() -> bool {
    IS_SCHEDULED.get() && here(|schedule, _| schedule.core.lock().is_dead)
}

/// How long the schedule has run by its own clock, in milliseconds.
pub(crate) fn elapsed_millis() -> u64 {
    if IS_SCHEDULED.get() { here(|schedule, _| schedule.core.lock().now / 1_000_000) } else { 0 }
}

/// Steps so far.
pub(crate) fn steps() -> u64 {
    if IS_SCHEDULED.get() { here(|schedule, _| schedule.core.lock().steps) } else { 0 }
}

/// The seed of the schedule that runs the calling thread.
pub(crate) fn seed() -> u64 {
    here(|schedule, _| schedule.core.lock().seed)
}

/// Returns when all other threads wait, for what no time brings.
pub(crate) fn wait_until_quiet() {
    here(|schedule, me| {
        let mut core = schedule.core.lock();
        core.slots[me].run = Run::Quiet;
        let next = core.pick(None).unwrap_or(me);
        core.slots[next].run = Run::Ready;
        schedule.switch(core, me, next);
        schedule.leave_if_dead();
    });
}

/// Does something that is no part of the schedule.
pub(crate) fn aside<R>(work: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_SCHEDULED.set(self.0);
        }
    }
    let _back = Back(IS_SCHEDULED.replace(false));
    work()
}

fn here<R>(work: impl FnOnce(&Schedule, usize) -> R) -> R {
    let (schedule, me) = HERE.with_borrow(|here| {
        let (schedule, me) = here.as_ref().expect("a scheduled thread");
        (Arc::clone(schedule), *me)
    });
    work(&schedule, me)
}

fn is_scheduled() -> bool {
    IS_SCHEDULED.get()
}

/// Runs `body` as the first thread of a process, to the end of all its threads.
pub(crate) fn run(plan: Plan, body: impl FnOnce() + Send + 'static) -> Outcome {
    let schedule = Arc::new(Schedule {
        core: Mutex::new(Core {
            seed: plan.seed,
            rng: Rng(plan.seed),
            slots: Vec::new(),
            places: Vec::new(),
            steps: 0,
            now: 0,
            quiet_since: None,
            alone_since: None,
            switch_one_in: plan.switch_one_in,
            by_rank: plan.by_rank,
            slow: plan.slow,
            last_rank: 0,
            dies_at: plan.dies_at,
            on_death: Some(plan.on_death),
            most_steps: plan.most_steps,
            is_dead: false,
            is_over: false,
            outcome: Outcome::default(),
        }),
        over: Condvar::new(),
        began: Instant::now(),
        log: plan.log,
    });
    log::silence();
    let first = schedule.add("main".to_owned(), body);
    schedule.core.lock().slots[first].baton.hand_over();
    let mut core = schedule.core.lock();
    let mut seen = u64::MAX;
    while !core.is_over {
        if schedule.over.wait_for(&mut core, STILL).timed_out() {
            if core.steps == seen {
                // That thread cannot be ended: it goes on until the test's process ends.
                core.outcome.failure = Some(FOR_EVER.into());
                break;
            }
            seen = core.steps;
        }
    }
    core.outcome.steps = core.steps;
    core.outcome.died = core.is_dead;
    std::mem::take(&mut core.outcome)
}

impl Schedule {
    /// A thread that is ready and has not begun.
    fn add(self: &Arc<Schedule>, name: String, body: impl FnOnce() + Send + 'static) -> usize {
        let baton = Arc::new(Baton::default());
        let mut core = self.core.lock();
        let me = core.slots.len();
        let rank = core.rng.below(1 << 20);
        core.slots.push(Slot {
            name: name.clone(),
            run: Run::Ready,
            timed_out: false,
            token: false,
            rank,
            baton: Arc::clone(&baton),
        });
        drop(core);
        let (schedule, mutant, given) = (Arc::clone(self), Mutant::planted(), Arc::clone(&baton));
        let thread = std::thread::Builder::new().name(name).stack_size(1 << 20).spawn(move || {
            given.wait();
            Mutant::plant(mutant);
            HERE.set(Some((Arc::clone(&schedule), me)));
            IS_SCHEDULED.set(true);
            log::IS_SILENT.set(schedule.log.is_none());
            let done = catch_unwind(AssertUnwindSafe(|| {
                schedule.leave_if_dead();
                body();
            }));
            IS_SCHEDULED.set(false);
            HERE.set(None);
            if let Err(panic) = done
                && !panic.is::<Died>()
            {
                schedule.fail(me, &words_of(&*panic));
            }
            schedule.end(me);
        });
        let thread = thread.expect("a thread");
        *baton.thread.lock() = Some(thread.thread().clone());
        me
    }

    fn leave_if_dead(&self) {
        if self.core.lock().is_dead && !std::thread::panicking() {
            resume_unwind(Box::new(Died));
        }
    }

    fn step(&self, me: usize) {
        let mut core = self.core.lock();
        if core.is_dead {
            drop(core);
            return self.leave_if_dead();
        }
        core.steps += 1;
        core.now += STEP;
        if core.dies_at == Some(core.steps) {
            drop(core);
            self.die();
            return self.leave_if_dead();
        }
        if core.steps > core.most_steps {
            drop(core);
            self.fail(me, "the schedule does not end");
            return self.leave_if_dead();
        }
        let one_in = core.switch_one_in;
        if core.rng.below(one_in) != 0 {
            return;
        }
        if core.by_rank {
            core.last_rank += 1;
            core.slots[me].rank = (1 << 20) + core.last_rank;
        }
        if let Some(next) = core.pick(Some(me)) {
            self.switch(core, me, next);
            self.leave_if_dead();
        }
    }

    /// Others go on for at most so many nanoseconds, every second time; `None`: as planned.
    fn linger(&self, me: usize, most: Option<u64>) {
        let mut core = self.core.lock();
        let is_passed = core.is_dead || most.is_some() && core.rng.below(2) == 0;
        let most = most.unwrap_or(core.slow);
        if is_passed || most == 0 {
            return;
        }
        let until = core.now + core.rng.below(most);
        drop(core);
        self.wait(me, slow_key(me), Some(until));
    }

    /// Another thread goes on; returns when it is this one's turn again.
    fn switch(&self, core: MutexGuard<'_, Core>, me: usize, next: usize) {
        if next == me {
            return;
        }
        let (mine, other) =
            (Arc::clone(&core.slots[me].baton), Arc::clone(&core.slots[next].baton));
        drop(core);
        other.hand_over();
        mine.wait();
    }

    /// Waits until somebody wakes whoever waits `on` that, or until a time; false when that is
    /// over.
    fn wait(&self, me: usize, on: usize, until: Option<u64>) -> bool {
        let mut core = self.core.lock();
        if core.is_dead && !std::thread::panicking() {
            drop(core);
            self.leave_if_dead();
            return true;
        }
        if !core.places.contains(&on) {
            core.places.push(on);
        }
        if let Some(log) = &self.log {
            let words = core.awaited(on, until);
            log.add(core.steps, &core.slots[me].name, words);
        }
        core.slots[me].run = Run::Waiting { on, until };
        core.slots[me].timed_out = false;
        match core.pick(None) {
            Some(next) => self.switch(core, me, next),
            None => {
                let is_dead = core.is_dead;
                let text = core.who_waits();
                drop(core);
                if is_dead {
                    // What unwinds waits for what unwinds: these threads stay where they are.
                    self.give_up();
                    loop {
                        std::thread::park();
                    }
                }
                self.fail(me, &format!("stuck: {text}"));
            }
        }
        self.leave_if_dead();
        let mut core = self.core.lock();
        !std::mem::take(&mut core.slots[me].timed_out)
    }

    fn is_waited_for(&self, on: usize) -> bool {
        let waits = |slot: &Slot| matches!(slot.run, Run::Waiting { on: other, .. } if other == on);
        self.core.lock().slots.iter().any(waits)
    }

    /// Wakes up to `most` of those who wait `on` that.
    fn wake(&self, on: usize, most: usize) {
        let mut core = self.core.lock();
        let waits = |slot: &Slot| matches!(slot.run, Run::Waiting { on: other, .. } if other == on);
        for _ in 0..most {
            let waiting: Vec<usize> =
                (0..core.slots.len()).filter(|at| waits(&core.slots[*at])).collect();
            if waiting.is_empty() {
                return;
            }
            let which =
                if waiting.len() == 1 { 0 } else { core.rng.below(waiting.len() as u64) as usize };
            core.slots[waiting[which]].run = Run::Ready;
        }
    }

    fn now(&self) -> Instant {
        self.began + Duration::from_nanos(self.core.lock().now)
    }

    fn nanos_at(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }
}
