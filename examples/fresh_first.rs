//! A link that is down for a while: readings wait in the queue meanwhile. Once it is back the
//! newest go first, and what waited is sent beside them, marked as late, from the oldest on.
//!
//! Usage: `fresh_first [DIR]`. With a directory the queue is kept: stop the program with Ctrl-C and
//! start it again, and it goes on with what is left of both. Readings that were damaged, or lost in
//! a power cut, are reported; the others are sent.

use std::error::Error;

/// Readings in one second.
const RATE: u64 = 20;
/// What the link sends in one second while it is up.
const LINK: u64 = 60;
/// The link is down from the first of these seconds to the last.
const OUTAGE: std::ops::Range<u64> = 10..70;
const SECONDS: u64 = 120;

fn main() -> Result<(), Box<dyn Error>> {
    let (dir, temporary) = match std::env::args_os().nth(1) {
        Some(dir) => (dir.into(), false),
        None => (
            std::env::temp_dir().join(format!("mmq-example-fresh-first-{}", std::process::id())),
            true,
        ),
    };
    let queue = mmq::Queue::open(&dir)?;
    let link = queue.consumer("link")?;
    // In a real program the clock decides: Fresh::Age(Duration::from_secs(2)). Here seconds are
    // turns of a loop.
    let fresh = mmq::Fresh::Messages(2 * RATE);
    let lanes = link.lanes(mmq::LaneOptions::new().fresh_within(fresh))?;
    let mut sent = Sent::default();
    for second in 0..SECONDS {
        for reading in 0..RATE {
            queue.enqueue(format!("second {second}, reading {reading}"))?;
        }
        if !OUTAGE.contains(&second) {
            send(&lanes, LINK, &mut sent)?;
        }
        if second % 10 == 0 || second == OUTAGE.end + 1 {
            let behind = queue.stats().next_seq - sent.newest;
            println!("second {second}: {behind} behind, {} wait for the link", link.len());
        }
    }
    let Sent { fresh, late, lost, .. } = sent;
    if lost > 0 {
        println!("{lost} will never come");
    }
    println!("{fresh} sent as they came, {late} sent late, {} left", link.len());
    drop(queue);
    if temporary {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) fresh: u64,
    pub(crate) late: u64,
    pub(crate) lost: u64,
    /// The number behind the newest reading.
    newest: u64,
}

/// Sends what the link takes: new readings and old ones in turn.
pub(crate) fn send(lanes: &mmq::Lanes, most: u64, sent: &mut Sent) -> mmq::Result<()> {
    for _ in 0..most {
        let lost = &mut sent.lost;
        let reading = mmq::past_gaps(
            || lanes.receive(),
            |gap| {
                *lost += gap.count();
                eprintln!("{gap}");
            },
        )?;
        let Some(reading) = reading else { break };
        // Here it would be sent. Until it is acknowledged it is the queue's.
        if reading.is_backlog() {
            sent.late += 1;
        } else {
            sent.fresh += 1;
        }
        sent.newest = sent.newest.max(reading.seq() + 1);
        reading.ack()?;
    }
    Ok(())
}
