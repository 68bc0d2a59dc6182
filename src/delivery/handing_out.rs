//! Hands out deliveries, for the calls of a queue and of a consumer.

use std::sync::Arc;
use std::time::Duration;

use super::Delivery;
use crate::consume::consumer_state::ConsumerState;
use crate::engine::Engine;
use crate::engine::reading::AsMessage;
use crate::error::{Error, Gap, Result, past_gaps};
use crate::storage::FileStorage;
use crate::threads::now;

#[inline]
pub(crate) fn receive(
    engine: &Arc<Engine<FileStorage>>,
    consumer: &Arc<ConsumerState<FileStorage>>,
) -> Result<Option<Delivery>> {
    let received = engine.receive(consumer, AsMessage)?;
    Ok(received.map(|(message, handed)| Delivery::new(message, handed, engine, consumer)))
}

pub(crate) fn receive_batch(
    engine: &Arc<Engine<FileStorage>>,
    consumer: &Arc<ConsumerState<FileStorage>>,
    max: usize,
) -> Result<Vec<Delivery>> {
    let received = engine.receive_batch(consumer, max, AsMessage)?.into_iter();
    Ok(received.map(|(message, handed)| Delivery::new(message, handed, engine, consumer)).collect())
}

/// As [`receive`], for a call that waits.
pub(crate) fn receive_awaited(
    engine: &Arc<Engine<FileStorage>>,
    consumer: &Arc<ConsumerState<FileStorage>>,
) -> Result<Option<Delivery>> {
    let received = engine.receive_awaited(consumer, AsMessage)?;
    Ok(received.map(|(message, handed)| Delivery::new(message, handed, engine, consumer)))
}

pub(crate) fn receive_waiting(
    engine: &Arc<Engine<FileStorage>>,
    consumer: &Arc<ConsumerState<FileStorage>>,
    timeout: Duration,
) -> Result<Option<Delivery>> {
    engine.wait(consumer, now().checked_add(timeout), || receive_awaited(engine, consumer))
}

/// Receives and acknowledges one message after the other until there is none. The leases of
/// messages received ahead would run while `work` has another, and no other worker would get them.
pub(crate) fn for_each<E: From<Error>>(
    engine: &Arc<Engine<FileStorage>>,
    consumer: &Arc<ConsumerState<FileStorage>>,
    mut work: impl FnMut(&Delivery) -> Result<(), E>,
    mut on_gap: impl FnMut(Gap),
) -> Result<(), E> {
    while let Some(delivery) = past_gaps(|| receive(engine, consumer), &mut on_gap)? {
        // When the work fails the delivery is dropped, and so given back.
        work(&delivery)?;
        delivery.ack()?;
    }
    Ok(())
}
