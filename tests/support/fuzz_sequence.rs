//! What the fuzz target `sequence` runs: the whole API as a sequence of operations, with deaths of
//! the process between them, on real files and against a model; at the end the files are copied
//! away or damaged.
//!
//! Each message comes to each consumer once, in order and as it was put in, whatever dies between;
//! what was flushed is there in a copy of the files; and damaged files open, or the error is the
//! one that is documented.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;
use std::path::Path;

use mmq::{Delivery, Error, Message, Options, Queue, Result};

use self::place::Place;

/// The first one is the queue's own.
const NAMES: [&str; 4] = ["", "audit", "mail", "a name of more than sixteen bytes"];

/// Bytes that say how it ends.
const END: usize = 24;
/// Operations of one sequence.
const MOST: usize = 400;

/// In memory where that is possible: a fuzzer makes thousands of queues a second.
fn scratch() -> tempfile::TempDir {
    crate::guard::tempdir_in_memory().expect("a scratch directory")
}

/// The fuzzer's bytes; zeros behind their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn below(&mut self, end: usize) -> usize {
        let count = if end > 256 { 2 } else { 1 };
        (0..count).fold(0, |sum, _| sum << 8 | usize::from(self.byte())) % end
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn options(&mut self) -> Options {
        Options::new()
            .arena_size(4096 << self.below(3))
            .max_mapped_arenas([None, Some(3), Some(4)][self.below(3)])
            .flush_every_ops([None, Some(1), Some(3)][self.below(3)])
            .max_bytes((128 << 10) << self.below(3))
    }

    fn len(&mut self) -> usize {
        match self.below(8) {
            0..5 => self.below(60),
            5 | 6 => self.below(1500),
            _ => self.below(20_000),
        }
    }
}

/// Bytes that say which message they are.
fn content(seq: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seq.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8).collect()
}

struct Sequence<'a> {
    bytes: Bytes<'a>,
    dir: tempfile::TempDir,
    /// None while it is being opened.
    queue: Option<Queue>,
    sent: Vec<Vec<u8>>,
    places: BTreeMap<usize, Place>,
    deliveries: Vec<(usize, Delivery)>,
    /// Everything below is durable.
    flushed: u64,
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
#[path = "fuzz_sequence_place.rs"]
mod place;

/// The first bytes are the end, then come options, then operations.
pub(crate) fn sequence(data: &[u8]) {
    // How it ends is said first: the operations go on to the end of the bytes.
    let (end, data) = data.split_at(data.len().min(END));
    let mut bytes = Bytes(data);
    let dir = scratch();
    let queue = bytes.options().open(dir.path()).expect("a new queue");
    let (sent, places, deliveries) = (Vec::new(), BTreeMap::new(), Vec::new());
    let queue = Some(queue);
    let mut sequence = Sequence { bytes, dir, queue, sent, places, deliveries, flushed: 0 };
    for _ in 0..MOST {
        if sequence.bytes.0.is_empty() {
            break;
        }
        sequence.operation();
        sequence.check_figures();
    }
    sequence.bytes = Bytes(end);
    sequence.end();
}

impl Sequence<'_> {
    fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("it is open")
    }

    fn next(&self) -> u64 {
        self.sent.len() as u64
    }

    fn operation(&mut self) {
        let which = self.bytes.below(NAMES.len());
        match self.bytes.below(24) {
            0..5 => self.enqueue(1),
            5 => self.enqueue(0),
            6 => {
                let count = self.bytes.below(5);
                self.batch(count);
            }
            7..10 => self.take(which),
            10 => self.take_batch(which),
            11 => self.peek(which),
            12 => self.skip(which),
            13 | 14 => self.receive(which),
            15 | 16 => self.answer(true),
            17 => self.answer(false),
            18 => self.seek(which),
            19 => self.fork(which),
            20 => self.remove(which),
            21 => self.flush(),
            22 => self.reopen(),
            _ => self.die(),
        }
    }

    /// A message, or (0) one in two parts.
    fn enqueue(&mut self, copies: usize) {
        let bytes = content(self.next(), self.bytes.len());
        let queue = self.queue();
        let put = match copies {
            0 => {
                let (head, tail) = bytes.split_at(bytes.len() / 3);
                queue.enqueue_parts(&[IoSlice::new(head), IoSlice::new(tail)])
            }
            _ => queue.enqueue(&bytes),
        };
        self.has_put(put.map(|seq| seq..seq + 1), vec![bytes]);
    }

    fn batch(&mut self, count: usize) {
        let len = self.bytes.len();
        let next = self.next();
        let messages: Vec<_> = (0..count).map(|at| content(next + at as u64, len + at)).collect();
        let put = self.queue().enqueue_batch(&messages);
        self.has_put(put, messages);
    }

    fn has_put(&mut self, put: Result<std::ops::Range<u64>>, messages: Vec<Vec<u8>>) {
        match put {
            Ok(range) => {
                assert_eq!(range, self.next()..self.next() + messages.len() as u64);
                self.sent.extend(messages);
            }
            Err(Error::MessageTooLarge { .. }) => {}
            Err(error) => assert!(error.is_full(), "{error}"),
        }
    }

    /// The consumer is there, from now on at least: where it begins, it says itself.
    fn place(&mut self, which: usize) -> &mut Place {
        if !self.places.contains_key(&which) {
            let queue = self.queue.as_ref().expect("it is open");
            if which == 0 {
                queue.peek().expect("a look");
            }
            let begins = self.sent.len() as u64 - ask!(queue, which, len());
            let lowest = self.places.values().map(|place| place.seq).min();
            assert!(lowest.is_none_or(|lowest| begins <= lowest), "{begins} is not held any more");
            self.places.insert(which, Place::at(begins));
        }
        self.places.get_mut(&which).expect("it is there")
    }

    fn check(&self, message: &Message) -> u64 {
        let seq = message.seq();
        assert!(message[..] == self.sent[seq as usize][..], "message {seq} is not what was put in");
        seq
    }

    fn take(&mut self, which: usize) {
        self.place(which);
        let message = ask!(self.queue(), which, dequeue()).expect("a read");
        let (came, next) = (message.map(|message| self.check(&message)), self.next());
        self.has_come(which, came, next);
    }

    fn has_come(&mut self, which: usize, came: Option<u64>, next: u64) {
        let place = self.place(which);
        match came {
            Some(seq) => {
                place.comes(seq);
                place.finish(seq);
            }
            None => place.is_at_end(next),
        }
    }

    fn take_batch(&mut self, which: usize) {
        self.place(which);
        let most = 1 + self.bytes.below(6);
        let messages = ask!(self.queue(), which, dequeue_batch(most)).expect("a read");
        let next = self.next();
        assert!(messages.len() <= most, "{} of {most} messages", messages.len());
        for message in &messages {
            let seq = self.check(message);
            self.has_come(which, Some(seq), next);
        }
        if messages.is_empty() {
            self.place(which).is_at_end(next);
        }
    }

    fn peek(&mut self, which: usize) {
        self.place(which);
        let message = ask!(self.queue(), which, peek()).expect("a look");
        let (seen, next) = (message.map(|message| self.check(&message)), self.next());
        let place = self.place(which).clone();
        match seen {
            Some(seq) => place.clone().comes(seq),
            None => place.is_at_end(next),
        }
    }

    fn skip(&mut self, which: usize) {
        self.place(which);
        let skipped = ask!(self.queue(), which, skip()).expect("a skip");
        let next = self.next();
        self.has_come(which, skipped, next);
    }

    fn receive(&mut self, which: usize) {
        self.place(which);
        let delivery = ask!(self.queue(), which, receive()).expect("a read");
        let next = self.next();
        let Some(delivery) = delivery else {
            return self.place(which).is_at_end(next);
        };
        let seq = delivery.seq();
        assert!(
            delivery[..] == self.sent[seq as usize][..],
            "delivery {seq} is not what was put in"
        );
        let place = self.place(which);
        place.comes(seq);
        place.handed_out.insert(seq);
        self.deliveries.push((which, delivery));
    }

    fn answer(&mut self, is_done: bool) {
        if self.deliveries.is_empty() {
            return;
        }
        let nth = self.bytes.below(self.deliveries.len());
        let (which, delivery) = self.deliveries.remove(nth);
        let seq = delivery.seq();
        if is_done {
            delivery.ack().expect("an acknowledgement");
            self.place(which).finish(seq);
        } else {
            delivery.nack();
            let place = self.place(which);
            place.handed_out.remove(&seq);
            place.given_back.insert(seq);
        }
    }

    fn seek(&mut self, which: usize) {
        if which == 0 {
            return;
        }
        self.place(which);
        let seq = self.bytes.below(self.sent.len() + 3) as u64;
        let sought = ask_named(self.queue(), which).seek(seq);
        let lowest = self.places.values().map(|place| place.seq).min().unwrap_or(0);
        match sought {
            Ok(()) => {
                assert!(seq <= self.next(), "there is no {seq}");
                self.deliveries.retain(|(other, _)| *other != which);
                self.places.insert(which, Place::at(seq));
            }
            Err(Error::NotFound { .. }) => assert!(seq > self.next() || seq < lowest, "{seq}"),
            Err(error) => panic!("{error}"),
        }
    }

    fn fork(&mut self, which: usize) {
        let to = 1 + self.bytes.below(NAMES.len() - 1);
        if which == 0 {
            return;
        }
        let from = self.place(which).clone();
        match ask_named(self.queue(), which).fork(NAMES[to]) {
            Ok(_) => {
                assert!(!self.places.contains_key(&to), "{to} was there");
                let place = Place { done: from.done, ..Place::at(from.seq) };
                self.places.insert(to, place);
            }
            Err(Error::InvalidArgument { .. }) => assert!(self.places.contains_key(&to), "{to}"),
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&mut self, which: usize) {
        if which == 0 {
            return;
        }
        self.deliveries.retain(|(other, _)| *other != which);
        match self.queue().remove_consumer(NAMES[which]) {
            Ok(()) => assert!(self.places.remove(&which).is_some(), "{which} was not there"),
            Err(Error::NotFound { .. }) => assert!(!self.places.contains_key(&which), "{which}"),
            Err(error) => panic!("{error}"),
        }
    }

    fn flush(&mut self) {
        self.queue().flush().expect("a flush");
        self.is_flushed();
    }

    fn is_flushed(&mut self) {
        self.flushed = self.next();
        for place in self.places.values_mut() {
            place.durable = place.done.clone();
            place.durable.extend(0..place.seq);
            place.has_moved = false;
        }
    }

    fn check_figures(&self) {
        let next = self.next();
        for (which, place) in &self.places {
            let waiting = next - place.seq - place.done.len() as u64;
            assert_eq!(ask!(self.queue(), *which, len()), waiting, "{which}: {place:?}");
        }
        assert!(self.queue().durable_seq() >= self.flushed, "{} is durable", self.flushed);
    }

    /// Nobody has a delivery any more, and all come in the order of their numbers.
    fn begin_again(&mut self) {
        for place in self.places.values_mut() {
            place.handed_out.clear();
            place.given_back.clear();
        }
        let options = self.bytes.options();
        let opened = options.open(self.dir.path());
        self.queue = Some(opened.expect("it opens again"));
    }

    fn reopen(&mut self) {
        self.deliveries.clear();
        let queue = self.queue.take().expect("it is open");
        if self.bytes.below(2) == 0 {
            queue.close().expect("closing");
        } else {
            drop(queue);
        }
        self.is_flushed();
        self.begin_again();
    }

    /// As if the process had died: the files are as they were before anything was dropped.
    fn die(&mut self) {
        let files = files(self.dir.path());
        self.deliveries.clear();
        drop(self.queue.take());
        for (name, _) in self::files(self.dir.path()) {
            fs::remove_file(self.dir.path().join(name)).expect("removing");
        }
        put(self.dir.path(), &files);
        self.begin_again();
    }
}

fn ask_named(queue: &Queue, which: usize) -> mmq::Consumer {
    queue.consumer(NAMES[which]).expect("a consumer")
}

/// The files at one moment: read until nobody has changed any between two readings.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut before = None;
    loop {
        let now = try_files(dir);
        if now.is_some() && now == before {
            return now.unwrap_or_default();
        }
        before = now;
    }
}

/// Nothing if one goes meanwhile.
fn try_files(dir: &Path) -> Option<Vec<(String, Vec<u8>)>> {
    let names = fs::read_dir(dir).expect("the files").map(|file| file.expect("a file").file_name());
    let files = names.map(|name| {
        let bytes = fs::read(dir.join(&name)).ok()?;
        Some((name.into_string().expect("a name"), bytes))
    });
    let mut files = files.collect::<Option<Vec<_>>>()?;
    files.sort();
    Some(files)
}

fn put(dir: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).expect("a file");
    }
}
