//! Consumers that come and go beside the ones that every world has.

use std::sync::Arc;

use super::actor::Actor;
use super::acts::{Answer, GUEST, identity};
use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Error, GapCause, Result};
use crate::tests::sim::{Rng, SimStorage};

impl Actor {
    /// One consumer comes, reads, seeks, is forked and goes.
    pub(super) fn guest(&self, seed: u64) -> Result<Answer> {
        let (queue, mut rng) = (&*self.queue, Rng(seed));
        // Its own, or one that others use at the same time.
        let is_shared = rng.percent(40);
        let own = format!("{GUEST} {}", self.number);
        let name = if is_shared { GUEST.to_owned() } else { own.clone() };
        let mut consumer = queue.consumer(&name)?;
        for _ in 0..1 + rng.below(4) {
            match rng.below(5) {
                0 => match queue.seek(&consumer, rng.below(1 + queue.core.committed_spot().seq)) {
                    Ok(()) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                },
                1 => {
                    let other = format!("{own} fork");
                    let from = match rng.below(4) {
                        0 => self.consumer(rng.below(2) as usize)?,
                        _ => Arc::clone(&consumer),
                    };
                    match queue.fork(&from, &other) {
                        Ok(forked) => {
                            self.guest_reads(&forked, true)?;
                            queue.remove_consumer(&other)?;
                        }
                        // A process that died has left it.
                        Err(Error::InvalidArgument { reason, .. })
                            if reason.ends_with("exists already") =>
                        {
                            queue.remove_consumer(&other)?;
                        }
                        // Another one has removed it.
                        Err(Error::NotFound { .. }) => consumer = queue.consumer(&name)?,
                        Err(error) => return Err(error),
                    }
                }
                _ => match self.guest_reads(&consumer, !is_shared) {
                    Err(Error::NotFound { .. }) => consumer = queue.consumer(&name)?,
                    read => read?,
                },
            }
        }
        if rng.percent(70) {
            match queue.remove_consumer(&name) {
                Err(Error::NotFound { .. }) => {}
                removed => removed?,
            }
        }
        Ok(Answer::Done)
    }

    /// Nothing false is delivered, and nothing out of order if nobody else moves the consumer.
    fn guest_reads(&self, consumer: &ConsumerState<SimStorage>, is_alone: bool) -> Result<()> {
        let mut last = None;
        for _ in 0..4 {
            let message = match reading::next(&self.queue, consumer, Read::Take) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(Error::Gap(gap)) => {
                    let is_lost = gap.cause == GapCause::Damaged;
                    assert!(!is_lost || self.may_fail, "{gap:?}");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let seq = message.seq();
            assert!(identity(&message).is_some(), "message {seq} is not what anybody sent");
            assert!(last < Some(seq) || !is_alone, "{seq} comes after {last:?}");
            last = Some(seq);
        }
        Ok(())
    }
}
