//! A look from outside, by [`Inspector`]: it says what is there, whoever has the queue, and changes
//! nothing.

mod verified;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::support::{effort, itself, mix};
use mmq::{Error, GapCause, Inspector, OnFull, Options, Queue, QueueState, Seen, Snapshot, Start};

/// The message with this number: its length and its bytes follow from the number.
fn message(seq: u64) -> Vec<u8> {
    let len = (mix(seq) % 300) as usize;
    (0..len as u64).map(|at| mix(seq ^ at << 32) as u8).collect()
}

fn fill(queue: &Queue, count: u64) {
    for _ in 0..count {
        let next = queue.stats().next_seq;
        assert_eq!(queue.enqueue(message(next)).unwrap(), next);
    }
}

fn look(dir: &Path) -> Snapshot {
    Inspector::open(dir).unwrap().snapshot().unwrap()
}

/// The numbers of the messages from `from` on, each of which is checked.
fn numbers(dir: &Path, from: Start) -> Vec<u64> {
    let inspector = Inspector::open(dir).unwrap();
    let seen = inspector.messages(from).filter_map(|seen| match seen.unwrap() {
        Seen::Message { message: found, .. } => {
            assert_eq!(found[..], message(found.seq()), "{}", found.seq());
            Some(found.seq())
        }
        Seen::Gap(gap) if gap.cause == GapCause::Reserved => None,
        other => panic!("{other:?}"),
    });
    seen.collect()
}

/// Nobody knows what the disk has of the files that somebody copied.
#[test]
fn of_a_copy_nothing_is_known_to_be_durable_before_its_first_flush() {
    let (source, copy) = (crate::support::tempdir().unwrap(), crate::support::tempdir().unwrap());
    let options = Options::new().arena_size(4096);
    let queue = options.open(source.path()).unwrap();
    (0..1500).for_each(|seq| assert_eq!(queue.enqueue([1; 4000]).unwrap(), seq));
    assert_eq!(queue.dequeue_batch(1000).unwrap().len(), 1000);
    queue.close().unwrap();
    assert_eq!(look(source.path()).durable_seq, 1500);
    for name in files(source.path()).keys() {
        fs::copy(source.path().join(name), copy.path().join(name)).unwrap();
    }
    let oldest = look(copy.path()).oldest_seq;
    assert!((1..=1000).contains(&oldest), "{oldest}");
    assert_eq!(look(copy.path()).durable_seq, oldest);
    let queue = options.open(copy.path()).unwrap();
    let all = || (queue.durable_seq(), queue.stats().durable_seq, look(copy.path()).durable_seq);
    assert_eq!(all(), (oldest, oldest, oldest));
    queue.wait_durable(1200).unwrap();
    assert_eq!(all(), (1500, 1500, 1500));
}

/// Bytes, length and times of every file.
fn files(dir: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let listed = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let listed = listed.map(|file| {
        let name = file.file_name().into_string().unwrap();
        (name, (fs::read(file.path()).unwrap(), file.metadata().unwrap().modified().unwrap()))
    });
    listed.collect()
}

#[test]
fn the_figures_of_a_queue_in_use_are_its_own() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(64 << 10);
    let queue = options.open(dir.path()).unwrap();
    let before = SystemTime::now();
    fill(&queue, 1000);
    let (default, slow) = (queue.consumer("fast").unwrap(), queue.consumer("slow").unwrap());
    for _ in 0..300 {
        default.dequeue().unwrap().unwrap();
    }
    let first = slow.receive().unwrap().unwrap();
    slow.receive().unwrap().unwrap().ack().unwrap();
    slow.receive().unwrap().unwrap().ack().unwrap();
    queue.flush().unwrap();
    fill(&queue, 50);

    let (seen, stats) = (look(dir.path()), queue.stats());
    assert_eq!(seen.state, QueueState::Owned);
    assert_eq!(seen.owner_pid, Some(std::process::id()));
    assert!(seen.owned_since.unwrap() <= before && seen.created.unwrap() <= before);
    assert_eq!(
        (seen.messages, seen.bytes, seen.next_seq, seen.oldest_seq, seen.durable_seq),
        (stats.messages, stats.bytes, stats.next_seq, stats.oldest_seq, stats.durable_seq)
    );
    assert_eq!(
        (seen.segments, seen.spare_segments, seen.consumers.len() as u64),
        (stats.segments, stats.spare_segments, stats.consumers)
    );
    assert_eq!(seen.gaps, []);
    let owner = seen.owner.unwrap();
    assert!(!seen.poisoned && owner.last_flush_error.is_none());
    assert_eq!((owner.flushes, owner.refused), (stats.flushes, 0));
    assert_eq!((owner.enqueued, owner.opened_at), (1000, seen.owned_since));
    let by_name = |name: &str| seen.consumers.iter().find(|one| one.name == name).unwrap();
    let (fast, waiting) = (by_name("fast"), by_name("slow"));
    assert_eq!((fast.next_seq, fast.messages, fast.acknowledged_ahead), (300, 750, 0));
    assert_eq!((waiting.next_seq, waiting.messages, waiting.acknowledged_ahead), (0, 1048, 2));
    assert_eq!(waiting.done_ahead, [(1, 2)]);
    assert!(waiting.oldest_age.unwrap() >= fast.oldest_age.unwrap());
    assert_eq!(numbers(dir.path(), Start::Oldest), (0..1050).collect::<Vec<_>>());
    assert_eq!(numbers(dir.path(), Start::Seq(700)), (700..1050).collect::<Vec<_>>());
    assert_eq!(numbers(dir.path(), Start::End), [0u64; 0]);
    drop(first);
}

#[test]
fn a_queue_that_nobody_has_is_what_its_next_opening_finds() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("queue");
    let none = Inspector::open(&queue).unwrap_err();
    assert!(matches!(none, Error::NotFound { what: "queue", .. }), "{none}");
    fs::create_dir(&queue).unwrap();
    let none = Inspector::open(&queue).unwrap().snapshot().unwrap_err();
    assert!(matches!(none, Error::NotFound { what: "queue", .. }), "{none}");

    Queue::open(&queue).unwrap().close().unwrap();
    let seen = look(&queue);
    assert_eq!((seen.state, seen.next_seq, seen.owner_pid), (QueueState::Closed, 0, None));
    let open = Queue::open(&queue).unwrap();
    fill(&open, 500);
    open.dequeue().unwrap().unwrap();
    let stats = open.stats();
    open.close().unwrap();
    let before = files(&queue);
    let seen = look(&queue);
    assert_eq!((seen.state, seen.owner_pid, seen.owned_since), (QueueState::Closed, None, None));
    assert_eq!(
        (seen.messages, seen.next_seq, seen.oldest_seq),
        (stats.messages, stats.next_seq, stats.oldest_seq)
    );
    assert_eq!(numbers(&queue, Start::Seq(1)), (1..500).collect::<Vec<_>>());
    assert!(files(&queue) == before, "a look changed a file");

    // In another directory no byte is known to be whole: as behind a power cut.
    let copy = dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let open = Queue::open(&queue).unwrap();
    fill(&open, 20);
    for (name, (bytes, _)) in files(&queue) {
        fs::write(copy.join(name), bytes).unwrap();
    }
    open.close().unwrap();
    let before = files(&copy);
    let seen = look(&copy);
    assert_eq!((seen.state, seen.found_behind), (QueueState::Cut, Some(20)));
    assert_eq!(numbers(&copy, Start::Seq(1)), (1..520).collect::<Vec<_>>());
    assert!(files(&copy) == before, "a look changed a file");
    let found = Queue::open(&copy).unwrap().stats();
    assert_eq!((seen.messages, seen.next_seq), (found.messages, found.next_seq));
}

#[test]
fn a_directory_of_other_files_is_no_queue() {
    let dir = crate::support::tempdir().unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let refused = Inspector::open(dir.path()).unwrap().snapshot().unwrap_err();
    assert!(matches!(refused, Error::NotAQueue { .. }), "{refused}");
    let refused = Inspector::open(dir.path()).unwrap().messages(Start::Oldest).next();
    assert!(matches!(refused, Some(Err(Error::NotAQueue { .. }))));
}

/// Not a test: the process that [`a_queue_whose_process_died_was_left`] kills.
#[test]
#[ignore = "started by another test"]
fn the_child_that_holds_a_queue() {
    let queue = Queue::open(std::env::var("MMQ_TEST_DIR").unwrap()).unwrap();
    fill(&queue, 321);
    queue.dequeue().unwrap().unwrap();
    println!("holds it");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_queue_whose_process_died_was_left() {
    let dir = crate::support::tempdir().unwrap();
    let mut child = itself("inspector::the_child_that_holds_a_queue")
        .env("MMQ_TEST_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("holds it")));
    let seen = look(dir.path());
    assert_eq!((seen.state, seen.owner_pid), (QueueState::Owned, Some(child.id())));
    assert_eq!((seen.next_seq, seen.messages), (321, 320));
    child.kill().unwrap();
    child.wait().unwrap();
    let seen = look(dir.path());
    assert_eq!((seen.state, seen.owner_pid), (QueueState::Left, None));
    assert_eq!((seen.next_seq, seen.messages), (321, 320));
    assert_eq!(numbers(dir.path(), Start::Seq(1)), (1..321).collect::<Vec<_>>());
}

#[test]
fn what_an_opening_would_make_of_a_queue_is_shown_of_one_that_nobody_has() {
    let dir = crate::support::tempdir().unwrap();
    let queue = with_all_parts(dir.path());
    let inspector = Inspector::open(dir.path()).unwrap();
    match inspector.as_opened() {
        Err(Error::Locked { pid, here: true, since: Some(_), .. }) => {
            assert_eq!(pid, std::process::id());
        }
        other => panic!("{other:?}"),
    }
    queue.close().unwrap();
    let opened = inspector.as_opened().unwrap();
    let seen = look(dir.path());
    assert_eq!((opened.snapshot.messages, opened.snapshot.state), (seen.messages, seen.state));
    assert_eq!(opened.snapshot.consumers.len(), 2);
    assert_eq!((opened.set_aside, opened.created, opened.removed), (vec![], vec![], vec![]));
    fs::rename(dir.path().join("index"), dir.path().join("index.damaged")).unwrap();
    fs::create_dir(dir.path().join("index")).unwrap();
    let before = crate::support::names(dir.path());
    let opened = inspector.as_opened().unwrap();
    assert_eq!(opened.set_aside, [("index".into(), "index.1.damaged".into())]);
    assert_eq!((opened.created, opened.snapshot.next_seq), (vec!["index".into()], seen.next_seq));
    assert_eq!(crate::support::names(dir.path()), before);
    Queue::open(dir.path()).unwrap();
    assert!(dir.path().join("index.1.damaged").is_dir());
}

/// A queue with batches, two consumers, acknowledgements out of order, two segments and a spare.
fn with_all_parts(dir: &Path) -> Queue {
    let queue = Options::new().arena_size(64 << 10).open(dir).unwrap();
    for first in (0..16_000).step_by(500) {
        let batch: Vec<_> = (first..first + 500).map(message).collect();
        assert_eq!(queue.enqueue_batch(&batch).unwrap(), first..first + 500);
    }
    let (fast, slow) = (queue.consumer("fast").unwrap(), queue.consumer("slow").unwrap());
    for _ in 0..15_400 {
        fast.dequeue().unwrap().unwrap();
        slow.dequeue().unwrap().unwrap();
    }
    let first = slow.receive().unwrap().unwrap();
    slow.receive().unwrap().unwrap().ack().unwrap();
    first.nack();
    let batch: Vec<_> = (16_000..16_010).map(message).collect();
    queue.enqueue_batch(&batch).unwrap();
    queue.flush().unwrap();
    queue
}

/// A producer at full speed over its limit, whose segments are used again all the time, and a
/// consumer that takes some: every look is of one moment, and every message is what was put in.
#[test]
fn looks_at_a_queue_at_full_speed_are_never_wrong() {
    let looks = 200 * effort();
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(64 << 10).max_bytes(512 << 10);
    let queue = options.on_full(OnFull::DropOldest).open(dir.path()).unwrap();
    let consumer = queue.consumer("some").unwrap();
    let stop = AtomicBool::new(false);
    let (mut busy, mut read, mut overtaken) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let next = queue.stats().next_seq;
                assert_eq!(queue.enqueue(message(next)).unwrap(), next);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let taken = mmq::past_gaps(|| consumer.dequeue(), |_| {}).unwrap();
                taken.inspect(|found| assert_eq!(found[..], message(found.seq())));
            }
        });
        // Whatever happens, the threads are to end.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while queue.stats().next_seq < 100 {
                std::thread::yield_now();
            }
            let inspector = Inspector::open(dir.path()).unwrap();
            let mut before = (0, 0);
            for number in 0..looks {
                let least = queue.stats().next_seq;
                let seen = match inspector.snapshot() {
                    Ok(seen) => seen,
                    Err(Error::Io { source, .. })
                        if source.kind() == std::io::ErrorKind::WouldBlock =>
                    {
                        busy += 1;
                        continue;
                    }
                    Err(error) => panic!("look {number}: {error}"),
                };
                let most = queue.stats().next_seq;
                // (A message stands in the index before the queue's own threads see it.)
                assert!((least..=most + 1).contains(&seen.next_seq), "{least} {most} {seen:?}");
                assert_eq!(seen.state, QueueState::Owned);
                assert!(seen.durable_seq <= seen.next_seq && seen.oldest_seq <= seen.next_seq);
                assert!(seen.messages <= seen.next_seq - seen.oldest_seq, "{seen:?}");
                let [consumer] = &seen.consumers[..] else { panic!("{seen:?}") };
                let now = (seen.next_seq, consumer.next_seq);
                assert!(now.0 >= before.0 && now.1 >= before.1, "{before:?} {seen:?}");
                assert!(consumer.next_seq <= seen.next_seq, "{seen:?}");
                before = now;
                if number % 100 == 50 {
                    let verified = inspector.verify(|finding| panic!("look {number}: {finding}"));
                    let verified = verified.unwrap();
                    overtaken += verified.overtaken;
                }
                if number % 10 == 0 {
                    let mut next = None;
                    for seen in inspector.messages(Start::Oldest) {
                        let (first, last) = match seen.unwrap() {
                            Seen::Message { message: found, .. } => {
                                assert_eq!(found[..], message(found.seq()), "{}", found.seq());
                                read += 1;
                                (found.seq(), found.seq())
                            }
                            Seen::Overtaken { first, last } => {
                                overtaken += last - first + 1;
                                (first, last)
                            }
                            other => panic!("{other:?}"),
                        };
                        assert!(next.is_none_or(|next| next == first), "{next:?} {first}");
                        next = Some(last + 1);
                    }
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!("{looks} looks, {busy} too quick; {read} messages read, {overtaken} overtaken");
    assert!(busy <= looks / 20, "{busy} of {looks} looks found the queue changing too quickly");
    assert!(read > 0);
}
