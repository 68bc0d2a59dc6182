//! What a life is made of, drawn from a seed.

use std::time::Duration;

use rustix::io::Errno;

use super::acts::{self, Cast};
use super::reported::Death;
use crate::engine::Background;
use crate::options::{OnFull, Options};
use crate::storage::Stores;
use crate::tests::sim::{Call, Rng};

/// What a life is made of.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) options: Options,
    pub(super) stores: Stores,
    /// What each thread does.
    pub(super) casts: Vec<Cast>,
    pub(super) faults: Vec<Fault>,
    /// While the queue is only opened: a sector of some segment cannot be read.
    pub(super) unreadable: Option<u64>,
    /// Bytes that the disk has left for this life.
    pub(super) capacity: Option<u64>,
    pub(super) switch_one_in: u64,
    pub(super) by_rank: bool,
    /// The most nanoseconds of the schedule's clock that a sync takes before and behind its work.
    pub(super) slow: u64,
    /// Before the life.
    pub(super) openings: Vec<Opening>,
    /// The step at which the life ends by `death`; without one it ends in order.
    pub(super) dies_at: Option<u64>,
    pub(super) death: Death,
    pub(super) background: Background,
    pub(super) seed: u64,
}

/// The call, which of its kind fails, with what error, and whether all later ones fail too.
pub(super) type Fault = (Call, u64, Errno, bool);

/// An opening that may meet a fault. The process dies in it, unless it has ended before.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) dies_at: u64,
    pub(super) death: Death,
    pub(super) faults: Vec<Fault>,
    /// A sector of some segment cannot be read; this says which.
    pub(super) unreadable: Option<u64>,
}

const CALLS: [Call; 13] = [
    Call::Create,
    Call::Open,
    Call::Rename,
    Call::Remove,
    Call::SyncDirectory,
    Call::SyncFile,
    Call::Allocate,
    Call::SetLen,
    Call::Map,
    Call::Read,
    Call::Write,
    Call::List,
    Call::Measure,
];

/// What a message is made durable by.
const STORED: [Call; 3] = [Call::SyncFile, Call::SyncDirectory, Call::Write];

/// What is done where a segment begins or goes.
const SELDOM: [Call; 5] = [Call::Create, Call::Rename, Call::Remove, Call::Allocate, Call::SetLen];

/// An opening makes few calls of each kind, and most of what it writes goes over torn units.
const MADE_BY_OPENINGS: [Call; 9] = [
    Call::Write,
    Call::Write,
    Call::Write,
    Call::Map,
    Call::Remove,
    Call::Rename,
    Call::Read,
    Call::SyncFile,
    Call::SyncDirectory,
];

impl Script {
    pub(super) fn draw(rng: &mut Rng) -> Script {
        let options = options(rng);
        let stores = if rng.percent(20) { Stores::ByCall } else { Stores::ByMap };
        let casts = acts::draw(rng, &options);
        let mut faults = Vec::new();
        if rng.percent(25) {
            // The first calls of a kind are mostly the opening's.
            let within = [4, 24][rng.below(2) as usize];
            for _ in 0..1 + rng.below(2) {
                let calls = [&CALLS[..], &STORED, &SELDOM][rng.below(3) as usize];
                let within = if calls == SELDOM { 6 } else { within };
                faults.push(fault(rng, calls, within));
            }
        }
        let capacity = rng.percent(15).then(|| (48 << 10) + 4096 * rng.below(40));
        let death = Death::draw(rng);
        let within = 1 << (7 + rng.below(6));
        let openings = (0..[0, 0, 0, 1, 2][rng.below(5) as usize])
            .map(|_| Opening {
                death: Death::draw(rng),
                dies_at: 1 + rng.below(400),
                faults: faults_of_an_opening(rng),
                unreadable: rng.percent(10).then(|| rng.next()),
            })
            .collect();
        Script {
            stores,
            casts,
            faults,
            unreadable: None,
            capacity,
            switch_one_in: [2, 4, 16, 64, 64, 256][rng.below(6) as usize],
            by_rank: rng.percent(50),
            slow: [0, 0, 100_000, 1_000_000][rng.below(4) as usize],
            openings,
            dies_at: rng.percent(85).then(|| 1 + rng.below(within)),
            death,
            background: if rng.percent(75) { Background::Workers } else { Background::Calls },
            seed: rng.next(),
            options,
        }
    }
}

impl Script {
    /// The script of one of the openings before the life.
    pub(super) fn of(&self, opening: &Opening) -> Script {
        let Opening { dies_at, death, faults, unreadable } = opening.clone();
        Script {
            options: self.options.clone(),
            casts: Vec::new(),
            faults,
            unreadable,
            capacity: None,
            openings: Vec::new(),
            dies_at: Some(dies_at),
            death,
            ..*self
        }
    }

    /// Calls may fail.
    pub(super) fn may_fail(&self) -> bool {
        let write_back = |cast: &Cast| cast.name == acts::KERNEL;
        let is_whole = self.capacity.is_none() && self.unreadable.is_none();
        !self.faults.is_empty() || !is_whole || self.casts.iter().any(write_back)
    }

    /// Stores to the index may be refused, and are made up for later.
    pub(super) fn may_be_late(&self) -> bool {
        self.stores == Stores::ByCall && self.may_fail()
    }
}

fn faults_of_an_opening(rng: &mut Rng) -> Vec<Fault> {
    let count = [0, 0, 1, 2][rng.below(4) as usize];
    (0..count).map(|_| fault(rng, &MADE_BY_OPENINGS, 4)).collect()
}

/// One of the first calls of a kind fails, `within` which many.
fn fault(rng: &mut Rng, calls: &[Call], within: u64) -> Fault {
    let call = calls[rng.below(calls.len() as u64) as usize];
    let full = matches!(call, Call::Create | Call::Allocate | Call::Write) && rng.percent(60);
    let errno = if full { Errno::NOSPC } else { Errno::IO };
    (call, 1 + rng.below(within), errno, rng.percent(30))
}

fn options(rng: &mut Rng) -> Options {
    let arena = 4096 << rng.below(3);
    let mut options = Options::new().arena_size(arena);
    // Without a limit segments would be too long for many worlds in little time.
    options = options.max_bytes(((64 << 10) << rng.below(4)) + 8192 * rng.below(4));
    options = options.max_mapped_arenas([None, Some(3), Some(4)][rng.below(3) as usize]);
    options = options.flush_every_ops([None, None, Some(1), Some(3)][rng.below(4) as usize]);
    options = options.on_full(match rng.below(4) {
        0 => OnFull::DropOldest,
        1 => OnFull::Wait(Some(Duration::from_millis(50))),
        _ => OnFull::Reject,
    });
    if rng.percent(20) {
        options = options.flush_every(Duration::from_millis(1 + rng.below(20)));
    }
    if rng.percent(15) {
        options = options.max_age(Duration::from_millis(5 + rng.below(200)));
    }
    options
}
