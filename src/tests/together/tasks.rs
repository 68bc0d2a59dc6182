//! Futures that wait for room, or for a flush: whatever the order of steps, the wake-up is not
//! lost. Here they look only when they are woken (`Space::looks_only_when_woken`), not now and then
//! as well: a future that is not woken waits for ever, and the schedule is stuck.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::{Queue, go, open, plan, small, under};
use crate::consume::step::Read;
use crate::engine::{Background, reading};
use crate::error::{Error, Result};
use crate::futures::Enqueuing;
use crate::options::OnFull;
use crate::tests::mutants::Mutant;
use crate::tests::schedule;
use crate::tests::sim::{SimStorage, forget_meanwhile, meanwhile};
use crate::threads::{self, JoinHandle, Thread};

/// One fills a segment.
const MESSAGE: [u8; 6000] = [1; 6000];

struct Waking {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// A future on the thread that polls it.
pub(in crate::tests) struct Task<M = [u8; 6000]> {
    future: Enqueuing<M, SimStorage>,
    waking: Arc<Waking>,
}

impl Task {
    fn new(queue: &Queue) -> Task {
        Task::of(Enqueuing::new(queue, MESSAGE, None))
    }
}

impl<M: AsRef<[u8]>> Task<M> {
    pub(in crate::tests) fn of(future: Enqueuing<M, SimStorage>) -> Task<M> {
        let waking = Waking { thread: threads::current(), is_woken: AtomicBool::new(false) };
        Task { future, waking: Arc::new(waking) }
    }

    fn poll(&mut self) -> Poll<Result<u64>> {
        self.waking.is_woken.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.waking));
        self.future.poll_enqueued(&Context::from_waker(&waker))
    }

    fn wait(&self) {
        while !self.waking.is_woken.load(Ordering::SeqCst) {
            threads::park();
        }
    }

    pub(in crate::tests) fn end(mut self) -> Result<u64> {
        loop {
            if let Poll::Ready(outcome) = self.poll() {
                return outcome;
            }
            self.wait();
        }
    }
}

/// How a thread's future ended.
type Ended = Arc<Mutex<Option<Result<u64>>>>;

fn go_until_it_ends(
    name: &str,
    task: impl FnOnce() -> Task + Send + 'static,
) -> (JoinHandle, Ended) {
    let ended = Ended::default();
    let into = Arc::clone(&ended);
    let putter = go(name, move || {
        let outcome = task().end();
        *into.lock().unwrap() = Some(outcome);
    });
    (putter, ended)
}

/// A thread that enqueues by a future.
fn putter(name: &str, queue: &Queue) -> (JoinHandle, Ended) {
    let queue = Arc::clone(queue);
    go_until_it_ends(name, move || Task::new(&queue))
}

fn outcome((putter, ended): (JoinHandle, Ended)) -> Result<u64> {
    putter.join();
    ended.lock().unwrap().take().expect("it has ended")
}

/// A queue without room, for which a producer waits for as long as it takes.
fn full(background: Background) -> Queue {
    let queue = open(&small(4).on_full(OnFull::Wait(None)), background);
    queue.core.space.looks_only_when_woken.store(true, Ordering::SeqCst);
    queue.consumer("c").unwrap();
    while queue.offer(&MESSAGE).is_ok() {}
    queue
}

/// A queue in which the next message that is taken makes room.
fn full_until_a_take(background: Background) -> Queue {
    let queue = full(background);
    while queue.offer(&MESSAGE).is_err() {
        take(&queue).unwrap();
    }
    while queue.offer(&MESSAGE).is_ok() {}
    queue
}

/// Takes the next message, and says which it was.
fn take(queue: &Queue) -> Option<u64> {
    let consumer = queue.consumer("c").unwrap();
    reading::next(queue, &consumer, Read::Take).unwrap().map(|message| message.seq())
}

fn room_comes(background: Background) {
    let queue = full_until_a_take(background);
    let putter = putter("putter", &queue);
    take(&queue).unwrap();
    outcome(putter).unwrap();
    assert!(queue.core.tasks.for_room.is_empty());
}

/// Who is woken for room finds that another one was quicker, and is woken again.
fn room_comes_for_three(background: Background) {
    let queue = full(background);
    let putters = ["1", "2", "3"].map(|name| putter(name, &queue));
    while take(&queue).is_some() {}
    for putter in putters {
        outcome(putter).unwrap();
    }
    assert!(queue.core.tasks.for_room.is_empty());
}

/// Room comes right behind the future's look for it. No worker could wake it, so it waits for a
/// moment by itself, and knows that there is room already.
#[test]
fn a_future_without_a_worker_does_not_wait_beside_room() {
    let program = || {
        let queue = full_until_a_take(Background::Calls);
        let taker = Arc::clone(&queue);
        meanwhile("behind a future's look for room", move || {
            take(&taker).unwrap();
        });
        Task::new(&queue).end().unwrap();
        assert!(!forget_meanwhile(), "it looked when it was in line");
    };
    assert_eq!(schedule::run(plan(0), program).failure, None);
}

/// Space that is too little for it wakes a future, too.
fn news_come_before_room(background: Background) {
    let queue = full_until_a_take(background);
    let putter = putter("putter", &queue);
    schedule::wait_until_quiet();
    queue.core.wake_writers();
    take(&queue).unwrap();
    outcome(putter).unwrap();
}

fn the_queue_is_closed(background: Background) {
    let queue = full(background);
    let putter = putter("putter", &queue);
    queue.close().unwrap();
    let outcome = outcome(putter);
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    assert!(queue.core.tasks.for_room.is_empty());
}

/// The future was made before the interrupt, and is perhaps polled behind it.
fn it_is_interrupted(background: Background) {
    let queue = full(background);
    let (len, future) = (queue.len(), Enqueuing::new(&queue, MESSAGE, None));
    let putter = go_until_it_ends("putter", move || Task::of(future));
    if (schedule::seed() / 20).is_multiple_of(2) {
        // It looks once more meanwhile.
        schedule::wait_until_quiet();
        queue.core.wake_writers();
    }
    queue.core.interrupt();
    let outcome = outcome(putter);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    assert_eq!(queue.len(), len, "it had put nothing in");
}

/// One is dropped, at once or when it is woken; another one waits.
fn one_of_two_is_dropped(background: Background) {
    let queue = full(background);
    let dropper = {
        let queue = Arc::clone(&queue);
        go("dropper", move || {
            let mut task = Task::new(&queue);
            if task.poll().is_pending() && schedule::seed().is_multiple_of(2) {
                task.wait();
            }
        })
    };
    let putter = putter("putter", &queue);
    while take(&queue).is_some() {}
    outcome(putter).unwrap();
    dropper.join();
    assert!(queue.core.tasks.for_room.is_empty());
}

/// Nobody waits beside room: the first one gets it, and the second one what comes then.
fn there_is_room_for_one_of_two(background: Background) {
    let queue = full(background);
    let putters = [putter("1", &queue), putter("2", &queue)];
    let mut taken = Vec::new();
    let has_ended = |(_, ended): &(JoinHandle, Ended)| ended.lock().unwrap().is_some();
    loop {
        schedule::wait_until_quiet();
        if putters.iter().all(has_ended) {
            break;
        }
        assert!(queue.offer(&MESSAGE).is_err(), "a future waits beside room");
        taken.push(take(&queue).unwrap());
    }
    let mut seqs = putters.map(|putter| outcome(putter).unwrap());
    seqs.sort_unstable();
    taken.extend(std::iter::from_fn(|| take(&queue)));
    assert!(taken.ends_with(&seqs), "{seqs:?} were put in, and {taken:?} came");
}

/// Each is ready once its message is durable.
fn both_wait_for_a_flush(background: Background) {
    let queue = open(&small(9).flush_every_ops(1), background);
    let putters = ["1", "2"].map(|name| {
        let queue = Arc::clone(&queue);
        go(name, move || {
            let seq = Task::new(&queue).end().unwrap();
            let durable = queue.core.durable.lock().spot.seq;
            assert!(seq < durable, "{seq} is reported, and {durable} is not durable");
        })
    });
    putters.into_iter().for_each(JoinHandle::join);
    assert!(queue.core.tasks.for_flush.is_empty());
}

/// An interrupt comes at any step of a future that enqueues and flushes. Where it says that nothing
/// was changed, nothing is in the queue.
fn its_flush_is_interrupted(background: Background) {
    let queue = open(&small(9).flush_every_ops(1), background);
    let putter = putter("putter", &queue);
    for _ in 0..6 {
        queue.core.interrupt();
        threads::now();
    }
    let outcome = outcome(putter);
    let held = queue.core.committed_spot().seq;
    assert!(
        matches!((&outcome, held), (Ok(0), 1) | (Err(Error::Interrupted), 0)),
        "{outcome:?}, and {held} are held"
    );
}

#[test]
fn an_interrupt_ends_no_flush_of_a_message_that_is_put_in() {
    under_both(100, its_flush_is_interrupted);
}

type Program = fn(Background);

fn under_both(schedules: u64, program: Program) {
    for background in [Background::Workers, Background::Calls] {
        under(schedules, move || program(background));
    }
}

#[test]
fn a_future_is_woken_when_room_comes() {
    under_both(200, room_comes);
    under_both(200, room_comes_for_three);
    under_both(200, news_come_before_room);
}

#[test]
fn a_future_is_woken_when_the_queue_is_closed() {
    under_both(100, the_queue_is_closed);
}

#[test]
fn a_future_that_waits_for_room_is_interrupted() {
    under_both(100, it_is_interrupted);
}

#[test]
fn a_future_that_is_dropped_keeps_no_news_from_others() {
    under_both(200, one_of_two_is_dropped);
}

#[test]
fn of_two_futures_one_gets_the_room_and_the_other_the_next() {
    under_both(100, there_is_room_for_one_of_two);
}

#[test]
fn futures_wait_for_flushes_and_are_woken() {
    under_both(100, both_wait_for_a_flush);
}

#[test]
fn bugs_that_are_planted_in_futures_are_found() {
    let bugs: [(Mutant, Program); 2] = [
        (Mutant::RearmedAfterTheLook, it_is_interrupted),
        (Mutant::RoomLookedForOnce, it_is_interrupted),
    ];
    let mut missed = Vec::new();
    for (mutant, program) in bugs {
        Mutant::plant(Some(mutant));
        let run = |seed: u64| schedule::run(plan(seed), move || program(Background::Workers));
        let at = (0..30000).find(|seed| run(*seed).failure.is_some());
        Mutant::plant(None);
        println!("{mutant:?} is found by schedule {at:?}");
        if at.is_none() {
            missed.push(mutant);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
