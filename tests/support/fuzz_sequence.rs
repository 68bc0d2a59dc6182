//! What the fuzz target `sequence` runs: bytes choose steps, the steps are taken with a queue on
//! real files, with deaths of the process between them, and the specification says after each step
//! what must have come and which figures the queue must show. At the end the files are read to the
//! end, copied away or damaged.
//!
//! A failing sequence is shrunk: steps go for as long as it fails. What is left is printed.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::mem::take;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};

use mmq::{Delivery, Error, GapCause, Message, Queue, Result};

use self::files::{die, files, put};
use self::spec::{Next, Spec};
use self::steps::{Bytes, Gone, NAMES, Put, Setting, Size, Step, Take};

/// Bytes that say how it ends.
const END: usize = 24;

/// In memory where that is possible: a fuzzer makes thousands of queues a second.
fn scratch() -> tempfile::TempDir {
    crate::guard::tempdir_in_memory().expect("a scratch directory")
}

/// Bytes that say which message they are.
fn content(seq: u64, len: usize) -> Vec<u8> {
    let words =
        (0..len.div_ceil(8) as u64).map(|at| (seq << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes: Vec<u8> = words.flat_map(|word| (word ^ word >> 29).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// A queue, and what it must be.
struct Sequence {
    dir: tempfile::TempDir,
    setting: Setting,
    /// None while it is being opened.
    queue: Option<Queue>,
    spec: Spec,
    /// By consumer and number.
    deliveries: BTreeMap<(usize, u64), Delivery>,
    /// Taken, and compared when the queue has long been dropped.
    held: Vec<Message>,
}

/// Calls a method of the queue or of one of its other consumers.
macro_rules! ask {
    ($queue:expr, $which:expr, $method:ident($($argument:expr),*)) => {
        match $which {
            0 => $queue.$method($($argument),*),
            which => $queue.consumer(NAMES[which]).expect("a consumer").$method($($argument),*),
        }
    };
}

#[path = "fuzz_sequence_end.rs"]
mod end;
#[path = "fuzz_figures.rs"]
mod figures;
#[path = "fuzz_files.rs"]
mod files;
#[path = "spec.rs"]
mod spec;
#[path = "fuzz_steps.rs"]
mod steps;

/// The first bytes are the end, then come options, then steps.
pub(crate) fn sequence(data: &[u8]) {
    let (end, rest) = data.split_at(data.len().min(END));
    let mut bytes = Bytes(rest);
    let (setting, steps) = (bytes.setting(), bytes.steps());
    let fails = |steps: &[Step]| catch_unwind(AssertUnwindSafe(|| play(setting, steps, end))).err();
    let Some(panic) = fails(&steps) else { return };
    // (A fuzzer's own hook has ended the process: the input that it wrote is shrunk by the test.)
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let left = shrink(steps, |steps| fails(steps).is_some_and(|it| words(&*it) == words(&*panic)));
    set_hook(hook);
    println!("as little as this is enough, with {setting:?}:");
    left.iter().for_each(|step| println!("  {step:?}"));
    println!("and these bytes say how it ends: {end:?}");
    resume_unwind(fails(&left).unwrap_or(panic));
}

/// The first words of a failure, without its numbers.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map_or("", |text| text);
    text.split(|letter: char| !letter.is_alphabetic()).filter(|it| !it.is_empty()).take(4).collect()
}

/// Leaves out every step that the failure does not need, many at once where that is possible.
fn shrink(mut steps: Vec<Step>, fails: impl Fn(&[Step]) -> bool) -> Vec<Step> {
    let mut count = steps.len();
    while count > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..steps.len().min(at + count));
            if fails(&fewer) { steps = fewer } else { at += count }
        }
        count /= 2;
    }
    steps
}

fn play(setting: Setting, steps: &[Step], end: &[u8]) {
    let dir = scratch();
    let queue = Some(setting.options().open(dir.path()).expect("a new queue"));
    let spec = Spec::new(setting.rules);
    let (deliveries, held) = (BTreeMap::new(), Vec::new());
    let mut sequence = Sequence { dir, setting, queue, spec, deliveries, held };
    for step in steps {
        sequence.step(*step);
        sequence.check_figures();
    }
    sequence.end(Bytes(end));
}

impl Sequence {
    fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("it is open")
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Enqueue(put, count, size) => self.enqueue(put, count, size),
            Step::Take(who, Take::Batch, most) => self.take_batch(who, most),
            Step::Take(who, take, count) => (0..count).for_each(|_| _ = self.take(who, take)),
            Step::Peek(who) => {
                let wanted = self.spec.next(who);
                let got = ask!(self.queue(), who, peek());
                self.compare(who, wanted, got.map(|message| message.map(|it| self.check(&it))));
            }
            Step::PeekInto(who) => {
                let (wanted, mut bytes) = (self.spec.next(who), b"what was there".to_vec());
                let got = ask!(self.queue(), who, peek_into(&mut bytes));
                let got = self.compare(who, wanted, got);
                got.into_iter().for_each(|seq| self.check_bytes(seq, &bytes));
            }
            Step::Iterate(who, most) => self.iterate(who, most),
            Step::Drain(who) => self.drain(who),
            Step::Receive(who, count) => (0..count).for_each(|_| self.receive(who)),
            Step::Ack(share) => {
                if let Some(((who, seq), delivery)) = self.delivery(share) {
                    delivery.ack().expect("an acknowledgement");
                    self.spec.acknowledges(who, seq);
                }
            }
            Step::Nack(share) => {
                if let Some(((who, seq), delivery)) = self.delivery(share) {
                    delivery.nack();
                    self.spec.gives_back(who, seq);
                }
            }
            Step::Limit(who, limit) => {
                self.joins(who);
                ask!(self.queue(), who, set_max_in_flight(limit)).expect("a limit");
                self.spec.consumer(who).limit = limit;
            }
            Step::Seek(who, share) => self.seek(who, share),
            Step::Fork(who, to) => self.fork(who, to),
            Step::Remove(who) => self.remove(who),
            Step::Flush => {
                self.queue().flush().expect("a flush");
                self.spec.flushes();
            }
            Step::WaitDurable => {
                if let Some(last) = self.spec.end().checked_sub(1) {
                    self.queue().wait_durable(last).expect("a flush");
                    self.spec.durable = self.spec.end();
                }
            }
            Step::Reopen(gone, setting) => self.reopen(gone, setting),
        }
    }

    fn enqueue(&mut self, put: Put, count: usize, size: Size) {
        let (end, len) = (self.spec.end(), size.bytes(self.setting.arena));
        let new = |at: usize| content(end + at as u64, len + at);
        match put {
            Put::Batch => {
                let messages: Vec<_> = (0..count).map(new).collect();
                let put = self.queue().enqueue_batch(&messages);
                self.has_put(put, &messages);
            }
            Put::InParts => {
                let (bytes, third) = (new(0), len / 3);
                let parts = [&bytes[..third], &bytes[third..2 * third], &bytes[2 * third..]];
                let put = self.queue().enqueue_parts(&parts.map(IoSlice::new));
                self.has_put(put.map(|seq| seq..seq + 1), &[bytes]);
            }
            Put::OneByOne => (0..count).for_each(|_| {
                let bytes = content(self.spec.end(), len);
                let put = self.queue().enqueue(&bytes);
                self.has_put(put.map(|seq| seq..seq + 1), &[bytes]);
            }),
        }
    }

    fn has_put(&mut self, put: Result<Range<u64>>, messages: &[Vec<u8>]) {
        let lens: Vec<usize> = messages.iter().map(Vec::len).collect();
        match put {
            // (A put drops the oldest: a read of the same step must know.)
            Ok(range) if !lens.is_empty() => self.spec.puts(range, &lens),
            Ok(range) => assert!(range.is_empty(), "{range:?} for no message"),
            Err(error) => {
                let is_known = error.is_full() || matches!(error, Error::MessageTooLarge { .. });
                assert!(is_known && self.spec.may_refuse(&lens), "{error} for {lens:?}");
            }
        }
    }

    fn check(&self, message: &Message) -> u64 {
        self.check_bytes(message.seq(), message);
        message.seq()
    }

    fn check_bytes(&self, seq: u64, bytes: &[u8]) {
        check(&self.spec, seq, bytes);
    }

    /// Holds what a read gave to what it had to give. Returns the number of the message that came.
    fn compare(&mut self, who: usize, wanted: Next, got: Result<Option<u64>>) -> Option<u64> {
        match (got, wanted) {
            (Ok(Some(seq)), Next::Message(wanted)) if seq == wanted => Some(seq),
            (Ok(None), Next::Nothing) => None,
            (Err(Error::Gap(gap)), Next::Gap(..)) => {
                assert_eq!(gap.cause, GapCause::Dropped, "{gap}");
                self.spec.misses(who, gap.first, gap.last);
                None
            }
            (got, wanted) => panic!("consumer {who} got {got:?}, not {wanted:?}"),
        }
    }

    /// The consumer is there, from now on at least.
    fn joins(&mut self, who: usize) {
        if !self.spec.consumers.contains_key(&who) {
            self.step(Step::Peek(who));
        }
    }

    /// What the specification wanted, so that a caller knows when nothing is left.
    fn take(&mut self, who: usize, take: Take) -> Next {
        let wanted = self.spec.next(who);
        let mut bytes = b"what was there".to_vec();
        let got = match take {
            Take::DequeueInto => ask!(self.queue(), who, dequeue_into(&mut bytes)),
            Take::Skip => ask!(self.queue(), who, skip()),
            _ => ask!(self.queue(), who, dequeue()).map(|message| {
                let message = message?;
                let seq = self.check(&message);
                if let Take::Hold = take {
                    self.held.push(message);
                }
                Some(seq)
            }),
        };
        if let Some(seq) = self.compare(who, wanted, got) {
            if let Take::DequeueInto = take {
                self.check_bytes(seq, &bytes);
            }
            self.spec.takes(who, seq);
        }
        wanted
    }

    /// Fewer than asked for is allowed, none is not while there are some.
    fn take_batch(&mut self, who: usize, most: usize) {
        self.joins(who);
        let got = ask!(self.queue(), who, dequeue_batch(most));
        let messages = match got {
            Ok(messages) => messages,
            Err(error) => {
                let wanted = self.spec.next(who);
                self.compare(who, wanted, Err(error));
                return;
            }
        };
        assert!(messages.len() <= most, "{} of {most} messages", messages.len());
        if messages.is_empty() && most > 0 {
            assert_eq!(self.spec.next(who), Next::Nothing, "an empty batch for {who}");
        }
        for message in &messages {
            let (wanted, seq) = (self.spec.next(who), self.check(message));
            self.compare(who, wanted, Ok(Some(seq)));
            self.spec.takes(who, seq);
        }
    }

    fn drain(&mut self, who: usize) {
        while self.take(who, Take::Skip) != Next::Nothing {}
    }

    /// A look ahead shows every message that was never handed out, and changes nothing. (Before its
    /// first read the queue's own consumer looks from the oldest message on.)
    fn iterate(&mut self, who: usize, most: usize) {
        if who > 0 {
            self.joins(who);
        }
        let held = self.spec.held();
        let wanted: Vec<u64> = match self.spec.consumers.get(&who) {
            Some(consumer) => consumer.ahead(held.clone()).take(most).collect(),
            None => held.clone().take(most).collect(),
        };
        let mut came = Vec::new();
        for looked in ask!(self.queue(), who, iter()) {
            if came.len() == most {
                break;
            }
            match looked {
                Ok(message) => came.push(self.check(&message)),
                Err(Error::Gap(gap)) => {
                    assert!(gap.cause == GapCause::Dropped && gap.last < held.start, "{gap}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(came, wanted, "what {who} sees ahead");
    }

    fn receive(&mut self, who: usize) {
        if !self.spec.consumer(who).may_scatter() {
            return;
        }
        let wanted = self.spec.next_delivery(who);
        let (mut delivery, got) = match ask!(self.queue(), who, receive()) {
            Ok(delivery) => {
                let seq = delivery.as_ref().map(|delivery| delivery.seq());
                (delivery, Ok(seq))
            }
            Err(error) => (None, Err(error)),
        };
        if let (Some(seq), Some(delivery)) = (self.compare(who, wanted, got), delivery.take()) {
            self.check_bytes(seq, &delivery);
            assert_eq!(delivery.attempts(), self.spec.receives(who, seq), "attempts of {seq}");
            self.deliveries.insert((who, seq), delivery);
        }
    }

    fn delivery(&mut self, share: usize) -> Option<((usize, u64), Delivery)> {
        let nth = (share * self.deliveries.len()) >> 16;
        let key = *self.deliveries.keys().nth(nth)?;
        self.deliveries.remove_entry(&key)
    }

    fn deliveries_of(&mut self, who: usize) -> Vec<Delivery> {
        let all = take(&mut self.deliveries).into_iter();
        let (of, others): (BTreeMap<_, _>, _) = all.partition(|((other, _), _)| *other == who);
        self.deliveries = others;
        of.into_values().collect()
    }

    fn seek(&mut self, who: usize, share: usize) {
        self.joins(who);
        let seq = (share as u64 * (self.spec.end() + 3)) >> 16;
        let sought = ask!(self.queue(), who, seek(seq));
        if let Err(error) = &sought {
            assert!(matches!(error, Error::NotFound { .. }), "{error}");
        }
        self.spec.seeks(who, seq, sought.is_ok());
        if sought.is_ok() {
            for delivery in self.deliveries_of(who) {
                match delivery.seq() % 2 {
                    0 => delivery.ack().expect("a late acknowledgement"),
                    _ => delivery.nack(),
                }
            }
        }
    }

    fn fork(&mut self, who: usize, to: usize) {
        self.joins(who);
        let made = ask!(self.queue(), who, fork(NAMES[to]));
        if let Err(error) = &made {
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        }
        self.spec.forks(who, to, made.is_ok());
    }

    fn remove(&mut self, who: usize) {
        let removed = self.queue().remove_consumer(NAMES[who]);
        if let Err(error) = &removed {
            assert!(matches!(error, Error::NotFound { .. }), "{error}");
        }
        self.spec.removes(who, removed.is_ok());
        for delivery in self.deliveries_of(who) {
            let answer = delivery.ack();
            assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
        }
    }

    fn reopen(&mut self, gone: Gone, setting: Setting) {
        let queue = self.queue.take().expect("it is open");
        match gone {
            Gone::Closed => queue.close().expect("closing"),
            Gone::Dropped => {
                // Some are given back before, some outlive the queue.
                self.deliveries.retain(|(_, seq), _| seq % 2 == 0);
                drop(queue);
            }
            Gone::Dead => die(self.dir.path(), || {
                self.deliveries.clear();
                drop(queue);
            }),
        }
        for delivery in take(&mut self.deliveries).into_values() {
            let answer = delivery.ack();
            assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
        }
        match gone {
            Gone::Dead => self.spec.comes_back(setting.rules),
            Gone::Closed | Gone::Dropped => self.spec.reopens(setting.rules),
        }
        self.setting = setting;
        self.queue = Some(setting.options().open(self.dir.path()).expect("it opens again"));
    }
}

fn check(spec: &Spec, seq: u64, bytes: &[u8]) {
    let len = spec.lens.get(seq as usize).copied();
    assert_eq!(Some(bytes.len()), len, "the length of message {seq}");
    assert!(bytes == content(seq, bytes.len()), "message {seq} is not what was put in");
}

fn ask_named(queue: &Queue, who: usize) -> mmq::Consumer {
    queue.consumer(NAMES[who]).expect("a consumer")
}
