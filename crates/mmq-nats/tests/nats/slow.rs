//! A link that is slow.

use mmq::Queue;
use mmq::forward::{ForwardEnd, Forwarder};
use mmq_nats::{NatsMode, NatsStream};
use serde_json::json;

use super::server::Server;
use super::shaped::{FAR, Link};
use super::slow_link::Proxy;
use super::{MODES, STREAM, SUBJECT, make_stream};

/// Bytes a second.
const RATE: u64 = 50_000;

/// Forwards a message of many seconds, in which the server says nothing of it, and short ones.
fn forward(url: &str, mode: NatsMode) {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    for length in [2_000; 20].into_iter().chain([900_000]).chain([2_000; 30]) {
        queue.enqueue(vec![b'x'; length]).unwrap();
    }
    let far = NatsStream::new(url, STREAM).unwrap().subject(SUBJECT).unwrap().mode(mode);
    let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap();
    assert_eq!(forwarder.once().unwrap(), ForwardEnd::Drained);
    assert_eq!(forwarder.watch().progress().sessions, 1, "{mode:?}: the session lasts");
}

/// All of it is there once, for at most a fifth more bytes than the stream has.
fn check(server: &Server, mode: NatsMode, up: u64) {
    let entries = server.entries(STREAM, SUBJECT);
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.seq()).collect();
    assert_eq!(numbers, (0..51).collect::<Vec<_>>(), "{mode:?}");
    let info = server.api(&format!("STREAM.INFO.{STREAM}"), json!({}));
    let stored = info["state"]["bytes"].as_u64().unwrap();
    println!("{mode:?}: {up} bytes went over the link for {stored}");
    assert!(up * 5 <= stored * 6, "{mode:?}: {up} bytes for {stored}");
}

fn over_a_shaped_link(link: &Link, mode: NatsMode) {
    let server = link.far.inside(|| Server::start("host: 0.0.0.0"));
    link.far.inside(|| make_stream(&server, mode));
    link.near.inside(|| forward(&format!("nats://{FAR}:{}", server.port()), mode));
    link.far.inside(|| check(&server, mode, link.up()));
}

fn through_a_proxy(mode: NatsMode) {
    let server = super::server_for(mode);
    let proxy = Proxy::start(server.port(), Some(RATE));
    forward(&format!("nats://127.0.0.1:{}", proxy.port), mode);
    check(&server, mode, proxy.up());
}

#[test]
fn a_message_of_many_seconds_arrives_and_goes_over_the_link_once() {
    let over = |mode| match Link::new(RATE) {
        Ok(link) => over_a_shaped_link(&link, mode),
        Err(reason) => {
            crate::support::skip(format_args!(
                "a shaped link ({mode:?}), a proxy is as slow instead: {reason}"
            ));
            through_a_proxy(mode);
        }
    };
    std::thread::scope(|scope| {
        for mode in MODES {
            scope.spawn(move || over(mode));
        }
    });
}
