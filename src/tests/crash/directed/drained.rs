//! What a flush leaves out because every consumer has passed it rests on their places: power cuts
//! keep the mark or the checkpoint, and not the places.

use std::sync::Arc;

use super::{Taken, disk, options, take_all};
use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::Read;
use crate::engine::reading::AsMessage;
use crate::error::GapCause;
use crate::storage::Stores;
use crate::tests::crash::examine::{Queue, consumer_of, open};
use crate::tests::crash::model::content;
use crate::tests::effort::some_of;
use crate::tests::mutants::Mutant;
use crate::tests::sim::SimStorage;

/// Takes as a reader does, before the storage worker reclaims what was left behind.
fn take(queue: &Queue, consumer: &ConsumerState<SimStorage>) {
    let step = consumer.step(
        consumer.locked.lock(),
        &queue.core,
        Read::Take,
        crate::read::Check::Now,
        AsMessage,
        None,
    );
    if step.crossed {
        queue.core.drain_passed();
    }
    assert!(step.outcome.unwrap().is_some());
}

/// A batch of three in the first segment, and two messages in the second; all names are durable.
fn with_a_batch(number: u64, stores: Stores) -> (Queue, Arc<ConsumerState<SimStorage>>) {
    let storage = disk(number);
    storage.set_stores(stores);
    let queue = open(storage, &options()).unwrap();
    queue.default_consumer().unwrap();
    let consumer = consumer_of(&queue, "").unwrap();
    let lens = [2500 + 13 * number as usize % 1000, 2500, 2000];
    let batch: Vec<_> = lens.iter().enumerate().map(|(at, len)| content(at as u64, *len)).collect();
    queue.enqueue_batch(&batch).unwrap();
    queue.enqueue(&content(3, 7000)).unwrap();
    queue.enqueue(&content(4, 100)).unwrap();
    queue.core.sync_directory().unwrap();
    queue.core.flush_places().unwrap();
    (queue, consumer)
}

/// No durable message is missing, none is called damaged, and of the batch all come or what its
/// consumer had not read.
fn check(reported: &[Taken]) -> Result<(), String> {
    let came: Vec<u64> = reported.iter().flatten().map(|(seq, _)| *seq).collect();
    let of_batch = came.iter().filter(|seq| **seq < 3).count() as u64;
    let first = came.first().copied().unwrap_or(3);
    let gaps: Vec<_> = reported.iter().flat_map(|reported| reported.as_ref().err()).collect();
    if let Some(gap) = gaps.iter().find(|gap| gap.cause == GapCause::Damaged) {
        return Err(format!("{gap:?}"));
    }
    if of_batch > 0 && (of_batch != 3 - first || gaps.iter().any(|gap| gap.first < 3)) {
        return Err(format!("{came:?} came, of a batch 0..3, and {gaps:?}"));
    }
    Ok(())
}

fn cuts(of: &SimStorage, number: u64) -> Result<(), String> {
    some_of(0..25, 4, number).try_for_each(|seed| {
        check(&take_all(&open(of.power_cut(seed), &options()).unwrap()).unwrap())
    })
}

/// Power is cut when a flush has answered that all before it is durable.
fn behind_a_flush(stores: Stores) -> Result<(), String> {
    (0..20).try_for_each(|number| {
        let (queue, consumer) = with_a_batch(number, stores);
        (0..4).for_each(|_| take(&queue, &consumer));
        if number % 2 == 1 {
            // The only segment is drained, too.
            take(&queue, &consumer);
            assert!(queue.core.drain_read(&mut queue.core.writer.lock()));
        }
        assert!(queue.core.segments.list().has_drained());
        queue.core.flush_to(queue.core.committed_spot()).unwrap();
        let reported = some_of(0..25, 4, number).try_for_each(|seed| {
            let queue = open(queue.core.storage.power_cut(seed), &options()).unwrap();
            let reported = take_all(&queue).unwrap();
            match reported
                .iter()
                .flat_map(|reported| reported.as_ref().err())
                .find(|gap| gap.first <= 4)
            {
                Some(gap) if gap.cause != GapCause::Reserved => Err(format!("{gap:?}")),
                _ => check(&reported),
            }
        });
        reported.and_then(|()| cuts(&queue.core.storage, number))
    })
}

/// Power is cut at any call of a flush.
fn within_a_flush() -> Result<(), String> {
    (0..160).try_for_each(|number| {
        let (queue, consumer) = with_a_batch(number % 20, Stores::ByMap);
        (0..4).for_each(|_| take(&queue, &consumer));
        let storage = queue.core.storage.clone();
        storage.freeze_at(1 + number / 20);
        queue.core.flush().unwrap();
        storage.disarm();
        storage.frozen().map_or(Ok(()), |dead| cuts(&dead, number))
    })
}

/// The oldest are dropped while a flush is under way: the mark passes them before the index says
/// that they were dropped.
fn between_a_drop_and_its_note() -> Result<(), String> {
    (0..40).try_for_each(|number| {
        let (queue, _) = with_a_batch(number, Stores::ByMap);
        queue.core.segments.drop_oldest(&queue.core.context()).unwrap();
        queue.core.flush_to(queue.core.committed_spot()).unwrap();
        cuts(&queue.core.storage, number)
    })
}

#[test]
fn what_a_flush_left_out_is_not_called_durable_before_its_places_are() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        assert_eq!(behind_a_flush(stores), Ok(()), "{stores:?}");
    }
    assert_eq!(within_a_flush(), Ok(()));
    assert_eq!(between_a_drop_and_its_note(), Ok(()));
    Mutant::plant(Some(Mutant::MarkRestsOnPlaces));
    let found = [behind_a_flush(Stores::ByMap), behind_a_flush(Stores::ByCall), within_a_flush()];
    Mutant::plant(None);
    assert!(found.iter().all(Result::is_err), "{found:?}");
}
