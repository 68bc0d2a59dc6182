//! Whatever dies, as often as it may: the stream holds each message once, in order.

use std::process::{Command, Stdio};
use std::time::Duration;

use mmq::Queue;
use mmq::forward::{ForwardOptions, Forwarder};
use mmq_nats::{NatsMode, NatsStream};
use serde_json::json;

use super::proxy::Proxy;
use super::server::{Entry, Server, Wire};
use super::{MODES, STREAM, SUBJECT, check, lanes, put};

/// The stream for a mode, and the subject of the queue in it.
pub(super) fn stream(mode: NatsMode) -> [String; 2] {
    [format!("{STREAM}-{mode:?}"), format!("{SUBJECT}.{mode:?}")]
}

pub(super) fn far(url: &str, mode: NatsMode) -> NatsStream {
    let [stream, subject] = stream(mode);
    NatsStream::new(url, &stream).unwrap().subject(&subject).unwrap().mode(mode)
}

/// The process with queue, producer and forwarder; nothing when the test is run by itself.
#[test]
fn the_forwarder_that_is_killed() {
    let Ok(dir) = std::env::var("MMQ_TEST_DIR") else { return };
    let queue = Queue::open(dir).unwrap();
    let mode = match &*std::env::var("MMQ_CHILD_MODE").unwrap() {
        "Batch" => NatsMode::Batch,
        "Chain" => NatsMode::Chain,
        _ => NatsMode::Window,
    };
    let pack = crate::support::count("MMQ_CHILD_PACK", 1);
    let far = far(&std::env::var("MMQ_CHILD_URL").unwrap(), mode).pack(pack);
    let pause = Duration::from_millis(crate::support::count("MMQ_CHILD_PAUSE", 5));
    let mut options = ForwardOptions::default();
    options.patience = Duration::from_secs(crate::support::count("MMQ_CHILD_PATIENCE", 30));
    // It goes on soon after a server does.
    options.longest_pause = Duration::from_secs(1);
    let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap().options(options);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100_000 {
                put(&queue, 20);
                std::thread::sleep(pause);
            }
        });
        forwarder.run().unwrap();
    });
}

/// The command that starts that process.
pub(super) fn child(dir: &std::path::Path, url: &str, mode: NatsMode) -> Command {
    let mut child = crate::support::built(std::env::current_exe().unwrap());
    child.args(["--exact", "kills::the_forwarder_that_is_killed", "--nocapture"]);
    child.env("MMQ_TEST_DIR", dir).env("MMQ_CHILD_URL", url);
    child.env("MMQ_CHILD_MODE", format!("{mode:?}")).stdout(Stdio::null());
    child
}

/// How long the stream keeps messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Any,
    /// It has no other writer, and a mirror that keeps them for ever.
    Seconds,
}

const AGE: Duration = Duration::from_secs(2);
const MIRROR: &str = "MIRROR";
/// The round in which the forwarder is away for longer than that.
const OUTAGE: u32 = 5;

#[derive(Debug, Default)]
struct Done {
    killed: u32,
    set_back: u32,
    cut: u32,
    forwarders: u32,
}

/// Rounds in turn: the server is killed, the session is cut (every other time what was on its way
/// arrives late), the forwarder is killed, all three, the server is set back to what it held two
/// rounds before (keeping more than that is what `keep` is for). The process that forwards goes on
/// where it is not killed itself. In an outage the forwarder is away until the stream has forgotten
/// everything. Each process packs as many messages into one as the next of `packs` says.
fn rounds(mode: NatsMode, kinds: &[u32], packs: &[u64], kept: Age, between: &dyn Fn(&Server)) {
    let rounds = 20 * crate::support::effort() as usize;
    let mut packs = packs.iter().cycle();
    let mut pack = || *packs.next().unwrap();
    let (dir, mut server) = (crate::support::tempdir().unwrap(), Server::start(""));
    let proxy = Proxy::start(server.port());
    let is_own = mode == NatsMode::Chain || kept == Age::Seconds;
    let [stream, subject] = &stream(mode);
    let subjects = if is_own { &[&**subject][..] } else { &[&**subject, "other.*"] };
    server.make_stream(json!({
        "name": stream, "subjects": subjects, "storage": "file",
        "allow_atomic": mode == NatsMode::Batch, "duplicate_window": 100_000_000,
        "max_age": if kept == Age::Any { 0 } else { AGE.as_nanos() as u64 },
    }));
    let whole = if kept == Age::Any { stream } else { MIRROR };
    if kept == Age::Seconds {
        server.make_stream(json!({ "name": MIRROR, "mirror": { "name": stream } }));
    }
    let copies = crate::support::tempdir().unwrap();
    let copy = copies.path().join("copy");
    let start = |pack: u64| {
        let mut command = child(dir.path(), &proxy.url(), mode);
        command.env("MMQ_CHILD_PACK", pack.to_string()).spawn().unwrap()
    };
    let mut running = start(pack());
    let mut random = 20_261_124u64;
    let mut done = Done::default();
    for round in 0..rounds {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        between(&server);
        std::thread::sleep(Duration::from_millis(100 + (random >> 33) % 300));
        let kind = kinds[round % kinds.len()];
        if matches!(kind, 1 | 3) {
            let late =
                if (round / kinds.len()).is_multiple_of(2) { 0 } else { (random >> 45) % 250 };
            proxy.cut(Duration::from_millis(late));
            done.cut += 1;
        }
        if matches!(kind, 2 | 3 | OUTAGE) {
            running.kill().unwrap();
            running.wait().unwrap();
            done.forwarders += 1;
        }
        if matches!(kind, 0 | 3 | 4) {
            server.kill();
            done.killed += 1;
            if kind == 3 {
                server.copy_to(&copy);
            }
            if kind == 4 {
                server.set_back_to(&copy);
                done.set_back += 1;
            }
            std::thread::sleep(Duration::from_millis((random >> 40) % 200));
            server.restart();
        }
        if kind == OUTAGE {
            std::thread::sleep(AGE + Duration::from_millis(500));
        }
        if matches!(kind, 2 | 3 | OUTAGE) {
            running = start(pack());
        }
        let ended = running.try_wait().unwrap();
        assert!(ended.is_none(), "in round {round} the forwarder ended: {ended:?}");
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    Forwarder::new(&queue, "forward", far(&server.url(), mode)).unwrap().once().unwrap();
    let count = queue.stats().next_seq;
    let messages = check_all(kept, server.entries(whole, subject), count);
    let Done { killed, set_back, cut, forwarders } = done;
    println!(
        "{mode:?}, {count} messages in {messages}; the server was killed {killed} times and set back {set_back} \
         times, {cut} sessions were cut, {forwarders} forwarders killed: 0 twice, 0 missing, 0 out \
         of order"
    );
}

/// Returns how many messages of the stream these are.
fn check_all(kept: Age, entries: Vec<Entry>, count: u64) -> usize {
    let messages = entries.len();
    match kept {
        Age::Any => {
            check(&entries.into_iter().flat_map(Entry::unpacked).collect::<Vec<_>>(), count)
        }
        Age::Seconds => check_mirror(&entries, count),
    }
    messages
}

/// Each message has its number in the stream, too, where nobody else writes. (On a busy machine the
/// stream forgets some before the mirror has them.)
fn check_mirror(entries: &[Entry], count: u64) {
    for entry in entries {
        let number = entry.seq();
        assert_eq!((entry.at, entry.text("Mmq-Missing")), (number + 1, ""));
        assert_eq!(String::from_utf8_lossy(&entry.data), format!("message {number}"));
    }
    assert!(entries.is_sorted_by(|one, other| one.at < other.at));
    assert_eq!(entries.last().map(Entry::seq), count.checked_sub(1));
    assert!(entries.len() as u64 > count / 2, "{} of {count}", entries.len());
}

/// Another writer of the stream has subjects of its own.
#[test]
fn batches_are_there_once_and_in_order() {
    rounds(NatsMode::Batch, &[0, 1, 2, 3, 4], &[1], Age::Any, &|server| {
        let mut wire = Wire::new(server.port(), json!({}));
        for _ in 0..5 {
            let answer = wire.request("other.a", "not of the queue");
            assert!(answer["seq"].is_u64(), "{answer}");
        }
    });
}

#[test]
fn chains_are_there_once_and_in_order() {
    rounds(NatsMode::Chain, &[0, 1, 2, 3, 4], &[1], Age::Any, &|_| {});
}

#[test]
fn messages_one_at_a_time_are_there_once_and_in_order() {
    rounds(NatsMode::Window, &[0, 1, 2, 3, 4], &[1], Age::Any, &|_| {});
}

/// The mirror forgets nothing.
#[test]
fn what_a_stream_forgets_was_there_once_and_in_order() {
    for mode in [NatsMode::Batch, NatsMode::Chain] {
        rounds(mode, &[OUTAGE, 0, 1, 2, 1], &[1], Age::Seconds, &|_| {});
    }
}

#[test]
fn packs_are_there_once_and_in_order() {
    let kinds = [0, 1, 2, 3, 4];
    std::thread::scope(|scope| {
        for mode in MODES {
            scope.spawn(move || rounds(mode, &kinds, &[32, 1, 5, 256], Age::Any, &|_| {}));
        }
    });
}

fn lane(url: &str, name: &str) -> NatsStream {
    NatsStream::new(url, STREAM).unwrap().subject(&format!("{SUBJECT}.{name}")).unwrap()
}

#[test]
fn the_forwarders_of_lanes_that_are_killed() {
    lanes::forward(|name| lane(&std::env::var("MMQ_CHILD_URL").unwrap(), name));
}

/// Both lanes go into one stream.
#[test]
fn each_lane_is_there_once_and_in_order() {
    let mut server = Server::start("");
    server.make_stream(json!({
        "name": STREAM, "subjects": [format!("{SUBJECT}.*")], "storage": "file",
        "allow_atomic": true, "duplicate_window": 100_000_000,
    }));
    let url = server.url();
    let kill = [Server::kill, Server::restart];
    lanes::rounds(
        &mut server,
        &url,
        kill,
        |name| lane(&url, name),
        |server, name| {
            let entries = server.entries(STREAM, &format!("{SUBJECT}.{name}")).into_iter();
            entries.map(|entry| (entry.seq(), entry.data)).collect()
        },
    );
}
