use super::*;

use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

/// How often a caller slept on after the owner had left.
static OVERSLEPT: AtomicUsize = AtomicUsize::new(0);

/// With the planted bug nobody may wake the caller.
pub(super) fn wait_a_while<T>(lock: &Lock<T>, turns: &Turns, gate: &mut MutexGuard<'_, ()>) {
    let slept = lock.left.wait_for(gate, Duration::from_millis(20));
    if slept.timed_out() && !lock.is_inside(turns) {
        OVERSLEPT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notices when two are inside at once; not by data that a planted bug would make a race of.
#[derive(Default)]
struct Room {
    present: AtomicUsize,
    met: AtomicUsize,
    visits: AtomicU64,
}

impl Room {
    fn visit(&self) {
        if self.present.fetch_add(1, Ordering::Relaxed) != 0 {
            self.met.fetch_add(1, Ordering::Relaxed);
        }
        // Load and store: a visit is lost when two go on at once.
        self.visits.store(self.visits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.present.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take(lock: &Lock<Room>, times: u32) {
    for _ in 0..times {
        lock.lock().visit();
    }
}

/// A lock given to one thread for short runs, called back by another all the time. Returns how often two met inside, how many
/// visits were lost, and how often it was found given away.
fn crowd(rounds: u64, without_barrier: bool) -> (usize, u64, u64) {
    let lock = Lock { without_barrier, ..Lock::new(Room::default()) };
    let (visits, given, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for (run, pause) in [(20u32, 1), (1, 97)] {
            let (lock, visits, given, done) = (&lock, &visits, &given, &done);
            scope.spawn(move || {
                let mut own = 0;
                for round in 0.. {
                    if round >= rounds && done.load(Ordering::Relaxed) > 0 || round >= 50 * rounds {
                        break;
                    }
                    (0..round % pause).for_each(|_| std::hint::spin_loop());
                    take(lock, run);
                    let tried = lock.try_lock().map(|room| room.visit()).is_some();
                    own += u64::from(run) + u64::from(tried);
                    given.fetch_add(u64::from(lock.is_given()), Ordering::Relaxed);
                    if run == 1 {
                        // Given away again soon, however often it was called back.
                        lock.taken.lock().wanted = 2;
                    }
                    if round + 1 == rounds {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
                visits.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    let room = lock.lock();
    assert_eq!(room.present.load(Ordering::Relaxed), 0);
    let lost = visits.load(Ordering::Relaxed) - room.visits.load(Ordering::Relaxed);
    (room.met.load(Ordering::Relaxed), lost, given.load(Ordering::Relaxed))
}

#[test]
fn whoever_is_inside_is_alone() {
    prepare();
    let rounds = if cfg!(miri) { 20 } else { 50_000 };
    let (met, lost, given) = crowd(rounds, false);
    assert_eq!((met, lost), (0, 0));
    assert!(given > 0 || !is_prepared(), "never given away: this tested a mutex");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
fn without_the_barrier_two_meet_or_one_is_not_woken() {
    prepare();
    if !is_prepared() || thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        return println!("SKIPPED: takes two processors and the system's barrier");
    }
    let begin = Instant::now();
    let mut met = 0;
    OVERSLEPT.store(0, Ordering::Relaxed);
    while met == 0 && begin.elapsed() < Duration::from_secs(120) {
        met = crowd(2000, true).0 + OVERSLEPT.load(Ordering::Relaxed);
    }
    assert!(met > 0, "the test of this lock cannot fail");
}

#[test]
fn it_is_given_after_a_run_and_called_back_by_the_next_thread() {
    prepare();
    let lock = Lock::new(Room::default());
    take(&lock, FIRST_RUN - 1);
    assert!(!lock.is_given());
    take(&lock, 1);
    assert_eq!(lock.is_given(), is_prepared());
    take(&lock, 1000);
    thread::scope(|scope| {
        scope.spawn(|| {
            take(&lock, FIRST_RUN * GROWTH - 1);
            assert!(!lock.is_given(), "called back once, it takes longer to be given");
            take(&lock, 1);
            assert_eq!(lock.is_given(), is_prepared());
        });
    });
    // Dead owners are called back like any other.
    take(&lock, 1);
    assert!(!lock.is_given());
    assert_eq!(lock.lock().visits.load(Ordering::Relaxed), u64::from(FIRST_RUN * (1 + GROWTH)) + 1001);
}

#[test]
fn more_threads_than_can_be_owners_share_it_all_the_same() {
    prepare();
    let lock = Lock::new(Room::default());
    for thread in 0..2 * OWNERS {
        thread::scope(|scope| {
            scope.spawn(|| {
                take(&lock, 1);
                lock.taken.lock().wanted = FIRST_RUN;
                take(&lock, FIRST_RUN);
                assert_eq!(lock.is_given(), is_prepared() && thread < OWNERS);
                take(&lock, FIRST_RUN);
            });
        });
    }
    assert_eq!(lock.lock().visits.load(Ordering::Relaxed), 2 * OWNERS * u64::from(2 * FIRST_RUN + 1));
}

#[test]
fn while_one_is_inside_nobody_else_enters_not_even_itself() {
    prepare();
    let lock = Lock::new(0);
    for run in [0, FIRST_RUN] {
        (0..run).for_each(|_| *lock.lock() += 1);
        let mut inside = lock.lock();
        assert!(lock.try_lock().is_none());
        let entered = AtomicBool::new(false);
        thread::scope(|scope| {
            assert!(scope.spawn(|| lock.try_lock().is_none()).join().unwrap());
            let other = scope.spawn(|| {
                let mut content = lock.lock();
                entered.store(true, Ordering::Relaxed);
                *content += 1;
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!entered.load(Ordering::Relaxed));
            *inside += 1;
            drop(inside);
            other.join().unwrap();
        });
        assert_eq!(*lock.try_lock().unwrap(), run + 2 + if run > 0 { 2 } else { 0 });
    }
}

#[test]
fn a_panic_inside_gives_it_back() {
    prepare();
    let lock = Lock::new(Room::default());
    for run in [0, FIRST_RUN] {
        take(&lock, run);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("inside");
        }));
        assert!(panicked.is_err());
        assert!(lock.try_lock().is_some());
    }
}

/// An owner that was called back just as it left tells so although its successor is inside already, for as long as it likes.
#[test]
fn to_leave_waits_for_nobody() {
    prepare();
    let lock = Lock::new(Room::default());
    take(&lock, FIRST_RUN);
    let owner = lock.owner.load(Ordering::Relaxed);
    let (entered, left) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (lock, entered, left) = (&lock, &entered, &left);
        let successor = scope.spawn(move || {
            let _guard = lock.lock();
            entered.store(true, Ordering::Release);
            let begin = Instant::now();
            while !left.load(Ordering::Acquire) {
                assert!(begin.elapsed() < Duration::from_secs(20), "to leave waits for who is inside");
                thread::yield_now();
            }
        });
        while !entered.load(Ordering::Acquire) {
            thread::yield_now();
        }
        lock.leave(owner);
        assert!(lock.try_lock().is_none());
        left.store(true, Ordering::Release);
        successor.join().unwrap();
    });
    lock.lock().visit();
}
