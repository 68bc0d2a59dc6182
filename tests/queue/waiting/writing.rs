//! Futures of a producer.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};

use super::*;

fn limited(on_full: OnFull) -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096).max_bytes(65536).on_full(on_full);
    let queue = options.open(dir.path()).unwrap();
    (dir, queue)
}

/// Fills the queue; the number of the next message.
fn fill(queue: &Queue) -> u64 {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let put = pin!(queue.enqueue_async([1; 1000]));
        match put.poll(&mut context) {
            Poll::Ready(Ok(_)) => {}
            _ => return queue.stats().next_seq,
        }
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_message_waits_for_room_without_a_thread() {
    let (_dir, queue) = limited(OnFull::Wait(None));
    let next = fill(&queue);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut puts: Vec<_> = (0..3).map(|_| Box::pin(queue.enqueue_async([9; 1000]))).collect();
    for put in &mut puts {
        assert!(put.as_mut().poll(&mut context).is_pending());
    }
    // One that is dropped puts nothing in.
    drop(puts.pop());
    assert_eq!(queue.stats().next_seq, next);
    while queue.dequeue().unwrap().is_some() {}
    crate::support::eventually("tasks are woken", || woken.0.load(Ordering::SeqCst) > 0);
    let mut seqs = Vec::new();
    crate::support::eventually("there is room", || {
        puts.retain_mut(|put| match put.as_mut().poll(&mut context) {
            Poll::Ready(seq) => {
                seqs.push(seq.unwrap());
                false
            }
            Poll::Pending => true,
        });
        puts.is_empty()
    });
    assert_eq!(seqs, [next, next + 1]);
    assert_eq!(&queue.dequeue().unwrap().unwrap()[..], [9; 1000]);
}

/// Every task is woken, also when nobody polls without a reason.
#[test]
fn tasks_that_wait_for_room_get_it() {
    let (_dir, queue) = limited(OnFull::Wait(None));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..400 {
                    pollster::block_on(queue.enqueue_async([7; 900])).unwrap();
                }
            });
        }
        for _ in 0..1200 {
            queue.dequeue_timeout(LONG).unwrap().expect("it comes in time");
        }
    });
    assert!(queue.is_empty());
}

#[test]
fn what_waits_for_room_ends_in_time_and_by_an_interrupt_and_a_close() {
    for how in ["refused", "in time", "interrupted", "closed"] {
        let limit = match how {
            "refused" => OnFull::Reject,
            "in time" => OnFull::Wait(Some(Duration::from_millis(60))),
            _ => OnFull::Wait(None),
        };
        let (_dir, queue) = limited(limit);
        let next = fill(&queue);
        let refused = queue.stats().refused;
        let put = queue.enqueue_async([1; 1000]);
        let ending = Ending::of(put, how == "refused" || how == "in time");
        match how {
            "interrupted" => queue.interrupt(),
            "closed" => {
                queue.close().unwrap();
                assert!(matches!(ending.outcome(), Err(Error::Closed)));
                continue;
            }
            _ => {}
        }
        match (how, ending.outcome()) {
            ("interrupted", Err(Error::Interrupted)) => {}
            ("refused" | "in time", Err(error @ Error::Full { .. })) => {
                assert!(error.is_full());
                assert_eq!(queue.stats().refused, refused + 1);
            }
            (how, other) => panic!("{how}: {other:?}"),
        }
        assert_eq!(queue.stats().next_seq, next);
    }
}

/// A future that a thread drives to its end, once it has begun to wait.
struct Ending<T>(std::thread::JoinHandle<T>);

impl<T: Send + 'static> Ending<T> {
    fn of(future: impl Future<Output = T> + Send + 'static, is_quick: bool) -> Ending<T> {
        let mut future = Box::pin(future);
        let mut context = Context::from_waker(Waker::noop());
        let first = future.as_mut().poll(&mut context);
        assert!(is_quick || first.is_pending());
        Ending(std::thread::spawn(move || match first {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => pollster::block_on(future),
        }))
    }

    fn outcome(self) -> T {
        self.0.join().unwrap()
    }
}

#[test]
fn a_flush_makes_durable_what_came_before_it() {
    let (_dir, queue) = open();
    let (ends, flushes) = (200, AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while flushes.load(Ordering::SeqCst) < ends {
                    let seq = pollster::block_on(queue.enqueue_async("durable")).unwrap();
                    pollster::block_on(queue.flush_async()).unwrap();
                    assert!(queue.durable_seq() > seq);
                    flushes.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    let made = queue.stats().flushes;
    assert!(made > 0 && made <= flushes.load(Ordering::SeqCst), "{made} flushes");
    queue.close().unwrap();
}

#[test]
fn a_durable_message_is_durable_once_its_future_is_ready() {
    let dir = crate::support::tempdir().unwrap();
    for every in [1, 3] {
        let queue = Options::new().flush_every_ops(every).open(dir.path()).unwrap();
        let before = queue.stats().next_seq;
        for round in 1..10 {
            let seq = pollster::block_on(queue.enqueue_async("durable")).unwrap();
            assert_eq!((seq, queue.stats().next_seq), (before + round - 1, before + round));
            let durable = queue.durable_seq() > seq;
            assert!(
                durable || round % every != 0,
                "{round} of every {every}: {seq}, {}",
                queue.stats()
            );
        }
        queue.close().unwrap();
    }
}

#[test]
fn a_flush_that_waits_ends_with_a_close() {
    let (_dir, queue) = open();
    queue.enqueue("before").unwrap();
    let mut flush = Box::pin(queue.flush_async());
    let mut context = Context::from_waker(Waker::noop());
    let first = flush.as_mut().poll(&mut context);
    queue.close().unwrap();
    let answer = match first {
        Poll::Ready(answer) => answer,
        Poll::Pending => pollster::block_on(flush),
    };
    assert!(matches!(answer, Ok(()) | Err(Error::Closed)), "{answer:?}");
    // The future of a queue that is closed already.
    let (_dir, queue) = open();
    let (put, flush) = (queue.enqueue_async("late"), queue.flush_async());
    queue.close().unwrap();
    assert!(matches!(pollster::block_on(put), Err(Error::Closed)));
    assert!(matches!(pollster::block_on(flush), Err(Error::Closed)));
    let put: Pin<Box<dyn Future<Output = mmq::Result<u64>> + Send>> =
        Box::pin(open().1.enqueue_async(String::from("may be sent to another thread")));
    drop(put);
}

/// With `flush_every_ops` of 1 it is the storage worker's flush that shows a message: a reader's
/// waker that puts more in must not wait for the storage worker, which calls it.
#[test]
fn a_waker_that_the_keeper_calls_may_put_messages_in() {
    struct Puts(Arc<Queue>);
    impl std::task::Wake for Puts {
        fn wake(self: Arc<Puts>) {
            for _ in 0..300 {
                self.0.enqueue([1; 1000]).unwrap();
            }
        }
    }
    within(LONG, || {
        let dir = crate::support::tempdir().unwrap();
        let options = Options::new().arena_size(4096).max_bytes(1 << 16).flush_every_ops(1);
        let queue = options.on_full(OnFull::DropOldest).open(dir.path()).unwrap();
        let queue = Arc::new(queue);
        let waker = Waker::from(Arc::new(Puts(Arc::clone(&queue))));
        let mut read = Box::pin(queue.recv());
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        pollster::block_on(queue.enqueue_async("a message")).unwrap();
        while queue.stats().next_seq < 301 {
            std::thread::yield_now();
        }
        drop(waker);
    });
}
