//! Several messages of the queue in one of the stream.

use mmq::Queue;
use mmq::forward::{Destination, ForwardEnd, Forwarder, OnRefused};
use mmq_nats::NatsMode;
use serde_json::json;

use super::server::{Entry, Server};
use super::{MODES, STREAM, SUBJECT, check, far, far_of, put, server_for};

fn forwarder(
    queue: &Queue,
    server: &Server,
    mode: NatsMode,
    pack: u64,
) -> Forwarder<impl Destination> {
    Forwarder::new(queue, "forward", far_of(server, mode).pack(pack)).unwrap()
}

fn unpacked(entries: Vec<Entry>) -> Vec<Entry> {
    entries.into_iter().flat_map(Entry::unpacked).collect()
}

/// Each round packs another number of messages into one, and the last one none.
#[test]
fn packs_and_messages_follow_each_other_in_each_mode() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let (mut count, mut expected) = (0, 0);
        for (pack, more) in [(32, 640), (1, 3), (7, 71), (1000, 1), (100, 1_000), (1, 10)] {
            let queue = Queue::open(dir.path()).unwrap();
            put(&queue, more);
            let mut forwarder = forwarder(&queue, &server, mode, pack);
            assert_eq!(forwarder.once().unwrap(), ForwardEnd::Drained);
            count += more;
            // (A send ends where its bytes do: 64 KiB at first.)
            expected += more.div_ceil(pack);
            let entries = server.entries(STREAM, SUBJECT);
            assert_eq!(entries.len() as u64, expected, "{mode:?}, packs of {pack}");
            let last = entries.last().unwrap();
            assert_eq!(last.text("Mmq").split(' ').count(), 3, "{}", last.text("Mmq"));
            assert_eq!(last.seq() + 1, count);
            check(&unpacked(entries), count);
        }
    }
}

/// What is too long for a pack goes by itself, and a refused message is found in one.
#[test]
fn long_and_refused_messages_are_found_among_packs() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        server.make_stream(json!({
            "name": STREAM, "subjects": [SUBJECT], "max_msg_size": 10_000,
            "allow_atomic": mode == NatsMode::Batch,
        }));
        let queue = Queue::open(dir.path()).unwrap();
        let lengths = [100, 100, 9_300, 100, 20_000, 100, 100, 4_400, 4_400, 4_400, 0, 0];
        for len in lengths {
            queue.enqueue(vec![7u8; len]).unwrap();
        }
        forwarder(&queue, &server, mode, 32).on_refused(OnRefused::Skip).once().unwrap();
        let entries = server.entries(STREAM, SUBJECT);
        let numbers: Vec<_> = entries.iter().map(Entry::seq).collect();
        assert_eq!(numbers, [1, 2, 3, 7, 11], "{mode:?}");
        assert!(entries.iter().all(|it| it.head + it.data.len() <= 10_000));
        let there = unpacked(entries);
        let lengths_there: Vec<_> = there.iter().map(|it| it.data.len()).collect();
        assert_eq!(lengths_there, [&lengths[..4], &lengths[5..]].concat());
        assert_eq!(there[4].text("Mmq-Missing"), "4-4 refused");
        assert!(there.iter().all(|it| it.seq() != 4));
    }
}

/// The bytes of a message beside its own in the stream.
#[test]
fn a_packed_message_weighs_little_more_than_its_bytes() {
    let count = 20_000;
    for mode in MODES {
        let mut lines = Vec::new();
        for pack in [1, 32, 256] {
            let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
            let queue = Queue::open(dir.path()).unwrap();
            for _ in 0..count {
                queue.enqueue([b'x'; 100]).unwrap();
            }
            let began = std::time::Instant::now();
            forwarder(&queue, &server, mode, pack).once().unwrap();
            let took = began.elapsed().as_secs_f64();
            let info = server.api(&format!("STREAM.INFO.{STREAM}"), json!({}));
            let stored = info["state"]["bytes"].as_u64().unwrap() as f64 / count as f64 - 100.0;
            lines.push(format!("{pack}: {stored:.1} bytes, {:.0}/s", count as f64 / took));
            assert!(pack == 1 || stored <= 10.0, "{stored} bytes beside 100, packs of {pack}");
        }
        println!("{mode:?}, beside 100 bytes, packs of {}", lines.join("; of "));
    }
}

/// A stream of the queue's own that removes messages cannot count packs: that is said.
#[test]
fn a_stream_that_removes_messages_warns_of_packs() {
    let server = Server::start("");
    server.make_stream(json!({
        "name": STREAM, "subjects": [SUBJECT], "allow_atomic": true, "max_age": 60_000_000_000u64,
    }));
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    for (pack, warns) in [(1, false), (2, true)] {
        put(&queue, 1);
        let destination = far(&server).pack(pack);
        let mut forwarder = Forwarder::new(&queue, "forward", destination).unwrap();
        let watch = forwarder.watch();
        forwarder.once().unwrap();
        let warning = watch.progress().warning.unwrap_or_default();
        assert_eq!(warning.contains("is sent packs and removes messages"), warns, "{warning}");
    }
}

/// The headers of a pack leave no room in the stream's messages: a person is told.
#[test]
fn a_stream_of_short_messages_gets_none_packed_and_a_warning() {
    for (longest, is_packed) in [(1_070, false), (1_200, true)] {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        let mode = NatsMode::Chain;
        server.make_stream(json!({
            "name": STREAM, "subjects": [SUBJECT], "max_msg_size": longest,
        }));
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 20);
        let mut forwarder = forwarder(&queue, &server, mode, 32);
        forwarder.once().unwrap();
        let warning = forwarder.watch().progress().warning;
        let is_warned = warning.as_ref().is_some_and(|it| it.contains("no messages are packed"));
        assert_eq!(is_warned, !is_packed, "{warning:?}");
        let entries = server.entries(STREAM, SUBJECT);
        assert_eq!(entries.len() < 20, is_packed, "{} entries", entries.len());
        check(&unpacked(entries), 20);
    }
}
