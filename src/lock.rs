//! A lock that costs one thread nothing: the producers' lock, and each consumer's.
//!
//! A queue mostly has one producer and one reader, and a locked instruction takes as long as the copy and the checksum of a
//! short message; taking and giving back an ordinary lock are two. This one is *given* to a thread that has taken it many
//! times in a row with nobody in between. The owner takes it and gives it back by plain stores. Whoever else wants it calls
//! it back first, and from then on it is an ordinary lock, until one thread has it to itself for long again.
//!
//! # How it is called back
//!
//! Owner and caller each store a word and then look at the other's (Dekker): the owner says that it is `inside` and looks
//! whether it is still the `owner`; the caller clears `owner` and looks whether somebody is inside. One of them must see the
//! other, which takes a full barrier between store and load on both sides. The owner's is left out: the caller has the kernel
//! run one on every processor that runs a thread of this process (`membarrier`, Linux). Either the owner's look comes after
//! that barrier, and it sees that it is the owner no more; or before, and then the caller sees it inside and waits.
//! So the price, some microseconds, is paid by who takes the lock from another thread, and the more often that happened,
//! the longer a thread must have had it to itself before it is given away again.
//!
//! The idea is known as biased or quickly reacquirable locking (Kawachiya et al. 2002; Dice, Moir and Scherer 2010), the barrier
//! as an asymmetric fence (folly's `AsymmetricThreadFence`, .NET's `FlushProcessWriteBuffers`).
//!
//! Where there is no such call, before [`prepare`] was called, and under Miri it is never given away: then it is a
//! `parking_lot` mutex.

#![expect(unsafe_code, reason = "the content of a lock")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// A thread must have taken the lock so often in a row, nobody else in between, to be given it ...
const FIRST_RUN: u32 = 64;
/// ... and each time it was called back so many times as often ...
const GROWTH: u32 = 8;
/// ... up to this: a barrier of 8 us (two processors, a virtual machine) is then spread over so many turns.
const LONGEST_RUN: u32 = 1 << 15;
/// So many threads can be owners in the life of a lock, one after the other. A power of two.
const OWNERS: u64 = 8;

/// Whoever is inside is there alone: either the thread that `owner` names and that said so in its word of `inside`, or who
/// holds `taken` and found the last owner's word clear after it had cleared `owner`.
///
/// Each owner has a word of its own: one that was called back between its two looks at `owner` still sets and clears its
/// word, however much later, which must not be the word of the next one.
pub(crate) struct Lock<T> {
    /// Whom the lock is given to: the thread's number times [`OWNERS`], plus the number of its word; zero: nobody.
    /// Changed by who holds `taken` only.
    owner: AtomicU64,
    inside: [AtomicBool; OWNERS as usize],
    taken: Mutex<Turns>,
    /// Held for a look at `inside` and no longer: to leave must never wait for who holds the lock.
    gate: Mutex<()>,
    /// An owner that was called back has left.
    left: Condvar,
    /// The planted bug: who calls the lock back does without the barrier.
    #[cfg(test)]
    without_barrier: bool,
    content: UnsafeCell<T>,
}

/// Who had the lock lately.
#[derive(Debug)]
struct Turns {
    last: u64,
    in_a_row: u32,
    /// To be given away after so many in a row.
    wanted: u32,
    /// The threads that the words belong to; zero: nobody yet.
    owners: [u64; OWNERS as usize],
    /// The word of the last owner.
    word: usize,
    /// The system was asked whether the process has one thread.
    asked: bool,
}

impl Turns {
    /// The word of that thread, which is here and so between no two looks.
    fn word_of(&self, thread: u64) -> Option<usize> {
        let its = self.owners.iter().position(|owner| *owner == thread);
        its.or_else(|| self.owners.iter().position(|owner| *owner == 0))
    }
}

// SAFETY: through a shared lock one thread at a time reaches the content (see `Lock`), for which the content must be fit to be
// sent, as with any mutex.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock is held while this lives.
#[must_use]
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// `None`: as its owner.
    turns: Option<MutexGuard<'a, Turns>>,
    /// As the lock's.
    owner: u64,
    /// To be shared as the content may be.
    content: PhantomData<&'a mut T>,
}

/// A thread that finds the lock taken looks again after so many pauses of the processor (about a microsecond), ...
const PAUSES: u32 = 64;
/// ... and so often before it sleeps.
const LOOKS: u32 = 8;

impl<T> Lock<T> {
    pub(crate) fn new(content: T) -> Lock<T> {
        Lock {
            owner: AtomicU64::new(0),
            inside: Default::default(),
            taken: Mutex::new(Turns {
                last: 0,
                in_a_row: 0,
                wanted: FIRST_RUN,
                owners: Default::default(),
                word: 0,
                asked: false,
            }),
            gate: Mutex::new(()),
            left: Condvar::new(),
            #[cfg(test)]
            without_barrier: false,
            content: UnsafeCell::new(content),
        }
    }

    /// The lock, if it was given to this thread, which is not inside. Nothing else is tried.
    #[inline(always)]
    pub(crate) fn owned(&self) -> Option<Owned<'_, T>> {
        let owner = self.enter(thread_number())?;
        Some(Owned { lock: self, owner, content: PhantomData, stays: PhantomData })
    }

    /// Waits for the lock. A thread that has it already waits for ever.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let thread = thread_number();
        match self.enter(thread) {
            Some(owner) => self.guard(owner),
            None => self.lock_slowly(thread),
        }
    }

    /// The lock, if nobody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let thread = thread_number();
        match self.enter(thread) {
            Some(owner) => Some(self.guard(owner)),
            None => self.try_lock_slowly(thread),
        }
    }

    #[inline(always)]
    fn guard(&self, owner: u64) -> Guard<'_, T> {
        Guard { lock: self, turns: None, owner, content: PhantomData }
    }

    /// As the owner, which is told.
    #[inline(always)]
    fn enter(&self, thread: u64) -> Option<u64> {
        // Relaxed: a thread is named here by itself, and has seen everything before then; whom else it names does not matter.
        let owner = self.owner.load(Ordering::Relaxed);
        let inside = &self.inside[(owner % OWNERS) as usize];
        if owner / OWNERS != thread || inside.load(Ordering::Relaxed) {
            return None;
        }
        inside.store(true, Ordering::Relaxed);
        // With the caller's barrier: see the module's description.
        compiler_fence(Ordering::SeqCst);
        if self.owner.load(Ordering::Relaxed) == owner {
            return Some(owner);
        }
        self.leave(owner);
        None
    }

    /// As the owner, who may have been called back meanwhile.
    #[inline(always)]
    fn leave(&self, owner: u64) {
        // Release: who finds nobody inside sees what was done there.
        self.inside[(owner % OWNERS) as usize].store(false, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        if self.owner.load(Ordering::Relaxed) != owner {
            self.leave_slowly();
        }
    }

    #[cold]
    #[inline(never)]
    fn leave_slowly(&self) {
        // Whoever waits has looked at `inside` under the gate, and sleeps by the time that is had.
        drop(self.gate.lock());
        self.left.notify_one();
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, thread: u64) -> Guard<'_, T> {
        let mut turns = self.wait_for_turn();
        self.call_back(&mut turns);
        if self.is_inside(&turns) {
            self.wait_outside(&turns);
        }
        self.have(thread, turns)
    }

    /// Keeps away from the lock's line for a while between two looks at it, so that whoever has it takes it many times in a row
    /// at the price of one thread: two producers of 128 bytes took 45 to 98 ns a message without, 30 to 36 with it, one takes 31.
    fn wait_for_turn(&self) -> MutexGuard<'_, Turns> {
        for _ in 0..LOOKS {
            if let Some(turns) = self.taken.try_lock() {
                return turns;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.taken.lock()
    }

    /// Until the owner that was called back has left. Nobody else waits here: `taken` is held.
    #[cold]
    fn wait_outside(&self, turns: &Turns) {
        let mut gate = self.gate.lock();
        while self.is_inside(turns) {
            #[cfg(test)]
            if self.without_barrier {
                tests::wait_a_while(self, turns, &mut gate);
                continue;
            }
            self.left.wait(&mut gate);
        }
    }

    #[cold]
    #[inline(never)]
    fn try_lock_slowly(&self, thread: u64) -> Option<Guard<'_, T>> {
        let mut turns = self.taken.try_lock()?;
        if self.owner.load(Ordering::Relaxed) / OWNERS == thread {
            // Its owner is inside and asks once more.
            return None;
        }
        self.call_back(&mut turns);
        if self.is_inside(&turns) { None } else { Some(self.have(thread, turns)) }
    }

    /// The last owner is inside, or was about to enter.
    fn is_inside(&self, turns: &Turns) -> bool {
        // Acquire: see `leave`.
        self.inside[turns.word].load(Ordering::Acquire)
    }

    fn have<'a>(&'a self, thread: u64, mut turns: MutexGuard<'a, Turns>) -> Guard<'a, T> {
        if turns.last != thread {
            turns.last = thread;
            turns.in_a_row = 0;
        }
        turns.in_a_row = turns.in_a_row.saturating_add(1);
        Guard { lock: self, turns: Some(turns), owner: 0, content: PhantomData }
    }

    /// Makes it nobody's. Its owner may still be inside then, but not enter again.
    fn call_back(&self, turns: &mut Turns) {
        if self.owner.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        #[cfg(test)]
        let barrier = if self.without_barrier { || {} } else { barrier };
        barrier();
        turns.wanted = turns.wanted.saturating_mul(GROWTH).min(LONGEST_RUN);
    }

    /// Given to the thread that has it now when it had it so often.
    #[inline]
    fn give(&self, turns: &mut Turns) {
        if turns.in_a_row >= turns.wanted {
            self.give_now(turns);
        }
    }

    #[cold]
    fn give_now(&self, turns: &mut Turns) {
        turns.in_a_row = 0;
        if !std::mem::replace(&mut turns.asked, true) {
            prepare_if_alone();
        }
        if is_prepared()
            && let Some(word) = turns.word_of(turns.last)
        {
            turns.owners[word] = turns.last;
            turns.word = word;
            self.owner.store(turns.last * OWNERS + word as u64, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    fn is_given(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }
}

/// The lock is held, as its owner, while this lives.
#[must_use]
pub(crate) struct Owned<'a, T> {
    lock: &'a Lock<T>,
    owner: u64,
    content: PhantomData<&'a mut T>,
    /// To be dropped by the thread that entered: its next look at `inside` takes no other one's stores into account.
    stays: PhantomData<*mut ()>,
}

impl<T> Drop for Owned<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.leave(self.owner);
    }
}

impl<T> Deref for Owned<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as for `Guard`: its owner is inside until this is dropped.
        unsafe { &*self.lock.content.get() }
    }
}

impl<T> DerefMut for Owned<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this is borrowed exclusively.
        unsafe { &mut *self.lock.content.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match &mut self.turns {
            None => self.lock.leave(self.owner),
            // The guard of `taken` goes after this.
            Some(turns) => self.lock.give(turns),
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: who has a guard is alone with the content (see `Lock`), and the guard is borrowed for reading.
        unsafe { &*self.lock.content.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.content.get() }
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("owner", &self.owner).field("inside", &self.inside).finish_non_exhaustive()
    }
}

/// Whether barriers on all processors can be had.
static PREPARED: OnceLock<bool> = OnceLock::new();

/// Whether locks can be given away.
fn is_prepared() -> bool {
    PREPARED.get().is_some_and(|possible| *possible)
}

/// [`prepare`] where that takes half a microsecond: in a process of one thread.
fn prepare_if_alone() {
    // A folder for each thread, and its own two names.
    #[cfg(all(target_os = "linux", not(miri)))]
    if PREPARED.get().is_none() && rustix::fs::stat("/proc/self/task").is_ok_and(|threads| threads.st_nlink == 3) {
        prepare();
    }
}

/// Makes locks ready to be given away, once in a process. Takes 10 ms when the process has several threads (the kernel waits
/// until every processor has learnt of it), so then it is the keeper that does it.
pub(crate) fn prepare() {
    PREPARED.get_or_init(|| {
        // Miri knows no such call.
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            use rustix::thread::{MembarrierCommand, membarrier};
            membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        }
        #[cfg(not(all(target_os = "linux", not(miri))))]
        false
    });
}

/// A full barrier in every running thread of this process.
fn barrier() {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use rustix::thread::{MembarrierCommand, membarrier};
        let passed = membarrier(MembarrierCommand::PrivateExpedited)
            // In case a forked child does not inherit it.
            .or_else(|_| membarrier(MembarrierCommand::RegisterPrivateExpedited))
            .and_then(|()| membarrier(MembarrierCommand::PrivateExpedited));
        if passed.is_err() {
            // It worked when it was prepared. Forbidden since, nothing could tell whether an owner is inside.
            std::process::abort();
        }
    }
}

/// A number for the calling thread, never zero and never given twice.
#[inline]
pub(crate) fn thread_number() -> u64 {
    use std::cell::Cell;
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    match NUMBER.get() {
        0 => {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

#[cfg(test)]
mod tests;
