//! The threads and futures that wait for a message, in order of arrival.
//!
//! Each waiter has a ticket. Each message wakes one waiter of a consumer: the one with the lowest
//! ticket that was not woken yet. A woken waiter that finds no message (a reader that did not wait
//! was faster) keeps its ticket, so it comes before all later ones. A woken waiter that cannot use
//! the message wakes one behind it: `max_in_flight` may stop the first one, but not a reader that
//! takes messages without acknowledgement. A waiter that leaves, with a message or without, wakes
//! the first in line when messages are left.
//!
//! A producer finds out with one relaxed load that no consumer waits (`State::message_waiters`).
//!
//! A waker is the caller's code. It may call the queue, and it may panic. Dropping it may drop a
//! whole task with futures in it, which leave the line in turn. So no thread calls, clones or drops
//! a waker under a lock of the queue. When a waker panics, the next waiter in line is woken
//! instead. The panic reaches the panic hook but not the thread that enqueued.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use crate::threads::ranks::check_foreign_code;
use crate::threads::ready::Ready;
use crate::threads::{Mutex, Thread};

/// How a waiter is woken.
#[derive(Debug)]
pub(crate) enum Signal {
    Thread(Thread),
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures wait this way"))]
    Task(Waker),
}

impl Signal {
    /// Wakes the waiter. Returns false when its waker panicked.
    fn wake(self) -> bool {
        match self {
            Signal::Thread(thread) => thread.unpark(),
            Signal::Task(waker) => {
                check_foreign_code();
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    // Forget it, since its drop might panic again.
                    std::mem::forget(panic);
                    return false;
                }
            }
        }
        true
    }
}

/// A waiter's ticket: its consumer's row, and its number in the line.
pub(crate) type Ticket = (u32, u64);

#[derive(Debug, Default)]
struct Line {
    /// The number of the last ticket.
    last: u64,
    /// The waiters in line. Waking a waiter takes its signal out.
    waiters: BTreeMap<Ticket, Option<Signal>>,
    /// Descriptors, by their consumers' rows: any news makes them readable.
    ready: Vec<(u32, Arc<Ready>)>,
}

/// The waiters of all consumers.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    line: Mutex<Line>,
}

impl Waiters {
    /// Puts a waiter at the end of the line of the consumer in `row`.
    pub(crate) fn join(&self, row: u32, signal: Signal) -> Ticket {
        let mut line = self.line.lock();
        line.last += 1;
        let ticket = (row, line.last);
        holds!(!line.waiters.contains_key(&ticket), "the ticket {ticket:?} is new");
        line.waiters.insert(ticket, Some(signal));
        ticket
    }

    /// Makes news from now on wake the waiter. The waiter calls it before it looks for a message.
    pub(crate) fn rearm(&self, ticket: Ticket, signal: Signal) {
        let mut line = self.line.lock();
        let older = line.waiters.get_mut(&ticket).and_then(|waiter| waiter.replace(signal));
        drop(line);
        drop(older);
    }

    /// Returns whether the waiter was woken since its last `rearm`.
    pub(crate) fn is_woken(&self, ticket: Ticket) -> bool {
        self.line.lock().waiters.get(&ticket).is_none_or(Option::is_none)
    }

    /// Removes the waiter from the line.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let mut line = self.line.lock();
        holds!(line.waiters.contains_key(&ticket), "who leaves the line, {ticket:?}, was in it");
        let waiter = line.waiters.remove(&ticket);
        drop(line);
        drop(waiter);
    }

    /// Wakes all waiting threads, but no future. Returns whether futures still have to be woken.
    pub(crate) fn wake_threads(&self) -> bool {
        let mut line = self.line.lock();
        for (_, ready) in &line.ready {
            ready.raise();
        }
        let (mut threads, mut futures) = (Vec::new(), false);
        for waiter in line.waiters.values_mut() {
            match waiter.take() {
                Some(Signal::Thread(thread)) => threads.push(thread),
                task => {
                    futures |= task.is_some();
                    *waiter = task;
                }
            }
        }
        drop(line);
        threads.iter().for_each(Thread::unpark);
        futures
    }

    /// Wakes up to `count` waiters of each consumer, for `count` new messages.
    pub(crate) fn wake(&self, count: u64) {
        let mut line = self.line.lock();
        for (_, ready) in &line.ready {
            ready.raise();
        }
        let mut budget = (u32::MAX, 0);
        let mut signals = Vec::new();
        for (ticket, waiter) in &mut line.waiters {
            if budget.0 != ticket.0 {
                budget = (ticket.0, count);
            }
            if budget.1 > 0
                && let Some(signal) = waiter.take()
            {
                budget.1 -= 1;
                signals.push((*ticket, signal));
            }
        }
        if !planted!(WokenUnderTheLine) {
            drop(line);
        }
        for (ticket, signal) in signals {
            if !signal.wake() {
                self.wake_one(ticket.0, Some(ticket));
            }
        }
    }

    /// Wakes one waiter of the consumer in `row`; with `after`, only one that joined later than
    /// that.
    pub(crate) fn wake_one(&self, row: u32, after: Option<Ticket>) {
        let mut from = after.map_or((row, 0), |(row, number)| (row, number + 1));
        let next = |from| {
            let mut line = self.line.lock();
            let mut waiters = line.waiters.range_mut(from..=(row, u64::MAX));
            waiters.find_map(|(ticket, waiter)| waiter.take().map(|signal| (*ticket, signal)))
        };
        while let Some((ticket, signal)) = next(from) {
            if signal.wake() {
                break;
            }
            from = (row, ticket.1 + 1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.lock().waiters.is_empty()
    }

    /// Registers a consumer's descriptor, which news from now on makes readable.
    pub(crate) fn add_ready(&self, row: u32, ready: &Arc<Ready>) {
        let mut line = self.line.lock();
        holds!(
            line.ready.iter().all(|(other, _)| *other != row),
            "the consumer in row {row} has one descriptor"
        );
        line.ready.push((row, Arc::clone(ready)));
    }

    /// Removes a consumer's descriptor. Returns false when there was none.
    pub(crate) fn remove_ready(&self, row: u32) -> bool {
        let ready = &mut self.line.lock().ready;
        let before = ready.len();
        ready.retain(|(other, _)| *other != row);
        ready.len() < before
    }
}
