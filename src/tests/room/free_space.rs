//! Another program takes the space that `min_free_bytes` keeps free.

use super::{LEN, content, open, take_all};
use crate::options::{OnFull, Options};
use crate::tests::sim::SimStorage;

#[test]
fn no_message_is_dropped_for_free_space_that_the_queue_does_not_have() {
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    let options = Options::new().arena_size(8192).min_free_bytes(16 << 20);
    let queue = open(&storage, &options.on_full(OnFull::DropOldest));
    for seq in 0..1000 {
        queue.enqueue(&content(seq, LEN)).unwrap();
    }
    storage.set_capacity(Some(storage.used()));
    let mut next = 1000;
    let mut put = |seq| queue.enqueue(&content(seq, LEN)).inspect(|seq| next = *seq + 1);
    let refused = (1000..9000).find_map(|seq| put(seq).err()).expect("the tail's segment is full");
    assert!(refused.is_full() && refused.to_string().contains("min_free_bytes"), "{refused}");
    assert_eq!(queue.stats().dropped, 0);
    // The other program ends.
    storage.set_capacity(None);
    assert_eq!(queue.enqueue(&content(next, LEN)).unwrap(), next);
    assert_eq!(take_all(&queue, "a").0, [(0, next)]);
}
