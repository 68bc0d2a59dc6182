//! What holds within a life: a job is out once at a time, comes again in time but not before, and a
//! close sends the last dead letters.

use std::collections::BTreeMap;
use std::time::Duration;

use super::actor::{Answer, Event, Story};
use super::script::{Act, Life};
use crate::engine::Background;
use crate::tests::world::promised::holds;
use crate::tests::world::reported::{Check, ensure};

/// It reads for the consumer of the jobs, and not for another one.
pub(super) fn is_of_jobs(event: &Event) -> bool {
    !matches!(event.act, Act::TakeDeadLetter | Act::Fork)
}

/// It is not known whether it had an effect.
pub(super) fn is_unended(event: &Event) -> bool {
    matches!(event.answer, Answer::Pending | Answer::Failed(_) | Answer::Closed)
}

/// A close sends what was rejected before it began. (With a lease a rejection may come too late.)
pub(super) fn check_last_dead_letters(
    life: &Life,
    story: &Story,
    messages: &BTreeMap<u64, u64>,
) -> Check {
    let closes = story.events.iter().filter(|event| event.act == Act::Close);
    let began = closes.map(|event| event.began).chain(story.quiet_at).min();
    let Some(began) = began.filter(|_| life.wishes.lease.is_none()) else {
        return Ok(());
    };
    let stays = story.events.iter().find(|event| {
        event.act == Act::Reject
            && event.answer == Answer::Done
            && event.ended <= began
            && event.seq.is_some_and(|seq| messages.contains_key(&seq))
    });
    ensure!(stays.is_none(), "the close left a dead letter that could go: {stays:?}");
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    Out,
    /// Done, rejected or reported as missing; or that cannot be seen from outside.
    Gone,
}

/// What became of the message by acts that ended.
pub(super) fn state(life: &Life, ended: &[&Event], seq: u64) -> State {
    let is_gone = ended.iter().any(|event| {
        let is_answered = matches!(event.act, Act::Ack | Act::Reject) && event.seq == Some(seq);
        is_answered || is_done_by(event, seq)
    });
    if is_gone {
        return State::Gone;
    }
    let handed = ended.iter().filter_map(|event| match event.answer {
        Answer::Job { seq: of, attempts, .. } if of == seq => Some((attempts, *event)),
        _ => None,
    });
    let Some((attempts, last)) = handed.max_by_key(|(attempts, _)| *attempts) else {
        return State::Waits;
    };
    let is_spent = life.wishes.max_attempts.is_some_and(|most| attempts >= most);
    let given_back = ended.iter().any(|event| {
        let gives_back = matches!(event.act, Act::Nack | Act::NackAfter(_));
        gives_back
            && event.seq == Some(seq)
            && event.thread == last.thread
            && event.began >= last.ended
    });
    match given_back || life.wishes.lease.is_some() {
        // Whoever was handed the last attempt still has it.
        false => State::Out,
        true if is_spent => State::Gone,
        // Nobody wakes those that wait when a lease or a delay ends.
        true if life.background == Background::Calls => State::Out,
        true => State::Waits,
    }
}

/// Whether the act has acknowledged, taken or reported as missing that message of the jobs.
fn is_done_by(event: &Event, seq: u64) -> bool {
    match (&event.answer, event.act) {
        (Answer::Gap(gap), _) => is_of_jobs(event) && holds(gap, seq),
        (Answer::Taken { seq: taken, .. }, _) => *taken == seq,
        (Answer::Done, Act::Ack) => event.seq == Some(seq),
        _ => false,
    }
}

/// A job is out once at a time, and comes again in time, but not before.
pub(super) fn check_deliveries(life: &Life, events: &[Event]) -> Check {
    let mut handed: BTreeMap<u64, Vec<(u32, &Event)>> = BTreeMap::new();
    for event in events {
        if let Answer::Job { seq, attempts, .. } = event.answer {
            handed.entry(seq).or_default().push((attempts, event));
        }
    }
    for (seq, mut handed) in handed {
        let done = events.iter().filter(|event| is_done_by(event, seq)).map(|event| event.ended);
        let done = done.min().unwrap_or(u64::MAX);
        let late = handed.iter().find(|(_, event)| event.began > done);
        ensure!(late.is_none(), "{seq} was done at step {done}, and then there is {late:?}");
        handed.sort_by_key(|(attempts, event)| (*attempts, event.ended));
        if let (Some(most), Some((attempts, _))) = (life.wishes.max_attempts, handed.last()) {
            ensure!(*attempts <= most, "{seq} is handed out {attempts} times");
        }
        for pair in handed.windows(2) {
            let ((attempts, one), (again, other)) = (pair[0], pair[1]);
            ensure!(attempts < again, "{seq} is handed out twice, as attempt {again}");
            let may = may_come_again(life, events, seq, one, other, attempts);
            ensure!(may, "{seq} comes again too soon: {one:?}, and then {other:?}");
        }
    }
    Ok(())
}

/// Whether what `one` received may be received by `other`: it was given back, or its lease ended.
fn may_come_again(
    life: &Life,
    events: &[Event],
    seq: u64,
    one: &Event,
    other: &Event,
    attempts: u32,
) -> bool {
    let millis = Duration::from_millis;
    let lease = life.wishes.lease.map(millis);
    if lease.is_some_and(|lease| other.ended_at >= one.began_at + lease) {
        return true;
    }
    let delay = life.wishes.backoff.map_or(Duration::ZERO, |(first, longest)| {
        millis(longest.min(first << (attempts - 1).min(20)))
    });
    events.iter().any(|event| {
        let delay = match event.act {
            Act::Nack => delay,
            // A lease may be made shorter.
            Act::NackAfter(most) | Act::Extend(most) => millis(most),
            _ => return false,
        };
        event.seq == Some(seq)
            && event.thread == one.thread
            && event.began >= one.ended
            && other.ended_at >= event.began_at + delay
    })
}
