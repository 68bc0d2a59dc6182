//! Workers that fail, and that die.

use super::*;

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

/// Eight threads, a journal, nacks, panics, three deaths: every job is acknowledged once and done
/// at least once.
fn workers(total: u64) {
    let mut random = Random::new(seed());
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    fill_queue(&queue, &jobs(), 0, total);
    queue.consumer("workers").unwrap();
    drop(queue);
    let (mut acked, mut delivered) = (BTreeMap::<u64, u32>::new(), BTreeSet::new());
    let (mut again, begin) = (0, Instant::now());
    for life in 0..4 {
        let mut working = child(
            "workers::the_child_with_eight_workers",
            dir.path(),
            &[("MMQ_SEED", random.next())],
        );
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
        let waiting: BTreeSet<u64> = queue
            .consumer("workers")
            .unwrap()
            .iter()
            .map(|message| message.unwrap().seq())
            .collect();
        for seq in unsure {
            if !waiting.contains(&seq) {
                *acked.entry(seq).or_default() += 1;
            }
        }
        assert!(waiting.iter().all(|seq| !acked.contains_key(seq)), "acknowledged and still there");
        assert_eq!(
            waiting.len() + acked.len(),
            total as usize,
            "neither acknowledged nor there any more"
        );
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
                        let Some(job) =
                            consumer.receive_timeout(Duration::from_millis(50)).unwrap()
                        else {
                            return;
                        };
                        jobs().check(job.seq(), &job);
                        report(&format!("got {}", job.seq()));
                        if random.chance(100) {
                            std::panic::resume_unwind(Box::new("the worker stumbles"));
                        }
                        if random.chance(20) {
                            return job.nack();
                        }
                        let seq = job.seq();
                        report(&format!("ack {seq}"));
                        job.ack().unwrap();
                        report(&format!("acked {seq}"));
                    }));
                    assert!(
                        work.is_ok() || work.unwrap_err().is::<&str>(),
                        "only stumbling is expected"
                    );
                }
            });
        }
    });
}
