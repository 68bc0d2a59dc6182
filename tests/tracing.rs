//! With the feature `tracing`, events say what happens to the files.

#![cfg(feature = "tracing")]

#[path = "support/listener.rs"]
mod listener;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use listener::Listener;
use mmq::{Error, OnFull, Options, Queue, Redelivery, Start};
use support::in_parts;

/// The events during `call`.
fn reported(call: impl FnOnce()) -> Vec<String> {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = Arc::clone(&heard);
    tracing::subscriber::with_default(Listener(move |line| hears.lock().unwrap().push(line)), call);
    heard.lock().unwrap().clone()
}

#[test]
fn opening_segments_gaps_and_a_full_queue_are_reported() {
    let dir = crate::support::tempdir().unwrap();
    let lines = reported(|| {
        let queue = Options::new()
            .arena_size(4096)
            .max_bytes(65536)
            .on_full(OnFull::DropOldest)
            .open(dir.path())
            .unwrap();
        queue.peek().unwrap();
        for _ in 0..100 {
            queue.enqueue([0; 1000]).unwrap();
        }
        assert!(queue.dequeue().is_err());
    });
    let path = format!("path=\"{}\"", dir.path().display());
    for line in &lines {
        assert!(line.contains(&path), "{line} does not say which queue");
    }
    let begun: Vec<_> =
        lines.iter().filter(|line| line.contains("message=segment begun")).collect();
    assert!(
        begun[0].contains("slot=0 first_seq=0 reused=false"),
        "the first segment of a new queue: {}",
        begun[0]
    );
    for reported in [
        "INFO message=queue opened",
        "DEBUG message=segment begun",
        "message=queue is full",
        "WARN message=messages were given up",
        "WARN message=messages are missing",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(reported)),
            "{reported} is not in {lines:#?}"
        );
    }
}

#[test]
fn a_segment_in_the_space_of_a_drained_one_is_said_to_be_reused() {
    let dir = crate::support::tempdir().unwrap();
    let lines = reported(|| {
        let queue = Options::new().arena_size(4096).open(dir.path()).unwrap();
        let mut buffer = Vec::new();
        for _ in 0..60 {
            queue.enqueue(vec![1; 1 << 20]).unwrap();
            queue.dequeue_into(&mut buffer).unwrap();
        }
    });
    let begun: Vec<_> =
        lines.iter().filter(|line| line.contains("message=segment begun")).collect();
    assert!(begun.first().unwrap().contains("reused=false"), "{begun:#?}");
    // Not always the last one: the storage worker may be late with what it gives back.
    let reused: Vec<_> = (0..begun.len()).filter(|at| begun[*at].contains("reused=true")).collect();
    assert!(!reused.is_empty(), "{begun:#?}");
    for at in reused {
        // The segment was begun in that slot before.
        let until_slot = begun[at].split(" first_seq").next().unwrap();
        assert!(begun[..at].iter().any(|line| line.starts_with(until_slot)), "{begun:#?}");
    }
}

#[test]
fn a_subscriber_may_call_the_queue_that_reports_to_it() {
    support::within(Duration::from_secs(60), || {
        let spool: Arc<OnceLock<Queue>> = Arc::default();
        let reported: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let dir = crate::support::tempdir().unwrap();
        let (called, counted) = (Arc::clone(&spool), Arc::clone(&reported));
        // It waits for ever if the queue holds a lock of its own while it reports something.
        let listener = Listener(move |line: String| {
            *counted.lock().unwrap().entry(listener::words(&line).to_owned()).or_default() += 1;
            if let Some(queue) = called.get() {
                // Whatever they answer.
                let _ = queue.enqueue(line.as_bytes());
                let _ = (queue.flush(), queue.dequeue(), queue.consumer("spool").unwrap().skip());
                let _ = (queue.stats(), queue.len(), queue.consumer("spool").unwrap().seek(0));
            }
        });
        tracing::subscriber::with_default(listener, || {
            let options =
                Options::new().arena_size(4096).max_bytes(1 << 20).on_full(OnFull::DropOldest);
            let queue = spool.get_or_init(|| options.open(dir.path()).unwrap());
            queue.consumer("slow").unwrap().peek().unwrap();
            for round in 0..300 {
                match round % 10 {
                    0..5 => queue.enqueue([0; 10_000]).map(drop),
                    5..9 => queue.enqueue_batch([[1; 10_000]; 3]).map(drop),
                    _ => queue.enqueue_parts(&in_parts(&[2; 10_000])).map(drop),
                }
                .unwrap();
            }
            let slow = queue.consumer("slow").unwrap();
            let mut gaps = 0;
            let mut replaced = false;
            loop {
                match slow.dequeue() {
                    Ok(Some(_)) if !replaced => {
                        replaced = true;
                        let names =
                            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
                        let mut names =
                            names.filter(|name| name.to_str().unwrap().contains("segment-"));
                        let first = names.next().unwrap();
                        // Copies of one segment in the place of all others: they are quarantined.
                        names.for_each(|name| {
                            fs::remove_file(&name).unwrap();
                            fs::copy(&first, &name).unwrap();
                        });
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(Error::Gap(_)) => gaps += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(gaps > 0);
        });
        let reported = reported.lock().unwrap();
        for kind in [
            "segment begun",
            "queue is full",
            "messages are missing",
            "damaged or foreign file set aside",
        ] {
            assert!(reported.contains_key(kind), "{kind} was not reported: {reported:?}");
        }
    });
}

#[test]
fn what_the_first_consumer_is_made_behind_is_reported_once() {
    support::within(Duration::from_secs(60), || {
        let dir = crate::support::tempdir().unwrap();
        let queue = Arc::new(Queue::open(dir.path()).unwrap());
        queue.enqueue_batch(["a", "b", "c"]).unwrap();
        let (called, heard) = (Arc::clone(&queue), Arc::<Mutex<Vec<_>>>::default());
        let hears = Arc::clone(&heard);
        // It waits for ever if the queue holds the lock of whoever makes a consumer.
        let listener = Listener(move |line: String| {
            called.consumer(&format!("event {}", called.consumers().len())).unwrap();
            hears.lock().unwrap().push(line);
        });
        tracing::subscriber::with_default(listener, || {
            queue.consumer_at("late", Start::Seq(2)).unwrap();
            queue.consumer_at("later", Start::End).unwrap();
        });
        assert_eq!(queue.consumers(), ["event 1", "late", "later"]);
        let lines = heard.lock().unwrap();
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        assert!(line.starts_with("WARN message=unclaimed messages were given up"), "{line}");
        assert!(line.contains("consumer=\"late\" first=0 last=1"), "{line}");
    });
}

/// Counts that are not stored: the row of a consumer is full, or all rows belong to others.
#[test]
fn attempts_that_are_not_stored_are_reported_once() {
    let dir = crate::support::tempdir().unwrap();
    let lines = reported(|| {
        let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
        for _ in 0..200 {
            queue.enqueue("a job").unwrap();
        }
        for name in ["a", "b", "c", "d", "fifth"] {
            let consumer = queue.consumer(name).unwrap();
            let wait = Duration::from_secs(600);
            consumer.set_redelivery(Redelivery::new().backoff(wait, wait)).unwrap();
            if name == "a" {
                while let Some(job) = consumer.receive().unwrap() {
                    job.nack();
                }
            }
        }
    });
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("not stored")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("the row in the index is full") && lines[0].contains("\"a\""));
    assert!(lines[1].contains("no row is free") && lines[1].contains("\"fifth\""));
}
