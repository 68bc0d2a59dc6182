//! Deaths while messages expire.

use super::{AGE, Aged, SPAN, options};
use crate::error::GapCause;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::sim::SimStorage;

/// Wherever the process or the power dies: numbers are reported once, in order, and what is
/// reported as expired is old enough.
#[test]
fn a_death_while_the_tail_expires_loses_nothing_else() {
    LENGTH_HERE.set(Some(32 << 10));
    let mut met = [0; 2];
    for (in_store, flushed) in [(0, true), (1, true), (0, false), (1, false)] {
        for nth in 1.. {
            let aged = Aged::open(SimStorage::new(nth).with_file_capacity(512 << 10), &options());
            aged.consumer("");
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
            for (cut, dead) in [
                (true, dead.power_cut(nth)),
                (true, dead.power_cut_losing_all()),
                (false, dead.process_kill()),
            ] {
                let reported = Aged::open(dead, &options()).rest_of("");
                let first = reported.first();
                let mut next = first.map_or(60, |it| it.map_or_else(|gap| gap.first, |seq| seq));
                for reported in reported {
                    let (first, last) = match reported {
                        Ok(seq) => (seq, seq),
                        Err(gap) => {
                            let is_sound = match gap.cause {
                                GapCause::Expired => gap.last < 60,
                                _ => {
                                    cut && gap.cause != GapCause::Damaged
                                        && (!flushed || gap.first >= 60)
                                }
                            };
                            assert!(
                                is_sound,
                                "moment {nth}, {in_store}, flushed {flushed}, cut {cut}: {gap:?}"
                            );
                            (gap.first, gap.last)
                        }
                    };
                    assert_eq!(
                        first, next,
                        "moment {nth}, {in_store}, flushed {flushed}, cut {cut}"
                    );
                    next = last + 1;
                }
                assert!(cut && !flushed || next >= 60, "moment {nth}, {in_store}: ends at {next}");
            }
        }
    }
    assert!(met.iter().all(|met| *met > 8), "{met:?}");
}
