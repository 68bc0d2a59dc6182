//! Producers at the limit, and the keeper that makes room for them.

use super::{Queue, go, open, small, under};
use crate::commit::keeper::Leaving;
use crate::consume::standing::Read;
use crate::engine::{Background, reading};
use crate::error::{Error, GapCause};
use crate::options::{OnFull, Options};
use crate::threads::JoinHandle;

const MESSAGES: u64 = 40;

fn producer(name: &str, queue: &Queue) -> JoinHandle {
    let queue = Queue::clone(queue);
    go(name, move || {
        for _ in 0..MESSAGES {
            queue.enqueue(&[1; 2000]).unwrap();
        }
    })
}

/// What a producer waits for the keeper does, and every message comes or is told as dropped.
#[test]
fn producers_at_the_limit_wait_for_the_keeper_and_go_on() {
    let ahead = || Options::new().arena_size(8192).max_bytes(140 << 10);
    for limit in [|| small(4), ahead] {
        under(60, move || {
            let queue = open(&limit().on_full(OnFull::DropOldest), Background::Keeper);
            let consumer = queue.consumer("").unwrap();
            let producers = ["1", "2"].map(|name| producer(name, &queue));
            producers.into_iter().for_each(JoinHandle::join);
            let mut next = 0;
            loop {
                match reading::next(&queue, &consumer, Read::Take) {
                    Ok(Some(message)) => assert_eq!(message.seq(), next),
                    Ok(None) => break,
                    Err(Error::Gap(gap)) => {
                        assert_eq!((gap.first, gap.cause), (next, GapCause::Dropped));
                        next = gap.last;
                    }
                    Err(error) => panic!("{error}"),
                }
                next += 1;
            }
            assert_eq!(next, 2 * MESSAGES);
            queue.close().unwrap();
        });
    }
}

/// While the keeper reports events it may wait for a producer, or be one: a subscriber may call the
/// queue.
#[test]
fn nobody_waits_for_a_keeper_that_waits_for_producers() {
    under(60, || {
        let queue = open(&small(4).on_full(OnFull::DropOldest), Background::Calls);
        queue.core.bell.note_begin();
        let keeper = {
            let queue = Queue::clone(&queue);
            go("keeper", move || {
                let bell = &queue.core.bell;
                bell.go_away();
                producer("subscriber", &queue).join();
                bell.come_back();
                bell.go_away();
                // A call within a call has ended: the keeper is still away.
                bell.go_away();
                bell.come_back();
                producer("subscriber", &queue).join();
                drop(Leaving(&queue.core));
            })
        };
        let producer = producer("producer", &queue);
        [keeper, producer].into_iter().for_each(JoinHandle::join);
    });
}
