//! Who waits for a message, in the order in which they came.
//!
//! A waiter has a ticket. News for a consumer wakes the waiter with the lowest ticket that was not
//! woken yet, one for each message; one that finds nothing after all (somebody was quicker who did
//! not wait) keeps its ticket, so it is served before all who came later. A waiter that was woken
//! and cannot use what is there passes the news on to one behind it: it may be short of an
//! allowance (`max_in_flight`), which one that takes messages needs not. One that goes away, with a
//! message or without, passes on what is left to the first in line.
//!
//! A producer learns that nobody waits with one relaxed load: see `Core::message_waiters`.
//!
//! Wakers are other people's code: they may call the queue, take a whole task with them when they
//! go, and the futures in that, which leave the line in turn, and panic. None is called, cloned or
//! dropped under a lock of the queue. One that panics was not woken: the next in line is, in its
//! stead, and the panic goes no further than to the panic hook. It is nothing to the thread that
//! put the message in.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread::Thread;

use parking_lot::Mutex;

use crate::threads::ready::Ready;

/// How a waiter is woken.
#[derive(Debug)]
pub(crate) enum Signal {
    Thread(Thread),
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures wait this way"))]
    Task(Waker),
}

impl Signal {
    /// False when the waker panicked.
    fn wake(self) -> bool {
        match self {
            Signal::Thread(thread) => thread.unpark(),
            Signal::Task(waker) => {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    // Dropped, it might panic again.
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
    next: u64,
    /// Each with its signal until that is taken to wake it.
    waiters: BTreeMap<Ticket, Option<Signal>>,
    /// Descriptors that are told of any news.
    ready: Vec<(u32, Arc<Ready>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    line: Mutex<Line>,
}

impl Waiters {
    /// Stands at the end of the line of the consumer in that row.
    pub(crate) fn join(&self, row: u32, signal: Signal) -> Ticket {
        let mut line = self.line.lock();
        line.next += 1;
        let ticket = (row, line.next);
        line.waiters.insert(ticket, Some(signal));
        ticket
    }

    /// Before the waiter looks: news that come from now on wake it.
    pub(crate) fn rearm(&self, ticket: Ticket, signal: Signal) {
        let mut line = self.line.lock();
        let older = line.waiters.get_mut(&ticket).and_then(|waiter| waiter.replace(signal));
        drop(line);
        drop(older);
    }

    pub(crate) fn is_woken(&self, ticket: Ticket) -> bool {
        self.line.lock().waiters.get(&ticket).is_none_or(Option::is_none)
    }

    /// Leaves the line.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let waiter = self.line.lock().waiters.remove(&ticket);
        drop(waiter);
    }

    /// So many messages came for everybody: wakes as many waiters of each consumer.
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
        drop(line);
        for (ticket, signal) in signals {
            if !signal.wake() {
                self.wake_one(ticket.0, Some(ticket));
            }
        }
    }

    /// One waiter of one consumer; with `after` one that came later than that.
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

    pub(crate) fn add_ready(&self, row: u32, ready: &Arc<Ready>) {
        self.line.lock().ready.push((row, Arc::clone(ready)));
    }

    /// Forgets a consumer's descriptor; says whether there was one.
    pub(crate) fn remove_ready(&self, row: u32) -> bool {
        let ready = &mut self.line.lock().ready;
        let before = ready.len();
        ready.retain(|(other, _)| *other != row);
        ready.len() < before
    }
}
