//! Consumers seen from inside, on real files: who may lend from a window, clocks that are turned,
//! descriptors of both kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::Read;
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, GapCause};
use crate::format::CONSUMER_ROWS;
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::storage::{CLOCK, FileStorage};
use crate::tests::sim::{Call, SimStorage};
use crate::threads::ready::{PIPES, Ready};

fn open(dir: &tempfile::TempDir, options: &Options) -> Engine<FileStorage> {
    Engine::open_without_workers(FileStorage::create(dir.path(), None).unwrap(), options).unwrap()
}

/// The next message, and whether its bytes were lent in place.
fn next(
    engine: &Engine<FileStorage>,
    consumer: &Arc<ConsumerState<FileStorage>>,
) -> Option<(u64, bool)> {
    reading::next(engine, consumer, Read::Take)
        .unwrap()
        .map(|message| (message.seq(), message.is_lent()))
}

/// Under the tightest cap the tail has one window and a reader another. An idle consumer that holds
/// the third one must not make another reader copy for ever.
#[test]
fn a_consumer_that_only_stands_there_releases_its_window() {
    for (arena, each) in [(4 << 20, 100_000), (64 << 10, 3000)] {
        let dir = crate::tests::guard::tempdir().unwrap();
        let engine = open(&dir, &Options::new().arena_size(arena).max_mapped_arenas(3));
        let (idle, busy) = (engine.consumer("idle").unwrap(), engine.consumer("busy").unwrap());
        let put = |count: u64| (0..count).for_each(|_| _ = engine.enqueue(&vec![7; each]).unwrap());
        put(8);
        assert_eq!(next(&engine, &idle), Some((0, true)), "it has a window now");
        assert_eq!(next(&engine, &idle), Some((1, true)));
        let mut lent = Vec::new();
        let per_arena = arena / each as u64;
        for seq in 0..40 * per_arena {
            put(1);
            let (came, in_place) = next(&engine, &busy).unwrap();
            assert_eq!(came, seq);
            // A record over two arenas is copied whatever is mapped.
            lent.push(in_place);
        }
        let copied = lent.iter().skip(3 * per_arena as usize).filter(|lent| !**lent).count() as u64;
        assert!(copied <= 45, "arenas of {arena}: {copied} of {} were copied", lent.len());
        // It goes on where it stood.
        assert_eq!(next(&engine, &idle).unwrap().0, 2);
        assert_eq!(next(&engine, &idle).unwrap().0, 3);
        engine.close().unwrap();
    }
}

/// Two consumers that both read keep their windows: neither counts as idle.
#[test]
fn consumers_that_read_in_turn_keep_their_windows() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let engine = open(&dir, &Options::new().arena_size(4 << 20).max_mapped_arenas(5));
    let (one, other) = (engine.consumer("one").unwrap(), engine.consumer("other").unwrap());
    for _ in 0..400 {
        engine.enqueue(&vec![7; 100_000]).unwrap();
    }
    for seq in 0..400 {
        for consumer in [&one, &other] {
            let (came, lent) = next(&engine, consumer).unwrap();
            assert_eq!(came, seq);
            // What runs over a segment's end is copied whatever is mapped.
            assert!(
                lent || seq % 41 > 38
                    || seq % 41 == 0
                    || (seq * 100_016) % (4 << 20) > (4 << 20) - 200_000,
                "{seq}"
            );
        }
    }
}

fn is_readable(ready: &Ready) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = ready.descriptor();
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
}

/// Runs the test with an eventfd, and with a pipe, as on systems without eventfd.
fn with_both_kinds(test: impl Fn()) {
    for pipes in [false, true] {
        PIPES.with(|kind| kind.set(pipes));
        test();
    }
    PIPES.with(|kind| kind.set(false));
}

#[test]
fn a_descriptor_of_either_kind_is_readable_exactly_when_notified() {
    with_both_kinds(|| {
        let ready = Ready::new().unwrap();
        assert!(!is_readable(&ready));
        for _ in 0..100_000 {
            // However often: a pipe that filled up would stop here for ever.
            ready.raise();
        }
        assert!(is_readable(&ready));
        ready.notify(|| true);
        assert!(is_readable(&ready));
        ready.notify(|| false);
        assert!(!is_readable(&ready));
        ready.notify(|| false);
        assert!(!is_readable(&ready));
        // News that come while it is cleared are not lost.
        ready.raise();
        let asked = std::cell::Cell::new(0);
        ready.notify(|| {
            asked.set(asked.get() + 1);
            asked.get() > 1
        });
        assert!(is_readable(&ready));
    });
}

#[test]
fn a_poll_loop_on_a_descriptor_of_either_kind_misses_nothing() {
    with_both_kinds(|| {
        let dir = crate::tests::guard::tempdir().unwrap();
        let engine = open(&dir, &Options::new().arena_size(64 << 10));
        let consumer = engine.consumer("").unwrap();
        let ready = engine.ready_fd(&consumer).unwrap();
        const TOTAL: u64 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for sent in 0..TOTAL {
                    engine.enqueue(&[7; 10]).unwrap();
                    if sent % 50 == 0 {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                }
            });
            let mut came = 0;
            while came < TOTAL {
                use rustix::event::{PollFd, PollFlags, Timespec, poll};
                let mut polled = [PollFd::from_borrowed_fd(ready, PollFlags::IN)];
                let long = Timespec { tv_sec: 60, tv_nsec: 0 };
                assert_eq!(
                    poll(&mut polled, Some(&long)).unwrap(),
                    1,
                    "nothing wakes for message {came}"
                );
                if let Some((seq, _)) = next(&engine, &consumer) {
                    assert_eq!(seq, came);
                    came += 1;
                }
            }
            assert!(!is_readable(consumer.ready.get().unwrap()));
        });
        engine.close().unwrap();
        assert!(is_readable(consumer.ready.get().unwrap()), "the end is news");
    });
}

/// More consumers than the index has rows: it grows, and where it cannot the answer says so, and
/// nothing else breaks.
#[test]
fn consumers_beyond_the_first_rows_need_space_and_say_so_when_there_is_none() {
    let storage = SimStorage::new(3);
    let options = Options::new().arena_size(4096).max_bytes(1 << 20);
    let engine = Engine::open_without_workers(storage.clone(), &options).unwrap();
    for n in 0..20u8 {
        engine.enqueue(&[n; 100]).unwrap();
    }
    let take = |engine: &Engine<SimStorage>, name: &str| {
        let consumer = engine.consumer(name).unwrap();
        reading::next(engine, &consumer, Read::Take).unwrap().map(|message| message.seq())
    };
    // The first row is the default consumer's.
    for n in 1..CONSUMER_ROWS {
        assert_eq!(take(&engine, &n.to_string()), Some(0));
    }
    let len = engine.core.index.len();
    for (call, errno) in [
        (Call::Allocate, rustix::io::Errno::NOSPC),
        (Call::Allocate, rustix::io::Errno::IO),
        (Call::Map, rustix::io::Errno::NOMEM),
    ] {
        storage.fail_after(call, 1, errno, true);
        match engine.consumer("one more") {
            Err(error @ Error::Io { op: "grow", .. }) => {
                assert_eq!(error.is_full(), errno == rustix::io::Errno::NOSPC)
            }
            other => panic!("{errno}: {:?}", other.map(|_| ())),
        }
        // All others go on, messages too, and the name is not taken.
        assert_eq!(engine.consumers.by_name.lock().len(), CONSUMER_ROWS - 1);
        storage.clear_faults();
        engine.enqueue(b"goes on").unwrap();
        take(&engine, "7").unwrap();
        assert_eq!(engine.core.index.len(), len, "{errno}: no half of an extent is counted");
    }
    // With room again it works, twice over, and all of it is there after a death.
    for n in 0..2 * CONSUMER_ROWS {
        assert_eq!(take(&engine, &format!("more {n}")), Some(0));
    }
    let killed = Engine::open_without_workers(storage.process_kill(), &options).unwrap();
    assert_eq!(killed.consumer_names().len(), 3 * CONSUMER_ROWS - 1);
    assert_eq!(take(&killed, "7"), Some(4));
    assert_eq!((take(&killed, "8"), take(&killed, "more 99")), (Some(1), Some(1)));
    // A row that is given back is used again before the file grows.
    let len = killed.core.index.len();
    killed.remove_consumer("8").unwrap();
    assert_eq!(take(&killed, "in its place"), Some(0));
    assert_eq!(killed.core.index.len(), len);
}

fn turn_clock(milliseconds: i64) {
    CLOCK.with(|clock| clock.set(clock.get() + milliseconds));
}

/// The clock is turned back by an hour, and forward and back, on real files: nothing expires early,
/// nothing is lost, and what is reported is reported as expired.
#[test]
fn a_clock_that_is_turned_back_makes_no_message_expire_early() {
    const AGE: i64 = 60_000;
    LENGTH_HERE.set(Some(32 << 10));
    let dir = crate::tests::guard::tempdir().unwrap();
    let options = Options::new()
        .arena_size(4096)
        .max_bytes(256 << 10)
        .max_age(Duration::from_millis(AGE as u64));
    let mut engine = open(&dir, &options);
    let put = |engine: &Engine<FileStorage>, count: usize| {
        (0..count).for_each(|_| _ = engine.enqueue(&[7; 500]).unwrap());
    };
    let read = |engine: &Engine<FileStorage>| {
        let consumer = engine.consumer("").unwrap();
        reading::next(engine, &consumer, Read::Take)
            .map(|message| message.map(|message| message.seq()))
    };
    engine.consumer("").unwrap();
    put(&engine, 100);
    turn_clock(-3_600_000);
    put(&engine, 100);
    assert_eq!(read(&engine).unwrap(), Some(0));
    engine.expire();
    engine.close().unwrap();
    engine = open(&dir, &options);
    for seq in 1..150 {
        assert_eq!(
            read(&engine).unwrap(),
            Some(seq),
            "nothing expires by a clock that was turned back"
        );
    }
    assert!(engine.stats().oldest_age.is_some_and(|age| age < Duration::from_secs(1)));
    // An age later by that clock they have, those from before as well.
    turn_clock(2 * AGE);
    engine.expire();
    match read(&engine) {
        Err(Error::Gap(gap)) => {
            assert_eq!((gap.first, gap.last, gap.cause), (150, 199, GapCause::Expired))
        }
        other => panic!("{other:?}"),
    }
    put(&engine, 50);
    for seq in 200..210 {
        assert_eq!(read(&engine).unwrap(), Some(seq));
    }
    // Forward by a year, and back after a few messages: those of before are not harmed if nobody
    // looked, those since live on.
    let year = 365 * 24 * 3_600_000;
    turn_clock(year);
    put(&engine, 5);
    turn_clock(-year);
    put(&engine, 5);
    for seq in 210..260 {
        assert_eq!(read(&engine).unwrap(), Some(seq));
    }
    assert_eq!(read(&engine).unwrap(), None);
    // Space is given back by being read, whatever the clock said.
    put(&engine, 200);
    while read(&engine).unwrap().is_some() {}
    engine.core.reclaim().unwrap();
    assert!(engine.core.segments.list().live.len() <= 1);
    assert_eq!((engine.stats().messages, engine.stats().lost_expired), (0, 50));
    engine.close().unwrap();
    CLOCK.with(|clock| clock.set(0));
}

/// One waiter after the other: whoever came first is woken first, and one message wakes one.
#[test]
fn a_message_wakes_one_waiter_of_each_consumer_the_one_that_came_first() {
    use crate::threads::waiting::Signal;
    let dir = crate::tests::guard::tempdir().unwrap();
    let engine = open(&dir, &Options::new().arena_size(64 << 10));
    let consumers = [engine.consumer("a").unwrap(), engine.consumer("b").unwrap()];
    struct Counting(AtomicU64);
    impl std::task::Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut waiters = Vec::new();
    for _ in 0..50 {
        for consumer in &consumers {
            let woken = Arc::new(Counting(AtomicU64::new(0)));
            let ticket = engine.join(consumer, Signal::Task(Arc::clone(&woken).into()));
            waiters.push((consumer, ticket, woken));
        }
    }
    let woken =
        || waiters.iter().map(|(_, _, woken)| woken.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    for sent in 0..50 {
        let wanted: Vec<u64> = (0..100).map(|at| u64::from(at < 2 * sent)).collect();
        assert_eq!(woken(), wanted, "before message {sent}");
        engine.enqueue(b"m").unwrap();
    }
    assert_eq!(woken(), vec![1; 100]);
    for (consumer, ticket, _) in &waiters {
        engine.leave(consumer, *ticket);
    }
    // Nobody waits: a message is nobody's business.
    assert_eq!(engine.core.message_waiters.load(Ordering::Relaxed), 0);
    engine.enqueue(b"m").unwrap();
    assert_eq!(woken().iter().sum::<u64>(), 100);
}

/// A death between giving segments up and removing them: what is counted is what comes, and what is
/// reported as missing does not come after all.
#[test]
fn killed_while_the_oldest_are_dropped_the_figures_are_right() {
    use crate::options::OnFull;
    let options = Options::new().arena_size(4096).max_bytes(64 << 10).on_full(OnFull::DropOldest);
    let mut seen = 0;
    for nth in 1..400 {
        let storage = SimStorage::new(nth);
        let engine = Engine::open_without_workers(storage.clone(), &options).unwrap();
        engine.consumer("").unwrap();
        for _ in 0..60 {
            engine.enqueue(&[7; 600]).unwrap();
        }
        storage.freeze_at(nth);
        for _ in 0..30 {
            engine.enqueue(&[7; 600]).unwrap();
        }
        let Some(killed) = storage.frozen() else { break };
        seen += 1;
        for (image, cut) in [(killed.power_cut(nth), true), (killed, false)] {
            let engine = Engine::open_without_workers(image, &options).unwrap();
            let (len, stats) = (engine.len(), engine.stats());
            let consumer = engine.consumer("").unwrap();
            let (mut came, mut next) = (0, 0);
            // Before each step: how many are counted, how many came so far.
            let mut steps = Vec::new();
            loop {
                steps.push((engine.len(), came));
                match reading::next(&engine, &consumer, Read::Take) {
                    Ok(Some(message)) => {
                        assert_eq!(message.seq(), next, "call {nth}");
                        (came, next) = (came + 1, next + 1);
                    }
                    Ok(None) => break,
                    Err(Error::Gap(gap)) => {
                        assert_eq!(gap.first, next, "call {nth}");
                        if !cut {
                            assert_eq!(gap.cause, GapCause::Dropped, "call {nth}");
                            assert_eq!(gap.last + 1, stats.oldest_seq, "call {nth}");
                        }
                        next = gap.last + 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            // A hole that a power cut left within a segment is counted until it is reported; never
            // is a message not counted.
            assert!(
                if cut { len >= came } else { len == came },
                "call {nth}: {len} counted, {came} came"
            );
            for (len, before) in &steps {
                let left = came - before;
                assert!(
                    if cut { *len >= left } else { *len == left },
                    "call {nth}: {len} counted, {left} came"
                );
            }
            assert_eq!(
                (engine.len(), engine.stats().messages),
                (0, 0),
                "call {nth}: all is reported"
            );
            assert_eq!(len, stats.messages, "call {nth}");
            // What a power cut took at the end is reported with the next message.
            assert!(next == stats.next_seq || (cut && next < stats.next_seq), "call {nth}");
        }
    }
    assert!(seen > 20, "only {seen} moments");
}

/// The end of a run copies what is lent, as far as the pool knows the file to reach. Where each
/// message is synced the writer asks for no window, and neither does a reader within one segment:
/// the pool learns from the growth alone.
#[test]
fn what_is_lent_from_space_that_a_file_grew_by_stays_after_the_close() {
    let options = Options::new().arena_size(4 << 20);
    lent_stays_after_the_close(12, &options);
    lent_stays_after_the_close(5, &options.flush_every_ops(1));
}

fn lent_stays_after_the_close(messages: u8, options: &Options) {
    let dir = crate::tests::guard::tempdir().unwrap();
    let engine = open(&dir, options);
    let consumer = engine.consumer("").unwrap();
    let mut held = Vec::new();
    for number in 0..messages {
        let len = if number == 0 { 100 } else { 300_000 };
        engine.enqueue(&vec![number; len]).unwrap();
        held.push(reading::next(&engine, &consumer, Read::Take).unwrap().unwrap());
    }
    engine.close().unwrap();
    // The next owner may do so.
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = std::fs::OpenOptions::new().write(true).open(file.unwrap().path()).unwrap();
        let len = file.metadata().unwrap().len() as usize;
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0xEE; len], 0).unwrap();
    }
    for (message, number) in held.iter().zip(0..) {
        assert!(message.iter().all(|byte| *byte == number), "{number} changed");
    }
}
