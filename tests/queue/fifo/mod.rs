//! Promise P2 without a crash: what goes in comes out, byte for byte, in order, whatever its size
//! and by every method.

mod parts;

use std::sync::Arc;

use crate::support::{KIB, MIB, Messages, Random, comes, drain_exactly, fill_queue, seed, some_of};
use mmq::{Error, Message, Options, Queue};
use tempfile::TempDir;

/// Arenas below 4 MiB share a segment of this size.
const SEGMENT: usize = 4 * MIB;

fn small() -> Options {
    Options::new().arena_size(4096)
}

fn new_queue(options: &Options) -> (TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = options.clone().open(dir.path().join("queue")).unwrap();
    (dir, queue)
}

fn texts(queue: &Queue, max: usize) -> Vec<String> {
    queue
        .dequeue_batch(max)
        .unwrap()
        .iter()
        .map(|message| message.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn messages_come_out_in_the_order_they_went_in() {
    let (_dir, queue) = new_queue(&small());
    let messages = Messages::new(seed("order"), &[0..=300]);
    fill_queue(&queue, &messages, 0, 20_000);
    drain_exactly(&queue, &messages, 0, 20_000);
}

#[test]
fn an_empty_queue_answers_none_to_every_read() {
    let (_dir, queue) = new_queue(&small());
    for _ in 0..2 {
        let mut buffer = b"untouched".to_vec();
        assert!(queue.peek().unwrap().is_none());
        assert!(queue.dequeue().unwrap().is_none());
        assert_eq!(queue.peek_into(&mut buffer).unwrap(), None);
        assert_eq!(queue.dequeue_into(&mut buffer).unwrap(), None);
        assert_eq!(queue.skip().unwrap(), None);
        assert!(queue.dequeue_batch(10).unwrap().is_empty());
        assert!(queue.iter().next().is_none());
        assert!(queue.is_empty());
        assert_eq!(queue.len(), 0);
        // The same once something went through.
        queue.enqueue("something").unwrap();
        assert_eq!(&*queue.dequeue().unwrap().unwrap(), b"something");
    }
}

#[test]
fn a_message_of_no_bytes_is_a_message() {
    let (_dir, queue) = new_queue(&small());
    for seq in 0..1000 {
        assert_eq!(queue.enqueue([]).unwrap(), seq);
    }
    assert_eq!(queue.enqueue_parts(&[]).unwrap(), 1000);
    assert_eq!(queue.enqueue_batch(["", "", "x"]).unwrap(), 1001..1004);
    assert_eq!(queue.len(), 1004);
    let mut buffer = b"old bytes".to_vec();
    assert_eq!(queue.dequeue_into(&mut buffer).unwrap(), Some(0));
    assert!(buffer.is_empty());
    for seq in 1..1003 {
        let message = queue.dequeue().unwrap().expect("a message of no bytes");
        assert_eq!((message.seq(), message.len()), (seq, 0));
    }
    assert_eq!(&*queue.dequeue().unwrap().unwrap(), b"x");
    assert!(queue.is_empty());
}

#[test]
fn peeking_takes_nothing_and_shows_what_dequeue_then_takes() {
    let (_dir, queue) = new_queue(&small());
    queue.enqueue("first").unwrap();
    queue.enqueue("second").unwrap();
    let mut buffer = Vec::new();
    for _ in 0..3 {
        let message = queue.peek().unwrap().unwrap();
        assert_eq!((message.seq(), &*message), (0, &b"first"[..]));
        assert_eq!(queue.peek_into(&mut buffer).unwrap(), Some(0));
        assert_eq!(buffer, b"first");
        assert_eq!(queue.len(), 2);
    }
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 0);
    assert_eq!(&*queue.peek().unwrap().unwrap(), b"second");
}

#[test]
fn a_buffer_is_replaced_and_not_grown_when_it_is_large_enough() {
    let (_dir, queue) = new_queue(&small());
    let messages = Messages::new(1, &[0..=20_000]);
    fill_queue(&queue, &messages, 0, 200);
    let mut buffer = Vec::with_capacity(20_000);
    let (place, capacity) = (buffer.as_ptr(), buffer.capacity());
    for seq in 0..200 {
        assert_eq!(queue.peek_into(&mut buffer).unwrap(), Some(seq));
        messages.check(seq, &buffer);
        assert_eq!(queue.dequeue_into(&mut buffer).unwrap(), Some(seq));
        messages.check(seq, &buffer);
        assert_eq!(
            (buffer.as_ptr(), buffer.capacity()),
            (place, capacity),
            "the buffer was allocated anew"
        );
    }
}

#[test]
fn skip_takes_one_message_and_names_it() {
    let (_dir, queue) = new_queue(&small());
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    assert_eq!(queue.skip().unwrap(), Some(0));
    assert_eq!(&*queue.dequeue().unwrap().unwrap(), b"b");
    assert_eq!(queue.skip().unwrap(), Some(2));
    assert_eq!(queue.skip().unwrap(), None);
}

#[test]
fn iterating_looks_ahead_and_consumes_nothing() {
    let (_dir, queue) = new_queue(&small());
    let messages = Messages::new(2, &[0..=9000, 0..=10]);
    fill_queue(&queue, &messages, 0, 500);
    queue.skip().unwrap();
    for take in [1, 17, usize::MAX] {
        let mut seq = 1;
        for message in queue.iter().take(take) {
            let message = message.unwrap();
            assert_eq!(message.seq(), seq);
            messages.check(seq, &message);
            seq += 1;
        }
        assert_eq!(seq, 1 + take.min(499) as u64);
        assert_eq!(queue.len(), 499);
    }
    drain_exactly(&queue, &messages, 1, 500);
}

#[test]
fn a_batch_gets_adjoining_numbers_and_comes_out_in_its_order() {
    let (_dir, queue) = new_queue(&small());
    assert_eq!(queue.enqueue_batch(["a", "b", "c"]).unwrap(), 0..3);
    assert_eq!(queue.enqueue("d").unwrap(), 3);
    assert_eq!(queue.enqueue_batch(vec![b"e".to_vec(), vec![b'f'; 10_000]]).unwrap(), 4..6);
    assert_eq!(texts(&queue, 4), ["a", "b", "c", "d"]);
    assert_eq!(queue.dequeue_batch(100).unwrap().len(), 2);
}

#[test]
fn a_batch_of_nothing_changes_nothing() {
    let (_dir, queue) = new_queue(&small());
    queue.enqueue("a").unwrap();
    let empty = queue.enqueue_batch(Vec::<Vec<u8>>::new()).unwrap();
    assert!(empty.is_empty());
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.enqueue("b").unwrap(), 1);
    assert!(queue.dequeue_batch(0).unwrap().is_empty());
    assert_eq!(texts(&queue, 9), ["a", "b"]);
}

#[test]
fn a_batch_larger_than_an_arena_or_a_segment_is_one_batch() {
    let (_dir, queue) = new_queue(&small());
    let messages = Messages::new(3, &[0..=2000]);
    assert_eq!(queue.enqueue_batch((0..10).map(|seq| messages.bytes(seq))).unwrap(), 0..10);
    assert_eq!(queue.enqueue_batch((10..8000).map(|seq| messages.bytes(seq))).unwrap(), 10..8000);
    assert_eq!(queue.dequeue_batch(3).unwrap().len(), 3);
    drain_exactly(&queue, &messages, 3, 8000);
}

#[test]
fn text_goes_in_as_it_is_and_comes_out_as_text() {
    let (_dir, queue) = new_queue(&small());
    let owned = String::from("Größe: 三つ");
    queue.enqueue("plain").unwrap();
    queue.enqueue(&owned).unwrap();
    queue.enqueue(owned.clone()).unwrap();
    queue.enqueue(b"bytes").unwrap();
    queue.enqueue([0xff, 0xfe]).unwrap();
    assert_eq!(queue.peek().unwrap().unwrap().as_str().unwrap(), "plain");
    assert_eq!(texts(&queue, 4), ["plain", &owned, &owned, "bytes"]);
    let not_text = queue.dequeue().unwrap().unwrap();
    assert_eq!(not_text.as_str().unwrap_err().valid_up_to(), 0);
    assert_eq!(not_text.into_vec(), [0xff, 0xfe]);
}

#[test]
fn a_message_outlives_its_queue_and_the_directory() {
    let (dir, queue) = new_queue(&small());
    let messages = Messages::new(5, &[100..=100, 9000..=9000, 5 * MIB..=5 * MIB]);
    fill_queue(&queue, &messages, 0, 12);
    let peeked = queue.peek().unwrap().unwrap();
    let held: Vec<Message> = queue.dequeue_batch(12).unwrap();
    queue.close().unwrap();
    drop(dir);
    messages.check(0, &peeked);
    for (seq, message) in (0..).zip(&held) {
        assert_eq!(message.seq(), seq);
        messages.check(seq, message);
    }
    let elsewhere =
        std::thread::spawn(move || held.into_iter().map(Message::into_vec).collect::<Vec<_>>());
    for (seq, bytes) in (0..).zip(elsewhere.join().unwrap()) {
        messages.check(seq, &bytes);
    }
}

/// Where a closed queue gets no memory for its own copy of a message, nobody else may use the file.
#[cfg(target_os = "linux")]
#[test]
fn without_memory_for_a_copy_a_held_message_keeps_the_closed_queue_locked() {
    let dir = crate::support::tempdir().unwrap();
    let mut child = crate::support::itself("fifo::the_child_that_closes_without_memory");
    let output = child.env("MMQ_TEST_DIR", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("it was locked"), "{output:?}");
}

/// Not a test of its own.
#[cfg(target_os = "linux")]
#[test]
fn the_child_that_closes_without_memory() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let Some(dir) = std::env::var_os("MMQ_TEST_DIR") else { return };
    let options = Options::new().arena_size(8 << 20);
    let queue = options.open(&dir).unwrap();
    queue.enqueue_batch(["first", "second"]).unwrap();
    let held = [queue.dequeue().unwrap().unwrap(), queue.dequeue().unwrap().unwrap()];
    let before = getrlimit(Resource::As);
    let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
    let limit = pages * rustix::param::page_size() as u64 + (1 << 20);
    setrlimit(Resource::As, rustix::process::Rlimit { current: Some(limit), ..before }).unwrap();
    let closed = queue.close();
    setrlimit(Resource::As, before).unwrap();
    closed.unwrap();
    for message in held {
        let error = options.open(&dir).map(drop).expect_err("a message of it is held");
        assert!(matches!(error, Error::Locked { here: true, .. }), "{error}");
        assert!(error.to_string().contains("holds a message of it"), "{error}");
        assert!(["first", "second"].contains(&message.as_str().unwrap()));
    }
    options.open(&dir).unwrap().close().unwrap();
    println!("it was locked");
}

#[test]
fn a_held_message_keeps_its_bytes_while_its_space_is_used_again() {
    let (_dir, queue) = new_queue(&small());
    let messages = Messages::new(6, &[0..=3000, 50_000..=60_000]);
    let mut held = Vec::new();
    for seq in 0..2000 {
        queue.enqueue(messages.bytes(seq)).unwrap();
        let message = queue.dequeue().unwrap().unwrap();
        if seq % 100 == 0 {
            held.push(message);
        }
    }
    for message in &held {
        messages.check(message.seq(), message);
    }
}

#[test]
fn sizes_around_every_boundary_come_back_whole() {
    let near = |boundary: usize| (boundary - 160..boundary + 40).step_by(1);
    let messages = Messages::new(seed("boundaries"), &[]);
    let sizes: Vec<usize> =
        near(4096).chain(near(8192)).chain(near(3 * 4096)).chain(0..200).collect();
    let arenas = [4 * KIB, 8 * KIB, 64 * KIB, SEGMENT];
    for (cap, arena) in arenas.into_iter().flat_map(|arena| [(Some(3), arena), (None, arena)]) {
        let (_dir, queue) =
            new_queue(&Options::new().arena_size(arena as u64).max_mapped_arenas(cap));
        let around =
            [arena - 1, arena, arena + 1, 2 * arena, 3 * arena - 1, 3 * arena, 3 * arena + 1];
        let all: Vec<usize> = sizes.iter().copied().chain(around).collect();
        for (seq, &len) in (0..).zip(&all) {
            queue.enqueue(messages.of_len(seq, len)).unwrap();
        }
        for (seq, &len) in (0..).zip(&all) {
            messages.check_len(seq, len, &queue.dequeue().unwrap().unwrap());
        }
    }
}

#[test]
fn a_segment_may_end_after_any_byte_of_a_record() {
    // Of a sample every fifth behind the first ones, where the first three records' headers and
    // lengths lie: each alignment is among them.
    let rare = some_of(12..80, 5, 3);
    let shorts: Vec<usize> = (0..12).chain(rare).map(|number| 5 * number as usize).collect();
    for arena in [4 * KIB, SEGMENT] {
        let (_dir, queue) = new_queue(&Options::new().arena_size(arena as u64));
        let messages = Messages::new(7, &[]);
        // The first message ends a little before the segment does, a little more before it each
        // time.
        for (round, short) in shorts.iter().enumerate() {
            let first = SEGMENT - short;
            let sizes = [first, 0, 10, 300, 5000];
            for (seq, len) in (5 * round as u64..).zip(sizes) {
                assert_eq!(queue.enqueue(messages.of_len(seq, len)).unwrap(), seq);
            }
            for (seq, len) in (5 * round as u64..).zip(sizes) {
                messages.check_len(seq, len, &queue.dequeue().unwrap().unwrap());
            }
        }
    }
}

#[test]
fn a_message_may_be_larger_than_arena_segment_and_memory_cap() {
    let messages = Messages::new(
        8,
        &[0..=50, SEGMENT + 1..=SEGMENT + 9, 11 * MIB..=13 * MIB, 30 * MIB..=30 * MIB],
    );
    for (number, arena) in (0..).zip([4 * KIB, 128 * KIB, SEGMENT]) {
        if !comes(number, 2) {
            continue;
        }
        let (_dir, queue) =
            new_queue(&Options::new().arena_size(arena as u64).max_mapped_arenas(3));
        fill_queue(&queue, &messages, 0, 8);
        let mut buffer = Vec::new();
        assert_eq!(queue.peek_into(&mut buffer).unwrap(), Some(0));
        drain_exactly(&queue, &messages, 0, 8);
    }
}

#[test]
fn a_random_mixture_of_sizes_and_backlogs_keeps_its_order() {
    let seed = seed("mixture");
    let mut random = Random::new(seed);
    let messages = Messages::new(seed, &[0..=64, 0..=64, 0..=5000, 0..=70_000, 0..=300_000]);
    let (_dir, queue) = new_queue(&Options::new().arena_size(64 << 10));
    let (mut head, mut tail) = (0, 0);
    while tail < 3000 {
        for _ in 0..random.below(60) {
            assert_eq!(queue.enqueue(messages.bytes(tail)).unwrap(), tail);
            tail += 1;
        }
        for _ in 0..random.below(60).min(tail - head) {
            let message = queue.dequeue().unwrap().unwrap();
            assert_eq!(message.seq(), head);
            messages.check(head, &message);
            head += 1;
        }
        assert_eq!(queue.len(), tail - head);
    }
    drain_exactly(&queue, &messages, head, tail);
}

#[test]
fn the_public_types_are_shared_and_sent_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Queue>();
    shared::<Message>();
    shared::<mmq::Error>();
    let (_dir, queue) = new_queue(&small());
    let queue = Arc::new(queue);
    let other = Arc::clone(&queue);
    std::thread::spawn(move || other.enqueue("from there")).join().unwrap().unwrap();
    assert_eq!(&*queue.dequeue().unwrap().unwrap(), b"from there");
}

/// Answers once; the second time it panics.
struct Fickle(std::cell::Cell<u32>);

impl AsRef<[u8]> for Fickle {
    fn as_ref(&self) -> &[u8] {
        self.0.set(self.0.get() + 1);
        assert!(self.0.get() < 2, "asked again");
        b"fickle"
    }
}

#[test]
fn a_message_of_a_batch_is_asked_for_its_bytes_once_and_outside_of_every_lock() {
    let dir = crate::support::tempdir().unwrap();
    let queue = mmq::Queue::open(dir.path()).unwrap();
    assert_eq!(
        queue.enqueue_batch([Fickle(Default::default()), Fickle(Default::default())]).unwrap(),
        0..2
    );
    assert_eq!(queue.enqueue("after").unwrap(), 2);
    assert_eq!(queue.len(), 3);
}

#[test]
fn a_batch_in_the_callers_memory_has_what_single_reads_have() {
    let dir = crate::support::tempdir().unwrap();
    // Messages longer than a segment, too: they lie in no window.
    let queue = mmq::Options::new().arena_size(4096).open(dir.path()).unwrap();
    let messages = crate::support::Messages::new(5, &[0..=300, 5000..=20_000]);
    crate::support::fill_queue(&queue, &messages, 0, 300);
    let consumer = queue.consumer("reads one by one").unwrap();
    let mut batch = mmq::MessageBatch::new();
    let mut next = 0;
    for max in [0, 1, 2, 63, 64, 65, 1000] {
        let taken = queue.dequeue_batch_into(&mut batch, max).unwrap();
        assert_eq!((batch.len(), batch.is_empty()), (taken, taken == 0));
        assert!(taken == max || max == 1000, "{taken} of {max}");
        for (at, (seq, bytes)) in batch.iter().enumerate() {
            assert_eq!(batch.get(at), Some((seq, bytes)));
            let one = consumer.dequeue().unwrap().unwrap();
            assert_eq!((seq, seq, bytes), (next, one.seq(), &one[..]));
            next += 1;
        }
        assert_eq!(batch.get(taken), None);
    }
    assert_eq!(next, 300);
    assert_eq!(queue.dequeue_batch_into(&mut batch, 9).unwrap(), 0);
}
