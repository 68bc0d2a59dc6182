//! `each`: runs a command for each message.
//!
//! The delay of --backoff is doubled by hand: a library would wait itself, and here the queue does.

mod dead;
mod failures;
mod work;

use std::ffi::OsString;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, Command, value_parser};
use mmq::Delivery;

use self::dead::Dead;
use self::failures::Failures;
use self::work::{Errors, Ran, Work};
use super::Call;
use super::take::nothing;
use crate::arguments;
use crate::arguments::Waits;
use crate::dead_letter::FailedMessage;
use crate::ending::ExitStatus;
use crate::failure::Failure;
use crate::failure::Tried;
use crate::feed::{AttemptCounts, Feed};
use crate::framing::missing;
use crate::signals::Woken;
use crate::units;
use crate::units::count;

/// The longest delay of `--backoff`, and of a message that has failed too often.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

/// How long such a message first stays away if another process has the queue open.
const AWAY: Duration = Duration::from_secs(60);

/// How long after its time a message is looked for again that is not there yet.
const TICK: Duration = Duration::from_millis(5);

/// How often it is looked whether there is something for a further command, while some run.
const LOOK: Duration = Duration::from_millis(50);

const AFTER: &str = "\
The command reads the message from its standard input. MMQ_SEQ is the message's sequence number, and
MMQ_ATTEMPT the number of the attempt, from 1. If the command ends with status 0, the message is
removed. Otherwise it comes again, at once or after the delay of --backoff. If this program is
killed, nothing is lost: each message that was not removed comes again, while the command that runs
for it goes on.

While this program has the queue open, others use it through this program: they can put messages in,
take them, and run a second `mmq each`. If another process has the queue open, this program uses it
through that one, and goes on when it ends. Then a message at which a command was at work comes to
this program again, which does not start a second command for it; but another `mmq each` may get it
first.

With --dead a message that failed too often moves to the queue DIR2: it is removed here after it is
durable there. An attempt counts if the command ran and failed, also in earlier runs with --dead, or
if this program ended meanwhile: so a message whose command kills it each time moves there too. One
that has had all its attempts gets no further one; to try it again, raise --retries. DIR2 holds a
JSON object: queue, consumer, seq, attempts, reason (how the last attempt ended), stderr (the last
line that the command wrote there), and the message as text or base64. `mmq redrive DIR2 DIR` puts
it back. If DIR2 is full, this program ends with status 6: put its messages back or take them out.

Without --dead the message stays: this run goes on with the others, however many stay, and does not
try it again. The next run tries it first. If another process has the queue open, the message comes
again after a minute, and after each further failure twice as long, at most an hour; any
worker tries it then.

After SIGINT or SIGTERM this program starts no further command, and ends when the running ones have
ended. If the signal ends a command too, its message comes again, and the attempt does not count;
nor does it if the command cannot be started. (It does if another process has the queue open.) A
second signal ends this program at once; then the running attempts count.

Status 1: messages failed too often, or will never come. Status 3: no message came (with --wait).
Status 7: the command cannot be started, or took longer than --timeout and cannot be killed.";

pub(crate) fn command() -> Command {
    let each = arguments::command(
        "each",
        "Run a command for each message, until it succeeds",
        "Examples:\n  \
         mmq each q -- ./resize\n  \
         mmq each q -j 4 --dead failed -f -- curl -sf --data-binary @- http://host/in\n  \
         mmq each q --consumer mail -- sh -c 'sendmail -t && echo sent $MMQ_SEQ'",
    );
    let retries =
        arguments::number("retries", "How often a failed message is tried again [default: 5]");
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
        .arg(arguments::number("jobs", "How many commands run at the same time [default: 1]").short('j'))
        .arg(retries.value_parser(units::parse_number))
        .arg(
            arguments::path("dead", "DIR2").long("dead").help(
                "The queue for messages that failed too often; if it is missing, it is made with the permission bits of DIR, not with its group",
            ),
        )
        .arg(
            duration("backoff", "Wait this long after the first failure, and twice as long after each further one, at most an hour"),
        )
        .arg(duration("timeout", "Kill a command and all that it started after this long; the attempt has failed"))
        .arg(arguments::consumer())
        .after_help(AFTER);
    arguments::locking(arguments::following(each))
}

fn duration(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name("DURATION").help(help).value_parser(units::parse_duration)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let dir = arguments::dir_of(matches);
    let consumer = arguments::text_of(matches, "consumer").unwrap_or_default();
    let waits = arguments::waits(matches);
    let dead = arguments::path_of(matches, "dead");
    if let Some(dead) = dead {
        arguments::is_outside(dead, dir)?;
    }
    let (attempts, errors) = match dead {
        Some(_) => (AttemptCounts::Stored, Errors::Kept),
        None => (AttemptCounts::Forgotten, Errors::Passed),
    };
    let mut feed = Feed::open(dir, consumer, call.opener(), attempts)?;
    let words: Vec<OsString> = matches.get_many("command").into_iter().flatten().cloned().collect();
    let limit = matches.get_one::<Duration>("timeout").copied();
    let work = Work::new(&words, errors, limit)
        .ok_or_else(|| Failure::usage("name a command after --"))?;
    let dead = dead.map(|dead| Dead::new(dead, dir, call.opener())).transpose()?;
    let mut each = Each::new(call, work, dead);
    let result = each.all(&mut feed, waits);
    let closed = feed.close();
    each.failures.release();
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
    Ok(ExitStatus::Done)
}

struct Each<'a> {
    call: &'a Call<'a>,
    work: Work<'a>,
    jobs: u64,
    retries: u64,
    backoff: Option<Duration>,
    dead: Option<Dead<'a>>,
    failures: Failures,
    done: u64,
    buried: u64,
    missing: u64,
}

impl<'a> Each<'a> {
    fn new(call: &'a Call<'a>, work: Work<'a>, dead: Option<Dead<'a>>) -> Each<'a> {
        let number =
            |id: &str, default| call.matches.get_one::<u64>(id).copied().unwrap_or(default);
        Each {
            call,
            work,
            jobs: number("jobs", 1),
            retries: number("retries", 5),
            backoff: call.matches.get_one::<Duration>("backoff").copied(),
            dead,
            failures: Failures::default(),
            done: 0,
            buried: 0,
            missing: 0,
        }
    }

    fn all(&mut self, feed: &mut Feed<'_>, waits: Waits) -> Tried<()> {
        let deadline = match waits {
            Waits::First(Some(wait)) => Instant::now().checked_add(wait),
            _ => None,
        };
        loop {
            self.all_there_are(feed)?;
            let had_some = self.done + self.buried + self.failures.given_up() > 0;
            match waits {
                _ if self.call.signals.stop().is_some() => return Ok(()),
                Waits::No => return Ok(()),
                Waits::First(_) if had_some => return Ok(()),
                Waits::First(_) | Waits::Forever => {}
            }
            if feed.wait(deadline)? != Woken::Ready {
                return Ok(());
            }
        }
    }

    /// Works until no message is left but those given up, and no command runs. What has failed ends
    /// it when the commands that run have ended.
    fn all_there_are(&mut self, feed: &mut Feed<'_>) -> Tried<()> {
        let work = self.work;
        let (sender, reports) = mpsc::channel::<(Delivery, Ran)>();
        thread::scope(|scope| {
            let mut running = 0;
            let mut result = Ok(());
            loop {
                let ends = result.is_err() || self.call.signals.stop().is_some();
                if running < self.jobs && !ends {
                    match self.next(feed) {
                        Ok(Some(delivery)) => {
                            let attempt = self.failures.attempts(&delivery);
                            let sender = sender.clone();
                            let job = move || {
                                let ran = work.run(&delivery, attempt);
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
                        Err(failure) => {
                            result = Err(failure);
                            continue;
                        }
                    }
                }
                let due = self.due().filter(|_| !ends);
                if running == 0 {
                    let Some(due) = due else { return result };
                    result = feed.wait(Some(due)).map(drop);
                    continue;
                }
                let report = if running < self.jobs && !ends {
                    let next = due.map(|due| due.saturating_duration_since(Instant::now()));
                    reports.recv_timeout(next.unwrap_or(LOOK).min(LOOK)).ok()
                } else {
                    reports.recv().ok()
                };
                if let Some((delivery, ran)) = report {
                    running -= 1;
                    result = result.and(self.settle(feed, delivery, ran));
                }
            }
        })
    }

    /// When to look again for a message that waits for its delay. `None`: none does. One whose time
    /// has come may take a moment to be there.
    fn due(&mut self) -> Option<Instant> {
        Some(self.failures.next_time()?.max(Instant::now() + TICK))
    }

    /// The next message to work on.
    fn next(&mut self, feed: &mut Feed<'_>) -> Tried<Option<Delivery>> {
        while self.call.signals.stop().is_none() {
            let mut gaps = Vec::new();
            let delivery = feed.next(|gap| gaps.push(gap))?;
            for gap in gaps {
                self.missing += missing(&gap);
                self.call.console.note(gap.to_string());
            }
            let Some(delivery) = delivery else { break };
            // Its command has failed or ended this program as often as it may.
            if self.dead.is_some() && self.failures.attempts(&delivery) > self.most() {
                let reason = "earlier runs tried it that often, or ended while they did";
                self.bury(feed, delivery, reason, "")?;
                continue;
            }
            self.failures.begin(delivery.seq());
            return Ok(Some(delivery));
        }
        Ok(None)
    }

    /// How often a message is tried.
    fn most(&self) -> u64 {
        self.retries.saturating_add(1)
    }

    /// Has the message go to the queue for the dead.
    fn bury(
        &mut self,
        feed: &mut Feed<'_>,
        delivery: Delivery,
        reason: &str,
        last_line: &str,
    ) -> Tried<()> {
        let Some(dead) = self.dead else { return Ok(()) };
        let matches = self.call.matches;
        let buried = dead.bury(&FailedMessage {
            queue: arguments::dir_of(matches),
            consumer: arguments::text_of(matches, "consumer").unwrap_or_default(),
            seq: delivery.seq(),
            attempts: delivery.attempts(),
            reason,
            last_line,
            message: &delivery,
        });
        if buried.is_err() {
            self.failures.keep(delivery);
            return buried;
        }
        self.buried += 1;
        self.failures.forget(delivery.seq());
        feed.ack([delivery])
    }

    fn settle(&mut self, feed: &mut Feed<'_>, delivery: Delivery, ran: Ran) -> Tried<()> {
        let seq = delivery.seq();
        let attempts = self.failures.attempts(&delivery);
        let (reason, last_line) = match ran {
            Ran::Done => {
                self.done += 1;
                self.failures.forget(seq);
                return feed.ack([delivery]);
            }
            Ran::NotStarted(error) => {
                self.failures.keep(delivery);
                let what = format!("cannot run {:?}", self.work.program());
                return Err(Failure::io(what, &error));
            }
            Ran::RunsOn { reason } => {
                let message = format!(
                    "message {seq}: {reason}; the command still runs, and the message stays in the queue"
                );
                return Err(Failure::new(ExitStatus::Failed, "cannot_kill", message));
            }
            // A signal ended it, as it ended this program.
            Ran::Failed { by_signal: true, .. } if self.call.signals.stop().is_some() => {
                self.failures.keep(delivery);
                return Ok(());
            }
            Ran::Failed { reason, last_line, .. } => (reason, last_line),
        };
        let of = self.most();
        self.call.console.note(format!("message {seq}: {reason} (attempt {attempts} of {of})"));
        if attempts < of {
            let delay = self.backoff.map(|first| doubled(first, attempts.saturating_sub(1)));
            self.failures.note(seq, attempts, delay);
            feed.give_back(delivery, delay.unwrap_or_default());
        } else if self.dead.is_some() {
            self.bury(feed, delivery, &reason, &last_line)?;
        } else {
            self.failures.give_up(seq, attempts);
            // Here the delay ends with this run. With another owner it must end by itself, and each
            // return counts as an attempt.
            let is_owner = feed.is_owner();
            let away = if is_owner { Duration::MAX } else { doubled(AWAY, attempts - of) };
            feed.give_back(delivery, away);
        }
        Ok(())
    }

    /// What is to be said at the end.
    fn verdict(&self) -> Tried<()> {
        let missing = format!("{} will never come", count(self.missing, "message"));
        let left = self.failures.given_up();
        let given_up = match &self.dead {
            _ if self.buried == 0 && left == 0 => {
                return match self.missing {
                    0 => Ok(()),
                    _ => Err(Failure::new(ExitStatus::Bad, "gap", missing)),
                };
            }
            Some(dead) => format!("{} went to {dead}", count(self.buried, "message")),
            None => format!("{} stay in the queue", count(left, "message")),
        };
        if self.missing > 0 {
            self.call.console.note(missing);
        }
        let message = format!("{given_up}: the command failed too often");
        Err(Failure::new(ExitStatus::Bad, "given_up", message))
    }
}

/// The delay after so many doublings of the first one.
fn doubled(first: Duration, doublings: u64) -> Duration {
    let doublings = u32::try_from(doublings).unwrap_or(u32::MAX);
    first.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_DELAY)
}

#[test]
fn what_stays_comes_again_ever_more_rarely() {
    let minutes = |failures| doubled(AWAY, failures).as_secs() / 60;
    assert_eq!([0, 1, 2, 5, 6, u64::MAX].map(minutes), [1, 2, 4, 32, 60, 60]);
}
