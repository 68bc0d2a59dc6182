//! One task of tokio that does several things at once: it takes readings, sends them, says now and
//! then how it stands, and ends when it is told to. The queue waits without a thread.
//!
//! Usage: `select [DIR]`. Needs the feature `async`. Readings that were damaged, or lost in a power
//! cut, are reported; the others are sent.

use std::error::Error;
use std::time::Duration;

use tokio::sync::oneshot;

const READINGS: u64 = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let (dir, temporary) = match std::env::args_os().nth(1) {
        Some(dir) => (dir.into(), false),
        None => {
            (std::env::temp_dir().join(format!("mmq-example-select-{}", std::process::id())), true)
        }
    };
    // Small, so that the producer has to wait for room.
    let queue = mmq::Options::new()
        .max_bytes(256 << 10)
        .arena_size(32 << 10)
        .on_full(mmq::OnFull::Wait(None))
        .open(&dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let outcome = runtime.block_on(async {
        let (all_in, stop) = oneshot::channel();
        let link = queue.consumer("link")?;
        let (produced, sent) = tokio::join!(produce(&queue, all_in), send(&link, stop));
        produced?;
        sent
    })?;
    let Sent { readings, lost } = outcome;
    if lost > 0 {
        println!("{lost} will never come");
    }
    println!("{readings} sent, {} left", queue.consumer("link")?.len());
    // All is acknowledged: a close calls off what is in hand. It waits for the disk; here, outside
    // of the runtime, that holds up no task.
    queue.close()?;
    if temporary {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Puts readings in. While there is no room it waits, and other tasks go on.
async fn produce(queue: &mmq::Queue, all_in: oneshot::Sender<()>) -> mmq::Result<()> {
    for reading in 0..READINGS {
        queue.enqueue_async(format!("reading {reading} of a sensor that has a lot to say")).await?;
    }
    queue.flush_async().await?;
    // (The receiver is gone when it has failed: its own error tells of that.)
    let _ = all_in.send(());
    Ok(())
}

#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) readings: u64,
    pub(crate) lost: u64,
}

/// Sends readings until `stop` comes, and then those that are left. (A service has
/// `tokio::signal::ctrl_c()` in the place of `stop`.)
pub(crate) async fn send(
    link: &mmq::Consumer,
    mut stop: oneshot::Receiver<()>,
) -> mmq::Result<Sent> {
    let mut sent = Sent::default();
    let mut is_stopping = false;
    let mut clock = tokio::time::interval(Duration::from_millis(100));
    while !is_stopping || !link.is_empty() {
        tokio::select! {
            // The future of a branch that did not win is dropped. It has taken nothing then.
            reading = link.recv_delivery() => match reading {
                Ok(reading) => {
                    // `stop` ends no work: the other branches wait until this one is done.
                    transmit(&reading).await;
                    reading.ack()?;
                    sent.readings += 1;
                }
                Err(mmq::Error::Gap(gap)) => {
                    sent.lost += gap.count();
                    eprintln!("{gap}");
                }
                Err(error) => return Err(error),
            },
            _ = clock.tick() => println!("{} sent, {} wait", sent.readings, link.len()),
            _ = &mut stop, if !is_stopping => is_stopping = true,
        }
    }
    Ok(sent)
}

/// Here a reading would be sent. If this future is dropped meanwhile, the reading comes again.
async fn transmit(_reading: &[u8]) {
    tokio::task::yield_now().await;
}
