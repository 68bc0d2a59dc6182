//! How a life ended, and what breaks a promise.

use crate::tests::sim::{Rng, SimStorage};

/// Nothing, or the promise that is broken.
pub(super) type Check<T = ()> = Result<T, String>;

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use ensure;

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// The process; or in order, which is the same to who reads on.
    Kill,
    /// As `Kill`, and what comes next sees the directory in another mount namespace.
    KillElsewhere,
    /// The machine lost power, and what was not synced is there as this seed says.
    Cut(u64),
    /// As `Cut`, but it was the file system alone that failed: the boot is the same.
    Remount(u64),
}

impl Death {
    pub(super) fn draw(rng: &mut Rng) -> Death {
        match rng.below(20) {
            0..9 => Death::Kill,
            9 => Death::KillElsewhere,
            10 => Death::Remount(rng.next()),
            _ => Death::Cut(rng.next()),
        }
    }

    /// Bytes that were not synced may be lost.
    pub(super) fn is_cut(self) -> bool {
        matches!(self, Death::Cut(_) | Death::Remount(_))
    }

    /// What it leaves of a disk.
    pub(super) fn of(self, disk: &SimStorage) -> SimStorage {
        match self {
            Death::Kill => disk.process_kill(),
            Death::KillElsewhere => disk.seen_elsewhere(),
            Death::Cut(seed) => disk.power_cut(seed),
            Death::Remount(seed) => disk.mounted_again(seed),
        }
    }
}
