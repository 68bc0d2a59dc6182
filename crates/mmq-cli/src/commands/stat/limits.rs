//! Limits on what waits: one command for cron, Nagios and probes.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use mmq::{ConsumerSnapshot, Snapshot};

use crate::arguments::{self, size, text_of};
use crate::ending::ExitStatus;
use crate::failure::Failure;
use crate::units::{self, count};

const HEADING: &str = "Limits";

pub(super) fn arguments(stat: Command) -> Command {
    let limit = |id, value, help| Arg::new(id).long(id).value_name(value).help(help);
    stat.next_help_heading(HEADING)
        .arg(
            limit("max-lag", "N", "The most messages that may wait for a consumer")
                .value_parser(units::parse_number),
        )
        .arg(
            limit("max-age", "DURATION", "The greatest age of the oldest of them")
                .value_parser(units::parse_duration),
        )
        .arg(size("max-bytes", "The most bytes that they may take in the segments"))
        .arg(arguments::consumer().help("Check only this consumer [default: each one]"))
}

/// What is beyond its limit.
pub(super) fn passed(matches: &ArgMatches, snapshot: &Snapshot) -> Vec<Failure> {
    let name = text_of(matches, "consumer");
    let is_wanted = |one: &&ConsumerSnapshot| name.is_none_or(|name| one.name == name);
    let wanted: Vec<_> = snapshot.readers().iter().filter(is_wanted).collect();
    let mut failures = Vec::new();
    if let Some(name) = name.filter(|name| !name.is_empty() && wanted.is_empty()) {
        return vec![Failure::no_consumer(&snapshot.path, name)];
    }
    for consumer in &wanted {
        let age = consumer.oldest_age;
        let waits = Waits { messages: consumer.messages, bytes: consumer.bytes, age };
        failures.extend(waits.beyond(matches, snapshot, &consumer.name));
    }
    if wanted.is_empty() {
        // Before its first read the queue's own consumer has all before it that is held for others.
        let waits = Waits { messages: snapshot.messages, bytes: snapshot.bytes, age: None };
        failures.extend(waits.beyond(matches, snapshot, ""));
    }
    failures
}

/// What waits for a consumer.
struct Waits {
    messages: u64,
    bytes: u64,
    age: Option<Duration>,
}

impl Waits {
    fn beyond(&self, matches: &ArgMatches, snapshot: &Snapshot, name: &str) -> Vec<Failure> {
        let whose = match name {
            "" => String::new(),
            name => format!(" for consumer {name:?}"),
        };
        let path = snapshot.path.display();
        let failure = |what: &str, limit: &str, text: String| {
            let message = format!("queue {path}: {what} wait{whose}, more than {text} ({limit})");
            Failure::new(ExitStatus::Bad, "limit", message)
        };
        let mut failures = Vec::new();
        if let Some(most) = matches.get_one::<u64>("max-lag").filter(|most| self.messages > **most)
        {
            let what = count(self.messages, "message");
            failures.push(failure(&what, "--max-lag", most.to_string()));
        }
        let most = matches.get_one::<Duration>("max-age");
        if let Some((most, age)) = most.zip(self.age).filter(|(most, age)| age > *most) {
            let what = format!("messages up to {} old", units::duration(age));
            failures.push(failure(&what, "--max-age", units::duration(*most)));
        }
        if let Some(most) = matches.get_one::<u64>("max-bytes").filter(|most| self.bytes > **most) {
            let what = format!("{} of messages", units::size(self.bytes));
            failures.push(failure(&what, "--max-bytes", units::size(*most)));
        }
        failures
    }
}
