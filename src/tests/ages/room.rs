//! Messages that are too old where there is little room, and messages that were dropped besides.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{AGE, Aged, SPAN, gap, options};
use crate::options::{OnFull, Options};
use crate::storage::Storage;
use crate::tests::sim::SimStorage;

/// A segment could be ten times as long as the disk is large, and one is all that it holds. Nobody
/// reads.
#[test]
fn a_full_disk_of_what_is_too_old_takes_messages_again() {
    for (on_full, every) in [
        (OnFull::Reject, None),
        (OnFull::Reject, Some(1)),
        (OnFull::Wait(Some(Duration::ZERO)), None),
        (OnFull::DropOldest, None),
    ] {
        let options =
            Options::new().arena_size(4 << 20).max_age(Duration::from_millis(AGE)).on_full(on_full);
        let storage = SimStorage::new(1).with_file_capacity(4 << 20);
        storage.set_capacity(Some(400 << 10));
        let aged = Aged::open(storage, &options.flush_every_ops(every));
        aged.consumer("slow");
        let mut first = 0;
        for round in 0..5 {
            let mut tail = first;
            let full = loop {
                match aged.engine.enqueue(&[7; 3000]) {
                    Ok(seq) if aged.engine.core.gaps.evicted.lock().dropped <= first => {
                        tail = seq + 1
                    }
                    other => break other,
                }
            };
            assert!(full.is_ok() == (on_full == OnFull::DropOldest), "{full:?}");
            assert!(
                tail > first + 50 && aged.live() == 1,
                "{on_full:?}, {round}: {first} .. {tail}"
            );
            if let Ok(seq) = full {
                tail = seq + 1;
            }
            aged.storage.advance_clock(AGE + SPAN);
            first = tail;
        }
        let reported = aged.rest_of("slow");
        assert!(
            reported
                .iter()
                .all(|reported| reported.is_ok_and(|seq| seq + 200 > first) || reported.is_err()),
            "{reported:?}"
        );
        assert!(aged.engine.core.gaps.evicted.lock().expired > 0, "{on_full:?}");
    }
}

/// There is no room for another segment when the tail's has taken messages for long enough.
#[test]
fn where_there_is_no_room_for_another_segment_the_tail_takes_what_fits() {
    let options = Options::new().arena_size(4 << 20).max_age(Duration::from_millis(AGE));
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    let aged = Aged::open(storage, &options);
    aged.consumer("");
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

/// A batch takes longer to write than messages live, the first time or each time, and there is no
/// room for it: it is refused, and what comes next bears its numbers.
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
