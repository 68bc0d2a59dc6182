//! Finds the next message and passes it to a delivery.

use crate::commit::Core;
use crate::consume::consumer_state::LockedState;
use crate::consume::step::{Deliver, Offered, Read};
use crate::error::{Error, Result};
use crate::read::Check;
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
        let before = self.cursor.spot();
        let record = match self.cursor.meet(core, check) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Offered::Nothing),
            Err(error) if what.has_some() && matches!(*error, Error::Gap(_)) => {
                // Rewinds the cursor, so that the next read meets the gap again.
                if !planted!(GapOfABatchNotReported) {
                    self.cursor.move_to(before);
                }
                return Ok(Offered::Nothing);
            }
            Err(error) => return Err(error),
        };
        let Some(delivered) = delivery.deliver(&mut self.cursor, record) else {
            return Ok(Offered::Unchecked);
        };
        if what == Read::Look {
            self.cursor.remember(record);
        } else if D::took(&delivered) {
            self.cursor.step_over(record);
        }
        Ok(Offered::Delivered(delivered))
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
        let delivered = delivery.deliver(&mut self.cursor, record)?;
        if what == Read::Look {
            self.cursor.remember(record);
        } else if D::took(&delivered) {
            self.cursor.step_over(record);
        }
        Some(delivered)
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
        loop {
            match self.offer(core, what, Check::Now, delivery)? {
                Offered::Delivered(delivered) => return Ok(Some(delivered)),
                Offered::Nothing => return Ok(None),
                Offered::Unchecked => {}
            }
        }
    }
}
