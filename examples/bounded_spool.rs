//! A spool that never takes more than 1 MiB of disk: the oldest measurements go when the uplink is away for too long, and
//! it is told exactly which.

use std::error::Error;
use std::time::Duration;

use mmq::{OnFull, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("mmq-bounded-spool-{}", std::process::id()));
    let queue = Options::new()
        .arena_size(64 << 10)
        .max_bytes(1 << 20)
        .on_full(OnFull::DropOldest)
        .max_age(Duration::from_secs(24 * 3600))
        .open(&dir)?;
    let uplink = queue.consumer("uplink")?;
    // The uplink is away.
    for n in 0..5000u32 {
        queue.enqueue(format!("measurement {n}: {}", "x".repeat(600)))?;
    }
    println!("{}", queue.stats());
    // It is back.
    let mut sent = 0;
    loop {
        match uplink.dequeue() {
            Ok(Some(_)) => sent += 1,
            Ok(None) => break,
            Err(mmq::Error::Gap(gap)) => println!("{gap}"),
            Err(error) => return Err(error.into()),
        }
    }
    println!("{sent} sent");
    queue.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
