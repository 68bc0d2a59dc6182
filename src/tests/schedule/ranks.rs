//! The order of locks, looked at whenever a lock with a rank is taken: see `crate::threads::ranks`.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use super::is_scheduled;
use super::locks::Mutex;
use crate::threads::ranks::Rank;

/// A lock that the thread holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    key: usize,
    rank: Rank,
    at: &'static Location<'static>,
}

thread_local! {
    static RETAINED_FROM: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
    /// The locks below are those of a queue that the test holds while it calls another one.
    static FROM: Cell<usize> = const { Cell::new(0) };
    static IS_STORAGE_WORKER: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn ranked<T>(rank: Rank, value: T) -> Mutex<T> {
    Mutex::with_rank(rank, value)
}

/// What the thread holds of the queue that it is in. (A thread that unwinds, or whose locals are
/// gone, is not looked at.)
fn held() -> Vec<Held> {
    if std::thread::panicking() {
        return Vec::new();
    }
    RETAINED_FROM.try_with(|held| held.borrow()[FROM.get()..].to_vec()).unwrap_or_default()
}

/// Fails the test, whichever thread this is.
#[track_caller]
pub(crate) fn refuse(what: &str) -> ! {
    let held: Vec<String> =
        held().iter().map(|held| format!("{:?} since {}", held.rank, held.at)).collect();
    let text = format!("{what} at {}; the thread holds {held:?}", Location::caller());
    let name = std::thread::current().name().map(str::to_owned).unwrap_or_default();
    if !is_scheduled() && name.starts_with("mmq-") {
        // A panic would end a worker, and not the test.
        eprintln!("{text}\n{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }
    panic!("{text}");
}

/// Before a thread waits for a lock.
#[track_caller]
pub(super) fn check(rank: Rank) {
    let held = held();
    let has_registry = held.iter().any(|held| held.rank == Rank::Registry);
    let may = |held: &Held| {
        held.rank < rank || has_registry && rank == Rank::Consumer && held.rank == rank
    };
    if !held.iter().all(may) {
        refuse(&format!("{rank:?} is taken out of order"));
    }
    let is_waited_for = IS_STORAGE_WORKER.try_with(Cell::get).unwrap_or(false);
    if is_waited_for && rank <= Rank::Producers && !std::thread::panicking() {
        refuse(&format!("the storage worker waits for {rank:?}"));
    }
}

/// The thread holds the lock.
pub(super) fn push(key: usize, rank: Rank, at: &'static Location<'static>) {
    let _ = RETAINED_FROM.try_with(|held| held.borrow_mut().push(Held { key, rank, at }));
}

pub(super) fn pop(key: usize) {
    let _ = RETAINED_FROM.try_with(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = held.iter().rposition(|held| held.key == key) {
            held.remove(at);
        }
    });
}

#[track_caller]
pub(crate) fn check_foreign_code() {
    if !held().is_empty() {
        refuse("code of the program's runs");
    }
    if IS_STORAGE_WORKER.try_with(Cell::get).unwrap_or(false) {
        refuse("the storage worker runs code of the program's");
    }
}

#[track_caller]
pub(crate) fn check_wait_for_storage_worker() {
    if held().iter().any(|held| held.rank > Rank::Producers) {
        refuse("a thread waits for the storage worker");
    }
}

pub(crate) fn enter_storage_worker() {
    IS_STORAGE_WORKER.set(true);
}

/// While it lives the thread may call other queues: a test holds a queue's lock.
#[derive(Debug)]
pub(crate) struct OtherQueues(usize);

pub(crate) fn other_queues() -> OtherQueues {
    OtherQueues(FROM.replace(RETAINED_FROM.with_borrow(Vec::len)))
}

impl Drop for OtherQueues {
    fn drop(&mut self) {
        FROM.set(self.0);
    }
}

#[test]
fn a_lock_that_is_taken_out_of_order_ends_the_test() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let [list, consumer, other] =
        [Rank::Segments, Rank::Consumer, Rank::Consumer].map(|rank| ranked(rank, ()));
    let registry = ranked(Rank::Registry, ());
    let panics = |what: &dyn Fn()| catch_unwind(AssertUnwindSafe(what)).is_err();
    assert!(!panics(&|| drop((consumer.lock(), list.lock()))));
    assert!(panics(&|| {
        let _list = list.lock();
        drop(consumer.lock());
    }));
    assert!(panics(&|| {
        let _one = consumer.lock();
        drop(other.lock());
    }));
    assert!(!panics(&|| {
        let _registry = registry.lock();
        let _one = consumer.lock();
        drop(other.lock());
    }));
    // A try waits for nobody.
    assert!(!panics(&|| {
        let _list = list.lock();
        drop(consumer.try_lock());
    }));
    assert!(panics(&|| {
        let _one = consumer.lock();
        check_foreign_code();
    }));
    assert!(!panics(&|| {
        let _one = consumer.lock();
        let _other = other_queues();
        drop(other.lock());
    }));
    assert!(panics(&|| {
        let _list = list.lock();
        check_wait_for_storage_worker();
    }));
    let worker = std::thread::spawn(move || {
        enter_storage_worker();
        drop(list.lock());
        drop(consumer.try_lock());
        drop(consumer.lock());
    });
    assert!(worker.join().is_err());
}
