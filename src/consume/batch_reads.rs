//! A batch: many messages under one lock, and one place stored after the last one.
//!
//! A process that dies before that store gets all of them again.

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::consume::slow::Done;
use crate::consume::step::{BeginsDefault, Deliver, DeliveryToken, Lane, Offered, Read, Step};
use crate::error::{Error, Result};
use crate::read::Check;
use crate::storage::Storage;
use crate::threads::{MutexGuard, is_waited_for};

/// After each so many messages a batch ends if another thread waits for the consumer: a producer
/// that makes room stands still meanwhile.
const ROUND: usize = 64;

impl<S: Storage> ConsumerState<S> {
    /// Takes up to `max` messages, fewer at the end of the queue, in front of a gap or of a message
    /// that `delivery` does not take, and when another thread waits. Returns how many.
    pub(crate) fn take_batch<D: Deliver<S>>(
        &self,
        core: &Core<S>,
        max: usize,
        check: Check,
        delivery: D,
        if_gone: &dyn BeginsDefault,
    ) -> Step<usize> {
        let how = if check == Check::Never { SKIP } else { TAKE };
        let existing =
            core.check_readable().and_then(|()| self.existing(self.locked.lock(), Some(if_gone)));
        match existing {
            Ok(locked) if locked.special => {
                self.batch_slowly(locked, core, max, how, delivery, |_, _| ())
            }
            Ok(locked) => self.take_quickly(locked, core, max, how, check, delivery),
            Err(error) => Step::of(Err(error.into())),
        }
    }

    fn take_quickly<D: Deliver<S>>(
        &self,
        mut locked: MutexGuard<'_, LockedState<S>>,
        core: &Core<S>,
        max: usize,
        how: [Read; 2],
        check: Check,
        mut delivery: D,
    ) -> Step<usize> {
        let (outcome, taken) = up_to(max, &mut locked, how, |locked, what, most| {
            let run = delivery.deliver_run(&mut locked.cursor, core, most);
            if run != 0 {
                return Ok(run);
            }
            let took = match locked.offer(core, what, check, &mut delivery)? {
                Offered::Delivered(it) => D::took(&it),
                Offered::Nothing => false,
                Offered::Unchecked => {
                    locked.offer_checked(core, what, &mut delivery)?.is_some_and(|it| D::took(&it))
                }
            };
            Ok(usize::from(took))
        });
        if taken != 0 {
            self.store_taken(&mut locked, taken as u64);
        } else if locked.cursor.spot() != self.cell.spot() {
            self.pass_over(&mut locked, core, &outcome);
        }
        check!(locked.check_place(core, &self.cell));
        Step { outcome, crossed: locked.cursor.take_crossed(), moved: taken != 0 }
    }

    /// Delivers up to `max` messages, to be acknowledged later, and passes each to `received`.
    pub(crate) fn receive_batch<D: Deliver<S>>(
        &self,
        core: &Core<S>,
        max: usize,
        delivery: D,
        received: impl FnMut(D::Delivered, DeliveryToken),
        if_gone: &dyn BeginsDefault,
    ) -> Step<usize> {
        let existing =
            core.check_readable().and_then(|()| self.existing(self.locked.lock(), Some(if_gone)));
        match existing {
            Ok(mut locked) => {
                self.ledger(&mut locked);
                self.batch_slowly(locked, core, max, RECEIVE, delivery, received)
            }
            Err(error) => Step::of(Err(error.into())),
        }
    }

    #[cold]
    fn batch_slowly<D: Deliver<S>>(
        &self,
        mut locked: MutexGuard<'_, LockedState<S>>,
        core: &Core<S>,
        max: usize,
        how: [Read; 2],
        mut delivery: D,
        mut delivered: impl FnMut(D::Delivered, DeliveryToken),
    ) -> Step<usize> {
        let begun = match locked.begin_slow(core, self) {
            Ok(begun) => begun,
            Err(error) => return Step::of(Err(error.into())),
        };
        let clock = begun.clock;
        let (outcome, count) = up_to(max, &mut locked, how, |locked, what, _| {
            let mut handed = DeliveryToken::default();
            let found =
                locked.deliver_next(core, what, Lane::Oldest, &mut delivery, clock, &mut handed);
            let found = found?.filter(D::took);
            Ok(usize::from(found.map(|message| delivered(message, handed)).is_some()))
        });
        let taken = if how == RECEIVE { 0 } else { count };
        let crossed = self.end_slow(&mut locked, core, begun, Done::of(&outcome, taken));
        Step { outcome, crossed, moved: taken != 0 }
    }
}

/// How a batch reads its first message, and the others.
const TAKE: [Read; 2] = [Read::Take, Read::TakeMore];
const SKIP: [Read; 2] = [Read::Skip, Read::SkipMore];
const RECEIVE: [Read; 2] = [Read::Receive, Read::ReceiveMore];

/// Calls `take` until it has taken `max` messages. It takes at most as many as it is told, and says
/// how many: none at the end. An error or a gap behind the first message ends the batch; the next
/// call meets it again.
#[inline(always)]
fn up_to<S: Storage>(
    max: usize,
    locked: &mut MutexGuard<'_, LockedState<S>>,
    [first, more]: [Read; 2],
    mut take: impl FnMut(&mut LockedState<S>, Read, usize) -> Result<usize, Box<Error>>,
) -> (Result<Option<usize>, Box<Error>>, usize) {
    let mut taken = 0;
    while taken < max {
        let what = if taken == 0 { first } else { more };
        match take(locked, what, (ROUND - taken % ROUND).min(max - taken)) {
            Ok(0) => break,
            Ok(count) => taken += count,
            Err(error) if taken == 0 => return (Err(error), 0),
            Err(_) => break,
        }
        if taken % ROUND == 0 && is_waited_for(locked) {
            break;
        }
    }
    (Ok((taken != 0).then_some(taken)), taken)
}
