//! `each`: runs a command for each message.

mod dead;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};
use mmq::Delivery;

use self::dead::Dead;
use self::work::{Errors, Ran, Work};
use super::Call;
use super::take::nothing;
use crate::arguments;
use crate::arguments::Waits;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::failure::Tried;
use crate::feed::{AttemptCounts, Feed};
use crate::letter::FailedMessage;
use crate::signals::{For, Woken};
use crate::units;
use crate::units::count;

/// Messages that are kept aside without a dead-letter queue, at most, and their bytes. They stay
/// in the queue; a run that has given up so many ends.
const MOST_KEPT: usize = 1000;
const MOST_KEPT_BYTES: u64 = 64 << 20;

/// The longest delay of `--backoff`.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

/// How long after its time a message is looked for again that is not there yet.
const TICK: Duration = Duration::from_millis(5);

const AFTER: &str = "\
The message is on the command's standard input, its number in MMQ_SEQ, and in MMQ_ATTEMPT how often
it was tried, from 1. It is removed when the command ends with status 0, and comes again otherwise,
at once or after the delay of --backoff; meanwhile the queue stays open here. Nothing is lost when
this program is killed: what was not removed comes again, at once.

A message that has failed too often goes to the queue of --dead, is durable there, and is then
removed. With --dead attempts are stored, so that one whose command ends this program each time goes
there too. It is there as a JSON object: queue, consumer, seq, attempts, reason (how the last
attempt ended), stderr (its last line), and text or base64, the message; `mmq redrive DIR2 DIR` puts
it back. Without --dead it stays, is not tried again by this run, and comes first in the next one.
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
        .arg(
            duration("backoff", "Wait so long after the first failure, twice as long after each further one, an hour at most"),
        )
        .arg(duration("timeout", "Kill a command, and all that it has started, after so long: it has failed"))
        .arg(arguments::consumer())
        .after_help(AFTER);
    arguments::locking(arguments::following(each))
}

fn duration(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name("DURATION").help(help).value_parser(units::parse_duration)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<Ending> {
    let matches = call.matches;
    let dir = arguments::dir_of(matches);
    let consumer = arguments::text_of(matches, "consumer").map(str::to_owned);
    let waits = arguments::waits(matches);
    if let Some(dead) = arguments::path_of(matches, "dead") {
        arguments::is_outside(dead, dir)?;
    }
    let (attempts, errors) = match matches.contains_id("dead") {
        true => (AttemptCounts::Stored, Errors::Kept),
        false => (AttemptCounts::Forgotten, Errors::Passed),
    };
    let mut feed = Feed::open(dir.to_owned(), consumer, call.opener(), attempts)?;
    let words: Vec<OsString> = matches.get_many("command").into_iter().flatten().cloned().collect();
    let limit = matches.get_one::<Duration>("timeout").copied();
    let work = Work::new(&words, errors, limit)
        .ok_or_else(|| Failure::usage("name a command behind --"))?;
    let mut each = Each::new(
        call,
        work,
        arguments::path_of(matches, "dead").map(|dead| Dead::new(dead, call.opener())),
    )?;
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
    backoff: Option<Duration>,
    /// When messages come again that wait for their delay.
    delayed: BTreeMap<u64, Instant>,
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
            backoff: call.matches.get_one::<Duration>("backoff").copied(),
            delayed: BTreeMap::new(),
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
                let due = self.due();
                if running == 0 {
                    if due.is_none() || result.is_err() || self.call.signals.stop().is_some() {
                        return result;
                    }
                    result = self.call.signals.wait(&[], For::Reading, due).map(drop);
                    continue;
                }
                // Only a message that fails comes back: nobody else has the queue.
                let report = match due.filter(|_| running < self.jobs && result.is_ok()) {
                    Some(due) => {
                        reports.recv_timeout(due.saturating_duration_since(Instant::now())).ok()
                    }
                    None => reports.recv().ok(),
                };
                if let Some((delivery, ran)) = report {
                    running -= 1;
                    result = result.and(self.settle(delivery, ran));
                }
            }
        })
    }

    /// When to look again for a message that waits for its delay. `None`: none does. One whose time
    /// has come may take a moment to be there.
    fn due(&self) -> Option<Instant> {
        let earliest = self.delayed.values().min()?;
        Some((*earliest).max(Instant::now() + TICK))
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
            if let Some(delivery) = &delivery {
                self.delayed.remove(&delivery.seq());
            }
            match delivery {
                // Its command has ended this program as often as it may fail.
                Some(delivery)
                    if self.dead.is_some() && u64::from(delivery.attempts()) > self.most() =>
                {
                    let reason =
                        "earlier runs have tried it as often, and ended before it was done";
                    self.bury(delivery, reason, "")?;
                }
                Some(delivery) if self.given_up.contains(&delivery.seq()) => {
                    self.kept.push(delivery)
                }
                delivery => return Ok(delivery),
            }
        }
    }

    /// How often a message is tried.
    fn most(&self) -> u64 {
        self.retries.saturating_add(1)
    }

    /// Has the message go to the queue for the dead.
    fn bury(&mut self, delivery: Delivery, reason: &str, last_line: &str) -> Tried<()> {
        let Some(dead) = &mut self.dead else { return Ok(()) };
        let matches = self.call.matches;
        dead.bury(&FailedMessage {
            queue: arguments::dir_of(matches),
            consumer: arguments::text_of(matches, "consumer").unwrap_or_default(),
            seq: delivery.seq(),
            attempts: delivery.attempts(),
            reason,
            last_line,
            message: &delivery,
        })?;
        self.buried += 1;
        Ok(delivery.ack()?)
    }

    fn settle(&mut self, delivery: Delivery, ran: Ran) -> Tried<()> {
        let seq = delivery.seq();
        let (reason, last_line) = match ran {
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
            Ran::Failed { reason, last_line, .. } => (reason, last_line),
        };
        let attempts = u64::from(delivery.attempts());
        let of = self.most();
        self.call.console.note(format!("message {seq}: {reason} (attempt {attempts} of {of})"));
        if attempts < of {
            let Some(first) = self.backoff else {
                delivery.nack();
                return Ok(());
            };
            let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
            let delay = first.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_DELAY);
            self.delayed.insert(seq, Instant::now() + delay);
            delivery.nack_after(delay);
            return Ok(());
        }
        if self.dead.is_some() {
            return self.bury(delivery, &reason, &last_line);
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
