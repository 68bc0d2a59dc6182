//! `redrive`: puts dead letters back into the queue that they come from.

use clap::Command;
use mmq::{Delivery, Handle, HandleConsumer, past_gaps};

use super::Call;
use super::take::nothing;
use crate::arguments;
use crate::dead_letter;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::framing::missing;
use crate::opening;
use crate::units::count;

/// So many messages, or bytes of them, are put in before they are made durable and removed here.
const MOST: usize = 1000;
const MOST_BYTES: usize = 16 << 20;

const AFTER: &str = "\
A dead letter of `mmq each --dead` goes back as the message that it holds; any other message goes
back as it is. Each gets a new number in SRC, behind all messages there, and its attempts begin
anew. A message is removed from DEAD after it is durable in SRC: if this program is killed in
between, both queues have it. Status 1: messages of DEAD will never come. Status 3: DEAD is empty.";

pub(crate) fn command() -> Command {
    let redrive = arguments::command(
        "redrive",
        "Put dead letters (messages that failed too often) back into their queue",
        "Examples:\n  mmq redrive failed jobs\n  mmq redrive failed jobs -n 1",
    )
    .arg(
        arguments::path("dir", "DEAD").help("The queue that holds the dead letters").required(true),
    )
    .arg(
        arguments::path("source", "SRC")
            .help("The queue that they go back to; it must exist")
            .required(true),
    )
    .arg(arguments::number("count", "Put back at most N messages [default: all]").short('n'))
    .after_help(AFTER);
    arguments::locking(redrive)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let dir = arguments::dir_of(call.matches);
    let Some(source) = arguments::path_of(call.matches, "source") else {
        return Err(Failure::usage("name the queue that they go to"));
    };
    let most = call.matches.get_one::<u64>("count").copied().unwrap_or(u64::MAX);
    arguments::is_another(dir, source)?;
    // In the order in which `each` opens them: each could wait for the other else.
    opening::warn_of_owner(call.console, source);
    let source = call.opener().open_existing(source)?;
    let dead = call.opener().open_existing(dir)?;
    opening::keep_for_own(&source)?;
    let letters = dead.default_consumer()?;
    let mut redrive = Redrive { call, dead: &letters, source: &source, done: 0, missing: 0 };
    let mut result = Ok(true);
    while let Ok(true) = result
        && redrive.done < most
        && call.signals.stop().is_none()
    {
        result = redrive.some(most);
    }
    let (done, missing) = (redrive.done, redrive.missing);
    let closed = source.close().and(dead.close());
    call.console.note(format!("put back: {}", count(done, "message")));
    result?;
    closed?;
    if let Some(ending) = call.signals.stop() {
        return Ok(ending);
    }
    if missing > 0 {
        let message = format!("{} will never come", count(missing, "message"));
        return Err(Failure::new(ExitStatus::Bad, "gap", message));
    }
    if done == 0 { Err(nothing(dir)) } else { Ok(ExitStatus::Done) }
}

struct Redrive<'a> {
    call: &'a Call<'a>,
    dead: &'a HandleConsumer,
    source: &'a Handle,
    done: u64,
    missing: u64,
}

impl Redrive<'_> {
    /// Puts some back. False when no more are there.
    fn some(&mut self, most: u64) -> Tried<bool> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let put = self.put(most, &mut taken, &mut bytes);
        // Also after an error: what is in the other queue must not go there again.
        self.source.flush()?;
        let count = taken.len() as u64;
        Delivery::ack_batch(taken)?;
        self.done += count;
        put
    }

    /// Puts some into the other queue. False when no more are there.
    fn put(&mut self, most: u64, taken: &mut Vec<Delivery>, bytes: &mut usize) -> Tried<bool> {
        while taken.len() < MOST && *bytes < MOST_BYTES && self.done + (taken.len() as u64) < most {
            let on_gap = |gap: mmq::Gap| {
                self.missing += missing(&gap);
                self.call.console.note(gap.to_string());
            };
            let Some(delivery) = past_gaps(|| self.dead.receive(), on_gap)? else {
                return Ok(false);
            };
            match dead_letter::message_of(&delivery).filter(|_| delivery.origin().is_none()) {
                Some(message) => self.source.enqueue(message)?,
                None => self.source.enqueue(&*delivery)?,
            };
            *bytes += delivery.len();
            taken.push(delivery);
        }
        Ok(true)
    }
}
