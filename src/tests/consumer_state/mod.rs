//! What reads report to a consumer and what is stored for it, in an order of events that the test
//! makes: gaps behind batches, ages and deliveries, messages that are dropped under a reader,
//! removed consumers.

mod batches;
mod wakers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{DeliveryToken, Read};
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::format::Spot;
use crate::options::{OnFull, Options};
use crate::tests::sim::{SimStorage, meanwhile};

use Reported::{End, Message};

/// What a read reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    Message(u64),
    Gap(u64, u64, GapCause),
    End,
}

fn damaged(first: u64, last: u64) -> Reported {
    Reported::Gap(first, last, GapCause::Damaged)
}

fn expired(first: u64, last: u64) -> Reported {
    Reported::Gap(first, last, GapCause::Expired)
}

fn reported<T>(read: Result<Option<T>, Error>, seq: impl FnOnce(T) -> u64) -> Reported {
    match read {
        Ok(Some(message)) => Message(seq(message)),
        Ok(None) => End,
        Err(Error::Gap(Gap { first, last, cause })) => Reported::Gap(first, last, cause),
        Err(error) => panic!("{error}"),
    }
}

fn receive(engine: &Engine<SimStorage>, consumer: &ConsumerState<SimStorage>) -> DeliveryToken {
    engine.receive(consumer, reading::AsMessage).unwrap().unwrap().1
}

struct Queue {
    storage: SimStorage,
    options: Options,
    engine: Engine<SimStorage>,
}

impl Queue {
    fn new(options: Options) -> Queue {
        let storage = SimStorage::new(3).with_file_capacity(4 << 20);
        let engine = Engine::open_without_workers(storage.clone(), &options).unwrap();
        engine.consumer("c").unwrap();
        Queue { storage, options, engine }
    }

    /// What the next run finds there.
    fn on(storage: SimStorage, options: Options) -> Queue {
        let engine = Engine::open_without_workers(storage.clone(), &options).unwrap();
        Queue { storage, options, engine }
    }

    /// Messages that can be found in the files.
    fn put(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            assert_eq!(
                self.engine.enqueue(format!("message {number:04}").as_bytes()).unwrap(),
                number
            );
        }
    }

    fn damage(&self, number: u64) {
        let wanted = format!("message {number:04}");
        for name in self.storage.file_names().into_iter().filter(|name| name.starts_with("segment"))
        {
            let bytes = self.storage.read_file(&name);
            if let Some(at) =
                bytes.windows(wanted.len()).position(|window| window == wanted.as_bytes())
            {
                // The payload, and the end of the header: messages that are too old are not read.
                self.storage.corrupt(&name, at - 1, &[0xff; 2]);
            }
        }
    }

    fn consumer(&self) -> Arc<ConsumerState<SimStorage>> {
        self.engine.consumer("c").unwrap()
    }

    fn take(&self) -> Reported {
        reported(reading::next(&self.engine, &self.consumer(), Read::Take), |message| message.seq())
    }

    fn batch(&self, max: usize) -> Result<Vec<u64>, Reported> {
        match reading::batch(&self.engine, &self.consumer(), max) {
            Ok(messages) => Ok(messages.iter().map(crate::Message::seq).collect()),
            Err(error) => Err(reported::<u64>(Err(error), |seq| seq)),
        }
    }

    /// Ends this run in one of several ways, and begins the next where the way says so.
    fn end(&mut self, how: &str) {
        let storage = match how {
            "goes on" => return,
            "closed" => {
                self.engine.close().unwrap();
                self.storage.clone()
            }
            _ => self.storage.process_kill(),
        };
        self.engine = Engine::open_without_workers(storage.clone(), &self.options).unwrap();
        self.storage = storage;
    }
}

const ENDS: [&str; 3] = ["goes on", "closed", "killed"];

#[test]
fn a_gap_behind_a_batch_is_reported_by_the_read_that_comes_next_also_after_the_end_of_the_run() {
    for how in ENDS {
        for ages in [None, Some(Duration::from_secs(1000))] {
            for deliveries in [false, true] {
                let mut queue = Queue::new(Options::new().arena_size(64 << 10).max_age(ages));
                queue.put(0..10);
                queue.damage(4);
                if deliveries {
                    queue.engine.set_max_in_flight(&queue.consumer(), Some(7)).unwrap();
                }
                assert_eq!(queue.batch(10), Ok(vec![0, 1, 2, 3]));
                assert_eq!(queue.engine.stats().gaps, 0, "it was reported to nobody yet");
                queue.end(how);
                assert_eq!(queue.batch(10), Err(damaged(4, 4)), "{how}, {ages:?}, {deliveries}");
                assert_eq!(queue.engine.stats().gaps, 1);
                queue.end(how);
                assert_eq!(queue.batch(10), Ok(vec![5, 6, 7, 8, 9]));
                assert_eq!(queue.take(), End);
            }
        }
    }
}

/// The last message is damaged, and while a reader searches behind it others come: they are no part
/// of the gap.
#[test]
fn messages_that_come_while_a_reader_searches_behind_damage_are_delivered() {
    // A few, and so many that the tail leaves the segment.
    for more in [3, 100] {
        let queue = Queue::new(Options::new().arena_size(64 << 10));
        queue.put(0..3);
        queue.damage(2);
        assert_eq!((queue.take(), queue.take()), (Message(0), Message(1)));
        let engine = Arc::new(queue.engine);
        let producer = Arc::clone(&engine);
        meanwhile("behind a search that found nothing", move || {
            for _ in 0..more {
                producer.enqueue(&[7; 60_000]).unwrap();
            }
        });
        let consumer = engine.consumer("c").unwrap();
        let take =
            || reported(reading::next(&engine, &consumer, Read::Take), |message| message.seq());
        assert_eq!(take(), damaged(2, 2), "{more}");
        for seq in 3..3 + more {
            assert_eq!(take(), Message(seq), "{more}");
        }
        assert_eq!(take(), End);
    }
}

#[test]
fn two_threads_batches_cannot_take_each_others_gap_away() {
    let queue = Queue::new(Options::new().arena_size(64 << 10));
    queue.put(0..10);
    queue.damage(1);
    queue.damage(3);
    // As two threads in `batch` take turns: each has one message in hand.
    let more = || {
        reported(reading::next(&queue.engine, &queue.consumer(), Read::TakeMore), |message| {
            message.seq()
        })
    };
    assert_eq!((queue.take(), more()), (Message(0), End));
    assert_eq!((queue.take(), queue.take(), more()), (damaged(1, 1), Message(2), End));
    assert_eq!((more(), queue.take(), queue.take()), (End, damaged(3, 3), Message(4)));
}

#[test]
fn a_gap_behind_messages_that_are_too_old_is_reported_after_them_also_after_the_end_of_the_run() {
    for how in ENDS {
        for deliveries in [false, true] {
            let mut queue =
                Queue::new(Options::new().arena_size(64 << 10).max_age(Duration::from_secs(10)));
            queue.put(0..5);
            queue.storage.advance_clock(12_000);
            queue.put(5..7);
            queue.damage(5);
            queue.engine.expire();
            if deliveries {
                queue.engine.set_max_in_flight(&queue.consumer(), Some(7)).unwrap();
            }
            assert_eq!(queue.take(), expired(0, 4), "{how}");
            queue.end(how);
            assert_eq!(queue.take(), damaged(5, 5), "{how}, {deliveries}");
            queue.end(how);
            assert_eq!(queue.take(), Message(6));
        }
    }
}

/// A consumer without deliveries, read the long way.
#[test]
fn a_gap_is_reported_once_to_a_consumer_with_a_descriptor() {
    for how in ENDS {
        let mut queue = Queue::new(Options::new().arena_size(64 << 10));
        queue.put(0..5);
        (1..3).for_each(|number| queue.damage(number));
        queue.engine.ready_fd(&queue.consumer()).unwrap();
        assert_eq!((queue.batch(9), queue.take()), (Ok(vec![0]), damaged(1, 2)));
        queue.end(how);
        queue.engine.ready_fd(&queue.consumer()).unwrap();
        assert_eq!((queue.take(), queue.batch(9)), (Message(3), Ok(vec![4])), "{how}");
    }
}

/// Of a gap that was dealt with in part each piece is reported once, in order, before what lies
/// behind it.
#[test]
fn the_pieces_of_a_gap_come_in_order_each_once_also_after_the_end_of_the_run() {
    for how in ENDS {
        for ages in [false, true] {
            let max_age = ages.then_some(Duration::from_secs(10));
            let mut queue = Queue::new(Options::new().arena_size(64 << 10).max_age(max_age));
            queue.put(0..6);
            let consumer = queue.consumer();
            let handed: Vec<_> = (0..5).map(|_| receive(&queue.engine, &consumer)).collect();
            for seq in [1, 3] {
                queue.engine.ack(&consumer, seq, handed[seq as usize]).unwrap();
            }
            // What was in flight comes again, and is lost before it does.
            queue.end("killed");
            if ages {
                queue.storage.advance_clock(12_000);
            } else {
                (0..5).for_each(|number| queue.damage(number));
            }
            queue.put(6..7);
            queue.engine.expire();
            let piece = |seq| match seq {
                _ if !ages => damaged(seq, seq),
                4 => expired(4, 5),
                _ => expired(seq, seq),
            };
            for seq in [0, 2, 4] {
                assert_eq!(queue.take(), piece(seq), "{how}, {ages}");
                queue.end(how);
            }
            if !ages {
                assert_eq!(queue.take(), Message(5), "{how}");
                queue.end(how);
            }
            assert_eq!((queue.take(), queue.take()), (Message(6), End), "{how}, {ages}");
            assert_eq!(queue.engine.len(), 0, "the only consumer has dealt with all");
        }
    }
}

/// A message in several pieces was looked at, one of the pieces is dropped, and nobody may take the
/// consumer's lock just then.
#[test]
fn what_was_looked_at_and_is_dropped_is_reported_as_a_gap() {
    for deliveries in [false, true] {
        let options =
            Options::new().arena_size(16 << 10).max_bytes(256 << 10).on_full(OnFull::DropOldest);
        let queue = Queue::new(options);
        let long = vec![1; 100_000];
        queue.engine.enqueue(&long).unwrap();
        let consumer = queue.consumer();
        if deliveries {
            queue.engine.set_max_in_flight(&consumer, Some(7)).unwrap();
        }
        let look =
            |what| reported(reading::next(&queue.engine, &consumer, what), |message| message.seq());
        assert_eq!(look(Read::Look), Message(0));
        let last = consumer.with_locked(|_| {
            let dropped = |_: &u64| queue.engine.core.oldest_seq.load(Ordering::Relaxed) > 1;
            (0..50).map(|_| queue.engine.enqueue(&long).unwrap()).find(dropped).unwrap()
        });
        let oldest = queue.engine.core.oldest_seq.load(Ordering::Relaxed);
        assert_eq!(look(Read::Look), Reported::Gap(0, oldest - 1, GapCause::Dropped));
        for seq in oldest..=last {
            assert_eq!((look(Read::Look), look(Read::Take)), (Message(seq), Message(seq)));
        }
        assert_eq!(look(Read::Take), End);
    }
}

/// The row of a removed consumer may be another one's: no call on a handle that is left changes it.
#[test]
fn nothing_is_stored_by_the_handle_of_a_removed_consumer() {
    let mut queue = Queue::new(Options::new().arena_size(64 << 10));
    queue.put(0..20);
    let removed = queue.consumer();
    let handed: Vec<_> = (0..10).map(|_| receive(&queue.engine, &removed)).collect();
    queue.engine.ack(&removed, 5, handed[5]).unwrap();
    queue.engine.remove_consumer("c").unwrap();
    // A row is used again when the disk knows that it is free.
    queue.engine.core.flush().unwrap();
    let other = queue.engine.consumer("d").unwrap();
    assert_eq!(other.row, removed.row);
    let first = receive(&queue.engine, &other);
    let second = receive(&queue.engine, &other);
    queue.engine.ack(&other, 1, second).unwrap();
    let before = queue.storage.read_file(crate::format::INDEX_NAME);
    let engine = &queue.engine;
    for what in [Read::Look, Read::Take, Read::TakeMore, Read::Skip] {
        assert!(matches!(reading::next(engine, &removed, what), Err(Error::NotFound { .. })));
    }
    assert!(matches!(engine.receive(&removed, reading::AsMessage), Err(Error::NotFound { .. })));
    assert!(matches!(engine.ack(&removed, 0, handed[0]), Err(Error::NotFound { .. })));
    engine.nack(&removed, 1, handed[1], None);
    assert!(matches!(engine.seek(&removed, 3), Err(Error::NotFound { .. })));
    assert!(matches!(engine.fork(&removed, "e"), Err(Error::NotFound { .. })));
    assert!(matches!(engine.ready_fd(&removed), Err(Error::NotFound { .. })));
    assert!(queue.storage.read_file(crate::format::INDEX_NAME) == before, "the index changed");
    queue.engine.ack(&other, 0, first).unwrap();
    queue.end("killed");
    assert_eq!(queue.engine.consumer_names(), ["d"]);
    let next = reading::next(&queue.engine, &queue.engine.consumer("d").unwrap(), Read::Take);
    assert_eq!(reported(next, |message| message.seq()), Message(2));
}

/// Calls that found the queue open and then waited for a lock while it was closed.
#[test]
fn a_call_that_waited_while_the_queue_was_closed_changes_nothing() {
    let queue = Queue::new(Options::new().arena_size(64 << 10));
    queue.put(0..20);
    let (engine, consumer) = (&queue.engine, &queue.consumer());
    let forked = receive(engine, consumer);
    engine.ack(consumer, 0, forked).unwrap();
    let before = queue.storage.read_file(crate::format::INDEX_NAME);
    let calls: [&(dyn Fn() -> Result<(), Error> + Sync); 8] = [
        &|| engine.fork(consumer, "f").map(drop),
        &|| engine.seek(consumer, 10),
        &|| engine.consumer("new").map(drop),
        &|| engine.default_consumer().map(drop),
        &|| engine.remove_consumer("c"),
        &|| engine.ready_fd(consumer).map(drop),
        &|| engine.enqueue(b"late").map(drop),
        &|| engine.enqueue_batch(&[b"late"]).map(drop),
    ];
    std::thread::scope(|scope| {
        let registry = engine.consumers.registry.lock();
        let writer = engine.core.writer.lock();
        let came = engine.came.load(Ordering::SeqCst);
        let calls: Vec<_> = calls.iter().map(|call| scope.spawn(call)).collect();
        while engine.came.load(Ordering::SeqCst) < came + 8 {
            std::thread::yield_now();
        }
        assert!(engine.core.index.poison.close());
        drop((writer, registry));
        for call in calls {
            assert!(matches!(call.join().unwrap(), Err(Error::Closed)));
        }
    });
    assert!(queue.storage.read_file(crate::format::INDEX_NAME) == before, "the index changed");
    assert_eq!(engine.core.committed_spot().seq, 20);
    engine.core.index.poison.open_again();
}

/// What a call does behind its answer may come when the run is over and the files are another
/// owner's.
#[test]
fn what_comes_after_the_end_of_a_run_does_nothing_to_the_files() {
    let queue = Queue::new(Options::new().arena_size(16 << 10).max_bytes(512 << 10));
    for _ in 0..200 {
        queue.engine.enqueue(&[7; 1000]).unwrap();
    }
    queue.engine.close().unwrap();
    let storage = &queue.storage;
    let files = || {
        storage
            .file_names()
            .into_iter()
            .map(|name| (storage.read_file(&name), name))
            .collect::<Vec<_>>()
    };
    let before = files();
    let core = &*queue.engine.core;
    // As if readers had gone on.
    assert!(core.segments.drain(core.committed_spot().position));
    core.places.removed_moves.fetch_add(1, Ordering::Relaxed);
    core.reclaim().unwrap();
    queue.engine.give_space_back();
    core.segments.trim_spares(&core.context());
    core.prepare_ahead();
    core.flush_places().unwrap();
    core.flush_places_and_checkpoint().unwrap();
    core.flush_to(core.committed_spot()).unwrap();
    assert!(matches!(
        core.flush_to(Spot { position: u64::MAX, seq: u64::MAX }),
        Err(Error::Closed)
    ));
    assert!(queue.engine.enqueue(b"late").is_err());
    assert!(files() == before, "the files changed");
    assert_eq!(core.committed_spot(), Spot { seq: 200, ..core.committed_spot() });
}
