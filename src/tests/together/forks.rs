//! A consumer is made from another one while somebody opens it by its name.

use std::sync::Arc;
use std::time::Duration;

use super::{go, open, receive_next, small, under};
use crate::engine::Background;
use crate::engine::reading::AsMessage;
use crate::threads;

#[test]
fn a_fork_has_what_is_done_when_others_see_it() {
    under(100, || {
        let queue = open(&small(6), Background::Calls);
        let consumer = queue.consumer("c").unwrap();
        for _ in 0..4 {
            queue.enqueue(b"job").unwrap();
        }
        let all: Vec<_> = (0..4).map(|_| receive_next(&queue, &consumer)).collect();
        for (seq, handed) in &all[1..] {
            queue.ack(&consumer, *seq, *handed).unwrap();
        }
        let forks = {
            let (queue, consumer) = (Arc::clone(&queue), Arc::clone(&consumer));
            go("forks", move || drop(queue.fork(&consumer, "copy").unwrap()))
        };
        let other = {
            let queue = Arc::clone(&queue);
            go("other", move || {
                while !queue.consumer_names().contains(&"copy".to_owned()) {
                    threads::park_timeout(Duration::from_micros(1));
                }
                let copy = queue.consumer("copy").unwrap();
                let mut got = Vec::new();
                while let Some((message, handed)) = queue.receive(&copy, AsMessage).unwrap() {
                    got.push(message.seq());
                    queue.ack(&copy, message.seq(), handed).unwrap();
                }
                assert_eq!(got, [0], "1, 2 and 3 are done");
            })
        };
        forks.join();
        other.join();
    });
}
