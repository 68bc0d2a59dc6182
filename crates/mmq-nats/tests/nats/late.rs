//! What an earlier session wrote arrives late, between the messages of this one.

use std::time::Duration;

use mmq::forward::{
    Destination, Held, MissingCause, MissingNumbers, Outgoing, OutgoingKind, Source,
};
use mmq_nats::NatsStream;

use serde_json::json;

use super::proxy::Proxy;
use super::server::{Entry, Server};
use super::{MODES, STREAM, SUBJECT, far_of, resume, server_for};

pub(super) const WAIT: Duration = Duration::from_secs(5);

pub(super) fn source() -> Source {
    Source::new([7; 16], "q")
}

pub(super) fn message(seq: u64, missing_before: &[MissingNumbers]) -> Outgoing<'_> {
    let (bytes, kind) = (&b"m"[..], OutgoingKind::Message);
    Outgoing { seq, sum: 1, bytes, missing_before, segment_time: None, kind }
}

pub(super) fn numbers(server: &Server) -> Vec<u64> {
    server.entries(STREAM, SUBJECT).iter().map(Entry::seq).collect()
}

pub(super) fn wait_for_numbers(server: &Server, wanted: &[u64]) {
    let began = std::time::Instant::now();
    while numbers(server) != wanted {
        assert!(began.elapsed() < WAIT * 4, "{:?} instead of {wanted:?}", numbers(server));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An earlier session sent 10, 11 and 12. This one knows that 11 is missing, and sends 10 and 12.
/// Its own 12 would be stored behind the late 10, and then the late 12 behind that one, if a
/// position were all that they asked for.
#[test]
fn a_late_message_finds_the_very_message_that_it_was_sent_behind() {
    let missing = [MissingNumbers { first: 11, last: 11, cause: MissingCause::LostThere }];
    for mode in MODES {
        let server = server_for(mode);
        let mut info = server.api(&format!("STREAM.INFO.{STREAM}"), json!({}));
        info["config"]["duplicate_window"] = json!(100_000_000);
        server.api(&format!("STREAM.UPDATE.{STREAM}"), info["config"].take());
        let proxy = Proxy::start(server.port());
        let through = NatsStream::new(&proxy.url(), STREAM).unwrap().subject(SUBJECT).unwrap();
        let (mut earlier, mut this) = (through.mode(mode), far_of(&server, mode));
        resume(&mut this, &source(), None);
        this.send(&[message(9, &[])]).unwrap();
        while this.acknowledged(WAIT).unwrap() < 10 {}
        let held = Held::Until { seq: 9, sum: Some(1) };
        assert_eq!(resume(&mut earlier, &source(), None), held);
        proxy.hold();
        earlier.send(&[message(10, &[]), message(11, &[]), message(12, &[])]).unwrap();
        assert_eq!(resume(&mut this, &source(), None), held);
        proxy.let_one_pass();
        if mode != super::NatsMode::Batch {
            wait_for_numbers(&server, &[9, 10]);
        }
        this.send(&[message(10, &[]), message(12, &missing)]).unwrap();
        while let Ok(until) = this.acknowledged(WAIT) {
            if until == 13 {
                break;
            }
        }
        // Behind the window of duplicates, which would hide what the conditions let through.
        std::thread::sleep(Duration::from_millis(500));
        proxy.let_all_pass();
        while let Ok(until) = earlier.acknowledged(WAIT) {
            if until == 13 {
                break;
            }
        }
        let there = numbers(&server);
        let may_be = [&[9, 10][..], &[9, 10, 11], &[9, 10, 12], &[9, 10, 11, 12]];
        assert!(may_be.contains(&&there[..]), "{mode:?}: {there:?}");
    }
}
