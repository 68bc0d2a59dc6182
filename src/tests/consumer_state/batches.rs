//! Batches of reads: one lock, one place.

use super::{ENDS, Message, Queue, damaged};
use crate::consume::step::Deliver;
use crate::options::Options;
use crate::read::{Check, Cursor, Record};
use crate::tests::sim::{SimFile, SimStorage};

/// Counts what a batch delivers, and has the process die before each message.
struct Dies<'a> {
    storage: &'a SimStorage,
    /// How many messages came, and the images before some of them.
    met: usize,
    images: Vec<(usize, SimStorage)>,
}

impl Deliver<SimStorage> for &mut Dies<'_> {
    type Delivered = ();

    fn deliver(&mut self, _: &mut Cursor<SimFile>, _: Record) -> Option<()> {
        if self.met.is_multiple_of(83) {
            self.images.push((self.met, self.storage.process_kill()));
        }
        self.met += 1;
        Some(())
    }
}

#[test]
fn a_process_that_dies_within_a_batch_gets_all_of_it_again() {
    for deliveries in [false, true] {
        // Several segments.
        let mut queue = Queue::new(Options::new().arena_size(4096));
        queue.put(0..600);
        if deliveries {
            queue.engine.set_max_in_flight(&queue.consumer(), Some(7)).unwrap();
        }
        assert_eq!(queue.batch(3), Ok(vec![0, 1, 2]));
        let storage = queue.storage.clone();
        let mut dies = Dies { storage: &storage, met: 0, images: Vec::new() };
        let taken = queue.engine.take_batch(&queue.consumer(), 500, Check::Now, &mut dies).unwrap();
        assert_eq!((taken, dies.met, dies.images.len()), (500, 500, 7));
        assert_eq!(queue.engine.stats().dequeued, 503);
        for (at, image) in dies.images {
            let seen = Queue::on(image, queue.options.clone());
            assert_eq!(seen.take(), Message(3), "{at}, {deliveries}");
        }
        queue.end("killed");
        assert_eq!(queue.take(), Message(503));
    }
}

#[test]
fn a_gap_within_a_batch_ends_it_wherever_it_is() {
    for how in ENDS {
        for at in [1, 63, 64, 65, 200] {
            let mut queue = Queue::new(Options::new().arena_size(64 << 10));
            queue.put(0..300);
            queue.damage(at);
            assert_eq!(queue.batch(300), Ok((0..at).collect()));
            queue.end(how);
            assert_eq!(queue.batch(300), Err(damaged(at, at)), "{how}, {at}");
            queue.end(how);
            assert_eq!(queue.batch(300), Ok((at + 1..300).collect()), "{how}, {at}");
        }
    }
}
