//! What forwards ends, whatever goes wrong.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use mmq::Options;
use mmq_redis::RedisStream;

use super::{KEY, edge};

/// Only ends a hang.
const HANG: Duration = Duration::from_secs(60);

/// A server that accepts connections and never answers. It keeps them open.
pub(super) fn silent() -> (String, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let (accepted, connections) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            if accepted.send(connection).is_err() {
                return;
            }
        }
    });
    (url, connections)
}

/// What that returns, on a thread of its own; the test fails if it does not end.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || ended.send(work()));
    ends.recv_timeout(HANG).expect("it ends, and does not panic")
}

/// What the example says when it fails.
fn edge_fails(words: [&str; 3]) -> String {
    let words = words.map(str::to_owned);
    ends(move || edge::run(&words).unwrap_err().to_string())
}

#[test]
fn the_example_ends_at_a_wrong_argument() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let (url, _connections) = silent();
    let said = edge_fails([dir, &url, "abc"]);
    assert_eq!(said, "\"abc\" is not a number of readings");
    let said = edge_fails([dir, "kafka://host", "1"]);
    assert!(said.contains("no client for kafka://host"), "{said}");
}

#[test]
fn the_example_ends_when_its_queue_is_full() {
    let dir = crate::support::tempdir().unwrap();
    let (url, _connections) = silent();
    let queue = Options::new().max_bytes(8 << 20).open(dir.path()).unwrap();
    let said = ends(move || {
        let far = Box::new(RedisStream::new(&url, KEY).unwrap());
        edge::store_and_forward(&queue, far, 1_000_000).unwrap_err().to_string()
    });
    assert!(said.contains("full"), "{said}");
}

#[test]
fn the_example_says_in_a_sentence_why_forwarding_stopped() {
    let dir = crate::support::tempdir().unwrap();
    let server = super::server::Server::start(&[]);
    let _: () = server.call(&["SET", "edge", "no stream"]);
    let said = edge_fails([dir.path().to_str().unwrap(), &server.url(), "10"]);
    assert!(said.contains("forwarding has stopped"), "{said}");
    assert!(said.contains("name another one"), "{said}");
}
