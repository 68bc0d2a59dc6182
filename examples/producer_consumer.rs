//! One thread puts messages in, another takes them out as they come, waiting when there are none.

use std::error::Error;
use std::thread;
use std::time::Duration;

const MESSAGES: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?; // a real program names a directory of its own
    let queue = mmq::Queue::open(dir.path())?;
    let (messages, bytes) = thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(&queue, MESSAGES));
        for number in 0..MESSAGES {
            queue.enqueue(format!("message {number}"))?;
        }
        consumer.join().expect("the consumer does not panic")
    })?;
    println!("{messages} messages of {bytes} bytes came out in order");
    Ok(queue.close()?)
}

/// Takes the messages with numbers below `end` out. Returns how many messages and bytes there were.
pub(crate) fn consume(queue: &mmq::Queue, end: u64) -> mmq::Result<(u64, usize)> {
    let (mut messages, mut bytes) = (0, 0);
    let mut next = 0;
    while next < end {
        // Wakes as soon as a message is there; the time-out only bounds how long it sleeps.
        match queue.dequeue_timeout(Duration::from_secs(1)) {
            Ok(None) => {}
            Ok(Some(message)) => {
                assert_eq!(message.seq(), next);
                next += 1;
                messages += 1;
                bytes += message.len();
            }
            // A gap comes once; the messages behind it still come.
            Err(mmq::Error::Gap(gap)) => {
                eprintln!("{gap}");
                next = gap.last + 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((messages, bytes))
}
