//! Which events a disk that refuses causes, and that no event is sent while a lock is held. On a
//! simulated disk.

#[path = "../../tests/support/listener.rs"]
mod listener;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::consume::step::Read;
use crate::engine::Engine;
use crate::engine::reading::{self, AsMessage};
use crate::format::Batch;
use crate::options::Options;
use crate::storage::Stores;
use crate::tests::in_parts;
use crate::tests::sim::{Call, SimStorage};
use listener::Listener;
use rustix::io::Errno;

type Queue = Arc<Engine<SimStorage>>;

/// Takes each lock of the queue while it reports something: that waits for ever when one is held.
fn take_every_lock(engine: &Queue) {
    let core = &engine.core;
    // The registry, and the places' list; what a poisoned queue refuses at the door is asked for
    // behind it.
    for name in ["another", ""] {
        // None once the queue is closed.
        if let Ok(consumer) = engine.consumer(name) {
            let _ = (reading::next(engine, &consumer, Read::Look), engine.seek(&consumer, 0));
        }
    }
    let _ = (engine.enqueue(b"told"), engine.stats(), core.committed_spot(), core.visible_end());
    drop((core.places.synced_moves.lock(), core.places.giving_back.write()));
    let context = core.context();
    let _ = core.segments.reclaim(&context);
    let _ = core.segments.sync_directory(&core.storage, &core.index);
    let _ = core.index.sync();
}

/// How often an event with those words is reported during `call`, which is not to wait for a lock
/// that is held.
#[track_caller]
fn reported(words: &str, engine: &Queue, call: impl FnOnce(&Queue) + Send + 'static) -> usize {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (of_call, of_listener, hears) =
        (Arc::clone(engine), Arc::clone(engine), Arc::clone(&heard));
    let listener = Listener(move |line: String| {
        hears.lock().unwrap().push(line);
        take_every_lock(&of_listener);
    });
    let calls =
        std::thread::spawn(move || tracing::subscriber::with_default(listener, || call(&of_call)));
    let began = Instant::now();
    while !calls.is_finished() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "a lock is held while {:?} is reported",
            heard.lock().unwrap()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    calls.join().unwrap();
    let heard = heard.lock().unwrap();
    heard.iter().filter(|line| listener::words(line) == words).count()
}

fn options() -> Options {
    Options::new().arena_size(16 << 10).max_bytes(512 << 10)
}

fn new() -> SimStorage {
    SimStorage::new(7).with_file_capacity(4 << 20)
}

fn open(storage: &SimStorage, options: &Options) -> Queue {
    Arc::new(Engine::open_without_workers(storage.clone(), options).unwrap())
}

#[test]
fn a_failed_flush_is_reported_once_while_no_lock_is_held() {
    type Way = fn(&Queue);
    let ways: [(&str, Way); 9] = [
        ("enqueue", |engine| drop(engine.enqueue(b"a message"))),
        ("enqueue_parts", |engine| drop(engine.enqueue_parts(&in_parts(b"a message")))),
        // Begins a segment: the directory is synced.
        ("enqueue_batch", |engine| drop(engine.enqueue_batch(&[[1; 9000]; 9]))),
        ("a flush that is waited for, then a refusal", |engine| {
            let core = &*engine.core;
            let committed = {
                let mut writer = core.writer.lock();
                let pushed = writer.push(core, b"a message", Batch::default());
                pushed.and_then(|()| writer.commit(core))
            };
            let _ = committed.map(|spot| core.flush_to(spot));
            let _ = engine.enqueue_batch(&[b"none"]);
        }),
        ("dequeue", |engine| {
            drop(reading::next(engine, &engine.consumer("").unwrap(), Read::Take))
        }),
        ("ack", |engine| {
            let worker = engine.consumer("worker").unwrap();
            let (message, handed) = engine.receive(&worker, AsMessage).unwrap().unwrap();
            let _ = engine.ack(&worker, message.seq(), handed);
        }),
        ("seek", |engine| drop(engine.seek(&engine.consumer("worker").unwrap(), 0))),
        ("remove_consumer", |engine| drop(engine.remove_consumer("worker"))),
        ("close", |engine| drop(engine.close())),
    ];
    for (name, way) in ways {
        let mut failed = 0;
        for (call, nth) in [(Call::SyncFile, 1), (Call::SyncFile, 2), (Call::SyncDirectory, 1)] {
            let storage = new();
            let engine = open(&storage, &options().flush_every_ops(1));
            engine.enqueue_batch(&[b"a message"; 9]).unwrap();
            // With one acknowledged beyond its place, and that on the disk: to move it is to sync
            // the index.
            let worker = engine.consumer("worker").unwrap();
            let (_first, _) = engine.receive(&worker, AsMessage).unwrap().unwrap();
            let (second, handed) = engine.receive(&worker, AsMessage).unwrap().unwrap();
            engine.ack(&worker, second.seq(), handed).unwrap();
            engine.consumer("").unwrap();
            storage.fail_after(call, nth, Errno::IO, true);
            let times = reported("flush failed; writing is refused", &engine, way);
            assert_eq!(times, usize::from(engine.core.is_poisoned()), "{name}, {call:?} {nth}");
            failed += times;
        }
        assert!(failed > 0, "{name} has not met a sync that fails");
    }
}

/// On a disk that copies what is overwritten a full one refuses to store a place.
#[test]
fn places_that_are_kept_in_memory_are_reported_once_until_they_are_written() {
    let storage = new();
    storage.set_stores(Stores::ByCall);
    let engine = open(&storage, &options());
    let words = "places are kept in memory: the index file cannot be written";
    engine.enqueue_batch(&[b"a message"; 20]).unwrap();
    let takes_two = |engine: &Queue| {
        for _ in 0..2 {
            assert!(
                reading::next(engine, &engine.consumer("").unwrap(), Read::Take).unwrap().is_some()
            );
        }
    };
    engine.consumer("another").unwrap();
    assert_eq!(reported(words, &engine, takes_two), 0);
    for round in 0..3 {
        storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
        assert_eq!(reported(words, &engine, takes_two), 1, "round {round}");
        assert_eq!(reported(words, &engine, takes_two), 0, "it is known");
        storage.clear_faults();
        assert_eq!(reported(words, &engine, takes_two), 0, "it can be written again");
    }
    engine.close().unwrap();
}
