//! `take`: removes messages and prints them.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use clap::Command;
use mmq::{Delivery, Gap};

use super::Call;
use crate::arguments::{self, Waits, flag, number};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::feed::{AttemptCounts, Feed};
use crate::framing::{About, Written};
use crate::output::{Out, Output};
use crate::signals::Woken;
use crate::units;

/// Messages in the buffer at most, whatever their length.
const MOST_PENDING: usize = 4096;

const AFTER: &str = "\
A message is removed when the system has accepted its last byte for the output. Bytes that lie
unread in a pipe when its reader ends are lost: `mmq take q | head` may lose 64 KiB. Use -n instead.

Messages that will never come are reported on standard error, or with --framing json in their
place; then the status is 1. Status 3: no message was there (with -n or --wait).";

pub(crate) fn command() -> Command {
    let take = arguments::command(
        "take",
        "Remove messages and print them, oldest first",
        "Examples:\n  \
         mmq take q -n 1\n  \
         mmq take q --framing json > messages.json\n  \
         mmq take q --wait 30s -n 1\n  \
         mmq take q -f | ./consume",
    );
    let take = take
        .arg(arguments::dir())
        .arg(number("count", "Take at most N messages [default: all]").short('n'))
        .arg(arguments::consumer())
        .arg(flag(
            "sync",
            "Remove a message only after it is durable in the output, which must be a file",
        ))
        .after_help(AFTER);
    arguments::locking(arguments::framing_out(arguments::following(take)))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let dir = arguments::dir_of(matches);
    let consumer = arguments::text_of(matches, "consumer").unwrap_or_default();
    let waits = arguments::waits(matches);
    let most = matches.get_one::<u64>("count").copied();
    let when = if matches.get_flag("sync") { Out::Synced } else { Out::Written };
    let mut feed = Feed::open(dir, consumer, call.opener(), AttemptCounts::Forgotten)?;
    let mut take = Take {
        call,
        output: Output::new(call.signals, when)?,
        written: Written::new(matches, call.console),
        pending: VecDeque::new(),
    };
    let result = take.all(&mut feed, waits, most.unwrap_or(u64::MAX));
    // What could be written is removed, whatever has failed.
    let result = result.and(take.settle_all(&mut feed));
    let (said, count) = (take.written.end(), take.written.messages() - take.pending.len() as u64);
    // The others are given back.
    take.pending.clear();
    let closed = feed.close();
    if let Some(ending) = call.signals.stop() {
        call.console.note(format!("ended by a signal after {}", units::count(count, "message")));
        let result = match result {
            Err(failure) if failure.is_of_decoder() => Ok(()),
            result => result,
        };
        return result.and(closed).map(|()| ending);
    }
    result.and(closed).and(said)?;
    if count == 0 && (most.is_some() || waits != Waits::No) {
        return Err(nothing(dir));
    }
    Ok(ExitStatus::Done)
}

pub(crate) fn nothing(dir: &Path) -> Failure {
    Failure::new(ExitStatus::Nothing, "empty", format!("queue {}: no message waits", dir.display()))
}

struct Take<'a> {
    call: &'a Call<'a>,
    output: Output<'a>,
    written: Written,
    /// Messages that are not out yet, and where each ends in the output.
    pending: VecDeque<(u64, Delivery)>,
}

impl Take<'_> {
    fn all(&mut self, feed: &mut Feed<'_>, waits: Waits, most: u64) -> Tried<()> {
        let deadline = match waits {
            Waits::First(Some(wait)) => Instant::now().checked_add(wait),
            _ => None,
        };
        while self.written.messages() < most && self.call.signals.stop().is_none() {
            if self.next(feed)? {
                continue;
            }
            // The queue has nothing more for now: what was taken goes out.
            self.settle_all(feed)?;
            let waiting = match waits {
                Waits::No => false,
                Waits::First(_) => self.written.messages() == 0,
                Waits::Forever => true,
            };
            if !waiting || feed.wait(deadline)? != Woken::Ready {
                break;
            }
        }
        Ok(())
    }

    /// Takes a message. False when none is there.
    fn next(&mut self, feed: &mut Feed<'_>) -> Tried<bool> {
        let mut gaps: Vec<Gap> = Vec::new();
        let delivery = feed.next(|gap| gaps.push(gap))?;
        for gap in gaps {
            self.written.gap(&mut self.output, gap)?;
        }
        let Some(delivery) = delivery else { return Ok(false) };
        let seq = delivery.seq();
        let time = if self.written.shows_times() { feed.segment_time(seq)? } else { None };
        let about = About { time, origin: delivery.origin() };
        let end = self.written.message(&mut self.output, seq, &delivery, about);
        self.settle(feed)?;
        end?;
        self.pending.push_back((self.output.position(), delivery));
        if self.pending.len() >= MOST_PENDING {
            self.settle_all(feed)?;
        }
        self.settle(feed)?;
        Ok(true)
    }

    fn settle_all(&mut self, feed: &mut Feed<'_>) -> Tried<()> {
        let flushed = self.output.flush();
        self.settle(feed).and(flushed)
    }

    /// Acknowledges the messages that are out.
    fn settle(&mut self, feed: &mut Feed<'_>) -> Tried<()> {
        let out = self.output.out();
        let count = self.pending.partition_point(|(end, _)| *end <= out);
        if count == 0 {
            return Ok(());
        }
        feed.ack(self.pending.drain(..count).map(|(_, delivery)| delivery))
    }
}
