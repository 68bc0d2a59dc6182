//! A queue that goes on after another one, behind its messages.

use std::ops::ControlFlow;

use mmq::forward::{IfForgotten, Source};
use mmq::{CopiedId, Queue};

use super::server::{Server, check};
use super::{KEY, forwarder, halted, put};

fn id(queue: &Queue) -> String {
    Source::new(queue.id(), "").queue_hex()
}

#[test]
fn a_copy_goes_on_behind_the_messages_of_its_original() {
    let (dir, mut server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path().join("q")).unwrap();
    let old = id(&queue);
    put(&queue, 50);
    forwarder(&queue, &server).once().unwrap();
    let there = dir.path().join("server");
    server.kill();
    server.copy_to(&there);
    server.restart();
    put(&queue, 5);
    let to = dir.path().join("copy");
    queue.copy_to(&to, CopiedId::New, |_, _| ControlFlow::Continue(())).unwrap();
    let copy = Queue::open(to).unwrap();
    put(&copy, 5);
    let said = halted(forwarder(&copy, &server));
    assert!(said.contains(&format!("`--succeed {old}`")), "{said}");
    let said = halted(forwarder(&copy, &server).succeed("0123456789").unwrap());
    assert!(said.contains(&format!("`--succeed {old}`")), "only the queue that is named: {said}");
    forwarder(&copy, &server).succeed(&old[..8].to_uppercase()).unwrap().once().unwrap();
    check(&server.entries(KEY), 60);
    put(&copy, 1);
    forwarder(&copy, &server).once().unwrap();
    check(&server.entries(KEY), 61);
    // Set back to the messages of the original: a person says what is to be done.
    server.kill();
    server.set_back_to(&there);
    server.restart();
    let said = halted(forwarder(&copy, &server).succeed(&old).unwrap());
    assert!(said.contains("holds nothing of the queue"), "{said}");
    let again = forwarder(&copy, &server).if_forgotten(IfForgotten::Resend);
    again.succeed(&old).unwrap().once().unwrap();
    check(&server.entries(KEY), 61);
}

/// Ids rise within a stream, and a new queue begins at number 0.
#[test]
fn a_queue_that_was_made_anew_needs_another_key() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let [old, new] = ["old", "new"].map(|name| Queue::open(dir.path().join(name)).unwrap());
    put(&old, 50);
    forwarder(&old, &server).once().unwrap();
    put(&new, 30);
    let said = halted(forwarder(&new, &server).succeed(&id(&old)).unwrap());
    assert!(said.contains("ends in 50-0, and this queue goes on with number 0"), "{said}");
    assert!(said.contains("name another key"), "{said}");
    check(&server.entries(KEY), 50);
    assert_eq!(new.consumer("forward").unwrap().len(), 30);
}
