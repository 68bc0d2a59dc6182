//! A queue that is read in lanes, of which each goes into a queue of its own and is forwarded from
//! there, as docs/forward.md says. The tests of Redis and of NATS have this in common.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use mmq::forward::{Destination, Forwarder};
use mmq::{Fresh, LaneOptions, Lanes, Queue};

use super::put;

/// What is added to a key or subject: where fresh messages go, and where the backlog goes.
const LANES: [&str; 2] = ["live", "backfill"];

/// The queue, its lanes, and the queue of each lane.
fn open(dir: &Path) -> (Queue, Lanes, [Queue; 2]) {
    let queue = Queue::open(dir.join("queue")).unwrap();
    let fresh = LaneOptions::new().fresh_within(Fresh::Messages(50)).share(2, 1);
    let lanes = queue.consumer("lanes").unwrap().lanes(fresh).unwrap();
    (queue, lanes, LANES.map(|name| Queue::open(dir.join(name)).unwrap()))
}

/// Moves so many messages. Each says which one it is in its lane, and in the queue.
fn pass(lanes: &Lanes, to: &[Queue; 2], most: u64) {
    for _ in 0..most {
        let Some(reading) = lanes.receive().unwrap() else { break };
        let lane = &to[usize::from(reading.is_backlog())];
        lane.enqueue(format!("{} of {}", lane.stats().next_seq, reading.seq())).unwrap();
        reading.ack().unwrap();
    }
}

/// What the process does that is killed. `far` is where a lane goes.
pub(super) fn forward<D: Destination + Send>(far: impl Fn(&str) -> D) {
    let Some(dir) = std::env::var_os("MMQ_TEST_DIR") else { return };
    let (queue, lanes, to) = open(Path::new(&dir));
    std::thread::scope(|scope| {
        for (lane, name) in to.iter().zip(LANES) {
            let mut forwarder = Forwarder::new(lane, "forward", far(name)).unwrap();
            scope.spawn(move || forwarder.run().unwrap());
        }
        // An outage of a hundred messages again and again, and the time to catch up: a backlog of
        // too many stretches comes again after an opening.
        for turn in 0..100_000 {
            put(&queue, 20);
            if turn % 20 >= 5 {
                pass(&lanes, &to, 40);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

fn start(dir: &Path, url: &str) -> Child {
    let mut child = crate::support::built(std::env::current_exe().unwrap());
    child.args(["--exact", "kills::the_forwarders_of_lanes_that_are_killed", "--nocapture"]);
    child.env("MMQ_TEST_DIR", dir).env("MMQ_CHILD_URL", url).stdout(Stdio::null());
    child.spawn().unwrap()
}

/// The server, the process, or both are killed in turn. `kill` kills the server or starts it again,
/// `entries` is what it holds of a lane: numbers and messages.
pub(super) fn rounds<S, D: Destination + Send>(
    server: &mut S,
    url: &str,
    [kill, restart]: [fn(&mut S); 2],
    far: impl Fn(&str) -> D,
    entries: impl Fn(&S, &str) -> Vec<(u64, Vec<u8>)>,
) {
    let dir = crate::support::tempdir().unwrap();
    let mut running = start(dir.path(), url);
    let (mut servers, mut processes) = (0, 0);
    for round in 0..20 * crate::support::effort() {
        std::thread::sleep(Duration::from_millis(100 + round * 37 % 200));
        let kind = round % 3;
        if kind != 0 {
            running.kill().unwrap();
            running.wait().unwrap();
            processes += 1;
        }
        if kind != 1 {
            kill(server);
            servers += 1;
            std::thread::sleep(Duration::from_millis(round * 59 % 150));
            restart(server);
        }
        if kind != 0 {
            running = start(dir.path(), url);
        }
        let ended = running.try_wait().unwrap();
        assert!(ended.is_none(), "in round {round} the process ended: {ended:?}");
    }
    running.kill().unwrap();
    running.wait().unwrap();
    processes += 1;
    let (queue, lanes, to) = open(dir.path());
    pass(&lanes, &to, u64::MAX);
    let mut came = vec![0; queue.stats().next_seq as usize];
    for (lane, name) in to.iter().zip(LANES) {
        Forwarder::new(lane, "forward", far(name)).unwrap().once().unwrap();
        let entries = entries(server, name);
        assert_eq!(entries.len() as u64, lane.stats().next_seq, "of the lane {name}");
        for ((seq, data), number) in entries.into_iter().zip(0..) {
            let text = String::from_utf8(data).unwrap();
            let (own, source) = text.split_once(" of ").unwrap();
            assert_eq!((seq, own), (number, &*number.to_string()), "in the lane {name}");
            came[source.parse::<usize>().unwrap()] += 1;
        }
    }
    assert_eq!(came.iter().position(|times| *times == 0), None, "missing, of {}", came.len());
    // What was in its lane's queue, and not yet acknowledged, when the process died.
    let again: u64 = came.iter().map(|times| times - 1).sum();
    assert!(again <= processes, "{again} came again after {processes} kills");
    println!(
        "lanes, {} messages: {} fresh, {} of the backlog, {again} put into a lane again; {servers} \
         servers and {processes} processes were killed: 0 twice, 0 missing, 0 out of order",
        came.len(),
        to[0].stats().next_seq,
        to[1].stats().next_seq,
    );
}
