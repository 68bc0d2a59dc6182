//! A message that the stream refuses is left out, and the server is set back to what it held before
//! or behind that.

use std::time::{Duration, Instant};

use mmq::Queue;
use mmq::forward::{ForwardEnd, Forwarder, OnRefused};
use mmq_nats::{NatsMode, NatsStream};
use serde_json::json;

use super::late::WAIT;
use super::server::{Entry, Server};
use super::{MODES, STREAM, SUBJECT, put};

/// A stream that takes no long message.
fn server_for(mode: NatsMode) -> Server {
    let server = Server::start("");
    let subjects = if mode == NatsMode::Chain { &[SUBJECT][..] } else { &[SUBJECT, "other.*"] };
    server.make_stream(json!({
        "name": STREAM, "subjects": subjects, "storage": "file", "max_msg_size": 10_000,
        "allow_atomic": mode == NatsMode::Batch, "duplicate_window": 100_000_000,
    }));
    server
}

fn forwarder(queue: &Queue, url: &str, mode: NatsMode) -> Forwarder<NatsStream> {
    let far = NatsStream::new(url, STREAM).unwrap().subject(SUBJECT).unwrap().mode(mode);
    Forwarder::new(queue, "forward", far).unwrap().on_refused(OnRefused::Skip)
}

/// Three messages; the refused one, and three; three; and, when the server was set back to what it
/// held behind the group `copied`, three. `all_arrive` waits until each group is there.
fn is_set_back(server: &mut Server, queue: &Queue, copied: u64, all_arrive: &dyn Fn()) {
    let copies = crate::support::tempdir().unwrap();
    let copy = copies.path().join("copy");
    for group in 0..4 {
        if group == 1 {
            queue.enqueue([7; 20_000]).unwrap();
        }
        if group == 3 {
            server.kill();
            server.set_back_to(&copy);
            server.restart();
        }
        put(queue, 3);
        all_arrive();
        if group == copied {
            server.kill();
            server.copy_to(&copy);
            server.restart();
        }
    }
    let entries = server.entries(STREAM, SUBJECT);
    let numbers: Vec<_> = entries.iter().map(Entry::seq).collect();
    assert_eq!(numbers, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    for entry in entries {
        let number = entry.seq();
        assert_eq!(String::from_utf8_lossy(&entry.data), format!("message {number}"));
        let missing = if number == 4 { "3-3 refused" } else { "" };
        assert_eq!(entry.text("Mmq-Missing"), missing, "of {number}");
    }
}

fn each_case() -> impl Iterator<Item = (NatsMode, u64)> {
    MODES.into_iter().flat_map(|mode| [0, 1].map(|copied| (mode, copied)))
}

#[test]
fn a_set_back_store_has_all_but_the_refused_message_again() {
    for (mode, copied) in each_case() {
        let (dir, mut server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        let url = server.url();
        let all_arrive = || {
            let end = forwarder(&queue, &url, mode).once();
            assert_eq!(end.unwrap(), ForwardEnd::Drained, "{mode:?} {copied}");
        };
        is_set_back(&mut server, &queue, copied, &all_arrive);
    }
}

#[test]
fn a_store_that_is_set_back_under_a_forwarder_has_all_but_the_refused_message_again() {
    for (mode, copied) in each_case() {
        let (dir, mut server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        let mut forwarder = forwarder(&queue, &server.url(), mode);
        let (stop, watch) = (forwarder.stop(), forwarder.watch());
        let running = std::thread::spawn(move || forwarder.run());
        let all_arrive = || {
            let began = Instant::now();
            while watch.progress().place != queue.stats().next_seq {
                assert!(began.elapsed() < WAIT * 4, "{mode:?} {copied}: {:?}", watch.progress());
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        is_set_back(&mut server, &queue, copied, &all_arrive);
        stop.stop();
        assert_eq!(running.join().unwrap().unwrap(), ForwardEnd::Stopped);
    }
}
