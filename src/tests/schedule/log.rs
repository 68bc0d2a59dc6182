//! What the threads of a schedule did, in its order, for a story; and panics that say nothing.

use std::cell::Cell;
use std::sync::{Arc, Once};

use parking_lot::Mutex;

use super::{IS_SCHEDULED, here};

/// Something that a thread did.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) step: u64,
    pub(crate) thread: String,
    pub(crate) text: String,
}

/// The lines of one or more schedules, as they were noted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    pub(crate) fn add(&self, step: u64, thread: &str, text: String) {
        self.0.lock().push(Line { step, thread: thread.to_owned(), text });
    }

    pub(crate) fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Notes what the calling thread did, where its schedule has a log and its process lives.
pub(crate) fn note(words: impl FnOnce() -> String) {
    if !IS_SCHEDULED.get() {
        return;
    }
    here(|schedule, me| {
        let Some(log) = &schedule.log else { return };
        let core = schedule.core.lock();
        if !core.is_dead {
            let (step, name) = (core.steps, core.slots[me].name.clone());
            drop(core);
            log.add(step, &name, super::aside(words));
        }
    });
}

thread_local! {
    pub(super) static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// From now on panics of silent threads are not printed.
pub(super) fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_SILENT.get() {
                loud(panic);
            }
        }));
    });
}
