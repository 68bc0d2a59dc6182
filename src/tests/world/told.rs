//! How a life ended, and what breaks a promise.

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
    /// The machine lost power, and what was not synced is there as this seed says.
    Cut(u64),
}
