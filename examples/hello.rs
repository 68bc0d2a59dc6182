//! The smallest program: put two messages in, close, open again, take them out.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?; // a real program names a directory of its own
    let queue = mmq::Queue::open(dir.path())?;
    queue.enqueue("hello")?;
    queue.enqueue("world")?;
    queue.close()?;

    let queue = mmq::Queue::open(dir.path())?;
    read(&queue)?;
    Ok(queue.close()?)
}

/// Takes all messages out. A gap (damaged messages, for instance) is reported; the messages behind
/// it still come.
pub(crate) fn read(queue: &mmq::Queue) -> mmq::Result<u64> {
    let mut taken = 0;
    while let Some(message) = mmq::past_gaps(|| queue.dequeue(), |gap| eprintln!("{gap}"))? {
        println!("{}: {}", message.seq(), String::from_utf8_lossy(&message));
        taken += 1;
    }
    Ok(taken)
}
