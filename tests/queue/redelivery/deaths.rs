//! Jobs that end their process.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mmq::{Error, Queue, Redelivery};

use super::LONG;
use crate::support::{Random, effort, itself, seed};

const JOBS: u64 = 120;
/// The job that ends every process that does it.
const POISON: u64 = 37;
const ATTEMPTS: u32 = 4;

fn rules(dead: &Arc<Queue>) -> Redelivery {
    Redelivery::new()
        .lease(LONG)
        .backoff(Duration::from_millis(1), Duration::from_millis(20))
        .max_attempts(ATTEMPTS)
        .dead_letters(Arc::clone(dead))
}

/// Ends the process as a crash does: nothing is closed.
fn die() -> ! {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    unreachable!("the process was killed")
}

/// The child's part; nothing when the test is run by itself.
#[test]
fn the_child_that_works() {
    let Ok(dir) = std::env::var("MMQ_TEST_DIR") else { return };
    let dir = std::path::Path::new(&dir);
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (workers, seed) = (number("MMQ_CHILD_WORKERS"), number("MMQ_CHILD_SEED"));
    let dead = Arc::new(Queue::open(dir.join("dead")).unwrap());
    let done = Queue::open(dir.join("done")).unwrap();
    let queue = Queue::open(dir.join("jobs")).unwrap();
    let jobs = queue.consumer("jobs").unwrap();
    jobs.set_redelivery(rules(&dead)).unwrap();
    // Now and then a job ends the process once.
    let victim = Random::new(seed).below(3 * JOBS);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    match jobs.receive_timeout(Duration::from_millis(50)) {
                        Ok(Some(job)) => {
                            let number: u64 = job.as_str().unwrap().parse().unwrap();
                            if number == POISON {
                                die();
                            }
                            if done.len() == victim {
                                std::fs::write(dir.join(format!("innocent-{seed}")), "").unwrap();
                                die();
                            }
                            done.enqueue(number.to_string()).unwrap();
                            job.ack().unwrap();
                        }
                        Ok(None) if jobs.is_empty() => is_over.store(true, Ordering::Relaxed),
                        Ok(None) => {}
                        Err(Error::Gap(gap)) => panic!("{gap}"),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

/// Runs children until the jobs are done. Returns how many died.
fn work_off(dir: &std::path::Path, workers: u64, random: &mut Random) -> u32 {
    for deaths in 0..200 {
        let status = itself("redelivery::deaths::the_child_that_works")
            .env("MMQ_TEST_DIR", dir)
            .env("MMQ_CHILD_WORKERS", workers.to_string())
            .env("MMQ_CHILD_SEED", random.next().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        if status.success() {
            return deaths;
        }
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(9), "the child failed by itself");
    }
    panic!("the poison comes for ever");
}

/// The job that ends its process becomes a dead letter. Every other job is done, or becomes one as
/// well if it was in flight beside that job each time.
#[test]
fn a_job_that_ends_its_process_becomes_a_dead_letter() {
    let mut random = Random::new(seed("deaths"));
    for round in 0..3 * effort() {
        let workers = [1, 3, 2, 4][round as usize % 4];
        let dir = crate::support::tempdir().unwrap();
        let queue = Queue::open(dir.path().join("jobs")).unwrap();
        queue.consumer("jobs").unwrap();
        for number in 0..JOBS {
            queue.enqueue(number.to_string()).unwrap();
        }
        queue.close().unwrap();
        let deaths = work_off(dir.path(), workers, &mut random);
        let text = |message: mmq::Message| message.as_str().unwrap().to_owned();
        let dead = Queue::open(dir.path().join("dead")).unwrap();
        let number = |message: mmq::Result<mmq::Message>| text(message.unwrap()).parse().unwrap();
        let mut rejected = Vec::new();
        for message in dead.iter() {
            let attempts = message.as_ref().unwrap().origin().unwrap().attempts;
            assert_eq!(attempts, ATTEMPTS, "no message is rejected earlier");
            rejected.push(number(message));
        }
        assert!(rejected.contains(&POISON), "{rejected:?}");
        let names = std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name());
        let others =
            names.filter(|name| name.to_string_lossy().starts_with("innocent")).count() as u32;
        // (A death by another job counts for this one too, if it is in flight.)
        assert!(deaths - others <= ATTEMPTS, "{deaths} deaths, {others} of these by other jobs");
        if workers == 1 {
            // (A process that died between the letter and its acknowledgement sent it twice.)
            let once = if others == 0 { &rejected[..] } else { &rejected[..1] };
            assert_eq!((deaths - others, once), (ATTEMPTS, &[POISON][..]));
            assert!(rejected.iter().all(|number| *number == POISON), "{rejected:?}");
        }
        let done = Queue::open(dir.path().join("done")).unwrap();
        // A job whose process died between its work and its acknowledgement is done twice.
        let mut numbers: Vec<u64> = done.iter().map(number).chain(rejected).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..JOBS).collect::<Vec<_>>());
        println!("{workers} workers: {deaths} deaths, {others} of these by other jobs");
    }
}
