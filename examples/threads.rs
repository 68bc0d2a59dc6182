//! Several producers and several consumers on one queue: every message reaches exactly one
//! consumer, and each consumer sees the messages of one producer in the order in which that
//! producer put them in.

use std::error::Error;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use byteorder::{ByteOrder, LittleEndian};

const PRODUCERS: u64 = 4;
const CONSUMERS: u64 = 3;
const MESSAGES_EACH: u64 = 50_000;
const MESSAGES: u64 = PRODUCERS * MESSAGES_EACH;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let queue = mmq::Queue::open(dir.path())?;
    let start = Instant::now();

    let passed = AtomicU64::new(0);
    let received = thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                scope.spawn({
                    let queue = &queue;
                    move || produce(queue, producer)
                })
            })
            .collect();
        let consumers: Vec<_> =
            (0..CONSUMERS).map(|_| scope.spawn(|| consume(&queue, MESSAGES, &passed))).collect();
        for producer in producers {
            producer.join().expect("no producer panics")?;
        }
        consumers
            .into_iter()
            .map(|consumer| consumer.join().expect("no consumer panics"))
            .collect::<mmq::Result<Vec<_>>>()
    })?;

    check(&received)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{MESSAGES} messages from {PRODUCERS} producers reached {CONSUMERS} consumers in {seconds:.3} s:"
    );
    for (consumer, messages) in received.iter().enumerate() {
        println!("  consumer {consumer} took {}", messages.len());
    }
    println!("each exactly once, in every producer's order");
    Ok(queue.close()?)
}

/// Puts messages in. Each has 16 bytes: the producer, and the message's number among that
/// producer's.
fn produce(queue: &mmq::Queue, producer: u64) -> mmq::Result<()> {
    for number in 0..MESSAGES_EACH {
        let parts = [producer.to_le_bytes(), number.to_le_bytes()];
        queue.enqueue_parts(&parts.each_ref().map(|part| IoSlice::new(part)))?;
    }
    Ok(())
}

/// Takes messages until all consumers together have passed `end` of them, lost ones included. A
/// lost message is reported to one consumer, which goes on; `check` then finds that it is missing.
pub(crate) fn consume(
    queue: &mmq::Queue,
    end: u64,
    passed: &AtomicU64,
) -> mmq::Result<Vec<(u64, u64)>> {
    let mut received = Vec::new();
    let tell = |gap: mmq::Gap| {
        eprintln!("{gap}");
        passed.fetch_add(gap.count(), Ordering::Relaxed);
    };
    while passed.load(Ordering::Relaxed) < end {
        // The time-out is for a consumer that still waits when another one has taken the last
        // message.
        if let Some(message) =
            mmq::past_gaps(|| queue.dequeue_timeout(Duration::from_millis(10)), tell)?
        {
            passed.fetch_add(1, Ordering::Relaxed);
            received.push((
                LittleEndian::read_u64(&message[..8]),
                LittleEndian::read_u64(&message[8..]),
            ));
        }
    }
    Ok(received)
}

fn check(received: &[Vec<(u64, u64)>]) -> Result<(), String> {
    for (consumer, messages) in received.iter().enumerate() {
        let mut next = [0; PRODUCERS as usize];
        for &(producer, number) in messages {
            let next = &mut next[producer as usize];
            if number < *next {
                return Err(format!(
                    "consumer {consumer}: message {number} of producer {producer} is out of order"
                ));
            }
            *next = number + 1;
        }
    }
    let mut all: Vec<_> = received.concat();
    all.sort_unstable();
    let expected = (0..PRODUCERS)
        .flat_map(|producer| (0..MESSAGES_EACH).map(move |number| (producer, number)));
    if all.into_iter().eq(expected) {
        Ok(())
    } else {
        Err("messages were lost or came twice".into())
    }
}
