//! The steady path allocates nothing. This is a program of its own, because it counts the calls of
//! its allocator.

#[path = "support/counting.rs"]
mod counting;
mod support;

use mmq::Queue;

use counting::asked;

#[test]
fn the_allocator_counts() {
    assert_eq!(asked(|| drop(std::hint::black_box(vec![1_u8; 100]))), 1);
}

#[test]
fn pairs_of_enqueue_and_dequeue_allocate_only_where_a_segment_ends() {
    const SEGMENT: u64 = 4 << 20;
    // The smallest messages take the most time: a quarter million of them fill a segment.
    let lens: &[u64] = match support::is_whole() {
        false => &[64, 1024, 16_384],
        true => &[0, 16, 128, 1024, 16_384],
    };
    for &len in lens {
        let dir = crate::support::tempdir().unwrap();
        let queue = Queue::options().arena_size(SEGMENT).open(dir.path().join("queue")).unwrap();
        let (message, mut buffer) = (vec![7; len as usize], Vec::with_capacity(len as usize));
        let mut pair = |way: u64| {
            queue.enqueue(&message).unwrap();
            match way {
                0 => assert!(queue.dequeue_into(&mut buffer).unwrap().is_some()),
                1 => {
                    assert!(queue.peek_into(&mut buffer).unwrap().is_some());
                    assert!(queue.skip().unwrap().is_some());
                }
                // Lent in place.
                _ => assert_eq!(queue.dequeue().unwrap().unwrap().len() as u64, len),
            }
        };
        let each = SEGMENT / (16 + len.next_multiple_of(8));
        // Steady: drained segments are used again.
        (0..4 * each).for_each(|round| pair(round % 3));
        for way in 0..3 {
            let pairs = 2 * each;
            let (mut some, mut most) = (0, 0);
            for _ in 0..pairs {
                let asked = asked(|| pair(way));
                some += u64::from(asked > 0);
                most = most.max(asked);
            }
            // Two or three segments end; the producer is the first to go on in the next one, then
            // the consumer.
            assert!(some <= 6, "{some} of {pairs} pairs of {len} bytes allocate, way {way}");
            // Names and rows, and those of a new file where the storage worker had no time to hand
            // a drained one back.
            assert!(most <= 64, "{most} allocations in one pair of {len} bytes, way {way}");
        }
    }
}
