//! `max_age` with a clock that the test turns: messages that expire are old enough, and messages
//! that are too old do not stay.

mod causes;
mod clock;
mod crowded;
mod deaths;
mod early;
mod room;
mod unclaimed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;

use crate::consume::{consumer_state::ConsumerState, step::Read};
use crate::engine::{Engine, reading};
use crate::error::{Error, Gap, GapCause};
use crate::format::{CONSUMER_ROWS, ConsumerAt, INDEX_NAME, NAME_ROW_LEN, index_at};
use crate::options::Options;
use crate::tests::effort::some_of;
use crate::tests::sim::{Call, Rng, SimStorage};

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
        let aged = Aged::open(SimStorage::new(1).with_file_capacity(512 << 10), &options());
        aged.engine.consumer("").unwrap();
        aged
    }

    fn open(storage: SimStorage, options: &Options) -> Aged {
        let engine = Engine::open_without_workers(storage.clone(), options).unwrap();
        Aged { storage, engine }
    }

    fn put(&self, count: u64, len: usize) -> u64 {
        (0..count).map(|_| self.engine.enqueue(&vec![7; len]).unwrap()).last().unwrap()
    }

    fn consumer(&self, name: &str) -> Arc<ConsumerState<SimStorage>> {
        self.engine.consumer(name).unwrap()
    }

    fn next_of(&self, name: &str) -> Result<Option<u64>, Gap> {
        match reading::next(&self.engine, &self.consumer(name), Read::Take) {
            Ok(message) => Ok(message.map(|message| message.seq())),
            Err(Error::Gap(gap)) => Err(gap),
            Err(error) => panic!("{error}"),
        }
    }

    fn next(&self) -> Result<Option<u64>, Gap> {
        self.next_of("")
    }

    /// What reads report to a consumer up to the end.
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

    /// Reads everything. Each number that does not come must be reported with its own cause:
    /// `Expired` if it is still held at `tail`, `Reserved` if it lies behind. Returns the next
    /// number and how many messages came.
    fn read_all(&self, causes: &[GapCause], tail: u64, end: &str) -> (u64, u64) {
        let mut next = 0;
        let mut came = 0;
        loop {
            match self.next() {
                Err(gap) => {
                    assert_eq!(gap.first, next, "{end}");
                    for seq in gap.first..=gap.last {
                        // What is still held is too old by the reader's own look; and behind it
                        // nothing was ever given out.
                        let held = if seq < tail { GapCause::Expired } else { GapCause::Reserved };
                        let cause = causes.get(seq as usize).copied().unwrap_or(held);
                        assert_eq!(gap.cause, cause, "{end}: {seq} within {gap:?}");
                    }
                    let whole =
                        causes.get(gap.last as usize + 1).is_none_or(|cause| *cause != gap.cause);
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

/// At random, with openings in order and after deaths in between. Every second time the clock
/// jumps, too: then nothing is evicted earlier than by as much as it jumped forward, and nothing
/// stays for ever.
#[test]
fn a_message_lives_for_its_age_and_at_most_an_eighth_longer() {
    for seed in some_of(0..20, 3, 0) {
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
                        assert!(
                            now - at < AGE + SPAN,
                            "seed {seed}: {oldest} is {} ms old",
                            now - at
                        );
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
                    Ok(None) => {
                        assert_eq!(next, aged.engine.core.committed_spot().seq, "seed {seed}")
                    }
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

/// Each gap comes once to each consumer, also who comes later, and after any end of the run.
#[test]
fn the_only_segment_expires_though_nobody_writes_or_reads() {
    for end in ["goes on", "closed", "killed", "power cut"] {
        let mut aged = Aged::new();
        aged.consumer("other");
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
        assert!(
            aged.rest_of("")
                .iter()
                .all(|reported| reported.is_err_and(|gap| gap.cause == GapCause::Reserved)),
            "{end}"
        );
        assert!(aged.rest_of("other").starts_with(&[Err(gap(0, 9))]), "{end}");
        let seq = aged.put(3, 500) - 2;
        assert!(seq == 10 || end == "power cut");
        for name in ["", "other", "new"] {
            assert_eq!(aged.rest_of(name), [Ok(seq), Ok(seq + 1), Ok(seq + 2)], "{end}, {name}");
        }
    }
}

/// No consumer was there. What expired is reported to whoever comes first.
#[test]
fn what_expired_before_it_came_is_reported_to_the_first_consumer() {
    let storage = SimStorage::new(1).with_file_capacity(512 << 10);
    let aged = Aged::open(storage, &options());
    aged.put(200, 700);
    assert!(aged.live() > 2);
    aged.pass(AGE + SPAN);
    assert_eq!(aged.put(1, 50), 200);
    assert_eq!(aged.next(), Err(gap(0, 199)));
    assert_eq!(aged.next(), Ok(Some(200)));
    assert_eq!(aged.rest_of("second"), [Ok(200)]);
}

/// What expires is not reported to a consumer that could not be made.
#[test]
fn what_expired_was_not_reported_to_who_could_not_be_made() {
    let aged = Aged::open(SimStorage::new(1).with_file_capacity(512 << 10), &options());
    aged.consumer("former");
    let at = index_at::CONSUMERS + ConsumerAt::new(1, CONSUMER_ROWS as u32).name;
    let name = aged.storage.read_file(INDEX_NAME)[at..][..NAME_ROW_LEN].to_vec();
    aged.engine.remove_consumer("former").unwrap();
    aged.engine.core.flush().unwrap();
    let cut = aged.storage.power_cut_losing_all();
    // A former name that is left is cleared, durably, before a consumer gets its row.
    cut.corrupt(INDEX_NAME, at, &name);
    let aged = Aged::open(cut, &options());
    aged.put(10, 500);
    aged.pass(AGE + SPAN);
    aged.storage.fail_after(Call::SyncFile, 1, Errno::IO, true);
    assert!(aged.engine.consumer("other").is_err());
    aged.storage.clear_faults();
    assert_eq!(aged.rest_of(""), [Err(gap(0, 9))]);
}

/// It had a message of the segment mapped, and was busy when the segment went.
#[test]
fn who_stands_in_what_has_expired_gets_nothing_more_of_it() {
    let aged = Aged::new();
    aged.put(10, 500);
    assert_eq!(aged.next(), Ok(Some(0)));
    let consumer = aged.consumer("");
    let names = || aged.storage.file_names().len();
    let with = names();
    consumer.with_locked(|_| aged.pass(AGE + SPAN));
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
    let written = aged.engine.write(3, &mut |writer, core| {
        for index in 0..3 {
            writer.push(core, &[1; 20_000], crate::format::Batch::of(index, 3))?;
        }
        aged.storage.advance_clock(AGE + SPAN);
        aged.engine.expire();
        Ok(())
    });
    assert_eq!(written.unwrap(), seq + 1..seq + 4);
    assert_eq!(aged.rest_of(""), [Ok(0), Ok(1), Ok(2), Ok(3)]);
}

#[test]
fn deliveries_in_flight_stay_with_who_has_them() {
    let aged = Aged::new();
    aged.put(4, 50);
    let consumer = aged.consumer("");
    let handed: Vec<_> = (0..3)
        .map(|seq| {
            let (message, handed) =
                aged.engine.receive(&consumer, reading::AsMessage).unwrap().unwrap();
            assert_eq!(message.seq(), seq);
            (message, handed)
        })
        .collect();
    aged.engine.ack(&consumer, 1, handed[1].1).unwrap();
    aged.pass(2 * AGE);
    assert_eq!(aged.next(), Err(gap(3, 3)));
    assert_eq!(handed[0].0[..], [7; 50]);
    aged.engine.ack(&consumer, 2, handed[2].1).unwrap();
    aged.engine.nack(&consumer, 0, handed[0].1, None);
    assert_eq!(aged.rest_of(""), [Err(gap(0, 0))], "given back too late");
    assert_eq!(aged.engine.len(), 0);
}

/// A record was begun in a segment, and refused: what comes later does not bear its time.
#[test]
fn an_empty_segment_does_not_make_messages_old() {
    let aged = Aged::new();
    let refused = aged.engine.write(1, &mut |writer, core| {
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
