//! What is lock-free and small, in every order that the memory model allows:
//! `cargo test --manifest-path tests/loom/Cargo.toml`.
//!
//! The files are the product's own. Under the names that they import they find loom's atomics and
//! locks here. The worlds of `src/tests/world/` try orders of threads, one store after the other;
//! here a store may also be seen late. Loom takes an access in sequential consistency for an
//! acquire or a release, and fences for what they are.

#![cfg(test)]
#![allow(dead_code, unreachable_pub, reason = "the product uses more of these files")]

use std::cell::Cell as Local;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use format::Spot;
use references::References;
use syncs::Syncs;
use tail::SharedTail;
use waiting::{Signal, Waiters};

thread_local! {
    static PLANTED: Local<Option<&'static str>> = const { Local::new(None) };
}

macro_rules! planted {
    ($name:ident) => {
        crate::PLANTED.get() == Some(stringify!($name))
    };
}

// What a check loads would be more to try.
macro_rules! holds {
    ($($check:tt)+) => {};
}

macro_rules! check {
    ($($check:tt)+) => {};
}

mod format {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Spot {
        pub position: u64,
        pub seq: u64,
    }
}

mod tests {
    pub mod schedule {
        pub mod atomics {
            pub use loom::sync::atomic::AtomicU64;
        }
    }
}

mod threads {
    pub use loom::sync::MutexGuard;
    pub use loom::sync::atomic::{AtomicU64, fence};
    pub use loom::thread::{Thread, current, park};

    pub mod ranks {
        pub fn check_foreign_code() {}
    }

    /// A lock that no panic poisons.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(content: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(content))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub mod ready {
        #[derive(Debug)]
        pub struct Ready;

        impl Ready {
            pub fn raise(&self) {}
        }
    }
}

#[path = "../../src/memory/references.rs"]
mod references;
#[path = "../../src/index/syncs.rs"]
mod syncs;
#[path = "../../src/state/committed_tail.rs"]
mod tail;
#[path = "../../src/threads/waiting.rs"]
mod waiting;

/// The model fails with this bug.
fn finds(bug: &'static str, model: fn()) {
    PLANTED.set(Some(bug));
    let found = catch_unwind(AssertUnwindSafe(|| loom::model(model))).is_err();
    PLANTED.set(None);
    assert!(found, "nobody notices {bug}");
}

/// Writes through one reference, and gives it up; the last one reads what all have written.
fn use_and_drop(references: &References, bytes: &[Cell<u8>; 2], own: usize) {
    bytes[own].set(1);
    if references.drop_weight(1) {
        for byte in bytes {
            assert_eq!(byte.get(), 1);
        }
    }
}

#[test]
fn the_last_reference_frees_after_everything_that_was_done_through_others() {
    loom::model(|| {
        let shared = Arc::new((References::one(), [Cell::new(0), Cell::new(0)]));
        shared.0.add(1);
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || use_and_drop(&other.0, &other.1, 1));
        use_and_drop(&shared.0, &shared.1, 0);
        thread.join().unwrap();
    });
}

#[test]
fn who_sees_no_other_reference_may_write_where_others_have_read() {
    loom::model(|| {
        let shared = Arc::new((References::one(), Cell::new(0)));
        shared.0.add(1);
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            let _ = other.1.get();
            assert!(!other.0.drop_weight(1));
        });
        if shared.0.weight() == 1 {
            shared.1.set(1);
        }
        reader.join().unwrap();
    });
}

/// Two messages are published, of one byte each, numbered by tens.
fn publish_and_read() {
    let shared = Arc::new((SharedTail::default(), [Cell::new(0), Cell::new(0)]));
    let other = Arc::clone(&shared);
    let producer = thread::spawn(move || {
        for (at, byte) in other.1.iter().enumerate() {
            byte.set(1);
            let end = at as u64 + 1;
            other.0.publish(Spot { position: end, seq: 10 * end });
        }
    });
    let mut before = Spot::default();
    for _ in 0..2 {
        let spot = shared.0.spot();
        assert!(spot.seq >= 10 * spot.position, "{spot:?}");
        assert!(spot.position >= before.position && spot.seq >= before.seq, "{before:?} {spot:?}");
        for byte in &shared.1[..spot.position as usize] {
            assert_eq!(byte.get(), 1);
        }
        before = spot;
    }
    producer.join().unwrap();
}

#[test]
fn who_sees_a_position_sees_the_bytes_before_it_and_no_lower_number() {
    loom::model(publish_and_read);
    finds("PositionBeforeNumber", publish_and_read);
}

/// One thread stores a word and takes a ticket; another one syncs twice.
fn store_and_sync() {
    let shared = Arc::new((Syncs::default(), AtomicU64::new(0), AtomicU64::new(0)));
    let other = Arc::clone(&shared);
    let syncing = thread::spawn(move || {
        let (syncs, word, on_disk) = &*other;
        for _ in 0..2 {
            let number = syncs.begin();
            on_disk.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
            syncs.end(number);
        }
    });
    let (syncs, word, on_disk) = &*shared;
    word.store(1, Ordering::Relaxed);
    let ticket = syncs.ticket();
    thread::yield_now();
    if syncs.is_past(ticket) {
        assert_eq!(on_disk.load(Ordering::Relaxed), 1, "the sync did not see the word");
    }
    syncing.join().unwrap();
}

#[test]
fn a_word_is_on_the_disk_once_a_sync_later_than_its_ticket_is_done() {
    loom::model(store_and_sync);
    finds("SyncUnderWayCounts", store_and_sync);
}

/// The word of the producers' lock, with the orderings of `memory/futex.rs`. (It has no sleepers
/// here.)
#[derive(Default)]
struct LockWord(AtomicU32);

impl LockWord {
    fn lock(&self) {
        while self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            thread::yield_now();
        }
    }

    fn unlock(&self) {
        let planted = planted!(UnlockedWithoutAcquire);
        self.0.swap(0, if planted { Ordering::Release } else { Ordering::AcqRel });
    }

    fn touch(&self) {
        self.0.fetch_or(0, Ordering::AcqRel);
    }
}

/// One thread waits in line for a message as `Engine::wait` does, the other puts one in as
/// `Engine::enqueue` does.
fn wait_and_wake() {
    let shared = Arc::new((Waiters::default(), AtomicUsize::new(0), SharedTail::default()));
    let writer = Arc::new(LockWord::default());
    let (other, locked) = (Arc::clone(&shared), Arc::clone(&writer));
    let producer = thread::spawn(move || {
        let (waiters, waiting, tail) = &*other;
        locked.lock();
        tail.publish(Spot { position: 1, seq: 1 });
        let early = waiting.load(Ordering::Relaxed);
        locked.unlock();
        let is_early = planted!(LookedForWaitersWithTheLock);
        if is_early && early != 0 || !is_early && waiting.load(Ordering::Relaxed) != 0 {
            waiters.wake(1);
        }
    });
    let (waiters, waiting, tail) = &*shared;
    let signal = || Signal::Thread(threads::current());
    waiting.fetch_add(1, Ordering::SeqCst);
    if !planted!(CountedWithoutTheLock) {
        writer.touch();
    }
    let ticket = waiters.join(0, signal());
    loop {
        waiters.rearm(ticket, signal());
        if tail.spot().position > 0 {
            break;
        }
        while !waiters.is_woken(ticket) {
            threads::park();
        }
    }
    waiters.leave(ticket);
    producer.join().unwrap();
}

#[test]
fn nobody_sleeps_beside_a_message() {
    loom::model(wait_and_wake);
    finds("CountedWithoutTheLock", wait_and_wake);
    finds("UnlockedWithoutAcquire", wait_and_wake);
    finds("LookedForWaitersWithTheLock", wait_and_wake);
}
