//! What stands in the stream, entry by entry, and what it weighs.

use std::time::{Duration, UNIX_EPOCH};

use mmq::GapCause;
use mmq::Queue;
use mmq::forward::{
    Destination, Forwarder, Held, MissingCause, MissingNumbers, Outgoing, OutgoingKind, Source,
};
use mmq_redis::RedisStream;

use super::proxy::Proxy;
use super::server::Server;
use super::{KEY, forwarder, halted, put};

fn source() -> Source {
    Source::new([7; 16], "test")
}

fn message(seq: u64, missing_before: &[MissingNumbers]) -> Outgoing<'_> {
    Outgoing {
        seq,
        sum: seq as u32,
        bytes: b"some bytes",
        missing_before,
        segment_time: None,
        kind: OutgoingKind::Message,
    }
}

/// Begins a session, sends, and waits until all of it is there.
fn deliver(far: &mut RedisStream, messages: &[Outgoing<'_>]) -> Held {
    let held = far.resume(&source(), None).unwrap();
    far.send(messages).unwrap();
    let until = messages.last().unwrap().seq + 1;
    while far.acknowledged(Duration::from_secs(60)).unwrap() < until {}
    held
}

/// The fields of each entry behind its id, but for the bytes.
fn entries(server: &Server) -> Vec<String> {
    let words = |it: super::server::Entry| {
        let fields = it.fields.iter().map(|(name, value)| match name.as_str() {
            "data" => name.clone(),
            _ => format!("{name} {}", String::from_utf8_lossy(value)),
        });
        format!("{}: {}", it.id, fields.collect::<Vec<_>>().join(" | "))
    };
    server.entries(KEY).into_iter().map(words).collect()
}

#[test]
fn numbers_gaps_and_the_end_of_a_send_stand_where_they_belong() {
    let server = Server::start(&[]);
    let mut far = RedisStream::new(&server.url(), KEY).unwrap();
    let dropped =
        |first, last| MissingNumbers { first, last, cause: MissingCause::Gap(GapCause::Dropped) };
    let (early, later) = ([dropped(2, 2), dropped(3, 6)], [dropped(9, 9)]);
    let gap = |seq| Outgoing { bytes: b"", kind: OutgoingKind::Gap, ..message(seq, &later) };
    let sent = [message(0, &[]), message(1, &[]), message(7, &early), message(8, &[])];
    assert_eq!(deliver(&mut far, &sent), Held::Nothing);
    let sent = [gap(8), message(10, &later), message(11, &[]), gap(11)];
    assert_eq!(deliver(&mut far, &sent), Held::Until { seq: 8, sum: Some(8) });
    let segment_time = Some(UNIX_EPOCH + Duration::from_millis(1_764_241_234_567));
    let sent = [Outgoing { segment_time, ..message(12, &[]) }];
    assert_eq!(deliver(&mut far, &sent), Held::Until { seq: 11, sum: Some(11) });
    let queue = "07".repeat(16);
    assert_eq!(
        entries(&server),
        [
            "1-0: data".to_owned(),
            "2-0: data".to_owned(),
            "8-0: data | missing 2-2 dropped, 3-6 dropped".to_owned(),
            format!("9-0: data | queue {queue} | sum 00000008"),
            "9-1: missing 9-9 dropped".to_owned(),
            "11-0: data | missing 9-9 dropped".to_owned(),
            "12-0: data".to_owned(),
            format!("12-1: missing 9-9 dropped | queue {queue} | sum 0000000b"),
            format!("13-0: data | queue {queue} | sum 0000000c | time 1764241234567"),
        ]
    );
}

/// The script counts in floating-point numbers.
#[test]
fn numbers_that_a_script_cannot_count_are_exact() {
    let server = Server::start(&[]);
    let mut far = RedisStream::new(&server.url(), KEY).unwrap();
    let first = (1 << 53) - 3;
    let sent: Vec<_> = (first..first + 6).map(|seq| message(seq, &[])).collect();
    deliver(&mut far, &sent);
    let there: Vec<_> = server.entries(KEY).iter().map(super::server::Entry::seq).collect();
    assert_eq!(there, (first..first + 6).collect::<Vec<_>>());
}

/// An entry that somebody adds without an id gets one from the server's clock, which is far above
/// any number of a queue, and which stays the last id when the entry is deleted.
#[test]
fn an_entry_of_the_clock_that_was_deleted_is_named_and_can_be_undone() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    forwarder(&queue, &server).once().unwrap();
    let added: String = server.call(&["XADD", KEY, "*", "field", "value"]);
    put(&queue, 5);
    let reported = halted(forwarder(&queue, &server));
    assert!(reported.contains("which no queue wrote"), "{reported}");
    assert!(reported.contains("(XDEL)") && reported.contains("(XSETID)"), "{reported}");
    let _: u64 = server.call(&["XDEL", KEY, &added]);
    let reported = halted(forwarder(&queue, &server));
    assert!(reported.contains("from its clock"), "{reported}");
    assert!(reported.ends_with(&format!("XSETID {KEY} 5-0")), "{reported}");
    let _: String = server.call(&["XSETID", KEY, "5-0"]);
    forwarder(&queue, &server).once().unwrap();
    super::check(&server.entries(KEY), 10);
}

/// The bytes of a message beside its own, on the link and in the server's memory.
#[test]
fn a_message_weighs_little_more_than_its_bytes() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    let count = 10_000;
    for _ in 0..count {
        queue.enqueue([b'x'; 100]).unwrap();
    }
    let proxy = Proxy::start(server.port(), Some(u64::MAX));
    let far = RedisStream::new(&proxy.url(), KEY).unwrap();
    Forwarder::new(&queue, "forward", far).unwrap().once().unwrap();
    let stored: u64 = server.call(&["MEMORY", "USAGE", KEY, "SAMPLES", "0"]);
    let (up, stored) = (proxy.up() / count - 100, stored / count - 100);
    println!("beside 100 bytes: {up} on the link, {stored} in memory");
    assert!(up <= 12, "{up} bytes on the link");
    assert!(stored <= 40, "{stored} bytes in memory");
}
