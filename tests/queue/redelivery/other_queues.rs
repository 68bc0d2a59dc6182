//! Dead letters go to another queue, whose threads may be at anything meanwhile.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::tempdir;
use mmq::{LaneOptions, Queue, Redelivery};

/// Runs this on a thread of its own, which must end.
fn ends(what: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    thread::spawn(move || {
        what();
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
}

/// The closure holds the producers' lock of the queue for the dead letters, and the close waits for
/// the thread that carries them.
#[test]
fn a_queue_may_be_closed_while_the_one_for_its_dead_letters_is_filled() {
    ends(|| {
        let dir = tempdir().unwrap();
        let failed = Arc::new(Queue::open(dir.path().join("failed")).unwrap());
        let jobs = Queue::open(dir.path().join("jobs")).unwrap();
        let workers = jobs.consumer("workers").unwrap();
        workers.set_redelivery(Redelivery::new().dead_letters(Arc::clone(&failed))).unwrap();
        jobs.enqueue("a job").unwrap();
        let mut jobs = Some(jobs);
        failed
            .enqueue_with(8, |_| {
                workers.receive().unwrap().unwrap().reject().unwrap();
                jobs.take().unwrap().close().unwrap();
            })
            .unwrap();
        // The dead letter stays, and goes later.
        let jobs = Queue::open(dir.path().join("jobs")).unwrap();
        let workers = jobs.consumer("workers").unwrap();
        workers.set_redelivery(Redelivery::new().dead_letters(Arc::clone(&failed))).unwrap();
        assert!(workers.receive().unwrap().is_none());
        jobs.close().unwrap();
        assert_eq!(failed.len(), 2);
    });
}

/// A reader of the queue for the dead letters holds its lock while it waits for the closure's end.
#[test]
fn rules_may_be_set_while_the_queue_for_dead_letters_is_filled() {
    ends(|| {
        let dir = tempdir().unwrap();
        let failed = Arc::new(Queue::open(dir.path().join("failed")).unwrap());
        let jobs = Queue::open(dir.path().join("jobs")).unwrap();
        let workers = jobs.consumer("workers").unwrap();
        let lanes = failed.consumer("link").unwrap().lanes(LaneOptions::new()).unwrap();
        let mut jumps = None;
        failed
            .enqueue_with(8, |_| {
                jumps = Some(thread::spawn(move || lanes.jump().unwrap()));
                let rules = Redelivery::new().dead_letters(Arc::clone(&failed));
                workers.set_redelivery(rules).unwrap();
            })
            .unwrap();
        jumps.unwrap().join().unwrap();
    });
}

/// From the first queue dead letters come to each of the others in very many ways.
#[test]
fn a_long_chain_of_queues_is_looked_through_once() {
    ends(|| {
        let dir = tempdir().unwrap();
        let open = |number: usize| Queue::open(dir.path().join(number.to_string())).unwrap();
        let mut next = Arc::new(open(0));
        for number in 1..40 {
            let queue = open(number);
            for name in ["a", "b"] {
                let rules = Redelivery::new().dead_letters(Arc::clone(&next));
                queue.consumer(name).unwrap().set_redelivery(rules).unwrap();
            }
            next = Arc::new(queue);
        }
    });
}
