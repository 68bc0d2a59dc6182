//! At-least-once work: several threads share a consumer; what fails comes again, what is done does
//! not.
//!
//! Usage: `workers [DIR]`. With a directory the queue is kept: stop it with Ctrl-C and start it
//! again. Exit status 0 means that nothing is left to do; jobs whose bytes were damaged, or that a
//! power cut took, are told, and the others done.

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
    let Outcome { done, failed, lost } = work(&workers)?;
    let left = workers.len();
    if lost > 0 {
        println!("{lost} will never come");
    }
    println!("{done} done, {failed} failed once and came again, {left} left");
    queue.close()?;
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

/// Does what there is to do, with several threads.
pub(crate) fn work(workers: &mmq::Consumer) -> mmq::Result<Outcome> {
    // No more than two for each worker are handed out at a time.
    workers.set_max_in_flight(2 * WORKERS as u32)?;
    let (done, failed, lost) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // One of the threads is told, and goes on behind it.
    let tell = |gap: mmq::Gap| {
        eprintln!("{gap}");
        lost.fetch_add(gap.count(), Ordering::Relaxed);
    };
    let next = || mmq::past_gaps(|| workers.receive_timeout(Duration::from_millis(100)), tell);
    let worker = || -> mmq::Result<()> {
        while let Some(job) = next()? {
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
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        // The result of a thread that nobody asks for is an error that nobody sees.
        threads.into_iter().try_for_each(|thread| thread.join().expect("no worker panics"))
    })?;
    Ok(Outcome { done: done.into_inner(), failed: failed.into_inner(), lost: lost.into_inner() })
}
