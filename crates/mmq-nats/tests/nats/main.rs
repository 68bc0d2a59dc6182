//! Forwarding to a real NATS server: `cargo test -p mmq-nats`.

mod access;
mod cluster;
mod kills;
#[path = "../../../mmq-redis/tests/redis/lanes.rs"]
mod lanes;
mod late;
mod marks;
mod packs;
mod proxy;
mod refused;
mod server;
mod shaped;
mod slow;
#[allow(dead_code)]
#[path = "../../../mmq-redis/tests/redis/proxy.rs"]
mod slow_link;
mod succeed;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod troubles;

use std::ops::ControlFlow;
use std::time::{Duration, UNIX_EPOCH};

use mmq::forward::{
    Destination, ForwardEnd, Forwarder, Halt, Held, IfForgotten, Mark, OnRefused, Source, TellGaps,
    Trouble,
};
use mmq::{CopiedId, OnFull, Options, Queue};
use mmq_nats::{NatsMode, NatsStream};
use serde_json::json;
use server::{Entry, Server};

const STREAM: &str = "EVENTS";
const SUBJECT: &str = "mmq.test";
const MODES: [NatsMode; 3] = [NatsMode::Batch, NatsMode::Chain, NatsMode::Window];

/// A server with a stream that this mode is for.
fn server_for(mode: NatsMode) -> Server {
    let server = Server::start("");
    make_stream(&server, mode);
    server
}

fn make_stream(server: &Server, mode: NatsMode) {
    let subjects = if mode == NatsMode::Chain { &[SUBJECT][..] } else { &[SUBJECT, "other.*"] };
    let allows = mode == NatsMode::Batch;
    server.make_stream(json!({ "name": STREAM, "subjects": subjects, "allow_atomic": allows }));
}

fn far(server: &Server) -> NatsStream {
    NatsStream::new(&server.url(), STREAM).unwrap().subject(SUBJECT).unwrap()
}

/// The mode is chosen by itself where it may be.
fn far_of(server: &Server, mode: NatsMode) -> NatsStream {
    if mode == NatsMode::Window { far(server).mode(mode) } else { far(server) }
}

fn forwarder(queue: &Queue, server: &Server, mode: NatsMode) -> Forwarder<NatsStream> {
    Forwarder::new(queue, "forward", far_of(server, mode)).unwrap()
}

fn put(queue: &Queue, count: u64) {
    for _ in 0..count {
        let number = queue.stats().next_seq;
        queue.enqueue(format!("message {number}")).unwrap();
    }
}

/// Begins a session, as a forwarder does that has the patience.
fn resume(far: &mut NatsStream, source: &Source, mark: Option<Mark>) -> Held {
    loop {
        match far.resume(source, mark) {
            Ok(held) => return held,
            Err(Trouble::Again(why, _)) if why.to_string().contains("has not answered yet") => {}
            Err(trouble) => panic!("{trouble:?}"),
        }
    }
}

/// Each number once, in order, each with its own bytes.
fn check(entries: &[Entry], count: u64) {
    let numbers: Vec<_> = entries.iter().map(Entry::seq).collect();
    let wrong = numbers.iter().zip(0..).find(|(there, number)| **there != *number);
    assert_eq!(wrong, None, "of {} entries", numbers.len());
    assert_eq!(numbers.len() as u64, count);
    for entry in entries {
        let number = entry.seq();
        assert_eq!(String::from_utf8_lossy(&entry.data), format!("message {number}"));
        assert_eq!(entry.text("Mmq-Missing"), "", "of {number}");
    }
}

/// Why the forwarder stopped.
fn halted(mut forwarder: Forwarder<NatsStream>) -> String {
    forwarder.once().expect_err("it is to stop").to_string()
}

/// Runs until a trouble is reported that has this in it, and stops then.
fn reports(mut forwarder: Forwarder<NatsStream>, trouble: &str) {
    let (stop, watch) = (forwarder.stop(), forwarder.watch());
    std::thread::scope(|scope| {
        let running = scope.spawn(move || forwarder.run());
        while !watch.progress().trouble.is_some_and(|reported| reported.contains(trouble)) {
            assert!(!running.is_finished(), "{:?}", watch.progress());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        stop.stop();
        running.join().unwrap().unwrap();
    });
}

#[test]
fn each_message_is_there_once_in_each_mode() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        for round in 1..=3 {
            let queue = Queue::open(dir.path()).unwrap();
            put(&queue, 2_500);
            assert_eq!(forwarder(&queue, &server, mode).once().unwrap(), ForwardEnd::Drained);
            check(&server.entries(STREAM, SUBJECT), round * 2_500);
        }
        let entries = server.entries(STREAM, SUBJECT);
        let last = entries.last().unwrap().text("Mmq");
        let words: Vec<_> = last.split(' ').map(str::len).collect();
        assert_eq!(words, [4, 8, 8], "number, sum and queue of the last one: {last}");
        // The stream's own way was chosen, with no more than it needs.
        let count = |name| entries.iter().filter(|it| !it.text(name).is_empty()).count();
        assert_eq!(count("Nats-Msg-Id") == 7_500, mode != NatsMode::Batch, "{mode:?}");
        assert_eq!(count("Nats-Expected-Last-Msg-Id") > 7_000, mode == NatsMode::Chain);
        assert_eq!(count("Nats-Expected-Stream") < 50, mode != NatsMode::Window, "{mode:?}");
        let inner = entries.iter().filter(|it| !it.text("Mmq").contains(' ')).count();
        assert_eq!(inner > 7_000, mode == NatsMode::Batch, "{mode:?}");
    }
}

#[test]
fn a_message_of_any_bytes_and_of_none_arrives() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        let crlf = b"$5\r\nhello\r\nPUB a 1\r\n".to_vec();
        let messages = [vec![], vec![0u8, 255, 13, 10], vec![7; 1_000_000], crlf];
        for message in &messages {
            queue.enqueue(message).unwrap();
        }
        forwarder(&queue, &server, mode).once().unwrap();
        let entries = server.entries(STREAM, SUBJECT);
        assert!(entries.iter().map(|it| &it.data).eq(&messages), "{mode:?}");
    }
}

#[test]
fn missing_numbers_are_reported_in_the_way_that_was_asked_for() {
    for mode in MODES {
        for how in [TellGaps::Header, TellGaps::Message, TellGaps::None] {
            let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
            let options = Options::new().arena_size(65_536).max_bytes(4 * 65_536);
            let queue = options.on_full(OnFull::DropOldest).open(dir.path()).unwrap();
            put(&queue, 10);
            forwarder(&queue, &server, mode).gaps(how).once().unwrap();
            for _ in 0..100 {
                queue.enqueue([7; 10_000]).unwrap();
            }
            forwarder(&queue, &server, mode).gaps(how).keep(0, 0).once().unwrap();
            let entries = server.entries(STREAM, SUBJECT);
            let behind = entries.iter().find(|it| it.seq() > 9).unwrap();
            let reported = match how {
                TellGaps::None => String::new(),
                _ => format!("10-{} dropped", behind.seq() - 1),
            };
            assert_eq!(behind.text("Mmq-Missing"), reported);
            let words: Vec<_> =
                entries.iter().filter(|it| !it.text("Mmq-Gap").is_empty()).collect();
            assert_eq!(words.len(), usize::from(how == TellGaps::Message), "{mode:?}");
            assert!(words.iter().all(|it| it.seq() == 9 && it.text("Mmq-Gap") == reported));
            assert!(words.iter().all(|it| it.data.is_empty()));
            // What only reports a gap may be the last one, and is asked for again.
            forwarder(&queue, &server, mode).gaps(how).once().unwrap();
            assert_eq!(server.entries(STREAM, SUBJECT).len(), entries.len());
        }
    }
}

/// Behind word of a gap that is the last message of the subject it goes on as behind any other.
#[test]
fn word_of_a_gap_may_be_the_last_message_and_comes_again() {
    use mmq::forward::{MissingCause, MissingNumbers, Outgoing, OutgoingKind};
    for mode in MODES {
        let server = server_for(mode);
        let source = Source::new([7; 16], "q");
        let missing = [MissingNumbers { first: 2, last: 4, cause: MissingCause::LostThere }];
        let of = |seq, kind| {
            let segment_time = (seq > 4).then_some(UNIX_EPOCH + Duration::from_millis(1500));
            Outgoing { seq, sum: 9, bytes: b"x", missing_before: &[], segment_time, kind }
        };
        let gap = Outgoing { bytes: b"", missing_before: &missing, ..of(1, OutgoingKind::Gap) };
        let message = |seq| of(seq, OutgoingKind::Message);
        let mut there = far_of(&server, mode);
        assert_eq!(resume(&mut there, &source, None), Held::Nothing);
        there.send(&[message(0), message(1), gap]).unwrap();
        late::wait_for_numbers(&server, &[0, 1, 1]);
        for round in 0..2 {
            let held = resume(&mut there, &source, None);
            assert_eq!(held, Held::Until { seq: 1, sum: Some(9) });
            there.send(&[gap]).unwrap();
            late::wait_for_numbers(&server, [&[0, 1, 1, 1][..], &[0, 1, 1, 1, 1]][round]);
        }
        there.send(&[message(5), message(6)]).unwrap();
        while there.acknowledged(Duration::from_secs(1)).unwrap() < 7 {}
        let entries = server.entries(STREAM, SUBJECT);
        let numbers: Vec<_> = entries.iter().map(Entry::seq).collect();
        assert_eq!(numbers, [0, 1, 1, 1, 1, 5, 6], "{mode:?}");
        let times: Vec<_> = entries.iter().map(|it| it.headers.get("Mmq-Time")).collect();
        let time = "1500".to_owned();
        assert_eq!(times, [None, None, None, None, None, Some(&time), Some(&time)], "{mode:?}");
    }
}

#[test]
fn an_older_copy_of_the_directory_stops() {
    let (dir, server) = (crate::support::tempdir().unwrap(), server_for(NatsMode::Batch));
    let copy = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    queue
        .copy_to(copy.path().join("older"), CopiedId::Same, |_, _| ControlFlow::Continue(()))
        .unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    forwarder(&queue, &server, NatsMode::Batch).once().unwrap();
    let older = Queue::open(copy.path().join("older")).unwrap();
    put(&older, 1);
    let halt = forwarder(&older, &server, NatsMode::Batch).once().unwrap_err();
    assert!(matches!(halt, Halt::OlderCopy { seq: 9, next: Some(6) }), "{halt}");
    check(&server.entries(STREAM, SUBJECT), 10);
}

#[test]
fn a_stream_that_was_purged_goes_on_and_one_that_was_made_anew_is_reported() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        let config = json!({
            "name": STREAM, "subjects": [SUBJECT], "duplicate_window": 100_000_000,
            "allow_atomic": mode == NatsMode::Batch,
        });
        server.make_stream(config.clone());
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 50);
        forwarder(&queue, &server, mode).once().unwrap();
        server.api(&format!("STREAM.PURGE.{STREAM}"), json!({}));
        put(&queue, 5);
        forwarder(&queue, &server, mode).once().unwrap();
        let entries = server.entries(STREAM, SUBJECT);
        let numbers: Vec<_> = entries.iter().map(Entry::seq).collect();
        assert_eq!(numbers, [50, 51, 52, 53, 54], "{mode:?}");
        assert_eq!(entries[0].text("Mmq-Missing"), "");
        server.api(&format!("STREAM.DELETE.{STREAM}"), json!({}));
        server.make_stream(config);
        let reported = halted(forwarder(&queue, &server, mode));
        assert!(reported.contains("somebody purged or recreated it"), "{reported}");
        let mut again = forwarder(&queue, &server, mode).if_forgotten(IfForgotten::Resend);
        again.once().unwrap();
        check(&server.entries(STREAM, SUBJECT), 55);
    }
}

#[test]
fn a_message_that_is_too_long_is_left_out_and_reported() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        server.make_stream(json!({
            "name": STREAM, "subjects": [SUBJECT], "max_msg_size": 10_000,
            "allow_atomic": mode == NatsMode::Batch,
        }));
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 3);
        queue.enqueue([7; 20_000]).unwrap();
        put(&queue, 3);
        let reported = halted(forwarder(&queue, &server, mode));
        assert!(reported.contains("refuses message 3: 20000 bytes are too many"), "{reported}");
        check(&server.entries(STREAM, SUBJECT), 3);
        forwarder(&queue, &server, mode).on_refused(OnRefused::Skip).once().unwrap();
        let entries = server.entries(STREAM, SUBJECT);
        assert_eq!(entries.iter().map(Entry::seq).collect::<Vec<_>>(), [0, 1, 2, 4, 5, 6]);
        assert_eq!(entries[3].text("Mmq-Missing"), "3-3 refused");
    }
}

/// The stream's limit falls while the forwarder runs: the server's own word is heard.
#[test]
fn a_message_that_the_stream_refuses_is_found_among_others() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        let mut forwarder = forwarder(&queue, &server, mode).on_refused(OnRefused::Skip);
        let (stop, watch) = (forwarder.stop(), forwarder.watch());
        std::thread::scope(|scope| {
            let running = scope.spawn(|| forwarder.run());
            put(&queue, 1);
            while watch.progress().acknowledged < 1 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let mut config = server.api(&format!("STREAM.INFO.{STREAM}"), json!({}));
            config["config"]["max_msg_size"] = json!(10_000);
            server.api(&format!("STREAM.UPDATE.{STREAM}"), config["config"].take());
            let batch = [&b"a"[..], &[7; 20_000], b"b"];
            queue.enqueue_batch(batch).unwrap();
            while watch.progress().acknowledged < 3 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            stop.stop();
            running.join().unwrap().unwrap();
        });
        let entries = server.entries(STREAM, SUBJECT);
        assert_eq!(entries.iter().map(Entry::seq).collect::<Vec<_>>(), [0, 1, 3], "{mode:?}");
        assert_eq!(entries[2].text("Mmq-Missing"), "2-2 refused");
    }
}

/// A mirror keeps no id of a batch, and within a batch nothing else names the queue.
#[test]
fn a_promoted_mirror_that_ends_within_a_batch_goes_on_exactly() {
    let (dir, server) = (crate::support::tempdir().unwrap(), server_for(NatsMode::Batch));
    let mirror = json!({ "name": "MIRROR", "mirror": { "name": STREAM }, "storage": "file" });
    assert!(server.api("STREAM.CREATE.MIRROR", mirror)["error"].is_null());
    let queue = Queue::open(dir.path()).unwrap();
    for _ in 0..2 {
        put(&queue, 20);
        forwarder(&queue, &server, NatsMode::Batch).once().unwrap();
    }
    let state = || server.api("STREAM.INFO.MIRROR", json!({}))["state"].take();
    while state()["last_seq"] != 40 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = server.api(&format!("STREAM.DELETE.{STREAM}"), json!({}));
    for seq in 31..=40 {
        server.api("STREAM.MSG.DELETE.MIRROR", json!({ "seq": seq }));
    }
    let promoted =
        json!({ "name": "MIRROR", "subjects": [SUBJECT], "storage": "file", "allow_atomic": true });
    assert!(server.api("STREAM.UPDATE.MIRROR", promoted)["error"].is_null());
    put(&queue, 5);
    let far = NatsStream::new(&server.url(), "MIRROR").unwrap().subject(SUBJECT).unwrap();
    Forwarder::new(&queue, "forward", far).unwrap().once().unwrap();
    check(&server.entries("MIRROR", SUBJECT), 45);
}
