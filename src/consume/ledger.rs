//! The messages that a consumer has delivered and that are not acknowledged yet.
//!
//! Every number from the stored place up to the cursor is either *open* (in flight, returned, or
//! rejected), *done* (acknowledged, taken, or reported as a gap), or *left* in a stretch that the
//! cursor skipped. The stored place is the lowest number that is open or left; with none it is the
//! cursor's spot. Done numbers beyond the place are kept as ranges; the open messages and stretches
//! between them limit how many. After a reopening, ranges may lie beyond the cursor, which steps
//! over the messages in them. (`returns.rs` has returns and rejections.)

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::consume::ranges::Ranges;
use crate::consume::redelivery_state::{InFlightBy, Redeliveries};
use crate::consume::step::{DeliveryToken, Lane};
use crate::consume::stretches::Stretches;
use crate::error::Gap;
use crate::format::{Acks, NumberRange, Spot};
use crate::index::AcksRow;
use crate::read::Cursor;
use crate::storage::StorageFile;

/// The state of a message that was delivered and is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryState {
    /// A worker has it.
    Out,
    /// Returned: the next read delivers it again.
    Back,
    /// Returned: a read delivers it again once its delay is over.
    Delayed,
    /// Never delivered again: it goes to the dead-letter queue, or a read reports it as a gap.
    Rejected,
}

/// A message that was delivered and is not done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) position: u64,
    /// End of the segment in which its record begins.
    pub(super) segment_end: u64,
    /// How often it was delivered.
    pub(crate) attempts: u32,
    pub(super) state: DeliveryState,
    /// When its lease or its delay ends, or when the next attempt to move its dead letter is due.
    pub(super) due: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Ledger<F> {
    /// Each seek and the end of the run raise it: deliveries of earlier epochs are void.
    pub(crate) epoch: u64,
    /// The most messages in flight; `None`: no limit.
    pub(crate) limit: Option<u32>,
    pub(super) open: BTreeMap<u64, Open>,
    /// Open messages that the next reads deliver again.
    pub(super) returned: BTreeSet<u64>,
    /// Rejected messages not yet moved to the dead-letter queue or reported as a gap.
    pub(super) rejected: BTreeSet<u64>,
    /// Rejected messages that the dead-letter queue can never take: the next reads report them as
    /// gaps.
    pub(super) unsendable: BTreeSet<u64>,
    /// How many messages workers have, and how many wait for the end of a delay.
    pub(super) out: usize,
    pub(super) delayed: usize,
    /// The done numbers beyond the place.
    pub(super) done: Ranges,
    /// The messages that the cursor skipped.
    pub(super) stretches: Stretches,
    /// Reads the returned messages.
    pub(crate) again: Cursor<F>,
    /// Where `done` is stored.
    acks_row: Option<AcksRow<F>>,
    /// Changes since the index refused a row for `done`; at 0 the ledger may ask for one.
    refused: u32,
    /// `done` differs from the stored ranges.
    changed: bool,
    /// `None` until the consumer wants leases, delays or counts.
    pub(crate) redelivery: Option<Box<Redeliveries<F>>>,
}

impl<F: StorageFile> Ledger<F> {
    /// A ledger in which the numbers in `done` are done.
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
            again: Cursor::new(Spot::default()),
            acks_row,
            refused: 0,
            changed: false,
            redelivery: None,
        }
    }

    /// The messages that workers have, and the rejected ones.
    pub(crate) fn in_flight(&self) -> usize {
        self.open.len() - self.returned.len() - self.delayed
    }

    /// Whether the limit allows one more message in flight.
    pub(crate) fn is_below_limit(&self) -> bool {
        self.limit.is_none_or(|limit| self.in_flight() < limit as usize)
    }

    /// The lane's oldest returned message.
    pub(crate) fn first_returned(&self, lane: Lane) -> Option<(u64, Open)> {
        let from = self.stretches.fresh_from();
        let seq = match lane {
            Lane::Oldest => self.returned.first(),
            Lane::Fresh => self.returned.range(from..).next(),
            Lane::Backlog => self.returned.range(..from).next(),
        }?;
        self.open.get(seq).map(|open| (*seq, *open))
    }

    /// The spot of the lowest message that is open or left, and the end of the segment in which it
    /// begins.
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

    /// The end of the segment in which the lowest open or left message begins.
    pub(crate) fn lowest_segment_end(&self) -> Option<u64> {
        self.lowest_and_its_end().map(|(_, end)| end)
    }

    /// Opens a message that this run delivers for the first time.
    pub(crate) fn hand_out(
        &mut self,
        seq: u64,
        position: u64,
        segment_end: u64,
        now: Option<Instant>,
    ) -> DeliveryToken {
        let mut open = self.opened(seq, position, segment_end);
        let handed = self.begin_attempt(seq, &mut open, now);
        holds!(
            !self.open.contains_key(&seq),
            "message {seq} is delivered, and is not in flight already"
        );
        self.open.insert(seq, open);
        self.out += 1;
        check!(self.check());
        handed
    }

    /// The entry of a message that this run has not delivered before.
    pub(super) fn opened(&self, seq: u64, position: u64, segment_end: u64) -> Open {
        let attempts = self.redelivery.as_ref().map_or(0, |redelivery| redelivery.count(seq));
        Open { position, segment_end, attempts, state: DeliveryState::Out, due: None }
    }

    /// Delivers a returned message again.
    pub(crate) fn hand_out_again(&mut self, seq: u64, now: Option<Instant>) -> DeliveryToken {
        let Some(mut open) = self.open.get(&seq).copied() else {
            return DeliveryToken::default();
        };
        self.leave(seq, open.state);
        open.state = DeliveryState::Out;
        let handed = self.begin_attempt(seq, &mut open, now);
        self.open.insert(seq, open);
        self.out += 1;
        check!(self.check());
        handed
    }

    /// Counts the attempt. Write-ahead: the index records the delivery before this returns.
    fn begin_attempt(&mut self, seq: u64, open: &mut Open, now: Option<Instant>) -> DeliveryToken {
        open.attempts = open.attempts.saturating_add(1);
        if let Some(redelivery) = &mut self.redelivery {
            let has_skipped = !self.stretches.is_empty();
            let by = if has_skipped { InFlightBy::Count } else { InFlightBy::Mark };
            redelivery.note_in_flight(seq, by);
            open.due = now.and_then(|now| now.checked_add(redelivery.rules.lease?));
            redelivery.set_timer(seq, None, open.due);
        }
        let leased = if open.due.is_some() { DeliveryToken::LEASED } else { 0 };
        let backlog = if self.stretches.is_backlog(seq) { DeliveryToken::BACKLOG } else { 0 };
        DeliveryToken::new(open.attempts, self.epoch, leased | backlog)
    }

    /// Opens the message at the cursor as rejected if it must not be delivered again. Returns false
    /// if it may be delivered.
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

    /// Moves an open message to another state, which lasts until `due`.
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
                // A dead letter with a retry time joins `rejected` only at that time.
                if due.is_none() {
                    self.rejected.insert(seq);
                }
            }
        }
        check!(self.check());
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

    /// Makes an open message done. Returns false if it is not open.
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
        check!(self.check());
        true
    }

    /// Makes the numbers done; none of them may be open. Ranges before the lowest message that is
    /// open or left are not kept.
    pub(crate) fn note_done(&mut self, first: u64, last: u64) {
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.note_done(first, last);
        }
        if self.lowest().is_some_and(|lowest| lowest.seq < first) {
            self.done.insert(first, last);
            self.changed = true;
        }
        check!(let open = self.open.range(first..=last).next());
        holds!(open.is_none(), "none of the messages {first} to {last} is open and done: {open:?}");
    }

    /// Whether the cursor steps over the message: an earlier run made it done.
    pub(crate) fn is_passed(&self, seq: u64) -> bool {
        holds!(!self.open.contains_key(&seq), "message {seq}, at the cursor, is not open");
        self.done.contains(seq)
    }

    /// Makes the returned messages that `gap` covers done, beginning at its first one and while
    /// their numbers are consecutive. Returns the gap to report.
    pub(crate) fn lose_returned(&mut self, gap: &Gap) -> Gap {
        let mut last = gap.first;
        while last < gap.last && self.returned.contains(&(last + 1)) {
            last += 1;
        }
        for seq in gap.first..=last {
            holds!(self.open.contains_key(&seq), "message {seq}, which is lost, was open");
            self.finish(seq);
        }
        Gap { last, ..*gap }
    }

    /// The pieces of a gap at the cursor that are not done: nobody has reported them.
    pub(crate) fn unreported_of(&self, gap: Gap) -> Vec<Gap> {
        check!(let open = self.open.range(gap.first..=gap.last).next());
        holds!(open.is_none(), "no message of {gap:?}, at the cursor, is open: {open:?}");
        let pieces = self.done.not_in(gap.first, gap.last).into_iter();
        pieces.map(|NumberRange { first, last }| Gap { first, last, cause: gap.cause }).collect()
    }

    /// Makes a reported piece of a gap done while other pieces are unreported: the place stays
    /// before the gap.
    pub(crate) fn note_piece_reported(&mut self, piece: &Gap) {
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.note_done(piece.first, piece.last);
        }
        self.done.insert(piece.first, piece.last);
        self.changed = true;
        check!(let open = self.open.range(piece.first..=piece.last).next());
        holds!(open.is_none(), "no message that is reported missing is open: {open:?}");
    }

    /// The done ranges.
    pub(crate) fn done(&self) -> impl Iterator<Item = NumberRange> + '_ {
        self.done.iter()
    }

    /// Cancels all deliveries and clears the done ranges and the stretches. The caller has cleared
    /// the stored ranges. The consumer continues at the number `to`.
    pub(crate) fn clear(&mut self, to: u64) {
        self.epoch += 1;
        self.open.clear();
        self.returned.clear();
        self.rejected.clear();
        self.unsendable.clear();
        (self.out, self.delayed) = (0, 0);
        self.done.clear();
        self.stretches.set(Vec::new(), to);
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.clear();
        }
        self.again.release();
        if let Some(row) = &mut self.acks_row {
            row.cleared();
        }
        self.changed = false;
        check!(self.check());
    }

    /// Drops the done ranges before `place`. Returns whether the rest differs from the stored
    /// ranges.
    pub(crate) fn forget_before(&mut self, place: Spot) -> bool {
        self.done.forget_before(place.seq);
        check!(let lowest = self.lowest());
        holds!(
            lowest.is_none_or(|lowest| place.seq <= lowest.seq),
            "the place {place:?} does not pass the lowest message that is open or left: {lowest:?}"
        );
        self.changed
    }

    /// Stores the done ranges beyond `place`, the stored place. Calls `make_row` for a row if there
    /// is none.
    pub(crate) fn store(&mut self, place: Spot, make_row: impl FnOnce() -> Option<AcksRow<F>>) {
        if self.acks_row.is_none() && self.refused == 0 {
            self.acks_row = make_row();
        }
        match &mut self.acks_row {
            Some(row) => {
                // With a backlog the highest ranges are kept, not the lowest: after a reopening,
                // messages of the ranges that do not fit come again in the backlog, not as fresh
                // ones.
                let all = self.stretches.is_empty();
                let from = if all { 0 } else { Acks::highest_that_fit(self.done.iter().rev()) };
                row.store(place.seq, self.done.iter_from(from));
                self.changed = false;
            }
            // The ranges stay in memory only. Every 1024th change asks for a row again, for the
            // index may have space by then.
            None => self.refused = (self.refused + 1) % 1024,
        }
    }

    /// Clears the ledger of a removed consumer: other consumers get its rows, and a consumer that
    /// is created again has no limit and no rules. (The epoch stays, so that deliveries from before
    /// the removal are void.)
    #[must_use = "it may hold another queue, which the caller drops without a lock"]
    pub(crate) fn release(&mut self) -> Option<Box<Redeliveries<F>>> {
        self.clear(0);
        self.acks_row = None;
        self.limit = None;
        self.redelivery.take()
    }
}
