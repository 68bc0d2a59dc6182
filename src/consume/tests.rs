//! One consumer: its stored place, its ledger and its cursor agree after every step.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{DeliveryToken, Read};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::error::Error;
use crate::format::INDEX_NAME;
use crate::index::IndexFile;
use crate::index::image::{ConsumerRow, IndexImage};
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::sim::{Call, SimStorage};

struct Bench {
    storage: SimStorage,
    engine: Engine<SimStorage>,
    consumer: Arc<ConsumerState<SimStorage>>,
}

impl Bench {
    /// A queue of messages 0 to 9, with the consumer `c`.
    fn new() -> Bench {
        let storage = SimStorage::new(5).with_file_capacity(4 << 20);
        let engine =
            Engine::open_without_workers(storage.clone(), &Options::new().arena_size(4096))
                .unwrap();
        let consumer = engine.consumer("c").unwrap();
        for number in 0..10u8 {
            engine.enqueue(&[number; 20]).unwrap();
        }
        Bench { storage, engine, consumer }
    }

    fn read(&self, what: Read) -> Option<u64> {
        reading::next(&self.engine, &self.consumer, what).unwrap().map(|message| message.seq())
    }

    fn receive(&self) -> Option<(u64, DeliveryToken)> {
        let received = self.engine.receive(&self.consumer, reading::AsMessage).unwrap();
        received.map(|(message, handed)| (message.seq(), handed))
    }

    fn receive_all(&self) -> Vec<DeliveryToken> {
        (0..10).map(|number| self.receive().filter(|(seq, _)| *seq == number).unwrap().1).collect()
    }

    /// The consumer's row in the index, as the next opening reads it.
    fn in_index(&self) -> ConsumerRow {
        in_index(&self.storage).unwrap()
    }

    /// The number of the place; asserts that `stored`, the cell and the index agree on it.
    fn place(&self) -> u64 {
        let stored = self.consumer.cell.spot();
        let row = self.in_index();
        assert_eq!((row.place.position, row.place.seq), (stored.position, stored.seq), "the index");
        let cell = &self.consumer.cell;
        let reported = (cell.position.load(Ordering::Relaxed), cell.seq.load(Ordering::Relaxed));
        assert_eq!(reported, (stored.position, stored.seq), "the cell");
        stored.seq
    }

    /// The done ranges beyond the place.
    fn done(&self) -> Vec<(u64, u64)> {
        let ledger: Vec<_> =
            self.consumer.with_locked(|locked| locked.ledger.as_ref().unwrap().done().collect());
        // The place may be older after a power cut: the numbers from that place on are stored as
        // done too.
        let mut acks = self.in_index().acks;
        let place = self.place();
        acks.retain(|acks| acks.last >= place);
        assert_eq!(acks, ledger, "the index");
        ledger.into_iter().map(|done| (done.first, done.last)).collect()
    }
}

fn in_index(storage: &SimStorage) -> Option<ConsumerRow> {
    let id = IndexFile::read(storage).unwrap().unwrap().queue_id().unwrap();
    let rows = IndexImage::read(&storage.read_file(INDEX_NAME), &id).consumers;
    rows.into_iter().find(|row| row.name == "c")
}

#[test]
fn the_place_is_stored_after_each_step_and_a_look_moves_nothing() {
    let bench = Bench::new();
    for number in 0..10 {
        assert_eq!((bench.read(Read::Look), bench.place()), (Some(number), number));
        let taken = match number % 3 {
            0 => bench.read(Read::Take),
            1 => bench.read(Read::TakeMore),
            _ => reading::skip(&bench.engine, &bench.consumer).unwrap(),
        };
        assert_eq!(
            (taken, bench.place(), bench.consumer.len(&bench.engine.core)),
            (Some(number), number + 1, 9 - number)
        );
    }
    assert_eq!((bench.read(Read::Take), bench.read(Read::Look), bench.place()), (None, None, 10));
}

#[test]
fn the_place_stays_before_the_lowest_open_message_and_what_is_done_behind_it_is_remembered() {
    let bench = Bench::new();
    let handed = bench.receive_all();
    let ack =
        |number: u64| bench.engine.ack(&bench.consumer, number, handed[number as usize]).unwrap();
    type Ranges<'a> = &'a [(u64, u64)];
    let expected: [(u64, u64, Ranges); 10] = [
        (3, 0, &[(3, 3)]),
        (5, 0, &[(3, 3), (5, 5)]),
        (4, 0, &[(3, 5)]),
        (0, 1, &[(3, 5)]),
        (2, 1, &[(2, 5)]),
        (1, 6, &[]),
        (9, 6, &[(9, 9)]),
        (6, 7, &[(9, 9)]),
        (8, 7, &[(8, 9)]),
        (7, 10, &[]),
    ];
    for (nth, (number, place, done)) in expected.into_iter().enumerate() {
        ack(number);
        assert_eq!(
            (bench.place(), bench.done().as_slice()),
            (place, done),
            "{number} was acknowledged"
        );
        assert_eq!(bench.consumer.in_flight(&bench.engine.core), 9 - nth as u64);
        assert_eq!(bench.consumer.len(&bench.engine.core), 9 - nth as u64);
    }
}

#[test]
fn an_acknowledgement_counts_once() {
    let bench = Bench::new();
    let handed = bench.receive_all();
    let acknowledge = |number: u64| {
        bench
            .consumer
            .acknowledge(&bench.engine.core, number, handed[number as usize])
            .unwrap()
            .is_some()
    };
    let taken = || bench.consumer.cell.taken.load(Ordering::Relaxed);
    assert!(acknowledge(4) && !acknowledge(4));
    assert_eq!(
        (taken(), bench.consumer.in_flight(&bench.engine.core), bench.done()),
        (1, 9, vec![(4, 4)])
    );
    // A message that was not delivered.
    assert!(bench.consumer.acknowledge(&bench.engine.core, 77, handed[0]).unwrap().is_none());
    assert_eq!(taken(), 1);
}

#[test]
fn what_is_given_back_comes_again_before_what_is_new_the_oldest_first() {
    let bench = Bench::new();
    let handed: Vec<DeliveryToken> = (0..4).map(|_| bench.receive().unwrap().1).collect();
    for number in [2, 1] {
        assert!(bench.consumer.give_back(
            &bench.engine.core,
            number,
            handed[number as usize],
            None
        ));
    }
    assert!(!bench.consumer.give_back(&bench.engine.core, 1, handed[1], None), "it is back");
    assert_eq!((bench.consumer.in_flight(&bench.engine.core), bench.place()), (2, 0));
    assert_eq!(bench.read(Read::Look), Some(1));
    assert_eq!(bench.receive().map(|(seq, handed)| (seq, handed.attempts)), Some((1, 2)));
    assert_eq!(bench.read(Read::Take), Some(2));
    assert_eq!((bench.done(), bench.place()), (vec![(2, 2)], 0));
    assert_eq!(bench.receive().map(|(seq, handed)| (seq, handed.attempts)), Some((4, 1)));
}

#[test]
fn no_more_is_handed_out_than_may_be_in_flight() {
    let bench = Bench::new();
    bench.engine.set_max_in_flight(&bench.consumer, Some(2)).unwrap();
    let first = bench.receive().unwrap().1;
    assert_eq!(bench.receive().map(|(seq, _)| seq), Some(1));
    assert!(bench.receive().is_none());
    assert_eq!(bench.read(Read::Take), Some(2), "who takes hands nothing out");
    bench.engine.ack(&bench.consumer, 0, first).unwrap();
    assert_eq!(bench.receive().map(|(seq, _)| seq), Some(3));
    assert_eq!((bench.receive().is_none(), bench.place(), bench.done()), (true, 1, vec![(2, 2)]));
    assert!(bench.engine.set_max_in_flight(&bench.consumer, Some(0)).is_err());
}

#[test]
fn a_seek_calls_off_what_is_in_flight_and_forgets_what_is_done() {
    let bench = Bench::new();
    let handed = bench.receive_all();
    bench.engine.ack(&bench.consumer, 5, handed[5]).unwrap();
    bench.engine.seek(&bench.consumer, 3).unwrap();
    assert_eq!(
        (bench.place(), bench.done(), bench.consumer.in_flight(&bench.engine.core)),
        (3, vec![], 0)
    );
    assert_eq!(in_index(&bench.storage.power_cut_losing_all()).map(|row| row.acks), Some(vec![]));
    let again: Vec<u64> = std::iter::from_fn(|| bench.receive().map(|(seq, _)| seq)).collect();
    assert_eq!(again, (3..10).collect::<Vec<_>>());
    // A delivery of an earlier epoch changes none of these.
    bench.engine.ack(&bench.consumer, 3, handed[3]).unwrap();
    assert!(!bench.consumer.give_back(&bench.engine.core, 4, handed[4], None));
    assert_eq!((bench.place(), bench.consumer.in_flight(&bench.engine.core)), (3, 7));
}

#[test]
fn a_seek_that_cannot_be_made_durable_changes_nothing() {
    let bench = Bench::new();
    let handed = bench.receive_all();
    for number in [0, 5] {
        bench.engine.ack(&bench.consumer, number, handed[number as usize]).unwrap();
    }
    bench.storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    assert!(bench.engine.seek(&bench.consumer, 3).is_err());
    assert_eq!(
        (bench.place(), bench.done(), bench.consumer.in_flight(&bench.engine.core)),
        (1, vec![(5, 5)], 8)
    );
}

#[test]
fn a_removed_consumer_has_no_place_and_is_refused() {
    let bench = Bench::new();
    let handed = bench.receive_all();
    bench.engine.ack(&bench.consumer, 2, handed[2]).unwrap();
    bench.engine.remove_consumer("c").unwrap();
    assert_eq!(in_index(&bench.storage), None);
    let refused = |answer: Result<(), Error>| matches!(answer, Err(Error::NotFound { .. }));
    assert!(refused(reading::next(&bench.engine, &bench.consumer, Read::Take).map(drop)));
    assert!(refused(bench.engine.ack(&bench.consumer, 3, handed[3])));
    assert!(refused(bench.engine.seek(&bench.consumer, 0)));
    assert!(!bench.consumer.give_back(&bench.engine.core, 3, handed[3], None));
    assert_eq!((in_index(&bench.storage), bench.consumer.in_flight(&bench.engine.core)), (None, 0));
}

#[test]
fn what_is_open_for_a_consumer_is_released_when_it_has_not_moved() {
    let bench = Bench::new();
    assert_eq!(bench.read(Read::Take), Some(0));
    let holds = || bench.consumer.with_locked(|locked| locked.cursor.segment_life().is_some());
    bench.consumer.release_if_idle();
    assert!(holds(), "it has moved since this was asked last");
    bench.consumer.release_if_idle();
    assert!(!holds());
    assert_eq!((bench.read(Read::Take), bench.place()), (Some(1), 2));
}

#[test]
fn a_message_is_rejected_once() {
    let bench = Bench::new();
    let handed = bench.receive_all();
    let reject = |number: u64| {
        bench.consumer.reject(&bench.engine.core, number, handed[number as usize]).unwrap()
    };
    bench.engine.ack(&bench.consumer, 2, handed[2]).unwrap();
    assert_eq!([4, 4, 2].map(reject), [true, false, false]);
    assert_eq!((bench.engine.stats().rejected, bench.done()), (1, vec![(2, 2)]));
}

/// The disk refuses to open the segment for a moment.
#[test]
fn a_message_that_was_given_back_and_cannot_be_read_is_not_lost() {
    LENGTH_HERE.set(Some(16 << 10));
    let bench = Bench::new();
    for _ in 0..40 {
        bench.engine.enqueue(&[7; 1000]).unwrap();
    }
    bench.engine.core.flush().unwrap();
    let handed = bench.receive().unwrap().1;
    assert!(bench.consumer.give_back(&bench.engine.core, 0, handed, None));
    bench.consumer.release();
    for what in [Read::Receive, Read::Take, Read::TakeMore, Read::Look] {
        bench.storage.fail_after(Call::Open, 1, Errno::IO, false);
        let read = reading::next(&bench.engine, &bench.consumer, what).map(drop);
        assert!(matches!(&read, Err(Error::Io { op: "open", .. })), "{what:?}: {read:?}");
    }
    assert_eq!(bench.receive().map(|(seq, handed)| (seq, handed.attempts)), Some((0, 2)));
    assert_eq!((bench.receive().map(|(seq, _)| seq), bench.place()), (Some(1), 0));
    assert_eq!(bench.engine.stats().gaps, 0);
    LENGTH_HERE.set(None);
}

/// Padding behind the last message has a position and no number: a lane has nothing to leave there.
#[test]
fn a_number_that_no_message_has_yet_is_never_too_old() {
    let bench = Bench::new();
    let within = Within::Millis(1000);
    let rules = LaneRules { within, share: (1, 1), rate: None, youngest_first: false };
    bench.engine.set_lanes(&bench.consumer, rules).unwrap();
    bench.storage.advance_clock(5000);
    let mut locked = bench.consumer.locked.lock();
    let lanes = locked.lanes.as_mut().unwrap();
    let mut is_too_old = |seq| lanes.is_too_old(&bench.engine.core, seq, 1000);
    assert_eq!([9, 10].map(&mut is_too_old), [true, false]);
}
