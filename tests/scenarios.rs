//! Whole programs with everything at once, and deaths in the middle of them: a spool that gives up its oldest, workers that
//! fail, a sender with a window.
//!
//! Each is there twice: small among the other tests, and in full size, ignored unless asked for (CI does):
//! `cargo test --release --test scenarios -- --ignored --nocapture`. `MMQ_SEED` replays one.

#![cfg(unix)]

mod support;
#[path = "support/watch.rs"]
mod watch;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io::{BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mmq::{Delivery, Error, GapCause, OnFull, Options, Queue};
use support::{MIB, Messages, Random, count, fill_queue, itself};
use watch::{taken, watched};

/// The same for every run, unless another is asked for.
fn seed() -> u64 {
    let seed = count("MMQ_SEED", 20_261_121);
    println!("replay with MMQ_SEED={seed}");
    seed
}

/// Written at once, so that a death leaves no half of it.
fn tell(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).expect("the parent reads");
}

fn child(test: &str, dir: &Path, settings: &[(&str, u64)]) -> Child {
    let mut command = itself(test);
    command.env("MMQ_CHILD_DIR", dir);
    for (name, value) in settings {
        command.env(name, value.to_string());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The directory a child works in; `None` when the test runs for itself.
fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os("MMQ_CHILD_DIR").map(Into::into)
}

// ---- Telemetry spool ----

const RECORD: usize = 700;

fn spool(limit: u64) -> Options {
    Options::new().arena_size(MIB as u64).max_mapped_arenas(8).max_bytes(limit).on_full(OnFull::DropOldest)
}

#[test]
fn scenario_telemetry_spool() {
    telemetry_spool(8, 1, 1);
}

#[test]
#[ignore = "full size: 64 MiB, 512 MiB of records, three deaths"]
fn full_scenario_telemetry_spool() {
    telemetry_spool(64, 3, 4);
}

/// A producer that pushes eight times what fits while the consumer is away, and is killed; then both, `seconds` long.
fn telemetry_spool(mib: u64, rounds: u64, seconds: u64) {
    let seed = seed();
    let mut random = Random::new(seed);
    let limit = mib << 20;
    let total = 8 * limit / RECORD as u64;
    let dir = tempfile::tempdir().unwrap();
    // The consumer has been there once.
    spool(limit).open(dir.path()).unwrap().consumer("uplink").unwrap();
    let ((), most) = watched(dir.path(), || {
        let mut next = 0;
        for round in 0..rounds {
            let settings = [("MMQ_CHILD_LIMIT", limit), ("MMQ_SEED", seed)];
            let mut pushing = child("the_child_that_spools", dir.path(), &settings);
            let deadly = next + total / 2 + random.below(total / 2);
            let mut put = 0;
            for line in BufReader::new(pushing.stderr.take().unwrap()).lines() {
                put = line.unwrap().parse::<u64>().unwrap();
                if put >= deadly {
                    std::thread::sleep(Duration::from_micros(random.below(3000)));
                    break;
                }
            }
            pushing.kill().unwrap();
            pushing.wait().unwrap();
            let settings = [("MMQ_CHILD_LIMIT", limit), ("MMQ_SEED", seed), ("MMQ_CHILD_SECONDS", seconds)];
            let mut draining = child("the_child_that_drains", dir.path(), &settings);
            let mut told = BTreeMap::new();
            for line in BufReader::new(draining.stderr.take().unwrap()).lines() {
                let line = line.unwrap();
                match line.split_once(' ').map(|(name, value)| (name, value.parse::<u64>())) {
                    Some((name, Ok(value))) => drop(told.insert(name.to_owned(), value)),
                    // It panics.
                    _ => eprintln!("{line}"),
                }
            }
            assert!(draining.wait().unwrap().success(), "{told:?}");
            println!("round {round}: {put} put before death; {told:?}");
            assert!(told["next_at_open"] >= put, "what was put in before the death is there");
            assert_eq!(told["from"], next, "it goes on where it stood");
            assert_eq!(told["came"] + told["dropped"], told["end"] - next);
            assert_eq!(told["dropped"], told["dropped_by_figures"]);
            assert!(told["resident_peak_kib"] < 64 << 10, "{told:?}");
            assert!(told["mapped_arenas"] <= 8 && told["files"] <= 8, "{told:?}");
            next = told["end"];
            let floor = 3 * (limit / 4).min(4 << 20) + (64 << 10);
            assert!(taken(dir.path()) <= floor, "three segments and the index at most");
        }
    });
    println!("at most {most} of {limit} bytes of disk");
    assert!(most <= limit, "{most} of {limit}");
}

#[test]
fn the_child_that_spools() {
    let Some(dir) = child_dir() else { return };
    let made = Messages::new(count("MMQ_SEED", 0), &[RECORD..=RECORD]);
    let queue: Queue = spool(count("MMQ_CHILD_LIMIT", 0)).open(dir).unwrap();
    let mut seq = queue.stats().next_seq;
    loop {
        assert_eq!(queue.enqueue(made.bytes(seq)).unwrap(), seq);
        seq += 1;
        if seq.is_multiple_of(500) {
            tell(&seq.to_string());
        }
    }
}

#[test]
fn the_child_that_drains() {
    let Some(dir) = child_dir() else { return };
    let made = Messages::new(count("MMQ_SEED", 0), &[RECORD..=RECORD]);
    let begin = Instant::now();
    let queue = spool(count("MMQ_CHILD_LIMIT", 0)).open(&dir).unwrap();
    let opened = begin.elapsed();
    tell(&format!("opened_us {}", opened.as_micros()));
    if std::env::var_os("MMQ_TIMES").is_some() {
        assert!(opened < Duration::from_millis(100), "{opened:?}");
    }
    let uplink = queue.consumer("uplink").unwrap();
    let (at_open, oldest) = (queue.stats().next_seq, queue.stats().oldest_seq);
    tell(&format!("next_at_open {at_open}"));
    let length = Duration::from_secs(count("MMQ_CHILD_SECONDS", 1));
    let produced = AtomicBool::new(false);
    let (mut next, mut from, mut came, mut dropped) = (None, 0, 0u64, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begin = Instant::now();
            let mut seq = at_open;
            while begin.elapsed() < length {
                // 20,000 a second.
                while seq - at_open < (begin.elapsed().as_secs_f64() * 20_000.0) as u64 {
                    assert_eq!(queue.enqueue(made.bytes(seq)).unwrap(), seq);
                    seq += 1;
                }
                std::thread::sleep(Duration::from_micros(500));
            }
            produced.store(true, Ordering::Release);
        });
        loop {
            let ending = produced.load(Ordering::Acquire);
            match uplink.dequeue_timeout(Duration::from_millis(20)) {
                Ok(Some(message)) => {
                    let seq = message.seq();
                    from = from.min(*next.get_or_insert_with(|| {
                        from = seq;
                        seq
                    }));
                    assert_eq!(Some(seq), next);
                    made.check(seq, &message);
                    (next, came) = (Some(seq + 1), came + 1);
                }
                Ok(None) if ending => break,
                Ok(None) => {}
                Err(Error::Gap(gap)) => {
                    assert_eq!(gap.cause, GapCause::Dropped);
                    if next.is_none() {
                        from = gap.first;
                        assert!(gap.last + 1 >= oldest, "one gap, up to what is held: {gap}, {oldest}");
                    }
                    assert_eq!(next.unwrap_or(gap.first), gap.first);
                    (next, dropped) = (Some(gap.last + 1), dropped + gap.count());
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    let end = queue.stats().next_seq;
    assert_eq!(next, Some(end));
    let stats = queue.stats();
    assert_eq!((uplink.len(), stats.lost_messages, stats.dequeued), (0, stats.lost_dropped, came));
    support::eventually("the files are back at the floor", || {
        queue.stats().segments + queue.stats().spare_segments <= 3
    });
    let stats = queue.stats();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    for (name, value) in [
        ("from", from),
        ("end", end),
        ("came", came),
        ("dropped", dropped),
        ("dropped_by_figures", stats.lost_dropped),
        ("resident_peak_kib", peak),
        ("mapped_arenas", stats.mapped_arenas),
        ("files", support::names(&dir).len() as u64),
    ] {
        tell(&format!("{name} {value}"));
    }
    queue.close().unwrap();
}

// ---- Workers ----

fn jobs() -> Messages {
    Messages::new(7, &[0..=200])
}

#[test]
fn scenario_workers() {
    workers(6_000);
}

#[test]
#[ignore = "full size: 100,000 jobs"]
fn full_scenario_workers() {
    workers(100_000);
}

/// Eight threads, a journal, nacks, panics, three deaths: every job is acknowledged once and done at least once.
fn workers(total: u64) {
    let mut random = Random::new(seed());
    let dir = tempfile::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    fill_queue(&queue, &jobs(), 0, total);
    queue.consumer("workers").unwrap();
    drop(queue);
    let (mut acked, mut delivered) = (BTreeMap::<u64, u32>::new(), BTreeSet::new());
    let (mut again, begin) = (0, Instant::now());
    for life in 0..4 {
        let mut working = child("the_child_with_eight_workers", dir.path(), &[("MMQ_SEED", random.next())]);
        let mut unsure = BTreeSet::new();
        let mut doing = BTreeSet::new();
        let lines = BufReader::new(working.stderr.take().unwrap()).lines();
        // Dies after a part of the work. What it said until then is read to its end.
        let mut left = if life < 3 { total / 2 + random.below(total / 4) } else { u64::MAX };
        for line in lines.map_while(Result::ok) {
            let Some((what, seq)) = line.split_once(' ') else { continue };
            let Ok(seq) = seq.parse::<u64>() else { continue };
            match what {
                "got" => {
                    again += u64::from(!delivered.insert(seq) && doing.insert(seq));
                }
                "ack" => drop(unsure.insert(seq)),
                "acked" => {
                    unsure.remove(&seq);
                    *acked.entry(seq).or_default() += 1;
                }
                _ => panic!("{line}"),
            }
            left = left.wrapping_sub(1);
            if left == 0 {
                working.kill().unwrap();
            }
        }
        let status = working.wait().unwrap();
        assert!(life < 3 || status.success());
        // Death between an acknowledgement and its word: the queue says which it was.
        let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
        let waiting: BTreeSet<u64> =
            queue.consumer("workers").unwrap().iter().map(|message| message.unwrap().seq()).collect();
        for seq in unsure {
            if !waiting.contains(&seq) {
                *acked.entry(seq).or_default() += 1;
            }
        }
        assert!(waiting.iter().all(|seq| !acked.contains_key(seq)), "acknowledged and still there");
        assert_eq!(waiting.len() + acked.len(), total as usize, "neither acknowledged nor there any more");
        println!("life {life}: {} acknowledged so far", acked.len());
    }
    println!("{total} jobs in {:?}, {again} came again", begin.elapsed());
    assert_eq!(acked.len() as u64, total, "every job was acknowledged");
    assert!(acked.values().all(|times| *times == 1), "each once");
    assert_eq!(delivered.len() as u64, total);
}

#[test]
fn the_child_with_eight_workers() {
    let Some(dir) = child_dir() else { return };
    let seed = count("MMQ_SEED", 0);
    let queue = Options::new().arena_size(64 << 10).open(dir).unwrap();
    let consumer = queue.consumer("workers").unwrap();
    consumer.set_max_in_flight(32).unwrap();
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let consumer = consumer.clone();
            scope.spawn(move || {
                let mut random = Random::new(seed ^ worker);
                while !consumer.is_empty() {
                    let work = catch_unwind(AssertUnwindSafe(|| {
                        let Some(job) = consumer.receive_timeout(Duration::from_millis(50)).unwrap() else { return };
                        jobs().check(job.seq(), &job);
                        tell(&format!("got {}", job.seq()));
                        if random.chance(100) {
                            std::panic::resume_unwind(Box::new("the worker stumbles"));
                        }
                        if random.chance(20) {
                            return job.nack();
                        }
                        let seq = job.seq();
                        tell(&format!("ack {seq}"));
                        job.ack().unwrap();
                        tell(&format!("acked {seq}"));
                    }));
                    assert!(work.is_ok() || work.unwrap_err().is::<&str>(), "only stumbling is expected");
                }
            });
        }
    });
}

// ---- Sender with a window ----

const WINDOW: usize = 64;

fn sent(seed: u64, seq: u64) -> Vec<u8> {
    let made = Messages::new(seed, &[0..=1000]);
    if seq % 500 == 499 { made.of_len(seq, 4 * MIB) } else { made.bytes(seq) }
}

fn sender() -> Options {
    Options::new().arena_size(MIB as u64).max_mapped_arenas(8)
}

#[test]
fn scenario_sender_with_a_window() {
    sender_with_a_window(3_000);
}

#[test]
#[ignore = "full size: 20,000 messages"]
fn full_scenario_sender_with_a_window() {
    sender_with_a_window(20_000);
}

/// 64 in flight, answers after 0 to 50 ms in any order, two in a hundred lost, one message in 500 of 4 MiB, twenty restarts,
/// every second one a death: what arrives, without what arrives again, is what was sent, and a restart sends a window
/// again at most.
fn sender_with_a_window(total: u64) {
    let seed = seed();
    let mut random = Random::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut arrived = BTreeSet::new();
    let (mut again, mut most_again, begin) = (0, 0, Instant::now());
    for life in 0..=20 {
        let until = total * (life + 1).min(20) / 20;
        let settings = [("MMQ_SEED", seed), ("MMQ_CHILD_UNTIL", until), ("MMQ_CHILD_LIFE", life)];
        let mut sending = child("the_child_that_sends", dir.path(), &settings);
        let mut wire = BufReader::new(sending.stderr.take().unwrap());
        let (mut in_this_life, mut repeated) = (BTreeSet::new(), 0);
        // It is stopped somewhere: by a death, or by the end of its input, upon which it closes with all its window open.
        let mut left = if life < 20 { 1 + random.below(3 * total / 40) } else { u64::MAX };
        loop {
            let mut head = [0; 16];
            if wire.read_exact(&mut head).is_err() {
                break;
            }
            let seq = u64::from_le_bytes(head[..8].try_into().unwrap());
            let mut bytes = vec![0; u64::from_le_bytes(head[8..].try_into().unwrap()) as usize];
            if wire.read_exact(&mut bytes).is_err() {
                // Cut off by a death: it has not arrived.
                assert!(life < 20);
                break;
            }
            assert!(bytes == sent(seed, seq), "message {seq}");
            let news = arrived.insert(seq);
            repeated += u64::from(in_this_life.insert(seq) && !news);
            left = left.wrapping_sub(1);
            if left == 0 {
                match life % 2 {
                    0 => sending.kill().unwrap(),
                    _ => drop(sending.stdin.take()),
                }
            }
        }
        let status = sending.wait().unwrap();
        assert!(status.success() || life % 2 == 0 && life < 20, "life {life}: {status}");
        assert!(repeated <= WINDOW as u64, "{repeated} came again after restart {life}");
        again += repeated;
        most_again = most_again.max(repeated);
    }
    println!(
        "{total} arrived in {:?}, {again} of them again after one of 20 restarts, {most_again} after one at most",
        begin.elapsed()
    );
    assert!(arrived.into_iter().eq(0..total), "all that was sent, and nothing else");
    assert!(again > 0, "some restart met an open window");
    let queue = sender().open(dir.path()).unwrap();
    assert!(queue.is_empty());
    assert_eq!(queue.stats().next_seq, total);
}

#[test]
fn the_child_that_sends() {
    let Some(dir) = child_dir() else { return };
    let (seed, until, life) = (count("MMQ_SEED", 0), count("MMQ_CHILD_UNTIL", 0), count("MMQ_CHILD_LIFE", 0));
    static STOP: AtomicBool = AtomicBool::new(false);
    let queue = sender().open(dir).unwrap();
    queue.set_max_in_flight(WINDOW as u32).unwrap();
    let mut random = Random::new(seed ^ life << 32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in queue.stats().next_seq..until {
                if STOP.load(Ordering::Relaxed) {
                    break;
                }
                assert_eq!(queue.enqueue(sent(seed, seq)).unwrap(), seq);
            }
        });
        // The parent says stop by closing it. Not waited for: all may be sent before.
        std::thread::spawn(move || {
            let _ = std::io::stdin().read(&mut [0]);
            STOP.store(true, Ordering::Relaxed);
        });
        /// An answer on its way: the earliest first.
        struct Answer(Instant, Option<Delivery>);
        impl PartialEq for Answer {
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }
        impl Eq for Answer {}
        impl PartialOrd for Answer {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for Answer {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                other.0.cmp(&self.0)
            }
        }
        let mut window: BinaryHeap<Answer> = BinaryHeap::new();
        while !STOP.load(Ordering::Relaxed) {
            if let Some(delivery) = queue.receive_timeout(Duration::from_millis(1)).unwrap() {
                let mut frame = Vec::with_capacity(16 + delivery.len());
                frame.extend_from_slice(&delivery.seq().to_le_bytes());
                frame.extend_from_slice(&(delivery.len() as u64).to_le_bytes());
                frame.extend_from_slice(&delivery);
                std::io::stderr().write_all(&frame).expect("the parent reads");
                window.push(Answer(Instant::now() + Duration::from_micros(random.below(50_000)), Some(delivery)));
                assert!(window.len() <= WINDOW);
            } else if window.is_empty() && queue.stats().next_seq == until && queue.is_empty() {
                break;
            }
            while window.peek().is_some_and(|answer| answer.0 <= Instant::now()) {
                let Some(Answer(_, Some(delivery))) = window.pop() else { continue };
                // Two in a hundred are lost: it is sent again.
                if random.chance(50) { delivery.nack() } else { delivery.ack().unwrap() }
            }
        }
        if !window.is_empty() {
            // Closed with deliveries out: they come again.
            std::mem::forget(window);
        }
    });
    queue.close().unwrap();
}
