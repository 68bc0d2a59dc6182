//! How a process ends: it dies, it fails, or its last thread ends.

use std::sync::Arc;

use super::core::join_key;
use super::{Run, Schedule, aside};

impl Schedule {
    /// The process dies here.
    pub(super) fn die(&self) {
        let on_death = self.core.lock().on_death.take();
        if let Some(on_death) = on_death {
            aside(on_death);
        }
        let mut core = self.core.lock();
        core.is_dead = true;
        for slot in &mut core.slots {
            if matches!(slot.run, Run::Waiting { .. } | Run::Quiet) {
                slot.run = Run::Ready;
            }
        }
    }

    pub(super) fn fail(&self, me: usize, text: &str) {
        let mut core = self.core.lock();
        if let Some(log) = self.log.as_ref().filter(|_| !core.is_dead) {
            log.add(core.steps, &core.slots[me].name, format!("FAILS: {text}"));
        }
        let text = format!("{} after {} steps: {text}", core.slots[me].name, core.steps);
        core.outcome.failure.get_or_insert(text);
        core.on_death = None;
        drop(core);
        self.die();
    }

    /// A thread has ended; the next one goes on.
    pub(super) fn end(&self, me: usize) {
        self.core.lock().slots[me].run = Run::Ended;
        self.wake(join_key(me), usize::MAX);
        let mut core = self.core.lock();
        if core.slots.iter().all(|slot| slot.run == Run::Ended) {
            core.is_over = true;
            drop(core);
            self.over.notify_all();
            return;
        }
        if let Some(next) = core.pick(None) {
            let baton = Arc::clone(&core.slots[next].baton);
            drop(core);
            return baton.hand_over();
        }
        let (is_dead, text) = (core.is_dead, core.who_waits());
        drop(core);
        if is_dead {
            return self.give_up();
        }
        self.fail(me, &format!("stuck: {text}"));
        let mut core = self.core.lock();
        if let Some(next) = core.pick(None) {
            let baton = Arc::clone(&core.slots[next].baton);
            drop(core);
            baton.hand_over();
        }
    }

    pub(super) fn give_up(&self) {
        let mut core = self.core.lock();
        core.outcome.leaked = core.slots.iter().filter(|slot| slot.run != Run::Ended).count();
        core.is_over = true;
        drop(core);
        self.over.notify_all();
    }
}
