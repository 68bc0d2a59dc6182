//! A life from within: both queues are opened, every thread does its acts, and what each call
//! returned is noted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Disks;
use super::script::{Act, Life};
use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::{DeliveryToken, Read};
use crate::engine::Engine;
use crate::engine::reading::{self, AsMessage};
use crate::error::{Error, Gap, Result};
use crate::redelivery::OtherQueue;
use crate::tests::schedule;
use crate::tests::sim::SimStorage;
use crate::tests::world::Queue;
use crate::tests::world::actor::identity_of;
use crate::tests::world::acts::content;
use crate::threads::waiting::Signal;
use crate::threads::{self, Thread};

/// The consumer whose messages are jobs.
pub(super) const JOBS: &str = "jobs";

type Link = Arc<ConsumerState<SimStorage>>;

/// What came of an act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It had not ended when the process died.
    Pending,
    Put(u64),
    Job {
        seq: u64,
        id: u64,
        attempts: u32,
    },
    Taken {
        seq: u64,
        id: u64,
    },
    /// Its number in the queue for dead letters, and where it comes from.
    DeadLetter {
        at: u64,
        seq: u64,
        id: u64,
        attempts: u32,
    },
    Gap(Gap),
    Nothing,
    Done,
    /// Nothing has changed: no room.
    Refused,
    /// Nothing has changed: somebody ended the wait.
    Interrupted,
    /// The lease had ended.
    Expired,
    /// Nothing has changed: the queue was closed.
    Closed,
    Failed(String),
}

#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) thread: String,
    pub(super) act: Act,
    /// Of the message that it puts in.
    pub(super) id: u64,
    /// The job that it answers.
    pub(super) seq: Option<u64>,
    /// Steps, and times by the schedule's clock.
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) began_at: Instant,
    pub(super) ended_at: Instant,
    pub(super) answer: Answer,
}

#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) events: Vec<Event>,
    /// The consumer is there, and on the disk.
    pub(super) flushed: bool,
    /// Nobody had anything to do any more at that step.
    pub(super) quiet_at: Option<u64>,
    pub(super) closed: bool,
}

pub(super) type Reported = Arc<Mutex<Story>>;

pub(super) fn play(disks: &Disks, number: u64, life: &Life, reported: &Reported) {
    let open = |disk: &SimStorage, options| {
        Engine::open_with(disk.clone(), options, life.background).map(Arc::new)
    };
    let queue = open(&disks.0, &life.options).expect("the queue opens");
    let other = match open(&disks.1, &life.other_options) {
        Ok(other) => other,
        Err(_) if life.other_fails.is_some() => return,
        Err(error) => panic!("the queue for dead letters does not open: {error}"),
    };
    let link = queue.consumer(JOBS).expect("a consumer");
    queue.core.flush().expect("it flushes");
    reported.lock().flushed = true;
    queue.set_redelivery(&link, rules(life, &other)).expect("rules");
    queue.set_max_in_flight(&link, life.limit).expect("a limit");
    if let Some(lanes) = life.lanes {
        queue.set_lanes(&link, lanes).expect("lanes");
    }
    schedule::note(|| "start the threads".to_owned());
    let actors = life.casts.iter().enumerate().map(|(at, cast)| {
        let (queue, other, link) = (Arc::clone(&queue), Arc::clone(&other), Arc::clone(&link));
        let actor = Actor {
            first_id: number << 32 | (at as u64) << 16,
            name: cast.name.clone(),
            queue,
            other,
            link,
            reported: Arc::clone(reported),
            has_lanes: life.lanes.is_some(),
            other_may_fail: life.other_fails.is_some(),
        };
        let acts = cast.acts.clone();
        threads::spawn(&cast.name, move || actor.play(&acts)).expect("a thread")
    });
    let handles: Vec<_> = actors.collect();
    if life.wishes.dead_letters && !life.dead_letters_go() {
        // A dead letter that does not go is tried again, and again those that wait for jobs look.
        threads::park_timeout(Duration::from_millis(300));
    } else {
        schedule::wait_until_quiet();
        schedule::note(|| "(nobody has anything to do any more)".to_owned());
        reported.lock().quiet_at = Some(schedule::steps());
    }
    let closed = queue.close();
    schedule::note(|| format!("close = {closed:?}"));
    closed.expect("it closes");
    reported.lock().closed = true;
    handles.into_iter().for_each(threads::JoinHandle::join);
    let closed = other.close();
    assert!(closed.is_ok() || life.other_fails.is_some(), "the other queue: {closed:?}");
}

fn rules(life: &Life, other: &Queue) -> Rules {
    let millis = Duration::from_millis;
    let wishes = life.wishes;
    Rules {
        lease: wishes.lease.map(millis),
        backoff: wishes.backoff.map(|(first, longest)| (millis(first), millis(longest))),
        max_attempts: wishes.max_attempts,
        dead_letters: wishes.dead_letters.then(|| Arc::new(OtherQueue::of(other)) as _),
    }
}

struct Actor {
    /// Of its messages.
    first_id: u64,
    name: String,
    queue: Queue,
    other: Queue,
    link: Link,
    reported: Reported,
    has_lanes: bool,
    other_may_fail: bool,
}

/// A delivery that is not answered.
type Out = (u64, DeliveryToken);

impl Actor {
    fn play(self, acts: &[Act]) {
        let mut out: Vec<Out> = Vec::new();
        for (number, act) in acts.iter().enumerate() {
            let id = self.first_id | (number as u64) << 1;
            let at = self.begin(*act, id, out.first().map(|(seq, _)| *seq));
            let answer = self.act(*act, id, &mut out).unwrap_or_else(|error| match error {
                Error::Gap(gap) => Answer::Gap(gap),
                error if error.is_full() => Answer::Refused,
                Error::MessageTooLarge { .. } => Answer::Refused,
                Error::Interrupted => Answer::Interrupted,
                Error::Expired => Answer::Expired,
                Error::Closed => Answer::Closed,
                error => Answer::Failed(error.to_string()),
            });
            schedule::note(|| format!("  = {answer:?}"));
            if let Answer::Failed(text) = &answer {
                let of_other = matches!(act, Act::TakeDeadLetter | Act::CloseOther);
                let is_closed = self.queue.core.index.poison.is_closed();
                let may_fail = if of_other { self.other_may_fail } else { is_closed };
                assert!(may_fail, "{act:?} fails: {text}");
            }
            let (ended, ended_at) = (schedule::steps(), threads::now());
            let mut reported = self.reported.lock();
            let event = &mut reported.events[at];
            (event.ended, event.ended_at, event.answer) = (ended, ended_at, answer);
        }
    }

    fn begin(&self, act: Act, id: u64, answers: Option<u64>) -> usize {
        schedule::note(|| format!("{act:?} (message {id:x}, answers {answers:?})"));
        let is_answer = matches!(
            act,
            Act::Ack | Act::Nack | Act::NackAfter(_) | Act::Reject | Act::Extend(_) | Act::Forget
        );
        let (began, began_at) = (schedule::steps(), threads::now());
        let mut reported = self.reported.lock();
        reported.events.push(Event {
            thread: self.name.clone(),
            act,
            id,
            seq: answers.filter(|_| is_answer),
            began,
            ended: u64::MAX,
            began_at,
            ended_at: began_at,
            answer: Answer::Pending,
        });
        reported.events.len() - 1
    }

    fn act(&self, act: Act, id: u64, out: &mut Vec<Out>) -> Result<Answer> {
        match act {
            Act::Put(len) => self.queue.enqueue(&content(id, len)).map(Answer::Put),
            Act::PutLater(len) => self.put_later(content(id, len)),
            Act::Receive | Act::Await(_) | Act::AwaitForever | Act::AwaitByWaker => {
                let received = match act {
                    Act::Receive => self.receive(&mut None)?,
                    Act::AwaitByWaker => self.await_by_waker(id)?,
                    Act::Await(most) => self.wait(Some(Duration::from_millis(most)))?,
                    _ => self.wait(None)?,
                };
                let Some((seq, id, handed)) = received else { return Ok(Answer::Nothing) };
                out.push((seq, handed));
                Ok(Answer::Job { seq, id, attempts: handed.attempts })
            }
            Act::Take => {
                let taken = reading::next(&self.queue, &self.link, Read::Take)?;
                Ok(taken.map_or(Answer::Nothing, |message| {
                    let seq = message.seq();
                    Answer::Taken { seq, id: identity_of(seq, &message) }
                }))
            }
            Act::TakeDeadLetter => self.take_dead_letter(),
            Act::Ack
            | Act::Nack
            | Act::NackAfter(_)
            | Act::Reject
            | Act::Extend(_)
            | Act::Forget => {
                if out.is_empty() {
                    return Ok(Answer::Nothing);
                }
                self.answer(act, out)
            }
            _ => self.maintain(act),
        }
    }

    #[cfg(feature = "async")]
    fn put_later(&self, bytes: Vec<u8>) -> Result<Answer> {
        use crate::futures::Enqueuing;
        use crate::tests::together::tasks::Task;
        Task::of(Enqueuing::new(&self.queue, bytes, None)).end().map(Answer::Put)
    }

    #[cfg(not(feature = "async"))]
    fn put_later(&self, bytes: Vec<u8>) -> Result<Answer> {
        self.queue.enqueue(&bytes).map(Answer::Put)
    }

    /// The next job: its number, its identity, and what answers it.
    fn receive(&self, again: &mut Option<Instant>) -> Result<Option<(u64, u64, DeliveryToken)>> {
        let (queue, link) = (&*self.queue, &*self.link);
        let received = if self.has_lanes {
            queue.receive_in_lanes(link, AsMessage, None, again)?
        } else {
            queue.receive(link, AsMessage)?
        };
        Ok(received
            .map(|(message, handed)| (message.seq(), identity_of(message.seq(), &message), handed)))
    }

    fn wait(&self, most: Option<Duration>) -> Result<Option<(u64, u64, DeliveryToken)>> {
        let (queue, link) = (&*self.queue, &*self.link);
        let most = most.unwrap_or(Duration::MAX);
        queue.wait_in_lanes(link, most, |again| self.receive(again))
    }

    /// Waits by a waker that calls the queue before it wakes anybody.
    fn await_by_waker(&self, id: u64) -> Result<Option<(u64, u64, DeliveryToken)>> {
        let (queue, link) = (&*self.queue, &*self.link);
        let calls = Arc::new(Calls {
            queue: Arc::clone(&self.queue),
            id: id | 1,
            has_put: AtomicBool::new(false),
            thread: threads::current(),
        });
        let signal = || Signal::Task(Waker::from(Arc::clone(&calls)));
        let ticket = queue.join(link, signal());
        let found = loop {
            queue.core.waiters.rearm(ticket, signal());
            let mut again = None;
            match self.receive(&mut again) {
                Ok(None) => {}
                found => break found,
            }
            queue.pass_on(link, Some(ticket));
            while !queue.core.waiters.is_woken(ticket) {
                match again.map(|again: Instant| again.saturating_duration_since(threads::now())) {
                    None => threads::park(),
                    Some(left) if !left.is_zero() => threads::park_timeout(left),
                    Some(_) => break,
                }
            }
        };
        queue.leave(link, ticket);
        found
    }

    fn answer(&self, act: Act, out: &mut Vec<Out>) -> Result<Answer> {
        let (queue, link) = (&*self.queue, &*self.link);
        let (seq, handed) = out[0];
        if let Act::Extend(by) = act {
            queue.extend(link, seq, handed, Duration::from_millis(by))?;
            return Ok(Answer::Done);
        }
        out.remove(0);
        match act {
            Act::Ack => queue.ack(link, seq, handed)?,
            Act::Nack => queue.nack(link, seq, handed, None),
            Act::NackAfter(most) => {
                queue.nack(link, seq, handed, Some(Duration::from_millis(most)));
            }
            Act::Reject => queue.reject(link, seq, handed)?,
            _ => {}
        }
        Ok(Answer::Done)
    }

    /// What it has inherited refuses it, waits for nothing, and stays as it is.
    fn child(&self) {
        let (queue, link) = (&self.queue, &*self.link);
        let dead_letters: &dyn DeadLetters = &OtherQueue::of(&self.other);
        let answers = [
            queue.enqueue(&content(0, 20)).map(drop),
            self.receive(&mut None).map(drop),
            self.wait(None).map(drop),
            queue.fork(link, "of a child").map(drop),
            queue.core.flush(),
            dead_letters.check(),
        ];
        for answer in &answers {
            assert!(matches!(answer, Err(Error::Forked)), "{answers:?}");
        }
        assert_eq!(queue.consumer_stats().len(), 0);
        queue.core.interrupt();
        queue.close().expect("nothing to close");
    }

    fn take_dead_letter(&self) -> Result<Answer> {
        let consumer = self.other.default_consumer()?;
        let taken = reading::next(&self.other, consumer, Read::Take)?;
        Ok(taken.map_or(Answer::Nothing, |dead_letter| dead_letter_of(&dead_letter)))
    }

    fn maintain(&self, act: Act) -> Result<Answer> {
        let queue = &*self.queue;
        match act {
            Act::Jump => {
                queue.jump(&self.link)?;
            }
            Act::Fork => {
                let name = format!("fork of {}", self.name);
                match queue.fork(&self.link, &name) {
                    Ok(forked) => {
                        if let Some(message) = reading::next(queue, &forked, Read::Take)? {
                            identity_of(message.seq(), &message);
                        }
                    }
                    // A process that died has left it.
                    Err(Error::InvalidArgument { .. }) => {}
                    Err(error) => return Err(error),
                }
                queue.remove_consumer(&name)?;
            }
            Act::Child => schedule::child::as_child(|| self.child()),
            Act::Flush => queue.core.flush()?,
            Act::Figures => {
                drop(queue.stats());
                drop(queue.consumer_stats());
            }
            Act::Interrupt => queue.core.interrupt(),
            Act::Sleep(millis) => threads::park_timeout(Duration::from_millis(millis)),
            Act::CloseOther => self.other.close()?,
            Act::Close => {
                queue.close()?;
                self.reported.lock().closed = true;
            }
            _ => {}
        }
        Ok(Answer::Done)
    }
}

/// A dead letter that was taken from the queue for dead letters.
pub(super) fn dead_letter_of(dead_letter: &crate::message::Message) -> Answer {
    let origin = dead_letter.origin().expect("a dead letter says where it comes from");
    let id = identity_of(dead_letter.seq(), dead_letter);
    Answer::DeadLetter { at: dead_letter.seq(), seq: origin.seq, id, attempts: origin.attempts }
}

/// Puts a job in once, asks for figures, and wakes a thread.
struct Calls {
    queue: Queue,
    id: u64,
    has_put: AtomicBool,
    thread: Thread,
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        if !self.has_put.swap(true, Ordering::SeqCst) {
            // There may be no room, and the queue may be closed.
            let _ = self.queue.offer(&content(self.id, 20));
        }
        drop(self.queue.stats());
        self.thread.unpark();
    }
}
