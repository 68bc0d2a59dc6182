//! A queue that goes on after another one, behind its messages.

use std::ops::ControlFlow;

use mmq::forward::{Forwarder, Source};
use mmq::{CopiedId, Queue};
use mmq_nats::NatsStream;

use super::server::{Entry, Server};
use super::{MODES, STREAM, SUBJECT, forwarder, halted, put, server_for};

fn id(queue: &Queue) -> String {
    Source::new(queue.id(), "").queue_hex()
}

/// The numbers that the stream holds, in its order.
fn numbers(server: &Server) -> Vec<u64> {
    server.entries(STREAM, SUBJECT).iter().map(Entry::seq).collect()
}

/// Both queues have the same texts under the same numbers.
#[test]
fn a_queue_that_was_made_anew_goes_on_behind_the_messages_of_the_old_one() {
    for mode in MODES {
        let (dir, mut server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let [old, new] = ["old", "new"].map(|name| Queue::open(dir.path().join(name)).unwrap());
        put(&old, 50);
        put(&new, 60);
        forwarder(&old, &server, mode).once().unwrap();
        let copy = dir.path().join("server");
        server.kill();
        server.copy_to(&copy);
        server.restart();
        let said = halted(forwarder(&new, &server, mode));
        let remedy = format!("`--succeed {}`", &id(&old)[..8]);
        assert!(said.contains(&remedy), "{said}");
        let after = |server: &Server, id: &str| -> Forwarder<NatsStream> {
            forwarder(&new, server, mode).succeed(id).unwrap()
        };
        let said = halted(after(&server, "0123456789"));
        assert!(said.contains(&remedy), "only the queue that is named: {said}");
        after(&server, &id(&old)).once().unwrap();
        let both: Vec<u64> = (0..50).chain(0..60).collect();
        assert_eq!(numbers(&server), both, "{mode:?}");
        // The stream is set back to the messages of the old queue: those of the new one are kept.
        server.kill();
        server.set_back_to(&copy);
        server.restart();
        after(&server, &id(&old)[..8].to_uppercase()).once().unwrap();
        assert_eq!(numbers(&server), both, "{mode:?}");
        // From then on the option is as good as none.
        put(&new, 1);
        forwarder(&new, &server, mode).once().unwrap();
        put(&new, 1);
        after(&server, &id(&old)).once().unwrap();
        let both: Vec<u64> = (0..50).chain(0..62).collect();
        assert_eq!(numbers(&server), both, "{mode:?}");
        let entries = server.entries(STREAM, SUBJECT);
        assert!(entries.iter().all(|entry| entry.text("Mmq-Missing").is_empty()));
    }
}

/// A copy with an id of its own goes on where its original stood when it was copied.
#[test]
fn a_copy_goes_on_behind_the_messages_of_its_original() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path().join("q")).unwrap();
        let old = id(&queue);
        put(&queue, 50);
        forwarder(&queue, &server, mode).once().unwrap();
        put(&queue, 5);
        let to = dir.path().join("copy");
        queue.copy_to(&to, CopiedId::New, |_, _| ControlFlow::Continue(())).unwrap();
        let copy = Queue::open(to).unwrap();
        assert_eq!(copy.consumer("forward").unwrap().len(), 5);
        put(&copy, 5);
        forwarder(&copy, &server, mode).succeed(&old).unwrap().once().unwrap();
        assert_eq!(numbers(&server), (0..60).collect::<Vec<_>>(), "{mode:?}");
    }
}
