//! Promise P1: nothing acknowledged is lost when the process dies at any instruction. A child works
//! on a queue and reports to its parent, through a pipe, what it is about to do and what was
//! acknowledged. The parent kills the child at a random moment, opens the queue and compares it
//! with what the child said.
//!
//! `MMQ_EFFORT` multiplies the rounds of each variant, `MMQ_SEED` replays the plan (not the moments
//! of death).

use std::io::{BufRead, BufReader, Write};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{KIB, MIB, Messages, Random, count, effort, in_parts, itself};
use crate::support::{mounts_are_numbered, seed};
use mmq::{Error, Gap, GapCause, MessageBatch, Options, Queue};

struct Variant {
    name: &'static str,
    options: fn() -> Options,
    sizes: &'static [RangeInclusive<usize>],
    /// One in this many operations takes messages out.
    takes: u64,
    flush_every_ops: bool,
}

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "no flush",
        options: || Options::new().arena_size(4 << 20),
        sizes: &[0..=64, 0..=1000, 0..=20_000],
        takes: 3,
        flush_every_ops: false,
    },
    Variant {
        name: "flush every operation",
        options: || Options::new().arena_size(64 << 10).flush_every_ops(1),
        sizes: &[0..=64, 0..=5000],
        takes: 3,
        flush_every_ops: true,
    },
    Variant {
        name: "small arenas",
        options: || Options::new().arena_size(4096).max_mapped_arenas(3),
        sizes: &[0..=64, 0..=3000, 4000..=4200, 0..=40_000],
        takes: 2,
        flush_every_ops: false,
    },
    Variant {
        name: "large messages",
        options: || Options::new().arena_size(64 << 10).max_mapped_arenas(3),
        sizes: &[0..=100, 100 * KIB..=2 * MIB, 4 * MIB..=6 * MIB],
        takes: 2,
        flush_every_ops: false,
    },
    Variant {
        name: "small segments",
        options: || Options::new().arena_size(4096).max_bytes(4 << 20),
        sizes: &[0..=64, 0..=3000],
        takes: 2,
        flush_every_ops: false,
    },
];

const MOST_AT_ONCE: u64 = 12;

/// What the child says, in one line each: `Will` before a call, the others after it returned.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Line {
    Open,
    WillPut(u64),
    Put(u64),
    WillTake(u64),
    /// The place after the take: the number of the next message.
    Took(u64),
}

impl Line {
    /// A whole line goes to the pipe with one `write`, so death cuts between lines, not inside.
    fn report(self) {
        let text = match self {
            Line::Open => "open\n".to_owned(),
            Line::WillPut(count) => format!("will put {count}\n"),
            Line::Put(end) => format!("put {end}\n"),
            Line::WillTake(count) => format!("will take {count}\n"),
            Line::Took(place) => format!("took {place}\n"),
        };
        std::io::stderr().write_all(text.as_bytes()).expect("the parent reads");
    }

    fn parse(text: &str) -> Option<Line> {
        if text == "open" {
            return Some(Line::Open);
        }
        let (what, number) = text.rsplit_once(' ')?;
        let number = number.parse().ok()?;
        Some(match what {
            "will put" => Line::WillPut(number),
            "put" => Line::Put(number),
            "will take" => Line::WillTake(number),
            "took" => Line::Took(number),
            _ => return None,
        })
    }
}

/// The child's part; nothing when the test is run by itself.
#[test]
fn the_child_that_is_killed() {
    let Ok(dir) = std::env::var("MMQ_KILL_DIR") else { return };
    let variant = &VARIANTS[count("MMQ_KILL_VARIANT", 0) as usize];
    let seed = count("MMQ_KILL_SEED", 0);
    let (mut tail, mut head) = (count("MMQ_KILL_NEXT", 0), count("MMQ_KILL_PLACE", 0));
    let messages = Messages::new(seed, variant.sizes);
    let mut random = Random::new(seed ^ tail ^ head.rotate_left(32));
    let queue = (variant.options)().open(dir).expect("the child opens the queue");
    Line::Open.report();
    let (mut buffer, mut batch) = (Vec::new(), MessageBatch::new());
    loop {
        if random.chance(variant.takes) {
            let most = if random.chance(4) { 1 + random.below(MOST_AT_ONCE) } else { 1 };
            Line::WillTake(most).report();
            if most > 1 && random.chance(2) {
                queue.dequeue_batch_into(&mut batch, most as usize).expect("dequeue_batch_into");
                for (seq, bytes) in batch.iter() {
                    assert_eq!(seq, head);
                    messages.check(head, bytes);
                    head += 1;
                }
            } else if most > 1 {
                for message in queue.dequeue_batch(most as usize).expect("dequeue_batch") {
                    assert_eq!(message.seq(), head);
                    messages.check(head, &message);
                    head += 1;
                }
            } else if let Some(seq) = queue.dequeue_into(&mut buffer).expect("dequeue_into") {
                assert_eq!(seq, head);
                messages.check(head, &buffer);
                head += 1;
            }
            Line::Took(head).report();
        } else if random.chance(5) {
            let count = 2 + random.below(MOST_AT_ONCE - 1);
            let batch: Vec<Vec<u8>> = (tail..tail + count).map(|seq| messages.bytes(seq)).collect();
            Line::WillPut(count).report();
            let given = match queue.enqueue_batch(batch) {
                Err(error) if error.is_full() => continue,
                given => given.expect("enqueue_batch"),
            };
            assert_eq!(given, tail..tail + count);
            tail += count;
            Line::Put(tail).report();
        } else {
            Line::WillPut(1).report();
            let given = match random.chance(3) {
                true => queue.enqueue_parts(&in_parts(&messages.bytes(tail))),
                false => queue.enqueue(messages.bytes(tail)),
            };
            let given = match given {
                Err(error) if error.is_full() => continue,
                given => given.expect("enqueue"),
            };
            assert_eq!(given, tail);
            tail += 1;
            Line::Put(tail).report();
        }
    }
}

/// What the parent knows to be true of the queue.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    place: u64,
    next: u64,
    /// What the call would have added or taken that the death may have caught.
    putting: u64,
    taking: u64,
}

/// Starts a child, kills it after `life`, and returns what it reported.
fn live_and_die(dir: &Path, variant: usize, seed: u64, mut known: Known, life: Duration) -> Known {
    let mut command = itself("kill::the_child_that_is_killed");
    command
        .env("MMQ_KILL_DIR", dir)
        .env("MMQ_KILL_VARIANT", variant.to_string())
        .env("MMQ_KILL_SEED", seed.to_string());
    command
        .env("MMQ_KILL_NEXT", known.next.to_string())
        .env("MMQ_KILL_PLACE", known.place.to_string());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert_eq!(Line::parse(first.trim_end()), Some(Line::Open), "the child said {first:?}");
    let reader =
        std::thread::spawn(move || lines.lines().map_while(Result::ok).collect::<Vec<String>>());
    // An emulated processor has done nothing yet in such a moment.
    let life = if crate::support::guard::runner().is_empty() { life } else { 20 * life };
    let begin = Instant::now();
    while begin.elapsed() < life {
        std::thread::sleep((life - begin.elapsed().min(life)).min(Duration::from_millis(5)));
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let lines = reader.join().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "the child died by itself: {lines:?}"
    );
    for line in lines {
        match Line::parse(&line).unwrap_or_else(|| panic!("the child said {line:?}")) {
            Line::Open => panic!("opened twice"),
            Line::WillPut(count) => (known.putting, known.taking) = (count, 0),
            Line::WillTake(count) => (known.putting, known.taking) = (0, count),
            Line::Put(end) => (known.next, known.putting) = (end, 0),
            Line::Took(place) => (known.place, known.taking) = (place, 0),
        }
    }
    known
}

/// Holds the opened queue to what is known, and returns its place and its next number.
fn check(queue: &Queue, messages: &Messages, known: Known) -> (u64, u64) {
    let len = queue.len();
    let (mut seqs, mut reserved) = (Vec::new(), None);
    for message in queue.iter() {
        let message = match message {
            Err(Error::Gap(gap)) if is_reserved(&gap) && reserved.is_none() => {
                reserved = Some(gap.first);
                continue;
            }
            message => message.unwrap_or_else(|error| {
                panic!("a mere process death loses nothing: {error}; {known:?}")
            }),
        };
        messages.check(message.seq(), &message);
        seqs.push(message.seq());
    }
    assert_eq!(len, seqs.len() as u64, "len is right at once; {known:?}");
    let next = reserved.unwrap_or_else(|| queue.stats().next_seq);
    let place = seqs.first().copied().unwrap_or(next);
    assert!(
        seqs.iter().copied().eq(place..next),
        "not every number from {place} to {next}: {seqs:?}; {known:?}"
    );
    let all = known.next.min(known.place + known.taking);
    assert!(
        place == known.place || place == all,
        "place {place} after {known:?}: a batch is taken as a whole, or comes again as a whole"
    );
    assert!(
        next == known.next || next == known.next + known.putting,
        "next number {next} after {known:?}: lost, or a part of a batch"
    );
    assert_eq!((queue.stats().gaps, queue.stats().lost_messages), (0, 0));
    (place, next)
}

/// Where mounts have no numbers, an opening takes a kill for another mount, and goes on behind the
/// numbers that were reserved: docs/recovery.md.
fn is_reserved(gap: &Gap) -> bool {
    gap.cause == GapCause::Reserved && !mounts_are_numbered()
}

/// Takes all there is out of a queue that may have such a gap, and returns the next number.
fn pass_reserved(queue: &Queue) -> u64 {
    loop {
        match queue.dequeue() {
            Ok(None) => return queue.stats().next_seq,
            Ok(Some(_)) => {}
            Err(Error::Gap(gap)) => assert!(is_reserved(&gap), "{gap}"),
            Err(error) => panic!("dequeue: {error}"),
        }
    }
}

fn rounds_of(name: &str) {
    let index = VARIANTS.iter().position(|variant| variant.name == name).unwrap();
    let variant = &VARIANTS[index];
    let seed = seed(name);
    let mut random = Random::new(seed);
    let messages = Messages::new(seed, variant.sizes);
    let dir = crate::support::tempdir().unwrap();
    let mut known = Known::default();
    let (mut put, mut taken) = (0, 0);
    for round in 0..10 * effort() {
        let longest = *random.pick(&[500, 5_000, 60_000]);
        let life = Duration::from_micros(random.below(longest));
        let before = known;
        known = live_and_die(dir.path(), index, seed, known, life);
        // Options may change at every opening, also at the one after a death.
        let options = match round % 3 {
            0 => (variant.options)(),
            1 => Options::new().arena_size(8192).max_mapped_arenas(3),
            _ => Options::new(),
        };
        let queue = options.open(dir.path()).unwrap();
        let (mut place, mut next) = check(&queue, &messages, known);
        (put, taken) = (put + next - before.next, taken + place - before.place);
        if !mounts_are_numbered() {
            next = pass_reserved(&queue);
            place = next;
        }
        if variant.flush_every_ops && round % 3 == 0 {
            // Opened with the same promise, what was durable is known to be.
            assert!(queue.durable_seq() >= known.next, "{known:?}");
        }
        // The queue goes on as if nothing had been, now and then emptied so that rounds stay short.
        match queue.enqueue(messages.bytes(next)) {
            Err(error) if error.is_full() => {}
            given => {
                assert_eq!(given.unwrap(), next);
                next += 1;
            }
        }
        let take = if random.chance(3) { next - place } else { random.below(next - place + 1) };
        for _ in 0..take {
            let message = queue.dequeue().unwrap().unwrap();
            assert_eq!(message.seq(), place);
            messages.check(place, &message);
            place += 1;
        }
        known = Known { place, next, ..Known::default() };
        if random.chance(2) {
            queue.close().unwrap();
        }
    }
    println!("{name}: the children that were killed put {put} and took {taken} messages");
}

#[test]
fn sigkill_without_any_flush_loses_nothing() {
    rounds_of("no flush");
}

#[test]
fn sigkill_with_a_flush_at_every_operation_loses_nothing() {
    rounds_of("flush every operation");
}

#[test]
fn sigkill_with_small_arenas_under_a_tight_cap_loses_nothing() {
    rounds_of("small arenas");
}

#[test]
fn sigkill_among_messages_larger_than_arenas_and_segments_loses_nothing() {
    rounds_of("large messages");
}

#[test]
fn sigkill_while_small_segments_are_recycled_loses_nothing() {
    rounds_of("small segments");
}

#[test]
fn sigkill_while_the_queue_is_being_opened_loses_nothing() {
    let seed = seed("killed while opening");
    let mut random = Random::new(seed);
    let variant = &VARIANTS[2];
    let messages = Messages::new(seed, variant.sizes);
    let dir = crate::support::tempdir().unwrap();
    let queue = (variant.options)().open(dir.path()).unwrap();
    crate::support::fill_queue(&queue, &messages, 0, 200);
    drop(queue);
    let mut known = Known { place: 0, next: 200, ..Known::default() };
    for _ in 0..10 * effort() {
        // One child dies at work, so that the next opening has something to recover, and that one
        // dies in the opening.
        known = live_and_die(dir.path(), 2, seed, known, Duration::from_micros(random.below(3000)));
        let mut opening = itself("kill::the_child_that_only_opens");
        let opening =
            opening.env("MMQ_KILL_DIR", dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = opening.spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(8000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let queue = (variant.options)().open(dir.path()).unwrap();
        let (mut place, mut next) = check(&queue, &messages, known);
        if !mounts_are_numbered() {
            next = pass_reserved(&queue);
            place = next;
        }
        while place + 300 < next {
            queue.skip().unwrap();
            place += 1;
        }
        known = Known { place, next, ..Known::default() };
        drop(queue);
    }
}

/// Opens and closes until it is killed; nothing when the test is run by itself.
#[test]
fn the_child_that_only_opens() {
    let Ok(dir) = std::env::var("MMQ_KILL_DIR") else { return };
    for arena in [4096, 8192, 128 << 20].into_iter().cycle() {
        drop(Options::new().arena_size(arena).open(&dir).expect("the child opens the queue"));
    }
}
