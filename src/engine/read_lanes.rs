//! Reads one consumer in two lanes.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::Engine;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::lane_choice::LaneLook;
use crate::consume::step::{Deliver, DeliveryToken, Lane};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::error::Result;
use crate::events;
use crate::storage::Storage;
use crate::threads::now;

impl<S: Storage> Engine<S> {
    /// Makes all reads of the consumer go by lanes from now on.
    pub(crate) fn set_lanes(&self, consumer: &ConsumerState<S>, rules: LaneRules) -> Result<()> {
        let _events = events::at_end();
        // No other thread moves or removes the consumer meanwhile.
        let one_at_a_time = self.registry()?;
        consumer.set_lanes(&self.core, rules)?;
        drop(one_at_a_time);
        if let Within::Millis(age) = rules.within {
            self.core.writer.lock().mark_write_times(&self.core, Duration::from_millis(age));
        }
        // Messages that an earlier run rejected may move to the dead-letter queue now.
        self.arm(consumer);
        self.core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Delivers the next message of one lane, or of both by their shares. When the backlog's rate
    /// delays a message, sets `again` to the time at which it allows the next one.
    pub(crate) fn receive_in_lanes<D: Deliver<S> + Copy>(
        &self,
        consumer: &ConsumerState<S>,
        delivery: D,
        only: Option<Lane>,
        again: &mut Option<Instant>,
    ) -> Result<Option<(D::Delivered, DeliveryToken)>> {
        let _events = events::at_end();
        let mut look = LaneLook::default();
        let (step, handed) = consumer.receive_in_lanes(&self.core, delivery, only, &mut look);
        *again = look.again;
        if look.has_jumped {
            self.core.wake_readers(u64::MAX);
        }
        self.received(consumer, step, handed)
    }

    /// Calls an `attempt` that receives in lanes until it has a result or `timeout` is over (see
    /// [`wait`](Self::wait)).
    pub(crate) fn wait_in_lanes<R>(
        &self,
        consumer: &ConsumerState<S>,
        timeout: Duration,
        attempt: impl FnMut(&mut Option<Instant>) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        // A timeout that overflows the clock means forever.
        self.wait_and_look(consumer, now().checked_add(timeout), attempt)
    }

    /// Moves the messages that wait in the fresh lane to the backlog, and returns their sequence
    /// numbers.
    pub(crate) fn jump(&self, consumer: &ConsumerState<S>) -> Result<Range<u64>> {
        let left = consumer.jump(&self.core)?;
        // A thread may wait for the backlog.
        self.core.wake_readers(u64::MAX);
        Ok(left)
    }
}
