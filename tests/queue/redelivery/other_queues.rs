//! Dead letters go to another queue, over any number of queues.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::tempdir;
use mmq::{Queue, Redelivery};

/// Runs this on a thread of its own, which must end.
fn ends(what: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    thread::spawn(move || {
        what();
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
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
