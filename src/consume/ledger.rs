//! The messages that a consumer has handed out and that are not acknowledged yet.
//!
//! Every number from the stored place up to the cursor is either *open* (handed out, given back, or
//! rejected), *done* (acknowledged, taken, or reported as a gap), or *left* in a stretch that the
//! cursor passed by. The stored place is the lowest number that is open or left; with none it is
//! the cursor's spot. Done numbers beyond the place are kept as ranges, whose count the open
//! messages and the stretches between them bound. After a reopening, ranges may lie beyond the
//! cursor, which steps over the messages in them. (What is handed out in vain: `returns.rs`.)

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::consume::ranges::Ranges;
use crate::consume::redelivery_state::Redeliveries;
use crate::consume::step::{DeliveryToken, Lane};
use crate::consume::stretches::Stretches;
use crate::error::Gap;
use crate::format::{Acks, NumberRange, Spot};
use crate::index::AcksRow;
use crate::read::Cursor;
use crate::storage::StorageFile;

/// Where a message is that was handed out and is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryState {
    /// With a worker.
    Out,
    /// Given back: it comes again.
    Back,
    /// Given back: it comes again after a while.
    Delayed,
    /// It comes no more: it goes to the dead letters, or a read reports it as a gap.
    Rejected,
}

/// A message that was handed out and is not done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) position: u64,
    /// End of the segment that its record begins in.
    segment_end: u64,
    /// How often it was handed out.
    pub(crate) attempts: u32,
    pub(super) state: DeliveryState,
    /// When its lease or its delay ends, or its dead letter is tried again.
    pub(super) due: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Ledger<F> {
    /// Raised by each seek, and at the end of the run: both call off the deliveries of earlier
    /// epochs.
    pub(crate) epoch: u64,
    /// The most messages in flight; `None`: any number.
    pub(crate) limit: Option<u32>,
    pub(super) open: BTreeMap<u64, Open>,
    /// The open numbers that come again.
    pub(super) returned: BTreeSet<u64>,
    /// The open numbers that come no more, and that nobody has begun to deal with.
    pub(super) rejected: BTreeSet<u64>,
    /// Those of which no dead letter can go: the next read reports them as gaps.
    pub(super) unsendable: BTreeSet<u64>,
    /// How many messages are with workers, and how many come again after a while.
    out: usize,
    delayed: usize,
    /// The done numbers beyond the place.
    pub(super) done: Ranges,
    /// The messages that were left behind.
    pub(super) stretches: Stretches,
    /// Messages below this number may be open although they were not read: an earlier run was
    /// handed them. Whoever reads them passes over them, also when they are done.
    pub(super) taken_back_below: u64,
    /// Reads the messages that were given back.
    pub(crate) again: Cursor<F>,
    /// Where `done` is stored.
    acks_row: Option<AcksRow<F>>,
    /// Changes since the index refused a row; 0: it may be asked for one.
    refused: u32,
    /// `done` differs from what is stored.
    changed: bool,
    /// `None` until the consumer wants leases, delays or counts.
    pub(crate) redelivery: Option<Box<Redeliveries<F>>>,
}

impl<F: StorageFile> Ledger<F> {
    /// A ledger with the numbers in `done` done.
    pub(crate) fn new(done: &[NumberRange], acks_row: Option<AcksRow<F>>) -> Ledger<F> {
        let mut ranges = Ranges::default();
        for numbers in done {
            ranges.insert(numbers.first, numbers.last);
        }
        Ledger {
            epoch: 0,
            limit: None,
            open: BTreeMap::new(),
            returned: BTreeSet::new(),
            rejected: BTreeSet::new(),
            unsendable: BTreeSet::new(),
            out: 0,
            delayed: 0,
            done: ranges,
            stretches: Stretches::default(),
            taken_back_below: 0,
            again: Cursor::new(Spot::default()),
            acks_row,
            refused: 0,
            changed: false,
            redelivery: None,
        }
    }

    /// The messages that were handed out and are neither done nor given back.
    pub(crate) fn in_flight(&self) -> usize {
        self.open.len() - self.returned.len() - self.delayed
    }

    /// Whether a message of the lane may be handed out now: the oldest that was given back, or else
    /// `next`.
    pub(crate) fn may_hand_out(&self, lane: Lane, next: u64) -> bool {
        if self.limit.is_some_and(|limit| self.in_flight() >= limit as usize) {
            return false;
        }
        let Some(redelivery) = &self.redelivery else {
            return true;
        };
        match self.first_returned(lane) {
            Some((seq, _)) => redelivery.may_go(seq, self.out) && redelivery.is_stored(seq),
            None => redelivery.may_go(next, self.out) && redelivery.has_room(next),
        }
    }

    /// The lane's oldest message that was given back.
    pub(crate) fn first_returned(&self, lane: Lane) -> Option<(u64, Open)> {
        let from = self.stretches.fresh_from();
        let seq = match lane {
            Lane::Oldest => self.returned.first(),
            Lane::Fresh => self.returned.range(from..).next(),
            Lane::Backlog => self.returned.range(..from).next(),
        }?;
        self.open.get(seq).map(|open| (*seq, *open))
    }

    /// The spot of the lowest message that is open or left, and the end of the segment that it
    /// begins in.
    fn lowest_and_its_end(&self) -> Option<(Spot, u64)> {
        let open = self.open.first_key_value();
        let open =
            open.map(|(seq, open)| (Spot { position: open.position, seq: *seq }, open.segment_end));
        let left = self.stretches.first().map(|left| (left.spot, left.segment_end));
        match (open, left) {
            (Some(open), Some(left)) if left.0.seq < open.0.seq => Some(left),
            (open, left) => open.or(left),
        }
    }

    /// The spot of the lowest message that is open or left: the place to store.
    pub(crate) fn lowest(&self) -> Option<Spot> {
        self.lowest_and_its_end().map(|(spot, _)| spot)
    }

    /// The end of the segment that the lowest open or left message begins in.
    pub(crate) fn lowest_segment_end(&self) -> Option<u64> {
        self.lowest_and_its_end().map(|(_, end)| end)
    }

    /// Opens a message that is handed out for the first time since the opening.
    pub(crate) fn hand_out(
        &mut self,
        seq: u64,
        position: u64,
        segment_end: u64,
        now: Option<Instant>,
    ) -> DeliveryToken {
        let mut open = self.opened(seq, position, segment_end);
        let handed = self.begin_attempt(seq, &mut open, now);
        self.open.insert(seq, open);
        self.out += 1;
        handed
    }

    /// A message as it is before this run has handed it out.
    pub(super) fn opened(&self, seq: u64, position: u64, segment_end: u64) -> Open {
        let attempts = self.redelivery.as_ref().map_or(0, |redelivery| redelivery.count(seq));
        Open { position, segment_end, attempts, state: DeliveryState::Out, due: None }
    }

    /// Hands a message out that comes again.
    pub(crate) fn hand_out_again(&mut self, seq: u64, now: Option<Instant>) -> DeliveryToken {
        let Some(mut open) = self.open.get(&seq).copied() else {
            return DeliveryToken::default();
        };
        self.leave(seq, open.state);
        open.state = DeliveryState::Out;
        let handed = self.begin_attempt(seq, &mut open, now);
        self.open.insert(seq, open);
        self.out += 1;
        handed
    }

    /// Before this returns it is stored that the message is handed out, beside those that are with
    /// workers already.
    fn begin_attempt(&mut self, seq: u64, open: &mut Open, now: Option<Instant>) -> DeliveryToken {
        open.attempts = open.attempts.saturating_add(1);
        if let Some(redelivery) = &mut self.redelivery {
            if self.stretches.is_empty() {
                redelivery.note_handed_out(seq, self.out);
            } else {
                redelivery.list_handed_out(seq, self.out);
            }
            open.due = now.and_then(|now| now.checked_add(redelivery.rules.lease?));
            redelivery.set_timer(seq, None, open.due);
        }
        let leased = if open.due.is_some() { DeliveryToken::LEASED } else { 0 };
        let backlog = if self.stretches.is_backlog(seq) { DeliveryToken::BACKLOG } else { 0 };
        DeliveryToken::new(open.attempts, self.epoch, leased | backlog)
    }

    /// Opens the message at the cursor as rejected, if it is to be handed out no more. False when
    /// it may be.
    pub(crate) fn keep_rejected(&mut self, seq: u64, position: u64, segment_end: u64) -> bool {
        let is_spent = self.redelivery.as_ref().is_some_and(|redelivery| redelivery.is_spent(seq));
        if is_spent {
            let open = self.opened(seq, position, segment_end);
            self.open.insert(seq, open);
            self.out += 1;
            self.reject(seq);
        }
        is_spent
    }

    /// Moves an open message to another state, in which it is until `due`.
    pub(super) fn put(&mut self, seq: u64, state: DeliveryState, due: Option<Instant>) {
        let Some(open) = self.open.get_mut(&seq) else {
            return;
        };
        let was = std::mem::replace(&mut open.state, state);
        let was_due = std::mem::replace(&mut open.due, due);
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.set_timer(seq, was_due, due);
        }
        self.leave(seq, was);
        match state {
            DeliveryState::Out => self.out += 1,
            DeliveryState::Delayed => self.delayed += 1,
            DeliveryState::Back => {
                self.returned.insert(seq);
            }
            DeliveryState::Rejected => {
                // One that is tried again later is not there until then.
                if due.is_none() {
                    self.rejected.insert(seq);
                }
            }
        }
    }

    fn leave(&mut self, seq: u64, was: DeliveryState) {
        match was {
            DeliveryState::Out => self.out -= 1,
            DeliveryState::Delayed => self.delayed -= 1,
            DeliveryState::Back => {
                self.returned.remove(&seq);
            }
            DeliveryState::Rejected => {
                self.rejected.remove(&seq);
                self.unsendable.remove(&seq);
            }
        }
    }

    /// Makes an open message done. False when it is not open.
    pub(crate) fn finish(&mut self, seq: u64) -> bool {
        let Entry::Occupied(open) = self.open.entry(seq) else {
            return false;
        };
        let (state, due) = (open.get().state, open.get().due);
        open.remove();
        self.leave(seq, state);
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.set_timer(seq, due, None);
        }
        self.note_done(seq, seq);
        true
    }

    /// Makes numbers done of which none is open. Before the lowest message that is open or left
    /// nothing is kept.
    pub(crate) fn note_done(&mut self, first: u64, last: u64) {
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.note_done(first, last);
        }
        let is_to_be_passed = first < self.taken_back_below;
        if is_to_be_passed || self.lowest().is_some_and(|lowest| lowest.seq < first) {
            self.done.insert(first, last);
            self.changed = true;
        }
    }

    /// Whether a read passes over the message: it is done, or was handed out.
    pub(crate) fn is_passed(&self, seq: u64) -> bool {
        self.done.contains(seq) || self.open.contains_key(&seq)
    }

    /// The messages that were given back are lost in `gap`, which begins at the lowest of them:
    /// makes them done, and returns the gap to report, as far as their numbers follow each other.
    pub(crate) fn lose_returned(&mut self, gap: &Gap) -> Gap {
        let mut last = gap.first;
        while last < gap.last && self.returned.contains(&(last + 1)) {
            last += 1;
        }
        for seq in gap.first..=last {
            self.finish(seq);
        }
        Gap { last, ..*gap }
    }

    /// The pieces of a gap that are not done, so not reported yet, nor open.
    pub(crate) fn unreported_of(&self, gap: Gap) -> Vec<Gap> {
        let mut passed = self.done.clone();
        for (seq, _) in self.open.range(gap.first..=gap.last) {
            passed.insert(*seq, *seq);
        }
        let pieces = passed.not_in(gap.first, gap.last).into_iter();
        pieces.map(|NumberRange { first, last }| Gap { first, last, cause: gap.cause }).collect()
    }

    /// Makes a piece of a gap done that was reported, while more of the gap is left: the place
    /// stays before the gap.
    pub(crate) fn note_piece_reported(&mut self, piece: &Gap) {
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.note_done(piece.first, piece.last);
        }
        self.done.insert(piece.first, piece.last);
        self.changed = true;
    }

    /// The done ranges.
    pub(crate) fn done(&self) -> impl Iterator<Item = NumberRange> + '_ {
        self.done.iter()
    }

    /// Calls off all deliveries, and forgets what is done and what was left. The caller has cleared
    /// the stored ranges. The consumer goes on at the number `to`.
    pub(crate) fn clear(&mut self, to: u64) {
        self.epoch += 1;
        self.open.clear();
        self.returned.clear();
        self.rejected.clear();
        self.unsendable.clear();
        (self.out, self.delayed) = (0, 0);
        self.done.clear();
        self.stretches.set(Vec::new(), to);
        self.taken_back_below = 0;
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.clear();
        }
        self.again.release();
        if let Some(row) = &mut self.acks_row {
            row.cleared();
        }
        self.changed = false;
    }

    /// Forgets what lies before `place`. True when the rest differs from what is stored.
    pub(crate) fn forget_before(&mut self, place: Spot) -> bool {
        self.done.forget_before(place.seq);
        self.changed
    }

    /// Stores the done ranges beyond `place`, the stored place. Asks `make_row` for a row when
    /// there is none.
    pub(crate) fn store(&mut self, place: Spot, make_row: impl FnOnce() -> Option<AcksRow<F>>) {
        if self.acks_row.is_none() && self.refused == 0 {
            self.acks_row = make_row();
        }
        match &mut self.acks_row {
            Some(row) => {
                // Of a consumer with a backlog the highest ranges are kept, not the lowest: what
                // does not fit comes again as the backlog's then, and not as fresh.
                let all = self.stretches.is_empty();
                let from = if all { 0 } else { Acks::highest_that_fit(self.done.iter().rev()) };
                row.store(place.seq, self.done.iter_from(from));
                self.changed = false;
            }
            // The ranges stay in memory alone. Every 1024th change asks for a row again: space may
            // have been given back.
            None => self.refused = (self.refused + 1) % 1024,
        }
    }

    /// The consumer was removed: its rows are given to others, and one that begins again has no
    /// limit and no rules. (The epoch stays, by which older deliveries are known.)
    #[must_use = "it may hold another queue, which the caller drops without a lock"]
    pub(crate) fn release(&mut self) -> Option<Box<Redeliveries<F>>> {
        self.clear(0);
        self.acks_row = None;
        self.limit = None;
        self.redelivery.take()
    }
}
