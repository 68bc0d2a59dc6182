//! Messages whose bytes lie in several buffers.

use std::io::IoSlice;

use super::*;

/// The bytes in so many parts, of any lengths; some parts may be empty.
fn cut<'a>(bytes: &'a [u8], count: usize, random: &mut Random) -> Vec<IoSlice<'a>> {
    let mut ends: Vec<usize> = (1..count).map(|_| random.size(0..=bytes.len())).collect();
    ends.extend([0, bytes.len()]);
    ends.sort_unstable();
    ends.windows(2).map(|ends| IoSlice::new(&bytes[ends[0]..ends[1]])).collect()
}

#[test]
fn parts_make_one_message_in_their_order() {
    let (_dir, queue) = new_queue(&small());
    let messages = Messages::new(4, &[0..=100, 0..=20_000, 100_000..=200_000]);
    let mut random = Random::new(seed("parts of a message"));
    for seq in 0..300 {
        let bytes = messages.bytes(seq);
        let parts = cut(&bytes, 1 + seq as usize % 9, &mut random);
        assert_eq!(queue.enqueue_parts(&parts).unwrap(), seq);
    }
    drain_exactly(&queue, &messages, 0, 300);
}

#[test]
fn no_parts_and_empty_parts_make_a_message_of_no_bytes() {
    let (_dir, queue) = new_queue(&small());
    assert_eq!(queue.enqueue_parts(&[]).unwrap(), 0);
    assert_eq!(queue.enqueue_parts(&[IoSlice::new(b""), IoSlice::new(b"")]).unwrap(), 1);
    for seq in 0..2 {
        let message = queue.dequeue().unwrap().unwrap();
        assert_eq!((message.seq(), message.len()), (seq, 0));
    }
    assert!(queue.is_empty());
}

/// The parts are one buffer many times: together they are too long, and need no memory.
#[test]
fn parts_that_are_too_long_together_are_refused() {
    let (_dir, queue) = new_queue(&small());
    let part = vec![0; 64 * MIB];
    let parts = vec![IoSlice::new(&part); 64];
    match queue.enqueue_parts(&parts) {
        Err(Error::MessageTooLarge { len, .. }) => assert_eq!(len, 1 << 32),
        other => panic!("{other:?}"),
    }
    assert!(queue.is_empty());
}
