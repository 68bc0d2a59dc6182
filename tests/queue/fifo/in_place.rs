//! Messages that the caller writes in place, and what a closure may and may not do meanwhile.

use super::*;

#[test]
fn a_message_can_be_written_in_place() {
    let (_dir, queue) = new_queue(&small());
    let messages = Messages::new(4, &[0..=100, 0..=20_000, 100_000..=200_000]);
    for seq in 0..300 {
        let len = messages.len_of(seq);
        let given = queue.enqueue_with(len, |bytes| {
            assert_eq!(bytes.len(), len);
            messages.write(seq, bytes);
        });
        assert_eq!(given.unwrap(), seq);
    }
    drain_exactly(&queue, &messages, 0, 300);
}

#[test]
fn what_the_closure_leaves_as_it_was_is_delivered_as_it_was() {
    let (_dir, queue) = new_queue(&small());
    for round in 0..30 {
        // The bytes lent may be those of recycled space; they are the caller's from then on, like
        // any he writes.
        let mut lent = Vec::new();
        let len = 1 + round * 30_000;
        queue.enqueue_with(len, |bytes| lent.extend_from_slice(bytes)).unwrap();
        assert_eq!(lent.len(), len);
        assert!(*queue.dequeue().unwrap().unwrap() == *lent, "{len} bytes");
        queue.enqueue(vec![0xff; 700_000]).unwrap();
        queue.dequeue().unwrap().unwrap();
    }
}

#[test]
fn a_panic_while_writing_in_place_leaves_no_trace() {
    let (_dir, queue) = new_queue(&small());
    for len in [0, 10, 4096, 100_000, 5 * MIB] {
        let before = queue.enqueue("before").unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            queue.enqueue_with(len, |bytes| {
                bytes.fill(0xee);
                panic!("in the middle of {len} bytes (this panic is part of the test)");
            })
        }));
        assert!(panic.is_err());
        assert_eq!(
            queue.enqueue("after").unwrap(),
            before + 1,
            "the number given to the panic's message is free"
        );
        assert_eq!(queue.len(), 2);
        assert_eq!(texts(&queue, 9), ["before", "after"]);
    }
}

/// Asserts that a call from within the closure was refused as such.
#[track_caller]
fn refused<R>(answer: mmq::Result<R>) {
    match answer {
        Err(error @ Error::InvalidArgument { what: "enqueue_with", .. }) => {
            assert!(error.to_string().contains("its closure called the queue"), "{error}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was done"),
    }
}

#[test]
fn every_call_on_the_queue_from_inside_the_writing_closure_is_refused() {
    within(Duration::from_secs(60), || {
        let (_dir, queue) = new_queue(&small());
        // The default consumer is made first by a refused call, and is there the second time.
        for (round, len) in [5, 3_000_000].into_iter().enumerate() {
            queue.enqueue_batch(["one", "two", "three"]).unwrap();
            let consumer = queue.consumer("a consumer").unwrap();
            let (kept, dropped) =
                (consumer.receive().unwrap().unwrap(), consumer.receive().unwrap().unwrap());
            let lent = consumer.iter().next().unwrap().unwrap();
            let mut ahead = consumer.iter();
            let (before, next) = (queue.stats(), queue.stats().next_seq);
            let outer = queue.enqueue_with(len, |bytes| {
                let buffer = &mut Vec::new();
                refused(queue.enqueue("inner"));
                refused(queue.enqueue_batch(["inner"]));
                refused(queue.enqueue_batch(Vec::<Vec<u8>>::new()));
                refused(queue.enqueue_with(1, |_| panic!("it is refused")));
                refused(queue.peek());
                refused(queue.dequeue());
                refused(queue.peek_into(buffer));
                refused(queue.dequeue_into(buffer));
                refused(queue.dequeue_batch(2));
                refused(queue.dequeue_timeout(Duration::MAX));
                refused(queue.skip());
                refused(queue.receive());
                refused(queue.receive_timeout(Duration::MAX));
                refused(queue.set_max_in_flight(3));
                refused(queue.ready_fd());
                refused(queue.iter().next().unwrap());
                refused(queue.consumer("a consumer"));
                refused(queue.consumer("another"));
                refused(queue.remove_consumer("a consumer"));
                refused(queue.flush());
                refused(queue.wait_durable(0));
                refused(consumer.peek());
                refused(consumer.dequeue());
                refused(consumer.peek_into(buffer));
                refused(consumer.dequeue_into(buffer));
                refused(consumer.dequeue_batch(2));
                refused(consumer.dequeue_timeout(Duration::MAX));
                refused(consumer.skip());
                refused(consumer.receive());
                refused(consumer.receive_timeout(Duration::MAX));
                refused(consumer.ready_fd());
                refused(consumer.iter().next().unwrap());
                refused(ahead.next().unwrap());
                assert!(ahead.next().is_none(), "it ends with an error");
                refused(consumer.seek(0));
                refused(consumer.fork("a fork"));
                refused(kept.ack());
                // What has no error to return.
                assert_eq!((consumer.in_flight(), consumer.len(), queue.in_flight()), (2, 3, 0));
                assert_eq!(
                    (queue.durable_seq(), queue.consumers()),
                    (before.durable_seq, vec!["a consumer".into()])
                );
                assert_eq!(
                    (queue.len(), queue.segment_time(next - 1).is_some(), queue.stats().messages),
                    (before.messages, true, before.messages)
                );
                refused(consumer.set_max_in_flight(1));
                drop((dropped, lent, consumer.clone()));
                // A refused call does not do what is put off until this one is over.
                refused(queue.enqueue_with(1, |_| ()));
                assert_eq!(consumer.in_flight(), 2);
                // Another queue is another matter, but not its way back here.
                let (_dir, other) = new_queue(&small());
                other.enqueue("elsewhere").unwrap();
                other.enqueue_with(1, |_| refused(queue.peek())).unwrap();
                assert_eq!(&*other.dequeue().unwrap().unwrap(), b"elsewhere");
                other.close().unwrap();
                bytes.fill(round as u8);
            });
            assert_eq!(outer.unwrap(), next);
            // What was put off is done: both come again.
            assert_eq!(consumer.in_flight(), 0);
            let again = consumer.receive().unwrap().unwrap();
            assert_eq!((again.seq(), again.attempts()), (next - 3, 2));
            assert_eq!(consumer.receive().unwrap().unwrap().seq(), next - 2);
            drop(again);
            assert_eq!(queue.dequeue_batch(9).unwrap().len(), 4);
            consumer.seek(next + 1).unwrap();
        }
        assert_eq!(queue.consumers(), ["a consumer"]);
    });
}

#[test]
fn a_closure_that_calls_its_queue_hangs_beside_no_other_call() {
    within(Duration::from_secs(120), || {
        let (_dir, queue) = new_queue(&small());
        let consumer = queue.consumer("a consumer").unwrap();
        let stop = AtomicBool::new(false);
        let beside: [&(dyn Fn() + Sync); 6] = [
            &|| consumer.seek(queue.durable_seq()).unwrap(),
            &|| {
                consumer.fork("a fork").unwrap();
                queue.remove_consumer("a fork").unwrap();
            },
            &|| {
                queue.consumer("another").unwrap();
                queue.remove_consumer("another").unwrap();
            },
            &|| drop(queue.stats()),
            &|| queue.flush().unwrap(),
            &|| drop(consumer.receive().unwrap()),
        ];
        std::thread::scope(|scope| {
            for beside in beside {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        beside();
                    }
                });
            }
            for round in 0..300 {
                let delivery = consumer.receive().unwrap();
                let len = if round % 10 == 0 { 2_000_000 } else { 5 };
                queue
                    .enqueue_with(len, |_| {
                        refused(queue.flush());
                        refused(queue.peek());
                        let _ = (
                            queue.stats(),
                            queue.len(),
                            consumer.len(),
                            consumer.in_flight(),
                            queue.durable_seq(),
                        );
                        drop(delivery);
                    })
                    .unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(consumer.in_flight(), 0);
    });
}
