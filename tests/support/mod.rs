//! What the tests share: seeded random numbers, messages that can be recognised, draining, and in
//! the files beside this one the rest.

#![allow(
    dead_code,
    unused_imports,
    reason = "every test binary compiles this file and uses its own part of it"
)]

pub(crate) mod guard;

use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub(crate) use guard::{built, command, tempdir};
use mmq::{Error, Gap, Message, Queue};

mod directory;
mod effort;
mod skip;
mod system;

pub(crate) use directory::{
    Mapped, copy_directory, disk, mapped, mapped_beside, names, open_files, segments,
};
pub(crate) use effort::{alone, comes, effort, first, is_whole, rounds, sample, some_of};
pub(crate) use skip::skip;
pub(crate) use system::{mounts_are_numbered, readable};

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;

/// The seed of a test: `MMQ_SEED` when it is set, with `MMQ_SEED=N..` one of its own that follows
/// from N, else a fixed one, so that a run that passed passes again. Printed, so that a failure can
/// be replayed.
pub(crate) fn seed(test: &str) -> u64 {
    let own = test.bytes().fold(0x004d_4d51, |seed: u64, byte| {
        (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let seed = alone().unwrap_or_else(|| first().map_or(own, |first| mix(own ^ first)));
    println!("{test}: replay with MMQ_SEED={seed}");
    seed
}

/// A number from the environment: what a test says to its own child.
pub(crate) fn count(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => {
            text.trim().parse().unwrap_or_else(|_| panic!("{variable} is a decimal number"))
        }
        Err(_) => default,
    }
}

/// splitmix64's finaliser: every bit of the input reaches every bit of the output.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Random numbers that a seed repeats.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// 0 to `bound - 1`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.below((range.end() - range.start() + 1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// Every message of [`MARKED`] bytes or more begins with this, its key and its length, so it can be
/// found in a file.
pub(crate) const MARK: [u8; 8] = *b"mmq\xfatst\xfb";
pub(crate) const MARKED: usize = 24;

/// Messages whose length and every byte follow from a seed and a key (the sequence number, mostly).
#[derive(Debug, Clone)]
pub(crate) struct Messages {
    seed: u64,
    /// A size class is chosen evenly; a class named twice comes twice as often.
    sizes: Vec<RangeInclusive<usize>>,
}

/// A prime, so that no period of the files' geometry divides the fill's.
const FILL_PERIOD: usize = 65521;

fn fill() -> &'static [u8] {
    static FILL: OnceLock<Vec<u8>> = OnceLock::new();
    FILL.get_or_init(|| (0..FILL_PERIOD as u64).map(|n| mix(n ^ 0x6d6d_7100) as u8).collect())
}

impl Messages {
    pub(crate) fn new(seed: u64, sizes: &[RangeInclusive<usize>]) -> Self {
        Messages { seed, sizes: sizes.to_vec() }
    }

    pub(crate) fn len_of(&self, key: u64) -> usize {
        let mut random = Random::new(self.seed ^ mix(key));
        let class = random.pick(&self.sizes).clone();
        random.size(class)
    }

    pub(crate) fn bytes(&self, key: u64) -> Vec<u8> {
        self.of_len(key, self.len_of(key))
    }

    pub(crate) fn of_len(&self, key: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.write(key, &mut bytes);
        bytes
    }

    /// Fills `bytes` with the message of `key` that has just that length.
    pub(crate) fn write(&self, key: u64, bytes: &mut [u8]) {
        let len = bytes.len() as u64;
        let mut at = mix(self.seed ^ mix(key) ^ len.rotate_left(32)) as usize % FILL_PERIOD;
        let mut rest = bytes;
        if rest.len() >= MARKED {
            let (head, tail) = rest.split_at_mut(MARKED);
            head[..8].copy_from_slice(&MARK);
            head[8..16].copy_from_slice(&key.to_le_bytes());
            head[16..].copy_from_slice(&len.to_le_bytes());
            rest = tail;
        }
        while !rest.is_empty() {
            let step = rest.len().min(FILL_PERIOD - at);
            let (head, tail) = rest.split_at_mut(step);
            head.copy_from_slice(&fill()[at..at + step]);
            rest = tail;
            at = 0;
        }
    }

    /// Panics unless `bytes` is the message of `key`, with the length that follows from the key.
    #[track_caller]
    pub(crate) fn check(&self, key: u64, bytes: &[u8]) {
        self.check_len(key, self.len_of(key), bytes);
    }

    /// Panics unless `bytes` is the message of `key` of that length.
    #[track_caller]
    pub(crate) fn check_len(&self, key: u64, len: usize, bytes: &[u8]) {
        assert_eq!(bytes.len(), len, "length of message {key}");
        let wanted = self.of_len(key, len);
        if bytes != wanted {
            let at = bytes.iter().zip(&wanted).position(|(a, b)| a != b);
            panic!("message {key} of {len} bytes is not what was enqueued, first at byte {at:?}");
        }
    }
}

/// One thing that is reported to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    Message(u64),
    Gap(Gap),
}

/// Everything that reads reported until the queue was empty, in order.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    pub(crate) reported: Vec<Reported>,
}

impl Drained {
    pub(crate) fn messages(&self) -> Vec<u64> {
        let seq = |reported: &Reported| {
            if let Reported::Message(seq) = reported { Some(*seq) } else { None }
        };
        self.reported.iter().filter_map(seq).collect()
    }

    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let gap =
            |reported: &Reported| if let Reported::Gap(gap) = reported { Some(*gap) } else { None };
        self.reported.iter().filter_map(gap).collect()
    }

    /// The numbers reported, as `first..end`, `None` when nothing was reported. Panics unless each
    /// number is reported once and in order: a message or a gap begins where the one before ended.
    #[track_caller]
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let ends = |reported: &Reported| match reported {
            Reported::Message(seq) => (*seq, seq + 1),
            Reported::Gap(gap) => (gap.first, gap.last + 1),
        };
        let (first, mut end) = ends(self.reported.first()?);
        for reported in &self.reported[1..] {
            let (begin, next) = ends(reported);
            assert_eq!(begin, end, "{reported:?} does not begin where the report before it ended");
            assert!(next > begin, "{reported:?} covers nothing");
            end = next;
        }
        Some((first, end))
    }
}

/// Dequeues until the queue is empty and hands every message to `check`. Panics when a reader is
/// reports more often than `limit`, and on any error but a gap.
#[track_caller]
pub(crate) fn drain(queue: &Queue, limit: u64, check: impl FnMut(u64, &[u8])) -> Drained {
    // Each way of taking a message has its turn.
    let mut turn = 0;
    let take = || {
        turn += 1;
        let mut bytes = b"what it held before".to_vec();
        match turn % 4 {
            0 => return Ok(queue.dequeue()?.map(owned)),
            1 => {
                // Damage is reported by the first of the two.
                let peeked = queue.peek_into(&mut bytes)?;
                let (before, again) = (bytes.clone(), queue.peek_into(&mut bytes)?);
                assert!(
                    peeked == again && (peeked.is_none() || before == bytes),
                    "peeked {peeked:?}, then {again:?}"
                );
            }
            2 => drop(queue.peek()?),
            _ => {}
        }
        Ok(queue.dequeue_into(&mut bytes)?.map(|seq| (seq, bytes)))
    };
    drain_with(take, limit, check)
}

/// The same for whoever dequeues.
#[track_caller]
pub(crate) fn drain_by(
    mut dequeue: impl FnMut() -> mmq::Result<Option<Message>>,
    limit: u64,
    check: impl FnMut(u64, &[u8]),
) -> Drained {
    drain_with(|| Ok(dequeue()?.map(owned)), limit, check)
}

fn owned(message: Message) -> (u64, Vec<u8>) {
    (message.seq(), message.into_vec())
}

/// The same for whoever takes bytes with their number.
#[track_caller]
pub(crate) fn drain_with(
    mut take: impl FnMut() -> mmq::Result<Option<(u64, Vec<u8>)>>,
    limit: u64,
    mut check: impl FnMut(u64, &[u8]),
) -> Drained {
    let mut drained = Drained::default();
    loop {
        assert!(drained.reported.len() as u64 <= limit, "reads reported more than {limit} things");
        match take() {
            Ok(Some((seq, bytes))) => {
                check(seq, &bytes);
                drained.reported.push(Reported::Message(seq));
            }
            Ok(None) => return drained,
            Err(Error::Gap(gap)) => drained.reported.push(Reported::Gap(gap)),
            Err(error) => panic!("dequeue: {error}"),
        }
    }
}

/// Dequeues `from..end` and panics unless these very messages come, with no gap, and then nothing.
#[track_caller]
pub(crate) fn drain_exactly(queue: &Queue, messages: &Messages, from: u64, end: u64) {
    assert_eq!(queue.len(), end - from, "len before draining {from}..{end}");
    let drained = drain(queue, end - from + 8, |seq, bytes| messages.check(seq, bytes));
    assert_eq!(drained.gaps(), [], "gaps in {from}..{end}");
    assert_eq!(drained.span(), (from < end).then_some((from, end)));
    assert_eq!(queue.len(), 0);
    assert!(queue.is_empty());
}

/// Enqueues the messages of the keys `from..end` and panics unless key and sequence number agree.
#[track_caller]
pub(crate) fn fill_queue(queue: &Queue, messages: &Messages, from: u64, end: u64) {
    for seq in from..end {
        assert_eq!(queue.enqueue(messages.bytes(seq)).unwrap(), seq);
    }
}

/// This test binary once more, to run one test in a process of its own.
pub(crate) fn itself(test: &str) -> Command {
    let mut command = built(std::env::current_exe().expect("the path of the test binary"));
    command.args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"]);
    command
}

/// Runs `body` in a thread of its own and panics when it does not return: a hang becomes a failure.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        // The receiver is gone only when the limit has passed, and then the test has failed
        // already.
        let _ = sender.send(());
        result
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = receiver.recv_timeout(limit) {
        panic!("still running after {limit:?}");
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits for what a background thread does in its own time.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "not after 20 seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The bytes in three parts, as a gathering call takes them.
pub(crate) fn in_parts(bytes: &[u8]) -> [std::io::IoSlice<'_>; 3] {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    [first, second, third].map(std::io::IoSlice::new)
}
