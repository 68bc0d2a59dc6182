//! How a forwarder gets on: a line a minute, and figures for Prometheus.

use std::path::Path;
use std::time::{Duration, Instant};

use mmq::Consumer;
use mmq::forward::{Destination, ForwardProgress, ForwardState, ForwardWatch, Forwarder};

use crate::arguments::{dir_of, path_of, text_of};
use crate::commands::Call;
use crate::console::Form;
use crate::failure::Tried;
use crate::json_object::Object;
use crate::metrics;
use crate::output::{Out, Output};
use crate::units;

/// So often a line is said.
const LINE: Duration = Duration::from_secs(60);

pub(super) struct Report<'a> {
    call: &'a Call<'a>,
    output: Output<'a>,
    watch: ForwardWatch,
    consumer: Consumer,
    metrics: Option<&'a Path>,
    /// The value of the label `queue`.
    label: String,
    next_line: Instant,
    trouble: Option<String>,
    /// When the far side last acknowledged something or had a session.
    heard: Instant,
    acknowledged: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new<D: Destination>(
        call: &'a Call<'a>,
        forwarder: &Forwarder<D>,
        consumer: Consumer,
    ) -> Tried<Report<'a>> {
        let now = Instant::now();
        let path = || dir_of(call.matches).to_string_lossy().into_owned();
        let report = Report {
            call,
            output: Output::new(call.signals, Out::Written)?,
            watch: forwarder.watch(),
            consumer,
            metrics: path_of(call.matches, "metrics"),
            label: text_of(call.matches, "label").map_or_else(path, str::to_owned),
            next_line: now + LINE,
            trouble: None,
            heard: now,
            acknowledged: 0,
        };
        // A file that cannot be written is found before the far side is used.
        report.write_metrics(&report.watch.progress())?;
        Ok(report)
    }

    /// Says what is new.
    pub(super) fn look(&mut self) -> Tried<()> {
        let progress = self.watch.progress();
        let now = Instant::now();
        let has_session = progress.trouble.is_none() && progress.state != ForwardState::Beginning;
        if has_session || progress.acknowledged > self.acknowledged {
            (self.heard, self.acknowledged) = (now, progress.acknowledged);
        }
        let is_new = progress.trouble != self.trouble;
        self.trouble.clone_from(&progress.trouble);
        if is_new || now >= self.next_line {
            self.next_line = now + LINE;
            self.line(&progress)?;
        }
        self.write_metrics(&progress)
    }

    /// For so long there was no session.
    pub(super) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Why there is no session.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// The last line.
    pub(super) fn end(&mut self) -> Tried<()> {
        let progress = self.watch.progress();
        self.line(&progress)?;
        self.write_metrics(&progress)
    }

    fn oldest_age(&self) -> Option<Duration> {
        self.consumer.stats().oldest_age
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
                .with("trouble", progress.trouble.clone());
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
        let up = u64::from(progress.trouble.is_none() && progress.sessions > 0);
        let figures = [
            ("up", "gauge", "1: there is a session with the far side", up),
            ("sent_total", "counter", "Messages sent, repetitions included", progress.sent),
            ("acknowledged_total", "counter", "Messages acknowledged", progress.acknowledged),
            ("refused_total", "counter", "Messages that the far side refused", progress.refused),
            ("sessions_total", "counter", "Sessions begun or tried", progress.sessions),
            ("lag_messages", "gauge", "Sequence numbers that wait", progress.lag),
            (
                "kept_messages",
                "gauge",
                "Acknowledged sequence numbers that the queue keeps",
                progress.kept,
            ),
        ];
        let queue = metrics::escaped(&self.label);
        let mut text = String::new();
        for (name, kind, help, value) in figures {
            text +=
                &format!("# HELP mmq_forward_{name} {help}\n# TYPE mmq_forward_{name} {kind}\n");
            text += &format!("mmq_forward_{name}{{queue=\"{queue}\"}} {value}\n");
        }
        if let Some(age) = self.oldest_age() {
            let name = "mmq_forward_oldest_age_seconds";
            text += &format!(
                "# HELP {name} Age of the oldest message that waits\n# TYPE {name} gauge\n"
            );
            text += &format!("{name}{{queue=\"{queue}\"}} {}\n", age.as_secs_f64());
        }
        metrics::replace(file, &text)
    }
}
