//! Futures that wait for a message by a waker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::Reported::Message;
use super::{Queue, receive};
use crate::engine::{Background, Engine, reading};
use crate::error::Error;
use crate::options::Options;
use crate::tests::sim::SimStorage;
use crate::threads::waiting::Signal;

/// Counts, and then does something with the queue.
struct Counting<F>(AtomicU64, F);

impl<F: Fn() + Send + Sync + 'static> Counting<F> {
    fn new(then: F) -> Arc<Counting<F>> {
        Arc::new(Counting(AtomicU64::new(0), then))
    }

    fn signal(self: &Arc<Self>) -> Signal {
        Signal::Task(Waker::from(Arc::clone(self)))
    }

    fn woken(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<F: Fn() + Send + Sync> Wake for Counting<F> {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        (self.1)();
    }
}

#[test]
fn whoever_cannot_use_the_news_passes_them_on_also_when_it_goes() {
    for goes in [false, true] {
        let queue = Queue::new(Options::new().arena_size(64 << 10));
        let (engine, consumer) = (&queue.engine, &queue.consumer());
        engine.set_max_in_flight(consumer, Some(1)).unwrap();
        queue.put(0..1);
        let handed = receive(engine, consumer);
        let (blocked, other, last) =
            (Counting::new(|| ()), Counting::new(|| ()), Counting::new(|| ()));
        let first = engine.join(consumer, blocked.signal());
        let second = engine.join(consumer, other.signal());
        let third = engine.join(consumer, last.signal());
        let counts = || [blocked.woken(), other.woken(), last.woken()];
        queue.put(1..2);
        assert_eq!(counts(), [1, 0, 0]);
        // It looks, is short of an allowance, and waits on or goes.
        engine.core.waiters.rearm(first, blocked.signal());
        assert!(engine.receive(consumer, reading::AsMessage).unwrap().is_none());
        if goes {
            engine.leave(consumer, first)
        } else {
            engine.pass_on(consumer, Some(first))
        }
        assert_eq!(counts(), [1, 1, 0], "{goes}");
        // So does the one behind it, who would rather go.
        engine.leave(consumer, second);
        assert_eq!(counts(), if goes { [1, 1, 1] } else { [2, 1, 0] });
        if !goes {
            engine.pass_on(consumer, Some(first));
            engine.leave(consumer, first);
            assert_eq!(counts(), [2, 1, 1]);
        }
        // Nothing is left: nobody is woken.
        engine.core.waiters.rearm(third, last.signal());
        assert_eq!(queue.take(), Message(1));
        engine.pass_on(consumer, None);
        assert_eq!(last.woken(), 1);
        engine.leave(consumer, third);
        engine.ack(consumer, 0, handed).unwrap();
        assert_eq!(engine.core.message_waiters.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_asleep() {
    let queue = Queue::new(Options::new().arena_size(64 << 10));
    let (engine, consumer) = (&queue.engine, &queue.consumer());
    let panics = || Counting::new(|| std::panic::resume_unwind(Box::new("a waker")));
    let (first, second, third) = (panics(), Counting::new(|| ()), Counting::new(|| ()));
    let last = panics();
    let mut tickets = vec![engine.join(consumer, first.signal())];
    tickets.push(engine.join(consumer, panics().signal()));
    tickets.push(engine.join(consumer, second.signal()));
    tickets.push(engine.join(consumer, third.signal()));
    tickets.push(engine.join(consumer, last.signal()));
    queue.put(0..1);
    assert_eq!(
        (first.woken(), second.woken(), third.woken()),
        (1, 1, 0),
        "one message, one waiter that can take it"
    );
    engine.enqueue_batch(&[b"a", b"b"]).unwrap();
    assert_eq!((third.woken(), last.woken()), (1, 1));
    queue.engine.close().unwrap();
    assert!(tickets.iter().all(|ticket| engine.core.waiters.is_woken(*ticket)));
}

/// Whatever a waker does with the queue, it holds none of its locks.
#[test]
fn a_waker_may_call_the_queue() {
    for every in [None, Some(1), Some(2)] {
        for background in [Background::Calls, Background::Workers] {
            let period = (background == Background::Workers).then_some(Duration::from_millis(1));
            let options =
                Options::new().arena_size(64 << 10).flush_every_ops(every).flush_every(period);
            let storage = SimStorage::new(3).with_file_capacity(4 << 20);
            let engine = Arc::new(Engine::open_with(storage, &options, background).unwrap());
            let consumer = engine.consumer("c").unwrap();
            let calls = {
                let (engine, consumer) = (Arc::downgrade(&engine), Arc::clone(&consumer));
                let names = AtomicU64::new(0);
                move || {
                    let engine = engine.upgrade().unwrap();
                    let name = format!("{}", names.fetch_add(1, Ordering::Relaxed));
                    let closed = engine.core.check_readable().is_err();
                    let durable = engine.core.durable.lock().spot.seq;
                    let calls = [
                        engine.core.flush_to(engine.core.committed_spot()),
                        engine.core.flush(),
                        engine.fork(&consumer, &name).map(drop),
                        engine.seek(&consumer, durable.min(consumer.seq())),
                        engine.set_max_in_flight(&consumer, Some(3)),
                        engine.receive(&consumer, reading::AsMessage).map(drop),
                        engine.remove_consumer(&name),
                    ];
                    for call in calls.iter().skip(usize::from(closed)) {
                        assert!(
                            matches!((closed, call), (false, Ok(())) | (true, Err(Error::Closed))),
                            "{call:?}"
                        );
                    }
                    _ = (engine.ready_fd(&consumer).unwrap(), engine.stats());
                }
            };
            let failed = Arc::new(Mutex::new(None));
            let returned = Arc::new(AtomicU64::new(0));
            let waker = {
                let (failed, returned) = (Arc::clone(&failed), Arc::clone(&returned));
                Counting::new(move || {
                    if let Err(panic) =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(&calls))
                    {
                        *failed.lock().unwrap() =
                            panic.downcast_ref::<String>().cloned().or(Some("panicked".into()));
                    }
                    returned.fetch_add(1, Ordering::SeqCst);
                })
            };
            let ticket = engine.join(&consumer, waker.signal());
            // (The delivery worker may be the one that calls it.)
            let rearm = |woken| {
                let began = std::time::Instant::now();
                while returned.load(Ordering::SeqCst) < woken
                    && began.elapsed() < Duration::from_secs(60)
                {
                    std::thread::yield_now();
                }
                engine.core.waiters.rearm(ticket, waker.signal());
            };
            engine.enqueue(b"a").unwrap();
            rearm(1);
            engine.enqueue_batch(&[b"b", b"c"]).unwrap();
            rearm(2);
            engine.set_max_in_flight(&consumer, None).unwrap();
            rearm(3);
            engine.close().unwrap();
            assert_eq!(
                (failed.lock().unwrap().take(), waker.woken()),
                (None, 4),
                "{every:?}, {background:?}"
            );
            engine.leave(&consumer, ticket);
        }
    }
}
