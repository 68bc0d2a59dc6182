//! Who goes on, drawn from the seed.

use super::{Core, LONGEST, QUIET, Run, Slot, WORKER};

impl Core {
    /// Who goes on: any that is ready, `me` included; now and then one whose time is not over yet,
    /// which it is then. When nobody is ready, the one whose time is over first.
    pub(super) fn pick(&mut self, me: Option<usize>) -> Option<usize> {
        let ready: Vec<usize> =
            (0..self.slots.len()).filter(|at| self.slots[*at].run == Run::Ready).collect();
        let first = (0..self.slots.len())
            .filter_map(|at| match self.slots[at].run {
                Run::Waiting { until: Some(until), .. } => Some((until, at)),
                _ => None,
            })
            .min();
        if ready.iter().any(|at| !self.slots[*at].name.starts_with(WORKER)) {
            (self.quiet_since, self.alone_since) = (None, None);
        }
        if ready.is_empty()
            && let Some(quiet) = self.slots.iter().position(|slot| slot.run == Run::Quiet)
        {
            // The workers' timers alone go on for ever, and their calls too, if each fails.
            let others = |slot: &Slot| !slot.name.starts_with(WORKER);
            let waits = |slot: &Slot| matches!(slot.run, Run::Waiting { until: Some(_), .. });
            let at_disk = |at: usize| match self.slots[at].run {
                Run::Waiting { on, until: Some(_) } => on == slow_key(at),
                _ => false,
            };
            let alone = *self.alone_since.get_or_insert(self.now);
            if self.slots.iter().any(|slot| others(slot) && waits(slot)) {
                (self.quiet_since, self.alone_since) = (None, None);
            } else if self.now < alone + LONGEST && (0..self.slots.len()).any(at_disk) {
                self.quiet_since = None;
            } else if first.is_none()
                || self.now >= *self.quiet_since.get_or_insert(self.now) + QUIET
            {
                self.slots[quiet].run = Run::Ready;
                return Some(quiet);
            }
        }
        if let Some((until, at)) = first
            && (ready.is_empty() || until <= self.now || self.rng.below(24) == 0)
        {
            self.now = self.now.max(until);
            self.slots[at].run = Run::Ready;
            self.slots[at].timed_out = true;
            return Some(at);
        }
        if ready.is_empty() {
            return None;
        }
        debug_assert!(me.is_none_or(|me| ready.contains(&me)));
        if self.by_rank {
            return ready.into_iter().min_by_key(|at| self.slots[*at].rank);
        }
        Some(ready[self.rng.below(ready.len() as u64) as usize])
    }

    /// What a thread waits for, in words that are the same in each run.
    pub(super) fn awaited(&self, on: usize, until: Option<u64>) -> String {
        let at = (0..self.slots.len())
            .find(|at| [join_key(*at), park_key(*at), slow_key(*at)].contains(&on));
        let what = match at {
            Some(at) if on == join_key(at) => format!("for the end of {}", self.slots[at].name),
            Some(at) if on == slow_key(at) => "for the disk".to_owned(),
            Some(_) => "to be woken".to_owned(),
            None => {
                let number = self.places.iter().position(|place| *place == on).unwrap_or(0);
                format!("for lock or signal {number}")
            }
        };
        let most = until.map(|until| until.saturating_sub(self.now) as f64 / 1e6);
        let most = most.map_or(String::new(), |most| format!(", for at most {most:.1} ms"));
        format!("waits {what}{most}")
    }

    pub(super) fn who_waits(&self) -> String {
        let waits = |slot: &Slot| match slot.run {
            Run::Waiting { on, until } => {
                Some(format!("{} {}", slot.name, self.awaited(on, until)))
            }
            _ => None,
        };
        self.slots.iter().filter_map(waits).collect::<Vec<_>>().join("; ")
    }
}

/// What those wait on who wait for a thread's end.
pub(super) fn join_key(thread: usize) -> usize {
    usize::MAX - thread
}

/// What a parked thread waits on.
pub(super) fn park_key(thread: usize) -> usize {
    usize::MAX / 2 - thread
}

/// What a thread waits on whose call takes its time.
pub(super) fn slow_key(thread: usize) -> usize {
    usize::MAX / 4 - thread
}

pub(super) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words
        .or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()))
        .unwrap_or_default()
}
