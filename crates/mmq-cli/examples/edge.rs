//! Stores at the edge, forwards when there is a link, and gives the space back when the far side
//! has the messages.
//!
//! `cargo run --release -p mmq-cli --features redis --example edge -- DIR redis://HOST/ COUNT`,
//! or `--features nats` and `nats://HOST:4222`. Kill it, or the server, at any moment and start it
//! again: each reading is in the stream `edge` once, in order.

use std::time::{Duration, Instant};

use mmq::Queue;
use mmq::forward::{Destination, Forwarder};

/// What this build has a client for.
fn far_side(url: &str) -> Result<Box<dyn Destination>, Box<dyn std::error::Error>> {
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [dir, url, count] = &args[..] else {
        return Err(
            "three arguments: a directory, nats:// or redis://host, and how many readings".into()
        );
    };
    let queue = Queue::open(dir)?;
    let forwarder = Forwarder::new(&queue, "forward", far_side(url)?)?;
    let (stop, watch, began) = (forwarder.stop(), forwarder.watch(), Instant::now());
    std::thread::scope(|scope| {
        let forwarding = scope.spawn(|| forwarder.run());
        for number in 0..count.parse::<u64>()? {
            let reading = format!("{:>93} mV {:>3}", queue.stats().next_seq, number % 997);
            queue.enqueue(reading)?;
        }
        // (A service would go on; this one waits until all of it is there.)
        while !queue.consumer("forward")?.is_empty() && !forwarding.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("{}; {:.2?}", watch.progress(), began.elapsed());
        stop.stop();
        forwarding.join().unwrap()?;
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    queue.close()?;
    Ok(())
}
