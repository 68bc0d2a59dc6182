//! A link that is slow.

use mmq::Queue;
use mmq::forward::{ForwardEnd, Forwarder};
use mmq_nats::NatsStream;

use super::slow_link::Proxy;
use super::{MODES, STREAM, SUBJECT, server_for};

/// One message takes many seconds, in which the server says nothing of it.
#[test]
fn a_message_of_many_seconds_arrives_and_goes_over_the_link_once() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        queue.enqueue(vec![b'x'; 900_000]).unwrap();
        for _ in 0..50 {
            queue.enqueue([b'y'; 2_000]).unwrap();
        }
        let proxy = Proxy::start(server.port(), Some(60_000));
        let url = format!("nats://127.0.0.1:{}", proxy.port);
        let far = NatsStream::new(&url, STREAM).unwrap().subject(SUBJECT).unwrap().mode(mode);
        let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap();
        assert_eq!(forwarder.once().unwrap(), ForwardEnd::Drained);
        let numbers: Vec<u64> =
            server.entries(STREAM, SUBJECT).iter().map(|entry| entry.seq()).collect();
        assert_eq!(numbers, (0..51).collect::<Vec<_>>(), "{mode:?}");
        assert_eq!(proxy.connections(), 1, "{mode:?}: the session lasts");
        assert!(proxy.up() < 1_100_000, "{mode:?}: {} bytes for a million", proxy.up());
    }
}
