//! A life from within: the queue is opened, every thread does its acts, and what each was told is
//! noted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::Queue;
use super::acts::{Act, Answer, CLOSER, Cast, Event, NAMES, Told, content, identity, ids_of};
use super::script::Script;
use crate::consume::standing::{Handed, Read, Standing};
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::tests::schedule;
use crate::tests::sim::SimStorage;
use crate::threads;
use crate::threads::waiting::Signal;

/// A life: opens the queue, has everybody act, waits until nobody has anything to do, and closes
/// it.
pub(super) fn play(storage: SimStorage, script: Script, told: &Told) {
    let may_fail = script.may_fail();
    let Script { options, background, casts, .. } = script;
    schedule::note(|| "open".to_owned());
    let opened = Engine::open_with(storage.clone(), &options, background);
    let queue = match opened {
        Ok(queue) => Arc::new(queue),
        Err(error) if may_fail => {
            told.lock().events.push(Event {
                thread: "main".into(),
                act: Act::Close,
                ids: Vec::new(),
                seq: None,
                began: 0,
                ended: schedule::steps(),
                answer: Answer::Failed(format!("does not open: {error}")),
            });
            return;
        }
        Err(error) => panic!("does not open: {error}"),
    };
    let durable = queue.core.durable.lock().spot.seq;
    schedule::note(|| format!("  = open, {durable} is the first number that is not durable"));
    schedule::note(|| "add the consumers, and flush".to_owned());
    {
        let mut told = told.lock();
        told.durable = durable;
        told.opened = true;
    }
    for name in NAMES {
        match queue.consumer(name) {
            Ok(_) => {}
            Err(_) if may_fail => return,
            Err(error) => panic!("no consumer {name:?}: {error}"),
        }
    }
    match queue.core.flush() {
        Ok(()) => told.lock().flushed = true,
        Err(_) if may_fail => {}
        Err(error) => panic!("does not flush: {error}"),
    }
    schedule::note(|| "start the threads".to_owned());
    storage.set_most(options.max_bytes.map(|most| most.max(storage.named_bytes())));
    let most_mapped =
        options.max_mapped_arenas.map_or(u64::MAX, |arenas| u64::from(arenas) * options.arena_size);
    let closes = casts.iter().position(|cast| cast.name == CLOSER);
    let mut handles: Vec<_> = casts
        .into_iter()
        .enumerate()
        .map(|(number, cast)| {
            let (queue, told) = (Arc::clone(&queue), Arc::clone(told));
            let actor = Actor { number: number as u64, queue, told, may_fail, most_mapped };
            threads::spawn(&cast.name.clone(), move || actor.play(&cast)).expect("a thread")
        })
        .collect();
    schedule::wait_until_quiet();
    schedule::note(|| "(nobody has anything to do any more)".to_owned());
    let figures = queue.stats();
    {
        let mut told = told.lock();
        told.quiet_at = Some(schedule::steps());
        told.figures = Some(figures);
    }
    if let Some(closes) = closes {
        handles.remove(closes).join();
    }
    schedule::note(|| "close".to_owned());
    let closed = queue.close();
    schedule::note(|| format!("  = {closed:?}"));
    let contents = storage.contents();
    {
        let mut told = told.lock();
        told.closed = closed.is_ok() && !told.close_failed;
    }
    assert!(closed.is_ok() || may_fail, "does not close: {closed:?}");
    handles.into_iter().for_each(threads::JoinHandle::join);
    if closed.is_ok() {
        let then = told.lock().contents.take().unwrap_or(contents);
        check_unchanged(&then, &storage.contents());
    }
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
struct Asking {
    queue: Queue,
    thread: threads::Thread,
}

impl Wake for Asking {
    fn wake(self: Arc<Self>) {
        drop(self.queue.core.durable.lock());
        self.thread.unpark();
    }
}

/// What a thread has in its hands.
#[derive(Default)]
struct Held {
    /// Consumer, number and ticket of each delivery that is not answered.
    deliveries: Vec<(usize, u64, Handed)>,
    /// The last messages with their identities: their bytes stay as they are.
    messages: Vec<(Message, u64)>,
}

impl Held {
    /// Keeps messages, and says which they are.
    fn keep(&mut self, found: impl IntoIterator<Item = Message>) -> Answer {
        let mut which = Vec::new();
        for message in found {
            let seq = message.seq();
            let id = identity(&message)
                .unwrap_or_else(|| panic!("message {seq} is not what anybody sent"));
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

/// A thread that acts.
pub(super) struct Actor {
    pub(super) number: u64,
    pub(super) queue: Queue,
    told: Told,
    pub(super) may_fail: bool,
    /// The most bytes that may be mapped, but for the index.
    most_mapped: u64,
}

impl Actor {
    fn play(self, cast: &Cast) {
        let mut held = Held::default();
        for (number, act) in cast.acts.iter().enumerate() {
            let ids = ids_of(schedule::seed(), self.number, number as u64, *act);
            let oldest = held.deliveries.first().map(|(_, seq, _)| *seq);
            let at = self.begin(&cast.name, *act, &ids, oldest);
            let answer = self.act(*act, &ids, &mut held);
            self.end(at, *act, answer);
            held.check();
        }
    }

    fn end(&self, at: usize, act: Act, answer: Result<Answer>) {
        let answer = answer.unwrap_or_else(|error| match error {
            Error::Gap(gap) => Answer::Gap(gap),
            error if error.is_full() => Answer::Refused,
            Error::MessageTooLarge { .. } => Answer::Refused,
            error => Answer::Failed(error.to_string()),
        });
        schedule::note(|| format!("  = {}", answer.in_words()));
        let is_closed = self.queue.core.index.poison.is_closed();
        let mut told = self.told.lock();
        if let Answer::Failed(text) = &answer {
            assert!(is_closed || self.may_fail, "{act:?} fails: {text}");
        }
        told.events[at].ended = schedule::steps();
        told.events[at].answer = answer;
        drop(told);
        let (_, mapped) = self.queue.core.pool.usage();
        assert!(mapped <= self.most_mapped, "{mapped} bytes are mapped of {}", self.most_mapped);
    }

    fn begin(&self, name: &str, act: Act, ids: &[u64], delivery: Option<u64>) -> usize {
        schedule::note(|| act.in_words(ids, delivery));
        let mut told = self.told.lock();
        told.events.push(Event {
            thread: name.to_owned(),
            act,
            ids: ids.to_vec(),
            seq: delivery,
            began: schedule::steps(),
            ended: u64::MAX,
            answer: Answer::Pending,
        });
        told.events.len() - 1
    }

    pub(super) fn standing(&self, which: usize) -> Result<Arc<Standing<SimStorage>>> {
        self.queue.consumer(NAMES[which])
    }

    fn act(&self, act: Act, ids: &[u64], held: &mut Held) -> Result<Answer> {
        match act {
            Act::Enqueue(_) | Act::With(_) | Act::WithCalls(_) | Act::Batch(..) => {
                self.put(act, ids)
            }
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
            _ => self.keep_house(act),
        }
    }

    /// Enqueues, in one of the ways.
    fn put(&self, act: Act, ids: &[u64]) -> Result<Answer> {
        let queue = &*self.queue;
        let seq = match act {
            Act::Enqueue(len) => queue.enqueue(&content(ids[0], len))?,
            Act::With(len) | Act::WithCalls(len) => {
                let bytes = content(ids[0], len);
                queue.enqueue_with(bytes.len(), |room| {
                    if matches!(act, Act::WithCalls(_)) {
                        self.call_from_within();
                    }
                    room.copy_from_slice(&bytes);
                })?
            }
            Act::Batch(_, len) => {
                let bytes: Vec<_> = ids.iter().map(|id| content(*id, len)).collect();
                return Ok(Answer::Numbers(queue.enqueue_batch(&bytes)?));
            }
            _ => return Ok(Answer::Nothing),
        };
        Ok(Answer::Numbers(seq..seq + 1))
    }

    fn call_from_within(&self) {
        let queue = &*self.queue;
        let is_refused = queue.enqueue(b"from within").is_err() && queue.core.flush().is_err();
        let read = queue
            .consumer(NAMES[0])
            .and_then(|standing| reading::next(queue, &standing, Read::Look).map(|_| ()));
        assert!(is_refused && read.is_err(), "a call from within enqueue_with is not refused");
    }

    /// Reads, in one of the ways that need no acknowledgement.
    fn read(&self, act: Act, held: &mut Held) -> Result<Answer> {
        let queue = &*self.queue;
        let found = match act {
            Act::Take(which) => reading::next(queue, &*self.standing(which)?, Read::Take)?,
            Act::Peek(which) => reading::next(queue, &*self.standing(which)?, Read::Look)?,
            Act::Wait(which, most) => {
                let standing = self.standing(which)?;
                reading::next_waiting(queue, &standing, Duration::from_millis(most))?
            }
            Act::WaitForever(which) => {
                let standing = self.standing(which)?;
                queue.wait(&standing, None, || reading::next(queue, &standing, Read::Take))?
            }
            Act::Task(which) => self.task(which)?,
            Act::TakeBatch(which, most) => {
                let taken = reading::batch(queue, &*self.standing(which)?, most)?;
                return Ok(held.keep(taken));
            }
            Act::Skip(which) => {
                let skipped = reading::skip(queue, &*self.standing(which)?)?;
                return Ok(skipped.map_or(Answer::Nothing, Answer::Skipped));
            }
            _ => None,
        };
        Ok(held.keep(found))
    }

    /// Receives a delivery, or answers the oldest one.
    fn deliver(&self, act: Act, held: &mut Held) -> Result<Answer> {
        let queue = &*self.queue;
        match act {
            Act::Limit(which, most) => {
                queue.set_max_in_flight(&*self.standing(which)?, most)?;
                Ok(Answer::Done)
            }
            Act::Receive(which) | Act::ReceiveForever(which) => {
                let standing = self.standing(which)?;
                let receive = || queue.receive(&standing, reading::AsMessage);
                let received = if act == Act::Receive(which) {
                    receive()?
                } else {
                    queue.wait(&standing, None, receive)?
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
                let standing = self.standing(which)?;
                if act == Act::Ack {
                    queue.ack(&standing, seq, handed)?;
                } else {
                    queue.nack(&standing, seq, handed);
                }
                Ok(Answer::Done)
            }
        }
    }

    /// What neither puts in nor takes out.
    fn keep_house(&self, act: Act) -> Result<Answer> {
        let queue = &*self.queue;
        match act {
            Act::Flush => queue.core.flush()?,
            Act::WaitDurable => {
                let tail = queue.core.committed_spot();
                queue.core.flush_to(tail)?;
                return Ok(Answer::Numbers(0..tail.seq));
            }
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
                self.told.lock().close_failed |= closed.is_err();
                closed?;
                let contents = queue.core.storage.contents();
                self.told.lock().contents.get_or_insert(contents);
            }
            _ => return Ok(Answer::Nothing),
        }
        Ok(Answer::Done)
    }

    /// Waits by a waker, which asks the queue how much is durable before it wakes anybody.
    fn task(&self, which: usize) -> Result<Option<Message>> {
        let (queue, standing) = (&*self.queue, self.standing(which)?);
        let waker = Arc::new(Asking { queue: Arc::clone(&self.queue), thread: threads::current() });
        let waker = Waker::from(waker);
        if let Some(message) = reading::next(queue, &standing, Read::Take)? {
            return Ok(Some(message));
        }
        let ticket = queue.join(&standing, Signal::Task(waker.clone()))?;
        let found = loop {
            queue.core.waiters.rearm(ticket, Signal::Task(waker.clone()));
            match reading::next(queue, &standing, Read::Take) {
                Ok(None) => {}
                found => break found,
            }
            while !queue.core.waiters.is_woken(ticket) {
                threads::park();
            }
        };
        queue.leave(&standing, ticket);
        found
    }
}
