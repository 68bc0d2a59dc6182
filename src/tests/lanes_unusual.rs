//! Lanes where a call fails, where messages are lost, and where there are none any more.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{DeliveryToken, Lane, Read};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::sim::{Call, SimStorage};

type Queue = Engine<SimStorage>;
type Link = ConsumerState<SimStorage>;

const LANES: LaneRules =
    LaneRules { within: Within::Manual, share: (1, 1), rate: None, youngest_first: false };

fn open(storage: SimStorage) -> Queue {
    Engine::open_without_workers(storage, &Options::new().arena_size(4096)).unwrap()
}

fn new() -> Queue {
    open(SimStorage::new(5).with_file_capacity(256 << 10))
}

/// The process is gone, and another one opens the queue.
fn died(queue: &Queue) -> (Queue, Arc<Link>) {
    let queue = open(queue.core.storage.process_kill());
    let link = queue.consumer("link").unwrap();
    (queue, link)
}

fn words(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat(20)
}

fn put(queue: &Queue, count: u64) {
    for _ in 0..count {
        queue.enqueue(&words(queue.core.visible_end().seq)).unwrap();
    }
}

fn look(queue: &Queue, link: &Link, only: Option<Lane>) -> Result<Option<(u64, DeliveryToken)>> {
    let received = queue.receive_in_lanes(link, reading::AsMessage, only, &mut None)?;
    Ok(received.map(|(message, handed)| (message.seq(), handed)))
}

/// Receives from the lane, and acknowledges.
fn ack(queue: &Queue, link: &Link, only: Lane) -> u64 {
    let (seq, handed) = look(queue, link, Some(only)).unwrap().unwrap();
    queue.ack(link, seq, handed).unwrap();
    seq
}

fn rest(queue: &Queue, link: &Link) -> Vec<u64> {
    let received = std::iter::from_fn(|| look(queue, link, None).unwrap());
    received.map(|(seq, _)| seq).collect()
}

fn backlog(queue: &Queue, link: &Link) -> Vec<Range<u64>> {
    link.backlog(&queue.core)
}

/// So many messages wait, and are left behind. One more is done.
fn outage(queue: &Queue, link: &Link, count: u64) {
    put(queue, count);
    queue.jump(link).unwrap();
    put(queue, 1);
    ack(queue, link, Lane::Fresh);
}

/// The lanes belonged to the consumer that was removed. The one that is there now has none, until
/// it is given some: nobody would read what its cursor leaves behind.
#[test]
fn lanes_of_a_default_consumer_that_was_made_again_leave_no_message_behind() {
    let queue = new();
    let link = Arc::clone(queue.default_consumer().unwrap());
    queue.set_lanes(&link, LaneRules { within: Within::Last(2), ..LANES }).unwrap();
    outage(&queue, &link, 3);
    queue.remove_consumer("").unwrap();
    queue.default_consumer().unwrap();
    put(&queue, 6);
    let from = link.seq();
    let left = queue.jump(&link).unwrap();
    let first = look(&queue, &link, None).unwrap();
    assert!(matches!(first, Some((seq, handed)) if seq == from && !handed.is_backlog()));
    assert!(left.is_empty());
    assert_eq!(reading::next(&queue, &link, Read::Take).unwrap().unwrap().seq(), from + 1);
    queue.set_lanes(&link, LANES).unwrap();
    let end = queue.core.visible_end().seq;
    assert_eq!(rest(&queue, &link), (from + 2..end).collect::<Vec<_>>());
}

/// Rules that are set anew do not make older messages fresh.
#[test]
fn an_age_that_is_set_again_makes_nothing_fresh_for_longer() {
    let queue = new();
    let link = queue.consumer("link").unwrap();
    let aged = LaneRules { within: Within::Millis(8000), ..LANES };
    put(&queue, 3);
    queue.set_lanes(&link, aged).unwrap();
    queue.core.storage.advance_clock(5000);
    queue.set_lanes(&link, aged).unwrap();
    queue.core.storage.advance_clock(4000);
    let (seq, handed) = look(&queue, &link, None).unwrap().unwrap();
    assert!(handed.is_backlog(), "{seq} was put in 9 s ago: fresh for 8 s");
}

/// The disk refuses to open segments for a while: the call says so and has changed nothing.
#[test]
fn lanes_that_cannot_be_begun_now_are_begun_by_the_next_call() {
    LENGTH_HERE.set(Some(16 << 10));
    let queue = new();
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, LANES).unwrap();
    (0..3).for_each(|_| outage(&queue, &link, 150));
    queue.close().unwrap();
    let (queue, link) = died(&queue);
    put(&queue, 2);
    queue.core.storage.fail_after(Call::Open, 1, Errno::IO, true);
    let begun = queue.set_lanes(&link, LANES);
    assert!(matches!(&begun, Err(Error::Io { op: "open", .. })), "{begun:?}");
    queue.core.storage.clear_faults();
    queue.set_lanes(&link, LANES).unwrap();
    assert_eq!(backlog(&queue, &link), [0..150, 151..301, 302..452]);
    assert_eq!([(); 2].map(|()| ack(&queue, &link, Lane::Fresh)), [453, 454]);
    let left: Vec<_> = (0..452).filter(|seq| ![150, 301].contains(seq)).collect();
    assert_eq!(rest(&queue, &link), left);
    LENGTH_HERE.set(None);
}
