//! Promise P2 across openings: the same messages, order, place and numbers, whatever the options of
//! each opening.

use crate::support::{Messages, Random, drain_exactly, fill_queue, seed};
use mmq::{Options, Queue};

/// Options that differ in everything that shapes files and memory.
fn variety() -> Vec<Options> {
    let base = Options::new;
    vec![
        base().arena_size(4096),
        base().arena_size(4096).max_mapped_arenas(None),
        base().arena_size(128 << 10).max_mapped_arenas(10),
        base().arena_size(4 << 20).flush_every_ops(7),
        base().arena_size(8 << 20).max_mapped_arenas(None),
        base(),
        base().arena_size(64 << 10).flush_every_ops(1000),
        base().arena_size(8192).max_bytes(1 << 30),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Close,
    Drop,
}

fn end(queue: Queue, how: End) {
    match how {
        End::Close => queue.close().unwrap(),
        End::Drop => drop(queue),
    }
}

#[test]
fn messages_order_place_and_numbers_survive_every_change_of_options() {
    for how in [End::Close, End::Drop] {
        let dir = crate::support::tempdir().unwrap();
        let messages = Messages::new(seed("options change"), &[0..=100, 0..=9000, 0..=300_000]);
        let (mut head, mut tail) = (0, 0);
        for options in variety().iter().chain(variety().iter().rev()) {
            let queue = options.clone().open(dir.path()).unwrap();
            assert_eq!(
                queue.len(),
                tail - head,
                "len is right before anything is read ({how:?}, {options:?})"
            );
            assert_eq!(queue.is_empty(), tail == head);
            assert_eq!(queue.stats().next_seq, tail);
            if head < tail {
                let first = queue.peek().unwrap().expect("the message at the place");
                assert_eq!(first.seq(), head);
                messages.check(head, &first);
            }
            fill_queue(&queue, &messages, tail, tail + 60);
            tail += 60;
            for _ in 0..45 {
                let message = queue.dequeue().unwrap().unwrap();
                assert_eq!(message.seq(), head);
                messages.check(head, &message);
                head += 1;
            }
            end(queue, how);
        }
        drain_exactly(&Options::new().open(dir.path()).unwrap(), &messages, head, tail);
    }
}

#[test]
fn numbers_go_on_after_a_queue_was_emptied_and_reopened() {
    let dir = crate::support::tempdir().unwrap();
    for (how, round) in [End::Close, End::Drop].into_iter().cycle().zip(0..20) {
        let queue = Options::new().arena_size(4096).open(dir.path()).unwrap();
        assert!(queue.is_empty());
        assert_eq!(queue.enqueue("one").unwrap(), 2 * round);
        assert_eq!(queue.enqueue("two").unwrap(), 2 * round + 1);
        assert_eq!(queue.dequeue_batch(5).unwrap().len(), 2);
        end(queue, how);
    }
}

#[test]
fn reopening_without_doing_anything_changes_nothing() {
    let dir = crate::support::tempdir().unwrap();
    let messages = Messages::new(1, &[0..=2000]);
    let queue = Options::new().arena_size(4096).open(dir.path()).unwrap();
    fill_queue(&queue, &messages, 0, 5000);
    for _ in 0..1234 {
        queue.skip().unwrap();
    }
    drop(queue);
    for (how, options) in
        [End::Close, End::Drop].into_iter().cycle().zip(variety().iter().cycle().take(24))
    {
        let queue = options.clone().open(dir.path()).unwrap();
        assert_eq!(queue.len(), 5000 - 1234);
        end(queue, how);
    }
    drain_exactly(&Queue::open(dir.path()).unwrap(), &messages, 1234, 5000);
}

#[test]
fn a_queue_that_was_never_written_reopens_empty() {
    let dir = crate::support::tempdir().unwrap();
    for options in variety() {
        let queue = options.open(dir.path().join("queue")).unwrap();
        assert_eq!((queue.len(), queue.stats().next_seq), (0, 0));
        assert!(queue.dequeue().unwrap().is_none());
        queue.close().unwrap();
    }
}

#[test]
fn a_peeked_message_and_an_iterated_one_are_still_there_after_reopening() {
    let dir = crate::support::tempdir().unwrap();
    let messages = Messages::new(2, &[0..=5000]);
    let queue = Queue::open(dir.path()).unwrap();
    fill_queue(&queue, &messages, 0, 100);
    assert_eq!(queue.iter().count(), 100);
    queue.peek().unwrap().unwrap();
    queue.close().unwrap();
    drain_exactly(&Queue::open(dir.path()).unwrap(), &messages, 0, 100);
}

#[test]
fn a_moved_or_copied_directory_is_the_same_queue() {
    let dir = crate::support::tempdir().unwrap();
    let messages = Messages::new(3, &[0..=5000]);
    let queue = Options::new().arena_size(4096).open(dir.path().join("here")).unwrap();
    fill_queue(&queue, &messages, 0, 2000);
    for _ in 0..50 {
        queue.skip().unwrap();
    }
    queue.close().unwrap();
    std::fs::rename(dir.path().join("here"), dir.path().join("there")).unwrap();
    crate::support::copy_directory(&dir.path().join("there"), &dir.path().join("copy"));
    for name in ["there", "copy"] {
        drain_exactly(&Queue::open(dir.path().join(name)).unwrap(), &messages, 50, 2000);
    }
}

#[test]
fn random_openings_closings_and_traffic_agree_with_two_counters() {
    let seed = seed("random openings");
    let mut random = Random::new(seed);
    let messages = Messages::new(seed, &[0..=30, 0..=3000, 0..=100_000]);
    let dir = crate::support::tempdir().unwrap();
    let options = variety();
    let (mut head, mut tail) = (0, 0);
    for _ in 0..60 {
        let queue = random.pick(&options).clone().open(dir.path()).unwrap();
        assert_eq!(queue.len(), tail - head);
        let more = random.below(80);
        fill_queue(&queue, &messages, tail, tail + more);
        tail += more;
        for _ in 0..random.below(80).min(tail - head) {
            let message = queue.dequeue().unwrap().unwrap();
            assert_eq!(message.seq(), head);
            messages.check(head, &message);
            head += 1;
        }
        end(queue, *random.pick(&[End::Close, End::Drop]));
    }
    drain_exactly(&Queue::open(dir.path()).unwrap(), &messages, head, tail);
}

/// What is lent lies in a window that was mapped when less of the file was allocated.
#[test]
fn a_message_held_beyond_the_end_of_its_queue_stays_what_it_was() {
    for flush_every_ops in [None, Some(1)] {
        let dir = crate::support::tempdir().unwrap();
        let mut options = Options::new().arena_size(4 << 20);
        if let Some(operations) = flush_every_ops {
            options = options.flush_every_ops(operations);
        }
        let queue = options.open(dir.path()).unwrap();
        let mut held = Vec::new();
        for seq in 0..40u8 {
            queue.enqueue([seq; 50_000]).unwrap();
            held.push(queue.dequeue().unwrap().unwrap());
        }
        let other = queue.peek().unwrap();
        assert!(other.is_none());
        queue.close().unwrap();
        std::fs::remove_dir_all(dir.path()).unwrap();
        for (seq, message) in held.iter().enumerate() {
            assert!(message[..] == [seq as u8; 50_000], "message {seq}");
        }
    }
}
