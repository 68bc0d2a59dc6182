//! The clock was set back, and there is no room for a segment behind the tail's: messages go to the
//! tail's all the same.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::{AGE, Aged, SPAN, gap, options, without};
use crate::options::Options;
use crate::storage::Storage;
use crate::tests::sim::{Rng, SimStorage, forget_meanwhile, meanwhile};

/// By how much the clock is set back.
const BACK: u64 = 100 * AGE;

fn long(options: Options) -> Options {
    options.arena_size(4 << 20).max_bytes(None)
}

/// One message from before the clock was set back, written with these options, and no room for
/// another segment.
fn crowded(before: Options) -> Aged {
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    storage.advance_clock(BACK);
    let aged = Aged::open(storage, &long(before));
    aged.engine.consumer("").unwrap();
    aged.put(1, 50);
    let aged = aged.reopen(&long(options()));
    aged.storage.set_back_clock(BACK);
    aged.storage.set_capacity(Some((1 << 40) - aged.storage.free_bytes().unwrap() + 4095));
    aged
}

impl Aged {
    fn kill(self) -> Aged {
        Aged::open(self.storage.process_kill(), &long(options()))
    }

    fn oldest(&self) -> u64 {
        self.engine.core.oldest_seq.load(Ordering::Relaxed)
    }
}

/// No run is as long as an age, and nobody writes any more.
#[test]
fn what_went_to_an_old_segment_goes_when_the_clock_has_made_up_for_the_change() {
    for before in [options(), without()] {
        let mut aged = crowded(before);
        assert_eq!((aged.put(1, 50), aged.live()), (1, 1));
        aged.pass(BACK);
        for _ in 0..3 {
            aged = aged.kill();
            aged.pass(AGE / 3);
            assert_eq!(aged.oldest(), 0);
        }
        aged = aged.kill();
        aged.pass(AGE + SPAN - AGE / 3 * 3);
        assert_eq!(aged.rest_of(""), [Err(gap(0, 1))]);
    }
}

/// What is in the segment goes together: when the last one is old enough, and not before.
#[test]
fn what_goes_to_an_old_segment_lives_for_its_age() {
    for before in [options(), without()] {
        let aged = crowded(before);
        aged.pass(1);
        for seq in 1..50 {
            assert_eq!((aged.put(1, 50), aged.live()), (seq, 1));
            aged.pass(AGE / 21);
        }
        assert_eq!(aged.oldest(), 0, "the last one is young");
        aged.pass(AGE - AGE / 21);
        assert_eq!(aged.oldest(), 0, "no look came sooner behind the last one");
        aged.pass(AGE / 21);
        assert_eq!(aged.rest_of(""), [Err(gap(0, 49))]);
    }
}

/// The clock was not set yet, and is set.
#[test]
fn what_goes_to_an_old_segment_makes_nothing_from_before_older() {
    for before in [options(), without()] {
        let aged = crowded(before);
        for seq in 1..5 {
            assert_eq!((aged.put(1, 50), aged.live()), (seq, 1));
            aged.pass(SPAN);
        }
        let aged = aged.kill();
        aged.pass(BACK - 4 * SPAN);
        assert_eq!(aged.oldest(), 0);
        aged.pass(AGE - 1);
        assert_eq!(aged.oldest(), 0);
        aged.pass(SPAN + 1);
        assert_eq!(aged.rest_of(""), [Err(gap(0, 4))]);
    }
}

/// At random, on a disk that is full most of the time: nothing is evicted earlier than by as much
/// as the clock jumped forward behind it, and nothing stays for ever.
#[test]
fn on_a_full_disk_a_message_lives_for_its_age_whatever_the_clock_does() {
    let options = options().max_bytes(8 << 20);
    let (mut crowded, mut expired) = (0, 0);
    for seed in 0..30 {
        let mut rng = Rng(seed);
        let storage = SimStorage::new(seed).with_file_capacity(1 << 20);
        storage.set_capacity(Some((40 << 10) + 4096 * rng.below(8)));
        let mut aged = Aged::open(storage, &options);
        aged.engine.consumer("").unwrap();
        // Time that passed, or by which the clock jumped forward; and by how much it jumped back.
        let (mut elapsed, mut back) = (0, 0);
        let mut written: BTreeMap<u64, u64> = BTreeMap::new();
        let mut next = 0;
        for _ in 0..300 {
            match rng.below(20) {
                0..9 => {
                    meanwhile("no room behind the tail's segment", || {});
                    let put = aged.engine.enqueue(&vec![7; rng.below(1500) as usize]);
                    crowded += u64::from(!forget_meanwhile());
                    match put {
                        Ok(seq) => _ = written.insert(seq, elapsed),
                        Err(error) => assert!(error.is_full(), "seed {seed}: {error}"),
                    }
                }
                9..15 => {
                    let most = if rng.percent(3) { 2 * AGE } else { SPAN };
                    let by = rng.below(most);
                    elapsed += by;
                    aged.pass(by);
                }
                15 => {
                    let most = if rng.percent(40) { 3 * AGE } else { SPAN };
                    let by = rng.below(most);
                    if rng.percent(60) {
                        aged.storage.set_back_clock(by);
                        back += by;
                    } else {
                        aged.storage.advance_clock(by);
                        elapsed += by;
                    }
                }
                16 if rng.percent(30) => aged = aged.reopen(&options),
                17 if rng.percent(30) => aged = Aged::open(aged.storage.process_kill(), &options),
                18 if rng.percent(40) => match aged.next() {
                    Ok(seq) => next += u64::from(seq.is_some()),
                    Err(gap) => {
                        let young = written
                            .range(gap.first..=gap.last)
                            .find(|(_, at)| **at + AGE > elapsed);
                        assert_eq!(young, None, "seed {seed}: {gap:?} at {elapsed}");
                        (next, expired) = (gap.last + 1, expired + gap.last + 1 - gap.first);
                    }
                },
                _ => {
                    let oldest = aged.oldest().max(next);
                    let young = written.range(next..oldest).find(|(_, at)| **at + AGE > elapsed);
                    assert_eq!(young, None, "seed {seed}: {oldest} is the oldest at {elapsed}");
                }
            }
        }
        aged.engine.expire();
        aged.pass(AGE + SPAN);
        aged.pass(back);
        assert_eq!((aged.live(), aged.engine.len()), (0, 0), "seed {seed}");
    }
    assert!(crowded > 500 && expired > 500, "{crowded} {expired}");
}
