//! Whatever dies, as often as it may: the stream holds each message once, in order.

use std::process::{Child, Stdio};
use std::time::Duration;

use mmq::Queue;
use mmq::forward::Forwarder;
use mmq_redis::RedisStream;

use super::server::{Entry, Server, check};
use super::{KEY, lanes, put};

/// The process with queue, producer and forwarder; nothing when the test is run by itself.
#[test]
fn the_forwarder_that_is_killed() {
    let Ok(dir) = std::env::var("MMQ_TEST_DIR") else { return };
    let queue = Queue::open(dir).unwrap();
    let pack = std::env::var("MMQ_CHILD_PACK").unwrap().parse().unwrap();
    let far = RedisStream::new(&std::env::var("MMQ_CHILD_URL").unwrap(), KEY).unwrap().pack(pack);
    let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1_000 {
                put(&queue, 20);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        forwarder.run().unwrap();
    });
}

fn child(dir: &std::path::Path, server: &Server, pack: u64) -> Child {
    let mut child = crate::support::built(std::env::current_exe().unwrap());
    child.args(["--exact", "kills::the_forwarder_that_is_killed", "--nocapture"]);
    child.env("MMQ_TEST_DIR", dir).env("MMQ_CHILD_URL", server.url());
    child.env("MMQ_CHILD_PACK", pack.to_string());
    child.stdout(Stdio::null()).spawn().unwrap()
}

/// Rounds in turn: the server is killed, the session is cut, the forwarder is killed, all three,
/// the server is set back to what it held two rounds before (keeping more than that is what `keep`
/// is for). The process that forwards goes on where it is not killed itself. Each process packs as
/// many messages into one as the next of `packs` says.
fn rounds(packs: &[u64]) {
    let mut packs = packs.iter().cycle();
    let mut pack = || *packs.next().unwrap();
    let rounds = 20 * crate::support::effort();
    let (dir, mut server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let copies = crate::support::tempdir().unwrap();
    let copy = copies.path().join("copy");
    let mut running = child(dir.path(), &server, pack());
    let mut random = 20_261_124u64;
    let (mut killed, mut cut, mut forwarders, mut set_back) = (0, 0, 0, 0);
    for round in 0..rounds {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(100 + (random >> 33) % 300));
        let kind = round % 5;
        if matches!(kind, 1 | 3) {
            server.cut();
            cut += 1;
        }
        if matches!(kind, 2 | 3) {
            running.kill().unwrap();
            running.wait().unwrap();
            forwarders += 1;
        }
        if matches!(kind, 0 | 3 | 4) {
            server.kill();
            killed += 1;
            if kind == 3 {
                server.copy_to(&copy);
            }
            if kind == 4 {
                server.set_back_to(&copy);
                set_back += 1;
            }
            std::thread::sleep(Duration::from_millis((random >> 40) % 200));
            server.restart();
        }
        if matches!(kind, 2 | 3) {
            running = child(dir.path(), &server, pack());
        }
        let ended = running.try_wait().unwrap();
        assert!(ended.is_none(), "in round {round} the forwarder ended: {ended:?}");
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let far = RedisStream::new(&server.url(), KEY).unwrap();
    Forwarder::new(&queue, "forward", far).unwrap().once().unwrap();
    let count = queue.stats().next_seq;
    let entries = server.entries(KEY);
    let there = entries.len();
    check(&entries.into_iter().flat_map(Entry::unpacked).collect::<Vec<_>>(), count);
    println!(
        "{count} messages in {there}; the server was killed {killed} times and set back {set_back} times, \
         {cut} sessions were cut, {forwarders} forwarders killed: 0 twice, 0 missing, 0 out of order"
    );
}

#[test]
fn nothing_is_doubled_missing_or_out_of_order() {
    rounds(&[1]);
}

#[test]
fn nothing_is_doubled_missing_or_out_of_order_in_packs() {
    rounds(&[32, 1, 5, 256]);
}

fn lane(url: &str, name: &str) -> RedisStream {
    RedisStream::new(url, &format!("{KEY}:{name}")).unwrap()
}

#[test]
fn the_forwarders_of_lanes_that_are_killed() {
    lanes::forward(|name| lane(&std::env::var("MMQ_CHILD_URL").unwrap(), name));
}

#[test]
fn each_lane_is_there_once_and_in_order() {
    let mut server = Server::start(&[]);
    let url = server.url();
    let kill = [Server::kill, Server::restart];
    lanes::rounds(
        &mut server,
        &url,
        kill,
        |name| lane(&url, name),
        |server, name| {
            let entries = server.entries(&format!("{KEY}:{name}")).into_iter();
            entries.map(|entry| (entry.seq(), entry.fields["data"].clone())).collect()
        },
    );
}
