//! Consumers, deliveries, limits and reopening in any order, against a plain model in memory.
//!
//! `MMQ_EFFORT` scales the number of cases, `MMQ_SEED` replays a run.

mod case;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::{Messages, effort, mix, seed};
use case::Case;
use mmq::{Consumer, ConsumerStats, Delivery, Error, GapCause, OnFull, Options, Queue};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

#[derive(Debug, Clone, Copy)]
struct Setting {
    arena: u64,
    /// With it the oldest are dropped to make room.
    max_bytes: Option<u64>,
    flush_every_ops: Option<u64>,
}

impl Setting {
    fn options(self) -> Options {
        let options = Options::new().arena_size(self.arena).flush_every_ops(self.flush_every_ops);
        options.max_bytes(self.max_bytes).on_full(OnFull::DropOldest)
    }
}

/// Consumer 0 is the queue's own, the others have names.
#[derive(Debug, Clone)]
enum Operation {
    Enqueue(usize, usize),
    Dequeue(usize, usize),
    Peek(usize),
    Skip(usize),
    Receive(usize, usize),
    /// The delivery at that share of those in flight.
    Ack(usize, usize),
    Nack(usize, usize),
    Limit(usize, Option<u32>),
    Seek(usize, usize),
    Fork(usize, usize),
    Remove(usize),
    Iterate(usize),
    Drain(usize),
    Reopen(bool, Setting),
}

const CONSUMERS: usize = 4;

fn setting(limited: bool) -> impl Strategy<Value = Setting> {
    let arena = prop_oneof![2 => Just(4u64 << 10), 1 => Just(64 << 10)];
    let max = if limited {
        prop_oneof![Just(Some(64u64 << 10)), Just(Some(150_000))].boxed()
    } else {
        Just(None).boxed()
    };
    let flush = prop_oneof![6 => Just(None), 1 => Just(Some(1)), 1 => Just(Some(5))];
    (arena, max, flush).prop_map(|(arena, max_bytes, flush_every_ops)| Setting {
        arena,
        max_bytes,
        flush_every_ops,
    })
}

fn operation(limited: bool) -> impl Strategy<Value = Operation> {
    let who = || 0..CONSUMERS;
    let len = prop_oneof![5 => 0usize..200, 2 => 0usize..3000, 1 => 8000usize..16_000];
    prop_oneof![
        10 => (1usize..12, len).prop_map(|(count, len)| Operation::Enqueue(count, len)),
        5 => (who(), 1usize..6).prop_map(|(who, count)| Operation::Dequeue(who, count)),
        2 => who().prop_map(Operation::Peek),
        1 => who().prop_map(Operation::Skip),
        9 => (who(), 1usize..8).prop_map(|(who, count)| Operation::Receive(who, count)),
        12 => (who(), 0usize..1000).prop_map(|(who, at)| Operation::Ack(who, at)),
        4 => (who(), 0usize..1000).prop_map(|(who, at)| Operation::Nack(who, at)),
        1 => (who(), prop::option::of(1u32..6))
            .prop_map(|(who, limit)| Operation::Limit(who, limit)),
        1 => (who(), 0usize..1000).prop_map(|(who, at)| Operation::Seek(who, at)),
        1 => (who(), 1..CONSUMERS).prop_map(|(who, to)| Operation::Fork(who, to)),
        1 => (1..CONSUMERS).prop_map(Operation::Remove),
        2 => who().prop_map(Operation::Iterate),
        1 => who().prop_map(Operation::Drain),
        2 => (any::<bool>(), setting(limited))
            .prop_map(|(close, setting)| Operation::Reopen(close, setting)),
    ]
}

fn run(first: Setting, operations: &[Operation], key: u64) -> Result<(), TestCaseError> {
    let dir = crate::support::tempdir().unwrap();
    let mut case = Case {
        dir: dir.path(),
        setting: first,
        queue: Some(first.options().open(dir.path()).unwrap()),
        lens: Vec::new(),
        made: Messages::new(key, &[]),
        stands: Default::default(),
        deliveries: Default::default(),
    };
    for operation in operations {
        case.apply(operation)?;
    }
    case.reopen(true, first);
    for who in 0..CONSUMERS {
        case.apply(&Operation::Drain(who))?;
    }
    Ok(())
}

fn agrees(test: &str, limited: bool) {
    let seed = seed(test);
    let mut bytes = [0; 32];
    for (part, word) in bytes.chunks_mut(8).zip(0..) {
        part.copy_from_slice(&mix(seed ^ word).to_le_bytes());
    }
    let config = Config {
        cases: (50 * effort()).try_into().unwrap(),
        // A failing case is replayed by its seed.
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..Config::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let cases = (setting(limited), prop::collection::vec(operation(limited), 1..100), any::<u64>());
    if let Err(failure) =
        runner.run(&cases, |(first, operations, key)| run(first, &operations, key))
    {
        panic!("MMQ_SEED={seed}: {failure}");
    }
}

#[test]
fn consumers_and_deliveries_agree_with_the_model() {
    agrees("consumer model", false);
}

#[test]
fn they_agree_while_the_oldest_messages_are_dropped() {
    agrees("consumer model, bounded", true);
}
