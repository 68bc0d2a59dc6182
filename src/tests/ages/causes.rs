//! Messages that were evicted for one cause after another.

use std::sync::atomic::Ordering;

use super::{AGE, Aged, SPAN, options};
use crate::engine::Engine;
use crate::error::GapCause;
use crate::options::OnFull;
use crate::tests::sim::SimStorage;

/// Each missing number has one cause, the one it was evicted for, whatever came before and after;
/// also for a consumer that was away all the time, after a reopening and after a death; and for the
/// first consumer, which was made only then.
#[test]
fn what_was_dropped_and_what_had_expired_are_told_apart() {
    let ends = ["goes on", "reopened", "killed", "power cut"];
    for (end, is_away) in ends.into_iter().flat_map(|end| [(end, true), (end, false)]) {
        let options = options().on_full(OnFull::DropOldest);
        let storage = SimStorage::new(1).with_file_capacity(512 << 10);
        let mut engine = Engine::open_without_workers(storage.clone(), &options).unwrap();
        if is_away {
            engine.consumer("").unwrap();
        }
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
                let begun = engine.core.gaps.evicted.lock().expired;
                while engine.core.gaps.evicted.lock().expired == begun {
                    tail = engine.enqueue(&[7; 700]).unwrap() + 1;
                }
                causes.resize(engine.core.gaps.evicted.lock().expired as usize, GapCause::Expired);
                assert!(engine.core.gaps.evicted.lock().dropped < begun.max(causes.len() as u64));
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
            engine = Engine::open_without_workers(storage.clone(), &options).unwrap();
        }
        let aged = Aged { storage, engine };
        // Two runs are reported as they were: those before with the cause of the first of the two.
        let kept = 2;
        let mut runs: Vec<usize> =
            (1..causes.len()).filter(|at| causes[*at] != causes[*at - 1]).collect();
        runs.push(causes.len());
        assert!(runs.len() > kept, "{end}: {} runs", runs.len());
        let first = runs[runs.len() - kept];
        let cause = causes[first - 1];
        causes[..first].fill(cause);
        let (next, came) = aged.read_all(&causes, tail, end);
        assert!(next >= tail && came > 50, "{end}: {came} came, up to {next} of {tail}");
    }
}
