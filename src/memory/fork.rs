//! Whether this process is a forked child of the one that opened the queue.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Tells the process it was made in from the children forked later, which share the queue's files
/// but none of its threads and locks. A child that makes its own finds it whole.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    /// A word that is zero in every forked child until somebody there asks; none where the system
    /// cannot do that.
    pub(super) word: Option<&'static AtomicU64>,
    /// The word's value here, or else the process id.
    pub(super) token: u64,
}

impl ForkGuard {
    pub(crate) fn new() -> ForkGuard {
        // A child's copy goes on where its parent's stood, so no token is used on both sides.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
        let word = *WORD.get_or_init(word_wiped_on_fork);
        let token = match word {
            Some(word) => {
                let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
                match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => fresh,
                    Err(present) => present,
                }
            }
            None => u64::from(std::process::id()),
        };
        ForkGuard { word, token }
    }

    /// Whether this is a child forked from the guard's process; one load where the system wipes
    /// memory on fork.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        // Relaxed: within one process the word changes once, before there is a guard.
        let now = match self.word {
            Some(word) => word.load(Ordering::Relaxed),
            None => u64::from(std::process::id()),
        };
        now != self.token
    }
}

#[cold]
fn word_wiped_on_fork() -> Option<&'static AtomicU64> {
    // Miri forks nothing and knows no madvise.
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use rustix::mm::{Advice, madvise};
        let map = MmapRaw::from(MmapOptions::new().len(size_of::<AtomicU64>()).map_anon().ok()?);
        let word = map.as_mut_ptr();
        // SAFETY: the page belongs to `map`, is private and anonymous as the advice demands, and
        // does not change in this process.
        unsafe { madvise(word.cast(), map.len(), Advice::LinuxWipeOnFork) }.ok()?;
        std::mem::forget(map);
        // SAFETY: mapped at the start of a page, never unmapped from here on, and reached as this
        // atomic only.
        Some(unsafe { AtomicU64::from_ptr(word.cast()) })
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}
