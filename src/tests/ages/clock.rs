//! Clocks that jump, and ages that change between two runs.

use std::time::Duration;

use super::{AGE, Aged, SPAN, gap, options, without};

/// The device's clock begins at 1970. It takes messages, and then the clock is set.
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

/// A segment that was written without an age counts as young as the segment behind it, or as the
/// run that looks at it.
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
    // Without it nothing is evicted, whatever bears a time.
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

/// Messages were written without an age, and the clock is set back behind the first look at them:
/// all go when as long has passed since as they may stay.
#[test]
fn a_clock_that_is_set_back_makes_nothing_younger_than_the_first_look() {
    let aged = Aged::new().reopen(&without());
    aged.storage.advance_clock(1000 * AGE);
    while aged.engine.core.segments.list().live.len() < 3 {
        aged.put(1, 3000);
    }
    let aged = aged.reopen(&options());
    aged.engine.expire();
    // Whatever bears a time to come tells nothing now.
    aged.storage.set_back_clock(900 * AGE);
    aged.engine.expire();
    aged.pass(AGE - 1);
    assert!(aged.engine.len() > 2);
    aged.pass(1);
    assert_eq!(aged.engine.len(), 0);
}
