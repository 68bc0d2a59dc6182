//! Lanes where a call fails, where messages are lost, and where there are none any more.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::Rules;
use crate::consume::step::{DeliveryToken, Lane, Read};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::error::{Error, Gap, Result};
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::sim::{Call, SimStorage};

type Queue = Engine<SimStorage>;
type Link = ConsumerState<SimStorage>;
type Begin = fn(&Queue, &Link) -> Result<()>;

const LANES: LaneRules =
    LaneRules { within: Within::Manual, share: (1, 1), rate: None, youngest_first: false };
const YOUNGEST: LaneRules = LaneRules { youngest_first: true, ..LANES };

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

/// The oldest message is suspected of a death, and another one is in flight.
#[test]
fn the_descriptor_tells_what_one_lane_may_hand_out_though_the_oldest_may_not_go() {
    let news = |queue: &Queue, link: &Link| link.with_locked(|it| it.has_news(&queue.core));
    // The suspect was handed out of the backlog.
    let queue = new();
    let link = queue.consumer("link").unwrap();
    queue.set_redelivery(&link, Rules::default()).unwrap();
    queue.set_lanes(&link, LANES).unwrap();
    outage(&queue, &link, 3);
    assert_eq!(look(&queue, &link, Some(Lane::Backlog)).unwrap().unwrap().0, 0);
    let (queue, link) = died(&queue);
    queue.set_redelivery(&link, Rules::default()).unwrap();
    queue.set_lanes(&link, LANES).unwrap();
    put(&queue, 1);
    let fresh = || look(&queue, &link, Some(Lane::Fresh)).unwrap();
    let (fourth, handed) = fresh().unwrap();
    assert!(!news(&queue, &link) && rest(&queue, &link).is_empty(), "the suspect goes alone");
    put(&queue, 1);
    assert!(news(&queue, &link), "the cursor's next message may go");
    assert_eq!(fresh().map(|(seq, _)| seq), Some(5));
    assert!(!news(&queue, &link));
    queue.nack(&link, fourth, handed, None);
    assert!(news(&queue, &link), "what was given back may go");
    assert_eq!(fresh().map(|(seq, _)| seq), Some(4));

    // The suspects were handed out before anything was left behind.
    let queue = new();
    let link = queue.consumer("link").unwrap();
    queue.set_redelivery(&link, Rules::default()).unwrap();
    put(&queue, 4);
    let out = [(); 4].map(|()| queue.receive(&link, reading::AsMessage).unwrap().unwrap());
    queue.ack(&link, 2, out[2].1).unwrap();
    let (queue, link) = died(&queue);
    queue.set_redelivery(&link, Rules::default()).unwrap();
    queue.set_lanes(&link, YOUNGEST).unwrap();
    put(&queue, 1);
    assert_eq!([(); 2].map(|()| ack(&queue, &link, Lane::Fresh)), [3, 4]);
    outage(&queue, &link, 2);
    put(&queue, 1);
    assert!(look(&queue, &link, Some(Lane::Fresh)).unwrap().is_some());
    assert_eq!(backlog(&queue, &link), [0..2, 5..7]);
    assert!(news(&queue, &link), "the youngest stretch may go");
    assert_eq!(look(&queue, &link, None).unwrap().map(|(seq, _)| seq), Some(5));
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

/// The row of counts that an earlier run left is full. The disk refuses to open segments when they
/// are taken up: they are not left behind what may not go out.
#[test]
fn counts_that_cannot_be_taken_up_now_hold_nothing_up_for_ever() {
    LENGTH_HERE.set(Some(16 << 10));
    let begin: Begin = |queue, link| queue.set_redelivery(link, Rules::default()).map(drop);
    let lanes: Begin = |queue, link| queue.set_lanes(link, YOUNGEST);
    for (first, refused) in [(lanes, begin), (begin, lanes)] {
        let queue = new();
        let link = queue.consumer("link").unwrap();
        queue.set_redelivery(&link, Rules::default()).unwrap();
        queue.set_lanes(&link, LANES).unwrap();
        (0..2).for_each(|_| outage(&queue, &link, 200));
        let mut counted = 0;
        while let Some((seq, handed)) = look(&queue, &link, Some(Lane::Backlog)).unwrap() {
            queue.nack(&link, seq, handed, Some(Duration::from_secs(3600)));
            counted += 1;
        }
        assert!(counted < 200, "the row of counts is not full: {counted}");
        queue.close().unwrap();

        let (queue, link) = died(&queue);
        first(&queue, &link).unwrap();
        queue.core.storage.fail_after(Call::Open, 1, Errno::IO, true);
        let answer = refused(&queue, &link);
        assert!(matches!(&answer, Err(Error::Io { op: "open", .. })), "{answer:?}");
        queue.core.storage.clear_faults();
        refused(&queue, &link).unwrap();
        put(&queue, 50);
        // Each message comes once in vain, and is done when it comes again.
        let (mut back, mut done) = (BTreeSet::new(), BTreeSet::new());
        while let Some((seq, handed)) = look(&queue, &link, None).unwrap() {
            if back.insert(seq) {
                queue.nack(&link, seq, handed, None);
            } else {
                queue.ack(&link, seq, handed).unwrap();
                assert!(done.insert(seq), "{seq} was done");
            }
        }
        assert_eq!(done.len(), 450, "nothing more comes; {} wait", link.len(&queue.core));
    }
    LENGTH_HERE.set(None);
}

/// An earlier run gave it back, so it comes first. Then the messages around it are damaged, and it
/// too: its worker has it.
#[test]
fn a_gap_around_a_message_in_flight_is_reported_without_it() {
    let queue = new();
    let link = queue.consumer("link").unwrap();
    queue.set_redelivery(&link, Rules::default()).unwrap();
    queue.set_lanes(&link, LANES).unwrap();
    outage(&queue, &link, 6);
    let out = [(); 2].map(|()| look(&queue, &link, Some(Lane::Backlog)).unwrap().unwrap());
    queue.nack(&link, 1, out[1].1, None);
    queue.close().unwrap();

    let (queue, link) = died(&queue);
    queue.set_redelivery(&link, Rules::default()).unwrap();
    queue.set_lanes(&link, LANES).unwrap();
    let next = || look(&queue, &link, None);
    let (seq, handed) = next().unwrap().unwrap();
    assert_eq!((seq, handed.attempts), (1, 2));
    for name in queue.core.storage.file_names().into_iter().filter(|name| name != "index") {
        let bytes = queue.core.storage.read_file(&name);
        for seq in 0..3 {
            let found = bytes.windows(160).position(|part| part == words(seq));
            // The end of the header, too.
            if let Some(at) = found {
                queue.core.storage.corrupt(&name, at - 1, &[0xff; 2]);
            }
        }
    }
    let mut reported = Vec::new();
    while let Err(Error::Gap(Gap { first, last, .. })) = next().map(|received| {
        let (seq, handed) = received.unwrap();
        queue.ack(&link, seq, handed).unwrap();
    }) {
        reported.push((first, last));
    }
    assert_eq!(reported, [(0, 0), (2, 2)]);
    queue.ack(&link, seq, handed).unwrap();
    assert_eq!((link.seq(), link.len(&queue.core)), (4, 2));
    assert_eq!(rest(&queue, &link), [4, 5]);
}
