//! Another program takes the space that `min_free_bytes` keeps free.

use super::{LEN, Queue, content, open, take_all};
use crate::error::{Gap, GapCause};
use crate::options::{OnFull, Options};
use crate::tests::sim::SimStorage;

/// A queue of a thousand messages that drops its oldest, when another program has taken the space.
fn crowded(arena: u64) -> (SimStorage, Queue) {
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    let options = Options::new().arena_size(arena).min_free_bytes(16 << 20);
    let queue = open(&storage, &options.on_full(OnFull::DropOldest));
    for seq in 0..1000 {
        queue.enqueue(&content(seq, LEN)).unwrap();
    }
    storage.set_capacity(Some(storage.used()));
    (storage, queue)
}

/// The oldest segments are used again in place, which takes no byte, whatever their length.
#[test]
fn the_oldest_are_dropped_though_their_space_would_be_anothers() {
    for (arena, consumer) in [(8192, false), (8192, true), (4 << 20, false)] {
        let (storage, queue) = crowded(arena);
        if consumer {
            queue.consumer("a").unwrap();
        }
        let used = storage.used();
        let segments = queue.core.segments.list().live.len();
        for seq in 1000..5000 {
            assert_eq!(queue.enqueue(&content(seq, LEN)).unwrap(), seq, "{arena}");
            assert!(storage.used() <= used, "{arena}, {seq}");
        }
        assert_eq!(queue.core.segments.list().live.len(), segments, "{arena}");
        let (came, gaps) = take_all(&queue, "a");
        let oldest = came[0].0;
        assert_eq!(came, [(oldest, 4999)]);
        let dropped = Gap { first: 0, last: oldest - 1, cause: GapCause::Dropped };
        assert_eq!(gaps, [dropped]);
        assert!(queue.stats().dropped == oldest && oldest < 4800, "{arena}: {oldest}");
    }
}

/// No segment has the space for a message that is longer than the oldest one.
#[test]
fn no_message_is_dropped_for_free_space_that_the_queue_does_not_have() {
    let (storage, queue) = crowded(8192);
    let long = vec![7; 3 << 20];
    for _ in 0..3 {
        let refused = queue.enqueue(&long).unwrap_err();
        assert!(refused.is_full() && refused.to_string().contains("min_free_bytes"), "{refused}");
    }
    assert_eq!(queue.stats().dropped, 0);
    // The other program ends.
    storage.set_capacity(None);
    assert_eq!(queue.enqueue(&long).unwrap(), 1000);
    assert_eq!(take_all(&queue, "a").0, [(0, 1000)]);
}
