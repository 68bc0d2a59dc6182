//! How a forwarder gets on: a line a minute, and figures for Prometheus.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use mmq::Handle;
use mmq::forward::{Destination, ForwardProgress, ForwardState, ForwardWatch, Forwarder};

use super::address::Address;
use crate::arguments::{dir_of, path_of, text_of};
use crate::commands::Call;
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::json_object::Object;
use crate::metrics;
use crate::output::{Out, Output};
use crate::units;

/// So often a line is said.
const LINE: Duration = Duration::from_secs(60);
/// `--once` ends when for so long there was no session, or none but sessions without an
/// acknowledgement.
const IN_VAIN: Duration = Duration::from_secs(10);

pub(super) struct Report<'a> {
    call: &'a Call<'a>,
    output: Output<'a>,
    watch: ForwardWatch,
    queue: Handle,
    consumer: String,
    metrics: Option<&'a Path>,
    /// The labels of all figures.
    labels: String,
    next_line: Instant,
    trouble: Option<String>,
    warning: Option<String>,
    /// Why the file of figures is not written.
    unwritten: Option<String>,
    /// When the far side last acknowledged something, or had the first session behind that.
    heard: Instant,
    /// How far it had come then: its place, and what it had acknowledged in this run.
    reached: (u64, u64),
    /// The first session behind that: a later one may be in vain as well.
    session: Option<u64>,
}

impl<'a> Report<'a> {
    pub(super) fn new<D: Destination>(
        call: &'a Call<'a>,
        forwarder: &Forwarder<D>,
        (of, consumer): (&Handle, &str),
        address: &Address,
    ) -> Tried<Report<'a>> {
        let now = Instant::now();
        let path = || dir_of(call.matches).to_string_lossy().into_owned();
        let queue = text_of(call.matches, "label").map_or_else(path, str::to_owned);
        let address = address.to_string();
        let labels = [("queue", &*queue), ("consumer", consumer), ("destination", &address)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", metrics::escaped(value)));
        let report = Report {
            call,
            output: Output::new(call.signals, Out::Written)?,
            watch: forwarder.watch(),
            queue: of.clone(),
            consumer: consumer.to_owned(),
            metrics: path_of(call.matches, "metrics"),
            labels: labels.join(","),
            next_line: now + LINE,
            trouble: None,
            warning: None,
            unwritten: None,
            heard: now,
            reached: (0, 0),
            session: None,
        };
        // A file that cannot be written is found before the far side is used.
        let written = report.write_metrics(&report.watch.progress());
        written.map_err(|failure| Failure::usage(format!("--metrics: {}", failure.message())))?;
        Ok(report)
    }

    /// Says what is new.
    pub(super) fn look(&mut self) -> Tried<()> {
        let progress = self.watch.progress();
        let now = Instant::now();
        let reached = (progress.place, progress.acknowledged);
        if reached != self.reached {
            (self.heard, self.reached, self.session) = (now, reached, None);
        }
        if has_session(&progress)
            && *self.session.get_or_insert(progress.sessions) == progress.sessions
        {
            self.heard = now;
        }
        self.warn();
        let is_new = progress.trouble != self.trouble;
        self.trouble.clone_from(&progress.trouble);
        if is_new || now >= self.next_line {
            self.next_line = now + LINE;
            self.line(&progress)?;
        }
        self.renew_metrics(&progress);
        Ok(())
    }

    /// Writes the figures. Forwarding goes on without them: a disk that is full has room again.
    fn renew_metrics(&mut self, progress: &ForwardProgress) {
        let failed = self.write_metrics(progress).err().map(|failure| failure.message().to_owned());
        if failed != self.unwritten {
            if let Some(why) = &failed {
                self.call
                    .console
                    .note(format!("--metrics: {why}; it goes on without these figures"));
            }
            self.unwritten = failed;
        }
    }

    /// Says a warning that is new.
    pub(super) fn warn(&mut self) {
        let warning = self.watch.progress().warning;
        if warning != self.warning {
            self.warning = warning;
            if let Some(warning) = &self.warning {
                self.call.console.note(warning);
            }
        }
    }

    /// Why `--once` gives up, if it is time. A session that lasts has time: its patience ends it.
    pub(super) fn in_vain(&self) -> Option<String> {
        let lasts = has_session(&self.watch.progress());
        let why = self.trouble.as_ref().filter(|_| !lasts && self.heard.elapsed() > IN_VAIN)?;
        Some(match self.session {
            Some(_) => format!("its sessions end, and it has acknowledged nothing in them: {why}"),
            None => why.clone(),
        })
    }

    /// The last line and figures, which stay: nobody forwards any more.
    pub(super) fn end(&mut self, ending: &Tried<ExitStatus>) -> Tried<()> {
        self.warn();
        let mut progress = self.watch.progress();
        let said = self.line(&progress);
        progress.state = ForwardState::Ended;
        progress.trouble = Some(match ending {
            Err(failure) => failure.message().to_owned(),
            Ok(ExitStatus::Done) => "ended: the far side has all messages".to_owned(),
            Ok(_) => "ended by a signal".to_owned(),
        });
        self.renew_metrics(&progress);
        said
    }

    fn oldest_age(&self) -> Option<Duration> {
        let consumers = self.queue.consumer_stats().ok()?;
        consumers.into_iter().find(|stats| stats.name == self.consumer)?.oldest_age
    }

    fn line(&mut self, progress: &ForwardProgress) -> Tried<()> {
        let age = self.oldest_age();
        if self.call.console.form == Form::Program {
            let line = Object::new()
                .with("state", progress.state.to_string())
                .with("sent", progress.sent)
                .with("acknowledged", progress.acknowledged)
                .with("refused", progress.refused)
                .with("sessions", progress.sessions)
                .with("lag", progress.lag)
                .with("kept", progress.kept)
                .with("oldest_age_seconds", age.map(|age| age.as_secs_f64()))
                .with("trouble", progress.trouble.clone())
                .with("sent_bytes", progress.sent_bytes)
                .with("acknowledged_bytes", progress.acknowledged_bytes)
                .with("lost_there", progress.lost_there)
                .with_time("acknowledged_at", progress.acknowledged_at)
                .with("warning", progress.warning.clone());
            self.output.push(format!("{}\n", line.text()).as_bytes())?;
            return self.output.flush();
        }
        let age = age.filter(|_| progress.lag > 0);
        let age =
            age.map_or_else(String::new, |age| format!(", the oldest {}", units::duration(age)));
        self.call.console.note(format!("{progress}{age}"));
        Ok(())
    }

    fn write_metrics(&self, progress: &ForwardProgress) -> Tried<()> {
        let Some(file) = self.metrics else { return Ok(()) };
        let up = u64::from(has_session(progress) && progress.trouble.is_none());
        let since_1970 = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).ok();
        let heard = progress.acknowledged_at.and_then(since_1970);
        let count = |name, help, figure: u64| (name, "counter", help, Some(figure.to_string()));
        let gauge = |name, help, figure: u64| (name, "gauge", help, Some(figure.to_string()));
        let time = |name, help, time: Option<Duration>| {
            (name, "gauge", help, time.map(|time| time.as_secs_f64().to_string()))
        };
        let figures = [
            gauge("up", "1: there is a session, and no trouble since the last acknowledgement", up),
            count("sent_total", "Messages sent, repetitions included", progress.sent),
            count("sent_bytes_total", "Their bytes", progress.sent_bytes),
            count("acknowledged_total", "Messages acknowledged", progress.acknowledged),
            count("acknowledged_bytes_total", "Their bytes", progress.acknowledged_bytes),
            time("last_acknowledgement_timestamp_seconds", "When it last acknowledged one", heard),
            count("refused_total", "Messages that the far side refused", progress.refused),
            count("lost_there_total", "Acknowledged, then lost, not kept", progress.lost_there),
            count("sessions_total", "Sessions begun or tried", progress.sessions),
            gauge("lag_messages", "Sequence numbers that wait", progress.lag),
            gauge("kept_messages", "Acknowledged numbers that the queue keeps", progress.kept),
            time("oldest_age_seconds", "Age of the oldest message that waits", self.oldest_age()),
        ];
        let mut text = String::new();
        let mut add = |name: &str, kind: &str, help: &str, labels: &str, value: &str| {
            let name = format!("mmq_forward_{name}");
            text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            text += &format!("{name}{{{labels}}} {value}\n");
        };
        for (name, kind, help, value) in figures {
            if let Some(value) = value {
                add(name, kind, help, &self.labels, &value);
            }
        }
        if let Some(trouble) = &progress.trouble {
            let labels = format!("{},reason=\"{}\"", self.labels, metrics::escaped(trouble));
            add(
                "trouble_info",
                "gauge",
                "Why the last session ended, or the forwarder",
                &labels,
                "1",
            );
        }
        metrics::replace(file, &text)
    }
}

fn has_session(progress: &ForwardProgress) -> bool {
    matches!(progress.state, ForwardState::Sending | ForwardState::Idle)
}
