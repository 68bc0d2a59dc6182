//! Messages that were evicted while the queue had no consumer: its first one is told of them, later
//! ones are not.

use super::{AGE, Aged, SPAN, gap, options, without};
use crate::error::{Gap, GapCause};
use crate::options::{OnFull, Options};
use crate::tests::sim::SimStorage;

const ENDS: [&str; 4] = ["goes on", "reopened", "killed", "power cut"];

fn new(options: &Options) -> Aged {
    Aged::open(SimStorage::new(1).with_file_capacity(512 << 10), options)
}

impl Aged {
    fn after(self, end: &str, options: &Options) -> Aged {
        match end {
            "reopened" => self.reopen(options),
            "killed" => Aged::open(self.storage.process_kill(), options),
            "power cut" => {
                self.engine.core.flush().unwrap();
                Aged::open(self.storage.power_cut_losing_all(), options)
            }
            _ => self,
        }
    }

    fn oldest_held(&self) -> u64 {
        self.engine.stats().oldest_seq
    }
}

/// Nothing is left that a header could state it in.
#[test]
fn the_first_consumer_of_an_empty_queue_is_told_of_all_that_expired() {
    for end in ENDS {
        let aged = new(&options());
        aged.put(200, 700);
        aged.pass(AGE + SPAN);
        assert_eq!(aged.live(), 0);
        let aged = aged.after(end, &options());
        assert_eq!(aged.next_of("first"), Err(gap(0, 199)), "{end}");
        let aged = aged.after(end, &options());
        let behind = aged.rest_of("first");
        let is_reserved = |read: &Result<u64, Gap>| {
            matches!(read, Err(Gap { first: 200, cause: GapCause::Reserved, .. }))
        };
        assert!(behind.iter().all(is_reserved), "{end}: {behind:?}");
        assert_eq!(aged.rest_of("second"), behind[behind.len()..], "{end}");
    }
}

/// The consumers before have read or were told of all that had gone when the last one was removed.
#[test]
fn who_comes_behind_the_last_consumer_is_told_of_what_went_since() {
    let dropping = without().on_full(OnFull::DropOldest);
    for end in ENDS {
        let aged = new(&dropping);
        aged.consumer("former");
        while aged.oldest_held() == 0 {
            aged.put(1, 700);
        }
        let from = aged.oldest_held();
        assert_eq!(
            aged.next_of("former"),
            Err(Gap { cause: GapCause::Dropped, ..gap(0, from - 1) })
        );
        aged.engine.remove_consumer("former").unwrap();
        let aged = aged.after(end, &dropping);
        assert_eq!(aged.oldest_held(), from, "{end}");
        while aged.oldest_held() == from {
            aged.put(1, 700);
        }
        let aged = aged.after(end, &dropping);
        let to = aged.oldest_held();
        let dropped = Gap { cause: GapCause::Dropped, ..gap(from, to - 1) };
        let looked: Vec<_> = aged.rest_of("first").into_iter().take(2).collect();
        assert_eq!(looked, [Err(dropped), Ok(to)], "{end}");
    }
}

/// The consumer that was told of all that went is removed: no other one is told of it.
#[test]
fn what_a_removed_consumer_was_told_of_is_told_to_no_other() {
    for end in ENDS {
        let aged = new(&options());
        aged.put(200, 700);
        aged.pass(AGE + SPAN);
        assert_eq!(aged.next_of("former"), Err(gap(0, 199)));
        aged.engine.remove_consumer("former").unwrap();
        let aged = aged.after(end, &options());
        let told = aged.rest_of("first");
        assert!(told.iter().all(|read| read.is_err_and(|gap| gap.first == 200)), "{end}: {told:?}");
    }
}

/// The place of the first consumer reached the disk, and that messages before it had expired did
/// not: they are there.
#[test]
fn what_comes_back_after_a_power_cut_comes_to_the_first_consumer() {
    let aged = new(&options());
    aged.put(200, 700);
    aged.engine.core.flush().unwrap();
    aged.storage.advance_clock(AGE + SPAN);
    assert!(aged.engine.core.expire());
    aged.consumer("first");
    aged.engine.core.flush_places().unwrap();
    let aged = Aged::open(aged.storage.power_cut_losing_all(), &without());
    let came: Vec<_> = aged.rest_of("first").into_iter().take(200).collect();
    assert_eq!(came, (0..200).map(Ok).collect::<Vec<_>>());
}
