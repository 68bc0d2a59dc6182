//! The smallest program: put two messages in, close, open again, take them out.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?; // a real program names a directory of its own
    let queue = mmq::Queue::open(dir.path())?;
    queue.enqueue("hello")?;
    queue.enqueue("world")?;
    queue.close()?;

    let queue = mmq::Queue::open(dir.path())?;
    while let Some(message) = queue.dequeue()? {
        println!("{}: {}", message.seq(), message.as_str()?);
    }
    Ok(queue.close()?)
}
