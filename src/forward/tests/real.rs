//! The driver over a real queue, which the other tests replace by one in memory.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::far::{Chain, Far, FarHandle};
use crate::error::{Error, GapCause};
use crate::forward::destination::{MissingCause, OutgoingKind};
use crate::forward::local::{Acknowledged, Local, NextRead};
use crate::forward::over_queue::QueueLocal;
use crate::forward::{
    Destination, ForwardEnd, ForwardOptions, Forwarder, Halt, Held, IfForgotten, Limits, Mark,
    OnRefused, Outgoing, Source, TellGaps, Trouble,
};
use crate::options::{OnFull, Options};
use crate::queue::Queue;

pub(super) fn far() -> FarHandle {
    let mut far = Far::new(7, Chain::Each, 1);
    far.limits = Limits { longest: 1 << 20, ..Limits::default() };
    far.well = true;
    FarHandle(Arc::new(parking_lot::Mutex::new(far)))
}

fn numbers(far: &FarHandle) -> Vec<u64> {
    far.0.lock().log.iter().map(|stored| stored.seq).collect()
}

pub(super) fn forwarder<'a>(queue: &Queue, far: &'a mut FarHandle) -> Forwarder<&'a mut FarHandle> {
    Forwarder::new(queue, "forward", far).unwrap().name("near")
}

pub(super) fn local(queue: &Queue) -> QueueLocal {
    let consumer = queue.consumer("forward").unwrap();
    let (engine, consumer) = consumer.parts();
    QueueLocal::new(engine, consumer).unwrap()
}

#[test]
fn what_is_forwarded_is_there_in_order_and_acknowledged_here() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let mut far = far();
    for round in 1..=3 {
        // Each round is another process.
        let queue = Queue::open(dir.path()).unwrap();
        for number in 0..1000 {
            queue.enqueue(format!("message {number} of round {round}")).unwrap();
        }
        let mut forwarder = forwarder(&queue, &mut far).keep(100, 1 << 20);
        let watch = forwarder.watch();
        assert_eq!(forwarder.once().unwrap(), ForwardEnd::Drained);
        let progress = watch.progress();
        assert_eq!((progress.acknowledged, progress.lag), (1000, 0));
        assert_eq!(numbers(&far), (0..round * 1000).collect::<Vec<_>>());
        let stats = queue.consumer("forward").unwrap().stats();
        assert_eq!((stats.messages, stats.next_seq, stats.kept), (0, round * 1000, 100));
        assert!(stats.acknowledged_at.is_some());
        assert_eq!(queue.consumers(), ["forward"]);
    }
}

#[test]
fn what_the_far_side_lost_is_sent_again_as_far_as_it_is_kept() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch((0..500).map(|number| number.to_string())).unwrap();
    let mut far = far();
    forwarder(&queue, &mut far).keep(50, 1 << 20).once().unwrap();
    let driven = local(&queue);
    assert_eq!((driven.place(), driven.kept()), (500, 450));
    drop(driven);
    far.0.lock().set_back(460);
    forwarder(&queue, &mut far).keep(50, 1 << 20).once().unwrap();
    assert_eq!(numbers(&far), (0..500).collect::<Vec<_>>());
    far.0.lock().set_back(440);
    queue.enqueue("500").unwrap();
    forwarder(&queue, &mut far).keep(50, 1 << 20).once().unwrap();
    let far = far.0.lock();
    let stored = &far.log[440];
    assert_eq!((stored.seq, stored.missing.len(), far.log.len()), (450, 1, 491));
    let missing = stored.missing[0];
    let lost = (missing.first, missing.last, missing.cause);
    assert_eq!(lost, (440, 449, MissingCause::LostThere));
}

#[test]
fn an_older_copy_of_the_directory_stops() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let (original, copy) = (dir.path().join("original"), dir.path().join("copy"));
    let queue = Queue::open(&original).unwrap();
    queue.enqueue_batch(["a", "b"]).unwrap();
    let mut far = far();
    forwarder(&queue, &mut far).once().unwrap();
    queue.close().unwrap();
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(&original).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let queue = Queue::open(&original).unwrap();
    queue.enqueue_batch(["c", "d"]).unwrap();
    forwarder(&queue, &mut far).once().unwrap();
    queue.close().unwrap();
    let queue = Queue::open(&copy).unwrap();
    queue.enqueue("another c").unwrap();
    let halt = forwarder(&queue, &mut far).once().unwrap_err();
    assert!(matches!(halt, Halt::OlderCopy { seq: 3, next: Some(3) }), "{halt}");
    queue.enqueue_batch(["another d", "e"]).unwrap();
    let halt = forwarder(&queue, &mut far).once().unwrap_err();
    assert!(matches!(halt, Halt::OlderCopy { seq: 3, next: None }), "{halt}");
    assert_eq!(numbers(&far), [0, 1, 2, 3]);
}

#[test]
fn a_copy_with_an_id_of_its_own_begins_where_its_original_has_come_to() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path().join("original")).unwrap();
    queue.enqueue_batch((0..100).map(|number| number.to_string())).unwrap();
    forwarder(&queue, &mut far()).once().unwrap();
    queue.enqueue_batch(["100", "101"]).unwrap();
    let to = dir.path().join("copy");
    let go_on = |_, _| std::ops::ControlFlow::Continue(());
    queue.copy_to(&to, crate::CopiedId::New, go_on).unwrap();
    let copy = Queue::open(&to).unwrap();
    let stats = copy.consumer("forward").unwrap().stats();
    assert_eq!((stats.messages, stats.next_seq, stats.kept), (2, 100, 100));
    // The far side acknowledged nothing of this queue, so it has forgotten nothing.
    let mut far = far();
    forwarder(&copy, &mut far).once().unwrap();
    assert_eq!(numbers(&far), [100, 101]);
}

#[test]
fn what_is_no_id_of_another_queue_is_refused() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let own = Source::new(queue.id(), "").queue_hex();
    for id in ["", "0a0b0c0", "0a0b0c0x", "0a0b0c0d0e0f001122334455667788990", &own, &own[..8]] {
        let refused = Forwarder::new(&queue, "forward", far()).unwrap().succeed(id).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{id}: {refused}");
    }
}

#[test]
fn what_the_queue_dropped_is_reported_also_while_it_is_read() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let options = Options::new().max_bytes(1 << 20).on_full(OnFull::DropOldest);
    let queue = options.open(dir.path()).unwrap();
    let bytes = [b'x'; 1000];
    let mut driven = local(&queue);
    queue.enqueue(bytes).unwrap();
    driven.read_from(0).unwrap();
    assert!(matches!(driven.read().unwrap(), NextRead::Message(message) if message.seq() == 0));
    // Later messages make the queue drop it, and much more, before it is acknowledged.
    for _ in 0..5000 {
        queue.enqueue(bytes).unwrap();
    }
    driven.set_acknowledged(Acknowledged::until(1)).unwrap();
    // (It may have read on before the drop.)
    let mut expected = 1;
    // The queue may drop more meanwhile, to have room at hand. It keeps the newest.
    let message = loop {
        match driven.read().unwrap() {
            NextRead::Message(message) => {
                assert_eq!(message.seq(), expected);
                expected += 1;
                if expected == 5001 {
                    break message;
                }
            }
            NextRead::Gap(gap) => {
                assert!(gap.first <= expected && gap.cause == GapCause::Dropped, "{gap}");
                expected = gap.last + 1;
            }
            NextRead::Nothing => panic!("the newest message is there"),
        }
    };
    let sum = crate::memory::checksum::xxh3_64(7, &message) as u32;
    let seq = message.seq();
    assert_eq!(driven.chain_over(seq, 7, seq + 1).unwrap(), Some(sum));
    assert_eq!(driven.chain_over(seq, 7, seq + 2).unwrap(), None, "behind the end");
    assert_eq!(driven.chain_over(1, 7, 2).unwrap(), None, "dropped");
    // A reading that begins at a dropped number reports the gap.
    driven.read_from(1).unwrap();
    assert!(matches!(driven.read().unwrap(), NextRead::Gap(gap) if gap.first <= 1));
    drop(driven);

    let mut far = far();
    for gaps in [TellGaps::Header, TellGaps::Message] {
        let forwarder = forwarder(&queue, &mut far).if_forgotten(IfForgotten::Continue);
        forwarder.keep(0, 0).gaps(gaps).once().unwrap();
        for _ in 0..5000 {
            queue.enqueue(bytes).unwrap();
        }
    }
    let far = far.0.lock();
    let mut expected = far.log[0].seq;
    for stored in far.log.iter().filter(|stored| stored.kind == OutgoingKind::Message) {
        let missing: u64 = stored.missing.iter().map(|it| it.last + 1 - it.first).sum();
        let unreported = if expected == far.log[0].seq { missing } else { 0 };
        assert_eq!(stored.seq, expected + missing - unreported);
        expected = stored.seq + 1;
    }
}

#[test]
fn refused_messages_stop_are_left_out_or_go_to_another_queue() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path().join("queue")).unwrap();
    let dead_letters = Arc::new(Queue::open(dir.path().join("letters")).unwrap());
    queue.enqueue_batch(["fine", "\u{1}poison", "fine, too"]).unwrap();
    let mut far = far();
    let short = Duration::from_millis(1);
    let options = || crate::forward::ForwardOptions {
        first_pause: short,
        longest_pause: short,
        ..Default::default()
    };
    let halt = forwarder(&queue, &mut far).options(options()).once().unwrap_err();
    assert!(matches!(halt, Halt::Refused { seq: 1, .. }), "{halt}");
    assert_eq!(queue.consumer("forward").unwrap().len(), 2);
    let to = OnRefused::DeadLetters(Arc::clone(&dead_letters));
    forwarder(&queue, &mut far).options(options()).on_refused(to).once().unwrap();
    assert_eq!(numbers(&far), [0, 2]);
    assert_eq!(far.0.lock().log[1].missing[0].cause, MissingCause::Refused);
    let dead_letter = dead_letters.dequeue().unwrap().unwrap();
    assert_eq!(dead_letter.as_str(), Ok("\u{1}poison"));
    assert_eq!(
        dead_letter.origin().map(|origin| (origin.queue_id, origin.seq)),
        Some((queue.id(), 1))
    );
}

#[test]
fn a_forwarder_ends_when_it_is_stopped_and_when_its_queue_is_closed() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue("a message").unwrap();
    let stopped = forwarder_thread(&queue);
    stopped.1.stop();
    assert_eq!(stopped.0.join().unwrap().unwrap(), ForwardEnd::Stopped);
    let closed = forwarder_thread(&queue);
    queue.close().unwrap();
    assert_eq!(closed.0.join().unwrap().unwrap(), ForwardEnd::Closed);
}

type Forwarding = std::thread::JoinHandle<Result<ForwardEnd, Halt>>;

/// Starts a forwarder, and returns once it has sent all messages.
fn forwarder_thread(queue: &Queue) -> (Forwarding, crate::forward::Stop) {
    let forwarder = Forwarder::new(queue, "forward", far()).unwrap().name("near");
    let mut forwarder = forwarder.if_forgotten(IfForgotten::Continue);
    let (stop, watch) = (forwarder.stop(), forwarder.watch());
    let thread = std::thread::spawn(move || forwarder.run());
    while watch.progress().sessions == 0 {
        std::thread::yield_now();
    }
    (thread, stop)
}

#[test]
fn moving_the_places_costs_no_sync() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Options::new().flush_every_ops(1).open(dir.path()).unwrap();
    queue.enqueue_batch((0..100).map(|number| number.to_string())).unwrap();
    let mut driven = local(&queue);
    let flushes = queue.stats().flushes;
    driven.set_acknowledged(Acknowledged::until(100)).unwrap();
    driven.move_kept(90).unwrap();
    assert_eq!((driven.place(), driven.kept(), queue.stats().flushes), (100, 90, flushes));
}

/// A far side with a bug.
struct Panics;

impl Destination for Panics {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        panic!("a bug of the far side's client")
    }
    fn send(&mut self, _: &[Outgoing<'_>]) -> Result<(), Trouble> {
        Ok(())
    }
    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        Ok(0)
    }
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

#[test]
fn a_consumer_belongs_to_one_forwarder_until_that_ends_or_panics() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue("a message").unwrap();
    let (first, stop) = forwarder_thread(&queue);
    let (mut other, mut beside) = (far(), far());
    let mut second = forwarder(&queue, &mut other).if_forgotten(IfForgotten::Continue);
    let refused = second.once().unwrap_err();
    assert!(matches!(refused, Halt::Queue(Error::InvalidArgument { .. })), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("\"forward\" belongs to another forwarder"), "{said}");
    // Another consumer of the same queue is free.
    Forwarder::new(&queue, "beside", &mut beside).unwrap().name("near").once().unwrap();
    stop.stop();
    first.join().unwrap().unwrap();
    assert_eq!(second.once().unwrap(), ForwardEnd::Drained);
    let mut panics = Forwarder::new(&queue, "forward", Panics).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics.once()));
    assert!(panicked.is_err());
    assert_eq!(second.once().unwrap(), ForwardEnd::Drained);
}

/// A far side whose settings a person should know.
struct Warns(FarHandle);

impl Destination for Warns {
    fn resume(&mut self, source: &Source, mark: Option<Mark>) -> Result<Held, Trouble> {
        self.0.resume(source, mark)
    }
    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        self.0.send(messages)
    }
    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        self.0.acknowledged(wait)
    }
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn warning(&self) -> Option<String> {
        Some("it forgets".to_owned())
    }
}

#[test]
fn what_the_far_side_warns_of_is_in_the_progress() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let mut forwarder = Forwarder::new(&queue, "forward", Warns(far())).unwrap().name("near");
    let watch = forwarder.watch();
    assert_eq!(watch.progress().warning, None);
    forwarder.once().unwrap();
    assert_eq!(watch.progress().warning.as_deref(), Some("it forgets"));
}

/// A far side that acknowledges three messages at a time.
#[derive(Default)]
struct ByThrees {
    sends: Vec<usize>,
    times: Vec<(u64, Option<SystemTime>)>,
    sent: u64,
    until: u64,
}

impl Destination for ByThrees {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        Ok(Held::Nothing)
    }
    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        self.sends.push(messages.len());
        self.times.extend(messages.iter().map(|it| (it.seq, it.segment_time)));
        self.sent += messages.len() as u64;
        Ok(())
    }
    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        self.until = self.sent.min(self.until + 3);
        Ok(self.until)
    }
    fn limits(&self) -> Limits {
        Limits { send_messages: 10, in_flight_messages: 20, ..Limits::default() }
    }
}

#[test]
fn a_send_waits_until_a_whole_one_may_be_in_flight() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch((0..95).map(|number| number.to_string())).unwrap();
    let mut far = ByThrees::default();
    Forwarder::new(&queue, "forward", &mut far).unwrap().once().unwrap();
    assert_eq!(far.sends, [10, 10, 10, 10, 10, 10, 10, 10, 10, 5]);
}

#[test]
fn each_message_of_a_send_has_the_time_of_the_first_ones_segment() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    let mut begun = Vec::new();
    for seq in 0..50 {
        queue.enqueue(vec![b'x'; 100_000]).unwrap();
        begun.push(queue.segment_time(seq).unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(begun[0] < begun[49], "one segment for all");
    let mut options = ForwardOptions { times: true, ..ForwardOptions::default() };
    let mut far = ByThrees::default();
    Forwarder::new(&queue, "forward", &mut far).unwrap().options(options.clone()).once().unwrap();
    let mut first = 0;
    for send in far.sends {
        for (at, stored) in far.times[first..first + send].iter().enumerate() {
            assert_eq!(*stored, ((first + at) as u64, Some(begun[first])));
        }
        first += send;
    }
    options.times = false;
    let mut far = ByThrees::default();
    Forwarder::new(&queue, "beside", &mut far).unwrap().options(options).once().unwrap();
    assert!(far.times.iter().all(|(_, time)| time.is_none()) && !far.times.is_empty());
}
