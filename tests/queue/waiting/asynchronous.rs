//! Futures and streams, under two executors.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;

use super::*;

/// Any executor that runs one future to its end.
type Run = fn(Pin<Box<dyn Future<Output = ()> + Send>>);

fn executors() -> Vec<(&'static str, Run)> {
    vec![
        ("pollster", |future| pollster::block_on(future)),
        ("futures-executor", |future| futures_executor::block_on(future)),
        ("futures-executor, pool of one", |future| {
            let mut pool = futures_executor::LocalPool::new();
            pool.run_until(future);
        }),
    ]
}

async fn next(
    stream: &mut (impl Stream<Item = mmq::Result<mmq::Message>> + Unpin),
) -> Option<mmq::Result<mmq::Message>> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

#[test]
fn messages_are_received_under_every_executor() {
    within(Duration::from_secs(60), || {
        for (name, run) in executors() {
            let (_dir, queue) = open();
            let queue = Arc::new(queue);
            let sender = Arc::clone(&queue);
            let thread = std::thread::spawn(move || {
                for sent in 0..2000u64 {
                    sender.enqueue(sent.to_le_bytes()).unwrap();
                    if sent % 100 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
            let consumer = queue.consumer("deliveries").unwrap();
            run(Box::pin(async move {
                for wanted in 0..1000 {
                    assert_eq!(queue.recv().await.unwrap().seq(), wanted, "{name}");
                }
                let mut messages = queue.messages();
                for wanted in 1000..2000 {
                    assert_eq!(next(&mut messages).await.unwrap().unwrap().seq(), wanted, "{name}");
                }
                for wanted in 0..2000 {
                    let delivery = consumer.recv_delivery().await.unwrap();
                    assert_eq!(delivery.seq(), wanted);
                    delivery.ack().unwrap();
                }
            }));
            thread.join().unwrap();
        }
    });
}

struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_dropped_future_changes_nothing_and_passes_its_wake_on() {
    let (_dir, queue) = open();
    let wakes: Vec<Arc<Counting>> =
        (0..2).map(|_| Arc::new(Counting(AtomicUsize::new(0)))).collect();
    let wakers: Vec<Waker> = wakes.iter().map(|wake| Waker::from(Arc::clone(wake))).collect();
    let (mut first, mut second) = (queue.recv(), queue.recv());
    assert!(poll(&mut first, &wakers[0]).is_pending());
    assert!(poll(&mut second, &wakers[1]).is_pending());
    queue.enqueue("a").unwrap();
    assert_eq!(
        (wakes[0].0.load(Ordering::SeqCst), wakes[1].0.load(Ordering::SeqCst)),
        (1, 0),
        "the first in line"
    );
    drop(first);
    assert_eq!(wakes[1].0.load(Ordering::SeqCst), 1, "the next one is woken");
    assert_eq!(queue.len(), 1, "nothing was taken");
    assert!(
        matches!(poll(&mut second, &wakers[1]), Poll::Ready(Ok(message)) if message.seq() == 0)
    );
    drop(queue.recv());
    let mut never = queue.recv();
    assert!(poll(&mut never, &wakers[0]).is_pending());
    drop(never);
    queue.enqueue("b").unwrap();
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 1);
}

/// In the line of waiters, one that waits for a delivery and has no allowance left stands before
/// one that may take the message.
#[test]
fn a_future_that_may_have_no_more_passes_its_wake_on() {
    for end in ["polled", "dropped", "woken and dropped"] {
        let (_dir, queue) = open();
        queue.set_max_in_flight(1).unwrap();
        queue.enqueue("in flight").unwrap();
        let held = queue.receive().unwrap();
        let wakes: Vec<Arc<Counting>> =
            (0..2).map(|_| Arc::new(Counting(AtomicUsize::new(0)))).collect();
        let wakers: Vec<Waker> = wakes.iter().map(|wake| Waker::from(Arc::clone(wake))).collect();
        let (mut first, mut second) = (queue.recv_delivery(), queue.recv());
        let mut kept = None;
        assert!(poll(&mut first, &wakers[0]).is_pending());
        assert!(poll(&mut second, &wakers[1]).is_pending());
        if end == "dropped" {
            drop(first);
            queue.enqueue("a").unwrap();
        } else {
            queue.enqueue("a").unwrap();
            assert_eq!(wakes[0].0.load(Ordering::SeqCst), 1, "the first in line");
            assert!(end != "polled" || poll(&mut first, &wakers[0]).is_pending());
            if end != "polled" {
                drop(first);
            } else {
                // It stands in line still.
                kept = Some(first);
            }
        }
        assert_eq!(wakes[1].0.load(Ordering::SeqCst), 1, "{end}: the next one is woken");
        assert!(
            matches!(poll(&mut second, &wakers[1]), Poll::Ready(Ok(message)) if message.seq() == 1)
        );
        drop((held, kept));
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_asleep_and_is_nothing_to_the_producer() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a waker"));
        }
    }
    let (_dir, queue) = open();
    let (mut first, mut second) = (queue.recv(), queue.recv());
    let woken = Arc::new(Counting(AtomicUsize::new(0)));
    assert!(poll(&mut first, &Waker::from(Arc::new(Panics))).is_pending());
    assert!(poll(&mut second, &Waker::from(Arc::clone(&woken))).is_pending());
    assert_eq!(queue.enqueue("a").unwrap(), 0);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    drop(second);
    assert!(
        matches!(poll(&mut first, Waker::noop()), Poll::Ready(Ok(message)) if message.seq() == 0)
    );
}

#[test]
fn the_newest_waker_is_woken() {
    let (_dir, queue) = open();
    let wakes: Vec<Arc<Counting>> =
        (0..2).map(|_| Arc::new(Counting(AtomicUsize::new(0)))).collect();
    let mut future = queue.recv();
    assert!(poll(&mut future, &Waker::from(Arc::clone(&wakes[0]))).is_pending());
    assert!(poll(&mut future, &Waker::from(Arc::clone(&wakes[1]))).is_pending());
    queue.enqueue("a").unwrap();
    assert_eq!((wakes[0].0.load(Ordering::SeqCst), wakes[1].0.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn closing_ends_futures_and_streams() {
    within(Duration::from_secs(30), || {
        let (_dir, queue) = open();
        let consumer = queue.consumer("c").unwrap();
        let (recv, mut messages) = (queue.recv(), consumer.messages());
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            queue.close().unwrap();
        });
        pollster::block_on(async move {
            assert!(matches!(recv.await, Err(Error::Closed)));
            assert!(matches!(next(&mut messages).await, Some(Err(Error::Closed))));
            assert!(next(&mut messages).await.is_none());
        });
        thread.join().unwrap();
    });
}

/// An executor may run any code when the last clone of a waker is dropped: the waker owns the task,
/// and so the futures in it.
#[test]
fn a_waker_may_take_other_futures_with_it() {
    struct Owning(#[allow(dead_code, reason = "dropped with it")] mmq::Recv);
    impl Wake for Owning {
        fn wake(self: Arc<Self>) {}
    }
    within(Duration::from_secs(30), || {
        for newer in [false, true] {
            let (_dir, queue) = open();
            let (mut inner, mut outer) = (queue.recv(), queue.recv());
            assert!(poll(&mut inner, Waker::noop()).is_pending());
            assert!(poll(&mut outer, &Waker::from(Arc::new(Owning(inner)))).is_pending());
            if newer {
                // The waker before goes.
                assert!(poll(&mut outer, Waker::noop()).is_pending());
            }
            drop(outer);
            queue.enqueue("m").unwrap();
        }
    });
}

#[test]
fn futures_may_go_to_other_threads() {
    fn is_send<T: Send + 'static>(_: &T) {}
    let (_dir, queue) = open();
    is_send(&queue.recv());
    is_send(&queue.recv_delivery());
    is_send(&queue.messages());
}

/// A stream goes on after it was interrupted.
#[test]
fn an_interrupt_ends_futures_and_not_streams() {
    let (_dir, queue) = open();
    let consumer = queue.consumer("c").unwrap();
    let (mut recv, mut delivery) = (Box::pin(queue.recv()), Box::pin(consumer.recv_delivery()));
    let mut stream = consumer.messages();
    let mut context = Context::from_waker(Waker::noop());
    assert!(recv.as_mut().poll(&mut context).is_pending());
    assert!(delivery.as_mut().poll(&mut context).is_pending());
    assert!(Pin::new(&mut stream).poll_next(&mut context).is_pending());
    queue.interrupt();
    queue.enqueue("stays").unwrap();
    let is_interrupted = |error| matches!(error, Poll::Ready(Err(Error::Interrupted)));
    assert!(is_interrupted(recv.as_mut().poll(&mut context)));
    assert!(is_interrupted(delivery.as_mut().poll(&mut context).map_ok(|it| panic!("{it:?}"))));
    let reported = Pin::new(&mut stream).poll_next(&mut context).map(Option::unwrap);
    assert!(is_interrupted(reported));
    let next = Pin::new(&mut stream).poll_next(&mut context).map(Option::unwrap);
    assert!(matches!(next, Poll::Ready(Ok(message)) if message.as_str() == Ok("stays")));
    assert!(matches!(pollster::block_on(queue.recv()), Ok(message) if message.seq() == 0));
}

#[test]
fn a_stream_of_deliveries_waits_for_messages_and_for_an_allowance() {
    let (_dir, queue) = open();
    let consumer = queue.consumer("c").unwrap();
    consumer.set_max_in_flight(1).unwrap();
    let mut stream = consumer.deliveries();
    let mut context = Context::from_waker(Waker::noop());
    let mut poll = || Pin::new(&mut stream).poll_next(&mut context);
    assert!(poll().is_pending());
    queue.enqueue_batch(["one", "two"]).unwrap();
    let Poll::Ready(Some(Ok(one))) = poll() else { panic!("there is one") };
    assert!(poll().is_pending(), "one is in flight");
    drop(one);
    let Poll::Ready(Some(Ok(again))) = poll() else { panic!("it was given back") };
    assert_eq!((again.seq(), again.attempts()), (0, 2));
    again.ack().unwrap();
    let Poll::Ready(Some(Ok(two))) = poll() else { panic!("there is another") };
    two.ack().unwrap();
    queue.close().unwrap();
    assert!(matches!(poll(), Poll::Ready(Some(Err(Error::Closed)))));
    assert!(matches!(poll(), Poll::Ready(None)));
}

/// The consumer that is removed held its queue for dead letters last, which is closed by that: the
/// waker of somebody who waits there may use the first queue.
#[test]
fn a_removal_that_closes_another_queue_holds_no_lock() {
    struct Makes(Queue);
    impl std::task::Wake for Makes {
        fn wake(self: Arc<Makes>) {
            self.0.consumer("made by the waker").unwrap();
        }
    }
    within(LONG, || {
        let dir = crate::support::tempdir().unwrap();
        let jobs = Arc::new(Makes(Queue::open(dir.path().join("jobs")).unwrap()));
        let dead = Arc::new(Queue::open(dir.path().join("dead")).unwrap());
        let mut read = Box::pin(dead.recv());
        let waker = Waker::from(Arc::clone(&jobs));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let workers = jobs.0.consumer("workers").unwrap();
        workers.set_redelivery(mmq::Redelivery::new().dead_letters(dead)).unwrap();
        jobs.0.remove_consumer("workers").unwrap();
        assert_eq!(jobs.0.consumer_stats().len(), 1);
    });
}
