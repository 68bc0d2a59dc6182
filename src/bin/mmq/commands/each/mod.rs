//! `each`: runs a command for each message.

mod dead;
mod work;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use clap::{Arg, ArgMatches, Command, value_parser};
use mmq::Delivery;

use self::dead::Dead;
use self::work::{Ran, Work};
use super::Call;
use super::take::nothing;
use crate::arguments;
use crate::arguments::Waits;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::failure::Tried;
use crate::feed::Feed;
use crate::signals::Woken;
use crate::units::count;

/// Messages that are kept aside without a dead-letter queue, at most, and their bytes. They stay
/// in the queue; a run that has given up so many ends.
const MOST_KEPT: usize = 1000;
const MOST_KEPT_BYTES: u64 = 64 << 20;

const AFTER: &str = "\
The message is on the command's standard input, its number in MMQ_SEQ, and in MMQ_ATTEMPT how often
it was tried, from 1. It is removed when the command ends with status 0, and comes again at once
otherwise. Nothing is lost when this program is killed: what was not removed comes again.

A message that has failed too often goes to the queue of --dead, is durable there, and is then
removed. Without --dead it stays, is not tried again by this run, and comes first in the next one.
Status 1: messages were given up. Status 3: none came (with --wait).";

pub(crate) fn command() -> Command {
    let each = arguments::command(
        "each",
        "Run a command for each message, until it succeeds",
        "Examples:\n  \
         mmq each q -- ./resize\n  \
         mmq each q -j 4 --dead failed -f -- curl -sf --data-binary @- http://host/in\n  \
         mmq each q --consumer mail -- sh -c 'sendmail -t && echo sent $MMQ_SEQ'",
    );
    let retries = arguments::number("retries", "How often a message comes again [default: 5]");
    let each = each
        .arg(arguments::dir())
        .arg(
            Arg::new("command")
                .value_name("CMD")
                .value_parser(value_parser!(OsString))
                .num_args(1..)
                .last(true)
                .required(true)
                .help("The command and its arguments"),
        )
        .arg(arguments::number("jobs", "How many commands run at a time [default: 1]").short('j'))
        .arg(retries.value_parser(value_parser!(u64)))
        .arg(
            arguments::path("dead", "DIR2").long("dead").help(
                "The queue for messages that failed too often; it is made when it is missing",
            ),
        )
        .arg(arguments::consumer())
        .after_help(AFTER);
    arguments::following(each)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<Ending> {
    let matches = call.matches;
    let dir = arguments::dir_of(matches);
    let consumer = arguments::text_of(matches, "consumer").map(str::to_owned);
    let waits = arguments::waits(matches);
    if let Some(dead) = arguments::path_of(matches, "dead") {
        arguments::is_outside(dead, dir)?;
    }
    let mut feed = Feed::open(dir.to_owned(), consumer, call.signals)?;
    let words: Vec<OsString> = matches.get_many("command").into_iter().flatten().cloned().collect();
    let work = Work::new(&words).ok_or_else(|| Failure::usage("name a command behind --"))?;
    let mut each = Each::new(call, work, arguments::path_of(matches, "dead").map(Dead::new))?;
    let result = each.all(&mut feed, waits);
    // They come again.
    each.kept.clear();
    let closed = feed.close().and(each.close_dead());
    if let Some(ending) = call.signals.stop() {
        let done = count(each.done, "message");
        call.console.note(format!("ended by a signal; done: {done}"));
        return result.and(closed).map(|()| ending);
    }
    result.and(closed)?;
    each.verdict()?;
    if each.done == 0 && waits != Waits::No {
        return Err(nothing(dir));
    }
    Ok(Ending::Done)
}

struct Each<'a> {
    call: &'a Call<'a>,
    work: Work<'a>,
    jobs: u64,
    retries: u64,
    dead: Option<Dead<'a>>,
    done: u64,
    /// Numbers of messages that have failed too often, without a queue for them.
    given_up: BTreeSet<u64>,
    /// Those of them that are at hand, so that they do not come again.
    kept: Vec<Delivery>,
    buried: u64,
    missing: u64,
}

impl<'a> Each<'a> {
    fn new(call: &'a Call<'a>, work: Work<'a>, dead: Option<Dead<'a>>) -> Tried<Each<'a>> {
        let number = |id: &str, default| {
            let matches: &ArgMatches = call.matches;
            matches.get_one::<u64>(id).copied().unwrap_or(default)
        };
        let mut each = Each {
            call,
            work,
            jobs: number("jobs", 1),
            retries: number("retries", 5),
            dead,
            done: 0,
            given_up: BTreeSet::new(),
            kept: Vec::new(),
            buried: 0,
            missing: 0,
        };
        // A place that cannot be is told before anything is done.
        if let Some(dead) = &mut each.dead {
            dead.queue()?;
        }
        Ok(each)
    }

    fn all(&mut self, feed: &mut Feed<'_>, waits: Waits) -> Tried<()> {
        let deadline = match waits {
            Waits::First(Some(wait)) => Instant::now().checked_add(wait),
            _ => None,
        };
        loop {
            self.all_there_are(feed)?;
            let waiting = match waits {
                Waits::No => false,
                Waits::First(_) => self.done + self.buried == 0 && self.given_up.is_empty(),
                Waits::Forever => true,
            };
            if !waiting || self.call.signals.stop().is_some() {
                return Ok(());
            }
            let left = self.kept.len() as u64;
            self.kept.clear();
            self.close_dead()?;
            if feed.wait(deadline, left)? != Woken::Ready {
                return Ok(());
            }
        }
    }

    /// Works until no message is left but those given up. What has failed ends it when the
    /// commands that run have ended.
    fn all_there_are(&mut self, feed: &Feed<'_>) -> Tried<()> {
        let work = self.work;
        let (sender, reports) = mpsc::channel::<(Delivery, Ran)>();
        thread::scope(|scope| {
            let mut running = 0;
            let mut result = Ok(());
            loop {
                if running < self.jobs && result.is_ok() && self.call.signals.stop().is_none() {
                    match self.next(feed) {
                        Ok(Some(delivery)) => {
                            let sender = sender.clone();
                            let job = move || {
                                let ran = work.run(&delivery);
                                let _ = sender.send((delivery, ran));
                            };
                            match thread::Builder::new().spawn_scoped(scope, job) {
                                Ok(_) => running += 1,
                                Err(error) => {
                                    result = Err(Failure::io("cannot begin a thread", &error))
                                }
                            }
                            continue;
                        }
                        Ok(None) => {}
                        Err(failure) => result = Err(failure),
                    }
                }
                if running == 0 {
                    return result;
                }
                // Only a message that fails comes back: nobody else has the queue.
                if let Ok((delivery, ran)) = reports.recv() {
                    running -= 1;
                    result = result.and(self.settle(delivery, ran));
                }
            }
        })
    }

    /// The next message to work on.
    fn next(&mut self, feed: &Feed<'_>) -> Tried<Option<Delivery>> {
        loop {
            let mut gaps = Vec::new();
            let delivery = feed.next(|gap| gaps.push(gap))?;
            for gap in gaps {
                self.missing += gap.count();
                self.call.console.note(gap.to_string());
            }
            match delivery {
                Some(delivery) if self.given_up.contains(&delivery.seq()) => {
                    self.kept.push(delivery)
                }
                delivery => return Ok(delivery),
            }
        }
    }

    fn settle(&mut self, delivery: Delivery, ran: Ran) -> Tried<()> {
        let seq = delivery.seq();
        let reason = match ran {
            Ran::Done => {
                self.done += 1;
                return Ok(delivery.ack()?);
            }
            Ran::NotStarted(error) => {
                let what = format!("cannot run {:?}", self.work.program());
                return Err(Failure::io(what, &error));
            }
            // It was told to end as this program was.
            Ran::Failed { by_signal: true, .. } if self.call.signals.stop().is_some() => {
                return Ok(());
            }
            Ran::Failed { reason, .. } => reason,
        };
        let attempts = u64::from(delivery.attempts());
        let of = self.retries.saturating_add(1);
        self.call.console.note(format!("message {seq}: {reason} (attempt {attempts} of {of})"));
        if attempts < of {
            delivery.nack();
            return Ok(());
        }
        if let Some(dead) = &mut self.dead {
            dead.bury(&delivery)?;
            self.buried += 1;
            return Ok(delivery.ack()?);
        }
        self.given_up.insert(seq);
        self.kept.push(delivery);
        let bytes: u64 = self.kept.iter().map(|kept| kept.len() as u64).sum();
        if self.kept.len() < MOST_KEPT && bytes < MOST_KEPT_BYTES {
            return Ok(());
        }
        let message =
            "so many messages were given up that this run ends; name a queue for them with --dead";
        Err(Failure::new(Ending::Bad, "given_up", message))
    }

    fn close_dead(&mut self) -> Tried<()> {
        self.dead.as_mut().map_or(Ok(()), Dead::close)
    }

    /// What is to be said at the end.
    fn verdict(&self) -> Tried<()> {
        let missing = format!("{} will never come", count(self.missing, "message"));
        let given_up = match &self.dead {
            _ if self.buried == 0 && self.given_up.is_empty() => {
                return match self.missing {
                    0 => Ok(()),
                    _ => Err(Failure::new(Ending::Bad, "gap", missing)),
                };
            }
            Some(dead) => format!("{} went to {dead}", count(self.buried, "message")),
            None => format!("{} stay in the queue", count(self.given_up.len() as u64, "message")),
        };
        if self.missing > 0 {
            self.call.console.note(missing);
        }
        let message = format!("{given_up}: the command failed too often");
        Err(Failure::new(Ending::Bad, "given_up", message))
    }
}
