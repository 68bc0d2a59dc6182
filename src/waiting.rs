//! Who waits for a message, in the order in which they came.
//!
//! A waiter has a ticket. News for a consumer wakes the waiter with the lowest ticket that was not woken yet, one for each
//! message; one that finds nothing after all (somebody was quicker who did not wait) keeps its ticket, so it is served before
//! all who came later. A waiter that was woken and goes away with nothing passes the news on.
//!
//! A producer learns that nobody waits with one relaxed load: see `Shared::message_waiters`.
//!
//! A waker that goes may take a whole task with it, and the futures in that, which leave the line in turn: none is dropped
//! under the line's lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::thread::Thread;

use parking_lot::Mutex;

use crate::ready::Ready;

/// How a waiter is woken.
#[derive(Debug, Clone)]
pub(crate) enum Signal {
    Thread(Thread),
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures wait this way"))]
    Task(Waker),
}

impl Signal {
    fn wake(self) {
        match self {
            Signal::Thread(thread) => thread.unpark(),
            Signal::Task(waker) => waker.wake(),
        }
    }
}

/// A waiter's ticket: its consumer's row, and its number in the line.
pub(crate) type Ticket = (u32, u64);

#[derive(Debug)]
struct Waiter {
    signal: Signal,
    woken: bool,
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    waiters: BTreeMap<Ticket, Waiter>,
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
        line.waiters.insert(ticket, Waiter { signal, woken: false });
        ticket
    }

    /// Before the waiter looks: news that come from now on wake it.
    pub(crate) fn rearm(&self, ticket: Ticket, signal: Option<Signal>) {
        let mut line = self.line.lock();
        let older = line.waiters.get_mut(&ticket).and_then(|waiter| {
            waiter.woken = false;
            signal.map(|signal| std::mem::replace(&mut waiter.signal, signal))
        });
        drop(line);
        drop(older);
    }

    pub(crate) fn is_woken(&self, ticket: Ticket) -> bool {
        self.line.lock().waiters.get(&ticket).is_none_or(|waiter| waiter.woken)
    }

    /// Leaves the line; says whether news had come that it may not have looked at.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        let waiter = self.line.lock().waiters.remove(&ticket);
        waiter.is_some_and(|waiter| waiter.woken)
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
            if waiter.woken {
                continue;
            }
            if budget.1 > 0 {
                budget.1 -= 1;
                waiter.woken = true;
                signals.push(waiter.signal.clone());
            }
        }
        drop(line);
        signals.into_iter().for_each(Signal::wake);
    }

    /// One waiter of one consumer; with `after` one that came later than that.
    pub(crate) fn wake_one(&self, row: u32, after: Option<Ticket>) {
        let from = after.map_or((row, 0), |(row, number)| (row, number + 1));
        let signal = {
            let mut line = self.line.lock();
            let waiter = line.waiters.range_mut(from..=(row, u64::MAX)).map(|(_, waiter)| waiter).find(|w| !w.woken);
            waiter.map(|waiter| {
                waiter.woken = true;
                waiter.signal.clone()
            })
        };
        if let Some(signal) = signal {
            signal.wake();
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
