//! What must hold of a ledger whenever it has changed.

use crate::consume::ledger::{DeliveryState, Ledger};
use crate::storage::StorageFile;

impl<F: StorageFile> Ledger<F> {
    /// The counts and sets agree with the open messages, of which none is done.
    pub(super) fn check(&self) {
        let (count, out, delayed) = (self.open.len(), self.out, self.delayed);
        let (returned, rejected) = (self.returned.len(), self.rejected.len());
        holds!(
            out + delayed + returned + rejected <= count,
            "of {count} open messages {out} are out, {delayed} are delayed, {returned} come again \
             and {rejected} are rejected, each one of these"
        );
        if !crate::holds::are_looked_at(count) {
            return;
        }
        let of = |state| self.open.values().filter(|open| open.state == state).count();
        let is = |seq: &u64, state| self.open.get(seq).is_some_and(|open| open.state == state);
        holds!(of(DeliveryState::Out) == out, "{out} messages are with workers");
        holds!(of(DeliveryState::Delayed) == delayed, "{delayed} messages are delayed");
        holds!(of(DeliveryState::Back) == returned, "{returned} messages come again");
        holds!(
            self.returned.iter().all(|seq| is(seq, DeliveryState::Back)),
            "the messages to be delivered again were returned: {:?}",
            self.returned
        );
        let no_more = || self.rejected.iter().chain(&self.unsendable);
        let other = no_more().find(|seq| !is(seq, DeliveryState::Rejected));
        holds!(other.is_none(), "what comes no more was rejected, {other:?} too");
        let done = self.open.keys().find(|seq| self.done.contains(**seq));
        holds!(done.is_none(), "no open message is done, not {done:?} either");
        let places: Vec<u64> = self.open.values().map(|open| open.position).collect();
        holds!(places.is_sorted(), "open messages lie in the order of their numbers: {places:?}");
        let beyond = self.open.values().find(|open| open.position > open.segment_end);
        holds!(beyond.is_none(), "a message lies before the end of its segment: {beyond:?}");
        let due = self.open.values().filter(|open| open.due.is_some()).count();
        let timers = self.redelivery.as_ref().map_or(0, |redelivery| redelivery.count_timers());
        holds!(due == timers, "something is due for {due} messages, and {timers} times are known");
    }
}
