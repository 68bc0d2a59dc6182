//! A queue that other processes use through its owner.
//!
//! - `put`: a client puts 128 bytes in, and waits for the answer.
//! - `put in windows`: a writer with many messages under way.
//! - `put to reader`: from the call of one client until another one, which waits, has the message;
//!   as fast as the reader takes them, and one each millisecond.
//! - `owner, shared / not shared`: the owner's own enqueue and dequeue, while no client asks.
//!
//! Owner, writer and reader are three processes. Times are medians, with the 99th percentile.

mod support;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use mmq::{Client, Options, Queue};
use rustix::time::{ClockId, clock_gettime};

use support::{asked_for, median, percentile, print_fingerprint, scratch};

const LEN: usize = 128;
const DIR: &str = "MMQ_BENCH_QUEUE";
const CHILD: &str = "MMQ_BENCH_CHILD";
/// Only ends a hang.
const HANG: Duration = Duration::from_secs(60);

/// The clock that all processes share, in nanoseconds.
fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn report(what: &str, times: &mut [f64]) {
    println!("{what:32} {:>8.1} us {:>8.1} us", median(times), percentile(times, 0.99));
}

fn count(of: usize) -> usize {
    if asked_for("--test") { 10 } else { of }
}

/// What the process does that puts messages in.
fn put(dir: &Path) {
    let client = connect(dir);
    let message = [7; LEN];
    let mut taken: Vec<_> = (0..count(20_000))
        .map(|_| {
            let began = Instant::now();
            client.enqueue(message).expect("room");
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    report("put", &mut taken);
    let (mut writer, messages) = (client.writer().expect("an owner"), count(2_000_000));
    let began = Instant::now();
    (0..messages).for_each(|_| writer.enqueue(message).expect("room"));
    writer.wait().expect("room");
    let rate = messages as f64 / began.elapsed().as_secs_f64();
    println!("{:32} {:>8.0} messages a second", "put in windows", rate);
}

/// The queue in which the reader says when each message came.
fn times(dir: &Path) -> PathBuf {
    dir.with_extension("times")
}

/// What the process does whose messages the reader takes.
fn write_to_reader(dir: &Path) {
    let (client, back) = (connect(dir), connect(&times(dir)));
    let back = back.consumer("").expect("a consumer");
    for (what, pause) in [("put to reader", 0), ("put to reader, each ms", 1)] {
        let mut taken = Vec::new();
        for _ in 0..count(3_000) {
            std::thread::sleep(Duration::from_millis(pause));
            let began = nanoseconds();
            client.enqueue([7; LEN]).expect("room");
            let came = back.dequeue_timeout(HANG).expect("an owner").expect("the reader's time");
            let came = u64::from_le_bytes(*came.first_chunk().expect("eight bytes"));
            taken.push((came - began) as f64 / 1e3);
        }
        report(what, &mut taken);
    }
}

/// What the process that reads does.
fn read(dir: &Path) {
    let (client, back) = (connect(dir), connect(&times(dir)));
    let reader = client.consumer("reader").expect("a consumer");
    while let Ok(Some(_)) = reader.dequeue_timeout(HANG) {
        if back.enqueue(nanoseconds().to_le_bytes()).is_err() {
            return;
        }
    }
}

fn connect(dir: &Path) -> Client {
    Client::connect(dir).expect("an owner")
}

fn child(what: &str, dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(std::env::args().skip(1)).env(DIR, dir).env(CHILD, what);
    child.spawn().expect("a process")
}

fn is_good(mut child: Child) {
    assert!(child.wait().expect("its end").success());
}

/// Two queues in turns.
fn owners(dir: &Path) {
    let open =
        |name: &str, shared| Queue::options().shared(shared).open(dir.join(name)).expect("a queue");
    let both = [open("shared", true), open("own", false)];
    let mut taken = [Vec::new(), Vec::new()];
    for _ in 0..count(60) {
        for (queue, taken) in both.iter().zip(&mut taken) {
            let began = Instant::now();
            for _ in 0..count(50_000) {
                queue.enqueue(black_box([7; LEN])).expect("room");
                black_box(queue.dequeue().expect("intact"));
            }
            taken.push(began.elapsed().as_secs_f64() * 1e6 / count(50_000) as f64);
        }
    }
    let [shared, own] = taken.each_mut().map(|taken| median(taken));
    println!("{:32} {:>8.3} of the time when it is not", "owner's pair, shared", shared / own);
}

fn main() {
    if let Some(dir) = std::env::var_os(DIR) {
        let dir = Path::new(&dir);
        return match &*std::env::var(CHILD).expect("what to do") {
            "put" => put(dir),
            "read" => read(dir),
            _ => write_to_reader(dir),
        };
    }
    print_fingerprint();
    println!("{:32} {:>11} {:>11}", "", "median", "99 %");
    let scratch = scratch();
    let dir = scratch.path().join("queue");
    let open = |dir: &Path| Options::new().shared(true).open(dir).expect("a queue");
    let (queue, back) = (open(&dir), open(&times(&dir)));
    queue.consumer("reader").expect("a consumer");
    is_good(child("put", &dir));
    queue.remove_consumer("reader").expect("one");
    queue.consumer_at("reader", mmq::Start::End).expect("a consumer");
    let reader = child("read", &dir);
    is_good(child("write to reader", &dir));
    drop((queue, back));
    is_good(reader);
    owners(scratch.path());
}
