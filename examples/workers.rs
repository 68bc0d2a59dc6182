//! At-least-once work: several threads share a consumer. A job that fails comes again, later each
//! time; one that is done does not. A job that fails five times is put aside, in a queue for dead
//! letters.
//!
//! Usage: `workers [DIR]`. With a directory the queues are kept: stop the program with Ctrl-C and
//! start it again. Exit status 0 means that no job is left. Jobs that were damaged, or lost in a
//! power cut, are reported; the others are done.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const JOBS: u64 = 200;
const WORKERS: u64 = 4;
const BROKEN: &str = "a job that never works";

fn main() -> Result<(), Box<dyn Error>> {
    let (dir, temporary) = match std::env::args_os().nth(1) {
        Some(dir) => (dir.into(), false),
        None => {
            (std::env::temp_dir().join(format!("mmq-example-workers-{}", std::process::id())), true)
        }
    };
    let queue = mmq::Queue::open(dir.join("jobs"))?;
    let dead = Arc::new(mmq::Queue::open(dir.join("failed"))?);
    let workers = queue.consumer("workers")?;
    println!("{} jobs were left over", workers.len());
    for job in 0..JOBS {
        queue.enqueue(format!("job {job}"))?;
    }
    queue.enqueue(BROKEN)?;
    let Outcome { done, failed, lost } = work(&workers, &dead)?;
    let left = workers.len();
    if lost > 0 {
        println!("{lost} will never come");
    }
    println!("{done} done, {failed} failed once and came again, {left} left");
    // Somebody has to look at these.
    while let Some(letter) = mmq::past_gaps(|| dead.dequeue(), |gap| eprintln!("{gap}"))? {
        let tried = letter.origin().map_or(0, |origin| origin.attempts);
        println!("{:?} failed {tried} times", letter.as_str().unwrap_or("?"));
    }
    queue.close()?;
    drop(dead);
    if temporary {
        std::fs::remove_dir_all(dir)?;
    }
    if left == 0 { Ok(()) } else { Err(format!("{left} jobs are left").into()) }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
}

/// Does all jobs, with several threads. Those that fail too often go to `dead`.
pub(crate) fn work(workers: &mmq::Consumer, dead: &Arc<mmq::Queue>) -> mmq::Result<Outcome> {
    workers.set_redelivery(
        mmq::Redelivery::new()
            // A worker that hangs loses its job to another one.
            .lease(Duration::from_secs(60))
            .backoff(Duration::from_millis(1), Duration::from_secs(1))
            .max_attempts(5)
            .dead_letters(Arc::clone(dead)),
    )?;
    // At most two jobs for each worker are handed out at a time.
    workers.set_max_in_flight(2 * WORKERS as u32)?;
    let (done, failed, lost) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // One of the threads gets a gap, and goes on with the next job.
    let tell = |gap: mmq::Gap| {
        eprintln!("{gap}");
        lost.fetch_add(gap.count(), Ordering::Relaxed);
    };
    let next = || mmq::past_gaps(|| workers.receive_timeout(Duration::from_millis(10)), tell);
    let worker = || -> mmq::Result<()> {
        // One that another worker has, or that waits for its next attempt, may come yet.
        while !workers.is_empty() {
            let Some(job) = next()? else { continue };
            // Dropping the delivery gives the job back.
            if job.as_str() == Ok(BROKEN) {
                continue;
            }
            // Every tenth job fails the first time.
            if job.seq() % 10 == 3 && job.attempts() == 1 {
                failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            std::thread::sleep(Duration::from_micros(200));
            job.ack()?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        // Joins every thread: an error in a thread that is not joined would be lost.
        threads.into_iter().try_for_each(|thread| thread.join().expect("no worker panics"))
    })?;
    Ok(Outcome { done: done.into_inner(), failed: failed.into_inner(), lost: lost.into_inner() })
}
