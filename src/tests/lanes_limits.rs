//! Lanes where something is full, set anew, old, or of an earlier run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::Rules;
use crate::consume::step::{DeliveryToken, Lane};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::options::Options;
use crate::state::WriteTimes;
use crate::tests::sim::SimStorage;

type Queue = Arc<Engine<SimStorage>>;
type Link = Arc<ConsumerState<SimStorage>>;

const OUTAGES: u32 = 150;
/// Messages of a stretch.
const EACH: u64 = 30;

fn disk(seed: u64) -> SimStorage {
    SimStorage::new(seed).with_file_capacity(256 << 10)
}

fn open(storage: SimStorage, options: &Options) -> Queue {
    Arc::new(Engine::open_without_workers(storage, options).unwrap())
}

fn rules(within: Within, share: (u32, u32)) -> LaneRules {
    LaneRules { within, share, rate: None, youngest_first: false }
}

fn put(queue: &Queue, count: u64) {
    for _ in 0..count {
        let seq = queue.core.visible_end().seq;
        queue.enqueue(&seq.to_le_bytes().repeat(20)).unwrap();
    }
}

fn try_receive(queue: &Queue, link: &Link, only: Option<Lane>) -> Option<(u64, DeliveryToken)> {
    let received = queue.receive_in_lanes(link, reading::AsMessage, only, &mut None).unwrap();
    received.map(|(message, handed)| (message.seq(), handed))
}

fn seq_of(received: Option<(u64, DeliveryToken)>) -> Option<u64> {
    received.map(|(seq, _)| seq)
}

/// A queue whose process died with one fresh message in flight, while 0..100 was the backlog, of
/// which none was ever handed out. It is open again.
fn after_a_death(fresh: u64) -> (Queue, Link) {
    let options = Options::new().arena_size(64 << 10);
    let within = rules(Within::Manual, (4, 1));
    let queue = open(disk(1), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_redelivery(&link, Rules { max_attempts: Some(3), ..Rules::default() }).unwrap();
    queue.set_lanes(&link, within).unwrap();
    put(&queue, 100);
    queue.jump(&link).unwrap();
    put(&queue, 2);
    let (seq, handed) = try_receive(&queue, &link, Some(Lane::Fresh)).unwrap();
    assert_eq!(seq, 100);
    queue.ack(&link, seq, handed).unwrap();
    assert_eq!(seq_of(try_receive(&queue, &link, Some(Lane::Fresh))), Some(101));

    let queue = open(queue.core.storage.process_kill(), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_redelivery(&link, Rules { max_attempts: Some(3), ..Rules::default() }).unwrap();
    queue.set_lanes(&link, within).unwrap();
    put(&queue, fresh);
    assert_eq!(format!("{:?}", link.backlog(&queue.core)), "[0..100]");
    (queue, link)
}

#[test]
fn after_a_death_the_backlog_gets_its_share_of_a_link_with_two_in_flight() {
    let (queue, link) = after_a_death(300);
    let mut out = std::collections::VecDeque::new();
    let mut late = 0;
    for _ in 0..200 {
        while out.len() < 2
            && let Some((seq, handed)) = try_receive(&queue, &link, None)
        {
            late += u64::from(handed.is_backlog());
            out.push_back((seq, handed));
        }
        let (seq, handed) = out.pop_front().unwrap();
        queue.ack(&link, seq, handed).unwrap();
    }
    assert!(late >= 30, "the backlog got {late} of 200 messages; its share is 40");
}

#[test]
fn the_descriptor_is_readable_for_a_message_that_receive_hands_out() {
    let (queue, link) = after_a_death(3);
    // 101 was in flight at the death: it goes alone, and is done.
    let (seq, handed) = try_receive(&queue, &link, Some(Lane::Fresh)).unwrap();
    queue.ack(&link, seq, handed).unwrap();
    assert!(seq_of(try_receive(&queue, &link, Some(Lane::Fresh))).is_some());
    let has_news = link.with_locked(|locked| locked.has_news(&queue.core));
    let received = seq_of(try_receive(&queue, &link, None));
    assert!(received.is_none() || has_news, "{received:?} came; the descriptor was not readable");
}

/// Each stretch costs a range, and a row holds so many. What is left out comes again after an
/// opening, but not as fresh.
#[test]
fn more_outages_than_ranges_fit_make_nothing_fresh_again() {
    let options = Options::new().arena_size(1 << 20);
    let lanes = rules(Within::Manual, (1, 0));
    for (outages, most) in [(20, 0), (OUTAGES, EACH as u32 * (OUTAGES - 50))] {
        let mut queue = open(SimStorage::new(2).with_file_capacity(8 << 20), &options);
        let mut link = queue.consumer("link").unwrap();
        queue.set_lanes(&link, lanes).unwrap();
        let mut done = BTreeSet::new();
        for _ in 0..outages {
            put(&queue, EACH);
            queue.jump(&link).unwrap();
            put(&queue, EACH);
            for _ in 0..EACH {
                let (seq, handed) = try_receive(&queue, &link, Some(Lane::Fresh)).unwrap();
                queue.ack(&link, seq, handed).unwrap();
                done.insert(seq);
            }
        }
        queue.close().unwrap();
        queue = open(queue.core.storage.process_kill(), &options);
        link = queue.consumer("link").unwrap();
        queue.set_lanes(&link, lanes).unwrap();
        let (mut again, mut rest) = (0, 0);
        while let Some((seq, handed)) = try_receive(&queue, &link, None) {
            assert!(handed.is_backlog() || !done.contains(&seq), "{seq} comes again as fresh");
            again += u32::from(done.contains(&seq));
            rest += u32::from(!done.contains(&seq));
            queue.ack(&link, seq, handed).unwrap();
        }
        assert_eq!(rest, EACH as u32 * outages);
        assert!(again <= most, "{again} came again after {outages} outages");
    }
}

#[test]
fn a_clock_that_was_ahead_keeps_nothing_fresh_for_longer_than_it_is_known() {
    let options = Options::new().arena_size(64 << 10);
    let queue = open(disk(7), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, rules(Within::Millis(8000), (1, 0))).unwrap();
    // The clock is an hour ahead while these are put in.
    queue.core.storage.advance_clock(3_600_000);
    put(&queue, 3);
    // The program looks: 0 is taken.
    let (seq, handed) = try_receive(&queue, &link, None).unwrap();
    queue.ack(&link, seq, handed).unwrap();
    // The clock is set right. Messages go on coming for 20 s; the link is down.
    queue.core.storage.set_back_clock(3_600_000);
    for _ in 0..20 {
        queue.core.storage.advance_clock(1000);
        put(&queue, 1);
    }
    let (seq, handed) = try_receive(&queue, &link, None).unwrap();
    assert!(handed.is_backlog(), "{seq} was put in 20 s ago: fresh for 8 s");
}

/// Dates need no segments: a message in each eighth of the age fills one file, and none is dropped.
#[test]
fn ages_of_lanes_take_no_space() {
    let options = Options::new().arena_size(64 << 10).max_bytes(512 << 10);
    let options = options.on_full(crate::options::OnFull::DropOldest);
    let queue = open(disk(7), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, rules(Within::Millis(80), (1, 0))).unwrap();
    for _ in 0..400 {
        queue.core.storage.advance_clock(10);
        put(&queue, 1);
    }
    assert!(queue.core.segments.list().live.len() <= 4);
    let received: Vec<_> = std::iter::from_fn(|| try_receive(&queue, &link, None)).collect();
    let backlog = received.iter().filter(|(_, handed)| handed.is_backlog()).count();
    // The first one is not fresh any more: all that wait are left behind.
    assert_eq!((received.len(), backlog), (400, 400));
    put(&queue, 1);
    queue.core.storage.advance_clock(79);
    assert!(!try_receive(&queue, &link, None).unwrap().1.is_backlog());
    assert!(queue.core.write_times.lock().len() <= 64);
}

/// However many marks were merged, a time is never too early, and not much too late.
#[test]
fn merged_times_are_never_too_early() {
    let mut times = WriteTimes::default();
    let written = |seq: u64| 1000 + seq * 10 + seq % 7;
    for seq in 0..5000 {
        times.mark(seq, written(seq), written(seq) + 10);
        let seqs = [0, seq / 3, seq / 2, seq - seq.min(20), seq];
        for seq in seqs {
            let (numbers, before) = times.written_before(seq, u64::MAX).unwrap();
            assert!(
                numbers.contains(&seq) && before > written(seq),
                "{seq}: {numbers:?}, {before}"
            );
        }
        let age = written(seq) - written(seq / 2);
        let late = times.written_before(seq / 2, u64::MAX).unwrap().1 - written(seq / 2);
        assert!(late <= 20 + age / 4, "{late} ms too late after {age} ms");
    }
}

/// A batch that takes long is taken back, and its numbers are given to later messages.
#[test]
fn the_times_of_a_batch_that_was_taken_back_are_not_those_of_later_messages() {
    let mut times = WriteTimes::default();
    times.mark(100, 1000, 1010);
    times.mark(150, 1012, 1022);
    times.mark(100, 6000, 6010);
    assert_eq!(times.written_before(120, u64::MAX).unwrap().1, 6010);
}

/// What was there before an opening is not fresh.
#[test]
fn what_an_earlier_opening_left_is_the_backlogs() {
    let options = Options::new().arena_size(64 << 10);
    let queue = open(disk(7), &options);
    put(&queue, 1);
    let queue = open(queue.core.storage.process_kill(), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, rules(Within::Millis(8000), (1, 0))).unwrap();
    put(&queue, 1);
    let mut received = std::iter::from_fn(|| try_receive(&queue, &link, None));
    assert!(received.find(|it| it.0 == 0).unwrap().1.is_backlog());
}

#[test]
fn lanes_opened_again_with_an_age_leave_behind_what_is_older() {
    let options = Options::new().arena_size(64 << 10);
    let queue = open(disk(7), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, rules(Within::Manual, (1, 0))).unwrap();
    put(&queue, 3);
    queue.set_lanes(&link, rules(Within::Millis(8000), (1, 0))).unwrap();
    queue.core.storage.advance_clock(3_600_000);
    let (seq, handed) = try_receive(&queue, &link, None).unwrap();
    assert!(handed.is_backlog(), "{seq} was put in an hour ago: fresh for 8 s");
}

#[test]
fn a_message_given_back_is_fresh_no_longer_than_others() {
    let options = Options::new().arena_size(64 << 10);
    let queue = open(disk(7), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, rules(Within::Last(5), (1, 0))).unwrap();
    put(&queue, 1);
    let (first, kept) = try_receive(&queue, &link, None).unwrap();
    for _ in 0..1000 {
        put(&queue, 1);
        let (seq, handed) = try_receive(&queue, &link, None).unwrap();
        queue.ack(&link, seq, handed).unwrap();
    }
    queue.nack(&link, first, kept, None);
    put(&queue, 2);
    let (seq, handed) = try_receive(&queue, &link, None).unwrap();
    assert!(
        seq == 1001 && !handed.is_backlog(),
        "fresh is what is among the last 5 of 1003; {seq} came first, is_backlog {}",
        handed.is_backlog()
    );
}

#[test]
fn an_acknowledgement_in_the_fresh_lane_does_not_look_for_space_each_time() {
    let options = Options::new().arena_size(64 << 10);
    let queue = open(disk(3), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, rules(Within::Manual, (1, 0))).unwrap();
    put(&queue, 10);
    // The lane jumps before anything is read.
    queue.jump(&link).unwrap();
    put(&queue, 20);
    let mut crossed = 0;
    for _ in 0..20 {
        let (seq, handed) = try_receive(&queue, &link, None).unwrap();
        assert!(seq >= 10);
        crossed += u32::from(link.acknowledge(&queue.core, seq, handed).unwrap().unwrap());
    }
    assert!(crossed <= 1, "{crossed} of 20 acknowledgements left a segment behind, all in one");
}

#[test]
fn a_share_of_many_leaves_something_for_the_backlog() {
    let options = Options::new().arena_size(64 << 10);
    let queue = open(disk(3), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_lanes(&link, rules(Within::Manual, (3, u32::MAX))).unwrap();
    put(&queue, 10);
    queue.jump(&link).unwrap();
    put(&queue, 10);
    let mut late = 0;
    for _ in 0..10 {
        late += u64::from(try_receive(&queue, &link, None).unwrap().1.is_backlog());
    }
    assert_eq!(late, 7);
}

/// An earlier run handed out as many messages in vain as are counted, of one stretch. They lie
/// behind those of the other.
#[test]
fn what_an_earlier_run_counted_comes_again_in_either_order_of_the_stretches() {
    let options = Options::new().arena_size(64 << 10);
    for (youngest_first, lanes_come_first) in [(true, false), (true, true), (false, false)] {
        let lanes = LaneRules { youngest_first, ..rules(Within::Manual, (1, 1)) };
        let queue = open(disk(5), &options);
        let link = queue.consumer("link").unwrap();
        queue.set_redelivery(&link, Rules::default()).unwrap();
        queue.set_lanes(&link, LaneRules { youngest_first: !youngest_first, ..lanes }).unwrap();
        for _ in 0..2 {
            put(&queue, 200);
            queue.jump(&link).unwrap();
            put(&queue, 1);
            let (seq, handed) = try_receive(&queue, &link, Some(Lane::Fresh)).unwrap();
            queue.ack(&link, seq, handed).unwrap();
        }
        let mut counted = 0;
        while let Some((seq, handed)) = try_receive(&queue, &link, None) {
            queue.nack(&link, seq, handed, Some(Duration::from_secs(3600)));
            counted += 1;
        }
        assert_eq!(counted, 400, "the row of counts, which is full, holds nothing back");
        queue.close().unwrap();

        let queue = open(queue.core.storage.process_kill(), &options);
        let link = queue.consumer("link").unwrap();
        if lanes_come_first {
            queue.set_lanes(&link, lanes).unwrap();
        }
        queue.set_redelivery(&link, Rules::default()).unwrap();
        if !lanes_come_first {
            queue.set_lanes(&link, lanes).unwrap();
        }
        put(&queue, 50);
        drain_each_once_in_vain(&queue, &link, 450);
    }
}

/// Here they lie at the cursor: nothing was left behind.
#[test]
fn what_an_earlier_run_counted_is_done_before_the_cursor_reads_it() {
    let options = Options::new().arena_size(64 << 10);
    let lanes = rules(Within::Manual, (1, 1));
    let queue = open(disk(5), &options);
    let link = queue.consumer("link").unwrap();
    queue.set_redelivery(&link, Rules::default()).unwrap();
    queue.set_lanes(&link, lanes).unwrap();
    put(&queue, 4);
    let out = [0; 2].map(|_| try_receive(&queue, &link, None).unwrap());
    for (seq, handed) in out {
        queue.nack(&link, seq, handed, None);
    }
    queue.close().unwrap();

    let mut queue = open(queue.core.storage.process_kill(), &options);
    let mut done = Vec::new();
    for _ in 0..3 {
        let link = queue.consumer("link").unwrap();
        queue.set_redelivery(&link, Rules::default()).unwrap();
        queue.set_lanes(&link, lanes).unwrap();
        let (seq, handed) = try_receive(&queue, &link, None).unwrap();
        queue.ack(&link, seq, handed).unwrap();
        done.push(seq);
        if done.len() != 2 {
            let (seq, handed) = try_receive(&queue, &link, None).unwrap();
            assert_eq!(seq, done.len() as u64);
            queue.nack(&link, seq, handed, None);
        }
        assert_eq!(link.len(&queue.core), 4 - done.len() as u64);
        // The one that is done does not come again, in this run or the next.
        if done.len() % 2 == 0 {
            queue.close().unwrap();
        }
        queue = open(queue.core.storage.process_kill(), &options);
    }
    assert_eq!(done, [0, 1, 2]);
}

/// Each message comes once in vain, and is done when it comes again.
fn drain_each_once_in_vain(queue: &Queue, link: &Link, messages: usize) {
    let (mut back, mut done) = (BTreeSet::new(), BTreeSet::new());
    while let Some((seq, handed)) = try_receive(queue, link, None) {
        if back.insert(seq) {
            queue.nack(link, seq, handed, None);
        } else {
            queue.ack(link, seq, handed).unwrap();
            assert!(done.insert(seq), "{seq} was done");
        }
    }
    assert_eq!(done.len(), messages, "nothing more comes; {} wait", link.len(&queue.core));
}
