//! A spool that never takes more than 1 MiB of disk. When the uplink is away for too long the queue
//! drops the oldest measurements, and reports to the uplink exactly which.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use mmq::{OnFull, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir =
        std::env::temp_dir().join(format!("mmq-example-bounded-spool-{}", std::process::id()));
    let queue = Options::new()
        .arena_size(64 << 10)
        .max_bytes(1 << 20)
        .on_full(OnFull::DropOldest)
        .max_age(Duration::from_secs(24 * 3600))
        .open(&dir)?;
    let uplink = queue.consumer("uplink")?;
    // The uplink is away: measurements pile up.
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

/// Sends all measurements, and reports those that were dropped. A measurement leaves the spool only
/// after it was sent.
pub(crate) fn send_all(uplink: &mmq::Consumer) -> io::Result<u64> {
    let mut sent = 0;
    uplink.for_each(|measurement| send(measurement, &mut sent), |gap| println!("{gap}"))?;
    Ok(sent)
}

/// Stands for a call that may fail. After an error the measurement stays in the spool for the next
/// try.
fn send(measurement: &[u8], sent: &mut u64) -> io::Result<()> {
    io::sink().write_all(measurement)?;
    *sent += 1;
    Ok(())
}
