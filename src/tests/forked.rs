//! What a forked child inherits waits for nothing there: a lock may be held for ever by a thread
//! that the child does not have.

use std::fmt::Debug;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::tests::guard;
use crate::tests::schedule::child::as_child;
use crate::{CopiedId, LaneOptions, Options, Queue, Redelivery, Start, open_or_connect};

const WAIT: Duration = Duration::from_secs(60);

/// The answers of calls that a child may not make.
fn refused<const N: usize>(calls: [(&str, Result<()>); N]) {
    for (call, answer) in calls {
        assert!(matches!(answer, Err(Error::Forked)), "{call}: {answer:?}");
    }
}

/// What came of a call, whatever it gives.
fn of<T>(answer: Result<T>) -> Result<()> {
    answer.map(mem::forget)
}

fn in_use(dir: &std::path::Path) -> Queue {
    let queue = Options::new().arena_size(4096).open(dir).unwrap();
    queue.set_redelivery(Redelivery::new().lease(WAIT)).unwrap();
    queue.enqueue_batch(["a", "b", "c", "d", "e", "f"]).unwrap();
    queue
}

/// What a child must not change.
fn shape(queue: &Queue) -> String {
    let stats = queue.stats();
    let mut consumers = queue.consumer_stats();
    consumers.iter_mut().for_each(|consumer| consumer.oldest_age = None);
    format!("{} {} {consumers:?}", stats.messages, stats.next_seq)
}

#[test]
fn no_call_of_a_queue_in_a_forked_child_takes_a_lock() {
    let dir = guard::tempdir().unwrap();
    let queue = in_use(dir.path());
    let before = shape(&queue);
    let mut buffer = Vec::new();
    as_child(|| {
        refused([
            ("enqueue", of(queue.enqueue("x"))),
            ("enqueue_batch", of(queue.enqueue_batch(["x"]))),
            ("enqueue_parts", of(queue.enqueue_parts(&[]))),
            ("peek", of(queue.peek())),
            ("dequeue", of(queue.dequeue())),
            ("peek_into", of(queue.peek_into(&mut buffer))),
            ("dequeue_into", of(queue.dequeue_into(&mut buffer))),
            ("dequeue_batch", of(queue.dequeue_batch(2))),
            ("dequeue_timeout", of(queue.dequeue_timeout(WAIT))),
            ("skip", of(queue.skip())),
            ("receive", of(queue.receive())),
            ("receive_timeout", of(queue.receive_timeout(WAIT))),
            ("for_each", queue.for_each(|_| Ok(()), |_| ())),
            ("set_max_in_flight", queue.set_max_in_flight(1)),
            ("set_redelivery", queue.set_redelivery(Redelivery::new())),
            ("seek", queue.seek(0)),
            ("fork", of(queue.fork("other"))),
            ("ready_fd", of(queue.ready_fd())),
            ("iter", of(queue.iter().next().unwrap())),
            ("consumer", of(queue.consumer("other"))),
            ("consumer_at", of(queue.consumer_at("other", Start::End))),
            ("remove_consumer", queue.remove_consumer("")),
            ("flush", queue.flush()),
            ("wait_durable", queue.wait_durable(0)),
        ]);
        assert_eq!((queue.len(), queue.in_flight(), queue.durable_seq()), (0, 0, 0));
        assert!(queue.is_empty() && queue.consumers().is_empty());
        assert!(queue.consumer_stats().is_empty() && queue.segment_time(0).is_none());
        assert_eq!(queue.stats().messages, 0);
        queue.interrupt();
    });
    assert_eq!(shape(&queue), before);
    assert_eq!(&*queue.dequeue().unwrap().unwrap(), b"a");
    // The queue's last handle goes in the child, and the parent has it still.
    let engine = Arc::clone(queue.engine());
    as_child(|| {
        let other = dir.path().with_extension("copy");
        let copied =
            queue.copy_to(&other, CopiedId::New, |_, _| std::ops::ControlFlow::Continue(()));
        assert!(copied.is_err() && !other.exists());
    });
    assert_eq!(engine.core.committed_spot().seq, 6);
    engine.close().unwrap();
}

#[test]
fn no_call_of_a_consumer_or_of_what_it_lends_takes_a_lock_in_a_forked_child() {
    let dir = guard::tempdir().unwrap();
    let queue = in_use(dir.path());
    let consumer = queue.consumer("link").unwrap();
    consumer.set_redelivery(Redelivery::new().lease(WAIT)).unwrap();
    let lanes = consumer.lanes(LaneOptions::new()).unwrap();
    let mut iter = consumer.iter();
    iter.next().unwrap().unwrap();
    let lent = queue.dequeue().unwrap().unwrap();
    let mut deliveries = (0..5).map(|_| lanes.receive().unwrap().unwrap());
    let mut next = || deliveries.next().unwrap();
    let (acked, nacked, delayed, rejected, kept) = (next(), next(), next(), next(), next());
    let before = shape(&queue);
    let mut buffer = Vec::new();
    as_child(|| {
        refused([
            ("peek", of(consumer.peek())),
            ("dequeue", of(consumer.dequeue())),
            ("peek_into", of(consumer.peek_into(&mut buffer))),
            ("dequeue_into", of(consumer.dequeue_into(&mut buffer))),
            ("dequeue_batch", of(consumer.dequeue_batch(2))),
            ("dequeue_timeout", of(consumer.dequeue_timeout(WAIT))),
            ("skip", of(consumer.skip())),
            ("receive", of(consumer.receive())),
            ("receive_timeout", of(consumer.receive_timeout(WAIT))),
            ("for_each", consumer.for_each(|_| Ok(()), |_| ())),
            ("set_max_in_flight", consumer.set_max_in_flight(1)),
            ("set_redelivery", consumer.set_redelivery(Redelivery::new())),
            ("seek", consumer.seek(0)),
            ("fork", of(consumer.fork("other"))),
            ("ready_fd", of(consumer.ready_fd())),
            ("lanes", of(consumer.lanes(LaneOptions::new()))),
            ("lanes.receive", of(lanes.receive())),
            ("lanes.receive_fresh", of(lanes.receive_fresh())),
            ("lanes.receive_backlog", of(lanes.receive_backlog())),
            ("lanes.receive_timeout", of(lanes.receive_timeout(WAIT))),
            ("lanes.receive_fresh_timeout", of(lanes.receive_fresh_timeout(WAIT))),
            ("lanes.receive_backlog_timeout", of(lanes.receive_backlog_timeout(WAIT))),
            ("lanes.jump", of(lanes.jump())),
            ("iter", of(iter.next().unwrap())),
            ("extend", kept.extend(WAIT)),
            ("ack", acked.ack()),
            ("reject", rejected.reject()),
        ]);
        nacked.nack();
        delayed.nack_after(WAIT);
        assert_eq!((consumer.len(), consumer.in_flight()), (0, 0));
        assert!(consumer.is_empty() && lanes.backlog().is_empty() && !kept.is_backlog());
        assert_eq!(consumer.stats().messages, 0);
        mem::drop((lent, kept, iter, lanes));
        mem::drop(consumer);
    });
    assert_eq!(shape(&queue), before);
    queue.close().unwrap();
}

#[test]
fn no_call_of_a_handle_takes_a_lock_in_a_forked_child() {
    let dir = guard::tempdir().unwrap();
    let owner = open_or_connect(dir.path(), &Options::new()).unwrap();
    let client = open_or_connect(dir.path(), &Options::new()).unwrap();
    assert_eq!((owner.is_owner(), client.is_owner()), (true, false));
    for handle in [client, owner] {
        let consumer = handle.default_consumer().unwrap();
        as_child(|| {
            refused([
                ("enqueue", of(handle.enqueue("x"))),
                ("enqueue_batch", of(handle.enqueue_batch(&["x"]))),
                ("flush", handle.flush()),
                ("stats", of(handle.stats())),
                ("consumer", of(handle.consumer("other"))),
                ("remove_consumer", handle.remove_consumer("")),
                ("dequeue", of(consumer.dequeue())),
                ("receive_timeout", of(consumer.receive_timeout(WAIT))),
                ("set_redelivery", consumer.set_redelivery(WAIT, None, None)),
            ]);
            assert!(!handle.is_owner());
            handle.clone().close().unwrap();
        });
        handle.enqueue("its parent has it").unwrap();
        handle.close().unwrap();
    }
}

#[cfg(feature = "async")]
#[test]
fn no_future_takes_a_lock_in_a_forked_child() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
    fn end<T: Debug>(call: &str, answer: Poll<Result<T>>) {
        assert!(matches!(answer, Poll::Ready(Err(Error::Forked))), "{call}: {answer:?}");
    }
    let dir = guard::tempdir().unwrap();
    let queue = in_use(dir.path());
    let idle = queue.consumer_at("idle", Start::End).unwrap();
    let (mut recv, mut delivery) = (Box::pin(idle.recv()), Box::pin(idle.recv_delivery()));
    let mut dropped = Box::pin(idle.recv());
    assert!(poll(recv.as_mut()).is_pending() && poll(delivery.as_mut()).is_pending());
    assert!(poll(dropped.as_mut()).is_pending());
    as_child(|| {
        end("recv", poll(recv.as_mut()));
        end("recv_delivery", poll(delivery.as_mut()));
        end("enqueue_async", poll(queue.enqueue_async("x")));
        end("flush_async", poll(queue.flush_async()));
        end("a new recv", poll(queue.recv()));
        mem::drop((recv, delivery, dropped));
    });
    queue.enqueue("wakes them").unwrap();
    assert_eq!(idle.len(), 1);
    queue.close().unwrap();
}
