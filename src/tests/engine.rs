//! What calls do when the disk refuses, and how many system calls they make: on a simulated disk
//! that fails and counts.

use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

use byteorder::{ByteOrder, LittleEndian};

use crate::consume::step::Read;
use crate::engine::reading;
use crate::engine::{Background, Engine};
use crate::error::Error;
use crate::format::FORMAT_VERSION;
use crate::memory::checksum::checksum;
use crate::message::Message;
use crate::options::Options;
use crate::segment::pool::User;
use crate::storage::{FileStorage, Storage, Stores};
use crate::tests::sim::{Call, SimStorage, meanwhile};

fn options() -> Options {
    Options::new().arena_size(16 << 10).max_bytes(512 << 10)
}

fn open(storage: &SimStorage, options: &Options, background: Background) -> Engine<SimStorage> {
    Engine::open_with(storage.clone(), options, background).unwrap()
}

fn new() -> SimStorage {
    SimStorage::new(7).with_file_capacity(4 << 20)
}

fn take(engine: &Engine<SimStorage>) -> Result<Option<u64>, Error> {
    let consumer = engine.consumer("").unwrap();
    Ok(reading::next(engine, &consumer, Read::Take)?.map(|message| message.seq()))
}

/// The first number that is not known to be durable.
fn durable(engine: &Engine<SimStorage>) -> u64 {
    engine.core.durable.lock().spot.seq
}

/// Waits for another thread.
#[track_caller]
fn eventually(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "not after a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_durable_enqueue_costs_one_sync_and_no_other_call_that_waits_for_the_disk() {
    let storage = new();
    let engine = open(&storage, &options().flush_every_ops(1), Background::Calls);
    let waiting = [Call::SyncFile, Call::SyncDirectory, Call::Rename, Call::Create, Call::Allocate];
    let counts = || waiting.map(|call| storage.call_count(call));
    let mut one_sync = 0;
    for seq in 0..200 {
        let before = counts();
        assert_eq!(engine.enqueue(&[9; 50]).unwrap(), seq);
        let now = counts();
        let made: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        assert_eq!(durable(&engine), seq + 1);
        one_sync += u64::from(made == [1, 0, 0, 0, 0]);
    }
    // The first one makes the segment; 200 of them are too few for another or for a checkpoint.
    assert_eq!(one_sync, 199);
}

#[test]
fn a_batch_is_made_durable_by_one_sync() {
    let storage = new();
    let engine = open(&storage, &options().flush_every_ops(1), Background::Calls);
    engine.enqueue(b"the segment is made").unwrap();
    let before = storage.call_count(Call::SyncFile);
    engine.enqueue_batch(&[[1; 30]; 100]).unwrap();
    assert_eq!(storage.call_count(Call::SyncFile) - before, 1);
    assert_eq!(durable(&engine), 101);
}

#[test]
fn a_message_that_was_taken_is_handed_over_although_the_flush_after_it_fails() {
    let storage = new();
    let engine = open(&storage, &options().flush_every_ops(2), Background::Calls);
    for _ in 0..3 {
        engine.enqueue(b"a message").unwrap();
    }
    engine.core.flush().unwrap();
    storage.fail_after(Call::SyncFile, 1, Errno::IO, true);
    // The fourth operation: its flush fails.
    assert_eq!(take(&engine).unwrap(), Some(0), "it would be lost with the error");
    assert!(engine.core.is_poisoned());
    assert!(
        matches!(engine.enqueue(b"another"), Err(Error::Poisoned { reason }) if reason.contains("flush"))
    );
    assert!(matches!(engine.core.flush(), Err(Error::Poisoned { .. })));
    // Reading goes on, to the end.
    assert_eq!(
        (take(&engine).unwrap(), take(&engine).unwrap(), take(&engine).unwrap()),
        (Some(1), Some(2), None)
    );
}

#[test]
fn a_failed_sync_is_reported_to_every_thread_that_waits_for_it() {
    let storage = new();
    let engine = open(&storage, &options().flush_every_ops(1), Background::Calls);
    engine.enqueue(b"the segment is made").unwrap();
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    let refused = std::thread::scope(|scope| {
        let producers: Vec<_> =
            (0..6).map(|_| scope.spawn(|| engine.enqueue(b"a message"))).collect();
        producers.into_iter().map(|producer| producer.join().unwrap()).collect::<Vec<_>>()
    });
    // One sync failed and the next would not: all the same no call says that a message is
    // durable.
    for answer in refused {
        assert!(matches!(answer, Err(Error::Io { .. } | Error::Poisoned { .. })), "{answer:?}");
    }
    assert_eq!(durable(&engine), 1);
}

#[test]
fn a_flush_that_fails_in_the_background_reaches_the_next_call() {
    let storage = new();
    let engine =
        open(&storage, &options().flush_every(Duration::from_millis(1)), Background::Workers);
    engine.enqueue(b"a message").unwrap();
    eventually(|| durable(&engine) == 1);
    storage.fail_after(Call::SyncFile, 1, Errno::IO, true);
    // The one that the timer fails to flush, unless it came after the failure of an idle flush.
    let _ = engine.enqueue(b"another");
    eventually(|| engine.core.is_poisoned());
    for _ in 0..2 {
        match engine.enqueue(b"a third") {
            Err(Error::Poisoned { reason }) => {
                assert!(reason.contains("Input/output error"), "{reason}")
            }
            answer => panic!("{answer:?}"),
        }
        assert!(matches!(engine.core.flush(), Err(Error::Poisoned { .. })));
    }
    assert!(engine.close().is_err(), "closing reports it as well");
}

#[test]
fn a_segment_is_not_used_again_while_a_message_of_it_is_lent_however_late_its_window_was_taken() {
    let storage = new();
    let engine = open(&storage, &Options::new().arena_size(16 << 10), Background::Calls);
    let messages = 2 * (4 << 20) / 920;
    for _ in 0..messages {
        engine.enqueue(&[1; 900]).unwrap();
    }
    // A reader has opened the first segment, and has no window yet.
    let core = Arc::clone(&engine.core);
    let row = core.segments.list().live[0];
    let segment = core.segments.list().open(&storage, &row).unwrap();
    let (send, lent) = std::sync::mpsc::channel();
    meanwhile("between the looks at a drained segment", move || {
        // It takes one, lends the first message, and releases the segment.
        let (life, length) = (row.header.life, row.header.length);
        let granted = core
            .pool
            .get(&segment.file, life, 0, length, || segment.allocated(), User::Reader)
            .unwrap();
        assert!(granted.lending);
        let mut window = granted.window;
        let message =
            Message::lent(0, window.share(), segment.offset(row.header.base) as usize + 16, 900);
        drop((window, segment));
        send.send(message).unwrap();
    });
    // Everybody passes it, and it would be used again.
    for seq in 0..messages {
        assert_eq!(take(&engine).unwrap(), Some(seq));
    }
    let message = lent.try_recv().expect("the segment was drained");
    for _ in 0..messages {
        engine.enqueue(&[2; 900]).unwrap();
    }
    assert!(message.is_lent() && message[..] == [1; 900], "{:?}", &message[..4]);
}

#[test]
fn a_segment_of_a_later_version_is_named_and_not_touched() {
    for lost_index in [false, true] {
        let storage = new();
        let engine = open(&storage, &options(), Background::Calls);
        engine.consumer("").unwrap();
        while storage.file_names().len() < 6 {
            engine.enqueue(&[3; 900]).unwrap();
        }
        engine.close().unwrap();
        // Neither the first nor the last, which an opening looks at.
        let name = crate::format::segment_name(2);
        let mut bytes = storage.read_file(&name);
        LittleEndian::write_u32(&mut bytes[8..], FORMAT_VERSION + 1);
        let checksum = checksum(0, &bytes[..124]);
        LittleEndian::write_u32(&mut bytes[124..], checksum);
        storage.write_file(&name, &bytes);
        if lost_index {
            storage.remove_file("index");
        }
        // With the index, the first to meet the file is the reader.
        let opened = Engine::open_without_workers(storage.clone(), &options());
        let reported = match opened {
            Ok(engine) => {
                assert!(!lost_index);
                let reported = loop {
                    match take(&engine) {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("the messages of {name} were passed over"),
                        Err(error) => break error,
                    }
                };
                assert!(
                    matches!(take(&engine), Err(Error::UnsupportedFormat { .. })),
                    "it is reported again: nothing is passed"
                );
                let _ = engine.close();
                reported
            }
            Err(error) => error,
        };
        match reported {
            Error::UnsupportedFormat { path, found, supported } => {
                assert!(path.ends_with(&name), "{}", path.display());
                assert_eq!((found, supported), (FORMAT_VERSION + 1, FORMAT_VERSION));
            }
            other => panic!("{other}"),
        }
        assert!(storage.read_file(&name) == bytes, "{name} was touched");
    }
}

#[test]
fn a_period_beyond_what_the_clock_can_say_stops_no_keeper() {
    let storage = new();
    let engine = open(
        &storage,
        &options().flush_every(Duration::MAX).max_age(Duration::MAX),
        Background::Workers,
    );
    engine.consumer("").unwrap();
    for _ in 0..100 {
        engine.enqueue(&[7; 1000]).unwrap();
        take(&engine).unwrap();
    }
    assert!(engine.stats().segments < 3);
    // What is drained only the storage worker hands on, as nobody needs the space.
    eventually(|| !engine.core.segments.list().has_drained());
    engine.close().unwrap();
}

/// The first and the last segment are looked at by the opening, read from and stored to through the
/// same descriptors; and where everything is on the disk, nothing waits for a sync.
#[test]
fn an_opening_its_first_reader_and_its_first_writer_open_each_file_once() {
    let storage = new();
    storage.set_stores(Stores::ByMap);
    let engine = open(&storage, &options(), Background::Calls);
    (0..100).for_each(|_| _ = engine.enqueue(&[7; 1000]).unwrap());
    assert!(engine.stats().segments > 2);
    engine.close().unwrap();
    let counts = || [Call::Open, Call::Read, Call::List].map(|call| storage.call_count(call));
    let before = counts();
    let engine = open(&storage, &options(), Background::Calls);
    assert_eq!(engine.core.segments.list().count_unsynced(), 0);
    assert_eq!(take(&engine).unwrap(), Some(0));
    engine.enqueue(b"more").unwrap();
    let now = counts();
    let made: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
    // The index and two segments. Of the index all bytes, of each segment its header; then what
    // lies at the tail, up to the end of the file (two reads). With a limit, other files are
    // listed, too.
    assert_eq!(made, [3, 5, 2]);
}

/// A panic in the middle of a close, by a fault of the library: nobody knows which calls still use
/// the files, so no other owner may, although every handle is gone.
#[test]
fn a_panic_in_a_close_leaves_the_queue_locked() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let storage = || FileStorage::create(dir.path(), None).unwrap();
    let engine = Engine::open_without_workers(storage(), &Options::new()).unwrap();
    engine.enqueue(b"kept").unwrap();
    let held = reading::next(&engine, &engine.consumer("").unwrap(), Read::Take).unwrap();
    meanwhile("while a thread leads a flush", || std::panic::resume_unwind(Box::new("a fault")));
    let closing = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.close()));
    assert!(closing.is_err());
    drop(engine);
    assert!(!storage().try_lock().unwrap());
    assert!(held.is_some_and(|held| &held[..] == b"kept"));
}
