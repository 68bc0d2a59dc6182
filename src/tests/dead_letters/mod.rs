//! Dead letters, which are messages with an origin: every way of reading, damage, and no room.

mod late;
mod random;
mod versions;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::engine::copy_queue::CopiedId;
use crate::engine::{Background, Engine};
use crate::error::{Error, GapCause};
use crate::format::{MAX_MESSAGE_LEN, ORIGIN_LEN, Origin};
use crate::inspector::{Inspector, Seen};
use crate::message::Message;
use crate::options::{OnFull, Options, Start};
use crate::queue::Queue;
use crate::salvage::{Salvage, Salvaged};
use crate::segment::geometry::LENGTH_HERE;
use crate::storage::{FileStorage, Storage};
use crate::tests::sim::SimStorage;

/// A message that was put in: its bytes, and where it comes from.
type Put = (Vec<u8>, Option<Origin>);

/// How a queue is opened.
type Kind = fn() -> Options;

/// Segments of 8 KiB.
fn short() -> Options {
    LENGTH_HERE.set(Some(8 << 10));
    Options::new().arena_size(4096).max_bytes(1 << 20)
}

fn usual() -> Options {
    LENGTH_HERE.set(None);
    Options::new()
}

fn origin(number: u64) -> Origin {
    let attempts = u32::MAX - number as u32;
    Origin { queue_id: *b"the other queue.", seq: u64::MAX / 3 + number, attempts, sum: 0 }
}

fn payload(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 131 + at as u64 * 31 + (at as u64 >> 8)) as u8).collect()
}

fn put<S: Storage>(engine: &Engine<S>, number: u64, len: usize) -> Put {
    let bytes = payload(number, len);
    assert_eq!(engine.enqueue(&bytes).unwrap(), number);
    (bytes, None)
}

fn put_dead_letter<S: Storage>(engine: &Engine<S>, number: u64, len: usize) -> Put {
    let (bytes, origin) = (payload(number, len), origin(number));
    assert_eq!(engine.enqueue_dead_letter(&bytes, &origin).unwrap(), number);
    (bytes, Some(origin))
}

/// Dead letters of every kind of length with messages and batches between: one piece, several
/// pieces, none; around the length of an origin, a page, and a window.
fn mixed<S: Storage>(engine: &Engine<S>) -> Vec<Put> {
    let lens = [0, 1, 31, 32, 33, 100, 4000, 8016, 8017, 8100, 20_000, 0, 7, 70_000, 64];
    let mut all = Vec::new();
    for (at, len) in lens.into_iter().enumerate() {
        all.push(put_dead_letter(engine, all.len() as u64, len));
        if at % 3 == 0 {
            all.push(put(engine, all.len() as u64, len));
        }
        if at % 4 == 1 {
            let from = all.len() as u64;
            let batch: Vec<_> = (from..from + 3).map(|number| payload(number, len)).collect();
            assert_eq!(engine.enqueue_batch(&batch).unwrap(), from..from + 3);
            all.extend(batch.into_iter().map(|bytes| (bytes, None)));
        }
    }
    all
}

/// A closed queue in a directory of its own.
struct Closed {
    home: tempfile::TempDir,
    put: Vec<Put>,
}

impl Closed {
    fn new(kind: Kind, put: impl FnOnce(&Engine<FileStorage>) -> Vec<Put>) -> Closed {
        let home = crate::tests::guard::tempdir().unwrap();
        let storage = FileStorage::create(&home.path().join("queue"), None).unwrap();
        let engine = Engine::open(storage, &kind()).unwrap();
        let put = put(&engine);
        engine.close().unwrap();
        Closed { home, put }
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("queue")
    }

    #[track_caller]
    fn is(&self, number: usize, message: &Message) {
        let (bytes, origin) = &self.put[number];
        assert_eq!(message.seq(), number as u64);
        assert_eq!(message.origin(), *origin, "{number}");
        assert!(**message == **bytes, "{number}: {} bytes, not {}", message.len(), bytes.len());
        assert!(message.as_ref().len() == bytes.len());
    }
}

#[test]
fn a_message_stays_as_small_as_it_was() {
    assert_eq!(size_of::<Message>(), 56);
}

#[test]
fn every_way_of_reading_gives_the_message_without_its_origin_and_says_the_origin() {
    let few: Kind = || short().max_mapped_arenas(3);
    let durable: Kind = || usual().flush_every_ops(1);
    for kind in [short, few, usual, durable] {
        let closed = Closed::new(kind, mixed);
        let queue = kind().open(closed.dir()).unwrap();
        let names = ["peeks", "into", "batches", "looks", "works", "skips", "waits"];
        let [peeks, into, batches, looks, works, skips, waits] =
            names.map(|name| queue.consumer(name).unwrap());
        works.set_max_in_flight(None).unwrap();
        let mut buffer = b"what it held".to_vec();
        let ahead: Vec<_> = looks.iter().map(Result::unwrap).collect();
        assert_eq!(ahead.len(), closed.put.len());
        let mut handed = Vec::new();
        for (number, (bytes, origin)) in closed.put.iter().enumerate() {
            closed.is(number, &ahead[number]);
            closed.is(number, &queue.dequeue().unwrap().unwrap());
            closed.is(number, &peeks.peek().unwrap().unwrap());
            closed.is(number, &peeks.peek().unwrap().unwrap());
            assert_eq!(peeks.peek_into(&mut buffer).unwrap(), Some(number as u64));
            assert_eq!(buffer, *bytes, "{number}");
            closed.is(number, &peeks.dequeue().unwrap().unwrap());
            assert_eq!(into.peek_into(&mut buffer).unwrap(), Some(number as u64));
            assert_eq!(into.dequeue_into(&mut buffer).unwrap(), Some(number as u64));
            assert_eq!(buffer, *bytes, "{number}");
            let waited = waits.dequeue_timeout(Duration::from_secs(9)).unwrap().unwrap();
            closed.is(number, &waited);
            assert!(waited.into_vec() == *bytes);
            assert_eq!(skips.skip().unwrap(), Some(number as u64));
            let delivery = works.receive().unwrap().unwrap();
            assert_eq!((delivery.seq(), delivery.origin()), (number as u64, *origin));
            assert!(*delivery == **bytes);
            handed.push(delivery);
        }
        // Given back, and handed out again.
        drop(handed);
        for (number, (bytes, origin)) in closed.put.iter().enumerate() {
            let delivery = works.receive().unwrap().unwrap();
            assert_eq!((delivery.seq(), delivery.attempts()), (number as u64, 2));
            assert_eq!(delivery.origin(), *origin);
            assert!(*delivery == **bytes);
            delivery.ack().unwrap();
        }
        let mut taken = 0;
        for message in std::iter::from_fn(|| Some(batches.dequeue_batch(4).unwrap()))
            .take_while(|batch| !batch.is_empty())
            .flatten()
        {
            closed.is(taken, &message);
            taken += 1;
        }
        assert_eq!(taken, closed.put.len());
    }
}

/// What an outsider sees, of a queue in use and of one that is closed.
#[track_caller]
fn seen_from_outside(closed: &Closed, dir: &Path) {
    let inspector = Inspector::open(dir).unwrap();
    let mut number = 0;
    for seen in inspector.messages(Start::Oldest) {
        match seen.unwrap() {
            Seen::Message { message, .. } => closed.is(number, &message),
            other => panic!("{other:?}"),
        }
        number += 1;
    }
    assert_eq!(number, closed.put.len());
    let bytes: usize = closed.put.iter().map(|(bytes, _)| bytes.len()).sum();
    let verified = inspector.verify(|finding| panic!("{finding}")).unwrap();
    assert_eq!((verified.messages, verified.bytes), (number as u64, bytes as u64));
    assert_eq!(inspector.snapshot().unwrap().format, 4);
}

#[test]
fn inspector_salvage_and_copies_keep_origins() {
    for kind in [short as Kind, usual] {
        let closed = Closed::new(kind, mixed);
        seen_from_outside(&closed, &closed.dir());
        let queue = kind().open(closed.dir()).unwrap();
        // (A consumer that stands at the first message keeps all.)
        queue.consumer("keeps").unwrap();
        seen_from_outside(&closed, &closed.dir());
        drop(queue);
        for id in [CopiedId::New, CopiedId::Same] {
            let to = closed.home.path().join(format!("{id:?}"));
            let queue = kind().open(closed.dir()).unwrap();
            queue.copy_to(&to, id, |_, _| ControlFlow::Continue(())).unwrap();
            seen_from_outside(&closed, &to);
            let copy = kind().open(&to).unwrap();
            for number in 0..closed.put.len() {
                closed.is(number, &copy.dequeue().unwrap().unwrap());
            }
            // The copy takes dead letters as well.
            copy.close().unwrap();
            let copy = Engine::open(FileStorage::open(&to).unwrap(), &kind()).unwrap();
            put_dead_letter(&copy, closed.put.len() as u64, 100);
            copy.close().unwrap();
        }
        let salvaged = |dir: &Path| {
            let bytes: usize = closed.put.iter().map(|(bytes, _)| bytes.len()).sum();
            let mut messages = Salvage::of([dir]).messages().unwrap();
            for (number, salvaged) in messages.by_ref().enumerate() {
                match salvaged {
                    Salvaged::Message { message, .. } => closed.is(number, &message),
                    other => panic!("{other:?}"),
                }
            }
            let report = messages.into_report();
            assert!(report.is_whole(), "{report:?}");
            let found = (report.messages, report.bytes);
            assert_eq!(found, (closed.put.len() as u64, bytes as u64));
        };
        salvaged(&closed.dir());
        fs::remove_file(closed.dir().join("index")).unwrap();
        salvaged(&closed.dir());
    }
}

/// Every flipped bit of an origin costs that message, which is reported, and nothing else.
#[test]
fn a_flipped_bit_in_an_origin_is_damage_that_is_reported() {
    let closed = Closed::new(short, |engine| {
        vec![put(engine, 0, 50), put_dead_letter(engine, 1, 50), put_dead_letter(engine, 2, 9000)]
    });
    let wanted = [1, 2].map(|number| origin(number).encode());
    for (number, wanted) in (1..).zip(wanted) {
        let name = fs::read_dir(closed.dir()).unwrap().map(|file| file.unwrap().path());
        let found = name.filter(|path| !path.ends_with("index")).find_map(|path| {
            let bytes = fs::read(&path).unwrap();
            let at = bytes.windows(ORIGIN_LEN).position(|part| part == wanted)?;
            Some((path, bytes, at))
        });
        let (path, whole, at) = found.expect("the origin lies in a segment, in one piece");
        for bit in 0..ORIGIN_LEN * 8 {
            let mut bytes = whole.clone();
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).unwrap();
            let inspector = Inspector::open(closed.dir()).unwrap();
            let mut gaps = Vec::new();
            for seen in inspector.messages(Start::Oldest) {
                match seen.unwrap() {
                    Seen::Message { message, .. } => closed.is(message.seq() as usize, &message),
                    Seen::Gap(gap) => gaps.push((gap.first, gap.last, gap.cause)),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(gaps, [(number, number, GapCause::Damaged)], "bit {bit}");
            if bit % 8 != 3 {
                continue;
            }
            let verified = inspector.verify(|_| {}).unwrap();
            assert_eq!((verified.findings, verified.messages), (1, 2), "bit {bit}");
            let queue = short().open(closed.dir()).unwrap();
            let mut gaps = Vec::new();
            for message in queue.iter().past_gaps(|gap| gaps.push((gap.first, gap.last))) {
                let message = message.unwrap();
                closed.is(message.seq() as usize, &message);
            }
            assert_eq!(gaps, [(number, number)], "bit {bit}");
            drop(queue);
        }
        fs::write(&path, &whole).unwrap();
    }
}

/// A dead letter may be as long as a message, but for its origin.
#[test]
fn a_dead_letter_that_no_queue_of_that_size_holds_is_refused_as_too_long() {
    let storage = SimStorage::new(7).with_file_capacity(64 << 10);
    let options = Options::new().arena_size(4096).max_bytes(128 << 10);
    let engine = Engine::open_without_workers(storage, &options).unwrap();
    engine.default_consumer().unwrap();
    let most = engine.core.max_message() as usize;
    assert!(most < 100_000, "{most}");
    let longest = most - ORIGIN_LEN;
    match engine.enqueue_dead_letter(&payload(0, longest + 1), &origin(0)) {
        Err(Error::MessageTooLarge { len, max, max_bytes, .. }) => {
            assert_eq!((len, max), (longest as u64 + 1, longest as u64));
            assert_eq!(max_bytes, Some(128 << 10));
        }
        other => panic!("{other:?}"),
    }
    // Nothing was stored, and no version was raised.
    assert_eq!(engine.core.index.version() as u32, 3);
    for number in 0..3 {
        put_dead_letter(&engine, number, longest);
        let consumer = engine.default_consumer().unwrap();
        let read = crate::consume::step::Read::Take;
        let message = crate::engine::reading::next(&engine, consumer, read).unwrap().unwrap();
        assert!(*message == *payload(number, longest));
        assert_eq!(message.origin(), Some(origin(number)));
    }
    const { assert!(MAX_MESSAGE_LEN < u64::MAX - ORIGIN_LEN as u64) };
}

/// A dead letter waits for no room: not with `Wait`, not without a keeper. Where a message has to
/// make place, so has it.
#[test]
fn a_dead_letter_never_waits_for_room() {
    for background in [Background::Calls, Background::Workers] {
        for on_full in [OnFull::Wait(None), OnFull::Reject, OnFull::DropOldest] {
            let storage = SimStorage::new(8).with_file_capacity(64 << 10);
            let options = Options::new().arena_size(4096).max_bytes(64 << 10).on_full(on_full);
            let engine = Engine::open_with(storage, &options, background).unwrap();
            engine.default_consumer().unwrap();
            let began = Instant::now();
            let mut number = 0;
            let full = loop {
                match engine.enqueue_dead_letter(&payload(number, 3000), &origin(number)) {
                    Ok(seq) => assert_eq!(seq, number),
                    Err(error) => break Some(error),
                }
                number += 1;
                if number > 100 {
                    break None;
                }
            };
            assert!(began.elapsed() < Duration::from_secs(30));
            match full {
                None => assert!(matches!(on_full, OnFull::DropOldest)),
                Some(Error::Full { option, held_by, .. }) => {
                    assert!(!matches!(on_full, OnFull::DropOldest));
                    assert!(option == "max_bytes" && held_by.is_some());
                    assert_eq!(engine.stats().refused, 1);
                }
                Some(error) => panic!("{error}"),
            }
            engine.close().unwrap();
            let closed = engine.enqueue_dead_letter(b"too late", &origin(0));
            assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
        }
    }
}

/// The queue in `tests/fixtures/letters`, whose bytes the tests of files, tool and C read.
/// `MMQ_BLESS=1` makes it anew.
#[test]
fn the_fixture_holds_what_is_written_here() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/letters");
    let options = usual().arena_size(4096).max_bytes(64 << 10);
    if std::env::var_os("MMQ_BLESS").is_some() {
        let _ = fs::remove_dir_all(&kept);
        let storage = FileStorage::create(&kept, None).unwrap();
        let engine = Engine::open(storage, &options).unwrap();
        engine.enqueue(b"before the first letter").unwrap();
        let from = |seq, attempts| Origin { queue_id: *b"the other queue.", seq, attempts, sum: 0 };
        engine.enqueue_dead_letter(b"a dead letter", &from(1_000_000_007, 5)).unwrap();
        engine.enqueue_batch(&[&b"one of two"[..], b"two of two"]).unwrap();
        engine.enqueue_dead_letter(b"", &from(0, 1)).unwrap();
        let long: Vec<u8> = b"over two segments, ".iter().copied().cycle().take(9000).collect();
        engine.enqueue_dead_letter(&long, &from(u64::from(u32::MAX), u32::MAX)).unwrap();
        engine.enqueue(b"last").unwrap();
        engine.close().unwrap();
    }
    let home = crate::tests::guard::tempdir().unwrap();
    let dir = home.path().join("queue");
    fs::create_dir(&dir).unwrap();
    for file in fs::read_dir(kept).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), dir.join(file.file_name())).unwrap();
    }
    let queue: Queue = options.create(false).open(dir).unwrap();
    let reported: Vec<_> = queue
        .iter()
        .map(|message| message.unwrap())
        .map(|message| {
            (message.len(), message.origin().map(|origin| (origin.seq, origin.attempts)))
        })
        .collect();
    let long = Some((u64::from(u32::MAX), u32::MAX));
    let wanted = [
        (23, None),
        (13, Some((1_000_000_007, 5))),
        (10, None),
        (10, None),
        (0, Some((0, 1))),
        (9000, long),
        (4, None),
    ];
    assert_eq!(reported, wanted);
}
