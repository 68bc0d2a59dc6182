//! At-least-once work: several threads share a consumer; what fails comes again, what is done does not.
//!
//! Usage: `workers [DIR]`. With a directory the queue is kept: stop it with Ctrl-C and start it again.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const JOBS: u64 = 200;
const WORKERS: u64 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let (dir, temporary) = match std::env::args_os().nth(1) {
        Some(dir) => (dir.into(), false),
        None => (std::env::temp_dir().join(format!("mmq-workers-{}", std::process::id())), true),
    };
    let queue = mmq::Queue::open(&dir)?;
    let workers = queue.consumer("workers")?;
    println!("{} jobs were left over", workers.len());
    for job in 0..JOBS {
        queue.enqueue(format!("job {job}"))?;
    }
    // No more than two for each worker are handed out at a time.
    workers.set_max_in_flight(2 * WORKERS as u32);
    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| -> mmq::Result<()> {
                while let Some(job) = workers.receive_timeout(Duration::from_millis(100))? {
                    // Every tenth fails the first time: dropping the delivery gives it back.
                    if job.seq() % 10 == 3 && job.attempts() == 1 {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    std::thread::sleep(Duration::from_micros(200));
                    job.ack()?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
    });
    println!("{} done, {} failed once and came again, {} left", done.into_inner(), failed.into_inner(), workers.len());
    queue.close()?;
    if temporary {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}
