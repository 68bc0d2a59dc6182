//! Links that are slow, and servers that do not answer.

use std::time::Duration;

use mmq::Queue;
use mmq::forward::{
    Destination, ForwardEnd, Forwarder, Held, Outgoing, OutgoingKind, Source, SourceLane, Trouble,
};
use mmq_redis::RedisStream;

use super::proxy::Proxy;
use super::server::{Server, check};
use super::{KEY, put};

fn source() -> Source {
    Source::new([7; 16], "test")
}

/// What a session that cannot begin says.
fn trouble(far: &mut RedisStream) -> String {
    match far.resume(&source(), None) {
        Err(Trouble::Again(why, _)) => why.to_string(),
        other => panic!("it is to try again: {other:?}"),
    }
}

/// One message takes longer than any answer of a server may, and goes over the link once.
#[test]
fn a_message_of_many_seconds_arrives_and_goes_over_the_link_once() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    let long = vec![b'x'; 900_000];
    queue.enqueue(&long).unwrap();
    for _ in 0..50 {
        queue.enqueue([b'y'; 2_000]).unwrap();
    }
    let proxy = Proxy::start(server.port(), Some(60_000));
    let far = RedisStream::new(&proxy.url(), KEY).unwrap();
    assert_eq!(
        Forwarder::new(&queue, "forward", far).unwrap().once().unwrap(),
        ForwardEnd::Drained
    );
    assert_eq!(server.entries(KEY).len(), 51);
    assert_eq!(proxy.connections(), 1);
    assert!(proxy.up() < 1_000_000 * 105 / 100, "{} bytes for a million", proxy.up());
}

/// Acknowledgements come while there is more to write, and a session that is dropped writes no
/// more: both show in what has gone over the link by then.
#[test]
fn a_slow_link_is_heard_meanwhile_and_left_at_once() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port(), Some(5_000_000));
    let mut far = RedisStream::new(&proxy.url(), KEY).unwrap();
    while far.resume(&source(), None).is_err() {}
    let bytes = vec![b'x'; 1 << 16];
    // More than all buffers between here and the server.
    let total = 600 << 16;
    for seq in 0..600 {
        let kind = OutgoingKind::Message;
        let (bytes, segment_time) = (&bytes, None);
        let message = Outgoing { seq, sum: 0, bytes, missing_before: &[], segment_time, kind };
        far.send(&[message]).unwrap();
    }
    while far.acknowledged(Duration::from_secs(60)).unwrap() == 0 {}
    assert!(proxy.up() < total / 2, "the first acknowledgement came after {}", proxy.up());
    drop(far);
    while proxy.ended() == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(proxy.up() < total / 4 * 3, "{} bytes went over the link", proxy.up());
}

/// `resume` does not wait for the server: a forwarder that is to stop would wait with it.
#[test]
fn a_server_that_says_nothing_holds_nobody() {
    let proxy = Proxy::start(0, None);
    let mut far = RedisStream::new(&proxy.url(), KEY).unwrap();
    let first = trouble(&mut far);
    assert!(first.ends_with("it has not answered yet"), "{first}");
    for _ in 0..2 {
        assert_eq!(trouble(&mut far), first, "one trouble has one text, for whoever counts them");
    }
    assert_eq!(proxy.connections(), 1, "the connection goes on being made");
    // For another lane there is nothing to go on with.
    let fresh = Source { lane: SourceLane::Fresh, ..source() };
    assert!(far.resume(&fresh, None).is_err());
    assert_eq!(proxy.connections(), 2);
    let sent = far.send(&[]).unwrap_err();
    assert!(matches!(&sent, Trouble::Again(why, _) if why.to_string().contains("no session")));
}

/// What comes late counts, and is neither thrown away nor asked for again.
#[test]
fn a_late_answer_begins_the_session() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port(), Some(1_000_000));
    let mut far = RedisStream::new(&proxy.url(), KEY).unwrap();
    server.pause();
    assert!(trouble(&mut far).contains("has not answered yet"));
    server.go_on();
    let held = loop {
        match far.resume(&source(), None) {
            Ok(held) => break held,
            Err(Trouble::Again(..)) => std::thread::sleep(Duration::from_millis(10)),
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(held, Held::Nothing);
    assert_eq!(proxy.connections(), 1);
}

/// The connection is made while nobody asks; so a failure may be an old one.
#[test]
fn an_attempt_that_failed_meanwhile_is_told_and_another_one_begins() {
    let (dir, mut server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let mut far = RedisStream::new(&server.url(), KEY).unwrap();
    server.pause();
    assert!(trouble(&mut far).contains("has not answered yet"));
    server.kill();
    server.restart();
    Forwarder::new(&queue, "forward", far).unwrap().once().unwrap();
    check(&server.entries(KEY), 5);
}

/// An idle session asks now and then, so that it does not pass for one for ever.
#[test]
fn an_idle_session_finds_out_that_the_server_has_died_or_lost_the_stream() {
    let mut server = Server::start(&[]);
    let mut far = RedisStream::new(&server.url(), KEY).unwrap();
    assert_eq!(far.resume(&source(), None).unwrap(), Held::Nothing);
    server.kill();
    let (dir, emptied) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let sent = RedisStream::new(&emptied.url(), KEY).unwrap();
    let mut forwarder = Forwarder::new(&queue, "forward", sent).unwrap();
    forwarder.once().unwrap();
    let mut sent = forwarder.into_destination();
    let _: String = emptied.call(&["FLUSHALL"]);
    // (Each waits for the same ten seconds.)
    assert!(far.acknowledged(Duration::from_secs(60)).is_err());
    let lost = sent.acknowledged(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(lost, Trouble::NotStored { seq: 5, .. }), "{lost:?}");
}

/// An idle forwarder sends nothing, so only the connection itself can tell.
#[test]
fn the_end_of_an_idle_session_is_found_at_the_next_send() {
    let (dir, mut server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let mut forwarder =
        Forwarder::new(&queue, "forward", RedisStream::new(&server.url(), KEY).unwrap()).unwrap();
    let (stop, watch) = (forwarder.stop(), forwarder.watch());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| forwarder.run());
        let acknowledged = |count| {
            while watch.progress().acknowledged < count {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        acknowledged(5);
        server.kill();
        server.restart();
        put(&queue, 5);
        acknowledged(10);
        stop.stop();
        running.join().unwrap().unwrap();
    });
    check(&server.entries(KEY), 10);
}
