//! Finds the next message and passes it to a delivery.

use crate::commit::Core;
use crate::consume::consumer_state::LockedState;
use crate::consume::step::{Deliver, Offered, Read};
use crate::error::{Error, Result};
use crate::read::{Check, Record};
use crate::storage::Storage;

impl<S: Storage> LockedState<S> {
    /// Finds the next message and passes it to `delivery`. Steps over the message if `delivery`
    /// took it, unless `what` is [`Read::Look`].
    #[inline(always)]
    pub(super) fn offer<D: Deliver<S>>(
        &mut self,
        core: &Core<S>,
        what: Read,
        check: Check,
        delivery: &mut D,
    ) -> Result<Offered<D::Delivered>, Box<Error>> {
        let Some(record) = self.meet(core, what, check)? else {
            return Ok(Offered::Nothing);
        };
        Ok(self.pass_to(delivery, what, record).map_or(Offered::Unchecked, Offered::Delivered))
    }

    /// Finds the next message.
    #[inline(always)]
    fn meet(
        &mut self,
        core: &Core<S>,
        what: Read,
        check: Check,
    ) -> Result<Option<Record>, Box<Error>> {
        let before = self.cursor.spot();
        match self.cursor.meet(core, check) {
            Err(error) if what.has_some() && matches!(*error, Error::Gap(_)) => {
                // Rewinds the cursor, so that the next read meets the gap again.
                if !planted!(GapOfABatchNotReported) {
                    self.cursor.move_to(before);
                }
                Ok(None)
            }
            met => met,
        }
    }

    /// One function for all deliveries.
    #[cold]
    #[inline(never)]
    fn meet_checked(&mut self, core: &Core<S>, what: Read) -> Result<Option<Record>, Box<Error>> {
        self.meet(core, what, Check::Now)
    }

    #[inline(always)]
    fn pass_to<D: Deliver<S>>(
        &mut self,
        delivery: &mut D,
        what: Read,
        record: Record,
    ) -> Option<D::Delivered> {
        let delivered = delivery.deliver(&mut self.cursor, record)?;
        if what == Read::Look {
            self.cursor.remember(record);
        } else if D::took(&delivered) {
            self.cursor.step_over(record);
        }
        Some(delivered)
    }

    /// Like [`offer`](Self::offer), for a whole record in the view. `None` for anything else: then
    /// nothing was delivered, and the caller searches.
    #[inline(always)]
    pub(super) fn offer_quickly<D: Deliver<S>>(
        &mut self,
        core: &Core<S>,
        what: Read,
        check: Check,
        delivery: &mut D,
    ) -> Option<D::Delivered> {
        let record = match what {
            Read::Look => self.cursor.look_quickly(core, check)?,
            _ => self.cursor.meet_quickly(core, check)?,
        };
        self.pass_to(delivery, what, record)
    }

    /// Like [`offer`](Self::offer), but verifies each payload before it delivers it.
    #[cold]
    #[inline(never)]
    pub(super) fn offer_checked<D: Deliver<S>>(
        &mut self,
        core: &Core<S>,
        what: Read,
        delivery: &mut D,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        while let Some(record) = self.meet_checked(core, what)? {
            if let Some(delivered) = self.pass_to(delivery, what, record) {
                return Ok(Some(delivered));
            }
        }
        Ok(None)
    }
}
