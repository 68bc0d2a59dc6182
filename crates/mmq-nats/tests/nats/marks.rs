//! What the stream removed, and what it lost: the position that was acknowledged last tells them
//! apart.

use std::time::{Duration, Instant};

use mmq::Queue;
use mmq::forward::{Destination, Forwarder, Halt, Held, IfForgotten, Mark};
use mmq_nats::{NatsMode, NatsStream};
use serde_json::{Value, json};

use super::late::{WAIT, message, numbers, source};
use super::proxy::Proxy;
use super::server::{Server, Wire};
use super::{MODES, STREAM, SUBJECT, far_of, forwarder, put, resume};

const SECOND: u64 = 1_000_000_000;
/// The modes in which a stream may have other subjects.
const SHARING: [NatsMode; 2] = [NatsMode::Batch, NatsMode::Window];

fn until(seq: u64) -> Held {
    Held::Until { seq, sum: Some(1) }
}

/// A stream of only our subject, or one that has others, too.
fn make(server: &Server, mode: NatsMode, is_own: bool, more: &Value) {
    let subjects = if is_own { &[SUBJECT][..] } else { &[SUBJECT, "other.*"] };
    let mut config = json!({
        "name": STREAM, "subjects": subjects, "storage": "file", "duplicate_window": 100_000_000,
        "allow_atomic": mode == NatsMode::Batch,
    });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    server.make_stream(config);
}

/// A session; what the stream holds; and the mark, as a forwarder would note it.
fn begin(server: &Server, mode: NatsMode, mark: Option<Mark>) -> (NatsStream, Held) {
    let mut far = far_of(server, mode).mode(mode);
    let held = resume(&mut far, &source(), mark);
    (far, held)
}

fn mark(far: &NatsStream, until: u64) -> Option<Mark> {
    far.position().map(|position| Mark { until, position })
}

/// Sends these numbers, and notes the mark behind them.
fn send(far: &mut NatsStream, numbers: std::ops::Range<u64>) -> Option<Mark> {
    let messages: Vec<_> = numbers.clone().map(|seq| message(seq, &[])).collect();
    far.send(&messages).unwrap();
    let began = Instant::now();
    while far.acknowledged(WAIT).unwrap() < numbers.end {
        assert!(began.elapsed() < WAIT * 4, "no acknowledgement");
    }
    mark(far, numbers.end)
}

fn state(server: &Server) -> Value {
    server.api(&format!("STREAM.INFO.{STREAM}"), json!({}))["state"].take()
}

/// Waits until so many messages are there: all others are old enough to be gone.
fn wait_for_age(server: &Server, count: u64) {
    let began = Instant::now();
    while state(server)["messages"] != count {
        assert!(began.elapsed() < WAIT * 4, "not {count}: {}", state(server));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn purge(server: &Server) {
    server.api(&format!("STREAM.PURGE.{STREAM}"), json!({ "filter": SUBJECT }));
}

fn delete_last(server: &Server) {
    let last = json!({ "last_by_subj": SUBJECT });
    let last = server.api(&format!("STREAM.MSG.GET.{STREAM}"), last);
    let delete = json!({ "seq": last["message"]["seq"] });
    server.api(&format!("STREAM.MSG.DELETE.{STREAM}"), delete);
}

fn other(server: &Server, count: u64) {
    let mut wire = Wire::new(server.port(), json!({}));
    for _ in 0..count {
        assert!(wire.request("other.a", "not of the queue")["seq"].is_u64());
    }
}

/// The outage is longer than `max_age`, with messages on their way whose acknowledgement is lost:
/// in the first session, and in a later one.
#[test]
fn a_stream_of_our_own_counts_what_it_stored_before_all_of_it_was_too_old() {
    for mode in MODES {
        let mut server = Server::start("");
        make(&server, mode, true, &json!({ "max_age": SECOND }));
        let (mut far, held) = begin(&server, mode, None);
        assert_eq!(held, Held::Nothing);
        assert_eq!(far.warning(), None);
        let began = mark(&far, 0);
        assert_eq!(began.unwrap().position.at, 0);
        send(&mut far, 0..10);
        wait_for_age(&server, 0);
        // (Nobody heard that the ten were acknowledged.)
        let (mut far, held) = begin(&server, mode, began);
        assert_eq!(held, Held::Removed { stored: Some(10) }, "{mode:?}");
        assert_eq!(far.position().unwrap().at, 10);
        let mark = send(&mut far, 10..20);
        send(&mut far, 20..25);
        wait_for_age(&server, 0);
        assert_eq!(begin(&server, mode, mark).1, Held::Removed { stored: Some(5) });
        // The server knows its last position still when it comes back.
        server.kill();
        server.restart();
        let (mut far, held) = begin(&server, mode, mark);
        assert_eq!(held, Held::Removed { stored: Some(5) }, "{mode:?}: {}", state(&server));
        send(&mut far, 25..27);
        assert_eq!(state(&server)["last_seq"], 27);
    }
}

#[test]
fn a_stream_of_our_own_that_was_purged_has_lost_nothing() {
    for mode in MODES {
        let server = Server::start("");
        make(&server, mode, true, &json!({}));
        let (mut far, _) = begin(&server, mode, None);
        let mark = send(&mut far, 0..10);
        assert_eq!(begin(&server, mode, mark).1, until(9));
        send(&mut far, 10..13);
        delete_last(&server);
        let (mut far, held) = begin(&server, mode, mark);
        assert_eq!(held, Held::Removed { stored: Some(3) }, "the last one was stored, too");
        let mark = send(&mut far, 13..15);
        delete_last(&server);
        assert_eq!(begin(&server, mode, mark).1, Held::Removed { stored: Some(0) });
        purge(&server);
        let (mut far, held) = begin(&server, mode, mark);
        assert_eq!(held, Held::Removed { stored: Some(0) }, "{mode:?}");
        send(&mut far, 15..17);
        assert_eq!(numbers(&server), [15, 16]);
    }
}

/// How it is removed what somebody else wrote to the queue's own subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    /// With all of the queue's.
    Purge,
    /// With all of the queue's, when it was old enough.
    Age,
    /// By itself.
    Delete,
}

const REMOVALS: [Removal; 3] = [Removal::Purge, Removal::Age, Removal::Delete];

impl Removal {
    /// Writes so many messages, and removes them.
    fn write_and_remove(self, server: &Server, count: u64) {
        let mut wire = server.wire();
        let write = |_| wire.request(SUBJECT, "not of the queue")["seq"].as_u64().unwrap();
        let written: Vec<_> = (0..count).map(write).collect();
        match self {
            Removal::Purge => purge(server),
            Removal::Age => {
                keep_for(server, SECOND);
                wait_for_age(server, 0);
                keep_for(server, 0);
            }
            Removal::Delete => {
                for at in written {
                    server.api(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({ "seq": at }));
                }
            }
        }
    }

    /// What is there of the queue's numbers below `end`, if those from `first` on came later.
    fn left(self, first: u64, end: u64) -> Vec<u64> {
        (if self == Removal::Delete { 0 } else { first }..end).collect()
    }
}

fn keep_for(server: &Server, age: u64) {
    let mut config = server.api(&format!("STREAM.INFO.{STREAM}"), json!({}))["config"].take();
    config["max_age"] = json!(age);
    server.api(&format!("STREAM.UPDATE.{STREAM}"), config);
}

fn each_way() -> impl Iterator<Item = (NatsMode, Removal)> {
    MODES.into_iter().flat_map(|mode| REMOVALS.map(|removal| (mode, removal)))
}

#[test]
fn what_somebody_else_wrote_and_removed_hides_no_message() {
    for (mode, removal) in each_way() {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        make(&server, mode, true, &json!({}));
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 3);
        forwarder(&queue, &server, mode).once().unwrap();
        for (count, first) in [(2, 3), (4, 8)] {
            removal.write_and_remove(&server, count);
            put(&queue, 5);
            let mut forwarder = forwarder(&queue, &server, mode);
            let watch = forwarder.watch();
            forwarder.once().unwrap();
            assert_eq!(numbers(&server), removal.left(first, first + 5), "{mode:?} {removal:?}");
            let warned = watch.progress().warning.is_some_and(|it| it.contains("nobody else"));
            assert_eq!(warned, count == 2, "{mode:?} {removal:?}: from then on nothing is counted");
        }
    }
}

/// The stream's answer says that nothing of what was under way is there.
#[test]
fn what_somebody_else_wrote_behind_a_running_forwarder_hides_no_message() {
    for (mode, removal) in each_way() {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        make(&server, mode, true, &json!({}));
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 3);
        let mut forwarder = forwarder(&queue, &server, mode);
        let (stop, watch) = (forwarder.stop(), forwarder.watch());
        let wait_for_place = |place| {
            let began = Instant::now();
            while watch.progress().place != place {
                assert!(began.elapsed() < WAIT * 4, "{mode:?}: {:?}", watch.progress());
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        std::thread::scope(|scope| {
            let running = scope.spawn(move || forwarder.run());
            wait_for_place(3);
            removal.write_and_remove(&server, 2);
            queue.enqueue_batch((3..8).map(|number| number.to_string())).unwrap();
            wait_for_place(8);
            assert_eq!(numbers(&server), removal.left(3, 8), "{mode:?} {removal:?}");
            stop.stop();
            running.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_stream_with_other_writers_says_that_it_has_lost_nothing() {
    for mode in SHARING {
        let server = Server::start("");
        make(&server, mode, false, &json!({ "max_msgs": 100 }));
        other(&server, 5);
        let (mut far, held) = begin(&server, mode, None);
        assert_eq!((held, far.position()), (Held::Nothing, None));
        assert!(far.warning().unwrap().contains("removes messages by itself (max_msgs)"));
        let mark = send(&mut far, 0..10);
        assert_eq!(mark.unwrap().position.at, 15);
        other(&server, 5);
        assert_eq!(begin(&server, mode, mark).1, until(9));
        delete_last(&server);
        let (mut far, held) = begin(&server, mode, mark);
        assert_eq!(
            (held, far.position()),
            (Held::Removed { stored: None }, mark.map(|it| it.position))
        );
        let mark = send(&mut far, 10..20);
        purge(&server);
        assert_eq!(begin(&server, mode, mark).1, Held::Removed { stored: Some(0) });
        other(&server, 3);
        let (mut far, held) = begin(&server, mode, mark);
        assert_eq!(held, Held::Removed { stored: None });
        let mark = send(&mut far, 20..25);
        // A noisy neighbour drives them out.
        other(&server, 100);
        assert!(numbers(&server).is_empty());
        let (mut far, held) = begin(&server, mode, mark);
        assert_eq!(held, Held::Removed { stored: None }, "{mode:?}");
        send(&mut far, 25..27);
        assert_eq!(numbers(&server), [25, 26]);
    }
}

/// Messages that are acknowledged and old enough to be gone are another thing than messages that
/// the server has lost.
#[test]
fn a_store_that_was_set_back_is_found_though_nothing_is_there() {
    for (mode, is_own) in [
        (NatsMode::Batch, true),
        (NatsMode::Chain, true),
        (NatsMode::Window, true),
        (NatsMode::Batch, false),
        (NatsMode::Window, false),
    ] {
        let mut server = Server::start("");
        make(&server, mode, is_own, &json!({ "max_age": SECOND }));
        let copies = crate::support::tempdir().unwrap();
        let (copy, newer) = (copies.path().join("copy"), copies.path().join("newer"));
        let (mut far, _) = begin(&server, mode, None);
        send(&mut far, 0..10);
        wait_for_age(&server, 0);
        server.kill();
        server.copy_to(&copy);
        server.restart();
        let (mut far, _) = begin(&server, mode, None);
        let mark = send(&mut far, 10..20);
        server.kill();
        server.copy_to(&newer);
        server.set_back_to(&copy);
        server.restart();
        let (mut far, held) = begin(&server, mode, mark);
        let lost = is_own.then_some(10);
        assert_eq!(held, Held::SetBack { lost }, "{mode:?} {is_own}");
        assert_eq!(far.position().map(|it| it.at), is_own.then_some(10));
        send(&mut far, 10..15);
        assert_eq!(begin(&server, mode, mark).1, until(14), "some are there again");
        if !is_own {
            // Others have filled the positions again.
            wait_for_age(&server, 0);
            other(&server, 10);
            assert_eq!(begin(&server, mode, mark).1, Held::SetBack { lost: None });
        }
        // And when it comes back whole.
        server.kill();
        server.set_back_to(&newer);
        server.restart();
        wait_for_age(&server, 0);
        assert_eq!(begin(&server, mode, mark).1, Held::Removed { stored: Some(0) });
    }
}

#[test]
fn a_stream_that_was_made_anew_has_nothing() {
    for mode in MODES {
        let server = Server::start("");
        make(&server, mode, true, &json!({ "max_age": 3600 * SECOND }));
        let (mut far, _) = begin(&server, mode, None);
        let mark = send(&mut far, 0..10);
        server.api(&format!("STREAM.DELETE.{STREAM}"), json!({}));
        make(&server, mode, true, &json!({}));
        let (mut far, held) = begin(&server, mode, mark);
        assert_eq!(held, Held::Nothing);
        assert_ne!(far.position().unwrap().store, mark.unwrap().position.store);
        send(&mut far, 0..30);
        assert_eq!(begin(&server, mode, mark).1, until(29));
    }
}

/// The server's own word, that all messages of the subject are gone, is no other writer.
#[test]
fn a_delete_marker_is_no_message() {
    let server = Server::start("");
    let more = json!({
        "max_age": SECOND, "allow_msg_ttl": true, "allow_rollup_hdrs": true,
        "subject_delete_marker_ttl": 3600 * SECOND,
    });
    make(&server, NatsMode::Batch, true, &more);
    let (mut far, _) = begin(&server, NatsMode::Batch, None);
    let mark = send(&mut far, 0..10);
    wait_for_age(&server, 1);
    let (mut far, held) = begin(&server, NatsMode::Batch, mark);
    assert_eq!(held, Held::Removed { stored: None });
    send(&mut far, 10..12);
    assert_eq!(begin(&server, NatsMode::Batch, mark).1, until(11));
}

/// What an earlier session wrote arrives when the subject is as empty as when it was sent.
#[test]
fn a_late_write_finds_no_empty_stream_that_it_was_sent_to() {
    for mode in MODES {
        let server = Server::start("");
        make(&server, mode, true, &json!({}));
        let proxy = Proxy::start(server.port());
        let through = NatsStream::new(&proxy.url(), STREAM).unwrap().subject(SUBJECT).unwrap();
        let mut earlier = through.mode(mode);
        resume(&mut earlier, &source(), None);
        proxy.hold();
        earlier.send(&[message(0, &[]), message(1, &[])]).unwrap();
        let (mut far, _) = begin(&server, mode, None);
        send(&mut far, 0..2);
        purge(&server);
        // Behind the window of duplicates, which would hide what the conditions let through.
        std::thread::sleep(Duration::from_millis(500));
        proxy.let_all_pass();
        assert!(earlier.acknowledged(WAIT).is_err(), "{mode:?}");
        assert!(numbers(&server).is_empty());
    }
}

/// Somebody has renamed the directory, or changed the name or the subject, in a stream that takes
/// both: nothing is sent twice unless the user says so.
#[test]
fn a_queue_that_has_moved_to_another_subject_is_reported_and_sends_nothing_again() {
    for mode in SHARING {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        make(&server, mode, false, &json!({}));
        let queue = Queue::open(dir.path()).unwrap();
        let forwarder = |subject| {
            let far = NatsStream::new(&server.url(), STREAM).unwrap().subject(subject).unwrap();
            Forwarder::new(&queue, "forward", far.mode(mode)).unwrap()
        };
        let reports = |subject, place, earlier| {
            let mut moved = forwarder(subject);
            let halt = moved.once().unwrap_err();
            assert!(matches!(halt, Halt::Forgotten { place: there } if there == place), "{halt}");
            let said = moved.watch().progress().warning.unwrap();
            assert!(
                said.contains(&format!("of this queue under the subject {earlier}, ")),
                "{said}"
            );
        };
        let of_other = || -> Vec<u64> {
            server.entries(STREAM, "other.a").iter().map(|entry| entry.seq()).collect()
        };
        put(&queue, 50);
        forwarder(SUBJECT).once().unwrap();
        reports("other.a", 50, SUBJECT);
        // A session that sends nothing does not make the next one forget it.
        forwarder("other.a").if_forgotten(IfForgotten::Continue).once().unwrap();
        reports("other.a", 50, SUBJECT);
        put(&queue, 1);
        forwarder("other.a").if_forgotten(IfForgotten::Continue).once().unwrap();
        put(&queue, 1);
        forwarder("other.a").once().unwrap();
        assert_eq!(of_other(), [50, 51], "{mode:?}");
        reports(SUBJECT, 52, "other.a");
        assert_eq!(numbers(&server), (0..50).collect::<Vec<_>>(), "{mode:?}");
        put(&queue, 1);
        forwarder(SUBJECT).if_forgotten(IfForgotten::Continue).once().unwrap();
        put(&queue, 1);
        forwarder(SUBJECT).once().unwrap();
        assert_eq!(numbers(&server), (0..50).chain(52..54).collect::<Vec<_>>(), "{mode:?}");
    }
}
