//! A telemetry spool that drops its oldest messages.

use super::*;

const RECORD: usize = 700;

fn spool(limit: u64) -> Options {
    Options::new()
        .arena_size(MIB as u64)
        .max_mapped_arenas(8)
        .max_bytes(limit)
        .on_full(OnFull::DropOldest)
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

/// A producer that pushes eight times what fits while the consumer is away, and is killed; then
/// both, `seconds` long.
fn telemetry_spool(mib: u64, rounds: u64, seconds: u64) {
    let seed = seed();
    let mut random = Random::new(seed);
    let limit = mib << 20;
    let total = 8 * limit / RECORD as u64;
    let dir = crate::support::tempdir().unwrap();
    // The consumer has been there once.
    spool(limit).open(dir.path()).unwrap().consumer("uplink").unwrap();
    let ((), most) = watched(dir.path(), || {
        let mut next = 0;
        for round in 0..rounds {
            let settings = [("MMQ_CHILD_LIMIT", limit), ("MMQ_SEED", seed)];
            let mut pushing = child("spool::the_child_that_spools", dir.path(), &settings);
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
            let settings =
                [("MMQ_CHILD_LIMIT", limit), ("MMQ_SEED", seed), ("MMQ_CHILD_SECONDS", seconds)];
            let mut draining = child("spool::the_child_that_drains", dir.path(), &settings);
            let mut reported = BTreeMap::new();
            for line in BufReader::new(draining.stderr.take().unwrap()).lines() {
                let line = line.unwrap();
                match line.split_once(' ').map(|(name, value)| (name, value.parse::<u64>())) {
                    Some((name, Ok(value))) => drop(reported.insert(name.to_owned(), value)),
                    // It panics.
                    _ => eprintln!("{line}"),
                }
            }
            assert!(draining.wait().unwrap().success(), "{reported:?}");
            println!("round {round}: {put} put before death; {reported:?}");
            assert!(reported["next_at_open"] >= put, "what was put in before the death is there");
            assert_eq!(reported["from"], next, "it goes on where it stood");
            assert_eq!(reported["came"] + reported["dropped"], reported["end"] - next);
            assert_eq!(reported["dropped"], reported["dropped_by_figures"]);
            assert!(reported["resident_peak_kib"] < 64 << 10, "{reported:?}");
            assert!(reported["mapped_arenas"] <= 8 && reported["files"] <= 8, "{reported:?}");
            next = reported["end"];
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
            report(&seq.to_string());
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
    report(&format!("opened_us {}", opened.as_micros()));
    let uplink = queue.consumer("uplink").unwrap();
    let (at_open, oldest) = (queue.stats().next_seq, queue.stats().oldest_seq);
    report(&format!("next_at_open {at_open}"));
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
                        assert!(
                            gap.last + 1 >= oldest,
                            "one gap, up to what is held: {gap}, {oldest}"
                        );
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
    crate::support::eventually("the files are back at the floor", || {
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
        ("files", crate::support::names(&dir).len() as u64),
    ] {
        report(&format!("{name} {value}"));
    }
    queue.close().unwrap();
}
