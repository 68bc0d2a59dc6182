//! A close overtakes a call that has taken effect.

use std::sync::Arc;

use super::{Queue, go, receive_next, small, under};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::error::Error;
use crate::tests::sim::SimStorage;

/// The call counts as an operation, and the flush that is due with it finds the queue closed. What
/// the call answers is what the next opening finds.
#[test]
fn an_acknowledgement_that_a_close_overtakes_is_kept_or_refused() {
    under(200, || {
        let storage = SimStorage::new(7).with_file_capacity(128 << 10);
        let options = small(4).flush_every_ops(2);
        let open = || Engine::open_with(storage.clone(), &options, Background::Calls).unwrap();
        let queue: Queue = Arc::new(open());
        let consumer = queue.consumer("c").unwrap();
        queue.enqueue(b"one").unwrap();
        let (seq, handed) = receive_next(&queue, &consumer);
        let closing = Arc::clone(&queue);
        let closer = go("closer", move || closing.close().unwrap());
        let is_kept = match queue.ack(&consumer, seq, handed) {
            Ok(()) => true,
            Err(Error::Closed) => false,
            Err(error) => panic!("cannot acknowledge: {error}"),
        };
        closer.join();
        let queue = open();
        let consumer = queue.consumer("c").unwrap();
        let comes_again = reading::next(&queue, &consumer, Read::Take).unwrap().is_some();
        assert_eq!(comes_again, !is_kept);
    });
}
