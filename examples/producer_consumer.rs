//! One thread puts messages in, another takes them out as they come, waiting when there are none.

use std::error::Error;
use std::thread;
use std::time::Duration;

const MESSAGES: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?; // a real program names a directory of its own
    let queue = mmq::Queue::open(dir.path())?;
    let bytes = thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(&queue));
        for number in 0..MESSAGES {
            queue.enqueue(format!("message {number}"))?;
        }
        consumer.join().expect("the consumer does not panic")
    })?;
    println!("{MESSAGES} messages of {bytes} bytes came out in order");
    Ok(queue.close()?)
}

fn consume(queue: &mmq::Queue) -> mmq::Result<usize> {
    let mut bytes = 0;
    let mut expected = 0;
    while expected < MESSAGES {
        // Wakes as soon as a message is there; the time-out only bounds how long it sleeps.
        let Some(message) = queue.dequeue_timeout(Duration::from_secs(1))? else { continue };
        assert_eq!(message.seq(), expected);
        bytes += message.len();
        expected += 1;
    }
    Ok(bytes)
}
