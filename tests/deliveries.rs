//! At-least-once work: received messages are acknowledged in any order, come again when they are not, and a crash
//! brings back exactly what was not acknowledged.

#![cfg(unix)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use mmq::{Consumer, Delivery, Error, GapCause, OnFull, Options, Queue};
use support::{Messages, Random, count, fill_queue, itself, seed, within};

fn messages() -> Messages {
    Messages::new(7, &[0..=200])
}

fn filled(count: u64) -> (tempfile::TempDir, Queue) {
    let dir = tempfile::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    fill_queue(&queue, &messages(), 0, count);
    (dir, queue)
}

fn reopen(dir: &tempfile::TempDir, queue: Queue) -> Queue {
    drop(queue);
    Options::new().arena_size(64 << 10).open(dir.path()).unwrap()
}

#[track_caller]
fn next(consumer: &Consumer) -> Delivery {
    let delivery = consumer.receive().unwrap().expect("a message waits");
    messages().check(delivery.seq(), &delivery);
    delivery
}

/// Receives and acknowledges all that waits; their numbers.
fn drain(consumer: &Consumer) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(delivery) = consumer.receive().unwrap() {
        messages().check(delivery.seq(), &delivery);
        seqs.push(delivery.seq());
        delivery.ack().unwrap();
    }
    seqs
}

#[test]
fn each_message_is_handed_out_once_and_the_place_follows_the_acknowledged_prefix() {
    let (dir, queue) = filled(10);
    let consumer = queue.consumer("w").unwrap();
    let mut deliveries: Vec<_> = (0..10).map(|_| next(&consumer)).collect();
    assert!(consumer.receive().unwrap().is_none());
    assert_eq!(deliveries.iter().map(Delivery::seq).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert_eq!((consumer.len(), consumer.in_flight()), (10, 10), "nothing is done yet");
    deliveries.remove(9).ack().unwrap();
    deliveries.remove(0).ack().unwrap();
    deliveries.remove(0).ack().unwrap();
    assert_eq!((consumer.len(), consumer.in_flight()), (7, 7));
    let queue = {
        drop(consumer);
        // Dropping the queue first is fine; the deliveries learn of it.
        let queue = reopen(&dir, queue);
        for delivery in deliveries {
            assert!(matches!(delivery.ack(), Err(Error::Closed)));
        }
        queue
    };
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(consumer.len(), 7);
    assert_eq!(consumer.iter().map(|message| message.unwrap().seq()).collect::<Vec<_>>(), (2..9).collect::<Vec<_>>());
    assert_eq!(drain(&consumer), (2..9).collect::<Vec<_>>());
    assert_eq!((consumer.len(), queue.len()), (0, 10), "the queue's own consumer is another one");
}

#[test]
fn what_is_given_back_comes_first_and_counts_its_attempts() {
    let (_dir, queue) = filled(6);
    let consumer = queue.consumer("w").unwrap();
    let (a, b, c) = (next(&consumer), next(&consumer), next(&consumer));
    assert_eq!((a.attempts(), b.attempts(), c.attempts()), (1, 1, 1));
    c.nack();
    drop(a);
    let again = next(&consumer);
    assert_eq!((again.seq(), again.attempts()), (0, 2), "the oldest first");
    let other = next(&consumer);
    assert_eq!((other.seq(), other.attempts()), (2, 2));
    assert_eq!(next(&consumer).seq(), 3, "then what was never handed out; it goes back at once");
    again.nack();
    let third = next(&consumer);
    assert_eq!((third.seq(), third.attempts()), (0, 3));
    third.ack().unwrap();
    b.ack().unwrap();
    other.ack().unwrap();
    assert_eq!(drain(&consumer), [3, 4, 5]);
}

#[test]
fn a_panic_gives_the_message_back() {
    let (_dir, queue) = filled(2);
    let consumer = queue.consumer("w").unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _job = next(&consumer);
        std::panic::resume_unwind(Box::new("part of the test"));
    }));
    assert!(panic.is_err());
    assert_eq!(consumer.in_flight(), 0);
    let job = next(&consumer);
    assert_eq!((job.seq(), job.attempts()), (0, 2));
    job.ack().unwrap();
    assert_eq!(drain(&consumer), [1]);
}

#[test]
fn dequeue_peek_and_skip_mix_with_deliveries() {
    let (dir, queue) = filled(8);
    let consumer = queue.consumer("w").unwrap();
    let zero = next(&consumer);
    assert_eq!(consumer.peek().unwrap().unwrap().seq(), 1, "what is in flight is passed over");
    assert_eq!(consumer.dequeue().unwrap().unwrap().seq(), 1);
    assert_eq!(consumer.skip().unwrap(), Some(2));
    let three = next(&consumer);
    zero.nack();
    assert_eq!(consumer.peek().unwrap().unwrap().seq(), 0, "what was given back comes first");
    let mut buffer = Vec::new();
    assert_eq!(consumer.dequeue_into(&mut buffer).unwrap(), Some(0));
    assert_eq!(consumer.dequeue_batch(2).unwrap().iter().map(|m| m.seq()).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(consumer.len(), 3);
    three.nack();
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(consumer.len(), 3);
    assert_eq!(drain(&consumer), [3, 6, 7]);
}

#[test]
fn none_in_flight_is_no_limit_and_is_refused() {
    let (_dir, queue) = filled(2);
    assert_eq!(queue.in_flight(), 0, "it never read");
    let consumer = queue.consumer("w").unwrap();
    for refused in [queue.set_max_in_flight(0), consumer.set_max_in_flight(Some(0))] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    }
    let held = queue.receive().unwrap();
    assert_eq!((queue.in_flight(), consumer.in_flight()), (1, 0));
    queue.remove_consumer("w").unwrap();
    assert!(matches!(consumer.set_max_in_flight(1), Err(Error::NotFound { .. })));
    drop(held);
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn the_queue_itself_hands_out_too() {
    let (dir, queue) = filled(3);
    queue.set_max_in_flight(2).unwrap();
    let first = queue.receive().unwrap().unwrap();
    let second = queue.receive().unwrap().unwrap();
    assert!(queue.receive().unwrap().is_none(), "two are allowed");
    second.ack().unwrap();
    assert_eq!(queue.len(), 2);
    drop(first);
    let queue = reopen(&dir, queue);
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 0);
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 2);
    assert!(queue.dequeue().unwrap().is_none());
}

#[test]
fn no_more_are_in_flight_than_allowed() {
    let (_dir, queue) = filled(5);
    let consumer = queue.consumer("w").unwrap();
    consumer.set_max_in_flight(2).unwrap();
    let (a, b) = (next(&consumer), next(&consumer));
    assert!(consumer.receive().unwrap().is_none());
    assert!(consumer.receive_timeout(Duration::from_millis(20)).unwrap().is_none());
    assert_eq!(consumer.dequeue().unwrap().unwrap().seq(), 2, "dequeue needs no allowance");
    b.ack().unwrap();
    let c = next(&consumer);
    assert!(consumer.receive().unwrap().is_none());
    a.nack();
    let again = next(&consumer);
    assert_eq!(again.seq(), 0);
    consumer.set_max_in_flight(None).unwrap();
    let d = next(&consumer);
    assert_eq!((c.seq(), d.seq(), consumer.in_flight()), (3, 4, 3));
    // Whoever waits for an allowance is woken when one comes.
    consumer.set_max_in_flight(3).unwrap();
    queue.enqueue(messages().bytes(5)).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| consumer.receive_timeout(Duration::from_secs(20)).unwrap().map(|d| d.seq()));
        std::thread::sleep(Duration::from_millis(50));
        c.ack().unwrap();
        assert_eq!(waiter.join().unwrap(), Some(5));
    });
}

#[test]
fn acks_out_of_order_are_remembered_up_to_many_ranges_and_never_lose() {
    let (dir, queue) = filled(400);
    let consumer = queue.consumer("w").unwrap();
    let deliveries: Vec<_> = (0..400).map(|_| next(&consumer)).collect();
    let mut unacked = Vec::new();
    for delivery in deliveries {
        if delivery.seq() % 2 == 1 {
            delivery.ack().unwrap();
        } else {
            unacked.push(delivery);
        }
    }
    assert_eq!(consumer.len(), 200);
    drop(unacked);
    assert_eq!(consumer.len(), 200);
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    let came = drain(&consumer);
    let wanted: Vec<u64> = (0..400).filter(|seq| seq % 2 == 0 || *seq > 227).collect();
    assert_eq!(came, wanted, "114 ranges are remembered, the rest comes again");
}

#[test]
fn one_range_may_be_as_long_as_it_likes() {
    let (dir, queue) = filled(5000);
    let consumer = queue.consumer("w").unwrap();
    let first = next(&consumer);
    assert_eq!(drain(&consumer).len(), 4999);
    drop(first);
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(consumer.len(), 1);
    assert_eq!(drain(&consumer), [0]);
    assert!(consumer.is_empty());
}

#[test]
fn a_seek_calls_off_what_is_in_flight() {
    let (dir, queue) = filled(20);
    let consumer = queue.consumer("w").unwrap();
    let held: Vec<_> = (0..10).map(|_| next(&consumer)).collect();
    let mut held = held.into_iter();
    let zero = held.next().unwrap();
    held.nth(3).unwrap().ack().unwrap();
    consumer.seek(2).unwrap();
    assert_eq!((consumer.len(), consumer.in_flight()), (18, 0));
    zero.ack().unwrap();
    drop(held);
    assert_eq!(consumer.len(), 18, "acknowledging what was called off changes nothing");
    drop(consumer);
    let queue = reopen(&dir, queue);
    let consumer = queue.consumer("w").unwrap();
    assert_eq!(drain(&consumer), (2..20).collect::<Vec<_>>(), "4 was acknowledged before the seek, and comes again");
}

#[test]
fn a_fork_gets_what_is_not_acknowledged() {
    let (dir, queue) = filled(10);
    let consumer = queue.consumer("w").unwrap();
    let held: Vec<_> = (0..6).map(|_| next(&consumer)).collect();
    let keep: Vec<_> = held
        .into_iter()
        .filter_map(|delivery| match delivery.seq() {
            0 | 3 | 4 => {
                delivery.ack().unwrap();
                None
            }
            _ => Some(delivery),
        })
        .collect();
    let fork = consumer.fork("f").unwrap();
    assert_eq!((fork.len(), consumer.len()), (7, 7));
    drop(keep);
    drop((consumer, fork));
    let queue = reopen(&dir, queue);
    assert_eq!(drain(&queue.consumer("f").unwrap()), [1, 2, 5, 6, 7, 8, 9]);
    assert_eq!(drain(&queue.consumer("w").unwrap()), [1, 2, 5, 6, 7, 8, 9]);
}

#[test]
fn a_removed_consumer_and_one_made_anew_under_its_name_share_nothing() {
    let (_dir, queue) = filled(6);
    let consumer = queue.consumer("w").unwrap();
    let (a, b) = (next(&consumer), next(&consumer));
    b.ack().unwrap();
    queue.remove_consumer("w").unwrap();
    assert!(matches!(a.ack(), Err(Error::NotFound { .. })));
    assert!(matches!(consumer.receive(), Err(Error::NotFound { .. })));
    let anew = queue.consumer("w").unwrap();
    assert_eq!(drain(&anew), (0..6).collect::<Vec<_>>());
}

#[test]
fn segments_are_held_by_the_oldest_message_that_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Options::new().arena_size(4 << 20).open(dir.path()).unwrap();
    let big = vec![1; 600 << 10];
    for _ in 0..40 {
        queue.enqueue(&big).unwrap();
    }
    let first = queue.receive().unwrap().unwrap();
    let mut taken = 0;
    while let Some(delivery) = queue.receive().unwrap() {
        delivery.ack().unwrap();
        taken += 1;
    }
    assert_eq!((taken, queue.stats().oldest_seq), (39, 0));
    let before = queue.stats().segments;
    assert!(before >= 5, "{before} segments");
    assert_eq!(&first[..], &big[..], "lent for as long as it is held");
    first.ack().unwrap();
    support::eventually("the segments are given back", || queue.stats().segments == 1);
    assert!(queue.is_empty());
}

#[test]
fn a_message_dropped_to_make_room_may_be_acknowledged_and_is_told_of_when_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let queue =
        Options::new().arena_size(4096).max_bytes(64 << 10).on_full(OnFull::DropOldest).open(dir.path()).unwrap();
    let consumer = queue.consumer("w").unwrap();
    let payload = vec![9; 500];
    for _ in 0..4 {
        queue.enqueue(&payload).unwrap();
    }
    let held: Vec<Delivery> = (0..4).map(|_| consumer.receive().unwrap().unwrap()).collect();
    for _ in 0..200 {
        queue.enqueue(&payload).unwrap();
    }
    let oldest = queue.stats().oldest_seq;
    assert!(oldest > 4, "the first ones were dropped: {oldest}");
    assert_eq!(consumer.len(), 204 - oldest);
    let mut held = held.into_iter();
    assert_eq!(&held.next().unwrap()[..], &payload[..]);
    let two = held.nth(1).unwrap();
    two.ack().unwrap();
    // 0 and 1 were given back, 2 acknowledged, 3 is still in flight.
    match consumer.receive() {
        Err(Error::Gap(gap)) => assert_eq!((gap.first, gap.last, gap.cause), (0, 1, GapCause::Dropped)),
        other => panic!("expected the gap, got {other:?}"),
    }
    let three = held.next().unwrap();
    assert_eq!(three.seq(), 3);
    three.ack().unwrap();
    match consumer.receive() {
        Err(Error::Gap(gap)) => assert_eq!((gap.first, gap.last, gap.cause), (4, oldest - 1, GapCause::Dropped)),
        other => panic!("expected the gap, got {other:?}"),
    }
    let mut seqs = Vec::new();
    while let Some(delivery) = consumer.receive().unwrap() {
        seqs.push(delivery.seq());
        delivery.ack().unwrap();
    }
    assert_eq!(seqs, (oldest..204).collect::<Vec<_>>());
    assert_eq!(queue.stats().lost_dropped, oldest - 2, "what was acknowledged was not lost");
}

#[test]
fn many_consumers_remember_their_acks() {
    let (dir, queue) = filled(5);
    let names: Vec<String> = (0..20).map(|n| format!("consumer {n}")).collect();
    for name in &names {
        let consumer = queue.consumer(name).unwrap();
        let held: Vec<_> = (0..3).map(|_| next(&consumer)).collect();
        held.into_iter().nth(1).unwrap().ack().unwrap();
    }
    let queue = reopen(&dir, queue);
    for name in &names {
        assert_eq!(drain(&queue.consumer(name).unwrap()), [0, 2, 3, 4], "{name}");
    }
    // A row that was given up is used again.
    for name in &names {
        queue.remove_consumer(name).unwrap();
    }
    let consumer = queue.consumer("one more").unwrap();
    let held: Vec<_> = (0..2).map(|_| next(&consumer)).collect();
    held.into_iter().nth(1).unwrap().ack().unwrap();
    drop(consumer);
    let queue = reopen(&dir, queue);
    assert_eq!(drain(&queue.consumer("one more").unwrap()), [0, 2, 3, 4]);
}

#[test]
fn workers_get_each_message_exactly_once_among_them() {
    let (_dir, queue) = filled(2000);
    let consumer = queue.consumer("w").unwrap();
    let done = Mutex::new(BTreeMap::<u64, u32>::new());
    let nacks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (consumer, done, nacks) = (consumer.clone(), &done, &nacks);
            scope.spawn(move || {
                let mut random = Random::new(worker);
                while let Some(job) = consumer.receive_timeout(Duration::from_millis(200)).unwrap() {
                    messages().check(job.seq(), &job);
                    if random.chance(20) {
                        nacks.fetch_add(1, Ordering::Relaxed);
                        job.nack();
                    } else {
                        *done.lock().unwrap().entry(job.seq()).or_default() += 1;
                        job.ack().unwrap();
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!(done.len(), 2000);
    assert!(done.values().all(|times| *times == 1));
    assert!(nacks.load(Ordering::Relaxed) > 0);
    assert!(consumer.is_empty());
}

/// What the child says: `open`, `ack N` before and `acked N` after an acknowledgement, `done` at the end.
fn tell(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).expect("the parent reads");
}

#[test]
fn the_child_that_works() {
    let Ok(dir) = std::env::var("MMQ_WORK_DIR") else { return };
    let seed = count("MMQ_WORK_SEED", 0);
    let window = count("MMQ_WORK_WINDOW", 16) as usize;
    let mut random = Random::new(seed);
    let queue = Options::new().arena_size(64 << 10).open(dir).expect("the child opens the queue");
    let consumer = queue.consumer("w").unwrap();
    consumer.set_max_in_flight(window as u32).unwrap();
    tell("open");
    let mut held: Vec<Delivery> = Vec::new();
    loop {
        match consumer.receive().unwrap() {
            Some(delivery) => held.push(delivery),
            None if held.is_empty() => break,
            None => {}
        }
        if held.len() == window || random.chance(3) {
            let delivery = held.swap_remove(random.below(held.len() as u64) as usize);
            if random.chance(20) {
                delivery.nack();
            } else {
                let seq = delivery.seq();
                tell(&format!("ack {seq}"));
                delivery.ack().unwrap();
                tell(&format!("acked {seq}"));
            }
        }
    }
    tell("done");
    // Not dropped: the parent kills it.
    std::thread::sleep(Duration::from_secs(3600));
}

/// SIGKILL at a random moment brings back what was not acknowledged, exactly, and nothing else.
#[test]
fn a_killed_process_gets_back_exactly_what_it_had_not_acknowledged() {
    let seed = seed("killed at work");
    let mut random = Random::new(seed);
    let total = 3000;
    let (dir, queue) = filled(total);
    queue.consumer("w").unwrap();
    drop(queue);
    let mut acked = BTreeSet::new();
    let rounds = count("MMQ_KILL_ROUNDS", 20);
    for round in 0..rounds {
        let window = 2 + random.below(60);
        let mut command = itself("the_child_that_works");
        command.env("MMQ_WORK_DIR", dir.path()).env("MMQ_WORK_SEED", random.next().to_string());
        command.env("MMQ_WORK_WINDOW", window.to_string());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert_eq!(first.trim_end(), "open");
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        std::thread::sleep(Duration::from_micros(random.below(15_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        let mut acking = None;
        for line in receiver {
            match line.split_once(' ') {
                Some(("ack", seq)) => acking = Some(seq.parse::<u64>().unwrap()),
                Some(("acked", seq)) => {
                    assert!(acked.insert(seq.parse::<u64>().unwrap()), "{seq} was acknowledged twice (round {round})");
                    acking = None;
                }
                _ => assert_eq!(line, "done"),
            }
        }
        let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
        let consumer = queue.consumer("w").unwrap();
        let len = consumer.len();
        let waiting: BTreeSet<u64> = consumer.iter().map(|message| message.unwrap().seq()).collect();
        assert_eq!(len, waiting.len() as u64);
        let mut wanted: BTreeSet<u64> = (0..total).filter(|seq| !acked.contains(seq)).collect();
        if let Some(seq) = acking
            && !waiting.contains(&seq)
        {
            // Death came between the acknowledgement and the word of it.
            wanted.remove(&seq);
            acked.insert(seq);
        }
        assert_eq!(waiting, wanted, "round {round}, window {window}");
        if wanted.is_empty() {
            break;
        }
        if random.chance(2) {
            queue.close().unwrap();
        }
    }
    println!("{} of {total} acknowledged", acked.len());
}

#[test]
fn deliveries_go_to_other_threads_and_outlive_the_queue() {
    let (_dir, queue) = filled(3);
    let delivery = queue.receive().unwrap().unwrap();
    let text = delivery.to_vec();
    let thread = std::thread::spawn(move || {
        drop(queue);
        delivery
    });
    let delivery = thread.join().unwrap();
    assert_eq!(&delivery[..], &text[..]);
    assert!(matches!(delivery.ack(), Err(Error::Closed)));
}

#[test]
fn acknowledging_needs_no_space() {
    let (dir, queue) = filled(50);
    let consumer = queue.consumer("w").unwrap();
    let held: Vec<_> = (0..50).map(|_| next(&consumer)).collect();
    let before = queue.stats().disk_bytes;
    held.into_iter().rev().for_each(|delivery| {
        if delivery.seq() != 0 {
            delivery.ack().unwrap();
        }
    });
    assert_eq!(queue.stats().disk_bytes, before);
    drop(consumer);
    let queue = reopen(&dir, queue);
    assert_eq!(drain(&queue.consumer("w").unwrap()), [0]);
}

#[test]
fn every_operation_count_flushes_acks_too() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).flush_every_ops(1).open(dir.path()).unwrap();
    queue.enqueue("a").unwrap();
    queue.enqueue("b").unwrap();
    let (a, b) = (queue.receive().unwrap().unwrap(), queue.receive().unwrap().unwrap());
    b.ack().unwrap();
    a.ack().unwrap();
    assert_eq!(queue.stats().dequeued, 2);
    assert!(queue.is_empty());
}

#[test]
fn a_waiting_receiver_is_woken_by_a_message_given_back() {
    let (_dir, queue) = filled(1);
    within(Duration::from_secs(30), move || {
        let consumer = queue.consumer("w").unwrap();
        let held = next(&consumer);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let delivery = consumer.receive_timeout(Duration::from_secs(20)).unwrap().unwrap();
                (delivery.seq(), delivery.attempts())
            });
            std::thread::sleep(Duration::from_millis(30));
            held.nack();
            assert_eq!(waiter.join().unwrap(), (0, 2));
        });
    });
}
