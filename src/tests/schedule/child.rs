//! A thread that plays a forked child for a while: the queues that it has inherited take it for
//! one. There a lock may be held for ever, by a thread that the child does not have, so whoever
//! waits for a lock meanwhile ends the test.

use std::cell::Cell;
use std::panic::Location;

thread_local! {
    static IS_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread plays a forked child.
pub(crate) fn is_child() -> bool {
    IS_CHILD.try_with(Cell::get).unwrap_or(false)
}

/// Does `work` as a forked child of the process would.
pub(crate) fn as_child<R>(work: impl FnOnce() -> R) -> R {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            IS_CHILD.set(false);
        }
    }
    IS_CHILD.set(true);
    let _ends = Ends;
    work()
}

/// Before a thread waits for a lock.
#[track_caller]
pub(super) fn check() {
    assert!(
        !is_child() || std::thread::panicking(),
        "a forked child takes a lock at {}",
        Location::caller()
    );
}
