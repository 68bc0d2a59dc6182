//! What a life of a world of jobs is made of, drawn from a seed.

use std::time::Duration;

use super::Call;
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::Background;
use crate::options::{OnFull, Options};
use crate::tests::sim::Rng;
use crate::tests::world::acts::Cast;
use crate::tests::world::reported::Death;

/// The most attempts, a lease and delays, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wishes {
    pub(super) lease: Option<u64>,
    pub(super) backoff: Option<(u64, u64)>,
    pub(super) max_attempts: Option<u32>,
    pub(super) dead_letters: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) options: Options,
    /// Of the queue for dead letters.
    pub(super) other_options: Options,
    /// From which call of that kind on the queue for dead letters cannot write.
    pub(super) other_fails: Option<(Call, u64)>,
    pub(super) wishes: Wishes,
    pub(super) lanes: Option<LaneRules>,
    pub(super) limit: Option<u32>,
    pub(super) casts: Vec<Cast<Act>>,
    pub(super) background: Background,
    pub(super) switch_one_in: u64,
    pub(super) by_rank: bool,
    pub(super) slow: u64,
    /// The step at which the life ends by `death`; without one it ends in order first.
    pub(super) dies_at: Option<u64>,
    pub(super) death: Death,
    pub(super) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Put(usize),
    /// By a future.
    PutLater(usize),
    /// The next job, if there is one.
    Receive,
    /// The next job, for at most so many milliseconds.
    Await(u64),
    /// The next job, for as long as it takes: ended by a job, or by the end of the queue.
    AwaitForever,
    /// As `AwaitForever`, by a waker that puts a job in and asks for the figures.
    AwaitByWaker,
    Take,
    /// The oldest job that this thread has.
    Ack,
    Nack,
    NackAfter(u64),
    Reject,
    Extend(u64),
    /// Neither answers it nor keeps it.
    Forget,
    /// Leaves what waits behind.
    Jump,
    /// A consumer begins where this one is, reads and goes.
    Fork,
    /// The thread plays a child of the process, forked at this moment.
    Child,
    Flush,
    Figures,
    Interrupt,
    Sleep(u64),
    /// Takes a dead letter from the queue for dead letters.
    TakeDeadLetter,
    CloseOther,
    Close,
}

/// An answer to a job.
fn answer(rng: &mut Rng) -> Act {
    match rng.below(20) {
        0..9 => Act::Ack,
        9..12 => Act::Nack,
        12..14 => Act::NackAfter(1 + rng.below(30)),
        14..18 => Act::Reject,
        18 => Act::Extend(1 + rng.below(20)),
        _ => Act::Forget,
    }
}

fn casts(rng: &mut Rng, has_lanes: bool) -> Vec<Cast<Act>> {
    let mut casts = Vec::new();
    let mut cast = |name: String, acts: Vec<Act>| casts.push(Cast { name, acts });
    for number in 0..1 + rng.below(2) {
        let acts = (0..4 + rng.below(12)).map(|_| {
            let len =
                8 + [60, 60, 1500, 4000][rng.below(4) as usize] * rng.below(100) as usize / 100;
            match rng.below(12) {
                0..8 => Act::Put(len),
                8..10 => Act::PutLater(len),
                10 => Act::Flush,
                _ => Act::Sleep(1 + rng.below(20)),
            }
        });
        cast(format!("producer {number}"), acts.collect());
    }
    for number in 0..1 + rng.below(3) {
        let acts = (0..4 + rng.below(12)).map(|_| match rng.below(20) {
            0..5 => Act::Receive,
            5..7 => Act::Await(rng.below(40)),
            7 => Act::AwaitForever,
            8 => Act::AwaitByWaker,
            9 if rng.percent(30) => Act::Take,
            10 if has_lanes => Act::Jump,
            11 => Act::Sleep(1 + rng.below(20)),
            _ => answer(rng),
        });
        cast(format!("worker {number}"), acts.collect());
    }
    if rng.percent(40) {
        let acts = (0..1 + rng.below(6)).flat_map(|_| [Act::Sleep(rng.below(12)), Act::Interrupt]);
        cast("interrupter".into(), acts.collect());
    }
    if rng.percent(50) {
        let acts = (0..1 + rng.below(5)).map(|_| {
            [Act::Fork, Act::Child, Act::Flush, Act::Figures, Act::Sleep(1 + rng.below(30))]
                [rng.below(5) as usize]
        });
        cast("other".into(), acts.collect());
    }
    if rng.percent(40) {
        let acts =
            (0..1 + rng.below(6)).flat_map(|_| [Act::Sleep(rng.below(20)), Act::TakeDeadLetter]);
        cast("reader of letters".into(), acts.collect());
    }
    if rng.percent(10) {
        cast("closer of the other".into(), vec![Act::Sleep(rng.below(30)), Act::CloseOther]);
    }
    if rng.percent(25) {
        cast("closer".into(), vec![Act::Sleep(rng.below(30)), Act::Close]);
    }
    casts
}

fn options(rng: &mut Rng) -> Options {
    let options = Options::new()
        .arena_size(4096 << rng.below(2))
        .max_bytes((64 << 10) << rng.below(3))
        .flush_every_ops([None, None, Some(1)][rng.below(3) as usize]);
    let options = if rng.percent(20) {
        options.flush_every(Duration::from_millis(1 + rng.below(20)))
    } else {
        options
    };
    options.on_full(match rng.below(4) {
        0 => OnFull::DropOldest,
        1 => OnFull::Wait(Some(Duration::from_millis(50))),
        _ => OnFull::Reject,
    })
}

fn lanes(rng: &mut Rng) -> LaneRules {
    let within =
        [Within::Manual, Within::Last(1 + rng.below(6)), Within::Millis(5 + rng.below(50))];
    LaneRules {
        within: within[rng.below(3) as usize],
        share: [(4, 1), (1, 1), (1, 0), (0, 1)][rng.below(4) as usize],
        rate: rng.percent(20).then_some(1000),
        youngest_first: rng.percent(50),
    }
}

impl Life {
    pub(super) fn draw(rng: &mut Rng) -> Life {
        let options = options(rng);
        // Little room for dead letters, or enough for all.
        let most = if rng.percent(25) { 64 << 10 } else { 2 << 20 };
        let other_options = Options::new().arena_size(4096).max_bytes(most);
        let first = 1 + rng.below(5);
        let wishes = Wishes {
            lease: rng.percent(50).then(|| 1 + rng.below(20)),
            backoff: rng.percent(40).then(|| (first, first + rng.below(40))),
            max_attempts: rng.percent(60).then(|| 1 + rng.below(3) as u32),
            dead_letters: rng.percent(85),
        };
        let lanes = rng.percent(30).then(|| lanes(rng));
        let within = 1 << (8 + rng.below(6));
        let calls = [Call::SyncFile, Call::Write, Call::Create];
        Life {
            other_options,
            other_fails: rng.percent(10).then(|| (calls[rng.below(3) as usize], 3 + rng.below(12))),
            limit: rng.percent(20).then(|| 1 + rng.below(3) as u32),
            casts: casts(rng, lanes.is_some()),
            background: if rng.percent(80) { Background::Workers } else { Background::Calls },
            switch_one_in: [2, 4, 16, 64, 256][rng.below(5) as usize],
            by_rank: rng.percent(50),
            slow: [0, 0, 100_000, 1_000_000][rng.below(4) as usize],
            dies_at: rng.percent(60).then(|| 1 + rng.below(within)),
            death: match Death::draw(rng) {
                // Numbers may be given out again behind it: other worlds look at that.
                Death::Remount(seed) => Death::Cut(seed),
                death => death,
            },
            seed: rng.next(),
            options,
            wishes,
            lanes,
        }
    }

    /// Dead letters always find room, and nobody keeps them from going.
    pub(super) fn dead_letters_go(&self) -> bool {
        self.wishes.dead_letters
            && self.other_fails.is_none()
            && self.other_options.max_bytes > Some(1 << 20)
            && self.casts.iter().all(|cast| !cast.acts.contains(&Act::CloseOther))
    }
}
