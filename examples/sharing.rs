//! What it costs to use a queue through its owner: a put, puts with many under way, and the time
//! until a waiting reader in another process has a message. Client and reader are processes of
//! their own; the owner's own put is measured with and without sharing, in turns.
//!
//! ```text
//! cargo run --release --example sharing -- [DIR]
//! ```

#[path = "../benches/support/fingerprint.rs"]
mod fingerprint;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mmq::{Client, Options, Queue};

const PUTS: usize = 50_000;
const UNDER_WAY: u64 = 2_000_000;
const HANDED: usize = 5_000;
const MESSAGE: [u8; 128] = [7; 128];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if let (Some(role), Some(dir)) = (&first, arguments.next()) {
        return Ok(child(role, Path::new(&dir))?);
    }
    let place = tempfile::tempdir_in(first.map_or_else(std::env::temp_dir, PathBuf::from))?;
    println!("{}", fingerprint::fingerprint(place.path()));
    owners_own(place.path())?;
    let dir = place.path().join("shared");
    let queue = Options::new().shared(true).open(&dir)?;
    start("put", &dir)?.wait()?;
    queue.seek(queue.stats().next_seq)?;
    start("write", &dir)?.wait()?;
    queue.seek(queue.stats().next_seq)?;
    let reader = queue.consumer("reader")?;
    reader.seek(queue.stats().next_seq)?;
    let mut child = start("read", &dir)?;
    let client = Client::connect(&dir)?;
    for _ in 0..HANDED + 100 {
        std::thread::sleep(Duration::from_micros(300));
        client.enqueue(now().to_le_bytes())?;
    }
    child.wait()?;
    Ok(queue.close()?)
}

fn start(role: &str, dir: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(role).arg(dir).spawn()
}

/// Nanoseconds since 1970: one clock for all processes.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

fn show(what: &str, mut nanos: Vec<u64>) {
    nanos.sort_unstable();
    let at = |part: f64| nanos[(nanos.len() as f64 * part) as usize] as f64 / 1e3;
    println!("{what:<46} p50 {:6.1} us   p99 {:6.1} us", at(0.5), at(0.99));
}

fn child(role: &str, dir: &Path) -> mmq::Result<()> {
    let client = Client::connect(dir)?;
    match role {
        "put" => {
            let mut nanos = Vec::with_capacity(PUTS);
            for _ in 0..PUTS {
                let began = Instant::now();
                client.enqueue(MESSAGE)?;
                nanos.push(began.elapsed().as_nanos() as u64);
            }
            show("a client's put of 128 B", nanos);
        }
        "write" => {
            let mut writer = client.writer()?;
            let began = Instant::now();
            for _ in 0..UNDER_WAY {
                writer.enqueue(MESSAGE)?;
            }
            writer.wait()?;
            let rate = UNDER_WAY as f64 / began.elapsed().as_secs_f64();
            println!("{:<46} {rate:.0} a second", "puts of 128 B with many under way");
        }
        _ => {
            let reader = client.consumer("reader")?;
            let mut nanos = Vec::with_capacity(HANDED);
            for count in 0..HANDED + 100 {
                let Some(message) = reader.dequeue_timeout(Duration::from_secs(10))? else {
                    break;
                };
                let put = message.first_chunk().copied().map_or(0, u64::from_le_bytes);
                if count >= 100 {
                    nanos.push(now().saturating_sub(put));
                }
            }
            show("from a client's put to a waiting reader", nanos);
        }
    }
    Ok(())
}

/// The owner's own put, with sharing on and off, in turns: the smallest of each.
fn owners_own(place: &Path) -> mmq::Result<()> {
    let queues: Vec<Queue> = [false, true]
        .into_iter()
        .map(|shared| Options::new().shared(shared).open(place.join(format!("own {shared}"))))
        .collect::<mmq::Result<_>>()?;
    let mut least = [f64::MAX; 2];
    for _ in 0..41 {
        for (queue, least) in queues.iter().zip(&mut least) {
            const COUNT: u32 = 50_000;
            let began = Instant::now();
            for _ in 0..COUNT {
                queue.enqueue(MESSAGE)?;
            }
            *least = least.min(began.elapsed().as_nanos() as f64 / f64::from(COUNT));
            queue.seek(queue.stats().next_seq)?;
        }
    }
    let [alone, shared] = least;
    println!(
        "{:<46} {alone:.1} ns alone, {shared:.1} ns shared and idle: {:+.1} %",
        "the owner's put of 128 B",
        (shared / alone - 1.0) * 100.0
    );
    Ok(())
}
