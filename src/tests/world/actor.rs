//! A life from within: the queue is opened, every thread does its acts, and what each call
//! returned is noted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use super::Queue;
use super::acts::{Act, Answer, CLOSER, Cast, Event, NAMES, Reported, content, identity, ids_of};
use super::script::Script;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::DeliveryToken;
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::segment::overhead;
use crate::stats::Stats;
use crate::tests::in_parts;
use crate::tests::schedule;
use crate::tests::sim::SimStorage;
use crate::threads;

/// A life: opens the queue, has everybody act, waits until nobody has anything to do, and closes
/// it.
pub(super) fn play(storage: SimStorage, script: Script, reported: &Reported) {
    let may_fail = script.may_fail();
    let Script { options, background, casts, .. } = script;
    schedule::note(|| "open".to_owned());
    let opened = Engine::open_with(storage.clone(), &options, background);
    let queue = match opened {
        Ok(queue) => Arc::new(queue),
        Err(error) if may_fail => return report_not_opened(reported, &error),
        Err(error) => panic!("does not open: {error}"),
    };
    let durable = queue.core.durable.lock().spot.seq;
    schedule::note(|| format!("  = open, {durable} is the first number that is not durable"));
    schedule::note(|| "add the consumers, and flush".to_owned());
    {
        let mut reported = reported.lock();
        reported.durable = durable;
        reported.opened = true;
    }
    for name in NAMES {
        match queue.consumer(name) {
            Ok(_) => {}
            Err(_) if may_fail => return,
            Err(error) => panic!("no consumer {name:?}: {error}"),
        }
    }
    match queue.core.flush() {
        Ok(()) => reported.lock().flushed = true,
        Err(_) if may_fail => {}
        Err(error) => panic!("does not flush: {error}"),
    }
    schedule::note(|| "start the threads".to_owned());
    storage.set_most(options.max_bytes.map(|most| most.max(storage.named_bytes())));
    let most_mapped =
        options.max_mapped_arenas.map_or(u64::MAX, |arenas| u64::from(arenas) * options.arena_size);
    let closes = casts.iter().position(|cast| cast.name == CLOSER);
    let removes = casts.iter().any(|cast| cast.acts.contains(&Act::Remove));
    let mut handles: Vec<_> = casts
        .into_iter()
        .enumerate()
        .map(|(number, cast)| {
            let (queue, reported) = (Arc::clone(&queue), Arc::clone(reported));
            let actor =
                Actor { number: number as u64, queue, reported, may_fail, removes, most_mapped };
            threads::spawn(&cast.name.clone(), move || actor.play(&cast)).expect("a thread")
        })
        .collect();
    schedule::wait_until_quiet();
    schedule::note(|| "(nobody has anything to do any more)".to_owned());
    let figures = queue.stats();
    // (Messages that are too old go meanwhile.)
    let nothing_goes = !may_fail && closes.is_none() && options.max_age.is_none();
    if removes && nothing_goes && queue.existing_default().is_none() {
        check_without_default(&queue, &figures);
    }
    {
        let mut reported = reported.lock();
        reported.quiet_at = Some(schedule::steps());
        reported.figures = Some(figures);
    }
    if let Some(closes) = closes {
        handles.remove(closes).join();
    }
    schedule::note(|| "close".to_owned());
    let closed = queue.close();
    schedule::note(|| format!("  = {closed:?}"));
    let contents = storage.contents();
    {
        let mut reported = reported.lock();
        reported.closed = closed.is_ok() && !reported.close_failed;
    }
    assert!(closed.is_ok() || may_fail, "does not close: {closed:?}");
    handles.into_iter().for_each(threads::JoinHandle::join);
    if closed.is_ok() {
        let then = reported.lock().contents.take().unwrap_or(contents);
        check_unchanged(&then, &storage.contents());
    }
}

fn report_not_opened(reported: &Reported, error: &Error) {
    reported.lock().events.push(Event {
        thread: "main".into(),
        act: Act::Close,
        ids: Vec::new(),
        seq: None,
        began: 0,
        ended: schedule::steps(),
        waits: None,
        answer: Answer::Failed(format!("does not open: {error}")),
    });
}

/// What the default consumer alone kept is given back, and the figures are of the others.
fn check_without_default(queue: &Queue, figures: &Stats) {
    let others: Vec<_> = queue
        .consumer_names()
        .iter()
        .map(|name| queue.consumer(name).expect("a consumer of that name"))
        .collect();
    let lowest = others.iter().map(|other| other.cell.spot()).min().expect("a named consumer");
    assert_eq!(queue.core.places.lowest(), Some(lowest.position), "a place that nobody has");
    // A consumer that received a gap at the end stands where the next segment will begin. Its next
    // read drains what lies before, which was the last segment until then.
    let is_begun_since =
        queue.core.segments.list().live.iter().any(|row| row.header.base == lowest.position);
    let drained = queue.core.drain_passed();
    assert!(!drained || is_begun_since, "space is kept that nobody needs");
    let most = others.iter().map(|other| other.len(&queue.core)).max().unwrap_or(0);
    let (len, span) = (queue.len(), queue.core.committed_spot().seq - lowest.seq);
    assert_eq!(figures.messages, len);
    assert!((most..=span).contains(&len), "{len} messages: not in {most}..={span}");
}

/// Nothing is written after a close.
fn check_unchanged(then: &BTreeMap<String, Vec<u8>>, now: &BTreeMap<String, Vec<u8>>) {
    for (name, now) in now {
        let then = then.get(name).map_or(&[][..], |then| then);
        let at = now.iter().zip(then).position(|(now, then)| now != then);
        let is_same = at.is_none() && now.len() == then.len();
        assert!(is_same, "{name} is changed after the close, at {at:?}");
    }
}

/// Wakes a thread, and asks the queue something first.
pub(super) struct Asking {
    pub(super) queue: Queue,
    pub(super) thread: threads::Thread,
}

impl Wake for Asking {
    fn wake(self: Arc<Self>) {
        drop(self.queue.core.durable.lock());
        self.thread.unpark();
    }
}

/// The identity of a message that was read.
pub(super) fn identity_of(seq: u64, bytes: &[u8]) -> u64 {
    identity(bytes).unwrap_or_else(|| panic!("message {seq} is not what anybody sent"))
}

/// What a thread has in its hands.
#[derive(Default)]
pub(super) struct Held {
    /// Which of its acts the thread is at.
    pub(super) number: usize,
    /// Which event of the story that is.
    event: usize,
    /// Consumer, number and ticket of each delivery that is not answered.
    deliveries: Vec<(usize, u64, DeliveryToken)>,
    /// The last messages with their identities: their bytes stay as they are.
    messages: Vec<(Message, u64)>,
}

impl Held {
    /// Keeps messages, and says which they are.
    pub(super) fn keep(&mut self, found: impl IntoIterator<Item = Message>) -> Answer {
        let mut which = Vec::new();
        for message in found {
            let (seq, id) = (message.seq(), identity_of(message.seq(), &message));
            self.messages.push((message, id));
            which.push((seq, id));
        }
        if which.is_empty() { Answer::Nothing } else { Answer::Messages(which) }
    }

    fn check(&mut self) {
        for (message, id) in &self.messages {
            let seq = message.seq();
            assert_eq!(identity(message), Some(*id), "message {seq} changed while it was held");
        }
        if self.messages.len() > 2 {
            self.messages.remove(0);
        }
    }
}

/// By how much the index grows in a life, at most.
const INDEX_GROWS: u64 = 16 << 10;

/// A thread that acts.
pub(super) struct Actor {
    pub(super) number: u64,
    pub(super) queue: Queue,
    reported: Reported,
    pub(super) may_fail: bool,
    /// Somebody removes the default consumer.
    removes: bool,
    /// The most bytes that may be mapped, but for the index.
    most_mapped: u64,
}

impl Actor {
    fn play(self, cast: &Cast) {
        let mut held = Held::default();
        for (number, act) in cast.acts.iter().enumerate() {
            held.number = number;
            let ids = ids_of(schedule::seed(), self.number, number as u64, *act);
            let oldest = held.deliveries.first().map(|(_, seq, _)| *seq);
            let at = self.begin(&cast.name, *act, &ids, oldest);
            held.event = at;
            let answer = self.act(*act, &ids, &mut held);
            self.end(at, *act, answer);
            held.check();
        }
    }

    fn end(&self, at: usize, act: Act, answer: Result<Answer>) {
        let answer = answer.unwrap_or_else(|error| match error {
            Error::Gap(gap) => Answer::Gap(gap),
            error if error.is_full() => {
                self.check_refusal(act);
                Answer::Refused
            }
            Error::MessageTooLarge { .. } => Answer::Refused,
            Error::Interrupted => Answer::Interrupted,
            Error::NotFound { .. } if self.removes => Answer::Gone,
            error => Answer::Failed(error.to_string()),
        });
        schedule::note(|| format!("  = {}", answer.in_words()));
        let is_closed = self.queue.core.index.poison.is_closed();
        let mut reported = self.reported.lock();
        if let Answer::Failed(text) = &answer {
            assert!(is_closed || self.may_fail, "{act:?} fails: {text}");
        }
        reported.events[at].ended = schedule::steps();
        reported.events[at].answer = answer;
        drop(reported);
        let mapped = self.queue.core.pool.mapped_bytes();
        assert!(mapped <= self.most_mapped, "{mapped} bytes are mapped of {}", self.most_mapped);
    }

    /// Nothing is refused for want of space where there was enough for it at any time of this life.
    fn check_refusal(&self, act: Act) {
        let (core, bytes) = (&self.queue.core, act.bytes() as u64);
        let (Some(most), false) = (core.limits.max_bytes, self.may_fail) else {
            return;
        };
        let length = core.pool.geometry().most_len;
        // Each piece has a header, and up to an eighth of a segment may be left at its end.
        let segments = 2 + 2 * bytes / length;
        let needed = segments * (length + overhead(length)) + INDEX_GROWS;
        let taken = core.storage.most_taken();
        assert!(taken + needed > most, "{act:?} is refused, with {taken} of {most} bytes taken");
    }

    fn begin(&self, name: &str, act: Act, ids: &[u64], delivery: Option<u64>) -> usize {
        schedule::note(|| act.in_words(ids, delivery));
        let mut reported = self.reported.lock();
        reported.events.push(Event {
            thread: name.to_owned(),
            act,
            ids: ids.to_vec(),
            seq: delivery,
            began: schedule::steps(),
            ended: u64::MAX,
            waits: None,
            answer: Answer::Pending,
        });
        reported.events.len() - 1
    }

    pub(super) fn consumer(&self, which: usize) -> Result<Arc<ConsumerState<SimStorage>>> {
        self.queue.consumer(NAMES[which])
    }

    fn act(&self, act: Act, ids: &[u64], held: &mut Held) -> Result<Answer> {
        match act {
            Act::Enqueue(_) | Act::Parts(_) | Act::Batch(..) => self.put(act, ids),
            Act::Take(_)
            | Act::Peek(_)
            | Act::TakeBatch(..)
            | Act::Skip(_)
            | Act::Wait(..)
            | Act::WaitForever(_)
            | Act::Task(_) => self.read(act, held),
            Act::Limit(..) | Act::Receive(_) | Act::ReceiveForever(_) | Act::Ack | Act::Nack => {
                self.deliver(act, held)
            }
            _ => self.maintain(act),
        }
    }

    /// Enqueues, in one of the ways.
    fn put(&self, act: Act, ids: &[u64]) -> Result<Answer> {
        let queue = &*self.queue;
        let seq = match act {
            Act::Enqueue(len) => queue.enqueue(&content(ids[0], len))?,
            Act::Parts(len) => queue.enqueue_parts(&in_parts(&content(ids[0], len)))?,
            Act::Batch(_, len) => {
                let bytes: Vec<_> = ids.iter().map(|id| content(*id, len)).collect();
                return Ok(Answer::Numbers(queue.enqueue_batch(&bytes)?));
            }
            _ => return Ok(Answer::Nothing),
        };
        Ok(Answer::Numbers(seq..seq + 1))
    }

    /// Called at each look of a wait without an end.
    pub(super) fn notes_wait(&self, held: &Held) -> impl Fn() + use<'_> {
        let at = held.event;
        move || {
            self.reported.lock().events[at].waits.get_or_insert(schedule::steps());
        }
    }

    /// Receives a delivery, or answers the oldest one.
    fn deliver(&self, act: Act, held: &mut Held) -> Result<Answer> {
        let queue = &*self.queue;
        match act {
            Act::Limit(which, most) => {
                queue.set_max_in_flight(&*self.consumer(which)?, most)?;
                Ok(Answer::Done)
            }
            Act::Receive(which) | Act::ReceiveForever(which) => {
                let consumer = self.consumer(which)?;
                let received = if act == Act::Receive(which) {
                    queue.receive(&consumer, reading::AsMessage)?
                } else {
                    let waits = self.notes_wait(held);
                    queue.wait(&consumer, None, || {
                        waits();
                        queue.receive_awaited(&consumer, reading::AsMessage)
                    })?
                };
                let message = received.map(|(message, handed)| {
                    held.deliveries.push((which, message.seq(), handed));
                    message
                });
                Ok(held.keep(message))
            }
            _ if held.deliveries.is_empty() => Ok(Answer::Nothing),
            _ => {
                let (which, seq, handed) = held.deliveries.remove(0);
                let consumer = self.consumer(which)?;
                if act == Act::Ack {
                    queue.ack(&consumer, seq, handed)?;
                } else {
                    queue.nack(&consumer, seq, handed, None);
                }
                Ok(Answer::Done)
            }
        }
    }

    /// What neither puts in nor takes out.
    fn maintain(&self, act: Act) -> Result<Answer> {
        let queue = &*self.queue;
        match act {
            Act::Flush => queue.core.flush()?,
            Act::WaitDurable => {
                let tail = queue.core.committed_spot();
                queue.core.flush_to(tail)?;
                return Ok(Answer::Numbers(0..tail.seq));
            }
            Act::Durably => {
                let (began, tail) = (queue.core.began(), queue.core.committed_spot());
                queue.core.flush_or_wait(tail, Some(began), None)?;
                return Ok(Answer::Numbers(0..tail.seq));
            }
            Act::Interrupt => queue.core.interrupt(),
            Act::Remove => match queue.remove_consumer(NAMES[0]) {
                Err(Error::NotFound { .. }) => return Ok(Answer::Nothing),
                removed => removed?,
            },
            Act::Look => queue.expire(),
            Act::Guest(seed) => return self.guest(seed),
            Act::Figures => drop(queue.stats()),
            Act::WriteBack(seed) => {
                let disk = &queue.core.storage;
                let names = disk.file_names();
                disk.fail_write_back(&names[(seed % names.len() as u64) as usize]);
            }
            Act::Sleep(millis) => threads::park_timeout(Duration::from_millis(millis)),
            Act::Close => {
                let closed = queue.close();
                self.reported.lock().close_failed |= closed.is_err();
                closed?;
                let contents = queue.core.storage.contents();
                self.reported.lock().contents.get_or_insert(contents);
            }
            _ => return Ok(Answer::Nothing),
        }
        Ok(Answer::Done)
    }
}
