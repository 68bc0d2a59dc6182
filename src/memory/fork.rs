//! Detects a forked child of the process that opened the queue, and rebuilds process-wide values in
//! such a child.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Distinguishes the process that made it from children forked later, which share the queue's files
/// but none of its threads and locks. A guard that a child makes itself works in the child.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    /// A word that is zero in a forked child until that child makes a guard. Where the system
    /// cannot wipe memory on fork: [`NO_WORD`].
    word: &'static AtomicU64,
    /// The word's value in this process; where there is no word, one that follows from the process
    /// id. A multiple of [`STEP`](Self::STEP).
    token: u64,
}

/// Stands for a word that differs from every token.
static NO_WORD: AtomicU64 = AtomicU64::new(u64::MAX);

impl ForkGuard {
    /// The lowest bits of every token are zero: whoever keeps one has them for marks of its own.
    pub(crate) const STEP: u64 = 8;

    pub(crate) fn new() -> ForkGuard {
        // A child's copy of `NEXT` continues from its parent's value, so their tokens differ.
        static NEXT: AtomicU64 = AtomicU64::new(ForkGuard::STEP);
        let word = the_word();
        if ptr::eq(word, &NO_WORD) {
            return ForkGuard::by_process_id();
        }
        let fresh = NEXT.fetch_add(ForkGuard::STEP, Ordering::Relaxed);
        let token = match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(present) => present,
        };
        ForkGuard { word, token }
    }

    pub(super) fn by_process_id() -> ForkGuard {
        ForkGuard { word: &NO_WORD, token: ForkGuard::process_token() }
    }

    fn process_token() -> u64 {
        u64::from(std::process::id()) * ForkGuard::STEP
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Returns whether `value` is the guard's token, and this is no forked child. With a value in
    /// which marks may be set, one compare finds out that none is, too.
    #[inline(always)]
    pub(crate) fn is_token(&self, value: u64) -> bool {
        let is_present = self.word.load(Ordering::Relaxed) == value;
        (is_present || self.is_process_token(value)) && !is_played()
    }

    /// As [`is_token`](Self::is_token), where there is no word.
    #[cold]
    fn is_process_token(&self, value: u64) -> bool {
        ptr::eq(self.word, &NO_WORD) && value == ForkGuard::process_token()
    }

    /// Returns whether this process is a child, forked after the guard was made. One load where the
    /// system wipes memory on fork.
    #[inline(always)]
    pub(crate) fn forked(&self) -> bool {
        self.is_of_parent() || is_played()
    }

    #[inline(always)]
    fn is_of_parent(&self) -> bool {
        // Relaxed: within one process the word changes once, before there is a guard.
        self.word.load(Ordering::Relaxed) != self.token && self.is_other()
    }

    /// Returns whether this is another process, when the word is not the token.
    #[cold]
    fn is_other(&self) -> bool {
        !ptr::eq(self.word, &NO_WORD) || self.token != ForkGuard::process_token()
    }
}

/// Returns whether a test's thread plays a forked child, or a simulated process has died, so that
/// the drops of its threads must change nothing.
#[inline(always)]
fn is_played() -> bool {
    #[cfg(test)]
    {
        use crate::tests::schedule;
        schedule::child::is_child() || std::thread::panicking() && schedule::is_dead()
    }
    #[cfg(not(test))]
    false
}

/// Returns the process's one word that is wiped on fork, or [`NO_WORD`]. Not in a `OnceLock`: a
/// fork while a thread of the parent fills it would leave it locked in the child.
fn the_word() -> &'static AtomicU64 {
    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    // Acquire and release: the word's page is made before the pointer to it.
    let mut word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        let fresh = ptr::from_ref(word_wiped_on_fork().unwrap_or(&NO_WORD)).cast_mut();
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        // If another thread was faster, this thread's page stays mapped, unused.
        word = WORD.compare_exchange(word, fresh, success, failure).err().unwrap_or(fresh);
    }
    // SAFETY: from a static reference.
    unsafe { &*word }
}

#[cold]
fn word_wiped_on_fork() -> Option<&'static AtomicU64> {
    // Miri forks nothing and knows no madvise.
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use memmap2::{MmapOptions, MmapRaw};
        use rustix::mm::{Advice, madvise};
        if takes_any_advice() {
            return None;
        }
        let map = MmapRaw::from(MmapOptions::new().len(size_of::<AtomicU64>()).map_anon().ok()?);
        let word = map.as_mut_ptr();
        // SAFETY: the page belongs to `map` and is private and anonymous, as the advice demands. In
        // this process the advice changes nothing.
        unsafe { madvise(word.cast(), map.len(), Advice::LinuxWipeOnFork) }.ok()?;
        std::mem::forget(map);
        // SAFETY: at the start of a page, so aligned; never unmapped; reached only as this atomic.
        Some(unsafe { AtomicU64::from_ptr(word.cast()) })
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Returns whether the system answers every advice with success and follows none, as qemu-user
/// does: Linux refuses this one for shared memory.
#[cfg(all(target_os = "linux", not(miri)))]
fn takes_any_advice() -> bool {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let len = size_of::<AtomicU64>();
    // SAFETY: a new mapping, which nothing refers to.
    let made = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED) };
    made.is_ok_and(|map| {
        // SAFETY: that mapping, and nothing is ever stored in it.
        let taken = unsafe { madvise(map, len, Advice::LinuxWipeOnFork) }.is_ok();
        // SAFETY: that mapping, for the last time.
        let _ = unsafe { munmap(map, len) };
        taken
    })
}

/// A value for the whole process, which a forked child makes anew: no thread of the child would
/// ever release a lock in it that a thread of the parent held at the fork.
pub(crate) struct PerProcess<T: 'static> {
    made: AtomicPtr<Made<T>>,
}

struct Made<T: 'static> {
    guard: ForkGuard,
    value: T,
    /// The parent's value. It is never freed, since a thread of the parent may have been changing
    /// it.
    _of_parent: Option<&'static Made<T>>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess { made: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the value. The first call in this process makes it by `make`; of several threads
    /// that do so at once, one succeeds.
    pub(crate) fn get(&'static self, make: impl FnOnce() -> T) -> &'static T {
        // Acquire: the value was written before the pointer to it.
        let made = self.made.load(Ordering::Acquire);
        // SAFETY: NULL, or from `Box::into_raw` and never freed once it is in `made`; only shared
        // references to it are made from then on.
        match unsafe { made.as_ref() } {
            Some(made) if !made.guard.is_of_parent() => &made.value,
            before => self.make(before, make()),
        }
    }

    #[cold]
    fn make(&'static self, before: Option<&'static Made<T>>, value: T) -> &'static T {
        let expected = before.map_or(ptr::null_mut(), |before| ptr::from_ref(before).cast_mut());
        let fresh = Made { guard: ForkGuard::new(), value, _of_parent: before };
        let fresh = Box::into_raw(Box::new(fresh));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let made = match self.made.compare_exchange(expected, fresh, success, failure) {
            Ok(_) => fresh,
            Err(others) => {
                // SAFETY: from `Box::into_raw` above, and no one else knows it.
                drop(unsafe { Box::from_raw(fresh) });
                others
            }
        };
        // SAFETY: as in `get`. Not NULL: the pointer changes only to a box.
        unsafe { &(*made).value }
    }
}
