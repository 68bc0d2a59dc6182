//! A soak: everything at once, for 20 seconds times `MMQ_EFFORT`, with choices that
//! `MMQ_SEED=N..` repeats: `cargo test --release --features async --test long soak -- --ignored`.
//!
//! A queue with limits taken at random is opened, used by all these threads at once, closed while
//! some of them still work, and opened again, several times; then each consumer is drained.
//! Checked, whatever happens: every message is whole; each thread sees the numbers of its consumer
//! grow; each number is reported to a consumer once, as a message or in a gap; no gap has another
//! cause than that messages were dropped or had expired; in the end nothing is left out.

#[macro_use]
mod part;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{effort, first, in_parts};
use mmq::{Consumer, Delivery, Error, GapCause, Message, OnFull, Options, Queue};
use part::{copy_of, hold, poll, produce, roam, tasks, work};

/// Every choice of one thread (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

/// The bytes of the message `id`: the id, then what follows from it.
fn fill(id: u64, bytes: &mut [u8]) {
    let mut rng = Rng(id);
    for (at, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = if at == 0 { id } else { rng.next() };
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

fn content(id: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; 8 + len as usize];
    fill(id, &mut bytes);
    bytes
}

fn check_bytes(bytes: &[u8]) {
    let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut whole = vec![0; bytes.len()];
    fill(id, &mut whole);
    assert!(
        whole == bytes,
        "message {id} of {} bytes has other bytes than were enqueued",
        bytes.len()
    );
}

/// What reads reported to a consumer: ranges of numbers.
#[derive(Default)]
struct Reported(Mutex<BTreeMap<u64, u64>>);

impl Reported {
    fn add(&self, first: u64, last: u64) {
        let mut reported = self.0.lock().unwrap();
        if let Some((from, to)) = reported.range(..=last).next_back() {
            assert!(*to < first, "{first}..={last} was reported, and {from}..={to} before");
        }
        // Neighbours are joined: a soak is long.
        let before = reported
            .range(..first)
            .next_back()
            .filter(|(_, to)| **to + 1 == first)
            .map(|(from, _)| *from);
        let end = reported.remove(&(last + 1)).unwrap_or(last);
        reported.insert(before.unwrap_or(first), end);
    }

    /// Everything up to `next` was reported.
    fn check_complete(&self, name: &str, next: u64) {
        let reported = self.0.lock().unwrap();
        let all =
            next == 0 && reported.is_empty() || reported.iter().eq([(&0, &(next.max(1) - 1))]);
        assert!(all, "{name}: of the numbers below {next} these were reported: {reported:?}");
    }
}

/// What all threads of a round share.
struct Round {
    stop: AtomicBool,
    ids: AtomicU64,
    longest: u64,
    /// By consumer, in the order of `READERS`.
    reported: [Reported; READERS.len()],
}

/// The default consumer, one of one thread, one with deliveries, one behind a descriptor, one of
/// futures.
const READERS: [&str; 5] = ["", "single", "workers", "polled", "tasks"];

static PROGRESS: AtomicU64 = AtomicU64::new(0);

impl Round {
    fn stopped(&self) -> bool {
        PROGRESS.fetch_add(1, Ordering::Relaxed);
        self.stop.load(Ordering::Relaxed)
    }

    /// What a read answered, noted. False when there is no more for now, or the queue was closed.
    fn note<T>(
        &self,
        of: usize,
        last: &mut Option<u64>,
        got: mmq::Result<Option<T>>,
        seq: impl Fn(&T) -> u64,
    ) -> bool {
        let (first, end) = match got {
            Ok(Some(found)) => (seq(&found), seq(&found)),
            Err(Error::Gap(gap)) => {
                check_cause(gap.cause);
                (gap.first, gap.last)
            }
            Ok(None) | Err(Error::Closed) => return false,
            Err(error) => panic!("{:?} cannot read: {error}", READERS[of]),
        };
        assert!(
            last.is_none_or(|last| last < first),
            "{:?}: {first} comes behind {last:?}",
            READERS[of]
        );
        *last = Some(end);
        self.reported[of].add(first, end);
        true
    }
}

fn check_cause(cause: GapCause) {
    assert!(matches!(cause, GapCause::Dropped | GapCause::Expired), "a gap is reported as {cause}");
}

fn options(rng: &mut Rng) -> Options {
    let ms = Duration::from_millis;
    let full = [OnFull::Reject, OnFull::DropOldest, OnFull::DropOldest, OnFull::Wait(Some(ms(3)))];
    Options::new()
        .arena_size(rng.one_of(&[4096, 4096, 16 << 10, 64 << 10, 1 << 20]))
        .max_bytes(rng.one_of(&[256 << 10, 1 << 20, 8 << 20]))
        .max_mapped_arenas(rng.one_of(&[Some(3), Some(3), Some(5), None]))
        .on_full(rng.one_of(&full))
        .flush_every_ops(rng.one_of(&[None, None, Some(1), Some(7), Some(500)]))
        .flush_every(rng.one_of(&[None, Some(ms(3))]))
        .max_age(rng.one_of(&[None, None, Some(ms(100)), Some(ms(1000))]))
}

/// One directory from its beginning to its end.
fn round(seed: u64) {
    let mut rng = Rng(seed);
    let dir = crate::support::tempdir().unwrap();
    let mut options_now = options(&mut rng);
    let longest = rng.one_of(&[60, 1000, 9000, 40_000]);
    let round = Round {
        stop: AtomicBool::new(false),
        ids: AtomicU64::new(1),
        longest,
        reported: Default::default(),
    };
    println!("round {seed}: {options_now:?}, messages of up to {longest} bytes");
    let lives = 1 + rng.below(4);
    for _ in 0..lives {
        round.stop.store(false, Ordering::Relaxed);
        let queue = options_now.open(dir.path()).unwrap();
        let named: Vec<Consumer> =
            READERS[1..].iter().map(|name| queue.consumer(name).unwrap()).collect();
        default_begins(&round, &queue);
        let [single, workers, polled, tasks] = &named[..] else { unreachable!() };
        let mut rngs = (0..10).map(|_| Rng(rng.next())).collect::<Vec<_>>().into_iter();
        let mut rng_of = || rngs.next().unwrap();
        let work_time = Duration::from_millis(300 + rng.below(1500));
        let round = &round;
        std::thread::scope(|scope| {
            let own = [rng_of(), rng_of(), rng_of(), rng_of()];
            scope.spawn({
                let mut rng = rng_of();
                move || read!(round, 1, single, rng)
            });
            for rng in [rng_of(), rng_of()] {
                scope.spawn(move || work(round, workers, rng));
            }
            scope.spawn(move || poll(round, polled));
            let rng = rng_of();
            scope.spawn(move || tasks::take(round, tasks, rng));
            // Those that need the queue itself end before it is closed.
            std::thread::scope(|inner| {
                let [first, second, third, mut fourth] = own;
                inner.spawn(|| produce(round, &queue, first));
                inner.spawn(|| produce(round, &queue, second));
                inner.spawn(|| roam(round, &queue, third));
                let queue = &queue;
                inner.spawn(move || read!(round, 0, queue, fourth));
                std::thread::sleep(work_time);
                round.stop.store(true, Ordering::Relaxed);
            });
            queue.remove_consumer("rover").unwrap();
            queue.close().unwrap();
        });
        options_now = options(&mut rng);
    }
    // What is left, one by one.
    let queue = options_now.on_full(OnFull::Reject).open(dir.path()).unwrap();
    let next = queue.stats().next_seq;
    for (of, name) in READERS.iter().enumerate() {
        let mut last = None;
        let mut take =
            |got: mmq::Result<Option<Message>>| round.note(of, &mut last, got, Message::seq);
        if of == 0 {
            while take(queue.dequeue()) {}
        } else {
            let consumer = queue.consumer(name).unwrap();
            while take(consumer.dequeue()) {}
        }
        round.reported[of].check_complete(name, next);
    }
    queue.close().unwrap();
}

/// The default consumer comes into being with the first read; that may get a gap.
fn default_begins(round: &Round, queue: &Queue) {
    let mut last = None;
    if let Err(error) = queue.peek() {
        round.note(0, &mut last, Err::<Option<u64>, _>(error), |seq| *seq);
    }
}

#[test]
#[ignore = "20 seconds times MMQ_EFFORT"]
fn everything_at_once() {
    let (seconds, first) = (20 * effort(), first().unwrap_or(0));
    let began = Instant::now();
    // Where nothing goes on for so long, something is stuck.
    std::thread::spawn(|| {
        let mut seen = 0;
        loop {
            std::thread::sleep(Duration::from_secs(120));
            let now = PROGRESS.load(Ordering::Relaxed);
            if now == seen {
                eprintln!("nothing went on for two minutes");
                std::process::abort();
            }
            seen = now;
        }
    });
    let mut seed = first;
    while began.elapsed() < Duration::from_secs(seconds) {
        round(seed);
        seed += 1;
    }
    println!("{} rounds, {} steps", seed - first, PROGRESS.load(Ordering::Relaxed));
}
