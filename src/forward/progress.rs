//! How a forwarder gets on, for other threads to read.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::forward::local::Local;
use crate::threads::Mutex;

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Worked {
    /// The step sent messages, or some are in flight: continue.
    Busy,
    /// The far side has all messages of the queue.
    Idle,
    /// There is no session, and the driver begins none before this time has passed.
    Pause(Duration),
}

/// Counts of one driver.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pub(super) refused: u64,
    pub(super) sessions: u64,
    pub(super) troubles: u64,
    pub(super) sent_bytes: u64,
    pub(super) acknowledged_bytes: u64,
    /// Numbers that the far side acknowledged and lost, and that the queue had not kept.
    pub(super) lost_there: u64,
}

/// Reports the progress of a forwarder: [`Forwarder::watch`](super::Forwarder::watch).
///
/// ```
/// use mmq::forward::ForwardWatch;
///
/// fn report(watch: &ForwardWatch) {
///     println!("{}", watch.progress()); // "sending: 70 sent, 50 acknowledged, 20 to go"
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ForwardWatch(Arc<Mutex<ForwardProgress>>);

impl ForwardWatch {
    /// Returns its progress.
    #[must_use]
    pub fn progress(&self) -> ForwardProgress {
        self.0.lock().clone()
    }

    /// Begins a run, whose far side has not answered yet.
    pub(super) fn note_begin(&self, local: &dyn Local) {
        let mut progress = self.0.lock();
        *progress = ForwardProgress::default();
        progress.note_places(local);
    }

    pub(super) fn note_end(&self) {
        self.0.lock().state = ForwardState::Ended;
    }

    pub(super) fn note_warning(&self, warning: Option<String>) {
        self.0.lock().warning = warning;
    }

    pub(super) fn note(
        &self,
        local: &dyn Local,
        counts: &Counts,
        trouble: Option<&str>,
        warning: impl FnOnce() -> Option<String>,
        stepped: &Worked,
    ) {
        let mut progress = self.0.lock();
        if progress.sessions != counts.sessions {
            progress.warning = warning();
        }
        progress.sent = counts.sent;
        progress.acknowledged = counts.acknowledged;
        progress.refused = counts.refused;
        progress.sessions = counts.sessions;
        progress.sent_bytes = counts.sent_bytes;
        progress.acknowledged_bytes = counts.acknowledged_bytes;
        progress.lost_there = counts.lost_there;
        progress.note_places(local);
        progress.state = match stepped {
            Worked::Busy => ForwardState::Sending,
            Worked::Idle => ForwardState::Idle,
            Worked::Pause(_) => ForwardState::Pausing,
        };
        if progress.trouble.as_deref() != trouble {
            progress.trouble = trouble.map(str::to_owned);
        }
    }
}

/// The progress of a forwarder. Counts are of this run.
///
/// ```
/// use mmq::forward::ForwardProgress;
///
/// fn is_behind(progress: &ForwardProgress) -> bool {
///     progress.lag > 10_000 || progress.trouble.is_some()
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardProgress {
    /// Its present activity.
    pub state: ForwardState,
    /// Messages sent; a message sent twice counts twice.
    pub sent: u64,
    /// Messages that the far side acknowledged.
    pub acknowledged: u64,
    /// Messages that the far side rejects for good, and that the forwarder skipped.
    pub refused: u64,
    /// Sessions begun or tried.
    pub sessions: u64,
    /// Bytes of the messages sent.
    pub sent_bytes: u64,
    /// Bytes of the messages that the far side acknowledged.
    pub acknowledged_bytes: u64,
    /// Numbers that the far side had acknowledged and lost, and that the queue had not kept.
    pub lost_there: u64,
    /// When the far side last acknowledged a message, in earlier runs too.
    pub acknowledged_at: Option<SystemTime>,
    /// The first unacknowledged sequence number.
    pub place: u64,
    /// How many numbers are still to be acknowledged.
    pub lag: u64,
    /// How many acknowledged numbers the queue keeps.
    pub kept: u64,
    /// Why the last session ended; `None` once the far side has acknowledged something since, or
    /// has all messages.
    pub trouble: Option<String>,
    /// What a person should know of the far side:
    /// [`Destination::warning`](super::Destination::warning), or that somebody else wrote there.
    pub warning: Option<String>,
}

impl ForwardProgress {
    fn note_places(&mut self, local: &dyn Local) {
        self.acknowledged_at = local.acknowledged_at();
        self.place = local.place();
        self.lag = local.next_number().saturating_sub(self.place);
        self.kept = self.place.saturating_sub(local.kept());
    }
}

/// The activity of a forwarder.
///
/// ```
/// use mmq::forward::{ForwardState, ForwardWatch};
///
/// fn is_down(watch: &ForwardWatch) -> bool {
///     watch.progress().state == ForwardState::Pausing
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ForwardState {
    /// It has not asked the far side yet.
    #[default]
    Beginning,
    /// It sends messages, or waits for acknowledgements.
    Sending,
    /// The far side has all messages of the queue.
    Idle,
    /// It waits before it asks again.
    Pausing,
    /// It has ended.
    Ended,
}

impl fmt::Display for ForwardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ForwardState::Beginning => "beginning",
            ForwardState::Sending => "sending",
            ForwardState::Idle => "idle",
            ForwardState::Pausing => "pausing",
            ForwardState::Ended => "ended",
        })
    }
}

/// One line for a person.
impl fmt::Display for ForwardProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForwardProgress { state, sent, acknowledged, lag, .. } = self;
        write!(f, "{state}: {sent} sent, {acknowledged} acknowledged, {lag} to go")?;
        match &self.trouble {
            Some(trouble) => write!(f, " ({trouble})"),
            None => Ok(()),
        }
    }
}
