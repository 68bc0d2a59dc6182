//! What threads can do in a life, what their calls may return, and how it is drawn.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Gap;
use crate::options::Options;
use crate::stats::Stats;
use crate::tests::sim::Rng;

/// The consumers of every world.
pub(super) const NAMES: [&str; 2] = ["", "audit"];
/// One that comes and goes, and of which nothing is expected but that nothing false is delivered.
pub(super) const GUEST: &str = "guest";
/// It writes pages back.
pub(super) const KERNEL: &str = "kernel";
/// The one that closes the queue while others use it.
pub(super) const CLOSER: &str = "closer";

/// One thread and its acts.
#[derive(Debug, Clone)]
pub(super) struct Cast<A = Act> {
    pub(super) name: String,
    pub(super) acts: Vec<A>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Enqueue(usize),
    /// One message, in parts.
    Parts(usize),
    /// So many messages of that length.
    Batch(usize, usize),
    Take(usize),
    /// Up to so many.
    TakeBatch(usize, usize),
    Skip(usize),
    /// Looks at the next message, and leaves it.
    Peek(usize),
    /// For at most so many milliseconds.
    Wait(usize, u64),
    /// For as long as it takes: ended by a message, or by the end of the queue.
    WaitForever(usize),
    /// As `WaitForever`, by a waker that asks the queue something.
    Task(usize),
    Receive(usize),
    ReceiveForever(usize),
    /// How many deliveries there may be at a time.
    Limit(usize, Option<u32>),
    /// The oldest delivery that this thread has.
    Ack,
    Nack,
    Flush,
    WaitDurable,
    Look,
    Guest(u64),
    Figures,
    Sleep(u64),
    Close,
    /// Ends all waits that have begun.
    Interrupt,
    /// As `WaitDurable`, and may be interrupted.
    Durably,
    /// Removes the default consumer.
    Remove,
    /// The kernel writes the pages of some file by itself, and the disk refuses.
    WriteBack(u64),
}

impl Act {
    /// Payload that it puts in.
    pub(super) fn bytes(self) -> usize {
        match self {
            Act::Enqueue(len) | Act::Parts(len) => len,
            Act::Batch(count, len) => count * len,
            _ => 0,
        }
    }
}

/// What came of an act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It had not ended when the process died.
    Pending,
    Numbers(Range<u64>),
    /// Number and identity of each.
    Messages(Vec<(u64, u64)>),
    Skipped(u64),
    Gap(Gap),
    Nothing,
    Done,
    /// Nothing has changed: no room.
    Refused,
    /// Nothing has changed: somebody ended the wait.
    Interrupted,
    /// Nothing has changed: the consumer was removed.
    Gone,
    Failed(String),
}

/// One act of a thread, between two steps.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) thread: String,
    pub(super) act: Act,
    /// Of the messages that it enqueues.
    pub(super) ids: Vec<u64>,
    /// Of the delivery that it answers.
    pub(super) seq: Option<u64>,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// It had begun a wait without an end by that step: who stops such waits later means it, too.
    pub(super) waits: Option<u64>,
    pub(super) answer: Answer,
}

#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) events: Vec<Event>,
    /// Nobody had anything to do any more when this was reached, at that step.
    pub(super) quiet_at: Option<u64>,
    /// What the queue said of itself then.
    pub(super) figures: Option<Stats>,
    pub(super) opened: bool,
    /// The consumers that every world has are there, and on disk.
    pub(super) flushed: bool,
    pub(super) closed: bool,
    pub(super) close_failed: bool,
    /// What the files held when the first close had ended.
    pub(super) contents: Option<BTreeMap<String, Vec<u8>>>,
    /// Everything below that number was durable when it was opened.
    pub(super) durable: u64,
}

pub(super) type Reported = Arc<Mutex<Story>>;

/// A message says who it is: its identity, its length, and bytes that are made from both.
pub(super) fn content(id: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(id ^ (len as u64) << 48);
    let mut bytes = id.to_le_bytes().to_vec();
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(len.max(8));
    bytes
}

/// The identity of a message that is whole.
pub(super) fn identity(bytes: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (content(id, bytes.len()) == bytes).then_some(id)
}

/// The identities of the messages that an act enqueues, of the cast with that number in a life.
pub(super) fn ids_of(life: u64, cast: u64, number: u64, act: Act) -> Vec<u64> {
    let life = life & 0xFFFF_FFFF;
    let count = match act {
        Act::Enqueue(_) | Act::Parts(_) => 1,
        Act::Batch(count, _) => count as u64,
        _ => 0,
    };
    (0..count).map(|nth| life << 32 | cast << 24 | number << 8 | nth).collect()
}

pub(super) fn draw(rng: &mut Rng, options: &Options) -> Vec<Cast> {
    let mut casts = Vec::new();
    let long = 2 * options.arena_size;
    let length = |rng: &mut Rng| match rng.below(10) {
        0..5 => 8 + rng.below(60) as usize,
        5..8 => 8 + rng.below(1500) as usize,
        8 => 8 + rng.below(options.arena_size) as usize,
        _ => 8 + rng.below(long) as usize,
    };
    // Some send so much that the limit is felt.
    let is_much = rng.percent(12);
    let (few, many) = if is_much { (12, 20) } else { (2, 8) };
    for number in 0..1 + rng.below(3) {
        let acts = (0..few + rng.below(many)).map(|_| match rng.below(10) {
            0..3 if is_much => Act::Enqueue(8 + rng.below(options.arena_size) as usize),
            0..6 => Act::Enqueue(length(rng)),
            // (Two are drawn: the seeds of the table of planted bugs count on it.)
            6 => Act::Parts([length(rng), length(rng)][rng.below(2) as usize]),
            7 | 8 => Act::Batch(2 + rng.below(3) as usize, length(rng)),
            _ => [Act::Flush, Act::Sleep(1 + rng.below(30))][rng.below(2) as usize],
        });
        casts.push(Cast { name: format!("producer {number}"), acts: acts.collect() });
    }
    for (which, name) in NAMES.iter().enumerate() {
        let mode = rng.below(10);
        for number in 0..rng.below(4) {
            // Some consumers only deliver, few have both kinds of readers.
            let delivers = mode < 3 || mode == 3 && number % 2 == 0;
            let acts = (0..2 + rng.below(10)).map(|_| match rng.below(10) {
                0..4 if delivers => Act::Receive(which),
                4 if delivers => Act::ReceiveForever(which),
                5 if delivers => Act::Limit(which, [None, Some(1), Some(2)][rng.below(3) as usize]),
                6..9 if delivers => Act::Ack,
                _ if delivers => Act::Nack,
                0..5 => Act::Take(which),
                5 => Act::TakeBatch(which, 1 + rng.below(4) as usize),
                6 => [Act::Skip(which), Act::Peek(which)][rng.below(2) as usize],
                7 => Act::Wait(which, rng.below(40)),
                8 => Act::Task(which),
                _ => Act::WaitForever(which),
            });
            casts.push(Cast { name: format!("reader {number} of {name:?}"), acts: acts.collect() });
        }
    }
    for number in 0..rng.below(3) {
        let acts = (0..1 + rng.below(5)).map(|_| match rng.below(8) {
            0..2 => Act::Flush,
            2 => Act::WaitDurable,
            3 => Act::Look,
            4 | 5 => Act::Guest(rng.next()),
            6 => Act::Figures,
            _ => Act::Sleep(1 + rng.below(60)),
        });
        casts.push(Cast { name: format!("other {number}"), acts: acts.collect() });
    }
    if rng.percent(6) {
        let acts = vec![Act::Sleep(rng.below(20)), Act::WriteBack(rng.next())];
        casts.push(Cast { name: KERNEL.into(), acts });
    }
    if rng.percent(20) {
        // The storage worker alone looks at ages, and has ended when a close returns.
        casts.iter_mut().for_each(|cast| cast.acts.retain(|act| *act != Act::Look));
        casts.push(Cast { name: CLOSER.into(), acts: vec![Act::Sleep(rng.below(30)), Act::Close] });
    }
    casts
}
