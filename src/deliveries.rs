//! Reading the long way: for a consumer with deliveries, with a gap to tell, with a descriptor, or when messages have an age.
//!
//! What comes next is, in this order: a gap that is left to tell; the oldest message that was given back; the next one at
//! the cursor that is not done. Taking a message is receiving and acknowledging it at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Gap, Result};
use crate::ledger::Ledger;
use crate::place::{Handed, Pending, Read, Standing, State, Step, told};
use crate::reader::{Cursor, Record};
use crate::ready::Ready;
use crate::shared::{Shared, Spot};
use crate::storage::Storage;

/// Where a message was found.
enum Found {
    /// At the cursor.
    Ahead(Record),
    /// Among those given back, by the ledger's own cursor.
    Again(Record),
}

impl<S: Storage> Standing<S> {
    /// As [`step`](Self::step), the consumer's lock held.
    #[cold]
    #[inline(never)]
    pub(crate) fn step_specially<R>(
        &self,
        state: &mut State<S>,
        shared: &Shared<S>,
        what: Read,
        deliver: impl FnOnce(&Shared<S>, &mut Cursor<S::File>, &Record) -> Result<R, Box<Error>>,
    ) -> (Step<R>, Handed) {
        let before = state.ledger.as_ref().and_then(|ledger| ledger.lowest_segment_end());
        let mut handed = Handed::default();
        let mut moved = false;
        let counted = state.pending.is_some_and(|pending| pending.counted);
        // Segments that are too old as a whole go for everybody.
        let time = shared.expired_before();
        let expired = time > 0 && shared.check_readable().is_ok() && shared.expire(time);
        let outcome = (|| {
            let Some(found) = self.find_specially(state, shared, what, time)? else {
                return Ok(None);
            };
            let epoch = state.ledger.as_ref().map_or(0, |ledger| ledger.epoch);
            let delivered = match (&found, &mut state.ledger) {
                (Found::Again(record), Some(ledger)) => {
                    let delivered = deliver(shared, &mut ledger.again, record)?;
                    match what {
                        Read::Look => {}
                        Read::Take | Read::Skip => moved = ledger.finish(record.seq),
                        Read::Receive => handed = Handed { attempts: ledger.hand_out_again(record.seq), epoch },
                    }
                    ledger.again.release();
                    delivered
                }
                (Found::Ahead(record) | Found::Again(record), ledger) => {
                    let delivered = deliver(shared, &mut state.cursor, record)?;
                    match (what, ledger) {
                        (Read::Look, _) => {}
                        (Read::Receive, Some(ledger)) => {
                            handed = Handed { attempts: 1, epoch };
                            let end = state.cursor.segment_end();
                            ledger.hand_out(record.seq, state.cursor.spot().position, end);
                            state.cursor.advance();
                        }
                        (_, ledger) => {
                            moved = true;
                            state.cursor.advance();
                            if let Some(ledger) = ledger {
                                ledger.note_done(record.seq, record.seq);
                            }
                        }
                    }
                    delivered
                }
            };
            Ok(Some(delivered))
        })();
        let told = if counted { None } else { told(&outcome) };
        let crossed = self.settle(state, shared, before, moved, told) | expired;
        (Step { outcome, crossed, moved }, handed)
    }

    fn find_specially(&self, state: &mut State<S>, shared: &Shared<S>, what: Read, time: u64) -> Result<Option<Found>> {
        shared.check_readable()?;
        if state.removed {
            return Err(self.unknown());
        }
        if let Some(pending) = state.pending.take() {
            state.special = state.is_special(shared);
            return Err(Error::Gap(pending.gap));
        }
        loop {
            if let Some(ledger) = &mut state.ledger {
                if let Some(gap) = ledger.next_gap() {
                    return Err(Error::Gap(gap));
                }
                if what == Read::Receive && !ledger.may_hand_out() {
                    return Ok(None);
                }
                if let Some(record) = find_again(ledger, shared)? {
                    return Ok(Some(Found::Again(record)));
                }
            }
            let found = match state.cursor.pass_expired(shared, time) {
                (Some(gap), met) => {
                    match (met, &mut state.ledger) {
                        (Some(Error::Gap(met)), Some(ledger)) => ledger.gaps.push(met),
                        (Some(Error::Gap(gap)), None) => state.pending = Some(Pending { gap, counted: false }),
                        // What else failed fails again.
                        _ => {}
                    }
                    Err(Error::Gap(gap))
                }
                (None, Some(error)) => Err(error),
                (None, None) if what == Read::Skip => state.cursor.find_header(shared),
                (None, None) => state.cursor.find(shared),
            };
            match (found, &mut state.ledger) {
                (Ok(Some(record)), Some(ledger)) if ledger.is_done(record.seq) => state.cursor.advance(),
                (Ok(found), _) => return Ok(found.map(Found::Ahead)),
                (Err(Error::Gap(gap)), Some(ledger)) => {
                    if let Some(told) = ledger.untold(gap) {
                        return Err(Error::Gap(told));
                    }
                }
                (Err(error), _) => return Err(error),
            }
        }
    }

    /// Stores what has changed, and counts a message that was `taken` or a gap that was `told`. True when the place left a
    /// segment behind.
    fn settle(
        &self,
        state: &mut State<S>,
        shared: &Shared<S>,
        before: Option<u64>,
        taken: bool,
        told: Option<Gap>,
    ) -> bool {
        let cursor = state.cursor.spot();
        let spot = match &state.ledger {
            Some(ledger) if !ledger.gaps.is_empty() => state.stored,
            Some(ledger) => ledger.lowest().unwrap_or(cursor),
            None => cursor,
        };
        let moves = spot != state.stored;
        let mut changed = false;
        if let Some(ledger) = &mut state.ledger {
            changed = ledger.forget_before(spot);
        }
        if moves || changed || taken || told.is_some() {
            self.cell.begin_move();
            if taken {
                self.cell.count_taken();
            }
            if let Some(gap) = told {
                shared.count_gap(&gap);
            }
            if moves {
                state.store(&self.cell, spot);
            }
            if changed && let Some(ledger) = &mut state.ledger {
                ledger.store(|| shared.acks_slot(self.row, self.name()));
            }
            self.cell.end_move();
        }
        state.note_ready(shared);
        // Both are looked at: the flag must not be left standing.
        state.cursor.take_crossed() | before.is_some_and(|end| spot.position >= end)
    }

    /// Hands the next message out.
    pub(crate) fn receive<R>(
        &self,
        shared: &Shared<S>,
        deliver: impl FnOnce(&Shared<S>, &mut Cursor<S::File>, &Record) -> Result<R, Box<Error>>,
    ) -> (Step<R>, Handed) {
        if shared.forked() {
            return (Step { outcome: Err(Error::Forked.into()), crossed: false, moved: false }, Handed::default());
        }
        let mut state = self.state.0.lock();
        self.ledger(&mut state, &[]);
        self.step_specially(&mut state, shared, Read::Receive, deliver)
    }

    /// The ledger, which comes into being with these ranges done.
    fn ledger<'a>(&self, state: &'a mut State<S>, done: &[(u64, u64)]) -> &'a mut Ledger<S::File> {
        state.special = true;
        self.has_ledger.store(true, Ordering::Release);
        state.ledger.get_or_insert_with(|| Box::new(Ledger::new(done, None)))
    }

    /// Begins with what another consumer has done.
    pub(crate) fn adopt(&self, shared: &Shared<S>, done: &[(u64, u64)]) {
        let mut state = self.state.0.lock();
        self.ledger(&mut state, done).mark_changed();
        self.settle(&mut state, shared, None, false, None);
    }

    /// A delivery was acknowledged. Says whether a segment was left behind; `None` when nothing came of it.
    pub(crate) fn acknowledge(&self, shared: &Shared<S>, seq: u64, handed: Handed) -> Result<Option<bool>> {
        shared.check_readable()?;
        let mut state = self.state.0.lock();
        let state = &mut *state;
        shared.check_readable()?;
        if state.removed {
            return Err(self.unknown());
        }
        let before = match &mut state.ledger {
            Some(ledger) if ledger.epoch == handed.epoch => {
                let before = ledger.lowest_segment_end();
                if !ledger.finish(seq) {
                    return Ok(None);
                }
                before
            }
            _ => return Ok(None),
        };
        Ok(Some(self.settle(state, shared, before, true, None)))
    }

    /// A delivery was given back. True when the message comes again.
    pub(crate) fn give_back(&self, shared: &Shared<S>, seq: u64, handed: Handed) -> bool {
        let mut state = self.state.0.lock();
        let state = &mut *state;
        let comes_again = match &mut state.ledger {
            Some(ledger) => ledger.epoch == handed.epoch && !state.removed && ledger.give_back(seq),
            None => false,
        };
        if comes_again {
            state.note_ready(shared);
        }
        comes_again
    }

    pub(crate) fn set_max_in_flight(&self, shared: &Shared<S>, limit: Option<u32>) {
        let mut state = self.state.0.lock();
        self.ledger(&mut state, &[]).limit = limit.map(|limit| limit.max(1));
        state.note_ready(shared);
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.state.0.lock().ledger.as_ref().map_or(0, |ledger| ledger.in_flight() as u64)
    }

    /// Whether a read has something to tell.
    pub(crate) fn has_news(&self, shared: &Shared<S>) -> bool {
        self.state.0.lock().has_news(shared)
    }

    /// Messages between the place and the end of what is visible, without those that are done or known to be missing.
    pub(crate) fn len(&self, shared: &Shared<S>) -> u64 {
        if !self.has_ledger.load(Ordering::Acquire) {
            return shared.len_from(Some(self.seq()));
        }
        let state = self.state.0.lock();
        shared.len_from(Some(state.stored.seq)).saturating_sub(state.done_beyond(shared))
    }

    /// Keeps the descriptor's word from now on.
    pub(crate) fn set_ready(&self, shared: &Shared<S>, ready: Arc<Ready>) {
        let _ = self.ready.set(Arc::clone(&ready));
        let mut state = self.state.0.lock();
        state.ready = Some(ready);
        state.special = true;
        state.note_ready(shared);
    }
}

impl<S: Storage> State<S> {
    /// Messages beyond the place that are done, those left out that are not counted as held.
    pub(crate) fn done_beyond(&self, shared: &Shared<S>) -> u64 {
        let place = self.stored.seq.max(shared.oldest_seq.load(Ordering::Acquire));
        let weigh = |from, to| (to - from) - shared.known_missing(from, to);
        self.ledger.as_ref().map_or(0, |ledger| ledger.done_within(place, u64::MAX, weigh))
    }
}

/// The oldest message that was given back, read anew. Those that are gone meanwhile are told as a gap.
fn find_again<S: Storage>(ledger: &mut Ledger<S::File>, shared: &Shared<S>) -> Result<Option<Record>> {
    let Some((seq, open)) = ledger.first_returned() else {
        return Ok(None);
    };
    let spot = Spot { position: open.position, seq };
    if ledger.again.spot() != spot {
        ledger.again.move_to(spot);
    }
    let gap = match ledger.again.find(shared) {
        Ok(Some(record)) => return Ok(Some(record)),
        Ok(None) => Gap { first: seq, last: seq, cause: shared.cause_of(seq).0 },
        Err(Error::Gap(gap)) => gap,
        Err(error) => return Err(error),
    };
    ledger.again.release();
    Err(Error::Gap(ledger.lose_returned(&Gap { first: seq, ..gap })))
}
