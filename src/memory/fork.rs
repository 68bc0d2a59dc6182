//! Whether this process is a forked child of the one that opened the queue.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Tells the process that made it from children forked later, which share the queue's files but
/// none of its threads and locks. A guard that a child makes itself works there.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    /// A word that is zero in a forked child until that child makes a guard. Where the system
    /// cannot wipe memory on fork: [`NO_WORD`].
    word: &'static AtomicU64,
    /// The word's value in this process, or the process id where there is no word.
    token: u64,
}

/// Stands for a word that differs from every token.
static NO_WORD: AtomicU64 = AtomicU64::new(u64::MAX);

impl ForkGuard {
    pub(crate) fn new() -> ForkGuard {
        // A child's copy of `NEXT` goes on from its parent's value: their tokens differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
        let Some(word) = *WORD.get_or_init(word_wiped_on_fork) else {
            return ForkGuard::by_process_id();
        };
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        let token = match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(present) => present,
        };
        ForkGuard { word, token }
    }

    pub(super) fn by_process_id() -> ForkGuard {
        ForkGuard { word: &NO_WORD, token: u64::from(std::process::id()) }
    }

    /// Whether this process is a child, forked after the guard was made. One load where the system
    /// wipes memory on fork.
    #[inline(always)]
    pub(crate) fn forked(&self) -> bool {
        // Relaxed: within one process the word changes once, before there is a guard.
        (self.word.load(Ordering::Relaxed) != self.token && self.is_other()) || is_unwound()
    }

    /// Whether this is another process, when the word is not the token.
    #[cold]
    fn is_other(&self) -> bool {
        !std::ptr::eq(self.word, &NO_WORD) || self.token != u64::from(std::process::id())
    }
}

/// A process of a simulation has died: what its threads drop changes nothing any more.
#[inline(always)]
fn is_unwound() -> bool {
    #[cfg(test)]
    {
        std::thread::panicking() && crate::tests::schedule::is_dead()
    }
    #[cfg(not(test))]
    false
}

#[cold]
fn word_wiped_on_fork() -> Option<&'static AtomicU64> {
    // Miri forks nothing and knows no madvise.
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use rustix::mm::{Advice, madvise};
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
