//! A sender with a window of messages that are not acknowledged.

use super::*;

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

/// 64 in flight, answers after 0 to 50 ms in any order, two in a hundred lost, one message in 500
/// of 4 MiB, twenty restarts, every second one a death: what arrives, without what arrives again,
/// is what was sent, and a restart sends a window again at most.
fn sender_with_a_window(total: u64) {
    let seed = seed();
    let mut random = Random::new(seed);
    let dir = crate::support::tempdir().unwrap();
    let mut arrived = BTreeSet::new();
    let (mut again, mut most_again, begin) = (0, 0, Instant::now());
    for life in 0..=20 {
        let until = total * (life + 1).min(20) / 20;
        let settings = [("MMQ_SEED", seed), ("MMQ_CHILD_UNTIL", until), ("MMQ_CHILD_LIFE", life)];
        let mut sending = child("window::the_child_that_sends", dir.path(), &settings);
        let mut wire = BufReader::new(sending.stderr.take().unwrap());
        let (mut in_this_life, mut repeated) = (BTreeSet::new(), 0);
        // It is stopped somewhere: by a death, or by the end of its input, upon which it closes
        // with all its window open.
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
    let (seed, until, life) =
        (count("MMQ_SEED", 0), count("MMQ_CHILD_UNTIL", 0), count("MMQ_CHILD_LIFE", 0));
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
                window.push(Answer(
                    Instant::now() + Duration::from_micros(random.below(50_000)),
                    Some(delivery),
                ));
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
