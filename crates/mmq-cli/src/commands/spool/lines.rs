//! The two ends of a spool: where the lines come from, where they go, and what passed each.

use std::hash::DefaultHasher;
use std::hash::Hasher;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;
use std::thread;
use std::time::Duration;

use mmq::Queue;

use super::Lap;
use crate::failure::Failure;
use crate::failure::Tried;
use crate::framing::missing;
use crate::input::Input;
use crate::output::Output;

/// Lines in the first half of an input of unknown length.
const FIRST_LINES: u64 = 1000;
/// The newest messages, this many, stay in the queue until it has been opened again.
const KEPT_BACK: u64 = 16;
/// The longest time that the taking thread sleeps before it looks whether the input has ended.
const TICK: Duration = Duration::from_millis(2);

/// Whether the reader of the output wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    More,
    NoMore,
}

/// What the two threads of one half share with each other and with the bar.
#[derive(Debug)]
pub(super) struct Shared {
    /// All lines of this half have been put in.
    input_ended: AtomicBool,
    /// One of the threads has given up: the other is to stop.
    stop: AtomicBool,
    bytes_out: AtomicU64,
}

impl Shared {
    pub(super) fn new(bytes_out: u64) -> Shared {
        let bytes_out = AtomicU64::new(bytes_out);
        Shared { input_ended: AtomicBool::new(false), stop: AtomicBool::new(false), bytes_out }
    }

    pub(super) fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Relaxed)
    }

    pub(super) fn input_ended_by(&self, result: Tried<()>) -> Tried<()> {
        self.stop.fetch_or(result.is_err(), Relaxed);
        self.input_ended.store(true, Release);
        result
    }

    pub(super) fn reader_ended_by(&self, result: Tried<()>) -> Tried<Wanted> {
        self.stop.fetch_or(result.is_err(), Relaxed);
        match result {
            Ok(()) => Ok(Wanted::More),
            Err(failure) if failure.is_silent() => Ok(Wanted::NoMore),
            Err(failure) => Err(failure),
        }
    }
}

/// Both ends.
pub(super) struct Lines<'a> {
    pub(super) source: Inlet<'a>,
    pub(super) out: Outlet<'a>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(input: Input<'a>, longest: u64, output: Output<'a>) -> Lines<'a> {
        let (size, reader) = (input.size(), BufReader::with_capacity(1 << 16, input));
        Lines {
            source: Inlet { reader, size, longest, passed: Tally::default() },
            out: Outlet { output, passed: Tally::default() },
        }
    }

    /// What was put in, and what was taken out.
    pub(super) fn passed(&mut self) -> (Tally, Tally) {
        (std::mem::take(&mut self.source.passed), std::mem::take(&mut self.out.passed))
    }
}

pub(super) struct Inlet<'a> {
    reader: BufReader<Input<'a>>,
    /// Length in bytes; `None` for a stream.
    size: Option<u64>,
    /// Bytes of the longest message. A longer line becomes several messages, so memory stays
    /// bounded whatever the input is.
    longest: u64,
    passed: Tally,
}

impl Inlet<'_> {
    /// Puts lines in until this half is over.
    pub(super) fn put_in(&mut self, queue: &Queue, half: Lap, shared: &Shared) -> Tried<()> {
        let mut line = Vec::new();
        while !self.is_over(half) && !shared.stop.load(Relaxed) {
            line.clear();
            let mut piece = (&mut self.reader).take(self.longest);
            let read = piece.read_until(b'\n', &mut line);
            read.map_err(|error| Failure::io(&self.reader.get_ref().name, &error))?;
            if line.is_empty() {
                break;
            }
            let seq = queue.enqueue(&line)?;
            self.passed.add(seq, &line);
        }
        Ok(())
    }

    fn is_over(&self, half: Lap) -> bool {
        match (half, self.size) {
            (Lap::First, Some(size)) => self.passed.bytes >= size.div_ceil(2),
            (Lap::First, None) => self.passed.messages >= FIRST_LINES,
            (Lap::Second, _) => false,
        }
    }
}

pub(super) struct Outlet<'a> {
    output: Output<'a>,
    pub(super) passed: Tally,
}

impl Outlet<'_> {
    /// Takes messages out and writes them until the input has ended and, in the second half, the
    /// queue is empty. In the first half the newest messages stay inside.
    pub(super) fn take_out(&mut self, queue: &Queue, half: Lap, shared: &Shared) -> Tried<()> {
        while !shared.stop.load(Relaxed) {
            // Read before the look at the queue: only if the input had ended by then, an empty
            // queue stays empty.
            let input_ended = shared.input_ended.load(Acquire);
            let passed = &mut self.passed;
            let message = match half {
                Lap::First if input_ended => break,
                Lap::First if queue.len() <= KEPT_BACK => {
                    thread::sleep(TICK);
                    None
                }
                _ if input_ended => mmq::past_gaps(|| queue.dequeue(), |gap| passed.miss(gap))?,
                _ => mmq::past_gaps(|| queue.dequeue_timeout(TICK), |gap| passed.miss(gap))?,
            };
            match message {
                Some(message) => {
                    self.passed.add(message.seq(), &message);
                    self.output.push(&message)?;
                    shared.bytes_out.store(self.passed.bytes, Relaxed);
                }
                None if input_ended => break,
                // The input is slow: show what came.
                None => self.output.flush()?,
            }
        }
        self.output.flush()
    }
}

/// The messages that passed one end of the queue. The two ends agree when the same messages passed
/// both in the same order.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Sequence number of the last message.
    last: Option<u64>,
    /// A sequence number did not follow the one before it.
    out_of_order: bool,
    /// Messages that will never come, a text for each gap.
    pub(super) missing: u64,
    pub(super) reported: Vec<String>,
    checksum: DefaultHasher,
}

impl Tally {
    fn add(&mut self, seq: u64, message: &[u8]) {
        self.messages += 1;
        self.bytes += message.len() as u64;
        self.out_of_order |= self.last.is_some_and(|last| seq != last + 1);
        self.last = Some(seq);
        self.checksum.write_u64(message.len() as u64);
        self.checksum.write(message);
    }

    /// Counts the messages of a gap. Later ones still come.
    fn miss(&mut self, gap: mmq::Gap) {
        self.reported.push(gap.to_string());
        self.missing += missing(&gap);
    }

    pub(super) fn agrees_with(&self, other: &Tally) -> bool {
        (self.messages, self.bytes, self.last) == (other.messages, other.bytes, other.last)
            && !self.out_of_order
            && !other.out_of_order
            && self.checksum.finish() == other.checksum.finish()
    }
}
