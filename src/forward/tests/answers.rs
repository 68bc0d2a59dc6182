//! Far sides whose answers are unusual, and a real queue.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::real::{far, forwarder, local};
use crate::forward::destination::MissingCause;
use crate::forward::local::{Acknowledged, Local};
use crate::forward::{
    Destination, ForwardEnd, ForwardOptions, ForwardWatch, Forwarder, Halt, Held, Limits, Mark,
    OnRefused, Outgoing, Source, Stop, Trouble,
};
use crate::queue::Queue;

/// One that knows only the number of its last message.
struct Counts(u64);

impl Destination for Counts {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        let seq = self.0.checked_sub(1);
        Ok(seq.map_or(Held::Nothing, |seq| Held::Until { seq, sum: None }))
    }
    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        self.0 = messages.last().map_or(self.0, |last| last.seq + 1);
        Ok(())
    }
    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        Ok(self.0)
    }
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// A copy of an open queue is what a power cut leaves: nobody knows what the far side was handed.
#[test]
fn a_number_that_somebody_else_set_is_told_from_one_before_a_power_cut() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| dir.path().join(name));
    let queue = Queue::open(&before).unwrap();
    queue.enqueue_batch(["a", "b", "c", "d"]).unwrap();
    queue.flush().unwrap();
    let mut driven = local(&queue);
    driven.set_acknowledged(Acknowledged { handed: 2, ..Acknowledged::until(1) }).unwrap();
    driven.flush().unwrap();
    std::fs::create_dir(&after).unwrap();
    for file in std::fs::read_dir(&before)
        .unwrap()
        .map(Result::unwrap)
        .filter(|file| file.file_type().unwrap().is_file())
    {
        std::fs::copy(file.path(), after.join(file.file_name())).unwrap();
    }
    drop(driven);
    let once = |queue: &Queue, far| Forwarder::new(queue, "forward", far).unwrap().once();
    let halt = once(&queue, Counts(3)).unwrap_err();
    assert!(matches!(halt, Halt::Lost(_)), "{halt}");
    let said = halt.to_string();
    assert!(said.contains("message 2, and this queue has sent it none from 2 on"), "{said}");
    once(&queue, Counts(2)).unwrap();
    once(&Queue::open(&after).unwrap(), Counts(3)).unwrap();
}

/// One whose first session ends, and whose second one is silent at first.
struct Flaps {
    watch: Arc<OnceLock<ForwardWatch>>,
    asked: u64,
    sent: u64,
}

impl Destination for Flaps {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        Ok(Held::Nothing)
    }
    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        self.sent = messages.len() as u64;
        Ok(())
    }
    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        self.asked += 1;
        match self.asked {
            1 => Err(Trouble::Again("the link broke".into(), Duration::ZERO)),
            2 => Ok(0),
            3 => {
                assert_eq!(
                    self.watch.get().unwrap().progress().trouble.as_deref(),
                    Some("the link broke")
                );
                Ok(self.sent)
            }
            _ => Ok(self.sent),
        }
    }
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

#[test]
fn a_trouble_is_said_until_something_is_acknowledged() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue("a message").unwrap();
    let own = Arc::new(OnceLock::new());
    let far = Flaps { watch: Arc::clone(&own), asked: 0, sent: 0 };
    let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap();
    let watch = forwarder.watch();
    own.set(watch.clone()).unwrap();
    forwarder.once().unwrap();
    assert_eq!(watch.progress().trouble, None);
}

#[test]
fn what_is_left_out_at_the_end_is_put_aside_once_and_passed() {
    for first in [&["\u{1}poison"][..], &["fine", "\u{1}poison"]] {
        let dir = crate::tests::guard::tempdir().unwrap();
        let queue = Queue::open(dir.path().join("queue")).unwrap();
        let letters = Arc::new(Queue::open(dir.path().join("letters")).unwrap());
        let mut far = far();
        let mut drain = || {
            let short = Duration::from_millis(1);
            let options = ForwardOptions { first_pause: short, ..Default::default() };
            let to = OnRefused::DeadLetters(Arc::clone(&letters));
            let mut forwarder = forwarder(&queue, &mut far).options(options).on_refused(to);
            let watch = forwarder.watch();
            forwarder.once().unwrap();
            assert_eq!((watch.progress().lag, letters.len()), (0, 1));
        };
        queue.enqueue_batch(first).unwrap();
        (0..3).for_each(|_| drain());
        queue.enqueue("fine, too").unwrap();
        drain();
        let (log, poison) = (&far.0.lock().log, first.len() as u64 - 1);
        let missing = log.last().unwrap().missing[0];
        assert_eq!((missing.first, missing.cause), (poison, MissingCause::Refused));
        assert_eq!(log.len(), first.len(), "each other message is there once");
    }
}

/// One that has room for nothing, and for no long message ever. It stops its forwarder.
struct IsFull(Arc<OnceLock<Stop>>);

impl Destination for IsFull {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        Ok(Held::Nothing)
    }
    fn send(&mut self, _: &[Outgoing<'_>]) -> Result<(), Trouble> {
        self.0.get().unwrap().stop();
        Err(Trouble::Again("it is full".into(), Duration::ZERO))
    }
    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        Ok(0)
    }
    fn limits(&self) -> Limits {
        Limits { longest: 5, ..Limits::default() }
    }
}

#[test]
fn what_is_put_aside_is_so_once_though_nothing_behind_it_gets_through() {
    // (One behind it waits for it, and is not put aside before it gets through.)
    let messages = ["too long a message", "short", "another long message"];
    for messages in [&messages[..], &messages[1..]] {
        let dir = crate::tests::guard::tempdir().unwrap();
        let queue = Queue::open(dir.path().join("queue")).unwrap();
        let letters = Arc::new(Queue::open(dir.path().join("letters")).unwrap());
        queue.enqueue_batch(messages).unwrap();
        for _ in 0..3 {
            let own = Arc::new(OnceLock::new());
            let far = IsFull(Arc::clone(&own));
            let to = OnRefused::DeadLetters(Arc::clone(&letters));
            let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap().on_refused(to);
            own.set(forwarder.stop()).unwrap();
            assert_eq!(forwarder.run().unwrap(), ForwardEnd::Stopped);
        }
        assert_eq!(letters.len(), messages.len() as u64 - 2);
    }
}
