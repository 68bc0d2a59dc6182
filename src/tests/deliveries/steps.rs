//! What a run of the comparison consists of, drawn from a seed.

use super::oracle::{Mood, Wishes};
use crate::tests::sim::Rng;

pub(super) const CONSUMERS: usize = 2;

/// Whether the storage worker looks at the deliveries once the clock has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeper {
    Looks,
    IsLate,
}

/// How a run of the queue ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Killed,
    InOrder,
}

/// One step. (`who` is a consumer; `which`, one of its deliveries, is taken modulo their number, so
/// that steps can be left out.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Enqueue(u64),
    Receive {
        who: usize,
    },
    Take {
        who: usize,
    },
    Look {
        who: usize,
    },
    Ack {
        who: usize,
        which: usize,
    },
    /// Dropped, or given back to come again after so many milliseconds.
    Nack {
        who: usize,
        which: usize,
        delay: Option<u64>,
    },
    Reject {
        who: usize,
        which: usize,
    },
    Extend {
        who: usize,
        which: usize,
        by: u64,
    },
    Clock(u64, Keeper),
    Limit {
        who: usize,
        limit: Option<u32>,
    },
    Rules {
        who: usize,
        wishes: Wishes,
    },
    Seek {
        who: usize,
        back: u64,
    },
    DeadLetters {
        who: usize,
        mood: Mood,
    },
    /// The next run has these rules from its beginning, or none.
    Reopen(End, [Option<Wishes>; CONSUMERS]),
}

fn wishes(rng: &mut Rng) -> Wishes {
    let first = 1 + rng.below(20);
    Wishes {
        lease: rng.percent(50).then(|| 5 + rng.below(60)),
        backoff: rng.percent(50).then(|| (first, first + rng.below(100))),
        most: rng.percent(70).then(|| 1 + rng.below(4) as u32),
        has_dead_letters: rng.percent(50),
    }
}

fn of_a_run(rng: &mut Rng) -> [Option<Wishes>; CONSUMERS] {
    [(); CONSUMERS].map(|()| rng.percent(85).then(|| wishes(rng)))
}

/// A seed's steps. A keeper that is late is one of a run with one busy consumer: what it does for
/// one it does for all.
pub(super) fn draw(seed: u64) -> Vec<Step> {
    let mut rng = Rng(seed);
    let busy = 1 + rng.below(CONSUMERS as u64);
    let mut steps = vec![Step::Reopen(End::InOrder, of_a_run(&mut rng)), Step::Enqueue(8)];
    for _ in 0..10 + rng.below(150) {
        let who = rng.below(busy) as usize;
        let which = rng.below(1 << 20) as usize;
        steps.push(match rng.below(100) {
            0..8 => Step::Enqueue(1 + rng.below(4)),
            8..40 => Step::Receive { who },
            40..43 => Step::Take { who },
            43..45 => Step::Look { who },
            45..58 => Step::Ack { who, which },
            58..68 => Step::Nack { who, which, delay: None },
            68..72 => Step::Nack { who, which, delay: Some(rng.below(40)) },
            72..76 => Step::Reject { who, which },
            76..79 => Step::Extend { who, which, by: 1 + rng.below(60) },
            79..88 => {
                let is_late = busy == 1 && rng.percent(50);
                let by = [1, 5, 30, 100, 1500][rng.below(5) as usize];
                let keeper = if is_late { Keeper::IsLate } else { Keeper::Looks };
                Step::Clock(1 + rng.below(by), keeper)
            }
            88..90 => Step::Limit { who, limit: rng.percent(60).then(|| 1 + rng.below(3) as u32) },
            90..92 => Step::Rules { who, wishes: wishes(&mut rng) },
            92 => Step::Seek { who, back: rng.below(8) },
            93..95 => {
                let moods = [Mood::Takes, Mood::Refuses, Mood::OddTooLarge, Mood::CannotFlush];
                Step::DeadLetters { who, mood: moods[rng.below(4) as usize] }
            }
            95..98 => Step::Reopen(End::Killed, of_a_run(&mut rng)),
            _ => Step::Reopen(End::InOrder, of_a_run(&mut rng)),
        });
    }
    steps
}
