//! `forward`: sends a queue's messages on to another engine.

mod address;
mod child;
mod far;
mod report;
pub(super) mod wire;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use mmq::Queue;
use mmq::forward::{
    Destination, ForwardEnd, ForwardOptions, Forwarder, Halt, IfForgotten, OnRefused, TellGaps,
};

use self::address::Address;
use self::report::Report;
use super::Call;
use crate::arguments::{self, flag, text_of};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::opening;
use crate::signals::{For, Woken};
use crate::units;

/// How often it is looked how the forwarder gets on.
const LOOK: Duration = Duration::from_secs(1);
/// So long it waits for the forwarder's thread after telling it to stop.
const STOPPING: Duration = Duration::from_millis(800);
/// The consumer, where nobody says another.
const CONSUMER: &str = "forward";

const AFTER: &str = "\
The far side (NATS, Redis or another queue) gets each message once and in order, even if this
program, the server or both die in between, and however often. When the far side has acknowledged
messages, the queue removes them, except the newest (--keep): those it can send again if the far
side forgets them. Each session begins with the question which messages the far side has.

If no process has the queue open, this one opens it, and others use it through this one. If a
process has it open and shares it, this one forwards through that one. When that one ends, this one
goes on.

A queue keeps each message until all its consumers have read it. `mmq put` gives a new queue its own
consumer. If nobody reads as that one, the queue keeps everything. Then remove it once, after the
first run of `mmq forward` has made its consumer: `mmq consumers DIR rm '' --yes`.

URL is nats://HOST or tls://HOST (with --stream), redis://HOST (with --key), ssh://HOST/DIR2 (runs
`ssh HOST mmq accept DIR2`; HOST/~/DIR2 begins at the home directory; ssh asks no questions), or
exec:COMMAND for a shell command: `mmq accept DIR2`, or an engine of your own (docs/engines.md).
Other users of the machine can see a password in the URL. Put it in --password-file or the variable
MMQ_FORWARD_PASSWORD; without a user in the URL it is a token of NATS. A stream of NATS must exist.
Once a minute a line on standard error says how many messages were sent.

It waits out what a later minute may mend: servers that are away, full or refuse the user, a stream
that has gone. What ends it for good: status 6, the far side refuses a message, or the directory is
an older copy of the queue; status 7, the stream was made anew, the queue itself failed, or the very
first session met a refused login or a missing stream; also if --once had no session for 10 s, or
only sessions that ended without an acknowledgement. A signal ends it within a second.";

pub(crate) fn command() -> Command {
    let forward = arguments::command(
        "forward",
        "Send messages to NATS JetStream, a Redis stream or another queue, each once",
        "Examples:\n  \
         mmq forward q nats://localhost --stream EVENTS\n  \
         mmq forward q redis://localhost --key events --once\n  \
         mmq forward q ssh://user@host/var/spool/q\n  \
         mmq forward q tls://broker --stream EVENTS --creds edge.creds --metrics mmq.prom",
    );
    let forward = forward
        .arg(arguments::dir())
        .arg(Arg::new("url").value_name("URL").required(true).help("Where to: nats://, redis://, ssh://HOST/DIR2 or exec:COMMAND"))
        .arg(flag("once", "End when the far side has all messages [default: end at a signal]"))
        .arg(text("consumer", "NAME", "Read as this consumer; it is made if it is missing [default: forward]"))
        .arg(text("name", "NAME", "The queue's name on the far side [default: the name of its directory]"))
        .arg(text("succeed", "ID", "Go on after the queue with this ID, whose messages the far side holds"))
        .arg(
            arguments::at_most("keep", "Keep the newest N messages that the far side has [default: 10000]")
                .value_parser(units::parse_number),
        )
        .arg(arguments::size("keep-bytes", "Keep at most SIZE bytes of them [default: 64M]"))
        .arg(
            choice("on-refused", &["stop", "skip", "dead"])
                .help("What to do with a message that the far side refuses [default: stop]"),
        )
        .arg(
            arguments::path("dead", "DIR2")
                .long("dead")
                .help("The queue for refused messages; if it is missing, it is made with the permissions of DIR"),
        )
        .arg(
            choice("if-forgotten", &["resend", "continue", "stop"])
                .help("If the far side has forgotten the queue: send the kept messages again, or continue with new ones"),
        )
        .arg(duration(
            "patience",
            "End a session in which the far side acknowledges nothing for this long, and ask again [default: 30s]",
        ))
        .arg(
            file("password-file", "The file with the password of the user in URL")
                .conflicts_with_all(["creds", "nkey"]),
        )
        .arg(
            choice("gaps", &["header", "message", "none"])
                .help("How to tell the far side of missing messages [default: header]"),
        )
        .arg(flag("times", "Send with each message a time before which nobody put it in: when its segment was begun"))
        .arg(
            arguments::path("metrics", "FILE")
                .long("metrics")
                .help("Write figures for Prometheus to this file, once a second"),
        )
        .arg(
            text("label", "NAME", "The value of the label `queue` in that file [default: the path DIR]")
                .requires("metrics"),
        );
    let forward = far::with_options(forward);
    arguments::locking(forward.after_help(AFTER))
}

fn text(id: &'static str, name: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name(name).help(help)
}

fn file(id: &'static str, help: &'static str) -> Arg {
    arguments::path(id, "FILE").long(id).help(help)
}

fn choice(id: &'static str, among: &[&'static str]) -> Arg {
    Arg::new(id).long(id).value_name("WHAT").value_parser(PossibleValuesParser::new(among.to_vec()))
}

/// A second at least.
fn duration(id: &'static str, help: &'static str) -> Arg {
    let parsed = |text: &str| match units::parse_duration(text)? {
        parsed if parsed < Duration::from_secs(1) => Err("the least is 1s".to_owned()),
        parsed => Ok(parsed),
    };
    text(id, "DURATION", help).value_parser(parsed)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let matches = call.matches;
    let dir = arguments::dir_of(matches);
    let address = Address::of(matches)?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let destination = far::destination(&address, matches, &is_stopped, call.console)?;
    let dead = dead_letters(matches, dir)?;
    // In the order in which `redrive` opens them: each could wait for the other else.
    let queue = call.opener().open_existing(dir)?;
    let open = |dead| {
        let options = opening::as_open_as(&[dir], dead);
        Ok::<_, Failure>(Arc::new(call.opener().own(dead, &options)?))
    };
    let dead = dead.map(open).transpose()?;
    let consumer = text_of(matches, "consumer").unwrap_or(CONSUMER);
    let mut forwarder = queue.forwarder(consumer, destination)?;
    forwarder = forwarder.options(options(matches, dead.as_ref())?);
    if let Some(name) = text_of(matches, "name") {
        forwarder = forwarder.name(name);
    }
    if let Some(id) = text_of(matches, "succeed") {
        forwarder = forwarder.succeed(id)?;
    }
    let report = Report::new(call, &forwarder, (&queue, consumer), &address)?;
    let outcome = forward(call, forwarder, report, &is_stopped);
    let closed = queue.close();
    // Each dead letter was flushed. Dropping closes that queue, unless a thread was left behind.
    drop(dead);
    let ending = outcome?;
    closed?;
    Ok(ending)
}

fn dead_letters<'a>(matches: &'a ArgMatches, dir: &Path) -> Tried<Option<&'a Path>> {
    let is_wanted = text_of(matches, "on-refused") == Some("dead");
    match arguments::path_of(matches, "dead") {
        Some(dead) if is_wanted => {
            arguments::is_outside(dead, dir)?;
            Ok(Some(dead))
        }
        None if is_wanted => Err(Failure::usage("--on-refused dead needs --dead DIR2")),
        Some(_) => Err(Failure::usage("--dead goes with --on-refused dead")),
        None => Ok(None),
    }
}

fn options(matches: &ArgMatches, dead: Option<&Arc<Queue>>) -> Tried<ForwardOptions> {
    let mut options = ForwardOptions::default();
    if let Some(keep) = matches.get_one::<u64>("keep") {
        options.keep_messages = *keep;
    }
    if let Some(bytes) = matches.get_one::<u64>("keep-bytes") {
        options.keep_bytes = *bytes;
    }
    if let Some(patience) = matches.get_one::<Duration>("patience") {
        options.patience = *patience;
    }
    options.times = matches.get_flag("times");
    #[cfg(feature = "zstd")]
    {
        options.zstd = matches.get_one::<i32>("zstd").copied();
    }
    #[cfg(not(feature = "zstd"))]
    if matches.contains_id("zstd") {
        let without = "this mmq was built without zstd; `cargo install --path crates/mmq-cli --features zstd,...` builds one with it";
        return Err(Failure::usage(without));
    }
    options.on_refused = match (text_of(matches, "on-refused"), dead) {
        (_, Some(dead)) => OnRefused::DeadLetters(Arc::clone(dead)),
        (Some("skip"), _) => OnRefused::Skip,
        _ => OnRefused::Stop,
    };
    options.if_forgotten = match text_of(matches, "if-forgotten") {
        Some("resend") => Some(IfForgotten::Resend),
        Some("continue") => Some(IfForgotten::Continue),
        Some(_) => Some(IfForgotten::Stop),
        None => None,
    };
    options.gaps = match text_of(matches, "gaps") {
        Some("message") => TellGaps::Message,
        Some("none") => TellGaps::None,
        _ => TellGaps::Header,
    };
    Ok(options)
}

/// Runs the forwarder on a thread of its own until it ends, a signal comes, or `--once` has waited
/// long enough. A thread that hangs in a call to the far side is left behind: once its queue is
/// closed it does no more, and the next run asks the far side what has arrived.
fn forward(
    call: &Call<'_>,
    mut forwarder: Forwarder<Box<dyn Destination>>,
    mut report: Report<'_>,
    is_stopped: &AtomicBool,
) -> Tried<ExitStatus> {
    let once = call.matches.get_flag("once");
    let stop = forwarder.stop();
    let (ended, ends) = io::pipe().map_err(|error| Failure::io("a pipe", &error))?;
    let (tell, told) = mpsc::channel();
    let forwarding = thread::spawn(move || {
        // It is closed behind the outcome, and so wakes the wait below.
        let _ends = ends;
        let outcome = if once { forwarder.once() } else { forwarder.run() };
        // A command behind it ends first.
        drop(forwarder);
        let _ = tell.send(outcome);
    });
    let mut gave_up = None;
    let looked = loop {
        match call.signals.wait(&[ended.as_fd()], For::Reading, Some(Instant::now() + LOOK)) {
            Ok(Woken::TimedOut) => {}
            woken => break woken.map(drop),
        }
        if let Err(failure) = report.look() {
            break Err(failure);
        }
        gave_up = report.in_vain().filter(|_| once);
        if gave_up.is_some() {
            break Ok(());
        }
    };
    stop.stop();
    is_stopped.store(true, Ordering::Relaxed);
    let outcome = match told.recv_timeout(STOPPING) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Ok(ForwardEnd::Stopped),
        Err(RecvTimeoutError::Disconnected) => match forwarding.join() {
            Ok(()) => Ok(ForwardEnd::Stopped),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    };
    let ending = match outcome {
        Err(halt) => Err(halted(halt)),
        Ok(ForwardEnd::Drained) => Ok(ExitStatus::Done),
        Ok(_) => call.signals.stop().ok_or_else(|| {
            let why = gave_up.unwrap_or_else(|| "the far side does not answer".to_owned());
            let message = format!(
                "the far side did not take all messages: {why}; the others wait in the queue"
            );
            Failure::new(ExitStatus::Failed, "far_side", message)
        }),
    };
    let ending = looked.and(ending);
    let said = report.end(&ending);
    ending.and_then(|ending| said.map(|()| ending))
}

/// What the tool says of a forwarder that has stopped for good.
fn halted(halt: Halt) -> Failure {
    let said = halt.to_string();
    match halt {
        Halt::OlderCopy { .. } => Failure::new(ExitStatus::Refused, "older_copy", said),
        Halt::Refused { .. } => Failure::new(
            ExitStatus::Refused,
            "refused",
            format!(
                "{said}; --on-refused skip leaves it out, --on-refused dead --dead DIR2 keeps it"
            ),
        ),
        Halt::Forgotten { .. } => Failure::new(
            ExitStatus::Failed,
            "forgotten",
            format!("{said}: --if-forgotten resend, or --if-forgotten continue"),
        ),
        Halt::Queue(error) => error.into(),
        _ => Failure::new(ExitStatus::Failed, "far_side", said),
    }
}
