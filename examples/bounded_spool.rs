//! A spool that never takes more than 1 MiB of disk: the oldest measurements go when the uplink is
//! away for too long, and it is told exactly which.

use std::error::Error;
use std::io::{self, Write};
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
    println!("{} sent", send_all(&uplink)?);
    queue.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// Sends what there is. A measurement is taken off the spool once it was sent; those that were
/// given up are told.
pub(crate) fn send_all(uplink: &mmq::Consumer) -> io::Result<u64> {
    let mut sent = 0;
    uplink.for_each(|measurement| send(measurement, &mut sent), |gap| println!("{gap}"))?;
    Ok(sent)
}

/// Stands for a call that may fail: then the measurement waits for the next try.
fn send(measurement: &[u8], sent: &mut u64) -> io::Result<()> {
    io::sink().write_all(measurement)?;
    *sent += 1;
    Ok(())
}
