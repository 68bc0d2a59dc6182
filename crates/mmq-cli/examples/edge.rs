//! Stores at the edge, forwards when there is a link, and gives the space back when the far side
//! has the messages.
//!
//! `cargo run --release -p mmq-cli --features redis --example edge -- DIR redis://HOST/ COUNT`,
//! or `--features nats` and `nats://HOST:4222`. Kill it, or the server, at any moment and start it
//! again: each reading is in the stream `edge` once, in order.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mmq::Queue;
use mmq::forward::{Destination, Forwarder};

/// What this build has a client for.
fn far_side(url: &str) -> Result<Box<dyn Destination>, Box<dyn Error>> {
    #[cfg(feature = "nats")]
    if url.starts_with("nats:") || url.starts_with("tls:") {
        return Ok(Box::new(mmq_nats::NatsStream::new(url, "edge")?.subject("edge.readings")?));
    }
    #[cfg(feature = "redis")]
    if url.starts_with("redis:") {
        return Ok(Box::new(mmq_redis::RedisStream::new(url, "edge")?));
    }
    Err(format!("no client for {url}: build with the feature redis or nats").into())
}

/// Enqueues readings while a forwarder sends them on, and waits until the far side has them all.
pub(crate) fn store_and_forward(
    queue: &Queue,
    far: Box<dyn Destination>,
    count: u64,
) -> Result<(), Box<dyn Error>> {
    let mut forwarder = Forwarder::new(queue, "forward", far)?;
    let (stop, watch, began) = (forwarder.stop(), forwarder.watch(), Instant::now());
    std::thread::scope(|scope| {
        let forwarding = scope.spawn(move || forwarder.run());
        let stored = store(queue, count, || forwarding.is_finished());
        // Whatever `store` returned: the scope waits for the forwarder's thread.
        stop.stop();
        let forwarded = forwarding.join().unwrap();
        println!("{}; {:.2?}", watch.progress(), began.elapsed());
        // A `Halt` needs a person. The readings wait in the queue for a new forwarder.
        forwarded.map_err(|halt| format!("forwarding has stopped, storing could go on: {halt}"))?;
        stored
    })
}

fn store(queue: &Queue, count: u64, has_ended: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
    for number in 0..count {
        let reading = format!("{:>93} mV {:>3}", queue.stats().next_seq, number % 997);
        queue.enqueue(reading)?;
    }
    // (A service would go on; this one waits until all of it is there.)
    while !queue.consumer("forward")?.is_empty() && !has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [dir, url, count] = args else {
        return Err(
            "three arguments: a directory, nats:// or redis://host, and how many readings".into()
        );
    };
    let count = count.parse().map_err(|_| format!("{count:?} is not a number of readings"))?;
    let far = far_side(url)?;
    let queue = Queue::open(dir)?;
    store_and_forward(&queue, far, count)?;
    queue.close()?;
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("edge: {error}");
            ExitCode::FAILURE
        }
    }
}
