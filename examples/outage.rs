//! A link that is down for a minute, in four ways: what waits for it each second, and how old the
//! newest reading is that it has sent. `docs/pictures/outage.svg` shows what it prints. A second is
//! a turn of a loop here, so the figures are the same on every machine.

use mmq::{Consumer, Fresh, LaneOptions, OnFull, Options};

/// Readings in one second.
const RATE: u64 = 20;
/// What the link sends in one second while it is up.
const LINK: u64 = 60;
/// The link is down from the first of these seconds to the last.
const OUTAGE: std::ops::Range<u64> = 10..70;
const SECONDS: u64 = 140;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("mmq-example-outage-{}", std::process::id()));
    let limited =
        Options::new().arena_size(64 << 10).max_bytes(512 << 10).on_full(OnFull::DropOldest);
    for (name, options, in_lanes) in [
        ("in order", Options::new(), false),
        ("in lanes", Options::new(), true),
        ("in order, limited", limited.clone(), false),
        ("in lanes, limited", limited, true),
    ] {
        let queue = options.open(&dir)?;
        let link = queue.consumer("link")?;
        let fresh = LaneOptions::new().fresh_within(Fresh::Messages(2 * RATE));
        let lanes = in_lanes.then(|| link.lanes(fresh)).transpose()?;
        let mut newest = 0;
        for second in 0..SECONDS {
            for _ in 0..RATE {
                queue.enqueue([7; 600])?;
            }
            if !OUTAGE.contains(&second) {
                newest = newest.max(send(&link, lanes.as_ref())?);
            }
            let old = (second + 1) as f64 - newest as f64 / RATE as f64;
            println!("{name}: {second} {} {old}", link.len());
        }
        println!("{name}: {} dropped", queue.stats().dropped);
        drop((lanes, link));
        queue.close()?;
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// Sends what the link takes in a second, and returns the number behind the newest.
fn send(link: &Consumer, lanes: Option<&mmq::Lanes>) -> mmq::Result<u64> {
    let mut newest = 0;
    for _ in 0..LINK {
        let next = || lanes.map_or_else(|| link.receive(), mmq::Lanes::receive);
        let Some(reading) = mmq::past_gaps(next, |_| ())? else { break };
        newest = newest.max(reading.seq() + 1);
        reading.ack()?;
    }
    Ok(newest)
}
