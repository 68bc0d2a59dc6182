//! Ages by a clock that the test turns: messages that are too old are passed over and told, none that is not.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::consume::standing::{Read, Standing};
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::format::{SEGMENT_HEADER_LEN, segment_name};
use crate::options::{OnFull, Options};
use crate::tests::sim::SimStorage;
use std::time::Duration;

const AGE: u64 = 10_000;
/// A 64th of the age.
const GRAIN: u64 = AGE / 64;

fn options() -> Options {
    Options::new().arena_size(4096).max_bytes(256 << 10).max_age(Duration::from_millis(AGE))
}

struct Aged {
    storage: SimStorage,
    engine: Engine<SimStorage>,
}

impl Aged {
    fn new() -> Aged {
        let storage = SimStorage::new(1).with_file_capacity(4 << 20);
        let engine = Engine::open(storage.clone(), &options(), false).unwrap();
        engine.consumer("").unwrap();
        Aged { storage, engine }
    }

    fn put(&self, count: u64, len: usize) -> u64 {
        let mut last = 0;
        for _ in 0..count {
            last = self.engine.enqueue(&vec![7; len]).unwrap();
        }
        last
    }

    fn standing(&self) -> Arc<Standing<SimStorage>> {
        self.engine.consumer("").unwrap()
    }

    fn next(&self) -> Result<Option<u64>, Gap> {
        match reading::next(&self.engine, &self.standing(), Read::Take) {
            Ok(message) => Ok(message.map(|message| message.seq())),
            Err(Error::Gap(gap)) => Err(gap),
            Err(error) => panic!("{error}"),
        }
    }

    fn reopen(self) -> Aged {
        self.engine.close().unwrap();
        let engine = Engine::open(self.storage.clone(), &options(), false).unwrap();
        Aged { storage: self.storage, engine }
    }
}

fn expired(first: u64, last: u64) -> Result<Option<u64>, Gap> {
    Err(Gap { first, last, cause: GapCause::Expired })
}

#[test]
fn what_is_too_old_is_passed_over_within_one_segment() {
    let aged = Aged::new();
    aged.put(5, 50);
    aged.storage.advance_clock(AGE / 2);
    aged.put(5, 50);
    assert_eq!(aged.next(), Ok(Some(0)));
    aged.storage.advance_clock(AGE / 2 + GRAIN + 1);
    assert_eq!(aged.next(), expired(1, 4), "not those that are half as old");
    assert_eq!(aged.next(), Ok(Some(5)));
    let aged = aged.reopen();
    assert_eq!(aged.next(), Ok(Some(6)), "the time is known in the middle of a segment too");
    aged.storage.advance_clock(AGE / 2);
    assert_eq!(aged.next(), expired(7, 9));
    assert_eq!(aged.next(), Ok(None));
    aged.put(1, 50);
    assert_eq!(aged.next(), Ok(Some(10)));
}

/// The mark that says a later time is lost, to damage or to a power cut: what lies behind it is not old for that.
#[test]
fn what_lies_behind_a_lost_mark_does_not_expire_early() {
    for cut in [false, true] {
        let aged = Aged::new();
        aged.put(1, 50);
        aged.engine.core.flush().unwrap();
        aged.storage.advance_clock(AGE);
        let tail = aged.engine.core.committed_spot().position;
        // The mark lies in a page that a power cut may lose, the last message in another one.
        aged.put(1, 5000);
        aged.put(1, 50);
        let (name, at) = (segment_name(0), (SEGMENT_HEADER_LEN + tail) as usize);
        let images: Vec<_> = if cut {
            (0..60).map(|seed| aged.storage.power_cut(seed)).collect()
        } else {
            let damaged = aged.storage.process_kill();
            damaged.corrupt(&name, at, &[0xff; 40]);
            vec![damaged]
        };
        let mut seen = 0;
        for image in images {
            let engine = Engine::open(image.clone(), &options(), false).unwrap();
            let aged = Aged { storage: image, engine };
            aged.storage.advance_clock(GRAIN + 1);
            assert_eq!(aged.next(), expired(0, 0), "it is as old as was said before it");
            let found: Vec<_> = std::iter::from_fn(|| aged.next().transpose()).take(4).collect();
            let gap = found.iter().find_map(|found| found.err());
            assert!(gap.is_none_or(|gap| gap.cause != GapCause::Expired), "{found:?}");
            seen += u32::from(found.contains(&Ok(2)) && gap.is_some());
        }
        assert!(seen > 0, "{cut}");
    }
}

#[test]
fn nothing_expires_early() {
    let aged = Aged::new();
    let mut state = 3u64;
    let mut random = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    // By the latest time the clock has said so far: what is written later is no older.
    let mut written = Vec::new();
    let (mut now, mut latest) = (0u64, 0);
    let mut next = 0;
    let mut aged = aged;
    for step in 0..4000 {
        match random(10) {
            0..=5 => {
                aged.put(1, random(400) as usize);
                latest = latest.max(now);
                written.push(latest);
            }
            6 | 7 => {
                let by = random(if step % 100 == 0 { 2 * AGE } else { 300 });
                aged.storage.advance_clock(by);
                now += by;
            }
            8 if random(40) == 0 => aged = aged.reopen(),
            // The clock is set back, by a little or by ages.
            8 if random(20) == 0 => {
                let by = random(if step % 3 == 0 { 3 * AGE } else { GRAIN }).min(now);
                aged.storage.set_back_clock(by);
                now -= by;
            }
            _ => match aged.next() {
                Ok(Some(seq)) => {
                    assert_eq!(seq, next);
                    let age = now.saturating_sub(written[seq as usize]);
                    assert!(age <= AGE + 2 * GRAIN, "{seq} is {age} ms old");
                    next += 1;
                }
                Ok(None) => assert_eq!(next, written.len() as u64),
                Err(gap) => {
                    assert_eq!((gap.first, gap.cause), (next, GapCause::Expired));
                    let age = now.saturating_sub(written[gap.last as usize]);
                    assert!(age > AGE, "{} expired at {age} ms", gap.last);
                    next = gap.last + 1;
                }
            },
        }
    }
    assert!(next > 1000);
}

#[test]
fn segments_that_are_too_old_are_given_back_though_nobody_reads() {
    let aged = Aged::new();
    let core = Arc::clone(&aged.engine.core);
    for _ in 0..40 {
        aged.put(30, 200);
        aged.storage.advance_clock(AGE / 10);
    }
    let stats = core.segments.list().live.len();
    assert!(stats <= 4, "{stats} segments of 32 KiB hold what is not too old");
    assert!(aged.engine.len() <= 600, "{}", aged.engine.len());
    aged.storage.advance_clock(3 * AGE);
    match aged.next() {
        Err(gap) => assert_eq!((gap.first, gap.cause), (0, GapCause::Expired)),
        other => panic!("{other:?}"),
    }
    while let Err(gap) = aged.next() {
        assert_eq!(gap.cause, GapCause::Expired);
    }
    assert_eq!(aged.engine.len(), 0);
    let lost = core.gaps.lost.iter().map(|lost| lost.load(Ordering::Relaxed)).sum::<u64>();
    assert_eq!(lost, 1200);
}

#[test]
fn without_max_age_the_marks_are_passed_over_silently() {
    let aged = Aged::new();
    aged.put(3, 50);
    aged.storage.advance_clock(AGE / 2);
    aged.engine
        .write(2, |writer, core| {
            let batch = crate::format::Batch { more: true, continues: false };
            writer.push(core, b"a", batch)?;
            writer.push(core, b"b", crate::format::Batch { more: false, continues: true })
        })
        .unwrap();
    aged.storage.advance_clock(AGE / 2);
    aged.put(3, 50);
    aged.storage.advance_clock(10 * AGE);
    let kill = aged.storage.process_kill();
    let engine = Engine::open(kill, &Options::new().arena_size(4096), false).unwrap();
    let standing = engine.consumer("").unwrap();
    for seq in 0..8 {
        assert_eq!(reading::next(&engine, &standing, Read::Take).unwrap().unwrap().seq(), seq);
    }
    assert!(reading::next(&engine, &standing, Read::Take).unwrap().is_none());
}

#[test]
fn a_record_that_was_refused_takes_its_mark_with_it() {
    let aged = Aged::new();
    aged.put(1, 50);
    aged.storage.advance_clock(AGE / 2);
    let refused = aged.engine.write(1, |writer, core| {
        writer.push(core, b"given up", crate::format::Batch::default())?;
        Err::<(), _>(Error::Closed)
    });
    assert!(refused.is_err());
    aged.put(1, 50);
    aged.storage.advance_clock(AGE / 2 + 2 * GRAIN);
    assert_eq!(aged.next(), expired(0, 0));
    assert_eq!(aged.next(), Ok(Some(1)), "it is half as old as the first one");
}

#[test]
fn deliveries_in_flight_do_not_expire_and_acks_are_kept() {
    let aged = Aged::new();
    aged.put(4, 50);
    let standing = aged.standing();
    let mut handed = Vec::new();
    for seq in 0..3 {
        let (message, hand) = aged.engine.receive(&standing, reading::AsMessage).unwrap().unwrap();
        assert_eq!(message.seq(), seq);
        handed.push(hand);
    }
    aged.engine.ack(&standing, 1, handed[1]).unwrap();
    aged.storage.advance_clock(2 * AGE);
    assert_eq!(aged.next(), expired(3, 3));
    aged.engine.nack(&standing, 0, handed[0]);
    assert_eq!(aged.next(), Ok(Some(0)), "it was handed out in time");
    aged.engine.ack(&standing, 2, handed[2]).unwrap();
    assert_eq!(aged.next(), Ok(None));
    assert_eq!(aged.engine.len(), 0);
}

/// Each missing number has one cause, the one it was given up for, whatever came before and after; also for a consumer
/// that was away all the time, after a reopening and after a death.
#[test]
fn what_was_dropped_and_what_had_expired_are_told_apart() {
    for end in ["goes on", "reopened", "killed", "power cut"] {
        let options = options().on_full(OnFull::DropOldest);
        let storage = SimStorage::new(1).with_file_capacity(4 << 20);
        let mut engine = Engine::open(storage.clone(), &options, false).unwrap();
        engine.consumer("").unwrap();
        let mut causes: Vec<GapCause> = Vec::new();
        let mut tail = 0;
        for round in 0..6 {
            // So much that some go to make room, at a time that does not pass.
            for _ in 0..400 {
                tail = engine.enqueue(&[7; 700]).unwrap() + 1;
            }
            let oldest = engine.core.oldest_seq.load(Ordering::Relaxed) as usize;
            assert!(oldest > causes.len(), "round {round}: nothing was dropped");
            causes.resize(oldest, GapCause::Dropped);
            storage.advance_clock(AGE / 2);
            for _ in 0..100 {
                tail = engine.enqueue(&[7; 700]).unwrap() + 1;
            }
            let oldest = engine.core.oldest_seq.load(Ordering::Relaxed) as usize;
            causes.resize(oldest, GapCause::Dropped);
            storage.advance_clock(AGE / 2 + GRAIN + 1);
            if round < 3 {
                engine.core.expire(engine.core.expired_before());
                engine.core.settle().unwrap();
                let oldest = engine.core.oldest_seq.load(Ordering::Relaxed) as usize;
                assert!(oldest > causes.len(), "round {round}: nothing expired");
                causes.resize(oldest, GapCause::Expired);
            } else {
                // The same, found out when room is wanted.
                let begun = engine.core.gaps.given_up.lock().expired;
                while engine.core.gaps.given_up.lock().expired == begun {
                    tail = engine.enqueue(&[7; 700]).unwrap() + 1;
                }
                causes.resize(engine.core.gaps.given_up.lock().expired as usize, GapCause::Expired);
                assert!(engine.core.gaps.given_up.lock().dropped < begun.max(causes.len() as u64));
            }
        }
        storage.advance_clock(1);
        let storage = match end {
            "killed" => storage.process_kill(),
            "power cut" => {
                engine.core.flush().unwrap();
                storage.power_cut(3)
            }
            _ => storage,
        };
        if end != "goes on" {
            if end == "reopened" {
                engine.close().unwrap();
            }
            engine = Engine::open(storage.clone(), &options, false).unwrap();
        }
        let aged = Aged { storage, engine };
        // Two runs are told as they were: those before with the cause of the first of the two.
        let kept = 2;
        let mut runs: Vec<usize> = (1..causes.len()).filter(|at| causes[*at] != causes[*at - 1]).collect();
        runs.push(causes.len());
        assert!(runs.len() > kept, "{end}: {} runs", runs.len());
        let first = runs[runs.len() - kept];
        let cause = causes[first - 1];
        causes[..first].fill(cause);
        let mut next = 0;
        let mut came = 0;
        loop {
            match aged.next() {
                Err(gap) => {
                    assert_eq!(gap.first, next, "{end}");
                    for seq in gap.first..=gap.last {
                        // What is still held is too old by the reader's own look; and behind it nothing was ever given out.
                        let held = if seq < tail { GapCause::Expired } else { GapCause::Reserved };
                        let cause = causes.get(seq as usize).copied().unwrap_or(held);
                        assert_eq!(gap.cause, cause, "{end}: {seq} within {gap:?}");
                    }
                    let whole = causes.get(gap.last as usize + 1).is_none_or(|cause| *cause != gap.cause);
                    assert!(whole, "{end}: {gap:?} was cut in two");
                    next = gap.last + 1;
                }
                Ok(Some(seq)) => {
                    assert_eq!(seq, next, "{end}");
                    (next, came) = (seq + 1, came + 1);
                }
                Ok(None) => break,
            }
        }
        assert!(next >= tail && came > 50, "{end}: {came} came, up to {next} of {tail}");
    }
}

/// A batch takes longer to write than messages live, the first time or each time, and there is no room for it: it is refused, and
/// what comes next bears its numbers.
#[test]
fn a_batch_that_was_refused_takes_no_numbers_with_it() {
    /// So many times the clock goes on, of how many tries.
    struct Slow<'a>(&'a SimStorage, u32, Cell<u32>);
    impl AsRef<[u8]> for Slow<'_> {
        fn as_ref(&self) -> &[u8] {
            let tries = self.2.replace(self.2.get() + 1);
            assert!(tries < 20, "it is tried for ever");
            self.0.advance_clock(if tries < self.1 { 2 * AGE } else { 0 });
            &[7; 10_000]
        }
    }
    for slow in [1, u32::MAX] {
        let aged = Aged::new();
        aged.put(1, 50);
        let slow = |at| if at == 12 { slow } else { 0 };
        let batch: Vec<_> = (0..60).map(|at| Slow(&aged.storage, slow(at), Cell::new(0))).collect();
        assert!(aged.engine.enqueue_batch(&batch).unwrap_err().is_full());
        for seq in 1..10 {
            assert_eq!(aged.put(1, 10_000), seq);
        }
        let aged = aged.reopen();
        assert_eq!(aged.next(), expired(0, 0));
        for seq in 1..10 {
            assert_eq!(aged.next(), Ok(Some(seq)));
        }
    }
}
