//! An agent whose link is down for ten minutes (150 seconds by default), and three times more while
//! it catches up, and that is killed five times meanwhile. Time is counted in turns of a loop, ages
//! in messages.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use mmq::{Fresh, LaneOptions, Options, Queue};

use crate::support::{itself, sample};

/// Messages put in during a turn, and messages that the link takes.
const PRODUCED: u64 = 2;
const LINK: u64 = 3 * PRODUCED;
/// Turns in a second.
const SECOND: u64 = 100;
const MAX_BYTES: u64 = 512 << 20;
const KILLS: u64 = 5;

/// When the link is down: turns from and to.
struct Outages(Vec<(u64, u64)>);

impl Outages {
    /// The first one of so many turns, then three of ten seconds each, five seconds apart.
    fn new(turns: u64) -> Outages {
        let first = 5 * SECOND;
        let mut down = vec![(first, first + turns)];
        for _ in 0..3 {
            let up = down[down.len() - 1].1;
            down.push((up + 5 * SECOND, up + 15 * SECOND));
        }
        Outages(down)
    }

    /// For how many turns the link has been up.
    fn up_since(&self, turn: u64) -> Option<u64> {
        let before = self.0.iter().rev().find(|(from, _)| *from <= turn);
        before.map_or(Some(turn), |(_, to)| turn.checked_sub(*to))
    }

    fn end(&self) -> u64 {
        self.0[self.0.len() - 1].1
    }
}

/// What an agent does until it has caught up. Each line of `log` is written at once: what is in it
/// has happened.
struct Agent {
    queue: Queue,
    lanes: mmq::Lanes,
    link: mmq::Consumer,
    outages: Outages,
    log: File,
}

impl Agent {
    fn start(dir: &Path, outages: Outages) -> Agent {
        let queue = Options::new()
            .max_bytes(MAX_BYTES)
            .arena_size(1 << 20)
            .open(dir.join("queue"))
            .unwrap();
        let link = queue.consumer("link").unwrap();
        // Checkpointhalf a second.
        let fresh = Fresh::Messages(PRODUCED * SECOND / 2);
        let lanes = link.lanes(LaneOptions::new().fresh_within(fresh)).unwrap();
        let log = OpenOptions::new().append(true).create(true).open(dir.join("log")).unwrap();
        Agent { queue, lanes, link, outages, log }
    }

    /// Works until all is sent; with `dies_after`, until it holds that many messages.
    fn work(mut self, mut dies_after: Option<u64>) {
        let payload = [7; 700];
        writeln!(self.log, "run 0 0 0").unwrap();
        let mut newest = 0;
        loop {
            let turn = self.queue.stats().next_seq / PRODUCED;
            while self.queue.stats().next_seq < (turn + 1) * PRODUCED {
                self.queue.enqueue(payload).unwrap();
            }
            if self.outages.up_since(turn).is_some() {
                for _ in 0..LINK {
                    let Some(message) = self.lanes.receive().unwrap() else { break };
                    if let Some(left) = &mut dies_after {
                        *left -= 1;
                        if *left == 0 {
                            crate::lanes::die();
                        }
                    }
                    let (seq, late) = (message.seq(), message.is_backlog());
                    message.ack().unwrap();
                    newest = newest.max(seq + 1);
                    let lane = if late { "late" } else { "fresh" };
                    writeln!(self.log, "{lane} {turn} {seq} 0").unwrap();
                }
            }
            let stats = self.queue.stats();
            assert!(stats.disk_bytes <= MAX_BYTES);
            let (behind, left) = (stats.next_seq - newest, self.link.len());
            writeln!(self.log, "turn {turn} {behind} {left}").unwrap();
            if turn > self.outages.end() && self.link.is_empty() {
                return;
            }
        }
    }
}

/// The child's part; nothing when the test is run by itself.
#[test]
fn the_agent_that_is_killed() {
    let Ok(dir) = std::env::var("MMQ_TEST_DIR") else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let outages = Outages::new(number("MMQ_CHILD_TURNS").unwrap());
    Agent::start(Path::new(&dir), outages).work(number("MMQ_CHILD_DIES_AFTER"));
}

/// After every outage the newest messages go first, and the backlog shrinks beside them; each
/// message is acknowledged once.
#[test]
fn what_is_fresh_goes_first_after_an_outage_and_the_rest_follows_beside_it() {
    let turns = SECOND * sample(600);
    let dir = crate::support::tempdir().unwrap();
    for life in 0..=KILLS {
        let mut child = itself("lanes::outages::the_agent_that_is_killed");
        child.env("MMQ_TEST_DIR", dir.path()).env("MMQ_CHILD_TURNS", turns.to_string());
        if life < KILLS {
            // Before the outage, right behind it, and while it catches up.
            let after = [150, 1400, 700, 1100, 2500][life as usize];
            child.env("MMQ_CHILD_DIES_AFTER", after.to_string());
        }
        let status = child.stdout(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
        assert_eq!(status.success(), life == KILLS, "life {life}: {status}");
    }
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    check(&log, &Outages::new(turns));
}

fn check(log: &str, outages: &Outages) {
    let mut acknowledged = BTreeMap::new();
    let mut last = BTreeMap::new();
    let (mut produced, mut was_behind) = (0, 0u64);
    // The turns with a backlog at their beginning and at their end, and what was sent late in them.
    let (mut turns, mut late, mut late_now) = (0u64, 0u64, 0u64);
    for line in log.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [a, b, c] = [1, 2, 3].map(|at| words[at].parse::<u64>().unwrap());
        match words[0] {
            "run" => last.clear(),
            "turn" => {
                let (turn, behind, left) = (a, b, c);
                produced = (turn + 1) * PRODUCED;
                if let Some(up) = outages.up_since(turn) {
                    if up >= 2 * SECOND {
                        assert!(behind < PRODUCED * SECOND, "turn {turn}: {behind} behind");
                    }
                    if was_behind > LINK && left > LINK {
                        turns += 1;
                        late += late_now;
                    }
                }
                (was_behind, late_now) = (left, 0);
            }
            lane => {
                let (turn, seq) = (a, b);
                let before = acknowledged.insert(seq, turn);
                assert_eq!(before, None, "{seq} was acknowledged twice");
                let before = last.insert(lane.to_owned(), seq);
                assert!(before.is_none_or(|before| before < seq), "{seq} out of order, {lane}");
                late_now += u64::from(lane == "late");
            }
        }
    }
    assert!(acknowledged.keys().copied().eq(0..produced), "some are missing");
    let percent = 100 * late / (turns * LINK);
    println!("{produced} messages; the backlog got {percent} % of the link");
    assert!(percent >= 40, "the backlog got {percent} % of the link");
}
