//! One queue, several consumers: each sees every message, from its own place, which the queue
//! stores by name.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("mmq-example-fan-out-{}", std::process::id()));
    let queue = mmq::Queue::open(&dir)?;
    let (mail, audit) = (queue.consumer("mail")?, queue.consumer("audit")?);
    for order in 1..=6 {
        queue.enqueue(format!("order {order}"))?;
    }
    for message in mmq::past_gaps(|| mail.dequeue_batch(4), tell)? {
        println!("mail:  {}", message.as_str()?);
    }
    read_all(&audit)?;
    // A third consumer begins where another stands, and goes back to a message that the other has
    // read.
    let report = mail.fork("report")?;
    report.seek(2)?;
    let next = mmq::past_gaps(|| report.peek(), tell)?;
    println!("report goes on from {:?}", next.map(|message| message.seq()));
    queue.close()?;

    // The places are still there.
    let queue = mmq::Queue::open(&dir)?;
    for name in queue.consumers() {
        println!("{name} has {} to go", queue.consumer(&name)?.len());
    }
    // Every consumer keeps the messages that it has not read on the disk. A removed one does not.
    queue.remove_consumer("report")?;
    queue.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

pub(crate) fn read_all(consumer: &mmq::Consumer) -> Result<u64, Box<dyn Error>> {
    let mut taken = 0;
    while let Some(message) = mmq::past_gaps(|| consumer.dequeue(), tell)? {
        println!("{}: {}", consumer.name(), message.as_str()?);
        taken += 1;
    }
    Ok(taken)
}

/// Reports messages that will never come (because they were damaged, for instance). Each consumer
/// gets each gap once.
fn tell(gap: mmq::Gap) {
    eprintln!("{gap}");
}
