//! What the client tells beside the answers.

use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::{Event, ServerError};
use tokio::sync::Notify;

use super::words::Letterhead;
use mmq::forward::Trouble;
use parking_lot::Mutex;

/// Rings when the session cannot go on.
#[derive(Default)]
pub(super) struct Alarm {
    pub(super) rung: Notify,
    /// What the server said, or what happened.
    why: Mutex<String>,
    is_denied: AtomicBool,
}

impl Alarm {
    pub(super) fn ring(&self, event: Event) {
        let why = match event {
            Event::ServerError(ServerError::Other(text)) => {
                if text.to_lowercase().starts_with("permissions violation") {
                    self.is_denied.store(true, Ordering::Relaxed);
                }
                text
            }
            Event::ServerError(error) => error.to_string(),
            Event::SlowConsumer(_) => "acknowledgements were lost on the way".to_owned(),
            Event::Disconnected => "the connection was lost".to_owned(),
            _ => return,
        };
        let mut first = self.why.lock();
        if first.is_empty() {
            *first = why;
        }
        self.rung.notify_one();
    }

    pub(super) fn trouble(&self, letterhead: &Letterhead, inbox: &str) -> Trouble {
        let why = self.why.lock().clone();
        if !self.is_denied.load(Ordering::Relaxed) {
            return letterhead.again(why);
        }
        letterhead.lost(format!(
            "{why}; the user needs to publish to {}, $JS.API.STREAM.INFO.{stream} and \
             $JS.API.STREAM.MSG.GET.{stream}, and to subscribe to {inbox}.>",
            letterhead.subject,
            stream = letterhead.stream,
        ))
    }
}
