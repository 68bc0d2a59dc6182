//! Ages by a clock that the test turns: what is given up is old enough, and what is too old does not stay.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::consume::standing::{Read, Standing};
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::options::{OnFull, Options};
use crate::storage::Storage;
use crate::tests::sim::{Rng, SimStorage};

const AGE: u64 = 10_000;
/// So long a segment takes messages.
const SPAN: u64 = AGE / 8;

fn without() -> Options {
    Options::new().arena_size(4096).max_bytes(256 << 10)
}

fn options() -> Options {
    without().max_age(Duration::from_millis(AGE))
}

struct Aged {
    storage: SimStorage,
    engine: Engine<SimStorage>,
}

impl Aged {
    fn new() -> Aged {
        let aged = Aged::open(SimStorage::new(1).with_file_capacity(4 << 20), &options());
        aged.engine.consumer("").unwrap();
        aged
    }

    fn open(storage: SimStorage, options: &Options) -> Aged {
        let engine = Engine::open(storage.clone(), options, false).unwrap();
        Aged { storage, engine }
    }

    fn put(&self, count: u64, len: usize) -> u64 {
        (0..count).map(|_| self.engine.enqueue(&vec![7; len]).unwrap()).last().unwrap()
    }

    fn standing(&self, name: &str) -> Arc<Standing<SimStorage>> {
        self.engine.consumer(name).unwrap()
    }

    fn next_of(&self, name: &str) -> Result<Option<u64>, Gap> {
        match reading::next(&self.engine, &self.standing(name), Read::Take) {
            Ok(message) => Ok(message.map(|message| message.seq())),
            Err(Error::Gap(gap)) => Err(gap),
            Err(error) => panic!("{error}"),
        }
    }

    fn next(&self) -> Result<Option<u64>, Gap> {
        self.next_of("")
    }

    /// What a consumer is told up to the end.
    fn rest_of(&self, name: &str) -> Vec<Result<u64, Gap>> {
        std::iter::from_fn(|| self.next_of(name).transpose()).collect()
    }

    /// Time passes, and then what is held is looked at.
    fn pass(&self, milliseconds: u64) {
        self.storage.advance_clock(milliseconds);
        self.engine.expire();
    }

    fn live(&self) -> usize {
        self.engine.core.segments.list().live.len()
    }

    fn reopen(self, options: &Options) -> Aged {
        self.engine.close().unwrap();
        Aged::open(self.storage, options)
    }

    /// Reads all there is: each number that does not come is told with its own cause, but that what is still held at `tail` has
    /// expired, and what lies behind was reserved. The next number, and how many messages came.
    fn read_all(&self, causes: &[GapCause], tail: u64, end: &str) -> (u64, u64) {
        let mut next = 0;
        let mut came = 0;
        loop {
            match self.next() {
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
                Ok(None) => return (next, came),
            }
        }
    }
}

fn gap(first: u64, last: u64) -> Gap {
    Gap { first, last, cause: GapCause::Expired }
}

/// At random, with openings in order and after deaths in between. Every second time the clock jumps, too: then nothing is
/// given up earlier than by as much as it jumped forward, and nothing stays for ever.
#[test]
fn a_message_lives_for_its_age_and_at_most_an_eighth_longer() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let jumps = seed % 2 == 1;
        let roomy = options().max_bytes(8 << 20);
        let mut aged = Aged::open(SimStorage::new(seed).with_file_capacity(1 << 20), &roomy);
        aged.engine.consumer("").unwrap();
        // Real time, and by how much the clock jumped forward and back so far.
        let (mut now, mut ahead, mut back) = (0, 0, 0);
        let mut written: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let (mut next, mut expired) = (0, 0);
        for _ in 0..600 {
            match rng.below(12) {
                0..4 => {
                    written.insert(aged.put(1, rng.below(6000) as usize), (now, ahead));
                }
                4 => {
                    let batch = aged.engine.enqueue_batch(&[[1; 900]; 7]).unwrap();
                    written.extend(batch.map(|seq| (seq, (now, ahead))));
                }
                5..8 => {
                    let most = if rng.percent(3) { 2 * AGE } else { 700 };
                    let by = rng.below(most);
                    now += by;
                    aged.pass(by);
                    let oldest = aged.engine.core.oldest_seq.load(Ordering::Relaxed);
                    if let Some((at, _)) = written.get(&oldest).filter(|_| !jumps) {
                        assert!(now - at < AGE + SPAN, "seed {seed}: {oldest} is {} ms old", now - at);
                    }
                }
                8 if rng.percent(20) => aged = aged.reopen(&roomy),
                8 if rng.percent(20) => aged = Aged::open(aged.storage.process_kill(), &roomy),
                8 if rng.percent(20) => {
                    aged.engine.core.flush().unwrap();
                    aged = Aged::open(aged.storage.power_cut(seed), &roomy);
                }
                9 if jumps && rng.percent(30) => {
                    let most = if rng.percent(30) { 3 * AGE } else { SPAN / 2 };
                    let by = rng.below(most);
                    if rng.percent(50) {
                        aged.storage.set_back_clock(by);
                        back += by;
                    } else {
                        aged.storage.advance_clock(by);
                        ahead += by;
                    }
                }
                _ => match aged.next() {
                    Ok(Some(seq)) => {
                        assert_eq!(seq, next, "seed {seed}");
                        next += 1;
                    }
                    Ok(None) => assert_eq!(next, aged.engine.core.committed_spot().seq, "seed {seed}"),
                    Err(gap) => {
                        assert_eq!(gap.first, next, "seed {seed}");
                        // Or nothing but numbers that a power cut left reserved.
                        for (_, (at, jumped)) in written.range(gap.first..=gap.last) {
                            let age = now - at + ahead - jumped;
                            assert!(
                                gap.cause == GapCause::Expired && age >= AGE,
                                "seed {seed}: {gap:?} after {age} ms"
                            );
                            expired += 1;
                        }
                        next = gap.last + 1;
                    }
                },
            }
        }
        // Not for ever, whatever the clock said.
        aged.engine.expire();
        aged.pass(AGE + SPAN);
        aged.pass(back);
        assert_eq!((aged.live(), aged.engine.len()), (0, 0), "seed {seed}");
        assert!(expired > 30, "seed {seed}: {expired}");
    }
}

/// The device begins at 1970, takes messages, and learns the time.
#[test]
fn a_clock_that_is_not_set_yet_harms_nothing_from_before() {
    let aged = Aged::new();
    aged.storage.advance_clock(1000 * AGE);
    aged.put(5, 50);
    let aged = aged.reopen(&options());
    aged.storage.set_back_clock(900 * AGE);
    aged.engine.expire();
    assert_eq!(aged.put(1, 50), 5);
    aged.pass(SPAN);
    assert_eq!(aged.put(1, 50), 6);
    let aged = aged.reopen(&options());
    aged.pass(900 * AGE - SPAN);
    assert_eq!(aged.live(), 3, "what is behind those from before goes after them");
    for seq in 0..5 {
        assert_eq!(aged.next(), Ok(Some(seq)));
    }
    aged.pass(AGE + SPAN);
    assert_eq!(aged.rest_of(""), [Err(gap(5, 6))]);
}

/// The clock was ahead by years when they came. Nobody writes, and nobody reads.
#[test]
fn what_bears_a_time_to_come_does_not_stay_for_ever() {
    for writes in [false, true] {
        let aged = Aged::new();
        aged.storage.advance_clock(1000 * AGE);
        aged.put(5, 50);
        aged.storage.set_back_clock(1000 * AGE);
        let mut aged = aged.reopen(&options());
        if writes {
            // It says when those before were there already, also where no run is as long as an age.
            assert_eq!(aged.put(1, 50), 5);
            for _ in 0..4 {
                aged.pass(AGE / 3);
                aged = aged.reopen(&options());
            }
        } else {
            aged.pass(AGE - 1);
            assert_eq!(aged.engine.len(), 5, "they may have come just before");
            aged.pass(1);
        }
        assert_eq!(aged.rest_of(""), [Err(gap(0, if writes { 5 } else { 4 }))]);
    }
}

/// Each consumer is told once, also who comes later, and after any end of the run.
#[test]
fn the_only_segment_expires_though_nobody_writes_or_reads() {
    for end in ["goes on", "closed", "killed", "power cut"] {
        let mut aged = Aged::new();
        aged.standing("other");
        aged.put(10, 500);
        assert_eq!((aged.next(), aged.next()), (Ok(Some(0)), Ok(Some(1))));
        if end == "power cut" {
            aged.engine.core.flush().unwrap();
        }
        aged.pass(AGE + SPAN - 1);
        assert_eq!((aged.live(), aged.engine.len()), (1, 8));
        let before = aged.engine.core.segments.list().disk_bytes();
        aged.pass(1);
        assert_eq!((aged.live(), aged.engine.len()), (0, 0));
        assert!(aged.engine.core.segments.list().disk_bytes() <= before);
        aged = match end {
            "goes on" => aged,
            "closed" => aged.reopen(&options()),
            "killed" => Aged::open(aged.storage.process_kill(), &options()),
            _ => Aged::open(aged.storage.power_cut(1), &options()),
        };
        assert_eq!(aged.next(), Err(gap(2, 9)), "{end}");
        let aged = if end == "closed" { aged.reopen(&options()) } else { aged };
        // Behind it may be what a power cut left reserved.
        assert!(aged.rest_of("").iter().all(|told| told.is_err_and(|gap| gap.cause == GapCause::Reserved)), "{end}");
        assert!(aged.rest_of("other").starts_with(&[Err(gap(0, 9))]), "{end}");
        let seq = aged.put(3, 500) - 2;
        assert!(seq == 10 || end == "power cut");
        for name in ["", "other", "new"] {
            assert_eq!(aged.rest_of(name), [Ok(seq), Ok(seq + 1), Ok(seq + 2)], "{end}, {name}");
        }
    }
}

/// Nobody was there to be told. Whoever comes first is.
#[test]
fn the_first_consumer_is_told_of_what_expired_before_it_came() {
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    let aged = Aged::open(storage, &options());
    aged.put(200, 700);
    assert!(aged.live() > 2);
    aged.pass(AGE + SPAN);
    assert_eq!(aged.put(1, 50), 200);
    assert_eq!(aged.next(), Err(gap(0, 199)));
    assert_eq!(aged.next(), Ok(Some(200)));
    assert_eq!(aged.rest_of("second"), [Ok(200)]);
}

/// It had a message of the segment mapped, and was busy when the segment went.
#[test]
fn who_stands_in_what_has_expired_gets_nothing_more_of_it() {
    let aged = Aged::new();
    aged.put(10, 500);
    assert_eq!(aged.next(), Ok(Some(0)));
    let standing = aged.standing("");
    let names = || aged.storage.file_names().len();
    let with = names();
    standing.with_progress(|_| aged.pass(AGE + SPAN));
    assert!(aged.engine.core.segments.has_removed_open());
    aged.engine.expire();
    assert!(!aged.engine.core.segments.has_removed_open(), "asked once more");
    assert_eq!(names(), with - 1);
    assert_eq!(aged.rest_of(""), [Err(gap(1, 9))]);
}

#[test]
fn nobody_who_looks_waits_for_a_producer() {
    let aged = Aged::new();
    aged.put(100, 700);
    let many = aged.live();
    let producer = aged.engine.core.writer.lock();
    aged.pass(AGE + SPAN);
    assert!(many > 2 && aged.live() == 1, "whole segments go, the tail a look later");
    drop(producer);
    aged.engine.expire();
    assert_eq!(aged.live(), 0);
    assert_eq!(aged.rest_of(""), [Err(gap(0, 99))]);
}

/// A batch goes on in a second segment, and the first one is too old before it is whole.
#[test]
fn what_is_being_written_does_not_expire() {
    let aged = Aged::new();
    let seq = aged.put(1, 50);
    let written = aged.engine.write(3, |writer, core| {
        for index in 0..3 {
            writer.push(core, &[1; 20_000], crate::format::Batch::of(index, 3))?;
        }
        aged.storage.advance_clock(AGE + SPAN);
        aged.engine.expire();
        Ok(())
    });
    assert_eq!(written.unwrap().0, seq + 1..seq + 4);
    assert_eq!(aged.rest_of(""), [Ok(0), Ok(1), Ok(2), Ok(3)]);
}

#[test]
fn deliveries_in_flight_stay_with_who_has_them() {
    let aged = Aged::new();
    aged.put(4, 50);
    let standing = aged.standing("");
    let handed: Vec<_> = (0..3)
        .map(|seq| {
            let (message, handed) = aged.engine.receive(&standing, reading::AsMessage).unwrap().unwrap();
            assert_eq!(message.seq(), seq);
            (message, handed)
        })
        .collect();
    aged.engine.ack(&standing, 1, handed[1].1).unwrap();
    aged.pass(2 * AGE);
    assert_eq!(aged.next(), Err(gap(3, 3)));
    assert_eq!(handed[0].0[..], [7; 50]);
    aged.engine.ack(&standing, 2, handed[2].1).unwrap();
    aged.engine.nack(&standing, 0, handed[0].1);
    assert_eq!(aged.rest_of(""), [Err(gap(0, 0))], "given back too late");
    assert_eq!(aged.engine.len(), 0);
}

/// Whatever was written without an age is as young as what was begun behind it, or as the run that looks at it.
#[test]
fn ages_may_be_turned_on_and_off() {
    let aged = Aged::new();
    aged.put(1, 50);
    let aged = aged.reopen(&without());
    // In the segment of the first one, much later.
    aged.storage.advance_clock(5 * AGE);
    aged.put(1, 50);
    let kept = Aged::open(aged.storage.process_kill(), &without());
    let aged = aged.reopen(&options());
    aged.pass(AGE - 1);
    assert_eq!(aged.rest_of("looks"), [Ok(0), Ok(1)]);
    aged.put(1, 50);
    assert_eq!(aged.live(), 2, "it does not make them younger");
    aged.pass(1);
    assert_eq!(aged.live(), 2);
    aged.pass(AGE - 1);
    assert_eq!((aged.next(), aged.live()), (Err(gap(0, 1)), 1));
    aged.pass(SPAN);
    assert_eq!(aged.rest_of(""), [Err(gap(2, 2))]);
    // Without it nothing is given up, whatever bears a time.
    let aged = kept.reopen(&options());
    aged.put(1, 50);
    let aged = aged.reopen(&without());
    aged.pass(9 * AGE);
    assert_eq!(aged.rest_of(""), [Ok(0), Ok(1), Ok(2)]);
}

/// By an age that was longer the segment would have taken messages for longer.
#[test]
fn another_age_counts_from_when_messages_were_written() {
    let aged = Aged::new();
    aged.put(1, 50);
    aged.storage.advance_clock(SPAN - 1);
    aged.put(1, 50);
    let short = without().max_age(Duration::from_millis(AGE / 4));
    let aged = aged.reopen(&short);
    aged.pass(AGE / 4 - 1);
    assert_eq!(aged.engine.len(), 2);
    aged.pass(1);
    assert_eq!(aged.rest_of(""), [Err(gap(0, 1))]);
}

/// A segment could be ten times as long as the disk is large, and one is all that it holds. Nobody reads.
#[test]
fn a_full_disk_of_what_is_too_old_takes_messages_again() {
    for (on_full, every) in [
        (OnFull::Reject, None),
        (OnFull::Reject, Some(1)),
        (OnFull::Wait(Some(Duration::ZERO)), None),
        (OnFull::DropOldest, None),
    ] {
        let options = Options::new().arena_size(4 << 20).max_age(Duration::from_millis(AGE)).on_full(on_full);
        let storage = SimStorage::new(1).with_file_capacity(4 << 20);
        storage.set_capacity(Some(400 << 10));
        let aged = Aged::open(storage, &options.flush_every_ops(every));
        aged.standing("slow");
        let mut first = 0;
        for round in 0..5 {
            let mut tail = first;
            let full = loop {
                match aged.engine.enqueue(&[7; 3000]) {
                    Ok(seq) if aged.engine.core.gaps.given_up.lock().dropped <= first => tail = seq + 1,
                    other => break other,
                }
            };
            assert!(full.is_ok() == (on_full == OnFull::DropOldest), "{full:?}");
            assert!(tail > first + 50 && aged.live() == 1, "{on_full:?}, {round}: {first} .. {tail}");
            if let Ok(seq) = full {
                tail = seq + 1;
            }
            aged.storage.advance_clock(AGE + SPAN);
            first = tail;
        }
        let told = aged.rest_of("slow");
        assert!(told.iter().all(|told| told.is_ok_and(|seq| seq + 200 > first) || told.is_err()), "{told:?}");
        assert!(aged.engine.core.gaps.given_up.lock().expired > 0, "{on_full:?}");
    }
}

/// There is no room for another segment when the tail's has taken messages for long enough.
#[test]
fn where_there_is_no_room_for_another_segment_the_tail_takes_what_fits() {
    let options = Options::new().arena_size(4 << 20).max_age(Duration::from_millis(AGE));
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    let aged = Aged::open(storage, &options);
    aged.standing("");
    aged.put(1, 3000);
    // A page more, and there would be another one.
    aged.storage.set_capacity(Some((1 << 40) - aged.storage.free_bytes().unwrap() + 4095));
    for _ in 0..3 {
        aged.pass(SPAN);
        aged.put(1, 3000);
    }
    assert_eq!(aged.live(), 1);
    // The last one lives as long as any, also when what says so is all that is left of the run.
    let killed = Aged::open(aged.storage.process_kill(), &options);
    aged.engine.core.flush().unwrap();
    let cut = Aged::open(aged.storage.power_cut_losing_all(), &options);
    for aged in [aged, killed, cut] {
        aged.pass(AGE);
        assert_eq!(aged.engine.core.oldest_seq.load(Ordering::Relaxed), 0);
        aged.pass(SPAN);
        assert_eq!(aged.next(), Err(gap(0, 3)));
    }
}

/// A record was begun in a segment, and refused: what comes later does not bear its time.
#[test]
fn an_empty_segment_does_not_make_messages_old() {
    let aged = Aged::new();
    let refused = aged.engine.write(1, |writer, core| {
        writer.push(core, b"given up", crate::format::Batch::default())?;
        Err::<(), _>(Error::Closed)
    });
    assert!(refused.is_err());
    assert_eq!(aged.live(), 1);
    aged.pass(5 * AGE);
    aged.put(1, 50);
    assert_eq!(aged.live(), 1, "and takes no other one for that");
    for aged in [Aged::open(aged.storage.process_kill(), &options()), aged] {
        aged.pass(AGE);
        assert_eq!(aged.engine.len(), 1);
        aged.pass(SPAN);
        assert_eq!(aged.rest_of(""), [Err(gap(0, 0))]);
    }
}

/// Wherever the process or the power dies: numbers are told once, in order, and what is told as expired is old enough.
#[test]
fn a_death_while_the_tail_expires_loses_nothing_else() {
    let mut met = [0; 2];
    for (in_store, flushed) in [(0, true), (1, true), (0, false), (1, false)] {
        for nth in 1.. {
            let aged = Aged::open(SimStorage::new(nth).with_file_capacity(4 << 20), &options());
            aged.standing("");
            aged.put(60, 700);
            assert_eq!((aged.next(), aged.live()), (Ok(Some(0)), 2));
            if flushed {
                aged.engine.core.flush().unwrap();
            }
            if in_store == 1 {
                aged.storage.freeze_at_store(nth);
            } else {
                aged.storage.freeze_at(nth);
            }
            aged.pass(AGE + SPAN);
            assert_eq!(aged.put(2, 700), 61);
            if flushed {
                aged.engine.core.flush().unwrap();
            }
            let Some(dead) = aged.storage.frozen() else { break };
            met[in_store] += 1;
            for (cut, dead) in
                [(true, dead.power_cut(nth)), (true, dead.power_cut_losing_all()), (false, dead.process_kill())]
            {
                let told = Aged::open(dead, &options()).rest_of("");
                let mut next = told.first().map_or(60, |told| told.map_or_else(|gap| gap.first, |seq| seq));
                for told in told {
                    let (first, last) = match told {
                        Ok(seq) => (seq, seq),
                        Err(gap) => {
                            let is_sound = match gap.cause {
                                GapCause::Expired => gap.last < 60,
                                _ => cut && gap.cause != GapCause::Damaged && (!flushed || gap.first >= 60),
                            };
                            assert!(is_sound, "moment {nth}, {in_store}, flushed {flushed}, cut {cut}: {gap:?}");
                            (gap.first, gap.last)
                        }
                    };
                    assert_eq!(first, next, "moment {nth}, {in_store}, flushed {flushed}, cut {cut}");
                    next = last + 1;
                }
                assert!(cut && !flushed || next >= 60, "moment {nth}, {in_store}: ends at {next}");
            }
        }
    }
    assert!(met.iter().all(|met| *met > 8), "{met:?}");
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
            storage.advance_clock(AGE / 2 + SPAN);
            if round < 3 {
                engine.expire();
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
        let (next, came) = aged.read_all(&causes, tail, end);
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
        let aged = aged.reopen(&options());
        assert_eq!(aged.next(), Err(gap(0, 0)));
        for seq in 1..10 {
            assert_eq!(aged.next(), Ok(Some(seq)));
        }
    }
}
