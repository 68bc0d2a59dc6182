//! Workers in many threads, and in a process that is killed.

use super::*;
use crate::support::effort;

#[test]
fn workers_get_each_message_exactly_once_among_them() {
    let (_dir, queue) = filled(2000);
    let consumer = queue.consumer("w").unwrap();
    let done = Mutex::new(BTreeMap::<u64, u32>::new());
    let nacks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (consumer, done, nacks) = (consumer.clone(), &done, &nacks);
            scope.spawn(move || {
                let mut random = Random::new(worker);
                while let Some(job) = consumer.receive_timeout(Duration::from_millis(200)).unwrap()
                {
                    messages().check(job.seq(), &job);
                    if random.chance(20) {
                        nacks.fetch_add(1, Ordering::Relaxed);
                        job.nack();
                    } else {
                        *done.lock().unwrap().entry(job.seq()).or_default() += 1;
                        job.ack().unwrap();
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!(done.len(), 2000);
    assert!(done.values().all(|times| *times == 1));
    assert!(nacks.load(Ordering::Relaxed) > 0);
    assert!(consumer.is_empty());
}

/// What the child says: `open`, `ack N` before and `acked N` after an acknowledgement, `done` at
/// the end.
fn report(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).expect("the parent reads");
}

#[test]
fn the_child_that_works() {
    let Ok(dir) = std::env::var("MMQ_WORK_DIR") else { return };
    let seed = count("MMQ_WORK_SEED", 0);
    let window = count("MMQ_WORK_WINDOW", 16) as usize;
    let mut random = Random::new(seed);
    let queue = Options::new().arena_size(64 << 10).open(dir).expect("the child opens the queue");
    let consumer = queue.consumer("w").unwrap();
    consumer.set_max_in_flight(window as u32).unwrap();
    report("open");
    let mut held: Vec<Delivery> = Vec::new();
    loop {
        match consumer.receive().unwrap() {
            Some(delivery) => held.push(delivery),
            None if held.is_empty() => break,
            None => {}
        }
        if held.len() == window || random.chance(3) {
            let delivery = held.swap_remove(random.below(held.len() as u64) as usize);
            if random.chance(20) {
                delivery.nack();
            } else {
                let seq = delivery.seq();
                report(&format!("ack {seq}"));
                delivery.ack().unwrap();
                report(&format!("acked {seq}"));
            }
        }
    }
    report("done");
    // Not dropped: the parent kills it.
    std::thread::sleep(Duration::from_secs(3600));
}

/// SIGKILL at a random moment brings back what was not acknowledged, exactly, and nothing else.
#[test]
fn a_killed_process_gets_back_exactly_what_it_had_not_acknowledged() {
    let seed = seed("killed at work");
    let mut random = Random::new(seed);
    let total = 3000;
    let (dir, queue) = filled(total);
    queue.consumer("w").unwrap();
    drop(queue);
    let mut acked = BTreeSet::new();
    let rounds = 20 * effort();
    for round in 0..rounds {
        let window = 2 + random.below(60);
        let mut command = itself("deliveries::processes::the_child_that_works");
        command.env("MMQ_WORK_DIR", dir.path()).env("MMQ_WORK_SEED", random.next().to_string());
        command.env("MMQ_WORK_WINDOW", window.to_string());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert_eq!(first.trim_end(), "open");
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        std::thread::sleep(Duration::from_micros(random.below(15_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        let mut acking = None;
        for line in receiver {
            match line.split_once(' ') {
                Some(("ack", seq)) => acking = Some(seq.parse::<u64>().unwrap()),
                Some(("acked", seq)) => {
                    assert!(
                        acked.insert(seq.parse::<u64>().unwrap()),
                        "{seq} was acknowledged twice (round {round})"
                    );
                    acking = None;
                }
                _ => assert_eq!(line, "done"),
            }
        }
        let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
        let consumer = queue.consumer("w").unwrap();
        let len = consumer.len();
        let waiting: BTreeSet<u64> =
            consumer.iter().map(|message| message.unwrap().seq()).collect();
        assert_eq!(len, waiting.len() as u64);
        let mut wanted: BTreeSet<u64> = (0..total).filter(|seq| !acked.contains(seq)).collect();
        if let Some(seq) = acking
            && !waiting.contains(&seq)
        {
            // Death came between the acknowledgement and the word of it.
            wanted.remove(&seq);
            acked.insert(seq);
        }
        assert_eq!(waiting, wanted, "round {round}, window {window}");
        if wanted.is_empty() {
            break;
        }
        if random.chance(2) {
            queue.close().unwrap();
        }
    }
    println!("{} of {total} acknowledged", acked.len());
}
