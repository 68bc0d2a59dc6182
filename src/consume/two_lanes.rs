//! The two lanes of a consumer: the rules, and which lane is next.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::commit::Core;
use crate::consume::step::Lane;
use crate::format::Spot;
use crate::read::Cursor;
use crate::storage::{Storage, StorageFile};
use crate::threads::now;

/// How long unused rate is kept: a program that polls now and then catches up at most this much.
const RATE_OVER: Duration = Duration::from_millis(100);

/// How long a message is fresh.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Within {
    Millis(u64),
    /// While it is among the last so many messages.
    Last(u64),
    /// Until the program calls for a jump.
    Manual,
}

/// How the two lanes are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneRules {
    pub(crate) within: Within,
    /// Out of their sum of consecutive messages: how many the fresh lane and the backlog deliver.
    pub(crate) share: (u32, u32),
    /// The most messages of the backlog per second.
    pub(crate) rate: Option<u64>,
    /// Whether the backlog lane reads the youngest stretch first.
    pub(crate) youngest_first: bool,
}

impl LaneRules {
    pub(super) fn has_age(&self) -> bool {
        matches!(self.within, Within::Millis(_))
    }
}

/// The state of a consumer that is read in lanes.
#[derive(Debug)]
pub(crate) struct TwoLanes<F> {
    pub(super) rules: LaneRules,
    /// Reads the stretches (skipped messages).
    pub(crate) cursor: Cursor<F>,
    /// How many messages of the current turn were delivered.
    pub(super) turn: u32,
    /// When the rate allows the next message of the backlog.
    pub(super) backlog_at: Option<Instant>,
    /// `(number, milliseconds)`: messages below the number were written before that time.
    pub(super) begun: (u64, u64),
    /// `(numbers, time, asked)`: at `asked`, these messages were known to be written before `time`.
    pub(super) written: Option<(Range<u64>, u64, u64)>,
}

impl<F: StorageFile> TwoLanes<F> {
    pub(super) fn new(rules: LaneRules, begun: (u64, u64)) -> TwoLanes<F> {
        TwoLanes {
            rules,
            cursor: Cursor::new(Spot::default()),
            turn: 0,
            backlog_at: None,
            begun,
            written: None,
        }
    }

    /// The two lanes, the one whose turn it is first.
    pub(super) fn order(&self) -> [Lane; 2] {
        if self.turn < self.rules.share.0 {
            [Lane::Fresh, Lane::Backlog]
        } else {
            [Lane::Backlog, Lane::Fresh]
        }
    }

    /// Advances the turn if the lane whose turn it was delivered a message. (A message taken
    /// because the other lane is empty does not advance the turn.)
    pub(super) fn count_turn(&mut self, lane: Lane) {
        let (fresh, backlog) = self.rules.share;
        if lane == self.order()[0] {
            self.turn = (self.turn + 1) % fresh.saturating_add(backlog);
        }
        check!(let turn = self.turn);
        holds!(turn < fresh.saturating_add(backlog), "turn {turn} is of {fresh} and {backlog}");
    }

    /// When the rate allows the next message of the backlog.
    pub(super) fn due(&self) -> Option<Instant> {
        self.rules.rate.and(self.backlog_at)
    }

    /// Counts a delivered message of the backlog against the rate.
    pub(super) fn count_rate(&mut self) {
        if let Some(rate) = self.rules.rate {
            let now = now();
            let each = Duration::from_nanos(1_000_000_000 / rate.clamp(1, 1_000_000_000));
            let earliest = now.checked_sub(RATE_OVER.saturating_sub(each)).unwrap_or(now);
            self.backlog_at = Some(self.backlog_at.map_or(now, |at| at.max(earliest)) + each);
            holds!(
                self.backlog_at >= Some(earliest + each),
                "the rate allows a message of the backlog {each:?} after the one before"
            );
        }
    }

    /// The index of the stretch to read now, out of `stretches`.
    pub(super) fn current(&self, stretches: usize) -> usize {
        holds!(stretches > 0, "there is a stretch to be read, of {stretches}");
        if self.rules.youngest_first { stretches - 1 } else { 0 }
    }

    /// Whether the message at `spot` is not fresh any more.
    pub(super) fn is_behind<S: Storage<File = F>>(&mut self, core: &Core<S>, spot: Spot) -> bool {
        match self.rules.within {
            Within::Manual => false,
            Within::Last(most) => {
                core.visible.seq.load(Ordering::Acquire).saturating_sub(spot.seq) > most
            }
            Within::Millis(age) => {
                spot.position < core.visible.position.load(Ordering::Acquire)
                    && self.is_too_old(core, spot.seq, age)
            }
        }
    }

    pub(super) fn is_too_old<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        seq: u64,
        age: u64,
    ) -> bool {
        if seq < core.found_tail.seq {
            // An earlier run wrote the message.
            return true;
        }
        let now = core.storage.now();
        let is_past = |before: u64| before.saturating_add(age) <= now;
        if seq < self.begun.0 && is_past(self.begun.1) {
            return true;
        }
        // The cached answer expires: after a change of the clock, later write times may be more
        // exact.
        let is_current = |asked: u64| asked <= now && now - asked <= age / 8;
        if let Some((numbers, before, asked)) = &self.written
            && numbers.contains(&seq)
            && is_current(*asked)
            && !is_past(*before)
        {
            return false;
        }
        let visible = core.visible.seq.load(Ordering::Acquire);
        if seq >= visible {
            // Only bytes without a number, such as padding, are visible behind the spot.
            return false;
        }
        let known = core.write_times.lock().written_before(seq, visible);
        self.written = known.map(|(numbers, before)| (numbers, before, now));
        holds!(
            self.written.as_ref().is_none_or(|(numbers, ..)| numbers.contains(&seq)),
            "what is known of the time of message {seq} is of that message: {:?}",
            self.written
        );
        self.written.as_ref().is_some_and(|(_, before, _)| is_past(*before))
    }
}
