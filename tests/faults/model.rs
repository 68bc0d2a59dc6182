//! Every operation in any order, with reopening among them, against a `VecDeque`.
//!
//! `MMQ_EFFORT` multiplies the number of cases, `MMQ_SEED` replays a run.

use std::collections::VecDeque;
use std::path::Path;

use crate::support::{Messages, effort, in_parts, mix, seed};
use mmq::{Message, Options, Queue};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// A length that is turned into bytes only when the arena size is known.
#[derive(Debug, Clone, Copy)]
enum Size {
    Small(usize),
    /// This many bytes more or less than a multiple of the arena.
    Near(usize, isize),
    /// Thousandths of three arenas.
    Share(usize),
}

impl Size {
    fn bytes(self, arena: usize) -> usize {
        match self {
            Size::Small(bytes) => bytes,
            Size::Near(times, off) => (times * arena).saturating_add_signed(off),
            Size::Share(thousandths) => 3 * arena * thousandths / 1000,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Geometry {
    arena: u64,
    cap: Option<u32>,
    flush_every_ops: Option<u64>,
}

impl Geometry {
    fn options(self) -> Options {
        Options::new()
            .arena_size(self.arena)
            .max_mapped_arenas(self.cap)
            .flush_every_ops(self.flush_every_ops)
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Enqueue(Size),
    EnqueueBatch(Vec<Size>),
    EnqueueParts(Size),
    Peek,
    PeekInto,
    Dequeue,
    DequeueInto,
    DequeueBatch(usize),
    Skip,
    Iterate(usize),
    /// Dequeues and keeps the message until the end of the case.
    Hold,
    Drain,
    Flush,
    WaitDurable,
    CloseAndOpen(Geometry),
    DropAndOpen(Geometry),
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        12 => (0usize..200).prop_map(Size::Small),
        3 => (0usize..5000).prop_map(Size::Small),
        3 => (1usize..=3, -200isize..=20).prop_map(|(times, off)| Size::Near(times, off)),
        1 => (0usize..1000).prop_map(Size::Share),
    ]
}

fn geometry() -> impl Strategy<Value = Geometry> {
    let arena = prop_oneof![
        4 => Just(4u64 << 10),
        2 => Just(8 << 10),
        2 => Just(64 << 10),
        1 => Just(4 << 20),
    ];
    let cap = prop_oneof![Just(Some(3)), Just(Some(10)), Just(None)];
    let flush = prop_oneof![4 => Just(None), 1 => Just(Some(1)), 1 => Just(Some(7))];
    (arena, cap, flush).prop_map(|(arena, cap, flush_every_ops)| Geometry {
        arena,
        cap,
        flush_every_ops,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        12 => size().prop_map(Operation::Enqueue),
        3 => prop::collection::vec(size(), 0..8).prop_map(Operation::EnqueueBatch),
        3 => size().prop_map(Operation::EnqueueParts),
        2 => Just(Operation::Peek),
        2 => Just(Operation::PeekInto),
        5 => Just(Operation::Dequeue),
        3 => Just(Operation::DequeueInto),
        2 => (0usize..12).prop_map(Operation::DequeueBatch),
        2 => Just(Operation::Skip),
        1 => (0usize..20).prop_map(Operation::Iterate),
        1 => Just(Operation::Hold),
        1 => Just(Operation::Drain),
        1 => Just(Operation::Flush),
        1 => Just(Operation::WaitDurable),
        1 => geometry().prop_map(Operation::CloseAndOpen),
        1 => geometry().prop_map(Operation::DropAndOpen),
    ]
}

/// What the queue must be: messages in order with their numbers, and the next number.
struct Model {
    messages: VecDeque<(u64, Vec<u8>)>,
    next: u64,
    durable: u64,
}

struct Case<'a> {
    dir: &'a Path,
    geometry: Geometry,
    queue: Option<Queue>,
    model: Model,
    maker: Messages,
    held: Vec<(Message, (u64, Vec<u8>))>,
    buffer: Vec<u8>,
}

/// Long messages are not printed whole.
fn same(got: (u64, &[u8]), wanted: &(u64, Vec<u8>)) -> Result<(), TestCaseError> {
    prop_assert_eq!((got.0, got.1.len()), (wanted.0, wanted.1.len()), "number and length");
    prop_assert!(got.1 == wanted.1, "bytes of message {} ({} bytes) differ", got.0, got.1.len());
    Ok(())
}

impl Case<'_> {
    fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("open between operations")
    }

    fn make(&self, ahead: u64, size: Size) -> Vec<u8> {
        self.maker.of_len(self.model.next + ahead, size.bytes(self.geometry.arena as usize))
    }

    fn put(&mut self, bytes: Vec<u8>) {
        self.model.messages.push_back((self.model.next, bytes));
        self.model.next += 1;
    }

    fn compare_taken(&mut self, got: Option<Message>) -> Result<Option<Message>, TestCaseError> {
        let wanted = self.model.messages.pop_front();
        prop_assert_eq!(got.is_some(), wanted.is_some());
        if let (Some(got), Some(wanted)) = (&got, &wanted) {
            same((got.seq(), got), wanted)?;
        }
        Ok(got)
    }

    fn reopen(&mut self, geometry: Geometry, close: bool) {
        let queue = self.queue.take().expect("open between operations");
        if close {
            queue.close().unwrap();
        } else {
            drop(queue);
        }
        self.geometry = geometry;
        self.queue = Some(geometry.options().open(self.dir).unwrap());
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Enqueue(size) => {
                let bytes = self.make(0, *size);
                prop_assert_eq!(self.queue().enqueue(&bytes).unwrap(), self.model.next);
                self.put(bytes);
            }
            Operation::EnqueueBatch(sizes) => {
                let batch: Vec<_> =
                    (0..).zip(sizes).map(|(ahead, size)| self.make(ahead, *size)).collect();
                let given = self.queue().enqueue_batch(&batch).unwrap();
                if !batch.is_empty() {
                    prop_assert_eq!(given.start, self.model.next);
                }
                prop_assert_eq!(given.end - given.start, batch.len() as u64);
                batch.into_iter().for_each(|bytes| self.put(bytes));
            }
            Operation::EnqueueParts(size) => {
                let bytes = self.make(0, *size);
                let given = self.queue().enqueue_parts(&in_parts(&bytes)).unwrap();
                prop_assert_eq!(given, self.model.next);
                self.put(bytes);
            }
            Operation::Peek => {
                let got = self.queue().peek().unwrap();
                prop_assert_eq!(got.is_some(), !self.model.messages.is_empty());
                if let (Some(got), Some(wanted)) = (&got, self.model.messages.front()) {
                    same((got.seq(), got), wanted)?;
                }
            }
            Operation::PeekInto | Operation::DequeueInto => {
                let take = matches!(operation, Operation::DequeueInto);
                let mut buffer = std::mem::take(&mut self.buffer);
                let got = match take {
                    true => self.queue().dequeue_into(&mut buffer),
                    false => self.queue().peek_into(&mut buffer),
                };
                let got = got.unwrap();
                prop_assert_eq!(got.is_some(), !self.model.messages.is_empty());
                if let (Some(seq), Some(wanted)) = (got, self.model.messages.front()) {
                    same((seq, &buffer), wanted)?;
                }
                if take {
                    self.model.messages.pop_front();
                }
                self.buffer = buffer;
            }
            Operation::Dequeue => {
                let got = self.queue().dequeue().unwrap();
                self.compare_taken(got)?;
            }
            Operation::Hold => {
                let copy = self.model.messages.front().cloned();
                let got = self.queue().dequeue().unwrap();
                let got = self.compare_taken(got)?;
                self.held.extend(got.zip(copy));
            }
            Operation::DequeueBatch(max) => {
                let got = self.queue().dequeue_batch(*max).unwrap();
                // Fewer than asked for is allowed, none is not while there are some.
                prop_assert!(got.len() <= (*max).min(self.model.messages.len()));
                prop_assert!(!got.is_empty() || *max == 0 || self.model.messages.is_empty());
                for message in got {
                    self.compare_taken(Some(message))?;
                }
            }
            Operation::Skip => {
                let wanted = self.model.messages.pop_front().map(|(seq, _)| seq);
                prop_assert_eq!(self.queue().skip().unwrap(), wanted);
            }
            Operation::Iterate(most) => {
                let mut wanted = self.model.messages.iter().take(*most);
                for got in self.queue().iter().take(*most) {
                    let got = got.unwrap();
                    same((got.seq(), &got), wanted.next().expect("no more than there are"))?;
                }
                prop_assert!(wanted.next().is_none(), "the iterator ended early");
            }
            Operation::Drain => {
                while !self.model.messages.is_empty() {
                    self.apply(&Operation::Dequeue)?;
                }
                self.apply(&Operation::Dequeue)?;
            }
            Operation::Flush => {
                self.queue().flush().unwrap();
                prop_assert_eq!(self.queue().durable_seq(), self.model.next);
            }
            Operation::WaitDurable => {
                if let Some(last) = self.model.next.checked_sub(1) {
                    self.queue().wait_durable(last).unwrap();
                    prop_assert_eq!(self.queue().durable_seq(), self.model.next);
                }
            }
            Operation::CloseAndOpen(geometry) => self.reopen(*geometry, true),
            Operation::DropAndOpen(geometry) => self.reopen(*geometry, false),
        }
        self.compare_figures()
    }

    fn compare_figures(&mut self) -> Result<(), TestCaseError> {
        let (queue, model) = (self.queue.as_ref().expect("open"), &mut self.model);
        prop_assert_eq!(queue.len(), model.messages.len() as u64);
        prop_assert_eq!(queue.is_empty(), model.messages.is_empty());
        let durable = queue.durable_seq();
        prop_assert!(
            (model.durable..=model.next).contains(&durable),
            "durable_seq {} went back or ahead",
            durable
        );
        if self.geometry.flush_every_ops == Some(1) {
            prop_assert_eq!(durable, model.next, "flush_every_ops(1)");
        }
        model.durable = durable;
        Ok(())
    }
}

fn run(first: Geometry, operations: &[Operation], key: u64) -> Result<(), TestCaseError> {
    let dir = crate::support::tempdir().unwrap();
    let mut case = Case {
        dir: dir.path(),
        geometry: first,
        queue: Some(first.options().open(dir.path()).unwrap()),
        model: Model { messages: VecDeque::new(), next: 0, durable: 0 },
        maker: Messages::new(key, &[]),
        held: Vec::new(),
        buffer: Vec::new(),
    };
    for operation in operations {
        case.apply(operation)?;
    }
    case.reopen(first, true);
    case.apply(&Operation::Drain)?;
    case.reopen(first, false);
    prop_assert!(case.queue().is_empty());
    drop(case.queue.take());
    for (message, wanted) in &case.held {
        same((message.seq(), message), wanted)?;
    }
    Ok(())
}

#[test]
fn the_queue_agrees_with_a_vec_deque_whatever_is_done() {
    let seed = seed("model");
    let mut bytes = [0; 32];
    for (part, word) in bytes.chunks_mut(8).zip(0..) {
        part.copy_from_slice(&mix(seed ^ word).to_le_bytes());
    }
    let config = Config {
        cases: (100 * effort()).try_into().unwrap(),
        // A failing case is replayed by its seed.
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let cases = (geometry(), prop::collection::vec(operation(), 1..120), any::<u64>());
    if let Err(failure) =
        runner.run(&cases, |(first, operations, key)| run(first, &operations, key))
    {
        panic!("MMQ_SEED={seed}: {failure}");
    }
}
